"""What is recommended, from runs on the machine that exists on paper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.runs import AUTOTUNE, DEFAULTS, make_candidate
from tests.unit.machine import FakeMachine
from tests.unit.test_profile import ONE, SERIAL, TWO, profile
from tfpipe.analysis.ranking import gain, is_tie
from tfpipe.analysis.recommend import recommend
from tfpipe.analysis.verdict import classify
from tfpipe.errors import TfpipeError
from tfpipe.records import Block, Explanation, Interval
from tfpipe.runner.reading import TraceReading


def run_with(tmp_path, waits: dict[str, float], **options):
    return profile(FakeMachine(fetch_s=waits, **options), tmp_path)


def test_ties_go_to_what_the_user_has(tmp_path):
    run = run_with(tmp_path, {SERIAL: 0.0, ONE: 0.0, TWO: 0.0})
    assert not run.recommendation.change
    assert run.recommendation.candidate == SERIAL
    assert set(run.recommendation.ties) == {ONE, TWO}
    assert run.recommendation.summary.startswith("No change worth making")
    assert run.recommendation.summary.endswith(f"surely faster than {SERIAL}.")


def test_a_gain_too_small_to_be_worth_a_line_is_no_change(tmp_path):
    """1 % of a step, without any noise."""
    run = run_with(tmp_path, {SERIAL: 0.0007, ONE: 0.0, TWO: 0.0})
    assert not run.recommendation.change


def test_a_large_gain_that_is_not_sure_is_no_change(tmp_path):
    """The machine is slow by turns; the candidates differ by less than it does."""
    ticks = iter(range(10**9))
    run = run_with(
        tmp_path,
        {SERIAL: 0.001, ONE: 0.0, TWO: 0.0},
        slowdown=lambda now: 1.0 + 0.8 * (next(ticks) // 7 % 3 == 0),
    )
    assert not run.recommendation.change


def test_of_the_equally_fast_the_one_with_least_memory(tmp_path):
    run = run_with(tmp_path, {SERIAL: 0.03, ONE: 0.0, TWO: 0.0})
    heavy = tuple(replace(c, buffered_bytes=10**9 if c.id == ONE else c.buffered_bytes) for c in run.candidates)
    assert recommend(replace(run, candidates=heavy, confirmed_from=None)).candidate == TWO


def test_memory_that_only_breathes_does_not_choose(tmp_path):
    run = run_with(tmp_path, {SERIAL: 0.03, ONE: 0.0, TWO: 0.0})
    breathing = tuple(replace(c, buffered_bytes=1200 if c.id == ONE else 1000) for c in run.candidates)
    assert recommend(replace(run, candidates=breathing)).candidate == ONE, "nearest to what the user has"


def test_a_memory_limit_leaves_out_what_exceeds_it_and_says_so(tmp_path):
    run = run_with(tmp_path, {SERIAL: 0.03, ONE: 0.0, TWO: 0.0})
    sized = replace(
        run,
        candidates=tuple(replace(c, buffered_bytes={SERIAL: 100, ONE: 300, TWO: 500}[c.id]) for c in run.candidates),
    )
    limited = recommend(sized, max_memory_bytes=300)
    assert limited.candidate == ONE
    assert limited.ties == ()
    assert any("1 candidates were left out" in note for note in limited.notes)
    with pytest.raises(TfpipeError, match="at most 50 B"):
        recommend(sized, max_memory_bytes=50)


def test_gains_are_against_serial_as_written_as_it_runs_and_autotune(tmp_path):
    run = run_with(tmp_path, {SERIAL: 0.0645, ONE: 0.0, TWO: 0.0})
    (gain,) = run.recommendation.gains
    assert gain.over == SERIAL
    # 129.5 ms with the wait and the fetch floor, 65 ms without.
    assert gain.ratio.value == pytest.approx(129.5 / 65)


def test_a_gain_against_what_stands_for_the_user_s_is_always_told(tmp_path):
    """The first candidate of a grid without a serial one."""
    run = profile(FakeMachine(fetch_s={ONE: 0.065, TWO: 0.0}), tmp_path, depths=(1, 2))
    (gain,) = run.recommendation.gains
    assert (gain.over, gain.label) == (ONE, ONE)
    assert run.recommendation.summary == f"Use {TWO}: 2.00 times as fast as {ONE}."


@pytest.mark.parametrize(("slower", "tied"), [(1.025, True), (1.035, False)])
def test_what_cannot_be_told_apart_is_a_tie_only_within_what_may_be_given_away(slower, tied):
    """Eight rounds that differ by 10 % either way, so that the interval holds 1 in both cases."""

    def candidate(settings, step_s):
        blocks = [
            Block(kind="step", round=n, warmup_steps=1, steps=1, elapsed_s=s, step_s=(s,), fetch_s=(0.0,))
            for n, s in enumerate(step_s)
        ]
        return replace(make_candidate(settings), blocks=tuple(blocks))

    leader = candidate(DEFAULTS, [1.0] * 8)
    other = candidate(AUTOTUNE, [slower * factor for factor in (1.1, 1 / 1.1) * 4])
    assert gain(leader, other).low < 1.0 < gain(leader, other).high
    assert is_tie(leader, other) == tied


def test_what_is_surely_faster_is_not_hidden_by_what_may_be_faster_still(tmp_path):
    """One candidate has joined late and was lucky in two of its three rounds."""
    run = run_with(tmp_path, {SERIAL: 0.064, ONE: 0.01, TWO: 0.0})
    lucky = run.candidate(TWO)
    steps = [b for b in lucky.blocks if b.kind == "step"][:3]
    uneven = [
        replace(b, step_s=tuple(s * factor for s in b.step_s), elapsed_s=b.elapsed_s * factor)
        for b, factor in zip(steps, (0.5, 0.5, 3.0), strict=True)
    ]
    late = replace(lucky, blocks=(*(b for b in lucky.blocks if b.kind != "step"), *uneven))
    others = tuple(c for c in run.candidates if c.id != TWO)
    recommendation = recommend(replace(run, candidates=(*others, late), confirmed_from=None))
    assert recommendation.candidate == ONE
    assert recommendation.change


@pytest.fixture
def noisy_run(tmp_path):
    """Something is much faster, but not surely."""
    ticks = iter(range(10**9))
    machine = FakeMachine(
        fetch_s={SERIAL: 0.03, ONE: 0.0, TWO: 0.0}, slowdown=lambda now: 1.0 + 3.0 * (next(ticks) // 5 % 4 == 0)
    )
    return profile(machine, tmp_path, depths=(0, 1), steps=6)


def test_something_much_faster_but_not_surely_is_not_settled(noisy_run):
    run = noisy_run
    assert not run.recommendation.change
    assert run.recommendation.candidate == SERIAL
    assert run.recommendation.ties == ()
    assert run.recommendation.summary.startswith(f"Not settled: {ONE} was 1.")


@pytest.mark.parametrize(("contention", "summary"), [(0.01, "No change worth making"), (0.10, "Not settled")])
def test_over_what_surely_does_not_wait_it_is_chance_unless_something_speaks_for_contention(
    noisy_run, contention, summary
):
    """However little is known of the floor, and so of contention."""
    fraction, wide = Interval(value=0.01, low=0.0, high=0.03), Interval(value=contention, low=-0.5, high=0.5)
    verdict = classify(fraction, wide)
    assert verdict.bound == "uncertain"
    doubtful = replace(noisy_run.candidate(SERIAL), input_fraction=fraction, contention_fraction=wide, verdict=verdict)
    others = tuple(candidate for candidate in noisy_run.candidates if candidate.id != SERIAL)
    assert recommend(replace(noisy_run, candidates=(doubtful, *others))).summary.startswith(summary)


def test_headspace_and_how_fast_a_device_could_get(tmp_path):
    run = run_with(tmp_path, {SERIAL: 0.0, ONE: 0.0, TWO: 0.0})
    assert run.recommendation.headspace == pytest.approx(65 / 64)
    # Drained alone a batch takes the 1 ms of a fetch: the device could be 64 times as fast.
    assert run.recommendation.device_speedup_before_input_bound == pytest.approx(64.0)


def test_when_no_setting_helps_it_says_so_and_what_the_trace_found(tmp_path):
    found = Explanation(bottleneck="Map", share=0.9, top_ops=(), findings=("Map runs Python. Use TensorFlow's ops.",))
    reading = TraceReading(count_events=lambda session: 100, explain=lambda session: found)
    machine = FakeMachine(fetch_s={SERIAL: 0.032, ONE: 0.032, TWO: 0.032})
    run = profile(machine, tmp_path, reading=reading)
    assert not run.recommendation.change
    assert run.recommendation.summary.startswith("No setting that was measured surely helps")
    assert "33 % of each step" in run.recommendation.summary
    assert "Map runs Python. Use TensorFlow's ops." in run.recommendation.notes


def test_nothing_measured_is_an_error(tmp_path):
    run = run_with(tmp_path, {SERIAL: 0.0, ONE: 0.0, TWO: 0.0})
    nothing = tuple(replace(c, status="failed", examples_per_s=None) for c in run.candidates)
    with pytest.raises(TfpipeError, match="No candidate"):
        recommend(replace(run, candidates=nothing))
