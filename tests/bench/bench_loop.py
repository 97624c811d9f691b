"""What the training loop's own clocks and bookkeeping cost per step, as a share of a 10 ms step.

    python -m tests.bench.bench_loop

The loop of ``tfpipe.engine.loop`` against a bare ``for`` loop over the same batches and the same step, interleaved in
one process. Goal: under 1 %.
"""

from __future__ import annotations

import itertools
import statistics
import time

from tfpipe.engine.loop import drive
from tfpipe.engine.steps.none import NoStep
from tfpipe.messages import Length

STEPS = 50_000
ROUNDS = 15
STEP_S = 0.010


def main() -> None:
    step = NoStep()
    length = Length(warmup_steps=100, warmup_s=0.0, steps=STEPS, seconds=0.0)
    bare, ours = [], []
    for number in range(ROUNDS):
        begin = time.perf_counter()
        for batch in itertools.repeat(None, STEPS):
            step(batch)
        bare.append((time.perf_counter() - begin) / STEPS)
        begin = time.perf_counter()
        drive(itertools.repeat(None), step, length, kind="step", round=number)
        ours.append((time.perf_counter() - begin) / (STEPS + 100))
    extra = [after - before for before, after in zip(bare, ours, strict=True)]
    median = statistics.median(extra)
    print(f"bare loop  {statistics.median(bare) * 1e9:8.0f} ns per step")
    print(f"our loop   {statistics.median(ours) * 1e9:8.0f} ns per step")
    print(f"overhead   {median * 1e9:8.0f} ns per step ({min(extra) * 1e9:.0f} to {max(extra) * 1e9:.0f})")
    print(f"of a {STEP_S * 1e3:.0f} ms step: {median / STEP_S:.4%} (goal: under 1 %)")


if __name__ == "__main__":
    main()
