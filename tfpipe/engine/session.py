"""One workload, loaded and traced once, on which every request of a run is carried out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tfpipe.engine import loop, memory
from tfpipe.engine.environment import read_environment
from tfpipe.engine.loop import drive, drive_floor
from tfpipe.engine.pipeline import executed_nodes
from tfpipe.engine.profiler import capture_trace
from tfpipe.engine.steps import open_step
from tfpipe.engine.steps.none import NoStep
from tfpipe.engine.subjects import open_subject, size_bytes
from tfpipe.messages import (
    CaptureTrace,
    MeasureCapacity,
    Measured,
    MeasureFetchFloor,
    MeasureFloor,
    MeasureStep,
    MemoryFacts,
    Prepared,
    Progress,
    Traced,
    Workload,
)
from tfpipe.records import BlockKind, Step

Report = Callable[[Progress], None]


class Session:
    """Data, step and one batch, ready to measure.

    Args:
        timings: seconds of what came before, to which each part of the preparation adds its own.

    Raises:
        TfpipeError: the data cannot be had or the workload makes no sense.
    """

    def __init__(self, workload: Workload, report: Report, timings: dict[str, float]) -> None:
        with _timed(timings, "load"):
            report(Progress(text=f"loading {workload.pipeline or workload.dataset}"))
            self._subject = open_subject(
                workload,
                lambda done, total: report(
                    Progress(text=f"downloading {workload.dataset}", fraction=done / total if total else None)
                ),
            )
        self._batch = self._subject.batch
        with _timed(timings, "build_step"):
            report(Progress(text=f"building {workload.step}"))
            self._step = open_step(
                workload.step,
                spec=self._subject.spec,
                batch=self._batch,
                classes=self._subject.classes,
                width=workload.width,
                seed=workload.seed,
            )
        with _timed(timings, "first_call"):
            report(Progress(text="first call of the step (tracing)"))
            self._step.finish(self._step(self._batch))
        self.prepared = Prepared(
            environment=read_environment(),
            data=self._subject.data,
            step=Step(
                name=workload.step,
                description=self._step.description,
                synchronous=self._step.synchronous,
                parameters=self._step.parameters,
                first_call_s=timings["first_call"],
                traces=self._step.traces,
            ),
            pipeline=self._subject.pipeline,
            memory=MemoryFacts(
                resident_bytes=memory.resident_bytes(),
                batch_bytes=size_bytes(self._batch),
                row_bytes=self._subject.row_bytes,
            ),
            timings_s=timings,
        )

    def measure_floor(self, request: MeasureFloor) -> Measured:
        block = drive_floor(self._batch, self._step, request.length, round=request.round)
        return Measured(block=block, step_traces=self._step.traces)

    def measure_fetch_floor(self, request: MeasureFetchFloor) -> Measured:
        repeated = tf.data.Dataset.from_tensors(self._batch).repeat()
        block = drive(iter(repeated), self._step, request.length, kind="fetch-floor", round=request.round)
        return Measured(block=block, step_traces=self._step.traces)

    def measure_capacity(self, request: MeasureCapacity) -> Measured:
        return self._measure(request, NoStep(), "capacity")

    def measure_step(self, request: MeasureStep) -> Measured:
        return self._measure(request, self._step, "step")

    def _measure(self, request: MeasureCapacity | MeasureStep, step: loop.Step, kind: BlockKind) -> Measured:
        memory.reset_peak()
        dataset = self._subject.build(request.settings)
        batches: Iterator[Any] = iter(dataset)

        def restart() -> Iterator[Any]:
            nonlocal batches
            batches = iter(dataset)
            return batches

        block = drive(batches, step, request.length, kind=kind, round=request.round, restart=restart)
        return Measured(
            block=block,
            executed=executed_nodes(batches),
            peak_memory_bytes=memory.peak_bytes(),
            step_traces=self._step.traces,
        )

    def capture_trace(self, request: CaptureTrace) -> Traced:
        return capture_trace(
            self._subject.build(request.settings),
            self._step,
            warmup_steps=request.warmup_steps,
            steps=request.steps,
            logdir=request.logdir,
        )

    def error(self, error: Exception) -> Exception:
        """``error``, raised while a candidate ran, as it should be told to the user."""
        return self._subject.error(error)


@contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    timings[name] = time.perf_counter() - begin
