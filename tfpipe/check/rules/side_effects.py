"""Python effects in traced code: they happen while the graph is built, not when it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tfpipe.check.kinds import MUTABLE, Kind
from tfpipe.check.rules.base import Check, File, Hit, text_of
from tfpipe.check.source import Binding
from tfpipe.check.traced import Site, Traced
from tfpipe.check_records import Rule

_LIST_METHODS = frozenset(
    {"append", "extend", "insert", "appendleft", "extendleft", "popleft", "popitem", "setdefault"}
)
# Methods that other objects have too: only on a name that is known to be a list, dict or set.
_SHARED_METHODS = frozenset({"update", "add", "discard", "remove", "pop", "clear", "sort", "reverse"})
# Bookkeeping that means something while a graph is built: Keras asks layers to set it, or reads it right there.
_KERAS_BOOKKEEPING = frozenset({"built", "input_spec", "trainable", "_build_input_shape", "_keras_mask", "_set_mask"})
_NOUNS: dict[Kind, str] = {"list": "list", "dict": "dict", "set": "set", "array": "NumPy array"}

_FILE_CALLS = frozenset(
    {"builtins.open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open", "os.open", "shelve.open"}
    | {"tensorflow.io.gfile.GFile", "numpy.load", "numpy.save", "numpy.savez", "numpy.loadtxt", "numpy.savetxt"}
    | {"json.dump", "json.load", "pickle.dump", "pickle.load"}
)
_TIME_CALLS = frozenset(
    f"time.{name}{suffix}"
    for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time")
    for suffix in ("", "_ns")
) | {
    "time.sleep", "time.localtime", "time.gmtime", "time.strftime", "time.ctime", "datetime.datetime.now",
    "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today", "timeit.default_timer",
}  # fmt: skip
_RANDOM_SETTERS = frozenset(
    {"seed", "set_state", "get_state", "setstate", "getstate", "default_rng", "RandomState", "Random"}
)


def _find_print(file: File) -> Iterator[Hit]:
    for traced, _, node, called in file.calls():
        if called == "builtins.print":
            yield Hit(
                node=node, traced=traced, message="print runs once for each graph that is built, not once per call"
            )


def _find_state(file: File) -> Iterator[Hit]:
    temporary = file.code.made_inside()
    for traced, site in file.sites():
        if site.once or (traced.origin == "called" and traced.function.owner in temporary):
            continue
        node = site.node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _changing_method(file, traced, node, node.func)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _changed_target(file, traced, site, target)
        elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.AnnAssign) and node.value is not None):
            yield from _changed_target(file, traced, site, node.target)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Subscript):
                    yield from _changed_target(file, traced, site, target)


def _changing_method(file: File, traced: Traced, node: ast.Call, method: ast.Attribute) -> Iterator[Hit]:
    if method.attr not in _LIST_METHODS | _SHARED_METHODS:
        return
    receiver = method.value
    kind: Kind | None = None
    if isinstance(receiver, ast.Name):
        bindings = file.outer_bindings(receiver, traced)
        if bindings is None or _is_import(bindings):
            return
        kind = file.kinds.of(receiver)
        if _is_parameter(bindings):
            return
    elif isinstance(receiver, ast.Attribute | ast.Subscript) and _is_outer(file, traced, receiver):
        if _is_made_here(traced, receiver):
            return
        kind = file.kinds.of(receiver)
    else:
        return
    if kind in MUTABLE or (kind is None and method.attr in _LIST_METHODS):
        noun = _NOUNS.get(kind, "object") if kind else "object"
        message = f"{text_of(method)}() changes a {noun} from outside, once for each graph that is built"
        yield Hit(node=node, traced=traced, message=message)


def _changed_target(file: File, traced: Traced, site: Site, target: ast.expr) -> Iterator[Hit]:
    if isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from _changed_target(file, traced, site, item)
    elif isinstance(target, ast.Name):
        scope = file.source.scope_of[target]
        if target.id in scope.declared_global | scope.declared_nonlocal and _declared_outside(file, traced, target):
            word = "global" if target.id in scope.declared_global else "nonlocal"
            message = f"the {word} name {target.id} changes once for each graph that is built, not once per call"
            yield Hit(node=site.node, traced=traced, message=message)
    elif isinstance(target, ast.Attribute):
        if target.attr in _KERAS_BOOKKEEPING or not _is_outer(file, traced, target):
            return
        if not isinstance(site.node, ast.AugAssign) and _is_scratch(file, traced, target):
            return
        where = text_of(target)
        if isinstance(site.node, ast.AugAssign) and file.kinds.of(target) == "variable":
            message = f"{where} is a tf.Variable, and this replaces it by a tensor of the graph instead of changing it"
        else:
            message = f"{where} is set once for each graph that is built, to a value that exists only in that graph"
        yield Hit(node=site.node, traced=traced, message=message)
    elif isinstance(target, ast.Subscript):
        base: ast.expr = target.value
        while isinstance(base, ast.Subscript):
            base = base.value
        kind = file.kinds.of(base)
        if kind in ("tensor", "variable"):
            return
        if isinstance(base, ast.Name):
            bindings = file.outer_bindings(base, traced)
            if bindings is None or _is_import(bindings) or _is_parameter(bindings):
                return
        elif not isinstance(base, ast.Attribute) or not _is_outer(file, traced, base) or _is_made_here(traced, base):
            return
        noun = _NOUNS.get(kind, "container") if kind else "container"
        message = f"{text_of(target)} changes a {noun} from outside, once for each graph that is built"
        yield Hit(node=site.node, traced=traced, message=message)


def _is_scratch(file: File, traced: Traced, target: ast.Attribute) -> bool:
    """Whether an attribute only hands a value to other traced code of the same graph: written first, read by another
    traced function, and by nothing that runs outside the graph or before it is written."""
    handed_on = False
    for node in ast.walk(file.source.tree):
        if not (isinstance(node, ast.Attribute) and node.attr == target.attr and isinstance(node.ctx, ast.Load)):
            continue
        reader = file.source.scope_of[node].function
        while reader is not None and reader not in file.code.functions:
            reader = reader.outer.function
        if reader is None or (reader is traced.function and node.lineno <= target.lineno):
            return False
        handed_on = handed_on or reader is not traced.function
    return handed_on


def _is_made_here(traced: Traced, node: ast.Attribute | ast.Subscript) -> bool:
    """Whether the same function gives the attribute a new value above: then it is the trace's own container."""
    base: ast.expr = node
    while isinstance(base, ast.Subscript):
        base = base.value
    return isinstance(base, ast.Attribute) and any(
        isinstance(other, ast.Attribute)
        and other.attr == base.attr
        and isinstance(other.ctx, ast.Store)
        and other.lineno < base.lineno
        for other in ast.walk(traced.function.node)
    )


def _is_outer(file: File, traced: Traced, node: ast.expr) -> bool:
    """Whether an attribute (or an item of one) belongs to ``self`` or to an object from outside the traced code."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Name):
        return False
    if file.is_own_object(node):
        return True
    bindings = file.outer_bindings(node, traced)
    return bindings is not None and not _is_import(bindings) and not _is_parameter(bindings)


def _declared_outside(file: File, traced: Traced, target: ast.Name) -> bool:
    if file.source.lookup(target.id, file.source.scope_of[target]) is None:
        return True
    return file.outer_bindings(target, traced) is not None


def _is_import(bindings: list[Binding]) -> bool:
    return all(binding.kind == "import" for binding in bindings)


def _is_parameter(bindings: list[Binding]) -> bool:
    """A parameter of an enclosing function: whose object that is, this file does not tell."""
    return any(binding.kind == "parameter" for binding in bindings)


def _find_files(file: File) -> Iterator[Hit]:
    for traced, site, node, called in file.calls():
        if called in _FILE_CALLS and not site.once:
            name = text_of(node.func)
            yield Hit(node=node, traced=traced, message=f"{name} touches the file once, while the graph is built")


def _find_time(file: File) -> Iterator[Hit]:
    for traced, _, node, called in file.calls():
        if called in _TIME_CALLS:
            what = "waits" if called == "time.sleep" else "reads the clock"
            name = text_of(node.func)
            yield Hit(node=node, traced=traced, message=f"{name} {what} while the graph is built and never again")


def _find_random(file: File) -> Iterator[Hit]:
    for traced, site, node, called in file.calls():
        if site.once:
            continue
        is_random = called is not None and called.startswith(("random.", "numpy.random.", "secrets."))
        drawn = is_random and (called or "").rpartition(".")[2] not in _RANDOM_SETTERS
        if not drawn and isinstance(node.func, ast.Attribute):
            drawn = file.kinds.of(node.func.value) == "rng" and node.func.attr not in _RANDOM_SETTERS
        if drawn:
            name = text_of(node.func)
            message = f"{name} draws while the graph is built; every call then uses that same value"
            yield Hit(node=node, traced=traced, message=message)


PRINT = Check(
    rule=Rule(
        name="python-print",
        severity="warning",
        summary="print in traced code",
        reason="Python's print runs while TensorFlow builds the graph: it shows a symbolic tensor, once, and then is "
        "silent.",
        instead="tf.print(...) prints values on every call; keep print only to see when a function is traced.",
        bad="""\
import tensorflow as tf

@tf.function
def train_step(x):
    loss = tf.reduce_mean(x)
    print("loss", loss)
    return loss
""",
        good="""\
import tensorflow as tf

@tf.function
def train_step(x):
    loss = tf.reduce_mean(x)
    tf.print("loss", loss)
    return loss
""",
    ),
    find=_find_print,
)
STATE = Check(
    rule=Rule(
        name="outer-state",
        severity="error",
        summary="traced code changes Python state from outside",
        reason="The change is made while the graph is built and not when it runs, and tensors stored that way belong "
        "to "
        "a graph that is gone.",
        instead="Return the value; keep numbers that change in a tf.Variable and use assign or assign_add, and "
        "values of a "
        "loop in a tf.TensorArray.",
        bad="""\
import tensorflow as tf

losses = []

@tf.function
def train_step(x):
    loss = tf.reduce_mean(x)
    losses.append(loss)
    return loss
""",
        good="""\
import tensorflow as tf

losses = []

@tf.function
def train_step(x):
    parts = []
    parts.append(tf.reduce_mean(x))
    return tf.add_n(parts)

losses.append(train_step(tf.zeros([8])))
""",
    ),
    find=_find_state,
)
FILES = Check(
    rule=Rule(
        name="python-file",
        severity="error",
        summary="a file is opened in traced code",
        reason="Python reads or writes the file while the graph is built, once, whatever the function is called with "
        "later.",
        instead="tf.io.read_file and tf.io.write_file run on every call; in a pipeline use a data set of file names.",
        bad="""\
import tensorflow as tf

def load(path):
    with open("labels.txt") as file:
        names = file.read().split()
    return path, tf.constant(names)

files = tf.data.Dataset.list_files("*.png").map(load)
""",
        good="""\
import tensorflow as tf

with open("labels.txt") as file:
    NAMES = file.read().split()

def load(path):
    return tf.io.read_file(path), tf.constant(NAMES)

files = tf.data.Dataset.list_files("*.png").map(load)
""",
    ),
    find=_find_files,
)
TIME = Check(
    rule=Rule(
        name="python-time",
        severity="error",
        summary="the clock is read in traced code",
        reason="The time is taken while the graph is built and becomes a constant of the graph; a sleep happens only "
        "then.",
        instead="Measure around the call of the function, or use tf.timestamp() inside it.",
        bad="""\
import time
import tensorflow as tf

@tf.function
def stamp(x):
    return x, time.time()
""",
        good="""\
import time
import tensorflow as tf

@tf.function
def stamp(x):
    return x, tf.timestamp()

start = time.perf_counter()
stamp(tf.zeros([8]))
print(time.perf_counter() - start)
""",
    ),
    find=_find_time,
)
RANDOM = Check(
    rule=Rule(
        name="python-random",
        severity="error",
        summary="Python's or NumPy's random numbers in traced code",
        reason="The number is drawn once, while the graph is built, and is a constant of the graph from then on.",
        instead="tf.random.uniform and its relatives, a tf.random.Generator, or tf.random.stateless_* with a seed as "
        "argument.",
        bad="""\
import numpy as np
import tensorflow as tf

def augment(image):
    return image * np.random.uniform(0.8, 1.2)

images = tf.data.Dataset.from_tensor_slices(tf.zeros([8, 4, 4, 3])).map(augment)
""",
        good="""\
import numpy as np
import tensorflow as tf

def augment(image):
    return image * tf.random.uniform([], 0.8, 1.2)

pixels = np.random.uniform(size=[8, 4, 4, 3]).astype("float32")
images = tf.data.Dataset.from_tensor_slices(pixels).map(augment)
""",
    ),
    find=_find_random,
)
CHECKS = (PRINT, STATE, FILES, TIME, RANDOM)
