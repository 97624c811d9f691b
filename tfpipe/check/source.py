"""One parsed file: its functions, its classes, and what every name in it is bound to."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field
from typing import Literal

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
BindingKind = Literal[
    "import", "assign", "augment", "unpack", "loop", "with", "parameter", "function", "class", "other"
]

# Other spellings of the same thing, longest first; what a name resolves to is written in the right-hand form.
_CANONICAL = (
    ("tensorflow.compat.v2.", "tensorflow."),
    ("tensorflow._api.v2.", "tensorflow."),
    ("tensorflow.python.keras.", "keras."),
    ("tensorflow.keras.", "keras."),
    ("tf_keras.src.", "keras."),
    ("tf_keras.", "keras."),
    ("keras.src.", "keras."),
    ("keras.api.", "keras."),
    ("keras.engine.", "keras."),
    ("keras.layers.experimental.preprocessing.", "keras.layers."),
    ("keras.layers.experimental.", "keras.layers."),
    ("keras.optimizers.legacy.", "keras.optimizers."),
    ("keras.optimizers.experimental.", "keras.optimizers."),
)


@dataclass(slots=True, eq=False)
class Binding:
    """One place that gives a name a value.

    ``index`` is the position in an unpacked target; a target nested deeper, ``y`` in ``i, (x, y)``, has -1.
    """

    kind: BindingKind
    line: int
    value: ast.expr | None = None
    dotted: str = ""
    function: Function | None = None
    klass: Class | None = None
    index: int | None = None


@dataclass(slots=True, eq=False)
class Scope:
    """Names of the module or of one function. ``outer`` is the enclosing scope; class bodies are no scope for them."""

    outer: Scope | None
    names: dict[str, list[Binding]] = field(default_factory=dict)
    declared_global: set[str] = field(default_factory=set)
    declared_nonlocal: set[str] = field(default_factory=set)
    function: Function | None = None

    def bind(self, name: str, binding: Binding) -> None:
        self.names.setdefault(name, []).append(binding)


@dataclass(slots=True, eq=False)
class Function:
    """A ``def`` or ``lambda``. ``owner`` is the class whose method it is, ``outer`` the scope around it."""

    node: Definition
    qualname: str
    scope: Scope
    outer: Scope
    owner: Class | None

    @property
    def line(self) -> int:
        return self.node.lineno

    @property
    def parameters(self) -> list[ast.arg]:
        """Positional and keyword-only parameters, without ``*args`` and ``**kwargs``."""
        arguments = self.node.args
        return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]

    @property
    def positional(self) -> list[ast.arg]:
        return [*self.node.args.posonlyargs, *self.node.args.args]

    @property
    def own_name(self) -> str | None:
        """What the method calls its object (``self``); None outside a class and in a static method."""
        if self.owner is None or isinstance(self.node, ast.Lambda) or not self.positional:
            return None
        if any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in self.node.decorator_list):
            return None
        return self.positional[0].arg

    def default(self, name: str) -> ast.expr | None:
        """The default value of a parameter, None without one."""
        arguments = self.node.args
        positional = self.positional
        for parameter, value in zip(reversed(positional), reversed(arguments.defaults), strict=False):
            if parameter.arg == name:
                return value
        for parameter, keyword_value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if parameter.arg == name:
                return keyword_value
        return None


@dataclass(slots=True, eq=False)
class Class:
    """A class. ``attributes`` are the values its methods give to ``self.name``."""

    node: ast.ClassDef
    qualname: str
    outer: Scope
    methods: dict[str, Function] = field(default_factory=dict)
    attributes: dict[str, list[tuple[ast.expr, Function]]] = field(default_factory=dict)


class Source:
    """A parsed file. Raises SyntaxError from the constructor when the text is no Python."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text, path)
        self.module = Scope(outer=None)
        self.functions: list[Function] = []
        self.classes: list[Class] = []
        self.function_of: dict[ast.AST, Function] = {}
        self.class_of: dict[ast.AST, Class] = {}
        # The scope that every expression and statement is evaluated in.
        self.scope_of: dict[ast.AST, Scope] = {}
        self.parent_of: dict[ast.AST, ast.AST] = {}
        _Reader(self).read()

    def lookup(self, name: str, scope: Scope) -> tuple[Scope, list[Binding]] | None:
        """The scope that ``name`` lives in, seen from ``scope``, and its bindings there."""
        current: Scope | None = self.module if name in scope.declared_global else scope
        if name in scope.declared_nonlocal:
            current = scope.outer
        while current is not None:
            if name in current.names and name not in current.declared_nonlocal | current.declared_global:
                return current, current.names[name]
            current = self.module if name in current.declared_global else current.outer
        return None

    def binding(self, node: ast.Name) -> Binding | None:
        """The binding that a reader would take ``node`` for: the last one above it, else the first one below.

        Notebooks and long scripts reuse names; the last binding above is what such a line means.
        """
        found = self.lookup(node.id, self.scope_of[node])
        if found is None:
            return None
        above = [binding for binding in found[1] if binding.line < node.lineno]
        if above:
            return max(above, key=lambda binding: binding.line)
        same_line = [binding for binding in found[1] if binding.line == node.lineno and binding.kind != "augment"]
        return (same_line or found[1])[0]

    def dotted(self, node: ast.expr, depth: int = 0) -> str | None:
        """The full name of what ``node`` refers to when that is importable: ``tensorflow.data.Dataset``.

        Aliases are followed (``import tensorflow as tf``, ``layers = tf.keras.layers``); a name bound nowhere in the
        file is ``builtins.name``. None for anything defined in this file and for values.
        """
        if depth > 20:
            return None
        if isinstance(node, ast.Attribute):
            prefix = self.dotted(node.value, depth + 1)
            return None if prefix is None else canonical(f"{prefix}.{node.attr}")
        if not isinstance(node, ast.Name):
            return None
        binding = self.binding(node)
        if binding is None:
            return f"builtins.{node.id}" if hasattr(builtins, node.id) else None
        if binding.kind == "import":
            return canonical(binding.dotted)
        if binding.kind == "assign" and isinstance(binding.value, ast.Name | ast.Attribute):
            if isinstance(binding.value, ast.Name) and binding.value.id == node.id:
                return None
            return self.dotted(binding.value, depth + 1)
        return None

    def called(self, node: ast.AST) -> str | None:
        """``dotted`` of the function that a call calls; None for anything else."""
        return self.dotted(node.func) if isinstance(node, ast.Call) else None

    def definition(self, node: ast.expr, depth: int = 0) -> Function | Class | None:
        """The function or class of this file that ``node`` refers to, through plain aliases, ``self.method``,
        ``ClassName.method`` and ``instance.method``."""
        if depth > 20:
            return None
        if isinstance(node, ast.Lambda):
            return self.function_of[node]
        if isinstance(node, ast.Name):
            binding = self.binding(node)
            if binding is None:
                return None
            if binding.kind == "assign" and binding.value is not None:
                value = binding.value
                if isinstance(value, ast.Lambda | ast.Name | ast.Attribute):
                    return self.definition(value, depth + 1)
            return None if binding.kind == "parameter" else binding.function or binding.klass
        if isinstance(node, ast.Attribute):
            klass = self.class_of_value(node.value, depth + 1)
            return None if klass is None else self.method(klass, node.attr)
        return None

    def class_of_value(self, node: ast.expr, depth: int = 0) -> Class | None:
        """The class of this file whose instance (or which itself) ``node`` is."""
        if depth > 20:
            return None
        if isinstance(node, ast.Name):
            binding = self.binding(node)
            if binding is None:
                return None
            if binding.klass is not None:
                return binding.klass
            if binding.kind == "parameter" and binding.function is not None:
                return binding.function.owner if binding.function.own_name == node.id else None
            if binding.kind == "assign" and binding.value is not None and binding.value is not node:
                return self.class_of_value(binding.value, depth + 1)
            return None
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "super":
                return None
            found = self.definition(node.func, depth + 1)
            return found if isinstance(found, Class) else None
        if isinstance(node, ast.Attribute):
            owner = self.class_of_value(node.value, depth + 1)
            values = {
                found
                for value, _ in (owner.attributes.get(node.attr, []) if owner else [])
                if (found := self.class_of_value(value, depth + 1)) is not None
            }
            return values.pop() if len(values) == 1 else None
        return None

    def bases(self, klass: Class) -> list[Class | str]:
        """The bases of a class and theirs, as classes of this file or dotted names, nearest first."""
        found: list[Class | str] = []
        waiting = [klass]
        while waiting:
            current = waiting.pop(0)
            for base in current.node.bases:
                definition = self.definition(base)
                if isinstance(definition, Class):
                    if definition is not klass and definition not in found:
                        found.append(definition)
                        waiting.append(definition)
                elif (dotted := self.dotted(base)) is not None:
                    found.append(dotted)
        return found

    def method(self, klass: Class, name: str) -> Function | None:
        """The method of that name, inherited ones of this file included."""
        for candidate in (klass, *self.bases(klass)):
            if isinstance(candidate, Class) and name in candidate.methods:
                return candidate.methods[name]
        return None

    def attribute_values(self, klass: Class, name: str) -> list[tuple[ast.expr, Function]]:
        """Every value that methods of the class, or of its bases in this file, give to ``self.name``."""
        values = list(klass.attributes.get(name, []))
        for base in self.bases(klass):
            if isinstance(base, Class):
                values += base.attributes.get(name, [])
        return values


def canonical(dotted: str) -> str:
    """One spelling for each public name: ``tensorflow.keras.layers.Dense`` is ``keras.layers.Dense``."""
    for prefix, replacement in _CANONICAL:
        if dotted.startswith(prefix):
            return canonical(replacement + dotted[len(prefix) :])
        if dotted == prefix[:-1]:
            return replacement[:-1]
    return dotted


class _Reader(ast.NodeVisitor):
    """Fills a Source in one walk over its tree."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.scope = source.module
        self.class_scope: Scope | None = None
        self.owner: Class | None = None
        self.names: list[str] = []

    def read(self) -> None:
        for parent in ast.walk(self.source.tree):
            for child in ast.iter_child_nodes(parent):
                self.source.parent_of[child] = parent
        self.visit(self.source.tree)

    def visit(self, node: ast.AST) -> None:
        self.source.scope_of[node] = self.scope
        super().visit(node)

    def _bind(self, name: str, binding: Binding) -> None:
        (self.class_scope or self.scope).bind(name, binding)

    def _bind_target(self, target: ast.expr, kind: BindingKind, value: ast.expr | None, index: int | None) -> None:
        if isinstance(target, ast.Name):
            scope = self.scope
            binding = Binding(kind=kind, line=target.lineno, value=value, index=index)
            if target.id in scope.declared_global:
                self.source.module.bind(target.id, binding)
            elif target.id not in scope.declared_nonlocal:
                self._bind(target.id, binding)
        elif isinstance(target, ast.Tuple | ast.List):
            spread = value.elts if kind == "assign" and isinstance(value, ast.Tuple | ast.List) else None
            for position, item in enumerate(target.elts):
                if spread is not None and len(spread) == len(target.elts):
                    self._bind_target(item, "assign", spread[position], None)
                else:
                    unpacked: BindingKind = "loop" if kind == "loop" else "unpack"
                    self._bind_target(item, unpacked, value, position if index is None else -1)
        elif isinstance(target, ast.Starred):
            self._bind_target(target.value, "other", None, None)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and value is not None:
            function = self.scope.function
            if kind == "assign" and function is not None:
                method = _method_around(function)
                if method is not None and method.owner is not None and method.own_name == target.value.id:
                    method.owner.attributes.setdefault(target.attr, []).append((value, function))

    def visit_Import(self, node: ast.Import) -> None:
        for item in node.names:
            name = item.asname or item.name.partition(".")[0]
            dotted = item.name if item.asname else name
            self._bind(name, Binding(kind="import", line=node.lineno, dotted=dotted))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        for item in node.names:
            if item.name != "*":
                dotted = f"{module}.{item.name}"
                self._bind(item.asname or item.name, Binding(kind="import", line=node.lineno, dotted=dotted))

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.declared_global.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.scope.declared_nonlocal.update(node.names)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._bind_target(target, "assign", node.value, None)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._bind_target(node.target, "assign", node.value, None)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._bind_target(node.target, "assign", node.value, None)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._bind_target(node.target, "augment", node.value, None)
        self.generic_visit(node)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._bind_target(node.target, "loop", node.iter, None)
        self.generic_visit(node)

    visit_AsyncFor = visit_For  # noqa: N815  ast.NodeVisitor's naming

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._bind_target(node.target, "loop", node.iter, None)
        self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._bind_target(node.optional_vars, "with", node.context_expr, None)
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._bind(node.name, Binding(kind="other", line=node.lineno))
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        klass = Class(node=node, qualname=".".join([*self.names, node.name]), outer=self.scope)
        self.source.classes.append(klass)
        self.source.class_of[node] = klass
        self._bind(node.name, Binding(kind="class", line=node.lineno, klass=klass))
        for item in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(item)
        owner, class_scope = self.owner, self.class_scope
        self.owner, self.class_scope = klass, Scope(outer=self.scope)
        self.names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self.names.pop()
        self.owner, self.class_scope = owner, class_scope

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        function = self._function(node, node.name)
        if self.owner is not None and self.class_scope is not None:
            self.owner.methods[node.name] = function
        self._bind(node.name, Binding(kind="function", line=node.lineno, function=function))
        for item in node.decorator_list:
            self.visit(item)
        self._enter(function, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._enter(self._function(node, "<lambda>"), [node.body])

    def _function(self, node: Definition, name: str) -> Function:
        owner = self.owner if self.class_scope is not None else None
        scope = Scope(outer=self.scope)
        qualname = ".".join([*self.names, name])
        function = Function(node=node, qualname=qualname, scope=scope, outer=self.scope, owner=owner)
        scope.function = function
        self.source.functions.append(function)
        self.source.function_of[node] = function
        return function

    def _enter(self, function: Function, body: list[ast.stmt] | list[ast.expr]) -> None:
        arguments = function.node.args
        for default in (*arguments.defaults, *(value for value in arguments.kw_defaults if value is not None)):
            self.visit(default)
        extras = [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
        for parameter in (*function.parameters, *extras):
            if parameter.annotation is not None:
                self.visit(parameter.annotation)
        if not isinstance(function.node, ast.Lambda) and function.node.returns is not None:
            self.visit(function.node.returns)
        outer, class_scope, owner = self.scope, self.class_scope, self.owner
        self.scope, self.class_scope, self.owner = function.scope, None, None
        self.names.append(function.qualname.rpartition(".")[2])
        for parameter in function.parameters:
            self.scope.bind(parameter.arg, Binding(kind="parameter", line=function.line, function=function))
        for extra in extras:
            self.scope.bind(extra.arg, Binding(kind="other", line=function.line))
        for item in body:
            self.visit(item)
        self.names.pop()
        self.scope, self.class_scope, self.owner = outer, class_scope, owner


def _method_around(function: Function) -> Function | None:
    """The method that a function nested in it belongs to; itself when it is one."""
    current: Function | None = function
    while current is not None and current.owner is None:
        current = current.outer.function
    return current
