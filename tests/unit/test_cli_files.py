"""``recommend`` and ``show``: from a run file to stdout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.runs import AUTOTUNE, SERIAL, make_run
from tfpipe.cli.main import main
from tfpipe.report.candidate import candidate_report
from tfpipe.report.code import pipeline_code
from tfpipe.report.json_report import candidate_json, recommendation_json
from tfpipe.report.markdown import candidate_markdown, candidates_markdown, recommendation_markdown
from tfpipe.report.text import candidates_report, recommendation_report
from tfpipe.runfile import run_to_json, write_run

RUN = make_run()


@pytest.fixture(autouse=True)
def run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``runs/one`` in an otherwise empty working directory."""
    monkeypatch.chdir(tmp_path)
    directory = Path("runs/one")
    directory.mkdir(parents=True)
    write_run(directory, RUN)
    return directory


def tfpipe(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def expected(form: str, directory: Path) -> str:
    assert RUN.recommendation is not None
    if form == "json":
        return recommendation_json(RUN, RUN.recommendation)
    if form == "markdown":
        return recommendation_markdown(RUN, RUN.recommendation)
    if form == "code":
        return pipeline_code(RUN, RUN.candidate(RUN.recommendation.candidate).settings)
    return recommendation_report(RUN, RUN.recommendation, directory, width=80, color=False)


@pytest.mark.parametrize("form", ["text", "json", "markdown", "code"])
def test_recommend(form: str, run_directory: Path) -> None:
    result = tfpipe("recommend", "--format", form)
    assert (result.exit_code, result.stdout, result.stderr) == (0, expected(form, run_directory), "")


@pytest.mark.parametrize("name", ["runs/one", "runs/one/run.json", "one"])
def test_a_run_may_be_named_in_three_ways(name: str) -> None:
    assert tfpipe("show", name).exit_code == 0


def test_show(run_directory: Path) -> None:
    assert tfpipe("show").stdout == candidates_report(RUN, run_directory, width=80, color=False)
    assert tfpipe("show", "--format", "markdown").stdout == candidates_markdown(RUN)
    assert tfpipe("show", "--format", "json").stdout.encode() == run_to_json(RUN)


@pytest.mark.parametrize("wanted", [SERIAL.id, "serial, as written", "1"])
def test_show_one_candidate(wanted: str, run_directory: Path) -> None:
    candidate = RUN.candidates[0]
    text = tfpipe("show", "--candidate", wanted).stdout
    assert text == candidate_report(RUN, candidate, run_directory, width=80, color=False)
    markdown = tfpipe("show", "--candidate", wanted, "--format", "markdown").stdout
    assert markdown == candidate_markdown(RUN, candidate, run_directory)
    assert tfpipe("show", "--candidate", wanted, "--format", "json").stdout == candidate_json(RUN, candidate)


def test_an_unknown_candidate_is_named_with_the_known_ones() -> None:
    result = tfpipe("show", "--candidate", "nosuch")
    assert result.exit_code == 2
    assert "'nosuch'" in result.stderr
    assert SERIAL.id in result.stderr


def test_a_memory_limit_chooses_again() -> None:
    document = json.loads(tfpipe("recommend", "--format", "json", "--max-memory", "19.5MiB").stdout)
    assert document["memory_bytes"] <= 19.5 * 2**20
    assert document["candidate"] in {AUTOTUNE.id, "shuffle5000-map-batch"}


def test_a_memory_limit_that_nothing_keeps() -> None:
    result = tfpipe("recommend", "--max-memory", "1MiB")
    assert result.exit_code == 1
    assert "--max-memory" in result.stderr


@pytest.mark.parametrize("size", ["much", "-1GiB", ""])
def test_a_memory_limit_that_is_no_size(size: str) -> None:
    result = tfpipe("recommend", "--max-memory", size)
    assert result.exit_code == 2
    assert result.stderr.startswith("tfpipe: --max-memory: ")


def test_a_run_without_a_recommendation_is_given_one(run_directory: Path) -> None:
    write_run(run_directory, make_run(recommendation=None))
    result = tfpipe("recommend", "--format", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["settings"]


@pytest.mark.parametrize("command", ["recommend", "show", "tensorboard"])
class TestRunsThatCannotBeRead:
    def test_none_yet(self, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "empty").mkdir()
        monkeypatch.chdir(tmp_path / "empty")
        result = tfpipe(command)
        assert result.exit_code == 2
        assert "tfpipe profile --dataset cifar100" in result.stderr

    def test_no_such_directory(self, command: str) -> None:
        result = tfpipe(command, "nosuch")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "nosuch" in result.stderr


@pytest.mark.parametrize("command", ["recommend", "show"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (run_to_json(RUN)[:1000], "not a whole JSON file"),
        (run_to_json(RUN).replace(b'"version": 1', b'"version": 99', 1), "version 99"),
        (b"{}", "not a run file"),
        (run_to_json(RUN).replace(b'"candidates"', b'"candidate"', 1), "damaged"),
    ],
    ids=["half", "other-version", "other-file", "missing-key"],
)
def test_a_damaged_run(command: str, content: bytes, words: str, run_directory: Path) -> None:
    (run_directory / "run.json").write_bytes(content)
    result = tfpipe(command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr


def test_no_colour_in_a_pipe_even_where_a_terminal_might_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b" not in tfpipe("show").stdout
