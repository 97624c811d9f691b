"""Calls that build a new graph each time."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tfpipe.check.rules.base import Check, File, Hit, integer, length, text_of
from tfpipe.check.source import Function
from tfpipe.check.traced import Traced
from tfpipe.check_records import Rule

# A dimension that depends on a loop variable: known to vary, not known how.
_VARYING = "varying"
Shape = tuple[int | str, ...]

# Constructors whose argument of that position or name is a shape.
_SHAPED = {
    "tensorflow.zeros": (0, "shape"), "tensorflow.ones": (0, "shape"), "tensorflow.fill": (0, "dims"),
    "tensorflow.random.normal": (0, "shape"), "tensorflow.random.uniform": (0, "shape"),
    "tensorflow.random.truncated_normal": (0, "shape"), "numpy.zeros": (0, "shape"), "numpy.ones": (0, "shape"),
    "numpy.empty": (0, "shape"), "numpy.full": (0, "shape"), "numpy.random.random": (0, "size"),
    "numpy.random.normal": (2, "size"), "numpy.random.uniform": (2, "size"),
}  # fmt: skip


def _find_signature(file: File) -> Iterator[Hit]:
    for function, traced in file.code.functions.items():
        if traced.origin != "function" or traced.signature:
            continue
        for parameter in function.parameters:
            shapes = _shapes(file, function, parameter.arg)
            # One signature fits shapes of one rank; the rest is polymorphism, which nothing but several graphs can do.
            if any(_VARYING in shape for shape in shapes) or len(shapes) > len({len(shape) for shape in shapes}):
                listed = ", ".join(_shape_text(shape) for shape in shapes[:4])
                message = f"{parameter.arg} is called with different shapes here ({listed}), and each builds a graph"
                yield Hit(node=function.node, traced=traced, message=message)


def _shapes(file: File, function: Function, name: str) -> list[Shape]:
    """The distinct known shapes that calls in this file pass; those of a call in untraced code only."""
    found: dict[Shape, None] = {}
    for value in file.kinds.arguments(function, name):
        shape = _shape(file, value, 0)
        if shape is not None:
            found[shape] = None
    return list(found)


def _shape(file: File, node: ast.expr, depth: int) -> Shape | None:
    if depth > 5:
        return None
    if isinstance(node, ast.Name):
        binding = file.source.binding(node)
        if binding is not None and binding.kind == "assign" and binding.value is not None:
            return _shape(file, binding.value, depth + 1)
        return None
    if not isinstance(node, ast.Call):
        return None
    called = file.source.dotted(node.func) or ""
    if (
        called in ("tensorflow.constant", "tensorflow.convert_to_tensor", "numpy.array", "tensorflow.Variable")
        and node.args
    ):
        given = _keyword(node, "shape")
        return _literal_shape(node.args[0]) if given is None else None
    if called == "tensorflow.range" and len(node.args) == 1:
        return _dimensions(file, node.args)
    if called in ("numpy.random.rand", "numpy.random.randn"):
        return _dimensions(file, node.args)
    if called in _SHAPED:
        position, name = _SHAPED[called]
        shape = _keyword(node, name)
        if shape is None and len(node.args) > position:
            shape = node.args[position]
        if isinstance(shape, ast.List | ast.Tuple):
            return _dimensions(file, shape.elts)
        dimension = _dimension(file, shape) if shape is not None else None
        return None if dimension is None else (dimension,)
    return None


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in node.keywords if keyword.arg == name), None)


def _literal_shape(node: ast.expr) -> Shape | None:
    if isinstance(node, ast.List | ast.Tuple):
        if not node.elts:
            return (0,)
        inner = _literal_shape(node.elts[0])
        return None if inner is None else (len(node.elts), *inner)
    return () if isinstance(node, ast.Constant | ast.UnaryOp) else None


def _dimensions(file: File, nodes: list[ast.expr]) -> Shape | None:
    values = [_dimension(file, node) for node in nodes]
    return None if any(value is None for value in values) else tuple(value for value in values if value is not None)


def _dimension(file: File, node: ast.expr) -> int | str | None:
    known = integer(file, node)
    return known if known is not None else _VARYING if _is_counter(file, node) else None


def _is_counter(file: File, node: ast.expr) -> bool:
    """Whether an expression is a Python number that a loop in untraced code changes."""
    if isinstance(node, ast.BinOp):
        return (_is_counter(file, node.left) or _is_counter(file, node.right)) and file.kinds.of(node) == "number"
    if not isinstance(node, ast.Name):
        return False
    binding = file.source.binding(node)
    if binding is not None and binding.kind in ("assign", "augment"):
        return _is_counted_up(file, node)
    if binding is None or binding.kind != "loop" or binding.value is None or file.kinds.of(node) != "number":
        return False
    # The loop must really surround the use: in a notebook an old counter may only be left over.
    parent = file.source.parent_of.get(node)
    while parent is not None:
        if isinstance(parent, ast.For) and parent.iter is binding.value:
            count = length(file, parent.iter)
            return count is None or count > 1
        if isinstance(parent, ast.ListComp | ast.GeneratorExp):
            return any(generator.iter is binding.value for generator in parent.generators)
        parent = file.source.parent_of.get(parent)
    return False


def _is_counted_up(file: File, node: ast.Name) -> bool:
    """Whether a name starts as a number and is changed by ``+= 1`` and the like in a loop around its use."""
    found = file.source.lookup(node.id, file.source.scope_of[node])
    bindings = found[1] if found is not None else []
    if not all(binding.value is not None and file.kinds.of(binding.value) == "number" for binding in bindings):
        return False
    lines = {binding.line for binding in bindings if binding.kind == "augment"}
    parent = file.source.parent_of.get(node)
    while parent is not None and not isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        if isinstance(parent, ast.For | ast.While):
            inside = range(parent.lineno, (parent.end_lineno or parent.lineno) + 1)
            if any(line in inside for line in lines):
                return True
        parent = file.source.parent_of.get(parent)
    return False


def _shape_text(shape: Shape) -> str:
    return "[" + ", ".join(str(item) for item in shape) + "]"


def _find_python(file: File) -> Iterator[Hit]:
    for function, traced in file.code.functions.items():
        if traced.origin != "function":
            continue
        for parameter in function.parameters:
            if parameter.arg == function.own_name:
                continue
            yield from _python_values(file, traced, function, parameter.arg)


def _python_values(file: File, traced: Traced, function: Function, name: str) -> Iterator[Hit]:
    outside = [value for value in file.kinds.arguments(function, name) if not _in_traced_code(file, value)]
    for value in outside:
        if _is_counter(file, value):
            message = f"{text_of(value)} is a Python number that changes from call to call, and each builds a graph"
            yield Hit(node=value, traced=traced, message=message)
            return
    numbers = {number: value for value in reversed(outside) if (number := _number(file, value)) is not None}
    if len(numbers) > 1:
        listed = ", ".join(str(number) for number in sorted(numbers)[:4])
        message = f"{name} is given Python numbers ({listed}): {function.qualname} builds a graph for each value"
        first = min(numbers.values(), key=lambda value: (value.lineno, value.col_offset))
        yield Hit(node=first, traced=traced, message=message)
        return
    lengths = {len(value.elts): value for value in reversed(outside) if isinstance(value, ast.List)}
    if len(lengths) > 1:
        message = (
            f"{name} is given lists of different lengths ({', '.join(map(str, sorted(lengths)))}): each builds a graph"
        )
        first = min(lengths.values(), key=lambda value: (value.lineno, value.col_offset))
        yield Hit(node=first, traced=traced, message=message)


def _number(file: File, node: ast.expr) -> float | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(file, node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    return integer(file, node)


def _in_traced_code(file: File, node: ast.AST) -> bool:
    """A call inside traced code is part of that graph: it unrolls, it does not retrace from step to step."""
    function = file.source.scope_of[node].function
    while function is not None:
        if function in file.code.functions:
            return True
        function = function.outer.function
    return False


def _find_per_call(file: File) -> Iterator[Hit]:
    for node in ast.walk(file.source.tree):
        if isinstance(node, ast.Call) and file.source.dotted(node.func) == "tensorflow.function" and node.args:
            made: ast.AST = node
        elif isinstance(node, ast.FunctionDef) and any(
            file.code.function_options(item) is not None for item in node.decorator_list
        ):
            made = node
        else:
            continue
        if _in_traced_code(file, node) and not isinstance(node, ast.FunctionDef):
            continue
        if _repeats(file, made) and _is_called_there(file, made):
            message = "a new tf.function is made on every pass of this loop, and each is traced anew"
            yield Hit(node=made, traced=None, message=message)


def _repeats(file: File, node: ast.AST) -> bool:
    """Whether a loop around ``node`` in the same function runs it more than once."""
    child, parent = node, file.source.parent_of.get(node)
    while parent is not None and not isinstance(
        parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
    ):
        if isinstance(parent, ast.For | ast.While) and child in parent.body:
            return True
        child, parent = parent, file.source.parent_of.get(parent)
    return False


def _is_called_there(file: File, node: ast.AST) -> bool:
    """Whether the new function is called at once or under its name in the same loop, not merely collected."""
    parent = file.source.parent_of.get(node)
    if isinstance(parent, ast.Call) and parent.func is node:
        return True
    names = {node.name} if isinstance(node, ast.FunctionDef) else set()
    if isinstance(parent, ast.Assign):
        names = {target.id for target in parent.targets if isinstance(target, ast.Name)}
    loop = parent
    while loop is not None and not isinstance(loop, ast.For | ast.While):
        loop = file.source.parent_of.get(loop)
    return loop is not None and any(
        isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and item.func.id in names
        for item in ast.walk(loop)
    )


SIGNATURE = Check(
    rule=Rule(
        name="missing-input-signature",
        severity="warning",
        summary="calls with different shapes retrace for want of an input_signature",
        reason="Without an input_signature tf.function builds one graph for each shape it meets, and building costs "
        "far more "
        "than running.",
        instead="@tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)]) with None where the size "
        "changes, or "
        "reduce_retracing=True.",
        bad="""\
import tensorflow as tf

@tf.function
def norm(x):
    return tf.norm(x)

norm(tf.zeros([32, 3]))
norm(tf.zeros([20, 3]))
""",
        good="""\
import tensorflow as tf

@tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
def norm(x):
    return tf.norm(x)

norm(tf.zeros([32, 3]))
norm(tf.zeros([20, 3]))
""",
    ),
    find=_find_signature,
)
PYTHON_ARGUMENT = Check(
    rule=Rule(
        name="python-argument",
        severity="warning",
        summary="a tf.function is called with changing Python numbers or lists",
        reason="A Python value is part of the graph: tf.function builds a new graph for each new value.",
        instead="Pass a tensor: tf.constant(value), or loop over tf.range. A flag with two values, or a number that "
        "never "
        "changes, may stay.",
        bad="""\
import tensorflow as tf

@tf.function
def train_step(x, step):
    return x * tf.cast(step, tf.float32)

for step in range(100):
    train_step(tf.zeros([8]), step)
""",
        good="""\
import tensorflow as tf

@tf.function
def train_step(x, step, training):
    return x * tf.cast(step, tf.float32)

for step in tf.range(100):
    train_step(tf.zeros([8]), step, True)
""",
    ),
    find=_find_python,
)
PER_CALL = Check(
    rule=Rule(
        name="function-in-loop",
        severity="warning",
        summary="a tf.function is made inside a loop",
        reason="Graphs belong to the tf.function object; a new object has none and is traced again on its first call.",
        instead="Make the tf.function once, before the loop.",
        bad="""\
import tensorflow as tf

def double(x):
    return 2.0 * x

for step in range(100):
    tf.function(double)(tf.zeros([8]))
""",
        good="""\
import tensorflow as tf

@tf.function
def double(x):
    return 2.0 * x

for step in range(100):
    double(tf.zeros([8]))
""",
    ),
    find=_find_per_call,
)
CHECKS = (SIGNATURE, PYTHON_ARGUMENT, PER_CALL)
