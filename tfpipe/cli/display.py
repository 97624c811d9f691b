"""What is measured now and what remains: live in a terminal, else a line per phase. On standard error only."""

from __future__ import annotations

import contextlib
import sys
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tfpipe import messages
from tfpipe.printable import printable
from tfpipe.units import format_seconds


class ProgressDisplay(AbstractContextManager["ProgressDisplay"]):
    """Shows one changing line in a terminal. Into a file or a pipe it writes a line when a phase (``round 2``) begins,
    so that whoever reads it later sees how far a run came. Nothing when quiet."""

    def __init__(self, *, quiet: bool) -> None:
        in_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._writes_lines = not quiet and not in_terminal
        self._begun: set[str] = set()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[remaining]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=quiet or not in_terminal,
        )
        self._task = self._progress.add_task("starting", total=None, remaining="")

    def __enter__(self) -> ProgressDisplay:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, text: str, *, elapsed_s: float, budget_s: float) -> None:
        """One more thing is measured, ``elapsed_s`` after measuring began; ``text`` is ``phase: candidate``."""
        # Three rounds are measured in any case, also where they take longer than the budget.
        left_s = round(budget_s - elapsed_s)
        left = f"at most {format_seconds(left_s)} left" if left_s > 0 else ""
        self._progress.update(
            self._task,
            description=printable(text),
            total=budget_s,
            completed=min(elapsed_s, budget_s),
            remaining=left,
        )
        self._begin(text.partition(": ")[0], f" ({left})" if left else "")

    def on_progress(self, progress: messages.Progress) -> None:
        """The worker says what it does inside a long request."""
        total = None if progress.fraction is None else 1.0
        text = printable(progress.text)
        self._progress.update(self._task, description=text, total=total, completed=progress.fraction or 0.0)
        self._begin(text, "")

    def _begin(self, phase: str, more: str) -> None:
        """A line for a phase that is new."""
        if not self._writes_lines or phase in self._begun:
            return
        self._begun.add(phase)
        # Nobody's run ends because nobody can be told how it goes.
        with contextlib.suppress(OSError):
            print(printable(f"tfpipe: {phase}{more}"), file=sys.stderr, flush=True)
