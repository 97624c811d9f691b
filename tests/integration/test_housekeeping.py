"""TensorFlow's files go when its process goes, and its chatter does not hide what is worth reading."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.integration.test_profile_command import tfpipe
from tfpipe.engine.housekeeping import GENERATED_PREFIX, generated_code_in

pytestmark = pytest.mark.tensorflow

# Both functions branch on a tensor, so AutoGraph writes code for them.
PIPELINE = """
import tensorflow as tf


def make_dataset():
    return tf.data.Dataset.range(10**6).map(lambda x: x + 1 if x > 3 else x).batch(4)


@tf.function
def step(batch):
    if tf.reduce_sum(batch) > 0:
        batch += 1
    return batch


def make_step(spec):
    return step
"""
PROFILE = ("profile", "--pipeline", "data.py:make_dataset", "--step", "data.py:make_step", "--candidates", "current")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with ``data.py``, and ``temporary`` as where temporary files go."""
    (tmp_path / "data.py").write_text(PIPELINE)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    return tmp_path


def left(folder: Path) -> list[str]:
    return [path.name for path in (folder / "temporary").rglob("*")]


def test_autograph_writes_where_it_is_told_to(tmp_path: Path) -> None:
    import tensorflow as tf

    original = tempfile.NamedTemporaryFile
    with generated_code_in(str(tmp_path)):
        tf.autograph.to_graph(lambda x: x + 1 if x > 0 else x)
        with tempfile.NamedTemporaryFile() as other:
            assert Path(other.name).parent == Path(tempfile.gettempdir())
    assert tempfile.NamedTemporaryFile is original
    assert [path.name for path in tmp_path.glob("*.py") if path.name.startswith(GENERATED_PREFIX)]


def test_two_at_a_time_may_end_in_any_order(tmp_path: Path) -> None:
    original = tempfile.NamedTemporaryFile
    first, second = generated_code_in(str(tmp_path / "first")), generated_code_in(str(tmp_path))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with tempfile.NamedTemporaryFile(prefix=GENERATED_PREFIX) as file:
        assert Path(file.name).parent == tmp_path
    second.__exit__(None, None, None)
    assert tempfile.NamedTemporaryFile is original


def test_a_run_leaves_nothing(folder: Path) -> None:
    done = tfpipe(*PROFILE, "--time-budget", "2s", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert left(folder) == []


def test_an_interrupted_run_leaves_nothing(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tfpipe", *PROFILE, "--time-budget", "60s", "--output", "r"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline and GENERATED_PREFIX not in " ".join(left(folder)):
        time.sleep(0.1)
    assert left(folder), "there was something to remove"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert left(folder) == []


def test_checking_a_function_leaves_nothing_and_says_nothing_of_tensorflow_s(folder: Path) -> None:
    done = tfpipe("check", "data.py:step", "--run", "--pipeline", "data.py:make_dataset", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert left(folder) == []
    assert done.stderr == "tfpipe: starting TensorFlow ...\n"


STARTS = """
import os, sys
from tfpipe.engine.housekeeping import import_quietly
import_quietly()
"""
# Stands in for TensorFlow: says what it says, something else, and may not come up.
TENSORFLOW = r"""
import os
os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n")
os.write(2, b"I0000 00:00:1.2   1 cudart_stub.cc:31] Could not find cuda drivers on your machine.\n")
os.write(2, b"E0000 00:00:1.3   1 something.cc:1] worth reading\n")
class config:
    list_physical_devices = staticmethod(list)
{ending}
"""


@pytest.mark.parametrize(("ending", "code"), [("", 0), ("raise ImportError('no such library')", 1)])
def test_of_what_is_said_on_import_only_the_known_remarks_are_left_out(tmp_path: Path, ending: str, code: int) -> None:
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW.format(ending=ending))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.getcwd()])}
    done = subprocess.run(
        [sys.executable, "-c", STARTS], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code
    assert done.stderr.startswith("E0000 00:00:1.3   1 something.cc:1] worth reading\n")
    assert "cudart" not in done.stderr
    assert ("no such library" in done.stderr) == bool(code)
