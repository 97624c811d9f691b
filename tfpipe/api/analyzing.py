"""``tfpipe.analyze``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfpipe.trace_records import SessionAnalysis


def analyze(path: str | os.PathLike[str], *, session: str | None = None, host: str | None = None) -> SessionAnalysis:
    """Verdict and bottleneck of a TensorFlow profiler trace, as ``tfpipe analyze`` says them.

    Args:
        path: an ``.xplane.pb`` file, the directory of one session, or a log directory.
        session: the profiling session of a log directory; the newest if left out.
        host: one host of a session; all if left out.

    Raises:
        UsageError: there is no trace.
        DataError: it is damaged.
    """
    from tfpipe.trace.analysis import analyze_path

    return analyze_path(Path(path), session=session, host=host)
