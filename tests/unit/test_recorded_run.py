"""The recorded run in ``samples/`` stays readable: files written by this release are read for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import tfpipe
from tfpipe.analysis.recommend import recommend
from tfpipe.cli.main import main
from tfpipe.runfile import load_run

RUN = Path(__file__).parents[2] / "samples" / "recorded_run"


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", str(RUN)],
        ["show", str(RUN), "--candidate", "1"],
        ["recommend", str(RUN)],
        *(["recommend", str(RUN), "--format", form] for form in ("json", "markdown", "code")),
    ],
)
def test_file_only_commands_work_on_it(arguments):
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "shuffle64-map" in done.output or "dataset.shuffle(64" in done.output


def test_its_traces_are_where_it_says_and_can_be_analyzed():
    for candidate in load_run(RUN).candidates:
        assert candidate.trace is not None
        done = CliRunner().invoke(main, ["analyze", str(RUN / candidate.trace.path)])
        assert done.exit_code == 0, done.output


IDS = [f"shuffle64-map{calls}-batch-prefetch1" for calls in ("1", "2", "auto")]


@pytest.mark.parametrize("name", [".", "run.json", "traces"])
def test_of_a_run_the_recommended_candidate_is_analyzed_and_that_is_said(name):
    done = CliRunner().invoke(main, ["analyze", str(RUN / name)])
    assert done.exit_code == 0, done.output
    assert f"/traces/{IDS[1]}/plugins/" in done.stdout.replace("\n", "")
    assert done.stderr == (
        f"tfpipe: the trace of {IDS[1]}, which this run recommends. "
        f"For another add --candidate ID: {IDS[0]}, {IDS[2]}\n"
    )
    assert tfpipe.analyze(RUN / name).main.path.count(IDS[1]) == 1


@pytest.mark.parametrize("wanted", [IDS[0], "1"])
def test_another_candidate_of_a_run_is_analyzed_when_asked_for(wanted):
    done = CliRunner().invoke(main, ["analyze", str(RUN), "--candidate", wanted])
    assert done.exit_code == 0, done.output
    assert f"/traces/{IDS[0]}/plugins/" in done.stdout.replace("\n", "")
    assert done.stderr == f"tfpipe: the trace of {IDS[0]}.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([str(RUN), "--candidate", "nosuch"], "no candidate 'nosuch'"),
        ([str(RUN / "traces" / IDS[0]), "--candidate", "1"], "needs a run of tfpipe"),
        ([str(RUN), "--candidate", "1", "--session", "x"], "name a trace each"),
    ],
)
def test_a_candidate_that_cannot_be_analyzed(arguments, words):
    done = CliRunner().invoke(main, ["analyze", *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr


def test_the_same_is_recommended_from_it_today():
    run = load_run(RUN)
    assert run.recommendation is not None
    assert recommend(run).candidate == run.recommendation.candidate
