"""No step at all: the pipeline is drained as fast as it goes."""

from __future__ import annotations

from typing import Any

from tfpipe.settings import Execution


class NoStep:
    """Takes the batch and returns."""

    description = "no step: the pipeline alone"
    synchronous = True
    parameters = None
    traces = None
    state = ()
    execution: Execution = "graph"

    def first_call(self, batch: Any) -> None:
        """There is nothing to trace."""

    def __call__(self, batch: Any) -> None:
        """Do nothing with ``batch``."""

    def finish(self, result: Any) -> None:
        """Nothing is ever outstanding."""
