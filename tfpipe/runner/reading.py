"""The seam to whatever reads traces: counts their events and says what they mean. ``cli`` brings the wing in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfpipe.records import Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReading:
    """Both take a session folder. ``explain`` is None where nothing could be told."""

    count_events: Callable[[Path], int]
    explain: Callable[[Path], Explanation | None]
