"""The searches by name."""

from __future__ import annotations

from tfpipe.messages import Prepared
from tfpipe.runner.journal import Started
from tfpipe.runner.proposals import propose_candidates
from tfpipe.runner.search.base import Search
from tfpipe.runner.search.grid import GridSearch


def make_search(started: Started, prepared: Prepared, cores: int, *, max_memory_bytes: int | None = None) -> Search:
    """The search that ``started`` asks for.

    Args:
        cores: processors that the worker may use.
        max_memory_bytes: the resident memory that no proposal may surely exceed; None for any.

    Raises:
        UsageError: a list that this pipeline cannot follow, or a search whose package is not installed.
    """
    candidates = started.candidates
    if candidates is None:
        assert prepared.pipeline is not None
        candidates = propose_candidates(prepared.pipeline, started.knobs, cores=cores, yes=started.large_grid_allowed)
    if started.only_current:
        candidates = candidates[:1]
    return GridSearch(candidates=candidates)
