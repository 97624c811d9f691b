"""``model.fit`` timed from a callback: what is fetched, what an epoch's end is, and where only the difference tells."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing

from tfpipe.analysis.attribution import Attribution, attribute, estimate_floor
from tfpipe.engine.pipeline import executed_nodes
from tfpipe.engine.steps.fit import FitStep
from tfpipe.errors import TfpipeError
from tfpipe.messages import Length
from tfpipe.records import Block, DeviceUse, Retrace
from tfpipe.trace.analysis import analyze_trace

pytestmark = pytest.mark.tensorflow

SHORT = Length(warmup_steps=2, warmup_s=0.0, steps=12, seconds=0.0)
LATENCY_S = 0.02
BATCH = tf.ones((4, 8)), tf.zeros((4, 1))
SPEC = tf.data.Dataset.from_tensors(BATCH).element_spec


def open_fit(spec: Any = SPEC, **arguments: Any) -> FitStep:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **arguments)
    step = FitStep(model, "fit", spec)
    step.first_call(BATCH)
    return step


@pytest.fixture(scope="module")
def fit() -> FitStep:
    return open_fit()


def slow(dataset: Any) -> Any:
    """Each batch comes ``LATENCY_S`` after it was asked for."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.apply(testing.sleep(int(LATENCY_S * 1e6))).with_options(options)


def floors(step: FitStep) -> tuple[Block, Block]:
    constant = step.constant(BATCH)
    return (
        step.drive(constant, SHORT, kind="floor", round=0)[0],
        step.drive(constant, SHORT, kind="fetch-floor", round=0)[0],
    )


def sum_of_parts(attributed: Attribution) -> float:
    return sum(part or 0.0 for part in (attributed.compute_s, attributed.input_wait_s, attributed.contention_s))


def test_the_fetch_inside_fit_is_known_on_a_cpu(fit: FitStep) -> None:
    block, iterator = fit.drive(slow(fit.constant(BATCH)), SHORT, kind="step", round=3)
    assert (block.kind, block.round, block.warmup_steps, block.steps) == ("step", 3, 2, 12)
    assert block.synchronous
    assert all(LATENCY_S * 0.9 < fetch < step for fetch, step in zip(block.fetch_s, block.step_s, strict=True))
    assert block.first_batch_s is not None
    assert block.first_batch_s > LATENCY_S * 0.9
    assert math.fsum(block.step_s) == pytest.approx(block.elapsed_s)
    assert [node.node for node in executed_nodes(iterator)][-1].startswith("Sleep")
    floor, fetch_floor = floors(fit)
    assert floor.fetch_s == (0.0,) * floor.steps
    assert max(fetch_floor.fetch_s) > 0
    attributed = attribute([block], estimate_floor([floor], [fetch_floor]))
    assert attributed.input_wait_s is not None
    assert attributed.input_wait_s > 0
    assert sum_of_parts(attributed) == pytest.approx(attributed.step_s.value)


@pytest.mark.parametrize("arguments", [{"steps_per_execution": 4}, {"jit_compile": True}], ids=["4-steps", "xla"])
def test_where_it_is_not_known_the_difference_to_the_floor_is_the_wait(arguments: Any) -> None:
    step = open_fit(**arguments)
    block, _ = step.drive(slow(step.constant(BATCH)), SHORT, kind="step", round=0)
    assert not block.synchronous
    assert block.steps >= 12
    assert block.steps % step.steps_per_execution == 0
    assert block.fetch_s == block.step_s, "it may all be waiting"
    floor, fetch_floor = floors(step)
    assert set(floor.fetch_s) == set(fetch_floor.fetch_s) == {0.0}
    attributed = attribute([block], estimate_floor([floor], [fetch_floor]))
    assert attributed.step_s.value > LATENCY_S * 0.9
    beyond_s = attributed.step_s.value - floor.elapsed_s / floor.steps
    assert attributed.input_wait_s == pytest.approx(max(0.0, beyond_s))
    assert sum_of_parts(attributed) == pytest.approx(attributed.step_s.value)


def of_unknown_length(dataset: Any) -> Any:
    """``dataset`` with no length that Keras could know."""
    return dataset.filter(lambda x, y: True)


@pytest.mark.parametrize(
    ("hide", "in_epochs"),
    [(of_unknown_length, (2, 4, 4, 2)), (lambda dataset: dataset, (1, 3, 3, 3, 2))],
    ids=["unknown", "known"],
)
def test_an_epoch_s_end_is_no_step(fit: FitStep, hide: Callable[[Any], Any], in_epochs: tuple[int, ...]) -> None:
    block, _ = fit.drive(slow(hide(fit.constant(BATCH).take(5))), SHORT, kind="step", round=0)
    # Of five batches the first is not counted, nor the last one where Keras does not ask for a sixth.
    assert block.steps == sum(in_epochs) == 12
    assert len(block.epoch_start_s) == len(in_epochs) - 1
    assert all(start > LATENCY_S * 0.9 for start in block.epoch_start_s)


def test_a_smaller_last_batch_is_no_step_and_builds_no_graph() -> None:
    rows = tf.data.Dataset.from_tensors((tf.ones(8), tf.zeros(1))).repeat(18)
    dataset = of_unknown_length(rows.batch(4))
    assert dataset.element_spec[0].shape[0] is None
    step = open_fit(dataset.element_spec)
    assert step.constant(BATCH).element_spec == dataset.element_spec
    traces = step.traces
    block, _ = step.drive(dataset, SHORT, kind="step", round=0)
    # Of five batches the first and the last are not counted: 1, 3, 3, 3 and 2.
    assert (block.steps, len(block.epoch_start_s)) == (12, 4)
    assert step.traces == traces


def test_epochs_without_a_step_that_counts_end_with_a_message(fit: FitStep) -> None:
    with pytest.raises(TfpipeError, match="too few batches to time a step of fit"):
        fit.drive(fit.constant(BATCH).take(2), SHORT, kind="step", round=0)
    original = tf.data.Dataset.__iter__
    assert original.__qualname__ == "DatasetV2.__iter__", "what was wrapped is put back"


class Sampler:
    """Notes the step that it was started and stopped at."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> DeviceUse | None:
        self.calls.append("stop")
        return DeviceUse(source="process-cpu", mean_fraction=0.5, deviation_fraction=0.0, samples=1)


def test_retraces_and_the_device_s_use_are_those_of_the_counted_part(fit: FitStep) -> None:
    retraces: list[Retrace] = []
    seen = 0

    def retrace(number: Any) -> Any:
        # One in the warm-up and one in what counts.
        nonlocal seen
        seen += 1
        if seen in (2, 8):
            retraces.append(Retrace(function="f", cause=str(seen), seconds=0.1))
        return number

    def touch(x: Any, y: Any) -> Any:
        return x * tf.ensure_shape(tf.numpy_function(retrace, [1.0], tf.float32), []), y

    sampler = Sampler()
    dataset = slow(fit.constant(BATCH).map(touch))
    block, _ = fit.drive(dataset, SHORT, kind="step", round=0, retraces=retraces, sampler=sampler)
    assert [r.cause for r in block.warmup_retraces] == ["2"]
    assert [r.cause for r in block.retraces] == ["8"]
    assert block.retraced == 1
    assert sampler.calls == ["start", "stop"]
    assert block.device_use is not None


def test_a_failing_pipeline_raises_its_own_error_and_stops_the_sampler(fit: FitStep) -> None:
    bad = (
        fit.constant(BATCH)
        .enumerate()
        .map(
            lambda n, batch: (tf.debugging.check_numerics(batch[0] / tf.cast(8 - n, tf.float32), "bad batch"), batch[1])
        )
    )
    sampler = Sampler()
    with pytest.raises(tf.errors.OpError, match="bad batch"):
        fit.drive(bad, SHORT, kind="step", round=0, sampler=sampler)
    assert sampler.calls == ["start", "stop"]


def test_fit_is_traced_with_a_marker_for_each_step(fit: FitStep, tmp_path: Path) -> None:
    dataset = slow(of_unknown_length(fit.constant(BATCH).take(5)))
    traced = fit.capture(dataset, warmup_steps=2, steps=6, logdir=str(tmp_path))
    assert traced.size_bytes > 0
    assert (traced.block.kind, traced.block.steps) == ("trace", 6)
    assert sum(traced.block.fetch_s) > 6 * LATENCY_S * 0.9
    steps = analyze_trace(Path(traced.path)).steps
    assert steps.basis == "marker"
    assert "first and last of 6 left out" in steps.statement
    assert steps.mean.input_wait_s > LATENCY_S * 0.9
