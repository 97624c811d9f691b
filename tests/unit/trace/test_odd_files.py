"""Files that are no trace, half a trace, or a trace of something unexpected: a clear answer each."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tests.unit.trace.builder import Trace, full_trace, stage, steps
from tfpipe.errors import DataError
from tfpipe.report import trace_text
from tfpipe.trace.analysis import analyze_file
from tfpipe.trace.reader import count_events
from tfpipe.trace_records import SessionAnalysis

ROOT = "Iterator::Root"


class TestRefused:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "is empty"),
            (b'{"traceEvents": []}', "JSON trace"),
            (gzip.compress(b'{"traceEvents": []}'), "JSON trace"),
            (b"\x89PNG\r\n\x1a\n" + bytes(100), "not a profiler trace"),
            (b"\xff" * 1000, "not a profiler trace"),
            (full_trace().encode()[:-100], "cut short"),
            (gzip.compress(full_trace().encode())[:-20], "gzip file that was cut short"),
            (b"\x1f\x8b" + b"\x00" * 50, "damaged gzip"),
            (Trace().encode(), "holds no planes"),
        ],
    )
    def test_says_what_it_is(self, tmp_path: Path, content: bytes, message: str) -> None:
        path = tmp_path / "vm.xplane.pb"
        path.write_bytes(content)
        with pytest.raises(DataError, match=message) as raised:
            analyze_file(path)
        assert str(path) in raised.value.message
        assert raised.value.hint

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_file_that_may_not_be_read(self, tmp_path: Path) -> None:
        path = full_trace().write(tmp_path)
        path.chmod(0)
        with pytest.raises(DataError, match="cannot be read"):
            analyze_file(path)


class TestAnswered:
    def test_a_compressed_trace_says_the_same(self, tmp_path: Path) -> None:
        plain = full_trace().analyze(tmp_path)
        path = tmp_path / "vm.xplane.pb.gz"
        path.write_bytes(gzip.compress(full_trace().encode()))
        packed = analyze_file(path)
        assert (packed.steps, packed.pipelines, packed.host) == (plain.steps, plain.pipelines, plain.host)

    def test_unknown_planes_are_named(self, tmp_path: Path) -> None:
        assert full_trace().analyze(tmp_path).notes == ("Not looked at: /host:python-tracer.",)

    def test_a_trace_without_tf_data_still_has_a_verdict(self, tmp_path: Path) -> None:
        trace = Trace()
        steps(trace.host.line("python"), [0, 10], 10)
        trace.host.line("tf_Compute/1").add("MatMul:MatMul", 0, 20)
        found = trace.analyze(tmp_path)
        assert found.verdict.bound == "compute"
        assert found.pipelines == ()
        assert "no tf.data events" in found.notes[0]

    def test_a_device_alone_is_judged_by_its_span(self, tmp_path: Path) -> None:
        trace = Trace()
        trace.plane("/device:GPU:0").line("Stream #1").add("kernel", 0, 60).add("kernel", 80, 20)
        found = trace.analyze(tmp_path)
        assert found.steps.basis == "span"
        assert found.steps.mean.device_compute_s == pytest.approx(0.080)

    def test_an_iterator_that_has_ended(self, tmp_path: Path) -> None:
        """The last call finds the end: no element is taken over."""
        trace = Trace()
        python = trace.host.line("python")
        producer = trace.host.line("tf_data_iterator_resource/1")
        steps(python, [0, 50], 50)
        for at, element in ((0, 5), (50, None)):
            python.add("IteratorGetNextOp::DoCompute", at, 10, id=900)
            python.add(ROOT, at, 10, id=1)
            python.add(f"{ROOT}::Prefetch", at, 10, id=2, parent_id=1, buffer_limit=1)
            if element:
                python.add("PrefetchConsume", at + 9, 1, element_id=element)
                producer.add("PrefetchProduce", at, 9, element_id=element)
            producer.add(f"{ROOT}::Prefetch::Range", at, 9, id=3, parent_id=2)
        found = trace.analyze(tmp_path)
        assert found.pipelines[0].calls == 2
        assert stage(found, "Range").calls == 2

    def test_dropped_events_are_said(self, tmp_path: Path) -> None:
        trace = full_trace()
        trace.host.stats["dropped_traces"] = 12
        trace.errors.append("buffer full")
        found = trace.analyze(tmp_path).findings[-1]
        assert (found.code, found.evidence) == (
            "events-dropped", "The profiler dropped 12 events. It says: buffer full",
        )  # fmt: skip

    @pytest.mark.parametrize("stat", ["buffer_size", "buffer_limit"])
    def test_a_number_too_large_for_anything(self, tmp_path: Path, stat: str) -> None:
        trace = full_trace()
        trace.host.lines[0].add(
            "Iterator::Root::Prefetch::Shuffle", 2, 1, id=33, parent_id=2, parallelism=1 << 62, **{stat: (1 << 64) - 1}
        )
        assert stage(trace.analyze(tmp_path), "Shuffle").buffer is not None

    def test_names_cannot_steer_the_terminal(self, tmp_path: Path) -> None:
        trace = full_trace()
        line = trace.host.line("x")
        line.add(f"{ROOT}::Evil\x1b[2J\n|`<b>", 0, 1, id=90, name="\x1b]0;title\x07")
        text = trace_text.render_trace(SessionAnalysis(main=trace.analyze(tmp_path)), 120)
        assert "\x1b" not in text
        assert "\x07" not in text

    def test_events_are_counted(self, tmp_path: Path) -> None:
        assert count_events(full_trace(batches=2).write(tmp_path)) == 2 * 13 + 2
