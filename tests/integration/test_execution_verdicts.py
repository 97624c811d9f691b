"""Steps that the host holds up, for real: what is said of them and, above all, what is not advised."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfpipe.records import Run
from tfpipe.runfile import load_run

pytestmark = pytest.mark.tensorflow

DISPATCH = """\
import tensorflow as tf


def make_dataset():
    batch = tf.ones([16, 32]), tf.zeros([16], tf.int64)
    return tf.data.Dataset.from_tensors(batch).repeat().prefetch(2)


def make_step(element_spec):
    layers = [tf.keras.layers.Dense(32, activation="relu") for _ in range(40)]
    optimizer = tf.keras.optimizers.SGD(0.01)

    def train_step(x, y):
        with tf.GradientTape() as tape:
            for layer in layers:
                x = layer(x)
            loss = tf.reduce_mean(tf.square(x))
        variables = [v for layer in layers for v in layer.trainable_variables]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    return train_step
"""

# A length of its own for each batch, and no input_signature.
LENGTHS = """\
import tensorflow as tf


def make_dataset():
    numbers = tf.data.Dataset.random(seed=1).map(lambda n: tf.cast(n % 100_000, tf.int32) + 1)
    return numbers.map(lambda n: tf.ones([n])).batch(1).prefetch(2)


def make_step(element_spec):
    weight = tf.Variable(2.0)

    @tf.function
    def train_step(x):
        return tf.reduce_sum(tf.sin(x * weight))

    return train_step
"""


def profile(folder: Path, code: str, *arguments: str) -> tuple[Run, str]:
    (folder / "mine.py").write_text(code)
    names = ["--pipeline", "mine.py:make_dataset", "--step", "mine.py:make_step"]
    done = subprocess.run(
        [sys.executable, "-m", "tfpipe", "profile", *names, *arguments, "--output", "run", "--quiet"],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return load_run(folder / "run"), done.stdout


def test_an_eager_step_of_small_operations(tmp_path: Path) -> None:
    run, printed = profile(tmp_path, DISPATCH, "--execution", "eager", "--time-budget", "10s")
    assert {candidate.verdict.bound for candidate in run.candidates if candidate.verdict} == {"host"}
    chosen = run.recommendation
    assert chosen is not None
    assert (chosen.execution, chosen.change, chosen.candidate) == ("graph", False, run.current)
    assert run.floor.step_s is not None
    assert run.floor.graph_step_s is not None
    assert run.floor.step_s.value > 8 * run.floor.graph_step_s.value
    assert "Python dispatching operations one by one" in chosen.why
    assert "host-bound" in printed
    assert "compute-bound" not in printed


def test_the_wrapped_step_beside_it(tmp_path: Path) -> None:
    arguments = ["--execution", "eager,graph", "--candidates", "current", "--time-budget", "10s"]
    run, printed = profile(tmp_path, DISPATCH, *arguments)
    comparison = run.execution_comparison
    assert comparison is not None
    assert (comparison.best, comparison.pipeline) == ("graph", run.current)
    assert comparison.split is not None
    assert comparison.split.execution.value > 8
    assert comparison.split.execution.low > 1
    assert run.recommendation is not None
    assert run.recommendation.execution == "graph"
    assert "How the step runs" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_a_step_that_is_traced_for_every_batch(tmp_path: Path) -> None:
    run, printed = profile(tmp_path, LENGTHS, "--candidates", "current", "--time-budget", "5s")
    (candidate,) = run.candidates
    assert candidate.verdict is not None
    assert candidate.verdict.bound == "host"
    assert "x is now float32 [1, " in candidate.verdict.statement
    assert run.recommendation is not None
    assert not run.recommendation.change
    assert run.recommendation.summary.startswith("Stop the step from building graphs anew")
    assert "traced anew  train_step, " in printed
