"""A thousand damaged traces: an answer or a clear refusal, never a traceback, never much memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.trace.builder import full_trace
from tfpipe.errors import DataError, TfpipeError
from tfpipe.report import trace_json, trace_markdown, trace_text
from tfpipe.trace.analysis import analyze_file
from tfpipe.trace_records import SessionAnalysis, TraceAnalysis

WHOLE = full_trace(batches=4).encode()
LARGE = full_trace(batches=1000).encode()


def report(analysis: TraceAnalysis) -> str:
    session = SessionAnalysis(main=analysis)
    return "\n".join(
        [
            trace_text.render_trace(session, 80),
            trace_json.render_trace(session),
            trace_markdown.render_trace(session),
        ]
    )


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """The trace with some bytes changed, taken out, doubled or cut off."""
    content = bytearray(WHOLE)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        kind = draw(st.sampled_from(["flip", "set", "cut out", "double", "insert", "end"]))
        length = draw(st.integers(1, 40))
        if kind == "flip" and content:
            content[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set" and content:
            content[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        elif kind == "cut out":
            del content[at : at + length]
        elif kind == "double":
            content[at:at] = content[at : at + length]
        elif kind == "insert":
            content[at:at] = draw(st.binary(min_size=1, max_size=20))
        elif kind == "end":
            del content[at:]
    return bytes(content)


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=mutated())
def test_a_mutated_trace_never_ends_in_a_traceback(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(content)
    try:
        analysis = analyze_file(path)
    except TfpipeError:
        return
    for split in analysis.steps.each:
        parts = (split.device_compute_s, split.input_wait_s, split.host_to_device_s, split.host_s, split.compile_s)
        assert sum(parts) + split.other_s == pytest.approx(split.step_s, rel=1e-9, abs=1e-9)
    assert report(analysis)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutated_trace_takes_no_more_than_ten_times_its_size(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(LARGE)
    for _ in range(data.draw(st.integers(1, 20))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        analyze_file(path)
    except DataError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 10 * len(content)
