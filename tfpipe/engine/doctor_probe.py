"""``python -m tfpipe.engine.doctor_probe``: what TensorFlow sees and whether its profiler works, as one JSON object.

A process of its own, so that ``tfpipe doctor`` survives a TensorFlow that does not import.
"""

from __future__ import annotations

import json
import os
import tempfile
import traceback
from pathlib import Path
from typing import Any

PROFILED_STEPS = 3
# XSpace names its planes; a capture that the GPU's driver refused has none for the device.
_GPU_PLANE = b"/device:GPU:"


def probe() -> dict[str, Any]:
    """``devices`` (name, kind), ``profiler`` (None or what went wrong), ``gpu_traced`` (None without a GPU)."""
    import tensorflow as tf

    devices = [{"name": device.name, "kind": device.device_type} for device in tf.config.list_physical_devices()]
    has_gpu = any(device["kind"] == "GPU" for device in devices)
    try:
        content = _capture(tf)
    except Exception as error:
        return {"devices": devices, "profiler": f"{type(error).__name__}: {error}", "gpu_traced": None}
    problem = None if content else "the profiler wrote no trace"
    return {"devices": devices, "profiler": problem, "gpu_traced": _GPU_PLANE in content if has_gpu else None}


def _capture(tf: Any) -> bytes:
    """The trace of a few steps of a tiny pipeline and step, as bytes; empty when none was written."""

    step = tf.function(lambda batch: tf.reduce_sum(tf.matmul(batch, batch)))
    batches = iter(tf.data.Dataset.from_tensors(tf.ones([64, 64])).repeat())
    step(next(batches))
    with tempfile.TemporaryDirectory() as logdir:
        tf.profiler.experimental.start(logdir)
        try:
            for number in range(PROFILED_STEPS):
                with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                    step(next(batches)).numpy()
        finally:
            tf.profiler.experimental.stop()
        return b"".join(path.read_bytes() for path in Path(logdir).glob("plugins/profile/*/*.xplane.pb"))


def main() -> None:
    """Print the probe's findings, or ``{"error": ...}`` when TensorFlow cannot be used at all."""
    # TensorFlow's libraries write to stdout's file descriptor now and then; the answer must stand alone.
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        findings = probe()
    except Exception as error:
        traceback.print_exc()
        findings = {"error": f"{type(error).__name__}: {error}"}
    with os.fdopen(answer, "w") as file:
        file.write(json.dumps(findings) + "\n")


if __name__ == "__main__":
    main()
