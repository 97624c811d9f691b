"""A long run stays flat: resident memory, threads and open files of the worker over hundreds of candidates.

    python -m tests.bench.bench_long_run [CANDIDATES]

The real worker process measures each candidate once. Goal: resident memory grows by less than 10 % after the tenth
candidate, and no thread or file handle is left behind.
"""

from __future__ import annotations

import itertools
import sys

import psutil

from tests.unit.machine import workload
from tfpipe.messages import CaptureTrace, Length, MeasureStep, Prepare
from tfpipe.runner.process import WORKER_COMMAND, ProcessExecutor
from tfpipe.settings import grid

LENGTH = Length(warmup_steps=1, warmup_s=0.0, steps=3, seconds=0.05)


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    everything = grid(
        {
            "shuffle_buffer": (0, 1000, 5000, 20_000, "full"),
            "map_parallelism": (None, 1, 2, 4, "auto"),
            "prefetch_depth": (0, 1, 2, 8, "auto"),
            "order": ("map-batch", "batch-map"),
            "rewrites": ("default", "off"),
        }
    )
    executor = ProcessExecutor(WORKER_COMMAND, on_progress=lambda progress: None)
    seen = []
    try:
        executor.execute(Prepare(workload=workload("simulated:1ms")))
        (worker,) = psutil.Process().children()
        for number, settings in enumerate(itertools.islice(everything, wanted), 1):
            executor.execute(MeasureStep(settings=settings, round=0, length=LENGTH))
            if number % 50 == 0:
                executor.execute(CaptureTrace(settings=settings, warmup_steps=1, steps=3, logdir="/tmp/traces/bench"))
            seen.append((worker.memory_info().rss, worker.num_threads(), worker.num_fds()))
            if number in (1, 10) or number % 50 == 0:
                memory, threads, files = seen[-1]
                print(f"{number:4d} candidates  {memory / 2**20:7.0f} MiB  {threads:3d} threads  {files:3d} files")
    finally:
        executor.close()
    tenth = seen[9]
    growth = max(memory for memory, _, _ in seen[9:]) / tenth[0] - 1
    print(f"resident memory after the tenth: at most {growth:+.1%} (goal: under +10 %)")
    print(f"threads {tenth[1]} -> {seen[-1][1]}, files {tenth[2]} -> {seen[-1][2]}")


if __name__ == "__main__":
    main()
