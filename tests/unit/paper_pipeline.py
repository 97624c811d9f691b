"""A pipeline that exists on paper, run event by event: the reference for what ``analysis.operational`` derives.

Source, map, batch, prefetch and step are processes that take and give back places: cores, threads of the pool,
Python's lock, calls, buffers. Nothing here knows a law. ``world_run`` puts what such a machine would have measured into
a ``Run``.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.runs import interval, make_environment, make_run
from tests.unit.test_report_user_pipeline import make_site
from tfpipe.records import Block, Candidate, Floor, Node, Pipeline, Run
from tfpipe.runner.proposals import DETERMINISTIC, POOL, REWRITES
from tfpipe.settings import PipelineSettings
from tfpipe.sites import END_PREFETCH, OverrideValue, Stage

# --- a kernel ------------------------------------------------------------------------------------------------

Process = Generator[Any, None, None]


@dataclass
class Places:
    """So many places; who finds none waits for its turn."""

    free: float
    waiting: deque[Process] = field(default_factory=deque)


@dataclass
class Kernel:
    """Runs processes, which yield seconds to let pass, or ``("take" | "give", places)``."""

    now: float = 0.0
    events: list[tuple[float, int, Process]] = field(default_factory=list)
    numbers: Any = field(default_factory=itertools.count)

    def start(self, process: Process) -> None:
        heapq.heappush(self.events, (self.now, next(self.numbers), process))

    def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self.now, _, process = heapq.heappop(self.events)
            self.advance(process)

    def advance(self, process: Process) -> None:
        for wish in process:
            if isinstance(wish, float | int):
                heapq.heappush(self.events, (self.now + wish, next(self.numbers), process))
                return
            what, places = wish
            if what == "give":
                if places.waiting:
                    self.start(places.waiting.popleft())
                else:
                    places.free += 1
            elif places.free >= 1:
                places.free -= 1
            else:
                places.waiting.append(process)
                return


# --- a pipeline ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class World:
    """Seconds per example of a source, a map that waits and computes, and a batch; and the machine.

    ``lock`` says that the map's computing is Python's; ``slow`` is how many times as long every ``every``-th wait
    takes; all waits and computing vary by ``jitter`` of themselves to either side.
    """

    source_s: float = 0.0
    wait_s: float = 0.0
    compute_s: float = 0.0
    batch_s: float = 0.0
    lock: bool = False
    slow: float = 1.0
    every: int = 20
    jitter: float = 0.0
    cores: int = 2
    batch_size: int = 8

    @property
    def cpu_s(self) -> float:
        return self.source_s + self.compute_s + self.batch_s


@dataclass(frozen=True, kw_only=True)
class Setting:
    """``calls`` None is a map without calls of its own; ``fused`` lets calls finish in any order into batches."""

    calls: int | None = 1
    threads: int | None = None
    depth: int = 0
    fused: bool = True
    ordered: bool = True


@dataclass(frozen=True, kw_only=True)
class Result:
    batch_s: tuple[float, ...]
    map_s: float  # residence of a call in the map


def simulate(world: World, setting: Setting, *, step_s: float, batches: int = 60) -> Result:
    """Seconds from batch to batch of a step of ``step_s``, the first third left out."""
    kernel = Kernel()
    cores, lock = Places(world.cores), Places(1)
    threads = Places(setting.threads or world.cores)
    elements, slots = Places(0), Places(setting.calls or 0)
    ready, room = Places(0), Places(setting.depth)
    taken: list[float] = []
    resident: list[float] = []
    random = Random(1)

    def varied(seconds: float) -> float:
        return seconds * random.uniform(1 - world.jitter, 1 + world.jitter)

    def compute(seconds: float, *also: Places) -> Process:
        for places in (*also, cores):
            yield "take", places
        yield seconds
        for places in (cores, *also):
            yield "give", places

    def map_one(number: int) -> Process:
        yield "take", threads
        begin = kernel.now
        yield varied(world.wait_s) * (world.slow if number % world.every == 0 else 1.0)
        yield from compute(varied(world.compute_s), *((lock,) if world.lock else ()))
        resident.append(kernel.now - begin)
        yield "give", threads

    finished: dict[int, bool] = {}
    emitted = 0

    def call(number: int) -> Process:
        nonlocal emitted
        yield from map_one(number)
        finished[number] = True
        keeps_order = setting.ordered and not setting.fused
        done = [emitted] if keeps_order else [number]
        while done and finished.get(done[0]):
            if keeps_order:
                emitted += 1
                done = [emitted]
            else:
                done = []
            yield "give", elements
            if setting.fused:
                yield "give", slots

    def runner() -> Process:
        for number in itertools.count():
            yield "take", slots
            yield from compute(world.source_s)
            kernel.start(call(number))

    serial = itertools.count()

    def batch() -> Process:
        for _ in range(world.batch_size):
            if setting.calls is None:
                yield from compute(world.source_s)
                yield from map_one(next(serial))
            else:
                yield "take", elements
                if not setting.fused:
                    yield "give", slots
        yield from compute(world.batch_size * world.batch_s)

    def prefetch() -> Process:
        while True:
            yield "take", room
            yield from batch()
            yield "give", ready

    def loop() -> Process:
        while True:
            if setting.depth:
                yield "take", ready
                yield "give", room
            else:
                yield from batch()
            taken.append(kernel.now)
            yield step_s

    if setting.calls is not None:
        kernel.start(runner())
    if setting.depth:
        kernel.start(prefetch())
    kernel.start(loop())
    kernel.run(lambda: len(taken) > batches)
    counted = taken[batches // 3 :]
    gaps = tuple(later - earlier for earlier, later in itertools.pairwise(counted))
    return Result(batch_s=gaps, map_s=sum(resident) / len(resident))


# --- what such a machine would have measured -------------------------------------------------------------------

CALLS = "data.py:2:map(num_parallel_calls)"


def overrides_of(setting: Setting) -> PipelineSettings:
    overrides: dict[str, OverrideValue] = {}
    if setting.calls is not None:
        overrides[CALLS] = setting.calls
    if setting.threads is not None:
        overrides[POOL] = setting.threads
    if setting.depth:
        overrides[END_PREFETCH] = setting.depth
    if not setting.fused:
        overrides[REWRITES] = False
    if not setting.ordered:
        overrides[DETERMINISTIC] = False
    return PipelineSettings(overrides=tuple(sorted(overrides.items())))


def users_pipeline(*, python: bool) -> Pipeline:
    """A range, a map whose function waits or not, a batch; serial as it is written."""
    end: dict[str, Any] = {"kind": "end", "stage": "", "line": None}
    sites = (
        make_site(CALLS, "data.py"),
        make_site(END_PREFETCH, "data.py", kind="end", method="prefetch", axis="prefetch_depth", value=0),
        make_site(POOL, "", **end, axis="threadpool"),
        make_site(DETERMINISTIC, "", **end, axis="deterministic"),
        make_site(REWRITES, "", **end, axis="rewrites"),
    )
    stages = (
        Stage(id="data.py:1:range", file="data.py", line=1, method="range"),
        Stage(
            id="data.py:2:map", file="data.py", line=2, method="map", inputs=("data.py:1:range",), python=python,
            random=not python,
        ),
        Stage(id="data.py:3:batch", file="data.py", line=3, method="batch", inputs=("data.py:2:map",)),
    )  # fmt: skip
    return Pipeline(
        reference="data.py:make",
        arguments=(),
        root="/",
        sites=sites,
        stages=stages,
        findings=(),
        reorders=(),
        build_s=0.1,
    )


def drained(world: World, setting: Setting, *, batches: int = 60) -> Candidate:
    """The candidate with the capacity that it would have been measured to have."""
    result = simulate(world, setting, step_s=0.0, batches=batches)
    count = len(result.batch_s)
    examples = count * world.batch_size
    fused = setting.fused and setting.calls is not None
    mapped = Node(
        node="MapAndBatch" if fused else "Map" if setting.calls is None else "ParallelMapV2",
        elements=count if fused else examples,
        processing_s=examples * (result.map_s + (world.batch_s if fused else 0.0)),
    )
    batched = Node(node="BatchV2", elements=count, processing_s=examples * world.batch_s)
    nodes = (Node(node="Range", elements=examples, processing_s=examples * world.source_s), mapped)
    settings = overrides_of(setting)
    elapsed_s = sum(result.batch_s)
    return Candidate(
        id=settings.id,
        name="",
        settings=settings,
        status="complete",
        blocks=(
            Block(
                kind="capacity", round=-1, warmup_steps=1, steps=count, elapsed_s=elapsed_s, step_s=result.batch_s,
                fetch_s=result.batch_s, cpu_s=examples * world.cpu_s,
            ),
        ),
        capacity_examples_per_s=examples / elapsed_s,
        cpu_s_per_example=world.cpu_s,
        capacity_executed=nodes if fused else (*nodes, batched),
    )  # fmt: skip


def world_run(world: World, settings: Sequence[Setting], *, step_s: float = 0.01) -> Run:
    """A run that has drained ``settings`` of ``world`` alone, with a simulated step of ``step_s`` and a free fetch."""
    run = make_run()
    candidates = tuple(drained(world, setting) for setting in settings)
    return replace(
        run,
        environment=make_environment(cores=world.cores),
        data=replace(run.data, batch_size=world.batch_size),
        step=replace(run.step, name="simulated"),
        floor=Floor(step_s=interval(step_s), fetch_s=0.0, blocks=()),
        pipeline=users_pipeline(python=world.lock or world.wait_s > 0),
        candidates=candidates,
        current=candidates[0].id,
        recommendation=None,
    )
