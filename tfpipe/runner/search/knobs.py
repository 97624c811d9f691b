"""One candidate as a value per knob, alike for a built-in data set's settings and for a user's call sites."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import TypeAlias

from tfpipe.records import Pipeline
from tfpipe.runner.proposals import DETERMINISTIC
from tfpipe.settings import PipelineSettings
from tfpipe.sites import OverrideValue, Site, SiteValue, sites_on

KnobValues: TypeAlias = dict[str, SiteValue]

_SETTINGS = tuple(field.name for field in fields(PipelineSettings) if field.name != "overrides")
_CALLS = {"map_parallelism", "batch_parallelism", "interleave_parallelism", "read_parallelism"}
_COUNTS = {*_CALLS, "prefetch_depth", "threadpool", "cycle_length", "shuffle_buffer"}


def knob_values(candidates: Iterable[PipelineSettings], pipeline: Pipeline | None) -> dict[str, KnobValues]:
    """Values by candidate's id; the same knobs for each: those that differ anywhere.

    Of a user's pipeline a knob is a site's id, and its value where it is not overridden the one in the code.
    """
    candidates = tuple(candidates)
    written = {} if pipeline is None else {site.id: site.value for site in pipeline.sites}
    turned = {site for c in candidates for site, _ in c.overrides or ()}
    values: dict[str, KnobValues] = {}
    for candidate in candidates:
        if candidate.overrides is None:
            values[candidate.id] = {name: getattr(candidate, name) for name in _SETTINGS}
        else:
            # What is added or moved has no site: it is not there as the code stands.
            values[candidate.id] = {site: written.get(site, False) for site in turned} | dict(candidate.overrides)
    return values


def axes_of(pipeline: Pipeline | None) -> dict[str, str]:
    """The axis of each knob: its own name, or that of the user's site."""
    return {name: name for name in _SETTINGS} | (
        {} if pipeline is None else {site.id: site.axis for site in pipeline.sites}
    )


def expense(values: KnobValues, current: KnobValues, axes: Mapping[str, str], *, cores: int) -> tuple[float, ...]:
    """What a candidate costs in memory, threads and change, knob by knob: two are compared only where one costs no more
    in any knob.

    A count costs itself; AUTOTUNE may use every core, and any depth. Anything else costs 1 where it is not what the
    user has.
    """
    return tuple(_expense(axes.get(knob, ""), values[knob], current[knob], cores) for knob in sorted(values))


def _expense(axis: str, value: SiteValue, current: SiteValue, cores: int) -> float:
    if axis not in _COUNTS:
        return float(value != current)
    if value == "auto":
        return cores if axis in _CALLS or axis == "cycle_length" else math.inf
    if value == "full":
        return math.inf
    return float(value) if isinstance(value, int | float) else 0.0


def costs_no_more(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether ``one`` costs no more than ``other`` in any knob."""
    return all(a <= b for a, b in zip(one, other, strict=True))


def in_order(settings: PipelineSettings) -> PipelineSettings:
    """The same with the examples in the order of the source; ``settings`` itself where they are."""
    if settings.overrides is None:
        return settings if settings.deterministic else replace(settings, deterministic=True)
    kept = tuple((site, value) for site, value in settings.overrides if (site, value) != (DETERMINISTIC, False))
    return settings if kept == settings.overrides else replace(settings, overrides=kept)


def is_cheaper(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether ``one`` costs no more than ``other`` in any knob and less in some."""
    return one != other and costs_no_more(one, other)


def refused(settings: PipelineSettings, pipeline: Pipeline | None, *, cores: int) -> str | None:
    """Why TensorFlow would refuse these settings; None when it would not.

    An interleave takes no more calls than its cycle has elements.
    """
    if pipeline is None:
        return None
    overrides = dict(settings.overrides or ())
    for site in sites_on("interleave_parallelism", pipeline.sites):
        calls = overrides.get(site.id, site.value)
        length = cycle_length(site, pipeline, overrides, cores=cores)
        if isinstance(calls, int) and length is not None and calls > length:
            return f"{site.where}: {calls} calls are more than the {length} elements of the interleave's cycle"
    return None


def cycle_length(site: Site, pipeline: Pipeline, overrides: Mapping[str, OverrideValue], *, cores: int) -> int | None:
    """The elements that an interleave, whose calls are set at ``site``, has open at a time; None for other stages.

    A cycle that is left to TensorFlow has as many as there are cores (2.21, whatever the size of the thread pool).
    """
    if site.axis != "interleave_parallelism":
        return None
    cycle = next((s for s in sites_on("cycle_length", pipeline.sites) if s.stage == site.stage), None)
    length = None if cycle is None else overrides.get(cycle.id, cycle.value)
    if length in (None, "auto"):
        return cores
    return length if isinstance(length, int) else None
