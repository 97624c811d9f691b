"""Searches, confirmation and several ways to run the step, on a machine that exists on paper."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.unit.machine import FakeMachine, candidates, started
from tests.unit.test_profile import ONE, SERIAL, TWO, SilentDisplay, profile
from tfpipe.messages import CaptureTrace, MeasureFloor, MeasureStep
from tfpipe.records import Prediction, Run
from tfpipe.runner import profile as course
from tfpipe.runner.assemble import assemble_run
from tfpipe.runner.journal import CandidateMeasured, Confirming, Decided, Journal, read_journal
from tfpipe.runner.profile import Profile
from tfpipe.runner.search.base import Decision
from tfpipe.settings import NamedSettings, PipelineSettings

FOUR = "map-batch-prefetch4"
WAITS = {SERIAL: 0.032, ONE: 0.016, TWO: 0.0, FOUR: 0.0}


@dataclass
class Script:
    """A search that answers with what it was given, then stops."""

    begins_with: tuple[NamedSettings, ...]
    decisions: list[Decision]
    seen: list[Run] = field(default_factory=list)

    grows = True

    def first(self) -> tuple[NamedSettings, ...]:
        return self.begins_with

    def next(self, run: Run) -> Decision:
        self.seen.append(run)
        return self.decisions.pop(0) if self.decisions else Decision(stop=True)


@pytest.fixture
def search(monkeypatch):
    def use(script: Script) -> Script:
        monkeypatch.setattr(course, "make_search", lambda *args, **kwargs: script)
        return script

    return use


def rounds_of(run: Run, identity: str) -> list[int]:
    return [b.round for b in run.candidate(identity).blocks if b.kind == "step"]


def test_what_a_search_adds_joins_and_what_it_drops_leaves(tmp_path, search):
    first, one, two = candidates(0, 1, 2)
    expected = Prediction(step_s=0.07, capacity_examples_per_s=1000.0)
    decision = Decision(add=(two,), drop={ONE: "surely slower"}, predictions={TWO: expected})
    script = search(Script((first, one), [decision]))
    run = profile(FakeMachine(fetch_s=WAITS), tmp_path)
    assert run.untried == ()
    assert rounds_of(run, ONE) == [0, 1, 2]
    assert rounds_of(run, TWO)[:3] == [3, 4, 5]
    assert rounds_of(run, SERIAL)[:6] == [0, 1, 2, 3, 4, 5]
    assert run.candidate(ONE).dropped == "surely slower"
    assert run.candidate(TWO).predicted == expected
    assert run.candidate(TWO).capacity_examples_per_s
    assert [c.id for c in script.seen[0].candidates] == [SERIAL, ONE]
    assert run.recommendation.candidate == TWO


def test_a_dropped_candidate_is_neither_recommended_nor_traced(tmp_path, search):
    first, one, two = candidates(0, 1, 2)
    search(Script((first, one, two), [Decision(drop={TWO: "too costly"})]))
    paper = FakeMachine(fetch_s=WAITS)
    run = profile(paper, tmp_path)
    assert run.recommendation.candidate == ONE
    assert TWO not in run.recommendation.ties
    assert {r.settings.id for r in paper.requests if isinstance(r, CaptureTrace)} == {SERIAL, ONE}


def test_a_candidate_added_late_gets_as_many_rounds_as_any(tmp_path, search):
    first, _, two = candidates(0, 1, 2)
    search(Script((first,), [Decision(), Decision(add=(two,)), Decision(stop=True)]))
    run = profile(FakeMachine(fetch_s=WAITS), tmp_path)
    assert rounds_of(run, TWO)[:3] == [4, 5, 6]


def test_what_has_joined_gets_its_rounds_though_the_time_is_over(tmp_path, search):
    """Everything takes long once the second candidate has joined."""
    first, _, two = candidates(0, 1, 2)
    search(Script((first,), [Decision(add=(two,))]))

    class Slow(FakeMachine):
        def execute(self, request, *, timeout_s=None):
            if getattr(request, "round", 0) >= 3:
                self.clock.now += 100.0
            return super().execute(request, timeout_s=timeout_s)

    run = profile(Slow(fetch_s=dict.fromkeys(WAITS, 0.0)), tmp_path, time_budget_s=60.0)
    assert rounds_of(run, TWO) == [3, 4, 5]


def test_nothing_is_added_that_there_is_no_time_to_measure(tmp_path, search):
    first, _, two = candidates(0, 1, 2)
    search(Script((first,), [Decision(add=(two,))]))
    run = profile(FakeMachine(fetch_s=WAITS), tmp_path, time_budget_s=8.0)
    assert [c.id for c in run.candidates] == [SERIAL]
    assert run.untried == (TWO,)
    (warning,) = [warning for warning in run.warnings if warning.code == "untried"]
    assert f"1 more setting that the search would have measured (such as {TWO})" in warning.text
    assert run.recommendation.summary.endswith("There was no time to try what else may.")


def test_a_change_is_measured_once_more_beside_what_there_was(tmp_path):
    run = profile(FakeMachine(fetch_s=WAITS), tmp_path)
    since = run.confirmed_from
    assert since is not None
    confirmed = {c.id for c in run.candidates if any(r >= since for r in rounds_of(run, c.id))}
    assert confirmed == {run.current, run.recommendation.candidate}
    assert run.recommendation.change


def test_no_change_needs_no_confirmation(tmp_path):
    run = profile(FakeMachine(fetch_s=dict.fromkeys(WAITS, 0.0)), tmp_path)
    assert run.confirmed_from is None
    assert not run.recommendation.change


def test_what_only_seemed_faster_is_not_recommended(tmp_path):
    """Faster through all rounds of the search, and no more from the confirmation on."""

    class Lucky(FakeMachine):
        def execute(self, request, *, timeout_s=None):
            if isinstance(request, MeasureStep):
                lucky = request.settings.id == TWO and request.round < lucky_until
                self.fetch_s = dict.fromkeys(WAITS, 0.016) | ({TWO: 0.0} if lucky else {})
            return super().execute(request, timeout_s=timeout_s)

    lucky_until = 10**9
    for folder in ("always", "until confirmed"):
        (tmp_path / folder).mkdir()
    honest = profile(Lucky(fetch_s=dict(WAITS)), tmp_path / "always")
    assert honest.recommendation.candidate == TWO
    lucky_until = honest.confirmed_from
    run = profile(Lucky(fetch_s=dict(WAITS)), tmp_path / "until confirmed")
    assert run.recommendation.candidate == SERIAL
    assert not run.recommendation.change


@pytest.mark.parametrize(
    ("waits_s", "rounds"),
    [
        pytest.param((0.0,), 3, id="sure after three"),
        pytest.param((0.0, 0.04), 6, id="faster, not surely"),
        pytest.param((0.064, 0.0), 3, id="not faster"),
    ],
)
def test_a_change_that_may_be_worth_it_is_confirmed_for_longer_though_the_time_is_over(tmp_path, waits_s, rounds):
    """From the confirmation on the winner waits for ``waits_s`` in turn beside 0.032 s, and each block takes long."""
    since = 3

    class Late(FakeMachine):
        def execute(self, request, *, timeout_s=None):
            number = getattr(request, "round", 0)
            if number >= since:
                self.clock.now += 100.0
                self.fetch_s[TWO] = waits_s[(number - since) % len(waits_s)]
            return super().execute(request, timeout_s=timeout_s)

    run = profile(Late(fetch_s={SERIAL: 0.032, ONE: 0.032, TWO: 0.0}), tmp_path, time_budget_s=60.0)
    assert run.confirmed_from == since
    assert rounds_of(run, TWO) == list(range(since + rounds))


@pytest.mark.parametrize("kept", [0.3, 0.5, 0.7, 0.9, 1.0])
def test_a_resumed_search_repeats_no_decision_and_no_block(tmp_path, search, kept):
    first, one, two = candidates(0, 1, 2)

    def script() -> Script:
        return Script((first, one), [Decision(add=(two,), drop={ONE: "slower"}), Decision(), Decision(stop=True)])

    search(script())
    profile(FakeMachine(fetch_s=WAITS), tmp_path)
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)[:-2]
    path.write_bytes(b"".join(lines[: int(kept * len(lines))]))
    before = read_journal(path)
    taken = sum(isinstance(e, Decided) for e in before)
    resumed = script()
    resumed.decisions = resumed.decisions[taken:]
    search(resumed)
    machine = FakeMachine(fetch_s=WAITS)
    journal = Journal(path, before)
    Profile(machine, journal, tmp_path / "traces", SilentDisplay(), clock=machine.clock).run()
    journal.close()
    entries = read_journal(path)
    measured = [
        (e.id, e.measured.block.kind, e.measured.block.round) for e in entries if isinstance(e, CandidateMeasured)
    ]
    assert len(measured) == len(set(measured))
    decided = [e.round for e in entries if isinstance(e, Decided)]
    assert decided == sorted(set(decided))
    assert sum(isinstance(e, Confirming) for e in entries) == 1
    run = assemble_run(entries)
    assert rounds_of(run, ONE) == [0, 1, 2]
    assert rounds_of(run, TWO)[:3] == [3, 4, 5]


def test_a_buffer_that_holds_everything_is_measured_once(tmp_path):
    """The fake data set has 50,000 examples."""
    full, more, less = (
        NamedSettings(name="", settings=PipelineSettings(shuffle_buffer=buffer)) for buffer in ("full", 60_000, 40_000)
    )
    paper = FakeMachine(fetch_s={n.settings.id: 0.0 for n in (full, more, less)})
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(started((full, more, less)))
    Profile(paper, journal, tmp_path / "traces", SilentDisplay(), clock=paper.clock).run()
    journal.close()
    run = assemble_run(read_journal(tmp_path / "journal.jsonl"))
    assert {c.id: c.status for c in run.candidates} == {
        full.settings.id: "complete",
        more.settings.id: "skipped",
        less.settings.id: "complete",
    }
    assert (
        run.candidate(more.settings.id).error
        == f"The same as {full.settings.id}: either buffer holds all 50,000 examples."
    )


# --- ways to run the step ----------------------------------------------------------------------------------------


def test_pipelines_are_compared_behind_the_fastest_way_to_run_the_step(tmp_path):
    paper = FakeMachine(fetch_s=WAITS, executions={"eager": 0.256, "graph": 0.064, "xla": 0.032})
    run = profile(paper, tmp_path)
    assert run.step.execution == "xla"
    assert run.floor.step_s.value == pytest.approx(0.032)
    assert {r.execution for r in paper.requests if isinstance(r, CaptureTrace)} == {"xla"}
    assert [result.step.execution for result in run.executions] == ["eager", "graph", "xla"]


def test_each_way_is_measured_behind_the_current_and_the_recommended_pipeline(tmp_path):
    paper = FakeMachine(fetch_s=WAITS, executions={"eager": 0.256, "graph": 0.064})
    run = profile(paper, tmp_path)
    assert run.recommendation.candidate == TWO
    for result, compute_s in zip(run.executions, (0.256, 0.064), strict=True):
        assert result.floor.step_s.value == pytest.approx(compute_s)
        assert result.current.step_s.value == pytest.approx(compute_s + 0.033)
        assert result.recommended.step_s.value == pytest.approx(compute_s + 0.001)


def test_one_way_alone_is_no_comparison(tmp_path):
    assert profile(FakeMachine(fetch_s=WAITS, executions={"xla": 0.05}), tmp_path).executions == ()


def test_a_step_that_is_mostly_python_is_host_bound(tmp_path):
    """T17: the same step as one tf.function takes a fraction; no pipeline is to blame."""
    fetch_s = dict.fromkeys(WAITS, 0.0)
    run = profile(FakeMachine(fetch_s=fetch_s, executions={"eager": 0.111}, twin_s=0.004), tmp_path)
    assert {c.verdict.bound for c in run.candidates} == {"host"}
    assert run.candidates[0].host_fraction == pytest.approx(0.107 / 0.112)
    assert not run.recommendation.change


def test_an_eager_step_that_computes_most_of_the_time_is_not_host_bound(tmp_path):
    fetch_s = dict.fromkeys(WAITS, 0.0)
    run = profile(FakeMachine(fetch_s=fetch_s, executions={"eager": 0.294}, twin_s=0.214), tmp_path)
    assert {c.verdict.bound for c in run.candidates} == {"compute"}


def test_the_twin_is_measured_alone(tmp_path):
    paper = FakeMachine(fetch_s=dict.fromkeys(WAITS, 0.0), executions={"eager": 0.111}, twin_s=0.004)
    profile(paper, tmp_path)
    as_graph = [r for r in paper.requests if getattr(r, "execution", None) == "graph"]
    assert as_graph
    assert all(isinstance(request, MeasureFloor) for request in as_graph)
