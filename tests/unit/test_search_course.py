"""A search through the whole course of a run, on a machine that exists on paper."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.machine import FakeMachine, started
from tests.unit.test_profile import SilentDisplay
from tfpipe.runner.assemble import assemble_run
from tfpipe.runner.candidates import choose_candidates
from tfpipe.runner.journal import Journal, read_journal
from tfpipe.runner.profile import Profile
from tfpipe.settings import ORDERS

KNOBS = {"map_parallelism": "none,2,auto", "prefetch_depth": "0,1,2,auto", "order": "map-batch,batch-map"}
LISTED = choose_candidates(KNOBS, orders=ORDERS["cifar100"], cores=2, yes=False)
# Batching first saves a little, calls in parallel more, and a batch that is ready most; more than one changes nothing.
FETCH_S = {
    named.settings.id: 0.04 * (named.settings.prefetch_depth == 0)
    + 0.02 * (named.settings.map_parallelism is None)
    + 0.01 * (named.settings.order == "map-batch")
    for named in LISTED
}


def begin(path, search):
    journal = Journal(path)
    journal.append(msgspec.structs.replace(started(LISTED), knobs=KNOBS, search=search))
    return journal


def go_on(journal, tmp_path):
    paper = FakeMachine(fetch_s=FETCH_S)
    Profile(paper, journal, tmp_path / "traces", SilentDisplay(), clock=paper.clock).run()
    journal.close()
    return assemble_run(journal.entries)


@pytest.mark.parametrize("search", ["model", "random", "optuna"])
def test_a_search_recommends_what_the_grid_would(tmp_path, search):
    if search == "optuna":
        pytest.importorskip("optuna")
    run = go_on(begin(tmp_path / "journal.jsonl", search), tmp_path)
    assert FETCH_S[run.recommendation.candidate] == min(FETCH_S.values())
    assert run.confirmed_from is not None


def test_the_model_needs_a_part_of_the_list_and_says_what_it_expected(tmp_path):
    run = go_on(begin(tmp_path / "journal.jsonl", "model"), tmp_path)
    assert len(run.candidates) <= len(LISTED) / 2
    assert any(c.predicted is not None for c in run.candidates)
    chosen = run.candidate(run.recommendation.candidate).settings
    assert (chosen.map_parallelism, chosen.prefetch_depth) == (2, 1)


@pytest.mark.parametrize("kept", [0.2, 0.4, 0.6, 0.8])
def test_a_search_that_was_cut_off_goes_on_as_it_would_have(tmp_path, kept):
    path = tmp_path / "journal.jsonl"
    whole = go_on(begin(path, "model"), tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: int(kept * len(lines))]))
    resumed = go_on(Journal(path, read_journal(path)), tmp_path)
    assert [c.id for c in resumed.candidates] == [c.id for c in whole.candidates]
    assert [c.predicted for c in resumed.candidates] == [c.predicted for c in whole.candidates]
    assert resumed.recommendation.candidate == whole.recommendation.candidate


def test_the_truth_of_these_tests_has_the_shape_they_assume():
    fastest = {identity for identity, seconds in FETCH_S.items() if seconds == min(FETCH_S.values())}
    assert fastest == {
        n.settings.id
        for n in LISTED
        if n.settings.order == "batch-map" and n.settings.map_parallelism and n.settings.prefetch_depth
    }
