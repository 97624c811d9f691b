"""What the measured candidates say about those that are not: a Gaussian process over the knobs. Pure.

Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), sections 2.2 (prediction) and 5.4 (choosing the
kernel by its marginal likelihood).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tfpipe.runner.search.knobs import KnobValues
from tfpipe.sites import SiteValue

# How many times the least standard deviation is tried for what the knobs do beyond what was expected of them, and how
# alike two candidates are taken to be that differ in one knob.
SPREAD_FACTORS = (1, 2, 4, 8)
LIKENESSES = (0.3, 0.6, 0.85)
# All candidates together may lie off what was expected by about this much, as a logarithm.
SHARED_SPREAD = 0.5

Matrix = Any  # numpy's arrays of floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """``at`` answers for other points; ``joined`` by a point that is not measured yet it is surer around that point.

    ``apart`` has the distances between ``points``.
    """

    points: tuple[KnobValues, ...]
    values: Matrix
    variances: Matrix
    apart: Matrix
    spread: float
    likeness: float

    def at(self, points: Sequence[KnobValues]) -> tuple[Matrix, Matrix]:
        """The expected value and its standard deviation at each of ``points``."""
        across = self._covariance(distances(points, self.points))
        solved = np.linalg.solve(self._matrix(), across.T)
        variances = self._covariance(0.0) - np.einsum("ij,ji->i", across, solved)
        return solved.T @ self.values, np.sqrt(np.maximum(variances, 0.0))

    def joined(self, point: KnobValues, variance: float) -> Surrogate:
        """As if ``point`` had been measured to be just what is expected of it."""
        means, _ = self.at([point])
        points = (*self.points, point)
        return replace(
            self,
            points=points,
            values=np.append(self.values, means),
            variances=np.append(self.variances, variance),
            apart=distances(points, points),
        )

    @property
    def likelihood(self) -> float:
        """The logarithm of the values' likelihood, up to a constant."""
        matrix = self._matrix()
        _, determinant = np.linalg.slogdet(matrix)
        return float(-0.5 * (self.values @ np.linalg.solve(matrix, self.values) + determinant))

    def _matrix(self) -> Matrix:
        return self._covariance(self.apart) + np.diag(self.variances)

    def _covariance(self, apart: Matrix) -> Matrix:
        return SHARED_SPREAD**2 + self.spread**2 * self.likeness**apart


def fit(
    points: Sequence[KnobValues], values: Sequence[float], variances: Sequence[float], *, least_spread: float
) -> Surrogate:
    """The surrogate under which ``values``, known up to their ``variances``, are likeliest.

    Args:
        least_spread: the standard deviation from what was expected that there is at least.
    """
    apart = distances(points, points)
    surrogates = [
        Surrogate(
            points=tuple(points),
            values=np.array(values),
            variances=np.array(variances),
            apart=apart,
            spread=factor * least_spread,
            likeness=likeness,
        )
        for factor, likeness in itertools.product(SPREAD_FACTORS, LIKENESSES)
    ]
    return max(surrogates, key=lambda surrogate: surrogate.likelihood)


def distances(ones: Sequence[KnobValues], others: Sequence[KnobValues]) -> Matrix:
    """How many knobs two points differ in; of two numbers, by how many doublings, at most 2."""
    total = np.zeros((len(ones), len(others)))
    for knob in ones[0] if ones else ():
        left, right = [point[knob] for point in ones], [point[knob] for point in others]
        kinds = {value: number for number, value in enumerate(dict.fromkeys((*left, *right)))}
        differ = np.array([kinds[v] for v in left])[:, None] != np.array([kinds[v] for v in right])[None, :]
        doublings = np.abs(_doublings(left)[:, None] - _doublings(right)[None, :])
        # Whatever is no number has no doublings.
        total += differ * np.where(np.isnan(doublings), 1.0, np.minimum(doublings, 2.0))
    return total


def _doublings(values: Sequence[SiteValue]) -> Matrix:
    return np.array([np.log2(v + 1) if isinstance(v, int) and not isinstance(v, bool) else np.nan for v in values])
