"""Time and memory of ``tfpipe analyze`` from 1 MB to 300 MB, with XProf's Input Pipeline Analyzer in the same run.

    python tests/bench/bench_trace.py [MEGABYTES ...]

Records two real traces, one with few events per batch and one with 31 per element, repeats their events to the sizes
asked for, and runs each tool in a process of its own. Times leave imports out; "start" is a whole command from the
shell's point of view. Limits: 0.06 s per MB, six times the file's size in memory, 1 s for 3 MB start to finish.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

SIZES_MB = (1, 3, 10, 30, 100, 300)
MAX_S_PER_MB = 0.06
MAX_MEMORY_RATIO = 6.0
MAX_START_S = 1.0

_RECORD = r"""
import sys, time
import tensorflow as tf
image = tf.io.encode_jpeg(tf.zeros((375, 500, 3), tf.uint8)).numpy()
decode = lambda jpeg: tf.image.resize(tf.image.decode_jpeg(jpeg, channels=3), (224, 224))
pipelines = {
    "images": tf.data.Dataset.from_tensors(image).repeat().map(decode, num_parallel_calls=2).batch(16).prefetch(2),
    "elements": tf.data.Dataset.range(10**9).map(lambda x: x + 1, num_parallel_calls=2).batch(256).prefetch(2),
}
for name, dataset in pipelines.items():
    iterator = iter(dataset)
    next(iterator)
    tf.profiler.experimental.start(sys.argv[1] + "/" + name)
    for step in range(8):
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
            next(iterator)
            time.sleep(0.005)
    tf.profiler.experimental.stop()
    del iterator
"""
# The peak of this program alone: getrusage would count what the parent had in memory when it started it.
_PEAK = r"""
def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
"""
_OURS = (
    _PEAK
    + r"""
import sys, time
from pathlib import Path
from tfpipe.trace import analysis, schema
schema.xspace_class()
began, cpu = time.perf_counter(), time.process_time()
result = analysis.analyze_file(Path(sys.argv[1]))
print(time.perf_counter() - began, time.process_time() - cpu, peak(), result.input_fraction, result.events)
"""
)
_XPROF = (
    _PEAK
    + r"""
import json, sys, time
from xprof.convert import raw_to_tool_data
began, cpu = time.perf_counter(), time.process_time()
data, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "input_pipeline_analyzer", {})
wall, cpu = time.perf_counter() - began, time.process_time() - cpu
rows = next(t["rows"] for t in json.loads(data) if "infeed_time_ms_avg" in t.get("p", {}))
step = sum(row["c"][-1]["v"] for row in rows)
waiting = sum(row["c"][6]["v"] for row in rows)
print(wall, cpu, peak(), waiting / step if step else "nan", 0)
"""
)
_START = "from tfpipe.cli.analyze import analyze; analyze()"


def record(directory: Path) -> dict[str, Path]:
    """Two real traces, by name."""
    subprocess.run([sys.executable, "-c", _RECORD, str(directory)], check=True, capture_output=True)
    return {name: next((directory / name).rglob("*.xplane.pb")) for name in ("images", "elements")}


def repeat(source: Path, target: Path, megabytes: float) -> None:
    """Write ``source`` with its events repeated one after the other in time until it has about ``megabytes``."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(source.read_bytes())
    times = max(1, round(megabytes * 1e6 / source.stat().st_size))
    plane = max(space.planes, key=lambda plane: sum(len(line.events) for line in plane.lines))
    span_ps = max(event.offset_ps + event.duration_ps for line in plane.lines for event in line.events) + 10**9
    planes = []
    for line in plane.lines:
        events = xplane_pb2.XLine(events=line.events)
        del line.events[:]
        parts = [line.SerializeToString()]
        for _ in range(times):
            parts.append(events.SerializeToString())
            for event in events.events:
                event.offset_ps += span_ps
        planes.append(_field(3, b"".join(parts)))
    del plane.lines[:]
    target.write_bytes(_field(1, plane.SerializeToString() + b"".join(planes)))


def _field(number: int, content: bytes) -> bytes:
    length, size = len(content), b""
    while length >= 0x80:
        size += bytes([length & 0x7F | 0x80])
        length >>= 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content


class Measured(NamedTuple):
    """One run of a tool on a trace; nan where it failed. ``cpu_s`` is what ``wall_s`` is on an idle machine."""

    wall_s: float
    cpu_s: float
    peak_bytes: float
    input_fraction: float
    events: int


def measure(program: str, path: Path) -> Measured:
    """Run ``program`` on a trace in a process of its own."""
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    if done.returncode:
        return Measured(*[float("nan")] * 4, 0)
    *numbers, events = done.stdout.split()[-5:]
    return Measured(*map(float, numbers), int(events))


def start_to_finish(path: Path) -> float:
    """Seconds of a whole ``tfpipe analyze`` in a new process."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", _START, str(path)], check=True, capture_output=True)
    return time.perf_counter() - began


def main(sizes_mb: list[float]) -> int:
    """Print the table; 1 when a limit was passed."""
    failed = []
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; s/MB is CPU time, memory is times the file's size")
    print("                            tfpipe                                   XProf")
    print("trace       MB     events   wall s   s/MB memory  input from shell    wall s   s/MB memory  input")
    with tempfile.TemporaryDirectory() as directory:
        for name, source in record(Path(directory)).items():
            for size in sizes_mb:
                path = Path(directory) / f"{name}{size}" / "vm.xplane.pb"
                path.parent.mkdir()
                repeat(source, path, size)
                megabytes = path.stat().st_size / 1e6
                ours, theirs = measure(_OURS, path), measure(_XPROF, path)
                whole_s = start_to_finish(path)
                print(
                    f"{name:<9}{megabytes:5.1f} {ours.events:>10,} {_columns(ours, megabytes)} {whole_s:8.2f} s  "
                    f"{_columns(theirs, megabytes)}",
                    flush=True,
                )
                # The interpreter with NumPy takes 40 MB, so the ratio says something from 30 MB on.
                too_large = megabytes >= 30 and ours.peak_bytes > MAX_MEMORY_RATIO * megabytes * 1e6
                if too_large or ours.cpu_s > MAX_S_PER_MB * megabytes:
                    failed.append(f"{name} {size} MB")
                if megabytes <= 3.5 and whole_s > MAX_START_S:
                    failed.append(f"{name} {size} MB from the shell")
                path.unlink()
    if failed:
        print("over the limit: " + ", ".join(failed))
    return 1 if failed else 0


def _columns(run: Measured, megabytes: float) -> str:
    memory = run.peak_bytes / megabytes / 1e6
    return f"{run.wall_s:8.2f}  {run.cpu_s / megabytes:.3f} {memory:5.1f}x {run.input_fraction:6.1%}"


if __name__ == "__main__":
    sys.exit(main([float(argument) for argument in sys.argv[1:]] or list(SIZES_MB)))
