"""The course of a run on a machine that exists on paper: no TensorFlow, no waiting."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.unit.machine import FakeMachine, candidates, started
from tfpipe.errors import TfpipeError
from tfpipe.messages import CaptureTrace, Failed, MeasureFloor, MeasureStep
from tfpipe.records import Explanation
from tfpipe.runner.assemble import assemble_run
from tfpipe.runner.journal import Journal, read_journal
from tfpipe.runner.profile import Profile, WorkerBugError
from tfpipe.runner.reading import TraceReading

SERIAL, ONE, TWO = "map-batch", "map-batch-prefetch1", "map-batch-prefetch2"


class SilentDisplay:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def show(self, text: str, *, elapsed_s: float, budget_s: float) -> None:
        self.texts.append(text)


def profile(machine: FakeMachine, tmp_path, *, depths=(0, 1, 2), max_memory_bytes=None, reading=None, **options):
    """Run to the end; the assembled run."""
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(started(candidates(*depths), **options))
    try:
        Profile(
            machine,
            journal,
            tmp_path / "traces",
            SilentDisplay(),
            clock=machine.clock,
            max_memory_bytes=max_memory_bytes,
            reading=reading,
        ).run()
    finally:
        journal.close()
    return assemble_run(read_journal(tmp_path / "journal.jsonl"))


def machine(**options) -> FakeMachine:
    return FakeMachine(fetch_s={SERIAL: 0.032, ONE: 0.0, TWO: 0.0}, **options)


def test_a_run_ends_with_verdicts_and_a_recommendation(tmp_path):
    run = profile(machine(), tmp_path)
    assert run.complete
    assert {c.id: c.verdict.bound for c in run.candidates} == {SERIAL: "input-high", ONE: "compute", TWO: "compute"}
    assert run.recommendation.change
    assert run.recommendation.candidate == ONE
    assert run.recommendation.ties == (TWO,)
    assert run.floor.fetch_s == pytest.approx(0.001)
    serial = run.candidate(SERIAL)
    assert serial.input_wait_s == pytest.approx(0.032)
    assert serial.compute_s + serial.input_wait_s + serial.contention_s == pytest.approx(serial.step_s.value)


def test_every_round_measures_every_candidate_and_the_floor_once_in_changing_order(tmp_path):
    paper = machine()
    run = profile(paper, tmp_path)
    rounds: dict[int, list[str]] = {}
    for request in paper.requests:
        if getattr(request, "round", 0) >= run.confirmed_from:
            continue
        if isinstance(request, MeasureStep):
            rounds.setdefault(request.round, []).append(request.settings.id)
        if isinstance(request, MeasureFloor) and request.round >= 0:
            rounds.setdefault(request.round, []).append("floor")
    assert len(rounds) >= 3
    assert all(Counter(order) == Counter({SERIAL: 1, ONE: 1, TWO: 1, "floor": 1}) for order in rounds.values())
    assert len({tuple(order) for order in rounds.values()}) > 1


def test_all_traces_come_after_all_rounds(tmp_path):
    paper = machine()
    profile(paper, tmp_path)
    kinds = [type(request) for request in paper.requests]
    assert kinds.index(CaptureTrace) > max(i for i, kind in enumerate(kinds) if kind is MeasureStep)
    assert kinds.count(CaptureTrace) == 3


@pytest.mark.parametrize(
    "slowdown",
    [
        pytest.param(lambda now: 1.3 if now > 5 else 1.0, id="slower half-way"),
        *(
            pytest.param(lambda now, at=at: 40.0 if at < now < at + 0.1 else 1.0, id=f"pause after {at} s")
            for at in range(0, 22, 2)
        ),
    ],
)
def test_drift_does_not_choose_the_winner(tmp_path, slowdown):
    """The candidates differ by 6 % of a step; the machine slows by far more than that."""
    paper = FakeMachine(fetch_s={SERIAL: 0.012, ONE: 0.004, TWO: 0.008}, slowdown=slowdown)
    run = profile(paper, tmp_path)
    assert run.recommendation.candidate == run.recommendation.fastest == ONE
    assert SERIAL not in run.recommendation.ties


def test_a_machine_that_is_slow_every_second_round_does_not_choose_the_winner(tmp_path):
    paper = FakeMachine(
        fetch_s={SERIAL: 0.012, ONE: 0.004, TWO: 0.008},
        slowdown=lambda now: 1.3 if getattr(paper.requests[-1], "round", 0) % 2 else 1.0,
    )
    run = profile(paper, tmp_path)
    assert run.recommendation.candidate == run.recommendation.fastest == ONE
    assert SERIAL not in run.recommendation.ties


@pytest.mark.parametrize("spell_s", [3.5, 4.0, 4.5, 5.0, 6.0, 7.0])
def test_spells_within_a_round_do_not_choose_the_winner(tmp_path, spell_s):
    paper = FakeMachine(
        fetch_s={SERIAL: 0.012, ONE: 0.004, TWO: 0.008},
        slowdown=lambda now: 1.3 if int(now / spell_s) % 2 else 1.0,
    )
    run = profile(paper, tmp_path)
    assert run.recommendation.candidate == run.recommendation.fastest == ONE
    assert SERIAL not in run.recommendation.ties


def test_rounds_do_not_go_on_for_a_verdict_that_no_steps_would_settle(tmp_path):
    """As near the cut of 5 % as what a fetch costs is known, on a machine whose blocks all agree."""
    run = profile(FakeMachine(fetch_s=dict.fromkeys((SERIAL, ONE, TWO), 0.0035)), tmp_path)
    assert {c.verdict.bound for c in run.candidates} == {"uncertain"}
    assert {c.verdict.more_steps for c in run.candidates} == {None}
    assert all(len([b for b in c.blocks if b.kind == "step"]) == 3 for c in run.candidates)


def test_a_failing_candidate_is_recorded_and_the_others_go_on(tmp_path):
    cause = Failed(cause="died", message="the worker crashed (SIGABRT)")
    run = profile(machine(fail={ONE: cause}), tmp_path)
    assert run.candidate(ONE).status == "failed"
    assert run.candidate(ONE).error == "the worker crashed (SIGABRT)"
    assert run.candidate(TWO).status == "complete"
    assert run.recommendation.candidate == TWO


def test_a_workload_that_cannot_be_prepared_ends_the_run_with_its_message(tmp_path):
    class Refusing(FakeMachine):
        def execute(self, request, *, timeout_s=None):
            return Failed(cause="request", message="no such folder", hint="make it", exit_code=2)

    with pytest.raises(TfpipeError, match="no such folder") as caught:
        profile(Refusing(fetch_s={}), tmp_path)
    assert caught.value.exit_code == 2
    assert caught.value.hint == "make it"


def test_a_worker_that_ends_while_preparing_is_told_with_what_it_did(tmp_path):
    class Dying(FakeMachine):
        def execute(self, request, *, timeout_s=None):
            return Failed(cause="died", message="the worker ended by itself with exit code 5")

    with pytest.raises(TfpipeError, match="were prepared: the worker ended by itself with exit code 5") as caught:
        profile(Dying(fetch_s={}), tmp_path)
    assert "by themselves" in caught.value.hint


def test_a_bug_keeps_its_traceback(tmp_path):
    class Broken(FakeMachine):
        def execute(self, request, *, timeout_s=None):
            return Failed(cause="bug", message="KeyError: 'x'", detail="Traceback ... line 7")

    with pytest.raises(WorkerBugError, match="line 7"):
        profile(Broken(fetch_s={}), tmp_path)


def test_the_time_budget_is_kept_where_the_least_allows_it(tmp_path):
    """Two candidates that differ by less than noise never separate: the budget ends the run."""
    ticks = iter(range(10**9))
    paper = FakeMachine(fetch_s={SERIAL: 0.01, ONE: 0.0101}, slowdown=lambda now: 1.0 + 0.2 * (next(ticks) % 7 == 0))
    run = profile(paper, tmp_path, depths=(0, 1), time_budget_s=40.0)
    assert 20.0 < run.timings_s["measure"] < 44.0


def test_a_small_budget_makes_short_blocks_and_not_fewer_rounds(tmp_path):
    run = profile(machine(), tmp_path, time_budget_s=10.0)
    assert run.timings_s["measure"] < 15.0
    assert all(len({b.round for b in c.blocks if b.kind == "step"}) >= 3 for c in run.candidates)


@pytest.mark.parametrize("steps", [3, 5, 30, 31])
def test_the_number_of_steps_can_be_fixed(tmp_path, steps):
    run = profile(machine(), tmp_path, steps=steps)
    for candidate in run.candidates:
        counted = [b.steps for b in candidate.blocks if b.kind == "step" and b.round < run.confirmed_from]
        assert sum(counted) == steps


def test_without_a_step_there_is_no_floor_and_no_verdict(tmp_path):
    run = profile(FakeMachine(fetch_s={SERIAL: 0.032, ONE: 0.016}, compute_s=0.0), tmp_path, depths=(0, 1), step="none")
    assert run.floor.step_s is None
    assert all(c.verdict is None and c.input_fraction is None for c in run.candidates)
    assert run.recommendation.candidate == ONE


def test_a_trace_that_waits_otherwise_than_the_unprofiled_run_is_marked(tmp_path):
    run = profile(machine(profiled_fetch_s={ONE: 0.016}), tmp_path)
    assert run.candidate(ONE).trace.disturbed
    assert not run.candidate(SERIAL).trace.disturbed
    assert run.candidate(ONE).profiler_overhead_fraction == pytest.approx(0.08 / 0.065 - 1)
    assert "disturbed" in {warning.code for warning in run.warnings}
    assert run.candidate(ONE).trace.path == f"traces/{ONE}/plugins/profile/2026"


def test_a_candidate_that_cannot_fit_is_skipped_with_the_arithmetic(tmp_path):
    paper = FakeMachine(fetch_s={SERIAL: 0.032, "map-batch-prefetch5000": 0.0})
    run = profile(paper, tmp_path, depths=(0, 5000), max_memory_bytes=2**30)
    skipped = run.candidate("map-batch-prefetch5000")
    assert skipped.status == "skipped"
    assert "5,000 batches x 384 KiB" in skipped.error
    assert "--prefetch" in skipped.error
    assert run.candidate(SERIAL).status == "complete"
    assert not any(getattr(request, "settings", None) == skipped.settings for request in paper.requests)


def explained(session: Path) -> Explanation:
    return Explanation(bottleneck=session.parent.parent.parent.name, share=1.0, top_ops=(), findings=())


def test_each_candidate_explains_itself_unless_its_trace_was_disturbed(tmp_path):
    reading = TraceReading(count_events=lambda session: 100, explain=explained)
    run = profile(machine(profiled_fetch_s={ONE: 0.016}), tmp_path, reading=reading)
    assert run.candidate(SERIAL).trace.explanation.bottleneck == SERIAL
    assert run.candidate(ONE).trace.explanation is None


@pytest.mark.parametrize(("events_per_step", "steps", "probes"), [(100, 16, 1), (10_000, 16, 3), (100_000, 4, 3)])
def test_a_trace_is_cut_to_a_number_of_events_found_on_one_step(tmp_path, events_per_step, steps, probes):
    reading = TraceReading(count_events=lambda session: events_per_step, explain=lambda session: None)
    paper = machine()
    run = profile(paper, tmp_path, reading=reading)
    captures = [request for request in paper.requests if isinstance(request, CaptureTrace)]
    assert sum(request.steps == 1 for request in captures) == probes
    two = run.candidate(TWO).trace
    assert two.steps == steps
    assert two.note == (
        "" if steps == 16 else "cut from 16 to 4 steps: one step makes 100,000 events, and a trace is kept to 400,000"
    )
