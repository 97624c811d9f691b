"""Measures what the model of the pipeline expects most of, corrects it by what comes out, and ends when it is known.

The model predicts every setting of the space. How far off it is for those that are measured says how far off it may be
for the others, the surer the more alike they are. Measured next is what may be expected to gain most over the fastest
so far (expected improvement: Jones, Schonlau and Welch, Journal of Global Optimization 13, 1998).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tfpipe.analysis.operational import build_model
from tfpipe.analysis.ranking import WORTHWHILE, contenders, fastest, gain, is_left_open, is_tie
from tfpipe.records import Candidate, Prediction, Run
from tfpipe.runner.search.base import Decision
from tfpipe.runner.search.expectations import Expectations, expect
from tfpipe.runner.search.knobs import costs_no_more, in_order, is_cheaper
from tfpipe.runner.search.rules import TOGETHER, is_best_known, surely_lost
from tfpipe.runner.search.space import Space
from tfpipe.settings import NamedSettings, PipelineSettings

# Candidates that join only because the model asks for them, in all.
MAX_PROBES = 3
# Smaller settings that join at a time.
SMALLER_TOGETHER = 2
# What is less likely than this to be worth having is not measured.
PROMISING = 0.1
# A smaller setting is tried where it is at least this likely to be as fast.
LIKELY = 0.5


class Model(Protocol):
    """What ``tfpipe.analysis.operational`` makes of a run."""

    def predict(self, settings: PipelineSettings) -> Prediction: ...

    def unknown(self, settings: PipelineSettings) -> str | None: ...

    def probes(self, settings: Sequence[PipelineSettings]) -> tuple[PipelineSettings, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSearch:
    """``tolerance`` is the share of the throughput that is not worth more measuring."""

    space: Space
    tolerance: float
    build: Callable[[Run], Model | None] = build_model

    @property
    def grows(self) -> bool:
        return True

    def first(self) -> tuple[NamedSettings, ...]:
        return self.space.first

    def next(self, run: Run) -> Decision:
        drop = surely_lost(run)
        left = [c for c in contenders(run.candidates) if c.id not in drop]
        if not left:
            return Decision(stop=True)
        known = {c.id for c in run.candidates}
        model = self.build(run)
        predictions = self._predictions(model)
        fresh = [
            named
            for named in self.space.everything
            if named.settings.id not in known and not self._loses_order_for_nothing(named.settings, predictions)
        ]
        add = self._wanted(run, left, fresh, model, predictions)
        return Decision(
            add=tuple(add),
            drop=drop,
            predictions={n.settings.id: predictions[n.settings.id] for n in add if n.settings.id in predictions},
            stop=not add and is_best_known(left, run.current, self.tolerance) and not _is_verdict_left_open(run, left),
        )

    def _loses_order_for_nothing(self, settings: PipelineSettings, predictions: Mapping[str, Prediction]) -> bool:
        """Whether examples would come in another order without being expected any sooner than in their own."""
        ordered = in_order(settings)
        if ordered == settings or settings.id not in predictions or ordered.id not in predictions:
            return False
        return predictions[settings.id].step_s * (1 + self.tolerance) > predictions[ordered.id].step_s

    def _predictions(self, model: Model | None) -> dict[str, Prediction]:
        if model is None:
            return {}
        everything = [named.settings for named in self.space.everything]
        return {settings.id: model.predict(settings) for settings in everything if model.unknown(settings) is None}

    def _wanted(
        self,
        run: Run,
        left: Sequence[Candidate],
        fresh: Sequence[NamedSettings],
        model: Model | None,
        predictions: Mapping[str, Prediction],
    ) -> list[NamedSettings]:
        """What should join; () when nothing unmeasured is worth its time."""
        leader = fastest(left)
        # Without a model all settings are alike until the measured ones tell them apart.
        predicted = (
            {named.settings.id: 0.0 for named in self.space.everything}
            if model is None
            else {identity: math.log(prediction.step_s) for identity, prediction in predictions.items()}
        )
        predictable = [named for named in fresh if named.settings.id in predicted]
        expectations = expect(run, predicted, self.space.values, leader)
        # What the leader's few rounds leave open is no hope.
        if _most_to_gain(run, leader) * math.exp(-expectations.leader_deviation) > 1 + self.tolerance:
            asked = self._asked_for(run, fresh, predictable, model)
            unpredicted = [named for named in asked if named not in predictable]
            promising = self._promising(predictable, expectations, without=unpredicted)
            # What would only make predictions surer comes last: it may be surely slower.
            wanted = list(dict.fromkeys([*unpredicted, *promising, *asked]))[:TOGETHER]
            if wanted:
                return wanted
        return self._smaller(run, left, leader, predictable, expectations)

    def _asked_for(
        self,
        run: Run,
        fresh: Sequence[NamedSettings],
        predictable: Sequence[NamedSettings],
        model: Model | None,
    ) -> list[NamedSettings]:
        """What the model asks for, and what is worth a try because nothing can be said of it."""
        room = max(0, len(self.space.first) + MAX_PROBES - len(run.candidates))
        probes = model.probes([named.settings for named in fresh]) if model is not None and room else ()
        by_settings = {named.settings: named for named in fresh}
        asked = [by_settings[settings] for settings in probes[:room]]
        said = {named.settings for named in predictable}
        offered = [n for n in self.space.offered if n.settings in by_settings and n.settings not in said]
        return list(dict.fromkeys([*asked, *offered]))[:TOGETHER]

    def _promising(
        self, fresh: Sequence[NamedSettings], expectations: Expectations, *, without: Sequence[NamedSettings]
    ) -> list[NamedSettings]:
        """What may gain more than the tolerance over the leader, the most to be expected first."""
        goal = -math.log(1 + self.tolerance)
        chosen: list[NamedSettings] = []
        for named in without:
            if named.settings.id in expectations.predicted:
                expectations = expectations.joined(named)
        while len(without) + len(chosen) < TOGETHER:
            rest = [named for named in fresh if named not in without and named not in chosen]
            likely = [
                (expected.improvement(goal), named)
                for named, expected in zip(rest, expectations.of(rest), strict=True)
                if expected.chance_below(goal) >= PROMISING
            ]
            if not likely:
                break
            chosen.append(max(likely, key=lambda pair: pair[0])[1])
            expectations = expectations.joined(chosen[-1])
        return chosen

    def _smaller(
        self,
        run: Run,
        left: Sequence[Candidate],
        leader: Candidate,
        fresh: Sequence[NamedSettings],
        expectations: Expectations,
    ) -> list[NamedSettings]:
        """Where there is something to recommend: the smallest settings that are likely as fast."""
        current = next((c for c in left if c.id == run.current), None)
        if current is None or gain(leader, current).value < WORTHWHILE:
            return []
        costs = self.space.expenses
        ties = [costs[c.id] for c in left if c.id in costs and (c is leader or is_tie(leader, c))]
        smaller: dict[tuple[float, ...], tuple[float, NamedSettings]] = {}
        for named, expected in zip(fresh, expectations.of(fresh), strict=True):
            cost, chance = costs[named.settings.id], expected.chance_below(math.log(WORTHWHILE))
            spared = any(is_cheaper(cost, tie) for tie in ties) and not any(costs_no_more(tie, cost) for tie in ties)
            if spared and chance >= LIKELY and chance > smaller.get(cost, (0.0, named))[0]:
                smaller[cost] = chance, named
        smallest = [cost for cost in smaller if not any(is_cheaper(other, cost) for other in smaller)]
        smallest.sort(key=lambda cost: -smaller[cost][0])
        return [smaller[cost][1] for cost in smallest[:SMALLER_TOGETHER]]


def _most_to_gain(run: Run, leader: Candidate) -> float:
    """How many times as fast a step could be that never waits and has the cores for itself: as compute alone."""
    if run.floor.step_s is None or leader.step_s is None or run.floor.step_s.value <= 0:
        return math.inf
    # The wait is known by itself, also where compute alone was measured in a slow spell of the machine.
    waiting = 0.0 if leader.input_fraction is None else min(leader.input_fraction.value, 0.99)
    return max(leader.step_s.value / run.floor.step_s.value, 1 / (1 - waiting))


def _is_verdict_left_open(run: Run, left: Sequence[Candidate]) -> bool:
    """On what the user has or on the fastest."""
    told = {run.current, fastest(left).id}
    return any(is_left_open(c) for c in left if c.id in told)
