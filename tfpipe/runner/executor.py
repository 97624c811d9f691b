"""The seam between planning and measuring: whatever carries out requests. A fake stands in for it in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tfpipe.messages import Progress, Reply, Request

OnProgress = Callable[[Progress], None]


class Executor(Protocol):
    """Carries out one request at a time."""

    def execute(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """The reply to ``request``; trouble of any kind is a ``Failed``, never an exception.

        After a ``Failed`` with cause ``died`` or ``timeout`` the next request finds everything prepared again.
        """
        ...

    def close(self) -> None:
        """End whatever is running. Safe to call twice."""
        ...
