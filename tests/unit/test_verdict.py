from __future__ import annotations

import pytest

from tfpipe.analysis.verdict import classify
from tfpipe.records import Interval


def interval(low: float, high: float) -> Interval:
    return Interval(value=(low + high) / 2, low=low, high=high)


NO_CONTENTION = interval(-0.01, 0.01)


@pytest.mark.parametrize(
    ("low", "high", "bound"),
    [
        (0.0, 0.049, "compute"),
        (0.0, 0.05, "uncertain"),
        (0.05, 0.199, "input-moderate"),
        (0.04, 0.06, "uncertain"),
        (0.15, 0.20, "uncertain"),
        (0.20, 0.21, "input-high"),
        (0.01, 0.5, "uncertain"),
        (1.0, 1.0, "input-high"),
    ],
)
def test_tensorboard_s_cuts(low, high, bound):
    assert classify(interval(low, high), NO_CONTENTION).bound == bound


def test_slower_than_the_floor_without_waiting_is_contended():
    assert classify(interval(0.0, 0.02), interval(0.05, 0.4)).bound == "contended"
    assert classify(interval(0.0, 0.02), interval(0.04, 0.4)).bound == "uncertain"
    assert classify(interval(0.0, 0.02), interval(-0.1, 0.18)).bound == "compute"


def test_waiting_outranks_contention():
    assert classify(interval(0.3, 0.4), interval(0.2, 0.4)).bound == "input-high"


def test_uncertain_names_the_verdicts_that_are_left():
    assert "compute-bound or moderately" in classify(interval(0.04, 0.06), NO_CONTENTION).statement
    assert "moderately or highly" in classify(interval(0.15, 0.25), NO_CONTENTION).statement
    assert "compute-bound or contended" in classify(interval(0.0, 0.02), interval(0.0, 0.2)).statement
    assert "anything from" in classify(interval(0.0, 0.9), NO_CONTENTION).statement


def test_uncertain_says_what_would_settle_it():
    """Half width 4 points, 2 points from the cut: four times the steps, so 30 more of 2 s each."""
    verdict = classify(Interval(value=0.07, low=0.03, high=0.11), NO_CONTENTION, steps=10, step_s=2.0)
    assert verdict.statement.endswith("About 30 more steps (60.0 s) would settle it.")
    on_the_cut = classify(Interval(value=0.05, low=0.03, high=0.07), NO_CONTENTION, steps=10, step_s=2.0)
    assert "too close to the cut" in on_the_cut.statement


def test_the_sentence_has_the_share_and_its_interval():
    statement = classify(interval(0.2, 0.3), NO_CONTENTION).statement
    assert statement == "Highly input-bound: 25 % of each step waits for input (95 % interval 20 % to 30 %)."
