"""The recorded run in ``samples/`` stays readable: files written by this release are read for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

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


def test_the_same_is_recommended_from_it_today():
    run = load_run(RUN)
    assert run.recommendation is not None
    assert recommend(run).candidate == run.recommendation.candidate
