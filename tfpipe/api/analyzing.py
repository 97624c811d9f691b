"""``tfpipe.analyze``."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path

from tfpipe.trace_records import SessionAnalysis

# Where a report is not in a terminal that could be asked for its width.
REPORT_WIDTH = 100


class AnalyzedTrace(SessionAnalysis):
    """A ``SessionAnalysis``; a notebook shows it as tables, an interpreter as its report."""

    __slots__ = ()

    def __repr__(self) -> str:
        from tfpipe.printable import printable
        from tfpipe.report.trace_text import render_trace

        return printable(render_trace(self, REPORT_WIDTH))

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        from tfpipe.report import trace_markdown

        return {"text/plain": repr(self), "text/markdown": trace_markdown.render_trace(self)}


def analyze(path: str | os.PathLike[str], *, session: str | None = None, host: str | None = None) -> AnalyzedTrace:
    """Verdict and bottleneck of a TensorFlow profiler trace, as ``tfpipe analyze`` says them.

    Args:
        path: an ``.xplane.pb`` file, the directory of one session, a log directory, or a run directory: of that the
            recommended candidate's trace.
        session: the profiling session of a log directory; the newest if left out.
        host: one host of a session; all if left out.

    Raises:
        UsageError: there is no trace.
        DataError: it is damaged.
    """
    from tfpipe.runfile import find_trace
    from tfpipe.trace.analysis import analyze_path

    found = None if session is not None else find_trace(Path(path), None)
    analyzed = analyze_path(Path(path) if found is None else found.path, session=session, host=host)
    return AnalyzedTrace(**{field.name: getattr(analyzed, field.name) for field in fields(SessionAnalysis)})
