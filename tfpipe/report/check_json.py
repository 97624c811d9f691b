"""A check report for programs. Format history: 1, the first."""

from __future__ import annotations

from typing import Any

import msgspec

from tfpipe.check_records import CheckReport

FORMAT = "tfpipe-check"
VERSION = 1


def render_check_json(report: CheckReport) -> str:
    """The report as JSON, indented, with a final newline. Each finding carries its rule's reason and remedy."""
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, **msgspec.to_builtins(report)}
    for rule in content["rules"]:
        # The examples belong to the documentation, not to every result.
        del rule["bad"], rule["good"]
    for finding in content["findings"]:
        rule = report.rule(finding["rule"])
        finding["reason"], finding["instead"] = rule.reason, rule.instead
    return msgspec.json.format(msgspec.json.encode(content), indent=1).decode() + "\n"
