"""What a trace says, as versioned JSON. Format history: 1, the first."""

from __future__ import annotations

from typing import Any

import msgspec

from tfpipe.trace_records import Comparison, SessionAnalysis

FORMAT = "tfpipe-trace"
COMPARISON_FORMAT = "tfpipe-trace-comparison"
VERSION = 1


def render_trace(session: SessionAnalysis) -> str:
    """The analysis as JSON: the fields of ``SessionAnalysis`` beside ``format`` and ``version``."""
    return _encode(FORMAT, session)


def render_comparison(comparison: Comparison) -> str:
    """Two analyses and what changed as JSON: the fields of ``Comparison`` beside ``format`` and ``version``."""
    return _encode(COMPARISON_FORMAT, comparison)


def _encode(kind: str, record: Any) -> str:
    content = {"format": kind, "version": VERSION, **msgspec.to_builtins(record)}
    return msgspec.json.format(msgspec.json.encode(content), indent=1).decode()
