"""Errors that are the user's to mend. Everything else is a bug of ours and keeps its traceback."""

from __future__ import annotations

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_GATE = 3
EXIT_INTERRUPTED = 130


class TfpipeError(Exception):
    """Something could not be done.

    Args:
        message: what went wrong and where, one sentence.
        hint: what to do or type next, one sentence.
    """

    exit_code = EXIT_FAILED

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(TfpipeError):
    """The command was asked for something that makes no sense; nothing was started."""

    exit_code = EXIT_USAGE


class DataError(TfpipeError):
    """Data on disk (a data set, a run file, a trace) is missing, damaged or not what it claims to be."""


class GateError(TfpipeError):
    """A limit that the user set was not met."""

    exit_code = EXIT_GATE


class UserCodeError(TfpipeError):
    """The user's own code raised.

    Args:
        message: what was being run and what it raised.
        frames: the user's frames of the traceback as text, outermost first; part of what is shown.
    """

    def __init__(self, message: str, frames: str, hint: str | None = None) -> None:
        super().__init__(f"{message}\n{frames}".rstrip(), hint)
        self.frames = frames


class CallSitesChangedError(TfpipeError):
    """A factory did not make the calls that it made when it was captured."""
