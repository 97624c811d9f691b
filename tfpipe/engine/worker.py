"""The worker process: reads requests from one pipe, answers on another, until the first is closed.

Started as ``python -m tfpipe.engine.worker READ_FD WRITE_FD``. Standard output is turned into standard error, so
that nothing a library or user code prints can mix with results.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from tfpipe import messages
from tfpipe.errors import TfpipeError
from tfpipe.messages import (
    CaptureTrace,
    Failed,
    Line,
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

# Once a second costs nothing that a measurement could see.
ORPHAN_CHECK_S = 1.0


def main() -> None:
    read_fd, write_fd = int(sys.argv[1]), int(sys.argv[2])
    os.dup2(2, 1)
    replies = os.fdopen(write_fd, "wb", buffering=0)

    def send(line: Line) -> None:
        replies.write(messages.encode(line) + b"\n")

    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    handle = _handler(send)
    with os.fdopen(read_fd, "rb") as requests:
        for text in requests:
            send(handle(messages.decode_request(text)))
            # An iterator that lives on keeps its threads and buffers; the next block must not meet them.
            gc.collect()
    # Not sys.exit: a thread of user code inside a map function can keep the interpreter from ever ending.
    sys.stderr.flush()
    os._exit(0)


def _end_with_parent(parent: int) -> None:
    """End this process when the parent is gone, however it ended and whatever is being measured."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_CHECK_S)
    os._exit(1)


def _handler(report: Callable[[Progress], None]) -> Callable[[Request], Reply]:
    session: Any = None

    def handle(request: Request) -> Reply:
        nonlocal session
        try:
            if isinstance(request, Prepare):
                session, prepared = _prepare(request, report)
                return prepared
            assert session is not None
            return _measure(session, request)
        except Exception as error:
            return _failed(error, session)

    return handle


def _prepare(request: Prepare, report: Callable[[Progress], None]) -> tuple[Any, Prepared]:
    report(Progress(text="importing TensorFlow"))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    begin = time.perf_counter()
    from tfpipe.engine.session import Session

    session = Session(request.workload, report, {"import_tensorflow": time.perf_counter() - begin})
    return session, session.prepared


def _measure(session: Any, request: Request) -> Reply:
    reply: Reply
    if isinstance(request, MeasureFloor):
        reply = session.measure_floor(request)
    elif isinstance(request, MeasureFetchFloor):
        reply = session.measure_fetch_floor(request)
    elif isinstance(request, MeasureCapacity):
        reply = session.measure_capacity(request)
    elif isinstance(request, MeasureStep):
        reply = session.measure_step(request)
    elif isinstance(request, CaptureTrace):
        reply = session.capture_trace(request)
    else:
        raise AssertionError(f"no handler for {request!r}")
    return reply


def _failed(error: Exception, session: Any) -> Failed:
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
        detail=traceback.format_exc(),
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no message"


if __name__ == "__main__":
    main()
