"""Models with two modes called in a training step without saying which."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tfpipe.check.rules.base import Check, File, Hit, text_of
from tfpipe.check.source import Class, Function
from tfpipe.check_records import Rule

# Layers that do something else in training than in inference. (RandomFlip and its kin are active by default.)
_TWO_MODES = frozenset({
    "BatchNormalization", "SyncBatchNormalization", "Dropout", "SpatialDropout1D", "SpatialDropout2D",
    "SpatialDropout3D", "GaussianNoise", "GaussianDropout", "AlphaDropout",
})  # fmt: skip
_TAPE = "tensorflow.GradientTape"
_MAX_DEPTH = 6


def _find(file: File) -> Iterator[Hit]:
    for traced, _, node, _called in file.calls():
        if traced.function.node.__class__ is ast.Lambda or not _trains(file, traced.root or traced.function):
            continue
        if any(keyword.arg is None or "train" in keyword.arg for keyword in node.keywords) or len(node.args) != 1:
            continue
        layer = _two_mode_layer(file, node.func)
        if layer is not None:
            message = f"{text_of(node.func)} contains {layer} and is called in a training step without training=True"
            yield Hit(node=node, traced=traced, message=message)


def _trains(file: File, function: Function) -> bool:
    """Whether the function records gradients."""
    return any(
        isinstance(node, ast.withitem) and file.source.called(node.context_expr) == _TAPE
        for node in ast.walk(function.node)
    )


def _two_mode_layer(file: File, node: ast.expr) -> str | None:
    """The first layer with two modes in the model that ``node`` refers to; None when there is none or it is unknown."""
    if file.is_own_object(node):
        assert isinstance(node, ast.Name)
        binding = file.source.binding(node)
        owner = binding.function.owner if binding is not None and binding.function is not None else None
        return _in_class(file, owner, set(), 0) if owner is not None else None
    if not isinstance(node, ast.Name | ast.Attribute):
        return None
    return _in_value(file, node, set(), 0)


def _in_value(file: File, node: ast.expr, seen: set[object], depth: int) -> str | None:
    """Follow a value to the calls that made it, and look for such a layer among them."""
    if depth > _MAX_DEPTH or node in seen:
        return None
    seen.add(node)
    if isinstance(node, ast.Name):
        binding = file.source.binding(node)
        if binding is None:
            return None
        if binding.kind == "parameter" and binding.function is not None:
            found = [_in_value(file, item, seen, depth + 1) for item in file.kinds.arguments(binding.function, node.id)]
            return next((item for item in found if item), None)
        values = (
            [binding.value] if binding.kind in ("assign", "unpack", "augment") and binding.value is not None else []
        )
        added = _added_layers(file, node) if values else []
        found = [_in_value(file, item, seen, depth + 1) for item in (*values, *added)]
        return next((item for item in found if item), None)
    if isinstance(node, ast.Attribute):
        owner = file.source.class_of_value(node.value)
        values = [value for value, _ in file.source.attribute_values(owner, node.attr)] if owner is not None else []
        found = [_in_value(file, item, seen, depth + 1) for item in values]
        return next((item for item in found if item), None)
    if isinstance(node, ast.Call):
        return _in_call(file, node, seen, depth)
    if isinstance(node, ast.List | ast.Tuple | ast.BinOp | ast.ListComp | ast.IfExp | ast.Starred):
        parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        found = [_in_value(file, item, seen, depth) for item in parts]
        return next((item for item in found if item), None)
    return None


def _in_call(file: File, node: ast.Call, seen: set[object], depth: int) -> str | None:
    called = file.source.dotted(node.func)
    last = (called or "").rpartition(".")[2]
    if called is not None and called.startswith("keras.layers.") and last in _TWO_MODES:
        return last
    definition = file.source.definition(node.func)
    if isinstance(definition, Class):
        return _in_class(file, definition, seen, depth)
    if isinstance(definition, Function):
        found = [_in_value(file, item, seen, depth + 1) for item in _calls_in(definition.node, seen)]
        if layer := next((item for item in found if item), None):
            return layer
    if isinstance(node.func, ast.Attribute) and called is None:
        return None
    # Layers nested in the arguments, Dense(1)(x) and Model(inputs, outputs): follow what went in.
    parts: list[ast.expr] = [*node.args, *(keyword.value for keyword in node.keywords)]
    if isinstance(node.func, ast.Call | ast.Name) and called is None:
        parts.append(node.func)
    found = [_in_value(file, item, seen, depth + (0 if isinstance(item, ast.Call | ast.Name) else 1)) for item in parts]
    return next((item for item in found if item), None)


def _in_class(file: File, klass: Class, seen: set[object], depth: int) -> str | None:
    if klass in seen or depth > _MAX_DEPTH:
        return None
    seen.add(klass)
    for start in ("__init__", "build"):
        method = klass.methods.get(start)
        if method is not None:
            for call in _calls_in(method.node, seen):
                if layer := _in_value(file, call, seen, depth + 1):
                    return layer
    return None


def _calls_in(node: ast.AST, seen: set[object]) -> list[ast.Call]:
    return [item for item in ast.walk(node) if isinstance(item, ast.Call) and item not in seen]


def _added_layers(file: File, model: ast.Name) -> list[ast.expr]:
    """What ``model.add(...)`` adds anywhere in the scope that owns the name."""
    scope = file.source.scope_of[model]
    found = file.source.lookup(model.id, scope)
    layers: list[ast.expr] = []
    for node in ast.walk(file.source.tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add"
            and node.args
        ):
            receiver = node.func.value
            if isinstance(receiver, ast.Name) and receiver.id == model.id:
                home = file.source.lookup(receiver.id, file.source.scope_of[receiver])
                if home is not None and found is not None and home[0] is found[0]:
                    layers.append(node.args[0])
    return layers


TRAINING = Check(
    rule=Rule(
        name="missing-training-flag",
        severity="warning",
        summary="a model with dropout or batch normalisation is called in a training step without training=",
        reason="Left out, such layers behave as in inference: dropout drops nothing, and batch normalisation neither "
        "uses nor "
        "updates the batch's statistics.",
        instead="model(x, training=True) in the training step, training=False in evaluation.",
        bad="""\
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(1)])

@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    return tape.gradient(loss, model.trainable_variables)
""",
        good="""\
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(1)])

@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    return tape.gradient(loss, model.trainable_variables)
""",
    ),
    find=_find,
)
CHECKS = (TRAINING,)
