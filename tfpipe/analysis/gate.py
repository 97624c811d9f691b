"""Whether a run keeps the limits that its user set, for a build that should fail when it does not."""

from __future__ import annotations

import math

from tfpipe.errors import UsageError
from tfpipe.records import Candidate, Gate, Interval, Limits, Run
from tfpipe.units import format_percent, format_rate


def check_gate(run: Run, limits: Limits, baseline: Run | None = None) -> Gate:
    """Hold ``run``'s current candidate against ``limits``; ``baseline`` is what ``limits.tolerance`` is about.

    A limit is missed when the whole interval is beyond it, and uncertain when the interval straddles it. With
    ``limits.strict`` uncertain counts as missed.

    Raises:
        UsageError: there is nothing to hold against a limit.
    """
    candidate = _current(run)
    checks = []
    if limits.max_input_fraction is not None:
        if candidate.input_fraction is None:
            raise UsageError("Without a step there is no input fraction to limit.", "Choose a --step.")
        limit = limits.max_input_fraction
        checks.append(
            _check(
                candidate.input_fraction,
                limit,
                upper=True,
                what=f"waits for input {format_percent(candidate.input_fraction.value)} of each step",
                bound=f"at most {format_percent(limit)}",
            )
        )
    assert candidate.examples_per_s is not None
    if limits.min_examples_per_s is not None:
        checks.append(
            _check(
                candidate.examples_per_s,
                limits.min_examples_per_s,
                upper=False,
                what=f"delivers {format_rate(candidate.examples_per_s.value)} examples/s",
                bound=f"at least {format_rate(limits.min_examples_per_s)}",
            )
        )
    if baseline is not None:
        before = _current(baseline)
        assert before.examples_per_s is not None
        floor = before.examples_per_s.value * (1 - limits.tolerance)
        checks.append(
            _check(
                _ratio(candidate.examples_per_s, before.examples_per_s),
                1 - limits.tolerance,
                upper=False,
                what=f"delivers {format_rate(candidate.examples_per_s.value)} examples/s",
                bound=f"at least {format_rate(floor)}, the baseline less {format_percent(limits.tolerance)}",
            )
        )
    missed = [text for state, text in checks if state == "missed"]
    uncertain = [text for state, text in checks if state == "uncertain"]
    passed = not missed and not (limits.strict and uncertain)
    if missed or uncertain:
        sentence = f"{candidate.id} " + "; ".join(missed + uncertain) + "."
    else:
        sentence = f"{candidate.id} keeps its limits: " + "; ".join(text for _, text in checks) + "."
    return Gate(passed=passed, uncertain=bool(uncertain) and not missed, sentence=sentence)


def _current(run: Run) -> Candidate:
    candidate = run.candidate(run.current)
    if candidate.status != "complete" or candidate.examples_per_s is None:
        raise UsageError(f"{candidate.id} was not measured: {candidate.error}", "See more with: tfpipe show")
    return candidate


def _check(value: Interval, limit: float, *, upper: bool, what: str, bound: str) -> tuple[str, str]:
    surely = value.high <= limit if upper else value.low >= limit
    missed = value.low > limit if upper else value.high < limit
    if surely:
        return "kept", f"{what} ({bound} allowed)" if upper else f"{what} ({bound} wanted)"
    if missed:
        return "missed", f"{what}; the limit is {bound}"
    return "uncertain", f"{what}; whether that is {bound} is uncertain"


def _ratio(numerator: Interval, denominator: Interval) -> Interval:
    """The ratio of two independent throughputs, errors added in squares as shares of their values."""
    value = numerator.value / denominator.value
    share = math.hypot(*((i.high - i.low) / 2 / i.value for i in (numerator, denominator)))
    return Interval(value=value, low=value * (1 - share), high=value * (1 + share))
