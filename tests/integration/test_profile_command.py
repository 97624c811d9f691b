"""The main path as its user takes it: the real command, the real worker, a small run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfpipe.runfile import load_run

pytestmark = pytest.mark.tensorflow

SMALL = ["--dataset", "cifar100", "--no-download", "--batch-size", "16", "--time-budget", "15s", "--quiet"]


def tfpipe(*arguments: str, cwd: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KERAS_HOME": str(cwd / "keras"), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-m", "tfpipe", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of the whole preset through a small ResNet18."""
    folder = tmp_path_factory.mktemp("main")
    done = tfpipe("profile", *SMALL, "--width", "4", "--output", "runs/first", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_it_ends_with_the_table_the_verdict_and_the_next_command(run):
    _, done = run
    lines = done.stdout.splitlines()
    assert lines[0].startswith("GENERATED DATA")
    assert max(map(len, lines)) <= 80
    assert "seed recipe" in done.stdout
    assert any(line.startswith("verdict") for line in lines)
    assert "tfpipe recommend" in done.stdout
    assert "tfpipe tensorboard" in done.stdout


def test_the_run_holds_what_was_asked_for(run):
    folder, _ = run
    found = load_run(folder / "runs" / "first")
    assert found.complete
    assert found.data.generated
    assert found.data.batch_size == 16
    assert found.step.traces == 1, "the step is traced once and reused by every candidate"
    assert len(found.candidates) >= 8
    for candidate in found.candidates:
        assert candidate.status == "complete"
        assert sum(b.steps for b in candidate.blocks if b.kind == "step") >= 3
        assert candidate.compute_s + candidate.input_wait_s + candidate.contention_s == pytest.approx(
            candidate.step_s.value
        )
        assert candidate.executed
        assert candidate.peak_memory_bytes > 10**8
        if candidate.dropped is not None:
            continue
        (trace,) = (folder / "runs" / "first" / candidate.trace.path).glob("*.xplane.pb")
        assert trace.stat().st_size > 1000


def test_the_file_only_commands_read_it(run):
    folder, _ = run
    for command in (["recommend"], ["recommend", "--format", "code"], ["show"], ["show", "runs/first/run.json"]):
        done = tfpipe(*command, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_it_is_not_overwritten_unasked(run):
    folder, _ = run
    done = tfpipe("profile", *SMALL, "--output", "runs/first", cwd=folder)
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert "Traceback" not in done.stderr


def test_json_is_the_run_file_and_the_only_thing_on_stdout(tmp_path):
    done = tfpipe(
        "profile", *SMALL, "--step", "simulated:5ms", "--prefetch", "0,1", "--json", "--output", "r", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "r" / "run.json").read_text())
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dataset", "mnist"], "no data set 'mnist'"),
        (["--dataset", "cifar100", "--prefetch", "-1"], "out of range"),
        (["--dataset", "cifar100", "--prefetch", ","], "empty value"),
        (["--dataset", "cifar100", "--step", "vgg"], "no step 'vgg'"),
        (["--dataset", "cifar100", "--time-budget", "long"], "--time-budget"),
        (["--dataset", "cifar100", "--batch-size", "0"], "--batch-size"),
        (["--dataset", "cifar100", "--output", "/proc/none"], "/proc/none"),
        ([], "tfpipe profile --dataset cifar100"),
    ],
)
def test_mistakes_are_told_at_once_and_start_nothing(tmp_path, arguments, words):
    begin = time.monotonic()
    done = tfpipe("profile", *arguments, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--batch-size", "100000"], 2, "larger than the data set"),
        (["--data-dir", "nowhere"], 2, "nowhere"),
        (["--require-data"], 1, "data"),
    ],
)
def test_mistakes_that_only_the_worker_sees_are_told_the_same_way(tmp_path, arguments, code, words):
    done = tfpipe("profile", "--dataset", "cifar100", "--no-download", "--step", "none", *arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_with_the_table_of_what_there_is(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "tfpipe", "profile", *SMALL, "--step", "simulated:20ms", "--output", "r"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    journal = tmp_path / "r" / "journal.jsonl"
    deadline = time.monotonic() + 120
    while (
        process.poll() is None
        and time.monotonic() < deadline
        and not (journal.exists() and journal.read_text().count('"kind":"step"') >= 12)
    ):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "all AUTOTUNE" in out
    assert "--resume" in out
    assert not load_run(tmp_path / "r").complete


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-input-fraction", "nan"], "--max-input-fraction"),
        (["--min-examples-per-s", "inf"], "--min-examples-per-s"),
        (["--max-input-fraction", "0.1", "--tolerance", "nan"], "--tolerance"),
        (["--shuffle-buffer", "9223372036854775807"], "out of range"),
        (["--resume", "somewhere"], "--dataset does not go with --resume"),
    ],
)
def test_values_that_would_mean_nothing_are_refused(tmp_path, arguments, words):
    done = tfpipe("profile", "--dataset", "cifar100", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_gate_outlives_its_process(tmp_path):
    """Resuming a finished run holds it against the limits that it was begun with."""
    begun = ("profile", *SMALL, "--step", "simulated:5ms", "--candidates", "current", "--min-examples-per-s", "1e9")
    assert tfpipe(*begun, "--output", "r", cwd=tmp_path).returncode == 3
    assert tfpipe("profile", "--resume", "r", cwd=tmp_path).returncode == 3
