"""The ways to run the step, compared, and which of them to use.

Pipeline and execution are two factors of one gain: first the pipeline is changed with the step run as it is now, then
the step is run otherwise behind the new pipeline. What the second brings depends on the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from tfpipe.analysis.host import HOST_BOUND, times_as_fast
from tfpipe.analysis.ranking import WORTHWHILE, fastest, gain, is_tie
from tfpipe.analysis.verdict import INPUT_MODERATE
from tfpipe.records import (
    Candidate,
    ExecutionComparison,
    ExecutionFigures,
    ExecutionResult,
    Floor,
    Gain,
    GainSplit,
    Interval,
    Run,
    Verdict,
)
from tfpipe.settings import Execution
from tfpipe.units import format_percent, format_rate

ONE = Interval(value=1.0, low=1.0, high=1.0)
# What is least to write and to wait for comes first: one line that builds a graph in seconds, no line at all, Keras's
# own loop, a line for each layer, and a compiler that takes longest and does not know every operation.
_SIMPLEST: tuple[Execution, ...] = ("graph", "eager", "fit", "layer", "xla")
# What to write to run a step in each way.
_HOW: dict[Execution, str] = {
    "eager": "without tf.function",
    "layer": "with a tf.function on each layer, on the model and on the gradient",
    "graph": "as one tf.function, with the model, the gradient and the optimiser inside",
    "xla": "as one tf.function(jit_compile=True), with the model, the gradient and the optimiser inside",
    "fit": "through Keras's model.fit",
}


def compare_executions(run: Run) -> ExecutionComparison | None:
    """The ways to run the step side by side; None where not two of them were measured.

    All are compared behind the recommended pipeline, or behind the current one where that stays or where the other
    was not measured with each of them.
    """
    results = {result.step.execution: result for result in run.executions}
    measured = _behind(run.executions)
    if len(measured) < 2:
        return None
    first = run.executions[0].step.execution
    reference: Execution = "eager" if "eager" in measured else first if first in measured else next(iter(measured))
    best = _best(run, measured, first)
    return ExecutionComparison(
        pipeline=measured[reference].id,
        first=first,
        reference=reference,
        best=best,
        figures=tuple(_figures(run, result, measured, results[reference]) for result in run.executions),
        split=_split(run, results[first], results[best]),
        notes=tuple(_notes(run, results[first], results[best])),
    )


def _behind(results: Sequence[ExecutionResult]) -> dict[Execution, Candidate]:
    """The executions that were measured, each with its candidate behind one and the same pipeline."""
    current = {r.step.execution: r.current for r in results if _counts(r.current)}
    recommended = {r.step.execution: r.recommended for r in results if _counts(r.recommended)}
    return recommended if recommended and recommended.keys() >= current.keys() else current


def _counts(candidate: Candidate | None) -> TypeGuard[Candidate]:
    """Whether it was measured; not where a graph was built in each of its blocks."""
    return candidate is not None and candidate.step_s is not None


def _best(run: Run, measured: dict[Execution, Candidate], first: Execution) -> Execution:
    """The one to use: what the user has unless another is surely faster; then the simplest of the fastest."""
    named = [replace(candidate, id=execution) for execution, candidate in measured.items()]
    leader: Execution = next(e for e in measured if e == fastest(named).id)
    if first in measured:
        over_first = _gain(run, measured[leader], measured[first])
        if over_first.low <= 1.0 or over_first.value < WORTHWHILE:
            return first
    equal = [e for e in measured if e == leader or is_tie(measured[leader], measured[e])]
    return next(e for e in _SIMPLEST if e in equal)


def _gain(run: Run, numerator: Candidate, denominator: Candidate) -> Interval:
    """The gain from the rounds that confirmed the recommendation, where both were measured in them."""
    since = run.confirmed_from or 0
    confirmed = all(any(b.kind == "step" and b.round >= since for b in c.blocks) for c in (numerator, denominator))
    return gain(numerator, denominator, since=since if confirmed else 0)


def _figures(
    run: Run, result: ExecutionResult, measured: dict[Execution, Candidate], reference: ExecutionResult
) -> ExecutionFigures:
    step = result.step
    candidate = measured.get(step.execution)
    if not _counts(candidate):
        return ExecutionFigures(
            execution=step.execution,
            step_s=None,
            speed_up=None,
            first_call_s=step.first_call_s,
            pays_off_steps=None,
            examples_per_s=None,
            epoch_s=None,
            input_fraction=None,
            host_fraction=None,
            device_use=None,
            note="it was not measured",
        )
    compared = measured[reference.step.execution]
    speed_up = ONE if result is reference else _gain(run, candidate, compared)
    steps, note = None, ""
    if result is not reference:
        assert candidate.step_s is not None
        assert compared.step_s is not None
        steps, note = pays_off(
            first_call_s=step.first_call_s,
            step_s=candidate.step_s.value,
            reference=reference.step.execution,
            reference_first_call_s=reference.step.first_call_s,
            reference_step_s=compared.step_s.value,
            speed_up=speed_up,
        )
    return ExecutionFigures(
        execution=step.execution,
        step_s=candidate.step_s,
        speed_up=speed_up,
        first_call_s=step.first_call_s,
        pays_off_steps=steps,
        examples_per_s=candidate.examples_per_s,
        epoch_s=candidate.epoch_s,
        input_fraction=candidate.input_fraction,
        host_fraction=candidate.host_fraction,
        device_use=result.device_use,
        note=note,
    )


def pays_off(
    *,
    first_call_s: float | None,
    step_s: float,
    reference: Execution,
    reference_first_call_s: float | None,
    reference_step_s: float,
    speed_up: Interval,
) -> tuple[int | None, str]:
    """After how many steps the longer first call is won back, or None and why.

    A first call is also the first step. With n steps in all, one way takes ``first call + (n - 1) x step``, so that
    both have taken equally long after ``1 + difference of the first calls / difference of the steps``.
    """
    if first_call_s is None or reference_first_call_s is None:
        return None, "how long the first call takes was not measured"
    if speed_up.low <= 1.0 or step_s >= reference_step_s:
        slower = "slower than" if speed_up.high < 1.0 else "not surely faster than"
        return None, f"never: its step is {slower} {reference}'s"
    extra_s = first_call_s - reference_first_call_s
    return (1 if extra_s <= 0 else 1 + math.ceil(extra_s / (reference_step_s - step_s))), ""


def _split(run: Run, first: ExecutionResult, best: ExecutionResult) -> GainSplit | None:
    """The whole gain, from (current pipeline, first execution) to (recommended pipeline, best execution), and its two
    factors. Each is paired by round for itself; the whole is their product, with its own interval around it."""
    end = best.recommended or best.current
    middle = first.recommended or first.current
    if not _counts(first.current) or not _counts(middle) or not _counts(end) or middle.id != end.id:
        return None
    from_input = ONE if middle is first.current else _gain(run, middle, first.current)
    from_execution = ONE if end is middle else _gain(run, end, middle)
    whole = ONE if end is first.current else _gain(run, end, first.current)
    value = from_input.value * from_execution.value
    scale = value / whole.value
    total = Interval(value=value, low=whole.low * scale, high=whole.high * scale)
    return GainSplit(
        total=total,
        input=from_input,
        execution=from_execution,
        statement=_split_statement(first, best, total, from_input, from_execution),
    )


def _split_statement(
    first: ExecutionResult, best: ExecutionResult, total: Interval, from_input: Interval, from_execution: Interval
) -> str:
    now = f"{first.step.execution} behind the current pipeline"
    if from_input == ONE and from_execution == ONE:
        return f"None: neither another pipeline nor another way to run the step is surely faster than {now}."
    input_words = "nothing from input (the pipeline stays)" if from_input == ONE else _factor("input", from_input)
    execution_words = (
        f"nothing from execution (it stays {best.step.execution})"
        if from_execution == ONE
        else f"{_factor('execution', from_execution)} ({first.step.execution} to {best.step.execution})"
    )
    return f"{ratio_words(total)} as fast as {now}: {input_words}, {execution_words}."


def _factor(name: str, ratio: Interval) -> str:
    if ratio.low <= 1.0 <= ratio.high:
        return f"nothing sure from {name} ({ratio.value:.2f} times, {ratio.low:.2f}-{ratio.high:.2f})"
    return f"{ratio_words(ratio)} from {name}"


def ratio_words(ratio: Interval) -> str:
    """``2.36 times (2.18-2.55)``, or without a range that would show no spread."""
    value, low, high = (f"{x:.2f}" for x in (ratio.value, ratio.low, ratio.high))
    return f"{value} times" + ("" if low == high else f" ({low}-{high})")


def _notes(run: Run, first: ExecutionResult, best: ExecutionResult) -> list[str]:
    """What a slow step hides: the waiting that begins once the step is faster."""
    hidden = _hidden_input(first, best)
    if hidden is None or not _counts(first.current) or not _counts(best.current):
        return []
    alone = _gain(run, best.current, first.current)
    note = (
        f"Behind the current pipeline {best.step.execution} waits for input {format_percent(hidden.value)} of each "
        f"step, which the slower {first.step.execution} step hides: there it is {ratio_words(alone)} as fast."
    )
    if best.recommended is not None and best.recommended.input_fraction is not None:
        share = format_percent(best.recommended.input_fraction.value)
        note += f" Behind {best.recommended.label} it waits {share}."
    return [note]


def _hidden_input(first: ExecutionResult, best: ExecutionResult) -> Interval | None:
    """The input fraction behind the current pipeline in the best execution, where the first one hides it."""
    if first is best or first.current is None or best.current is None:
        return None
    before, after = first.current.input_fraction, best.current.input_fraction
    if before is None or after is None or after.low < INPUT_MODERATE or before.overlaps(after):
        return None
    return after if after.value > before.value else None


# --- what to recommend -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionAdvice:
    """How to run the step from now on. ``execution`` is None where it stays, and what it is called with has to change.

    ``change_pipeline`` is False where the step is host-bound and was not measured otherwise: whatever differs between
    pipelines beside such a step is no reason to change them. ``gain`` is over what the user has, None where the other
    way was not measured behind a pipeline; both stand behind the one and the same candidate ``gain.over``.
    """

    execution: Execution | None
    summary: str
    why: str
    gain: Gain | None
    change_pipeline: bool
    notes: tuple[str, ...] = ()


def recommend_execution(run: Run) -> ExecutionAdvice | None:
    """How to run the step, from what was measured; None where there is no reason to run it otherwise.

    Needs nothing but ``run.executions``, or ``run.candidates`` where only one way was measured.
    """
    first = run.executions[0] if run.executions else None
    current = _current(run)
    host_bound = current is not None and current.verdict is not None and current.verdict.bound == "host"
    comparison = compare_executions(run)
    if comparison is not None and comparison.best != comparison.first:
        assert first is not None
        return _measured_advice(run, comparison, first, host_bound)
    if current is None or current.verdict is None or not host_bound:
        return None
    return _predicted_advice(run, current, current.verdict, run.floor if first is None else first.floor)


def _current(run: Run) -> Candidate | None:
    """What the user has: their pipeline behind the step as they run it."""
    if run.executions:
        return run.executions[0].current
    return next((c for c in run.candidates if c.id == run.current), None)


def _measured_advice(
    run: Run, comparison: ExecutionComparison, first: ExecutionResult, host_bound: bool
) -> ExecutionAdvice:
    best = comparison.best
    measured = _behind(run.executions)
    faster, now = measured.get(best), measured.get(comparison.first)
    ratio = None if faster is None or now is None else _gain(run, faster, now)
    times = "" if ratio is None else f": {ratio_words(ratio)} as fast as {comparison.first}"
    verdict = None if first.current is None else first.current.verdict
    return ExecutionAdvice(
        execution=best,
        summary=f"Run the step {_HOW[best]} ({best}){times}.",
        why=verdict.statement if host_bound and verdict is not None else "",
        gain=None
        if ratio is None
        else Gain(over=comparison.pipeline, label=f"{comparison.first} execution", ratio=ratio),
        change_pipeline=True,
        notes=comparison.notes,
    )


def _predicted_advice(run: Run, current: Candidate, verdict: Verdict, floor: Floor) -> ExecutionAdvice:
    graph_s = None if floor.graph_step_s is None else floor.graph_step_s.value
    if (current.host_fraction or 0.0) < HOST_BOUND or graph_s is None or not current.floor_s:
        # Then it is retracing that makes the step host-bound.
        return ExecutionAdvice(
            execution=None,
            summary="Stop the step from building graphs anew; no pipeline is worth changing before.",
            why=verdict.statement,
            gain=None,
            change_pipeline=False,
            notes=("See where with: tfpipe check MODULE:FUNCTION",),
        )
    return ExecutionAdvice(
        execution="graph",
        summary=(
            f"Run the step {_HOW['graph']} (put @tf.function above it): compute alone is then "
            f"{times_as_fast(current.floor_s / graph_s)}. No pipeline is worth changing before."
        ),
        why=verdict.statement,
        gain=None,
        change_pipeline=False,
        notes=tuple(_limit_of_input(run, current, graph_s)),
    )


def _limit_of_input(run: Run, current: Candidate, graph_s: float) -> list[str]:
    """Whether the current pipeline, drained alone, could feed the step as one ``tf.function``."""
    capacity, wanted = current.capacity_examples_per_s, run.data.batch_size / graph_s
    if capacity is None or capacity >= wanted:
        return []
    return [
        f"As one tf.function the step could take {format_rate(wanted)} examples/s, and the pipeline alone delivers "
        f"{format_rate(capacity)}: it may then wait for input. Profile again with --execution graph."
    ]
