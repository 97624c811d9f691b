"""What comes from and goes to the terminal: names, results, and how they can be shown."""

from __future__ import annotations

import os
import shutil
import sys

import click

from tfpipe.errors import UsageError
from tfpipe.printable import printable

# Where there is no terminal to ask: a pipe, a file.
DEFAULT_WIDTH = 80


def terminal_width() -> int:
    """Columns: ``COLUMNS`` if set, else the terminal's, else 80."""
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def use_color() -> bool:
    """Whether stdout is a terminal that shows colour and the user has not refused it (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show_text(text: str, *, color: bool = False) -> None:
    """A report for people; ``color`` says that it comes from ``report.rendering``, whose escape codes are its own."""
    click.echo(text if color else printable(text), nl=False, color=True)


def write_exactly(text: str) -> None:
    """What a program will read (JSON, code, a patch): UTF-8 whatever the locale is, not a byte of it otherwise."""
    click.echo(text.encode("utf-8", "surrogateescape"), nl=False)


def require_utf8(*names: str) -> None:
    """What another process is to be told must be text. Raises UsageError for a name that is none."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise UsageError(f"The name {name!r} is not UTF-8 text.", "Rename the file or directory.") from None
