"""Which functions of a file TensorFlow traces, and why.

Traced are: functions given to ``tf.function`` in any spelling; ``call``, ``train_step``, ``test_step`` and
``predict_step`` of Keras layers and models; functions given to ``Dataset.map`` and its relatives; and every function
of the same file that one of those calls or hands on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tfpipe.check.kinds import Kinds, is_keras, returned_values
from tfpipe.check.source import Class, Function, Scope, Source

Origin = Literal["function", "keras", "dataset", "called", "target"]

KERAS_METHODS = ("call", "train_step", "test_step", "predict_step")
# Dataset methods whose function arguments are traced. from_generator's is not: it runs as Python.
_DATASET_METHODS = frozenset(
    {"map", "filter", "interleave", "flat_map", "scan", "take_while", "reduce", "group_by_window"}
    | {"bucket_by_sequence_length", "rejection_resample", "map_with_legacy_function", "filter_with_legacy_function"}
)
# What only tf.data pipelines are called with or chained to.
_DATASET_KEYWORDS = frozenset({"num_parallel_calls", "cycle_length", "deterministic"})
_DATASET_CHAIN = frozenset({"batch", "prefetch", "padded_batch", "shuffle", "repeat", "cache", "interleave", "take"})
# Hugging Face data sets and process pools have a map of their own, which runs plain Python.
_FOREIGN_KEYWORDS = frozenset({"batched", "remove_columns", "num_proc", "batch_size", "fn_kwargs", "chunksize", "axis"})
# Functions whose function argument runs as plain Python inside a graph, untraced.
PYTHON_ESCAPES = frozenset(
    {"tensorflow.py_function", "tensorflow.numpy_function", "tensorflow.compat.v1.py_func", "tensorflow.py_func"}
)
_EAGER_TESTS = frozenset(
    {
        "tensorflow.executing_eagerly",
        "tensorflow.compat.v1.executing_eagerly",
        "tensorflow.config.functions_run_eagerly",
        "tensorflow.compat.v1.executing_eagerly_outside_functions",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One traced function. ``signature`` says that ``input_signature`` (or ``reduce_retracing``) is set on it;
    ``why`` completes the sentence "it is traced: ..."; ``autograph`` whether AutoGraph converts its control flow."""

    function: Function
    origin: Origin
    why: str
    autograph: bool
    signature: bool = False
    root: Function | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A node inside a traced function. ``once``: it stands behind a guard such as ``if self.v is None`` that lets it
    run a single time; ``loops`` are the Python loops around it within the function, outermost first."""

    node: ast.AST
    once: bool
    loops: tuple[ast.For | ast.comprehension, ...]


class TracedCode:
    """All traced functions of one file, roots first, then what they call."""

    def __init__(self, source: Source, kinds: Kinds) -> None:
        self.source = source
        self.kinds = kinds
        self.functions: dict[Function, Traced] = {}
        self._sites: dict[Function, list[Site]] = {}
        for traced in self._roots():
            self._add(traced)
        self._follow()

    def add_target(self, function: Function) -> None:
        """Take ``function`` for traced because the user named it."""
        self._add(Traced(function=function, origin="target", why="named as the target", autograph=True))
        self._follow()

    def reachable(self, start: list[Function]) -> set[Function]:
        """``start`` and every traced function of the file that they call or define, directly or not."""
        reached: set[Function] = set()
        waiting = list(start)
        while waiting:
            function = waiting.pop()
            if function in reached:
                continue
            reached.add(function)
            waiting += self._callees(function)
            waiting += [other for other in self.functions if _is_inside(other, function)]
        return reached

    def sites(self, function: Function) -> list[Site]:
        """Every node of a traced function that runs while it is traced, nested functions included.

        Left out: branches taken only in eager mode, ``tf.init_scope()`` blocks, functions that are traced in their own
        right, and functions that run as Python (``py_function``).
        """
        if function not in self._sites:
            body = function.node.body if isinstance(function.node.body, list) else [function.node.body]
            self._sites[function] = [site for node in body for site in self._walk(node, function, False, ())]
        return self._sites[function]

    def made_inside(self) -> set[Class]:
        """Classes, with their bases, whose objects traced code makes for itself: they live within one trace."""
        made: set[Class] = set()
        for function in self.functions:
            for site in self.sites(function):
                if isinstance(site.node, ast.Call) and not site.once:
                    klass = self.source.definition(site.node.func)
                    if isinstance(klass, Class):
                        made |= {klass, *(base for base in self.source.bases(klass) if isinstance(base, Class))}
        return made

    # --- roots -------------------------------------------------------------------------------------------------

    def _roots(self) -> Iterator[Traced]:
        for function in self.source.functions:
            yield from self._decorated(function)
        foreign_backend = self._uses_other_backend()
        eager = self._compiled_eagerly()
        for klass in self.source.classes:
            if foreign_backend or klass in eager or not is_keras(self.source, klass) or self._is_dynamic(klass):
                continue
            for name in KERAS_METHODS:
                if name in klass.methods:
                    why = f"{name} of a Keras {'model' if name != 'call' else 'layer or model'}"
                    yield Traced(function=klass.methods[name], origin="keras", why=why, autograph=False)
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Call):
                yield from self._wrapped(node)
                yield from self._mapped(node)

    def _decorated(self, function: Function) -> Iterator[Traced]:
        if isinstance(function.node, ast.Lambda):
            return
        for decorator in function.node.decorator_list:
            options = self.function_options(decorator)
            if options is not None:
                why = f"decorated with tf.function (line {decorator.lineno})"
                yield self._root(function, "function", why, options)

    def function_options(self, node: ast.expr, depth: int = 0) -> list[ast.keyword] | None:
        """The keywords when ``node`` is tf.function as a decorator: bare, called, in a partial, or under a name."""
        if depth > 5:
            return None
        if self.source.dotted(node) == "tensorflow.function":
            return []
        if isinstance(node, ast.Call):
            called = self.source.dotted(node.func)
            if called == "tensorflow.function":
                return node.keywords if not node.args else None
            if (
                called == "functools.partial"
                and node.args
                and self.function_options(node.args[0], depth + 1) is not None
            ):
                return node.keywords
            return self.function_options(node.func, depth + 1) if isinstance(node.func, ast.Name) else None
        if isinstance(node, ast.Name):
            binding = self.source.binding(node)
            if binding is not None and binding.kind == "assign" and isinstance(binding.value, ast.Call):
                return self.function_options(binding.value, depth + 1)
        return None

    def _wrapped(self, node: ast.Call) -> Iterator[Traced]:
        """``tf.function(f)``, ``tf.function(self.step)``, ``tf.function(net)``; a decorator object called on it."""
        if self.source.dotted(node.func) == "tensorflow.function":
            options, wrapped = node.keywords, node.args[:1]
            wrapped += [keyword.value for keyword in node.keywords if keyword.arg == "func"]
        elif isinstance(node.func, ast.Call | ast.Name) and len(node.args) == 1 and not node.keywords:
            found = self.function_options(node.func)
            if found is None:
                return
            options, wrapped = found, node.args
        else:
            return
        for value in wrapped:
            function = self._function_value(value)
            if function is not None:
                yield self._root(function, "function", f"passed to tf.function (line {node.lineno})", options)

    def _function_value(self, node: ast.expr) -> Function | None:
        """The function of this file that a value is, a partial of one, or an object's ``__call__``."""
        if isinstance(node, ast.Call) and self.source.dotted(node.func) == "functools.partial" and node.args:
            return self._function_value(node.args[0])
        found = self.source.definition(node)
        if isinstance(found, Function):
            return found
        klass = self.source.class_of_value(node) if found is None else None
        return self.source.method(klass, "__call__") if klass is not None else None

    def _root(self, function: Function, origin: Origin, why: str, options: list[ast.keyword]) -> Traced:
        given = {keyword.arg: keyword.value for keyword in options}
        autograph = given.get("autograph")
        signature = given.get("input_signature")
        settled = signature is not None and not (isinstance(signature, ast.Constant) and signature.value is None)
        self.kinds.presumed.add(function)
        if settled and isinstance(signature, ast.List | ast.Tuple):
            names = [parameter.arg for parameter in function.positional]
            for name, spec in zip(names[function.own_name is not None :], signature.elts, strict=False):
                if (self.source.called(spec) or "").endswith("TensorSpec"):
                    self.kinds.given[function, name] = "tensor"
        return Traced(
            function=function,
            origin=origin,
            why=why,
            autograph=not (isinstance(autograph, ast.Constant) and autograph.value is False),
            signature=settled or "reduce_retracing" in given or "experimental_relax_shapes" in given,
        )

    def _mapped(self, node: ast.Call) -> Iterator[Traced]:
        """Functions given to a dataset's ``map`` and the like, and to Keras's Lambda layer."""
        dotted = self.source.dotted(node.func) or ""
        if dotted == "keras.layers.Lambda":
            where, names = f"passed to a Lambda layer (line {node.lineno})", False
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _DATASET_METHODS and self._is_dataset(node):
            where, names = f"passed to Dataset.{node.func.attr} (line {node.lineno})", node.func.attr != "reduce"
        else:
            return
        for value in (*node.args, *(keyword.value for keyword in node.keywords)):
            function = self._function_value(value) if not isinstance(value, ast.Constant) else None
            if function is None:
                continue
            is_partial = isinstance(value, ast.Call)
            if names and not is_partial:
                for parameter in function.parameters[function.own_name is not None :]:
                    if function.default(parameter.arg) is None:
                        self.kinds.given.setdefault((function, parameter.arg), "tensor")
            yield Traced(function=function, origin="dataset", why=where, autograph=True)

    def _is_dataset(self, node: ast.Call) -> bool:
        assert isinstance(node.func, ast.Attribute)
        keywords = {keyword.arg for keyword in node.keywords}
        if keywords & _FOREIGN_KEYWORDS or not self._imports_tensorflow():
            return False
        receiver = node.func.value
        kind = self.kinds.of(receiver)
        if kind == "dataset" or keywords & _DATASET_KEYWORDS:
            return True
        if kind is not None or self.source.dotted(receiver) is not None:
            return False
        return bool(_chain_names(receiver) & _DATASET_CHAIN or self._chained_after(node) & _DATASET_CHAIN)

    def _chained_after(self, node: ast.Call) -> set[str]:
        names = set()
        parent = self.source.parent_of.get(node)
        while isinstance(parent, ast.Attribute | ast.Call):
            if isinstance(parent, ast.Attribute):
                names.add(parent.attr)
            parent = self.source.parent_of.get(parent)
        return names

    def _imports_tensorflow(self) -> bool:
        return any(
            binding.kind == "import" and binding.dotted.startswith("tensorflow")
            for bindings in self.source.module.names.values()
            for binding in bindings
        )

    def _uses_other_backend(self) -> bool:
        """Whether the file chooses JAX or PyTorch for Keras, which then traces nothing with TensorFlow."""
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                target = node.targets[0]
                names_backend = (
                    isinstance(target, ast.Subscript)
                    and isinstance(target.slice, ast.Constant)
                    and target.slice.value == "KERAS_BACKEND"
                )
                if names_backend and node.value.value != "tensorflow":
                    return True
        return False

    def _compiled_eagerly(self) -> set[Class]:
        """Model classes whose objects this file compiles only with ``run_eagerly=True``: nothing of them is traced."""
        eager: set[Class] = set()
        graph: set[Class] = set()
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "compile":
                klass = self.source.class_of_value(node.func.value)
                if klass is not None:
                    run_eagerly = any(
                        keyword.arg == "run_eagerly" and isinstance(keyword.value, ast.Constant) and keyword.value.value
                        for keyword in node.keywords
                    )
                    (eager if run_eagerly else graph).add(klass)
        return eager - graph

    def _is_dynamic(self, klass: Class) -> bool:
        """``super().__init__(dynamic=True)``: Keras then runs ``call`` eagerly."""
        start = klass.methods.get("__init__")
        return start is not None and any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "__init__"
            and any(
                keyword.arg == "dynamic" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
                for keyword in node.keywords
            )
            for node in ast.walk(start.node)
        )

    def runs_as_python(self, function: Function) -> bool:
        """Whether a decorator hands the function to py_function or numpy_function: directly, or in this file."""
        if isinstance(function.node, ast.Lambda):
            return False
        for decorator in function.node.decorator_list:
            made = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self.source.dotted(made) in PYTHON_ESCAPES:
                return True
            wrapper = self.source.definition(made)
            if isinstance(wrapper, Function) and any(
                self.source.called(node) in PYTHON_ESCAPES for node in ast.walk(wrapper.node)
            ):
                return True
        return False

    # --- following calls ---------------------------------------------------------------------------------------

    def _add(self, traced: Traced) -> None:
        known = self.functions.get(traced.function)
        if self.runs_as_python(traced.function):
            return
        if known is None:
            self.functions[traced.function] = traced
        elif known.origin in ("keras", "called", "target") and traced.origin == "function":
            # A Keras call that is a tf.function too is converted by AutoGraph.
            self.functions[traced.function] = traced

    def _follow(self) -> None:
        waiting = list(self.functions.values())
        while waiting:
            caller = waiting.pop(0)
            for function in self._callees(caller.function):
                if function in self.functions or _is_inside(function, caller.function) or self.runs_as_python(function):
                    continue
                # A call goes through AutoGraph when its caller does.
                traced = Traced(
                    function=function,
                    origin="called",
                    why=f"called from {caller.function.qualname}, {_root_reason(caller)}",
                    autograph=caller.autograph,
                    root=caller.root or caller.function,
                )
                self.functions[function] = traced
                self._sites.clear()
                waiting.append(traced)

    def _callees(self, function: Function) -> list[Function]:
        """Functions of the file that a traced function calls, or hands to something that will."""
        found: list[Function] = []
        for site in self.sites(function):
            # What stands behind a run-once guard is set-up code, self.build() above all.
            if not isinstance(site.node, ast.Call) or site.once:
                continue
            values = [site.node.func]
            if self.source.dotted(site.node.func) not in PYTHON_ESCAPES:
                values += [*site.node.args, *(keyword.value for keyword in site.node.keywords)]
            for value in values:
                other = self._callable_value(value)
                if other is not None and other not in found:
                    found.append(other)
        return found

    def _callable_value(self, node: ast.expr) -> Function | None:
        if not isinstance(node, ast.Name | ast.Attribute | ast.Lambda):
            return None
        found = self.source.definition(node)
        if isinstance(found, Function):
            return None if _is_property(found) else found
        # An object that is called: its __call__, which for a plain tf.Module is ordinary traced code.
        if found is None and isinstance(self.source.parent_of.get(node), ast.Call):
            parent = self.source.parent_of[node]
            if isinstance(parent, ast.Call) and parent.func is node:
                klass = self.source.class_of_value(node)
                return self.source.method(klass, "__call__") if klass is not None else None
        return None

    # --- walking a body ----------------------------------------------------------------------------------------

    def _walk(
        self, node: ast.AST, function: Function, once: bool, loops: tuple[ast.For | ast.comprehension, ...]
    ) -> Iterator[Site]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inner = self.source.function_of[node]
            if inner in self.functions or self._escapes(node):
                return
            body = node.body if isinstance(node.body, list) else [node.body]
            for item in body:
                yield from self._walk(item, function, once, ())
            return
        if isinstance(node, ast.ClassDef):
            return
        yield Site(node=node, once=once, loops=loops)
        if isinstance(node, ast.If | ast.IfExp):
            yield from self._walk_branches(node, function, once, loops)
            return
        if isinstance(node, ast.With) and any(
            self.source.called(item.context_expr) == "tensorflow.init_scope" for item in node.items
        ):
            return
        if isinstance(node, ast.For):
            yield from self._walk(node.iter, function, once, loops)
            for item in (*node.body, *node.orelse):
                yield from self._walk(item, function, once, (*loops, node))
            return
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            inner_loops = (*loops, *node.generators)
            for generator in node.generators:
                yield from self._walk(generator.iter, function, once, loops)
            values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            for item in values:
                yield from self._walk(item, function, once, inner_loops)
            return
        for child in ast.iter_child_nodes(node):
            yield from self._walk(child, function, once, loops)

    def _walk_branches(
        self,
        node: ast.If | ast.IfExp,
        function: Function,
        once: bool,
        loops: tuple[ast.For | ast.comprehension, ...],
    ) -> Iterator[Site]:
        body = node.body if isinstance(node.body, list) else [node.body]
        orelse = node.orelse if isinstance(node.orelse, list) else [node.orelse]
        eager = self._eager_branch(node.test)
        guard = _runs_once(node.test) or self._asks_once(node.test)
        yield from self._walk(node.test, function, once, loops)
        if eager is not True:
            for item in body:
                yield from self._walk(item, function, once or guard, loops)
        if eager is not False:
            for item in orelse:
                yield from self._walk(item, function, once, loops)

    def _eager_branch(self, test: ast.expr) -> bool | None:
        """True when the test holds only in eager mode, False when only in a graph, None when it says neither."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._eager_branch(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return True if any(self._eager_branch(value) for value in test.values) else None
        called = self.source.called(test)
        if called in _EAGER_TESTS:
            return True
        return False if called == "tensorflow.inside_function" else None

    def _asks_once(self, test: ast.expr) -> bool:
        """Whether a test calls a function of the file that only returns such a guard's test."""
        asked = self.source.definition(test.func) if isinstance(test, ast.Call) else None
        if not isinstance(asked, Function):
            return False
        values = returned_values(asked)
        return bool(values) and all(_runs_once(value) for value in values)

    def _escapes(self, node: ast.AST) -> bool:
        """Whether a nested function is only handed to py_function or numpy_function."""
        parent = self.source.parent_of.get(node)
        if isinstance(node, ast.Lambda):
            return isinstance(parent, ast.Call) and self.source.dotted(parent.func) in PYTHON_ESCAPES
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        scope: Scope = self.source.scope_of[node]
        around = scope.function.node if scope.function is not None else self.source.tree
        uses = [
            self.source.parent_of.get(name)
            for name in ast.walk(around)
            if isinstance(name, ast.Name) and name.id == node.name and isinstance(name.ctx, ast.Load)
        ]
        return bool(uses) and all(
            isinstance(use, ast.keyword | ast.Call) and self._is_escape_argument(use, node.name) for use in uses
        )

    def _is_escape_argument(self, use: ast.keyword | ast.Call, name: str) -> bool:
        call = self.source.parent_of.get(use) if isinstance(use, ast.keyword) else use
        if not isinstance(call, ast.Call) or (isinstance(call.func, ast.Name) and call.func.id == name):
            return False
        return self.source.dotted(call.func) in PYTHON_ESCAPES


def _runs_once(test: ast.expr) -> bool:
    """Whether a test is the usual guard around creating state: ``v is None``, ``not hasattr(...)``, ``not built``."""
    if isinstance(test, ast.BoolOp):
        return any(_runs_once(value) for value in test.values)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        right = test.comparators[0]
        is_none = isinstance(right, ast.Constant) and right.value is None
        is_false = isinstance(right, ast.Constant) and right.value is False
        return (isinstance(test.ops[0], ast.Is | ast.Eq) and (is_none or is_false)) or isinstance(
            test.ops[0], ast.NotIn
        )
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        operand = test.operand
        if isinstance(operand, ast.Call):
            return isinstance(operand.func, ast.Name) and operand.func.id == "hasattr"
        return isinstance(operand, ast.Attribute)
    return False


def _chain_names(node: ast.expr) -> set[str]:
    """Method names of a call chain: {map, batch} for ``x.map(f).batch(8)``."""
    names = set()
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        names.add(node.func.attr)
        node = node.func.value
    return names


def _is_property(function: Function) -> bool:
    return not isinstance(function.node, ast.Lambda) and any(
        (isinstance(item, ast.Name) and item.id in ("property", "cached_property"))
        or (isinstance(item, ast.Attribute) and item.attr in ("setter", "getter", "deleter", "cached_property"))
        for item in function.node.decorator_list
    )


def _root_reason(traced: Traced) -> str:
    return traced.why if traced.origin != "called" else traced.why.partition(", ")[2]


def _is_inside(inner: Function, outer: Function) -> bool:
    scope: Scope | None = inner.outer
    while scope is not None:
        if scope.function is outer:
            return True
        scope = scope.outer
    return False
