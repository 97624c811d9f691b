"""A machine that exists on paper: an executor with a clock of its own, for testing everything right of the worker.

Each candidate's step is ``fetch`` and ``compute`` seconds that a function of time may stretch. The contract that the
real executor keeps is checked for both in ``test_executors.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec

from tfpipe.messages import (
    CaptureTrace,
    Failed,
    Length,
    MeasureCapacity,
    Measured,
    MeasureFetchFloor,
    MeasureFloor,
    MeasureStep,
    MemoryFacts,
    Prepare,
    Prepared,
    Reply,
    Request,
    Traced,
    Workload,
)
from tfpipe.records import Block, BlockKind, Data, Device, Environment, MapCode, Node, Step
from tfpipe.runner.journal import VERSION, Started
from tfpipe.settings import Execution, NamedSettings, PipelineSettings

BATCH_SIZE = 32


@dataclass
class FakeClock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class FakeMachine:
    """``fetch_s`` maps a candidate's id to the seconds it makes the step wait; ``slowdown`` maps time to a factor."""

    fetch_s: dict[str, float]
    compute_s: float = 0.064
    # Ways to run the step and their seconds, in place of ``compute_s``; ``twin_s`` as one tf.function beside them.
    executions: dict[Execution, float] = field(default_factory=dict)
    twin_s: float | None = None
    fetch_floor_s: float = 0.001
    profiled_fetch_s: dict[str, float] = field(default_factory=dict)
    slowdown: Callable[[float], float] = lambda now: 1.0
    clock: FakeClock = field(default_factory=FakeClock)
    fail: dict[str, Failed] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    closed: bool = False

    def execute(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        self.requests.append(request)
        if isinstance(request, Prepare):
            return self._prepared(request.workload)
        compute_s = 0.0 if isinstance(request, MeasureCapacity) else self._compute_s(request.execution)
        if isinstance(request, MeasureFloor):
            return Measured(block=self._block("floor", request.round, request.length, 0.0, compute_s))
        if isinstance(request, MeasureFetchFloor):
            block = self._block("fetch-floor", request.round, request.length, self.fetch_floor_s, compute_s)
            return Measured(block=block)
        identity = request.settings.id
        if identity in self.fail:
            return self.fail[identity]
        fetch_s = self.fetch_floor_s + self.fetch_s[identity]
        if isinstance(request, CaptureTrace):
            length = Length(warmup_steps=request.warmup_steps, warmup_s=0.0, steps=request.steps, seconds=0.0)
            block = self._block("trace", 0, length, self.profiled_fetch_s.get(identity, fetch_s), compute_s)
            return Traced(path=f"{request.logdir}/plugins/profile/2026", block=block, size_bytes=1000)
        if isinstance(request, MeasureCapacity):
            return Measured(block=self._block("capacity", request.round, request.length, fetch_s, 0.0))
        assert isinstance(request, MeasureStep)
        block = self._block("step", request.round, request.length, fetch_s, compute_s)
        return Measured(block=block, executed=(Node(node="Batch", buffered_bytes=1000),), peak_memory_bytes=10**9)

    def close(self) -> None:
        self.closed = True

    def _prepared(self, work: Workload) -> Prepared:
        one = prepared(work)
        steps = [replace(one.step, execution=execution, first_call_s=1.0) for execution in self.executions]
        first, *others = steps or [one.step]
        twin = None if self.twin_s is None else replace(one.step, execution="graph")
        return msgspec.structs.replace(one, step=first, other_steps=tuple(others), twin=twin)

    def _compute_s(self, execution: Execution | None) -> float:
        if execution == "graph" and self.twin_s is not None:
            return self.twin_s
        return self.executions.get(execution or next(iter(self.executions), "graph"), self.compute_s)

    def _block(self, kind: BlockKind, number: int, length: Length, fetch_s: float, compute_s: float) -> Block:
        fetches: list[float] = []
        steps: list[float] = []
        warmup_steps = 0
        begin = self.clock.now
        while warmup_steps < length.warmup_steps or self.clock.now - begin < length.warmup_s:
            self.clock.now += fetch_s + compute_s
            warmup_steps += 1
        begin = self.clock.now
        while len(steps) < length.steps or self.clock.now - begin < length.seconds:
            factor = self.slowdown(self.clock.now)
            fetches.append(fetch_s * factor)
            steps.append((fetch_s + compute_s) * factor)
            self.clock.now += steps[-1]
        return Block(
            kind=kind,
            round=number,
            warmup_steps=warmup_steps,
            steps=len(steps),
            elapsed_s=self.clock.now - begin,
            step_s=tuple(steps),
            fetch_s=tuple(fetches),
            cpu_s=0.0,
            first_batch_s=fetch_s,
        )


def workload(step: str = "simulated:64ms") -> Workload:
    return Workload(
        dataset="cifar100",
        data_dir=None,
        require_data=False,
        download=False,
        image_size=224,
        batch_size=None,
        step=step,
        width=64,
        seed=0,
    )


def prepared(work: Workload) -> Prepared:
    code = MapCode(definitions="", load="", source="", arguments=(), map_example="f", map_batch="g")
    return Prepared(
        environment=Environment(
            python="3.11",
            tensorflow="2.21.0",
            keras="3",
            platform="Linux",
            hostname="h",
            cpu_model="cpu",
            cores=2,
            memory_bytes=2**34,
            devices=(Device(name="/CPU:0", kind="CPU", description="CPU"),),
        ),
        data=Data(
            name=work.dataset,
            origin="o",
            generated=False,
            examples=50_000,
            batch_size=BATCH_SIZE,
            element="uint8",
            example_bytes=3080,
            code=code,
        ),
        step=Step(name=work.step, description="d", synchronous=True),
        pipeline=None,
        memory=MemoryFacts(resident_bytes=400 * 2**20, batch_bytes=BATCH_SIZE * 12288, row_bytes=3072),
        timings_s={"load": 1.0},
    )


def candidates(*depths: int) -> tuple[NamedSettings, ...]:
    """One candidate per prefetch depth."""
    return tuple(NamedSettings(name="", settings=PipelineSettings(prefetch_depth=depth)) for depth in depths)


def started(
    named: tuple[NamedSettings, ...],
    *,
    step: str = "simulated:64ms",
    steps: int | None = None,
    time_budget_s: float = 180.0,
) -> Started:
    return Started(
        version=VERSION,
        tfpipe_version="0",
        created="2026-01-01T00:00:00+00:00",
        command=("tfpipe",),
        workload=workload(step),
        knobs={},
        candidates=named,
        only_current=False,
        large_grid_allowed=False,
        steps=steps,
        time_budget_s=time_budget_s,
    )
