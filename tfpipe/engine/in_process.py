"""The executor for functions that no other process could import: a notebook's, a lambda, a closure."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable

from tfpipe.engine.handler import Handler
from tfpipe.engine.load_user import give_function, take_function_back
from tfpipe.messages import Failed, Prepare, Progress, Reply, Request


class InProcessExecutor:
    """Carries out requests in this process.

    Nothing guards this process from a candidate that crashes, hangs or needs too much memory: time limits are not
    kept.

    Args:
        functions: the functions that the workload names, by reference; forgotten when the executor is closed.
        on_progress: called with every ``Progress``.
    """

    def __init__(self, functions: dict[str, Callable[..., object]], *, on_progress: Callable[[Progress], None]) -> None:
        self._references = tuple(functions)
        for reference, function in functions.items():
            give_function(reference, function)
        self._on_progress = on_progress
        self._handler: Handler | None = None

    def execute(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        if isinstance(request, Prepare):
            self._handler = Handler(self._on_progress)
        if self._handler is None:
            return Failed(cause="bug", message="a request came before Prepare")
        reply = self._handler(request)
        if isinstance(request, Prepare):
            # What is here already stays out of the collections below: TensorFlow alone makes each take 0.1 s.
            gc.freeze()
        # An iterator that lives on keeps its threads and buffers; the next block must not meet them.
        gc.collect()
        return reply

    def close(self) -> None:
        self._handler = None
        for reference in self._references:
            with contextlib.suppress(KeyError):
                take_function_back(reference)
        gc.unfreeze()
        gc.collect()
