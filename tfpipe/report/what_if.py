"""What is predicted under other circumstances, as text and as JSON; always told apart from what was measured."""

from __future__ import annotations

import msgspec

from tfpipe.records import Expected, Run, WhatIf, WhatIfAnswer
from tfpipe.report.json_report import document
from tfpipe.report.phrases import BOUND_WORDS, settings_rows
from tfpipe.report.rendering import columns, pairs, paragraph
from tfpipe.report.user_pipeline import change_lines
from tfpipe.units import format_percent, format_rate, format_seconds

HEADS = ("predicted", "step", "examples/s", "input wait", "verdict")


def what_if_report(run: Run, answer: WhatIfAnswer, *, width: int, color: bool) -> str:
    """The circumstances, both settings side by side, what to write, and how far it is to be believed."""
    same = answer.best.settings == answer.current.settings
    batch = answer.what_if.batch_size or run.data.batch_size
    rows = [_cells(label, one, batch) for label, one in _rows(answer)]
    if same:
        change = paragraph("Keep what you have: nothing is predicted to be faster there.", width=width, color=color)
    elif run.pipeline is None:
        change = pairs(settings_rows(run, answer.best.settings), width=width, color=color, indent=2)
    else:
        lines = change_lines(run, answer.best.settings)
        change = "".join(paragraph(f"  {line}", width=width, color=color) for line in lines)
    sections = [
        paragraph(f"What if: {circumstances(answer.what_if)}", width=width, color=color, style="bold"),
        columns(HEADS, rows, width=width, color=color),
        change,
        "".join(paragraph(f"Note: {note}", width=width, color=color) for note in (_belief(answer), *answer.notes)),
    ]
    return "\n".join(section for section in sections if section)


def what_if_json(run: Run, answer: WhatIfAnswer) -> str:
    """``tfpipe-what-if``: the answer as it stands; everything in it is predicted."""
    return document("tfpipe-what-if", run, {"predicted": True, **msgspec.to_builtins(answer)})


def circumstances(what_if: WhatIf) -> str:
    """In words, in the order of the options.

    >>> circumstances(WhatIf(cores=16, step_s=0.012))
    '16 cores, a step of 12.0 ms'
    """
    words = [
        None if what_if.cores is None else f"{what_if.cores} core{'' if what_if.cores == 1 else 's'}",
        None if what_if.step_s is None else f"a step of {format_seconds(what_if.step_s)}",
        None
        if what_if.source_latency_s is None
        else f"{format_seconds(what_if.source_latency_s)} more for each example from its source",
        None if what_if.batch_size is None else f"batches of {what_if.batch_size:,}",
        None if what_if.cache is None else f"the data cached {'on disk' if what_if.cache == 'disk' else 'in memory'}",
    ]
    return ", ".join(word for word in words if word)


def _rows(answer: WhatIfAnswer) -> list[tuple[str, Expected]]:
    rows = [("what you have", answer.current)]
    if answer.best.settings != answer.current.settings:
        rows.append(("use there", answer.best))
    return rows


def _cells(label: str, one: Expected, batch_size: int) -> tuple[str, ...]:
    return (
        label,
        format_seconds(one.step_s),
        format_rate(batch_size / one.step_s if one.step_s else 0.0),
        format_percent(one.input_fraction.value),
        BOUND_WORDS[one.bound],
    )


def _belief(answer: WhatIfAnswer) -> str:
    if answer.checked:
        many = f"{answer.checked} prediction{'s' if answer.checked > 1 else ''}"
        share = format_percent(answer.error)
        return f"Predicted, not measured: of this run's {many} nine in ten were off by no more than {share}."
    share = format_percent(answer.error)
    return f"Predicted, not measured, and this run could check no prediction: {share} either way is assumed."
