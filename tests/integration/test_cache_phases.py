"""A cache beside a step, through the real command: epochs that read it, and epochs that only ever fill it.

Reading the data takes 2 ms per element, 16 elements to a step of 10 ms: 32 ms without the cache, nothing with it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_profile_command import tfpipe
from tfpipe.records import Run
from tfpipe.runfile import load_run

pytestmark = pytest.mark.tensorflow

PIPELINES = """
import time

import tensorflow as tf


def read(x):
    time.sleep(0.002)
    return x


def slow():
    return tf.data.Dataset.range(160).map(lambda x: tf.ensure_shape(tf.numpy_function(read, [x], tf.int64), []))


def cached():
    return slow().cache().batch(16).prefetch(2)


def endless():
    return slow().cache().batch(16).repeat().prefetch(2)
"""


def run_of(folder: Path, factory: str, *arguments: str) -> tuple[Run, str]:
    (folder / "data.py").write_text(PIPELINES)
    what = ("--pipeline", f"data.py:{factory}", "--step", "simulated:10ms", "--candidates", "current")
    done = tfpipe("profile", *what, "--time-budget", "3s", "--output", "run", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return load_run(folder / "run"), " ".join(done.stdout.split())


def test_both_phases_of_a_cache_that_is_read_to_its_end_are_told(tmp_path: Path) -> None:
    # As many batches as there are: no epoch stops early.
    run, report = run_of(tmp_path, "cached", "--epoch-batches", "10")
    assert run.candidates[0].input_fraction.value < 0.2, "measured as all epochs but the first are"
    assert run.first_epoch_input_fraction > 0.4
    assert "The first epoch, which fills the cache, waits for input at least" in report
    assert run.pipeline.findings == ()


def test_a_training_that_stops_its_epochs_early_waits_in_each_and_that_is_named(tmp_path: Path) -> None:
    run, report = run_of(tmp_path, "endless", "--epoch-batches", "5")
    assert run.candidates[0].verdict.bound == "input-high"
    assert run.first_epoch_input_fraction is None
    assert run.data.examples == 5 * 16
    assert [finding.code for finding in run.pipeline.findings] == ["cache-never-completes"]
    assert "the cache never completes" in report
    assert "Make one iterator for all epochs" in report


def test_built_in_data_has_no_epochs_to_stop(tmp_path: Path) -> None:
    done = tfpipe("profile", "--dataset", "cifar100", "--epoch-batches", "5", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--epoch-batches" in done.stderr
