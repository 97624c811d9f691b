"""What is recommended where the way the step runs matters, from runs on the machine that exists on paper."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.unit.machine import FakeMachine
from tests.unit.test_profile import ONE, SERIAL, TWO, profile
from tfpipe.analysis.recommend import recommend
from tfpipe.consistency import find_contradiction
from tfpipe.messages import Measured, Reply, Request
from tfpipe.records import DeviceUse, Retrace

NO_WAITS = {SERIAL: 0.0, ONE: 0.0, TWO: 0.0}


def test_execution_and_pipeline_are_recommended_together(tmp_path):
    waits = {SERIAL: 0.032, ONE: 0.016, TWO: 0.0}
    run = profile(FakeMachine(fetch_s=waits, executions={"eager": 0.256, "graph": 0.064, "xla": 0.032}), tmp_path)
    chosen = run.recommendation
    assert (chosen.execution, chosen.candidate, chosen.change) == ("xla", TWO, True)
    assert chosen.summary.startswith("Run the step as one tf.function(jit_compile=True)")
    assert f"Use {TWO}: " in chosen.summary
    assert chosen.gains[0].label == "eager execution"
    assert chosen.gains[0].ratio.value == pytest.approx(0.257 / 0.033)
    split = run.execution_comparison.split
    assert split.input.value == pytest.approx(0.289 / 0.257)
    assert split.execution.value == pytest.approx(0.257 / 0.033)
    assert find_contradiction(run) is None


def test_the_same_is_recommended_from_the_file(tmp_path):
    waits = {SERIAL: 0.032, ONE: 0.016, TWO: 0.0}
    run = profile(FakeMachine(fetch_s=waits, executions={"eager": 0.256, "graph": 0.064}), tmp_path)
    read = msgspec.json.decode(msgspec.json.encode(run), type=type(run))
    assert recommend(read) == run.recommendation


def test_beside_a_host_bound_step_no_pipeline_is_changed(tmp_path):
    """Waiting less for 4 % of a step is sure here and no matter: the graph takes one thirtieth."""
    waits = {SERIAL: 0.004, ONE: 0.0, TWO: 0.0}
    run = profile(FakeMachine(fetch_s=waits, executions={"eager": 0.111}, twin_s=0.004), tmp_path)
    chosen = run.recommendation
    assert (chosen.execution, chosen.candidate, chosen.change) == ("graph", SERIAL, False)
    assert chosen.summary.startswith("Run the step as one tf.function")
    assert "No pipeline is worth changing before." in chosen.summary
    assert chosen.why.startswith("Host-bound: ")
    without = (
        replace(run.floor, graph_step_s=None),
        tuple(replace(c, host_fraction=None, verdict=None) for c in run.candidates),
    )
    assert recommend(replace(run, floor=without[0], candidates=without[1])).change, "else there would be a change"


class Retracing(FakeMachine):
    """Builds a graph in every step."""

    def execute(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        reply = super().execute(request, timeout_s=timeout_s)
        if not isinstance(reply, Measured) or reply.block.kind == "capacity":
            return reply
        retrace = Retrace(function="train_step", cause="step is now 2, was 1", seconds=0.0625)
        block = replace(reply.block, retraced=reply.block.steps, retraces=(retrace,) * reply.block.steps)
        return msgspec.structs.replace(reply, block=block)


def test_a_step_that_is_traced_each_time_has_a_verdict_and_advice_though_nothing_counts(tmp_path):
    run = profile(Retracing(fetch_s=NO_WAITS), tmp_path)
    assert {c.verdict.bound for c in run.candidates} == {"host"}
    chosen = run.recommendation
    assert (chosen.execution, chosen.candidate, chosen.change) == (None, SERIAL, False)
    assert chosen.summary.startswith("Stop the step from building graphs anew")
    assert "train_step (step is now 2, was 1)" in chosen.why
    assert find_contradiction(run) is None


def test_the_use_of_the_device_is_that_of_all_blocks(tmp_path):
    class Sampled(FakeMachine):
        def execute(self, request: Request, *, timeout_s: float | None = None) -> Reply:
            reply = super().execute(request, timeout_s=timeout_s)
            if not isinstance(reply, Measured):
                return reply
            busy = 0.25 if reply.block.round % 2 else 0.75
            use = DeviceUse(source="process-cpu", mean_fraction=busy, deviation_fraction=0.0, samples=4)
            return msgspec.structs.replace(reply, block=replace(reply.block, device_use=use))

    run = profile(Sampled(fetch_s=NO_WAITS, executions={"eager": 0.128, "graph": 0.064}), tmp_path)
    rounds = {b.round for b in run.candidates[0].blocks if b.kind == "step"}
    odd = len([number for number in rounds if number % 2]) / len(rounds)
    for use in (run.candidates[0].device_use, run.executions[0].device_use):
        assert use.mean_fraction == pytest.approx(0.75 - 0.5 * odd)
        assert use.deviation_fraction == pytest.approx(0.5 * (odd * (1 - odd)) ** 0.5)
