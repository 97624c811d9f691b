"""The live progress display: what is measured now, what is done, what remains. On standard error only."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tfpipe import messages
from tfpipe.units import format_seconds


class ProgressDisplay(AbstractContextManager["ProgressDisplay"]):
    """Shows one line while a run goes on; shows nothing when quiet or when standard error is no terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=None),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[remaining]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=quiet or not sys.stderr.isatty(),
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
        """One more thing is measured, ``elapsed_s`` after measuring began."""
        left = max(0.0, budget_s - elapsed_s)
        self._progress.update(
            self._task,
            description=text,
            total=budget_s,
            completed=min(elapsed_s, budget_s),
            remaining=f"at most {format_seconds(round(left))} left",
        )

    def on_progress(self, progress: messages.Progress) -> None:
        """The worker says what it does inside a long request."""
        total = None if progress.fraction is None else 1.0
        self._progress.update(self._task, description=progress.text, total=total, completed=progress.fraction or 0.0)
