"""Finding the user's function by name and giving it its arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfpipe.engine.load_user import bind_arguments, load_function
from tfpipe.errors import UsageError, UserCodeError

pytestmark = pytest.mark.tensorflow


def test_a_function_of_a_module_and_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loadable_package").mkdir()
    (tmp_path / "loadable_package" / "__init__.py").write_text("")
    (tmp_path / "loadable_package" / "data.py").write_text("class Sets:\n    def make():\n        return 1\n")
    monkeypatch.chdir(tmp_path)
    assert load_function("loadable_package.data:Sets.make")() == 1
    assert load_function("loadable_package/data.py:Sets.make")() == 1


def test_two_files_of_one_name_with_neighbours_of_one_name(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "loadable.py").write_text(
            "import loadable_neighbour\nmake = lambda: loadable_neighbour.NAME\n"
        )
        (tmp_path / folder / "loadable_neighbour.py").write_text(f"NAME = {folder!r}\n")
    first = load_function(f"{tmp_path}/one/loadable.py:make")
    second = load_function(f"{tmp_path}/two/loadable.py:make")
    assert (first(), second(), first()) == ("one", "two", "one")


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("data", "names no function", "FILE.py:FUNCTION"),
        ("no_such_module:make", "there is no module 'no_such_module'", "python -m"),
        ("gone.py:make", "there is no file gone.py", "relative"),
        ("there.py:make_datset", "has no 'make_datset'", "Did you mean make_dataset?"),
        ("there.py:zzz", "has no 'zzz'", "It has: make_dataset"),
        ("there.py:SIZE", "SIZE is a int, not a function", "make_dataset"),
    ],
)
def test_a_wrong_name_says_what_to_type(
    name: str, message: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there.py").write_text("SIZE = 3\ndef make_dataset():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        load_function(name)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("source", "said"), [("import no_such_thing_at_all\n", "no_such_thing"), ("1 / 0\n", "ZeroDivision")]
)
def test_a_file_that_fails_shows_its_own_line(source: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "broken_on_import.py"
    file.write_text("\n" + source)
    with pytest.raises(UserCodeError) as caught:
        load_function(f"{file}:make")
    assert said in caught.value.message
    assert 'broken_on_import.py", line 2' in caught.value.frames
    assert "importlib" not in caught.value.frames


def function(folder: str, batch_size: int = 32, *, shuffle: Any = None) -> tuple[Any, ...]:
    return folder, batch_size, shuffle


def test_arguments_are_literals_words_or_text() -> None:
    assert bind_arguments(function, ["folder=7", "batch_size=64", "shuffle=false"])() == ("7", 64, False)
    assert bind_arguments(function, ["folder=a=b", "shuffle=[1, 2]"])() == ("a=b", 32, [1, 2])
    assert bind_arguments(function, ["folder=x", "shuffle=gs://bucket"])() == ("x", 32, "gs://bucket")


@pytest.mark.parametrize(
    ("texts", "hint"),
    [
        (["folder"], "batch_size=32"),
        (["folder=x", "folder=y"], "once"),
        (["folder=x", "batchsize=3"], "Did you mean batch_size?"),
        ([], "--arg folder=..."),
    ],
)
def test_arguments_that_do_not_fit(texts: list[str], hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        bind_arguments(function, texts)
    assert hint in (caught.value.hint or "")
