"""The searches by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tfpipe.analysis.memory import fits
from tfpipe.analysis.recommend import AUTOTUNE
from tfpipe.errors import UsageError
from tfpipe.messages import Prepared
from tfpipe.records import Pipeline
from tfpipe.runner.forecast import forecast_candidate
from tfpipe.runner.journal import Started
from tfpipe.runner.proposals import DETERMINISTIC, PARALLEL_AXES, POOL, propose_candidates
from tfpipe.runner.search.base import Search
from tfpipe.runner.search.budget import within_memory
from tfpipe.runner.search.grid import GridSearch
from tfpipe.runner.search.knobs import refused
from tfpipe.runner.search.model import ModelSearch
from tfpipe.runner.search.sampling import OptunaSearch, RandomSearch
from tfpipe.runner.search.space import MAX_SPACE, listed_beginning, make_space, overrides_around, settings_around
from tfpipe.settings import ORDERS, NamedSettings, PipelineSettings
from tfpipe.sites import OverrideValue, cached_stage, sites_on

# A list of so few is measured whole: whoever wrote it wants to see every row.
SMALL_LIST = 8


def make_search(started: Started, prepared: Prepared, cores: int, *, max_memory_bytes: int | None = None) -> Search:
    """The search that ``started`` asks for.

    Args:
        cores: processors that the worker may use.
        max_memory_bytes: the resident memory that no proposal may surely exceed, nor come to exceed by what AUTOTUNE
            buffers; None for any.

    Raises:
        UsageError: a list that this pipeline cannot follow, or one too long to search.
    """
    pipeline = prepared.pipeline
    candidates = started.candidates
    if candidates is None:
        assert pipeline is not None
        candidates = propose_candidates(pipeline, started.knobs, cores=cores, yes=started.large_grid_allowed)
    if started.only_current:
        return GridSearch(candidates=candidates[:1])
    listed = bool(started.knobs) or (pipeline is not None and started.candidates is not None)
    if started.search == "grid" or (started.search == "model" and listed and len(candidates) <= SMALL_LIST):
        return GridSearch(candidates=candidates)

    def is_allowed(settings: PipelineSettings) -> bool:
        if refused(settings, pipeline, cores=cores) is not None:
            return False
        forecast = None if max_memory_bytes is None else forecast_candidate(settings, prepared)
        return forecast is None or max_memory_bytes is None or fits(forecast, max_memory_bytes) is None

    first: Sequence[NamedSettings]
    offered: Sequence[NamedSettings] = ()
    others: Sequence[NamedSettings]
    if listed and len(candidates) > MAX_SPACE:
        raise UsageError(
            f"These lists make {len(candidates):,} candidates; a search chooses among at most {MAX_SPACE:,}.",
            "Shorten the lists.",
        )
    if listed:
        first, others = listed_beginning(candidates, pipeline), candidates
    elif pipeline is not None:
        first, offered = _beginning(candidates, pipeline), candidates
        others = overrides_around(pipeline, cores=cores)
        if max_memory_bytes is not None:
            bounded = partial(within_memory, prepared=prepared, cores=cores, max_memory_bytes=max_memory_bytes)
            first = [first[0], *map(bounded, first[1:])]
            offered, others = [*map(bounded, offered)], [*map(bounded, others)]
    else:
        first = candidates
        others = settings_around(candidates[0].settings, orders=ORDERS[prepared.data.name], cores=cores)
    space = make_space(first, offered, others, pipeline=pipeline, cores=cores, is_allowed=is_allowed)
    seed, tolerance = started.workload.seed, started.search_tolerance
    if started.search == "random":
        return RandomSearch(space=space, seed=seed, tolerance=tolerance)
    if started.search == "optuna":
        return OptunaSearch(space=space, seed=seed, tolerance=tolerance)
    return ModelSearch(space=space, tolerance=tolerance)


def _beginning(proposed: Sequence[NamedSettings], pipeline: Pipeline) -> tuple[NamedSettings, ...]:
    """The user's own pipeline, all AUTOTUNE, the one with most calls in parallel, and one of each change to the work
    itself (another order): from what AUTOTUNE chooses, which is about the cores, no model can tell what more calls
    would bring, nor from one order what another costs. What a cache spares it can tell, so that is predicted first."""
    parallel = {site.id for axis in PARALLEL_AXES for site in sites_on(axis, pipeline.sites)}
    amounts = {*parallel, POOL, DETERMINISTIC, *(site.id for site in sites_on("prefetch_depth", pipeline.sites))}
    autotuned = [named for named in proposed if named.name == AUTOTUNE]
    numbered = [
        named
        for named in proposed
        if any(site in parallel and isinstance(value, int) for site, value in named.settings.overrides or ())
        and not any(site not in amounts for site, _ in named.settings.overrides or ())
    ]
    changed: dict[tuple[tuple[str, OverrideValue], ...], NamedSettings] = {}
    for named in proposed:
        work = tuple(pair for pair in named.settings.overrides or () if pair[0] not in amounts)
        if work and not any(cached_stage(site) for site, _ in work):
            changed.setdefault(work, named)
    return tuple(dict.fromkeys([proposed[0], *autotuned, *numbered[-1:], *changed.values()]))
