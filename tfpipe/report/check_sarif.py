"""A check report as SARIF 2.1.0, which code-scanning services and editors read.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any
from urllib.parse import quote

import msgspec

from tfpipe.check_records import CheckReport, Finding, Rule

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT = "%SRCROOT%"


def render_check_sarif(report: CheckReport) -> str:
    """The report as a SARIF log with one run; relative paths are relative to where the command ran."""
    indexes = {rule.name: index for index, rule in enumerate(report.rules)}
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "tfpipe check",
                        "semanticVersion": report.tfpipe_version,
                        "rules": [_rule(rule) for rule in report.rules],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [{"executionSuccessful": report.run is None or report.run.error is None}],
                "artifacts": [{"location": _location(file.path)} for file in report.files],
                "results": [_result(finding, indexes[finding.rule]) for finding in report.findings],
            }
        ],
    }
    return msgspec.json.format(msgspec.json.encode(log), indent=1).decode() + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.name,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.reason},
        "help": {"text": f"{rule.reason} Instead: {rule.instead}"},
        "defaultConfiguration": {"level": rule.severity},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    evidence = f" Seen: {finding.evidence}." if finding.status == "seen" and finding.evidence else ""
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": _location(finding.path),
            "region": {
                "startLine": finding.line,
                "startColumn": finding.column,
                "endLine": finding.end_line,
                "endColumn": finding.end_column,
            },
        }
    }
    if finding.function:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.function, "kind": "function"}]
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": f"{finding.message}.{evidence}"},
        "locations": [location],
        "properties": {"status": finding.status, "traced": finding.traced},
    }


def _location(path: str) -> dict[str, str]:
    pure = PurePath(path)
    if pure.is_absolute():
        return {"uri": pure.as_uri()}
    return {"uri": quote(pure.as_posix()), "uriBaseId": _ROOT}
