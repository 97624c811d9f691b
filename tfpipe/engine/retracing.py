"""Graphs built anew while steps run: for which ``tf.function``, what about its arguments was new, and how long it took.

TensorFlow counts the graphs of every ``tf.function`` but does not tell why there is another one. The count is read
before and after each call, and where it grew the arguments of that call are compared with those of the graphs before.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe.records import Retrace

NOW = " is now "
# Causes that lie in no argument.
FIRST_CALL = "its first call"
FIRST_CALL_WITH_VARIABLES = "the first call made variables, and is traced again without making them"
# A function called with a new Python number every step has as many graphs as steps; the cause is in the latest.
_KEPT_GRAPHS = 16
# More changed arguments than this are counted instead of described.
_DESCRIBED = 3
# Characters of one value in a cause.
_SHOWN = 80
# Every tf.function is an object of this class, through which each call of one goes.
_Function: Any = type(tf.function(lambda: None))
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class TraceWatch:
    """Notes every graph that is built while the watch is on: ``with watch:``, again and again if need be.

    Seen is every ``tf.function`` that Python calls in the thread that began the watch, whoever made it and wherever
    it is called: the step, functions that a plain Python step calls, methods of modules and layers, Keras's own. Not
    seen are the calls of other threads (Python inside a pipeline) and ``get_concrete_function``. A function that is
    traced because one that calls it is being traced counts in ``traces`` only.

    A call costs two reads of a count and of a clock more, under a microsecond.

    Attributes:
        retraces: one per call from Python that built a graph, the first calls included, in order. It only ever grows.
        traces: graphs built, by the function's name.
    """

    def __init__(self) -> None:
        self.retraces: list[Retrace] = []
        self.traces: dict[str, int] = {}
        self._graphs: weakref.WeakKeyDictionary[Any, deque[_Arguments]] = weakref.WeakKeyDictionary()
        self._codes: set[CodeType] = set()
        self._thread = 0
        self._original: Callable[..., Any] | None = None

    def __enter__(self) -> TraceWatch:
        self._thread = threading.get_ident()
        self._original = _Function.__call__
        _Function.__call__ = self.watched(_Function.__call__)
        return self

    def __exit__(self, *_: object) -> None:
        _Function.__call__ = self._original

    def watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``original``, which takes a ``tf.function`` and its arguments and calls it, looked at before and after."""
        clock = time.perf_counter

        # With the original's name and module, by which AutoGraph knows that there is nothing to convert.
        @functools.wraps(original)
        def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
            before = function.experimental_get_tracing_count()
            begin = clock()
            result = original(function, *args, **kwargs)
            if function.experimental_get_tracing_count() != before:
                self._note(function, before, args, kwargs, clock() - begin)
            return result

        return call

    def _note(
        self, function: Any, before: int, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float
    ) -> None:
        if threading.get_ident() != self._thread:
            return
        name = function_name(function)
        built = function.experimental_get_tracing_count() - before
        self.traces[name] = self.traces.get(name, 0) + built
        arguments = _describe_arguments(function.python_function, args, kwargs)
        graphs = self._graphs.setdefault(function, deque(maxlen=_KEPT_GRAPHS))
        code = _code(function)
        if graphs or before:
            cause = _cause(graphs, arguments)
        elif code in self._codes:
            cause = f"a new tf.function object, made again from the code{_where(code)}"
        else:
            cause = FIRST_CALL if built == 1 else FIRST_CALL_WITH_VARIABLES
        graphs.append(arguments)
        if code is not None:
            self._codes.add(code)
        if not tf.inside_function():
            self.retraces.append(Retrace(function=name, cause=cause, seconds=seconds))


def function_name(function: Any) -> str:
    """What a person would call a ``tf.function``: ``train_step``, ``Trainer.train``, ``lambda at steps.py:12``."""
    python = _unwrapped(function)
    name = str(getattr(python, "__qualname__", type(python).__name__)).rpartition("<locals>.")[2]
    return f"lambda{_where(_code(function))}" if name == "<lambda>" else name


def _unwrapped(function: Any) -> Any:
    python = inspect.unwrap(function.python_function)
    while isinstance(python, functools.partial):
        python = inspect.unwrap(python.func)
    return python


def _code(function: Any) -> CodeType | None:
    """The code that it was made of; None for an object with a ``__call__``."""
    code = getattr(_unwrapped(function), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _where(code: CodeType | None) -> str:
    return "" if code is None else f" at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"


# --- arguments -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Value:
    """A tensor by type and shape, a container by what it holds, anything else by what it is.

    ``key`` equals that of another value where TensorFlow uses one graph for both.
    """

    text: str
    key: object


class _Identity:
    """Equal for the same object only, which it does not keep alive."""

    def __init__(self, value: Any) -> None:
        self._reference = weakref.ref(value)

    def __eq__(self, other: object) -> bool:
        mine = self._reference()
        return isinstance(other, _Identity) and mine is not None and mine is other._reference()

    __hash__ = None  # type: ignore[assignment]


# Values by where they are: "x", "batch[0]", "batch['image']". A container comes before what it holds.
_Arguments = dict[str, _Value]


def _describe_arguments(python: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Arguments:
    """By the names of the function's parameters, defaults filled in."""
    try:
        signature = inspect.signature(python)
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError):
        named = {f"argument {number}": value for number, value in enumerate(args, 1)} | dict(kwargs)
    else:
        bound.apply_defaults()
        named = {}
        for name, value in bound.arguments.items():
            is_keywords = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            named.update(value if is_keywords else {name: value})
    found: _Arguments = {}
    for name, value in named.items():
        _describe(value, name, found)
    return found


def _describe(value: Any, path: str, found: _Arguments) -> None:
    if isinstance(value, Mapping):
        text = f"a {type(value).__name__} of {', '.join(map(str, value)) or 'nothing'}"
        parts = [(f"[{key!r}]", part) for key, part in value.items()]
    elif isinstance(value, list | tuple):
        text = f"a {type(value).__name__} of {len(value)}"
        parts = [(f"[{position}]", part) for position, part in enumerate(value)]
    else:
        found[path] = _leaf(value)
        return
    found[path] = _Value(text, text)
    for place, part in parts:
        _describe(part, path + place, found)


def _leaf(value: Any) -> _Value:
    text = _tensor(value)
    if text is None:
        text = _repr(value)
        plain = _ADDRESS.sub("", text)
        if plain != text:
            # Shown by its address, so compared by it.
            return _Value(plain, _identity(value))
        if isinstance(value, int | float | complex):
            # 1, 1.0 and True have one graph.
            return _Value(text, value)
    return _Value(text, text)


def _tensor(value: Any) -> str | None:
    """Type and shape of a tensor and of what becomes one; None for anything else."""
    if isinstance(value, tf.RaggedTensor):
        return f"ragged {_shape(value)} of ragged rank {value.ragged_rank}"
    if isinstance(value, tf.SparseTensor):
        return f"sparse {_shape(value)}"
    if isinstance(value, tf.Variable):
        return f"variable {_shape(value)}"
    # NumPy's arrays and numbers become tensors: another value of the same shape and type needs no graph of its own.
    if isinstance(value, tf.Tensor | np.ndarray | np.number | np.bool_):
        return _shape(value)
    if isinstance(value, tf.data.Iterator | tf.experimental.ExtensionType | tf.IndexedSlices):
        return repr(tf.type_spec_from_value(value))
    return None


def _shape(value: Any) -> str:
    shape = tf.TensorShape(value.shape)
    if shape.rank == 0:
        return f"scalar {value.dtype.name} tensor"
    return f"{value.dtype.name} {list(shape) if shape.rank is not None else 'of unknown rank'}"


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # a user's own class may raise anything
        return f"{type(value).__name__} at 0x{id(value):x}"


def _identity(value: Any) -> object:
    try:
        return _Identity(value)
    except TypeError:  # it cannot be referred to weakly
        return id(value)


# --- the cause -----------------------------------------------------------------------------------------------------


def _cause(graphs: deque[_Arguments], arguments: _Arguments) -> str:
    """What is different from the most similar of the graphs before, the latest of these."""
    if not graphs:
        known = ", ".join(f"{path} is {_text(value)}" for path, value in arguments.items())
        return f"{known or 'no argument'}, unlike in the graphs that it had before"
    changes = min((_changes(graph, arguments) for graph in reversed(graphs)), key=len)
    if not changes:
        return "the arguments fit a graph before; what is around the call changed, such as the distribution strategy"
    more = f"; and {len(changes) - _DESCRIBED} more" if len(changes) > _DESCRIBED else ""
    return "; ".join(changes[:_DESCRIBED]) + more


def _changes(before: _Arguments, after: _Arguments) -> list[str]:
    """One text per argument, or part of one, that differs; nothing inside a container that differs itself."""
    changed: list[str] = []
    texts = []
    for path in dict.fromkeys([*before, *after]):
        old, new = before.get(path), after.get(path)
        is_inside_changed = any(path.startswith(f"{outer}[") for outer in changed)
        if is_inside_changed or (old is not None and new is not None and old.key == new.key):
            continue
        changed.append(path)
        if old is not None and new is not None and old.text == new.text:
            texts.append(f"{path}{NOW}another {_text(new)}")
        else:
            texts.append(f"{path}{NOW}{_text(new)}, was {_text(old)}")
    return texts


def _text(value: _Value | None) -> str:
    text = "left out" if value is None else value.text
    half = _SHOWN // 2
    return text if len(text) <= _SHOWN else f"{text[:half]}...{text[-half:]}"
