"""Brings the room that reads traces to the runner, which knows it only as two functions."""

from __future__ import annotations

from pathlib import Path

from tfpipe.errors import TfpipeError
from tfpipe.records import Explanation
from tfpipe.runner.reading import TraceReading

TOP_OPS = 3


def trace_reading() -> TraceReading:
    """Counts and explains with ``tfpipe.trace``."""
    return TraceReading(count_events=_count, explain=_explain)


def _count(session: Path) -> int:
    from tfpipe.trace.reader import count_events

    return sum(count_events(path) for path in session.glob("*.xplane.pb"))


def _explain(session: Path) -> Explanation | None:
    """None for a trace that cannot be read: it is then there to be opened, and explains nothing."""
    from tfpipe.trace.analysis import analyze_trace

    try:
        analysis = analyze_trace(session)
    except TfpipeError:
        return None
    bottleneck = analysis.bottleneck
    return Explanation(
        bottleneck=None if bottleneck is None else bottleneck.stage,
        share=None if bottleneck is None else bottleneck.share,
        top_ops=tuple((op.operation, op.share) for op in analysis.top_ops[:TOP_OPS]),
        findings=tuple(f"{finding.evidence} {finding.action}" for finding in analysis.findings),
    )
