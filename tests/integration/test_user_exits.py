"""User code that ends its process: said in words, in a message that names it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.integration.test_user_pipelines import Here
from tfpipe.messages import Failed

pytestmark = pytest.mark.tensorflow


def numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(40).batch(4)


def leaves(*_: Any) -> Any:
    sys.exit("no such bucket")


def failure(factory: Callable[[], Any], step: Any = "none") -> Failed:
    here = Here(factory, step)
    here.executor.close()
    assert here.failed is not None
    return here.failed


def test_sys_exit_in_a_map_function() -> None:
    failed = failure(lambda: numbers().map(lambda x: tf.numpy_function(leaves, [x], tf.int64)))
    assert "SystemExit: no such bucket" in failed.message
    assert "in leaves" in failed.message


def test_sys_exit_in_what_makes_the_step_and_in_the_step() -> None:
    for step in (leaves, lambda spec: leaves):
        failed = failure(numbers, step)
        assert "The pipeline or its step raised SystemExit: no such bucket" in failed.message
        assert "instead of calling sys.exit" in (failed.hint or "")
        assert failed.exit_code == 1


SOURCE = """
import os
import tensorflow as tf


def make_dataset(where):
    numbers = tf.data.Dataset.range(40)
    if where == "map":
        numbers = numbers.map(lambda x: tf.numpy_function(leave, [x], tf.int64))
    return numbers.batch(4)


def make_step(spec):
    leave(3)


def leave(x):
    os._exit(3)
"""


@pytest.mark.parametrize("where", ["map", "step"])
def test_os_exit_ends_the_worker_and_is_told(where: str, tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(SOURCE)
    step = "data.py:make_step" if where == "step" else "none"
    done = subprocess.run(
        [sys.executable, "-m", "tfpipe", "profile", "--pipeline", "data.py:make_dataset", "--arg", f"where={where}",
         "--step", step, "--quiet"],
        cwd=tmp_path, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "the worker ended by itself with exit code 3" in done.stderr
    assert "called os._exit" in done.stderr
    assert "Traceback" not in done.stderr
