from __future__ import annotations

import pytest

from tfpipe.analysis.verdict import classify
from tfpipe.records import Interval


def interval(low: float, high: float) -> Interval:
    return Interval(value=(low + high) / 2, low=low, high=high)


NO_CONTENTION = interval(-0.01, 0.01)
NO_WAIT = interval(0.0, 0.02)


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


def test_a_value_that_says_nothing_is_not_called_compute_bound():
    """4 points of contention, give or take 44: that may as well be half the step."""
    wide = Interval(value=0.04, low=-0.40, high=0.48)
    assert classify(NO_WAIT, wide).bound == "uncertain"
    assert "compute-bound or contended" in classify(NO_WAIT, wide).statement
    assert classify(NO_WAIT, Interval(value=-0.16, low=-0.8, high=0.47)).bound == "uncertain"


def test_on_a_quiet_machine_it_is():
    """Real runs of seconds, behind a device that leaves the cores alone."""
    for low, value, high in ((-0.088, 0.007, 0.102), (-0.074, 0.019, 0.111), (-0.113, 0.009, 0.130)):
        verdict = classify(NO_WAIT, Interval(value=value, low=low, high=high))
        assert verdict.bound == "compute"
        assert verdict.statement.endswith(f"At most {high:.0%} of it is contention.".replace("%", " %"))


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
    assert verdict.more_steps == 30
    on_the_cut = classify(Interval(value=0.05, low=0.03, high=0.07), NO_CONTENTION, steps=10, step_s=2.0)
    assert "too close to the cut" in on_the_cut.statement
    assert on_the_cut.more_steps is None
    assert classify(interval(0.3, 0.4), NO_CONTENTION, steps=10, step_s=2.0).more_steps is None


def test_contention_that_is_unknown_says_how_far_it_is_from_being_settled():
    """Half width 44 points, 16 from where doubt is small enough: 7.6 times the steps."""
    verdict = classify(NO_WAIT, Interval(value=0.04, low=-0.40, high=0.48), steps=10, step_s=2.0)
    assert verdict.statement.endswith("About 66 more steps (132 s) would settle it.".replace("132 s", "2.2 min"))


def test_what_a_fetch_costs_is_known_no_better_by_more_steps():
    """Known to 20 %, of a quarter of a ms beside steps of 5 ms: 1.96 points that stay, of a half width of 4 points."""
    near = Interval(value=0.065, low=0.025, high=0.105)
    assert "About 49 more steps" in classify(near, NO_CONTENTION, steps=8, step_s=0.005).statement
    stays = classify(near, NO_CONTENTION, steps=8, step_s=0.005, fetch_floor_s=0.00025)
    assert stays.statement.endswith(
        "It lies closer to the cut of 5.0 % than what a fetch costs is known, which no more steps would change: "
        "read it as both."
    )
    assert stays.more_steps is None
    further = classify(
        Interval(value=0.08, low=0.04, high=0.12), NO_CONTENTION, steps=1000, step_s=0.005, fetch_floor_s=0.00025
    )
    # n = 1000 (4^2 - 1.96^2) / (3^2 - 1.96^2) steps in all.
    assert "About 1,358 more steps" in further.statement
    assert (
        "About 778 more steps"
        in classify(Interval(value=0.08, low=0.04, high=0.12), NO_CONTENTION, steps=1000, step_s=0.005).statement
    )


def test_the_sentence_has_the_share_and_its_interval():
    statement = classify(interval(0.2, 0.3), NO_CONTENTION).statement
    assert statement == "Highly input-bound: 25 % of each step waits for input (95 % interval 20 % to 30 %)."


def test_a_pipeline_cannot_hold_up_the_step_for_longer_than_it_works():
    """Floor and step were measured in different spells of the machine; the pipeline takes 1 % of a step to compute."""
    none, apart = Interval(value=0.0, low=0.0, high=0.01), Interval(value=0.2, low=-0.3, high=0.7)
    assert classify(none, apart).bound == "uncertain"
    assert classify(none, apart, cpu_fraction=0.01).bound == "compute"
    busy = Interval(value=0.2, low=0.1, high=0.3)
    assert classify(none, busy, cpu_fraction=0.5).bound == "contended"
    assert classify(none, busy, cpu_fraction=0.01).bound == "compute"
