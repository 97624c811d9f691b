"""Which functions another process could import, and by which name."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tfpipe.api.references import importable_reference, split_arguments

SOURCE = """
def make(folder="x", batch_size=1):
    return folder, batch_size

class Data:
    @staticmethod
    def make():
        return 1

alias = lambda: 1
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "api_data.py").write_text(SOURCE)
    (tmp_path / "api_package").mkdir()
    (tmp_path / "api_package" / "__init__.py").write_text(SOURCE)
    (tmp_path / "api_package" / "part.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda name: importlib.import_module(name)
    for name in ("api_data", "api_package", "api_package.part"):
        sys.modules.pop(name, None)


def test_a_module_is_named_by_its_file(module: Any, tmp_path: Path) -> None:
    data = module("api_data")
    assert importable_reference(data.make) == f"{tmp_path.resolve()}/api_data.py:make"
    assert importable_reference(data.Data.make) == f"{tmp_path.resolve()}/api_data.py:Data.make"


def test_a_package_is_named_only_where_a_new_process_would_find_it(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, part = module("api_package"), module("api_package.part")
    assert importable_reference(part.make) is None, "only this process has that folder on its path"
    monkeypatch.chdir(tmp_path)
    assert importable_reference(part.make) == "api_package.part:make"
    assert importable_reference(package.make) == "api_package:make"
    monkeypatch.chdir("/")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert importable_reference(part.make) == "api_package.part:make"


def test_what_only_lives_here_has_no_name(module: Any) -> None:
    data = module("api_data")

    def local() -> None: ...

    for function in (local, lambda: 1, data.alias, len, data.Data, functools.partial(data.make)):
        assert importable_reference(function) is None
    original = data.make
    data.make = lambda: 2
    assert importable_reference(original) is None, "that name is another function now"


@pytest.mark.parametrize(
    ("keywords", "texts"),
    [
        ({}, ()),
        ({"folder": "a b"}, ("folder=a b",)),
        ({"batch_size": 3, "folder": None}, ("batch_size=3", "folder=None")),
        ({"batch_size": [1, 2.5, True]}, ("batch_size=[1, 2.5, True]",)),
        ({"folder": "3"}, None),
        ({"folder": "true"}, None),
        ({"folder": Path("x")}, None),
        ({"folder": object()}, None),
    ],
)
def test_arguments_go_along_where_they_can_be_written(
    keywords: dict[str, Any], texts: tuple[str, ...] | None, module: Any
) -> None:
    make = module("api_data").make
    split = split_arguments(functools.partial(make, **keywords))
    assert split == (None if texts is None else (make, texts))


def test_positional_arguments_and_partials_of_partials(module: Any) -> None:
    make = module("api_data").make
    assert split_arguments(functools.partial(make, "x")) is None
    inner = functools.partial(make, folder="a", batch_size=1)
    assert split_arguments(functools.partial(inner, batch_size=2)) == (make, ("folder=a", "batch_size=2"))
