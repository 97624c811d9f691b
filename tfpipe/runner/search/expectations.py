"""What settings that are not measured may be expected to do: as predicted, corrected by what the others showed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tfpipe.analysis.ranking import measured, relative_rates
from tfpipe.records import Candidate, Run
from tfpipe.runner.search.knobs import KnobValues
from tfpipe.runner.search.surrogate import Surrogate, fit
from tfpipe.settings import NamedSettings

# How far off the predictions are taken to be, as a logarithm, before any was checked, and how many checked ones that
# belief weighs.
EXPECTED_ERROR = 0.05
ERROR_BELIEF = 3
# Likewise for blocks of one candidate, which spread by 2 to 4 % on a machine left alone.
EXPECTED_NOISE = 0.03
NOISE_BELIEF = 3

_NORMAL = statistics.NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The logarithm of how many times the leader's step a setting's will take, and its standard deviation."""

    log_ratio: float
    deviation: float

    def chance_below(self, log_ratio: float) -> float:
        """How likely it takes less than that."""
        return _NORMAL.cdf((log_ratio - self.log_ratio) / self.deviation)

    def improvement(self, log_ratio: float) -> float:
        """How far below ``log_ratio`` it is expected to come, counting nothing where it does not."""
        z = (log_ratio - self.log_ratio) / self.deviation
        return self.deviation * (z * _NORMAL.cdf(z) + _NORMAL.pdf(z))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """``predicted`` has the logarithm of each setting's step, by id; one that is not in there cannot be predicted.

    ``leader_deviation`` is the standard deviation that the leader's own step is known to, as a logarithm.
    """

    predicted: Mapping[str, float]
    values: Mapping[str, KnobValues]
    log_leader: float
    leader_deviation: float
    noise_variance: float
    surrogate: Surrogate

    def of(self, candidates: Sequence[NamedSettings]) -> list[Expected]:
        """One for each of ``candidates``."""
        if not candidates:
            return []
        ids = [named.settings.id for named in candidates]
        means, deviations = self.surrogate.at([self.values[identity] for identity in ids])
        return [
            Expected(log_ratio=self.predicted[identity] + mean - self.log_leader, deviation=max(deviation, 1e-6))
            for identity, mean, deviation in zip(ids, means.tolist(), deviations.tolist(), strict=True)
        ]

    def joined(self, named: NamedSettings) -> Expectations:
        """Once ``named`` will be measured, others like it will be known better."""
        point = self.values[named.settings.id]
        return replace(self, surrogate=self.surrogate.joined(point, self.noise_variance))


def expect(
    run: Run, predicted: Mapping[str, float], values: Mapping[str, KnobValues], leader: Candidate
) -> Expectations:
    """What to expect after what ``run`` has measured."""
    everyone = measured(run.candidates)
    logs = {
        identity: [-math.log(rate) for rate in by_round.values()]
        for identity, by_round in relative_rates(everyone).items()
    }
    steps = {identity: statistics.median(own) for identity, own in logs.items()}
    noise_variance = _noise_variance(logs.values())
    seen = [c.id for c in everyone if c.id in predicted and c.id in values]
    surrogate = fit(
        [values[identity] for identity in seen],
        [steps[identity] - predicted[identity] for identity in seen],
        [noise_variance / len(logs[identity]) for identity in seen],
        least_spread=_error_so_far(everyone),
    )
    return Expectations(
        predicted=predicted,
        values=values,
        log_leader=steps[leader.id],
        leader_deviation=math.sqrt(noise_variance / len(logs[leader.id])),
        noise_variance=noise_variance,
        surrogate=surrogate,
    )


def _error_so_far(candidates: Sequence[Candidate]) -> float:
    """The root mean square of the predictions' errors, of those that were made beforehand."""
    errors = [
        math.log(c.step_s.value / c.predicted.step_s)
        for c in candidates
        if c.predicted is not None and c.step_s is not None and c.step_s.value > 0
    ]
    total = ERROR_BELIEF * EXPECTED_ERROR**2 + sum(error**2 for error in errors)
    return math.sqrt(total / (ERROR_BELIEF + len(errors)))


def _noise_variance(logs: Collection[Sequence[float]]) -> float:
    """Of one block, from those of the same candidate."""
    squares = sum((x - statistics.fmean(own)) ** 2 for own in logs for x in own)
    repeated = sum(len(own) - 1 for own in logs)
    return (NOISE_BELIEF * EXPECTED_NOISE**2 + squares) / (NOISE_BELIEF + repeated)
