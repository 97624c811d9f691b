"""The closed list of things to say about a trace: each with what was seen and what to do.

Every finding is one function from the facts to at most one ``Finding``; the order of ``_RULES`` is the order of
importance, and what explains the bottleneck comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tfpipe.trace.verdict import MODERATELY_INPUT_BOUND
from tfpipe.trace_records import Bottleneck, Finding, Pipeline, Stage, Steps, TraceVerdict
from tfpipe.units import format_bytes, format_percent, format_seconds

# Fraction of the function's time in Python operations from which Python is what the stage does.
PYTHON_SHARE = 0.5
# Seconds per call below which the cost of calling a map function outweighs what it does: a call of a captured
# function costs 20-50 us here, so a 100 us call spends about a third of its time being called.
CHEAP_CALL_S = 100e-6
# Calls per batch from which batching first can pay.
MANY_CALLS = 8
# Fractions of calls that found a buffer empty or full.
OFTEN_EMPTY = 0.5
ALWAYS_FULL = 0.95
# Batches: deeper prefetch than this smooths nothing that a shallower one does not, and holds memory.
DEEP_PREFETCH = 16
# Fraction of the buffer below which a shuffle is still filling.
FILLED = 0.95
# Streams read at once below which an interleave hardly hides any latency.
NARROW_CYCLE = 2
# Fraction of the step.
NOTICEABLE = 0.05
# Seconds: the profiler adds about 0.1 ms to a step of a few dozen events, so shorter steps are mostly profiler.
SHORT_STEP_S = 0.5e-3

_PARALLEL = ("ParallelMap", "MapAndBatch", "ParallelInterleave", "ParallelBatch", "ParseExample", "Prefetch")
_MAPS = ("Map", "ParallelMap", "MapAndBatch")
_SOURCES = (
    "TFRecord", "TextLine", "FixedLengthRecord", "Range", "TensorSlice", "FromTensor", "Generator", "SSTable", "Files",
    "BigQuery", "Sql", "Bigtable", "LMDB", "Csv", "CSV", "SparseTensorSlice", "Load", "Snapshot",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the rules look at. ``stage`` is the bottleneck and ``pipeline`` the one it is in, None without waiting."""

    steps: Steps
    verdict: TraceVerdict
    input_fraction: float
    pipelines: tuple[Pipeline, ...]
    bottleneck: Bottleneck | None
    pipeline: Pipeline | None
    stage: Stage | None
    traced_calls: int
    dropped: int
    complaints: tuple[str, ...]

    @property
    def waits(self) -> bool:
        """Whether there is input wait enough to act on."""
        return self.input_fraction >= MODERATELY_INPUT_BOUND and self.stage is not None


def find_all(facts: Facts) -> tuple[Finding, ...]:
    """All findings that hold, most important first."""
    return tuple(finding for rule in _RULES if (finding := rule(facts)) is not None)


def _is(stage: Stage, *kinds: str) -> bool:
    """Whether the stage's type, without a version such as V2, is one of ``kinds``."""
    return _kind(stage) in kinds


def _kind(stage: Stage) -> str:
    name = stage.name
    head, _, version = name.rpartition("V")
    return head if head and version.isdigit() else name


def _share(facts: Facts) -> str:
    assert facts.bottleneck is not None
    return f"{facts.bottleneck.stage} is {format_percent(facts.bottleneck.share)} of the waiting for input"


def _bottleneck_stage(facts: Facts, *kinds: str) -> Stage | None:
    if facts.waits and facts.stage is not None and (not kinds or _is(facts.stage, *kinds)):
        return facts.stage
    return None


def _python_share(stage: Stage) -> float:
    return sum(cost.share for cost in stage.ops if cost.python)


def _runs_python(stage: Stage) -> bool:
    return _kind(stage) == "Generator" or _python_share(stage) >= PYTHON_SHARE


def _per_batch(facts: Facts, stage: Stage) -> float:
    batches = facts.pipeline.calls if facts.pipeline else 0
    return max(stage.function_calls, stage.calls) / batches if batches else 0.0


def _python_in_pipeline(facts: Facts) -> Finding | None:
    stage = _bottleneck_stage(facts)
    if stage is None or not _runs_python(stage):
        return None
    what = "a Python generator" if _kind(stage) == "Generator" else "Python (tf.py_function or tf.numpy_function)"
    return Finding(
        code="python-in-pipeline",
        evidence=(
            f"{_share(facts)}, and it runs {what}: {format_seconds(stage.function_s or stage.total_s)} in "
            f"{max(stage.function_calls, stage.calls):,} calls."
        ),
        action=(
            "Rewrite it in TensorFlow operations, or move it to another process: while it computes it holds the "
            "interpreter's lock, and more parallel calls only help as far as it sleeps or reads."
        ),
    )


def _data_service(facts: Facts) -> Finding | None:
    stage = _bottleneck_stage(facts)
    if stage is None or not _kind(stage).startswith("DataService"):
        return None
    return Finding(
        code="data-service-behind",
        evidence=f"{_share(facts)}: the tf.data service delivers too slowly.",
        action="Add workers to the service, or look at the pipeline that they run.",
    )


def _slow_source(facts: Facts) -> Finding | None:
    stage = _bottleneck_stage(facts)
    if stage is None or facts.pipeline is None or _runs_python(stage):
        return None
    position = facts.pipeline.stages.index(stage)
    below = facts.pipeline.stages[position + 1 : position + 2]
    is_leaf = not below or below[0].depth <= stage.depth
    if not (is_leaf and _kind(stage).startswith(_SOURCES)):
        return None
    return Finding(
        code="slow-source",
        evidence=f"{_share(facts)}: reading is slow, {format_seconds(stage.total_s / max(stage.calls, 1))} per call.",
        action="Read several files at once (interleave with num_parallel_calls=tf.data.AUTOTUNE), or put them nearer.",
    )


def _narrow_interleave(facts: Facts) -> Finding | None:
    stage = facts.stage
    if not facts.waits or facts.pipeline is None or stage is None:
        return None
    position = facts.pipeline.stages.index(stage)
    above = [stage, *reversed(facts.pipeline.stages[:position])]
    depth = stage.depth + 1
    for other in above:
        if other.depth >= depth:
            continue
        depth = other.depth
        if _is(other, "Interleave", "ParallelInterleave"):
            cycle = other.settings.get("cycle_length")
            width = other.parallelism if _is(other, "ParallelInterleave") else 1
            if (isinstance(cycle, int) and 0 < cycle <= NARROW_CYCLE) or width == 1:
                return Finding(
                    code="narrow-interleave",
                    evidence=(
                        f"{_share(facts)}, below {other.name} that reads "
                        f"{'one input' if width == 1 else f'{cycle} inputs'} at a time."
                    ),
                    action="Set num_parallel_calls=tf.data.AUTOTUNE and a larger cycle_length in interleave.",
                )
    return None


def _sequential_map(facts: Facts) -> Finding | None:
    stage = _bottleneck_stage(facts, *_MAPS)
    if stage is None or _runs_python(stage):
        return None
    if not (_is(stage, "Map") or stage.parallelism == 1) or stage.autotuned:
        return None
    return Finding(
        code="sequential-map",
        evidence=f"{_share(facts)} and runs one call at a time.",
        action="Pass num_parallel_calls=tf.data.AUTOTUNE to this map.",
    )


def _map_per_element(facts: Facts) -> Finding | None:
    stage = _bottleneck_stage(facts, *_MAPS)
    if stage is None or facts.pipeline is None or _runs_python(stage) or not stage.function_calls:
        return None
    call_s = stage.function_s / stage.function_calls
    if call_s >= CHEAP_CALL_S or _per_batch(facts, stage) < MANY_CALLS:
        return None
    return Finding(
        code="map-per-element",
        evidence=(
            f"{_share(facts)}; its function is called {_per_batch(facts, stage):,.0f} times per batch and takes only "
            f"{format_seconds(call_s)} each time: calling it costs more than it does."
        ),
        action="Put batch before this map and write the function for whole batches; check that the values stay equal.",
    )


def _batch_copy(facts: Facts) -> Finding | None:
    stage = _bottleneck_stage(facts, "Batch", "ParallelBatch", "PaddedBatch", "Unbatch")
    if stage is None:
        return None
    size = f" ({format_bytes(stage.element_bytes)} per batch)" if stage.element_bytes else ""
    return Finding(
        code="batch-copy",
        evidence=f"{_share(facts)}: it copies the elements into the batch{size}.",
        action=(
            "Pass num_parallel_calls=tf.data.AUTOTUNE to batch, keep elements small until they are batched (uint8 "
            "instead of float32), and put prefetch after it."
        ),
    )


def _no_prefetch(facts: Facts) -> Finding | None:
    if not facts.waits or facts.pipeline is None:
        return None
    if any(_kind(stage).startswith(_PARALLEL) for stage in facts.pipeline.stages):
        return None
    return Finding(
        code="no-prefetch",
        evidence=(
            f"{facts.pipeline.name}: no stage works ahead, so each batch is made while the step waits "
            f"({format_percent(facts.pipeline.wait_fraction)} of it)."
        ),
        action="End the pipeline with prefetch(tf.data.AUTOTUNE).",
    )


def _shuffle_filling(facts: Facts) -> Finding | None:
    for stage in _shuffles(facts):
        buffer = stage.buffer
        if buffer is None or buffer.capacity is None or buffer.last_elements <= buffer.first_elements:
            continue
        filled = FILLED * buffer.capacity
        # The statistic is written before the call fills the buffer: the reads per element tell the rest. A buffer that
        # is larger than its data never fills; there reads are one per element and the level only breathes.
        grew = buffer.last_elements - buffer.first_elements >= NOTICEABLE * buffer.capacity
        fills = (stage.elements_per_call or 0.0) > 1 + NOTICEABLE
        if not fills and (buffer.first_elements >= filled or not grew):
            continue
        what = "was filled" if buffer.last_elements >= filled else "was still filling"
        return Finding(
            code="shuffle-filling",
            evidence=(
                f"{stage.name} {what} in this window, from {buffer.first_elements:,} to {buffer.last_elements:,} of "
                f"{buffer.capacity:,} elements."
            ),
            action="This is start-up, not the steady state: record later, or shuffle before the expensive stages.",
        )
    return None


def _shuffles(facts: Facts) -> Iterator[Stage]:
    for pipeline in facts.pipelines:
        for stage in pipeline.stages:
            if _kind(stage).startswith("Shuffle"):
                yield stage


def _shuffle_after_decode(facts: Facts) -> Finding | None:
    for pipeline in facts.pipelines:
        for position, stage in enumerate(pipeline.stages):
            if not _kind(stage).startswith("Shuffle"):
                continue
            for below in pipeline.stages[position + 1 :]:
                if below.depth <= stage.depth:
                    break
                decoders = [cost.operation for cost in below.ops if cost.operation.startswith("Decode")]
                if decoders:
                    held = ""
                    if stage.element_bytes and stage.buffer and stage.buffer.capacity:
                        held = f", {format_bytes(stage.element_bytes * stage.buffer.capacity)} when full"
                    return Finding(
                        code="shuffle-after-decode",
                        evidence=f"{stage.name} holds elements that {below.name} has decoded ({decoders[0]}){held}.",
                        action="Shuffle before the decoding map: the buffer then holds file names or packed bytes.",
                    )
    return None


def _starved_prefetch(facts: Facts) -> Finding | None:
    if not facts.waits or facts.pipeline is None:
        return None
    for stage in facts.pipeline.stages:
        if _is(stage, "Prefetch") and stage.buffer and stage.buffer.empty_fraction >= OFTEN_EMPTY and facts.stage:
            return Finding(
                code="starved-prefetch",
                evidence=(
                    f"Prefetch was empty in {format_percent(stage.buffer.empty_fraction)} of {stage.calls:,} calls: "
                    f"the stages below it are slower than the steps."
                ),
                action=f"A deeper prefetch will not help; make {facts.stage.name} faster{_how(facts.stage)}.",
            )
    return None


def _how(stage: Stage) -> str:
    if stage.parallelism is None or stage.autotuned or _runs_python(stage):
        return ""
    return f", with more than {stage.parallelism} parallel calls if cores are free"


def _oversized_prefetch(facts: Facts) -> Finding | None:
    for pipeline in facts.pipelines:
        for stage in pipeline.stages:
            buffer = stage.buffer
            if not _is(stage, "Prefetch") or buffer is None or stage.autotuned or not buffer.capacity:
                continue
            if buffer.capacity > DEEP_PREFETCH and (buffer.full_fraction or 0.0) >= ALWAYS_FULL:
                size = f" ({format_bytes(stage.element_bytes * buffer.capacity)})" if stage.element_bytes else ""
                return Finding(
                    code="oversized-prefetch",
                    evidence=f"Prefetch holds {buffer.capacity:,} elements{size} and was full whenever it was asked.",
                    action="prefetch(2) or prefetch(tf.data.AUTOTUNE) gives the same speed for less memory.",
                )
    return None


def _cache_incomplete(facts: Facts) -> Finding | None:
    for pipeline in facts.pipelines:
        stages = pipeline.stages
        for position, stage in enumerate(stages):
            if not _kind(stage).startswith(("MemoryCacheImpl", "FileCacheImpl", "MemoryWriter", "FileWriter")):
                continue
            filling = [below for below in stages[position + 1 :] if below.depth > stage.depth and below.calls]
            if filling:
                return Finding(
                    code="cache-incomplete",
                    evidence=f"The cache was being written in this window: {filling[0].name} below it was called "
                    f"{filling[0].calls:,} times.",
                    action=(
                        "If this is not the first epoch, the cache is never read to its end and so never used: put "
                        "take before cache, and read each epoch to its end or repeat one iterator."
                    ),
                )
    return None


def _cache_missing(facts: Facts) -> Finding | None:
    """A pipeline that came round to its source again inside the window and does the same expensive work again."""
    if not facts.waits or facts.pipeline is None or facts.stage is None:
        return None
    stages = facts.pipeline.stages
    if any("Cache" in stage.name for stage in stages):
        return None
    position = stages.index(facts.stage)
    repeats = [stage for stage in stages[:position] if _kind(stage) in ("ForeverRepeat", "FiniteRepeat", "Repeat")]
    if not repeats or repeats[-1].depth >= facts.stage.depth or not facts.stage.ops:
        return None
    return Finding(
        code="cache-missing",
        evidence=f"{_share(facts)}; it lies below {repeats[-1].name}, so every epoch does its work again.",
        action="If the decoded data set fits into memory, put cache() after this stage and before random augmentation.",
    )


def _copy_not_overlapped(facts: Facts) -> Finding | None:
    split = facts.steps.mean
    if split.step_s <= 0 or split.host_to_device_s < NOTICEABLE * split.step_s:
        return None
    return Finding(
        code="copy-not-overlapped",
        evidence=(
            f"{format_percent(split.host_to_device_s / split.step_s)} of each step copies the batch to the device "
            "while the device computes nothing."
        ),
        action="End the pipeline with tf.data.experimental.prefetch_to_device, and send small types (uint8).",
    )


def _retracing(facts: Facts) -> Finding | None:
    if not facts.traced_calls:
        return None
    split = facts.steps.mean
    cost = f", {format_percent(split.compile_s / split.step_s)} of the step" if split.step_s > 0 else ""
    calls = "1 call" if facts.traced_calls == 1 else f"{facts.traced_calls:,} calls"
    return Finding(
        code="retracing",
        evidence=f"{calls} of a tf.function built a new graph in these steps{cost}.",
        action=(
            "If this is not the first step: pass tensors and not Python numbers, fix the shapes with input_signature, "
            "and see tfpipe check."
        ),
    )


def _short_step(facts: Facts) -> Finding | None:
    steps = facts.steps
    if steps.basis == "span" or not 0 < steps.median_s < SHORT_STEP_S:
        return None
    return Finding(
        code="short-step",
        evidence=f"A step takes {format_seconds(steps.median_s)}: much of that is the profiler's own work.",
        action="Use larger batches or several steps per call, and trust unprofiled timings.",
    )


def _host_python(facts: Facts) -> Finding | None:
    if facts.verdict.bound not in ("host", "outside"):
        return None
    split = facts.steps.mean
    if facts.verdict.bound == "outside":
        idle = format_percent(split.other_s / split.step_s)
        return Finding(
            code="host-python",
            evidence=f"Not tf.data: in {idle} of the step TensorFlow does nothing.",
            action="Look for Python of your own in the step: logging, NumPy, waiting for something else.",
        )
    host = format_percent((split.host_s + split.compile_s) / split.step_s)
    return Finding(
        code="host-python",
        evidence=f"Not tf.data but the host's Python: {host} of the step is launching, Python and compiling.",
        action="Put the whole step into one tf.function, and look for Python work between the steps.",
    )


def _events_dropped(facts: Facts) -> Finding | None:
    if not facts.dropped and not facts.complaints:
        return None
    seen = f"The profiler dropped {facts.dropped:,} events. " if facts.dropped else ""
    said = f"It says: {facts.complaints[0]}" if facts.complaints else ""
    return Finding(
        code="events-dropped",
        evidence=(seen + said).strip(),
        action="Record fewer steps: counts and times here may be too low.",
    )


_RULES: tuple[Callable[[Facts], Finding | None], ...] = (
    _python_in_pipeline,
    _data_service,
    _slow_source,
    _narrow_interleave,
    _no_prefetch,
    _sequential_map,
    _map_per_element,
    _batch_copy,
    _copy_not_overlapped,
    _retracing,
    _host_python,
    _shuffle_filling,
    _cache_incomplete,
    _cache_missing,
    _shuffle_after_decode,
    _starved_prefetch,
    _oversized_prefetch,
    _short_step,
    _events_dropped,
)
