"""From an attribution to a verdict: what the step is bound by, in one word and in one sentence."""

from __future__ import annotations

import math

from tfpipe.records import Bound, Interval, Verdict
from tfpipe.units import format_percent, format_seconds

# The cuts of TensorBoard's Input Pipeline Analyzer, as fractions of the step.
INPUT_MODERATE = 0.05
INPUT_HIGH = 0.20
# A step this much longer than its floor without waiting is contended; below, it is within what loops cost anyway.
CONTENDED = 0.05
# Where a verdict would need this many times the steps that were counted, more steps are no advice.
SETTLING_LIMIT = 100

WORDS: dict[Bound, str] = {
    "compute": "compute-bound",
    "input-moderate": "moderately input-bound",
    "input-high": "highly input-bound",
    "contended": "contended",
    "host": "host-bound",
    "uncertain": "uncertain",
}


def classify(
    input_fraction: Interval, contention_fraction: Interval, *, steps: int = 0, step_s: float = 0.0
) -> Verdict:
    """The verdict on a step that waits for ``input_fraction`` of its time.

    An interval that straddles a cut is uncertain; the sentence says which verdicts are left and, from the counted
    ``steps`` of ``step_s`` seconds, how many more would settle it.
    """
    bound = _bound(input_fraction, contention_fraction)
    statement = _statement(bound, input_fraction, contention_fraction)
    if bound == "uncertain":
        statement += " " + _what_would_settle(input_fraction, contention_fraction, steps, step_s)
    return Verdict(bound=bound, statement=statement)


def _bound(fraction: Interval, contention: Interval) -> Bound:
    if fraction.low >= INPUT_HIGH:
        return "input-high"
    if fraction.low >= INPUT_MODERATE and fraction.high < INPUT_HIGH:
        return "input-moderate"
    if fraction.high >= INPUT_MODERATE:
        return "uncertain"
    if contention.value < CONTENDED:
        return "compute"
    return "contended" if contention.low >= CONTENDED else "uncertain"


def _what_would_settle(fraction: Interval, contention: Interval, steps: int, step_s: float) -> str:
    """Intervals narrow with the square root of the steps: n (half width / distance to the cut)^2 would be enough."""
    if fraction.high < INPUT_MODERATE:
        straddled, cut = contention, CONTENDED
    else:
        straddled = fraction
        cut = INPUT_MODERATE if fraction.low < INPUT_MODERATE <= fraction.high else INPUT_HIGH
    half_width = max(straddled.high - straddled.value, straddled.value - straddled.low)
    distance = abs(straddled.value - cut)
    if not steps or not step_s:
        return "More steps would settle it."
    needed = steps * (half_width / distance) ** 2 if distance > 0 else math.inf
    if needed > SETTLING_LIMIT * steps:
        return f"It lies too close to the cut of {format_percent(cut)} for more steps to settle it: read it as both."
    more = max(1, math.ceil(needed) - steps)
    return f"About {more:,} more steps ({format_seconds(more * step_s)}) would settle it."


def _statement(bound: Bound, fraction: Interval, contention: Interval) -> str:
    waits = f"{format_percent(fraction.value)} of each step waits for input"
    span = f"95 % interval {format_percent(fraction.low)} to {format_percent(fraction.high)}"
    if bound == "uncertain":
        return f"Uncertain: {waits} ({span}), so it is {_sides(fraction, contention)}."
    if bound == "contended":
        return (
            f"Contended: hardly any waiting ({waits}), but {format_percent(contention.value)} of the step is time that "
            "it does not take with a constant batch: the pipeline uses the same cores. Less work per example would "
            "help, more parallelism would not."
        )
    return f"{WORDS[bound].capitalize()}: {waits} ({span})."


def _sides(fraction: Interval, contention: Interval) -> str:
    """The verdicts that an uncertain one leaves."""
    if fraction.low >= INPUT_MODERATE:
        return "moderately or highly input-bound"
    if fraction.high >= INPUT_HIGH:
        return "anything from compute-bound to highly input-bound"
    if fraction.high >= INPUT_MODERATE:
        return "compute-bound or moderately input-bound"
    return (
        f"compute-bound or contended ({format_percent(contention.value)} of the step is time that it does not take "
        f"with a constant batch, interval {format_percent(contention.low)} to {format_percent(contention.high)})"
    )
