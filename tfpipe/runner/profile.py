"""The course of a run: prepare, floors, capacities, interleaved rounds, confirmation, traces.

Every result goes to the journal. Knows no TensorFlow: whatever carries out the requests is an argument, and so are the
clock and the display.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from tfpipe.analysis.memory import fits
from tfpipe.analysis.ranking import WORTHWHILE, gain
from tfpipe.analysis.recommend import finalists
from tfpipe.conditions import free_disk_bytes, memory_limit_bytes, read_conditions
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
from tfpipe.records import BlockKind, Run
from tfpipe.runner.assemble import assemble_run
from tfpipe.runner.comparable import check_comparable
from tfpipe.runner.executor import Executor
from tfpipe.runner.forecast import forecast_candidate, with_caches_placed
from tfpipe.runner.journal import (
    CandidateFailed,
    CandidateMeasured,
    CandidatesChosen,
    CandidateSkipped,
    CandidateTraced,
    ConditionsRead,
    Confirming,
    Decided,
    Finished,
    FloorMeasured,
    Journal,
    WorkloadPrepared,
)
from tfpipe.runner.plan import CONFIRMED, CONFIRMING_ROUNDS, MIN_ROUNDS, PROBE, PROFILER_S, Plan, make_plan
from tfpipe.runner.reading import TraceReading
from tfpipe.runner.search import make_search
from tfpipe.runner.so_far import SoFar
from tfpipe.settings import Execution, NamedSettings, PipelineSettings

# Probe and capacity blocks come before the rounds.
BEFORE_ROUNDS = -1
# What is recommended, what the user has and all AUTOTUNE are measured side by side at least MIN_ROUNDS times more;
# while it is not clear that the first is faster CONFIRMING_ROUNDS times, and up to this often if time is left.
MAX_CONFIRMING_ROUNDS = 20
# A trace of this many events has some 15 MB and stops within seconds; an element-wise map makes about 31 per element,
# and XProf's viewer ends at 5 million.
MAX_TRACE_EVENTS = 400_000
# A probe of one candidate stands for others that make up to this many times its events.
PROBE_MARGIN = 4

Floor: TypeAlias = MeasureFloor | MeasureFetchFloor
Task: TypeAlias = Floor | tuple[NamedSettings, Execution]


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
        self._so_far = SoFar(journal.entries)
        # What an earlier process measured counts towards the budget.
        self._earlier_s = self._so_far.measured_s

    def run(self) -> None:
        """Measure whatever is still missing.

        Raises:
            TfpipeError: the workload cannot be prepared, or its floor not measured.
            WorkerBugError: a fault of tfpipe's own.
        """
        begin = self._clock()
        self._prepare()
        self._search = make_search(
            self._started,
            self._so_far.prepared,
            self._so_far.prepared.environment.cores,
            max_memory_bytes=self._max_memory_bytes,
        )
        if not self._so_far.every(CandidatesChosen):
            self._journal.append(CandidatesChosen(candidates=self._search.first()))
        self._begin = self._clock()
        before = read_conditions()
        self._skip_what_is_the_same()
        self._skip_what_cannot_fit()
        for execution in self._executions:
            self._measure_floor(MeasureFloor(round=BEFORE_ROUNDS, length=PROBE, execution=execution))
        self._make_plans()
        self._measure_capacities()
        number = self._measure_rounds()
        if not self._started.only_current:
            self._confirm(number)
        for named in self._so_far.alive():
            self._capture_trace(named)
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
        earlier = self._so_far.every(WorkloadPrepared)
        if earlier:
            check_comparable(earlier[0].prepared, reply)
        else:
            placed = with_caches_placed(reply, memory_bytes=self._memory_bytes(), disk_bytes=free_disk_bytes())
            self._journal.append(WorkloadPrepared(prepared=placed))

    def _skip_what_is_the_same(self) -> None:
        """Leave out what differs only in a shuffle buffer that holds all examples anyway."""
        examples = self._so_far.prepared.data.examples
        first: dict[PipelineSettings, str] = {}
        for named in self._so_far.alive():
            settings = named.settings
            if examples is not None and settings.shuffle_buffer != "full" and settings.shuffle_buffer >= examples:
                settings = dataclasses.replace(settings, shuffle_buffer="full")
            same = first.setdefault(settings, named.settings.id)
            if same != named.settings.id:
                reason = f"The same as {same}: either buffer holds all {examples:,} examples."
                self._journal.append(CandidateSkipped(id=named.settings.id, reason=reason))

    def _skip_what_cannot_fit(self) -> None:
        """Leave out candidates whose buffers alone are larger than the memory there is."""
        limit_bytes = self._memory_bytes()
        if limit_bytes is None:
            return
        for named in self._so_far.alive():
            forecast = forecast_candidate(named.settings, self._so_far.prepared)
            reason = None if forecast is None else fits(forecast, limit_bytes)
            if reason is not None:
                self._journal.append(CandidateSkipped(id=named.settings.id, reason=reason))

    def _memory_bytes(self) -> int | None:
        """How large the worker may become; None where nobody says."""
        limits = [limit for limit in (self._max_memory_bytes, memory_limit_bytes()) if limit is not None]
        return min(limits, default=None)

    def _make_plans(self) -> None:
        """A plan for each way to run the step, since one may take many times as long as another."""
        others = len(self._so_far.executions) - 1
        each_round = len(self._so_far.alive()) + others + max(0, len(self._executions) - 1)
        self._plans: dict[Execution, Plan] = {
            execution: make_plan(
                floor_step_s=self._so_far.probed_floor_s(execution),
                steps=self._started.steps,
                candidates=each_round,
                time_budget_s=self._started.time_budget_s,
                grows=self._search.grows,
            )
            for execution in (*self._so_far.executions, *self._executions)
        }

    def _measure_capacities(self) -> None:
        for named in self._so_far.alive():
            request = MeasureCapacity(settings=named.settings, round=BEFORE_ROUNDS, length=self._plan.capacity())
            self._measure(named, request, "alone")

    def _measure_rounds(self) -> int:
        """Interleaved rounds until the search stops or the time is over; the number of rounds."""
        number = 0
        while alive := self._so_far.alive(number):
            current = self._so_far.candidates()[0]
            others = [(current, e) for e in self._so_far.executions if e != self._so_far.main and current in alive]
            self._measure_round(number, [*((named, self._so_far.main) for named in alive), *others])
            number += 1
            if number >= MIN_ROUNDS and self._decide(number - 1).stop:
                break
        return number

    def _decide(self, number: int) -> Decided:
        """What to do after round ``number``; as it was decided, where a run that was cut off had come that far."""
        decided = self._so_far.decided(number)
        if decided is None:
            decided = self._decision(number)
            self._journal.append(decided)
        self._skip_what_is_the_same()
        self._skip_what_cannot_fit()
        self._measure_capacities()
        return decided

    def _decision(self, number: int) -> Decided:
        run = assemble_run(self._journal.entries)
        if run is None:
            return Decided(round=number, stop=True)
        decision = self._search.next(run)
        alive = [named.settings.id for named in self._so_far.alive() if named.settings.id not in decision.drop]
        left_s = self._started.time_budget_s - self._elapsed_s() - self._traces_s()
        task_s = self._so_far.task_s()
        # Beside the candidates a round has the floors, and what the user has behind each other way to run the step.
        beside = len(self._executions) + len(self._so_far.executions) - 1
        # What the model expects most of is worth more than ending on time: the confirmation may then come on top.
        room = [
            more
            for more in range(1, len(decision.add) + 1)
            if task_s * (MIN_ROUNDS * (len(alive) + more + beside) + more) <= left_s
        ]
        add = decision.add[: max(room, default=0)]
        young = add or any(
            len(self._so_far.blocks(identity, "step", self._so_far.main)) < MIN_ROUNDS for identity in alive
        )
        done = decision.stop or self._plan.steps is not None
        known = decision.predictions
        return Decided(
            round=number,
            add=add,
            predictions={n.settings.id: known[n.settings.id] for n in add if n.settings.id in known},
            drop=dict(decision.drop),
            untried=decision.add[len(add) :],
            # What has joined gets its rounds: fewer would say nothing.
            stop=not young and (done or left_s < task_s * (len(alive) + beside) + self._confirming_s(run)),
        )

    def _confirm(self, number: int) -> None:
        """Before a change is recommended, it is measured again beside what the user has."""
        if self._so_far.confirming is None:
            run = assemble_run(self._journal.entries)
            if run is None or run.recommendation is None or not run.recommendation.change:
                return
            self._journal.append(Confirming(round=number, candidates=finalists(run)))
        confirming = self._so_far.confirming
        assert confirming is not None
        for more in range(MAX_CONFIRMING_ROUNDS):
            alive = self._so_far.alive(confirming.round + more)
            others = [e for e in self._so_far.executions if e != self._so_far.main]
            between = [named for named in alive if named.settings.id in confirming.candidates[:2]]
            self._measure_round(
                confirming.round + more,
                [*((named, self._so_far.main) for named in alive), *((n, e) for n in between for e in others)],
                side_by_side=True,
            )
            if more + 1 >= MIN_ROUNDS and self._is_confirmed_or_late(confirming, rounds=more + 1):
                return

    def _is_confirmed_or_late(self, confirming: Confirming, *, rounds: int) -> bool:
        run = assemble_run(self._journal.entries)
        assert run is not None
        chosen, current = (run.candidate(identity) for identity in confirming.candidates[:2])
        over_current = gain(chosen, current, since=confirming.round)
        if over_current.low > 1.0:
            return True
        late = self._elapsed_s() + self._traces_s() >= self._started.time_budget_s
        return late and (rounds >= CONFIRMING_ROUNDS or over_current.value < WORTHWHILE)

    def _measure_round(
        self, number: int, measured: Sequence[tuple[NamedSettings, Execution]], *, side_by_side: bool = False
    ) -> None:
        """One block of each, in an order of its own, and the floors among them; ``side_by_side``, behind them, so that
        a slow spell of the machine that falls on one candidate falls on its neighbour too."""
        tasks: list[Task] = [*measured]
        for execution in self._executions:
            length = self._plans[execution].floor(number)
            tasks.append(MeasureFloor(round=number, length=length, execution=execution))
        if number < self._plan.fetch_floor_rounds:
            main = self._so_far.main
            tasks.append(MeasureFetchFloor(round=number, length=self._plan.fetch_floor(), execution=main))
        # Seeded by seed and round, so that a resumed run goes on in the same order.
        random.Random(f"{self._started.workload.seed}/{number}").shuffle(tasks)
        if side_by_side:
            tasks.sort(key=lambda task: task[1] if isinstance(task, tuple) else "")
        for task in tasks:
            if isinstance(task, MeasureFloor | MeasureFetchFloor):
                self._measure_floor(task)
                continue
            named, execution = task
            length = self._plans[execution].block(number, batch_s=self._so_far.batch_s(named.settings.id))
            request = MeasureStep(settings=named.settings, round=number, length=length, execution=execution)
            self._measure(named, request, f"round {number + 1}")

    def _measure_floor(self, request: Floor) -> None:
        kind: BlockKind = "floor" if isinstance(request, MeasureFloor) else "fetch-floor"
        execution = request.execution or self._so_far.executions[0]
        if any(block.round == request.round for block in self._so_far.floor_blocks(kind, execution)):
            return
        self._show("compute alone" if kind == "floor" else "an empty fetch", execution)
        reply = self._executor.execute(request, timeout_s=self._timeout_s)
        if isinstance(reply, Failed) and reply.cause in ("died", "timeout"):
            # The floor is nobody's candidate: a worker that something ended gets a second chance.
            reply = self._executor.execute(request, timeout_s=self._timeout_s)
        if isinstance(reply, Failed):
            raise error_of(reply)
        assert isinstance(reply, Measured)
        self._journal.append(FloorMeasured(measured=reply, execution=execution))

    def _measure(self, named: NamedSettings, request: MeasureCapacity | MeasureStep, stage: str) -> None:
        kind: BlockKind = "step" if isinstance(request, MeasureStep) else "capacity"
        execution = (isinstance(request, MeasureStep) and request.execution) or self._so_far.main
        identity = named.settings.id
        known = any(block.round == request.round for block in self._so_far.blocks(identity, kind, execution))
        if known or self._so_far.has_failed(identity):
            return
        self._show(f"{stage}: {named.name or identity}", execution)
        reply = self._executor.execute(request, timeout_s=self._timeout_s)
        if isinstance(reply, Failed):
            self._journal.append(CandidateFailed(id=identity, failed=reply))
        else:
            assert isinstance(reply, Measured)
            self._journal.append(CandidateMeasured(id=identity, measured=reply, execution=execution))

    def _capture_trace(self, named: NamedSettings) -> None:
        identity = named.settings.id
        if self._so_far.is_traced(identity):
            return
        self._show(f"trace: {named.name or identity}")
        warmup_steps, wanted = self._plan.trace(self._so_far.step_s(identity))
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
        request = CaptureTrace(
            settings=named.settings,
            warmup_steps=warmup_steps,
            steps=steps,
            logdir=str(logdir),
            execution=self._so_far.main,
        )
        reply = self._executor.execute(request, timeout_s=self._timeout_s)
        assert isinstance(reply, Traced | Failed)
        return reply

    # --- time ------------------------------------------------------------------------------------------------

    @property
    def _has_step(self) -> bool:
        return self._started.workload.step != "none"

    @property
    def _plan(self) -> Plan:
        return self._plans[self._so_far.main]

    @property
    def _executions(self) -> tuple[Execution, ...]:
        """Those whose compute alone is measured."""
        if not self._has_step:
            return ()
        twin = self._so_far.prepared.twin
        return (*self._so_far.executions, *(() if twin is None else (twin.execution,)))

    def _traces_s(self) -> float:
        """Seconds that the traces will take."""
        steps_s = [self._so_far.step_s(named.settings.id) for named in self._so_far.alive()]
        return sum(PROFILER_S + sum(self._plan.trace(step_s)) * step_s for step_s in steps_s)

    def _confirming_s(self, run: Run) -> float:
        """Seconds of confirmation to keep: of what might come out still, or all that what did come out may need."""
        if self._started.only_current:
            return 0.0
        found = run.recommendation is not None and run.recommendation.change
        return (CONFIRMING_ROUNDS if found else MIN_ROUNDS) * CONFIRMED * self._so_far.task_s()

    def _elapsed_s(self) -> float:
        """Seconds of measuring, those of an earlier process included."""
        return self._earlier_s + self._clock() - self._begin

    def _show(self, text: str, execution: Execution | None = None) -> None:
        if execution is not None and len(self._so_far.executions) > 1:
            text += f" ({execution})"
        self._display.show(text, elapsed_s=self._elapsed_s(), budget_s=self._started.time_budget_s)


def error_of(failed: Failed) -> Exception:
    """What stops a whole run: the user's mistake as a message, a fault of ours as the worker's traceback."""
    if failed.cause == "bug":
        return WorkerBugError(f"{failed.message}\n{failed.detail}")
    error = TfpipeError(failed.message if failed.detail is None else f"{failed.message}\n{failed.detail}", failed.hint)
    error.exit_code = failed.exit_code
    return error
