"""Which graphs were built while steps ran, and why: the usual causes on real TensorFlow, then in a run's blocks."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfpipe.engine.in_process import InProcessExecutor
from tfpipe.engine.retracing import FIRST_CALL, FIRST_CALL_WITH_VARIABLES, TraceWatch
from tfpipe.messages import (
    Length,
    MeasureCapacity,
    Measured,
    MeasureFetchFloor,
    MeasureFloor,
    MeasureStep,
    Prepare,
    Prepared,
    Workload,
)
from tfpipe.settings import PipelineSettings

pytestmark = pytest.mark.tensorflow

FUNCTION_CLASS: Any = type(tf.function(lambda: None))
HERE = "test_retracing.py"


@tf.function
def train_step(batch: Any, training: Any = True, **options: Any) -> Any:
    return tf.constant(0.0)


@pytest.fixture
def step() -> Any:
    """A ``train_step`` that has no graph yet."""
    return tf.function(train_step.python_function)


def watched(*calls: Callable[[], Any]) -> tuple[TraceWatch, list[str]]:
    watch = TraceWatch()
    with watch:
        for call in calls:
            call()
    return watch, [retrace.cause for retrace in watch.retraces]


def line_of(code: Any) -> str:
    return f"{HERE}:{code.__code__.co_firstlineno}"


# --- the usual causes --------------------------------------------------------------------------------------------


class Config:
    pass


X, Y = tf.ones([8, 4]), tf.zeros([8], tf.int64)
ONE, OTHER = Config(), Config()
LINES = tf.ragged.constant([[1], [2, 3]])

CAUSES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], str]] = {
    "the last, smaller batch": (
        ((X, Y),),
        ((X[:3], Y[:3]),),
        "batch[0] is now float32 [3, 4], was float32 [8, 4]; batch[1] is now int64 [3], was int64 [8]",
    ),
    "another type": ((X,), (tf.cast(X, tf.float16),), "batch is now float16 [8, 4], was float32 [8, 4]"),
    "a Python number": ((1,), (2,), "batch is now 2, was 1"),
    "a string": (("adam",), ("sgd",), "batch is now 'sgd', was 'adam'"),
    "a number instead of a tensor": ((tf.constant(1.5),), (1.5,), "batch is now 1.5, was scalar float32 tensor"),
    "a variable instead of a tensor": (
        (X,),
        (tf.Variable(X),),
        "batch is now variable float32 [8, 4], was float32 [8, 4]",
    ),
    "a NumPy array of another shape": ((np.ones(3),), (np.ones(5),), "batch is now float64 [5], was float64 [3]"),
    "a list's length": (([X, X],), ([X, X, X],), "batch is now a list of 3, was a list of 2"),
    "a dict's keys": (({"x": X},), ({"x": X, "y": Y},), "batch is now a dict of x, y, was a dict of x"),
    "a dict's value": (
        ({"x": X, "y": Y},),
        ({"x": X, "y": Y[:3]},),
        "batch['y'] is now int64 [3], was int64 [8]",
    ),
    "a ragged batch's rows": (
        (LINES,),
        (tf.ragged.constant([[1], [2, 3], []]),),
        "batch is now ragged int32 [3, None] of ragged rank 1, was ragged int32 [2, None] of ragged rank 1",
    ),
    "a sparse batch's shape": (
        (tf.sparse.eye(3),),
        (tf.sparse.eye(4),),
        "batch is now sparse float32 [4, 4], was sparse float32 [3, 3]",
    ),
    "training as bools": ((X, True), (X, False), "training is now False, was True"),
    "training left out": ((X,), (X, False), "training is now False, was True"),
    "training as a tensor": ((X, True), (X, tf.constant(True)), "training is now scalar bool tensor, was True"),
    "another object": ((ONE,), (OTHER,), f"batch is now another <{__name__}.Config object>"),
    "another function": (
        (tf.nest.map_structure,),
        (functools.wraps,),
        "batch is now <function wraps>, was <function map_structure>",
    ),
    "None": ((None,), (X,), "batch is now float32 [8, 4], was None"),
}


@pytest.mark.parametrize(("first", "second", "cause"), CAUSES.values(), ids=CAUSES)
def test_the_cause_names_the_argument_and_what_it_was(
    step: Any, first: tuple[Any, ...], second: tuple[Any, ...], cause: str
) -> None:
    watch, causes = watched(lambda: step(*first), lambda: step(*first), lambda: step(*second), lambda: step(*first))
    assert causes == [FIRST_CALL, cause]
    assert watch.traces == {"train_step": 2} == {"train_step": step.experimental_get_tracing_count()}
    assert all(retrace.function == "train_step" and retrace.seconds > 0 for retrace in watch.retraces)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.ones(3), np.zeros(3)),
        (np.float32(1), np.float32(2)),
        (np.int64(1), np.int64(2)),
        (np.ones(3, np.float32), tf.ones(3)),
        (tf.Variable(1.0), tf.Variable(2.0)),
        (tf.ragged.constant([[1], [2, 3]]), tf.ragged.constant([[1, 2, 3], [2, 3]])),
        (tf.constant(True), tf.constant(False)),
        (1, 1.0),
    ],
    ids=["array", "float32", "int64", "array-tensor", "variable", "ragged", "bool-tensor", "equal-numbers"],
)
def test_what_needs_no_other_graph(step: Any, first: Any, second: Any) -> None:
    """NumPy's values among it: they become tensors, and only another shape or type is a cause."""
    _, causes = watched(lambda: step(first), lambda: step(second))
    assert causes == [FIRST_CALL]


def test_a_new_function_object_per_call() -> None:
    def train(x: Any) -> Any:
        return x + 1.0

    watch, causes = watched(*3 * [lambda: tf.function(train)(X)])
    again = f"a new tf.function object, made again from the code at {line_of(train)}"
    assert causes == [FIRST_CALL, again, again]
    assert watch.traces == {"train": 3}


def test_a_new_lambda_per_call(step: Any) -> None:
    def call() -> None:
        step(lambda: None)

    name = "<function test_a_new_lambda_per_call.<locals>.call.<locals>.<lambda>>"
    assert watched(call, call)[1] == [FIRST_CALL, f"batch is now another {name}"]


def test_every_python_number_is_compared_with_the_nearest_graph(step: Any) -> None:
    _, causes = watched(*(lambda n=number: step(X, n) for number in range(40)), lambda: step(X[:3], 39))
    assert causes[2:4] == ["training is now 2, was 1", "training is now 3, was 2"]
    assert causes[-1] == "batch is now float32 [3, 4], was float32 [8, 4]"


def test_equal_numbers_are_no_cause(step: Any) -> None:
    assert watched(lambda: step(X, 1), lambda: step(Y, 1.0))[1][1] == "batch is now int64 [8], was float32 [8, 4]"


def test_keywords_and_many_changes(step: Any) -> None:
    _, causes = watched(lambda: step(X), lambda: step(X, rate=0.1), lambda: step(Y, 2, rate=3, a=4))
    assert causes[1] == "rate is now 0.1, was left out"
    assert causes[2] == (
        "batch is now int64 [8], was float32 [8, 4]; training is now 2, was True; rate is now 3, was 0.1; and 1 more"
    )


def test_long_values_are_cut_and_still_told_apart(step: Any) -> None:
    _, causes = watched(lambda: step(200 * "a"), lambda: step(200 * "b"))
    assert "bbb...bbb" in causes[1]
    assert len(causes[1]) < 200


def test_an_object_that_cannot_be_shown(step: Any) -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("not me")

    one, other = Shy(), Shy()
    assert watched(lambda: step(one), lambda: step(other))[1][1] == "batch is now another Shy"


def test_what_lies_around_the_call(step: Any) -> None:
    def elsewhere() -> None:
        with tf.distribute.OneDeviceStrategy("CPU:0").scope():
            step(X)

    _, causes = watched(lambda: step(X), elsewhere)
    assert causes[1].startswith("the arguments fit a graph before; what is around the call changed")


def test_variables_made_in_the_first_call() -> None:
    made: list[Any] = []

    @tf.function
    def scale(x: Any) -> Any:
        if not made:
            made.append(tf.Variable(2.0))
        return made[0] * x

    watch, causes = watched(lambda: scale(X), lambda: scale(X[:3]))
    assert causes == [FIRST_CALL_WITH_VARIABLES, "x is now float32 [3, 4], was float32 [8, 4]"]
    assert watch.traces == {"scale": 3}


def test_a_graph_from_before_the_watch(step: Any) -> None:
    step(X)
    assert watched(lambda: step(X), lambda: step(Y))[1] == [
        "batch is int64 [8], training is True, unlike in the graphs that it had before"
    ]


# --- which functions are seen ------------------------------------------------------------------------------------


class Trainer(tf.Module):
    @tf.function
    def train(self, x: Any) -> Any:
        return tf.reduce_sum(x)


def test_methods_are_called_by_their_names_and_nested_functions_are_counted() -> None:
    inner = tf.function(lambda x: x if tf.reduce_sum(x) > 0 else -x)
    trainer = Trainer()

    def python_step(x: Any) -> Any:
        return trainer.train(x) + outer(x)[0, 0]

    @tf.function
    def outer(x: Any) -> Any:
        # Converted by AutoGraph, as is the function it calls.
        for _ in tf.range(3):
            x = inner(x)
        return x

    watch, causes = watched(lambda: python_step(X), lambda: python_step(-X), lambda: python_step(X[:3]))
    name = f"lambda at {HERE}:{inner.python_function.__code__.co_firstlineno}"
    assert watch.traces == {"Trainer.train": 2, name: 2, "outer": 2}
    assert [retrace.function for retrace in watch.retraces] == ["Trainer.train", "outer"] * 2
    assert causes[2:] == ["x is now float32 [3, 4], was float32 [8, 4]"] * 2


def test_keras_fit_is_seen() -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    watch, causes = watched(lambda: model.fit(X, tf.ones([8]), batch_size=4, verbose=0))
    assert causes == [FIRST_CALL]
    assert sum(watch.traces.values()) >= 2


def test_other_threads_are_not_the_step(step: Any) -> None:
    def elsewhere() -> None:
        thread = threading.Thread(target=lambda: step(X))
        thread.start()
        thread.join()

    watch, causes = watched(elsewhere)
    assert (watch.traces, causes, step.experimental_get_tracing_count()) == ({}, [], 1)


def test_nothing_is_left_behind(step: Any) -> None:
    original = FUNCTION_CLASS.__call__

    @tf.function
    def fails(x: Any) -> Any:
        raise KeyError("mine")

    watch = TraceWatch()
    with pytest.raises(KeyError, match="mine"), watch:
        fails(X)
    assert FUNCTION_CLASS.__call__ is original
    step(X)
    assert watch.traces == {}


# --- in the blocks of a run --------------------------------------------------------------------------------------

CURRENT = PipelineSettings(overrides=())
SHORT = Length(warmup_steps=1, warmup_s=0.0, steps=4, seconds=0.0)


class Here:
    """A pipeline and a step of this file, prepared and ready to measure."""

    def __init__(self, factory: Callable[[], Any], make_step: Callable[[Any], Any]) -> None:
        functions: dict[str, Callable[..., Any]] = {"here:make_dataset": factory, "here:make_step": make_step}
        self.executor = InProcessExecutor(functions, on_progress=lambda progress: None)
        workload = Workload(
            dataset=None,
            pipeline="here:make_dataset",
            data_dir=None,
            require_data=False,
            download=False,
            image_size=0,
            batch_size=None,
            step="here:make_step",
            width=0,
            seed=0,
        )
        prepared = self.executor.execute(Prepare(workload=workload))
        assert isinstance(prepared, Prepared), prepared
        self.prepared = prepared

    def measured(self, request: Any) -> Measured:
        reply = self.executor.execute(request)
        assert isinstance(reply, Measured), reply
        return reply


@pytest.fixture
def here() -> Iterator[Callable[..., Here]]:
    opened: list[Here] = []

    def open_here(factory: Callable[[], Any], make_step: Callable[[Any], Any]) -> Here:
        opened.append(Here(factory, make_step))
        return opened[-1]

    yield open_here
    for one in opened:
        one.executor.close()


def sentences() -> Any:
    """Batches of lengths 1, 1, 2, 3, 4 ... as a tokenizer gives them."""
    return tf.data.Dataset.range(100).map(lambda number: tf.zeros([2, tf.maximum(number, 1)])).repeat()


def make_step(spec: Any) -> Any:
    @tf.function
    def train(words: Any) -> Any:
        return tf.reduce_sum(words)

    return train


def test_a_block_with_a_new_graph_says_so(here: Callable[..., Here]) -> None:
    one = here(sentences, make_step)
    assert one.prepared.step.function_traces == (("train", 1),)
    measured = one.measured(MeasureStep(settings=CURRENT, round=0, length=SHORT))
    block = measured.block
    # Lengths of the 4 counted steps after one of warm-up: 1, 2, 3, 4; the first is known.
    assert block.retraced == len(block.retraces) == 3
    assert [retrace.cause for retrace in block.retraces] == [
        f"words is now float32 [2, {n}], was float32 [2, {n - 1}]" for n in (2, 3, 4)
    ]
    assert {retrace.function for retrace in block.retraces} == {"train"}
    assert all(0 < retrace.seconds < block.elapsed_s for retrace in block.retraces)
    assert measured.function_traces == (("train", 4),)
    again = one.measured(MeasureStep(settings=CURRENT, round=1, length=SHORT)).block
    assert (again.retraced, again.retraces) == (0, ())


def test_graphs_of_the_warm_up_spoil_nothing(here: Callable[..., Here]) -> None:
    length = Length(warmup_steps=3, warmup_s=0.0, steps=1, seconds=0.0)
    block = here(sentences, make_step).measured(MeasureStep(settings=CURRENT, round=0, length=length)).block
    assert block.retraced == 1
    assert len(block.warmup_retraces) == 1


def test_the_use_of_the_device_is_sampled_beside_steps_alone(here: Callable[..., Here]) -> None:
    one = here(lambda: tf.data.Dataset.from_tensors(tf.ones([2, 3])).repeat(), make_step)
    requests = [
        MeasureFloor(round=0, length=SHORT),
        MeasureStep(settings=CURRENT, round=0, length=SHORT),
        MeasureFetchFloor(round=0, length=SHORT),
        MeasureCapacity(settings=CURRENT, round=0, length=SHORT),
    ]
    uses = [one.measured(request).block.device_use for request in requests]
    assert [use is not None for use in uses] == [True, True, False, False]
    assert uses[0] is not None
    assert uses[0].mean_fraction > 0
    assert not [thread.name for thread in threading.enumerate() if thread.name == "tfpipe-device-use"]
