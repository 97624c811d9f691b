"""Calls out of the graph into the Python interpreter."""

from __future__ import annotations

from collections.abc import Iterator

from tfpipe.check.rules.base import Check, File, Hit, text_of
from tfpipe.check.source import Function
from tfpipe.check.traced import PYTHON_ESCAPES
from tfpipe.check_records import Rule


def _find(file: File) -> Iterator[Hit]:
    for traced, _, node, called in file.calls():
        if called in PYTHON_ESCAPES:
            where = "for every element of the pipeline" if traced.origin == "dataset" else "on every call"
            message = f"{text_of(node.func)} enters the Python interpreter {where}, one thread at a time"
            yield Hit(node=node, traced=traced, message=message)
        elif called is None:
            definition = file.source.definition(node.func)
            if isinstance(definition, Function) and file.code.runs_as_python(definition):
                message = (
                    f"{text_of(node.func)} is a py_function: it enters the Python interpreter, one thread at a time"
                )
                yield Hit(node=node, traced=traced, message=message)


PY_FUNCTION = Check(
    rule=Rule(
        name="py-function",
        severity="warning",
        summary="py_function or numpy_function in a step or a map",
        reason="The graph stops and waits for the interpreter, whose lock lets one thread compute at a time: more "
        "parallel "
        "calls do not help, XLA cannot compile it, and a saved model does not contain it.",
        instead="TensorFlow operations where there are any; else do the work once beforehand, or in another process.",
        bad="""\
import tensorflow as tf

def load(path):
    return tf.numpy_function(lambda name: len(name), [path], tf.int64)

sizes = tf.data.Dataset.list_files("*.png").map(load)
""",
        good="""\
import tensorflow as tf

def load(path):
    return tf.strings.length(path)

sizes = tf.data.Dataset.list_files("*.png").map(load)
""",
    ),
    find=_find,
)
CHECKS = (PY_FUNCTION,)
