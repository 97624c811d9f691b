"""Each warning appears when its cause is there and not otherwise; each ends in something to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.machine import FakeMachine
from tests.unit.test_profile import ONE, SERIAL, profile
from tfpipe.analysis.doubts import find_doubts
from tfpipe.records import CacheFill, Interval, Pipeline, Verdict
from tfpipe.sites import Stage


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A run on a machine without noise."""
    machine = FakeMachine(fetch_s={SERIAL: 0.032, ONE: 0.0})
    return profile(machine, tmp_path_factory.mktemp("quiet"), depths=(0, 1))


def codes(run) -> set[str]:
    warnings = find_doubts(run)
    assert all(warning.text.endswith(".") for warning in warnings)
    return {warning.code for warning in warnings}


def with_candidate(run, **changes):
    first, *others = run.candidates
    return replace(run, candidates=(replace(first, **changes), *others))


def with_blocks(run, change):
    first = run.candidates[0]
    return with_candidate(run, blocks=tuple(change(b) if b.kind == "step" else b for b in first.blocks))


def test_a_quiet_run_has_no_doubts(quiet):
    assert codes(quiet) == set()


@pytest.mark.parametrize(
    ("more_steps", "advice"),
    [(40, "Raise --time-budget or --steps."), (None, "Read it as each of the verdicts that it leaves.")],
)
def test_an_uncertain_verdict_is_measured_on_only_where_that_would_settle_it(quiet, more_steps, advice):
    doubtful = with_candidate(quiet, verdict=Verdict(bound="uncertain", statement="Uncertain.", more_steps=more_steps))
    (warning,) = find_doubts(doubtful)
    assert warning.code == "uncertain"
    assert warning.text.startswith("The verdict on 1 candidate ")
    assert warning.text.endswith(advice)


QUICK = CacheFill(seconds=0.5, complete=True)


def cached_pipeline(fill=QUICK) -> Pipeline:
    stage = Stage(id="data.py:3:cache", file="data.py", line=3, method="cache")
    return Pipeline(
        reference="data.py:make",
        arguments=(),
        root="/",
        sites=(),
        stages=(stage,),
        findings=(),
        reorders=(),
        build_s=0.0,
        cache_fill=fill,
    )


@pytest.mark.parametrize(
    ("seconds", "complete", "words"),
    [
        (1e4, True, "so it is input-bound"),
        (1e-4, True, "so it need not wait for that"),
        (20.0, False, "what was measured is the first epoch"),
    ],
)
def test_the_first_epoch_of_a_cache_is_told_apart(quiet, seconds, complete, words):
    run = replace(quiet, pipeline=cached_pipeline(CacheFill(seconds=seconds, complete=complete)))
    (text,) = (warning.text for warning in find_doubts(run) if warning.code == "cache")
    assert words in text
    assert text.startswith("data.py:3")


def longer(block, step_s):
    return replace(block, step_s=step_s, fetch_s=(0.0,) * len(step_s), steps=len(step_s))


def pause_in(block):
    steps = block.step_s * 40
    return longer(block, (steps[0] * (40 if block.round == 0 else 1), *steps[1:]))


def slower_half(block):
    return longer(block, block.step_s * 10 + tuple(1.3 * s for s in block.step_s) * 10)


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("generated-data", lambda run: replace(run, data=replace(run.data, generated=True))),
        ("few-steps", lambda run: with_blocks(run, lambda b: replace(b, steps=int(b.round < 2)))),
        (
            "noisy",
            lambda run: with_candidate(run, examples_per_s=Interval(value=100.0, low=80.0, high=120.0)),
        ),
        ("retraced", lambda run: with_blocks(run, lambda b: replace(b, retraced=1))),
        (
            "below-floor",
            lambda run: with_candidate(run, step_s=Interval(value=0.01, low=0.01, high=0.01)),
        ),
        ("capacity", lambda run: with_candidate(run, capacity_examples_per_s=1.0)),
        ("epochs-inside", lambda run: with_blocks(run, lambda b: replace(b, epoch_start_s=(0.5,)))),
        ("cache", lambda run: replace(run, pipeline=cached_pipeline())),
        ("pauses", lambda run: with_blocks(run, pause_in)),
        ("unsettled", lambda run: with_blocks(run, slower_half)),
        ("unsettled", lambda run: with_candidate(run, autotune_moving=True)),
    ],
)
def test_each_doubt_has_its_cause(quiet, code, change):
    assert code in codes(change(quiet))


def test_a_regular_stall_is_no_pause(quiet):
    """One step in ten waits: that is how this pipeline is."""

    def stalls(block):
        return longer(block, tuple(s * (20 if n % 10 == 0 else 1) for n, s in enumerate(block.step_s * 40)))

    assert "pauses" not in codes(with_blocks(quiet, stalls))
