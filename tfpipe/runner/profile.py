"""The course of a run: prepare, floor and capacity, interleaved rounds, traces. Every result goes to the journal.

Knows no TensorFlow: whatever carries out the requests is an argument, and so are the clock and the display.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from tfpipe.analysis.memory import fits
from tfpipe.analysis.ranking import is_settled
from tfpipe.conditions import memory_limit_bytes, read_conditions
from tfpipe.errors import TfpipeError
from tfpipe.messages import (
    CaptureTrace,
    Failed,
    MeasureCapacity,
    Measured,
    MeasureFetchFloor,
    MeasureFloor,
    MeasureStep,
    Prepare,
    Prepared,
    Traced,
)
from tfpipe.records import Block
from tfpipe.runner.assemble import assemble_run
from tfpipe.runner.comparable import check_comparable
from tfpipe.runner.executor import Executor
from tfpipe.runner.forecast import forecast_candidate
from tfpipe.runner.journal import (
    CandidateFailed,
    CandidateMeasured,
    CandidatesChosen,
    CandidateSkipped,
    CandidateTraced,
    ConditionsRead,
    Finished,
    FloorMeasured,
    Journal,
    WorkloadPrepared,
)
from tfpipe.runner.plan import MIN_ROUNDS, PROBE, PROFILER_S, Plan, make_plan
from tfpipe.runner.proposals import propose_candidates
from tfpipe.runner.reading import TraceReading
from tfpipe.settings import NamedSettings

T = TypeVar("T")

# Probe and capacity blocks come before the rounds.
BEFORE_ROUNDS = -1
# A trace of this many events has some 15 MB and stops within seconds; an element-wise map makes about 31 per element,
# and XProf's viewer ends at 5 million.
MAX_TRACE_EVENTS = 400_000
# A probe of one candidate stands for others that make up to this many times its events.
PROBE_MARGIN = 4


class WorkerBugError(Exception):
    """The worker met a fault of tfpipe's own; the text is its traceback."""


class Display(Protocol):
    """What the user sees while a run goes on."""

    def show(self, text: str, *, elapsed_s: float, budget_s: float) -> None:
        """``text`` is what is measured now; seconds of measuring done and at most to do."""
        ...


class Profile:
    """One run, from what its journal already has to the last trace.

    Args:
        executor: carries out the requests.
        journal: begins with ``Started``; may hold a part of the run already.
        traces: the folder for the traces, one subfolder per candidate.
        candidate_timeout_s: how long one request may take; None for ever.
        max_memory_bytes: how large the worker may become; a candidate that surely needs more is skipped.
        reading: reads the traces; without it they are captured and not explained.
    """

    def __init__(
        self,
        executor: Executor,
        journal: Journal,
        traces: Path,
        display: Display,
        *,
        candidate_timeout_s: float | None = None,
        max_memory_bytes: int | None = None,
        reading: TraceReading | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._started = journal.started
        self._executor = executor
        self._journal = journal
        self._traces = traces
        self._display = display
        self._timeout_s = candidate_timeout_s
        self._max_memory_bytes = max_memory_bytes
        self._reading = reading
        self._events_per_step: int | None = None
        self._clock = clock
        self._begin = clock()
        # What an earlier process measured counts towards the budget.
        self._earlier_s = sum(
            entry.measured.block.elapsed_s
            for entry in journal.entries
            if isinstance(entry, FloorMeasured | CandidateMeasured)
        )

    def run(self) -> None:
        """Measure whatever is still missing.

        Raises:
            TfpipeError: the workload cannot be prepared, or its floor not measured.
            WorkerBugError: a fault of tfpipe's own.
        """
        begin = self._clock()
        self._prepare()
        self._choose_candidates()
        self._begin = self._clock()
        before = read_conditions()
        self._skip_what_cannot_fit()
        if self._has_step:
            self._measure_floor(MeasureFloor(round=BEFORE_ROUNDS, length=PROBE))
        plan = make_plan(
            floor_step_s=self._probed_floor_s(),
            steps=self._started.steps,
            candidates=len(self._alive()),
            time_budget_s=self._started.time_budget_s,
        )
        for named in self._alive():
            self._measure(
                named, MeasureCapacity(settings=named.settings, round=BEFORE_ROUNDS, length=plan.capacity()), "alone"
            )
        self._measure_rounds(plan)
        for named in self._alive():
            self._capture_trace(named, plan)
        self._journal.append(ConditionsRead(before=before, after=read_conditions()))
        timings_s = {"prepare": self._begin - begin, "measure": self._elapsed_s()}
        self._journal.append(Finished(timings_s=timings_s))

    # --- stages ----------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._show("starting")
        reply = self._executor.execute(Prepare(workload=self._started.workload), timeout_s=self._timeout_s)
        if isinstance(reply, Failed) and reply.cause in ("died", "timeout", "memory"):
            raise TfpipeError(
                f"While the data, the pipeline and the step were prepared: {reply.message}.",
                "Run the factory and the step by themselves to see what ends them.",
            )
        if isinstance(reply, Failed):
            raise error_of(reply)
        assert isinstance(reply, Prepared)
        earlier = self._entries(WorkloadPrepared)
        if earlier:
            check_comparable(earlier[0].prepared, reply)
        else:
            self._journal.append(WorkloadPrepared(prepared=reply))

    def _choose_candidates(self) -> None:
        if self._entries(CandidatesChosen):
            return
        prepared = self._entries(WorkloadPrepared)[0].prepared
        candidates = self._started.candidates
        if candidates is None:
            assert prepared.pipeline is not None
            candidates = propose_candidates(
                prepared.pipeline,
                self._started.knobs,
                cores=prepared.environment.cores,
                yes=self._started.large_grid_allowed,
            )
        if self._started.only_current:
            candidates = candidates[:1]
        self._journal.append(CandidatesChosen(candidates=candidates))

    def _skip_what_cannot_fit(self) -> None:
        """Leave out candidates whose buffers alone are larger than the memory there is."""
        prepared = self._entries(WorkloadPrepared)[0].prepared
        limits = [limit for limit in (self._max_memory_bytes, memory_limit_bytes()) if limit is not None]
        if not limits:
            return
        for named in self._alive():
            forecast = forecast_candidate(named.settings, prepared)
            reason = None if forecast is None else fits(forecast, min(limits))
            if reason is not None:
                self._journal.append(CandidateSkipped(id=named.settings.id, reason=reason))

    def _measure_rounds(self, plan: Plan) -> None:
        """Interleaved rounds, each in a random order of its own, until settled or out of time."""
        number = 0
        while self._alive() and (number < MIN_ROUNDS or self._worth_another_round(plan)):
            tasks: list[NamedSettings | MeasureFloor | MeasureFetchFloor] = [*self._alive()]
            if self._has_step:
                tasks.append(MeasureFloor(round=number, length=plan.floor(number)))
            if number < plan.fetch_floor_rounds:
                tasks.append(MeasureFetchFloor(round=number, length=plan.fetch_floor()))
            # Seeded by seed and round, so that a resumed run goes on in the same order.
            random.Random(f"{self._started.workload.seed}/{number}").shuffle(tasks)
            for task in tasks:
                if isinstance(task, NamedSettings):
                    length = plan.block(number, batch_s=self._batch_s(task))
                    request = MeasureStep(settings=task.settings, round=number, length=length)
                    self._measure(task, request, f"round {number + 1}")
                else:
                    self._measure_floor(task)
            number += 1

    def _worth_another_round(self, plan: Plan) -> bool:
        if plan.steps is not None:
            return False
        run = assemble_run(self._journal.entries)
        if run is None or is_settled(run.candidates):
            return False
        elapsed_s = self._elapsed_s()
        rounds = 1 + max(e.measured.block.round for e in self._entries(CandidateMeasured))
        return elapsed_s + elapsed_s / rounds + self._traces_s(plan) <= self._started.time_budget_s

    def _measure_floor(self, request: MeasureFloor | MeasureFetchFloor) -> None:
        kind = "floor" if isinstance(request, MeasureFloor) else "fetch-floor"
        if any(e.measured.block.kind == kind and e.measured.block.round == request.round for e in self._floors()):
            return
        self._show("compute alone" if kind == "floor" else "an empty fetch")
        reply = self._executor.execute(request, timeout_s=self._timeout_s)
        if isinstance(reply, Failed) and reply.cause in ("died", "timeout"):
            # The floor is nobody's candidate: a worker that something ended gets a second chance.
            reply = self._executor.execute(request, timeout_s=self._timeout_s)
        if isinstance(reply, Failed):
            raise error_of(reply)
        assert isinstance(reply, Measured)
        self._journal.append(FloorMeasured(measured=reply))

    def _measure(self, named: NamedSettings, request: MeasureCapacity | MeasureStep, stage: str) -> None:
        kind = "capacity" if isinstance(request, MeasureCapacity) else "step"
        if any(b.kind == kind and b.round == request.round for b in self._blocks(named)) or self._has_failed(named):
            return
        self._show(f"{stage}: {named.name or named.settings.id}")
        reply = self._executor.execute(request, timeout_s=self._timeout_s)
        if isinstance(reply, Failed):
            self._journal.append(CandidateFailed(id=named.settings.id, failed=reply))
        else:
            assert isinstance(reply, Measured)
            self._journal.append(CandidateMeasured(id=named.settings.id, measured=reply))

    def _capture_trace(self, named: NamedSettings, plan: Plan) -> None:
        identity = named.settings.id
        if any(entry.id == identity for entry in self._entries(CandidateTraced)):
            return
        self._show(f"trace: {named.name or identity}")
        warmup_steps, wanted = plan.trace(self._step_s(named))
        steps, note = self._within_budget(named, wanted)
        reply = self._trace(named, warmup_steps, steps)
        if isinstance(reply, Failed):
            self._journal.append(CandidateFailed(id=identity, failed=reply))
            return
        explanation = None if self._reading is None else self._reading.explain(Path(reply.path))
        self._journal.append(CandidateTraced(id=identity, traced=reply, explanation=explanation, note=note))

    def _within_budget(self, named: NamedSettings, wanted: int) -> tuple[int, str]:
        """``wanted`` steps, or as many as MAX_TRACE_EVENTS allow, found on a trace of one step; and what was cut.

        One probe stands for all candidates while it leaves room for candidates with several times its events.
        """
        if self._reading is None:
            return wanted, ""
        if self._events_per_step is None or self._events_per_step * wanted * PROBE_MARGIN > MAX_TRACE_EVENTS:
            probe = self._trace(named, 0, 1)
            if isinstance(probe, Failed):
                return wanted, ""
            self._events_per_step = self._reading.count_events(Path(probe.path))
        allowed = max(1, MAX_TRACE_EVENTS // max(1, self._events_per_step))
        if wanted <= allowed:
            return wanted, ""
        return allowed, (
            f"cut from {wanted} to {allowed} steps: one step makes {self._events_per_step:,} events, and a trace is "
            f"kept to {MAX_TRACE_EVENTS:,}"
        )

    def _trace(self, named: NamedSettings, warmup_steps: int, steps: int) -> Traced | Failed:
        logdir = self._traces / named.settings.id
        # What a probe or a killed process left is a trace that TensorBoard would list beside the whole one.
        shutil.rmtree(logdir, ignore_errors=True)
        request = CaptureTrace(settings=named.settings, warmup_steps=warmup_steps, steps=steps, logdir=str(logdir))
        reply = self._executor.execute(request, timeout_s=self._timeout_s)
        assert isinstance(reply, Traced | Failed)
        return reply

    # --- what the journal says -------------------------------------------------------------------------------

    @property
    def _has_step(self) -> bool:
        return self._started.workload.step != "none"

    def _entries(self, kind: type[T]) -> list[T]:
        return [entry for entry in self._journal.entries if isinstance(entry, kind)]

    def _floors(self) -> list[FloorMeasured]:
        return self._entries(FloorMeasured)

    def _has_failed(self, named: NamedSettings) -> bool:
        return any(entry.id == named.settings.id for entry in self._entries(CandidateFailed))

    def _alive(self) -> list[NamedSettings]:
        candidates = self._entries(CandidatesChosen)[0].candidates
        skipped = {entry.id for entry in self._entries(CandidateSkipped)}
        return [n for n in candidates if n.settings.id not in skipped and not self._has_failed(n)]

    def _blocks(self, named: NamedSettings) -> list[Block]:
        return [e.measured.block for e in self._entries(CandidateMeasured) if e.id == named.settings.id]

    def _probed_floor_s(self) -> float:
        """Seconds per step of the first floor block; 0 with no step."""
        blocks = [e.measured.block for e in self._floors() if e.measured.block.kind == "floor"]
        return blocks[0].elapsed_s / blocks[0].steps if blocks else 0.0

    def _batch_s(self, named: NamedSettings) -> float | None:
        """Seconds per batch of the pipeline alone."""
        capacity = next((b for b in self._blocks(named) if b.kind == "capacity"), None)
        return None if capacity is None else capacity.elapsed_s / capacity.steps

    def _step_s(self, named: NamedSettings) -> float:
        blocks = [b for b in self._blocks(named) if b.kind == "step"]
        return sum(b.elapsed_s for b in blocks) / sum(b.steps for b in blocks)

    def _traces_s(self, plan: Plan) -> float:
        """Seconds that the traces will take."""
        return sum(PROFILER_S + sum(plan.trace(self._step_s(n))) * self._step_s(n) for n in self._alive())

    def _elapsed_s(self) -> float:
        """Seconds of measuring, those of an earlier process included."""
        return self._earlier_s + self._clock() - self._begin

    def _show(self, text: str) -> None:
        self._display.show(text, elapsed_s=self._elapsed_s(), budget_s=self._started.time_budget_s)


def error_of(failed: Failed) -> Exception:
    """What stops a whole run: the user's mistake as a message, a fault of ours as the worker's traceback."""
    if failed.cause == "bug":
        return WorkerBugError(f"{failed.message}\n{failed.detail}")
    error = TfpipeError(failed.message if failed.detail is None else f"{failed.message}\n{failed.detail}", failed.hint)
    error.exit_code = failed.exit_code
    return error
