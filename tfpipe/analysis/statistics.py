"""Means and ratios with 95 % confidence intervals, from blocks of steps.

Steps inside one block share whatever the machine was doing just then, so they are not independent samples. The
unit of independence is the block; where there are too few blocks to judge by, blocks are cut into pieces, and the
larger of the two errors is given, with the degrees of freedom of what it consists of.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tfpipe.records import Interval

# 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom; any statistics textbook's table.
_T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
# From this many blocks on, blocks alone carry the interval (t is then below 2.8, no longer dominated by it).
ENOUGH_BLOCKS = 5
# Share of the rounds left out at either end when candidates are compared; a fifth is the usual choice (Wilcox,
# Introduction to Robust Estimation and Hypothesis Testing, section 3.3).
TRIMMED = 0.2
# Pieces to cut fewer blocks into. Pieces are longer than single steps, so that a regular stall of one step in a
# few falls into every piece and not into some.
PIECES = 12


def t_quantile(degrees_of_freedom: int) -> float:
    """The 97.5 % quantile of Student's t; beyond 30 degrees by the usual expansion, within 0.1 %.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5 (first term).
    """
    if degrees_of_freedom < 1:
        return math.inf
    if degrees_of_freedom <= len(_T_975):
        return _T_975[degrees_of_freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees_of_freedom)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value, the standard error it is known to, and the degrees of freedom behind that error."""

    value: float
    standard_error: float
    degrees_of_freedom: int

    @property
    def half_width(self) -> float:
        """Half the 95 % interval; infinite where nothing can be said."""
        if self.degrees_of_freedom < 1:
            return math.inf
        return t_quantile(self.degrees_of_freedom) * self.standard_error

    def interval(self, *, low: float = -math.inf, high: float = math.inf) -> Interval:
        """The 95 % interval, cut to what is possible at all. Unknown spread gives the widest possible interval
        if both limits are finite, else the bare value."""
        width = self.half_width
        if math.isinf(width) and (math.isinf(low) or math.isinf(high)):
            width = 0.0
        value, bottom, top = (min(max(x, low), high) for x in (self.value, self.value - width, self.value + width))
        return Interval(value=value, low=bottom, high=top)


def combine(value: float, *parts: tuple[float, Estimate]) -> Estimate:
    """``value`` whose error comes from independent ``parts``, each with its derivative: propagation of error.

    The degrees of freedom are Welch and Satterthwaite's (Biometrics Bulletin 2, 1946).
    """
    variances = [(derivative * part.standard_error) ** 2 for derivative, part in parts]
    total = sum(variances)
    if total == 0:
        return Estimate(
            value=value, standard_error=0.0, degrees_of_freedom=min(part.degrees_of_freedom for _, part in parts)
        )
    inverse = sum(
        (variance / total) ** 2 / max(1, part.degrees_of_freedom)
        for variance, (_, part) in zip(variances, parts, strict=True)
    )
    return Estimate(value=value, standard_error=math.sqrt(total), degrees_of_freedom=max(1, math.floor(1 / inverse)))


Pair = tuple[float, float]


def ratio(blocks: Sequence[Sequence[Pair]]) -> Estimate:
    """Sum of numerators over sum of denominators, from blocks of (numerator, denominator) per step.

    A mean per step is the ratio with every denominator 1. The error is the linearised one of a ratio estimator
    over clusters (Cochran, Sampling Techniques, 3rd ed. 1977, section 6.4), the clusters being blocks, or pieces
    of blocks while there are fewer than ENOUGH_BLOCKS; then the larger of both errors counts. What blocks differ by
    beyond what their pieces explain is known from the few blocks alone, and its share of the error has their few
    degrees of freedom (Welch and Satterthwaite, as in ``combine``).

    Raises:
        ValueError: no steps, or denominators that sum to 0.
    """
    clusters = [_sum(block) for block in blocks if block]
    total = _sum(clusters)
    if not clusters or total[1] == 0:
        raise ValueError("a ratio needs at least one step")
    value = total[0] / total[1]
    error = _cluster_error(clusters, value)
    if len(clusters) >= ENOUGH_BLOCKS:
        return Estimate(value=value, standard_error=error, degrees_of_freedom=len(clusters) - 1)
    pieces = [piece for block in blocks if block for piece in _cut(block, math.ceil(PIECES / len(clusters)))]
    by_pieces = Estimate(value=value, standard_error=_cluster_error(pieces, value), degrees_of_freedom=len(pieces) - 1)
    if error <= by_pieces.standard_error:
        return by_pieces
    beyond = math.sqrt(error**2 - by_pieces.standard_error**2)
    by_blocks = Estimate(value=value, standard_error=beyond, degrees_of_freedom=len(clusters) - 1)
    return combine(value, (1.0, by_pieces), (1.0, by_blocks))


def mean(blocks: Sequence[Sequence[float]]) -> Estimate:
    """The mean per step over blocks of values per step. Raises ValueError without steps."""
    return ratio([[(value, 1.0) for value in block] for block in blocks])


def paired_ratio(numerators: dict[int, float], denominators: dict[int, float]) -> Interval | None:
    """How many times larger the numerator is, from the rounds that both were measured in.

    The trimmed mean of the logarithms of the ratios per round: a machine that slows down between rounds changes both
    sides and not the ratio, and one pause in one block does not widen the answer once there are five rounds.
    None with fewer than two rounds in common.
    """
    logs = [
        math.log(numerators[key] / denominators[key])
        for key in numerators.keys() & denominators.keys()
        if numerators[key] > 0 and denominators[key] > 0
    ]
    if len(logs) < 2:
        return None
    estimate = trimmed_mean(logs)
    low, high = estimate.value - estimate.half_width, estimate.value + estimate.half_width
    return Interval(value=math.exp(estimate.value), low=_exp(low), high=_exp(high))


def trimmed_mean(values: Sequence[float]) -> Estimate:
    """The mean of two or more values without the TRIMMED share at either end, and its error.

    The error is Tukey and McLaughlin's (Sankhya A 25, 1963): the standard deviation of the values with the trimmed
    ones pulled in to the nearest kept one, with the degrees of freedom of what is kept.
    """
    ordered = sorted(values)
    count = len(ordered)
    cut = int(TRIMMED * count)
    kept = ordered[cut : count - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    error = statistics.stdev(winsorized) / ((1 - 2 * cut / count) * math.sqrt(count))
    return Estimate(value=math.fsum(kept) / len(kept), standard_error=error, degrees_of_freedom=len(kept) - 1)


def _exp(x: float) -> float:
    """``math.exp`` that stays finite and above 0, so that it can be written to a file and divided by."""
    return math.exp(max(-50.0, min(x, 50.0)))


def _sum(pairs: Sequence[Pair]) -> Pair:
    return math.fsum(numerator for numerator, _ in pairs), math.fsum(denominator for _, denominator in pairs)


def _cluster_error(clusters: Sequence[Pair], value: float) -> float:
    count = len(clusters)
    if count < 2:
        return 0.0
    total = math.fsum(denominator for _, denominator in clusters)
    residuals = math.fsum((numerator - value * denominator) ** 2 for numerator, denominator in clusters)
    return math.sqrt(count / (count - 1) * residuals) / total


def _cut(block: Sequence[Pair], count: int) -> list[Pair]:
    count = min(count, len(block))
    edges = [round(index * len(block) / count) for index in range(count + 1)]
    return [_sum(block[low:high]) for low, high in itertools.pairwise(edges)]
