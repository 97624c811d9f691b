"""The worker process as an executor: starts it, speaks with it, and starts it again after it died."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

import psutil

from tfpipe import messages
from tfpipe.errors import TfpipeError
from tfpipe.messages import Failed, Prepare, Progress, Reply, Request
from tfpipe.runner.executor import OnProgress
from tfpipe.units import format_bytes

WORKER_COMMAND = (sys.executable, "-m", "tfpipe.engine.worker")
# How long a worker that was told to go may take before it is killed.
GOODBYE_S = 5.0
# How often a worker's memory is looked at: a look takes some 50 us, and memory is filled at GB per second at most.
MEMORY_CHECK_S = 0.2


class ProcessExecutor:
    """Runs ``command READ_FD WRITE_FD DIRECTORY`` and exchanges JSON lines with it over two pipes.

    Args:
        command: the worker's command line, to which are appended the two file descriptors, and a directory for the
            files that TensorFlow generates, which goes when the worker goes, however that ends.
        on_progress: called with every ``Progress`` line.
        max_memory_bytes: a worker that grows beyond this is stopped; None lets it.
        log: where the worker's standard error goes, TensorFlow's chatter included; None leaves it on ours.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        on_progress: OnProgress,
        max_memory_bytes: int | None = None,
        log: IO[bytes] | None = None,
    ) -> None:
        self._command = tuple(command)
        self._on_progress = on_progress
        self._max_memory_bytes = max_memory_bytes
        self._log = log
        self._prepare: Prepare | None = None
        self._worker: _Worker | None = None
        self._busy = False

    def execute(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        if isinstance(request, Prepare):
            self._prepare = request
            return self._ask(request, timeout_s)
        if self._worker is None and self._prepare is not None:
            prepared = self._ask(self._prepare, None)
            if isinstance(prepared, Failed):
                return prepared
        return self._ask(request, timeout_s)

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None and self._busy:
            # Interrupted in the middle of a request: nothing is lost with the worker, and it cannot hear.
            worker.kill()
        elif worker is not None:
            worker.close()

    def _ask(self, request: Request, timeout_s: float | None) -> Reply:
        if self._worker is None:
            self._worker = _Worker.start(self._command, self._log)
        worker = self._worker
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._busy = True
        try:
            worker.send(messages.encode(request) + b"\n")
            while True:
                text = worker.read_line(deadline, self._max_memory_bytes)
                line = messages.decode_line(text)
                if not isinstance(line, Progress):
                    self._busy = False
                    return line
                self._on_progress(line)
                # A sign of life: what takes long may take long, as long as it goes on.
                deadline = None if timeout_s is None else time.monotonic() + timeout_s
        except TimeoutError:
            self._worker, self._busy = None, False
            worker.kill()
            return Failed(
                cause="timeout",
                message=f"no answer within {timeout_s:g} s (--candidate-timeout); the worker was stopped",
            )
        except MemoryError:
            self._worker, self._busy = None, False
            worker.kill()
            limit = format_bytes(self._max_memory_bytes)
            return Failed(cause="memory", message=f"it grew beyond --max-memory ({limit}); the worker was stopped")
        except (EOFError, BrokenPipeError):
            self._worker, self._busy = None, False
            return Failed(cause="died", message=worker.cause_of_death())


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    requests: int
    replies: int
    directory: tempfile.TemporaryDirectory[str]
    buffer: bytearray = field(default_factory=bytearray)

    @classmethod
    def start(cls, command: tuple[str, ...], log: IO[bytes] | None) -> _Worker:
        request_read, request_write = os.pipe()
        reply_read, reply_write = os.pipe()
        try:
            directory = tempfile.TemporaryDirectory(prefix="tfpipe-", ignore_cleanup_errors=True)
        except OSError as error:
            raise TfpipeError(
                f"No temporary directory can be made: {error.strerror}.", "Set TMPDIR to a place that can be written."
            ) from None
        process = subprocess.Popen(
            [*command, str(request_read), str(reply_write), directory.name],
            pass_fds=(request_read, reply_write),
            stdin=subprocess.DEVNULL,
            stderr=log,
            # Ctrl-C is for the parent, which then ends the worker and keeps the books.
            start_new_session=True,
        )
        os.close(request_read)
        os.close(reply_write)
        return cls(process=process, requests=request_write, replies=reply_read, directory=directory)

    def send(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(self.requests, view) :]

    def read_line(self, deadline: float | None, max_memory_bytes: int | None) -> bytes:
        """The next line. Raises TimeoutError, EOFError, or MemoryError when the process grew beyond the limit."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.replies, selectors.EVENT_READ)
            while True:
                end = self.buffer.find(b"\n")
                if end >= 0:
                    line = bytes(self.buffer[:end])
                    del self.buffer[: end + 1]
                    return line
                remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
                if max_memory_bytes is not None:
                    remaining = MEMORY_CHECK_S if remaining is None else min(remaining, MEMORY_CHECK_S)
                if not selector.select(remaining):
                    if max_memory_bytes is not None and self._resident_bytes() > max_memory_bytes:
                        raise MemoryError
                    if deadline is not None and time.monotonic() >= deadline:
                        raise TimeoutError
                    continue
                chunk = os.read(self.replies, 1 << 20)
                if not chunk:
                    raise EOFError
                self.buffer += chunk

    def _resident_bytes(self) -> int:
        try:
            return int(psutil.Process(self.process.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def cause_of_death(self) -> str:
        """Reap the process and say in words how it ended."""
        try:
            code = self.process.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return "the worker closed its pipe without an answer and was stopped"
        self._clean_up()
        if code >= 0:
            return (
                f"the worker ended by itself with exit code {code}: the pipeline, the step or a library that they use "
                "called os._exit, which ends a process at once"
            )
        name = signal.Signals(-code).name
        if -code == signal.SIGKILL:
            return f"the worker was killed ({name}): most often the system ran out of memory"
        return f"the worker crashed ({name})"

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._clean_up()

    def close(self) -> None:
        os.close(self.requests)
        self.requests = -1
        try:
            self.process.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._clean_up()

    def _clean_up(self) -> None:
        for descriptor in (self.requests, self.replies):
            if descriptor >= 0:
                os.close(descriptor)
        self.requests = self.replies = -1
        self.directory.cleanup()
