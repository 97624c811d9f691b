"""A limit for what AUTOTUNE buffers, where it could grow beyond the memory that a run may take. Pure."""

from __future__ import annotations

from dataclasses import replace

from tfpipe.analysis.memory import FRAGMENTATION
from tfpipe.analysis.operational.shape import example_bytes, shape_of, tuned_bytes
from tfpipe.messages import Prepared
from tfpipe.runner.forecast import forecast_candidate
from tfpipe.runner.proposals import RAM_BUDGET
from tfpipe.settings import NamedSettings
from tfpipe.units import format_bytes

# Budgets are whole multiples of this, to be read by people.
BUDGET_STEP_BYTES = 2**20


def within_memory(named: NamedSettings, prepared: Prepared, *, cores: int, max_memory_bytes: int) -> NamedSettings:
    """``named`` with a budget for AUTOTUNE's buffers where they could make the process larger than
    ``max_memory_bytes``.

    Itself where they cannot, where their size is not known, or where not even the smallest would do: one prefetched
    element beside what AUTOTUNE's calls hold. Of a user's own pipeline only: a built-in data set's depths are all tried
    as numbers.
    """
    pipeline, forecast = prepared.pipeline, forecast_candidate(named.settings, prepared)
    if pipeline is None or forecast is None:
        return named
    batch_size = prepared.data.batch_size
    each = example_bytes(pipeline, batch_size)
    if each is None:
        return named
    budget = int((max_memory_bytes - forecast.total_bytes) / FRAGMENTATION) // BUDGET_STEP_BYTES * BUDGET_STEP_BYTES
    settings = replace(
        named.settings, overrides=tuple(sorted({**dict(named.settings.overrides or ()), RAM_BUDGET: budget}.items()))
    )
    held, within = (
        tuned_bytes(shape_of(one, pipeline, cores=cores, batch_size=batch_size), each)
        for one in (named.settings, settings)
    )
    if held <= budget or within > budget:
        return named
    return NamedSettings(
        name=named.name and f"{named.name}, AUTOTUNE's buffers within {format_bytes(budget)}", settings=settings
    )
