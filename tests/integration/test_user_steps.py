"""A user's own step: functions, compiled Keras models, and what is said when it does not take the batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tfpipe.engine.load_user import give_function, take_function_back
from tfpipe.engine.steps.user import open_user_step
from tfpipe.errors import TfpipeError, UsageError, UserCodeError

pytestmark = pytest.mark.tensorflow

IMAGES = tf.TensorSpec([None, 8], tf.float32)
X, Y, WEIGHT = tf.ones((4, 8)), tf.zeros((4, 1)), tf.ones(4)


def opened(make_step: Callable[[Any], Any], batch: Any, execution: Any = None) -> Any:
    """The step after its first call."""
    give_function("here:make_step", make_step)
    try:
        spec = tf.data.Dataset.from_tensors(batch).element_spec
        step = open_user_step("here:make_step", spec, batch, execution=execution)
    finally:
        take_function_back("here:make_step")
    step.first_call(batch)
    return step


def dense(inputs: Any) -> Any:
    return keras.Model(inputs, keras.layers.Dense(1)(inputs))


def compiled(model: Any, **arguments: Any) -> Any:
    model.compile(optimizer="sgd", loss="mse", metrics=["mae"], **arguments)
    return model


class OfDicts(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs["x"])


class OwnTrainStep(OfDicts):
    """Takes whole dicts, targets included, and does its own thing with them."""

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(data) - data["y"]) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"own_loss": loss}


@pytest.mark.parametrize(
    ("make", "batch"),
    [
        (lambda: dense(keras.Input((8,))), (X, Y)),
        (lambda: dense(keras.Input((8,))), (X, Y, WEIGHT)),
        (OfDicts, ({"x": X}, Y)),
        (OfDicts, ({"x": X}, Y, WEIGHT)),
        (OwnTrainStep, {"x": X, "y": Y}),
    ],
    ids=["x-y", "x-y-weight", "dict-y", "dict-y-weight", "whole-dict"],
)
def test_a_keras_model_trains_by_its_own_train_step(make: Callable[[], Any], batch: Any) -> None:
    step = opened(lambda spec: compiled(make()), batch)
    traces = step.traces
    losses = [next(iter(step(batch).values())).numpy() for _ in range(4)]
    assert losses[-1] < losses[0]
    assert step.traces == traces, "it is traced once, when it is opened"
    assert "Keras model" in step.description


def test_a_keras_model_that_runs_eagerly_is_left_eager() -> None:
    step = opened(lambda spec: compiled(dense(keras.Input((8,))), run_eagerly=True), (X, Y))
    assert step.traces is None
    assert "eagerly" in step.description


def test_weights_of_examples_count() -> None:
    def weighted(weight: Any) -> float:
        keras.utils.set_random_seed(1)
        step = opened(lambda spec: compiled(dense(keras.Input((8,)))), (X, Y, weight))
        return float(step((X, Y, weight))["loss"])

    assert weighted(tf.zeros(4)) == 0
    assert weighted(WEIGHT) > 0


@pytest.mark.parametrize("spread", [False, True])
def test_a_plain_function_becomes_one_tf_function(spread: bool) -> None:
    total = tf.Variable(0.0)

    def whole(batch: Any) -> Any:
        return total.assign_add(tf.reduce_sum(batch[0]))

    def components(x: Any, y: Any) -> Any:
        return total.assign_add(tf.reduce_sum(x))

    step = opened(lambda spec: components if spread else whole, (X, Y))
    assert step.traces == 1
    step.finish(step((X, Y)))
    assert float(total) == 64.0


def test_a_tf_function_stays_the_one_it_is() -> None:
    function = tf.function(lambda batch: batch[0], input_signature=[(IMAGES, tf.TensorSpec([None, 1], tf.float32))])
    opened(lambda spec: function, (X, Y))
    assert function.experimental_get_tracing_count() == 1


MISMATCH = """\
The elements of the pipeline do not fit the step of here:make_step:
    element     the pipeline gives  the step takes
    ['image']   float32 (4, 8)      float32 (None, 8)
    ['label']   float32 (4, 1)      int64 (None,)      <- differs
    ['weight']  float32 (4,)        nothing            <- differs"""


def test_a_mismatch_shows_both_specs_side_by_side() -> None:
    signature = [{"image": IMAGES, "label": tf.TensorSpec([None], tf.int64)}]
    function = tf.function(lambda batch: batch["image"], input_signature=signature)
    with pytest.raises(TfpipeError) as raised:
        opened(lambda spec: function, {"image": X, "label": Y, "weight": WEIGHT})
    assert raised.value.message == MISMATCH
    assert raised.value.exit_code == 1


def test_a_mismatch_of_several_arguments() -> None:
    class Trainer(tf.Module):
        @tf.function(input_signature=[IMAGES, tf.TensorSpec([None, 1], tf.int32)])
        def train(self, x: Any, y: Any) -> Any:
            return tf.reduce_sum(x)

    trainer = Trainer()
    with pytest.raises(TfpipeError) as raised:
        opened(lambda spec: trainer.train, (X, Y))
    assert "[1]      float32 (4, 1)      int32 (None, 1)    <- differs" in raised.value.message


def test_a_mismatch_with_a_keras_model() -> None:
    with pytest.raises(TfpipeError) as raised:
        opened(lambda spec: compiled(dense(keras.Input((9,)))), (X, Y))
    assert "[0]      float32 (4, 8)      float32 (None, 9)  <- differs" in raised.value.message
    assert "[1]" in raised.value.message


def test_an_error_without_a_signature_shows_what_the_pipeline_gives() -> None:
    with pytest.raises(TfpipeError) as raised:
        opened(lambda spec: lambda batch: batch["image"], (X, Y))
    assert "The pipeline gives:\n    [0]  float32 (4, 8)\n    [1]  float32 (4, 1)" in raised.value.message
    assert __file__ in raised.value.message
    assert "tensorflow/python" not in raised.value.message


@pytest.mark.parametrize(
    ("make_step", "error", "words"),
    [
        (lambda spec: dense(keras.Input((8,))), UsageError, "not compiled"),
        (lambda spec: 3, UsageError, "neither a function of one batch nor a Keras model"),
        (lambda spec: spec["image"], UserCodeError, "raised TypeError"),
    ],
)
def test_what_is_no_step_is_refused(make_step: Any, error: type[TfpipeError], words: str) -> None:
    with pytest.raises(error, match=words):
        opened(make_step, (X, Y))
