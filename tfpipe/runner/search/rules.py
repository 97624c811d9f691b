"""What every search that drops and stops does alike: by intervals, never by luck."""

from __future__ import annotations

from collections.abc import Sequence

from tfpipe.analysis.ranking import contenders, fastest, gain, is_tie
from tfpipe.records import Candidate, Run

# Candidates that join at a time: few, so that each can be chosen by what the others showed.
TOGETHER = 3


def surely_lost(run: Run) -> dict[str, str]:
    """Candidates that are surely slower than the fastest, by more than a tie allows, and why; never what the user has,
    to which everything is compared to the end."""
    left = contenders(run.candidates)
    if not left:
        return {}
    leader = fastest(left)
    lost = {}
    for candidate in left:
        if candidate is leader or candidate.id == run.current:
            continue
        ratio = gain(leader, candidate)
        if ratio.low > 1.0 and not is_tie(leader, candidate):
            lost[candidate.id] = f"surely slower: {leader.label} is {ratio.low:.2f}-{ratio.high:.2f} times as fast"
    return lost


def is_best_known(left: Sequence[Candidate], current: str, tolerance: float) -> bool:
    """Whether surely none of ``left`` is faster than the fastest by more than ``tolerance``, and whether it is surely
    faster than what the user has, or surely not by more than that.

    The first is all that a choice within ``tolerance`` needs (Even-Dar, Mannor and Mansour, Action Elimination and
    Stopping Conditions, JMLR 2006); which of two equals comes first is not.
    """
    if not left:
        return True
    leader = fastest(left)
    ratios = {c.id: gain(leader, c) for c in left if c is not leader}
    known = all(ratio.low >= 1 / (1 + tolerance) for ratio in ratios.values())
    over_current = ratios.get(current)
    return known and (over_current is None or over_current.low > 1.0 or over_current.high < 1 + tolerance)
