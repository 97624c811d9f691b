"""Progress in a notebook: one line that is replaced. Runs show themselves, see ``tfpipe.api.profiling``."""

from __future__ import annotations

import importlib
import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from tfpipe.messages import Progress
from tfpipe.units import format_seconds


def is_notebook() -> bool:
    """Whether this is a kernel whose front end shows HTML: Jupyter's, Colab's, VS Code's."""
    if "IPython" not in sys.modules:
        return False
    shell: Any = sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class NotebookDisplay(AbstractContextManager["NotebookDisplay"]):
    """One line of output that says what is measured now, and is cleared at the end."""

    def __init__(self, *, quiet: bool) -> None:
        self._handle: Any = None
        if not quiet:
            display = importlib.import_module("IPython.display").display
            self._handle = display(_Line("starting"), display_id=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._update("")

    def show(self, text: str, *, elapsed_s: float, budget_s: float) -> None:
        left = format_seconds(round(max(0.0, budget_s - elapsed_s)))
        self._update(f"{text} (at most {left} left)")

    def on_progress(self, progress: Progress) -> None:
        """What happens inside a long request."""
        done = "" if progress.fraction is None else f" {progress.fraction:.0%}"
        self._update(progress.text + done)

    def _update(self, text: str) -> None:
        if self._handle is not None:
            self._handle.update(_Line(text))


class _Line:
    """Plain text without the quotes that a string would be shown with."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text
