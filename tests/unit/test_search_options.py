"""Asking for a search on the command line and from Python: nothing starts on a request that makes no sense."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import tfpipe
from tfpipe.cli.main import main
from tfpipe.errors import UsageError
from tfpipe.runner import candidates
from tfpipe.runner.candidates import choose_search


def make_dataset():
    raise AssertionError("nothing was to start")


@pytest.mark.parametrize(
    ("name", "steps", "chosen"),
    [
        (None, None, "model"),
        (None, 20, "grid"),
        ("grid", 20, "grid"),
        ("grid", None, "grid"),
        ("random", None, "random"),
    ],
)
def test_the_model_searches_unless_told_otherwise_and_counted_steps_are_for_all(name, steps, chosen):
    assert choose_search(name, steps=steps) == chosen


@pytest.mark.parametrize("name", ["model", "random"])
def test_a_search_that_measures_some_longer_does_not_go_with_a_number_of_steps(name):
    with pytest.raises(UsageError, match=f"--search {name}"):
        choose_search(name, steps=20)


def test_an_unknown_search_is_named():
    with pytest.raises(UsageError, match="no search 'bayes'"):
        choose_search("bayes", steps=None)


def test_without_its_package_optuna_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(candidates, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as raised:
        choose_search("optuna", steps=None)
    assert "pip install 'tfpipe[search]'" in raised.value.hint


@pytest.mark.parametrize(
    "options",
    [
        ["--search", "random", "--steps", "5"],
        ["--search", "bayes"],
        ["--search-tolerance", "1"],
        ["--search-tolerance", "-0.1"],
        ["--search", "grid", "--map-parallelism", ",".join(map(str, range(1, 202)))],
    ],
)
def test_the_command_refuses_before_anything_starts(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["profile", "--dataset", "cifar100", *options])
    assert result.exit_code == 2, result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [{"search": "bayes"}, {"search": "random", "steps": 5}, {"search_tolerance": 1.0}, {"search_tolerance": -0.1}],
)
def test_the_python_api_refuses_before_anything_starts(options, tmp_path):
    with pytest.raises(UsageError):
        tfpipe.profile(make_dataset, output=tmp_path / "run", quiet=True, **options)
    assert not (tmp_path / "run").exists()
