"""One workload, loaded and traced once, on which every request of a run is carried out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfpipe.engine import memory
from tfpipe.engine.device_use import open_sampler
from tfpipe.engine.elements import size_bytes
from tfpipe.engine.environment import read_environment
from tfpipe.engine.loop import UseSampler, drive, drive_floor
from tfpipe.engine.pipeline import executed_nodes
from tfpipe.engine.profiler import capture_trace
from tfpipe.engine.retracing import TraceWatch
from tfpipe.engine.steps import AnyStep, check_step, open_step
from tfpipe.engine.steps.fit import FitStep
from tfpipe.engine.steps.none import NoStep
from tfpipe.engine.steps.sharing import share_weights
from tfpipe.engine.steps.user import reason_in
from tfpipe.engine.subjects import open_subject
from tfpipe.engine.whole_batches import with_partial_batches
from tfpipe.errors import TfpipeError
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
from tfpipe.records import Block, BlockKind, Node, Step
from tfpipe.settings import Execution

Report = Callable[[Progress], None]


class Session:
    """Data, step and one batch, ready to measure.

    Args:
        timings: seconds of what came before, to which each part of the preparation adds its own.

    Raises:
        TfpipeError: the data cannot be had or the workload makes no sense.
    """

    def __init__(self, workload: Workload, report: Report, timings: dict[str, float]) -> None:
        check_step(workload)
        with _timed(timings, "load"):
            report(Progress(text=f"loading {workload.pipeline or workload.dataset}"))
            self._subject = open_subject(
                workload,
                lambda done, total: report(
                    Progress(text=f"downloading {workload.dataset}", fraction=done / total if total else None)
                ),
            )
        self._batch = self._subject.batch
        environment = read_environment()
        self._sampler, no_gpu_use = open_sampler(environment.devices)
        self._executions: dict[Execution, _Execution] = {}
        first, *others = [
            self._prepare(execution, workload, report, timings) for execution in workload.executions or [None]
        ]
        self._first = first.execution
        twin, untraceable = self._twin(workload, report, timings)
        self.prepared = Prepared(
            environment=environment,
            data=self._subject.data,
            step=first,
            other_steps=tuple(others),
            twin=twin,
            pipeline=self._subject.pipeline,
            memory=MemoryFacts(
                resident_bytes=memory.resident_bytes(),
                batch_bytes=size_bytes(self._batch),
                row_bytes=self._subject.row_bytes,
            ),
            timings_s=timings,
            notes=tuple(note for note in (no_gpu_use, untraceable, self._shared_weights(workload)) if note),
        )

    def _prepare(
        self, execution: Execution | None, workload: Workload, report: Report, timings: dict[str, float]
    ) -> Step:
        """Build the step, run as ``execution`` says, and call it for the first time."""
        watch = TraceWatch()
        how = "" if execution is None else f", {execution}"
        with _timed(timings, "build_step"), watch:
            report(Progress(text=f"building {workload.step}{how}"))
            step = open_step(
                workload,
                execution,
                spec=self._subject.spec,
                batch=self._batch,
                classes=self._subject.classes,
            )
        return self._called(step, watch, workload, report, timings)

    def _called(
        self, step: AnyStep, watch: TraceWatch, workload: Workload, report: Report, timings: dict[str, float]
    ) -> Step:
        """Call ``step`` for the first time, and keep it."""
        how = f", {step.execution}" if workload.executions else ""
        begin = time.perf_counter()
        with _timed(timings, "first_call"), watch:
            report(Progress(text=f"first call of the step{how}"))
            step.first_call(self._batch)
        first_call_s = time.perf_counter() - begin
        self._executions[step.execution] = _Execution(step, watch)
        return Step(
            name=workload.step,
            description=step.description,
            synchronous=step.synchronous,
            parameters=step.parameters,
            first_call_s=first_call_s,
            traces=step.traces,
            execution=step.execution,
            function_traces=tuple(watch.traces.items()),
        )

    def _twin(self, workload: Workload, report: Report, timings: dict[str, float]) -> tuple[Step | None, str | None]:
        """The same step as one ``tf.function`` where none of the executions is that, or why there is none; and the
        other way round, called as it is where it was wrapped unasked.

        Without it nobody knows how much of an eager step is Python's.
        """
        unwrapped = getattr(self._executions[self._first].step, "unwrapped", None)
        if unwrapped is not None:
            try:
                return self._called(unwrapped, TraceWatch(), workload, report, timings), None
            except TfpipeError:
                # It only runs in a graph, so that nobody can be calling it otherwise.
                return None, None
        if self._first not in ("eager", "layer") or self._executions.keys() & {"graph", "xla"}:
            return None, None
        try:
            return self._prepare("graph", workload, report, timings), None
        except TfpipeError as error:
            reason = reason_in(error.message)
        return (
            None,
            f"How much of the step is its own Python is not known, since it does not run as one graph: {reason}",
        )

    def _shared_weights(self, workload: Workload) -> str | None:
        if not share_weights([execution.step.state for execution in self._executions.values()]):
            return None
        return (
            f"{workload.step} trains the same variables each time it is called: the ways to run the step do not start "
            "from the same weights. Make the model inside that function."
        )

    def measure_floor(self, request: MeasureFloor) -> Measured:
        execution = self._execution(request.execution)
        step = execution.step
        with execution.watch:
            if isinstance(step, FitStep):
                block, _ = step.drive(
                    step.constant(self._batch),
                    request.length,
                    kind="floor",
                    round=request.round,
                    retraces=execution.watch.retraces,
                    sampler=self._sampler,
                )
            else:
                block = drive_floor(
                    self._batch,
                    step,
                    request.length,
                    round=request.round,
                    retraces=execution.watch.retraces,
                    sampler=self._sampler,
                )
        return execution.measured(block)

    def measure_fetch_floor(self, request: MeasureFetchFloor) -> Measured:
        execution = self._execution(request.execution)
        step = execution.step
        repeated = (
            step.constant(self._batch)
            if isinstance(step, FitStep)
            else tf.data.Dataset.from_tensors(self._batch).repeat()
        )
        block, _ = self._drive(repeated, execution, request, kind="fetch-floor")
        return execution.measured(block)

    def measure_capacity(self, request: MeasureCapacity) -> Measured:
        return self._measure(request, _Execution(NoStep(), TraceWatch()), "capacity")

    def measure_step(self, request: MeasureStep) -> Measured:
        return self._measure(request, self._execution(request.execution), "step")

    def _measure(self, request: MeasureCapacity | MeasureStep, execution: _Execution, kind: BlockKind) -> Measured:
        memory.reset_peak()
        dataset = self._subject.build(request.settings)
        sampler = self._sampler if kind == "step" else None
        block, iterator = self._drive(dataset, execution, request, kind=kind, sampler=sampler)
        return execution.measured(block, executed=executed_nodes(iterator), peak_memory_bytes=memory.peak_bytes())

    def _drive(
        self,
        dataset: Any,
        execution: _Execution,
        request: MeasureFetchFloor | MeasureCapacity | MeasureStep,
        *,
        kind: BlockKind,
        sampler: UseSampler | None = None,
    ) -> tuple[Block, Any]:
        """A block of ``dataset`` through the step, and the iterator that was used last."""
        step, watch = execution.step, execution.watch
        if isinstance(step, FitStep):
            with watch:
                return step.drive(
                    with_partial_batches(dataset),
                    request.length,
                    kind=kind,
                    round=request.round,
                    retraces=watch.retraces,
                    sampler=sampler,
                )
        batches: Iterator[Any] = iter(dataset)

        def restart() -> Iterator[Any]:
            nonlocal batches
            batches = iter(dataset)
            return batches

        with watch:
            block = drive(
                batches,
                step,
                request.length,
                kind=kind,
                round=request.round,
                restart=restart,
                retraces=watch.retraces,
                sampler=sampler,
            )
        return block, batches

    def capture_trace(self, request: CaptureTrace) -> Traced:
        dataset = self._subject.build(request.settings)
        execution = self._execution(request.execution)
        step = execution.step
        with execution.watch:
            if isinstance(step, FitStep):
                return step.capture(
                    with_partial_batches(dataset),
                    warmup_steps=request.warmup_steps,
                    steps=request.steps,
                    logdir=request.logdir,
                )
            return capture_trace(
                dataset, step, warmup_steps=request.warmup_steps, steps=request.steps, logdir=request.logdir
            )

    def _execution(self, execution: Execution | None) -> _Execution:
        return self._executions[execution or self._first]

    def error(self, error: Exception) -> Exception:
        """``error``, raised while a candidate ran, as it should be told to the user."""
        return self._subject.error(error)


@dataclass(frozen=True, slots=True)
class _Execution:
    """The step in one way to run it, and the graphs built for it."""

    step: AnyStep
    watch: TraceWatch

    def measured(
        self, block: Block, *, executed: tuple[Node, ...] = (), peak_memory_bytes: int | None = None
    ) -> Measured:
        return Measured(
            block=block,
            executed=executed,
            peak_memory_bytes=peak_memory_bytes,
            step_traces=self.step.traces,
            function_traces=tuple(self.watch.traces.items()),
        )


@contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    timings[name] = timings.get(name, 0.0) + time.perf_counter() - begin
