"""What was measured of settings that do the same work per example, and the rates of others that follow from it. Pure.

The laws of ``laws`` with the costs of ``costs`` give the rate of any setting; at the settings that were measured alone
they are off by a factor that stands for what no law has (threads that wake each other, memory's bandwidth, a machine
with other work). That factor changes slowly from one setting to one like it, so a rate is the law's times the factors
of those that were measured, each weighed by the inverse square of how unlike it is (Shepard, Proc. 23rd ACM National
Conference, 1968). One that was measured itself counts most, but not alone: a block has its own error.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tfpipe.analysis.operational.costs import Costs, Residence, residence_s, split_costs
from tfpipe.analysis.operational.laws import Bound, asleep, bounds, ordered_rate
from tfpipe.analysis.operational.shape import Shape, distance, shape_of
from tfpipe.records import Candidate, Run

# Points that are no more than this further away than the nearest are as good a witness of how even batches are.
AS_NEAR = 0.5
# How unlike a setting counts that is just the one: its rate is known to a few per cent, which is what rates differ by
# at this distance.
OWN_DISTANCE = 0.3
# Between a setting limited by one resource and one limited by another.
OTHER_LIMIT = 0.5
# With more of the cores busy than this, what keeps a call beyond its processor time is the queue for a core.
BUSY = 0.85
# Python that came this near to what all but its lock allow, where that is so many times what the lock allows, does not
# hold it while it computes.
UNLOCKED, TELLING = 0.75, 1.25
# Batches whose times spread by more than this, relative to their mean, are uneven; by so much more, single examples are
# to blame and not the machine.
UNEVEN, SLOW_EXAMPLES = 0.2, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One setting drained alone.

    Attributes:
        rate: examples per second.
        cpu_s: processor seconds of the process per example.
        residence: None where TensorFlow's counts do not fit the shape.
        pattern: times from batch to batch over their mean; () where they are even.
    """

    shape: Shape
    rate: float
    cpu_s: float
    residence: Residence | None
    pattern: tuple[float, ...] = ()


def point_of(candidate: Candidate, run: Run) -> Point | None:
    """What the candidate did alone; None where it was not drained alone."""
    rate = candidate.capacity_examples_per_s
    if not rate or run.data.batch_size < 1:
        return None
    cores, batch_size = run.environment.cores, run.data.batch_size
    shape = shape_of(candidate.settings, run.pipeline, cores=cores, batch_size=batch_size)
    cpu_s = candidate.cpu_s_per_example or 0.0
    residence = residence_s(candidate.capacity_executed or candidate.executed, shape, batch_size)
    if residence is not None and cpu_s * rate > BUSY * cores:
        at_work = rate * sum(residence.values())
        queueing = min(1.0, cpu_s * rate / at_work) if at_work else 1.0
        waiting = {stage.name for stage in shape.stages if stage.waits}
        residence = {name: s if name in waiting else s * queueing for name, s in residence.items()}
    batch_s = [s for block in candidate.blocks if block.kind == "capacity" for s in block.step_s]
    return Point(shape=shape, rate=rate, cpu_s=cpu_s, residence=residence, pattern=_pattern(batch_s))


def _pattern(batch_s: Sequence[float]) -> tuple[float, ...]:
    mean = statistics.fmean(batch_s) if batch_s else 0.0
    pattern = tuple(seconds / mean for seconds in batch_s) if mean > 0 else ()
    return pattern if _spread(pattern) > UNEVEN else ()


def _spread(pattern: Sequence[float]) -> float:
    """The standard deviation of parts whose mean is 1."""
    return math.sqrt(statistics.fmean((part - 1) ** 2 for part in pattern)) if pattern else 0.0


class Seen:
    """``points`` of one variant, one at least, measured on ``cores`` with batches of ``batch_size``."""

    def __init__(self, points: Sequence[Point], *, cores: int, batch_size: int) -> None:
        self._points = points
        self._cores = cores
        self._batch_size = batch_size

    def distance(self, shape: Shape) -> float:
        """To the nearest of the points."""
        return min(distance(shape, point.shape) for point in self._points)

    def costs(self, shape: Shape) -> Costs:
        """What an example costs at each stage of ``shape``."""
        logs = [
            (distance(shape, point.shape), math.log(max(_cpu_s(point, own, shape), 1e-12))) for point, own in self._own
        ]
        return self._split(shape, cpu_s=math.exp(weighed(logs)))

    def rate(self, shape: Shape, costs: Costs, *, cores: int) -> float:
        """Examples per second."""
        tightest = self.tightest(shape, costs, cores=cores)
        if tightest is None:
            return max(point.rate for point in self._points)
        factors = [
            (distance(shape, point.shape) + OTHER_LIMIT * (limit != tightest.limit), factor)
            for point, limit, factor in self._factors
        ]
        return tightest.rate * math.exp(weighed(factors))

    def tightest(self, shape: Shape, costs: Costs, *, cores: int) -> Bound | None:
        """The bound that holds; None for a pipeline that costs nothing."""
        found = bounds(shape, costs, cores=cores)
        for stage in shape.stages:
            residence = costs.residence_s(stage.name)
            if self._durations and stage.ordered and stage.calls > 1 and residence > 0:
                rate = ordered_rate(
                    [residence * duration for duration in self._durations],
                    calls=stage.calls,
                    threads=shape.threads if stage.pooled else stage.calls,
                )
                found.append(Bound(limit="order", stage=stage.name, rate=rate))
        return min(found, key=lambda bound: bound.rate, default=None)

    def production_s(self, shape: Shape, batch_s: float) -> list[float]:
        """Seconds from batch to batch, ``batch_s`` in the mean, as uneven as those of the nearest points; [] for even
        ones.

        The least uneven of them is right: a burst of other work on the machine comes and goes, slow examples stay.
        """
        far = [distance(shape, point.shape) for point in self._points]
        near = [point for point, away in zip(self._points, far, strict=True) if away <= min(far) + AS_NEAR]
        return [batch_s * part for part in min(near, key=lambda point: _spread(point.pattern)).pattern]

    @cached_property
    def holds_lock(self) -> bool | None:
        """Whether Python's computing holds the interpreter's lock; None where no point tells.

        One tells where calls, threads and processors allow clearly more than the lock does.
        """
        found = None
        for point in self._points:
            residence = self._residence(point.shape)
            costs = split_costs(residence, point.shape, cpu_s=point.cpu_s, fastest_s=0.0)
            others = [bound for bound in bounds(point.shape, costs, cores=self._cores) if bound.limit != "lock"]
            unlocked = others[0].rate if others else 0.0
            if unlocked * costs.lock_s > TELLING:
                found = found is not False and point.rate < UNLOCKED * unlocked
        return found

    @cached_property
    def _own(self) -> list[tuple[Point, Costs]]:
        """What an example cost at each point."""
        return [(point, self._split(point.shape, cpu_s=point.cpu_s)) for point in self._points]

    @cached_property
    def _factors(self) -> list[tuple[Point, str, float]]:
        """For each point what limits it, and the logarithm of what the law is off by."""
        found = []
        for point, own in self._own:
            tightest = self.tightest(point.shape, own, cores=self._cores)
            limit, rate = ("", point.rate) if tightest is None else (tightest.limit, tightest.rate)
            found.append((point, limit, math.log(point.rate / rate)))
        return found

    def _split(self, shape: Shape, *, cpu_s: float) -> Costs:
        return split_costs(
            self._residence(shape),
            shape,
            cpu_s=cpu_s,
            fastest_s=1 / max(point.rate for point in self._points),
            locks=self.holds_lock is not False,
        )

    def _residence(self, shape: Shape) -> dict[str, float]:
        """Of each stage, from the points at which the fewest of its calls were at work: they hinder each other least.

        Where TensorFlow counted nothing, all the time is put down to the stage whose calls can be at work together.
        """
        found: dict[str, float] = {}
        for stage in shape.stages:
            seen: list[tuple[int, float]] = []
            for point in self._points:
                own = point.shape.stage(stage.name)
                if point.residence is not None and own is not None:
                    seen.append((min(own.calls, point.shape.threads), point.residence.get(stage.name, 0.0)))
            fewest = min((at_work for at_work, _ in seen), default=0)
            found[stage.name] = statistics.fmean(s for at_work, s in seen if at_work == fewest) if seen else 0.0
        if not any(found.values()):
            point = min(self._points, key=lambda one: sum(stage.calls for stage in one.shape.stages))
            stage = max(shape.stages, key=lambda one: (one.pooled, one.calls))
            own = point.shape.stage(stage.name) or stage
            found[stage.name] = min(own.calls, point.shape.threads) / point.rate
        return found

    @cached_property
    def _durations(self) -> list[float]:
        """Of examples in a row, over their mean, as far as single calls tell them apart; [] where they are even or were
        not seen.

        Where calls run one by one the time of a batch is the sum of its examples'. What it exceeds the usual by is put
        down to one of them.
        """
        alone = [
            point
            for point in self._points
            if all(min(stage.calls, point.shape.threads) == 1 for stage in point.shape.stages)
        ]
        pattern = min((point.pattern for point in alone), key=_spread, default=())
        if _spread(pattern) < SLOW_EXAMPLES:
            return []
        usual = statistics.quantiles(pattern, n=4)[0]
        durations: list[float] = []
        for number, part in enumerate(pattern):
            batch = [usual] * self._batch_size
            batch[number * 7 % self._batch_size] += max(0.0, part - usual) * self._batch_size
            durations += batch
        mean = statistics.fmean(durations)
        return [duration / mean for duration in durations]


def _cpu_s(point: Point, own: Costs, shape: Shape) -> float:
    """What an example costs under ``shape``, whose threads are woken more or less often than those of ``point``."""
    here, there = asleep(point.shape), asleep(shape)
    return point.cpu_s + (own.handing_s * (there / here - 1) if here and there else 0.0)


def weighed(values: Sequence[tuple[float, float]]) -> float:
    """The mean of values at distances, by the inverse squares."""
    weights = [1 / (far**2 + OWN_DISTANCE**2) for far, _ in values]
    return math.fsum(w * value for w, (_, value) in zip(weights, values, strict=True)) / math.fsum(weights)
