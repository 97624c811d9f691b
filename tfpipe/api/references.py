"""Whether another process could import a function, and by which name."""

from __future__ import annotations

import ast
import functools
import os
import site
import sys
import sysconfig
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any


def split_arguments(function: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[str, ...]] | None:
    """A function and its keyword arguments as ``key=value`` texts, out of a ``functools.partial`` of it.

    None where an argument is positional or no Python literal.
    """
    keywords: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        if function.args:
            return None
        keywords = {**function.keywords, **keywords}
        function = function.func
    texts = []
    for key, value in keywords.items():
        text = value if isinstance(value, str) else repr(value)
        if not _reads_back(text, value):
            return None
        texts.append(f"{key}={text}")
    return function, tuple(texts)


def _reads_back(text: str, value: Any) -> bool:
    """Whether the command line would read ``text`` as ``value``: as a literal where it is one, else as text."""
    if text in ("true", "false", "none"):
        return False
    try:
        read: Any = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        read = text
    return type(read) is type(value) and bool(read == value)


def importable_reference(function: Callable[..., Any]) -> str | None:
    """``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``, as ``--pipeline`` takes it; None for what only lives here."""
    if not isinstance(function, types.FunctionType) or "<" in function.__qualname__:
        return None
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None)
    if module is None or not isinstance(file, str) or not file.endswith(".py") or not os.path.isfile(file):
        return None
    found: Any = module
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not function:
        return None
    name = _module_name(module)
    path = Path(file).resolve()
    if "." not in name and path.name != "__init__.py":
        return f"{path}:{function.__qualname__}"
    root = path.parents[name.count(".") + (path.name == "__init__.py")]
    return f"{name}:{function.__qualname__}" if root in _roots() else None


def _module_name(module: types.ModuleType) -> str:
    """``package.module`` also for what ``python -m package.module`` runs."""
    specification = getattr(module, "__spec__", None)
    return module.__name__ if specification is None else str(specification.name)


def _roots() -> set[Path]:
    """Where a fresh interpreter, started here, looks for modules."""
    paths = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep), *site.getsitepackages()]
    return {Path(path).resolve() for path in [*paths, sysconfig.get_paths()["purelib"]] if path}
