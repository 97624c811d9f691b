"""Where a user's own pipeline sets its knobs: call sites, stages, and what was noticed about them.

A *stage* is one call of a ``tf.data.Dataset`` method or reader; its id is ``file:line:method``, with ``:2``,
``:3`` ... behind it when one line makes the call more than once in a run of the factory. A *site* is one
argument of a stage that can be tuned; its id is the stage's with the argument in brackets::

    pipelines/data.py:42:map(num_parallel_calls)
    pipelines/data.py:42:map:2(num_parallel_calls)

``file`` in an id is relative to the directory that the factory's module is imported from, so ids do not depend
on the working directory or the machine. Ids that start with ``end:`` name what is added behind the last stage.

What can change places has a site too, whose argument says where to; it is overridden with True. A cache can also be
added in front of a stage, overridden with True for one in memory and with "disk" for one in a temporary file::

    pipelines/data.py:44:take(before pipelines/data.py:43:cache)
    pipelines/data.py:42:map(behind pipelines/data.py:43:shuffle)
    pipelines/data.py:43:shuffle(cache before)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

# "auto" is tf.data.AUTOTUNE, "full" (shuffle buffer only) the whole data set; 0 for a shuffle buffer or a prefetch
# depth and False for a cache leave the stage out; None leaves the argument out.
OverrideValue = int | bool | str | None
SiteValue = int | bool | float | str | None

Axis = Literal[
    "shuffle_buffer",
    "map_parallelism",
    "batch_parallelism",
    "interleave_parallelism",
    "read_parallelism",
    "cycle_length",
    "block_length",
    "prefetch_depth",
    "cache",
    "read_buffer_bytes",
    "deterministic",
    "order",
    "threadpool",
    "intra_op_parallelism",
    "rewrites",
    "autotune",
    "autotune_cpu_budget",
    "autotune_ram_budget_bytes",
    "option",
]
SiteKind = Literal["call", "reader", "option", "order", "end"]

CACHE_BEFORE = "cache before"
END_PREFETCH = "end:prefetch(buffer_size)"
END_OPTIONS = "end:options"

# Axes on which the value -1 means tf.data.AUTOTUNE.
AUTOTUNED_AXES: frozenset[str] = frozenset(
    {
        "map_parallelism",
        "batch_parallelism",
        "interleave_parallelism",
        "read_parallelism",
        "cycle_length",
        "prefetch_depth",
    }
)
AUTOTUNE_VALUE = -1

# A stage that is left out when its knob is overridden with 0 (False for a cache).
REMOVABLE_AXES: frozenset[str] = frozenset({"shuffle_buffer", "prefetch_depth", "cache"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One argument that a knob can be turned at.

    Attributes:
        stage: id of the call; "" for what is added at the end.
        file: path as the interpreter knows it; "" for an option at the end. The end's prefetch has the place of the
            call that it would stand behind.
        line: of the method's name, counted from 1.
        end_line, end_column: where the call's closing bracket ends (column in UTF-8 bytes, from 0);
            None where Python does not tell (before 3.11, and in functions that AutoGraph converts).
        value: what was passed, or TensorFlow's default when ``written`` is False.
        symbolic: the value is a tensor computed in the graph, so ``value`` is None and unknown.
        via: the library function, called on this line, that made the call; None when the line makes it itself.
        settable_as: the argument of ``via`` that sets this one; None when nothing on that line does.
        settable_in: how ``via`` can be told otherwise, as Python, where it takes such things in a configuration.
        occurrence: which call from this line to this method it is, from 1.
        occurrences: how often this very place in the source ran: more than 1 in a loop or a helper.
        partner: for ``order``, the id of the stage that this one would trade places with; for ``end:prefetch``, the id
            of the last stage.
        reaches_end: False when the stage is no part of the dataset that the factory returned.
    """

    id: str
    stage: str
    kind: SiteKind
    file: str
    line: int | None
    end_line: int | None = None
    end_column: int | None = None
    method: str
    argument: str
    axis: Axis
    value: SiteValue
    written: bool
    symbolic: bool = False
    function: str = ""
    occurrence: int = 1
    occurrences: int = 1
    via: str | None = None
    settable_as: str | None = None
    settable_in: str | None = None
    partner: str | None = None
    reaches_end: bool = True

    @property
    def where(self) -> str:
        """``data.py:42``, the way a person would name the line; ``at the end`` for an addition."""
        return f"{PurePath(self.file).name}:{self.line}" if self.line is not None else "at the end"

    @property
    def limits(self) -> str:
        """What cannot be changed from the user's line, as a sentence; "" when everything can."""
        if self.via is None:
            return ""
        if self.settable_as is not None:
            return f"Set it with {self.via}({self.settable_as}=...)."
        if self.settable_in is not None:
            return f"Set it with {self.via}({self.settable_in})."
        return (
            f"{self.via} makes this call and has no argument for it: it can be overridden while measuring, "
            f"but not be written on this line."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One call that made a dataset, in the order the calls were made.

    Attributes:
        inputs: ids of the stages whose datasets this one reads.
        parent: id of the stage in whose function the call was made (``flat_map``, ``interleave``); None at top level.
        reaches_end: whether the dataset is part of what the factory returned.
        discarded: the statement dropped the call's result, so the call did nothing.
        arguments: the plain values that were passed, by parameter name; a tensor or a function is left out.
        calls: names of the functions passed to it.
        random, python, stateful: its functions draw random numbers, run Python for each element, change state.
        casting: Python statements that do to a batch what its function does to each element, where that is all casting
            and scaling; () for any other function.
        element: its ``element_spec`` as text.
        element_bytes: size of one element where every shape and type is fixed; None otherwise.
        cardinality: elements; None when infinite, unknown or made inside a graph. ``infinite`` tells.
    """

    id: str
    file: str
    line: int
    method: str
    function: str = ""
    via: str | None = None
    inputs: tuple[str, ...] = ()
    parent: str | None = None
    reaches_end: bool = True
    discarded: bool = False
    arguments: dict[str, SiteValue] | None = None
    calls: tuple[str, ...] = ()
    random: bool = False
    python: bool = False
    stateful: bool = False
    casting: tuple[str, ...] = ()
    element: str = ""
    element_bytes: int | None = None
    cardinality: int | None = None
    infinite: bool = False

    @property
    def where(self) -> str:
        return f"{PurePath(self.file).name}:{self.line}"


FindingKind = Literal["wrong", "useless", "suggestion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something about the stages' order that no knob mends.

    ``wrong``: other data than the writer means. ``useless``: costs and does nothing. ``suggestion``: may be
    faster with the same data. ``measured`` is False until a candidate with the change was run.

    ``sites`` are to be overridden with ``value``, all of them together, to make the change; () where no candidate can
    be made. ``note`` says how it was proven to give the same data, or why there is no candidate. ``memory_bytes`` is
    what a cache that is added will hold, and ``elements`` how many. ``predicted_gain`` is how many times as fast as the
    current pipeline the change is predicted to be; None where that cannot be said or was measured.
    """

    code: str
    kind: FindingKind
    stages: tuple[str, ...]
    text: str
    remedy: str
    measured: bool = False
    sites: tuple[str, ...] = ()
    note: str = ""
    value: OverrideValue = True
    memory_bytes: int | None = None
    elements: int | None = None
    predicted_gain: float | None = None


ReorderVerdict = Literal["equal", "different", "refused"]
ReorderReason = Literal[
    "randomness",
    "python",
    "state",
    "ragged-or-sparse",
    "variable-shapes",
    "strings",
    "no-elements",
    "alike",
    "error",
    "structure",
    "types",
    "shapes",
    "values",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reorder:
    """Whether ``batch`` may come before ``map``.

    ``equal``: both orders were run on ``examples`` real elements and gave the same structure, types and values
    (floats within rounding: ``difference`` is the largest, relative to the largest value of its component).
    ``different``: they were run and did not. ``refused``: not run, or what was run proves nothing.
    """

    map_stage: str
    batch_stage: str
    verdict: ReorderVerdict
    reason: ReorderReason | None
    text: str
    remedy: str = ""
    examples: int = 0
    difference: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """``stage`` goes to directly ``before`` or ``behind`` another of the same chain."""

    stage: str
    place: Literal["before", "behind"]
    partner: str

    @property
    def site(self) -> str:
        """The id to override with True."""
        return f"{self.stage}({self.place} {self.partner})"


def move_of(site: str) -> Move | None:
    """The move that a site's id means; None for any other site."""
    stage, _, argument = site.removesuffix(")").partition("(")
    place, _, partner = argument.partition(" ")
    if argument == CACHE_BEFORE or not partner:
        return None
    if place == "before":
        return Move(stage=stage, place="before", partner=partner)
    return Move(stage=stage, place="behind", partner=partner) if place == "behind" else None


def cached_stage(site: str) -> str | None:
    """The stage in front of which the site of that id adds a cache; None for any other site."""
    stage, _, argument = site.removesuffix(")").partition("(")
    return stage if argument == CACHE_BEFORE else None


def method_of(stage: str) -> str:
    """``batch`` of ``data.py:9:batch``, with ``:2`` and so on behind it for a repeated call."""
    return next(part for part in reversed(stage.split(":")) if not part.isdigit())


def plain_text(value: SiteValue) -> str:
    """A value as Python source; ``"auto"`` as ``tf.data.AUTOTUNE``."""
    return "tf.data.AUTOTUNE" if value == "auto" else repr(value)


def describe_site(site: Site) -> str:
    """``data.py:42  map(num_parallel_calls=2)``."""
    name = site.method if site.via is None else f"{site.via}: {site.method}"
    if site.symbolic:
        return f"{site.where}  {name}({site.argument}=<tensor>)"
    if not site.written:
        return f"{site.where}  {name}({site.argument} not given)"
    return f"{site.where}  {name}({site.argument}={plain_text(site.value)})"


def changed_sites(before: Iterable[Site], after: Iterable[Site]) -> tuple[str, ...]:
    """One sentence for each call site that two runs of a factory do not share; () when they agree.

    The values written there may differ, and so may what follows from the rest (``order`` and ``end`` sites).
    """
    old, new = ({site.id: site for site in sites if site.kind not in ("order", "end")} for sites in (before, after))
    gone = [f"{describe_site(old[name])} is gone" for name in old if name not in new]
    return tuple(gone + [f"{describe_site(new[name])} is new" for name in new if name not in old])


def sites_on(axis: Axis, sites: Sequence[Site]) -> tuple[Site, ...]:
    """The sites that turn ``axis`` and belong to the returned dataset."""
    return tuple(site for site in sites if site.axis == axis and site.reaches_end)
