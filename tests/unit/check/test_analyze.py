"""Places, markers, targets and unreadable source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.check.finding import HEAD, findings_in, rules_in
from tfpipe.check.analyze import analyze_source
from tfpipe.check.target import find_target, read_source
from tfpipe.errors import TfpipeError, UsageError


def test_columns_count_characters_from_one() -> None:
    finding = findings_in("@tf.function\ndef f(x):\n    s = 'äöü'; print(x)\n")[0]
    assert (finding.line, finding.column, finding.end_line, finding.end_column) == (4, 16, 4, 24)


def test_a_loop_is_marked_by_its_first_line() -> None:
    finding = findings_in("@tf.function\ndef f(x):\n    for i in range(99):\n        x = tf.sin(x)\n    return x\n")[0]
    assert (finding.line, finding.end_line) == (4, 4)


def test_the_unrolled_size_is_told() -> None:
    finding = findings_in(
        "@tf.function\ndef f(x):\n    for i in range(100):\n        x = tf.sin(tf.cos(x))\n    return x\n"
    )[0]
    assert finding.message == "the loop is unrolled 100 times into the graph: about 200 operations"


def test_one_place_is_reported_once() -> None:
    code = "def g(x):\n    print(x)\n@tf.function\ndef a(x):\n    g(x)\n@tf.function\ndef b(x):\n    g(x)\n"
    assert rules_in(code) == ["python-print"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("print(x)  # tfpipe: ignore[python-print]", []),
        ("print(x)  # shown when traced; tfpipe: ignore[outer-state, python-print]", []),
        ("print(\n        x)  # tfpipe: ignore[python-print]", []),
        ("print(x)  # tfpipe: ignore[outer-state]", ["python-print"]),
        ("print(x, '# tfpipe: ignore[python-print]')", ["python-print"]),
        ("print(x)  # tfpipe: ignore", ["python-print"]),
    ],
)
def test_markers(line: str, expected: list[str]) -> None:
    assert rules_in(f"@tf.function\ndef f(x):\n    {line}\n") == expected


def test_markers_are_counted_and_unknown_rules_noted() -> None:
    text = HEAD + "@tf.function\ndef f(x):\n    print(x)  # tfpipe: ignore[python-print, nonsense]\n"
    file = analyze_source("code.py", text).file
    assert file.suppressed == 1
    assert file.notes == ("line 4: there is no rule 'nonsense' to ignore",)


def test_a_syntax_error_names_its_line() -> None:
    with pytest.raises(TfpipeError) as raised:
        analyze_source("code.py", "x = 1\ndef f(:\n    pass\n")
    assert raised.value.message.startswith("code.py:2: syntax error: ")
    assert raised.value.exit_code == 1


@pytest.mark.parametrize(
    ("name", "hint"),
    [("tarin", "There is: train."), ("x", "Name the function or class itself, in the file that defines it.")],
)
def test_unknown_names(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        findings_in("x = 3\ndef train(batch):\n    return batch\n", name)
    assert raised.value.hint == hint


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "x = lambda *a, k=1, **kw: (yield)\n"])
def test_odd_source(text: str) -> None:
    assert analyze_source("code.py", text).findings == ()


def test_names_that_lead_in_circles() -> None:
    assert rules_in("f = g\ng = f\nf = f(f)\nh = h\n@f\ndef k(x):\n    return k(k)\nclass A(A):\n    pass\n") == []


# --- targets ------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "pack"
    (package / "sub").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "sub" / "__init__.py").write_text("")
    (package / "sub" / "train.py").write_text("def step(x):\n    return x\n")
    (tmp_path / "alone.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "files", "name"),
    [
        ("alone.py", ["alone.py"], None),
        ("alone", ["alone.py"], None),
        ("pack.sub.train:step", ["pack/sub/train.py"], "step"),
        ("pack/sub/train.py:Net.call", ["pack/sub/train.py"], "Net.call"),
        ("pack.sub", ["pack/sub/__init__.py", "pack/sub/train.py"], None),
        ("pack", ["pack/__init__.py", "pack/sub/__init__.py", "pack/sub/train.py"], None),
    ],
)
def test_targets(project: Path, text: str, files: list[str], name: str | None) -> None:
    target = find_target(text)
    assert [path.as_posix() for path in target.files] == files
    assert target.name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("missing.py", "There is no file missing.py."),
        ("missing:f", "There is no module 'missing'."),
        ("pack.missing:f", "There is no module 'missing' in pack."),
        ("alone.py:3", "'3' in 'alone.py:3' is no name of a function or class."),
        ("pack/:f", "pack/ is a directory, so 'f' in it is ambiguous."),
        ("a-b", "'a-b' is neither a file nor the name of a module."),
        ("sys:exit", "The module sys has no Python source."),
        ("", "'' names no file and no module."),
    ],
)
def test_bad_targets(project: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        find_target(text)
    assert raised.value.message == message
    assert raised.value.hint


def test_the_declared_encoding_is_used(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes("# coding: latin-1\nx = 'ä'\n".encode("latin-1"))
    assert "ä" in read_source(path)


def test_text_that_is_no_source(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_bytes(b"x = '\xff'\n")
    with pytest.raises(TfpipeError):
        read_source(path)


def test_checking_imports_neither_tensorflow_nor_the_target(project: Path) -> None:
    code = (
        "import sys\n"
        "from tfpipe.check.analyze import analyze_source\n"
        "from tfpipe.check.target import find_target, read_source\n"
        "path = find_target('pack.sub.train:step').files[0]\n"
        "analyze_source(str(path), read_source(path), 'step')\n"
        "assert not {'tensorflow', 'numpy', 'pack'} & set(sys.modules)\n"
    )
    root = str(Path(__file__).parents[3])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": root})
