"""Requests to replies, on one session: the same in the worker process and in the caller's own."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfpipe.errors import TfpipeError
from tfpipe.messages import (
    CaptureTrace,
    Failed,
    MeasureCapacity,
    MeasureFetchFloor,
    MeasureFloor,
    MeasureStep,
    Prepare,
    Prepared,
    Progress,
    Reply,
    Request,
)

if TYPE_CHECKING:
    from tfpipe.engine.session import Session


class Handler:
    """Answers each request with one reply; trouble of any kind is a ``Failed``. The first request is ``Prepare``."""

    def __init__(self, report: Callable[[Progress], None]) -> None:
        self._report = report
        self._session: Session | None = None

    def __call__(self, request: Request) -> Reply:
        try:
            if isinstance(request, Prepare):
                return self._prepare(request)
            assert self._session is not None
            return _measure(self._session, request)
        except SystemExit as error:
            return _exited(error)
        except Exception as error:
            return _failed(error, self._session)

    def _prepare(self, request: Prepare) -> Prepared:
        self._report(Progress(text="importing TensorFlow"))
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        begin = time.perf_counter()
        from tfpipe.engine.session import Session

        timings_s = {"import_tensorflow": time.perf_counter() - begin}
        self._session = Session(request.workload, self._report, timings_s)
        return self._session.prepared


def _measure(session: Session, request: Request) -> Reply:
    if isinstance(request, MeasureFloor):
        return session.measure_floor(request)
    if isinstance(request, MeasureFetchFloor):
        return session.measure_fetch_floor(request)
    if isinstance(request, MeasureCapacity):
        return session.measure_capacity(request)
    if isinstance(request, MeasureStep):
        return session.measure_step(request)
    if isinstance(request, CaptureTrace):
        return session.capture_trace(request)
    raise AssertionError(f"no handler for {request!r}")


def _failed(error: Exception, session: Session | None) -> Failed:
    """User code and TensorFlow's own errors are the pipeline's or the step's fault; anything else is ours to mend."""
    import tensorflow as tf

    from tfpipe.engine.loop import EndOfDataError

    if session is not None:
        error = session.error(error)
    if isinstance(error, TfpipeError):
        return Failed(cause="request", message=error.message, hint=error.hint, exit_code=error.exit_code)
    from_pipeline = isinstance(error, (tf.errors.OpError, EndOfDataError, MemoryError))
    return Failed(
        cause="candidate" if from_pipeline else "bug",
        message=f"{type(error).__name__}: {_first_line(error)}",
        detail="".join(traceback.format_exception(error)),
    )


def _exited(error: SystemExit) -> Failed:
    """User code that wants to end the process, which is not its own here."""
    from tfpipe.engine.frames import user_code_error

    told = user_code_error("The pipeline or its step", error, "Return, or raise an error, instead of calling sys.exit.")
    return Failed(cause="request", message=told.message, hint=told.hint, exit_code=told.exit_code)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no message"
