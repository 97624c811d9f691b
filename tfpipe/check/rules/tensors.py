"""Tensors treated as Python values in traced code."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tfpipe.check.rules.base import Check, File, Hit, text_of
from tfpipe.check_records import Rule

_NUMBERS = {"builtins.int": "int", "builtins.float": "float"}


def _find_numpy(file: File) -> Iterator[Hit]:
    for traced, _, node, _called in file.calls():
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "numpy" or node.args or node.keywords:
            continue
        receiver = node.func.value
        is_outer = isinstance(receiver, ast.Name) and file.outer_bindings(receiver, traced) is not None
        # An eager tensor from outside has its value already; a variable's may not be read this way.
        if is_outer and file.kinds.of(receiver) not in ("variable", "metric"):
            continue
        yield Hit(
            node=node,
            traced=traced,
            message=f"{text_of(receiver)} has no value yet while the graph is built: .numpy() raises here",
        )


def _find_number(file: File) -> Iterator[Hit]:
    for traced, _, node, called in file.calls():
        if called in _NUMBERS and len(node.args) == 1 and file.kinds.is_tensor(node.args[0]):
            name = _NUMBERS[called]
            what = (
                f"stays a tensor under AutoGraph (a tf.cast) and raises without it: this is no Python {name}"
                if traced.autograph
                else f"raises in Keras 3, which does not convert this function: a tensor of a graph has no {name} value"
            )
            yield Hit(node=node, traced=traced, message=f"{name}({text_of(node.args[0])}) {what}")


def _find_bool(file: File) -> Iterator[Hit]:
    for traced, _, node, called in file.calls():
        if called == "builtins.bool" and len(node.args) == 1 and file.kinds.is_tensor(node.args[0]):
            message = f"bool({text_of(node.args[0])}) raises: the tensor has no value while the graph is built"
            yield Hit(node=node, traced=traced, message=message)


def _find_assert(file: File) -> Iterator[Hit]:
    for traced, site in file.sites():
        node = site.node
        if isinstance(node, ast.Assert) and _tests_tensor(file, node.test):
            message = (
                f"assert {text_of(node.test)} needs the tensor's value, which does not exist while the graph is built"
            )
            yield Hit(node=node, traced=traced, message=message)


def _tests_tensor(file: File, test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp):
        return any(_tests_tensor(file, value) for value in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _tests_tensor(file, test.operand)
    if isinstance(test, ast.Call) and file.source.dotted(test.func) in (
        "builtins.all",
        "builtins.any",
        "builtins.bool",
    ):
        return len(test.args) == 1 and file.kinds.is_tensor(test.args[0])
    if isinstance(test, ast.Name | ast.Compare | ast.Call | ast.BinOp | ast.Subscript | ast.Attribute):
        return file.kinds.is_tensor(test)
    return False


def _find_len(file: File) -> Iterator[Hit]:
    for traced, _, node, called in file.calls():
        if called == "builtins.len" and len(node.args) == 1 and file.kinds.is_tensor(node.args[0]):
            what = text_of(node.args[0])
            behaviour = "works only where AutoGraph converts it" if traced.autograph else "raises in Keras 3"
            yield Hit(node=node, traced=traced, message=f"len({what}) {behaviour}: a tensor of a graph has no length")


NUMPY = Check(
    rule=Rule(
        name="tensor-numpy",
        severity="error",
        summary=".numpy() in traced code",
        reason="While a graph is built a tensor is a promise without a value, and has no .numpy().",
        instead="Use TensorFlow's own operations on it, or return the tensor and call .numpy() outside.",
        bad="""\
import tensorflow as tf

@tf.function
def train_step(x):
    loss = tf.reduce_mean(x)
    return loss.numpy()
""",
        good="""\
import tensorflow as tf

@tf.function
def train_step(x):
    return tf.reduce_mean(x)

loss = train_step(tf.zeros([8])).numpy()
""",
    ),
    find=_find_numpy,
)
NUMBER = Check(
    rule=Rule(
        name="tensor-to-number",
        severity="warning",
        summary="int() or float() of a tensor in traced code",
        reason="A tensor has no value while the graph is built. AutoGraph turns int() and float() into a cast, and the "
        "result is still a tensor; where AutoGraph does not reach, they raise.",
        instead="tf.cast(x, tf.int32) or tf.cast(x, tf.float32); for a size known beforehand x.shape[0].",
        bad="""\
import tensorflow as tf

@tf.function
def scale(x):
    total = tf.reduce_sum(x)
    return x / float(total)
""",
        good="""\
import tensorflow as tf

@tf.function
def scale(x, exponent=2):
    total = tf.reduce_sum(x)
    return x / tf.cast(total, tf.float32) ** float(exponent)
""",
    ),
    find=_find_number,
)
BOOL = Check(
    rule=Rule(
        name="tensor-to-bool",
        severity="error",
        summary="bool() of a tensor in traced code",
        reason="A tensor has no truth value while the graph is built; bool() raises.",
        instead="tf.cast(x, tf.bool), tf.cond(x, ...) or, where AutoGraph converts the function, a plain if on the "
        "tensor.",
        bad="""\
import tensorflow as tf

@tf.function
def clip(x):
    positive = bool(tf.reduce_all(x > 0))
    return x, positive
""",
        good="""\
import tensorflow as tf

@tf.function
def clip(x):
    positive = tf.reduce_all(x > 0)
    return x, positive
""",
    ),
    find=_find_bool,
)
ASSERT = Check(
    rule=Rule(
        name="tensor-assert",
        severity="error",
        summary="assert on a tensor in traced code",
        reason="assert asks for a Python truth value, which a tensor does not have while the graph is built; it "
        "raises.",
        instead="tf.debugging.assert_greater and its relatives check on every call; assert on x.shape or x.dtype is "
        "fine.",
        bad="""\
import tensorflow as tf

@tf.function
def root(x):
    assert tf.reduce_all(x >= 0)
    return tf.sqrt(x)
""",
        good="""\
import tensorflow as tf

@tf.function
def root(x):
    assert x.shape.rank == 1
    tf.debugging.assert_non_negative(x)
    return tf.sqrt(x)
""",
    ),
    find=_find_assert,
)
LEN = Check(
    rule=Rule(
        name="tensor-len",
        severity="warning",
        summary="len() of a tensor in traced code",
        reason="A tensor of a graph has no len(); AutoGraph replaces the call by the first dimension, elsewhere it "
        "raises.",
        instead="tf.shape(x)[0] for the size at run time, x.shape[0] for one known beforehand.",
        bad="""\
import tensorflow as tf

@tf.function
def mean(x):
    return tf.reduce_sum(x) / len(x)
""",
        good="""\
import tensorflow as tf

@tf.function
def mean(x):
    parts = [x, x]
    return tf.reduce_sum(x) / tf.cast(tf.shape(x)[0], x.dtype) / len(parts)
""",
    ),
    find=_find_len,
)
CHECKS = (NUMPY, NUMBER, BOOL, ASSERT, LEN)
