from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.unit.machine import FakeMachine
from tests.unit.test_profile import ONE, SERIAL, profile
from tfpipe.analysis.gate import check_gate
from tfpipe.cli.main import main
from tfpipe.errors import UsageError
from tfpipe.records import Limits

# The current candidate is the serial one: it waits 16 of 81 ms, 395 examples/s.
MACHINE = {"fetch_s": {SERIAL: 0.016, ONE: 0.0}, "compute_s": 0.064, "fetch_floor_s": 0.001}


@pytest.fixture
def run(tmp_path):
    return profile(FakeMachine(**MACHINE), tmp_path, depths=(0, 1))


@pytest.mark.parametrize(
    ("limits", "passed"),
    [
        ({"max_input_fraction": 0.25}, True),
        ({"max_input_fraction": 0.15}, False),
        ({"min_examples_per_s": 390}, True),
        ({"min_examples_per_s": 400}, False),
        ({"max_input_fraction": 0.25, "min_examples_per_s": 400}, False),
    ],
)
def test_limits_are_kept_or_missed(run, limits, passed):
    gate = check_gate(run, Limits(**limits))
    assert gate.passed is passed
    assert not gate.uncertain
    assert gate.sentence.startswith(SERIAL)
    assert ("the limit is" in gate.sentence) is not passed


def test_an_interval_across_the_limit_fails_only_when_strict(tmp_path):
    ticks = iter(range(10**9))
    noisy = FakeMachine(**MACHINE, slowdown=lambda now: 1.0 + 0.5 * (next(ticks) % 5 == 0))
    run = profile(noisy, tmp_path, depths=(0,), steps=9)
    limit = run.candidate(SERIAL).examples_per_s.value
    assert check_gate(run, Limits(min_examples_per_s=limit)).passed
    gate = check_gate(run, Limits(min_examples_per_s=limit, strict=True))
    assert not gate.passed
    assert gate.uncertain
    assert "uncertain" in gate.sentence


def test_against_a_baseline(run, tmp_path):
    slower = {**MACHINE, "compute_s": 0.08}
    (tmp_path / "later").mkdir()
    later = profile(FakeMachine(**slower), tmp_path / "later", depths=(0, 1))
    assert check_gate(run, Limits(), run).passed
    assert check_gate(run, Limits(), later).passed
    gate = check_gate(later, Limits(tolerance=0.05), run)
    assert not gate.passed
    assert "the baseline less 5.0 %" in gate.sentence
    assert check_gate(later, Limits(tolerance=0.5), run).passed


def test_without_a_step_there_is_no_wait_to_limit(tmp_path):
    drained = profile(FakeMachine(**{**MACHINE, "compute_s": 0.0}), tmp_path, depths=(0,), step="none")
    with pytest.raises(UsageError, match="no input fraction"):
        check_gate(drained, Limits(max_input_fraction=0.05))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--strict"], "--max-input-fraction, --min-examples-per-s or --baseline"),
        (["--tolerance", "0.1"], "Add --baseline RUN."),
        (["--tolerance", "0.05", "--max-input-fraction", "0.1"], "Add --baseline RUN."),
        (["--resume", "nosuch", "--strict"], "--max-input-fraction"),
    ],
)
def test_what_belongs_to_a_limit_is_refused_without_one(flags, words):
    done = CliRunner().invoke(main, ["profile", "--dataset", "cifar100", *flags])
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
