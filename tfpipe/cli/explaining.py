"""Brings the room that reads traces to the runner, which knows it only as two functions."""

from __future__ import annotations

from pathlib import Path

from tfpipe.errors import TfpipeError
from tfpipe.records import Explanation
from tfpipe.runner.reading import TraceReading

TOP_OPS = 3
# Findings about the step, which mean nothing where the step is tfpipe's own.
OF_THE_STEP = frozenset({"host-python", "short-step"})


def trace_reading(step: str) -> TraceReading:
    """Counts and explains with ``tfpipe.trace``; ``step`` is the run's. A simulated device idles on purpose."""
    left_out = OF_THE_STEP if step.startswith(("simulated", "none")) else frozenset()
    return TraceReading(count_events=_count, explain=lambda session: _explain(session, left_out))


def _count(session: Path) -> int:
    from tfpipe.trace.reader import count_events

    return sum(count_events(path) for path in session.glob("*.xplane.pb"))


def _explain(session: Path, left_out: frozenset[str]) -> Explanation | None:
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
        findings=tuple(
            f"{finding.evidence} {finding.action}" for finding in analysis.findings if finding.code not in left_out
        ),
    )
