"""Candidates for a user's own pipeline: the pipeline as it is, and what its call sites would let one try. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tfpipe.analysis.operational.shape import shape_of
from tfpipe.errors import UsageError
from tfpipe.records import Pipeline
from tfpipe.runner.candidates import KNOBS
from tfpipe.settings import LARGE_GRID, NamedSettings, PipelineSettings, parse_list
from tfpipe.sites import (
    END_OPTIONS,
    END_PREFETCH,
    Axis,
    Finding,
    OverrideValue,
    Site,
    method_of,
    move_of,
    sites_on,
)

Overrides = dict[str, OverrideValue]

CURRENT = NamedSettings(name="your pipeline as it is", settings=PipelineSettings(overrides=()))
POOL = f"{END_OPTIONS}(threading.private_threadpool_size)"
DETERMINISTIC = f"{END_OPTIONS}(deterministic)"
REWRITES = f"{END_OPTIONS}(experimental_optimization.apply_default_optimizations)"
RAM_BUDGET = f"{END_OPTIONS}(autotune.ram_budget)"
PARALLEL_AXES: tuple[Axis, ...] = (
    "map_parallelism",
    "batch_parallelism",
    "interleave_parallelism",
    "read_parallelism",
)
# Calls in flight that hide the latency of a remote read or a sleeping function; the thread pool must allow them.
LATENCY_CALLS = 16


def propose_candidates(
    pipeline: Pipeline, knobs: Mapping[str, str | None], *, cores: int, yes: bool
) -> tuple[NamedSettings, ...]:
    """The user's pipeline first, then the product of the lists that were given, or what is worth trying first.

    A knob turns every site on its axis that the returned dataset depends on. ``batch-map`` swaps only where that was
    proven to be equal.

    Raises:
        UsageError: a list that cannot be read, a knob that this pipeline has no site for, or a grid of hundreds.
    """
    given = {name: text for name, text in knobs.items() if text is not None}
    if not given:
        return _named([("", {}), *_worth_trying(pipeline, cores)])
    axes = []
    for name, text in given.items():
        flag, parse = KNOBS[name]
        values = [_turn(pipeline, name, value, flag) for value in parse_list(flag, text, parse)]
        axes.append(values)
    combined = [{k: v for part in parts for k, v in part.items()} for parts in itertools.product(*axes)]
    if len(combined) > LARGE_GRID and not yes:
        raise UsageError(
            f"These lists make {len(combined):,} candidates, which takes hours.",
            "Shorten the lists, or add --yes if that is meant.",
        )
    return _named([("", {}), *(("", overrides) for overrides in combined)])


def _named(proposals: Sequence[tuple[str, Overrides]]) -> tuple[NamedSettings, ...]:
    """Without repeats; the first is the user's own."""
    seen: dict[PipelineSettings, NamedSettings] = {CURRENT.settings: CURRENT}
    for name, overrides in proposals:
        settings = PipelineSettings(overrides=tuple(sorted(overrides.items())))
        seen.setdefault(settings, NamedSettings(name=name, settings=settings))
    return tuple(seen.values())


def _turn(pipeline: Pipeline, knob: str, value: Any, flag: str) -> Overrides:
    """The overrides that set ``knob`` to ``value`` everywhere."""
    if knob == "threadpool":
        return {POOL: value} if value is not None else {}
    if knob == "deterministic":
        return {DETERMINISTIC: value}
    if knob == "rewrites":
        return {REWRITES: value == "default"}
    if knob == "order":
        return _batch_first(pipeline) if value == "batch-map" else {}
    if knob == "prefetch_depth":
        return {site.id: value for site in _last_prefetch(pipeline)}
    sites = sites_on("shuffle_buffer" if knob == "shuffle_buffer" else "map_parallelism", pipeline.sites)
    if not sites:
        raise UsageError(f"{flag}: the pipeline has no such stage.", "Leave the option out, or add the stage.")
    return {site.id: value for site in sites}


def _worth_trying(pipeline: Pipeline, cores: int) -> list[tuple[str, Overrides]]:
    auto = _parallel(pipeline, "auto", {})
    prefetch = _prefetch(pipeline, 2)
    and_prefetch = ", prefetch 2" if prefetch else ""
    prefetch_auto = _prefetch(pipeline, "auto")
    batch_first = _batch_first(pipeline)
    wide = _wide_interleave(pipeline)
    latency: Overrides = {**_parallel(pipeline, LATENCY_CALLS, {}), **wide, POOL: LATENCY_CALLS}
    proposals: list[tuple[str, Overrides]] = [
        ("prefetch 2 at the end", prefetch),
        ("all AUTOTUNE", {**auto, **prefetch_auto}),
        (f"{cores} calls in parallel{and_prefetch}", {**_parallel(pipeline, cores, {}), **prefetch}),
        (f"{LATENCY_CALLS} calls in flight on {LATENCY_CALLS} threads{and_prefetch}", {**latency, **prefetch}),
    ]
    if wide:
        proposals.append(("wide interleave, AUTOTUNE", {**auto, **wide, **prefetch_auto}))
    auto_batched = _parallel(pipeline, "auto", batch_first)
    if batch_first:
        proposals.append((f"batch before map{and_prefetch}", {**batch_first, **prefetch}))
        proposals.append(("batch before map, AUTOTUNE", {**auto_batched, **batch_first, **prefetch_auto}))
    suggested = [finding for finding in pipeline.findings if finding.sites]
    proposals += [(suggestion_name(finding), _suggested([finding])) for finding in suggested]
    if suggested:
        everything: Overrides = {**auto_batched, **batch_first, **_suggested(suggested), **prefetch_auto}
        proposals.append((f"{' and '.join(map(suggestion_name, suggested))}, AUTOTUNE", everything))
    if any(site.axis == "rewrites" and site.written and site.value is False for site in pipeline.sites):
        proposals.append(("TensorFlow's rewrites back on", {REWRITES: True}))
    return [(name, overrides) for name, overrides in proposals if overrides]


def suggestion_name(finding: Finding) -> str:
    """``take before cache``: what a finding's candidate does."""
    move = move_of(finding.sites[0])
    stage = method_of(finding.sites[0].partition("(")[0])
    if move is None:
        return f"a cache {'on disk ' if finding.value == 'disk' else ''}before {stage}"
    return f"{stage} {move.place} {method_of(move.partner)}"


def _suggested(findings: Sequence[Finding]) -> Overrides:
    return {site: finding.value for finding in findings for site in finding.sites}


def filled_batches(pipeline: Pipeline, overrides: Overrides) -> frozenset[str]:
    """The batches that the map in front of them fills, if they have no calls of their own: those keep TensorFlow from
    running both as one stage."""
    without = overrides | dict.fromkeys(site.id for site in sites_on("batch_parallelism", pipeline.sites))
    settings = PipelineSettings(overrides=tuple(sorted(without.items())))
    return shape_of(settings, pipeline, cores=1, batch_size=1).fused


def _parallel(pipeline: Pipeline, calls: OverrideValue, beside: Overrides) -> Overrides:
    """``calls`` on every parallel axis ``beside`` other overrides; none at a batch that a map fills, and at an
    interleave never more than its cycle has files, which TensorFlow refuses."""
    overrides: Overrides = {}
    filled = filled_batches(pipeline, beside)
    for axis in PARALLEL_AXES:
        for site in sites_on(axis, pipeline.sites):
            if site.stage in filled and not site.written:
                continue
            limit = _cycle_length(pipeline, site) if axis == "interleave_parallelism" else None
            value = min(calls, limit) if isinstance(calls, int) and isinstance(limit, int) else calls
            if not site.written or site.value != value:
                overrides[site.id] = value
    return overrides


def _cycle_length(pipeline: Pipeline, site: Site) -> int | None:
    cycles = [s.value for s in sites_on("cycle_length", pipeline.sites) if s.stage == site.stage and s.written]
    return next((value for value in cycles if isinstance(value, int) and value > 0), None)


def _wide_interleave(pipeline: Pipeline) -> Overrides:
    """Cycles as wide as calls in flight, where they are narrower, with calls to match."""
    overrides: Overrides = {}
    for site in sites_on("cycle_length", pipeline.sites):
        if isinstance(site.value, int) and 0 < site.value < LATENCY_CALLS:
            overrides[site.id] = LATENCY_CALLS
            for calls in sites_on("interleave_parallelism", pipeline.sites):
                if calls.stage == site.stage:
                    overrides[calls.id] = LATENCY_CALLS
    return overrides


def _prefetch(pipeline: Pipeline, depth: OverrideValue) -> Overrides:
    """``depth`` at the end unless the user has that much there already."""

    def enough(site: Site) -> bool:
        deep = isinstance(site.value, int) and isinstance(depth, int) and site.value >= depth
        return site.written and (site.value == "auto" or deep)

    return {site.id: depth for site in _last_prefetch(pipeline) if not enough(site)}


def _last_prefetch(pipeline: Pipeline) -> list[Site]:
    """The prefetch behind everything: the one that is there, or the one that could be added."""
    added = [site for site in pipeline.sites if site.id == END_PREFETCH]
    if added:
        return added
    return list(sites_on("prefetch_depth", pipeline.sites))[-1:]


def _batch_first(pipeline: Pipeline) -> Overrides:
    """The swaps that were proven equal; all maps in front of one batch, or none of them."""
    equal = {r.map_stage for r in pipeline.reorders if r.verdict == "equal"}
    orders = [site for site in sites_on("order", pipeline.sites) if move_of(site.id) is None]
    return {site.id: "batch-map" for site in orders if site.stage in equal}
