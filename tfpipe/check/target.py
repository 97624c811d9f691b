"""From ``MODULE:FUNCTION``, ``FILE.py:FUNCTION``, ``FILE.py``, ``MODULE`` or a directory to source files.

Nothing is imported: a module's file is found without running it or its packages.
"""

from __future__ import annotations

import importlib.machinery
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

from tfpipe.errors import TfpipeError, UsageError

_SKIPPED_DIRECTORIES = frozenset({"__pycache__", "node_modules", "build", "dist", "site-packages"})


class UnreadableError(TfpipeError):
    """A file that is no Python of this interpreter's version; ``problem`` says why, ``line`` where."""

    def __init__(self, path: str, problem: str, hint: str, line: int = 1) -> None:
        super().__init__(f"{path}:{line}: {problem}.", hint)
        self.problem = problem
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What to check: whole files, or one function or class of one file (``name``)."""

    files: tuple[Path, ...]
    name: str | None


def find_target(text: str) -> Target:
    """The files that ``text`` means. Raises UsageError with what to type instead."""
    where, name = _split(text)
    if not where:
        raise UsageError(
            f"{text!r} names no file and no module.", "Write FILE.py, FILE.py:FUNCTION or MODULE:FUNCTION."
        )
    path = Path(where)
    if where.endswith(".py") or "/" in where or path.is_dir():
        if path.is_dir():
            files = tuple(sorted(_python_files(path)))
            if not files:
                raise UsageError(f"{path} holds no .py file.", "Name a file, a module or another directory.")
        elif path.is_file():
            files = (path,)
        else:
            raise UsageError(f"There is no file {where}.", f"The current directory is {Path.cwd()}.")
    else:
        files = _module_files(where, named=name is not None)
    if name is not None and len(files) != 1:
        raise UsageError(f"{where} is a directory, so {name!r} in it is ambiguous.", "Name the file: FILE.py:FUNCTION.")
    return Target(files=files, name=name)


def read_source(path: Path) -> str:
    """The text of a Python file in the encoding it declares. Raises UnreadableError."""
    try:
        with tokenize.open(path) as file:
            return file.read()
    except OSError as error:
        raise UnreadableError(str(path), f"cannot be read: {error.strerror}", "Check its permissions.") from None
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UnreadableError(str(path), f"not Python source text: {error}", "Save it as UTF-8.") from None


def _split(text: str) -> tuple[str, str | None]:
    where, colon, name = text.rpartition(":")
    # A lone drive letter before the colon is part of a Windows path.
    if not colon or (len(where) == 1 and name.startswith(("\\", "/"))):
        return text, None
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(
            f"{name!r} in {text!r} is no name of a function or class.",
            "Write FILE.py:FUNCTION or FILE.py:Class.method.",
        )
    return where, name


def _python_files(directory: Path) -> list[Path]:
    return [
        path
        for path in directory.rglob("*.py")
        if not any(part in _SKIPPED_DIRECTORIES or part.startswith(".") for part in path.relative_to(directory).parts)
    ]


def _module_files(module: str, *, named: bool) -> tuple[Path, ...]:
    if not all(part.isidentifier() for part in module.split(".")):
        hint = f"For a file write {module}.py." if Path(module + ".py").is_file() else "Write FILE.py or MODULE."
        raise UsageError(f"{module!r} is neither a file nor the name of a module.", hint)
    search: list[str] | None = [str(Path.cwd()), *sys.path]
    origin: str | None = None
    locations: list[str] | None = None
    for position, part in enumerate(module.split(".")):
        spec = importlib.machinery.PathFinder.find_spec(part, search)
        if spec is None and part in sys.builtin_module_names:
            break
        if spec is None:
            known = ".".join(module.split(".")[:position])
            inside = f" in {known}" if known else ""
            raise UsageError(
                f"There is no module {part!r}{inside}.", "Run it where the module can be imported, or name its file."
            )
        origin, locations = spec.origin, spec.submodule_search_locations
        search = list(locations) if locations is not None else []
    if locations is not None and not named:
        files = [file for location in locations for file in _python_files(Path(location))]
        return tuple(_shortened(file) for file in sorted(files))
    if origin is None or not origin.endswith(".py"):
        raise UsageError(f"The module {module} has no Python source.", "Name the .py file that holds the function.")
    return (_shortened(Path(origin)),)


def _shortened(path: Path) -> Path:
    """Relative to the current directory where it lies below it, as a person would write it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
