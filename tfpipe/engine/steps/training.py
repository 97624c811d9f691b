"""The built-in model's training step, in each way to run it."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfpipe.engine.steps.fit import FitStep
from tfpipe.engine.steps.resnet18 import resnet18
from tfpipe.engine.steps.running import FunctionStep, seeded, trace_each_call, with_functions_run, xla_refusal
from tfpipe.errors import UsageError
from tfpipe.settings import Execution, Packaging, Precision

LEARNING_RATE = 0.1
MOMENTUM = 0.9
_HOW: dict[Execution, str] = {
    "eager": "eager",
    "layer": "a tf.function per layer and for the gradient",
    "graph": "one tf.function",
    "xla": "one tf.function compiled by XLA",
    "fit": "Keras's model.fit",
}
_PACKAGED: dict[Packaging, str] = {"functional": "", "subclass": " as a subclassed model", "module": " as a tf.Module"}


def open_resnet18(
    spec: Any,
    *,
    width: int,
    classes: int,
    seed: int,
    execution: Execution = "graph",
    precision: Precision = "float32",
    packaging: Packaging = "functional",
    steps_per_execution: int = 1,
) -> FunctionStep | FitStep:
    """Forward, loss with L2, gradient and SGD-with-momentum update of a new model.

    Every execution starts from the same weights and computes the same: eagerly, operation by operation; with
    ``tf.function``s for each layer, the model and the gradient and the optimiser outside; as one ``tf.function``, by
    XLA or not; by Keras.

    Args:
        spec: TensorSpecs of images and labels.

    Raises:
        UsageError: ``fit`` of a ``tf.Module``.
    """
    images, labels = spec
    with seeded(seed):
        model = resnet18(images, width=width, classes=classes, precision=precision, packaging=packaging)
    optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
    if precision == "mixed_float16":
        # Small gradients are 0 in float16 unless the loss is scaled up.
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    parts = [f"ResNet18{_PACKAGED[packaging]}", f"width {width}", *([] if precision == "float32" else [precision])]
    description = ", ".join([*parts, _HOW[execution]])
    if execution == "fit":
        if steps_per_execution != 1:
            description += f", {steps_per_execution} steps per execution"
        if packaging == "module":
            raise UsageError(
                "--execution fit: a tf.Module has no fit.", "Use --packaging functional or subclass, or leave fit out."
            )
        model.compile(
            optimizer, loss_function, jit_compile=False, auto_scale_loss=False, steps_per_execution=steps_per_execution
        )
        return FitStep(model, description, spec)
    variables = model.trainable_variables
    optimizer.build(variables)

    def compute_gradients(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(images) if packaging == "module" else model(images, training=True)
            loss = loss_function(labels, logits) + tf.add_n(model.losses)
            scaled = optimizer.scale_loss(loss)
        return loss, tape.gradient(scaled, variables)

    def train_step(images: Any, labels: Any) -> Any:
        loss, gradients = compute_gradients(images, labels)
        optimizer.apply(gradients, variables)
        return loss

    functions: list[Any] = []
    run: Any = train_step
    if execution == "layer":
        compute_gradients = tf.function(compute_gradients, input_signature=[images, labels], autograph=False)
        functions = [*trace_each_call([*model.layers, model]), compute_gradients]
    elif execution != "eager":
        run = tf.function(
            train_step, input_signature=[images, labels], autograph=False, jit_compile=execution == "xla" or None
        )
        functions = [run]

    def explain(error: Exception) -> Exception:
        if execution == "xla" and isinstance(error, tf.errors.OpError):
            return xla_refusal("the step of resnet18", error)
        return error

    return FunctionStep(
        # Only so is nothing of a packaging that brings its own tf.function left a graph.
        with_functions_run(lambda batch: run(*batch), eagerly=execution == "eager"),
        execution=execution,
        description=description,
        functions=functions,
        variables=lambda: variables,
        explain=explain,
    )
