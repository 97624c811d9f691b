"""Forecast of a candidate's memory against how much its process really grew.

    python tests/bench/bench_memory.py [BATCHES]

Each setting runs in a process of its own: open the generated CIFAR-100, run a plain pipeline so that TensorFlow's own
one-time growth is behind, note resident memory, make the candidate's iterator, let its buffers fill until nothing
grows any more, fetch BATCHES batches beside a step that sleeps, and note the peak. ``copied`` is the same data behind
a map, so that a shuffle buffer holds copies and not slices of the array. The forecast holds when the growth lies
between its two ends, give or take ALLOWED_MB. ``making`` is the peak while the iterator was made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

# Two runs of one setting differ by this much.
ALLOWED_MB = 4
BATCHES = 200
CASES: tuple[tuple[str, dict[str, object]], ...] = (
    ("source", {"prefetch_depth": 1}),
    ("source", {"shuffle_buffer": 5000, "map_parallelism": "auto", "prefetch_depth": "auto"}),
    ("source", {"shuffle_buffer": "full", "prefetch_depth": 1}),
    ("copied", {"shuffle_buffer": 5000, "prefetch_depth": 1}),
    ("copied", {"shuffle_buffer": "full", "prefetch_depth": 1}),
    ("source", {"prefetch_depth": 64, "map_parallelism": 2}),
    ("source", {"prefetch_depth": 256, "map_parallelism": 2, "order": "batch-map"}),
    ("source", {"prefetch_depth": 2, "map_parallelism": 64, "rewrites": "off"}),
    ("source", {"prefetch_depth": 2, "map_parallelism": 64, "threadpool": 16}),
    ("source", {"prefetch_depth": 2, "map_parallelism": 16, "threadpool": 16, "order": "batch-map"}),
    ("source", {"map_parallelism": None, "rewrites": "off"}),
)
BATCH_SIZE = 128

_CHILD = r'''
import dataclasses, json, sys, time
import psutil
from tfpipe.analysis.memory import AUTOTUNE_SHARE, forecast_memory, shared_row_bytes
from tfpipe.conditions import usable_cores
from tfpipe.engine import memory
from tfpipe.engine.pipeline import build_pipeline
from tfpipe.engine.sources import open_source
from tfpipe.settings import PipelineSettings
import tensorflow as tf

kind, knobs, batch_size, batches = json.loads(sys.argv[1])
settings = PipelineSettings(**knobs)
source = open_source("cifar100", data_dir=None, require_data=False, image_size=32, seed=0,
                     progress=lambda done, total: None, download=False)
row_bytes = 32 * 32 * 3
shared_bytes = shared_row_bytes(row_bytes)
if kind == "copied":
    plain = source
    source = dataclasses.replace(
        source, dataset=lambda: plain.dataset().map(lambda image, label: (255 - image, label)))
    shared_bytes = 0

def resident():
    return psutil.Process().memory_info().rss

def fill():
    """Until resident memory has not grown by 1 % in half a second."""
    before = 0
    while resident() > 1.01 * before:
        before = resident()
        time.sleep(0.5)

def run(settings, batches):
    """Peak while the iterator is made, and after that."""
    memory.reset_peak()
    iterator = iter(build_pipeline(source, settings, batch_size=batch_size, seed=0))
    making_bytes = memory.peak_bytes()
    memory.reset_peak()
    batch = next(iterator)
    fill()
    for _ in range(batches):
        batch = next(iterator)
        time.sleep(0.02)
    return making_bytes, memory.peak_bytes()

run(PipelineSettings(map_parallelism=2, prefetch_depth=1), 20)
resident_bytes = resident()
forecast = forecast_memory(
    settings, examples=source.examples, example_bytes=source.example_bytes, mapped_example_bytes=row_bytes * 4 + 8,
    batch_size=batch_size, cores=usable_cores(), resident_bytes=resident_bytes, shared_bytes=shared_bytes,
    array_bytes=source.examples * source.example_bytes,
    autotune_budget_bytes=int(AUTOTUNE_SHARE * psutil.virtual_memory().free),
)
making_bytes, peak_bytes = run(settings, batches)
print(json.dumps({
    "id": settings.id,
    "low": forecast.buffered_bytes,
    "high": sum(part.high_bytes for part in forecast.parts),
    "rewriting": forecast.rewriting_bytes,
    "making": making_bytes - resident_bytes,
    "grown": peak_bytes - resident_bytes,
    "arithmetic": forecast.arithmetic,
}))
'''


def main(batches: int) -> int:
    """Print the table; 1 when a growth lies outside its forecast."""
    failed = []
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, batch {BATCH_SIZE}, {batches} batches, MB")
    print(
        f"{'data':<7} {'setting':<42} {'forecast':>8} {'at most':>8} {'grown':>7} {'ratio':>6} {'rewriting':>9} "
        f"{'making':>7}"
    )
    for kind, knobs in CASES:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, json.dumps([kind, knobs, BATCH_SIZE, batches])],
            capture_output=True,
            text=True,
            env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
        )
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return 1
        result = json.loads(done.stdout)
        names = ("low", "high", "grown", "rewriting", "making")
        low, high, grown, rewriting, making = (result[name] / 1e6 for name in names)
        print(
            f"{kind:<7} {result['id']:<42} {low:8.1f} {high:8.1f} {grown:7.1f} {grown / low:6.2f} {rewriting:9.1f} "
            f"{making:7.1f}",
            flush=True,
        )
        if not low - ALLOWED_MB <= grown <= high + ALLOWED_MB or making > rewriting + ALLOWED_MB:
            failed.append(f"{kind} {result['id']}: {result['arithmetic']}")
    for line in failed:
        print(f"outside its forecast: {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else BATCHES))
