"""A compiled Keras model of the user's, trained on one batch in each way to run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfpipe.engine.steps.running import trace_each_call
from tfpipe.settings import Execution


def written_execution(model: Any) -> Execution:
    """How ``fit`` would run the model's ``train_step``, as it was compiled."""
    if model.run_eagerly or tf.config.functions_run_eagerly():
        return "eager"
    return "xla" if model.jit_compile else "graph"


def train_function(model: Any, execution: Execution) -> tuple[Callable[[Any], Any], list[Any]]:
    """The model's ``train_step`` as a function of one batch, and the ``tf.function``s in it."""

    def train_step(batch: Any) -> Any:
        return model.train_step(batch)

    if execution == "eager":
        return train_step, []
    if execution == "layer":
        step = _LayerByLayer(model)
        return step, step.functions
    function = tf.function(
        train_step, autograph=False, reduce_retracing=True, jit_compile=True if execution == "xla" else None
    )
    return function, [function]


class _LayerByLayer:
    """Every layer's ``call`` and the model's own are ``tf.function``s.

    So is the function that computes the gradient, unless the model has a ``train_step`` of its own, which then runs
    eagerly around them.
    """

    def __init__(self, model: Any) -> None:
        self.functions: list[Any] = []
        self._model = model
        self._has_own_step = type(model).train_step is not keras.Model.train_step
        self._compute_gradients = tf.function(self._gradients, autograph=False, reduce_retracing=True)

    def __call__(self, batch: Any) -> Any:
        model = self._model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        if not self.functions:
            # Makes the variables: made inside its layers' tf.functions, they get no gradient in the first step.
            model(x)
            self.functions += trace_each_call(flat_layers(model))
            if not self._has_own_step:
                self.functions.append(self._compute_gradients)
        if self._has_own_step:
            return model.train_step(batch)
        loss, y_pred, gradients = self._compute_gradients(x, y, sample_weight)
        model.optimizer.apply(gradients, model.trainable_variables)
        # The first metric of a compiled model is its mean loss.
        model.metrics[0].update_state(loss, sample_weight=tf.shape(tf.nest.flatten(x)[0])[0])
        return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def _gradients(self, x: Any, y: Any, sample_weight: Any) -> Any:
        model = self._model
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            loss = model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight)
            scaled = model.optimizer.scale_loss(loss)
        return loss, y_pred, tape.gradient(scaled, model.trainable_variables)


def flat_layers(model: Any) -> list[Any]:
    """All layers, those inside others too, and the model itself; Keras has no public way to list them."""
    return list(model._flatten_layers())
