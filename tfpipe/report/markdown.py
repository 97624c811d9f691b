"""A run as Markdown, for an issue or a pull request."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tfpipe.records import Candidate, Recommendation, Run
from tfpipe.report.candidate import BLOCK_HEADS, NODE_HEADS, block_cells, node_cells, result_rows, trace_rows
from tfpipe.report.code import pipeline_code
from tfpipe.report.executions import executions_markdown
from tfpipe.report.phrases import (
    data_line,
    fetch_floor_line,
    floor_line,
    gain_words,
    generated_notice,
    rate_with_interval,
    recommendation_heading,
    recommendation_rows,
    settings_rows,
    step_line,
    title,
    verdict_sentence,
    verdict_words,
)
from tfpipe.report.user_pipeline import change_lines, finding_rows
from tfpipe.units import format_bytes, format_milliseconds, format_percent

_CANDIDATE_HEADS = (
    "candidate", "id", "examples/s", "step ms", "compute ms", "input wait ms", "input %", "contention ms", "buffered",
    "verdict",
)  # fmt: skip


def recommendation_markdown(run: Run, recommendation: Recommendation) -> str:
    """The settings to use, what they bring and cost, why, and the code to paste."""
    chosen = run.candidate(recommendation.candidate)
    rows = [
        *((f"against {gain.label}", gain_words(gain)) for gain in recommendation.gains),
        *recommendation_rows(run, recommendation),
    ]
    return _join(
        [
            _notice(run),
            f"## {recommendation_heading(recommendation, chosen)}",
            _list([("data", data_line(run)), ("step", step_line(run))]),
            recommendation.summary,
            _settings(run, chosen),
            _list(rows),
            f"**Why.** {recommendation.why}",
            *(f"Note: {note}" for note in recommendation.notes),
            executions_markdown(run),
            _list(finding_rows(run)),
            _warnings(run),
            f"```python\n{pipeline_code(run, chosen.settings)}```" if run.pipeline is None else "",
        ]
    )


def candidates_markdown(run: Run) -> str:
    """Every candidate of the run in one table."""
    return _join(
        [
            _notice(run),
            f"## {run.data.name}, batch {run.data.batch_size}, {run.step.name}",
            _list(
                [
                    ("data", data_line(run)),
                    ("step", step_line(run)),
                    ("floor", floor_line(run)),
                    ("fetch floor", fetch_floor_line(run)),
                    ("state", "" if run.complete else "not finished: rounds are missing"),
                ]
            ),
            _table(_CANDIDATE_HEADS, [_candidate_cells(candidate) for candidate in run.candidates]),
            *(
                f"{title(candidate)}: {candidate.status}, {candidate.error}."
                for candidate in run.candidates
                if candidate.error
            ),
            executions_markdown(run),
            verdict_sentence(run),
            _list(finding_rows(run)),
            _warnings(run),
        ]
    )


def run_markdown(run: Run) -> str:
    """Every candidate, and the recommendation below: what a notebook shows of a run."""
    recommendation = run.recommendation
    if recommendation is None:
        return candidates_markdown(run)
    chosen = run.candidate(recommendation.candidate)
    return _join(
        [
            candidates_markdown(run),
            f"**{recommendation_heading(recommendation, chosen)}.** {recommendation.summary}",
            _settings(run, chosen),
            _list((f"against {gain.label}", gain_words(gain)) for gain in recommendation.gains),
        ]
    )


def candidate_markdown(run: Run, candidate: Candidate, directory: Path) -> str:
    """One candidate with everything that is known of it."""
    return _join(
        [
            _notice(run),
            f"## {title(candidate)}",
            _settings(run, candidate),
            _list(result_rows(candidate)),
            _table(NODE_HEADS, [node_cells(node) for node in candidate.executed]),
            _table(BLOCK_HEADS, [block_cells(block) for block in candidate.blocks]),
            _list(trace_rows(candidate, directory)),
        ]
    )


def _settings(run: Run, candidate: Candidate) -> str:
    """The knobs in a table; of a user's own pipeline the lines to change, as code."""
    if run.pipeline is None:
        return _table(("knob", "value"), [("id", f"`{candidate.id}`"), *settings_rows(run, candidate.settings)])
    return "```text\n" + "\n".join(change_lines(run, candidate.settings)) + "\n```"


def _candidate_cells(candidate: Candidate) -> tuple[str, ...]:
    share = candidate.input_fraction
    return (
        candidate.name,
        f"`{candidate.id}`",
        rate_with_interval(candidate.examples_per_s),
        format_milliseconds(None if candidate.step_s is None else candidate.step_s.value),
        format_milliseconds(candidate.compute_s),
        format_milliseconds(candidate.input_wait_s),
        format_percent(None if share is None else share.value),
        format_milliseconds(candidate.contention_s),
        format_bytes(candidate.buffered_bytes),
        verdict_words(candidate),
    )


def _notice(run: Run) -> str:
    text = generated_notice(run)
    return f"> **{text}**" if text else ""


def _warnings(run: Run) -> str:
    doubts = [f"> Warning: {warning.text}" for warning in run.warnings]
    return "\n".join([*doubts, *(f"> Note: {note}" for note in run.notes)])


def _list(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- **{label}**: {text}" for label, text in rows if text)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [_row(heads), _row(("---",) * len(heads)), *map(_row, rows)]
    return "\n".join(lines) if len(lines) > 2 else ""


def _row(cells: tuple[str, ...]) -> str:
    # A bar or a line break inside a cell would end it.
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def _join(sections: list[str]) -> str:
    return "\n\n".join(section.rstrip("\n") for section in sections if section) + "\n"
