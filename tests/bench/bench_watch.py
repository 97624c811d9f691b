"""What watching for new graphs and sampling the device cost, as a share of a 1 ms step. Goal: under 1 %.

    python -m tests.bench.bench_watch [ROUNDS]

By itself: what the watch adds to a call with nothing else in it, and the processor time of one sample. Then on a
``tf.function`` of about 1 ms: single calls with and without the watch, in pairs and in random order; and blocks of the
loop with and without both, as in a run and with samples MORE times as often, whose cost is that many times as
large while the machine's noise stays. Intervals are 95 %, of differences within a pair or a round, trimmed.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from tfpipe.analysis.statistics import paired_ratio, trimmed_mean
from tfpipe.engine.device_use import INTERVAL_S, Meter, ProcessCpuMeter, ThreadSampler, open_sampler
from tfpipe.engine.environment import read_environment
from tfpipe.engine.loop import UseSampler, drive
from tfpipe.engine.retracing import TraceWatch
from tfpipe.messages import Length

ROUNDS = 60
STEP_S = 0.001
CALLS = 20_000
PAIRS = 5_000
SAMPLES = 200
MORE = 20
BLOCK = Length(warmup_steps=20, warmup_s=0.0, steps=1, seconds=0.4)


class MatmulStep:
    """A ``tf.function`` of matrix products that takes about ``STEP_S``."""

    description = "matrix products"
    synchronous = not tf.config.list_physical_devices("GPU")
    parameters = None
    traces = None

    def __init__(self) -> None:
        self.matrix = tf.random.normal([128, 128])
        products = 1
        while True:
            self.function = self._make(products)
            self.finish(self(None))
            took_s = statistics.median(self._timed() for _ in range(50))
            if took_s > 0.8 * STEP_S:
                break
            products = max(products + 1, int(products * min(2.0, STEP_S / took_s)))

    def _make(self, products: int) -> Any:
        def multiply(matrix: Any) -> Any:
            product = matrix
            for _ in range(products):
                product = tf.tanh(product @ matrix)
            return product

        return tf.function(multiply, autograph=False)

    def _timed(self) -> float:
        begin = time.perf_counter()
        self.finish(self(None))
        return time.perf_counter() - begin

    def __call__(self, batch: Any) -> Any:
        return self.function(self.matrix)

    def finish(self, result: Any) -> None:
        result.numpy()


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    _print("watch, a call with nothing in it", _watch_s(), STEP_S)
    _print("sampler of the process's CPU use, CPU time of a sample", _sample_s(ProcessCpuMeter()), INTERVAL_S)
    sampler, note = open_sampler(read_environment().devices)
    if sampler.meter.source == "nvml":
        _print("sampler of NVML, CPU time of a sample", _sample_s(sampler.meter), INTERVAL_S)
    else:
        print(f"sampler of NVML: not measured ({note or 'no GPU here'})")

    step = MatmulStep()
    _print_calls(step)
    _print_blocks(step, sampler, rounds)


def _print(what: str, cost_s: float, of_s: float) -> None:
    print(f"{what}: {cost_s * 1e6:.2f} us, {cost_s / of_s:.3%} of {of_s * 1e3:.0f} ms")


def _watch_s() -> float:
    """Seconds that the watch adds to a call, the least of several tries."""
    function = tf.function(lambda: None)

    def nothing(function: Any) -> None:
        pass

    def timed(call: Callable[[Any], None]) -> float:
        begin = time.perf_counter()
        for _ in itertools.repeat(None, CALLS):
            call(function)
        return (time.perf_counter() - begin) / CALLS

    watched = TraceWatch().watched(nothing)
    return min(timed(watched) for _ in range(15)) - min(timed(nothing) for _ in range(15))


def _sample_s(meter: Meter) -> float:
    """Processor time per sample, waking up included."""
    used: list[float] = []

    class Timed:
        source = meter.source

        def begin(self) -> None:
            meter.begin()

        def read(self) -> Any:
            reading = meter.read()
            used.append(time.thread_time())
            return reading

    sampler = ThreadSampler(Timed(), interval_s=0.002)
    sampler.start()
    while len(used) < SAMPLES:
        time.sleep(0.01)
    sampler.stop()
    return (used[SAMPLES - 1] - used[0]) / (SAMPLES - 1)


def _print_calls(step: MatmulStep) -> None:
    bare: Callable[..., Any] = type(step.function).__call__
    calls = {"bare": bare, "watched": TraceWatch().watched(bare)}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(PAIRS):
        for name in random.sample(list(calls), len(calls)):
            begin = time.perf_counter()
            step.finish(calls[name](step.function, step.matrix))
            seconds[name].append(time.perf_counter() - begin)
    extra = trimmed_mean([after - before for before, after in zip(seconds["bare"], seconds["watched"], strict=True)])
    usual_s = statistics.median(seconds["bare"])
    bounds = (extra.value, extra.value - extra.half_width, extra.value + extra.half_width)
    value_us, low_us, high_us = (bound * 1e6 for bound in bounds)
    value, low, high = (bound / STEP_S for bound in bounds)
    change = f"{value_us:+.2f} us ({low_us:+.2f} to {high_us:+.2f})"
    print(f"watch, {PAIRS:,} pairs of calls of {usual_s * 1e3:.2f} ms: {change}")
    print(f"    {value:+.3%} ({low:+.3%} to {high:+.3%}) of {STEP_S * 1e3:.0f} ms")


def _print_blocks(step: MatmulStep, sampler: ThreadSampler, rounds: int) -> None:
    watch = TraceWatch()
    often = ThreadSampler(sampler.meter, interval_s=INTERVAL_S / MORE)
    variants: dict[str, tuple[TraceWatch | None, UseSampler | None]] = {
        "nothing": (None, None),
        "nothing, again": (None, None),
        "watch and sampler": (watch, sampler),
        f"sampler, {MORE} times": (None, often),
    }
    step_s: dict[str, dict[int, float]] = {name: {} for name in variants}
    for number in range(rounds):
        for name in random.sample(list(variants), len(variants)):
            step_s[name][number] = _block(step, number, *variants[name])
    print(f"\n{'beside the steps':20}  {'step':>8}  change, {rounds} rounds")
    for name, by_round in step_s.items():
        ratio = paired_ratio(by_round, step_s["nothing"])
        median = f"{name:20}  {statistics.median(by_round.values()) * 1e3:5.3f} ms"
        if ratio is None or name == "nothing":
            print(median)
            continue
        low, value, high = (bound - 1 for bound in (ratio.low, ratio.value, ratio.high))
        print(f"{median}  {value:+.2%} ({low:+.2%} to {high:+.2%})")
        if name not in ("nothing, again", "watch and sampler"):
            print(f"{'so once as often':20}  {'':>8}  {value / MORE:+.3%} ({low / MORE:+.3%} to {high / MORE:+.3%})")


def _block(step: MatmulStep, number: int, watch: TraceWatch | None, sampler: UseSampler | None) -> float:
    with watch if watch is not None else nullcontext():
        block = drive(
            itertools.repeat(None),
            step,
            BLOCK,
            kind="floor",
            round=number,
            retraces=watch.retraces if watch is not None else (),
            sampler=sampler,
        )
    return block.elapsed_s / block.steps


if __name__ == "__main__":
    main()
