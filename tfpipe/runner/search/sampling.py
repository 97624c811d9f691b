"""Draws from the space, at random and by Optuna's tree-structured Parzen estimator: what the model has to beat."""

from __future__ import annotations

import math
import random
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from tfpipe.analysis.ranking import contenders, measured, relative_rates
from tfpipe.records import Run
from tfpipe.runner.search.base import Decision
from tfpipe.runner.search.rules import TOGETHER, is_best_known, surely_lost
from tfpipe.runner.search.space import Space
from tfpipe.settings import NamedSettings

# Draws for a few new settings, before they are drawn at random.
MAX_ASKED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSearch:
    """Every setting is as likely to come next, until all are measured or the time is over."""

    space: Space
    seed: int
    tolerance: float

    @property
    def grows(self) -> bool:
        return True

    def first(self) -> tuple[NamedSettings, ...]:
        return self.space.first

    def next(self, run: Run) -> Decision:
        return _decision(run, _shuffled(self.space, self.seed), self.tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptunaSearch:
    """Optuna's TPE sampler over the knobs, told everything measured so far."""

    space: Space
    seed: int
    tolerance: float

    @property
    def grows(self) -> bool:
        return True

    def first(self) -> tuple[NamedSettings, ...]:
        return self.space.first

    def next(self, run: Run) -> Decision:
        return _decision(run, self._asked(run), self.tolerance)

    def _asked(self, run: Run) -> list[NamedSettings]:
        """What the sampler names next, then the rest at random."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        values = self.space.values
        choices = {
            knob: optuna.distributions.CategoricalDistribution(list(dict.fromkeys(v[knob] for v in values.values())))
            for knob in next(iter(values.values()))
        }
        named = {tuple(values[n.settings.id].values()): n for n in self.space.everything}
        known = {c.id for c in run.candidates}
        with warnings.catch_warnings():
            # Optuna 4 calls the constant liar an experiment.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=self.seed + len(known), n_startup_trials=len(self.space.first), constant_liar=True
            )
        study = optuna.create_study(sampler=sampler)
        everyone = [c for c in measured(run.candidates) if c.id in values]
        for identity, rates in relative_rates(everyone).items():
            trial = optuna.trial.create_trial(
                params=values[identity], distributions=choices, value=-math.log(statistics.median(rates.values()))
            )
            study.add_trial(trial)
        asked: dict[str, NamedSettings] = {}
        for _ in range(MAX_ASKED):
            trial = study.ask(choices)
            found = named.get(tuple(trial.params[knob] for knob in choices))
            if found is None:
                # No such setting, which is as bad as it gets: the sampler learns to stay away.
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            elif found.settings.id not in known:
                asked[found.settings.id] = found
            if len(asked) == TOGETHER:
                break
        return [*asked.values(), *_shuffled(self.space, self.seed)]


def _shuffled(space: Space, seed: int) -> list[NamedSettings]:
    shuffled = list(space.everything)
    random.Random(seed).shuffle(shuffled)
    return shuffled


def _decision(run: Run, order: Sequence[NamedSettings], tolerance: float) -> Decision:
    """The next few of ``order`` that are not known yet."""
    drop = surely_lost(run)
    known = {c.id for c in run.candidates}
    fresh = list(dict.fromkeys(named for named in order if named.settings.id not in known))
    left = [c for c in contenders(run.candidates) if c.id not in drop]
    return Decision(
        add=tuple(fresh[:TOGETHER]),
        drop=drop,
        stop=not left or (not fresh and is_best_known(left, run.current, tolerance)),
    )
