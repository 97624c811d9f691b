"""When the best is known, and what the measured settings say about the others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.unit.searching import World, run_of
from tfpipe.analysis.ranking import contenders, gain
from tfpipe.runner.search.rules import is_best_known, surely_lost
from tfpipe.runner.search.surrogate import SHARED_SPREAD, distances, fit
from tfpipe.settings import NamedSettings, PipelineSettings

TOLERANCE = 0.02
CURRENT, OTHER = (NamedSettings(name="", settings=PipelineSettings(prefetch_depth=depth)) for depth in (0, 1))


def after(rounds: int, *, faster: float, noise: float = 0.0):
    """A run of what the user has and of one that is ``faster`` times as fast, with ``noise`` in each block."""
    world = World(seed=1, noise=noise, settings=(CURRENT, OTHER))
    world.step_s = {CURRENT.settings.id: 0.04, OTHER.settings.id: 0.04 / faster}
    blocks = {identity: [world.block(identity, number) for number in range(rounds)] for identity in world.step_s}
    return run_of(world, (CURRENT, OTHER), blocks, {}, {})


def known(run) -> bool:
    return is_best_known(contenders(run.candidates), run.current, TOLERANCE)


@pytest.mark.parametrize("faster", [0.5, 0.99, 1.0, 1.01, 1.5])
def test_without_noise_the_best_is_known_after_two_rounds(faster):
    assert not known(after(1, faster=faster))
    assert known(after(2, faster=faster))


def test_the_best_is_not_known_while_another_may_be_faster_by_more_than_the_tolerance():
    assert not known(after(3, faster=1.0, noise=0.05))


def test_a_change_is_not_known_while_it_may_be_none():
    """Surely not slower by more than the tolerance, yet perhaps not faster at all."""
    runs = [after(rounds, faster=1.05, noise=0.04) for rounds in range(3, 60)]
    over_current = [gain(*reversed(run.candidates)) for run in runs]
    open_still = [r for r, g in zip(runs, over_current, strict=True) if 1 / (1 + TOLERANCE) <= g.low <= 1.0]
    decided = [r for r, g in zip(runs, over_current, strict=True) if g.low > 1.0]
    assert open_still
    assert decided
    assert not any(known(run) for run in open_still)
    assert all(known(run) for run in decided)


def test_what_is_lost_says_to_whom_and_by_how_much():
    run = after(3, faster=0.5)
    assert surely_lost(run) == {OTHER.settings.id: "surely slower: map-batch is 2.00-2.00 times as fast"}


def test_what_is_slower_by_less_than_is_worth_having_is_not_lost():
    assert surely_lost(after(3, faster=0.985)) == {}


def test_nothing_is_lost_where_nothing_was_measured():
    assert surely_lost(after(0, faster=0.5)) == {}
    assert is_best_known((), CURRENT.settings.id, TOLERANCE)


# --- what the measured settings say ------------------------------------------------------------------------------


def test_settings_are_as_far_apart_as_their_knobs():
    points = [
        {"calls": None, "depth": 0, "order": "map-batch"},
        {"calls": 2, "depth": 0, "order": "map-batch"},
        {"calls": 2, "depth": 1, "order": "batch-map"},
        {"calls": 2, "depth": 1000, "order": "map-batch"},
        {"calls": "auto", "depth": 0, "order": "map-batch"},
        {"calls": True, "depth": 0, "order": "map-batch"},
    ]
    assert distances(points[:1], points).tolist() == [[0.0, 1.0, 3.0, 3.0, 1.0, 1.0]]
    assert np.array_equal(distances(points, points), distances(points, points).T)


def test_what_was_measured_is_expected_again_and_what_is_like_it_nearly():
    points = [{"calls": calls} for calls in (1, 2, 64)]
    surrogate = fit(points[:2], [0.3, 0.3], [1e-6, 1e-6], least_spread=0.1)
    (same, like, unlike), (sure, _, unsure) = surrogate.at(points)
    assert same == pytest.approx(0.3, abs=0.01)
    assert like == pytest.approx(0.3, abs=0.01)
    assert 0.2 < unlike < 0.31
    assert sure < 0.01 < unsure


def test_before_anything_is_known_everything_is_as_unsure():
    surrogate = fit([{"calls": 1}], [0.0], [1e9], least_spread=0.1)
    _, (deviation,) = surrogate.at([{"calls": 2}])
    assert deviation == pytest.approx(math.hypot(SHARED_SPREAD, surrogate.spread), rel=0.01)


def test_what_will_be_measured_makes_surer_and_changes_nothing_else():
    points = [{"calls": calls, "depth": depth} for calls in (1, 2, 8) for depth in (0, 1)]
    before = fit(points[:2], [0.1, -0.1], [1e-3, 1e-3], least_spread=0.1)
    after_it = before.joined(points[2], 1e-3)
    means, deviations = before.at(points)
    means_after, deviations_after = after_it.at(points)
    assert means_after == pytest.approx(means)
    assert np.all(deviations_after <= deviations + 1e-9)
    assert deviations_after[3] < 0.95 * deviations[3]


def test_values_that_differ_more_than_was_thought_widen_what_is_expected():
    points = [{"calls": calls, "depth": depth} for calls in (None, 1, 8, "auto") for depth in (0, "auto")]
    calm = fit(points, [0.01 * (-1) ** n for n in range(8)], [1e-6] * 8, least_spread=0.05)
    wild = fit(points, [0.5 * (-1) ** (n // 2) * (1 + n % 2) for n in range(8)], [1e-6] * 8, least_spread=0.05)
    assert calm.spread == 0.05
    assert wild.spread > 0.05
