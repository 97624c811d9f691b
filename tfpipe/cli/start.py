"""Where the command begins: nothing is imported before Ctrl-C can be answered with a message."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType

from tfpipe.errors import EXIT_INTERRUPTED


def main() -> None:
    """The command ``tfpipe``."""
    # A shell's background job ignores Ctrl-C, and so does what it starts.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    if sys.getfilesystemencoding() != "utf-8":
        _begin_again_in_utf8()
    from tfpipe.cli.main import main as command

    command(prog_name="tfpipe")


def _begin_again_in_utf8() -> None:
    """Files are named in UTF-8 nearly everywhere, and run files are written in it, also where the locale is C or ASCII.

    Python and what it starts can be told so only before they begin (PEP 540).
    """
    environment = {**os.environ, "PYTHONUTF8": "1"}
    os.execve(sys.executable, [sys.executable, "-m", "tfpipe", *sys.argv[1:]], environment)


def end_at_once(number: int, frame: FrameType | None) -> None:
    """For as long as nothing has begun that would have to be ended."""
    with contextlib.suppress(OSError):
        os.write(2, b"tfpipe: interrupted.\n")
    os._exit(EXIT_INTERRUPTED)
