"""One candidate with everything that is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tfpipe.records import Block, Candidate, Node, Run, TraceRecord
from tfpipe.report.executions import use_sentence
from tfpipe.report.graphs import block_graph_rows
from tfpipe.report.phrases import (
    milliseconds_with_interval,
    percent_with_interval,
    rate_with_interval,
    settings_rows,
    title,
    verdict_words,
)
from tfpipe.report.rendering import columns, pairs, paragraph
from tfpipe.report.text import join, notice
from tfpipe.units import (
    format_bytes,
    format_milliseconds,
    format_percent,
    format_rate,
    format_seconds,
)

NODE_HEADS = ("stage as executed", "parallelism", "buffer", "set by", "CPU/element", "buffered")
BLOCK_HEADS = ("block", "round", "steps", "warm-up", "step ms", "fetch ms", "CPU s", "first batch")


def candidate_report(run: Run, candidate: Candidate, directory: Path, *, width: int, color: bool) -> str:
    """Settings, verdict, times, the stages that ran, every block and the trace of ``candidate``."""
    sections = [
        notice(run, width=width, color=color),
        paragraph(title(candidate), width=width, color=color, style="bold"),
        pairs([("id", candidate.id), *settings_rows(run, candidate.settings)], width=width, color=color),
        pairs(result_rows(candidate), width=width, color=color),
        columns(NODE_HEADS, [node_cells(node) for node in candidate.executed], width=width, color=color),
        columns(BLOCK_HEADS, [block_cells(block) for block in candidate.blocks], width=width, color=color),
        pairs(trace_rows(candidate, directory), width=width, color=color),
    ]
    return join(sections)


def result_rows(candidate: Candidate) -> tuple[tuple[str, str], ...]:
    """What was measured and concluded; a row whose text is empty is unknown."""

    def known(value: object, text: str) -> str:
        return "" if value is None else text

    return (
        ("verdict", verdict_words(candidate) if candidate.verdict is None else candidate.verdict.statement),
        ("cause", candidate.error or ""),
        ("examples/s", known(candidate.examples_per_s, rate_with_interval(candidate.examples_per_s))),
        ("step ms", known(candidate.step_s, milliseconds_with_interval(candidate.step_s))),
        ("= compute ms", known(candidate.compute_s, format_milliseconds(candidate.compute_s))),
        (
            "+ input wait ms",
            known(
                candidate.input_wait_s,
                f"{format_milliseconds(candidate.input_wait_s)}, "
                f"{percent_with_interval(candidate.input_fraction)} of the step",
            ),
        ),
        (
            "+ contention ms",
            known(
                candidate.contention_s,
                f"{format_milliseconds(candidate.contention_s)}, "
                f"{percent_with_interval(candidate.contention_fraction)} of the step",
            ),
        ),
        (
            "its own Python",
            known(
                candidate.host_fraction,
                f"{format_percent(candidate.host_fraction)} of the step: what it would be shorter as one tf.function",
            ),
        ),
        *block_graph_rows(candidate.blocks),
        ("device use", "" if candidate.device_use is None else use_sentence(candidate.device_use)),
        (
            "drained alone",
            known(candidate.capacity_examples_per_s, f"{format_rate(candidate.capacity_examples_per_s)} examples/s"),
        ),
        ("first batch", known(candidate.first_batch_s, format_seconds(candidate.first_batch_s))),
        ("next epoch after", "" if candidate.epoch_start_s is None else format_seconds(candidate.epoch_start_s)),
        ("epoch", known(candidate.epoch_s, f"{format_seconds(candidate.epoch_s)}, projected")),
        ("CPU/example", known(candidate.cpu_s_per_example, format_seconds(candidate.cpu_s_per_example))),
        ("buffered", known(candidate.buffered_bytes, format_bytes(candidate.buffered_bytes))),
        ("peak memory", known(candidate.peak_memory_bytes, format_bytes(candidate.peak_memory_bytes))),
    )


def trace_rows(candidate: Candidate, directory: Path) -> tuple[tuple[str, str], ...]:
    """Where the profile is and what profiling cost."""
    trace = candidate.trace
    if trace is None:
        return (("trace", "none captured"),)
    return (
        ("trace", str(directory / trace.path)),
        ("profiled", f"{trace.steps} steps, {format_bytes(trace.size_bytes)}"),
        ("profiled step", f"{format_seconds(trace.step_s)}, of which fetching {format_seconds(trace.fetch_s)}"),
        (
            "overhead",
            ""
            if trace.overhead_fraction is None
            else f"{format_percent(trace.overhead_fraction)} on a step: times in the trace are that much too long",
        ),
        ("note", trace.note),
        *_explanation_rows(trace),
    )


def _explanation_rows(trace: TraceRecord) -> Iterator[tuple[str, str]]:
    """What the trace says, unless profiling changed what it shows."""
    if trace.disturbed:
        yield "bottleneck", "not read from this trace: profiled steps waited otherwise than unprofiled ones"
    if trace.explanation is None:
        return
    explanation = trace.explanation
    if explanation.bottleneck is not None and explanation.share is not None:
        yield "bottleneck", f"{explanation.bottleneck}, {format_percent(explanation.share)} of the waiting"
    if explanation.top_ops:
        yield "its operations", ", ".join(f"{name} {format_percent(share)}" for name, share in explanation.top_ops)
    for finding in explanation.findings:
        yield "finding", finding


def node_cells(node: Node) -> tuple[str, ...]:
    """A stage under ``NODE_HEADS``."""
    configured = node.parallelism is not None or node.buffer_size is not None
    per_element = node.processing_s / node.elements if node.processing_s is not None and node.elements else None
    return (
        node.node,
        _count(node.parallelism),
        _count(node.buffer_size),
        ("AUTOTUNE" if node.tunable else "fixed") if configured else "-",
        format_seconds(per_element),
        format_bytes(node.buffered_bytes),
    )


def block_cells(block: Block) -> tuple[str, ...]:
    """A block under ``BLOCK_HEADS``; times are means over its steps."""
    return (
        block.kind,
        str(block.round),
        str(block.steps),
        str(block.warmup_steps),
        format_milliseconds(block.elapsed_s / block.steps if block.steps else None),
        format_milliseconds(sum(block.fetch_s) / block.steps if block.steps else None),
        "-" if block.cpu_s is None else format_rate(block.cpu_s),
        format_seconds(block.first_batch_s),
    )


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
