"""Two traces side by side."""

from __future__ import annotations

from dataclasses import fields

from tfpipe.trace_records import Change, Comparison, SessionAnalysis, Split, TraceAnalysis
from tfpipe.units import format_percent, format_seconds


def compare(before: SessionAnalysis, after: SessionAnalysis) -> Comparison:
    """What changed from one trace to the other: per step, in each part of the split and in what each stage blocked."""
    old, new = before.main, after.main
    split = []
    for field in fields(Split):
        pair = getattr(old.steps.mean, field.name), getattr(new.steps.mean, field.name)
        if any(pair):
            split.append(Change(name=field.name, before=pair[0], after=pair[1]))
    old_stages, new_stages = _blocking_per_step(old), _blocking_per_step(new)
    stages = tuple(
        Change(name=path, before=old_stages.get(path), after=new_stages.get(path))
        for path in dict.fromkeys([*old_stages, *new_stages])
    )
    return Comparison(before=before, after=after, statement=_statement(old, new), split=tuple(split), stages=stages)


def _blocking_per_step(analysis: TraceAnalysis) -> dict[str, float]:
    """Seconds per step that each stage blocked by itself; pipelines of one shape are added up."""
    steps = max(analysis.steps.count, 1)
    blocked: dict[str, float] = {}
    for pipeline in analysis.pipelines:
        for stage in pipeline.stages:
            path = stage.path.removeprefix("Iterator::")
            blocked[path] = blocked.get(path, 0.0) + stage.blocking_self_s / steps
    return blocked


def _statement(old: TraceAnalysis, new: TraceAnalysis) -> str:
    if old.steps.mean_s <= 0 or new.steps.mean_s <= 0:
        return "One of the two traces holds no steps to compare."
    if "span" in (old.steps.basis, new.steps.basis):
        return "One of the two traces has no steps: only the shares can be compared, not the times."
    ratio = old.steps.mean_s / new.steps.mean_s
    speed = f"{ratio:.2f} times as fast" if ratio >= 1 else f"{1 / ratio:.2f} times slower"
    return (
        f"A step went from {format_seconds(old.steps.mean_s)} to {format_seconds(new.steps.mean_s)} ({speed}); waiting "
        f"for input from {format_percent(old.input_fraction)} to {format_percent(new.input_fraction)} of it."
    )
