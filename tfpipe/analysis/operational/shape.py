"""What settings make of a pipeline: its stages as TensorFlow would run them, with calls, threads and buffers. Pure.

Read from the settings and, of a user's pipeline, from its stages and call sites; the rewrites are TensorFlow 2.21's:

- a map that is followed by a batch is fused with it: calls write into the batch, so that within one no example waits
  for its turn (``map_and_batch_fusion``; of the batches that are being filled there are as many as needed, up to 16);
- a map without ``num_parallel_calls`` whose function has no state gets AUTOTUNE's (``map_parallelization``);
- behind the last stage comes ``prefetch(AUTOTUNE)`` unless it is a prefetch already (``inject_prefetch``).

AUTOTUNE's calls end at the size of tf.data's thread pool, which is the number of cores unless it is set. Its
``cpu_budget`` is read by no algorithm that it uses unasked; its ``ram_budget`` ends the deepening of a prefetch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tfpipe.records import Pipeline
from tfpipe.settings import PipelineSettings
from tfpipe.sites import AUTOTUNE_VALUE, Axis, OverrideValue, Site, SiteValue, cached_stage, move_of, sites_on
from tfpipe.sites import Stage as Call

Kind = Literal["serial", "map", "batch", "interleave", "prefetch"]

# AUTOTUNE deepens a prefetch, doubling, for as long as it is found empty; more than this would be needed only for
# stalls that no buffer of a reasonable size covers. It is also the most batches that a fused map fills at once.
AUTOTUNED_DEPTH = 16
# Axes on which a value only says how many run at once, how much is held, and in which order results are handed out:
# what an example costs stays the same.
CONCURRENCY_AXES: frozenset[Axis] = frozenset(
    {
        "map_parallelism",
        "batch_parallelism",
        "interleave_parallelism",
        "read_parallelism",
        "cycle_length",
        "prefetch_depth",
        "shuffle_buffer",
        "threadpool",
        "deterministic",
        "rewrites",
        "autotune",
        "autotune_cpu_budget",
        "autotune_ram_budget_bytes",
    }
)

Variant = tuple[tuple[str, SiteValue], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage, or the cheap ones that stand together in front of another (``serial``).

    Attributes:
        name: a user's stage by its id; ``map``, ``batch``, ``prefetch`` of a built-in data set; ``before X`` for what
            stands in front of X, ``end`` for what comes last.
        calls: calls at the same time.
        ahead: examples that it holds ready; None for a stage that works only when it is asked, in its reader's thread.
        pooled: its function runs on the threads of tf.data's pool.
        ordered: results are handed out in the order they were asked for.
        tuned: AUTOTUNE chooses the calls, of a prefetch the depth, at most so many.
        python: its function runs Python.
        waits: it may wait for something outside the machine: it reads, or calls Python.
        inner: it belongs to the inner pipelines of an interleave, each of which has its calls.
    """

    name: str
    kind: Kind
    calls: int = 1
    ahead: float | None = None
    pooled: bool = False
    ordered: bool = False
    tuned: bool = False
    python: bool = False
    waits: bool = False
    inner: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """``stages``, source first. Two shapes of one ``variant`` do the same work per example. ``threads`` are the pool's;
    ``fused`` are batch stages that a map fills."""

    stages: tuple[Stage, ...]
    variant: Variant
    threads: int
    rewrites: bool
    deterministic: bool
    fused: frozenset[str] = frozenset()

    def stage(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)


def shape_of(settings: PipelineSettings, pipeline: Pipeline | None, *, cores: int, batch_size: int) -> Shape:
    """The shape of ``settings`` on a machine of ``cores``.

    Args:
        pipeline: the user's own; None for a built-in data set.
        batch_size: examples per batch.
    """
    if settings.overrides is None or pipeline is None:
        return _built_in(settings, cores=cores, batch_size=batch_size)
    return _users(dict(settings.overrides), pipeline, cores=cores, batch_size=batch_size)


# --- a built-in data set -------------------------------------------------------------------------------------


def _built_in(settings: PipelineSettings, *, cores: int, batch_size: int) -> Shape:
    threads = settings.threadpool or cores
    rewrites = settings.rewrites == "default"
    calls: SiteValue = settings.map_parallelism
    if calls is None and rewrites:
        calls = "auto"
    batch_first = settings.order == "batch-map"
    mapped = Stage(name="map", kind="map", pooled=True)
    if calls is not None:
        number = threads if calls == "auto" else int(calls)
        ahead = number * batch_size if batch_first else number
        mapped = replace(mapped, calls=number, ahead=ahead, ordered=settings.deterministic, tuned=calls == "auto")
    batch = Stage(name="batch", kind="batch")
    stages = [batch, mapped] if batch_first else [mapped, batch]
    fused = frozenset[str]()
    if rewrites and not batch_first:
        stages = [_filling(mapped, batch_size), batch]
        fused = frozenset({"batch"})
    first = Stage(name=f"before {stages[0].name}", kind="serial", waits=True)
    depth = settings.prefetch_depth
    last = _prefetch("prefetch", "auto" if depth == 0 and rewrites else depth, batch_size, AUTOTUNED_DEPTH)
    return Shape(
        stages=(first, *stages, *last),
        variant=(("order", settings.order),),
        threads=threads,
        rewrites=rewrites,
        deterministic=settings.deterministic,
        fused=fused,
    )


def _filling(mapped: Stage, batch_size: int) -> Stage:
    """A map that fills batches: at least as many as its calls are at work on."""
    return replace(mapped, ahead=batch_size * math.ceil(mapped.calls / batch_size), ordered=False)


def _prefetch(name: str, depth: SiteValue, per_element: float, deepest: int) -> tuple[Stage, ...]:
    """``deepest`` is how many elements, of ``per_element`` examples each, AUTOTUNE comes to."""
    if not depth:
        return ()
    elements = deepest if depth == "auto" else int(depth)
    return (Stage(name=name, kind="prefetch", ahead=elements * per_element, tuned=depth == "auto"),)


# --- a user's pipeline ---------------------------------------------------------------------------------------

_MAPS = {"map", "map_with_legacy_function"}
BATCHES = {"batch", "padded_batch", "ragged_batch"}
_INTERLEAVES = {"interleave", "flat_map"}
# Methods that read files or call Python: where a pipeline may wait without computing.
_READERS = {
    "from_generator",
    "TFRecordDataset",
    "TextLineDataset",
    "FixedLengthRecordDataset",
    "CsvDataset",
    "list_files",
    "make_csv_dataset",
    "load",
}


@dataclass(frozen=True, slots=True)
class _Reading:
    """The value of each argument under ``overrides``."""

    overrides: Mapping[str, OverrideValue]
    pipeline: Pipeline
    cores: int

    def of(self, axis: Axis, stage: str) -> SiteValue:
        """The value at ``stage``; None where nothing is given."""
        for site in self.pipeline.sites:
            if site.axis == axis and site.stage == stage:
                return self._value(site)
        return None

    def option(self, axis: Axis) -> SiteValue:
        """Of the whole dataset; the one at the end wins over the factory's own."""
        values = [self._value(site) for site in sites_on(axis, self.pipeline.sites) if site.kind in ("end", "option")]
        return next((value for value in reversed(values) if value is not None), None)

    def _value(self, site: Site) -> SiteValue:
        if site.id in self.overrides:
            return self.overrides[site.id]
        return site.value if site.written else None


def _users(overrides: Mapping[str, OverrideValue], pipeline: Pipeline, *, cores: int, batch_size: int) -> Shape:
    reading = _Reading(overrides, pipeline, cores)
    pool, rewrites = reading.option("threadpool"), reading.option("rewrites") is not False
    threads = pool if isinstance(pool, int) and pool > 0 else cores
    deterministic = reading.option("deterministic") is not False
    calls = _in_order([stage for stage in pipeline.stages if stage.reaches_end], overrides, pipeline)
    budget, bytes_each = reading.option("autotune_ram_budget_bytes"), example_bytes(pipeline, batch_size)
    outer = [call for call in calls if call.parent is None]
    stages: list[Stage] = []
    fused: set[str] = set()
    per_element = 1.0
    pending: list[Call] = []
    for index, call in enumerate(outer):
        following = outer[index + 1] if index + 1 < len(outer) else None
        if call.method in _MAPS:
            made = [_map(call, reading, threads, rewrites, deterministic, per_element)]
            if rewrites and following is not None and _is_fused(following, reading):
                made = [_filling(made[0], batch_size)]
                fused.add(following.id)
        elif call.method in BATCHES:
            made = [_batch(call, reading, threads, deterministic, batch_size, fused)]
            per_element = batch_size
        elif call.method in _INTERLEAVES:
            made = _interleave(call, calls, reading, threads, rewrites, deterministic)
        elif call.method in _READERS and reading.of("read_parallelism", call.id) is not None:
            made = [_parallel_reads(call, reading, threads, deterministic)]
        elif call.method == "prefetch":
            deepest = _deepest(stages, budget, bytes_each, per_element)
            made = list(_prefetch(call.id, reading.of("prefetch_depth", call.id), per_element, deepest))
        elif call.method == "unbatch":
            per_element, made = 1.0, []
            pending.append(call)
        else:
            made = []
            pending.append(call)
        if made and (pending or not stages):
            stages.append(_serial(f"before {made[0].name}", pending))
            pending = []
        stages += made
    if pending:
        stages.append(_serial("end", pending))
    depth = overrides.get("end:prefetch(buffer_size)", 0)
    autotuned = reading.option("autotune") is not False
    if not depth and rewrites and autotuned and (not stages or stages[-1].kind != "prefetch"):
        depth = "auto"
    stages += _prefetch("end:prefetch", depth, batch_size, _deepest(stages, budget, bytes_each, batch_size))
    return Shape(
        stages=tuple(stages),
        variant=_variant(overrides, pipeline),
        threads=threads,
        rewrites=rewrites,
        deterministic=deterministic,
        fused=frozenset(fused),
    )


def example_bytes(pipeline: Pipeline, batch_size: int) -> float | None:
    """One example as the step gets it; None where they differ in size."""
    batch_bytes = bytes_before(pipeline, None)
    return None if batch_bytes is None else batch_bytes / batch_size


def tuned_bytes(shape: Shape, bytes_each: float) -> float:
    """The most that AUTOTUNE's calls and prefetches come to hold, at ``bytes_each`` per example."""
    return bytes_each * sum(stage.ahead or 0.0 for stage in shape.stages if stage.tuned)


def _deepest(stages: Sequence[Stage], budget: SiteValue, bytes_each: float | None, per_element: float) -> int:
    """To how many elements AUTOTUNE deepens a prefetch behind ``stages``: it doubles them while what they come to hold
    fits the budget in bytes, of which its calls have their part."""
    if not isinstance(budget, int) or not bytes_each:
        return AUTOTUNED_DEPTH
    room = budget / bytes_each - sum(stage.ahead or 0.0 for stage in stages if stage.tuned)
    doublings = int(math.log2(max(1.0, room / per_element)))
    return min(AUTOTUNED_DEPTH, int(2**doublings))


def _variant(overrides: Mapping[str, OverrideValue], pipeline: Pipeline) -> Variant:
    """What is overridden apart from concurrency; a value that is in the code already is none."""
    axes = {site.id: site.axis for site in pipeline.sites}
    axes["end:prefetch(buffer_size)"] = "prefetch_depth"
    written = {site.id: site.value for site in pipeline.sites}
    return tuple(
        sorted(
            (site, value)
            for site, value in overrides.items()
            if axes.get(site) not in CONCURRENCY_AXES and written.get(site) != value
        )
    )


def _in_order(calls: Sequence[Call], overrides: Mapping[str, OverrideValue], pipeline: Pipeline) -> list[Call]:
    """``calls`` with maps behind their batch where their order is overridden."""
    found = list(calls)
    for site in sites_on("order", pipeline.sites):
        if overrides.get(site.id) != "batch-map":
            continue
        moved = next((call for call in found if call.id == site.stage), None)
        ids = [call.id for call in found]
        if moved is not None and site.partner in ids:
            found.remove(moved)
            # Behind the batch and behind the maps that were moved there before.
            place = [call.id for call in found].index(site.partner) + 1
            while (
                place < len(found) and found[place].method in _MAPS and ids.index(found[place].id) < ids.index(moved.id)
            ):
                place += 1
            found.insert(place, moved)
    return found


def _serial(name: str, calls: Sequence[Call]) -> Stage:
    python = any(call.method == "from_generator" or call.python for call in calls)
    return Stage(name=name, kind="serial", python=python, waits=python or any(c.method in _READERS for c in calls))


def _is_tuned(value: SiteValue) -> bool:
    return value in ("auto", AUTOTUNE_VALUE)


def _calls(value: SiteValue, threads: int) -> int | None:
    """The number of calls; None for a stage without any of its own."""
    if value is None:
        return None
    return threads if _is_tuned(value) else max(1, int(value))


def _is_fused(following: Call, reading: _Reading) -> bool:
    """Whether a map in front of ``following`` is fused with it."""
    return following.method == "batch" and reading.of("batch_parallelism", following.id) is None


def _map(call: Call, reading: _Reading, threads: int, rewrites: bool, deterministic: bool, per_element: float) -> Stage:
    value = reading.of("map_parallelism", call.id)
    stateful = call.random or call.python or call.stateful
    if value is None and rewrites and not stateful:
        value = "auto"
    number = _calls(value, threads)
    ordered = deterministic and reading.of("deterministic", call.id) is not False
    stage = Stage(name=call.id, kind="map", pooled=True, python=call.python, waits=call.python)
    if number is None:
        return stage
    return replace(stage, calls=number, ahead=number * per_element, ordered=ordered, tuned=_is_tuned(value))


def _batch(call: Call, reading: _Reading, threads: int, deterministic: bool, batch_size: int, fused: set[str]) -> Stage:
    value = None if call.id in fused else reading.of("batch_parallelism", call.id)
    number = _calls(value, threads)
    stage = Stage(name=call.id, kind="batch")
    if number is None:
        return stage
    ordered = deterministic and reading.of("deterministic", call.id) is not False
    return replace(stage, calls=number, ahead=number * batch_size, ordered=ordered, tuned=_is_tuned(value), pooled=True)


def _interleave(
    call: Call, calls: Sequence[Call], reading: _Reading, threads: int, rewrites: bool, deterministic: bool
) -> list[Stage]:
    """The interleave with what its inner pipelines do one by one, in front of it each inner map with calls of its own,
    which every open inner pipeline has."""
    inner = [one for one in calls if one.parent == call.id]
    cycle = reading.of("cycle_length", call.id) if call.method == "interleave" else 1
    width = int(cycle) if isinstance(cycle, int) and cycle > 0 else reading.cores
    value = reading.of("interleave_parallelism", call.id)
    number = _calls(value, threads)
    made = []
    python = pooled = False
    for one in inner:
        if one.method not in _MAPS:
            continue
        stage = _map(one, reading, threads, rewrites=False, deterministic=deterministic, per_element=1.0)
        if stage.ahead is None:
            python, pooled = python or one.python, True
        else:
            made.append(replace(stage, calls=stage.calls * width, ahead=stage.ahead * width, inner=True))
    stage = Stage(name=call.id, kind="interleave", pooled=pooled, python=python, waits=True)
    if number is not None:
        ordered = deterministic and reading.of("deterministic", call.id) is not False
        number = min(number, width)
        stage = replace(stage, calls=number, ahead=number, ordered=ordered, tuned=_is_tuned(value))
    return [*made, stage]


def _parallel_reads(call: Call, reading: _Reading, threads: int, deterministic: bool) -> Stage:
    """A reader of several files at a time, which TensorFlow makes an interleave."""
    value = reading.of("read_parallelism", call.id)
    number = _calls(value, threads) or 1
    return Stage(
        name=call.id,
        kind="interleave",
        calls=number,
        ahead=number,
        ordered=deterministic,
        tuned=_is_tuned(value),
        waits=True,
    )


# --- what a cache leaves to do --------------------------------------------------------------------------------


def first_drawn(pipeline: Pipeline) -> str | None:
    """The first call that a cache must not stand behind, because it draws, shuffles or batches; None without any."""
    inside = {call.parent for call in pipeline.stages if call.random}
    for call in _outer(pipeline):
        if call.random or call.id in inside or call.method == "shuffle" or call.method in BATCHES:
            return call.id
    return None


def without_caches(variant: Variant) -> tuple[Variant, dict[str, SiteValue]]:
    """The same work without the caches that are added to it, and these: what each is, by the call it stands before."""
    added = {stage: value for site, value in variant if (stage := cached_stage(site)) is not None}
    return tuple(pair for pair in variant if cached_stage(pair[0]) is None), added


def left_by_cache(shape: Shape, pipeline: Pipeline | None, before: str | None) -> frozenset[str]:
    """The stages of ``shape`` that go on working when a full cache stands in front of the call ``before``.

    None is the end of a user's pipeline. Of a built-in data set all but its source is left.
    """
    names = [stage.name for stage in shape.stages]
    if pipeline is None:
        return frozenset(names[1:])
    calls, place = _outer(pipeline), _place(pipeline, before)
    behind = {call.id for call in calls[place:]}
    first = next((index for index, name in enumerate(names) if name in _with_inner(behind, pipeline)), len(names))
    left = set(names[first:])
    # What stands together in front of it is left where all of that comes behind the cache.
    if place > 0 and calls[place - 1].id in names:
        left.add(f"before {names[first]}" if first < len(names) else "end")
    for site, _ in shape.variant:
        move = move_of(site)
        if move is not None and move.place == "behind" and move.partner in behind:
            left.add(move.stage)
        elif move is not None and move.place == "before" and move.partner not in behind:
            left.discard(move.stage)
    return frozenset(left)


def examples_before(pipeline: Pipeline | None, before: str | None, batch_size: int) -> int:
    """Examples in an element in front of the call ``before``."""
    examples = 1
    for call in () if pipeline is None else _outer(pipeline)[: _place(pipeline, before)]:
        examples = batch_size if call.method in BATCHES else 1 if call.method == "unbatch" else examples
    return examples


def bytes_before(pipeline: Pipeline, before: str | None) -> int | None:
    """Of an element in front of the call ``before``; None where its size is not fixed."""
    calls, place = _outer(pipeline), _place(pipeline, before)
    return calls[place - 1].element_bytes if place > 0 else None


def _outer(pipeline: Pipeline) -> list[Call]:
    return [call for call in pipeline.stages if call.reaches_end and call.parent is None]


def _place(pipeline: Pipeline, before: str | None) -> int:
    calls = _outer(pipeline)
    return next((index for index, call in enumerate(calls) if call.id == before), len(calls))


def _with_inner(ids: set[str], pipeline: Pipeline) -> set[str]:
    return ids | {call.id for call in pipeline.stages if call.parent in ids}


# --- how alike two shapes are --------------------------------------------------------------------------------

# Of two shapes of one variant: what it counts when calls at work, calls asked for or threads differ by a factor of two;
# when a stage has calls of its own in one and not in the other; when one is rewritten, keeps the order or is tuned and
# the other is not. Chosen so that one unit is about a tenth of the rate on tests/bench/bench_prediction.py's workloads.
EFFECTIVE, ASKED, POOL = 1.0, 0.5, 0.25
OWN_CALLS, REWRITTEN, ORDERED, TUNED = 1.0, 1.0, 0.5, 0.25


def distance(one: Shape, other: Shape) -> float:
    """How unlike the capacities of two shapes of one variant may be; 0 where nothing that matters differs."""
    total = POOL * abs(math.log2(one.threads / other.threads))
    total += REWRITTEN * (one.rewrites != other.rewrites)
    names = {stage.name for shape in (one, other) for stage in shape.stages if stage.kind != "prefetch"}
    for name in names:
        a, b = one.stage(name), other.stage(name)
        if a is None or b is None:
            continue
        total += OWN_CALLS * ((a.ahead is None) != (b.ahead is None))
        total += ORDERED * (a.ordered != b.ordered) + TUNED * (a.tuned != b.tuned)
        total += ASKED * abs(math.log2(a.calls / b.calls))
        at_work = min(a.calls, one.threads) / min(b.calls, other.threads)
        total += EFFECTIVE * abs(math.log2(at_work))
    return total
