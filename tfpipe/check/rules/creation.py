"""Objects with state that traced code creates anew."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tfpipe.check.kinds import is_keras
from tfpipe.check.rules.base import Check, File, Hit, text_of
from tfpipe.check.source import Class
from tfpipe.check_records import Rule

# Keras layers without weights and without a random generator: making one per trace is only waste.
_STATELESS = frozenset({
    "Activation", "Add", "Average", "AveragePooling1D", "AveragePooling2D", "AveragePooling3D", "AvgPool1D",
    "AvgPool2D", "AvgPool3D", "CenterCrop", "Concatenate", "Cropping1D", "Cropping2D", "Cropping3D", "Dot", "ELU",
    "Flatten", "GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalAveragePooling3D", "GlobalMaxPooling1D",
    "GlobalMaxPooling2D", "GlobalMaxPooling3D", "GlobalAvgPool1D", "GlobalAvgPool2D", "GlobalMaxPool1D",
    "GlobalMaxPool2D", "Identity", "Input", "InputLayer", "InputSpec", "Lambda", "LeakyReLU", "Masking",
    "MaxPool1D", "MaxPool2D", "MaxPool3D", "MaxPooling1D", "MaxPooling2D", "MaxPooling3D", "Maximum", "Minimum",
    "Multiply", "Permute", "ReLU", "RepeatVector", "Rescaling", "Reshape", "Resizing", "Softmax", "Subtract",
    "ThresholdedReLU", "UpSampling1D", "UpSampling2D", "UpSampling3D", "ZeroPadding1D", "ZeroPadding2D",
    "ZeroPadding3D", "CategoryEncoding", "ActivityRegularization", "UnitNormalization", "AutoContrast",
    "Solarization",
})  # fmt: skip


def _find_variable(file: File) -> Iterator[Hit]:
    for traced, site, node, called in file.calls():
        if called in ("tensorflow.Variable", "keras.Variable") and not site.once:
            message = "a tf.Variable is created each time this is traced; the second time raises"
            yield Hit(node=node, traced=traced, message=message)
        elif (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_weight"
            and not site.once
            and file.is_own_object(node.func.value)
        ):
            message = "add_weight creates a tf.Variable each time this is traced; the second time raises"
            yield Hit(node=node, traced=traced, message=message)


def _find_keras(file: File) -> Iterator[Hit]:
    for traced, site, node, called in file.calls():
        if site.once:
            continue
        noun = _stateful(called) if called is not None else None
        if called is None:
            definition = file.source.definition(node.func)
            if isinstance(definition, Class) and _has_state(file, definition):
                noun = "a layer or model"
        if noun is not None:
            message = f"{text_of(node.func)} is {noun}: its variables are created each time this is traced"
            yield Hit(node=node, traced=traced, message=message)


def _has_state(file: File, klass: Class) -> bool:
    """Whether a Keras class of this file makes variables, or layers that do; one that only computes is harmless."""
    if not is_keras(file.source, klass):
        return False
    for item in (klass, *file.source.bases(klass)):
        if isinstance(item, str):
            if _stateful(item) is not None and item.rpartition(".")[2] not in ("Layer", "Model"):
                return True
            continue
        for node in ast.walk(item.node):
            if isinstance(node, ast.Call):
                called = file.source.dotted(node.func)
                if called is not None and (called == "tensorflow.Variable" or _stateful(called) is not None):
                    return True
                if isinstance(node.func, ast.Attribute) and node.func.attr == "add_weight":
                    return True
    return False


def _stateful(dotted: str) -> str | None:
    """What kind of Keras object with variables a call of that name makes."""
    last = dotted.rpartition(".")[2]
    if not last[:1].isupper() or last in _STATELESS:
        return None
    if dotted.startswith("keras.layers."):
        return "a layer"
    if dotted in ("keras.Model", "keras.Sequential", "keras.models.Model", "keras.models.Sequential"):
        return "a model"
    if dotted.startswith("keras.applications."):
        return "a model"
    if dotted.startswith("keras.optimizers.") and ".schedules." not in dotted:
        return "an optimiser"
    return "a metric" if dotted.startswith("keras.metrics.") else None


VARIABLE = Check(
    rule=Rule(
        name="variable-in-function",
        severity="error",
        summary="a tf.Variable is created in traced code",
        reason="tf.function may create variables only the first time it is traced; a new one per trace would forget "
        "its value, "
        "so TensorFlow raises.",
        instead="Create it outside: in __init__ or build, at module level, or behind `if self.v is None`.",
        bad="""\
import tensorflow as tf

@tf.function
def count(x):
    total = tf.Variable(0.0)
    total.assign_add(tf.reduce_sum(x))
    return total
""",
        good="""\
import tensorflow as tf

class Count(tf.Module):
    def __init__(self):
        self.total = tf.Variable(0.0)
        self.scale = None

    @tf.function
    def __call__(self, x):
        if self.scale is None:
            self.scale = tf.Variable(2.0)
        return self.total.assign_add(self.scale * tf.reduce_sum(x))
""",
    ),
    find=_find_variable,
)
KERAS = Check(
    rule=Rule(
        name="keras-object-in-function",
        severity="error",
        summary="a Keras layer, optimiser or metric is created in traced code",
        reason="Such an object creates variables. In traced code that raises from the second trace on, and what the "
        "object "
        "learned or counted would be lost with each graph.",
        instead="Create it once in __init__ or at module level and use it here; for a metric pass the object in.",
        bad="""\
import tensorflow as tf

@tf.function
def classify(x):
    return tf.keras.layers.Dense(10)(x)
""",
        good="""\
import tensorflow as tf

head = tf.keras.layers.Dense(10)

@tf.function
def classify(x):
    return head(tf.keras.layers.Flatten()(x))
""",
    ),
    find=_find_keras,
)
CHECKS = (VARIABLE, KERAS)
