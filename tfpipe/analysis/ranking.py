"""Which candidates are faster than which, judged round by round, and whether measuring on would change that."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tfpipe.analysis.attribution import rate_by_round
from tfpipe.analysis.statistics import paired_ratio
from tfpipe.records import Candidate, Interval

# Faster by less than this is not worth a line of anyone's code, however surely it was measured.
WORTHWHILE = 1.02
# Two candidates further apart than this are no tie, even when their intervals are too wide to separate them: the
# cheaper might then really be this much slower, and more than 3 % of the throughput is not given away unasked.
TIE_LIMIT = 1.03


def measured(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that may be compared: whole and with a throughput."""
    return [c for c in candidates if c.status == "complete" and c.examples_per_s is not None]


def contenders(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that may still turn out the fastest: measured, and not dropped by the search."""
    return [c for c in measured(candidates) if c.dropped is None]


def rate(candidate: Candidate) -> float:
    """Examples per second of a measured candidate."""
    assert candidate.examples_per_s is not None
    return candidate.examples_per_s.value


def fastest(candidates: Sequence[Candidate], *, since: int = 0) -> Candidate:
    """The one that was fastest in the median round, each round compared within itself. Raises ValueError for none.

    Only rounds from ``since`` on count. The median of its rounds, so that one pause of the machine in one block does
    not choose.
    """
    relative = relative_rates(candidates, since=since)
    return max(candidates, key=lambda c: (statistics.median(relative[c.id].values()), rate(c)))


def rounds(candidate: Candidate) -> set[int]:
    """In which it was measured and counted."""
    return set(_rates(candidate, 0))


def relative_rates(candidates: Sequence[Candidate], *, since: int = 0) -> dict[str, dict[int, float]]:
    """By id and round how many times the round's typical rate each candidate ran at, from round ``since`` on.

    Within rounds, so that a machine that slows down between them does not choose. A round's typical rate is that of the
    candidates that are in every round, so that it does not rise where slow ones are dropped.
    """
    rates = {c.id: _rates(c, since) for c in candidates}
    rounds = {number for by_round in rates.values() for number in by_round}
    throughout = [by_round for by_round in rates.values() if len(by_round) == len(rounds)] or [*rates.values()]
    typical = {n: statistics.median(by_round[n] for by_round in throughout if n in by_round) for n in rounds}
    return {identity: {n: own[n] / typical[n] for n in own} for identity, own in rates.items()}


def gain(numerator: Candidate, denominator: Candidate, *, since: int = 0) -> Interval:
    """How many times as fast ``numerator`` is, paired by round from ``since`` on; with one round only, anything up to
    twice that."""
    # Steps per second do as well as examples per second: the batch size is the same on both sides.
    paired = paired_ratio(_rates(numerator, since), _rates(denominator, since))
    if paired is not None:
        return paired
    value = rate(numerator) / rate(denominator)
    return Interval(value=value, low=0.0, high=value * 2)


def is_tie(leader: Candidate, other: Candidate, *, since: int = 0) -> bool:
    """Whether ``other`` may be just as fast: not surely slower, or slower by less than is worth having."""
    ratio = gain(leader, other, since=since)
    return ratio.value < WORTHWHILE or (ratio.low <= 1.0 and ratio.value < TIE_LIMIT)


def is_left_open(candidate: Candidate) -> bool:
    """Whether more steps would settle the verdict on ``candidate``."""
    return candidate.verdict is not None and candidate.verdict.more_steps is not None


def is_settled(candidates: Sequence[Candidate]) -> bool:
    """Whether more rounds would change neither a verdict nor the ranking at the top.

    Settled means that no verdict is left open, and that each candidate is surely slower than the fastest or
    surely within WORTHWHILE of it.
    """
    compared = contenders(candidates)
    if not compared:
        return True
    if any(is_left_open(c) for c in compared):
        return False
    leader = fastest(compared)
    ratios = [gain(leader, c) for c in compared if c is not leader]
    return all(ratio.low > 1.0 or ratio.high < WORTHWHILE for ratio in ratios)


def _rates(candidate: Candidate, since: int) -> dict[int, float]:
    counted = [b for b in candidate.blocks if b.kind == "step" and not b.retraced and b.round >= since]
    return rate_by_round(counted)
