"""One workload, loaded and traced once, on which every request of a run is carried out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfpipe.engine import memory
from tfpipe.engine.environment import has_accelerator, read_environment
from tfpipe.engine.loop import drive, drive_floor
from tfpipe.engine.pipeline import build_pipeline, executed_nodes
from tfpipe.engine.profiler import capture_trace
from tfpipe.engine.sources import open_source
from tfpipe.engine.steps import open_step
from tfpipe.engine.steps.none import NoStep
from tfpipe.errors import UsageError
from tfpipe.messages import (
    CaptureTrace,
    MeasureCapacity,
    Measured,
    MeasureFetchFloor,
    MeasureFloor,
    MeasureStep,
    Prepared,
    Progress,
    Traced,
    Workload,
)
from tfpipe.records import Data, Step
from tfpipe.settings import PipelineSettings

ACCELERATOR_BATCH_SIZE = 128
CPU_BATCH_SIZE = 32

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
            report(Progress(text=f"loading {workload.dataset}"))
            self._source = open_source(
                workload.dataset,
                data_dir=Path(workload.data_dir) if workload.data_dir else None,
                require_data=workload.require_data,
                image_size=workload.image_size,
                seed=workload.seed,
                download=workload.download,
                progress=lambda done, total: report(
                    Progress(text=f"downloading {workload.dataset}", fraction=done / total if total else None)
                ),
            )
        self._seed = workload.seed
        self._batch_size = workload.batch_size or (ACCELERATOR_BATCH_SIZE if has_accelerator() else CPU_BATCH_SIZE)
        if self._batch_size > self._source.examples:
            raise UsageError(
                f"A batch of {self._batch_size:,} is larger than the data set of {self._source.examples:,} examples.",
                f"Use --batch-size {self._source.examples} or less.",
            )
        plain = self._build(PipelineSettings(order=self._source.orders[0]))
        with _timed(timings, "build_step"):
            report(Progress(text=f"building {workload.step}"))
            self._step = open_step(
                workload.step,
                element_spec=plain.element_spec,
                width=workload.width,
                classes=self._source.classes,
                seed=workload.seed,
            )
        self._batch = next(iter(plain.take(1)))
        with _timed(timings, "first_call"):
            report(Progress(text="first call of the step (tracing)"))
            self._step.finish(self._step(self._batch))
        self.prepared = Prepared(
            environment=read_environment(),
            data=Data(
                name=self._source.name,
                origin=self._source.origin,
                generated=self._source.generated,
                examples=self._source.examples,
                batch_size=self._batch_size,
                element=self._source.element,
                example_bytes=self._source.example_bytes,
                code=self._source.code,
            ),
            step=Step(
                name=workload.step,
                description=self._step.description,
                synchronous=self._step.synchronous,
                parameters=self._step.parameters,
                first_call_s=timings["first_call"],
                traces=self._step.traces,
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
        iterator = iter(self._build(request.settings))
        block = drive(iterator, NoStep(), request.length, kind="capacity", round=request.round)
        return Measured(block=block, executed=executed_nodes(iterator))

    def measure_step(self, request: MeasureStep) -> Measured:
        memory.reset_peak()
        iterator = iter(self._build(request.settings))
        block = drive(iterator, self._step, request.length, kind="step", round=request.round)
        return Measured(
            block=block,
            executed=executed_nodes(iterator),
            peak_memory_bytes=memory.peak_bytes(),
            step_traces=self._step.traces,
        )

    def capture_trace(self, request: CaptureTrace) -> Traced:
        return capture_trace(
            iter(self._build(request.settings)),
            self._step,
            warmup_steps=request.warmup_steps,
            steps=request.steps,
            logdir=request.logdir,
        )

    def _build(self, settings: PipelineSettings) -> Any:
        return build_pipeline(self._source, settings, batch_size=self._batch_size, seed=self._seed)


@contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    timings[name] = time.perf_counter() - begin
