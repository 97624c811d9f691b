"""A budget for AUTOTUNE's buffers: what it makes of a pipeline, and where it is offered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.unit.machine import prepared, started, workload
from tests.unit.paper_pipeline import CALLS, Setting, World, overrides_of, users_pipeline, world_run
from tests.unit.test_report_user_pipeline import make_site
from tfpipe.analysis.memory import FRAGMENTATION
from tfpipe.analysis.operational import build_model
from tfpipe.analysis.operational.shape import AUTOTUNED_DEPTH, shape_of
from tfpipe.messages import MemoryFacts, Prepared
from tfpipe.records import Pipeline
from tfpipe.runner.proposals import RAM_BUDGET, REWRITES
from tfpipe.runner.search import make_search
from tfpipe.runner.search.budget import within_memory
from tfpipe.runner.search.model import ModelSearch
from tfpipe.settings import NamedSettings, PipelineSettings
from tfpipe.sites import END_PREFETCH, OverrideValue

MIB = 2**20
BATCH = 10 * MIB
BATCH_SIZE = 32


def pipeline(batch_bytes: int | None = BATCH) -> Pipeline:
    """range, map, batch; the batch is of ``batch_bytes``."""
    made = users_pipeline(python=True)
    *before, batch = made.stages
    budget = make_site(
        RAM_BUDGET, "", kind="end", stage="", line=None, argument="autotune.ram_budget",
        axis="autotune_ram_budget_bytes",
    )  # fmt: skip
    return replace(made, sites=(*made.sites, budget), stages=(*before, replace(batch, element_bytes=batch_bytes)))


def depth(budget: int | None, **overrides: OverrideValue) -> float:
    """Batches that AUTOTUNE's last prefetch comes to hold."""
    turned: dict[str, OverrideValue] = {END_PREFETCH: "auto", **overrides}
    if budget is not None:
        turned[RAM_BUDGET] = budget
    settings = PipelineSettings(overrides=tuple(sorted(turned.items())))
    shape = shape_of(settings, pipeline(), cores=2, batch_size=BATCH_SIZE)
    return (shape.stages[-1].ahead or 0.0) / BATCH_SIZE


@pytest.mark.parametrize(
    ("budget", "expected"),
    [(None, AUTOTUNED_DEPTH), (1000 * BATCH, AUTOTUNED_DEPTH), (9 * BATCH, 8), (4 * BATCH, 4), (3 * BATCH, 2), (1, 1)],
)
def test_a_prefetch_doubles_while_the_budget_has_room(budget: int | None, expected: int) -> None:
    assert depth(budget) == expected


def test_what_autotune_s_calls_hold_has_its_part_of_the_budget() -> None:
    assert depth(4 * BATCH, **{CALLS: "auto"}) == 2, "the batch that is being filled"
    assert depth(4 * BATCH, **{CALLS: 2}) == 4
    apart: dict[str, OverrideValue] = {CALLS: "auto", REWRITES: False}
    assert depth(4 * BATCH, **apart) == 2, "two examples"


def test_a_number_of_batches_is_no_concern_of_the_budget() -> None:
    assert depth(BATCH, **{END_PREFETCH: 4}) == 4


def test_a_budget_costs_nothing_while_the_depth_that_bursts_need_fits() -> None:
    """A batch every fifth of which takes five times as long, behind a step that is slower than it on average."""
    world = World(wait_s=0.001, slow=40, every=20)
    run = world_run(world, (Setting(calls=None, fused=False, depth=1),), step_s=0.025)
    run = replace(run, pipeline=replace(pipeline(8 * MIB)), data=replace(run.data, batch_size=8))
    model = build_model(run)
    assert model is not None

    def step_s(budget: int | None) -> float:
        turned = dict(overrides_of(Setting(calls=None, fused=False)).overrides or ())
        turned |= {END_PREFETCH: "auto"} | ({} if budget is None else {RAM_BUDGET: budget})
        return model.predict(PipelineSettings(overrides=tuple(sorted(turned.items())))).step_s

    assert step_s(64 * MIB) == pytest.approx(step_s(None), rel=0.01)
    assert step_s(8 * MIB) > 1.05 * step_s(None)


# --- where it is offered -----------------------------------------------------------------------------------------


def facts(batch_bytes: int | None = BATCH, *, resident_bytes: int = 100 * MIB) -> Prepared:
    known = prepared(workload())
    return msgspec.structs.replace(
        known,
        pipeline=pipeline(batch_bytes),
        data=replace(known.data, batch_size=BATCH_SIZE),
        memory=MemoryFacts(resident_bytes=resident_bytes, batch_bytes=BATCH, row_bytes=0),
    )


def bounded(limit: int, about: Prepared, **overrides: OverrideValue) -> dict[str, Any]:
    named = NamedSettings(name="n", settings=PipelineSettings(overrides=tuple(sorted(overrides.items()))))
    made = within_memory(named, about, cores=2, max_memory_bytes=limit)
    assert (made == named) == (RAM_BUDGET not in dict(made.settings.overrides or ()))
    return {**dict(made.settings.overrides or ()), "name": made.name}


def test_what_could_grow_beyond_the_limit_gets_the_room_there_is() -> None:
    made = bounded(180 * MIB, facts(), **{END_PREFETCH: "auto"})
    assert made[RAM_BUDGET] == 80 * MIB // FRAGMENTATION
    assert made[END_PREFETCH] == "auto"
    assert made["name"] == "n, AUTOTUNE's buffers within 40.0 MiB"
    injected = bounded(180 * MIB, facts())
    assert RAM_BUDGET in injected, "TensorFlow adds a prefetch of its own"


def test_what_cannot_or_must_not_be_bounded_is_left_alone() -> None:
    auto: dict[str, OverrideValue] = {END_PREFETCH: "auto"}
    assert RAM_BUDGET not in bounded(2000 * MIB, facts(), **auto), "it never comes to so much"
    assert RAM_BUDGET not in bounded(180 * MIB, facts(), **{END_PREFETCH: 2}), "nothing is left to AUTOTUNE"
    assert RAM_BUDGET not in bounded(115 * MIB, facts(), **auto), "not even one batch fits"
    assert RAM_BUDGET not in bounded(180 * MIB, facts(None), **auto), "batches of any size"


def test_a_search_within_a_limit_leaves_nothing_to_autotune_that_may_exceed_it() -> None:
    begun = msgspec.structs.replace(started(()), candidates=None, knobs={}, search="model")

    def budgets(limit: int | None) -> set[OverrideValue]:
        search = make_search(begun, facts(), 2, max_memory_bytes=limit)
        assert isinstance(search, ModelSearch)
        assert search.space.first[0].settings.overrides == (), "the user's own comes first, as it is"
        others = [dict(named.settings.overrides or ()) for named in search.space.everything[1:]]
        return {turned.get(RAM_BUDGET) for turned in others if turned.get(END_PREFETCH, "auto") == "auto"}

    assert budgets(None) == budgets(4000 * MIB) == {None}
    assert budgets(180 * MIB) == {40 * MIB}
