"""Recommended values as a unified diff of the user's own files, and in words where no edit is certain.

An edit is made only where the source, parsed, has exactly the call that was captured with exactly the value that was
captured. Everything else is told to the user: nothing is guessed.
"""

from __future__ import annotations

import ast
import difflib
import io
import itertools
import os
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tfpipe.sites import AUTOTUNE_VALUE, REMOVABLE_AXES, OverrideValue, Site, SiteValue, describe_site, plain_text

_CONTEXT_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """``value`` to be written at ``site``, in the terms of ``tfpipe.sites.OverrideValue``."""

    site: Site
    value: OverrideValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """``diff`` applies with ``patch -p1`` in the root it was made for; "" when no edit is certain.

    ``by_hand`` has one instruction for each change that is not in the diff.
    """

    diff: str
    by_hand: tuple[str, ...]


def describe_change(change: Change) -> str:
    """``data.py:42  map(num_parallel_calls=2) -> 8``, the lines of a recommendation."""
    site, value = change.site, change.value
    if site.axis in REMOVABLE_AXES and not value and value != "":
        return f"{describe_site(site)} -> leave the stage out"
    if site.kind == "end":
        if site.method == "prefetch":
            behind = f"  behind {_method_of(site.partner)}" if site.partner else ""
            return f"{site.where}{behind}: add .prefetch({plain_text(value)})"
        return f"at the end: set options.{site.argument} = {plain_text(value)}"
    if site.kind == "order":
        return f"{site.where}  {site.method} before batch -> batch before {site.method}"
    return f"{describe_site(site)} -> {plain_text(value)}"


def read_sources(changes: Sequence[Change]) -> dict[str, str]:
    """The text of each file that ``changes`` are about, line ends as they are; unreadable ones are left out."""
    sources = {}
    for file in {change.site.file for change in changes if change.site.file}:
        try:
            sources[file] = Path(file).read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
    return sources


def make_patch(changes: Sequence[Change], sources: Mapping[str, str], root: Path) -> Patch:
    """The edits that make ``changes``.

    Args:
        sources: text by file name as in ``Site.file``.
        root: directory in which ``patch -p1`` will be run; files outside it are left to the user.
    """
    by_hand: list[str] = []
    by_file: dict[str, list[Change]] = {}
    for change in _without_disagreement(changes, by_hand):
        by_file.setdefault(change.site.file, []).append(change)
    diffs = []
    for file, group in sorted(by_file.items()):
        name = _name_below(file, root)
        text = sources.get(file)
        if text is None or name is None or "\r" in text.replace("\r\n", ""):
            by_hand += [_instruction(change, _why_not(change, file, name)) for change in group]
            continue
        edited = _edited(text, group, by_hand)
        if edited != text:
            diffs.append(_unified(name, text, edited))
    return Patch(diff="".join(diffs), by_hand=tuple(by_hand))


def _why_not(change: Change, file: str, name: str | None) -> str:
    if not file:
        return "options = tf.data.Options(), set it there, and dataset.with_options(options) behind everything"
    return f"{file} is not below this directory" if name is None else f"{file} cannot be read"


class _ByHandError(Exception):
    """Why an edit is not certain."""


def _instruction(change: Change, why: str) -> str:
    return f"{describe_change(change)}: {why}"


def _without_disagreement(changes: Sequence[Change], by_hand: list[str]) -> list[Change]:
    """One change for each place in the source: a loop runs one place several times, so all its runs must agree."""
    places: dict[tuple[object, ...], list[Change]] = {}
    for change in changes:
        site = change.site
        place = (site.file, site.line, site.end_line, site.end_column, site.method, site.argument, site.via)
        places.setdefault((site.id,) if site.kind == "end" else place, []).append(change)
    kept = []
    for group in places.values():
        runs = group[0].site.occurrences
        agree = all(change.value == group[0].value for change in group)
        if group[0].site.kind != "end" and (not agree or len(group) < runs):
            why = f"this place runs {runs} times, and the runs differ in what is best"
            by_hand += [_instruction(change, why) for change in group]
        else:
            kept.append(group[0])
    return kept


def _name_below(file: str, root: Path) -> str | None:
    if not file or file.startswith("<"):
        return None
    name = os.path.relpath(os.path.abspath(file), root.absolute())
    return None if name.startswith("..") else name.replace(os.sep, "/")


# --- edits of one file --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Edit:
    """Bytes ``start`` to ``end`` replaced by ``text``."""

    start: int
    end: int
    text: str


class _Source:
    """A file's text with its syntax tree and the byte offset of every position in it."""

    def __init__(self, text: str) -> None:
        self.data = text.encode()
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError) as error:
            raise _ByHandError(f"the file does not parse: {error}") from None
        starts = [0]
        for line in self.data.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        self._starts = starts
        self.calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        # ast.parse always sets both; their types allow for trees that were built by hand.
        return self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def apply(self, edits: Sequence[_Edit]) -> str:
        data = self.data
        for edit in sorted(edits, key=lambda one: one.start, reverse=True):
            data = data[: edit.start] + edit.text.encode() + data[edit.end :]
        return data.decode()

    def after_receiver(self, call: ast.Call) -> tuple[int, int]:
        """From behind the expression whose method is called to the call's end: ``.map(f)``."""
        receiver = _receiver(call)
        return (self.start(call) if receiver is None else self.end(receiver)), self.end(call)

    def lines_of(self, node: ast.stmt) -> tuple[int, int]:
        """The lines of a statement that has them to itself."""
        start, end = self._starts[node.lineno - 1], self._starts[node.end_lineno or node.lineno]
        if self.data[start : self.start(node)].strip() or self.data[self.end(node) : end].strip():
            raise _ByHandError("there is something else on that line")
        return start, min(end, len(self.data))

    def blocks(self) -> Iterator[list[ast.stmt]]:
        """Every list of statements that run one after the other."""
        for node in ast.walk(self.tree):
            for _, value in ast.iter_fields(node):
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    yield value

    def tensorflow(self) -> str:
        """The name by which the module knows TensorFlow."""
        for node in self.tree.body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name == "tensorflow":
                        return alias.asname or alias.name
        raise _ByHandError("the file does not import tensorflow under a name of its own")

    def written(self, value: OverrideValue) -> str:
        return f"{self.tensorflow()}.data.AUTOTUNE" if value == "auto" else repr(value)

    def before_bracket(self, call: ast.Call) -> tuple[int, str]:
        """Where the last thing before the call's closing bracket ends, comments left aside, and what it is."""
        close = self.end(call) - 1
        last_end, last = self.end(call.func), ""
        for token in tokenize.tokenize(io.BytesIO(self.data).readline):
            if token.type in (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT,
                              tokenize.ENCODING):  # fmt: skip
                continue
            line = self.data[self._starts[token.start[0] - 1] :].split(b"\n", 1)[0].decode()
            start = self._starts[token.start[0] - 1] + len(line[: token.start[1]].encode())
            if start >= close:
                break
            last_end, last = start + len(token.string.encode()), token.string
        return last_end, last


def _edited(text: str, changes: Sequence[Change], by_hand: list[str]) -> str:
    """``text`` with every certain edit made; the others are added to ``by_hand``.

    Arguments first, which moves no line; then what moves: orders, whose edits contain arguments, and stages that go.
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    original = body = text[len(mark) :]
    try:
        source = _Source(body)
    except _ByHandError as why:
        by_hand += [_instruction(change, str(why)) for change in changes]
        return text
    edits: list[_Edit] = []
    moves = []
    for change in changes:
        if change.site.kind == "order" or _leaves_out(change):
            moves.append(change)
            continue
        try:
            edits += _edits(source, change)
        except _ByHandError as why:
            by_hand.append(_instruction(change, str(why)))
    body = source.apply(list(dict.fromkeys(edits)))
    # From the bottom up: a later stage's move leaves the lines of the earlier ones alone.
    for change in sorted(moves, key=lambda one: (-(one.site.line or 0), -(one.site.end_column or 0))):
        # Once something has moved, a call's end is no longer where it was captured; its line still is.
        site = change.site if body == original else replace(change.site, end_line=None, end_column=None)
        try:
            body = _leave_out(_Source(body), site) if _leaves_out(change) else _swap(_Source(body), site, change.value)
        except _ByHandError as why:
            by_hand.append(_instruction(change, str(why)))
    try:
        ast.parse(body)
    except SyntaxError:
        why_not = "the source is laid out in a way that cannot be edited safely"
        by_hand += [_instruction(change, why_not) for change in changes]
        return text
    return mark + body


def _leaves_out(change: Change) -> bool:
    return change.site.axis in REMOVABLE_AXES and change.site.kind != "end" and not change.value and change.value != ""


def _edits(source: _Source, change: Change) -> list[_Edit]:
    site, value = change.site, change.value
    if site.kind == "end":
        return _append(source, site, value)
    if site.method == "Options":
        return _assign(source, site, value)
    if site.kind == "option":
        raise _ByHandError("the option is set somewhere else, before the pipeline is built")
    call = _find_call(source, site)
    argument = site.settable_as or site.argument
    written = _argument(call, argument, site)
    if value is None and written is None:
        return []
    text = source.written(value)
    if written is not None:
        _check_literal(written, site)
        return [_Edit(source.start(written), source.end(written), text)]
    if any(isinstance(item, ast.Starred) for item in call.args) or any(item.arg is None for item in call.keywords):
        raise _ByHandError("the call takes its arguments from a list or dict")
    end, last = source.before_bracket(call)
    lead = "" if last == "(" else " " if last == "," else ", "
    return [_Edit(end, end, f"{lead}{argument}={text}" + ("," if last == "," else ""))]


def _called_name(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else None


def _find_call(source: _Source, site: Site) -> ast.Call:
    """The call that ``site`` was captured at: by its end where that is known, else the only one on its line."""
    if site.via is not None and site.settable_as is None:
        raise _ByHandError(site.limits)
    name = site.via or site.method
    named = [call for call in source.calls if _called_name(call) == name]
    if site.end_line is not None:
        found = [call for call in named if (call.end_lineno, call.end_col_offset) == (site.end_line, site.end_column)]
        found = [call for call in found if _name_line(call) == site.line]
    else:
        found = [call for call in named if _name_line(call) == site.line]
    if not found:
        raise _ByHandError(f"there is no {name}(...) on that line: the file has changed, or calls it by another name")
    if len(found) > 1:
        raise _ByHandError(f"there are several {name}(...) on that line")
    return found[0]


def _name_line(call: ast.Call) -> int | None:
    """The line of the method's name, which is where Python says the call is."""
    return call.func.end_lineno


def _argument(call: ast.Call, argument: str, site: Site) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == argument:
            return keyword.value
    position = _POSITIONS.get((site.via or site.method, argument))
    if position is not None and len(call.args) > position and not any(isinstance(a, ast.Starred) for a in call.args):
        return call.args[position]
    if site.written and site.via is None:
        raise _ByHandError(f"{argument} is not written as a keyword there")
    return None


# Where a knob stands when it is passed by position (signatures of TensorFlow 2.21, ``self`` not counted).
_POSITIONS = {
    ("shuffle", "buffer_size"): 0,
    ("prefetch", "buffer_size"): 0,
    ("map", "num_parallel_calls"): 1,
    ("map", "deterministic"): 2,
    ("batch", "num_parallel_calls"): 2,
    ("batch", "deterministic"): 3,
    ("interleave", "cycle_length"): 1,
    ("interleave", "block_length"): 2,
    ("interleave", "num_parallel_calls"): 3,
    ("interleave", "deterministic"): 4,
    ("cache", "filename"): 0,
    ("TFRecordDataset", "buffer_size"): 2,
    ("TFRecordDataset", "num_parallel_reads"): 3,
    ("TextLineDataset", "buffer_size"): 2,
    ("TextLineDataset", "num_parallel_reads"): 3,
    ("FixedLengthRecordDataset", "buffer_size"): 4,
    ("FixedLengthRecordDataset", "num_parallel_reads"): 6,
    ("CsvDataset", "buffer_size"): 3,
}


def _is_autotune(node: ast.expr) -> bool:
    """``tf.data.AUTOTUNE``, ``tf.data.experimental.AUTOTUNE`` or a name AUTOTUNE imported from there."""
    return (isinstance(node, ast.Attribute) and node.attr == "AUTOTUNE") or (
        isinstance(node, ast.Name) and node.id == "AUTOTUNE"
    )


def _literal(node: ast.expr) -> tuple[bool, SiteValue]:
    if _is_autotune(node):
        return True, "auto"
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return False, None
    return (True, value) if value is None or isinstance(value, (bool, int, float, str)) else (False, None)


def _check_literal(node: ast.expr, site: Site) -> None:
    """That the value there is a literal, and the one that was captured (a library may have changed it on its way)."""
    literal, value = _literal(node)
    if not literal:
        raise _ByHandError(f"the value comes from {ast.unparse(node)}")
    same = value == site.value or (value == AUTOTUNE_VALUE and site.value == "auto")
    if not same and site.via is None:
        raise _ByHandError(f"the file has changed: {value!r} is written there now")


def _assign(source: _Source, site: Site, value: OverrideValue) -> list[_Edit]:
    """``options.threading.private_threadpool_size = 4``: its right-hand side."""
    name = site.argument.rpartition(".")[2]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and node.lineno <= (site.line or 0) <= (node.end_lineno or 0):
            target = node.targets[0]
            names = {name, "experimental_deterministic"} if name == "deterministic" else {name}
            if len(node.targets) == 1 and isinstance(target, ast.Attribute) and target.attr in names:
                _check_literal(node.value, site)
                if value is None:
                    raise _ByHandError("delete the line")
                return [_Edit(source.start(node.value), source.end(node.value), repr(value))]
    raise _ByHandError(f"there is no assignment to {name} on that line")


def _leave_out(source: _Source, site: Site) -> str:
    """``.cache()`` taken out of its chain."""
    call = _find_call(source, site)
    if not isinstance(call.func, ast.Attribute):
        raise _ByHandError("it is not called as a method")
    start, end = source.end(call.func.value), source.end(call)
    for block in source.blocks():
        for node in block:
            if _reassigned(node) is call and len(block) > 1:
                start, end = source.lines_of(node)
    if b"#" in source.data[start:end]:
        raise _ByHandError("there is a comment in what would go")
    return source.apply([_Edit(start, end, "")])


def _append(source: _Source, site: Site, value: OverrideValue) -> list[_Edit]:
    """A stage behind the call that made the returned dataset, where ``site`` stands."""
    if site.method != "prefetch":
        raise _ByHandError(f"set it on a tf.data.Options that you give to with_options: options.{site.argument}")
    if site.occurrences > 1:
        raise _ByHandError(f"add it to what the function returns: {site.where} runs {site.occurrences} times")
    call = _find_call(source, replace(site, method=_method_of(site.partner or "")))
    _check_returned(source, call)
    return [_Edit(source.end(call), source.end(call), f".prefetch({source.written(value)})")]


def _method_of(stage: str) -> str:
    """``batch`` of ``data.py:9:batch``, with ``:2`` and so on behind it for a repeated call."""
    return next(part for part in reversed(stage.split(":")) if not part.isdigit())


def _check_returned(source: _Source, call: ast.Call) -> None:
    """Behind the last stage only where its value is returned or bound to one name, not an argument of something."""
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.Return, ast.Assign, ast.AnnAssign)) and node.value is call:
            return
        if isinstance(node, ast.Lambda) and node.body is call:
            return
    raise _ByHandError("add it to what the function returns")


def _swap(source: _Source, site: Site, value: OverrideValue) -> str:
    """``.map(f).batch(n)`` as ``.batch(n).map(f)``: in one chain, or in two assignments that follow each other."""
    if value != "batch-map":
        raise _ByHandError("move batch behind map")
    mapping = _find_call(source, site)
    for batching in source.calls:
        if _receiver(batching) is mapping and _called_name(batching) == "batch":
            a, b = source.after_receiver(mapping), source.after_receiver(batching)
            first, second = source.data[slice(*a)].decode(), source.data[slice(*b)].decode()
            if "#" in first + second:
                raise _ByHandError("there is a comment in what would move")
            return source.apply([_Edit(a[0], b[1], second + first)])
    return _swap_statements(source, mapping)


def _swap_statements(source: _Source, mapping: ast.Call) -> str:
    """``name = ....map(f)`` and, in the next statement, ``name.batch(n)``: what stands behind each dot changes places.

    Only where the next statement returns or binds the name anew: nothing else can then have used what lay between.
    """
    for block in source.blocks():
        for first, second in itertools.pairwise(block):
            name = _bound_name(first)
            if name is None or not isinstance(first, ast.Assign) or first.value is not mapping:
                continue
            uses = [node for node in ast.walk(second) if isinstance(node, ast.Name) and node.id == name]
            reads = [node for node in uses if isinstance(node.ctx, ast.Load)]
            batching = next((call for call in source.calls if _receiver(call) in reads), None)
            if (
                len(reads) == 1
                and (isinstance(second, ast.Return) or _bound_name(second) == name)
                and batching is not None
                and _called_name(batching) == "batch"
            ):
                a, b = source.after_receiver(mapping), source.after_receiver(batching)
                moved = [
                    _Edit(*a, source.data[slice(*b)].decode()),
                    _Edit(*b, source.data[slice(*a)].decode()),
                ]
                return source.apply(moved)
    raise _ByHandError("move batch before map; they are not next to each other in the source")


def _receiver(call: ast.Call) -> ast.expr | None:
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def _bound_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _reassigned(node: ast.AST) -> ast.Call | None:
    """The call in ``name = name.method(...)``."""
    name = _bound_name(node)
    if name is None or not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return None
    receiver = _receiver(node.value)
    return node.value if isinstance(receiver, ast.Name) and receiver.id == name else None


def _unified(name: str, before: str, after: str) -> str:
    """A diff as ``patch`` wants it: lines end at line feeds only, and a missing last one is said."""
    lines = difflib.unified_diff(
        _lines(before), _lines(after), f"a/{name}", f"b/{name}", n=_CONTEXT_LINES, lineterm="\n"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
