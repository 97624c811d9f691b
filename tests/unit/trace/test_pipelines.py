"""Pipelines whose critical path is known by construction. Times are milliseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.trace.builder import Line, Trace, stage, steps

ROOT = "Iterator::Root"
PREFETCH = f"{ROOT}::Prefetch"


def fetch(line: Line, at: float, lasts: float, *, run: int = 900) -> None:
    line.add("IteratorGetNextOp::DoCompute", at, lasts, id=run, element_size=4096)


def prefetching(trace: Trace) -> tuple[Line, Line]:
    """A consumer with one 100 ms step whose fetch of element 1 waits from 20 to 60."""
    python = trace.host.line("python")
    steps(python, [0], 100)
    fetch(python, 20, 40)
    python.add(ROOT, 20, 40, id=1, name="PrefetchDataset:9")
    python.add(PREFETCH, 20, 40, id=2, parent_id=1, buffer_limit=2, autotune="false")
    python.add("PrefetchConsume", 59, 1, element_id=71)
    return python, trace.host.line("tf_data_iterator_resource/1")


class TestPrefetch:
    def test_a_producer_blocks_only_while_the_consumer_waits_for_its_element(self, tmp_path: Path) -> None:
        trace = Trace()
        _, producer = prefetching(trace)
        # Made from 0 to 50, waited for from 20: 30 of its 50 ms block.
        producer.add("PrefetchProduce", 0, 50, element_id=71)
        producer.add(f"{PREFETCH}::Map", 0, 50, id=3, parent_id=2)
        producer.add(f"{PREFETCH}::Map::Range", 10, 20, id=4, parent_id=3)  # 10 of it before the wait
        found = trace.analyze(tmp_path)
        assert stage(found, "Map").blocking_s == pytest.approx(0.030)
        assert stage(found, "Range").blocking_self_s == pytest.approx(0.010)
        assert stage(found, "Map").blocking_self_s == pytest.approx(0.020)
        assert stage(found, "Prefetch").blocking_self_s == pytest.approx(0.010)
        assert stage(found, "Map").total_s == pytest.approx(0.050)
        assert stage(found, "Map").self_s == pytest.approx(0.030)
        assert found.bottleneck is not None
        assert found.bottleneck.stage == "Map"
        assert found.bottleneck.share == pytest.approx(20 / 40)
        assert found.bottleneck.step_fraction == pytest.approx(20 / 100)
        assert found.input_fraction == pytest.approx(0.4)

    def test_a_producer_that_was_done_before_blocks_nobody(self, tmp_path: Path) -> None:
        trace = Trace()
        _, producer = prefetching(trace)
        producer.add("PrefetchProduce", 0, 19, element_id=71)
        producer.add(f"{PREFETCH}::Map", 0, 19, id=3, parent_id=2)
        found = trace.analyze(tmp_path)
        assert stage(found, "Map").blocking_s == 0
        assert found.bottleneck is None

    def test_work_on_another_element_during_the_wait_does_not_count(self, tmp_path: Path) -> None:
        trace = Trace()
        _, producer = prefetching(trace)
        producer.add("PrefetchProduce", 0, 30, element_id=71)
        producer.add(f"{PREFETCH}::Map", 0, 30, id=3, parent_id=2)
        producer.add("PrefetchProduce", 30, 70, element_id=72)
        producer.add(f"{PREFETCH}::Map", 30, 70, id=3, parent_id=2)
        found = trace.analyze(tmp_path)
        assert stage(found, "Map").blocking_s == pytest.approx(0.010)

    def test_a_wait_for_an_element_begun_before_the_trace_is_held_against_no_stage(self, tmp_path: Path) -> None:
        trace = Trace()
        prefetching(trace)
        found = trace.analyze(tmp_path)
        assert stage(found, "Prefetch").blocking_s == pytest.approx(0.040)
        assert stage(found, "Prefetch").blocking_self_s == 0
        assert found.bottleneck is None

    def test_an_id_made_again_later_does_not_explain_an_earlier_wait(self, tmp_path: Path) -> None:
        trace = Trace()
        _, producer = prefetching(trace)
        producer.add("PrefetchProduce", 70, 10, element_id=71)
        producer.add(f"{PREFETCH}::Map", 70, 10, id=3, parent_id=2)
        assert stage(trace.analyze(tmp_path), "Prefetch").blocking_self_s == 0

    def test_only_the_wait_for_an_element_counts_its_making(self, tmp_path: Path) -> None:
        """Element 2 is being made while element 1 is waited for: that is no part of the wait for 2."""
        trace = Trace()
        python = trace.host.line("python")
        steps(python, [0], 100)
        for at, lasts, element in ((0, 30, 1), (50, 10, 2)):
            fetch(python, at, lasts)
            python.add(ROOT, at, lasts, id=1)
            python.add(PREFETCH, at, lasts, id=2, parent_id=1, buffer_limit=2)
            python.add("PrefetchConsume", at + lasts - 1, 1, element_id=element)
        for thread, (start, lasts, element) in enumerate([(0, 5, 1), (10, 50, 2)]):
            producer = trace.host.line(f"tf_data_iterator_resource/{thread}")
            producer.add("PrefetchProduce", start, lasts, element_id=element)
            producer.add(f"{PREFETCH}::Range", start, lasts, id=3, parent_id=2)
        assert stage(trace.analyze(tmp_path), "Range").blocking_s == pytest.approx(0.015)

    def test_an_element_id_that_comes_back_belongs_to_the_next_consumer(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        producer = trace.host.line("tf_data_iterator_resource/1")
        steps(python, [0, 100], 100)
        for start, busy in ((0, 30), (100, 10)):
            fetch(python, start + 20, 40)
            python.add(ROOT, start + 20, 40, id=1)
            python.add(PREFETCH, start + 20, 40, id=2, parent_id=1, buffer_limit=1)
            python.add("PrefetchConsume", start + 59, 1, element_id=5)
            producer.add("PrefetchProduce", start + 20, busy, element_id=5)
            producer.add(f"{PREFETCH}::Range", start + 20, busy, id=3, parent_id=2)
        assert stage(trace.analyze(tmp_path), "Range").blocking_s == pytest.approx(0.040)

    def test_the_buffer_is_empty_where_the_profiler_wrote_no_number(self, tmp_path: Path) -> None:
        trace = Trace()
        python = trace.host.line("python")
        steps(python, [0], 100)
        for at, held in ((0, {}), (20, {"buffered_elements": 1}), (40, {"buffered_elements": 4}), (60, {})):
            fetch(python, at, 10)
            python.add(ROOT, at, 10, id=1)
            python.add(PREFETCH, at, 10, id=2, parent_id=1, buffer_limit=4, autotune="true", **held)
        found = stage(trace.analyze(tmp_path), "Prefetch")
        assert found.buffer is not None
        assert (found.buffer.empty_fraction, found.buffer.full_fraction) == (0.5, 0.25)
        assert found.buffer.mean_elements == pytest.approx(5 / 4)
        assert found.autotuned is True


def test_a_device_side_pipeline_whose_second_stage_is_a_generator(tmp_path: Path) -> None:
    """The device's Prefetch waits for a Generator, whose function reads the host's pipeline on another thread."""
    trace = Trace()
    python = trace.host.line("python")
    steps(python, [0], 100)
    fetch(python, 0, 80)
    python.add("Iterator::Prefetch", 0, 80, id=1, buffer_limit=1, name="PrefetchDataset:1")
    python.add("PrefetchConsume", 79, 1, element_id=5)
    device = trace.host.line("tf_data_iterator_resource/1")
    device.add("PrefetchProduce", 10, 60, element_id=5)
    device.add("Iterator::Prefetch::Generator", 10, 60, id=2, parent_id=1)
    device.add("InstantiatedCapturedFunction::RunWithBorrowedArgs", 11, 58, id=500)
    remote = trace.host.line("tf_Compute/1")
    remote.add("ExecutorState::Process", 12, 50, id=500)
    remote.add("IteratorGetNextOp::DoCompute", 15, 40, id=500)
    remote.add(ROOT, 15, 40, id=10, name="MapDataset:7")
    remote.add(f"{ROOT}::Map", 15, 40, id=11, parent_id=10)
    remote.add(f"{ROOT}::Map::Range", 15, 10, id=12, parent_id=11)
    # Ahead of need: the device reads the host's pipeline again while the step computes.
    device.add("InstantiatedCapturedFunction::RunWithBorrowedArgs", 85, 10, id=501)
    remote.add("IteratorGetNextOp::DoCompute", 85, 10, id=501)
    found = trace.analyze(tmp_path)
    assert len(found.pipelines) == 1
    assert [(s.name, s.depth) for s in found.pipelines[0].stages] == [
        ("Prefetch", 0), ("Generator", 1), ("Root", 2), ("Map", 3), ("Range", 4),
    ]  # fmt: skip
    assert found.pipelines[0].calls == 1
    assert found.input_fraction == pytest.approx(0.8)
    assert stage(found, "Generator").blocking_s == pytest.approx(0.060)
    assert stage(found, "Generator").blocking_self_s == pytest.approx(0.020)
    assert stage(found, "Map").blocking_self_s == pytest.approx(0.030)
    assert stage(found, "Range").blocking_self_s == pytest.approx(0.010)
    assert found.bottleneck is not None
    assert found.bottleneck.stage == "Map"


def test_a_fused_map_and_batch_with_producers_that_overlap(tmp_path: Path) -> None:
    """Two threads make one batch from 10 to 40 and from 30 to 60: together 50 ms, of which 40 fall into the wait."""
    trace = Trace()
    python = trace.host.line("python")
    steps(python, [0], 100)
    fetch(python, 20, 60)
    python.add(ROOT, 20, 60, id=1)
    python.add(f"{ROOT}::MapAndBatch", 20, 60, id=2, parent_id=1, parallelism=2, batch_size=2)
    python.add("MapAndBatchConsume", 79, 1, element_id=9)
    for thread, (start, lasts) in enumerate([(10, 30), (30, 30)]):
        line = trace.host.line(f"tf_data_iterator_resource/{thread}")
        line.add("MapAndBatchProduce", start, lasts, element_id=9)
        line.add(f"{ROOT}::MapAndBatch::TFRecord", start, lasts, id=3, parent_id=2)
    late = trace.host.line("tf_data_iterator_resource/7")
    late.add("MapAndBatchProduce", 50, 30, element_id=10)
    late.add(f"{ROOT}::MapAndBatch::TFRecord", 50, 30, id=3, parent_id=2)
    found = trace.analyze(tmp_path)
    assert stage(found, "TFRecord").blocking_self_s == pytest.approx(0.040)
    assert stage(found, "MapAndBatch").blocking_self_s == pytest.approx(0.020)
    assert stage(found, "TFRecord").calls == 3
    assert stage(found, "TFRecord").threads == 3
    assert stage(found, "MapAndBatch").parallelism == 2


def test_the_function_of_a_parallel_map_is_taken_apart(tmp_path: Path) -> None:
    trace = Trace()
    python = trace.host.line("python")
    steps(python, [0], 100)
    fetch(python, 0, 50)
    python.add(ROOT, 0, 50, id=1)
    python.add(f"{ROOT}::ParallelMapV2", 0, 50, id=2, parent_id=1, parallelism=2, autotune="true")
    python.add("ParallelMapConsume", 49, 1, element_id=3)
    runner = trace.host.line("tf_data_iterator_resource/1")
    runner.add("ParallelMapProduce", 0, 5, element_id=3)
    runner.add(f"{ROOT}::ParallelMapV2::Range", 0, 2, id=3, parent_id=2)
    runner.add("InstantiatedCapturedFunction::RunAsync", 3, 1, id=77)
    worker = trace.host.line("tf_data_private_threadpool/1")
    worker.add("ExecutorState::Process", 5, 40, id=77)
    worker.add("map/DecodeJpeg:DecodeJpeg", 5, 25)
    worker.add("map/inner:Cast", 6, 1)
    worker.add("map/resize:ResizeBilinear", 30, 8)
    # The map calls a tf.function: its operations run under an id of their own.
    worker.add("FunctionRun", 39, 1, id=78)
    worker.add("ExecutorState::Process", 45, 5, id=78)
    worker.add("map/py:PyFunc", 45, 2)
    worker.add("map/py:PyFunc", 47, 2)
    found = trace.analyze(tmp_path)
    inside = stage(found, "ParallelMapV2")
    assert inside.function_calls == 1
    assert inside.function_s == pytest.approx(0.045)
    assert [(op.operation, op.calls, op.python) for op in inside.ops] == [
        ("DecodeJpeg", 1, False), ("ResizeBilinear", 1, False), ("PyFunc", 2, True), ("Cast", 1, False),
    ]  # fmt: skip
    assert [op.share for op in inside.ops] == pytest.approx([24 / 37, 8 / 37, 4 / 37, 1 / 37])
    assert inside.autotuned is True
    assert found.top_ops == inside.ops
    # None of it is the step's own computing.
    assert found.steps.mean.device_compute_s == 0


def test_two_pipelines_at_once_stay_apart(tmp_path: Path) -> None:
    """Training and validation have stages of the same names; their data sets differ."""
    trace = Trace()
    python = trace.host.line("python")
    steps(python, [0, 100], 100)
    for base, start, lasts, dataset in ((10, 0, 30, "MapDataset:1"), (20, 30, 20, "MapDataset:2")):
        for step in (0, 100):
            fetch(python, step + start, lasts)
            python.add(ROOT, step + start, lasts, id=base, name=dataset)
            python.add(f"{ROOT}::Map", step + start, lasts, id=base + 1, parent_id=base)
            python.add(f"{ROOT}::Map::Range", step + start, lasts / 2, id=base + 2, parent_id=base + 1)
    found = trace.analyze(tmp_path)
    assert [(p.name, p.calls, p.wait_fraction) for p in found.pipelines] == [
        ("MapDataset:1", 2, pytest.approx(0.3)), ("MapDataset:2", 2, pytest.approx(0.2)),
    ]  # fmt: skip
    assert stage(found, "Map", 0).blocking_self_s == pytest.approx(0.030)
    assert stage(found, "Map", 1).blocking_self_s == pytest.approx(0.020)
    assert found.input_fraction == pytest.approx(0.5)
    assert found.bottleneck is not None
    assert found.bottleneck.pipeline == "MapDataset:1"


def test_an_address_used_again_by_a_later_iterator_does_not_mix_pipelines(tmp_path: Path) -> None:
    """Iterator ids are addresses: after the first pipeline is gone the second has the same ones."""
    trace = Trace()
    python = trace.host.line("python")
    producer = trace.host.line("tf_data_iterator_resource/1")
    steps(python, [0, 100], 100)
    for start, dataset, lasts in ((0, "train", 10), (100, "validation", 30)):
        producer.add("PrefetchProduce", start, lasts, element_id=1)
        producer.add(f"{PREFETCH}::Range", start, lasts, id=3, parent_id=2)
        fetch(python, start, 40)
        python.add(ROOT, start, 40, id=1, name=dataset)
        python.add(PREFETCH, start, 40, id=2, parent_id=1, buffer_limit=1)
        python.add("PrefetchConsume", start + 39, 1, element_id=1)
    found = trace.analyze(tmp_path)
    blocked = {p.name: s.blocking_s for p in found.pipelines for s in p.stages if s.name == "Range"}
    assert blocked == {"train": pytest.approx(0.010), "validation": pytest.approx(0.030)}


def test_a_nested_interleave_adds_up_its_sub_iterators(tmp_path: Path) -> None:
    """An interleave inside an interleave: the index in brackets tells calls apart, not stages."""
    trace = Trace()
    python = trace.host.line("python")
    steps(python, [0], 100)
    fetch(python, 0, 60)
    outer, inner = f"{ROOT}::Interleave", f"{ROOT}::Interleave[{{}}]::ParallelInterleaveV4"
    python.add(ROOT, 0, 60, id=1)
    python.add(outer, 0, 60, id=2, parent_id=1, cycle_length=2)
    for place in (0, 1):
        python.add(inner.format(place), 5 + place * 25, 20, id=10 + place, parent_id=2, cycle_length=4, parallelism=2)
        python.add("ParallelInterleaveConsume", 24 + place * 25, 1, element_id=1)
    for place in (0, 1):
        worker = trace.host.line(f"tf_data_iterator_resource/{place}")
        worker.add("ParallelInterleaveProduce", 10 + place * 25, 10, element_id=1)
        path = inner.format(place) + f"[{place}]::TFRecord"
        worker.add(path, 10 + place * 25, 10, id=20 + place, parent_id=10 + place)
    found = trace.analyze(tmp_path)
    assert [(s.name, s.depth, s.calls) for s in found.pipelines[0].stages] == [
        ("Root", 0, 1), ("Interleave", 1, 1), ("ParallelInterleaveV4", 2, 2), ("TFRecord", 3, 2),
    ]  # fmt: skip
    blocked = {s.name: s.blocking_self_s for s in found.pipelines[0].stages}
    assert blocked == pytest.approx({"Root": 0, "Interleave": 0.020, "ParallelInterleaveV4": 0.020, "TFRecord": 0.020})


def test_two_inputs_that_block_at_the_same_moment_are_counted_once(tmp_path: Path) -> None:
    trace = Trace()
    python = trace.host.line("python")
    steps(python, [0], 100)
    fetch(python, 0, 60)
    python.add(ROOT, 0, 60, id=1)
    python.add(f"{ROOT}::ParallelBatch", 0, 60, id=2, parent_id=1)
    python.add("ParallelBatchConsume", 59, 1, element_id=4)
    for place, (name, start, lasts) in enumerate([("Range", 0, 40), ("TFRecord", 20, 30)]):
        worker = trace.host.line(f"tf_data_iterator_resource/{place}")
        worker.add("ParallelBatchProduce", start, lasts, element_id=4)
        worker.add(f"{ROOT}::ParallelBatch::{name}", start, lasts, id=5 + place, parent_id=2)
    found = trace.analyze(tmp_path)
    blocked = {s.name: s.blocking_self_s for s in found.pipelines[0].stages}
    assert blocked == pytest.approx({"Root": 0, "ParallelBatch": 0.010, "Range": 0.040, "TFRecord": 0.010})
    assert sum(blocked.values()) == pytest.approx(found.pipelines[0].wait_s)


def test_the_slowest_call_names_the_stage_that_held_it_up(tmp_path: Path) -> None:
    """Usually the map blocks; the slowest call was held up by the source."""
    trace = Trace()
    python = trace.host.line("python")
    steps(python, range(0, 400, 100), 100)
    for start, lasts, source in ((0, 20, 1), (100, 20, 1), (200, 50, 45), (300, 20, 1)):
        fetch(python, start, lasts)
        python.add(ROOT, start, lasts, id=1)
        python.add(f"{ROOT}::Map", start, lasts, id=2, parent_id=1)
        python.add(f"{ROOT}::Map::TFRecord", start, source, id=3, parent_id=2)
    found = trace.analyze(tmp_path)
    slowest = found.pipelines[0].slow_calls[0]
    assert slowest.stage.endswith("::TFRecord")
    assert (slowest.at_s, slowest.duration_s) == (pytest.approx(0.2), pytest.approx(0.05))
    assert slowest.stage_share == pytest.approx(45 / 50)
    assert found.bottleneck is not None
    assert found.bottleneck.stage == "Map"


def test_the_element_size_comes_from_shapes_and_types(tmp_path: Path) -> None:
    trace = Trace()
    python = trace.host.line("python")
    steps(python, [0], 100)
    fetch(python, 0, 10)
    python.add(ROOT, 0, 10, id=1, shapes="[16,224,224,3] [16]", types="float int64")
    python.add(f"{ROOT}::Map", 0, 10, id=2, parent_id=1, shapes="[?,3]", types="float")
    found = trace.analyze(tmp_path)
    assert stage(found, "Root").element_bytes == 16 * 224 * 224 * 3 * 4 + 16 * 8
    assert stage(found, "Map").element_bytes is None
    assert found.pipelines[0].batch_bytes == 4096
