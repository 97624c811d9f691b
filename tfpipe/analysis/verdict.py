"""From an attribution to a verdict: what the step is bound by, in one word and in one sentence."""

from __future__ import annotations

import math

from tfpipe.analysis.attribution import FETCH_FLOOR_ERROR
from tfpipe.records import Bound, Interval, Verdict
from tfpipe.units import format_percent, format_seconds

# The cuts of TensorBoard's Input Pipeline Analyzer, as fractions of the step.
INPUT_MODERATE = 0.05
INPUT_HIGH = 0.20
# A step this much longer than its floor without waiting is contended; below, it is within what loops cost anyway.
CONTENDED = 0.05
# A step is called compute-bound while nothing speaks for contention, and only where what is left of doubt is less than
# would be called high of waiting. On a quiet machine the 95 % interval of a run of some seconds ends 5 to 10 points
# above its value; on one whose floor varied by 40 % it ended 50 points above, and said nothing.
CONTENDED_AT_MOST = INPUT_HIGH
# Half a 95 % interval in standard errors, of an error that no number of steps makes smaller.
LASTING_STANDARD_ERRORS = 1.96
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
    input_fraction: Interval,
    contention_fraction: Interval,
    *,
    steps: int = 0,
    step_s: float = 0.0,
    fetch_floor_s: float = 0.0,
    cpu_fraction: float | None = None,
) -> Verdict:
    """The verdict on a step that waits for ``input_fraction`` of its time.

    An interval that straddles a cut is uncertain; the sentence says which verdicts are left and, from the counted
    ``steps`` of ``step_s`` seconds, how many more would settle it: none, where the doubt is about ``fetch_floor_s``.
    ``cpu_fraction`` is the processor time that the pipeline by itself takes for a batch, as a share of the step: work
    is conserved, so it cannot hold up the step for longer, however far apart floor and step were measured.
    """
    if cpu_fraction:
        contention_fraction = _at_most(contention_fraction, cpu_fraction)
    bound = _bound(input_fraction, contention_fraction)
    statement = _statement(bound, input_fraction, contention_fraction)
    if bound != "uncertain":
        return Verdict(bound=bound, statement=statement)
    advice, more_steps = _what_would_settle(input_fraction, contention_fraction, steps, step_s, fetch_floor_s)
    return Verdict(bound=bound, statement=f"{statement} {advice}", more_steps=more_steps)


def _at_most(interval: Interval, most: float) -> Interval:
    return Interval(value=min(interval.value, most), low=min(interval.low, most), high=min(interval.high, most))


def _bound(fraction: Interval, contention: Interval) -> Bound:
    if fraction.low >= INPUT_HIGH:
        return "input-high"
    if fraction.low >= INPUT_MODERATE and fraction.high < INPUT_HIGH:
        return "input-moderate"
    if fraction.high >= INPUT_MODERATE:
        return "uncertain"
    if contention.low >= CONTENDED:
        return "contended"
    return "compute" if contention.value < CONTENDED and contention.high < CONTENDED_AT_MOST else "uncertain"


def _what_would_settle(
    fraction: Interval, contention: Interval, steps: int, step_s: float, fetch_floor_s: float
) -> tuple[str, int | None]:
    """In words and in steps, None where more would not do it or nothing was counted.

    The error that comes from the steps falls with their square root; that of the fetch floor, by which pipelines
    differ, stays. The squares of both add up to that of the half width, which has to become the distance to the cut.
    """
    if not steps or not step_s:
        return "More steps would settle it.", None
    lasting = LASTING_STANDARD_ERRORS * FETCH_FLOOR_ERROR * fetch_floor_s / step_s
    if fraction.high < INPUT_MODERATE:
        straddled, cut = contention, CONTENDED if contention.value >= CONTENDED else CONTENDED_AT_MOST
        # It is in what is left over twice: in the waiting that is taken off, and as a part of what is left.
        lasting *= math.sqrt(2)
    else:
        straddled = fraction
        cut = INPUT_MODERATE if fraction.low < INPUT_MODERATE <= fraction.high else INPUT_HIGH
    half_width = max(straddled.high - straddled.value, straddled.value - straddled.low)
    distance = abs(straddled.value - cut)
    if 0 < lasting >= distance:
        return (
            f"It lies closer to the cut of {format_percent(cut)} than what a fetch costs is known, which no more steps "
            "would change: read it as both.",
            None,
        )
    needed = steps * (half_width**2 - lasting**2) / (distance**2 - lasting**2) if distance > 0 else math.inf
    if needed > SETTLING_LIMIT * steps:
        return (
            f"It lies too close to the cut of {format_percent(cut)} for more steps to settle it: read it as both.",
            None,
        )
    more = max(1, math.ceil(needed) - steps)
    return f"About {more:,} more steps ({format_seconds(more * step_s)}) would settle it.", more


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
    doubt = ""
    if bound == "compute" and contention.high >= CONTENDED:
        doubt = f" At most {format_percent(contention.high)} of it is contention."
    return f"{WORDS[bound].capitalize()}: {waits} ({span}).{doubt}"


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
