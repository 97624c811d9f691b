"""A check report for people: one block per finding, the reasons once per rule, the count last."""

from __future__ import annotations

import textwrap

from tfpipe.check_records import CheckReport, CheckRun, Finding, Rule
from tfpipe.units import format_seconds

_MIN_WIDTH = 40


def render_check_text(report: CheckReport, width: int = 80) -> str:
    """The report as plain text, lines of at most ``width`` characters where words allow; ends in a newline."""
    width = max(width, _MIN_WIDTH)
    parts: list[str] = []
    for finding in report.findings:
        parts.append(_finding(finding, width, ran=report.run is not None))
    if report.findings:
        parts.append(_rules(report, width))
    if report.run is not None:
        parts.append(_run(report.run, width))
    notes = [f"{file.path}, {note}." for file in report.files for note in file.notes]
    parts += ["\n".join(_wrap(note, width, "") for note in notes)] if notes else []
    parts.append(_wrap(_summary(report), width, ""))
    return "\n\n".join(parts) + "\n"


def render_rules_text(rules: tuple[Rule, ...], width: int = 80) -> str:
    """Every rule with its reason, what to write instead, and an example of both."""
    blocks = []
    for rule in rules:
        head = f"{rule.name} ({rule.severity}): {rule.summary}"
        blocks.append(
            "\n".join(
                [
                    _wrap(head, width, "", hanging="    "),
                    _wrap(rule.reason, width, "    "),
                    _wrap(f"Instead: {rule.instead}", width, "    "),
                    "",
                    "    Found:",
                    textwrap.indent(rule.bad.rstrip(), " " * 8),
                    "",
                    "    Fine:",
                    textwrap.indent(rule.good.rstrip(), " " * 8),
                ]
            )
        )
    switch_off = "A comment switches a rule off on its line: # tfpipe: ignore[rule-name]"
    return "\n\n".join([*blocks, _wrap(switch_off, width, "")]) + "\n"


def _finding(finding: Finding, width: int, *, ran: bool) -> str:
    place = f"{finding.path}:{finding.line}:{finding.column}: {finding.severity}: {finding.rule}"
    lines = [place, _wrap(finding.message + ".", width, "    ")]
    if finding.function:
        lines.append(_wrap(f"In {finding.function}: {finding.traced}.", width, "    "))
    if ran:
        evidence = f": {finding.evidence}" if finding.evidence else ""
        lines.append(_wrap(f"{finding.status.capitalize()}{evidence}.", width, "    "))
    return "\n".join(lines)


def _rules(report: CheckReport, width: int) -> str:
    lines = ["Why, and what to write instead"]
    for name in dict.fromkeys(finding.rule for finding in report.findings):
        rule = report.rule(name)
        lines += [f"  {name}", _wrap(rule.reason, width, "    "), _wrap(f"Instead: {rule.instead}", width, "    ")]
    return "\n".join(lines)


def _run(run: CheckRun, width: int) -> str:
    lines = [f"Run: {run.steps} steps in {format_seconds(run.elapsed_s)}"]
    for function in run.functions:
        operations = f", {function.operations:,} operations in its largest graph" if function.operations else ""
        graphs = _count(function.traces, "graph")
        lines.append(
            _wrap(f"{function.function}: {graphs} built in {_count(function.calls, 'call')}{operations}", width, "  ")
        )
        lines += [_wrap(f"again because {cause}", width, "    ") for cause in function.causes]
    if run.error is not None:
        lines.append(_wrap(f"It ended early: {run.error}.", width, "  "))
    return "\n".join(lines)


def _summary(report: CheckReport) -> str:
    traced = sum(len(file.traced) for file in report.files)
    where = f"{_count(traced, 'traced function')} in {_count(len(report.files), 'file')}"
    suppressed = sum(file.suppressed for file in report.files)
    hidden = f" {_count(suppressed, 'finding')} switched off by comments." if suppressed else ""
    if not report.findings:
        if traced == 0:
            return f"Nothing in {_count(len(report.files), 'file')} is traced by TensorFlow: no findings.{hidden}"
        return f"No findings in {where}.{hidden}"
    errors = sum(finding.severity == "error" for finding in report.findings)
    counts = f"{_count(errors, 'error')} and {_count(len(report.findings) - errors, 'warning')}"
    return f"{counts} in {where}.{hidden}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _wrap(text: str, width: int, indent: str, hanging: str | None = None) -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
