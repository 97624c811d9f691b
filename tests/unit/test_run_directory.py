"""Nothing is overwritten unasked, nothing foreign at all, and a mistake does not cost the run that it would replace."""

from __future__ import annotations

import json

import pytest

from tests.unit.machine import FakeMachine
from tests.unit.test_conduct import WAITS, entry
from tests.unit.test_profile import SERIAL, SilentDisplay, machine
from tfpipe.errors import DataError, TfpipeError, UsageError
from tfpipe.messages import Failed, MeasureFloor
from tfpipe.runfile import load_run, run_from_json, run_to_json
from tfpipe.runner.conduct import begin, conduct, reopen


class Refusing(FakeMachine):
    def execute(self, request, *, timeout_s=None):
        return Failed(cause="request", message="no such data", exit_code=2)


def finished(directory, *, force=False):
    return conduct(begin(directory, entry(), force=force), directory, machine(), SilentDisplay()).run


def test_an_old_run_is_refused_without_force_and_replaced_with_it(tmp_path):
    directory = tmp_path / "run"
    finished(directory)
    with pytest.raises(UsageError, match="already holds a run"):
        begin(directory, entry(), force=False)
    finished(directory, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_mistake_that_only_the_worker_sees_puts_the_old_run_back(tmp_path):
    directory = tmp_path / "run"
    before = finished(directory)
    with pytest.raises(TfpipeError, match="no such data"):
        conduct(begin(directory, entry(), force=True), directory, Refusing(fetch_s={}), SilentDisplay())
    assert load_run(directory) == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_that_another_process_writes_is_left_alone(tmp_path):
    directory = tmp_path / "run"
    writing = begin(directory, entry(), force=False)
    with pytest.raises(UsageError, match="Another tfpipe is writing"):
        begin(directory, entry(), force=True)
    with pytest.raises(UsageError, match="Another tfpipe is writing"):
        reopen(directory)
    writing.close()
    assert reopen(directory).entries == writing.entries


def test_a_mistake_leaves_nothing_behind(tmp_path):
    directory = tmp_path / "run"
    with pytest.raises(TfpipeError, match="no such data"):
        conduct(begin(directory, entry(), force=False), directory, Refusing(fetch_s={}), SilentDisplay())
    assert not directory.exists()


@pytest.mark.parametrize(
    "files",
    [
        {"run.json": '{"my": 1}', "traces/my.txt": "x"},
        {"traces/my.txt": "x"},
        {"worker.log": "x"},
        {"journal.jsonl": "not a journal\n"},
        {"notes.txt": "x"},
        {"run.json/inside.txt": "x"},
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_what_is_not_a_run_s_is_never_touched(tmp_path, files, force):
    for name, content in files.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(content)
    with pytest.raises(UsageError, match="not a run's"):
        begin(tmp_path / "mine", entry(), force=force)
    assert all((tmp_path / "mine" / name).read_text() == content for name, content in files.items())


def test_a_run_file_comes_back_as_it_went(tmp_path):
    run = finished(tmp_path / "run")
    assert run_from_json(run_to_json(run), "here") == run


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[: len(text) // 2], "not a whole JSON file"),
        (lambda text: json.dumps({**json.loads(text), "version": 99}).encode(), "version 99"),
        (lambda text: json.dumps({**json.loads(text), "format": "other"}).encode(), "not a run file"),
        (lambda text: json.dumps({**json.loads(text), "candidates": 3}).encode(), "is damaged"),
        (lambda text: b"[]", "not a run file"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, change, words):
    text = run_to_json(finished(tmp_path / "run"))
    with pytest.raises(DataError, match=r"here") as caught:
        run_from_json(change(text), "here")
    assert words in caught.value.message


def test_a_worker_killed_in_the_floor_gets_a_second_chance(tmp_path):
    class KilledOnce(FakeMachine):
        killed = False

        def execute(self, request, *, timeout_s=None):
            if isinstance(request, MeasureFloor) and not self.killed:
                self.killed = True
                return Failed(cause="died", message="the worker was killed (SIGKILL)")
            return super().execute(request, timeout_s=timeout_s)

    run = conduct(
        begin(tmp_path / "run", entry(), force=False), tmp_path / "run", KilledOnce(fetch_s=WAITS), SilentDisplay()
    ).run
    assert run.complete
    assert run.candidate(SERIAL).status == "complete"


def test_when_the_floor_cannot_be_measured_the_way_on_is_named(tmp_path):
    class Killed(FakeMachine):
        def execute(self, request, *, timeout_s=None):
            if isinstance(request, MeasureFloor):
                return Failed(cause="died", message="the worker was killed (SIGKILL)")
            return super().execute(request, timeout_s=timeout_s)

    directory = tmp_path / "run"
    with pytest.raises(TfpipeError, match="SIGKILL") as caught:
        conduct(begin(directory, entry(), force=False), directory, Killed(fetch_s=WAITS), SilentDisplay())
    assert f"--resume {directory}" in caught.value.hint


def test_when_nothing_fits_the_arithmetic_is_told(tmp_path):
    directory = tmp_path / "run"
    with pytest.raises(TfpipeError, match="No candidate can be measured here") as caught:
        conduct(begin(directory, entry(), force=False), directory, machine(), SilentDisplay(), max_memory_bytes=10**6)
    assert "where 977 KiB are to be had" in caught.value.message
