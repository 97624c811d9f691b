"""The executor for functions that no other process could import: a notebook's, a lambda, a closure."""

from __future__ import annotations

import contextlib
import functools
import gc
import tempfile
from collections.abc import Callable

from tfpipe.engine.handler import Handler
from tfpipe.engine.housekeeping import generated_code_in, import_quietly
from tfpipe.engine.load_user import give_function, take_function_back
from tfpipe.messages import Failed, Prepare, Progress, Reply, Request


@functools.cache
def _generated_code() -> tempfile.TemporaryDirectory[str]:
    """There until this process ends: what was generated runs on, and tracebacks show it."""
    return tempfile.TemporaryDirectory(prefix="tfpipe-", ignore_cleanup_errors=True)


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
        self._until_closed = contextlib.ExitStack()
        self._until_closed.enter_context(generated_code_in(_generated_code().name))

    def execute(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        if isinstance(request, Prepare):
            self._on_progress(Progress(text="importing TensorFlow"))
            import_quietly()
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
        self._until_closed.close()
        for reference in self._references:
            with contextlib.suppress(KeyError):
                take_function_back(reference)
        gc.unfreeze()
        gc.collect()
