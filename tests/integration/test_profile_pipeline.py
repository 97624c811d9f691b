"""A pipeline of the user's own through the real command: what is printed, how it ends, what its patch does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfpipe.runfile import load_run

pytestmark = pytest.mark.tensorflow

SOURCE = """
import sys
import time

import tensorflow as tf


def make_dataset(examples=4000, fail=False, broken=False):
    print("building")
    if fail:
        open_bucket("gs://nowhere")
    numbers = tf.data.Dataset.range(examples).repeat()
    return numbers.map(read, num_parallel_calls=1).map(scale).batch(8)


def read(number):
    value = tf.numpy_function(remote, [number], tf.int64)
    return tf.ensure_shape(value, [])


def remote(number):
    time.sleep(0.002)
    return number


def scale(number):
    return tf.cast(number, tf.float32) / 2.0


def open_bucket(name):
    raise ConnectionError(f"no route to {name}")


def make_step(spec):
    def step(batch):
        tf.debugging.assert_less(batch, 6.0, message="out of my range")
        return tf.reduce_sum(batch)

    return step
"""
QUICK = ("--time-budget", "4s", "--steps", "6", "--quiet")
# How long a process may take to end once everything is written.
GOODBYE_S = 10.0


def tfpipe(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfpipe", *arguments],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mine")
    (path / "data.py").write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def done(folder: Path) -> subprocess.CompletedProcess[str]:
    """A run whose map calls Python that releases the interpreter, with prefetch: it must end by itself."""
    finished = tfpipe(
        "profile", "--pipeline", "data.py:make_dataset", "--step", "simulated:5ms", *QUICK, "--output", "r", cwd=folder
    )
    assert finished.returncode == 0, finished.stderr
    assert time.time() - (folder / "r" / "run.json").stat().st_mtime < GOODBYE_S
    return finished


@pytest.fixture(scope="module")
def chosen(folder: Path) -> subprocess.CompletedProcess[str]:
    """A run of two candidates, of which one is three times as fast, whatever else the machine does."""
    finished = tfpipe(
        *("profile", "--pipeline", "data.py:make_dataset", "--step", "simulated:5ms", *QUICK, "--output", "c"),
        *("--map-parallelism", "16", "--threadpool", "16", "--prefetch", "2"),
        cwd=folder,
    )
    assert finished.returncode == 0, finished.stderr
    return finished


def test_the_report_speaks_of_their_lines(folder: Path, done: subprocess.CompletedProcess[str]) -> None:
    assert done.stderr == ""
    assert "building" not in done.stdout
    assert "your pipeline as it is" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "order" in done.stdout
    assert "read runs Python for each element" in " ".join(done.stdout.split())
    run = load_run(folder / "r")
    assert run.candidates[0].settings.overrides == ()
    assert run.current == "current"
    assert all(candidate.status == "complete" for candidate in run.candidates)


def test_the_recommendation_is_applied_by_its_patch(folder: Path, chosen: subprocess.CompletedProcess[str]) -> None:
    run = load_run(folder / "c")
    assert run.recommendation is not None
    assert run.recommendation.change
    assert [gain.label for gain in run.recommendation.gains] == ["your pipeline as it is"]
    text = tfpipe("recommend", "c", cwd=folder)
    assert text.returncode == 0, text.stderr
    assert "data.py:13  map(num_parallel_calls=1) -> 16" in text.stdout
    assert "Code to paste" not in text.stdout

    patch = tfpipe("recommend", "c", "--format", "patch", cwd=folder)
    assert patch.returncode == 0
    assert "private_threadpool_size" in patch.stderr, "a change that the diff cannot make is told"
    program = shutil.which("patch")
    if program is None:
        pytest.skip("there is no patch program here")
    there = folder / "patched"
    there.mkdir()
    shutil.copy(folder / "data.py", there)
    subprocess.run([program, "-p1"], input=patch.stdout, cwd=there, text=True, check=True, capture_output=True)
    changed = (there / "data.py").read_text()
    assert ".map(read, num_parallel_calls=16).map(scale, num_parallel_calls=16).batch(8).prefetch(2)" in changed

    document = json.loads(tfpipe("recommend", "c", "--format", "json", cwd=folder).stdout)
    assert document["patch"] == patch.stdout
    assert {"line": 13, "method": "map", "written": 1, "value": 16}.items() <= document["changes"][0].items()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("recommend", "c", "--format", "code"), 2, "--format patch"),
        (("recommend", "c", "--format", "markdown"), 0, "data.py:13  map(num_parallel_calls=1) -> 16"),
        (("show", "c", "--sites"), 0, "data.py:13  map(num_parallel_calls not given)"),
        (("show", "c", "--sites", "--format", "json"), 0, '"format": "tfpipe-pipeline"'),
        (("show", "c", "--sites", "--format", "markdown"), 0, "`data.py:13:map(num_parallel_calls)`"),
        (("show", "c", "--candidate", "2"), 0, "behind batch: add .prefetch(2)"),
    ],
)
def test_the_file_only_commands_know_the_pipeline(
    arguments: tuple[str, ...], code: int, words: str, folder: Path, chosen: subprocess.CompletedProcess[str]
) -> None:
    finished = tfpipe(*arguments, cwd=folder)
    assert finished.returncode == code, finished.stderr
    assert words in finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr


FAILURE = """\
tfpipe: make_dataset raised ConnectionError: no route to gs://nowhere
  File "{file}", line 11, in make_dataset
    open_bucket("gs://nowhere")
  File "{file}", line 31, in open_bucket
    raise ConnectionError(f"no route to {{name}}")
"""


def test_a_factory_that_always_fails_ends_with_its_own_frames(folder: Path) -> None:
    finished = tfpipe("profile", "--pipeline", "data.py:make_dataset", "--arg", "fail=true", *QUICK, cwd=folder)
    assert finished.returncode == 1
    assert finished.stdout == ""
    shown = [line for line in finished.stderr.splitlines() if set(line) - set(" ^~")]
    expected = FAILURE.format(file=folder / "data.py").splitlines()
    assert shown[: len(expected)] == expected
    assert len(shown) == len(expected) + 1, "a hint, and nothing else"


def test_a_step_that_raises_for_every_candidate_ends_by_itself(folder: Path) -> None:
    begin = time.time()
    finished = tfpipe(
        "profile", "--pipeline", "data.py:make_dataset", "--step", "data.py:make_step", *QUICK, "--output", "raises",
        cwd=folder,
    )  # fmt: skip
    end = time.time()
    assert finished.returncode == 1
    assert finished.stdout == ""
    assert "out of my range" in finished.stderr
    assert "in step" in finished.stderr
    assert "tensorflow/python" not in finished.stderr
    last_written = (folder / "raises" / "journal.jsonl").stat().st_mtime
    assert begin < last_written
    assert end - last_written < GOODBYE_S
