"""A short window under the TensorFlow profiler, with step markers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfpipe.engine.loop import Step
from tfpipe.messages import Traced
from tfpipe.records import Block


def _epochs(dataset: Any) -> Iterator[Any]:
    """One epoch after the other; not ``repeat``, which would be a stage that the trace shows and training lacks."""
    while True:
        yield from dataset


def capture_trace(dataset: Any, step: Step, *, warmup_steps: int, steps: int, logdir: str) -> Traced:
    """Run ``steps`` marked steps under the profiler and write the session below ``logdir``.

    The fetch lies inside the marker, where XProf's Input Pipeline
    Analyzer expects it; ``_r=1`` is what makes the profiler take the event for a step.
    """
    batches = _epochs(dataset)
    batch = next(batches)
    for _ in range(warmup_steps):
        step.finish(step(batch))
        batch = next(batches)
    step_s: list[float] = []
    fetch_s: list[float] = []
    tf.profiler.experimental.start(logdir)
    try:
        begin = previous = time.perf_counter()
        for number in range(steps):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                asked = time.perf_counter()
                batch = next(batches)
                fetch_s.append(time.perf_counter() - asked)
                result = step(batch)
            now = time.perf_counter()
            step_s.append(now - previous)
            previous = now
        step.finish(result)
        now = time.perf_counter()
        step_s[-1] += now - previous
    finally:
        tf.profiler.experimental.stop()
    session = max(Path(logdir).glob("plugins/profile/*"), key=lambda path: path.stat().st_mtime)
    size_bytes = sum(path.stat().st_size for path in session.iterdir())
    block = Block(
        kind="trace",
        round=0,
        warmup_steps=warmup_steps,
        steps=steps,
        elapsed_s=now - begin,
        step_s=tuple(step_s),
        fetch_s=tuple(fetch_s),
        synchronous=step.synchronous,
    )
    return Traced(path=str(session), block=block, size_bytes=size_bytes)
