"""What tfpipe chooses against what people do without it, on the same pipelines.

    python -m tests.bench.bench_against [--workloads NAME,...] [--budget 60] [--step-factor 0.25]

For each workload: the pipeline as written, all AUTOTUNE, AUTOTUNE with batch before map (where that was proven equal),
the best of a hand-written grid (calls and prefetch, three seconds for each), and what ``tfpipe profile`` recommends
within ``--budget`` seconds. All of them are then measured side by side in interleaved rounds of one process. The device
is a simulated one that needs FACTOR of the time that the pipeline as written needs for a batch, so that there is
something to win. Rates are ratios to the pipeline as written with their 95 % intervals; ``=`` is not told apart from
tfpipe's, ``!`` is surely faster.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from tests.bench.workloads import WORKLOADS, BenchWorkload, named
from tfpipe.analysis.ranking import gain
from tfpipe.messages import Failed, Length, MeasureCapacity, Measured, MeasureStep, Prepare, Prepared, Workload
from tfpipe.records import Candidate, Run
from tfpipe.runner.conduct import begin, conduct
from tfpipe.runner.journal import VERSION, Started
from tfpipe.runner.process import WORKER_COMMAND, ProcessExecutor
from tfpipe.runner.proposals import propose_candidates
from tfpipe.settings import NamedSettings, PipelineSettings
from tfpipe.sites import sites_on
from tfpipe.units import format_bytes

GRID_S = 3.0
FINAL_BUDGET_S = 30.0
WRITTEN, AUTOTUNE, AUTOTUNE_BATCHED, BY_HAND, TFPIPE = (
    "as written",
    "all AUTOTUNE",
    "AUTOTUNE, batch first",
    "hand-written grid",
    "tfpipe",
)


class Silent:
    def show(self, text: str, *, elapsed_s: float, budget_s: float) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="", help="names with commas between; all if left out")
    parser.add_argument("--budget", type=float, default=60.0, help="tfpipe's time budget in seconds")
    parser.add_argument("--step-factor", type=float, default=0.25)
    arguments = parser.parse_args()
    wanted = [named(name) for name in arguments.workloads.split(",") if name] or WORKLOADS
    heads = f"{'examples/s':>10}  {'times as written':<19} {'buffered':>10} {'tuning':>8}  settings"
    print(f"{'workload':<20} {'way':<22} {heads}")
    for workload in wanted:
        compare(workload, budget_s=arguments.budget, factor=arguments.step_factor)


def compare(workload: BenchWorkload, *, budget_s: float, factor: float) -> None:
    executor = ProcessExecutor(WORKER_COMMAND, on_progress=lambda progress: None)
    try:
        prepared = executor.execute(Prepare(workload=workload.workload("none")))
        assert isinstance(prepared, Prepared), prepared
        step = f"simulated:{max(1.0, 1000 * factor * batch_s(executor)):.1f}ms"
    finally:
        executor.close()
    work = workload.workload(step)
    by_hand, by_hand_s = grid_by_hand(work, prepared)
    begun = time.monotonic()
    found = profiled(work, None, budget_s, search="model")
    tuning_s = {BY_HAND: by_hand_s, TFPIPE: time.monotonic() - begun}
    assert found.recommendation is not None
    ways = {WRITTEN: PipelineSettings(overrides=())}
    offered = {
        n.name: n.settings for n in propose_candidates(prepared.pipeline, {}, cores=os.cpu_count() or 1, yes=True)
    }
    if AUTOTUNE in offered:
        ways[AUTOTUNE] = offered[AUTOTUNE]
    if "batch before map, AUTOTUNE" in offered:
        ways[AUTOTUNE_BATCHED] = offered["batch before map, AUTOTUNE"]
    ways[BY_HAND] = by_hand
    ways[TFPIPE] = found.candidate(found.recommendation.candidate).settings
    distinct = {settings: NamedSettings(name="", settings=settings) for settings in ways.values()}
    final = profiled(work, tuple(distinct.values()), FINAL_BUDGET_S, search="grid")
    print_table(workload.name, final, ways, tuning_s, step)


def batch_s(executor: ProcessExecutor) -> float:
    """Seconds per batch of the pipeline as written, alone."""
    length = Length(warmup_steps=2, warmup_s=0.5, steps=4, seconds=2.0)
    reply = executor.execute(MeasureCapacity(settings=PipelineSettings(overrides=()), round=0, length=length))
    assert isinstance(reply, Measured), reply
    return reply.block.elapsed_s / reply.block.steps


def grid_by_hand(work: Workload, prepared: Prepared) -> tuple[PipelineSettings, float]:
    """What one writes in an afternoon: calls times prefetch, each for three seconds, the fastest wins; and its time."""
    assert prepared.pipeline is not None
    cores = os.cpu_count() or 1
    calls = sites_on("map_parallelism", prepared.pipeline.sites)
    depths = sites_on("prefetch_depth", prepared.pipeline.sites)[-1:]
    executor = ProcessExecutor(WORKER_COMMAND, on_progress=lambda progress: None)
    rates: dict[PipelineSettings, float] = {}
    try:
        executor.execute(Prepare(workload=work))
        begun = time.monotonic()
        for parallel in (1, cores, 2 * cores, "auto"):
            for depth in (0, 1, "auto"):
                turned = {site.id: parallel for site in calls} | {site.id: depth for site in depths}
                settings = PipelineSettings(overrides=tuple(sorted(turned.items())))  # type: ignore[arg-type]
                length = Length(warmup_steps=2, warmup_s=0.5, steps=4, seconds=GRID_S)
                reply = executor.execute(MeasureStep(settings=settings, round=0, length=length))
                if not isinstance(reply, Failed):
                    assert isinstance(reply, Measured)
                    rates[settings] = reply.block.steps / reply.block.elapsed_s
        return max(rates, key=lambda settings: rates[settings]), time.monotonic() - begun
    finally:
        executor.close()


def profiled(work: Workload, candidates: tuple[NamedSettings, ...] | None, budget_s: float, *, search: str) -> Run:
    """A run as ``tfpipe profile`` makes it."""
    started = Started(
        version=VERSION,
        tfpipe_version="bench",
        created="",
        command=(),
        workload=work,
        knobs={},
        candidates=candidates,
        only_current=False,
        large_grid_allowed=True,
        steps=None,
        time_budget_s=budget_s,
        search=search,
    )
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        journal = begin(directory, started, force=False)
        executor = ProcessExecutor(WORKER_COMMAND, on_progress=lambda progress: None)
        outcome = conduct(journal, directory, executor, Silent())
    assert outcome.run is not None
    return outcome.run


def print_table(name: str, run: Run, ways: dict[str, PipelineSettings], tuning_s: dict[str, float], step: str) -> None:
    written, ours = (run.candidate(ways[way].id) for way in (WRITTEN, TFPIPE))
    for way, settings in ways.items():
        candidate = run.candidate(settings.id)
        if candidate.examples_per_s is None:
            print(f"{name:<20} {way:<22} failed: {candidate.error}")
            continue
        times = "1" if candidate is written else _times(candidate, written)
        behind = gain(ours, candidate)
        tie = "=" if candidate is not ours and behind.low <= 1.0 <= behind.high else " "
        tie = "!" if behind.high < 1.0 else tie
        seconds = tuning_s.get(way)
        took = "-" if seconds is None else f"{seconds:.0f} s"
        print(
            f"{name:<20} {tie}{way:<21} {candidate.examples_per_s.value:>10,.0f}  {times:<19} "
            f"{format_bytes(candidate.buffered_bytes):>10} {took:>8}  {settings.id}",
            flush=True,
        )
    floor = run.floor.step_s.value if run.floor.step_s is not None else math.nan
    print(f"{'':<20} step {step}, at most {run.data.batch_size / floor:,.0f} examples/s", flush=True)


def _times(candidate: Candidate, written: Candidate) -> str:
    ratio = gain(candidate, written)
    return f"{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"


if __name__ == "__main__":
    main()
