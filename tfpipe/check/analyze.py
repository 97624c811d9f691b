"""Source text in, findings out."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path

from tfpipe.check.kinds import Kinds, returned_values
from tfpipe.check.markers import read_markers
from tfpipe.check.rules import CHECKS, RULES, UNREADABLE
from tfpipe.check.rules.base import File, Hit
from tfpipe.check.source import Class, Function, Source
from tfpipe.check.target import UnreadableError, read_source
from tfpipe.check.traced import KERAS_METHODS, TracedCode
from tfpipe.check_records import CheckedFile, Finding, Rule, TracedFunction
from tfpipe.errors import UsageError
from tfpipe.printable import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What one file yields: the file's record and its findings, sorted by place."""

    file: CheckedFile
    findings: tuple[Finding, ...]


def analyze_source(path: str, text: str, name: str | None = None) -> Analysis:
    """Every finding in ``text``, or only those of the function or class ``name`` and the code it leads to.

    Args:
        path: what to call the file in findings.
        text: its source.
        name: a function, a class, or ``Class.method``; None for the whole file.

    Raises:
        UnreadableError: the text is no Python of this interpreter's version.
        UsageError: there is no ``name`` in it.
    """
    try:
        return _analyze(path, text, _parsed(path, text), name)
    except RecursionError:
        hint = "Check the functions one by one."
        raise UnreadableError(path, "nested too deeply to be read", hint) from None


def analyze_file(path: Path, name: str | None = None) -> Analysis:
    """As ``analyze_source``; a whole file that cannot be read is a finding in it and stops nothing.

    Raises:
        UnreadableError: the file that is to hold ``name`` cannot be read.
        UsageError: there is no ``name`` in it.
    """
    shown = printable(path.as_posix())
    try:
        return analyze_source(shown, read_source(path), name)
    except UnreadableError as error:
        if name is not None:
            raise
        file = CheckedFile(path=shown, traced=(), suppressed=0, notes=())
        return Analysis(file=file, findings=(_unreadable(shown, error),))


def _unreadable(path: str, error: UnreadableError) -> Finding:
    return Finding(
        rule=UNREADABLE.name,
        severity=UNREADABLE.severity,
        path=path,
        line=error.line,
        column=1,
        end_line=error.line,
        end_column=1,
        function="",
        traced="",
        message=error.problem,
    )


def _parsed(path: str, text: str) -> Source:
    try:
        return Source(path, text)
    except SyntaxError as error:
        hint = "Mend it first; tfpipe check reads only valid Python."
        raise UnreadableError(path, f"syntax error: {error.msg}", hint, error.lineno or 1) from None
    except ValueError as error:
        raise UnreadableError(path, f"no Python source: {error}", "Name a .py file.") from None


def _analyze(path: str, text: str, source: Source, name: str | None) -> Analysis:
    kinds = Kinds(source)
    code = TracedCode(source, kinds)
    file = File(source=source, kinds=kinds, code=code)
    wanted = None if name is None else _target(file, name)
    markers = read_markers(text)
    lines = text.splitlines()
    findings: dict[tuple[str, int, int], Finding] = {}
    suppressed: set[tuple[str, int, int]] = set()
    for check in CHECKS:
        for hit in check.find(file):
            if wanted is not None and not _is_wanted(file, hit, wanted):
                continue
            finding = _finding(path, lines, check.rule, hit)
            key = (finding.rule, finding.line, finding.column)
            if any(check.rule.name in markers.get(line, ()) for line in _marked_lines(hit.node)):
                suppressed.add(key)
            else:
                findings.setdefault(key, finding)
    traced = [function for function in code.functions if wanted is None or function in wanted]
    record = CheckedFile(
        path=path,
        traced=tuple(
            TracedFunction(name=function.qualname, line=function.line, why=code.functions[function].why)
            for function in sorted(traced, key=lambda item: item.line)
        ),
        suppressed=len(suppressed),
        notes=_notes(markers),
    )
    ordered = sorted(findings.values(), key=lambda finding: (finding.line, finding.column, finding.rule))
    return Analysis(file=record, findings=tuple(ordered))


def _finding(path: str, lines: list[str], rule: Rule, hit: Hit) -> Finding:
    node = hit.node
    assert isinstance(node, ast.expr | ast.stmt)
    # A whole function or loop is marked by its first line.
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    if isinstance(node, ast.For | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        end_line, end_column = node.lineno, len(lines[node.lineno - 1].encode())
    return Finding(
        rule=rule.name,
        severity=rule.severity,
        path=path,
        line=node.lineno,
        column=_column(lines, node.lineno, node.col_offset),
        end_line=end_line,
        end_column=_column(lines, end_line, end_column),
        function=hit.traced.function.qualname if hit.traced is not None else "",
        traced=hit.traced.why if hit.traced is not None else "",
        message=hit.message,
    )


def _column(lines: list[str], line: int, offset: int) -> int:
    """A 1-based column in characters from an offset in UTF-8 bytes."""
    return len(lines[line - 1].encode()[:offset].decode(errors="replace")) + 1 if line <= len(lines) else 1


def _marked_lines(node: ast.AST) -> range:
    assert isinstance(node, ast.expr | ast.stmt)
    if isinstance(node, ast.For | ast.FunctionDef | ast.AsyncFunctionDef):
        first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
        body = node.body[0].lineno if node.body else node.lineno + 1
        return range(first, max(body, node.lineno + 1))
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _notes(markers: dict[int, frozenset[str]]) -> tuple[str, ...]:
    known = {rule.name for rule in RULES}
    return tuple(
        f"line {line}: there is no rule {name!r} to ignore"
        for line, names in sorted(markers.items())
        for name in sorted(names - known)
    )


# --- a single function or class ----------------------------------------------------------------------------------


def _target(file: File, name: str) -> set[Function]:
    """The traced functions that ``name`` leads to."""
    found = _named(file.source, name)
    if isinstance(found, Class):
        return file.code.reachable(_entry_points(file, found))
    if found in file.code.functions:
        return file.code.reachable([found])
    if _makes_traced_code(file, found):
        # A function that makes the step, the model or the pipeline runs as plain Python; what it makes is traced.
        return file.code.reachable(_used_traced(file, found))
    file.code.add_target(found)
    return file.code.reachable([found])


def _makes_traced_code(file: File, function: Function) -> bool:
    """Whether the function is a factory: it defines traced functions, or returns a model, a data set or an object."""
    if any(_is_within(other, function) for other in file.code.functions):
        return True
    values = [
        part
        for value in returned_values(function)
        for part in (value.elts if isinstance(value, ast.Tuple) else [value])
    ]
    return any(
        file.kinds.of(value) in ("keras", "dataset", "callable") or file.source.class_of_value(value) is not None
        for value in values
    )


def _used_traced(file: File, factory: Function) -> list[Function]:
    """The traced functions that a factory defines, uses, or makes objects of, through plain functions it calls."""
    found: list[Function] = []
    seen: set[Function | Class] = set()
    waiting: list[Function | Class] = [factory]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if isinstance(current, Function) and current in file.code.functions:
            found.append(current)
        elif isinstance(current, Class):
            found += [method for method in current.methods.values() if method in file.code.functions]
        else:
            for node in ast.walk(current.node):
                if isinstance(node, ast.Name | ast.Attribute | ast.Lambda):
                    definition = file.source.definition(node)
                    if definition is not None:
                        waiting.append(definition)
    return found


def _entry_points(file: File, klass: Class) -> list[Function]:
    """The traced methods of a class, inherited ones included; ``__call__`` of a class that has none."""
    classes = [klass, *(base for base in file.source.bases(klass) if isinstance(base, Class))]
    methods = [method for item in classes for method in item.methods.values()]
    traced = [method for method in methods if method in file.code.functions]
    traced += [function for function in file.code.functions if any(_is_within(function, method) for method in methods)]
    if not traced:
        for name in ("__call__", *KERAS_METHODS):
            method = file.source.method(klass, name)
            if method is not None:
                file.code.add_target(method)
                return [method]
        raise UsageError(
            f"{file.source.path}: {klass.qualname} has no traced method and no __call__ or call.",
            f"Name the method: {file.source.path}:{klass.qualname}.METHOD",
        )
    return traced


def _named(source: Source, name: str) -> Function | Class:
    functions: dict[str, Function | Class] = {
        function.qualname: function for function in source.functions if not isinstance(function.node, ast.Lambda)
    }
    known = functions | {klass.qualname: klass for klass in source.classes}
    if name in known:
        return known[name]
    bindings = source.module.names.get(name, [])
    for binding in reversed(bindings):
        value = binding.value
        if binding.kind != "assign" or value is None:
            continue
        if isinstance(value, ast.Call) and source.dotted(value.func) == "tensorflow.function" and value.args:
            value = value.args[0]
        found = source.definition(value) or source.class_of_value(value)
        if found is None and isinstance(value, ast.Call):
            found = source.definition(value.func)
        if found is not None:
            return found
    if bindings:
        raise UsageError(
            f"{source.path}: {name} is no function or class that is written in this file.",
            "Name the function or class itself, in the file that defines it.",
        )
    close = difflib.get_close_matches(name, known, n=3) or sorted(known)[:5]
    hint = f"There is: {', '.join(close)}." if close else "The file defines no function and no class."
    raise UsageError(f"{source.path} has no function or class {name!r}.", hint)


def _is_wanted(file: File, hit: Hit, wanted: set[Function]) -> bool:
    if hit.traced is None:
        # Eager execution switched on at module level concerns every function in the file.
        return True
    return hit.traced.function in wanted


def _is_within(inner: Function, outer: Function) -> bool:
    scope = inner.outer
    while scope is not None:
        if scope.function is outer:
            return True
        if scope.outer is None:
            return False
        scope = scope.outer
    return False
