"""A user's module loaded with a probe at every finding: what runs there, how often, and with which values.

Probes are written into the source text without moving a line, and the changed text is put where Python's ``linecache``
(and AutoGraph with it) looks for the file's source: paths and line numbers in messages stay the user's. The file
itself is not touched.
"""

from __future__ import annotations

import ast
import importlib.util
import linecache
import os
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import tensorflow as tf

from tfpipe.check_records import Finding

_SEEN = "__tfpipe_seen__"
_LOOP = "__tfpipe_loop__"
_UNROLLED = "unrolled-loop"
# Rules about one value, whose probe takes it: the argument of len(x), the receiver of x.numpy(), the test of assert.
_VALUE_RULES = frozenset({"tensor-numpy", "tensor-to-number", "tensor-to-bool", "tensor-assert", "tensor-len"})

# Where a node starts and ends: line, offset, end line, end offset, lines from 1 and offsets in bytes as in ``ast``.
Place = tuple[int, int, int, int]


@dataclass(slots=True, kw_only=True)
class Observation:
    """What one probe saw while graphs were built (``traced``) and otherwise (``eager``).

    ``symbolic`` describes the tensor, ``other`` the type of any other value that a value's probe got. ``passes`` and
    ``operations`` are the repetitions of a Python loop and the operations it added to its graph, when it last ended.
    """

    traced: int = 0
    eager: int = 0
    symbolic: str | None = None
    other: str | None = None
    passes: int = 0
    operations: int | None = None


class Probes:
    """One observation per finding, by its position in the list of findings."""

    def __init__(self, count: int) -> None:
        self.observations = [Observation() for _ in range(count)]
        self.last: int | None = None

    def seen(self, number: int, value: Any = None) -> Any:
        """Note that finding ``number`` was reached, with which value; returns the value."""
        observation = self.observations[number]
        if tf.executing_eagerly():
            observation.eager += 1
            return value
        observation.traced += 1
        self.last = number
        if tf.is_tensor(value):
            observation.symbolic = f"{value.dtype.name} of shape {value.shape}"
        else:
            observation.other = type(value).__name__
        return value

    def loop(self, number: int, iterable: Any) -> Any:
        """Note that a loop begins; returns what it runs over, counting if that is a Python iterable."""
        self.seen(number)
        if tf.executing_eagerly() or tf.is_tensor(iterable) or isinstance(iterable, tf.data.Dataset | tf.data.Iterator):
            return iterable
        return self._counted(self.observations[number], iterable)

    def _counted(self, observation: Observation, iterable: Any) -> Iterator[Any]:
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        observation.passes = 0
        for item in iterable:
            observation.passes += 1
            yield item
        observation.operations = len(graph.get_operations()) - before


def load_probed(path: Path, module_name: str, findings: Mapping[int, Finding], probes: Probes) -> ModuleType:
    """Import ``path`` as ``module_name`` with probes in it; leaves it in ``sys.modules``.

    Args:
        path: the user's file.
        module_name: the name that it would be imported under.
        findings: where to put probes, by their number: the findings in this file.
        probes: what the probes report to.

    Raises:
        whatever the module raises while it is imported.
    """
    specification = importlib.util.spec_from_file_location(module_name, path)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    with tokenize.open(path) as file:
        text = add_probes(file.read(), findings)
    # The same file under another spelling: AutoGraph reads a module's own __file__ from disk again. An entry without
    # a time is never compared with the file.
    spelling = os.path.join(path.parent, os.curdir, path.name)
    linecache.cache[spelling] = (len(text), None, text.splitlines(keepends=True), spelling)
    # The probes are ours: AutoGraph must run them as they are.
    keep: Callable[[Any], Any] = tf.autograph.experimental.do_not_convert
    module.__dict__[_SEEN] = keep(probes.seen)
    module.__dict__[_LOOP] = keep(probes.loop)
    sys.modules[module_name] = module
    try:
        exec(compile(text, spelling, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def add_probes(text: str, findings: Mapping[int, Finding]) -> str:
    """The source with a call of a probe at each finding, every line where it was.

    Findings inside f-strings get none: before Python 3.12 their places are not known.
    """
    lines = text.splitlines()
    wanted: dict[Place, list[int]] = {}
    for number, finding in findings.items():
        wanted.setdefault(_place_of_finding(finding, lines), []).append(number)
    edits: list[tuple[Place, str, str]] = []
    for node in _nodes(ast.parse(text)):
        for number in wanted.pop(_place_of_node(node), []):
            edits += _edits(node, number, findings[number].rule)
    return _apply(text, edits)


def _nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr):
            continue
        # ``f(x)`` as a statement and as an expression are one place; the expression is the one to wrap.
        if isinstance(child, ast.expr | ast.stmt) and not isinstance(child, ast.Expr):
            yield child
        yield from _nodes(child)


def _place_of_finding(finding: Finding, lines: list[str]) -> Place:
    start = _offset(lines, finding.line, finding.column)
    if finding.rule == _UNROLLED:
        # A loop is marked by its first line only; it is found by where it starts.
        return (finding.line, start, 0, 0)
    return (finding.line, start, finding.end_line, _offset(lines, finding.end_line, finding.end_column))


def _place_of_node(node: ast.expr | ast.stmt) -> Place:
    if isinstance(node, ast.For | ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return (node.lineno, node.col_offset, 0, 0)
    return _span(node)


def _span(node: ast.expr | ast.stmt) -> Place:
    return (node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def _offset(lines: list[str], line: int, column: int) -> int:
    """The offset in UTF-8 bytes of a 1-based column in characters."""
    return len(lines[line - 1][: column - 1].encode()) if line <= len(lines) else 0


def _edits(node: ast.expr | ast.stmt, number: int, rule: str) -> list[tuple[Place, str, str]]:
    """What to write before and after which part of ``node``."""
    if isinstance(node, ast.For):
        return [(_span(node.iter), f"{_LOOP}({number}, ", ")")]
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return [(_span(node.generators[0].iter), f"{_LOOP}({number}, ", ")")]
    if rule in _VALUE_RULES:
        value: ast.expr | None = None
        if isinstance(node, ast.Assert):
            value = node.test
        elif isinstance(node, ast.Call) and rule == "tensor-numpy" and isinstance(node.func, ast.Attribute):
            value = node.func.value
        elif isinstance(node, ast.Call) and node.args:
            value = node.args[0]
        return [] if value is None else [(_span(value), f"{_SEEN}({number}, ", ")")]
    if isinstance(node, ast.expr):
        return [(_span(node), f"({_SEEN}({number}), ", ")[1]")]
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
        return [(_span(node), f"{_SEEN}({number}); ", "")]
    return []


def _apply(text: str, edits: list[tuple[Place, str, str]]) -> str:
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    insertions: dict[tuple[int, int], list[tuple[tuple[int, ...], str]]] = {}
    for (line, offset, end_line, end_offset), before, after in edits:
        # At one place what closes comes before what opens; of two that open, the one that ends later comes first,
        # and of two that close, the one that began later.
        insertions.setdefault((line, offset), []).append(((1, -end_line, -end_offset), before))
        insertions.setdefault((end_line, end_offset), []).append(((0, -line, -offset), after))
    for (line, offset), pieces in sorted(insertions.items(), reverse=True):
        inserted = "".join(piece for _, piece in sorted(pieces, key=lambda item: item[0])).encode()
        lines[line - 1] = lines[line - 1][:offset] + inserted + lines[line - 1][offset:]
    return b"".join(lines).decode()
