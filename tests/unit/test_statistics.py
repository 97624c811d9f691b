from __future__ import annotations

import math
import random
import statistics

import pytest

from tfpipe.analysis.statistics import Estimate, combine, mean, paired_ratio, ratio, t_quantile, trimmed_mean


def test_t_quantile_meets_the_published_tables_beyond_its_own():
    assert t_quantile(1) == pytest.approx(12.706, abs=1e-3)
    assert t_quantile(40) == pytest.approx(2.0211, rel=1e-3)
    assert t_quantile(120) == pytest.approx(1.9799, rel=1e-3)
    assert t_quantile(0) == math.inf


def test_ratio_is_total_over_total_and_not_a_mean_of_ratios():
    estimate = ratio([[(1.0, 4.0), (3.0, 4.0)], [(8.0, 8.0)]])
    assert estimate.value == 12.0 / 16.0


def test_ratio_without_spread_has_no_error():
    estimate = ratio([[(1.0, 4.0)] * 3] * 6)
    assert estimate.standard_error == 0.0
    assert estimate.interval().low == estimate.interval().high == 0.25


@pytest.mark.parametrize("blocks", [[], [[]], [[(1.0, 0.0)]]])
def test_ratio_of_nothing_is_refused(blocks):
    with pytest.raises(ValueError, match="at least one step"):
        ratio(blocks)


def test_steps_that_share_their_block_s_luck_do_not_narrow_the_interval():
    """Eight blocks, each shifted as a whole: a hundred more steps per block say nothing new."""
    shifts = [0.9, 1.1, 0.95, 1.05, 1.0, 1.02, 0.98, 1.0]
    few = mean([[shift] * 5 for shift in shifts])
    many = mean([[shift] * 500 for shift in shifts])
    assert few.half_width == pytest.approx(many.half_width)


@pytest.mark.parametrize("blocks", [3, 6])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(blocks):
    """Blocks with a common shift of 2 % and steps that scatter by 10 %: drawn 400 times."""
    rng = random.Random(blocks)
    held = 0
    for _ in range(400):
        shifts = [1 + rng.gauss(0, 0.02) for _ in range(blocks)]
        interval = mean([[shift * (1 + rng.gauss(0, 0.1)) for _ in range(20)] for shift in shifts]).interval()
        held += interval.low <= 1.0 <= interval.high
    assert held / 400 > 0.90


def test_what_only_three_blocks_tell_has_the_degrees_of_freedom_of_three_blocks():
    """Blocks that are each exactly even but differ: nothing inside them explains it, so Student's t is that of two."""
    assert mean([[1.0] * 8, [2.0] * 8, [3.0] * 8]).degrees_of_freedom == 2
    # Blocks that differ by less than their steps do: every piece counts.
    assert mean([[1.0, 1.0, 3.0, 3.0, 1.0, 1.0, 3.0, 3.0]] * 3).degrees_of_freedom == 11


@pytest.mark.parametrize("blocks", [3, 4])
def test_blocks_that_differ_more_than_their_steps_are_covered_nearly_as_often(blocks):
    """Blocks that scatter by 5 %, steps by 2 %; with the pieces' degrees of freedom it were 85 of 100."""
    rng = random.Random(blocks)
    held = 0
    for _ in range(2000):
        shifts = [1 + rng.gauss(0, 0.05) for _ in range(blocks)]
        interval = mean([[shift * (1 + rng.gauss(0, 0.02)) for _ in range(20)] for shift in shifts]).interval()
        held += interval.low <= 1.0 <= interval.high
    assert held / 2000 > 0.89


def test_combined_error_adds_in_squares():
    three = Estimate(value=1.0, standard_error=3.0, degrees_of_freedom=10)
    four = Estimate(value=1.0, standard_error=4.0, degrees_of_freedom=10)
    combined = combine(7.0, (1.0, three), (-1.0, four))
    assert combined.value == 7.0
    assert combined.standard_error == 5.0
    # Welch-Satterthwaite: 625^2 / ((81*... )) between the smaller count and the sum of both.
    assert 10 <= combined.degrees_of_freedom <= 20


def test_paired_ratio_does_not_see_a_slowdown_that_both_sides_share():
    fast = {number: 100.0 / (1 + number) for number in range(4)}
    slow = {number: 50.0 / (1 + number) for number in range(4)}
    interval = paired_ratio(fast, slow)
    assert interval is not None
    assert interval.low == pytest.approx(2.0)
    assert interval.high == pytest.approx(2.0)


def test_paired_ratio_uses_common_rounds_only_and_needs_two():
    assert paired_ratio({0: 1.0}, {0: 1.0, 1: 2.0}) is None
    interval = paired_ratio({0: 2.0, 1: 2.0, 2: 99.0}, {0: 1.0, 1: 1.0})
    assert interval is not None
    assert interval.value == pytest.approx(2.0)


def test_one_bad_round_in_five_does_not_widen_a_comparison():
    slow = dict.fromkeys(range(5), 1.0)
    interval = paired_ratio({**dict.fromkeys(range(4), 2.0), 4: 0.01}, slow)
    assert interval is not None
    assert interval.low == pytest.approx(2.0)
    assert interval.high == pytest.approx(2.0)


def test_trimmed_mean_against_its_definition():
    estimate = trimmed_mean([10.0, 1.0, 2.0, 3.0, -50.0])
    assert estimate.value == 2.0
    winsorized = [1.0, 1.0, 2.0, 3.0, 3.0]
    assert estimate.standard_error == pytest.approx(statistics.stdev(winsorized) / (0.6 * math.sqrt(5)))
    assert estimate.degrees_of_freedom == 2


def test_an_interval_is_cut_to_what_is_possible():
    estimate = Estimate(value=0.01, standard_error=0.02, degrees_of_freedom=30)
    assert estimate.interval(low=0.0, high=1.0).low == 0.0
    unknown = Estimate(value=0.4, standard_error=0.0, degrees_of_freedom=0)
    assert (unknown.interval(low=0.0, high=1.0).low, unknown.interval(low=0.0, high=1.0).high) == (0.0, 1.0)
