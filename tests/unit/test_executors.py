"""The executor's contract, kept by the process that runs workers and by the fake that stands in for it."""

from __future__ import annotations

import sys
import time

import psutil
import pytest

from tests.unit.fake_worker import WAITS
from tests.unit.machine import FakeMachine, workload
from tfpipe.messages import (
    CaptureTrace,
    Failed,
    Length,
    MeasureCapacity,
    Measured,
    MeasureFetchFloor,
    MeasureFloor,
    MeasureStep,
    Prepare,
    Prepared,
    Traced,
)
from tfpipe.runner import process
from tfpipe.runner.process import ProcessExecutor
from tfpipe.settings import PipelineSettings

LENGTH = Length(warmup_steps=1, warmup_s=0.0, steps=3, seconds=0.0)
GOOD = PipelineSettings()
BAD = PipelineSettings(prefetch_depth=1)


def real(mode: str = "good", progress=lambda progress: None) -> ProcessExecutor:
    return ProcessExecutor(
        [sys.executable, "-m", "tests.unit.fake_worker", mode], on_progress=progress, max_memory_bytes=200 * 2**20
    )


@pytest.fixture(params=["fake", "process"])
def executor(request):
    made = FakeMachine(fetch_s=WAITS) if request.param == "fake" else real()
    yield made
    made.close()


def step(settings: PipelineSettings) -> MeasureStep:
    return MeasureStep(settings=settings, round=0, length=LENGTH)


def test_each_request_has_its_reply(executor):
    assert isinstance(executor.execute(Prepare(workload=workload())), Prepared)
    for request, kind in [
        (MeasureFloor(round=0, length=LENGTH), "floor"),
        (MeasureFetchFloor(round=1, length=LENGTH), "fetch-floor"),
        (MeasureCapacity(settings=GOOD, round=2, length=LENGTH), "capacity"),
        (step(GOOD), "step"),
    ]:
        reply = executor.execute(request)
        assert isinstance(reply, Measured)
        assert (reply.block.kind, reply.block.round, reply.block.steps) == (kind, request.round, 3)
    traced = executor.execute(CaptureTrace(settings=GOOD, warmup_steps=0, steps=2, logdir="x/traces/c"))
    assert isinstance(traced, Traced)
    executor.close()
    executor.close()


@pytest.mark.parametrize(
    ("mode", "cause", "words"),
    [
        ("abort", "died", "crashed (SIGABRT)"),
        ("exit", "died", "ended by itself with exit code 7"),
        ("hang", "timeout", "no answer within 1 s"),
        ("grow", "memory", "grew beyond --max-memory (200 MiB)"),
        ("close", "died", "closed its pipe"),
    ],
)
def test_a_worker_s_end_is_told_in_words_and_the_next_request_finds_a_new_one(mode, cause, words, monkeypatch):
    monkeypatch.setattr(process, "GOODBYE_S", 0.2)
    executor = real(mode)
    try:
        executor.execute(Prepare(workload=workload()))
        failed = executor.execute(step(BAD), timeout_s=1.0 if mode == "hang" else None)
        assert isinstance(failed, Failed)
        assert failed.cause == cause
        assert words in failed.message
        assert isinstance(executor.execute(step(GOOD)), Measured)
    finally:
        executor.close()
    assert not [child for child in psutil.Process().children() if "fake_worker" in " ".join(child.cmdline())]


def test_progress_is_passed_on():
    seen = []
    executor = real(progress=seen.append)
    executor.execute(Prepare(workload=workload()))
    executor.close()
    assert [progress.text for progress in seen] == ["working"]


def test_closing_in_the_middle_of_a_request_does_not_wait_for_it():
    def interrupt(progress):
        raise KeyboardInterrupt

    executor = real(progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        executor.execute(Prepare(workload=workload()))
    begin = time.monotonic()
    executor.close()
    assert time.monotonic() - begin < process.GOODBYE_S
