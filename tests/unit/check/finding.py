"""Short ways to say what a piece of source should yield."""

from __future__ import annotations

import textwrap

from tfpipe.check.analyze import analyze_source
from tfpipe.check_records import Finding

HEAD = "import tensorflow as tf\n"


def findings_in(code: str, name: str | None = None) -> tuple[Finding, ...]:
    """The findings in ``code``, dedented, under the usual import."""
    return analyze_source("code.py", HEAD + textwrap.dedent(code), name).findings


def rules_in(code: str, name: str | None = None) -> list[str]:
    return [finding.rule for finding in findings_in(code, name)]
