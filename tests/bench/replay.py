"""A grid that was measured whole, in interleaved rounds, and an executor that answers from it.

A search that is replayed sees the blocks that it would have measured at that time, and its clock runs as long as they
took; so any number of searches can be compared on one grid, by the very same course of a run.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
import time
from dataclasses import dataclass

import msgspec

from tests.bench.workloads import BenchWorkload, grid_of
from tfpipe.messages import (
    CaptureTrace,
    MeasureCapacity,
    Measured,
    MeasureFetchFloor,
    MeasureFloor,
    MeasureStep,
    Prepare,
    Prepared,
    Reply,
    Request,
    Traced,
    Workload,
)
from tfpipe.runner.executor import Executor
from tfpipe.runner.plan import PROBE, PROFILER_S, make_plan
from tfpipe.settings import NamedSettings, PipelineSettings

# Round of blocks that come before the rounds.
BEFORE = -1


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A reply and how long it took."""

    measured: Measured
    wall_s: float


class Recording(msgspec.Struct, kw_only=True):
    """All settings of a grid, the current one first; answers by candidate's id and round, ``floor`` by round."""

    workload: Workload
    prepared: Prepared
    settings: list[PipelineSettings]
    capacity: dict[str, Answer]
    steps: dict[str, dict[int, Answer]]
    floor: dict[int, Answer]
    fetch_floor: dict[int, Answer]

    @property
    def named(self) -> tuple[NamedSettings, ...]:
        return tuple(NamedSettings(name="", settings=settings) for settings in self.settings)

    @property
    def rounds(self) -> int:
        return len(next(iter(self.steps.values())))

    def log_rates(self, identity: str, rounds: list[int]) -> float:
        """The mean logarithm of the candidate's rate over the typical rate of each round."""
        return statistics.fmean(math.log(self._rate(identity, number) / self._typical(number)) for number in rounds)

    def regret(self, identity: str) -> float:
        """The share of throughput lost against the best of the grid, below 0 by chance where they are equal.

        The best is taken from one half of the rounds and compared in the other, and the other way round: what is best
        of many in the rounds it was chosen by owes that to luck too.
        """
        halves = [list(range(0, self.rounds, 2)), list(range(1, self.rounds, 2))]
        losses = []
        for chosen_by, compared_in in (halves, halves[::-1]):
            best = max(self.steps, key=lambda one: self.log_rates(one, chosen_by))
            losses.append(self.log_rates(best, compared_in) - self.log_rates(identity, compared_in))
        return 1 - math.exp(-statistics.fmean(losses))

    def _rate(self, identity: str, number: int) -> float:
        block = self.steps[identity][number].measured.block
        return block.steps / block.elapsed_s

    def _typical(self, number: int) -> float:
        return statistics.median(self._rate(identity, number) for identity in self.steps)


def record(
    executor: Executor, workload: BenchWorkload, step: str, *, rounds: int, scale: float = 1.0, seed: int = 0
) -> Recording:
    """Measure the whole grid of ``workload``, every setting once per round in an order of its own.

    Args:
        scale: of the length of blocks, as a run's time budget would shorten them.
    """
    request = Prepare(workload=workload.workload(step))
    prepared = executor.execute(request)
    if not isinstance(prepared, Prepared) or prepared.pipeline is None:
        raise RuntimeError(f"{workload.name} cannot be prepared: {prepared}")
    settings = list(grid_of(workload, prepared.pipeline))
    recording = Recording(
        workload=request.workload,
        prepared=prepared,
        settings=settings,
        capacity={},
        steps={one.id: {} for one in settings},
        floor={BEFORE: _ask(executor, MeasureFloor(round=BEFORE, length=PROBE))},
        fetch_floor={},
    )
    block = recording.floor[BEFORE].measured.block
    plan = dataclasses.replace(
        make_plan(floor_step_s=block.elapsed_s / block.steps, steps=None, candidates=1, time_budget_s=math.inf),
        scale=scale,
    )
    for one in settings:
        request_alone = MeasureCapacity(settings=one, round=BEFORE, length=plan.capacity())
        recording.capacity[one.id] = _ask(executor, request_alone)
    for number in range(rounds):
        tasks: list[PipelineSettings | None] = [*settings, None]
        random.Random(f"{seed}/{number}").shuffle(tasks)
        for task in tasks:
            if task is None:
                recording.floor[number] = _ask(executor, MeasureFloor(round=number, length=plan.floor(number)))
                request_fetch = MeasureFetchFloor(round=number, length=plan.fetch_floor())
                recording.fetch_floor[number] = _ask(executor, request_fetch)
                continue
            alone = recording.capacity[task.id].measured.block
            length = plan.block(number, batch_s=alone.elapsed_s / alone.steps)
            answer = _ask(executor, MeasureStep(settings=task, round=number, length=length))
            recording.steps[task.id][number] = answer
    return recording


def _ask(executor: Executor, request: Request) -> Answer:
    begin = time.monotonic()
    reply = executor.execute(request)
    if not isinstance(reply, Measured):
        raise RuntimeError(f"{request} failed: {reply}")
    return Answer(measured=reply, wall_s=time.monotonic() - begin)


@dataclass
class ReplayExecutor:
    """Answers from ``recording``; ``now`` is its clock. Rounds beyond the recorded ones begin again with the first."""

    recording: Recording
    now: float = 0.0

    def clock(self) -> float:
        return self.now

    def execute(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        if isinstance(request, Prepare):
            return self.recording.prepared
        if isinstance(request, CaptureTrace):
            return self._traced(request)
        answer = self._answer(request)
        self.now += answer.wall_s
        return msgspec.structs.replace(
            answer.measured, block=dataclasses.replace(answer.measured.block, round=request.round)
        )

    def close(self) -> None:
        pass

    def _answer(self, request: Request) -> Answer:
        recording = self.recording
        if isinstance(request, MeasureCapacity):
            return recording.capacity[request.settings.id]
        assert isinstance(request, MeasureFloor | MeasureFetchFloor | MeasureStep)
        number = BEFORE if request.round == BEFORE else request.round % recording.rounds
        if isinstance(request, MeasureStep):
            return recording.steps[request.settings.id][number]
        return (recording.floor if isinstance(request, MeasureFloor) else recording.fetch_floor)[number]

    def _traced(self, request: CaptureTrace) -> Traced:
        """A trace takes its profiled steps and the profiler itself; nobody reads it."""
        block = self.recording.steps[request.settings.id][0].measured.block
        step_s = block.elapsed_s / block.steps
        self.now += PROFILER_S + (request.warmup_steps + request.steps) * step_s
        block = dataclasses.replace(
            block,
            kind="trace",
            steps=request.steps,
            elapsed_s=request.steps * step_s,
            step_s=(step_s,) * request.steps,
            fetch_s=(0.0,) * request.steps,
        )
        return Traced(path=f"{request.logdir}/plugins/profile/paper", block=block, size_bytes=0)
