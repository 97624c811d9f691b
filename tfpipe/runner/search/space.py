"""What a search chooses from: what it measures in any case, what is worth a try by itself, and all around that."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfpipe.records import Pipeline
from tfpipe.runner.proposals import (
    DETERMINISTIC,
    LATENCY_CALLS,
    PARALLEL_AXES,
    POOL,
    Overrides,
    filled_batches,
    propose_candidates,
)
from tfpipe.runner.search.knobs import KnobValues, axes_of, cycle_length, expense, knob_values
from tfpipe.settings import Depth, NamedSettings, Order, Parallelism, PipelineSettings
from tfpipe.sites import END_PREFETCH, OverrideValue, Site, sites_on

# Prefetch depths worth trying: none, the two that hide a fetch behind a step, one for bursts, and AUTOTUNE's.
DEPTHS: tuple[Depth, ...] = (0, 1, 2, 4, "auto")
# A search begins with so many of a list: what the user has, AUTOTUNE, and those least like them.
BEGINNING = 3
# No space is larger: predicting every setting after every round has to stay instant.
MAX_SPACE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """``first`` is measured in any case, what the user has leading. ``offered`` is worth a try by itself, also where
    nothing can be predicted; ``others`` only where something is expected of them.

    ``values`` and ``expenses`` are by id, as in ``knobs``.
    """

    first: tuple[NamedSettings, ...]
    offered: tuple[NamedSettings, ...]
    others: tuple[NamedSettings, ...]
    values: Mapping[str, KnobValues]
    expenses: Mapping[str, tuple[float, ...]]

    @property
    def everything(self) -> tuple[NamedSettings, ...]:
        return (*self.first, *self.offered, *self.others)


def make_space(
    first: Sequence[NamedSettings],
    offered: Sequence[NamedSettings],
    others: Iterable[NamedSettings],
    *,
    pipeline: Pipeline | None,
    cores: int,
    is_allowed: Callable[[PipelineSettings], bool],
) -> Space:
    """The space without repeats and without what is not allowed; the very first is what the user has."""
    seen: set[PipelineSettings] = set()

    def fresh(candidates: Iterable[NamedSettings], *, anyway: bool = False) -> tuple[NamedSettings, ...]:
        kept = []
        for named in candidates:
            if named.settings not in seen and len(seen) < MAX_SPACE and (anyway or is_allowed(named.settings)):
                seen.add(named.settings)
                kept.append(named)
        return tuple(kept)

    leading = fresh(first[:1], anyway=True) + fresh(first[1:])
    offers, rest = fresh(offered), fresh(others)
    values = knob_values((n.settings for n in (*leading, *offers, *rest)), pipeline)
    current, axes = values[leading[0].settings.id], axes_of(pipeline)
    expenses = {identity: expense(own, current, axes, cores=cores) for identity, own in values.items()}
    return Space(first=leading, offered=offers, others=rest, values=values, expenses=expenses)


def listed_beginning(candidates: Sequence[NamedSettings], pipeline: Pipeline | None) -> tuple[NamedSettings, ...]:
    """Where to begin in a long list: with its first, the one that leaves most to AUTOTUNE, and those that differ from
    all of these in the most knobs."""
    values = knob_values((n.settings for n in candidates), pipeline)

    def distance(one: NamedSettings, other: NamedSettings) -> int:
        a, b = values[one.settings.id], values[other.settings.id]
        return sum(a[knob] != b[knob] for knob in a)

    def left_to_autotune(named: NamedSettings) -> tuple[int, int]:
        own = values[named.settings.id].values()
        return sum(value == "auto" for value in own), -distance(named, candidates[0])

    chosen = list(dict.fromkeys((candidates[0], max(candidates, key=left_to_autotune))))
    while len(chosen) < min(BEGINNING, len(candidates)):
        chosen.append(max(candidates, key=lambda named: min(distance(named, known) for known in chosen)))
    return tuple(chosen)


def settings_around(current: PipelineSettings, *, orders: Sequence[Order], cores: int) -> list[NamedSettings]:
    """Settings of a built-in data set: every knob but the shuffle buffer, whose size is a matter of mixing and memory
    and not of speed."""
    return [
        NamedSettings(
            name="",
            settings=PipelineSettings(
                shuffle_buffer=current.shuffle_buffer,
                map_parallelism=parallelism,
                threadpool=pool,
                prefetch_depth=depth,
                order=order,
                deterministic=deterministic,
            ),
        )
        for (parallelism, pool), depth, order, deterministic in itertools.product(
            _calls_and_pools(cores), DEPTHS, orders, (True, False)
        )
        if deterministic or parallelism is not None
    ]


def overrides_around(pipeline: Pipeline, *, cores: int) -> list[NamedSettings]:
    """Settings of a user's pipeline: calls in parallel at all its stages but batches that a map fills, the threads they
    run on, the last prefetch's depth and order within batches, with none, one or two of the other changes that are
    worth trying."""
    proposals = [dict(n.settings.overrides or ()) for n in propose_candidates(pipeline, {}, cores=cores, yes=True)]
    prefetches = sites_on("prefetch_depth", pipeline.sites)
    last = [site for site in prefetches if site.id == END_PREFETCH] or prefetches[-1:]
    depths: list[Overrides] = [{}]
    depths += [{site.id: depth} for site in last for depth in DEPTHS]
    varied = {POOL, DETERMINISTIC, *(site.id for site in (*prefetches, *_parallel_sites(pipeline)))}
    changes = [change for p in proposals if (change := {k: v for k, v in p.items() if k not in varied})]
    unlike = [change for index, change in enumerate(changes) if change not in changes[:index]]
    together: list[Overrides] = [{}, *unlike, *(one | other for one, other in itertools.combinations(unlike, 2))]
    batch_calls = sites_on("batch_parallelism", pipeline.sites)
    there = dict.fromkeys(site.id for site in batch_calls)
    there |= {site.id: site.value for site in pipeline.sites if site.written}
    found = []
    for change in together:
        filled = filled_batches(pipeline, change)
        by_map: Overrides = {site.id: None for site in batch_calls if site.stage in filled}
        for (calls, pool), depth, order in itertools.product(
            _calls_and_pools(cores), depths, ({}, {DETERMINISTIC: False})
        ):
            overrides = change | depth | order | ({} if pool is None else {POOL: pool})
            if calls is not None:
                overrides |= _calls_everywhere(pipeline, calls, overrides, cores=cores)
            overrides |= by_map
            turned = sorted((k, v) for k, v in overrides.items() if k not in there or there[k] != v)
            found.append(NamedSettings(name="", settings=PipelineSettings(overrides=tuple(turned))))
    return found


def _parallel_sites(pipeline: Pipeline) -> list[Site]:
    return [site for axis in PARALLEL_AXES for site in sites_on(axis, pipeline.sites)]


def _calls_everywhere(pipeline: Pipeline, calls: OverrideValue, overrides: Overrides, *, cores: int) -> Overrides:
    """``calls`` at every stage that can have several, at an interleave no more than its cycle has elements."""
    everywhere: Overrides = {}
    for site in _parallel_sites(pipeline):
        limit = cycle_length(site, pipeline, overrides, cores=cores)
        everywhere[site.id] = min(calls, limit) if isinstance(calls, int) and limit is not None else calls
    return everywhere


def _calls_and_pools(cores: int) -> list[tuple[Parallelism, int | None]]:
    """Calls in parallel and the threads they run on: up to the cores those that are there. More calls than cores find
    as many threads where they wait instead of computing, or queue for those that are there, which spares threads that
    do little from waking each other."""
    within = sorted({cores, *(2**n for n in range(1, cores.bit_length()) if 2**n <= cores)} - {1})
    beyond = [cores * 2**n for n in range(1, max(2, (LATENCY_CALLS // cores).bit_length()))]
    return [
        *((None, None), ("auto", None)),
        *((calls, None) for calls in within),
        *((calls, pool) for calls in beyond for pool in (None, calls)),
        ("auto", beyond[-1]),
    ]
