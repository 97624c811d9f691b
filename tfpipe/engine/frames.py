"""Whose line is running: the user's, a library's, or TensorFlow's own."""

from __future__ import annotations

import dis
import functools
import itertools
import os
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.util import tf_stack  # the only way to map AutoGraph's generated lines to the user's

from tfpipe.engine.housekeeping import GENERATED_PREFIX
from tfpipe.errors import UserCodeError

_TENSORFLOW = os.path.dirname(tf.__file__) + os.sep
_AUTOGRAPH = os.path.join(_TENSORFLOW, "python", "autograph") + os.sep
# Decorators and error handlers around TensorFlow's functions; never the function that a user called.
_TENSORFLOW_WRAPPERS = os.path.join(_TENSORFLOW, "python", "util") + os.sep
# What a library's own decorators call their wrappers: never the function that a user called.
_WRAPPER_NAMES = frozenset({"__call__", "wrapper", "_wrapper", "wrapped", "inner", "decorator", "decorated"})
# Python tells where a call begins and ends from 3.11 on.
_TELLS_POSITIONS = hasattr(CodeType, "co_positions")
_FRAME_LINE = re.compile(r'\s*File "([^"]+)", line \d+, in ')
# Names of nodes and ops that the user never gave, in messages of TensorFlow 2.21.
_GRAPH_NOISE = re.compile(r"\{\{function_node [^}]*\}\}\s*|\s*\[\[\{\{node [^]]*\]\]|\s*\[Op:\w+\](?: name:.*)?")
_TENSORFLOW_ERRORS = "tensorflow.python.framework.errors_impl."
_LIBRARIES = tuple(
    {os.path.join(path, "") for name, path in sysconfig.get_paths().items() if name.endswith(("lib", "stdlib"))}
    | {os.path.join(str(Path(__file__).resolve().parent.parent), ""), _TENSORFLOW}
)


@dataclass(frozen=True, slots=True)
class Home:
    """Where a factory's source lives.

    ``root`` is the directory its module is imported from: ids of sites are relative to it. ``package`` is set for
    a factory that is installed among the libraries: files below it are the user's all the same.
    """

    root: str
    package: str | None


@dataclass(frozen=True, slots=True)
class Origin:
    """The user's line that led to a call, and the library function in between with its arguments, if there is one.

    ``via`` is the function's name, ``library`` the package that it is of.
    """

    file: str
    line: int
    end_line: int | None
    end_column: int | None
    function: str
    via: str | None
    library: str | None
    via_arguments: Mapping[str, Any]
    discarded: bool


def unwrapped(factory: Callable[..., Any]) -> Any:
    """The function behind partials and bound methods."""
    function: Any = factory
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__func__", function)


def home_of(factory: Callable[..., Any]) -> Home:
    """The home of ``factory``, looking through partials, bound methods and callable objects."""
    function = unwrapped(factory)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is None or code.co_filename.startswith("<"):
        return Home(os.getcwd(), None)
    path = Path(os.path.abspath(code.co_filename))
    module = str(getattr(function, "__module__", None) or "")
    parents = 0 if module in ("", "__main__") else module.count(".") + (path.name == "__init__.py")
    root = str(path.parents[min(parents, len(path.parents) - 1)])
    installed = _in_library(str(path)) and not str(path).startswith(_TENSORFLOW)
    top_level = os.path.join(root, module.partition(".")[0])
    package = os.path.join(top_level, "") if os.path.isdir(top_level) else str(path)
    return Home(root, package if installed else None)


def is_users(filename: str, home: Home | None = None) -> bool:
    """Whether ``filename`` is the user's code: no library, not TensorFlow, not tfpipe."""
    if filename.startswith("<frozen"):
        return False
    if home is not None and home.package is not None and filename.startswith(home.package):
        return True
    return not _in_library(filename) and not _is_generated(filename)


def _is_generated(filename: str) -> bool:
    return os.path.basename(filename).startswith(GENERATED_PREFIX)


@functools.lru_cache(maxsize=4096)
def _in_library(filename: str) -> bool:
    if filename.startswith(_LIBRARIES):
        return True
    parts = filename.split(os.sep)
    return "site-packages" in parts or "dist-packages" in parts


def relative(filename: str, home: Home) -> str:
    """``filename`` as it stands in ids."""
    if filename.startswith("<"):
        return filename
    absolute = os.path.abspath(filename)
    below = os.path.join(home.root, "")
    return absolute[len(below) :].replace(os.sep, "/") if absolute.startswith(below) else absolute


def locate(frame: FrameType | None, method: str, home: Home, boundaries: tuple[CodeType, ...]) -> Origin | None:
    """The user's line behind a call of ``method`` made from ``frame``.

    Args:
        frame: the caller.
        boundaries: code of the wrappers around TensorFlow. Reaching one before any line of the user's means that
            TensorFlow makes this call for itself, and so does reaching the outermost frame.
    """
    library: FrameType | None = None
    while frame is not None:
        code = frame.f_code
        if code in boundaries:
            return None
        filename = code.co_filename
        if _is_generated(filename):
            return _converted_origin(frame, method, library)
        if is_users(filename, home):
            return _plain_origin(frame, method, library)
        if library is None or code.co_name not in _WRAPPER_NAMES:
            library = frame if not filename.startswith((_AUTOGRAPH, _TENSORFLOW_WRAPPERS)) else library
        frame = frame.f_back
    return None


def _name(frame: FrameType | None) -> str | None:
    return None if frame is None else frame.f_code.co_name.removesuffix("_v1").removesuffix("_v2")


def _package(frame: FrameType | None) -> str | None:
    return None if frame is None else str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _arguments(frame: FrameType | None) -> dict[str, Any]:
    if frame is None:
        return {}
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = frame.f_locals
    return {name: values[name] for name in names if isinstance(values.get(name), (int, str))}


def _plain_origin(frame: FrameType, method: str, library: FrameType | None) -> Origin:
    code = frame.f_code
    line, end_line, end_column = frame.f_lineno, None, None
    if _TELLS_POSITIONS:
        position = next(itertools.islice(cast(Any, code).co_positions(), frame.f_lasti // 2, None))
        end_line, end_column = position[1], position[3]
    else:
        # Python 3.10 counts a chained call with keywords to the line that its chain starts on.
        line = _last_load_line(code, method, frame.f_lasti) or line
    discarded = library is None and _result_dropped(code, frame.f_lasti)
    via, given = _name(library), _arguments(library)
    function, package = _qualified(code), _package(library)
    return Origin(code.co_filename, line, end_line, end_column, function, via, package, given, discarded)


def _qualified(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name)).replace(".<locals>", "")


@functools.lru_cache(maxsize=512)
def _instructions(code: CodeType) -> tuple[dis.Instruction, ...]:
    return tuple(dis.get_instructions(code))


def _instruction_lines(code: CodeType) -> list[tuple[dis.Instruction, int]]:
    starts = dict(dis.findlinestarts(code))
    line, found = code.co_firstlineno, []
    for instruction in _instructions(code):
        line = starts.get(instruction.offset) or line
        found.append((instruction, line))
    return found


def _loads(code: CodeType, method: str) -> list[tuple[int, int]]:
    """(offset, line) of each instruction that looks ``method`` up."""
    return [
        (instruction.offset, line)
        for instruction, line in _instruction_lines(code)
        if instruction.argval == method and instruction.opname.startswith("LOAD_")
    ]


def _last_load_line(code: CodeType, method: str, offset: int) -> int | None:
    lines = [line for position, line in _loads(code, method) if position < offset]
    return lines[-1] if lines else None


def _result_dropped(code: CodeType, offset: int) -> bool:
    following = next((i for i in _instructions(code) if i.offset > offset), None)
    return following is not None and following.opname == "POP_TOP"


def _converted_origin(frame: FrameType, method: str, library: FrameType | None) -> Origin | None:
    """AutoGraph runs a rewritten copy of the user's function; TensorFlow's own stack knows which line is which."""
    stack: Any = tf_stack.extract_stack()
    entry = next((entry for entry in reversed(list(stack)) if is_users(entry.filename)), None)
    if entry is None:
        return None
    filename = _original_file(frame) or entry.filename
    line = _line_of_call(frame, method, filename) or entry.lineno
    function = entry.name or "<lambda>"
    via, package, given = _name(library), _package(library), _arguments(library)
    return Origin(filename, line, None, None, function, via, package, given, False)


def _original_file(frame: FrameType) -> str | None:
    """The file of the function that ``frame`` runs a rewritten copy of.

    AutoGraph keeps one copy for all functions whose code is equal, wherever they stand: its own source map may name
    the file of another one.
    """
    outer = frame.f_back
    while outer is not None:
        if outer.f_code.co_name == "converted_call":
            original, copy = (_code_of(outer.f_locals.get(name)) for name in ("f", "converted_f"))
            if original is not None and copy is not None and frame.f_code in _with_nested(copy):
                return original.co_filename
        outer = outer.f_back
    return None


def _line_of_call(frame: FrameType, method: str, filename: str) -> int | None:
    """The line of ``method``'s name in the user's function; AutoGraph tells only some line of the statement.

    The rewritten copy looks the method up as often as the original does, and in the same order. Both stand further
    out on the stack, where AutoGraph was called.
    """
    outer = frame.f_back
    while outer is not None:
        if outer.f_code.co_name == "converted_call":
            original, copy = (_code_of(outer.f_locals.get(name)) for name in ("f", "converted_f"))
            if original is not None and copy is not None and original.co_filename == filename:
                lookups, copied = _all_loads(original, method), _all_loads(copy, method)
                before = [
                    index
                    for index, (code, offset, _) in enumerate(copied)
                    if code is frame.f_code and offset < frame.f_lasti
                ]
                return lookups[before[-1]][2] if before and len(lookups) == len(copied) else None
        outer = outer.f_back
    return None


def _code_of(function: Any) -> CodeType | None:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _all_loads(code: CodeType, method: str) -> list[tuple[CodeType, int, int]]:
    """(code, offset, line) of each instruction that looks ``method`` up, nested functions included, in source order."""
    found = [(part, offset, line) for part in _with_nested(code) for offset, line in _loads(part, method)]
    return sorted(found, key=lambda load: (load[2], load[1]))


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_nested(constant)


def users_frames(error: BaseException, home: Home | None = None) -> str:
    """The user's part of ``error``'s traceback, as Python prints it; "" when none of it is theirs."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename, home)]
    return "".join(traceback.format_list(frames)).rstrip("\n")


def user_code_error(
    what: str, error: BaseException, hint: str | None = None, home: Home | None = None
) -> UserCodeError:
    """What to raise when ``what`` (the user's code) raised ``error``. Keeps the text and none of the objects."""
    summary = _without_library_frames("".join(traceback.format_exception_only(type(error), error)).strip(), home)
    return UserCodeError(f"{what} raised {summary}", users_frames(error, home), hint)


def _without_library_frames(text: str, home: Home | None) -> str:
    """``text`` without what is not the user's: TensorFlow writes whole stacks and names of nodes into its messages."""
    kept, dropped_indent = [], None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        frame = _FRAME_LINE.match(line)
        if frame is not None:
            dropped_indent = None if is_users(frame[1], home) else indent
        elif dropped_indent is not None and (indent <= dropped_indent or not line.strip()):
            dropped_indent = None
        if dropped_indent is None:
            kept.append(line)
    return plain_message("\n".join(kept))


def plain_message(text: str) -> str:
    """An error's text without the names of nodes and ops that its user never gave."""
    plain = _GRAPH_NOISE.sub("", text).removeprefix(_TENSORFLOW_ERRORS)
    return "\n".join(line.rstrip() for line in plain.splitlines() if line.strip())
