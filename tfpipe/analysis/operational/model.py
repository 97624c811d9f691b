"""A run so far as a model of its pipeline, and what the model says of settings that were not measured. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from tfpipe.analysis.operational.costs import Costs, StageCost, without_map
from tfpipe.analysis.operational.laws import (
    Bound,
    asked_s,
    buffered_step_s,
    held_ahead,
    interpreter_s,
)
from tfpipe.analysis.operational.seen import Point, Seen, point_of, weighed
from tfpipe.analysis.operational.shape import (
    Shape,
    Variant,
    bytes_before,
    distance,
    examples_before,
    first_drawn,
    left_by_cache,
    shape_of,
    without_caches,
)
from tfpipe.records import Prediction, Run
from tfpipe.settings import PipelineSettings
from tfpipe.sites import SiteValue, cached_stage

# What a rate is off by, as a logarithm, for every unit that the nearest measured setting is unlike it, where all
# processor time is that of stages and where none of it is: threads that wake each other do so more or less often with
# every other setting. About what tests/bench/bench_prediction.py finds.
UNLIKE_ERROR, HANDING_ERROR = 0.1, 0.4
# How much less sure a rate is that only a lock limits which was never seen to.
UNSEEN_LOCK = 3.0
# A probe is worth its time where a step may be off by more than this.
PROBE_WORTH = 0.1
MAX_PROBES = 8
# How unlike two steps are of which one waits for its batch and the other does not, and by how much the batches held
# ahead count. The law itself stands among the measured steps as if it were one that unlike.
OTHER_REGIME, OTHER_DEPTH, LAW_DISTANCE = 2.0, 0.1, 1.0
# A step within this of what compute alone takes does not wait.
NOT_WAITING = 1.02
# An element from a cache in memory: as one from an array, 1 us in the stage and as much in the next one's asking.
CACHED_READ_S = 2e-6
# One from a full cache on disk, and each of its bytes: measured once on 2 virtual cores with TensorFlow 2.21, elements
# of one tensor and of two, 8 bytes to 1 MB, drained alone, medians of five: 0.5 us more than from memory for each
# tensor and 0.38 ns for each byte (within 13 %), all of it processor time. That is from the page cache, where a file
# lies that was just written and fits; read from the device itself a byte took 0.7 to 1.2 ns.
DISK_READ_S, DISK_BYTE_S = 3e-6, 0.38e-9
# How unlike the settings without it those with a cache are that was never measured: what is left behind it was measured
# beside what the cache spares.
UNSEEN_CACHE = 1.0
# No machine has more; a pipeline that needs more needs something else.
MOST_CORES = 4096


def build_model(run: Run) -> PipelineModel | None:
    """The model from whatever ``run`` has measured so far; None while no candidate was drained alone."""
    return PipelineModel(run) if any(point_of(candidate, run) for candidate in run.candidates) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rated:
    """Settings on this machine. ``rate`` in examples per second, ``seen`` what it follows from; ``far`` is how unlike
    the nearest of that they are."""

    seen: Seen
    far: float
    shape: Shape
    costs: Costs
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A measured step and the logarithm of how many times the law's it was."""

    settings: PipelineSettings
    shape: Shape
    factor: float
    waits: bool


class PipelineModel:
    """What ``build_model`` makes of ``run``. ``cores``, ``batch_size`` and ``floor_s`` are the run's own."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.cores = run.environment.cores
        self.batch_size = run.data.batch_size
        self.floor_s = 0.0 if run.floor.step_s is None else run.floor.step_s.value
        points: dict[Variant, list[Point]] = {}
        for candidate in run.candidates:
            point = point_of(candidate, run)
            if point is not None:
                points.setdefault(point.shape.variant, []).append(point)
        self._seen = {
            variant: Seen(these, cores=self.cores, batch_size=self.batch_size) for variant, these in points.items()
        }
        self._known: dict[PipelineSettings, _Rated] = {}

    # --- predictions -----------------------------------------------------------------------------------------

    def predict(
        self,
        settings: PipelineSettings,
        *,
        cores: int | None = None,
        floor_s: float | None = None,
        added_latency_s: float = 0.0,
        batch_size: int | None = None,
        cache: Literal["memory", "disk"] | None = None,
    ) -> Prediction:
        """What ``settings`` would do, measured or not; also with caches that were not measured, from the same settings
        without them.

        Args:
            cores: processors of the machine; None for this one's.
            floor_s: seconds of compute per step; None for the run's floor.
            added_latency_s: seconds that every example waits longer for its source (more distant storage).
            batch_size: examples per step; None for the run's. A floor that is not given grows in proportion.
            cache: where everything in front of the first batch, shuffle or random stage comes from.

        Raises:
            ValueError: ``unknown(settings)`` has a reason.
        """
        here = self._rated(settings)
        if cores is None and floor_s is None and batch_size is None and not added_latency_s and cache is None:
            law_s = self._step_s(here, here.rate, self.floor_s)
            step_s = law_s * math.exp(self._step_factor(settings, here.shape, law_s))
            return Prediction(step_s=step_s, capacity_examples_per_s=here.rate)
        cores, batch = cores or self.cores, batch_size or self.batch_size
        shape = shape_of(settings, self._run.pipeline, cores=cores, batch_size=batch)
        costs = self._costs(here.seen, shape)
        if added_latency_s:
            costs = _later(shape, costs, added_latency_s)
        if cache is not None:
            pipeline = self._run.pipeline
            costs = self._cached(shape, costs, None if pipeline is None else first_drawn(pipeline), cache)
        there = replace(here, shape=shape, costs=costs, rate=here.seen.rate(shape, costs, cores=cores))
        compute_s = self.floor_s * batch / self.batch_size if floor_s is None else floor_s
        step_s = self._step_s(there, there.rate, compute_s, cores=cores, batch_size=batch)
        return Prediction(step_s=step_s, capacity_examples_per_s=there.rate)

    def unknown(self, settings: PipelineSettings) -> str | None:
        """Why ``settings`` cannot be predicted from what was measured, one sentence; None when they can."""
        variant = self.shape(settings).variant
        if self._seen_for(variant) is not None:
            return None
        changed = ", ".join(f"{name}={value}" for name, value in variant) or "the pipeline as it is written"
        return f"Nothing that does the same work per example was measured alone: {changed}."

    def uncertainty(self, settings: PipelineSettings) -> float:
        """About what share the predicted step may be off by, 1 for settings that cannot be predicted."""
        if self.unknown(settings) is not None:
            return 1.0
        return self._uncertainty(settings, self._rated(settings).far, lock_is_seen=False)

    def probes(self, settings: Sequence[PipelineSettings]) -> tuple[PipelineSettings, ...]:
        """Those of ``settings`` that should be measured alone next, most useful first; () when none is needed.

        First one of each kind that cannot be predicted, then whichever are most unlike all that were measured, as far
        as their step depends on it. Empty does not mean exact: that is what ``prediction_errors`` tells.
        """
        shapes = {one: self.shape(one) for one in settings}
        known = {one for one, shape in shapes.items() if self._seen_for(shape.variant) is not None}
        unknown = {shape.variant: one for one, shape in reversed(shapes.items()) if one not in known}
        chosen = [one for one in shapes if one in unknown.values()]
        far = {one: self._rated(one).far for one in shapes if one in known}
        worth = {one: self._uncertainty(one, away, lock_is_seen=False) for one, away in far.items()}
        while worth and len(chosen) < MAX_PROBES:
            best = max(worth, key=lambda one: worth[one])
            if worth.pop(best) <= PROBE_WORTH:
                break
            chosen.append(best)
            for one in worth:
                if shapes[one].variant == shapes[best].variant:
                    far[one] = min(far[one], distance(shapes[one], shapes[best]))
                    worth[one] = self._uncertainty(one, far[one], lock_is_seen=True)
        return tuple(chosen[:MAX_PROBES])

    # --- answers ---------------------------------------------------------------------------------------------

    def shape(self, settings: PipelineSettings) -> Shape:
        """Its stages as TensorFlow runs them: calls at a time, what each holds ready, who keeps the order."""
        return shape_of(settings, self._run.pipeline, cores=self.cores, batch_size=self.batch_size)

    def costs(self, settings: PipelineSettings) -> Costs:
        """What an example costs at each stage. Raises ValueError as ``predict``."""
        return self._rated(settings).costs

    def bottleneck(self, settings: PipelineSettings) -> Bound | None:
        """What limits ``settings`` drained alone; None for a pipeline that costs nothing. Raises ValueError as
        ``predict``."""
        here = self._rated(settings)
        return here.seen.tightest(here.shape, here.costs, cores=self.cores)

    def device_step_s(self, settings: PipelineSettings, *, cores: int | None = None) -> float:
        """How fast a device can these settings feed: the shortest step, in seconds, that would not wait for them."""
        return self.batch_size / self.predict(settings, cores=cores).capacity_examples_per_s

    def cores_needed(self, settings: PipelineSettings, *, floor_s: float) -> int | None:
        """The fewest cores at which a step of ``floor_s`` would not wait; None when no number of them is enough: the
        pipeline waits for something else, for the interpreter's lock or for a stage that runs one after the other."""

        def enough(cores: int) -> bool:
            return self.device_step_s(settings, cores=cores) <= floor_s

        if not enough(MOST_CORES) or not (enough(self.cores) or self._computes(settings)):
            return None
        low, high = 0, MOST_CORES
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def data_service_workers(self, settings: PipelineSettings, *, floor_s: float) -> int:
        """How many ``tf.data`` service workers like this machine would feed a step of ``floor_s``."""
        return max(1, math.ceil(self.device_step_s(settings) / floor_s))

    def gain_without_map(self, settings: PipelineSettings, stage: str, *, before: int, after: int) -> float:
        """How many times as fast the step would be if the map ``stage`` were left out of the pipeline.

        Args:
            before, after: bytes of an element that the map gets, and of what it makes of it.

        Raises:
            ValueError: as ``predict``.
        """
        here = self._rated(settings)
        shape, costs = without_map(here.shape, here.costs, stage, before=before, after=after)
        there = replace(here, shape=shape, costs=costs, rate=here.seen.rate(shape, costs, cores=self.cores))
        now_s, then_s = (self._step_s(one, one.rate, self.floor_s) for one in (here, there))
        return now_s / then_s

    def kept_bytes_per_example(self) -> float:
        """What a cache as far back as one may stand would hold of each example."""
        pipeline = self._run.pipeline
        before = None if pipeline is None else first_drawn(pipeline)
        return self._kept_bytes(before) / examples_before(pipeline, before, self.batch_size)

    # --- rates -----------------------------------------------------------------------------------------------

    def _rated(self, settings: PipelineSettings) -> _Rated:
        """Raises ValueError for settings that cannot be predicted."""
        if settings not in self._known:
            reason = self.unknown(settings)
            if reason is not None:
                raise ValueError(reason)
            shape = self.shape(settings)
            seen = self._seen_for(shape.variant)
            assert seen is not None
            costs = self._costs(seen, shape)
            self._known[settings] = _Rated(
                seen=seen,
                far=seen.distance(shape) + UNSEEN_CACHE * (shape.variant not in self._seen),
                shape=shape,
                costs=costs,
                rate=seen.rate(shape, costs, cores=self.cores),
            )
        return self._known[settings]

    def _seen_for(self, variant: Variant) -> Seen | None:
        """What was measured of the same work, else of the same without the caches that are added to it."""
        return self._seen.get(variant) or self._seen.get(without_caches(variant)[0])

    def _costs(self, seen: Seen, shape: Shape) -> Costs:
        costs = seen.costs(shape)
        for stage, value in () if shape.variant in self._seen else without_caches(shape.variant)[1].items():
            costs = self._cached(shape, costs, stage, value)
        return costs

    def _cached(self, shape: Shape, costs: Costs, before: str | None, where: SiteValue) -> Costs:
        """With a full cache in front of the call ``before``: all that stands there costs what reading the cache costs.

        ``where`` is "disk"; anything else is memory, where elements are shared and their size does not matter.
        """
        pipeline = self._run.pipeline
        read_s = DISK_READ_S + DISK_BYTE_S * self._kept_bytes(before) if where == "disk" else CACHED_READ_S
        read_s /= examples_before(pipeline, before, self.batch_size)
        left = left_by_cache(shape, pipeline, before)
        read = StageCost(name=shape.stages[0].name, cpu_s=read_s, wait_s=0.0, lock_s=0.0)
        return replace(costs, stages=(read, *(stage for stage in costs.stages if stage.name in left)))

    def _kept_bytes(self, before: str | None) -> float:
        """Of an element in a cache in front of the call ``before``: as read from the data, else of a fixed type, else
        as the step gets it."""
        pipeline = self._run.pipeline
        for finding in () if pipeline is None else pipeline.findings:
            if finding.memory_bytes and finding.elements and before in map(cached_stage, finding.sites):
                return finding.memory_bytes / finding.elements
        fixed = None if pipeline is None else bytes_before(pipeline, before)
        return self._run.data.example_bytes if fixed is None else fixed

    def _computes(self, settings: PipelineSettings) -> bool:
        """Whether processors are what the pipeline is short of: it has none left, or too few calls that compute."""
        bottleneck = self.bottleneck(settings)
        if bottleneck is None or bottleneck.limit == "processors":
            return True
        costs = self.costs(settings)
        stages = [costs.of(bottleneck.stage)] if bottleneck.stage else costs.stages
        waiting_s, computing_s = sum(s.wait_s for s in stages), sum(s.cpu_s for s in stages)
        return bottleneck.limit in ("calls", "threads") and computing_s >= waiting_s

    def _uncertainty(self, settings: PipelineSettings, far: float, *, lock_is_seen: bool) -> float:
        """What a rate that is off as it may be for settings ``far`` from any measured makes of the step."""
        here = self._rated(settings)
        if not lock_is_seen and here.seen.holds_lock is None:
            bottleneck = self.bottleneck(settings)
            far += UNSEEN_LOCK * (bottleneck is not None and bottleneck.limit == "lock")
        handing = here.costs.handing_s / here.costs.cpu_s if here.costs.cpu_s > 0 else 0.0
        factor = math.exp((UNLIKE_ERROR + (HANDING_ERROR - UNLIKE_ERROR) * handing) * far)
        short, expected, long = (
            self._step_s(here, rate, self.floor_s) for rate in (here.rate * factor, here.rate, here.rate / factor)
        )
        return max(long - expected, expected - short) / expected if expected > 0 else 0.0

    # --- steps -----------------------------------------------------------------------------------------------

    def _step_s(
        self,
        rated: _Rated,
        rate: float,
        compute_s: float,
        *,
        cores: int | None = None,
        batch_size: int | None = None,
    ) -> float:
        """The law of ``laws`` for a pipeline of ``rate`` and a step that computes for ``compute_s``."""
        run, shape, batch = self._run, rated.shape, batch_size or self.batch_size
        batch_s = batch / rate
        if run.floor.step_s is None and not compute_s:
            return batch_s
        ahead = held_ahead(shape)
        if ahead == 0:
            return compute_s + batch_s
        consumer_s = compute_s
        if run.step.synchronous:
            consumer_s += run.floor.fetch_s
            held = min(1.0, batch * rated.costs.lock_s / max(batch_s, consumer_s))
            consumer_s += interpreter_s(rated.costs, held=held)
        asked = max(batch * asked_s(shape, rated.costs), max(0.0, batch - ahead) / rate)
        step_s = max(batch_s, consumer_s + asked)
        production = rated.seen.production_s(shape, batch_s)
        if production and not asked:
            step_s = max(step_s, buffered_step_s(production, consumer_s, depth=int(ahead // batch)))
        together_s = self._step_cpu_s * (compute_s / self.floor_s if self.floor_s else 1.0) + batch * rated.costs.cpu_s
        return max(step_s, together_s / (cores or self.cores)) if self._step_cpu_s else step_s

    @cached_property
    def _step_cpu_s(self) -> float:
        """Processor seconds of the step alone; 0 where it leaves the host's processors alone."""
        blocks = [block for block in self._run.floor.blocks if block.kind == "floor" and block.steps]
        steps = sum(block.steps for block in blocks)
        return math.fsum(block.cpu_s or 0.0 for block in blocks) / steps if steps else 0.0

    def _step_factor(self, settings: PipelineSettings, shape: Shape, law_s: float) -> float:
        """The logarithm of what the steps that were measured behind pipelines like this one were off by."""
        logs = [(LAW_DISTANCE, 0.0)]
        for step in self._steps:
            if step.settings == settings:
                return step.factor
            if step.shape.variant == shape.variant:
                deeper = abs(math.log2((1 + held_ahead(shape)) / (1 + held_ahead(step.shape))))
                other = step.waits != self._waits(law_s)
                far = distance(shape, step.shape) + OTHER_DEPTH * deeper + OTHER_REGIME * other
                logs.append((far, step.factor))
        return weighed(logs)

    @cached_property
    def _steps(self) -> list[_Step]:
        found = []
        for candidate in self._run.candidates:
            measured = candidate.step_s
            if measured is None or not measured.value > 0 or self.unknown(candidate.settings) is not None:
                continue
            here = self._rated(candidate.settings)
            law_s = self._step_s(here, here.rate, self.floor_s)
            factor = math.log(measured.value / law_s)
            found.append(_Step(settings=candidate.settings, shape=here.shape, factor=factor, waits=self._waits(law_s)))
        return found

    def _waits(self, step_s: float) -> bool:
        return step_s > NOT_WAITING * (self.floor_s + self._run.floor.fetch_s)


def _later(shape: Shape, costs: Costs, added_latency_s: float) -> Costs:
    """With a source that answers later: where the pipeline waits most, if it waits at all, else at its first stage."""
    most = max(costs.stages, key=lambda stage: stage.wait_s)
    where = most if most.wait_s > most.cpu_s else costs.of(shape.stages[0].name)
    later = replace(where, wait_s=where.wait_s + added_latency_s)
    return replace(costs, stages=(*(stage for stage in costs.stages if stage.name != where.name), later))
