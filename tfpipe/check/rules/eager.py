"""Graphs switched off for the whole program."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tfpipe.check.rules.base import Check, File, Hit
from tfpipe.check_records import Rule

_SWITCHES = frozenset(
    {"tensorflow.config.run_functions_eagerly", "tensorflow.config.experimental_run_functions_eagerly"}
)


def _find(file: File) -> Iterator[Hit]:
    switched_back = any(
        isinstance(node, ast.Call)
        and file.source.dotted(node.func) in _SWITCHES
        and node.args
        and _is_false(node.args[0])
        for node in ast.walk(file.source.tree)
    )
    for node in ast.walk(file.source.tree):
        if isinstance(node, ast.Call):
            called = file.source.dotted(node.func)
            values = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "run_eagerly")]
            if called in _SWITCHES:
                # Switched on and off again around a part of the program is debugging, not an oversight.
                if values and _is_true(values[0]) and not switched_back:
                    message = "every tf.function runs eagerly from here on, step by step in Python"
                    yield Hit(node=node, traced=None, message=message)
            elif called == "tensorflow.data.experimental.enable_debug_mode":
                yield Hit(
                    node=node, traced=None, message="every tf.data pipeline runs eagerly and serially from here on"
                )
            elif isinstance(node.func, ast.Attribute) and node.func.attr == "compile":
                for keyword in node.keywords:
                    if keyword.arg == "run_eagerly" and _is_true(keyword.value):
                        message = "the model trains and evaluates eagerly: no graph is built at all"
                        yield Hit(node=keyword.value, traced=None, message=message)
        elif isinstance(node, ast.Assign) and _is_true(node.value):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr == "run_eagerly":
                    message = "the model trains and evaluates eagerly: no graph is built at all"
                    yield Hit(node=node, traced=None, message=message)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


EAGER = Check(
    rule=Rule(
        name="eager-switched-on",
        severity="warning",
        summary="eager execution is switched on for everything",
        reason="Meant for debugging: every operation is dispatched by Python, and nothing is fused or optimised.",
        instead="Remove it, or set it to False again, before training or measuring.",
        bad="""\
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse", run_eagerly=True)
""",
        good="""\
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
""",
    ),
    find=_find,
)
CHECKS = (EAGER,)
