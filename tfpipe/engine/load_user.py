"""The user's factory or step from ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION``, with ``--arg key=value`` bound to it."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import importlib.util
import inspect
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tfpipe.engine.frames import user_code_error
from tfpipe.errors import TfpipeError, UsageError

_WORDS = {"true": True, "false": False, "none": None}
_loaded_directories: set[Path] = set()
_given: dict[str, Callable[..., Any]] = {}


def give_function(reference: str, function: Callable[..., Any]) -> None:
    """Let ``load_function`` answer ``reference`` with ``function``, which no import would find."""
    _given[reference] = function


def take_function_back(reference: str) -> None:
    """Undo ``give_function``. Raises KeyError."""
    del _given[reference]


def load_function(name: str, flag: str = "--pipeline") -> Callable[..., Any]:
    """The function that ``name`` means.

    A module is looked for as ``python -m`` would: the working directory first. A file's own directory is put on
    the import path, as when it is run as a script. Both stay there: a factory may import when it is called.

    Args:
        name: ``package.module:function`` or ``path/to/file.py:function``.
        flag: the option that ``name`` was given to, for messages.

    Raises:
        UsageError: nothing of that name there.
        UserCodeError: importing it raised.
    """
    if name in _given:
        return _given[name]
    place, separator, function_name = name.rpartition(":")
    if not separator or not place or not function_name:
        raise UsageError(
            f"{flag} {name!r} names no function.", f"Write {flag} MODULE:FUNCTION or {flag} FILE.py:FUNCTION."
        )
    module = _load_file(Path(place), flag) if place.endswith(".py") else _load_module(place, flag)
    found: Any = module
    for part in function_name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{flag} {name}: {place} has no {function_name!r}.", _similar(module, function_name))
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(
            f"{flag} {name}: {function_name} is a {type(found).__name__}, not a function.", _similar(module, "")
        )
    function: Callable[..., Any] = found
    return function


def _similar(module: ModuleType, name: str) -> str:
    functions = [
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    close = difflib.get_close_matches(name, functions, n=1)
    if close:
        return f"Did you mean {close[0]}?"
    return "It has: " + ", ".join(functions) + "." if functions else "It defines no function."


def _load_module(name: str, flag: str) -> ModuleType:
    _put_first(os.getcwd())
    error: TfpipeError
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as raised:
        missing = raised.name or ""
        if name == missing or name.startswith(missing + "."):
            error = UsageError(
                f"{flag}: there is no module {missing!r}.",
                "Run tfpipe in the directory you would run python -m from, or name the file: FILE.py:FUNCTION.",
            )
        else:
            error = user_code_error(f"Importing {name}", raised)
    except (Exception, SystemExit) as raised:
        error = user_code_error(f"Importing {name}", raised)
    raise error


def _load_file(path: Path, flag: str) -> ModuleType:
    if not path.is_file():
        raise UsageError(
            f"{flag}: there is no file {path}.", "Check the path; it is relative to the working directory."
        )
    path = path.resolve()
    _put_first(str(path.parent))
    _forget_namesakes(path.parent)
    name = path.stem
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) == str(path):
            return known
        # Another module of that name is in use; it must keep it.
        name = f"{name}_{zlib.crc32(str(path).encode()):x}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise UsageError(f"{flag}: {path} is not a Python file.", "Name a file that ends in .py.")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
        return module
    except (Exception, SystemExit) as raised:
        del sys.modules[name]
        error = user_code_error(f"Importing {path.name}", raised)
    raise error


def _put_first(directory: str) -> None:
    if directory in sys.path:
        sys.path.remove(directory)
    sys.path.insert(0, directory)


def _forget_namesakes(directory: Path) -> None:
    """Let files in ``directory`` import their own neighbours where an earlier file's neighbours have the same names."""
    others = _loaded_directories - {directory}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).parent in others and (directory / Path(file).name).exists():
            del sys.modules[name]
    _loaded_directories.add(directory)


def bind_arguments(function: Callable[..., Any], texts: Sequence[str], flag: str = "--arg") -> Callable[[], Any]:
    """``function`` with ``key=value`` texts bound, to be called without arguments.

    A value is read as a Python literal (``3``, ``0.5``, ``None``, ``[1, 2]``), ``true``/``false``/``none`` as the
    constants, anything else as text; for a parameter annotated ``str`` always as text.

    Raises:
        UsageError: not ``key=value``, a name that the function does not take, or one that it needs and did not get.
    """
    name = getattr(function, "__name__", str(function))
    try:
        signature: inspect.Signature | None = inspect.signature(function)
    except (TypeError, ValueError):
        signature = None
    values: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.isidentifier():
            raise UsageError(f"{flag} {text!r} is not key=value.", f"Write for example {flag} batch_size=32.")
        if key in values:
            raise UsageError(f"{flag} {key} is given twice.", "Give each argument once.")
        annotation = (
            None if signature is None or key not in signature.parameters else signature.parameters[key].annotation
        )
        values[key] = value if annotation in (str, "str") else _literal(value)
    if signature is not None:
        try:
            signature.bind(**values)
        except TypeError as error:
            raise UsageError(f"{name}{signature}: {error}.", _argument_hint(signature, values, flag)) from None
    return functools.partial(function, **values) if values else function


def _argument_hint(signature: inspect.Signature, values: dict[str, Any], flag: str) -> str:
    parameters = signature.parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    unknown = next((key for key in values if key not in named), None)
    if unknown is not None:
        close = difflib.get_close_matches(unknown, named, n=1)
        return f"Did you mean {close[0]}?" if close else f"It takes: {', '.join(named) or 'no arguments'}."
    missing = [p.name for p in parameters if p.default is p.empty and p.name in named and p.name not in values]
    return "Add " + " ".join(f"{flag} {key}=..." for key in missing) + "."


def _literal(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
