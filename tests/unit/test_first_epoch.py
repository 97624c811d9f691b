"""A cache has two phases: the epoch that fills it, and those that read it. Both are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.runs import make_run
from tests.unit.test_doubts import cached_pipeline
from tfpipe.engine.structure import never_filled
from tfpipe.records import CacheFill, Run
from tfpipe.report.phrases import verdict_sentence
from tfpipe.sites import Stage

# Four steps of 125 ms make an epoch.
EXAMPLES, STEPS_S = 128, 0.5


def run_with(fill: CacheFill | None, examples: int | None = EXAMPLES) -> Run:
    run = make_run()
    return replace(run, pipeline=cached_pipeline(fill), data=replace(run.data, examples=examples))


@pytest.mark.parametrize(
    ("seconds", "share", "words"),
    [
        (2.0, 1 - STEPS_S / 2.0, "waits for input at least 75 % of its time."),
        (STEPS_S / 2, 0.0, "need not wait for that."),
        (0.0, 0.0, "need not wait for that."),
    ],
)
def test_the_first_epoch_is_told_beside_the_others(seconds: float, share: float, words: str) -> None:
    run = run_with(CacheFill(seconds=seconds, complete=True))
    assert run.first_epoch_input_fraction == share
    assert verdict_sentence(run).endswith(f". The first epoch, which fills the cache, {words}")
    assert verdict_sentence(run).startswith(verdict_sentence(make_run()))


@pytest.mark.parametrize(
    "run",
    [
        make_run(),
        run_with(None),
        run_with(CacheFill(seconds=20.0, complete=False)),
        run_with(CacheFill(seconds=2.0, complete=True), examples=None),
    ],
)
def test_nothing_is_said_where_there_is_no_other_phase_or_it_is_not_known(run: Run) -> None:
    assert run.first_epoch_input_fraction is None
    assert "first epoch" not in verdict_sentence(run)


def cache(line: int, **fields: bool) -> Stage:
    return Stage(id=f"data.py:{line}:cache", file="data.py", line=line, method="cache", **fields)


def test_an_epoch_that_stops_early_fills_no_cache() -> None:
    stages = (cache(3), cache(4, reaches_end=False))
    (found,) = never_filled(stages, 10)
    assert found.code == "cache-never-completes"
    assert found.stages == ("data.py:3:cache",)
    assert "after 10 batches" in found.text
    assert ".repeat()" in found.remedy
    assert never_filled(stages, None) == ()
