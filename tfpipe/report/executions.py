"""The ways to run the step, side by side: what each brings, costs and leaves of the device."""

from __future__ import annotations

from collections.abc import Iterator

from tfpipe.records import DeviceUse, ExecutionComparison, ExecutionFigures, Run
from tfpipe.report.graphs import graph_rows
from tfpipe.report.phrases import quoted, rate_with_interval
from tfpipe.report.rendering import columns, pairs, paragraph
from tfpipe.units import (
    format_bytes,
    format_milliseconds,
    format_percent,
    format_rate,
    format_seconds,
)

BEST = ">"
_USE_NAMES = {"nvml": "GPU use", "process-cpu": "CPU use"}
_USE_WORDS = {
    "nvml": "as NVML reports it",
    "process-cpu": "this process's share of all cores",
}


def executions_text(run: Run, *, width: int, color: bool) -> str:
    """The table with what it does not show; only that where the step was run in one way."""
    comparison = run.execution_comparison
    rows = pairs(_rows(run), width=width, color=color)
    if comparison is None:
        return rows
    title = f"How the step runs, behind {_pipeline(run, comparison)}"
    cells = [_cells(comparison, figures) for figures in comparison.figures]
    table = columns(_heads(comparison), cells, width=width, color=color)
    legend = paragraph(f"{BEST} the one to use. {_legend(comparison)}", width=width, color=color)
    return paragraph(title, width=width, color=color, style="bold") + table + legend + ("\n" + rows if rows else "")


def executions_markdown(run: Run) -> str:
    """The same as Markdown."""
    comparison = run.execution_comparison
    rows = "\n".join(f"- **{label}**: {text}" for label, text in _rows(run))
    if comparison is None:
        return rows
    heads = [" ".join(head.split()) for head in _heads(comparison)]
    lines = [heads, ["---"] * len(heads), *(_cells(comparison, figures) for figures in comparison.figures)]
    table = "\n".join(f"| {' | '.join(cell.strip() for cell in line)} |" for line in lines)
    title = f"**How the step runs**, behind {_pipeline(run, comparison)}:"
    # At its begin the mark would make the paragraph a quotation.
    legend = f"The one to use: {comparison.best}. {_legend(comparison)}"
    return "\n\n".join(part for part in (title, table, legend, rows) if part)


def _pipeline(run: Run, comparison: ExecutionComparison) -> str:
    return next((c.label for c in run.candidates if c.id == comparison.pipeline), comparison.pipeline)


def _heads(comparison: ExecutionComparison) -> tuple[str, ...]:
    use = _source(comparison)
    return (
        "\n",
        "step\nms",
        f"speed-up\nover {comparison.reference}",
        "first\ncall",
        "paid\nafter",
        "examples\n/s",
        "\nepoch",
        *(() if use is None else (f"{_USE_NAMES[use]} %".replace(" ", "\n", 1),)),
    )


def _cells(comparison: ExecutionComparison, figures: ExecutionFigures) -> tuple[str, ...]:
    mark = BEST if figures.execution == comparison.best else " "
    speed_up = "-" if figures.execution == comparison.reference else rate_with_interval(figures.speed_up)
    rate = figures.examples_per_s
    return (
        f"{mark} {figures.execution}",
        format_milliseconds(None if figures.step_s is None else figures.step_s.value),
        speed_up,
        format_seconds(figures.first_call_s),
        _pays_off(figures),
        format_rate(None if rate is None else rate.value),
        format_seconds(figures.epoch_s),
        *(() if _source(comparison) is None else (_use(figures.device_use),)),
    )


def _pays_off(figures: ExecutionFigures) -> str:
    steps = figures.pays_off_steps
    if steps is None:
        return "never" if figures.note.startswith("never") else "-"
    return f"{steps:,}"


def use_sentence(use: DeviceUse) -> str:
    """The use of the device with everything that was sampled beside it."""
    mean = f"{_mean_and_points(use)} ({_USE_WORDS[use.source]})"
    return ", ".join([mean, *_memory_and_power(use)])


def _mean_and_points(use: DeviceUse) -> str:
    return f"{format_percent(use.mean_fraction)} +-{_points(use)} points"


def _use(use: DeviceUse | None) -> str:
    """``75 +-13``: the mean and the standard deviation of the samples, in per cent and points."""
    return "-" if use is None else f"{use.mean_fraction * 100:.0f} +-{_points(use)}"


def _points(use: DeviceUse) -> str:
    return f"{use.deviation_fraction * 100:.0f}"


def _source(comparison: ExecutionComparison) -> str | None:
    """Where the use of the device comes from; None where it is not known."""
    return next((figures.device_use.source for figures in comparison.figures if figures.device_use is not None), None)


def _legend(comparison: ExecutionComparison) -> str:
    use = _source(comparison)
    sentences = [
        "Speed-ups are with 95 % intervals.",
        "Paid after: so many steps win back the longer first call (tracing, compiling).",
    ]
    if use is not None:
        sentences.append(f"{_USE_NAMES[use]} is {_USE_WORDS[use]}, +- the samples' standard deviation in points.")
    return " ".join(sentences)


def _rows(run: Run) -> Iterator[tuple[str, str]]:
    """What the table has no column for."""
    comparison = run.execution_comparison
    if comparison is not None:
        yield from _host_bound(run)
        if comparison.split is not None:
            yield "gain", comparison.split.statement
        for note in comparison.notes:
            yield "input", note
        for figures in comparison.figures:
            if figures.note:
                yield figures.execution, f"{figures.note[0].upper()}{figures.note[1:]}."
        yield from _gpu(comparison)
    else:
        yield from _use_before_and_after(run)
    yield from graph_rows(run)


def _host_bound(run: Run) -> Iterator[tuple[str, str]]:
    """The step as the user runs it, where the candidates' table shows a faster way that is not host-bound."""
    first = run.executions[0]
    verdict = None if first.current is None else first.current.verdict
    if verdict is not None and verdict.bound == "host":
        yield "now", f"{first.step.execution}: {verdict.statement}"


def _use_before_and_after(run: Run) -> Iterator[tuple[str, str]]:
    """The device behind the current and the recommended pipeline: a use that is low and jumps is one that waits."""
    ids = [run.current, *(() if run.recommendation is None else (run.recommendation.candidate,))]
    told = [(c, c.device_use) for c in run.candidates if c.id in ids and c.device_use is not None]
    if told:
        _, use = told[0]
        several = len(told) > 1
        uses = [(f"{quoted(c)} " if several else "") + _mean_and_points(use) for c, use in told]
        yield _USE_NAMES[use.source], f"{', '.join(uses)} ({_USE_WORDS[use.source]})"


def _gpu(comparison: ExecutionComparison) -> Iterator[tuple[str, str]]:
    """Memory and power, which only a GPU tells."""
    told = [(f.execution, _memory_and_power(f.device_use)) for f in comparison.figures if f.device_use is not None]
    entries = [f"{execution} {', '.join(parts)}" for execution, parts in told if parts]
    if entries:
        yield "GPU", "; ".join(entries)


def _memory_and_power(use: DeviceUse) -> list[str]:
    parts = [] if use.memory_bytes is None else [format_bytes(use.memory_bytes)]
    return parts if use.power_w is None else [*parts, f"{use.power_w:.0f} W"]
