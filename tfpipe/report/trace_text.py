"""What a trace says, as text for a terminal: plain ASCII, fitted to a width."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from tfpipe.trace_records import (
    Bottleneck,
    Change,
    Comparison,
    OpCost,
    Pipeline,
    SessionAnalysis,
    Split,
    Stage,
    TraceAnalysis,
)
from tfpipe.units import format_bytes, format_percent, format_seconds

MIN_WIDTH = 60
# From this width on the tree has room for further columns.
WIDE = 110
_LEGEND = "  blocks: the steps waited for this stage alone; self: all time in it, also ahead of need"
_SHOWN_OPS = 6
_SHOWN_CALLS = 3
_SHOWN_PIPELINES = 4


class Part(NamedTuple):
    """One part of the split: its field, what to call it, its mark in the bar."""

    field: str
    title: str
    mark: str


PARTS = (
    Part("input_wait_s", "input wait", "#"),
    Part("host_to_device_s", "copy to device", "="),
    Part("device_compute_s", "device compute", "+"),
    Part("compile_s", "compiling", "%"),
    Part("host_s", "host work", ":"),
    Part("other_s", "other", "."),
)


def render_trace(session: SessionAnalysis, width: int = 80) -> str:
    """The whole report on one trace, without a final newline."""
    analysis = session.main
    width = max(width, MIN_WIDTH)
    blocks = [_head(analysis, width), _hosts(session, width), _split(analysis, width)]
    blocks += [_pipeline(pipeline, analysis.bottleneck, width) for pipeline in analysis.pipelines[:_SHOWN_PIPELINES]]
    if analysis.pipelines:
        blocks[-1] += "\n" + "\n".join(_wrap(_LEGEND, width, "  "))
    blocks += [_operations(analysis, width), _findings(analysis, width), _notes(session, width)]
    return "\n\n".join(block for block in blocks if block)


def render_comparison(comparison: Comparison, width: int = 80) -> str:
    """Two traces side by side, without a final newline."""
    width = max(width, MIN_WIDTH)
    before, after = comparison.before.main, comparison.after.main
    lines = [
        *_wrap(comparison.statement, width),
        "",
        *_wrap(f"before: {printable(before.path)}: {before.verdict.statement}", width),
        *_wrap(f"after:  {printable(after.path)}: {after.verdict.statement}", width),
        "",
        *_changes("per step", comparison.split, width),
    ]
    if comparison.stages:
        lines += ["", *_changes("waited for, per step", comparison.stages, width)]
    return "\n".join(lines)


def explain_bottleneck(bottleneck: Bottleneck | None) -> str:
    """The bottleneck in one sentence."""
    if bottleneck is None:
        return "No tf.data stage holds up the steps."
    return (
        f"Bottleneck: {printable(bottleneck.stage)}, {format_percent(bottleneck.share)} of the waiting for input and "
        f"{format_percent(bottleneck.step_fraction)} of the step."
    )


def printable(text: str) -> str:
    """``text`` from a file, without anything that could act on a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


def describe_buffer(stage: Stage) -> str:
    """How full the buffer was: starved, idle, or between."""
    buffer = stage.buffer
    if buffer is None:
        return ""
    if buffer.empty_fraction >= 0.5:
        return f"{format_percent(buffer.empty_fraction)} empty"
    if buffer.full_fraction is not None and buffer.full_fraction >= 0.5:
        return f"{format_percent(buffer.full_fraction)} full"
    return f"{buffer.mean_elements:.1f}" + (f"/{buffer.capacity:,}" if buffer.capacity else "")


def describe_parallelism(stage: Stage) -> str:
    """The parallelism, and whether AUTOTUNE chose it."""
    if stage.parallelism is None:
        return "auto" if stage.autotuned else ""
    return f"{stage.parallelism}{' auto' if stage.autotuned else ''}"


def describe_op(cost: OpCost) -> str:
    """An operation with its share."""
    return f"{printable(cost.operation)} {format_percent(cost.share)}"


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False) or [""]


def _head(analysis: TraceAnalysis, width: int) -> str:
    device = {"CPU": "CPU only", "GPU": "GPU", "TPU": "TPU"}[analysis.device]
    where = f"{printable(analysis.path)} (host {printable(analysis.host)}, {device}, {analysis.events:,} events)"
    lines = [*_wrap(analysis.verdict.statement, width)]
    if analysis.pipelines:
        lines += _wrap(explain_bottleneck(analysis.bottleneck), width)
    return "\n".join([*lines, "", *_wrap(where, width), *_wrap(printable(analysis.steps.statement) + ".", width)])


def _hosts(session: SessionAnalysis, width: int) -> str:
    if not session.hosts:
        return ""
    rows = [
        [
            printable(row.host),
            f"{row.steps:,}",
            format_seconds(row.step_s),
            format_percent(row.input_fraction),
            row.bound,
            printable(row.bottleneck or "-"),
        ]
        for row in sorted(session.hosts, key=lambda row: -row.step_s)
    ]
    header = ["host", "steps", "step", "input", "bound", "bottleneck"]
    title = f"{len(rows)} hosts, slowest first; {printable(session.main.host)} in full below"
    return "\n".join([*_wrap(title, width), *table(header, rows, width, left=(0, 4, 5))])


def _split(analysis: TraceAnalysis, width: int) -> str:
    split = analysis.steps.mean
    if split.step_s <= 0:
        return ""
    title = "span" if analysis.steps.basis == "span" else "step"
    length = f" {format_seconds(split.step_s)}"
    lines = [f"{title} |{bar(split, width - len(title) - len(length) - 3)}|{length}"]
    for part in PARTS:
        value = getattr(split, part.field)
        if value > 0:
            lines.append(
                f"  {part.mark} {part.title:<16}{format_seconds(value):>9} {format_percent(value / split.step_s):>7}"
            )
    steps = analysis.steps
    if steps.count > 1:
        lines.append(
            f"  steps from {format_seconds(steps.min_s)} to {format_seconds(steps.max_s)}, "
            f"median {format_seconds(steps.median_s)}"
        )
    return "\n".join(lines)


def bar(split: Split, width: int) -> str:
    """The split as a bar of exactly ``width`` characters: each part rounded so that nothing is lost."""
    cells, drawn, passed_s = "", 0, 0.0
    for part in PARTS:
        passed_s += getattr(split, part.field)
        upto = round(width * min(max(passed_s / split.step_s, 0.0), 1.0))
        cells += part.mark * (upto - drawn)
        drawn = max(upto, drawn)
    return cells.ljust(width, PARTS[-1].mark)


def _pipeline(pipeline: Pipeline, bottleneck: Bottleneck | None, width: int) -> str:
    wide = width >= WIDE
    batch = f", {format_bytes(pipeline.batch_bytes)} per batch" if pipeline.batch_bytes else ""
    title = f"tf.data pipeline {printable(pipeline.name)}: "
    if pipeline.calls:
        waited = format_percent(pipeline.wait_fraction)
        title += f"{pipeline.calls:,} batches{batch}, waited for {waited} of the step"
    else:
        title += "read by background threads only"
    header = ["stage", "calls", "blocks", "share", "self", "parallel", "buffer"]
    if wide:
        header += ["element", "in function", "threads"]
    rows = []
    for stage in pipeline.stages:
        named = bottleneck is not None and (stage.path, pipeline.name) == (bottleneck.path, bottleneck.pipeline)
        row = [
            f"{'>' if named else ' '} {'  ' * stage.depth}{printable(stage.name)}",
            f"{stage.calls:,}",
            format_seconds(stage.blocking_self_s),
            format_percent(stage.blocking_share),
            format_seconds(stage.self_s),
            describe_parallelism(stage),
            describe_buffer(stage),
        ]
        if wide:
            row += [
                format_bytes(stage.element_bytes),
                format_seconds(stage.function_s) if stage.function_calls else "",
                str(stage.threads),
            ]
        rows.append(row)
    lines = [*_wrap(title, width), *table(header, rows, width, left=(0,))]
    if pipeline.slow_calls and pipeline.wait_s > 0:
        lines.append("  slowest calls:")
        for call in pipeline.slow_calls[:_SHOWN_CALLS]:
            text = (
                f"    {format_seconds(call.duration_s)} at {format_seconds(call.at_s)}: "
                f"{printable(call.stage.rpartition('::')[2])}, {format_percent(call.stage_share)} of it"
            )
            lines += _wrap(text, width, "      ")
    return "\n".join(lines)


def _operations(analysis: TraceAnalysis, width: int) -> str:
    if not analysis.top_ops or analysis.bottleneck is None:
        return ""
    costs = ", ".join(describe_op(cost) for cost in analysis.top_ops[:_SHOWN_OPS])
    text = f"Inside {printable(analysis.bottleneck.stage)}: {costs}."
    if any(cost.python for cost in analysis.top_ops):
        text += " It runs Python and needs the interpreter's lock."
    rows = [
        [
            f"  {printable(cost.operation)}",
            f"{cost.calls:,}",
            format_seconds(cost.time_s),
            format_seconds(cost.time_s / max(cost.calls, 1)),
        ]
        for cost in analysis.top_ops[:_SHOWN_OPS]
    ]
    return "\n".join(
        [*_wrap(text, width), *table(["  operation", "calls", "time", "per call"], rows, width, left=(0,))]
    )


def _findings(analysis: TraceAnalysis, width: int) -> str:
    if not analysis.findings:
        return ""
    lines = ["What to do"]
    for number, finding in enumerate(analysis.findings, start=1):
        mark = f"{number:>2}. "
        lines += _wrap(mark + printable(finding.evidence), width, "    ")
        lines += textwrap.wrap(
            printable(finding.action), width, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
        )
    return "\n".join(lines)


def _notes(session: SessionAnalysis, width: int) -> str:
    notes = list(session.main.notes)
    if session.other_sessions:
        count = len(session.other_sessions)
        notes.append(f"{count} older {'session' if count == 1 else 'sessions'} in this directory: see --session.")
    hidden = len(session.main.pipelines) - _SHOWN_PIPELINES
    if hidden > 0:
        notes.append(f"{hidden} more pipelines: see --format json.")
    return "\n".join(line for note in notes for line in _wrap("Note: " + printable(note), width, "  "))


def _changes(title: str, changes: Sequence[Change], width: int) -> list[str]:
    rows = []
    for change in changes:
        difference = (
            _signed(change.after - change.before) if change.before is not None and change.after is not None else "-"
        )
        rows.append(
            [printable(title_of(change.name)), format_seconds(change.before), format_seconds(change.after), difference]
        )
    return table([title, "before", "after", "change"], rows, width, left=(0,))


def title_of(field: str) -> str:
    """What to call a field of the split; any other name stays."""
    return next((part.title for part in PARTS if part.field == field), "step" if field == "step_s" else field)


def _signed(seconds: float) -> str:
    return f"{'+' if seconds > 0 else '-' if seconds < 0 else ''}{format_seconds(abs(seconds))}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, left: Sequence[int]) -> list[str]:
    """Lines of a table no wider than ``width``; the first column gives way when it does not fit."""
    columns = list(zip(header, *rows, strict=True))
    kept = [index for index, column in enumerate(columns) if index == 0 or any(cell for cell in column[1:])]
    widths = {index: max(map(len, columns[index])) for index in kept}
    widths[0] = max(min(widths[0], width - sum(widths[index] + 2 for index in kept[1:])), 12)
    lines = []
    for row in (header, *rows):
        cells = []
        for index in kept:
            cell = row[index]
            if len(cell) > widths[index]:
                cell = cell[: widths[index] - 2] + ".."
            cells.append(cell.ljust(widths[index]) if index in left else cell.rjust(widths[index]))
        lines.append("  ".join(cells).rstrip())
    return lines
