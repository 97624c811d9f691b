"""How near the best of a grid a search comes, and in how little of the grid's time.

    python -m tests.bench.bench_search [--workloads NAME,...] [--step simulated:10ms] [--rounds 6] [--scale 1]
                                       [--share 0.16] [--seeds 10] [--keep DIR]

Each workload's grid is measured whole in interleaved rounds; every search is then replayed on those blocks through the
course of a real run, confirmation and traces included, with ``--share`` of the grid's time as its budget (the grid's
time is that of its three rounds; a run may end a round later than its budget). Random search and Optuna's TPE are
repeated with ``--seeds`` seeds. Regret is against the best of the grid, chosen in other rounds than it is compared in;
below 0 is chance. ``--scale`` shortens the blocks, as a time budget does. ``--keep`` holds the measured grids,
which are used again when they are there. Goals for the model: at most 20 % of the time, at most 3 % regret.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import msgspec

from tests.bench.replay import Recording, ReplayExecutor, record
from tests.bench.workloads import WORKLOADS, BenchWorkload
from tfpipe.analysis.operational import prediction_errors
from tfpipe.records import Run
from tfpipe.runfile import TRACES_NAME
from tfpipe.runner.assemble import assemble_run
from tfpipe.runner.journal import VERSION, Journal, Started
from tfpipe.runner.process import WORKER_COMMAND, ProcessExecutor
from tfpipe.runner.profile import Profile
from tfpipe.settings import SearchName
from tfpipe.sites import Axis, OverrideValue

TIME_GOAL = 0.2
REGRET_GOAL = 0.03
TOLERANCE = 0.02
# A search is for spaces that nobody would measure whole.
LEAST_SETTINGS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``share`` is of the grid's time; ``thinking_s`` is what the course and the search took beside measuring."""

    share: float
    regret: float
    candidates: int
    thinking_s: float
    run: Run


class _Silent:
    def show(self, text: str, *, elapsed_s: float, budget_s: float) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="", help="names with commas between; all if left out")
    parser.add_argument("--step", default="simulated:10ms")
    parser.add_argument("--rounds", type=int, default=6, help="measured rounds of each grid")
    parser.add_argument("--scale", type=float, default=1.0, help="of the length of blocks")
    parser.add_argument("--share", type=float, default=0.16, help="of the grid's time, for each search")
    parser.add_argument("--seeds", type=int, default=10, help="repetitions of the searches that draw")
    parser.add_argument("--keep", type=Path, help="folder of measured grids")
    arguments = parser.parse_args()
    names = [name for name in arguments.workloads.split(",") if name]
    chosen = [_widened(workload) for workload in WORKLOADS if not names or workload.name in names]
    if not chosen:
        parser.error(f"there are {', '.join(workload.name for workload in WORKLOADS)}")
    print(
        f"step {arguments.step}; each search has {arguments.share:.0%} of the grid's time; regret in % (worst of seeds)"
    )
    print(
        f"{'workload':<20}{'grid':>5}{'time':>8}{'gain':>6}"
        + "".join(f" |{name:>7}{'time':>6}{'regret':>16}" for name in ("model", "random", "optuna", "grid"))
        + " | error of predictions"
    )
    missed = 0
    for workload in chosen:
        recording = _recorded(workload, arguments.step, arguments.rounds, arguments.scale, arguments.keep)
        missed += _compare(recording, workload.name, share=arguments.share, seeds=arguments.seeds)
    print(f"{missed} of {len(chosen)} workloads miss a goal: {TIME_GOAL:.0%} of the time, {REGRET_GOAL:.0%} regret")
    return 1 if missed else 0


def _widened(workload: BenchWorkload) -> BenchWorkload:
    """With another knob where the grid is smaller than LEAST_SETTINGS: a pool, or the order of the examples."""
    if math.prod(map(len, workload.axes.values())) >= LEAST_SETTINGS or workload.apart:
        return workload
    more: dict[Axis, tuple[OverrideValue, ...]] = (
        {"deterministic": (True, False)} if "threadpool" in workload.axes else {"threadpool": (None, 8)}
    )
    return replace(workload, axes=workload.axes | more)


def _recorded(workload: BenchWorkload, step: str, rounds: int, scale: float, folder: Path | None) -> Recording:
    path = None if folder is None else folder / f"{workload.name}-{step.replace(':', '')}-{rounds}-{scale:g}.json"
    if path is not None and path.is_file():
        return msgspec.json.decode(path.read_bytes(), type=Recording)
    with open(os.devnull, "wb") as log:
        executor = ProcessExecutor(WORKER_COMMAND, on_progress=lambda progress: None, log=log)
        try:
            recording = record(executor, workload, step, rounds=rounds, scale=scale)
        finally:
            executor.close()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(recording))
    return recording


def _compare(recording: Recording, name: str, *, share: float, seeds: int) -> bool:
    """Print the workload's line; whether a goal was missed."""
    # The grid stops after its least number of rounds, which is what a search has to undercut.
    grid = replay(recording, "grid", time_budget_s=0.0)
    grid_s = grid.run.timings_s["measure"]
    budget_s = share * grid_s
    model = [replay(recording, "model", time_budget_s=budget_s, grid_s=grid_s)]
    random = [replay(recording, "random", time_budget_s=budget_s, grid_s=grid_s, seed=seed) for seed in range(seeds)]
    optuna = [replay(recording, "optuna", time_budget_s=budget_s, grid_s=grid_s, seed=seed) for seed in range(seeds)]
    first, best = recording.settings[0].id, min(recording.steps, key=recording.regret)
    gain = (1 - recording.regret(best)) / (1 - recording.regret(first))
    errors = prediction_errors(model[0].run)
    line = f"{name:<20}{len(recording.settings):>5}{grid_s:>7.0f}s{gain:>6.2f}"
    for outcomes in (model, random, optuna, [grid]):
        line += _column(outcomes)
    if errors is not None:
        line += f" | {errors.median:.1%}, 90th {errors.p90:.1%} of {errors.count}"
    print(line + f"; thought {model[0].thinking_s:.1f} s", flush=True)
    return model[0].share > TIME_GOAL or model[0].regret > REGRET_GOAL


def _column(outcomes: Sequence[Outcome]) -> str:
    regrets = [100 * outcome.regret for outcome in outcomes]
    worst = f" ({max(regrets):.1f})" if len(regrets) > 1 else ""
    return (
        f" |{statistics.fmean(o.candidates for o in outcomes):>7.1f}{statistics.fmean(o.share for o in outcomes):>6.0%}"
        f"{f'{statistics.fmean(regrets):.1f}{worst}':>16}"
    )


def replay(
    recording: Recording, search: SearchName, *, time_budget_s: float, grid_s: float | None = None, seed: int = 0
) -> Outcome:
    """One run of ``search`` on what was measured."""
    started = Started(
        version=VERSION,
        tfpipe_version="0",
        created="",
        command=(),
        workload=msgspec.structs.replace(recording.workload, seed=seed),
        knobs={},
        candidates=recording.named,
        only_current=False,
        large_grid_allowed=True,
        steps=None,
        time_budget_s=time_budget_s,
        search=search,
        search_tolerance=TOLERANCE,
    )
    executor = ReplayExecutor(recording)
    begin = time.process_time()
    # In memory where there is such a place: each line of a journal waits for the disk.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        journal = Journal(Path(directory) / "journal.jsonl")
        journal.append(started)
        Profile(executor, journal, Path(directory) / TRACES_NAME, _Silent(), clock=executor.clock).run()
        journal.close()
        run = assemble_run(journal.entries)
    assert run is not None
    assert run.recommendation is not None
    return Outcome(
        share=run.timings_s["measure"] / (grid_s or run.timings_s["measure"]),
        regret=recording.regret(run.recommendation.candidate),
        candidates=len(run.candidates),
        thinking_s=time.process_time() - begin,
        run=run,
    )


if __name__ == "__main__":
    sys.exit(main())
