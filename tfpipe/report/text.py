"""A run for the terminal."""

from __future__ import annotations

import shlex
from pathlib import Path

from tfpipe.printable import printable
from tfpipe.records import Candidate, Recommendation, Run
from tfpipe.report.code import pipeline_code
from tfpipe.report.executions import executions_text
from tfpipe.report.phrases import (
    SHUFFLE_HEADS,
    data_line,
    fetch_floor_line,
    floor_line,
    gain_words,
    generated_notice,
    recommendation_heading,
    recommendation_rows,
    settings_rows,
    shuffle_cells,
    step_line,
    verdict_sentence,
)
from tfpipe.report.rendering import columns, pairs, paragraph
from tfpipe.report.table import candidate_table
from tfpipe.report.user_pipeline import apply_command, change_lines, finding_rows, pipeline_patch


def profile_report(run: Run, directory: Path, *, width: int, color: bool) -> str:
    """What ``tfpipe profile`` ends with: the table, the verdict, the recommendation and what to type next."""
    sections = [
        head(run, width=width, color=color),
        candidate_table(run, width=width, color=color),
        executions_text(run, width=width, color=color),
        pairs(
            [
                ("verdict", verdict_sentence(run)),
                ("recommendation", "" if run.recommendation is None else run.recommendation.summary),
                ("limits", "" if run.gate is None else run.gate.sentence),
            ],
            width=width,
            color=color,
        ),
        pairs(finding_rows(run), width=width, color=color),
        warnings(run, width=width, color=color),
        pairs(
            [
                ("run", str(directory)),
                ("finish", "" if run.complete else f"tfpipe profile --resume {_shell(directory)}"),
                ("next", f"tfpipe recommend {_shell(directory)}"),
                ("", f"tfpipe tensorboard {_shell(directory)}"),
            ],
            width=width,
            color=color,
        ),
    ]
    return join(sections)


def candidates_report(run: Run, directory: Path, *, width: int, color: bool) -> str:
    """What ``tfpipe show`` prints: every candidate, and how to see one whole."""
    example = run.candidates[0].id if run.candidates else "ID"
    sections = [
        head(run, width=width, color=color),
        candidate_table(run, width=width, color=color),
        executions_text(run, width=width, color=color),
        pairs(finding_rows(run), width=width, color=color),
        warnings(run, width=width, color=color),
        pairs(
            [("run", str(directory)), ("next", f"tfpipe show {_shell(directory)} --candidate {shlex.quote(example)}")],
            width=width,
            color=color,
        ),
    ]
    return join(sections)


def recommendation_report(run: Run, recommendation: Recommendation, directory: Path, *, width: int, color: bool) -> str:
    """The settings to use, what they bring and cost, why, and the code to paste."""
    chosen = run.candidate(recommendation.candidate)
    sections = [
        pairs([("data", data_line(run)), ("step", step_line(run))], width=width, color=color),
        paragraph(recommendation.summary, width=width, color=color),
        paragraph(recommendation_heading(recommendation, chosen), width=width, color=color, style="bold")
        + _settings(run, chosen, width=width, color=color),
        pairs(
            [
                *((f"against {gain.label}", gain_words(gain)) for gain in recommendation.gains),
                *recommendation_rows(run, recommendation),
            ],
            width=width,
            color=color,
        ),
        paragraph("Why", width=width, color=color, style="bold")
        + paragraph(recommendation.why, width=width, color=color),
        "".join(paragraph(f"Note: {note}", width=width, color=color) for note in recommendation.notes),
        executions_text(run, width=width, color=color),
        pairs(finding_rows(run), width=width, color=color),
        _shuffle_table(run, width=width, color=color),
        warnings(run, width=width, color=color),
        _what_to_write(run, recommendation, directory, width=width, color=color),
        pairs([("run", str(directory)), ("next", f"tfpipe tensorboard {_shell(directory)}")], width=width, color=color),
    ]
    return join([notice(run, width=width, color=color), *sections])


def _settings(run: Run, chosen: Candidate, *, width: int, color: bool) -> str:
    """The knobs; of a user's own pipeline each line that is changed, never wrapped into columns."""
    if run.pipeline is None:
        return pairs([("id", chosen.id), *settings_rows(run, chosen.settings)], width=width, color=color, indent=2)
    return "".join(paragraph(f"  {line}", width=width, color=color) for line in change_lines(run, chosen.settings))


def _what_to_write(run: Run, recommendation: Recommendation, directory: Path, *, width: int, color: bool) -> str:
    chosen = run.candidate(recommendation.candidate)
    if run.pipeline is None:
        code = pipeline_code(run, chosen.settings)
        # Code is never wrapped: it is there to be pasted.
        return paragraph("Code to paste", width=width, color=color, style="bold") + "\n" + printable(code)
    if not recommendation.change:
        return ""
    patch = pipeline_patch(run, chosen.settings)
    # A command is never wrapped: it is there to be pasted.
    command = f"  {printable(apply_command(run, directory))}\n" if patch.diff else ""
    by_hand = pairs([("by hand", text) for text in patch.by_hand], width=width, color=color, indent=2)
    return paragraph("To change it", width=width, color=color, style="bold") + command + by_hand


def _shuffle_table(run: Run, *, width: int, color: bool) -> str:
    """What a shuffle buffer costs and buys, size by size; nothing where that is not known."""
    if not run.shuffling:
        return ""
    return columns(SHUFFLE_HEADS, [shuffle_cells(choice) for choice in run.shuffling], width=width, color=color)


def head(run: Run, *, width: int, color: bool) -> str:
    """What was run on what: the first lines of a report."""
    unfinished = "" if run.complete else "not finished: rounds are missing, the intervals are wider for it"
    rows = [
        ("data", data_line(run)),
        ("step", step_line(run)),
        ("floor", floor_line(run)),
        ("fetch floor", fetch_floor_line(run)),
        ("state", unfinished),
    ]
    return join([notice(run, width=width, color=color), pairs(rows, width=width, color=color)])


def notice(run: Run, *, width: int, color: bool) -> str:
    """The notice on generated data, or nothing."""
    text = generated_notice(run)
    return paragraph(text, width=width, color=color, style="bold yellow") if text else ""


def warnings(run: Run, *, width: int, color: bool) -> str:
    """The run's doubts about its own numbers, one each, and the facts about it that are no doubts."""
    doubts = [("warning", warning.text) for warning in run.warnings]
    return pairs([*doubts, *(("note", note) for note in run.notes)], width=width, color=color)


def join(sections: list[str]) -> str:
    """Sections with an empty line between them; empty ones are left out."""
    return "\n".join(section for section in sections if section)


def _shell(directory: Path) -> str:
    return shlex.quote(str(directory))
