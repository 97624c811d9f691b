"""How far off predictions of steps are that the model makes from a few capacities, without having seen the steps.

    python -m tests.bench.bench_prediction [--workloads NAME,...] [--speeds fast,near,slow] [--candidates 6]
                                           [--rounds 3] [--seconds 0.75] [--budget 900] [--patience 0]
                                           [--seed 0] [--json FILE]

On each workload of ``workloads.py``: the pipeline as it is and what the model then asks for are drained alone. For
three simulated steps (a third of the quickest predicted batch, the median one, and half as much again) settings drawn
at random are then measured that were not drained, in rounds in which what was drained is drained again, since
processors get faster and slower within minutes. One line for each of them, with what the model predicts from the drains
of these rounds, then a summary. ``spread`` is the half width of the measured step's 95 % interval: what no model could
undercut. ``informed`` are the errors of a model that has seen the other measured steps too, as it has in a run when it
proposes what to measure next. Goals, for each of the two: median error at most 5 %, 90th percentile at most 15 %; ends
with 1 if the first misses one.

Wants a machine without other work; ``--patience`` waits up to so many seconds before each block for others to pause.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import psutil

from tests.bench.workloads import WORKLOADS, BenchWorkload, grid_of
from tests.unit.machine import started
from tfpipe.analysis.operational import PipelineModel, PredictionErrors, build_model
from tfpipe.analysis.operational.errors import MEDIAN_ERROR, P90_ERROR, summarise
from tfpipe.engine.in_process import InProcessExecutor
from tfpipe.messages import (
    Length,
    MeasureCapacity,
    Measured,
    MeasureFetchFloor,
    MeasureFloor,
    MeasureStep,
    Prepare,
    Prepared,
    Request,
)
from tfpipe.records import Run
from tfpipe.runner.assemble import assemble_run
from tfpipe.runner.journal import CandidateMeasured, CandidatesChosen, Entry, FloorMeasured, WorkloadPrepared
from tfpipe.settings import NamedSettings, PipelineSettings
from tfpipe.units import format_seconds

# A step shorter than this is all fetching.
SHORTEST_STEP_S = 0.5e-3
SPEEDS = ("fast", "near", "slow")
PROBE_ROUNDS = 4
# Cores that others may use while a block is measured, and for how long they are watched before.
OTHERS, WATCH_S = 0.25, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting behind one step. ``informed_s`` is the prediction that knows the other steps."""

    workload: str
    speed: str
    settings: str
    limit: str
    predicted_s: float
    informed_s: float
    measured_s: float
    spread: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1

    @property
    def informed_error(self) -> float:
        return self.informed_s / self.measured_s - 1


class Bench:
    """One workload in this process: what was measured so far, as the entries of a run's journal."""

    def __init__(self, workload: BenchWorkload, *, seconds: float, patience_s: float) -> None:
        self._workload = workload
        self._seconds = seconds
        self._patience_s = patience_s
        self._executor = InProcessExecutor({}, on_progress=lambda progress: None)
        self._capacities: list[CandidateMeasured] = []
        self._steps: list[Entry] = []
        self.prepare("none")
        assert self._prepared.pipeline is not None
        self.grid = grid_of(workload, self._prepared.pipeline)

    def close(self) -> None:
        self._executor.close()

    def prepare(self, step: str) -> None:
        """Begin anew with another step."""
        reply = self._executor.execute(Prepare(workload=self._workload.workload(step)))
        if not isinstance(reply, Prepared):
            raise RuntimeError(f"{self._workload.name}: {reply}")
        self._prepared = reply
        self._capacities = []
        self._steps = []

    def drain(self, settings: PipelineSettings, number: int = -1) -> None:
        length = Length(warmup_steps=2, warmup_s=0.15, steps=4, seconds=self._seconds / 2)
        measured = self._ask(MeasureCapacity(settings=settings, round=number, length=length))
        self._capacities.append(CandidateMeasured(id=settings.id, measured=measured))

    def measure_fetch(self, number: int) -> None:
        length = Length(warmup_steps=2, warmup_s=0.1, steps=5, seconds=self._seconds / 2)
        self._steps.append(FloorMeasured(measured=self._ask(MeasureFetchFloor(round=number, length=length))))

    def measure_floor(self, number: int) -> None:
        length = Length(warmup_steps=1, warmup_s=0.1, steps=5, seconds=self._seconds / 2)
        self._steps.append(FloorMeasured(measured=self._ask(MeasureFloor(round=number, length=length))))

    def measure_step(self, settings: PipelineSettings, number: int) -> None:
        length = Length(warmup_steps=2, warmup_s=0.5, steps=5, seconds=self._seconds)
        measured = self._ask(MeasureStep(settings=settings, round=number, length=length))
        self._steps.append(CandidateMeasured(id=settings.id, measured=measured))

    def run(self, *, without_steps: Sequence[PipelineSettings] = ()) -> Run:
        """What was measured so far; ``without_steps`` leaves out the steps of some."""
        named = tuple(NamedSettings(name="", settings=settings) for settings in self.grid)
        left_out = {settings.id for settings in without_steps}
        steps = [e for e in self._steps if not isinstance(e, CandidateMeasured) or e.id not in left_out]
        beginning = [started(named), WorkloadPrepared(prepared=self._prepared), CandidatesChosen(candidates=named)]
        run = assemble_run([*beginning, *self._capacities, *steps])
        assert run is not None
        return run

    def model(self, *, without_steps: Sequence[PipelineSettings] = ()) -> PipelineModel:
        model = build_model(self.run(without_steps=without_steps))
        assert model is not None
        return model

    def _ask(self, request: Request) -> Measured:
        give_up = time.monotonic() + self._patience_s
        while time.monotonic() < give_up and _busy_cores() > OTHERS:
            pass
        reply = self._executor.execute(request)
        if not isinstance(reply, Measured):
            raise RuntimeError(f"{self._workload.name}: {request} failed: {reply}")
        return reply


def _busy_cores() -> float:
    """Cores that were busy while this process did nothing."""
    return sum(psutil.cpu_percent(interval=WATCH_S, percpu=True)) / 100


def bench_workload(
    workload: BenchWorkload,
    speeds: Sequence[str],
    *,
    candidates: int,
    rounds: int,
    seconds: float,
    patience_s: float,
    seed: int,
) -> list[Row]:
    """Probe, predict, measure; prints a line for each setting and step."""
    bench = Bench(workload, seconds=seconds, patience_s=patience_s)
    try:
        drained = _probe(bench)
        model = bench.model()
        batch_s = [model.device_step_s(one) for one in bench.grid if model.unknown(one) is None]
        step_s = {
            "fast": min(batch_s) / 3,
            "near": statistics.median(batch_s),
            "slow": 1.5 * statistics.median(batch_s),
        }
        unseen = [one for one in bench.grid if one not in drained and model.unknown(one) is None]
        drawn = random.Random(f"{seed}/{workload.name}").sample(unseen, min(candidates, len(unseen)))
        print(f"{workload.name}: {len(drained)} of {len(bench.grid)} settings drained alone, {len(drawn)} predicted")
        rows = []
        for speed in speeds:
            bench.prepare(f"simulated:{max(SHORTEST_STEP_S, step_s[speed]) * 1e6:.0f}us")
            rows += _measure(bench, workload.name, speed, drained=drained, drawn=drawn, rounds=rounds, seed=seed)
        return rows
    finally:
        bench.close()


def _probe(bench: Bench) -> list[PipelineSettings]:
    """Drain what is written and whatever the model then asks for; a fetch, without which there is no run."""
    bench.measure_fetch(0)
    drained = [bench.grid[0]]
    bench.drain(bench.grid[0])
    for _ in range(PROBE_ROUNDS):
        wanted = [one for one in bench.model().probes(bench.grid) if one not in drained]
        if not wanted:
            break
        for one in wanted:
            bench.drain(one)
            drained.append(one)
    return drained


def _measure(
    bench: Bench,
    workload: str,
    speed: str,
    *,
    drained: Sequence[PipelineSettings],
    drawn: Sequence[PipelineSettings],
    rounds: int,
    seed: int,
) -> list[Row]:
    for number in range(rounds):
        bench.measure_floor(number)
        bench.measure_fetch(number)
        order = [*drained, *drawn]
        random.Random(f"{seed}/{number}").shuffle(order)
        for one in order:
            if one in drained:
                bench.drain(one, number)
            else:
                bench.measure_step(one, number)
    run = bench.run()
    predictor = bench.model(without_steps=drawn)
    rows = []
    for one in drawn:
        measured = run.candidate(one.id).step_s
        assert measured is not None
        bottleneck = predictor.bottleneck(one)
        rows.append(
            Row(
                workload=workload,
                speed=speed,
                settings=_label(one),
                limit="" if bottleneck is None else bottleneck.limit,
                predicted_s=predictor.predict(one).step_s,
                informed_s=bench.model(without_steps=[one]).predict(one).step_s,
                measured_s=measured.value,
                spread=(measured.high - measured.low) / 2 / measured.value,
            )
        )
        print(_line(rows[-1]), flush=True)
    return rows


def _label(settings: PipelineSettings) -> str:
    name = settings.id.replace("workloads.", "").replace("apply_default_optimizations", "rewrites")
    return name.replace("private_threadpool_size", "pool").replace("prefetch.buffer_size", "prefetch")


def _line(row: Row) -> str:
    predicted, measured = format_seconds(row.predicted_s), format_seconds(row.measured_s)
    return (
        f"  {row.speed:<5}{row.settings[:58]:<59}{predicted:>9}{measured:>9}"
        f"{row.error * 100:>+7.1f} %{row.informed_error * 100:>+7.1f} %{row.spread * 100:>6.1f} %  {row.limit}"
    )


def _summary(name: str, rows: Sequence[Row]) -> PredictionErrors | None:
    errors, informed = summarise(abs(r.error) for r in rows), summarise(abs(r.informed_error) for r in rows)
    if errors is None or informed is None:
        return None
    spread = statistics.median(row.spread for row in rows)
    print(
        f"{name:<28}{errors.count:>4}{errors.median * 100:>8.1f} %{errors.p90 * 100:>7.1f} %"
        f"{informed.median * 100:>8.1f} %{informed.p90 * 100:>7.1f} %{spread * 100:>8.1f} %"
        f"{'' if errors.fits else '  does not fit'}"
    )
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="", help="names with commas between; all if left out")
    parser.add_argument("--speeds", default=",".join(SPEEDS), help="of fast, near, slow")
    parser.add_argument("--candidates", type=int, default=6, help="settings of each workload to predict and measure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.75, help="of each block")
    parser.add_argument("--budget", type=float, default=math.inf, help="no workload begins after so many seconds")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to wait for others before each block")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="file for the rows")
    arguments = parser.parse_args()
    names = [name for name in arguments.workloads.split(",") if name]
    chosen = [workload for workload in WORKLOADS if not names or workload.name in names]
    speeds = [speed for speed in arguments.speeds.split(",") if speed]
    if not chosen or not set(speeds) <= set(SPEEDS):
        parser.error(f"workloads: {', '.join(workload.name for workload in WORKLOADS)}; speeds: {', '.join(SPEEDS)}")
    begin = time.monotonic()
    rows: list[Row] = []
    print(f"  step setting{'':<53}predicted measured    error informed spread  limit of the pipeline")
    for workload in chosen:
        if time.monotonic() - begin > arguments.budget:
            print(f"{workload.name}: left out, the budget is used up")
            continue
        rows += bench_workload(
            workload,
            speeds,
            candidates=arguments.candidates,
            rounds=arguments.rounds,
            seconds=arguments.seconds,
            patience_s=arguments.patience,
            seed=arguments.seed,
        )
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump([{name: getattr(row, name) for name in Row.__slots__} for row in rows], file)
    print(f"\n{'':<28}{'n':>4}{'median':>10}{'90th':>9}{'informed':>10}{'90th':>9}{'spread':>10}")
    for workload in chosen:
        _summary(workload.name, [row for row in rows if row.workload == workload.name])
    for speed in speeds:
        _summary(f"{speed} steps", [row for row in rows if row.speed == speed])
    errors = _summary("all", rows)
    print(f"{time.monotonic() - begin:.0f} s")
    informed = summarise(abs(row.informed_error) for row in rows)
    if errors is None or informed is None:
        return 1
    _judge("from capacities alone", errors)
    _judge("informed", informed)
    return 0 if errors.fits else 1


def _judge(name: str, errors: PredictionErrors) -> None:
    for text, error, goal in (
        ("median error", errors.median, MEDIAN_ERROR),
        ("90th percentile", errors.p90, P90_ERROR),
    ):
        print(f"{'met   ' if error <= goal else 'MISSED'} {name}: {text} {error:.1%}, goal {goal:.0%}")


if __name__ == "__main__":
    sys.exit(main())
