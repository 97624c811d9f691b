"""Rich's layout as a string: the one place that knows how text becomes coloured or plain."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from tfpipe.printable import printable

# Rich wraps at any width, but below this there is one word per line and less would split numbers.
MIN_WIDTH = 20
# Narrower than this, a label may be broken rather than push its text off the line.
_NARROW = 60


def render(renderable: RenderableType, *, width: int, color: bool) -> str:
    """``renderable`` as text without trailing blanks, one final newline; escape codes only with ``color``.

    Those codes are Rich's alone: what the text itself has of that kind is shown and not obeyed.
    """
    file = io.StringIO()
    console = Console(
        file=file,
        width=max(width, MIN_WIDTH),
        force_terminal=color,
        # In a notebook Rich would display what is only wanted as text.
        force_jupyter=False,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    segments = (Segment(printable(segment.text), segment.style) for segment in console.render(renderable))
    console.print(Segments(segments), end="", crop=False)
    return "".join(line.rstrip() + "\n" for line in file.getvalue().rstrip("\n").split("\n"))


def paragraph(text: str, *, width: int, color: bool = False, style: str = "") -> str:
    """``text`` wrapped at words."""
    return render(Text(text, style=style), width=width, color=color)


def pairs(rows: Iterable[tuple[str, str]], *, width: int, color: bool, indent: int = 0) -> str:
    """Labels and their texts in two columns, long texts wrapped in theirs; rows without a text are left out."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=width >= _NARROW)
    # Folded and not cut: a path must be whole.
    grid.add_column(overflow="fold")
    for label, text in rows:
        if text:
            grid.add_row(label, text)
    return render(Padding(grid, (0, 0, 0, indent)), width=width, color=color) if grid.row_count else ""


def columns(heads: tuple[str, ...], rows: list[tuple[str, ...]], *, width: int, color: bool) -> str:
    """Cells under their heads, the first column to the left; where that is too wide, each row as one sentence.

    A head may have several lines.
    """
    if not rows:
        return ""
    widths = [max(map(cell_len, [*head.split("\n"), *cells])) for head, *cells in zip(heads, *rows, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > width:
        sentences = (
            ", ".join(f"{' '.join(head.split())} {cell}" for head, cell in zip(heads, row, strict=True)) for row in rows
        )
        return "".join(paragraph(sentence, width=width) for sentence in sentences)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return render(table, width=width, color=color)
