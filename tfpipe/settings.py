"""The knobs: what one candidate is, the axes of a grid, and the preset list.

A knob has the same word as field, JSON key, flag and column. Values:

===================  ============================================================================
``shuffle_buffer``   examples in the buffer; ``"full"`` the whole data set; ``0`` no shuffle stage
``map_parallelism``  ``num_parallel_calls``; ``"auto"`` is ``tf.data.AUTOTUNE``; ``None`` leaves it out
``prefetch_depth``   batches; ``"auto"`` is ``tf.data.AUTOTUNE``; ``0`` no prefetch stage
``order``            ``"map-batch"`` or ``"batch-map"``
``threadpool``       ``options.threading.private_threadpool_size``; ``None`` leaves it out
``deterministic``    ``options.deterministic``
``rewrites``         ``"default"`` (what TensorFlow does to a user's pipeline) or ``"off"`` (as written)
``overrides``        for a user's own pipeline, in place of all the above: values by call site
===================  ============================================================================
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from tfpipe.errors import UsageError
from tfpipe.sites import OverrideValue
from tfpipe.units import parse_seconds

Buffer = int | Literal["full"]
Parallelism = int | Literal["auto"] | None
Depth = int | Literal["auto"]
Order = Literal["map-batch", "batch-map"]
Rewrites = Literal["default", "off"]
# How the step runs: operation by operation from Python; a ``tf.function`` for each layer, the model and the gradient;
# one ``tf.function`` over the whole step; the same compiled by XLA; Keras's own ``model.fit``.
Execution = Literal["eager", "layer", "graph", "xla", "fit"]
Precision = Literal["float32", "mixed_float16", "mixed_bfloat16"]
# How the built-in model is written: a functional Keras model, a subclassed one, or a ``tf.Module`` of variables.
Packaging = Literal["functional", "subclass", "module"]
# How candidates are chosen: by the model of the pipeline, all of them, at random, by Optuna's sampler.
SearchName = Literal["model", "grid", "random", "optuna"]

# The built-in data sets.
DATASETS = ("cifar100", "cifar10", "photos")
# The orders that each of them allows: photos differ in size until they are decoded and cropped.
ORDERS: dict[str, tuple[Order, ...]] = {
    "cifar100": ("map-batch", "batch-map"),
    "cifar10": ("map-batch", "batch-map"),
    "photos": ("map-batch",),
}
STEPS = ("resnet18", "simulated", "none")
SEARCHES: tuple[SearchName, ...] = ("model", "grid", "random", "optuna")
EXECUTIONS: tuple[Execution, ...] = ("eager", "layer", "graph", "xla", "fit")

# A grid larger than this takes hours; the user is asked before it starts.
LARGE_GRID = 200
# tf.data accepts more, but no machine has use for it and it is nearly always a typing error.
MAX_PARALLELISM = 4096
MAX_PREFETCH_DEPTH = 100_000
MAX_SHUFFLE_BUFFER = 1_000_000_000
MAX_SIMULATED_STEP_S = 60.0
# An id is a folder's name, which file systems end at 255 bytes.
MAX_ID_LENGTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """One candidate: a value for every knob."""

    shuffle_buffer: Buffer = 0
    map_parallelism: Parallelism = None
    prefetch_depth: Depth = 0
    order: Order = "map-batch"
    threadpool: int | None = None
    deterministic: bool = True
    rewrites: Rewrites = "default"
    overrides: tuple[tuple[str, OverrideValue], ...] | None = None

    @property
    def id(self) -> str:
        """The pipeline read from source to step; equal settings have equal ids in every run.

        >>> PipelineSettings(shuffle_buffer=5000, map_parallelism="auto", prefetch_depth=1, order="batch-map").id
        'shuffle5000-batch-mapauto-prefetch1'
        """
        if self.overrides is not None:
            return _overrides_id(self.overrides)
        mapped = "map" if self.map_parallelism is None else f"map{self.map_parallelism}"
        stages = [mapped, "batch"] if self.order == "map-batch" else ["batch", mapped]
        if self.shuffle_buffer:
            stages.insert(0, f"shuffle{self.shuffle_buffer}")
        if self.prefetch_depth:
            stages.append(f"prefetch{self.prefetch_depth}")
        if self.threadpool is not None:
            stages.append(f"pool{self.threadpool}")
        if not self.deterministic:
            stages.append("unordered")
        if self.rewrites == "off":
            stages.append("norewrites")
        return "-".join(stages)


def _overrides_id(overrides: tuple[tuple[str, OverrideValue], ...]) -> str:
    """``current`` for none; else each site, shortened to what a folder's name may have, and its value.

    ``data.py:42:map(num_parallel_calls)`` at 8 is ``data.42.map=8``.
    """
    if not overrides:
        return "current"
    text = "+".join(f"{short_site(site)}={value}" for site, value in overrides)
    if len(text) <= MAX_ID_LENGTH:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: MAX_ID_LENGTH - 9]}-{digest}"


def short_site(site: str) -> str:
    """A site's id without what nobody needs to tell it apart.

    >>> short_site("pkg/data.py:42:map(num_parallel_calls)")
    'data.42.map'
    """
    place, _, argument = site.rstrip(")").partition("(")
    if place.startswith("end:"):
        return argument.rpartition(".")[2] if place == "end:options" else place.removeprefix("end:")
    parts = [part.rpartition("/")[2].removesuffix(".py") for part in place.split(":")]
    if argument != "num_parallel_calls":
        parts.append(argument)
    return re.sub(r"[^A-Za-z0-9_.]+", "-", ".".join(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSettings:
    """Settings with the name that a person would call them by; ``""`` when they come from a grid."""

    name: str
    settings: PipelineSettings


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """One tuple of values per knob; its product is the candidate list."""

    shuffle_buffer: tuple[Buffer, ...]
    map_parallelism: tuple[Parallelism, ...]
    prefetch_depth: tuple[Depth, ...]
    order: tuple[Order, ...]
    threadpool: tuple[int | None, ...]
    deterministic: tuple[bool, ...]
    rewrites: tuple[Rewrites, ...]

    def __len__(self) -> int:
        size = 1
        for field in fields(self):
            size *= len(getattr(self, field.name))
        return size

    def __iter__(self) -> Iterator[PipelineSettings]:
        names = [field.name for field in fields(self)]
        for values in itertools.product(*(getattr(self, name) for name in names)):
            yield PipelineSettings(**dict(zip(names, values, strict=True)))


def grid(axes: dict[str, tuple[Any, ...] | None]) -> Grid:
    """A grid from the axes the user gave; an axis left out has the value of the seed recipe."""
    return Grid(**{name: axes.get(name) or default for name, default in _GRID_DEFAULTS.items()})


_GRID_DEFAULTS: dict[str, Any] = {
    "shuffle_buffer": (5000,),
    "map_parallelism": ("auto",),
    "prefetch_depth": ("auto",),
    "order": ("map-batch",),
    "threadpool": (None,),
    "deterministic": (True,),
    "rewrites": ("default",),
}


def preset(*, cores: int, orders: Sequence[Order], shuffle_buffer: int) -> tuple[NamedSettings, ...]:
    """The candidates that someone in the field would try first; the first is what one writes without thinking.

    Args:
        cores: processors this process may use; the fixed parallelism.
        orders: the orders this data set allows.
        shuffle_buffer: examples in the "small" shuffle buffer (the seed recipe's 5,000, less for less data).
    """
    small = shuffle_buffer

    def settings(**knobs: Any) -> PipelineSettings:
        return PipelineSettings(**{"shuffle_buffer": small, **knobs})

    last = orders[-1]
    named = [
        ("serial, TensorFlow's defaults", settings()),
        ("serial, as written", settings(rewrites="off")),
        ("serial map, prefetch 1", settings(prefetch_depth=1)),
        ("all AUTOTUNE", settings(map_parallelism="auto", prefetch_depth="auto")),
        (
            "all AUTOTUNE, full shuffle",
            settings(shuffle_buffer="full", map_parallelism="auto", prefetch_depth="auto"),
        ),
        (f"{cores} calls, prefetch 1", settings(map_parallelism=cores, prefetch_depth=1)),
        ("batch first, serial map, prefetch 1", settings(prefetch_depth=1, order=last)),
        (
            "seed recipe: batch first, AUTOTUNE",
            settings(map_parallelism="auto", prefetch_depth="auto", order=last),
        ),
    ]
    seen: dict[PipelineSettings, str] = {}
    for name, candidate in named:
        seen.setdefault(candidate, name)
    return tuple(NamedSettings(name=name, settings=candidate) for candidate, name in seen.items())


# --- reading knobs from text -------------------------------------------------------------------------------


def parse_list(flag: str, text: str, parse: Callable[[str], T]) -> tuple[T, ...]:
    """Comma-separated ``text`` as values without repeats, in order. Raises UsageError that names ``flag``."""
    words = [word.strip() for word in text.split(",")]
    if not text.strip() or not all(words):
        raise UsageError(f"{flag} {text!r}: the list has an empty value", f"Write for example {flag} 1,2,4.")
    values: dict[T, None] = {}
    for word in words:
        try:
            values[parse(word)] = None
        except ValueError as error:
            raise UsageError(f"{flag} {text!r}: {error}", "Separate values with commas.") from None
    return tuple(values)


def parse_shuffle_buffer(word: str) -> Buffer:
    """Examples, ``full``, or ``0``/``none`` for no shuffle."""
    if word == "full":
        return "full"
    return 0 if word == "none" else _integer(word, low=0, high=MAX_SHUFFLE_BUFFER, words="full, none")


def parse_map_parallelism(word: str) -> Parallelism:
    """Calls, ``auto``, or ``none`` to leave the argument out."""
    if word == "auto":
        return "auto"
    return None if word == "none" else _integer(word, low=1, high=MAX_PARALLELISM, words="auto, none")


def parse_prefetch_depth(word: str) -> Depth:
    """Batches, ``auto``, or ``0``/``none`` for no prefetch."""
    if word == "auto":
        return "auto"
    return 0 if word == "none" else _integer(word, low=0, high=MAX_PREFETCH_DEPTH, words="auto, none")


def parse_threadpool(word: str) -> int | None:
    """Threads, or ``none`` to leave the option out."""
    return None if word == "none" else _integer(word, low=1, high=MAX_PARALLELISM, words="none")


def parse_order(word: str) -> Order:
    """``map-batch`` or ``batch-map``."""
    if word == "map-batch":
        return "map-batch"
    if word == "batch-map":
        return "batch-map"
    raise ValueError(f"{word!r} is neither map-batch nor batch-map")


def parse_execution(word: str) -> Execution:
    """One of EXECUTIONS."""
    for execution in EXECUTIONS:
        if word == execution:
            return execution
    raise ValueError(f"{word!r} is none of: {', '.join(EXECUTIONS)}")


def parse_rewrites(word: str) -> Rewrites:
    """``default`` or ``off``."""
    if word == "default":
        return "default"
    if word == "off":
        return "off"
    raise ValueError(f"{word!r} is neither default nor off")


def parse_deterministic(word: str) -> bool:
    """``true`` or ``false``."""
    if word in ("true", "false"):
        return word == "true"
    raise ValueError(f"{word!r} is neither true nor false")


def _integer(word: str, *, low: int, high: int, words: str) -> int:
    try:
        value = int(word)
    except ValueError:
        raise ValueError(f"{word!r} is neither a whole number nor one of: {words}") from None
    if not low <= value <= high:
        raise ValueError(f"{value} is out of range: from {low} to {high:,}")
    return value


def parse_step(text: str) -> tuple[str, float]:
    """The kind of a step and, for a simulated one, its seconds: ``simulated:66ms`` is ``("simulated", 0.066)``.

    Raises UsageError for a duration that is none.
    """
    kind, _, duration = text.partition(":")
    if kind != "simulated":
        return text, 0.0
    try:
        seconds = parse_seconds(duration)
    except ValueError as error:
        raise UsageError(f"--step {text!r}: {error}", "Write for example --step simulated:66ms.") from None
    if not 0 < seconds <= MAX_SIMULATED_STEP_S:
        raise UsageError(
            f"--step {text!r}: a simulated step lasts more than 0 s and at most {MAX_SIMULATED_STEP_S:.0f} s.",
            "Write for example --step simulated:66ms.",
        )
    return kind, seconds
