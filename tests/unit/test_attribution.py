from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfpipe.analysis.attribution import (
    BLOCK_ENDS_S,
    FETCH_FLOOR_ERROR,
    attribute,
    estimate_floor,
    mean_step_s,
    rate_by_round,
)
from tfpipe.records import Block, BlockKind


def block(
    kind: BlockKind = "step",
    *,
    step_s: float = 0.0,
    fetch_s: float = 0.0,
    steps: int = 8,
    number: int = 0,
    synchronous: bool = True,
) -> Block:
    return Block(
        kind=kind,
        round=number,
        warmup_steps=0,
        steps=steps,
        elapsed_s=steps * step_s,
        step_s=(step_s,) * steps,
        fetch_s=(fetch_s,) * steps,
        synchronous=synchronous,
    )


def floor_of(compute_s: float, fetch_s: float = 0.0):
    return estimate_floor(
        [block("floor", step_s=compute_s)], [block("fetch-floor", step_s=compute_s + fetch_s, fetch_s=fetch_s)]
    )


def test_what_the_loop_is_blocked_for_beyond_an_empty_fetch_is_the_wait():
    split = attribute([block(step_s=1.0, fetch_s=0.5)], floor_of(0.25, fetch_s=0.125))
    assert split.compute_s == 0.25
    assert split.input_wait_s == 0.375
    assert split.contention_s == 0.375
    assert split.input_fraction.value == 0.375
    # Half of a quarter is the fetch floor, which every pipeline pays.
    assert split.contention_fraction.value == 0.25


def test_an_empty_fetch_is_no_wait_and_no_contention():
    split = attribute([block(step_s=0.5625, fetch_s=0.0625)], floor_of(0.5, fetch_s=0.0625))
    assert split.input_fraction.value == 0.0
    assert split.contention_fraction.value == 0.0


def test_a_pause_of_the_machine_in_the_fetch_floor_hides_no_waiting():
    quiet = block("fetch-floor", step_s=0.5, fetch_s=0.0625)
    paused = dataclasses.replace(quiet, fetch_s=(0.0625,) * 7 + (8.0,))
    floor = estimate_floor([block("floor", step_s=0.375)], [quiet, paused])
    assert floor.fetch_s.value == 0.0625
    assert attribute([block(step_s=0.5, fetch_s=0.125)], floor).input_fraction.value == 0.125


def test_a_floor_without_an_empty_fetch_is_refused():
    with pytest.raises(ValueError, match="at least one block"):
        estimate_floor([block("floor", step_s=0.5)], [])


def test_how_well_an_empty_fetch_stands_for_another_is_part_of_the_interval():
    """Without any scatter the fetch floor is still known to about a fifth only: 95 % is 1.96 standard errors."""
    split = attribute([block(step_s=0.5, fetch_s=0.125)], floor_of(0.375, fetch_s=0.0625))
    assert split.input_fraction.half_width == pytest.approx(1.96 * FETCH_FLOOR_ERROR * 0.0625 / 0.5, rel=0.01)


@pytest.mark.parametrize("kind", ["floor", "step"])
def test_the_step_of_a_device_that_runs_ahead_is_known_no_better_than_the_ends_of_its_blocks(kind):
    """Four blocks of 8 steps that agree exactly."""

    def step(synchronous: bool):
        return mean_step_s([block(kind, step_s=0.5, number=n, synchronous=synchronous) for n in range(4)])

    assert step(synchronous=True).half_width == 0.0
    assert step(synchronous=False).half_width == pytest.approx(1.96 * BLOCK_ENDS_S / 8, rel=0.01)
    assert step(synchronous=False).value == 0.5


def test_a_device_that_runs_ahead_waits_only_for_what_the_step_takes_beyond_the_floor():
    """The loop is blocked for half of each step, but the device was busy nearly all of that time."""
    split = attribute([block(step_s=1.0, fetch_s=0.5, synchronous=False)], floor_of(0.9375))
    assert split.input_wait_s == 0.0625
    assert split.contention_s == 0.0


def test_on_a_device_that_runs_ahead_a_slower_step_without_blocking_is_contention():
    split = attribute([block(step_s=1.0, fetch_s=0.125, synchronous=False)], floor_of(0.5))
    assert split.input_wait_s == 0.125
    assert split.contention_s == 0.375


@given(
    compute=st.floats(1e-4, 10),
    extra=st.floats(0, 10),
    blocked=st.floats(0, 1),
    fetch_floor=st.floats(0, 1e-2),
    synchronous=st.booleans(),
)
def test_the_parts_sum_to_the_step(compute, extra, blocked, fetch_floor, synchronous):
    step_s = compute + extra
    split = attribute(
        [block(step_s=step_s, fetch_s=blocked * step_s, synchronous=synchronous)], floor_of(compute, fetch_floor)
    )
    assert split.compute_s + split.input_wait_s + split.contention_s == pytest.approx(step_s)
    assert split.input_wait_s >= 0


def test_means_and_not_medians():
    """One stall in eight steps is an eighth of the time, although the median step never waits."""
    steps = Block(
        kind="step",
        round=0,
        warmup_steps=0,
        steps=8,
        elapsed_s=8.0,
        step_s=(0.5,) * 7 + (4.5,),
        fetch_s=(0.0,) * 7 + (4.0,),
    )
    assert attribute([steps], floor_of(0.5)).input_wait_s == 0.5


def test_without_a_floor_only_the_step_is_known():
    split = attribute([block(step_s=1.0, fetch_s=1.0)], estimate_floor([], [block("fetch-floor", step_s=1.0)]))
    assert split.step_s.value == 1.0
    assert split.input_fraction is None


def test_rates_are_per_round():
    blocks = [block(step_s=0.5, number=0), block(step_s=0.25, number=1), block(step_s=0.5, number=1)]
    assert rate_by_round(blocks) == {0: 2.0, 1: 16 / 6.0}
