"""``tfpipe check --run`` on real TensorFlow: what is seen, what stays suspected, and what cannot be run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.tensorflow

STEPS = '''\
"""Everything that can be confirmed in one run, and something that cannot."""
import random
import time

import tensorflow as tf

losses = []
model = tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.layers.Dropout(0.5)])


def augment(x, y):
    return x * random.random(), y


def make_dataset():
    x = tf.zeros([20, 4])
    return tf.data.Dataset.from_tensor_slices((x, x)).map(augment).batch(8)


@tf.function
def train_step(x, y):
    print("building a graph")
    begun = time.time()
    for _ in range(100):
        x = tf.sin(x)
    if x.shape[0] == 7:
        losses.append(x)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    return len(x), begun, tape.gradient(loss, model.trainable_variables)


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(4)

    def call(self, x):
        self.seen = x
        assert tf.reduce_all(x >= 0)
        return self.dense(x)


net = Net()


class Scale(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([None, 4])])
    def __call__(self, x, y):
        print("building a graph")
        return x + y


def needs_three(a, b, c):
    return a


def fails():
    raise OSError("no data")


def make_step(element_spec):
    @tf.function(input_signature=element_spec)
    def step(x, y):
        print("building a graph")
        return tf.reduce_sum(x - y)

    return step
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("check")
    (path / "steps.py").write_text(STEPS)
    return path


def check(folder: Path, target: str, pipeline: str = "steps.py:make_dataset") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tfpipe.cli.main import main; main()", "check", target]
    command += ["--run", "--pipeline", pipeline, "--format", "json"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, timeout=120, check=False
    )


def by_rule(content: Any) -> dict[str, tuple[str, str]]:
    return {finding["rule"]: (finding["status"], finding["evidence"]) for finding in content["findings"]}


def test_probes_leave_every_line_where_it_was() -> None:
    from tfpipe.check.analyze import analyze_source
    from tfpipe.engine.check_probes import add_probes

    text = (
        "import tensorflow as tf\n"
        "kept = {}\n"
        "@tf.function\n"
        "def f(x):\n"
        "    name = 'äö'; print(name, float(tf.reduce_sum(\n"
        "        x)), len(x))\n"
        "    kept['x'] = x\n"
        "    return [tf.sin(x) for _ in range(99)]\n"
    )
    findings = analyze_source("code.py", text).findings
    rules = [finding.rule for finding in findings]
    assert rules == ["python-print", "tensor-to-number", "tensor-len", "outer-state", "unrolled-loop"]
    assert add_probes(text, dict(enumerate(findings))) == (
        "import tensorflow as tf\n"
        "kept = {}\n"
        "@tf.function\n"
        "def f(x):\n"
        "    name = 'äö'; (__tfpipe_seen__(0), print(name, float(__tfpipe_seen__(1, tf.reduce_sum(\n"
        "        x))), len(__tfpipe_seen__(2, x))))[1]\n"
        "    __tfpipe_seen__(3); kept['x'] = x\n"
        "    return [tf.sin(x) for _ in __tfpipe_loop__(4, range(99))]\n"
    )


def test_a_step_function(folder: Path) -> None:
    finished = check(folder, "steps.py:train_step")
    assert finished.returncode == 0, finished.stderr
    content = json.loads(finished.stdout)
    found = by_rule(content)
    # Three batches, the last one smaller. The first call makes the variables and is traced twice.
    assert found["python-print"] == ("seen", "ran 3 times in 3 calls")
    assert found["python-time"][0] == "seen"
    assert found["python-random"] == ("seen", "ran once in 3 calls")
    assert found["unrolled-loop"] == ("seen", "unrolled 100 times, 100 operations in the graph")
    assert found["tensor-len"] == ("seen", "the value was a symbolic tensor, float32 of shape (4, 4)")
    assert found["missing-training-flag"] == ("seen", "Dropout ran with training=False")
    assert found["outer-state"] == ("suspected", "the run did not come here")
    # Nothing in the file calls it with several shapes; only the run shows that the last batch builds a graph.
    status, evidence = found["missing-input-signature"]
    assert status == "seen"
    assert evidence.endswith("x is now float32 [4, 4], was float32 [8, 4]; y is now float32 [4, 4], was float32 [8, 4]")
    (function,) = content["run"]["functions"]
    assert (function["calls"], function["traces"]) == (3, 3)
    assert function["operations"] > 100
    assert content["run"]["error"] is None
    assert "building a graph" not in finished.stdout
    assert (folder / "steps.py").read_text() == STEPS


def test_a_keras_model_that_raises(folder: Path) -> None:
    content = json.loads(check(folder, "steps.py:net").stdout)
    found = by_rule(content)
    assert found["outer-state"][0] == "seen"
    status, evidence = found["tensor-assert"]
    assert status == "seen"
    assert evidence.startswith("it raised OperatorNotAllowedInGraphError: ")
    assert content["run"]["error"].startswith("OperatorNotAllowedInGraphError")


def test_a_module_with_a_signature_is_traced_once(folder: Path) -> None:
    content = json.loads(check(folder, "steps:Scale", "steps:make_dataset").stdout)
    assert by_rule(content)["python-print"] == ("seen", "ran once in 3 calls")
    assert "missing-input-signature" not in by_rule(content)
    assert content["run"]["functions"][0]["traces"] == 1


def test_what_makes_a_step_is_called_once_and_its_step_is_run(folder: Path) -> None:
    content = json.loads(check(folder, "steps.py:make_step").stdout)
    assert by_rule(content)["python-print"] == ("seen", "ran once in 3 calls")
    (function,) = content["run"]["functions"]
    assert (function["function"], function["calls"], function["traces"]) == ("make_step.step", 3, 1)
    assert content["run"]["error"] is None


def test_what_cannot_be_run(folder: Path) -> None:
    finished = check(folder, "steps.py:train_step", "steps.py:fails")
    assert finished.returncode == 1
    assert (
        f'File "{folder / "steps.py"}", line {STEPS[: STEPS.index("raise OSError")].count(chr(10)) + 1}'
        in finished.stderr
    )
    finished = check(folder, "steps.py:needs_three")
    assert finished.returncode == 2
    assert "needs_three(a, b, c) cannot be called with what the pipeline yields: 2 parts." in finished.stderr
