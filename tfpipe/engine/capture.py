"""A user's own factory: every knob it turns found at its call site, and the factory run again with others.

While a factory runs, the methods of ``tf.data.Dataset``, the constructors of its readers and the attributes of
``tf.data.Options`` are wrapped at class level. The wrappers do nothing outside the thread (or task) that runs the
factory, and the last capture to end puts TensorFlow's own functions back. The factory's source is neither read
nor changed.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import os
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any, cast

import numpy as np
import tensorflow as tf

from tfpipe.engine.frames import Home, Origin, home_of, locate, relative, unwrapped, user_code_error
from tfpipe.engine.functions import (
    FunctionFacts,
    ParallelInterleaveDataset,
    casting_of,
    function_facts,
    input_datasets,
)
from tfpipe.engine.housekeeping import temporary_folder
from tfpipe.engine.shared_arrays import SharedArrays, shared_arrays_of
from tfpipe.errors import CallSitesChangedError, TfpipeError, UserCodeError
from tfpipe.sites import (
    AUTOTUNE_VALUE,
    AUTOTUNED_AXES,
    CACHE_BEFORE,
    END_OPTIONS,
    END_PREFETCH,
    REMOVABLE_AXES,
    Axis,
    OverrideValue,
    Site,
    SiteKind,
    SiteValue,
    Stage,
    changed_sites,
    describe_site,
    move_of,
)

Factory = Callable[[], Any]

# The arguments that are knobs, by method, and the axis each turns.
_METHOD_KNOBS: dict[str, dict[str, Axis]] = {
    "shuffle": {"buffer_size": "shuffle_buffer"},
    "map": {"num_parallel_calls": "map_parallelism", "deterministic": "deterministic"},
    "batch": {"num_parallel_calls": "batch_parallelism", "deterministic": "deterministic"},
    "padded_batch": {"num_parallel_calls": "batch_parallelism"},
    "ragged_batch": {"num_parallel_calls": "batch_parallelism"},
    "prefetch": {"buffer_size": "prefetch_depth"},
    "interleave": {
        "cycle_length": "cycle_length",
        "block_length": "block_length",
        "num_parallel_calls": "interleave_parallelism",
        "deterministic": "deterministic",
    },
    "cache": {"filename": "cache"},
}
_READER_KNOBS: dict[str, Axis] = {
    "num_parallel_reads": "read_parallelism",
    "buffer_size": "read_buffer_bytes",
    "cycle_length": "cycle_length",
    "block_length": "block_length",
}
_OPTION_AXES: dict[str, Axis] = {
    "deterministic": "deterministic",
    "threading.private_threadpool_size": "threadpool",
    "threading.max_intra_op_parallelism": "intra_op_parallelism",
    "experimental_optimization.apply_default_optimizations": "rewrites",
    "autotune.enabled": "autotune",
    "autotune.cpu_budget": "autotune_cpu_budget",
    "autotune.ram_budget": "autotune_ram_budget_bytes",
}
# Methods that make a dataset, or run one, beside those with knobs. ``apply`` is not among them: what the function
# given to it calls is the user's.
_OTHER_METHODS = (
    "bucket_by_sequence_length",
    "choose_from_datasets",
    "concatenate",
    "counter",
    "enumerate",
    "filter",
    "flat_map",
    "from_generator",
    "from_tensor_slices",
    "from_tensors",
    "get_single_element",
    "group_by_window",
    "ignore_errors",
    "list_files",
    "load",
    "random",
    "range",
    "rebatch",
    "reduce",
    "rejection_resample",
    "repeat",
    "sample_from_datasets",
    "save",
    "scan",
    "shard",
    "skip",
    "snapshot",
    "sparse_batch",
    "take",
    "take_while",
    "unbatch",
    "unique",
    "window",
    "with_options",
    "zip",
)
# Which argument of a library's function sets which knob, where the two have the same value (TensorFlow 2.21).
_LIBRARY_ARGUMENTS: dict[str, dict[Axis, str]] = {
    name: {
        "shuffle_buffer": "shuffle_buffer_size",
        "prefetch_depth": "prefetch_buffer_size",
        "cycle_length": threads,
    }
    for name, threads in (
        ("make_csv_dataset", "num_parallel_reads"),
        ("make_batched_features_dataset", "reader_num_threads"),
    )
}
# What a library takes in a configuration instead (TensorFlow Datasets 4.9).
_READ_CONFIG: dict[Axis, str] = {
    "cycle_length": "interleave_cycle_length=...",
    "block_length": "interleave_block_length=...",
    "interleave_parallelism": "num_parallel_calls_for_interleave_files=...",
    "map_parallelism": "num_parallel_calls_for_decode=...",
    "cache": "try_autocache=False",
    "prefetch_depth": "skip_prefetch=True",
}
_ORDER = ("map-batch", "batch-map")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The live side of a top-level stage: the dataset it was called on and its arguments, ``self`` left out.

    ``input`` is None for a source. ``site`` has the call's place, for who moves it.
    """

    stage: str
    method: str
    input: Any
    output: Any
    site: Site
    arguments: dict[str, Any]
    facts: FunctionFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One run of a factory. ``calls`` has the top-level calls, by stage id."""

    dataset: Any
    sites: tuple[Site, ...]
    stages: tuple[Stage, ...]
    build_s: float
    calls: dict[str, Call]


def capture(factory: Factory) -> Captured:
    """Run ``factory`` as it is and list every knob that it turns.

    What the factory prints goes to stderr. Datasets that it builds in threads of its own are not seen.

    Raises:
        UserCodeError: the factory raised.
        TfpipeError: it returned something other than a dataset.
    """
    recorder = _Recorder(home_of(factory), {}, shared_arrays_of(factory), detailed=True)
    start = time.perf_counter()
    dataset = _run(factory, recorder)
    build_s = time.perf_counter() - start
    sites, stages = recorder.records(dataset)
    calls = {call.stage: recorder.counted(call) for call in recorder.calls}
    return Captured(dataset=dataset, sites=sites, stages=stages, build_s=build_s, calls=calls)


def rebuild(factory: Factory, overrides: Mapping[str, OverrideValue], *, expected: Sequence[Site] | None = None) -> Any:
    """Run ``factory`` again with other arguments at the sites named.

    A stage that moves is made again at the end of the stages that it crosses, with the arguments of its own call.
    ``end:prefetch(buffer_size)`` adds a prefetch behind everything, ``end:options(PATH)`` an option for the whole
    dataset, where PATH is an attribute of ``tf.data.Options`` such as ``threading.private_threadpool_size``; such
    options win over the factory's own, and those that are not named stay. Numpy arrays of 1 MiB and more that equal
    one of an earlier run share its tensor. A cache that is added on disk is a file that goes with the dataset.

    Args:
        overrides: values by site id, in the terms of ``tfpipe.sites.OverrideValue``.
        expected: sites of an earlier run; any difference in place is an error.

    Raises:
        CallSitesChangedError: a site named, or any site of ``expected``, was not met, or there is a new one.
        UserCodeError: the factory raised, with these arguments.
        TfpipeError: the factory returned no dataset, or a value makes no sense at its site.
    """
    recorder = _Recorder(home_of(factory), overrides, shared_arrays_of(factory), detailed=False)
    dataset = _run(factory, recorder)
    missing = [name for name in overrides if not name.startswith("end:") and name not in recorder.overridden]
    if missing:
        raise CallSitesChangedError(
            "The factory made no call at " + ", ".join(missing) + " this time.",
            "Its source or its arguments have changed since it was captured: profile it again.",
        )
    if expected is not None:
        differences = changed_sites(expected, recorder.records(dataset)[0])
        if differences:
            raise CallSitesChangedError(
                "The factory made other calls than when it was captured: " + "; ".join(differences) + ".",
                "Make it return the same pipeline each time, or profile it again.",
            )
    dataset = _with_end(dataset, overrides)
    for folder in recorder.folders:
        # Also when the process ends; one that is killed leaves it to whoever removes the worker's directory.
        weakref.finalize(dataset, shutil.rmtree, folder, ignore_errors=True)
    return dataset


def _run(factory: Factory, recorder: _Recorder) -> Any:
    name = str(getattr(unwrapped(factory), "__name__", "The factory"))
    error: UserCodeError
    with _wrapped_tensorflow():
        token = _active.set(recorder)
        try:
            dataset = _factory_frame(factory)
        except TfpipeError:
            raise
        except (Exception, SystemExit) as raised:
            error = user_code_error(name, raised, "Run it by itself to see the whole traceback.", recorder.home)
        else:
            if not isinstance(dataset, tf.data.Dataset):
                raise TfpipeError(
                    f"{name} returned {_kind_of(dataset)}, not a tf.data.Dataset.",
                    "Name a function that returns one dataset, such as the training data.",
                )
            recorder.release()
            return dataset
        finally:
            _active.reset(token)
    # Outside the handler: an error that kept the user's traceback would keep their datasets and iterators alive.
    raise error


def _kind_of(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return "nothing" if value is None else f"a {type(value).__name__}"


def _factory_frame(factory: Factory) -> Any:
    return factory()


def _with_end(dataset: Any, overrides: Mapping[str, OverrideValue]) -> Any:
    depth = overrides.get(END_PREFETCH, 0)
    if depth:
        dataset = dataset.prefetch(AUTOTUNE_VALUE if depth == "auto" else depth)
    prefix = END_OPTIONS + "("
    paths = {name[len(prefix) : -1]: value for name, value in overrides.items() if name.startswith(prefix)}
    options = tf.data.Options()
    for path, value in paths.items():
        _set_option(options, path, value)
    unknown = [
        name for name in overrides if name.startswith("end:") and name != END_PREFETCH and not name.startswith(prefix)
    ]
    if unknown:
        raise TfpipeError(f"There is no such place to add something: {unknown[0]}.", f"Use {END_PREFETCH}.")
    return dataset.with_options(options) if any(value is not None for value in paths.values()) else dataset


def _set_option(options: Any, path: str, value: OverrideValue) -> None:
    """Set one attribute; None leaves it as it is."""
    if value is None:
        return
    *parents, name = path.split(".")
    target = options
    try:
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, name, value)
    except (AttributeError, TypeError) as error:
        raise TfpipeError(f"tf.data.Options has no {path} that can be {value!r}: {error}", "Check the name.") from None


# --- wrapping TensorFlow --------------------------------------------------------------------------------------

_active: ContextVar[_Recorder | None] = ContextVar("tfpipe_capture", default=None)
_lock = threading.Lock()
_users = 0
_installed: list[tuple[type, str, Any, Any]] = []
_stdout: _Stdout | None = None


class _Stdout:
    """stdout for everyone but a running factory, whose prints must not mix with results."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def write(self, text: str) -> int:
        return int((self._real if _active.get() is None else sys.stderr).write(text))

    def flush(self) -> None:
        self._real.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@contextlib.contextmanager
def _wrapped_tensorflow() -> Iterator[None]:
    """Wrappers in place for as long as anybody needs them; counted, since captures may overlap in any order."""
    global _users, _stdout
    with _lock:
        if _users == 0:
            for owner, name, wrapper in _wrappers():
                _installed.append((owner, name, vars(owner)[name], wrapper))
                setattr(owner, name, wrapper)
            _stdout = _Stdout(sys.stdout)
            sys.stdout = cast(Any, _stdout)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                for owner, name, original, wrapper in _installed:
                    if vars(owner).get(name) is wrapper:  # a factory may have replaced it for good
                        setattr(owner, name, original)
                _installed.clear()
                if sys.stdout is _stdout and _stdout is not None:
                    sys.stdout = _stdout._real
                _stdout = None


def _wrappers() -> Iterator[tuple[type, str, Any]]:
    for owner in (tf.data.Dataset, tf.compat.v1.data.Dataset):
        for name in (*_METHOD_KNOBS, *_OTHER_METHODS):
            original = vars(owner).get(name)
            if isinstance(original, staticmethod):
                yield owner, name, staticmethod(_wrapper(original.__func__, name, "call"))
            elif original is not None:
                yield owner, name, _wrapper(original, name, "call")
    readers = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")
    for name, owner in [
        (name, getattr(module, name)) for name in readers for module in (tf.data, tf.compat.v1.data)
    ] + [
        ("CsvDataset", tf.data.experimental.CsvDataset),
        ("SqlDataset", tf.data.experimental.SqlDataset),
        ("ParallelInterleaveDataset", ParallelInterleaveDataset),
    ]:
        yield owner, "__init__", _wrapper(vars(owner)["__init__"], name, "reader")
    for owner in {tf.data.Options, *tf.data.Options.__mro__[1:-1]}:
        if "__setattr__" in vars(owner):
            yield owner, "__setattr__", _option_wrapper(vars(owner)["__setattr__"])


def _wrapper(original: Callable[..., Any], name: str, kind: SiteKind) -> Callable[..., Any]:
    signature = inspect.signature(original)

    # ``wraps`` also keeps TensorFlow's module name, by which AutoGraph knows not to convert this.
    @functools.wraps(original)
    def tfpipe_call(*args: Any, **kwargs: Any) -> Any:
        recorder = _active.get()
        if recorder is None:
            return original(*args, **kwargs)
        if name in ("from_tensor_slices", "from_tensors") and tf.executing_eagerly():
            args = tuple(recorder.share(value) for value in args)
            kwargs = {key: recorder.share(value) for key, value in kwargs.items()}
        frame = sys._getframe(1)
        origin = locate(frame, name, recorder.home, _BOUNDARIES) or recorder.librarys(frame)
        if origin is None:
            return original(*args, **kwargs)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return original(*args, **kwargs)  # which says what is wrong in TensorFlow's words
        return recorder.call(original, bound, name, kind, origin)

    return tfpipe_call


def _option_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def tfpipe_option(self: Any, name: str, value: Any) -> None:
        recorder = _active.get()
        path = None if recorder is None else _option_path(self, name)
        if recorder is not None and path is not None and not _is_options(value):
            origin = locate(sys._getframe(1), name, recorder.home, _BOUNDARIES)
            if origin is not None:
                value = recorder.option(self, name, path, value, origin)
        original(self, name, value)

    return tfpipe_option


def _code(function: Callable[..., Any]) -> CodeType:
    return cast(CodeType, cast(Any, function).__code__)


_BOUNDARIES = (
    _code(_wrapper(_factory_frame, "", "call")),
    _code(_option_wrapper(_factory_frame)),
    _code(_factory_frame),
)


def _is_options(value: Any) -> bool:
    return isinstance(value, tf.data.Options.__mro__[1])


@functools.lru_cache(maxsize=1)
def _option_parts() -> dict[type, str]:
    """Where an object of each class of options sits in ``tf.data.Options``: ``threading.`` and so on."""
    options = tf.data.Options()
    found: dict[type, str] = {type(options): ""}
    for name, member in vars(type(options)).items():
        if isinstance(member, property) and not name.startswith(
            ("experimental_threading", "experimental_deterministic")
        ):
            value = getattr(options, name)
            if _is_options(value):
                found[type(value)] = name + "."
    return found


def _option_path(options: Any, name: str) -> str | None:
    prefix = _option_parts().get(type(options))
    if prefix is None or name.startswith("_"):
        return None
    return prefix + ("deterministic" if name == "experimental_deterministic" else name)


def _options_set(options: Any) -> Iterator[tuple[Any, str, str, Any]]:
    """(holder, attribute, path, value) of everything in ``options`` that is not as in a new one."""
    for kind, prefix in _option_parts().items():
        holder = getattr(options, prefix[:-1]) if prefix else options
        fresh = kind()
        for name, member in vars(kind).items():
            if isinstance(member, property) and not name.startswith(("experimental_threading", "experimental_determ")):
                value = getattr(holder, name)
                if not _is_options(value) and value != getattr(fresh, name):
                    yield holder, name, prefix + name, value


# --- recording one run -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Link:
    """One call of a chain, to be made again on another dataset. Compared by identity: arguments may be tensors."""

    stage: str
    name: str
    original: Callable[..., Any]
    source: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def on(self, source: Any) -> _Link:
        return replace(self, source=source)

    def make(self) -> Any:
        return self.original(self.source, *self.args, **self.kwargs)


@dataclass(slots=True)
class _Recorder:
    home: Home
    overrides: Mapping[str, OverrideValue]
    tensors: SharedArrays
    detailed: bool
    overridden: set[str] = field(default_factory=set)
    calls: list[Call] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    _sites: list[Site] = field(default_factory=list)
    _stages: list[Stage] = field(default_factory=list)
    _results: list[Any] = field(default_factory=list)  # one per stage; also keeps their ids from being used again
    _stage_of: dict[int, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _places: dict[tuple[object, ...], int] = field(default_factory=dict)
    _origins: dict[str, Origin] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _codes: list[set[CodeType]] = field(default_factory=list)  # of the functions given to each open call
    _options: dict[tuple[int, str], Any] = field(default_factory=dict)
    _links: dict[int, _Link] = field(default_factory=dict)
    _shared: list[Any] = field(default_factory=list)

    def share(self, value: Any) -> Any:
        """``value`` with its large arrays replaced by tensors, which later runs of the factory will find."""
        return self.tensors.share(value, self._shared)

    def release(self) -> None:
        """Forget the tensors of earlier runs that this one had no use for."""
        self.tensors.keep(self._shared)

    def librarys(self, frame: FrameType | None) -> Origin | None:
        """The user's line behind a call that is made in a function which a library gave to one of its own calls."""
        origin = self._origins[self._open[-1]] if self._open else None
        while origin is not None and origin.via is not None and frame is not None and frame.f_code not in _BOUNDARIES:
            if frame.f_code in self._codes[-1]:
                return origin
            frame = frame.f_back
        return None

    def call(
        self,
        original: Callable[..., Any],
        bound: inspect.BoundArguments,
        name: str,
        kind: SiteKind,
        origin: Origin,
    ) -> Any:
        """Make one call of the user's, with its overrides, and note it."""
        stage, occurrence = self._new_id(origin, name if origin.via is None else f"{origin.via}.{name}")
        sites = self._knobs(stage, occurrence, bound, name, kind, origin)
        arguments = dict(bound.arguments)
        removed = False
        for site in sites:
            if site.id in self.overrides:
                self.overridden.add(site.id)
                removed |= self._override(site, self.overrides[site.id], bound)
        if name == "with_options":
            sites += self._earlier_options(stage, occurrence, bound, origin)
        self._open.append(stage)
        functions = map(unwrapped, arguments.values())
        self._codes.append({function.__code__ for function in functions if inspect.isfunction(function)})
        try:
            source = next(iter(arguments.values()), None) if kind == "call" else None
            if f"{stage}({CACHE_BEFORE})" in self.overrides and isinstance(source, tf.data.Dataset):
                source = bound.arguments[next(iter(bound.arguments))] = self._cached(stage, source)
            made = source if removed else original(*bound.args, **bound.kwargs)
        finally:
            self._open.pop()
            self._codes.pop()
        result = next(iter(arguments.values())) if kind == "reader" else made
        self._sites += sites
        if isinstance(result, tf.data.Dataset) and not removed:
            self._note(result, source, arguments, stage, name, origin)
            if kind == "call":
                made = self._rearranged(made, _Link(stage, name, original, source, bound.args[1:], dict(bound.kwargs)))
        return made

    def _cached(self, stage: str, source: Any) -> Any:
        site = f"{stage}({CACHE_BEFORE})"
        self.overridden.add(site)
        filename = ""
        if self.overrides[site] == "disk":
            self.folders.append(temporary_folder())
            filename = os.path.join(self.folders[-1], "cache")
        link = _Link(site, "cache", type(source).cache, source, (filename,), {})
        made = link.make()
        self._links[id(made)] = link
        return made

    def _rearranged(self, made: Any, last: _Link) -> Any:
        """``made`` by the call ``last``, or what takes its place where an override moves stages up to it."""
        self._links[id(made)] = last
        chain = self._chain(made)
        behind = {
            move.stage: site
            for site in self.overrides
            if (move := move_of(site)) is not None and move.place == "behind" and move.partner == last.stage
        }
        if last.name == "batch":
            maps = itertools.takewhile(self._batch_first, chain[-2::-1])
            behind |= {link.stage: f"{link.stage}(order)" for link in maps}
        moving = [link for link in chain if link.stage in behind]
        if moving and len(moving) == len(behind):
            start = chain.index(moving[0])
            staying = [link for link in chain[start:] if link not in moving]
            made = self._make_again(moving[0].source, [*staying, *moving])
            self.overridden.update(behind.values())
        for site in self.overrides:
            move = move_of(site)
            if move is not None and move.place == "before" and move.stage == last.stage:
                chain = self._chain(made)
                starts = [index for index, link in enumerate(chain) if link.stage == move.partner]
                moving = [link for link in chain if link.stage == move.stage]
                if starts and moving:
                    staying = [link for link in chain[starts[0] :] if link not in moving]
                    made = self._make_again(chain[starts[0]].source, [*moving, *staying])
                    self.overridden.add(site)
        self._stage_of[id(made)] = last.stage
        return made

    def _batch_first(self, link: _Link) -> bool:
        return link.name == "map" and self.overrides.get(f"{link.stage}(order)") == "batch-map"

    def _chain(self, dataset: Any) -> list[_Link]:
        """The calls that made ``dataset``, one on the result of the other, first to last."""
        links = []
        while id(dataset) in self._links:
            links.append(self._links[id(dataset)])
            dataset = links[-1].source
        return links[::-1]

    def _make_again(self, dataset: Any, links: Sequence[_Link]) -> Any:
        for link in links:
            again = link.on(dataset)
            dataset = again.make()
            self._links[id(dataset)] = again
            self._results.append(dataset)
        return dataset

    def option(self, options: Any, name: str, path: str, value: Any, origin: Origin) -> Any:
        """Note one assignment to an option; the value to assign."""
        stage, occurrence = self._new_id(origin, "Options", path)
        site = self._site(stage, occurrence, "Options", path, "option", value, True, origin)
        self._sites.append(site)
        self._options[(id(options), name)] = options
        if site.id not in self.overrides:
            return value
        self.overridden.add(site.id)
        return self.overrides[site.id]

    def _earlier_options(
        self, stage: str, occurrence: int, bound: inspect.BoundArguments, origin: Origin
    ) -> list[Site]:
        """Options that were set before the factory ran, at the line that applies them."""
        options = bound.arguments.get("options")
        if not isinstance(options, tf.data.Options):
            return []
        sites = []
        copied = options
        for holder, name, path, value in _options_set(options):
            if (id(holder), name) in self._options:
                continue
            site = self._site(stage, occurrence, "with_options", path, "option", value, True, origin)
            sites.append(site)
            if site.id in self.overrides:
                self.overridden.add(site.id)
                if copied is options:  # TensorFlow may have made it immutable
                    copied = tf.data.Options()
                    for _, _, other, kept in _options_set(options):
                        _set_option(copied, other, kept)
                _set_option(copied, path, self.overrides[site.id])
        bound.arguments["options"] = copied
        return sites

    def _new_id(self, origin: Origin, call: str, argument: str = "") -> tuple[str, int]:
        stage = f"{relative(origin.file, self.home)}:{origin.line}:{call}"
        key = f"{stage}({argument})"
        self._counts[key] = occurrence = self._counts.get(key, 0) + 1
        if occurrence > 1:
            stage = f"{stage}:{occurrence}"
        self._origins.setdefault(stage, origin)
        place = _place(stage, origin)
        self._places[place] = self._places.get(place, 0) + 1
        return stage, occurrence

    def _knobs(
        self, stage: str, occurrence: int, bound: inspect.BoundArguments, name: str, kind: SiteKind, origin: Origin
    ) -> list[Site]:
        knobs = _READER_KNOBS if kind == "reader" else _METHOD_KNOBS.get(name, {})
        sites = []
        for argument, axis in knobs.items():
            parameter = bound.signature.parameters.get(argument)
            if parameter is not None:
                written = argument in bound.arguments
                value = bound.arguments[argument] if written else parameter.default
                sites.append(self._site(stage, occurrence, name, argument, kind, value, written, origin, axis))
        return sites

    def _site(
        self,
        stage: str,
        occurrence: int,
        method: str,
        argument: str,
        kind: SiteKind,
        value: Any,
        written: bool,
        origin: Origin,
        axis: Axis | None = None,
    ) -> Site:
        axis = axis or _OPTION_AXES.get(argument, "option")
        plain, known = _plain(value)
        settable_as = _LIBRARY_ARGUMENTS.get(origin.via or "", {}).get(axis)
        if settable_as is not None and origin.via_arguments.get(settable_as) != plain:
            settable_as = None
        settable_in = None
        if origin.library == "tensorflow_datasets" and written == (method != "cache") and axis in _READ_CONFIG:
            settable_in = f"read_config=tfds.ReadConfig({_READ_CONFIG[axis]})"
        if plain == AUTOTUNE_VALUE and not isinstance(plain, bool) and axis in AUTOTUNED_AXES:
            plain = "auto"
        return Site(
            id=f"{stage}({argument})",
            stage=stage,
            kind=kind,
            file=origin.file,
            line=origin.line,
            end_line=origin.end_line,
            end_column=origin.end_column,
            method=method,
            argument=argument,
            axis=axis,
            value=plain,
            written=written,
            symbolic=not known,
            function=origin.function,
            occurrence=occurrence,
            via=origin.via,
            settable_as=settable_as,
            settable_in=settable_in,
        )

    def _override(self, site: Site, value: OverrideValue, bound: inspect.BoundArguments) -> bool:
        """Put ``value`` into ``bound``; True when the stage is to be left out."""
        if site.axis in REMOVABLE_AXES and value in (0, None):
            return True
        if value == "auto":
            value = AUTOTUNE_VALUE
        elif value == "full":
            value = self._full_buffer(site, bound)
        elif site.axis == "cache" and value is True:
            value = bound.arguments.get("filename", "")
        if value is None and site.kind != "option":
            bound.arguments.pop(site.argument, None)
        else:
            bound.arguments[site.argument] = value
        return False

    def _full_buffer(self, site: Site, bound: inspect.BoundArguments) -> int:
        elements = int(bound.args[0].cardinality()) if tf.executing_eagerly() else -1
        if elements < 0:
            raise TfpipeError(
                f"{describe_site(site)}: the buffer cannot be the whole data set, whose size is infinite or unknown.",
                "Give the number of elements.",
            )
        return max(elements, 1)

    def _note(self, result: Any, source: Any, arguments: dict[str, Any], stage: str, name: str, origin: Origin) -> None:
        parent = self._open[-1] if self._open else None
        facts = function_facts(result) if self.detailed else FunctionFacts()
        size = int(result.cardinality()) if parent is None and tf.executing_eagerly() else tf.data.UNKNOWN_CARDINALITY
        element, element_bytes = _element(result)
        mapped = arguments.get("map_func") if name == "map" and parent is None and self.detailed else None
        self._stage_of[id(result)] = stage
        self._results.append(result)
        plain = {key: _plain(value) for key, value in arguments.items()}
        self._stages.append(
            Stage(
                id=stage,
                file=origin.file,
                line=origin.line,
                method=name,
                function=origin.function,
                via=origin.via,
                inputs=tuple(dict.fromkeys([*self._stages_behind(result), *self._stages_given(arguments, result)])),
                parent=parent,
                discarded=origin.discarded,
                arguments={key: value for key, (value, known) in plain.items() if known},
                calls=tuple(_function_name(value) for value in arguments.values() if inspect.isfunction(value)),
                random=bool(facts.random),
                python=bool(facts.python),
                stateful=bool(facts.state),
                casting=() if mapped is None else casting_of(result, mapped),
                element=element,
                element_bytes=element_bytes,
                cardinality=size if size >= 0 else None,
                infinite=size == tf.data.INFINITE_CARDINALITY,
            )
        )
        if parent is None and self.detailed:
            self.calls.append(
                Call(
                    stage=stage,
                    method=name,
                    input=source if isinstance(source, tf.data.Dataset) else None,
                    output=result,
                    site=self._site(stage, 1, name, "", "order", False, True, origin, "order"),
                    arguments={
                        key: value for key, value in arguments.items() if value is not source and value is not result
                    },
                    facts=facts,
                )
            )

    def _stages_behind(self, dataset: Any) -> Iterator[str]:
        """The nearest noted stages that ``dataset`` reads, through those that TensorFlow put in between."""
        for read in input_datasets(dataset):
            stage = self._stage_of.get(id(read))
            if stage is not None:
                yield stage
            else:
                yield from self._stages_behind(read)

    def _stages_given(self, arguments: dict[str, Any], result: Any) -> Iterator[str]:
        """The stages among a call's arguments; TensorFlow does not count a dataset of choices as read."""
        for value in arguments.values():
            if isinstance(value, tf.data.Dataset) and value is not result and id(value) in self._stage_of:
                yield self._stage_of[id(value)]

    def records(self, dataset: Any) -> tuple[tuple[Site, ...], tuple[Stage, ...]]:
        """All sites and stages, with what is known only at the end."""
        last = self._stage_of.get(id(dataset))
        ends = [last] if last is not None else list(self._stages_behind(dataset))
        reached = self._reached(ends)
        stages = tuple(replace(stage, reaches_end=stage.id in reached) for stage in self._stages)
        made = {stage.id for stage in stages}
        sites = []
        for site in self._sites:
            reaches = site.stage in reached or site.stage not in made
            sites.append(replace(site, occurrences=self._occurrences(site.stage), reaches_end=reaches))
        sites += self._orders(sites, reached)
        sites += self._ends(dataset, stages, ends)
        return tuple(sites), stages

    def counted(self, call: Call) -> Call:
        """``call`` with what is known only at the end."""
        return replace(call, site=replace(call.site, occurrences=self._occurrences(call.stage)))

    def _occurrences(self, stage: str) -> int:
        return self._places[_place(stage, self._origins[stage])]

    def _reached(self, ends: list[str]) -> set[str]:
        inputs = {stage.id: stage.inputs for stage in self._stages}
        reached: set[str] = set()
        waiting = list(ends)
        while waiting:
            stage = waiting.pop()
            if stage not in reached:
                reached.add(stage)
                waiting += inputs[stage]
        # What is called inside a stage's function is as much part of the dataset as the stage.
        for inner in self._stages:
            if inner.parent in reached:
                reached.add(inner.id)
        return reached

    def _orders(self, sites: list[Site], reached: set[str]) -> list[Site]:
        """One site for each map that a batch, or another such map, follows directly."""
        followed = {id(call.input): call for call in self.calls if call.method in ("map", "batch")}
        by_stage = {site.stage: site for site in sites}
        orders = []
        for call in self.calls:
            if call.stage not in reached or call.method != "map":
                continue
            following = followed.get(id(call.output))
            while following is not None and following.method == "map":
                following = followed.get(id(following.output))
            if following is not None:
                site = by_stage[call.stage]
                orders.append(
                    replace(
                        site,
                        id=f"{call.stage}(order)",
                        kind="order",
                        argument="order",
                        axis="order",
                        value=_ORDER[0],
                        written=True,
                        symbolic=False,
                        settable_as=None,
                        partner=following.stage,
                        reaches_end=True,
                    )
                )
        return orders

    def _ends(self, dataset: Any, stages: tuple[Stage, ...], ends: list[str]) -> list[Site]:
        """What can be added behind the last stage: a prefetch where there is none, and options."""
        by_id = {stage.id: stage for stage in stages}
        partner = ends[0] if len(ends) == 1 else None
        last = None if partner is None else by_id[partner]
        while last is not None and last.method == "with_options" and len(last.inputs) == 1:
            last = by_id[last.inputs[0]]
        sites = []
        if last is None or last.method != "prefetch":
            site = _end_site(END_PREFETCH, "prefetch", "buffer_size", "prefetch_depth", 0, False, partner)
            if partner is not None:
                origin = self._origins[partner]
                count = max(count for key, count in self._places.items() if key[0] == _base(partner))
                site = replace(
                    site,
                    file=origin.file,
                    line=origin.line,
                    end_line=origin.end_line,
                    end_column=origin.end_column,
                    function=origin.function,
                    via=origin.via,
                    occurrences=count,
                )
            sites.append(site)
        present = {path: value for _, _, path, value in _options_set(dataset.options())}
        for path, axis in _OPTION_AXES.items():
            value, _ = _plain(present.get(path))
            name = f"{END_OPTIONS}({path})"
            sites.append(_end_site(name, "Options", path, axis, value, path in present, partner))
        return sites


def _base(stage: str) -> str:
    """The id of a stage without its number."""
    front, _, number = stage.rpartition(":")
    return front if number.isdigit() else stage


def _place(stage: str, origin: Origin) -> tuple[object, ...]:
    """What all runs of one call in the source have in common."""
    return (_base(stage), origin.end_line, origin.end_column)


def _end_site(
    name: str, method: str, argument: str, axis: Axis, value: SiteValue, written: bool, partner: str | None
) -> Site:
    return Site(
        id=name,
        stage="",
        kind="end",
        file="",
        line=None,
        method=method,
        argument=argument,
        axis=axis,
        value=value,
        written=written,
        partner=partner,
    )


def _plain(value: Any) -> tuple[SiteValue, bool]:
    """``value`` as plain data and whether it could be; numbers out of NumPy and eager tensors included."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value, True
    if tf.is_tensor(value) and hasattr(value, "numpy") and value.shape.rank == 0:
        value = value.numpy()
    if isinstance(value, bytes):
        return value.decode(errors="replace"), True
    if isinstance(value, (np.ndarray, np.generic)) and np.ndim(value) == 0:
        return _plain(value.item())
    if isinstance(value, tf.data.experimental.AutoShardPolicy) or hasattr(type(value), "__members__"):
        return str(value), True
    return None, False


def _function_name(function: Any) -> str:
    return str(function.__qualname__).replace(".<locals>", "").replace(".__init__", "")


def _element(dataset: Any) -> tuple[str, int | None]:
    """``element_spec`` as text and, where it is fixed, the size of one element in bytes."""
    try:
        spec = dataset.element_spec
    except (AttributeError, TypeError, ValueError, NotImplementedError):
        return "", None  # an exotic dataset of a library's
    size = 0
    for leaf in tf.nest.flatten(spec):
        if not isinstance(leaf, tf.TensorSpec) or not leaf.shape.is_fully_defined() or leaf.dtype.size in (None, 0):
            return str(spec), None
        if leaf.dtype == tf.string:
            return str(spec), None
        size += int(np.prod(leaf.shape.as_list(), dtype=np.int64)) * leaf.dtype.size
    return str(spec), size
