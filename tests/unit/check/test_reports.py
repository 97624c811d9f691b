"""The four renderings of one small report, whole."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tfpipe.check_records import (
    CheckedFile,
    CheckReport,
    CheckRun,
    Finding,
    FunctionTraces,
    Rule,
    TracedFunction,
)
from tfpipe.report.check_github import render_check_github
from tfpipe.report.check_json import render_check_json
from tfpipe.report.check_sarif import render_check_sarif
from tfpipe.report.check_text import render_check_text, render_rules_text

RULE = Rule(
    name="some-rule",
    severity="warning",
    summary="something is off",
    reason="It runs once, while the graph is built, and is a constant of the graph from then on.",
    instead="Do it outside, or with an operation of TensorFlow's own that runs on every call.",
    bad="x = 1\n",
    good="x = 2\n",
)
OTHER = replace(RULE, name="other-rule", severity="error")
FINDING = Finding(
    rule="some-rule",
    severity="warning",
    path="my code/träin.py",
    line=12,
    column=5,
    end_line=12,
    end_column=20,
    function="Net.call",
    traced="call of a Keras layer or model",
    message="x runs once: 50%, or so, for each graph that is built and not once per call",
)
FILE = CheckedFile(
    path="my code/träin.py",
    traced=(TracedFunction(name="Net.call", line=10, why="call of a Keras layer or model"),),
    suppressed=0,
    notes=(),
)
REPORT = CheckReport(
    tfpipe_version="1.2.3", targets=("my code/träin.py",), rules=(OTHER, RULE), files=(FILE,), findings=(FINDING,)
)
RUN = CheckRun(
    steps=5,
    elapsed_s=1.5,
    functions=(FunctionTraces(function="Net.call", calls=5, traces=2, operations=1234, causes=("x is now 3, was 2",)),),
)
SEEN = replace(REPORT, findings=(replace(FINDING, status="seen", evidence="ran once in 5 calls"),), run=RUN)


def test_text_at_80_columns() -> None:
    assert render_check_text(REPORT, 80) == (
        "my code/träin.py:12:5: warning: some-rule\n"
        "    x runs once: 50%, or so, for each graph that is built and not once per call.\n"
        "    In Net.call: call of a Keras layer or model.\n"
        "\n"
        "Why, and what to write instead\n"
        "  some-rule\n"
        "    It runs once, while the graph is built, and is a constant of the graph from\n"
        "    then on.\n"
        "    Instead: Do it outside, or with an operation of TensorFlow's own that runs\n"
        "    on every call.\n"
        "\n"
        "0 errors and 1 warning in 1 traced function in 1 file.\n"
    )


def test_text_after_a_run() -> None:
    lines = render_check_text(SEEN, 80).splitlines()
    assert lines[3] == "    Seen: ran once in 5 calls."
    assert lines[lines.index("Run: 5 steps in 1.50 s") + 1 :][:2] == [
        "  Net.call: 2 graphs built in 5 calls, 1,234 operations in its largest graph",
        "    again because x is now 3, was 2",
    ]


def test_text_after_a_run_that_failed() -> None:
    report = replace(SEEN, run=replace(RUN, error="ValueError: no"))
    assert "  It ended early: ValueError: no.\n" in render_check_text(report, 80)


@pytest.mark.parametrize("width", [20, 60, 80, 120, 300])
def test_no_line_is_wider_than_asked(width: int) -> None:
    assert max(map(len, render_check_text(SEEN, width).splitlines())) <= max(width, 60)


def test_text_without_findings() -> None:
    assert render_check_text(replace(REPORT, findings=())) == "No findings in 1 traced function in 1 file.\n"


def test_text_without_traced_code() -> None:
    report = replace(REPORT, findings=(), files=(replace(FILE, traced=(), suppressed=2),))
    assert render_check_text(report, 200) == (
        "Nothing in 1 file is traced by TensorFlow: no findings. 2 findings switched off by comments.\n"
    )


def test_notes_are_told() -> None:
    report = replace(REPORT, findings=(), files=(replace(FILE, notes=("line 4: there is no rule 'x' to ignore",)),))
    assert "my code/träin.py, line 4: there is no rule 'x' to ignore.\n" in render_check_text(report)


def test_rules_are_explained_with_both_examples() -> None:
    text = render_rules_text((RULE,), 80)
    assert text.startswith("some-rule (warning): something is off\n    It runs once")
    assert "    Found:\n        x = 1\n\n    Fine:\n        x = 2\n" in text


def test_json() -> None:
    content = json.loads(render_check_json(SEEN))
    assert (content["format"], content["version"], content["tfpipe_version"]) == ("tfpipe-check", 1, "1.2.3")
    assert content["findings"] == [
        {
            "rule": "some-rule",
            "severity": "warning",
            "path": "my code/träin.py",
            "line": 12,
            "column": 5,
            "end_line": 12,
            "end_column": 20,
            "function": "Net.call",
            "traced": "call of a Keras layer or model",
            "message": FINDING.message,
            "status": "seen",
            "evidence": "ran once in 5 calls",
            "reason": RULE.reason,
            "instead": RULE.instead,
        }
    ]
    assert content["run"]["functions"][0]["causes"] == ["x is now 3, was 2"]
    assert content["files"][0]["traced"][0]["line"] == 10
    assert sorted(content["rules"][0]) == ["instead", "name", "reason", "severity", "summary"]


def test_sarif() -> None:
    log = json.loads(render_check_sarif(SEEN))
    # Required by the 2.1.0 schema: version, runs; tool.driver.name; rules[].id; results[].message.text.
    assert log["version"] == "2.1.0"
    assert log["$schema"] == "https://json.schemastore.org/sarif-2.1.0.json"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "tfpipe check"
    assert [rule["id"] for rule in driver["rules"]] == ["other-rule", "some-rule"]
    assert driver["rules"][0]["defaultConfiguration"] == {"level": "error"}
    assert run["invocations"] == [{"executionSuccessful": True}]
    (result,) = run["results"]
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("some-rule", 1, "warning")
    assert result["message"] == {"text": f"{FINDING.message}. Seen: ran once in 5 calls."}
    location = result["locations"][0]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "my%20code/tr%C3%A4in.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 12, "startColumn": 5, "endLine": 12, "endColumn": 20},
    }
    assert location["logicalLocations"] == [{"fullyQualifiedName": "Net.call", "kind": "function"}]


def test_sarif_of_an_absolute_path_and_without_findings() -> None:
    report = replace(REPORT, findings=(), files=(replace(FILE, path="/a b/c.py"),))
    run = json.loads(render_check_sarif(report))["runs"][0]
    assert run["artifacts"] == [{"location": {"uri": "file:///a%20b/c.py"}}]
    # An empty list says that the code was checked; a missing one would say that it was not.
    assert run["results"] == []


def test_github() -> None:
    assert render_check_github(REPORT) == (
        "::warning file=my code/träin.py,line=12,endLine=12,col=5,endColumn=20,title=tfpipe check%3A some-rule::"
        "x runs once: 50%25, or so, for each graph that is built and not once per call. "
        f"Instead: {RULE.instead}\n"
    )


def test_github_of_several_lines() -> None:
    report = replace(REPORT, findings=(replace(FINDING, path="a,b:c.py", end_line=14),))
    assert render_check_github(report).startswith("::warning file=a%2Cb%3Ac.py,line=12,endLine=14,title=")


@pytest.mark.parametrize(("fail_on", "reached"), [("error", 0), ("warning", 1)])
def test_reached(fail_on: str, reached: int) -> None:
    assert REPORT.reached(fail_on) == reached  # type: ignore[arg-type]
