"""Casting in the step: where it is spoken of, and what it is predicted to bring on a pipeline that exists on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.runs import interval
from tests.unit.paper_pipeline import Setting, World, overrides_of, simulate, users_pipeline, world_run
from tfpipe.analysis.casting import UNSEEN_ERROR, casting_note
from tfpipe.analysis.operational import build_model
from tfpipe.analysis.operational.costs import COPY_BYTE_S, COPY_S, Costs, without_map
from tfpipe.analysis.operational.shape import shape_of
from tfpipe.analysis.recommend import recommend
from tfpipe.records import Block, Device, Prediction, Run, Verdict
from tfpipe.sites import Stage

MS = 1e-3
WORLD = World(source_s=0.05 * MS, compute_s=0.5 * MS, batch_s=0.1 * MS, batch_size=16)
CODE = "image = tf.cast(image, tf.float32) / 255.0"


APART = Setting(fused=False, depth=2)


def cast_run(setting: Setting = APART, *, step_s: float = 4 * MS, **changes: Any) -> Run:
    """A map that casts uint8 to float32, behind which the step waits."""
    run = world_run(WORLD, (setting,), step_s=step_s)
    assert run.pipeline is not None
    source, mapped, batch = run.pipeline.stages
    stages = (
        replace(source, element_bytes=100),
        replace(mapped, **{"element_bytes": 400, "casting": (CODE,), "random": False, **changes}),
        replace(batch, element_bytes=6400),
    )
    (candidate,) = run.candidates
    waited_s = WORLD.batch_size / (candidate.capacity_examples_per_s or 1)
    measured = replace(
        candidate,
        blocks=(*candidate.blocks, *(step_block(waited_s, number) for number in range(3))),
        step_s=interval(waited_s),
        floor_s=step_s,
        input_fraction=interval(1 - step_s / waited_s),
        examples_per_s=interval(WORLD.batch_size / waited_s),
        verdict=Verdict(bound="input-high", statement=""),
    )
    return replace(
        run,
        pipeline=replace(run.pipeline, stages=stages),
        data=replace(run.data, example_bytes=400),
        candidates=(measured,),
    )


def step_block(step_s: float, number: int) -> Block:
    return Block(kind="step", round=number, warmup_steps=0, steps=1, elapsed_s=step_s, step_s=(step_s,), fetch_s=(0.0,))


def note(run: Run) -> str | None:
    return casting_note(run, run.candidates[0])


def test_what_is_said_and_what_to_write() -> None:
    run = cast_run()
    (candidate,) = run.candidates
    assert candidate.step_s is not None
    told = note(run)
    assert told is not None
    assert told.startswith("data.py:2: this map only casts and scales. Cast in the step: predicted, not measured, ")
    assert "batches of 1.56 KiB instead of 6.25 KiB" in told
    assert told.endswith(f"begin the step with: {CODE}")
    # 0.05 ms of source and a quarter of 0.1 ms of batch are left, for 16 examples: less than the step's 4 ms.
    assert f"{candidate.step_s.value / (4 * MS):.2f} times as fast" in told
    assert told in recommend(run).notes


@pytest.mark.parametrize("setting", [APART, replace(APART, calls=None)])
def test_the_gain_is_that_of_the_pipeline_without_the_map(setting: Setting) -> None:
    run = cast_run(setting, step_s=0.1 * MS)
    model = build_model(run)
    assert model is not None
    without = replace(WORLD, compute_s=0.0, batch_s=WORLD.batch_s / 4)
    now, then = (
        sum(simulate(world, replace(setting, calls=calls), step_s=0.1 * MS).batch_s)
        for world, calls in ((WORLD, setting.calls), (without, None))
    )
    found = model.gain_without_map(run.candidates[0].settings, "data.py:2:map", before=100, after=400)
    assert found == pytest.approx(now / then, rel=0.15)


def test_of_a_map_that_fills_batches_the_copying_stays() -> None:
    run = cast_run(Setting(calls=1, depth=2), step_s=0.01 * MS)
    model = build_model(run)
    assert model is not None
    gains = [
        model.gain_without_map(run.candidates[0].settings, "data.py:2:map", before=size, after=10**7)
        for size in (100, 10**6)
    ]
    now_s = WORLD.source_s + WORLD.compute_s + WORLD.batch_s
    copied_s = [COPY_S + COPY_BYTE_S * size for size in (100, 10**6)]
    assert gains == pytest.approx([now_s / (WORLD.source_s + seconds) for seconds in copied_s], rel=0.15)


def test_threads_that_wake_each_other_go_with_the_last_calls() -> None:
    costs = Costs(stages=(), handing_s=1.0)
    for setting, left_s in ((APART, 0.0), (replace(APART, calls=None), 1.0)):
        shape = shape_of(overrides_of(setting), users_pipeline(python=False), cores=2, batch_size=16)
        _, left = without_map(shape, costs, "data.py:2:map", before=1, after=4)
        assert left.handing_s == left_s


def test_the_interval_is_the_error_seen_so_far() -> None:
    run = cast_run(step_s=2 * MS)
    (candidate,) = run.candidates
    assert candidate.step_s is not None
    told = note(run)
    model = build_model(run)
    assert told is not None
    assert model is not None
    gain = model.gain_without_map(candidate.settings, "data.py:2:map", before=100, after=400)
    assert f"{gain:.2f} times as fast ({gain / (1 + UNSEEN_ERROR):.2f}-" in told
    off = Prediction(step_s=candidate.step_s.value * 1.8, capacity_examples_per_s=1.0)
    checked = note(replace(run, candidates=(replace(candidate, predicted=off),)))
    assert checked is not None
    assert f"{gain:.2f} times as fast ({gain / 1.8:.2f}-" in checked


def test_nothing_is_said_where_the_step_computes_or_nothing_is_to_be_had() -> None:
    run = cast_run()
    (candidate,) = run.candidates
    computes = replace(candidate, verdict=Verdict(bound="compute", statement=""))
    assert note(replace(run, candidates=(computes,))) is None
    assert note(replace(run, floor=replace(run.floor, step_s=candidate.step_s))) is None
    assert note(cast_run(casting=())) is None
    assert note(cast_run(via="make_csv_dataset")) is None
    assert note(cast_run(element_bytes=None)) is None
    assert note(cast_run(element_bytes=50)) is None, "elements become smaller"


def test_on_a_cpu_the_cast_would_only_change_its_place() -> None:
    run = cast_run()
    on_host = replace(run, step=replace(run.step, name="resnet18"))
    assert note(on_host) is None
    gpu = Device(name="/physical_device:GPU:0", kind="GPU", description="A GPU")
    devices = (*run.environment.devices, gpu)
    assert note(replace(on_host, environment=replace(run.environment, devices=devices))) is not None


@pytest.mark.parametrize(("method", "spoken_of"), [("shuffle", True), ("map", False), ("filter", False)])
def test_only_where_the_step_gets_what_the_map_made(method: str, spoken_of: bool) -> None:
    run = cast_run()
    assert run.pipeline is not None
    source, mapped, batch = run.pipeline.stages
    between = Stage(
        id=f"data.py:9:{method}", file="data.py", line=9, method=method, inputs=(mapped.id,), element_bytes=400,
        random=True,
    )  # fmt: skip
    stages = (source, mapped, between, replace(batch, inputs=(between.id,)))
    assert (note(replace(run, pipeline=replace(run.pipeline, stages=stages))) is not None) == spoken_of


def test_no_more_is_promised_than_the_step_waits() -> None:
    """Whatever the model says: it is 1.05 times compute alone that was measured."""
    run = cast_run()
    measured = replace(run.candidates[0], step_s=interval(1.05 * 4 * MS))
    told = note(replace(run, candidates=(measured,)))
    assert told is not None
    assert "1.05 times as fast (1.00-1.05)" in told
