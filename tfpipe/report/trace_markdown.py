"""What a trace says, as Markdown to paste into an issue."""

from __future__ import annotations

from collections.abc import Sequence

from tfpipe.report.trace_text import (
    PARTS,
    describe_buffer,
    describe_op,
    describe_parallelism,
    explain_bottleneck,
    printable,
    title_of,
)
from tfpipe.trace_records import Change, Comparison, Pipeline, SessionAnalysis, TraceAnalysis
from tfpipe.units import format_bytes, format_percent, format_seconds

# U+00A0 keeps the indentation of the tree inside a table cell.
_INDENT = "\u00a0\u00a0"


def render_trace(session: SessionAnalysis) -> str:
    """The report on one trace, without a final newline."""
    analysis = session.main
    blocks = [f"**{analysis.verdict.statement}**"]
    if analysis.pipelines:
        blocks.append(escape(explain_bottleneck(analysis.bottleneck)))
    blocks.append(
        f"`{printable(analysis.path)}`, host `{printable(analysis.host)}`, {analysis.device}, "
        f"{analysis.events:,} events; {escape(analysis.steps.statement)}."
    )
    if session.hosts:
        rows = [
            [
                escape(row.host),
                str(row.steps),
                format_seconds(row.step_s),
                format_percent(row.input_fraction),
                row.bound,
                escape(row.bottleneck or "-"),
            ]
            for row in session.hosts
        ]
        blocks.append(_table(["host", "steps", "step", "input", "bound", "bottleneck"], rows))
    blocks.append(_split(analysis))
    blocks += [_pipeline(pipeline) for pipeline in analysis.pipelines]
    if analysis.top_ops and analysis.bottleneck:
        costs = ", ".join(escape(describe_op(cost)) for cost in analysis.top_ops)
        blocks.append(f"Inside {escape(analysis.bottleneck.stage)}: {costs}.")
    if analysis.findings:
        blocks.append(
            "\n".join(
                f"{number}. {escape(finding.evidence)} {escape(finding.action)}"
                for number, finding in enumerate(analysis.findings, start=1)
            )
        )
    blocks += [f"Note: {escape(note)}" for note in analysis.notes]
    return "\n\n".join(block for block in blocks if block)


def render_comparison(comparison: Comparison) -> str:
    """Two traces side by side, without a final newline."""
    before, after = comparison.before.main, comparison.after.main
    blocks = [
        f"**{escape(comparison.statement)}**",
        f"- before: `{printable(before.path)}`: {before.verdict.statement}\n"
        f"- after: `{printable(after.path)}`: {after.verdict.statement}",
        _changes("per step", comparison.split),
    ]
    if comparison.stages:
        blocks.append(_changes("waited for, per step", comparison.stages))
    return "\n\n".join(blocks)


def escape(text: str) -> str:
    """``text`` from a file as literal Markdown."""
    return "".join(f"\\{character}" if character in "\\`*_[]<>|#" else character for character in printable(text))


def _split(analysis: TraceAnalysis) -> str:
    split = analysis.steps.mean
    if split.step_s <= 0:
        return ""
    rows = [
        [part.title, format_seconds(value), format_percent(value / split.step_s)]
        for part in PARTS
        if (value := getattr(split, part.field)) > 0
    ]
    return _table(["part", "per step", "share"], [*rows, ["**step**", format_seconds(split.step_s), ""]])


def _pipeline(pipeline: Pipeline) -> str:
    rows = [
        [
            _INDENT * stage.depth + escape(stage.name),
            f"{stage.calls:,}",
            format_seconds(stage.blocking_self_s),
            format_percent(stage.blocking_share),
            format_seconds(stage.self_s),
            describe_parallelism(stage),
            describe_buffer(stage),
            format_bytes(stage.element_bytes),
        ]
        for stage in pipeline.stages
    ]
    header = ["stage", "calls", "blocks", "share", "self", "parallel", "buffer", "element"]
    title = (
        f"Pipeline `{printable(pipeline.name)}`: {pipeline.calls:,} batches, waited for "
        f"{format_percent(pipeline.wait_fraction)} of the step."
    )
    return f"{title}\n\n{_table(header, rows)}"


def _changes(title: str, changes: Sequence[Change]) -> str:
    rows = [
        [escape(title_of(change.name)), format_seconds(change.before), format_seconds(change.after)]
        for change in changes
    ]
    return _table([title, "before", "after"], rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *(["---:"] * (len(header) - 1))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))
