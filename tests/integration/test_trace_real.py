"""Traces that TensorFlow records on the spot, and XProf's Input Pipeline Analyzer on the same files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tfpipe.trace.analysis import analyze_trace
from tfpipe.trace_records import TraceAnalysis

pytestmark = pytest.mark.tensorflow

# One process records them all: importing TensorFlow takes longer than any of them.
RECORD = r"""
import sys, time
import numpy as np
import tensorflow as tf

logs = sys.argv[1]
image = tf.io.encode_jpeg(tf.zeros((300, 400, 3), tf.uint8)).numpy()
images = tf.data.Dataset.from_tensors(image).repeat()
numbers = tf.data.Dataset.range(10**9)

def decode(jpeg):
    return tf.image.resize(tf.image.decode_jpeg(jpeg, channels=3), (160, 160))

def slow_read(ms):
    def read(value):
        time.sleep(ms / 1000)
        return np.float32(value)
    return lambda x: tf.ensure_shape(tf.numpy_function(read, [x], tf.float32), [])

def as_written(dataset):
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)

def idle(ms):
    return lambda batch: time.sleep(ms / 1000)

@tf.function
def multiply(batch):
    x = tf.ones((300, 300)) + tf.reduce_sum(tf.cast(batch, tf.float32)) * 0
    for _ in range(4):
        x = tf.matmul(x, x) * 1e-3
    return x

@tf.function
def loop(batch):
    x = tf.ones((300, 300)) + tf.reduce_sum(tf.cast(batch, tf.float32)) * 0
    for _ in tf.range(4):
        x = tf.matmul(x, x) * 1e-3
    return x

def record(name, dataset, step, markers={"_r": 1, "step_num": True}, steps=10, outside=False):
    iterator = iter(dataset)
    for _ in range(3):
        step(next(iterator))
    tf.profiler.experimental.start(f"{logs}/{name}")
    began, waited = [], []

    def fetch():
        began.append(time.perf_counter())
        batch = next(iterator)
        waited.append(time.perf_counter() - began[-1])
        return batch

    for number in range(steps):
        if markers is None:
            step(fetch())
            continue
        batch = fetch() if outside else None
        stats = {key: number if key == "step_num" else value for key, value in markers.items()}
        with tf.profiler.experimental.Trace("train", **stats):
            step(batch if outside else fetch())
    tf.profiler.experimental.stop()
    # Of the nine steps from fetch to fetch the first and the last are left out there too.
    print(name, sum(waited[1:-2]) / (began[-2] - began[1]), flush=True)

jpegs = images.map(decode, num_parallel_calls=2)
record("serial", as_written(numbers.map(slow_read(2)).batch(8)), idle(16))
record("prefetched", numbers.map(slow_read(1)).batch(4).prefetch(2), idle(60))
record("starved", as_written(numbers.map(slow_read(2)).batch(8).prefetch(2)), idle(5))
record("images", jpegs.batch(16).prefetch(2), idle(2))
record("serial_images", as_written(images.map(decode).batch(8)), multiply)
record("elements", numbers.map(lambda x: x + 1, num_parallel_calls=2).batch(512).prefetch(2), idle(3))
record("shuffled", images.map(decode).shuffle(16).batch(4).prefetch(2), multiply)
interleaved = numbers.interleave(
    lambda i: tf.data.Dataset.from_tensors(image).repeat(5).map(decode), cycle_length=4, num_parallel_calls=2)
record("interleaved", interleaved.batch(8).prefetch(2), multiply)
record("loop", jpegs.batch(4).prefetch(2), loop)
record("outside", as_written(numbers.map(slow_read(2)).batch(8)), idle(16), outside=True)
waits = as_written(numbers.map(slow_read(1)).batch(8))
record("unmarked", waits, idle(15), markers=None)
record("unnumbered", waits, idle(15), markers={})
record("unrooted", waits, idle(15), markers={"step_num": True})

import keras
model = keras.Sequential([keras.layers.Dense(64), keras.layers.Dense(1)])
model.compile("sgd", "mse")
rows = tf.data.Dataset.from_tensor_slices((np.ones((320, 8), "f4"), np.ones((320, 1), "f4"))).batch(8).prefetch(2)
model.fit(rows, epochs=1, verbose=0, callbacks=[keras.callbacks.TensorBoard(logs + "/keras", profile_batch=(10, 25))])
print("keras", "nan")
"""
WITH_XPROF_STEPS = ("serial", "prefetched", "starved", "images", "serial_images", "elements", "shuffled", "interleaved")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """The log directories, and for each trace the fraction of its steps that the loop itself saw itself waiting."""
    logs = tmp_path_factory.mktemp("logs")
    program = logs / "record.py"  # AutoGraph needs a file to read the loop from
    program.write_text(RECORD)
    done = subprocess.run(
        [sys.executable, str(program), str(logs)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return logs, {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}


def analyze(recorded: tuple[Path, dict[str, float]], name: str) -> TraceAnalysis:
    return analyze_trace(recorded[0] / name)


def xprof_steps(path: Path) -> list[dict[str, Any]]:
    """Per step what XProf's Input Pipeline Analyzer found, by column."""
    program = (
        "import sys\nfrom xprof.convert import raw_to_tool_data as convert\n"
        "sys.stdout.buffer.write(convert.xspace_to_tool_data([sys.argv[1]], 'input_pipeline_analyzer', {})[0])"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, check=True)
    for table in json.loads(done.stdout):
        if "infeed_time_ms_avg" in table.get("p", {}):
            names = [column["id"] for column in table["cols"]]
            return [dict(zip(names, (cell["v"] for cell in row["c"]), strict=True)) for row in table["rows"]]
    return []


@pytest.mark.parametrize("name", WITH_XPROF_STEPS)
def test_the_input_fraction_agrees_with_xprof(recorded: tuple[Path, dict[str, float]], name: str) -> None:
    found = analyze(recorded, name)
    theirs = xprof_steps(Path(found.path))
    assert len(theirs) == found.steps.count > 0
    step_ms = sum(step["stepTimeMs"] for step in theirs)
    assert found.steps.mean_s == pytest.approx(step_ms / len(theirs) / 1e3, rel=1e-3)
    assert found.input_fraction == pytest.approx(sum(step["infeedTimeMs"] for step in theirs) / step_ms, abs=0.01)


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("serial", "Map"),
        ("starved", "Map"),
        ("serial_images", "Map"),
        ("images", "MapAndBatch"),
        ("elements", "MapAndBatch"),
    ],
)
def test_the_bottleneck_is_named(recorded: tuple[Path, dict[str, float]], name: str, stage: str) -> None:
    found = analyze(recorded, name)
    assert found.bottleneck is not None
    assert found.bottleneck.stage == stage
    assert found.bottleneck.share > 0.5


def test_the_map_is_taken_apart(recorded: tuple[Path, dict[str, float]]) -> None:
    assert [op.operation for op in analyze(recorded, "serial_images").top_ops] == ["DecodeJpeg", "ResizeBilinear"]
    assert [(op.operation, op.python) for op in analyze(recorded, "serial").top_ops] == [("PyFunc", True)]


def test_a_pipeline_hidden_behind_its_prefetch_is_not_blamed(recorded: tuple[Path, dict[str, float]]) -> None:
    found = analyze(recorded, "prefetched")
    assert found.verdict.bound == "outside"
    assert not {finding.code for finding in found.findings} & {"python-in-pipeline", "starved-prefetch", "no-prefetch"}


def test_findings_of_real_pipelines(recorded: tuple[Path, dict[str, float]]) -> None:
    codes = {name: {finding.code for finding in analyze(recorded, name).findings} for name in WITH_XPROF_STEPS}
    assert {"python-in-pipeline", "no-prefetch"} <= codes["serial"]
    assert {"python-in-pipeline", "starved-prefetch"} <= codes["starved"]
    assert {"sequential-map", "no-prefetch"} <= codes["serial_images"]
    assert "map-per-element" in codes["elements"]
    assert "shuffle-after-decode" in codes["shuffled"]


def test_a_loop_in_the_step_hides_no_steps(recorded: tuple[Path, dict[str, float]]) -> None:
    found = analyze(recorded, "loop")
    assert (found.steps.basis, found.steps.count) == ("marker", 8)


def test_a_fetch_outside_the_marker_is_counted(recorded: tuple[Path, dict[str, float]]) -> None:
    """XProf says 0 % here: it looks inside the markers only."""
    found = analyze(recorded, "outside")
    assert found.input_fraction is not None
    assert 0.3 < found.input_fraction < 0.7


@pytest.mark.parametrize("name", ["unmarked", "unnumbered", "unrooted"])
def test_without_markers_the_wait_is_found_all_the_same(recorded: tuple[Path, dict[str, float]], name: str) -> None:
    found = analyze(recorded, name)
    assert found.steps.basis == "fetch"
    assert "inferred" in found.steps.statement
    assert found.steps.mean_s > 0
    assert found.input_fraction == pytest.approx(recorded[1][name], abs=0.05)
    assert found.verdict.bound == "input-high"


def test_keras_marks_its_own_batches(recorded: tuple[Path, dict[str, float]]) -> None:
    found = analyze(recorded, "keras")
    assert found.steps.basis == "keras"
    assert found.pipelines[0].calls > 0
