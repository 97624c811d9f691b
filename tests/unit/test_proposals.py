"""What is tried on a user's own pipeline: theirs first, then what its call sites allow and is not there already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.test_report_user_pipeline import make_site
from tfpipe.errors import UsageError
from tfpipe.records import Pipeline
from tfpipe.runner.proposals import CURRENT, POOL, REWRITES, propose_candidates
from tfpipe.sites import END_PREFETCH, Finding, Reorder, Site, Stage

CALLS = make_site("d.py:1:map(num_parallel_calls)", "d.py")
ORDER = replace(CALLS, id="d.py:1:map(order)", stage="d.py:1:map", kind="order", axis="order", partner="d.py:2:batch")
NO_PREFETCH = make_site(END_PREFETCH, "d.py", kind="end", method="prefetch", axis="prefetch_depth", value=0)


STAGES = tuple(
    Stage(id=f"d.py:{line}:{method}", file="d.py", line=line, method=method)
    for line, method in enumerate(("range", "map", "batch"))
)
BATCH_CALLS = replace(
    CALLS, id="d.py:2:batch(num_parallel_calls)", stage="d.py:2:batch", method="batch", axis="batch_parallelism"
)


def last_prefetch(value: Any) -> Site:
    return make_site("d.py:3:prefetch(buffer_size)", "d.py", axis="prefetch_depth", value=value, written=True)


def pipeline(*sites: Site, verdict: Any = None, stages: tuple[Stage, ...] = ()) -> Pipeline:
    reorders = ()
    if verdict is not None:
        reorders = (
            Reorder(map_stage="d.py:1:map", batch_stage="d.py:2:batch", verdict=verdict, reason=None, text="text"),
        )
    return Pipeline(
        reference="d.py:make", arguments=(), root="/", sites=sites, stages=stages, findings=(),
        reorders=reorders, build_s=0.1,
    )  # fmt: skip


def proposed(
    *sites: Site, verdict: Any = None, stages: tuple[Stage, ...] = (), **knobs: str
) -> dict[str, dict[str, Any]]:
    found = propose_candidates(pipeline(*sites, verdict=verdict, stages=stages), knobs, cores=2, yes=False)
    assert found[0] == CURRENT
    return {named.name: dict(named.settings.overrides or ()) for named in found[1:]}


def test_nothing_that_is_there_already_is_proposed() -> None:
    assert proposed(last_prefetch("auto")) == {"16 calls in flight on 16 threads": {POOL: 16}}
    assert list(proposed(CALLS, last_prefetch(2))) == [
        "all AUTOTUNE", "2 calls in parallel", "16 calls in flight on 16 threads",
    ]  # fmt: skip
    written = replace(CALLS, value=2, written=True)
    assert "2 calls in parallel" not in proposed(written, last_prefetch(2))


def test_a_missing_prefetch_is_part_of_what_is_tried() -> None:
    found = proposed(CALLS, NO_PREFETCH)
    assert found["prefetch 2 at the end"] == {END_PREFETCH: 2}
    assert found["2 calls in parallel, prefetch 2"] == {END_PREFETCH: 2, CALLS.id: 2}
    assert found["all AUTOTUNE"] == {END_PREFETCH: "auto", CALLS.id: "auto"}


def test_a_batch_that_the_map_in_front_fills_gets_no_calls_of_its_own() -> None:
    """They would keep TensorFlow from running both as one stage."""
    sites = (CALLS, BATCH_CALLS, ORDER, last_prefetch(2))
    found = proposed(*sites, verdict="equal", stages=STAGES)
    assert found["2 calls in parallel"] == {CALLS.id: 2}
    assert BATCH_CALLS.id not in found["16 calls in flight on 16 threads"]
    assert BATCH_CALLS.id not in found["all AUTOTUNE"]
    assert found["batch before map, AUTOTUNE"].items() >= {(BATCH_CALLS.id, "auto"), (ORDER.id, "batch-map")}

    shuffled = (*STAGES[:2], Stage(id="d.py:2:shuffle", file="d.py", line=2, method="shuffle"), STAGES[2])
    assert proposed(*sites, stages=shuffled)["2 calls in parallel"] == {CALLS.id: 2, BATCH_CALLS.id: 2}
    off = make_site(REWRITES, "d.py", kind="option", axis="rewrites", value=False, written=True)
    assert proposed(*sites, off, stages=STAGES)["2 calls in parallel"] == {CALLS.id: 2, BATCH_CALLS.id: 2}


def test_calls_that_a_batch_has_are_turned_with_the_others() -> None:
    written = replace(BATCH_CALLS, value=4, written=True)
    assert proposed(CALLS, written, last_prefetch("auto"), stages=STAGES)["all AUTOTUNE"] == {
        CALLS.id: "auto", written.id: "auto",
    }  # fmt: skip


@pytest.mark.parametrize(("verdict", "offered"), [("equal", True), ("different", False), ("refused", False)])
def test_batch_before_map_only_with_proof(verdict: str, offered: bool) -> None:
    found = proposed(CALLS, ORDER, last_prefetch(2), verdict=verdict)
    assert ("batch before map" in found) is offered
    if offered:
        assert found["batch before map"] == {ORDER.id: "batch-map"}


def suggestion(*sites: str, **fields: Any) -> Finding:
    return Finding(code="c", kind="suggestion", stages=(), text="", remedy="", sites=sites, **fields)


def test_each_suggestion_is_tried_alone_and_all_together() -> None:
    early, late = "d.py:4:take(before d.py:3:cache)", ("d.py:1:map(behind d.py:5:shuffle)",)
    made = replace(
        pipeline(CALLS, last_prefetch(2)),
        findings=(suggestion(early), suggestion(*late), suggestion("d.py:5:shuffle(cache before)"), suggestion()),
    )
    found = {n.name: dict(n.settings.overrides or ()) for n in propose_candidates(made, {}, cores=2, yes=False)}
    assert found["take before cache"] == {early: True}
    assert found["map behind shuffle"] == {late[0]: True}
    assert found["a cache before shuffle"] == {"d.py:5:shuffle(cache before)": True}
    together = "take before cache and map behind shuffle and a cache before shuffle, AUTOTUNE"
    assert found[together].items() >= {
        (early, True), (late[0], True), ("d.py:5:shuffle(cache before)", True), (CALLS.id, "auto"),
    }  # fmt: skip


def test_the_order_knob_turns_no_other_move() -> None:
    move = replace(ORDER, id="d.py:1:map(behind d.py:2:shuffle)", argument="behind d.py:2:shuffle")
    found = propose_candidates(pipeline(ORDER, move, verdict="equal"), {"order": "batch-map"}, cores=2, yes=False)
    assert dict(found[1].settings.overrides or ()) == {ORDER.id: "batch-map"}


def test_lists_turn_every_site_of_their_axis() -> None:
    other = replace(CALLS, id="d.py:5:map(num_parallel_calls)", stage="d.py:5:map")
    apart = replace(CALLS, id="d.py:9:map(num_parallel_calls)", stage="d.py:9:map", reaches_end=False)
    found = propose_candidates(pipeline(CALLS, other, apart), {"map_parallelism": "2,auto"}, cores=2, yes=False)
    assert [dict(named.settings.overrides or ()) for named in found[1:]] == [
        {CALLS.id: value, other.id: value} for value in (2, "auto")
    ]


def test_a_knob_without_a_site_is_refused() -> None:
    with pytest.raises(UsageError, match="--shuffle-buffer: the pipeline has no such stage"):
        proposed(CALLS, shuffle_buffer="100")
