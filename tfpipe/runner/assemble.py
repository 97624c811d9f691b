"""Journal entries to a ``Run``: everything that a report says, derived from what was measured. Pure."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from tfpipe.analysis.attribution import (
    Attribution,
    FloorEstimate,
    attribute,
    estimate_floor,
    examples_per_s,
    mean_step_s,
)
from tfpipe.analysis.doubts import find_doubts
from tfpipe.analysis.execution import compare_executions
from tfpipe.analysis.host import HOST_BOUND, classify_host, host_fraction, times_as_fast
from tfpipe.analysis.memory import shared_row_bytes
from tfpipe.analysis.recommend import recommend
from tfpipe.analysis.shuffling import shuffle_table
from tfpipe.analysis.verdict import classify
from tfpipe.conditions import compare_conditions
from tfpipe.errors import TfpipeError
from tfpipe.messages import Failed, Measured, Prepared
from tfpipe.records import (
    Block,
    BlockKind,
    Candidate,
    DeviceUse,
    ExecutionResult,
    Floor,
    Interval,
    Node,
    Recommendation,
    Run,
    ShuffleChoice,
    Step,
    TraceRecord,
)
from tfpipe.runfile import TRACES_NAME
from tfpipe.runner.expected_gains import with_expected_gains
from tfpipe.runner.journal import (
    CandidateFailed,
    CandidatesChosen,
    CandidateSkipped,
    CandidateTraced,
    ConditionsRead,
    Decided,
    Entry,
    Finished,
    Started,
    WorkloadPrepared,
)
from tfpipe.runner.so_far import SoFar
from tfpipe.runner.what_if import outlook
from tfpipe.settings import Execution, NamedSettings
from tfpipe.units import format_percent, format_seconds

# Sizes that the table of shuffle buffers has besides those that were measured.
SHUFFLE_BUFFERS = (1000, 5000, 10_000)


def assemble_run(entries: Sequence[Entry]) -> Run | None:
    """The run so far; None while the workload is not prepared or no floor is measured."""
    started = next((e for e in entries if isinstance(e, Started)), None)
    finished = next((e for e in entries if isinstance(e, Finished)), None)
    so_far = SoFar(entries)
    if started is None or not so_far.every(WorkloadPrepared) or not so_far.every(CandidatesChosen):
        return None
    prepared = so_far.prepared
    main = _behind(so_far, so_far.main, so_far.candidates())
    if main is None:
        return None
    floor, candidates = main
    confirming = so_far.confirming
    decisions = so_far.every(Decided)
    run = Run(
        tfpipe_version=started.tfpipe_version,
        created=started.created,
        command=started.command,
        complete=finished is not None,
        environment=prepared.environment,
        data=prepared.data,
        step=_step(so_far, so_far.main),
        floor=floor,
        pipeline=prepared.pipeline,
        current=so_far.candidates()[0].settings.id,
        candidates=candidates,
        recommendation=None,
        warnings=(),
        confirmed_from=None if confirming is None else confirming.round,
        untried=tuple(named.settings.id for named in decisions[-1].untried) if decisions else (),
        notes=(*prepared.notes, *_unwrapped_note(so_far, floor)),
        timings_s=prepared.timings_s | ({} if finished is None else finished.timings_s),
    )
    pipeline = _recommended(run)
    run = dataclasses.replace(run, executions=_executions(so_far, None if pipeline is None else pipeline.candidate))
    run = dataclasses.replace(run, execution_comparison=compare_executions(run))
    recommendation = _recommended(run)
    run = with_expected_gains(run)
    changes = [w for e in entries if isinstance(e, ConditionsRead) for w in compare_conditions(e.before, e.after)]
    return dataclasses.replace(
        run,
        recommendation=recommendation,
        warnings=(*find_doubts(run), *changes),
        shuffling=_shuffling(run, prepared),
        outlook=outlook(run, recommendation),
    )


def _recommended(run: Run) -> Recommendation | None:
    try:
        return recommend(run)
    except TfpipeError:
        return None


def _executions(so_far: SoFar, recommended: str | None) -> tuple[ExecutionResult, ...]:
    """The ways to run the step, where there are several."""
    results = []
    for execution in so_far.executions if len(so_far.executions) > 1 else ():
        behind = _behind(so_far, execution, so_far.candidates())
        if behind is None:
            continue
        floor, candidates = behind
        current, *others = candidates
        chosen = next((c for c in others if c.id == recommended and c.step_s is not None), None)
        results.append(
            ExecutionResult(
                step=_step(so_far, execution),
                floor=floor,
                current=current if current.step_s is not None or current.verdict is not None else None,
                recommended=chosen,
                device_use=(chosen or current).device_use,
            )
        )
    return tuple(results)


def _device_use(counted: Sequence[Block]) -> DeviceUse | None:
    """That of a candidate's blocks together."""
    uses = [block.device_use for block in counted if block.device_use is not None]
    samples = sum(use.samples for use in uses)
    if not samples:
        return None
    mean = sum(use.samples * use.mean_fraction for use in uses) / samples
    # Of samples from several blocks: the variance within them and between their means.
    variance = sum(u.samples * (u.deviation_fraction**2 + (u.mean_fraction - mean) ** 2) for u in uses) / samples
    watts = [use.power_w for use in uses if use.power_w is not None]
    return DeviceUse(
        source=uses[0].source,
        mean_fraction=mean,
        deviation_fraction=math.sqrt(variance),
        samples=samples,
        memory_bytes=max((use.memory_bytes for use in uses if use.memory_bytes is not None), default=None),
        power_w=statistics.mean(watts) if watts else None,
    )


def _step(so_far: SoFar, execution: Execution) -> Step:
    """The step with the number of graphs that were built for it in the whole run."""
    prepared = so_far.prepared
    step = next(step for step in (prepared.step, *prepared.other_steps) if step.execution == execution)
    measured = so_far.through(execution)
    functions = next((m.function_traces for m in reversed(measured) if m.function_traces), step.function_traces)
    traces = max((m.step_traces for m in measured if m.step_traces), default=step.traces)
    return dataclasses.replace(step, traces=traces, function_traces=functions)


def _behind(
    so_far: SoFar, execution: Execution, named: Sequence[NamedSettings]
) -> tuple[Floor, tuple[Candidate, ...]] | None:
    """The floor of one way to run the step and the candidates measured with it; None before a floor is measured."""
    blocks = [*so_far.floor_blocks("floor", execution), *so_far.floor_blocks("fetch-floor", so_far.main)]
    estimate = _floor(blocks)
    if estimate is None:
        return None
    graph = _graph_floor_s(so_far, execution)
    candidates = tuple(_candidate(one, so_far, execution, estimate, graph) for one in named)
    floor = Floor(
        step_s=None if estimate.step_s is None else _bound(estimate.step_s.interval(low=0.0), candidates),
        fetch_s=estimate.fetch_s.value,
        blocks=tuple(blocks),
        graph_step_s=graph,
    )
    return floor, candidates


def _unwrapped_note(so_far: SoFar, floor: Floor) -> Iterator[str]:
    """What a step that was wrapped in a ``tf.function`` unasked loses where the training does not do the same."""
    twin = so_far.prepared.twin
    blocks = [] if twin is None or twin.execution != "eager" else so_far.floor_blocks("floor", "eager")
    if twin is None or floor.step_s is None or not blocks:
        return
    eager_s, graph_s = mean_step_s(blocks).value, floor.step_s.value
    share = host_fraction(eager_s, eager_s, graph_s)
    if share >= HOST_BOUND:
        yield (
            f"{twin.name} returns a plain Python function. As measured here, wrapped in one tf.function, it takes "
            f"{format_seconds(graph_s)}; called as it is it is host-bound: {format_seconds(eager_s)}, of which "
            f"{format_percent(share)} is Python dispatching operations one by one. If your training calls it as it is, "
            f"wrap it ({times_as_fast(eager_s / graph_s)}); no change of the pipeline would help."
        )


def _graph_floor_s(so_far: SoFar, execution: Execution) -> Interval | None:
    """Compute alone of the same step as one ``tf.function``, where ``execution`` is not that."""
    if execution in ("graph", "xla", "fit"):
        return None
    blocks = [b for b in so_far.floor_blocks("floor", "graph") if not b.retraced]
    return mean_step_s(blocks).interval(low=0.0) if blocks else None


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
    floors, fetch_floors = (_counted(blocks, kind) for kind in ("floor", "fetch-floor"))
    return estimate_floor(floors, fetch_floors) if fetch_floors else None


def _counted(blocks: Sequence[Block], kind: BlockKind) -> list[Block]:
    """Those in which no graph was built; all where one was built in each, which is then how the step is."""
    of_kind = [block for block in blocks if block.kind == kind]
    return [block for block in of_kind if not block.retraced] or of_kind


def _candidate(
    named: NamedSettings, so_far: SoFar, execution: Execution, floor: FloorEstimate, graph_step_s: Interval | None
) -> Candidate:
    identity = named.settings.id
    measured = [e.measured for e in so_far.measured(identity, execution)]
    failed = next((e.failed for e in so_far.every(CandidateFailed) if e.id == identity), None)
    decisions = so_far.every(Decided)
    batch_size = so_far.prepared.data.batch_size
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
        capacity_executed=next((m.executed for m in measured if m.block.kind == "capacity"), ()),
        predicted=next((e.predictions[identity] for e in decisions if identity in e.predictions), None),
        dropped=next((e.drop[identity] for e in decisions if identity in e.drop), None),
    )
    # A block in which the step was traced anew measured the building of a graph, not a step.
    counted = [m.block for m in through_step if not m.block.retraced]
    if counted:
        candidate = _with_step(candidate, through_step, counted, floor, so_far.prepared)
        traced = next((e for e in so_far.every(CandidateTraced) if e.id == identity), None)
        if traced is not None and execution == so_far.main:
            candidate = _with_trace(candidate, traced, counted, floor)
        return _with_verdict(candidate, execution, graph_step_s, counted, floor.fetch_s.value, batch_size)
    if failed:
        return candidate
    host = classify_host([m.block for m in through_step], execution=execution)
    skipped = next((e.reason for e in so_far.every(CandidateSkipped) if e.id == identity), None)
    return dataclasses.replace(
        candidate,
        status="skipped",
        verdict=host,
        error=skipped or (host.statement if host else "Not measured before the run ended."),
    )


def _with_step(
    candidate: Candidate,
    through_step: Sequence[Measured],
    counted: Sequence[Block],
    floor: FloorEstimate,
    prepared: Prepared,
) -> Candidate:
    epoch_starts = [start for block in counted for start in block.epoch_start_s]
    by_round = sorted(through_step, key=lambda m: m.block.round)
    attribution = attribute(counted, floor)
    contention = attribution.contention_fraction
    rate = examples_per_s(attribution.step_s, prepared.data.batch_size).interval(low=0.0)
    return dataclasses.replace(
        candidate,
        step_s=attribution.step_s.interval(low=0.0),
        floor_s=attribution.compute_s,
        compute_s=attribution.compute_s,
        input_wait_s=attribution.input_wait_s,
        contention_s=attribution.contention_s,
        input_fraction=_fraction(attribution),
        contention_fraction=None if contention is None else contention.interval(high=1.0),
        examples_per_s=rate,
        first_batch_s=statistics.median(b.first_batch_s for b in counted if b.first_batch_s is not None),
        epoch_start_s=statistics.mean(epoch_starts) if epoch_starts else None,
        buffered_bytes=max(sum(node.buffered_bytes or 0 for node in m.executed) for m in through_step),
        peak_memory_bytes=max((m.peak_memory_bytes for m in through_step if m.peak_memory_bytes), default=None),
        epoch_s=None if prepared.data.examples is None else prepared.data.examples / rate.value,
        executed=by_round[-1].executed,
        device_use=_device_use(counted),
        autotune_moving=len(by_round) > 1 and _moved(by_round[-2].executed, by_round[-1].executed),
    )


def _with_verdict(
    candidate: Candidate,
    execution: Execution,
    graph_step_s: Interval | None,
    counted: Sequence[Block],
    fetch_floor_s: float,
    batch_size: int,
) -> Candidate:
    fraction, contention, step_s = candidate.input_fraction, candidate.contention_fraction, candidate.step_s
    if fraction is None or contention is None or step_s is None or candidate.floor_s is None:
        return candidate
    graph_floor_s = None if graph_step_s is None else graph_step_s.value
    host = classify_host(
        [block for block in candidate.blocks if block.kind == "step"],
        execution=execution,
        input_fraction=fraction,
        step_s=step_s.value,
        floor_s=candidate.floor_s,
        graph_floor_s=graph_floor_s,
    )
    verdict = classify(
        fraction,
        contention,
        steps=sum(block.steps for block in counted),
        step_s=step_s.value,
        fetch_floor_s=fetch_floor_s,
        cpu_fraction=(candidate.cpu_s_per_example or 0.0) * batch_size / step_s.value,
    )
    return dataclasses.replace(
        candidate,
        host_fraction=None if graph_floor_s is None else host_fraction(step_s.value, candidate.floor_s, graph_floor_s),
        verdict=host or verdict,
    )


def _with_trace(
    candidate: Candidate, traced: CandidateTraced, counted: Sequence[Block], floor: FloorEstimate
) -> Candidate:
    trace = _trace(traced, attribute(counted, floor), floor)
    return dataclasses.replace(candidate, trace=trace, profiler_overhead_fraction=trace.overhead_fraction)


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
