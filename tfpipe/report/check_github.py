"""A check report as GitHub Actions workflow commands, which annotate the changed lines of a pull request.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from tfpipe.check_records import CheckReport, Finding


def render_check_github(report: CheckReport) -> str:
    """One workflow command per finding, "" without any."""
    return "".join(_command(finding, report.rule(finding.rule).instead) + "\n" for finding in report.findings)


def _command(finding: Finding, instead: str) -> str:
    properties = {
        "file": finding.path,
        "line": str(finding.line),
        "endLine": str(finding.end_line),
        "col": str(finding.column),
        "endColumn": str(finding.end_column),
        "title": f"tfpipe check: {finding.rule}",
    }
    if finding.end_line != finding.line:
        # GitHub takes columns only for a finding on one line.
        del properties["col"], properties["endColumn"]
    listed = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    seen = f" Seen: {finding.evidence}." if finding.status == "seen" and finding.evidence else ""
    return f"::{finding.severity} {listed}::{_escape(f'{finding.message}.{seen} Instead: {instead}')}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
