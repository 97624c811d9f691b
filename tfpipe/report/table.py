"""The table of candidates, in whichever of three layouts fits the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tfpipe.records import Candidate, Recommendation, Run
from tfpipe.report.phrases import rate_with_interval, verdict_words
from tfpipe.report.rendering import paragraph, render
from tfpipe.units import format_bytes, format_milliseconds, format_percent

RECOMMENDED, FASTEST, TIED = ">", "*", "="
_LEGEND = {
    RECOMMENDED: "recommended",
    FASTEST: "fastest",
    TIED: "cannot be told apart from the fastest",
}
_VERDICT_STYLES = {
    "compute-bound": "green",
    "moderately input-bound": "yellow",
    "highly input-bound": "red",
    "contended": "yellow",
    "host-bound": "red",
    "failed": "red",
}
_GAP = 2
_NUMBER_HEADS = ("examples/s", "step", "compute", "input wait", "contention", "buffered")
_UNITS = "Times are ms per step, ranges 95 % intervals."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One candidate as cells.

    ``id`` is empty where it is the name. ``numbers`` is empty, and ``cause`` says why, where nothing was measured.
    """

    marks: str
    name: str
    id: str
    verdict: str
    numbers: tuple[str, ...]
    cause: str


def candidate_table(run: Run, *, width: int, color: bool) -> str:
    """Every candidate of ``run`` in at most ``width`` columns.

    One line each where that fits; else a line that names the candidate, one with its numbers; in a narrow
    terminal one number per line. Failed and skipped candidates are in their place, with the cause.
    """
    rows = [_row(number, candidate, run.recommendation) for number, candidate in enumerate(run.candidates, start=1)]
    if not rows:
        return paragraph("No candidates.", width=width)
    measured = [row.numbers for row in rows if row.numbers]
    widths = [max(map(cell_len, column)) for column in zip(_NUMBER_HEADS, *measured, strict=True)]
    numbers_width = sum(widths) + _GAP * (len(widths) - 1)
    marks = max(len(row.marks) for row in rows) + 1
    names = _widest(row.name for row in rows)
    ids = _widest(row.id for row in rows)
    if marks + names + ids + numbers_width + _GAP + _widest(row.verdict for row in rows) <= width:
        lines = _wide(rows, widths, (marks, names, ids))
    elif marks + numbers_width <= width:
        lines = _stacked(rows, widths, marks, width)
    else:
        lines = _narrow(rows, marks, width)
    return "".join(render(line, width=width, color=color) for line in lines) + _legend(rows, width)


def _widest(texts: Iterable[str]) -> int:
    widest = max(map(cell_len, texts))
    return widest + _GAP if widest else 0


def _row(number: int, candidate: Candidate, recommendation: Recommendation | None) -> _Row:
    numbers: tuple[str, ...] = ()
    if candidate.step_s is not None:
        share = candidate.input_fraction
        shown = "" if share is None else f"({format_percent(share.value)})"
        numbers = (
            rate_with_interval(candidate.examples_per_s),
            format_milliseconds(candidate.step_s.value),
            format_milliseconds(candidate.compute_s),
            f"{format_milliseconds(candidate.input_wait_s)} {shown:>7}".rstrip(),
            format_milliseconds(candidate.contention_s),
            format_bytes(candidate.buffered_bytes),
        )
    return _Row(
        marks=f"{_mark(candidate.id, recommendation)}{number}",
        name=candidate.name or candidate.id,
        id=candidate.id if candidate.name else "",
        verdict=verdict_words(candidate),
        numbers=numbers,
        cause="" if candidate.status == "complete" else candidate.error or "no cause recorded",
    )


def _mark(candidate_id: str, recommendation: Recommendation | None) -> str:
    if recommendation is None:
        return "  "
    chosen = RECOMMENDED if candidate_id == recommendation.candidate else " "
    if candidate_id == recommendation.fastest:
        return chosen + FASTEST
    return chosen + (TIED if candidate_id in recommendation.ties else " ")


def _legend(rows: list[_Row], width: int) -> str:
    used = "".join(row.marks for row in rows)
    entries = [f"{mark} {meaning}" for mark, meaning in _LEGEND.items() if mark in used]
    lines = [_UNITS, "  ".join(entries)] if entries else [_UNITS]
    return "".join(paragraph(line, width=width) for line in lines)


def _numbers(cells: tuple[str, ...], widths: list[int]) -> str:
    return (" " * _GAP).join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _indented(text: str, indent: int, style: str = "") -> Padding:
    return Padding(Text(text, style=style), (0, 0, 0, indent))


def _wide(rows: list[_Row], widths: list[int], columns: tuple[int, int, int]) -> Iterator[RenderableType]:
    marks, names, ids = columns
    head = _pad("", marks) + _pad("candidate", names) + (_pad("id", ids) if ids else "")
    yield Text(head + _numbers(_NUMBER_HEADS, widths) + " " * _GAP + "verdict", style="bold")
    for row in rows:
        line = Text(row.marks.rjust(marks - 1) + " " + _pad(row.name, names))
        line.append(_pad(row.id, ids), style="dim")
        line.append(_numbers(row.numbers or ("-",) * len(widths), widths) + " " * _GAP)
        line.append(row.verdict, style=_VERDICT_STYLES.get(row.verdict, ""))
        yield line
        if row.cause:
            yield _indented(row.cause, marks)


def _stacked(rows: list[_Row], widths: list[int], marks: int, width: int) -> Iterator[RenderableType]:
    yield _indented(_numbers(_NUMBER_HEADS, widths), marks, "bold")
    for row in rows:
        yield from _title(row, marks, width)
        if row.numbers:
            yield _indented(_numbers(row.numbers, widths), marks)
        if row.cause:
            yield _indented(row.cause, marks)


def _narrow(rows: list[_Row], marks: int, width: int) -> Iterator[RenderableType]:
    for row in rows:
        yield from _title(row, marks, width)
        if row.numbers:
            for head, cell in zip(_NUMBER_HEADS, row.numbers, strict=True):
                yield _indented(f"{head}: {' '.join(cell.split())}", marks)
        if row.cause:
            yield _indented(row.cause, marks)


def _title(row: _Row, marks: int, width: int) -> Iterator[RenderableType]:
    """Name, id and verdict: on one line where they fit, the verdict at its right end, else one below the other."""
    verdict = Text(row.verdict, style=_VERDICT_STYLES.get(row.verdict, ""))
    name = Text(row.marks.rjust(marks - 1) + " " + row.name)
    both = name.copy().append(" " * _GAP + row.id, style="dim") if row.id else name
    for first in (both, name):
        space = width - first.cell_len - verdict.cell_len
        if space >= _GAP:
            yield Text.assemble(first, " " * space, verdict)
            break
    else:
        hanging = Table.grid(padding=0)
        hanging.add_column(width=marks)
        hanging.add_column()
        hanging.add_row(row.marks.rjust(marks - 1), row.name)
        yield hanging
        yield Padding(verdict, (0, 0, 0, marks))
        first = name
    if row.id and first is name:
        yield _indented(row.id, marks, "dim")
