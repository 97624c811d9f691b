"""The graphs of a step: how many were built, and which of them anew, why and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tfpipe.records import Block, Candidate, Floor, Retrace, Run
from tfpipe.settings import Execution
from tfpipe.units import format_seconds

# Of causes of retracing, the costliest are listed; the others are counted.
MAX_RETRACES = 5
# Of more functions than this only the sum of their graphs is told.
MAX_FUNCTIONS = 3


def graph_rows(run: Run) -> Iterator[tuple[str, str]]:
    """How many graphs were built for which function; which of them anew, why and for how long; what was not counted."""
    steps = [result.step for result in run.executions] or [run.step]
    built = [(step.execution, _graphs(step.function_traces)) for step in steps if step.function_traces]
    if built:
        yield "graphs", "; ".join(f"{execution}: {text}" if run.executions else text for execution, text in built)
    by_execution: dict[Execution, tuple[Block, ...]] = {}
    measured: list[tuple[Execution, Floor, Iterable[Candidate | None]]] = [
        (run.step.execution, run.floor, run.candidates),
        *((r.step.execution, r.floor, (r.current, r.recommended)) for r in run.executions),
    ]
    for execution, floor, candidates in measured:
        own = (block for candidate in candidates if candidate is not None for block in candidate.blocks)
        # A candidate of the fastest way to run the step is also among the executions' own.
        by_execution[execution] = tuple(dict.fromkeys((*by_execution.get(execution, ()), *floor.blocks, *own)))
    yield from _retraces({(e if run.executions else ""): blocks for e, blocks in by_execution.items()})


def block_graph_rows(blocks: Iterable[Block]) -> Iterator[tuple[str, str]]:
    """What was built anew in one candidate's blocks."""
    yield from _retraces({"": tuple(blocks)})


def _graphs(function_traces: tuple[tuple[str, int], ...]) -> str:
    """``train_step 1``; of many functions the sum, and the one with the most."""
    ordered = sorted(function_traces, key=lambda item: -item[1])
    if len(ordered) <= MAX_FUNCTIONS:
        return ", ".join(f"{name} {count:,}" for name, count in ordered)
    name, most = ordered[0]
    return f"{sum(count for _, count in ordered):,}, {most:,} of them for {name}"


def _retraces(by_execution: dict[str, tuple[Block, ...]]) -> Iterator[tuple[str, str]]:
    groups: dict[tuple[str, ...], list[Retrace]] = {}
    for execution, blocks in by_execution.items():
        for block in blocks:
            for retrace in (*block.warmup_retraces, *block.retraces):
                groups.setdefault((execution, retrace.function, *_arguments(retrace)), []).append(retrace)
    ordered = sorted(groups.items(), key=lambda group: -_seconds(group[1]))
    for (execution, *_), retraces in ordered[:MAX_RETRACES]:
        example = max(retraces, key=lambda retrace: retrace.seconds)
        prefix = f"{execution}: " if execution else ""
        many = ", such as" if len({retrace.cause for retrace in retraces}) > 1 else ""
        yield "traced anew", f"{prefix}{example.function}, {_times(retraces)}{many}: {example.cause}"
    others = [retrace for _, retraces in ordered[MAX_RETRACES:] for retrace in retraces]
    if others:
        yield "traced anew", f"for {len(ordered) - MAX_RETRACES} other reasons, {_times(others)}"
    left_out = sum(block.retraced > 0 for blocks in by_execution.values() for block in blocks)
    if left_out:
        blocks_words = "1 block is" if left_out == 1 else f"{left_out:,} blocks are"
        yield "not counted", f"{blocks_words} not counted, because a graph was built in the middle of it"


def _arguments(retrace: Retrace) -> tuple[str, ...]:
    """What a cause is about, without the values, which may be others each time: ``x is now 2, was 1`` is about x."""
    return tuple(change.partition(" is now ")[0] for change in retrace.cause.split("; "))


def _seconds(retraces: Iterable[Retrace]) -> float:
    return sum(retrace.seconds for retrace in retraces)


def _times(retraces: Sequence[Retrace]) -> str:
    count = "once" if len(retraces) == 1 else f"{len(retraces):,} times"
    return f"{count} in {format_seconds(_seconds(retraces))}"
