"""Spaces of settings that exist on paper, a model of them that errs, and a driver that measures as a search says.

What is measured has noise of its own; the truth is known, and so is what a choice costs.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.unit.machine import BATCH_SIZE, prepared, workload
from tfpipe.analysis.ranking import contenders, fastest
from tfpipe.records import Block, Candidate, Floor, Interval, Prediction, Run
from tfpipe.runner.plan import MIN_ROUNDS
from tfpipe.runner.search.base import Decision, Search
from tfpipe.runner.search.space import Space, listed_beginning, make_space
from tfpipe.settings import NamedSettings, PipelineSettings

CORES = 2
FLOOR_S = 0.02
CALLS = (None, 2, 4, 8, "auto")
DEPTHS = (0, 1, 2, "auto")
POOLS = (None, 16)


def product_settings() -> tuple[NamedSettings, ...]:
    """80 of them; the first is what the user has."""
    return tuple(
        NamedSettings(
            name="",
            settings=PipelineSettings(map_parallelism=calls, prefetch_depth=depth, order=order, threadpool=pool),
        )
        for calls, depth, order, pool in itertools.product(CALLS, DEPTHS, ("map-batch", "batch-map"), POOLS)
    )


def listed_space(candidates: Sequence[NamedSettings], is_allowed=lambda settings: True) -> Space:
    first = listed_beginning(candidates, None)
    return make_space(first, (), candidates, pipeline=None, cores=CORES, is_allowed=is_allowed)


@dataclass
class World:
    """A pipeline drawn at random: what an example costs a processor, how long it waits, what batching it saves.

    ``step_s`` is the truth by id, ``predicted_s`` what the model says: the same laws with parameters that are a bit
    off, and without what each setting has of its own.
    """

    seed: int
    noise: float = 0.03
    own: float = 0.01
    error: float = 0.05
    settings: tuple[NamedSettings, ...] = field(default_factory=product_settings)
    step_s: dict[str, float] = field(default_factory=dict)
    predicted_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        draw = random.Random(self.seed)
        cpu_s = math.exp(draw.uniform(math.log(0.05), math.log(3.0))) * FLOOR_S / BATCH_SIZE
        wait_s = draw.choice((0.0, 0.0, draw.uniform(0, 10) * FLOOR_S / BATCH_SIZE))
        batched = draw.choice((1.0, draw.uniform(0.2, 2.0)))
        wrong = {knob: math.exp(draw.gauss(0, self.error)) for knob in ("cpu", "wait", "batched")}

        for named in self.settings:
            own = math.exp(draw.gauss(0, self.own))
            self.step_s[named.settings.id] = _step_s(named.settings, own * cpu_s, own * wait_s, batched)
            self.predicted_s[named.settings.id] = _step_s(
                named.settings, cpu_s * wrong["cpu"], wait_s * wrong["wait"], batched * wrong["batched"]
            )

    def predict(self, settings: PipelineSettings) -> Prediction:
        step_s = self.predicted_s[settings.id]
        return Prediction(step_s=step_s, capacity_examples_per_s=BATCH_SIZE / step_s)

    def unknown(self, settings: PipelineSettings) -> str | None:
        return None if settings.id in self.predicted_s else "it was never seen"

    def probes(self, settings: Sequence[PipelineSettings]) -> tuple[PipelineSettings, ...]:
        return ()

    def block(self, identity: str, number: int) -> Block:
        """The block of round ``number``, the same whenever it is asked for."""
        factor = math.exp(random.Random(f"{self.seed}/{identity}/{number}").gauss(0, self.noise))
        step_s = self.step_s[identity] * factor
        return Block(
            kind="step",
            round=number,
            warmup_steps=1,
            steps=1,
            elapsed_s=step_s,
            step_s=(step_s,),
            fetch_s=(0.0,),
        )

    def regret(self, identity: str) -> float:
        """The share of the best throughput of the space that is lost by choosing ``identity``."""
        return 1 - min(self.step_s.values()) / self.step_s[identity]


def _step_s(settings: PipelineSettings, cpu_s: float, wait_s: float, batched: float) -> float:
    calls = {None: 1, "auto": CORES}.get(settings.map_parallelism, settings.map_parallelism)
    threads = settings.threadpool or CORES
    if settings.order == "batch-map":
        cpu_s *= batched
    rate = min(min(calls, threads) / (cpu_s + wait_s), CORES / cpu_s)
    batch_s = BATCH_SIZE / rate
    return FLOOR_S + batch_s if settings.prefetch_depth == 0 else max(FLOOR_S, batch_s)


@dataclass
class Course:
    """What a search made of a world: the run, the decisions, and the blocks that were measured."""

    run: Run
    decisions: list[Decision]
    blocks: int
    stopped: bool

    @property
    def chosen(self) -> str:
        return fastest(contenders(self.run.candidates)).id


def drive(search: Search, world: World, *, max_blocks: int = 10_000) -> Course:
    """Rounds as ``Profile`` makes them: the search is asked after each, and nothing joins that there is no room for."""
    alive = {named.settings.id: named for named in search.first()}
    everyone = dict(alive)
    predictions: dict[str, Prediction] = {}
    dropped: dict[str, str] = {}
    blocks: dict[str, list[Block]] = {}
    decisions: list[Decision] = []
    used = number = 0
    stopped = False
    while not stopped and (used + len(alive) <= max_blocks or number < MIN_ROUNDS):
        for identity in alive:
            blocks.setdefault(identity, []).append(world.block(identity, number))
        used += len(alive)
        number += 1
        decision = search.next(run_of(world, everyone.values(), blocks, predictions, dropped))
        decisions.append(decision)
        dropped.update(decision.drop)
        for identity in decision.drop:
            del alive[identity]
        joining = decision.add if used + MIN_ROUNDS * (len(alive) + len(decision.add)) <= max_blocks else ()
        for named in joining:
            alive[named.settings.id] = everyone[named.settings.id] = named
            predictions |= {k: v for k, v in decision.predictions.items() if k == named.settings.id}
        stopped = decision.stop and number >= MIN_ROUNDS
    run = run_of(world, everyone.values(), blocks, predictions, dropped)
    return Course(run=run, decisions=decisions, blocks=used, stopped=stopped)


def run_of(world: World, chosen, blocks, predictions, dropped) -> Run:
    candidates = tuple(_candidate(named, blocks.get(named.settings.id, []), predictions, dropped) for named in chosen)
    facts = prepared(workload())
    return Run(
        tfpipe_version="0",
        created="2026-01-01T00:00:00+00:00",
        command=("tfpipe",),
        complete=False,
        environment=facts.environment,
        data=facts.data,
        step=facts.step,
        floor=Floor(step_s=Interval(value=FLOOR_S, low=0.98 * FLOOR_S, high=1.02 * FLOOR_S), fetch_s=0.0, blocks=()),
        pipeline=None,
        current=candidates[0].id,
        candidates=candidates,
        recommendation=None,
        warnings=(),
    )


def _candidate(named: NamedSettings, blocks: Sequence[Block], predictions, dropped) -> Candidate:
    identity = named.settings.id
    candidate = Candidate(
        id=identity,
        name=named.name,
        settings=named.settings,
        status="complete" if blocks else "skipped",
        blocks=tuple(blocks),
        predicted=predictions.get(identity),
        dropped=dropped.get(identity),
    )
    if not blocks:
        return candidate
    step_s = sum(b.elapsed_s for b in blocks) / sum(b.steps for b in blocks)
    rate = BATCH_SIZE / step_s
    return replace(
        candidate,
        step_s=Interval(value=step_s, low=step_s, high=step_s),
        examples_per_s=Interval(value=rate, low=rate, high=rate),
        capacity_examples_per_s=rate,
    )
