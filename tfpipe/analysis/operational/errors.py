"""How far off predictions were. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from tfpipe.records import Run

# Above these the model does not fit the pipeline: the goals that tests/bench/bench_prediction.py holds it to.
MEDIAN_ERROR = 0.05
P90_ERROR = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionErrors:
    """|predicted - measured| / measured of ``step_s``, over ``count`` candidates that the model had not seen."""

    median: float
    p90: float
    count: int

    @property
    def fits(self) -> bool:
        """Whether the model is good enough to choose by; where it is not, measure more."""
        return self.median <= MEDIAN_ERROR and self.p90 <= P90_ERROR


def prediction_errors(run: Run) -> PredictionErrors | None:
    """How far off the predictions were that were made before their candidates were measured; None without any."""
    return summarise(
        abs(c.predicted.step_s - c.step_s.value) / c.step_s.value
        for c in run.candidates
        if c.predicted is not None and c.step_s is not None and c.step_s.value > 0
    )


def summarise(errors: Iterable[float]) -> PredictionErrors | None:
    """Median and 90th percentile (the nearest rank) of relative errors; None without any."""
    ordered = sorted(errors)
    if not ordered:
        return None
    return PredictionErrors(
        median=statistics.median(ordered), p90=ordered[math.ceil(0.9 * len(ordered)) - 1], count=len(ordered)
    )
