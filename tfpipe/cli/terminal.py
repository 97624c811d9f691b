"""What the terminal behind stdout can show."""

from __future__ import annotations

import os
import shutil
import sys

# Where there is no terminal to ask: a pipe, a file.
DEFAULT_WIDTH = 80


def terminal_width() -> int:
    """Columns: ``COLUMNS`` if set, else the terminal's, else 80."""
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def use_color() -> bool:
    """Whether stdout is a terminal that shows colour and the user has not refused it (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
