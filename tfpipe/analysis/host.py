"""Steps that the host holds up: Python dispatching operations one by one, or building graphs anew."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfpipe.analysis.verdict import INPUT_HIGH, INPUT_MODERATE
from tfpipe.records import Block, Interval, Retrace, Run, Verdict
from tfpipe.settings import Execution
from tfpipe.units import format_percent, format_seconds

# From this share of the step on, the host is the larger part of it, and without it the step would be at least twice as
# fast, which no pipeline could bring. Forty small dense layers run eagerly have 96 %, a ResNet18 of width 64 on two
# cores 27 %: that one computes most of the time, and its graph is faster partly because operations run side by side.
HOST_BOUND = 0.5

_PYTHON: dict[Execution, str] = {
    "eager": "Python dispatching operations one by one",
    "layer": "Python calling the tf.function of each layer",
}


def computes_on_host(run: Run) -> bool:
    """Whether the step computes on the processors that the pipeline needs too."""
    accelerated = any(device.kind != "CPU" for device in run.environment.devices)
    return not accelerated and not run.step.name.startswith("simulated")


def host_fraction(step_s: float, floor_s: float, graph_floor_s: float) -> float:
    """The share of the step that is its own Python: what compute alone takes beyond that as one ``tf.function``.

    Never below 0: where the graph is no faster, there is nothing to gain from it. Nor above 1, where the floor was
    measured in a slower spell than the step.
    """
    return min(1.0, max(0.0, floor_s - graph_floor_s) / step_s)


def classify_host(
    blocks: Sequence[Block],
    *,
    execution: Execution,
    input_fraction: Interval | None = None,
    step_s: float | None = None,
    floor_s: float | None = None,
    graph_floor_s: float | None = None,
) -> Verdict | None:
    """The verdict *host-bound*, or None where that is not surely the case.

    Building graphs anew for the larger part of the time of the ``blocks`` is enough by itself, also where no block is
    left that counts. Else the step must hardly wait for input and be mostly its own Python. ``floor_s`` is compute
    alone with the step as it runs, ``graph_floor_s`` with the same step as one ``tf.function``.
    """
    retracing = retracing_fraction(blocks)
    if retracing >= HOST_BOUND:
        return Verdict(bound="host", statement=_retracing_statement(retracing, blocks))
    if input_fraction is None or not step_s or floor_s is None or not graph_floor_s:
        return None
    share = host_fraction(step_s, floor_s, graph_floor_s)
    # Beside a host that takes most of the step it does not matter whether waiting is 4 or 6 % of it.
    waits = input_fraction.value >= INPUT_MODERATE or input_fraction.high >= INPUT_HIGH
    if waits or share < HOST_BOUND:
        return None
    python = _PYTHON.get(execution, "the step's own Python")
    return Verdict(
        bound="host",
        statement=(
            f"Host-bound: {format_percent(share)} of each step is {python}; the same step as one tf.function takes "
            f"{format_seconds(graph_floor_s)} instead of {format_seconds(floor_s)}: wrap it "
            f"({times_as_fast(floor_s / graph_floor_s)}). No change of the pipeline would help."
        ),
    )


def retracing_fraction(blocks: Sequence[Block]) -> float:
    """The share of the time of the step blocks that went into calls in which a graph was built anew."""
    steps = [block for block in blocks if block.kind == "step"]
    elapsed_s = math.fsum(block.elapsed_s for block in steps)
    retracing_s = math.fsum(retrace.seconds for block in steps for retrace in block.retraces)
    return min(1.0, retracing_s / elapsed_s) if elapsed_s > 0 else 0.0


def times_as_fast(times: float) -> str:
    """``7.1 times as fast``, without decimals from ten on."""
    return f"{times:.0f} times as fast" if times >= 9.95 else f"{times:.1f} times as fast"


def _retracing_statement(fraction: float, blocks: Sequence[Block]) -> str:
    steps = [block for block in blocks if block.kind == "step"]
    retraces = [retrace for block in steps for retrace in block.retraces]
    seconds: dict[str, float] = {}
    for retrace in retraces:
        seconds[retrace.function] = seconds.get(retrace.function, 0.0) + retrace.seconds
    function = max(seconds, key=lambda name: seconds[name])
    example = max((r for r in retraces if r.function == function), key=lambda retrace: retrace.seconds)
    cause = example.cause.rstrip(".")
    return (
        f"Host-bound: {format_percent(fraction)} of the time goes into building graphs anew, {_times(retraces)} in "
        f"{sum(block.steps for block in steps):,} steps, mostly of {function} ({cause}). Give it an input_signature "
        "with None where a size changes, and tensors instead of Python values. No change of the pipeline would help."
    )


def _times(retraces: Sequence[Retrace]) -> str:
    return "once" if len(retraces) == 1 else f"{len(retraces):,} times"
