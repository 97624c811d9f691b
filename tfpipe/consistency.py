"""Whether a run file says what a run can say: its types are right, but do its parts agree? Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from tfpipe.records import Block, Candidate, Data, Environment, Floor, Interval, Run
from tfpipe.settings import DATASETS, PipelineSettings

# Differences, which may fall on either side of zero, and the rounds before the first.
_SIGNED = frozenset(
    {"contention_s", "contention_fraction", "host_fraction", "overhead_fraction", "profiler_overhead_fraction", "round"}
)
# A user's own source and the values at its call sites, of which any number may be one.
_THEIRS = frozenset({"pipeline", "overrides"})
# Beyond any number of seconds, bytes or examples that a machine could have; sums of such numbers stay finite.
_LARGEST = 1e18


def find_contradiction(run: Run) -> str | None:
    """The first thing in ``run`` that cannot be so, as the end of a sentence; None where there is none."""
    return next(_contradictions(run), None)


def _contradictions(run: Run) -> Iterator[str]:
    yield from _impossible(run, "")
    if not run.candidates:
        yield "candidates is empty"
    ids = [candidate.id for candidate in run.candidates]
    yield from (f"candidates has {name!r} more than once" for name in ids if ids.count(name) > 1)
    for where, name in _named_candidates(run):
        if name not in ids:
            yield f"{where} is {name!r}, which is no candidate of it"
    if run.pipeline is None and (run.data.code is None or run.data.examples is None):
        yield "it has neither a pipeline of the user's nor the code of a built-in data set"
    if run.pipeline is None and run.data.name not in DATASETS:
        yield f"data.name is {run.data.name!r}, which is no built-in data set"
    for candidate in run.candidates:
        if (candidate.settings.overrides is None) != (run.pipeline is None):
            yield f"{candidate.id!r} has the knobs of another kind of pipeline"


def _named_candidates(run: Run) -> Iterator[tuple[str, str]]:
    yield "current", run.current
    if run.recommendation is not None:
        yield "recommendation.candidate", run.recommendation.candidate
        yield "recommendation.fastest", run.recommendation.fastest
        yield from (("recommendation.ties", name) for name in run.recommendation.ties)
        yield from (("recommendation.gains.over", gain.over) for gain in run.recommendation.gains)


def _impossible(value: Any, where: str) -> Iterator[str]:
    """Values at and below ``where`` that nothing could have."""
    name = where.rpartition(".")[2].partition("[")[0]
    if isinstance(value, bool) or name in _THEIRS:
        return
    if isinstance(value, int | float):
        if not abs(value) <= _LARGEST:
            yield f"{where} is beyond {_LARGEST:g}"
        elif value < 0 and name not in _SIGNED:
            yield f"{where} is {value}, less than nothing"
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from _impossible(item, f"{where}[{number}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _impossible(item, f"{where}[{key!r}]")
    elif isinstance(value, Interval):
        for end in (value.low, value.value, value.high):
            yield from _impossible(end, where)
        if not value.low <= value.value <= value.high:
            yield f"{where} is not between its low and its high end"
    elif is_dataclass(value):
        for field in fields(value):
            yield from _impossible(getattr(value, field.name), f"{where}.{field.name}".lstrip("."))
        yield from _disagreeing(value, where)


def _disagreeing(record: Any, where: str) -> Iterator[str]:
    """What the fields of one record demand of one another, and what none can be zero of."""
    if isinstance(record, Block):
        if not record.steps == len(record.step_s) == len(record.fetch_s):
            yield f"{where} does not have one step_s and one fetch_s for each of its steps"
        if not any(record.step_s) or not record.elapsed_s:
            yield f"{where} measured nothing"
    positive: dict[str, Any] = {}
    if isinstance(record, Candidate):
        positive = {"step_s": record.step_s, "examples_per_s": record.examples_per_s, "floor_s": record.floor_s}
        counted = any(block.kind == "step" and not block.retraced for block in record.blocks)
        if record.examples_per_s is not None and not counted:
            yield f"{where} has a throughput and no block that it comes from"
    elif isinstance(record, Floor):
        positive = {"step_s": record.step_s}
    elif isinstance(record, Data):
        positive = {"batch_size": record.batch_size}
    elif isinstance(record, Environment):
        positive = {"cores": record.cores}
    elif isinstance(record, PipelineSettings):
        positive = {"map_parallelism": record.map_parallelism, "threadpool": record.threadpool}
    for name, value in positive.items():
        if value == 0 or (isinstance(value, Interval) and value.value == 0):
            yield f"{where}.{name} is 0"
