"""A run that is cut off goes on from its journal; whatever happens, what was measured is kept."""

from __future__ import annotations

import dataclasses
import errno
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from msgspec.structs import replace

from tests.unit.machine import FakeMachine, candidates, prepared, started
from tests.unit.test_profile import ONE, SERIAL, TWO, SilentDisplay, machine
from tfpipe import __version__
from tfpipe.errors import DataError, TfpipeError, UsageError
from tfpipe.messages import Failed, Prepare
from tfpipe.runfile import load_run
from tfpipe.runner import journal as journal_module
from tfpipe.runner.conduct import begin, conduct, reopen
from tfpipe.runner.journal import CandidateMeasured, read_journal


def entry(**options):
    return replace(started(candidates(0, 1, 2), **options), tfpipe_version=__version__)


def blocks(directory) -> list[tuple[str, str, int]]:
    return [
        (e.id, e.measured.block.kind, e.measured.block.round)
        for e in read_journal(directory / "journal.jsonl")
        if isinstance(e, CandidateMeasured)
    ]


class Interrupted(FakeMachine):
    """Ctrl-C at the n-th request."""

    def __init__(self, after: int, **options) -> None:
        super().__init__(**options)
        self.after = after

    def execute(self, request, *, timeout_s=None):
        if len(self.requests) == self.after:
            raise KeyboardInterrupt
        return super().execute(request, timeout_s=timeout_s)


WAITS = {SERIAL: 0.032, ONE: 0.0, TWO: 0.0}


def test_interrupted_and_resumed_is_the_same_as_never_interrupted(tmp_path):
    whole = tmp_path / "whole"
    conduct(begin(whole, entry(steps=9), force=False), whole, machine(), SilentDisplay())
    for after in range(1, 20):
        cut = tmp_path / f"cut{after}"
        paper = Interrupted(after, fetch_s=WAITS)
        outcome = conduct(begin(cut, entry(steps=9), force=False), cut, paper, SilentDisplay())
        assert outcome.interrupted
        assert paper.closed
        outcome = conduct(reopen(cut), cut, machine(), SilentDisplay())
        assert not outcome.interrupted
        assert blocks(cut) == blocks(whole), f"interrupted after {after} requests"
    assert load_run(cut).recommendation == load_run(whole).recommendation


def test_what_was_measured_before_ctrl_c_is_in_the_run_file(tmp_path):
    outcome = conduct(
        begin(tmp_path / "run", entry(), force=False), tmp_path / "run", Interrupted(11, fetch_s=WAITS), SilentDisplay()
    )
    assert not outcome.run.complete
    statuses = {c.status for c in load_run(tmp_path / "run").candidates}
    assert "complete" in statuses or "skipped" in statuses


def test_a_run_in_which_everything_failed_is_an_error_and_one_failure_is_not(tmp_path):
    def fails(*names):
        return {name: Failed(cause="request", message=f"{name} raised", hint="mend it") for name in names}

    one = tmp_path / "one"
    paper = FakeMachine(fetch_s=WAITS, fail=fails(SERIAL))
    outcome = conduct(begin(one, entry(), force=False), one, paper, SilentDisplay())
    assert [c.status for c in outcome.run.candidates] == ["failed", "complete", "complete"]
    every = tmp_path / "every"
    paper = FakeMachine(fetch_s=WAITS, fail=fails(SERIAL, ONE, TWO))
    with pytest.raises(TfpipeError, match=f"^{SERIAL} raised$") as raised:
        conduct(begin(every, entry(), force=False), every, paper, SilentDisplay())
    assert (raised.value.hint, raised.value.exit_code) == ("mend it", 1)
    assert paper.closed


def test_resuming_a_finished_run_measures_nothing(tmp_path):
    conduct(begin(tmp_path, entry(), force=False), tmp_path, machine(), SilentDisplay())
    again = machine()
    outcome = conduct(reopen(tmp_path), tmp_path, again, SilentDisplay())
    assert again.requests == []
    assert outcome.run.complete


def test_a_line_cut_off_by_a_crash_is_measured_again(tmp_path):
    whole = tmp_path / "whole"
    conduct(begin(whole, entry(steps=9), force=False), whole, machine(), SilentDisplay())
    content = (whole / "journal.jsonl").read_bytes()
    for cut in random.Random(0).sample(range(len(content) // 3, len(content)), 20):
        directory = tmp_path / str(cut)
        directory.mkdir()
        (directory / "journal.jsonl").write_bytes(content[:cut])
        conduct(reopen(directory), directory, machine(), SilentDisplay())
        assert blocks(directory) == blocks(whole)


def test_damage_before_the_end_is_refused_by_line(tmp_path):
    conduct(begin(tmp_path, entry(), force=False), tmp_path, machine(), SilentDisplay())
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[3] = lines[3][:-5]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match="line 4 is damaged"):
        reopen(tmp_path)


@pytest.mark.parametrize(
    ("change", "key"), [({"tensorflow": "9.9"}, "environment.tensorflow"), ({"hostname": "b"}, "environment.hostname")]
)
def test_another_machine_or_version_is_named(tmp_path, change, key):
    conduct(begin(tmp_path, entry(), force=False), tmp_path, Interrupted(9, fetch_s=WAITS), SilentDisplay())

    class Elsewhere(FakeMachine):
        def execute(self, request, *, timeout_s=None):
            if isinstance(request, Prepare):
                here = prepared(request.workload)
                return replace(here, environment=dataclasses.replace(here.environment, **change))
            return super().execute(request, timeout_s=timeout_s)

    with pytest.raises(UsageError, match=key):
        conduct(reopen(tmp_path), tmp_path, Elsewhere(fetch_s=WAITS), SilentDisplay())


def test_another_tfpipe_is_named(tmp_path):
    begin(tmp_path, replace(entry(), tfpipe_version="0.0.9"), force=False).close()
    with pytest.raises(UsageError, match=r"tfpipe_version was 0\.0\.9"):
        reopen(tmp_path)


def test_a_full_disk_stops_with_a_message_and_can_be_resumed(tmp_path, monkeypatch):
    real_fsync = os.fsync
    calls = iter(range(1000))

    def full(descriptor):
        if next(calls) == 9:
            raise OSError(errno.ENOSPC, "No space left on device")
        real_fsync(descriptor)

    monkeypatch.setattr(journal_module.os, "fsync", full)
    with pytest.raises(TfpipeError, match="disk is full") as caught:
        conduct(begin(tmp_path, entry(steps=9), force=False), tmp_path, machine(), SilentDisplay())
    assert caught.value.exit_code == 1
    monkeypatch.setattr(journal_module.os, "fsync", real_fsync)
    outcome = conduct(reopen(tmp_path), tmp_path, machine(), SilentDisplay())
    assert outcome.run.complete


def test_there_must_be_something_to_resume(tmp_path):
    with pytest.raises(UsageError, match="nothing to resume"):
        reopen(tmp_path)


DRIVER = """
import sys
from pathlib import Path
from tests.unit.test_conduct import entry
from tests.unit.test_profile import SilentDisplay
from tfpipe.runner.conduct import begin, conduct, reopen
from tfpipe.runner.process import ProcessExecutor
directory = Path(sys.argv[1])
journal = reopen(directory) if (directory / "journal.jsonl").exists() else begin(directory, entry(steps=9), force=False)
executor = ProcessExecutor([sys.executable, "-m", "tests.unit.fake_worker", "slow"], on_progress=lambda p: None)
conduct(journal, directory, executor, SilentDisplay())
"""


def test_killed_at_fifty_random_moments_and_always_finished(tmp_path):
    """``kill -9`` of the whole thing, each run again and again until it ends: no finished block is measured twice."""
    rng = random.Random(1)
    whole = tmp_path / "whole"
    conduct(begin(whole, entry(steps=9), force=False), whole, machine(), SilentDisplay())
    expected = blocks(whole)
    kills = number = 0
    while kills < 50:
        number += 1
        directory = tmp_path / str(number)
        ended = False
        seen: list[tuple[str, str, int]] = []
        while not ended:
            killed = run_and_kill(directory, after_bytes=rng.randrange(1, 4000), delay_s=rng.uniform(0, 0.003))
            kills += killed
            ended = not killed
            assert blocks(directory)[: len(seen)] == seen
            seen = blocks(directory)
        assert seen == expected
        assert load_run(directory).complete


def run_and_kill(directory, *, after_bytes: int, delay_s: float) -> bool:
    """Run the driver and kill it once the journal has grown; whether it was still alive then."""
    path = directory / "journal.jsonl"
    size = path.stat().st_size if path.exists() else 0
    # A process that is killed while its worker starts leaves a directory.
    environment = {**os.environ, "TMPDIR": str(directory.parent)}
    process = subprocess.Popen([sys.executable, "-c", DRIVER, str(directory)], env=environment)
    while process.poll() is None:
        if path.exists() and path.stat().st_size >= size + after_bytes:
            time.sleep(delay_s)
            process.send_signal(signal.SIGKILL)
            return process.wait() != 0
        time.sleep(0.001)
    assert process.returncode == 0
    return False
