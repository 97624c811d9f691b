"""A pipeline that stalls regularly is measured in whole cycles, whatever part of one a block happens to hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfpipe.analysis.attribution import attribute, estimate_floor, rate_by_round
from tfpipe.analysis.cycles import stretches
from tfpipe.records import Block

COMPUTE_S = 0.5


def block(fetch_s: list[float], *, number: int = 0, synchronous: bool = True) -> Block:
    step_s = [COMPUTE_S + fetch for fetch in fetch_s]
    return Block(
        kind="step",
        round=number,
        warmup_steps=0,
        steps=len(fetch_s),
        elapsed_s=sum(step_s),
        step_s=tuple(step_s),
        fetch_s=tuple(fetch_s),
        synchronous=synchronous,
    )


def stalling(every: int, count: int, *, start: int = 0, stall_s: float = 4.0) -> list[float]:
    """Fetches number ``start`` onwards of a pipeline whose every ``every``-th is a stall."""
    return [stall_s if number % every == 0 else 0.0 for number in range(start, start + count)]


def lengths(blocks: list[Block]) -> list[list[int]]:
    return [[stretch.steps for stretch in stretched] for stretched in stretches(blocks)]


@given(every=st.integers(2, 12), cycles=st.integers(2, 6), start=st.integers(0, 30), extra=st.integers(0, 11))
def test_the_share_of_regular_stalls_does_not_depend_on_where_a_block_begins_or_ends(every, cycles, start, extra):
    """The same part of a cycle in every round, as after every start of a pipeline: no scatter would betray it."""
    blocks = [block(stalling(every, every * (cycles + 1) + extra, start=start), number=n) for n in range(3)]
    floor = estimate_floor([block([0.0] * 8)], [block([0.0] * 8)])
    attribution = attribute(blocks, floor)
    assert attribution.input_fraction.value == pytest.approx(4.0 / (4.0 + every * COMPUTE_S))
    assert attribution.step_s.value == pytest.approx(COMPUTE_S + 4.0 / every)
    assert attribution.input_fraction.standard_error == pytest.approx(0.0, abs=1e-9)


def test_a_block_keeps_its_last_whole_cycles():
    stretched = stretches([block(stalling(5, 23, start=3))])
    assert [stretch.steps for stretch in stretched[0]] == [5, 5, 5, 5]
    assert sum(stretch.fetch_s for stretch in stretched[0]) == 4 * 4.0


def test_even_steps_stay_single_steps():
    assert lengths([block([0.25] * 4), block([0.25, 0.375, 0.25])]) == [[1] * 4, [1] * 3]


def test_irregular_stalls_stay_single_steps():
    fetch_s = [0.0] * 40
    for number in (3, 7, 18, 20, 33):
        fetch_s[number] = 4.0
    assert lengths([block(fetch_s)]) == [[1] * 40]


def test_one_odd_stall_does_not_hide_the_cycle():
    fetch_s = stalling(8, 48)
    fetch_s[19] = 2.0
    assert lengths([block(fetch_s)]) == [[8] * 6]


def test_the_cycle_may_be_seen_across_blocks_and_a_block_shorter_than_it_is_left_out():
    long, short = block(stalling(10, 25)), block(stalling(10, 6, start=8))
    assert lengths([long, long, short]) == [[10, 10], [10, 10], []]


def test_the_rate_of_a_round_counts_whole_cycles_too():
    blocks = [block(stalling(10, 29, start=5 * n), number=n) for n in range(3)]
    assert rate_by_round(blocks) == {n: pytest.approx(10 / (10 * COMPUTE_S + 4.0)) for n in range(3)}


def test_two_stalls_are_no_rule():
    assert lengths([block(stalling(10, 20))]) == [[1] * 20]


def test_on_an_asynchronous_device_a_block_is_one_sum():
    assert lengths([block(stalling(5, 20), synchronous=False)] * 2) == [[20], [20]]


def test_dispatch_periods_do_not_widen_the_interval_of_a_device_that_runs_ahead():
    """All of a block's time may lie in the wait at its end: the blocks agree, so there is nothing to be unsure of."""

    def ahead(kind: str) -> Block:
        return Block(
            kind=kind,
            round=0,
            warmup_steps=0,
            steps=4,
            elapsed_s=2.0,
            step_s=(0.0, 0.0, 0.0, 2.0),
            fetch_s=(0.0,) * 4,
            synchronous=False,
        )

    floor = estimate_floor([ahead("floor")] * 3, [ahead("fetch-floor")] * 3)
    fraction = attribute([ahead("step")] * 3, floor).input_fraction
    assert (fraction.value, fraction.half_width) == (0.0, 0.0)
