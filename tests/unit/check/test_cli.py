"""The command: exit codes, what goes where, and what it does not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tfpipe.cli.main import main

CODE = """\
import tensorflow as tf

@tf.function
def f(x):
    print(x)
    return x
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "warned.py").write_text(CODE)
    (tmp_path / "wrong.py").write_text(CODE.replace("print(x)", "x.numpy()"))
    (tmp_path / "broken.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["check", *arguments])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["warned.py"], 0),
        (["warned.py", "--fail-on", "error"], 0),
        (["warned.py", "--fail-on", "warning"], 3),
        (["wrong.py", "--fail-on", "error"], 3),
        (["wrong.py", "--fail-on", "warning", "--format", "sarif"], 3),
        (["missing.py"], 2),
        (["warned.py:g"], 2),
        (["broken.py"], 1),
        (["broken.py:f"], 1),
        (["."], 1),
        ([".", "--fail-on", "error"], 3),
        ([], 2),
        (["warned.py", "--run"], 2),
        (["warned.py:f", "--run"], 2),
        (["warned.py:f", "--pipeline", "a:b"], 2),
        (["--rules"], 0),
    ],
)
def test_exit_codes(folder: Path, arguments: list[str], code: int) -> None:
    result = run(*arguments)
    assert result.exit_code == code
    assert bool(result.stdout) == (code in (0, 3) or arguments in (["broken.py"], ["."]))
    assert bool(result.stderr) == (code != 0)


def test_the_gate_is_told_on_stderr(folder: Path) -> None:
    result = run("warned.py", "wrong.py", "--fail-on", "warning")
    assert result.stderr.splitlines()[0] == "tfpipe: 2 findings of severity warning or worse."
    assert result.stdout.endswith("1 error and 1 warning in 2 traced functions in 2 files.\n")


def test_a_broken_file_stops_no_other(folder: Path) -> None:
    (folder / "latin.py").write_bytes(b"x = '\xe9'\n")
    (folder / "deep.py").write_text("x = " + "+".join(["1"] * 5000))
    result = run(".")
    assert "broken.py:1:1: error: unreadable-file\n    syntax error: " in result.stdout
    assert "deep.py:1:1: error: unreadable-file\n    nested too deeply to be read.\n" in result.stdout
    assert "latin.py:1:1: error: unreadable-file\n    not Python source text: " in result.stdout
    assert "warned.py:5:5: warning: python-print\n" in result.stdout
    assert result.stdout.endswith("4 errors and 1 warning in 2 traced functions in 5 files.\n")
    assert result.stderr.splitlines()[0] == ("tfpipe: 3 of 5 files could not be checked: broken.py, deep.py, latin.py.")


@pytest.mark.parametrize("form", ["json", "sarif", "github"])
def test_a_broken_file_is_in_every_format(folder: Path, form: str) -> None:
    assert "unreadable-file" in run(".", "--format", form).stdout


def test_a_directory_and_a_file_in_it_are_listed_once(folder: Path) -> None:
    (folder / "broken.py").unlink()
    content = json.loads(run(".", "warned.py", "--format", "json").stdout)
    assert [(finding["path"], finding["rule"]) for finding in content["findings"]] == [
        ("warned.py", "python-print"),
        ("wrong.py", "tensor-numpy"),
    ]


def test_one_function_of_a_module(folder: Path) -> None:
    assert "warned.py:5:5: warning: python-print\n" in run("warned:f").stdout


def test_tensorflow_is_not_imported(folder: Path) -> None:
    code = (
        "import sys\n"
        "from tfpipe.cli.main import main\n"
        "main(['check', 'warned.py'], standalone_mode=False)\n"
        "assert not {'tensorflow', 'numpy', 'rich'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
