"""Steps and their partition on hand-made traces. Times are milliseconds."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from tests.unit.trace.builder import Line, PlaneBuilder, Trace, steps
from tfpipe.trace_records import Split, TraceAnalysis


def parts(analysis: TraceAnalysis) -> dict[str, float]:
    """The mean split in milliseconds, without the parts that are 0."""
    values = {field.name.removesuffix("_s"): getattr(analysis.steps.mean, field.name) * 1e3 for field in fields(Split)}
    return {name: pytest.approx(value) for name, value in values.items() if value}


def assert_sums(analysis: TraceAnalysis) -> None:
    for split in analysis.steps.each:
        whole = sum(getattr(split, field.name) for field in fields(Split) if field.name != "step_s")
        assert whole == pytest.approx(split.step_s, abs=1e-12)
        assert all(getattr(split, field.name) >= 0 for field in fields(Split))


def fetch(line: Line, at: float, lasts: float) -> None:
    line.add("IteratorGetNextOp::DoCompute", at, lasts, id=900)


class TestSteps:
    def test_markers(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        steps(python, [0, 12, 24], 10)
        for at in (0, 12, 24):
            fetch(python, at, 4)
        found = trace.analyze(tmp_path).steps
        assert (found.basis, found.confidence, found.count) == ("marker", "high", 3)
        assert found.mean_s == pytest.approx(0.010)

    def test_a_loop_inside_the_step_does_not_hide_it(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        steps(python, [0, 10], 10)
        worker = trace.host.line("tf_Compute/1")
        for at in (2, 4, 6, 12, 14):
            worker.add("ExecutorState::Process", at, 1, id=5, iter_num=at)
            worker.add("while/body/MatMul:MatMul", at, 1)
        found = trace.analyze(tmp_path)
        assert found.steps.count == 2
        assert found.steps.mean.device_compute_s == pytest.approx(0.0025)

    def test_six_steps_lose_the_first_and_the_last(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        for place, (start, lasts) in enumerate([(0, 90), (100, 10), (200, 20), (300, 30), (400, 20), (500, 70)]):
            python.add("train", start, lasts, step_num=place, _r=1)
        found = trace.analyze(tmp_path).steps
        assert (found.count, found.min_s, found.max_s) == (4, pytest.approx(0.010), pytest.approx(0.030))
        assert "first and last of 6 left out" in found.statement

    def test_keras_marks_batches_without_a_root_mark(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        for place in range(3):
            python.add("Profiled batch", place * 10, 8, step_num=place)
            python.add("FunctionRun", place * 10 + 1, 1, id=7, _r=1)
        found = trace.analyze(tmp_path).steps
        assert (found.basis, found.count) == ("keras", 3)

    @pytest.mark.parametrize("stats", [{}, {"step_num": 3}], ids=["no number", "no root mark"])
    def test_without_proper_markers_the_fetches_tell(self, tmp_path: Path, stats: dict[str, int]) -> None:
        trace = Trace()
        python = trace.host.line("python")
        for at in (0, 20, 40):
            python.add("train", at, 18, **stats)
            fetch(python, at, 8)
        found = trace.analyze(tmp_path)
        assert (found.steps.basis, found.steps.confidence, found.steps.count) == ("fetch", "lower", 2)
        assert "inferred" in found.steps.statement
        assert found.input_fraction == pytest.approx(8 / 20)

    def test_fetches_before_their_markers_belong_to_the_step(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        for at in (0, 20, 40):
            fetch(python, at, 8)
            steps(python, [at + 10], 10)
        found = trace.analyze(tmp_path)
        assert found.steps.mean_s == pytest.approx(0.020)
        assert found.input_fraction == pytest.approx(8 / 20)
        assert "from its fetch on" in found.steps.statement

    def test_steps_without_a_marker_of_their_own_are_not_added_to_the_next(self, tmp_path: Path) -> None:
        """Every other step is marked; the fetch of the unmarked one is no part of the marked one."""
        trace = Trace()
        python = trace.host.line("python")
        for at in (0, 20, 40, 60):
            fetch(python, at, 8)
            if at in (20, 60):
                steps(python, [at + 10], 10)
        assert trace.analyze(tmp_path).steps.mean_s == pytest.approx(0.020)

    def test_the_marker_with_most_time_is_the_step(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        steps(python, [0, 10], 10)
        python.add("test", 20, 5, step_num=0, _r=1)
        found = trace.analyze(tmp_path).steps
        assert found.count == 2
        assert "'test'" in found.statement

    def test_one_fetch_gives_a_verdict_on_the_span(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        fetch(python, 0, 30)
        trace.host.line("tf_Compute/1").add("MatMul:MatMul", 30, 70)
        found = trace.analyze(tmp_path)
        assert (found.steps.basis, found.steps.confidence, found.steps.count) == ("span", "low", 0)
        assert found.input_fraction == pytest.approx(0.3)
        assert found.verdict.bound == "input-high"

    def test_nothing_at_all_is_said_to_be_unknown(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.host.line("python")
        trace.host.event_id("train")
        found = trace.analyze(tmp_path)
        assert found.verdict.bound == "unknown"
        assert found.input_fraction is None


class TestSplit:
    def test_on_a_cpu_each_moment_has_one_part(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        steps(python, [0], 100)
        fetch(python, 0, 30)
        python.add("step", 30, 60, tf_function_call="traced-nonXla")
        python.add("tf.function-graph_building", 30, 20)
        python.add("EagerLocalExecute: __inference_step_7", 50, 40)
        python.add("TFE_DeleteTensorHandle", 90, 5)
        worker = trace.host.line("tf_Compute/1")
        worker.add("ExecutorState::Process", 20, 60, id=7)
        worker.add("MatMul:MatMul", 20, 50)
        found = trace.analyze(tmp_path)
        # Waiting comes before computing (30, not 20), compiling is what is left of the call, then the host's rest.
        assert parts(found) == {
            "step": 100, "input_wait": 30, "device_compute": 40, "compile": 20, "host": 5, "other": 5,
        }  # fmt: skip
        assert_sums(found)

    def test_eager_operations_are_computing_only_in_their_kernels(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        steps(python, [0], 100)
        for at in (0, 50):
            python.add("TFE_Py_FastPathExecute_C", at, 40)
            python.add("EagerLocalExecute: MatMul", at + 5, 30)
            python.add("EagerKernelExecute", at + 10, 10)
        found = trace.analyze(tmp_path)
        assert parts(found) == {"step": 100, "device_compute": 20, "host": 60, "other": 20}
        assert found.verdict.bound == "host"
        assert [finding.code for finding in found.findings] == ["host-python"]

    def test_operations_of_the_input_pipeline_are_not_the_step_computing(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        steps(python, [0], 100)
        pool = trace.host.line("tf_data_private_threadpool/1")
        pool.add("ExecutorState::Process", 0, 90, id=3)
        pool.add("DecodeJpeg:DecodeJpeg", 0, 90)
        found = trace.analyze(tmp_path)
        assert parts(found) == {"step": 100, "other": 100}
        assert found.verdict.bound == "outside"

    def test_on_a_gpu_computing_hides_waiting_and_copies(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        steps(python, [0], 100)
        fetch(python, 0, 50)
        python.add("EagerLocalExecute: __inference_step_1", 50, 20)
        gpu = trace.plane("/device:GPU:0")
        gpu.line("Stream #14(MemcpyH2D)").add("MemcpyH2D", 40, 25)
        gpu.line("Stream #13(Compute)").add("void gemm()", 10, 20).add("volta_sgemm", 60, 30)
        gpu.line("Steps").add("0", 0, 100)
        found = trace.analyze(tmp_path)
        # wait 0-10 and 30-50; copy 50-60; host 50-70 is hidden by the copy and the kernel.
        assert parts(found) == {
            "step": 100, "device_compute": 50, "input_wait": 30, "host_to_device": 10, "other": 10,
        }  # fmt: skip
        assert found.device == "GPU"
        assert found.input_fraction == pytest.approx(0.4)
        assert_sums(found)
        assert "copy-not-overlapped" in [finding.code for finding in found.findings]

    def test_two_gpus_are_busy_when_either_is(self, tmp_path: Path) -> None:
        trace = Trace()
        steps(trace.host.line("python"), [0], 100)
        for number, start in enumerate((0, 30)):
            trace.plane(f"/device:GPU:{number}").line("Stream #1(Compute)").add("kernel", start, 40)
        assert trace.analyze(tmp_path).steps.mean.device_compute_s == pytest.approx(0.070)

    def test_a_tpu_has_its_own_steps_and_infeed(self, tmp_path: Path) -> None:
        trace = Trace()
        steps(trace.host.line("python"), [0], 500)
        tpu: PlaneBuilder = trace.plane("/device:TPU:0")
        tpu.categories["%infeed.1"] = "infeed"
        tpu.line("Steps").add("0", 0, 100).add("1", 100, 100)
        operations = tpu.line("XLA Ops")
        for start in (0, 100):
            # The loop spans all that it repeats; only what is inside it counts.
            operations.add("%while.2", start, 95).add("%infeed.1", start, 35).add("%fusion.3", start + 40, 50)
        found = trace.analyze(tmp_path)
        assert found.device == "TPU"
        assert (found.steps.basis, found.steps.count) == ("device", 2)
        assert parts(found) == {"step": 100, "input_wait": 35, "device_compute": 50, "other": 15}
        assert_sums(found)

    def test_a_call_that_builds_a_graph_outside_the_steps_is_no_finding(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        steps(python, [50, 150], 50)
        python.add("step", 0, 40, tf_function_call="traced-nonXla")
        trace.host.line("tf_Compute/1").add("MatMul:MatMul", 50, 50)
        assert trace.analyze(tmp_path).findings == ()
        python.add("step", 160, 20, tf_function_call="traced-nonXla")
        found = trace.analyze(tmp_path).findings
        assert [finding.code for finding in found] == ["retracing"]
        assert found[0].evidence.startswith("1 call of a tf.function built a new graph")


def test_a_training_loop_inside_the_graph_is_told_from_its_input(tmp_path: Path) -> None:
    """AutoGraph turns ``for batch in dataset`` into a data set that runs the step: no markers and no fetches."""
    trace = Trace()
    loop = trace.host.line("tf_data_reduce_dataset/1")
    pool = trace.host.line("tf_data_private_threadpool/1")
    for place, at in enumerate((0, 100, 200)):
        loop.add("ReduceIterator::Root", at, 100, id=1, name="ScanDataset:8")
        loop.add("ReduceIterator::Root::Scan", at, 100, id=2, parent_id=1)
        loop.add("ReduceIterator::Root::Scan::BatchV2", at, 30, id=3, parent_id=2)
        loop.add("ReduceIterator::Root::Scan::BatchV2::Map", at, 25, id=4, parent_id=3)
        loop.add("InstantiatedCapturedFunction::Run", at, 20, id=50 + place)
        loop.add("InstantiatedCapturedFunction::Run", at + 30, 70, id=70 + place)
        pool.add("ExecutorState::Process", at, 20, id=50 + place)
        pool.add("DecodeJpeg:DecodeJpeg", at, 20)
        pool.add("ExecutorState::Process", at + 30, 60, id=70 + place)
        pool.add("MatMul:MatMul", at + 30, 60)
    found = trace.analyze(tmp_path)
    assert (found.steps.basis, found.steps.count) == ("fetch", 2)
    assert parts(found) == {"step": 100, "input_wait": 30, "device_compute": 60, "other": 10}
    assert found.bottleneck is not None
    assert found.bottleneck.stage == "Map"
    assert [op.operation for op in found.top_ops] == ["DecodeJpeg"]
