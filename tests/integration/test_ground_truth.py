"""A few pipelines with known answers, each through a whole run. The full suite with its goals is in ``tests/bench``.

The slack is wide: these runs are short, and a test machine has other things to do.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.tensorflow

# Seconds of measuring per run: blocks of a sixth of their usual length.
BUDGET_S = 2.0
SLACK = 0.08

CASES = ("serial-half", "prefetch1-half", "fused2-none", "burst-serial", "device-third")


@pytest.fixture(scope="module")
def bench():
    from tests.bench import ground_truth

    return ground_truth


@pytest.mark.parametrize("name", CASES)
def test_the_input_fraction_is_the_known_one(bench, name):
    outcome = bench.measure_case(bench.case(name), time_budget_s=BUDGET_S)
    widest = max(SLACK, outcome.estimate.high - outcome.estimate.value, outcome.estimate.value - outcome.estimate.low)
    assert abs(outcome.error) <= widest, f"{outcome.estimate} for {outcome.truth:.3f}"
    assert outcome.bound in (outcome.case.expected(outcome.truth), "uncertain")
    assert not outcome.beyond_bound


def test_a_serial_producer_is_waited_for_each_time(bench):
    wait_s, period_s = bench.simulate(lambda number: 3.0, 5.0, depth=0)
    assert (wait_s, period_s) == (3.0, 8.0)


def test_a_buffer_leaves_only_what_the_producer_takes_longer(bench):
    for depth in (1, 2, 8):
        assert bench.simulate(lambda number: 8.0, 5.0, depth=depth) == (3.0, 8.0)
        assert bench.simulate(lambda number: 4.0, 5.0, depth=depth) == (0.0, 5.0)


def test_a_buffer_of_one_hides_one_step_of_a_slow_batch(bench):
    """Every second batch takes 8 s, the other 0: with one place it is begun when the one before is taken, 5 s early."""
    wait_s, period_s = bench.simulate(lambda number: 8.0 * (number % 2), 5.0, depth=1, cycle=2)
    assert (wait_s, period_s) == (1.5, 6.5)


class LateClock:
    """Stands in for ``time``: every sleep lasts a millisecond longer than it was asked to."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + 0.001


def test_a_timetable_keeps_its_period_whatever_passes_between_two_sleeps(bench, monkeypatch):
    clock = LateClock()
    monkeypatch.setattr(bench, "time", clock)
    timetable = bench.Timetable(calls=1)
    begin = clock.now
    for _ in range(50):
        timetable.sleep(0.030)
        clock.now += 0.002
    assert clock.now - begin == pytest.approx(50 * 0.030 + 0.001 + 0.002)


def test_a_timetable_does_not_catch_up_with_what_nobody_asked_for(bench, monkeypatch):
    clock = LateClock()
    monkeypatch.setattr(bench, "time", clock)
    timetable = bench.Timetable(calls=1)
    timetable.sleep(0.030)
    clock.now += 1.0
    begin = clock.now
    timetable.sleep(0.030)
    assert clock.now - begin == pytest.approx(0.031)


def test_the_suite_is_as_large_as_it_says_and_every_name_is_used_once(bench):
    names = [case.name for case in bench.CASES]
    assert len(set(names)) == len(names) >= 30
