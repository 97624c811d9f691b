"""A short window under the TensorFlow profiler, with step markers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfpipe.engine.loop import Step
from tfpipe.messages import Traced


def capture_trace(batches: Iterator[Any], step: Step, *, warmup_steps: int, steps: int, logdir: str) -> Traced:
    """Run ``steps`` marked steps under the profiler and write the session below ``logdir``.

    The fetch lies inside the marker, where XProf's Input Pipeline
    Analyzer expects it; ``_r=1`` is what makes the profiler take the event for a step.
    """
    for _ in range(max(1, warmup_steps)):
        batch = next(batches)
        step.finish(step(batch))
    fetch_s = 0.0
    tf.profiler.experimental.start(logdir)
    try:
        begin = time.perf_counter()
        for number in range(steps):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                asked = time.perf_counter()
                batch = next(batches)
                fetch_s += time.perf_counter() - asked
                result = step(batch)
        step.finish(result)
        elapsed_s = time.perf_counter() - begin
    finally:
        tf.profiler.experimental.stop()
    session = max(Path(logdir).glob("plugins/profile/*"), key=lambda path: path.stat().st_mtime)
    size_bytes = sum(path.stat().st_size for path in session.iterdir())
    return Traced(
        path=str(session), steps=steps, step_s=elapsed_s / steps, fetch_s=fetch_s / steps, size_bytes=size_bytes
    )
