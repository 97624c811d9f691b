"""From an attribution to a verdict: what the step is bound by, in one word and in one sentence."""

from __future__ import annotations

from tfpipe.records import Bound, Interval, Verdict
from tfpipe.units import format_percent

# The cuts of TensorBoard's Input Pipeline Analyzer, as fractions of the step.
INPUT_MODERATE = 0.05
INPUT_HIGH = 0.20
# A step this much longer than its floor without waiting is contended; below, it is within what loops cost anyway.
CONTENDED = 0.05

WORDS: dict[Bound, str] = {
    "compute": "compute-bound",
    "input-moderate": "moderately input-bound",
    "input-high": "highly input-bound",
    "contended": "contended",
    "host": "host-bound",
    "uncertain": "uncertain",
}


def classify(input_fraction: Interval, contention_fraction: Interval) -> Verdict:
    """The verdict on a step that waits for ``input_fraction`` of its time.

    An interval that straddles a cut is uncertain, unless everything in it is on the same side of what the reader
    would do: then the sentence says which two verdicts are left.
    """
    bound = _bound(input_fraction, contention_fraction)
    return Verdict(bound=bound, statement=_statement(bound, input_fraction, contention_fraction))


def _bound(fraction: Interval, contention: Interval) -> Bound:
    if fraction.low >= INPUT_HIGH:
        return "input-high"
    if fraction.low >= INPUT_MODERATE and fraction.high < INPUT_HIGH:
        return "input-moderate"
    if fraction.high >= INPUT_MODERATE:
        return "uncertain"
    return "contended" if contention.low >= CONTENDED else "compute"


def _statement(bound: Bound, fraction: Interval, contention: Interval) -> str:
    waits = f"{format_percent(fraction.value)} of each step waits for input"
    span = f"95 % interval {format_percent(fraction.low)} to {format_percent(fraction.high)}"
    if bound == "uncertain":
        if fraction.low >= INPUT_MODERATE:
            sides = "moderately or highly input-bound"
        elif fraction.high >= INPUT_HIGH:
            sides = "anything from compute-bound to highly input-bound"
        else:
            sides = "compute-bound or moderately input-bound"
        return f"Uncertain: {waits} ({span}), so it is {sides}; more steps would settle it."
    if bound == "contended":
        return (
            f"Contended: hardly any waiting ({waits}), but the step takes {format_percent(contention.value)} of its "
            "time longer than with a constant batch, because the pipeline uses the same cores."
        )
    return f"{WORDS[bound].capitalize()}: {waits} ({span})."
