"""What every rule is made of: its description, and a function from a file to the places where it is broken."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tfpipe.check.kinds import Kinds
from tfpipe.check.source import Binding, Function, Scope, Source
from tfpipe.check.traced import Site, Traced, TracedCode
from tfpipe.check_records import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One place. ``traced`` is the traced function around it, None for a mistake outside traced code."""

    node: ast.AST
    message: str
    traced: Traced | None


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file, ready for the rules."""

    source: Source
    kinds: Kinds
    code: TracedCode

    def sites(self) -> Iterator[tuple[Traced, Site]]:
        """Every node of every traced function."""
        for function, traced in self.code.functions.items():
            for site in self.code.sites(function):
                yield traced, site

    def calls(self) -> Iterator[tuple[Traced, Site, ast.Call, str | None]]:
        """Every call in traced code with the dotted name of what it calls."""
        for traced, site in self.sites():
            if isinstance(site.node, ast.Call):
                yield traced, site, site.node, self.source.dotted(site.node.func)

    def outer_bindings(self, node: ast.Name, traced: Traced) -> list[Binding] | None:
        """The bindings of a name that lives outside the traced function; None for one of its own."""
        scope = self.source.scope_of[node]
        found = self.source.lookup(node.id, scope)
        if found is None:
            return None
        home: Scope | None = found[0]
        while home is not None:
            # A function nested in traced code runs within one trace; what its neighbours hold is no outer state.
            if home.function is traced.function or (home.function is not None and home.function in self.code.functions):
                return None
            home = home.outer
        return found[1]

    def is_own_object(self, node: ast.expr) -> bool:
        """Whether ``node`` is ``self``, in a method or in a function nested in one."""
        if not isinstance(node, ast.Name):
            return False
        binding = self.source.binding(node)
        if binding is None or binding.kind != "parameter" or binding.function is None:
            return False
        return binding.function.own_name == node.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A rule with the function that finds it."""

    rule: Rule
    find: Callable[[File], Iterator[Hit]]


def text_of(node: ast.AST, limit: int = 40) -> str:
    """The source of an expression on one line, cut to ``limit`` characters."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def integer(file: File, node: ast.expr | None, depth: int = 0) -> int | None:
    """A whole number that the source fixes: a literal, arithmetic on literals, a name or attribute that is only ever
    given one, or a parameter that has one as its default or in all its calls."""
    if node is None or depth > 10:
        return None
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = integer(file, node.operand, depth + 1)
        return None if value is None else -value
    if isinstance(node, ast.BinOp):
        left, right = integer(file, node.left, depth + 1), integer(file, node.right, depth + 1)
        return None if left is None or right is None else _arithmetic(node.op, left, right)
    if isinstance(node, ast.Name):
        found = file.source.lookup(node.id, file.source.scope_of[node])
        if found is None or len(found[1]) != 1:
            return None
        return _bound_integer(file, found[1][0], node.id, depth)
    if isinstance(node, ast.Attribute):
        klass = file.source.class_of_value(node.value)
        values = file.source.attribute_values(klass, node.attr) if klass is not None else []
        return integer(file, values[0][0], depth + 1) if len(values) == 1 else None
    if isinstance(node, ast.Call) and file.source.dotted(node.func) == "builtins.len" and len(node.args) == 1:
        return length(file, node.args[0], depth + 1)
    return None


def _bound_integer(file: File, binding: Binding, name: str, depth: int) -> int | None:
    if binding.kind == "assign":
        return integer(file, binding.value, depth + 1)
    if binding.kind != "parameter" or binding.function is None:
        return None
    function: Function = binding.function
    passed = file.kinds.arguments(function, name)
    values = {integer(file, value, depth + 1) for value in passed}
    default = function.default(name)
    if default is not None and len(passed) < max(1, len(file.kinds.calls(function))):
        values.add(integer(file, default, depth + 1))
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _arithmetic(operator: ast.operator, left: int, right: int) -> int | None:
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    if isinstance(operator, ast.FloorDiv) and right:
        return left // right
    # An exponent from the source may be huge; nobody unrolls a loop of more than this.
    if isinstance(operator, ast.Pow) and 0 <= right <= 64 and abs(left) <= 1024:
        return int(left**right)
    return None


def length(file: File, node: ast.expr, depth: int = 0) -> int | None:
    """How many elements a Python sequence in the source has, None when that is open."""
    if depth > 10:
        return None
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return None if any(isinstance(item, ast.Starred) for item in node.elts) else len(node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for sequence, count in ((node.left, node.right), (node.right, node.left)):
            if isinstance(sequence, ast.List | ast.Tuple):
                inner, times = length(file, sequence, depth + 1), integer(file, count, depth + 1)
                return None if inner is None or times is None else inner * times
        return None
    if isinstance(node, ast.ListComp) and len(node.generators) == 1 and not node.generators[0].ifs:
        return length(file, node.generators[0].iter, depth + 1)
    if isinstance(node, ast.Call):
        called = file.source.dotted(node.func)
        if called == "builtins.range" and 1 <= len(node.args) <= 3:
            return _range_length([integer(file, item, depth + 1) for item in node.args])
        if called in ("builtins.enumerate", "builtins.reversed", "builtins.list", "builtins.tuple", "builtins.sorted"):
            return length(file, node.args[0], depth + 1) if node.args else None
        if called == "builtins.zip":
            lengths = [known for item in node.args if (known := length(file, item, depth + 1)) is not None]
            return min(lengths) if lengths else None
        if called == "numpy.arange" and len(node.args) == 1:
            return integer(file, node.args[0], depth + 1)
        return None
    if isinstance(node, ast.Name):
        found = file.source.lookup(node.id, file.source.scope_of[node])
        if found is not None and len(found[1]) == 1 and found[1][0].kind == "assign" and found[1][0].value is not None:
            return length(file, found[1][0].value, depth + 1)
    return None


def _range_length(values: list[int | None]) -> int | None:
    if any(value is None for value in values):
        return None
    whole = [value for value in values if value is not None]
    return None if len(whole) == 3 and whole[2] == 0 else len(range(*whole))
