"""Journal entries to a ``Run``: everything that a report says, derived from what was measured. Pure."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from pathlib import PurePath

from tfpipe.analysis.attribution import Attribution, FloorEstimate, attribute, estimate_floor, examples_per_s
from tfpipe.analysis.doubts import find_doubts
from tfpipe.analysis.memory import shared_row_bytes
from tfpipe.analysis.recommend import recommend
from tfpipe.analysis.shuffling import shuffle_table
from tfpipe.analysis.verdict import classify
from tfpipe.conditions import compare_conditions
from tfpipe.errors import TfpipeError
from tfpipe.messages import Failed, Measured, Prepared
from tfpipe.records import Block, Candidate, Floor, Interval, Node, Run, ShuffleChoice, TraceRecord
from tfpipe.runfile import TRACES_NAME
from tfpipe.runner.journal import (
    CandidateFailed,
    CandidateMeasured,
    CandidatesChosen,
    CandidateSkipped,
    CandidateTraced,
    ConditionsRead,
    Entry,
    Finished,
    FloorMeasured,
    Started,
    WorkloadPrepared,
)
from tfpipe.settings import NamedSettings

# Sizes that the table of shuffle buffers has besides those that were measured.
SHUFFLE_BUFFERS = (1000, 5000, 10_000)


def assemble_run(entries: Sequence[Entry]) -> Run | None:
    """The run so far; None while the workload is not prepared or no floor is measured."""
    started = next((e for e in entries if isinstance(e, Started)), None)
    prepared = next((e.prepared for e in entries if isinstance(e, WorkloadPrepared)), None)
    finished = next((e for e in entries if isinstance(e, Finished)), None)
    floors = [e.measured.block for e in entries if isinstance(e, FloorMeasured)]
    floor = _floor(floors)
    chosen = next((e.candidates for e in entries if isinstance(e, CandidatesChosen)), None)
    if started is None or prepared is None or chosen is None or floor is None:
        return None
    candidates = tuple(_candidate(named, entries, floor, prepared) for named in chosen)
    run = Run(
        tfpipe_version=started.tfpipe_version,
        created=started.created,
        command=started.command,
        complete=finished is not None,
        environment=prepared.environment,
        data=prepared.data,
        step=dataclasses.replace(prepared.step, traces=_step_traces(entries) or prepared.step.traces),
        floor=Floor(
            step_s=None if floor.step_s is None else _bound(floor.step_s.interval(low=0.0), candidates),
            fetch_s=floor.fetch_s.value,
            blocks=tuple(floors),
        ),
        pipeline=prepared.pipeline,
        current=chosen[0].settings.id,
        candidates=candidates,
        recommendation=None,
        warnings=(),
        timings_s=prepared.timings_s | ({} if finished is None else finished.timings_s),
    )
    try:
        recommendation = recommend(run)
    except TfpipeError:
        recommendation = None
    changes = [w for e in entries if isinstance(e, ConditionsRead) for w in compare_conditions(e.before, e.after)]
    return dataclasses.replace(
        run,
        recommendation=recommendation,
        warnings=(*find_doubts(run), *changes),
        shuffling=_shuffling(run, prepared),
    )


def _shuffling(run: Run, prepared: Prepared) -> tuple[ShuffleChoice, ...]:
    """What each size of shuffle buffer costs and buys; of built-in data sets only, whose source is known.

    A source is taken for sorted, the worst case. A buffer fills as fast as the fastest one that was measured did.
    """
    examples = run.data.examples
    if run.pipeline is not None or examples is None:
        return ()
    measured = [(c.settings.shuffle_buffer, c.first_batch_s) for c in run.candidates if c.first_batch_s]
    sizes = [(examples if size == "full" else min(size, examples), seconds) for size, seconds in measured]
    fills = [size / seconds for size, seconds in sizes if size]
    if not fills:
        return ()
    return shuffle_table(
        sorted({*(size for size in SHUFFLE_BUFFERS if size < examples), *(size for size, _ in sizes), examples}),
        examples=examples,
        example_bytes=run.data.example_bytes,
        examples_per_s=max(fills),
        order="sorted",
        shared_bytes=shared_row_bytes(prepared.memory.row_bytes),
    )


def _bound(floor_s: Interval, candidates: Sequence[Candidate]) -> Interval:
    """The floor; no lower end of it lies above the fastest step that was seen, which contains it."""
    fastest_s = min((c.step_s.value for c in candidates if c.step_s is not None), default=floor_s.low)
    return dataclasses.replace(floor_s, low=min(floor_s.low, fastest_s))


def _floor(blocks: Sequence[Block]) -> FloorEstimate | None:
    counted = [block for block in blocks if not block.retraced]
    fetch_floors = [block for block in counted if block.kind == "fetch-floor"]
    if not fetch_floors:
        return None
    return estimate_floor([block for block in counted if block.kind == "floor"], fetch_floors)


def _step_traces(entries: Sequence[Entry]) -> int | None:
    return max((e.measured.step_traces or 0 for e in entries if isinstance(e, CandidateMeasured)), default=None)


def _candidate(named: NamedSettings, entries: Sequence[Entry], floor: FloorEstimate, prepared: Prepared) -> Candidate:
    identity = named.settings.id
    measured = [e.measured for e in entries if isinstance(e, CandidateMeasured) and e.id == identity]
    failed = next((e.failed for e in entries if isinstance(e, CandidateFailed) and e.id == identity), None)
    traced = next((e for e in entries if isinstance(e, CandidateTraced) and e.id == identity), None)
    batch_size = prepared.data.batch_size
    capacities = [m.block for m in measured if m.block.kind == "capacity"]
    through_step = [m for m in measured if m.block.kind == "step"]
    candidate = Candidate(
        id=identity,
        name=named.name,
        settings=named.settings,
        status="failed" if failed else "complete",
        error=_cause(failed) if failed else None,
        blocks=tuple(m.block for m in measured),
        capacity_examples_per_s=_capacity(capacities, batch_size),
        cpu_s_per_example=_cpu_s_per_example(capacities, batch_size),
    )
    # A block in which the step was traced anew measured the building of a graph, not a step.
    counted = [m.block for m in through_step if not m.block.retraced]
    if counted:
        return _with_step(candidate, through_step, counted, traced, floor, prepared)
    if failed:
        return candidate
    skipped = next((e.reason for e in entries if isinstance(e, CandidateSkipped) and e.id == identity), None)
    return dataclasses.replace(candidate, status="skipped", error=skipped or "Not measured before the run ended.")


def _with_step(
    candidate: Candidate,
    through_step: Sequence[Measured],
    counted: Sequence[Block],
    traced: CandidateTraced | None,
    floor: FloorEstimate,
    prepared: Prepared,
) -> Candidate:
    epoch_starts = [start for block in counted for start in block.epoch_start_s]
    by_round = sorted(through_step, key=lambda m: m.block.round)
    attribution = attribute(counted, floor)
    fraction = _fraction(attribution)
    contention = None if attribution.contention_fraction is None else attribution.contention_fraction.interval(high=1.0)
    step_s = attribution.step_s.value
    rate = examples_per_s(attribution.step_s, prepared.data.batch_size).interval(low=0.0)
    trace = None if traced is None else _trace(traced, attribution, floor)
    return dataclasses.replace(
        candidate,
        step_s=attribution.step_s.interval(low=0.0),
        floor_s=attribution.compute_s,
        compute_s=attribution.compute_s,
        input_wait_s=attribution.input_wait_s,
        contention_s=attribution.contention_s,
        input_fraction=fraction,
        contention_fraction=contention,
        verdict=None
        if fraction is None or contention is None
        else classify(fraction, contention, steps=sum(b.steps for b in counted), step_s=step_s),
        examples_per_s=rate,
        first_batch_s=statistics.median(b.first_batch_s for b in counted if b.first_batch_s is not None),
        epoch_start_s=statistics.mean(epoch_starts) if epoch_starts else None,
        buffered_bytes=max(sum(node.buffered_bytes or 0 for node in m.executed) for m in through_step),
        peak_memory_bytes=max((m.peak_memory_bytes for m in through_step if m.peak_memory_bytes), default=None),
        epoch_s=None if prepared.data.examples is None else prepared.data.examples / rate.value,
        executed=by_round[-1].executed,
        autotune_moving=len(by_round) > 1 and _moved(by_round[-2].executed, by_round[-1].executed),
        trace=trace,
        profiler_overhead_fraction=None if trace is None else trace.overhead_fraction,
    )


def _trace(entry: CandidateTraced, unprofiled: Attribution, floor: FloorEstimate) -> TraceRecord:
    """The trace as part of the run; its path begins at the traces folder, so that a run directory can be moved."""
    traced = entry.traced
    parts = PurePath(traced.path).parts
    start = len(parts) - 1 - parts[::-1].index(TRACES_NAME)
    profiled = attribute([traced.block], floor)
    fraction = _fraction(profiled)
    expected = _fraction(unprofiled)
    disturbed = fraction is not None and expected is not None and not fraction.overlaps(expected)
    return TraceRecord(
        path=str(PurePath(*parts[start:])),
        steps=traced.block.steps,
        step_s=profiled.step_s.value,
        fetch_s=math.fsum(traced.block.fetch_s) / traced.block.steps,
        size_bytes=traced.size_bytes,
        overhead_fraction=profiled.step_s.value / unprofiled.step_s.value - 1,
        input_fraction=fraction,
        disturbed=disturbed,
        explanation=None if disturbed else entry.explanation,
        note=entry.note,
    )


def _fraction(attribution: Attribution) -> Interval | None:
    return None if attribution.input_fraction is None else attribution.input_fraction.interval(low=0.0, high=1.0)


def _moved(before: Sequence[Node], after: Sequence[Node]) -> bool:
    """Whether a value that AUTOTUNE chooses differs by more than one and by more than a quarter."""
    return any(
        abs((new or 0) - (old or 0)) > max(1, 0.25 * (old or 0))
        for one, two in zip(before, after, strict=False)
        if one.node == two.node and two.tunable
        for old, new in ((one.parallelism, two.parallelism), (one.buffer_size, two.buffer_size))
    )


def _cause(failed: Failed) -> str:
    return failed.message if failed.detail is None else f"{failed.message}\n{failed.detail.rstrip()}"


def _capacity(blocks: Sequence[Block], batch_size: int) -> float | None:
    """Examples per second over all capacity blocks together."""
    steps = sum(block.steps for block in blocks)
    return steps * batch_size / math.fsum(block.elapsed_s for block in blocks) if steps else None


def _cpu_s_per_example(blocks: Sequence[Block], batch_size: int) -> float | None:
    """CPU seconds of the whole process per example while the pipeline runs alone."""
    steps = sum(block.steps for block in blocks)
    return math.fsum(block.cpu_s or 0.0 for block in blocks) / (steps * batch_size) if steps else None
