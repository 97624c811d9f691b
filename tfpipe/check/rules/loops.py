"""Python loops that tracing unrolls into a large graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tfpipe.check.rules.base import Check, File, Hit, integer, length, text_of
from tfpipe.check_records import Rule

# Repetitions from which an unrolled loop is reported. The deepest networks built by a loop over their layers have
# fewer (GPT-2 XL: 48 blocks), and tracing 64 small bodies already takes as long as hundreds of steps of a loop.
LARGE_UNROLL = 64
# The same for a body that is itself large: unrolled operations, counted as calls and arithmetic in the source.
LARGE_GRAPH_OPERATIONS = 1000


def _find_unrolled(file: File) -> Iterator[Hit]:
    for traced, site in file.sites():
        node = site.node
        if isinstance(node, ast.For):
            pairs: list[tuple[ast.For | ast.comprehension, ast.expr, list[ast.AST]]]
            pairs = [(node, node.iter, list[ast.AST](node.body))]
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            pairs = [(node.generators[0], node.generators[0].iter, [node.elt])] if len(node.generators) == 1 else []
        else:
            continue
        for loop, iterated, body in pairs:
            if any(_count(file, outer.iter) is not None for outer in site.loops):
                # The outer loop's finding already counts this one.
                continue
            message = _unrolled(file, iterated, body)
            if message is not None:
                at = node if isinstance(loop, ast.comprehension) else loop
                yield Hit(node=at, traced=traced, message=message)


def _count(file: File, iterated: ast.expr) -> int | None:
    """Repetitions of a loop over a Python sequence; None when unknown or when TensorFlow makes it a loop of its own."""
    if isinstance(iterated, ast.Name | ast.Attribute) and file.kinds.is_tensor(iterated):
        return None
    return length(file, iterated)


def _unrolled(file: File, iterated: ast.expr, body: list[ast.AST]) -> str | None:
    operations = _operations(file, body)
    if operations == 0:
        return None
    count = _count(file, iterated)
    if count is not None:
        if count < LARGE_UNROLL and count * operations < LARGE_GRAPH_OPERATIONS:
            return None
        size = f"about {count * operations:,} operations" if operations > 1 else f"{count:,} operations or more"
        return f"the loop is unrolled {count:,} times into the graph: {size}"
    counter = _python_count(file, iterated)
    if counter is not None:
        return f"the loop is unrolled {counter} times into the graph, about {operations} operations each time"
    return None


def _python_count(file: File, iterated: ast.expr) -> str | None:
    """The source of a ``range`` bound that the file says is a Python number of open size: a parameter annotated int,
    or called with different numbers here."""
    while (
        isinstance(iterated, ast.Call) and file.source.dotted(iterated.func) == "builtins.enumerate" and iterated.args
    ):
        iterated = iterated.args[0]
    if not isinstance(iterated, ast.Call) or file.source.dotted(iterated.func) != "builtins.range" or not iterated.args:
        return None
    bound = iterated.args[0] if len(iterated.args) == 1 else iterated.args[1]
    if not isinstance(bound, ast.Name) or file.kinds.of(bound) != "number":
        return None
    binding = file.source.binding(bound)
    if binding is None or binding.kind != "parameter" or binding.function is None:
        return None
    traced = file.code.functions.get(binding.function)
    if traced is None or traced.origin != "function" or integer(file, bound) is not None:
        return None
    return text_of(bound)


def _operations(file: File, body: list[ast.AST]) -> int:
    """About how many graph operations one run of ``body`` adds: its calls into anything but plain Python, and its
    arithmetic, inner loops multiplied out."""
    total = 0
    for node in body:
        total += _operations_of(file, node)
    return total


def _operations_of(file: File, node: ast.AST) -> int:
    if isinstance(node, ast.For):
        inner = length(file, node.iter)
        return _operations(file, list(node.body)) * (1 if inner is None else inner)
    own = 0
    if isinstance(node, ast.Call):
        called = file.source.dotted(node.func) or ""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        own = 0 if called.startswith("builtins.") or method in ("append", "extend", "items", "format") else 1
    elif isinstance(node, ast.BinOp | ast.AugAssign):
        operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
        plain = [
            isinstance(item, ast.Constant) or file.kinds.of(item) in ("number", "string", "list") for item in operands
        ]
        own = 0 if isinstance(node, ast.BinOp) and all(plain) else 1
    return own + sum(_operations_of(file, child) for child in ast.iter_child_nodes(node))


UNROLLED = Check(
    rule=Rule(
        name="unrolled-loop",
        severity="warning",
        summary="a Python loop is unrolled into a large graph",
        reason="range and enumerate over Python values run while the graph is built, and each repetition adds its "
        "own copy of "
        "the body: building and compiling take longer and longer, and another count means another graph.",
        instead="for i in tf.range(n) becomes one loop in the graph; tf.scan, tf.map_fn or one vectorised operation "
        "may do "
        "without a loop. A short loop over layers is fine as it is.",
        bad="""\
import tensorflow as tf

STEPS = 1000

@tf.function
def integrate(x):
    for _ in range(STEPS):
        x = x + 0.001 * tf.sin(x)
    return x
""",
        good="""\
import tensorflow as tf

STEPS = 1000

@tf.function
def integrate(x):
    for _ in tf.range(STEPS):
        x = x + 0.001 * tf.sin(x)
    for _ in range(3):
        x = tf.tanh(x)
    return x
""",
    ),
    find=_find_unrolled,
)
CHECKS = (UNROLLED,)
