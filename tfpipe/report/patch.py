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

from tfpipe.sites import (
    AUTOTUNE_VALUE,
    CACHE_BEFORE,
    REMOVABLE_AXES,
    OverrideValue,
    Site,
    SiteValue,
    describe_site,
    method_of,
    move_of,
    plain_text,
)

_CONTEXT_LINES = 3
# Of a cache on disk; the run's own was a temporary file.
_FILENAME = "FILENAME"
_FILENAME_LEFT = "name a file of your own for FILENAME, and remove it (FILENAME.*) whenever data or map change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """``value`` to be written at ``site``, in the terms of ``tfpipe.sites.OverrideValue``."""

    site: Site
    value: OverrideValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """``diff`` applies with ``patch -p1`` in the root it was made for; "" when no edit is certain.

    ``by_hand`` has one instruction for each change that is not in the diff, and for what such a one leaves to do.
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
            behind = f"  behind {method_of(site.partner)}" if site.partner else ""
            return f"{site.where}{behind}: add .prefetch({plain_text(value)})"
        return f"at the end: set options.{site.argument} = {plain_text(value)}"
    if site.argument == CACHE_BEFORE:
        return f"{site.where}  before {site.method}: add {_cache_call(value)}"
    if site.kind == "order":
        move, partner = move_of(site.id), method_of(site.partner or "")
        if move is not None and move.place == "before":
            return f"{site.where}  {site.method} behind {partner} -> {site.method} before {partner}"
        return f"{site.where}  {site.method} before {partner} -> {partner} before {site.method}"
    return f"{describe_site(site)} -> {plain_text(value)}"


def _cache_call(value: OverrideValue) -> str:
    return f'.cache("{_FILENAME}")' if value == "disk" else ".cache()"


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
    on_disk = [change.site for change in changes if change.site.argument == CACHE_BEFORE and change.value == "disk"]
    by_hand += [f"{site.where}: {_FILENAME_LEFT}" for site in on_disk]
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

    Arguments first, which moves no line; then stages that move, whose text has arguments in it; then stages that go.
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    original = body = text[len(mark) :]
    try:
        source = _Source(body)
    except _ByHandError as why:
        by_hand += [_instruction(change, str(why)) for change in changes]
        return text
    edits: list[_Edit] = []
    moves, removals = [], []
    for change in changes:
        if change.site.kind == "order":
            moves.append(change)
        elif _leaves_out(change):
            removals.append(change)
        else:
            try:
                edits += _edits(source, change)
            except _ByHandError as why:
                by_hand.append(_instruction(change, str(why)))
    body = source.apply(list(dict.fromkeys(edits)))
    body = _Rearrangement(_Source(body), exact=body == original).apply(moves, by_hand)
    # From the bottom up: a later stage that goes leaves the lines of the earlier ones alone.
    for change in sorted(removals, key=lambda one: (-(one.site.line or 0), -(one.site.end_column or 0))):
        try:
            body = _leave_out(_Source(body), _placed(change.site, exact=body == original))
        except _ByHandError as why:
            by_hand.append(_instruction(change, str(why)))
    try:
        ast.parse(body)
    except SyntaxError:
        why_not = "the source is laid out in a way that cannot be edited safely"
        by_hand += [_instruction(change, why_not) for change in changes]
        return text
    return mark + body


def _placed(site: Site, *, exact: bool) -> Site:
    """Once something has been edited, a call's end is no longer where it was captured; its line still is."""
    return site if exact else replace(site, end_line=None, end_column=None)


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
    call = _find_call(source, replace(site, method=method_of(site.partner or "")))
    _check_returned(source, call)
    return [_Edit(source.end(call), source.end(call), f".prefetch({source.written(value)})")]


def _check_returned(source: _Source, call: ast.Call) -> None:
    """Behind the last stage only where its value is returned or bound to one name, not an argument of something."""
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.Return, ast.Assign, ast.AnnAssign)) and node.value is call:
            return
        if isinstance(node, ast.Lambda) and node.body is call:
            return
    raise _ByHandError("add it to what the function returns")


class _Rearrangement:
    """Stages that change places, and caches in front of some: in one chain of calls, or in assignments that follow each
    other.

    What stands behind each dot moves; what it is called on stays. A line like ``d = d.map(f)`` becomes ``d =
    d.batch(n)``. Only where the next statement returns the name or binds it anew: nothing else can then have used what
    lay between.
    """

    def __init__(self, source: _Source, *, exact: bool) -> None:
        self._source = source
        self._exact = exact
        self._next: dict[ast.Call, ast.Call] = {}
        for call in source.calls:
            receiver = _receiver(call)
            if isinstance(receiver, ast.Call):
                self._next[receiver] = call
        for block in source.blocks():
            for first, second in itertools.pairwise(block):
                following = _continued(first, second, source.calls)
                if following is not None and isinstance(first, ast.Assign) and isinstance(first.value, ast.Call):
                    self._next[first.value] = following

    def apply(self, changes: Sequence[Change], by_hand: list[str]) -> str:
        """The text with all of ``changes`` that are certain."""
        texts: dict[ast.Call, str] = {}
        moves: list[tuple[Change, list[ast.Call]]] = []
        for change in changes:
            try:
                call = _find_call(self._source, _placed(change.site, exact=self._exact))
                if change.site.argument == CACHE_BEFORE:
                    texts[call] = self._with_cache(call, change.value)
                else:
                    moves.append((change, self._between(call, change)))
            except _ByHandError as why:
                by_hand.append(_instruction(change, str(why)))
        edits = dict(texts)
        for chain in self._chains(moves):
            order = self._ordered(chain, moves)
            for call, content in zip(chain, order, strict=True):
                edits[call] = texts.get(content, self._text(content))
        return self._source.apply([_Edit(*self._source.after_receiver(call), text) for call, text in edits.items()])

    def _text(self, call: ast.Call) -> str:
        return self._source.data[slice(*self._source.after_receiver(call))].decode()

    def _with_cache(self, call: ast.Call, value: OverrideValue) -> str:
        text = self._text(call)
        start = text.find(".")
        if _receiver(call) is None or text[:start].strip():
            raise _ByHandError("it is not called as a method")
        return f"{text[:start]}{_cache_call(value)}{text}"

    def _between(self, call: ast.Call, change: Change) -> list[ast.Call]:
        """The calls from the one that moves to its partner, in the order of the data."""
        site, partner = change.site, change.site.partner or ""
        move = move_of(site.id)
        if move is None and change.value != "batch-map":
            raise _ByHandError("move batch behind map")
        file, line, *_ = partner.rsplit(f":{method_of(partner)}", 1)[0].rpartition(":")[::2]
        if file != site.stage.split(":", 1)[0] or partner.rpartition(":")[2].isdigit() or site.occurrences > 1:
            raise _ByHandError("they are called in different places")
        step = {b: a for a, b in self._next.items()} if move is not None and move.place == "before" else self._next
        calls = [call]
        while (_called_name(calls[-1]), _name_line(calls[-1])) != (method_of(partner), int(line)):
            if calls[-1] not in step:
                raise _ByHandError(f"{method_of(partner)} and {site.method} do not follow each other in the source")
            calls.append(step[calls[-1]])
        if any("#" in self._text(one) for one in calls):
            raise _ByHandError("there is a comment in what would move")
        return calls if step is self._next else calls[::-1]

    def _chains(self, moves: Sequence[tuple[Change, list[ast.Call]]]) -> list[list[ast.Call]]:
        """The chains that the moves are made in; moves that share a call are of one chain."""
        chains: list[list[ast.Call]] = []
        for _, calls in moves:
            shared = [chain for chain in chains if set(chain) & set(calls)]
            together = {call for chain in [*shared, calls] for call in chain}
            chains = [chain for chain in chains if chain not in shared]
            ordered = [call for call in together if call not in {self._next.get(one) for one in together}]
            while ordered[-1] in self._next and self._next[ordered[-1]] in together:
                ordered.append(self._next[ordered[-1]])
            chains.append(ordered)
        return chains

    def _ordered(self, chain: list[ast.Call], moves: Sequence[tuple[Change, list[ast.Call]]]) -> list[ast.Call]:
        """``chain`` after the moves in it, made in the order in which a rebuilt pipeline makes them."""
        order = list(chain)
        groups: dict[tuple[int, bool, ast.Call], list[ast.Call]] = {}
        for change, calls in moves:
            if calls[0] in chain:
                move = move_of(change.site.id)
                before = move is not None and move.place == "before"
                mover, partner = (calls[-1], calls[0]) if before else (calls[0], calls[-1])
                groups.setdefault((chain.index(calls[-1]), before, partner), []).append(mover)
        for (_, before, partner), movers in sorted(groups.items(), key=lambda item: item[0][:2]):
            moving = [call for call in order if call in movers]
            order = [call for call in order if call not in movers]
            place = order.index(partner) + (not before)
            order[place:place] = moving
        return order


def _continued(first: ast.stmt, second: ast.stmt, calls: Sequence[ast.Call]) -> ast.Call | None:
    """In ``name = ...`` and, next, ``name.method(...)``: that call, where nothing else reads the name."""
    name = _bound_name(first)
    reads = [
        node
        for node in ast.walk(second)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    if name is None or len(reads) != 1 or not (isinstance(second, ast.Return) or _bound_name(second) == name):
        return None
    return next((call for call in calls if _receiver(call) is reads[0]), None)


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
