"""User code that kills, hangs or raises, through the real command: the run goes on and the process ends."""

from __future__ import annotations

import time

import pytest

from tests.integration.test_profile_command import tfpipe
from tfpipe.runfile import load_run

pytestmark = pytest.mark.tensorflow

PIPELINES = '''
import os, time
import tensorflow as tf


def _only_in_parallel(do):
    """A map function that misbehaves when several calls of it run at once, which only a candidate does."""
    running = [0]

    def function(x):
        running[0] += 1
        time.sleep(0.02)
        if running[0] > 1:
            do()
        running[0] -= 1
        return x

    return lambda x: tf.ensure_shape(tf.numpy_function(function, [x], tf.int64), [])


def make(do):
    # Serial as written; the candidates raise the number of calls.
    dataset = tf.data.Dataset.range(10**9).map(_only_in_parallel(do), num_parallel_calls=1).batch(2)
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


def aborting():
    return make(os.abort)


def hanging():
    return make(lambda: time.sleep(3600))


def raising():
    def do():
        raise ValueError("two at once")
    return make(do)


def always_raising():
    raise KeyError("no such file")
'''


def profile(tmp_path, factory: str, *arguments: str):
    (tmp_path / "data.py").write_text(PIPELINES)
    begin = time.monotonic()
    done = tfpipe(
        *("profile", "--pipeline", f"data.py:{factory}", "--step", "simulated:10ms", "--map-parallelism", "2"),
        *("--time-budget", "5s", "--quiet", "--output", "run", *arguments),
        cwd=tmp_path,
    )
    return done, time.monotonic() - begin


@pytest.mark.parametrize(
    ("factory", "arguments", "words"),
    [
        ("aborting", (), "crashed (SIGABRT)"),
        ("hanging", ("--candidate-timeout", "8s"), "no answer within 8 s"),
        ("raising", (), "two at once"),
    ],
)
def test_a_candidate_that_takes_the_worker_down_is_recorded_and_the_others_go_on(tmp_path, factory, arguments, words):
    done, _ = profile(tmp_path, factory, *arguments)
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "run")
    assert run.candidate("current").status == "complete"
    (other,) = (candidate for candidate in run.candidates if candidate.id != "current")
    assert other.status == "failed"
    assert words in other.error
    assert words in done.stdout


def test_a_factory_that_always_raises_ends_with_its_own_frames_and_nothing_else(tmp_path):
    done, _ = profile(tmp_path, "always_raising")
    assert done.returncode == 1
    assert 'raise KeyError("no such file")' in done.stderr
    assert "tfpipe/engine" not in done.stderr
    assert done.stdout == ""


def test_limits_are_held_against_the_current_pipeline_and_decide_the_exit_code(tmp_path):
    done, _ = profile(tmp_path, "raising", "--candidates", "current", "--max-input-fraction", "0.05")
    assert done.returncode == 3, done.stderr
    assert "current waits for input" in done.stderr
    assert load_run(tmp_path / "run").gate.passed is False
    again, _ = profile(tmp_path, "raising", "--candidates", "current", "--min-examples-per-s", "1", "--force")
    assert again.returncode == 0, again.stderr
