"""A run of a user's own pipeline, told at their lines: what to write instead, what was noticed, what can be turned."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from tfpipe.records import Candidate, Pipeline, Run
from tfpipe.report.patch import Change, Patch, describe_change, make_patch, read_sources
from tfpipe.report.rendering import pairs, paragraph
from tfpipe.settings import PipelineSettings
from tfpipe.sites import END_OPTIONS, Finding, Reorder, Site, describe_site, plain_text
from tfpipe.units import format_bytes

AS_IT_IS = "nothing: the pipeline as it is"


def changes_of(pipeline: Pipeline, settings: PipelineSettings) -> tuple[Change, ...]:
    """What ``settings`` set otherwise than the pipeline does, in the order of its calls."""
    overrides = dict(settings.overrides or ())
    return tuple(
        Change(site=site, value=overrides[site.id])
        for site in pipeline.sites
        if site.id in overrides and not (site.written and site.value == overrides[site.id])
    )


def change_lines(run: Run, settings: PipelineSettings) -> tuple[str, ...]:
    """One line per call site: ``data.py:42  map(num_parallel_calls=2) -> 8``."""
    assert run.pipeline is not None
    return tuple(describe_change(change) for change in changes_of(run.pipeline, settings)) or (AS_IT_IS,)


def change_rows(run: Run, settings: PipelineSettings) -> tuple[tuple[str, str], ...]:
    """``change_lines`` as labelled rows."""
    first, *others = change_lines(run, settings)
    return (("change", first), *(("", line) for line in others))


def pipeline_patch(run: Run, settings: PipelineSettings) -> Patch:
    """The changes as a diff of the user's files as they are now, to be applied in the pipeline's root."""
    assert run.pipeline is not None
    changes = changes_of(run.pipeline, settings)
    return make_patch(changes, read_sources(changes), Path(run.pipeline.root))


def apply_command(run: Run, directory: Path) -> str:
    """What to type to apply the patch."""
    assert run.pipeline is not None
    return (
        f"tfpipe recommend {shlex.quote(str(directory))} --format patch | patch -p1 -d {shlex.quote(run.pipeline.root)}"
    )


def finding_rows(run: Run) -> tuple[tuple[str, str], ...]:
    """What was noticed about the pipeline that no knob mends, and the orders that were not offered."""
    if run.pipeline is None:
        return ()
    return (
        *((finding.kind, _finding_words(run, finding)) for finding in measured_findings(run)),
        *(("order", _reorder_words(reorder)) for reorder in run.pipeline.reorders if reorder.verdict != "equal"),
    )


def measured_findings(run: Run) -> tuple[Finding, ...]:
    """What was noticed, with whether a candidate that makes the change was measured."""
    assert run.pipeline is not None
    return tuple(
        replace(finding, measured=_candidate_of(run, finding) is not None) for finding in run.pipeline.findings
    )


def _candidate_of(run: Run, finding: Finding) -> Candidate | None:
    """The measured candidate that makes this change and the fewest others."""
    change = {(site, finding.value) for site in finding.sites}
    made = [c for c in run.candidates if change and c.examples_per_s and change <= set(c.settings.overrides or ())]
    return min(made, key=lambda c: len(c.settings.overrides or ()), default=None)


def _finding_words(run: Run, finding: Finding) -> str:
    parts = [finding.text, finding.remedy, finding.note]
    made, now = _candidate_of(run, finding), run.candidate(run.current)
    if made is not None and made.examples_per_s is not None and now.examples_per_s is not None:
        ratio = made.examples_per_s.value / now.examples_per_s.value
        how = "Measured" if len(made.settings.overrides or ()) == len(finding.sites) else "Measured with other changes"
        parts.append(
            f"{how}: {ratio:.2f} times as fast, with {format_bytes(made.buffered_bytes)} in buffers instead of "
            f"{format_bytes(now.buffered_bytes)}."
        )
    elif finding.predicted_gain is not None:
        parts.append(f"(Not measured; predicted to be {finding.predicted_gain:.2f} times as fast.)")
    elif finding.kind == "suggestion":
        parts.append("(Not measured.)")
    return " ".join(part for part in parts if part)


def _reorder_words(reorder: Reorder) -> str:
    place = ":".join(reorder.map_stage.rpartition("/")[2].split(":")[:2])
    different = "fails" if reorder.reason == "error" else "would change the data"
    what = different if reorder.verdict == "different" else "was not tried"
    return f"{place}: batch before map {what}. {reorder.text} {reorder.remedy}".rstrip()


def sites_report(run: Run, *, width: int, color: bool) -> str:
    """Every call site that was found, with what it is set to and what cannot be changed from its line."""
    assert run.pipeline is not None
    sites = run.pipeline.sites
    lines = [
        "".join(_site_line(site, width, color) for site in sites if site.kind != "end"),
        pairs([("end", words) for words in _end_lines(sites)], width=width, color=color),
        pairs(finding_rows(run), width=width, color=color),
        pairs([("root", run.pipeline.root)], width=width, color=color),
    ]
    return "\n".join(line for line in lines if line)


def sites_markdown(run: Run) -> str:
    """The same as a list."""
    assert run.pipeline is not None
    lines = [f"## Call sites of {run.pipeline.reference}", ""]
    for site in run.pipeline.sites:
        if site.kind != "end":
            lines.append(f"- `{site.id}`: {' '.join([_site_words(site), *_notes(site)])}")
    lines += [f"- end: {words}" for words in _end_lines(run.pipeline.sites)]
    lines += [f"- **{label}**: {text}" for label, text in finding_rows(run)]
    return "\n".join(lines) + "\n"


def sites_json(run: Run) -> str:
    """``tfpipe-pipeline``: the user's pipeline as it stands in the run file."""
    assert run.pipeline is not None
    document = {"format": "tfpipe-pipeline", "version": 1, "tfpipe_version": run.tfpipe_version}
    content = {**document, **msgspec.to_builtins(replace(run.pipeline, findings=measured_findings(run)))}
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def _site_line(site: Site, width: int, color: bool) -> str:
    notes = pairs([("", note) for note in _notes(site)], width=width, color=color, indent=2)
    return paragraph(_site_words(site), width=width, color=color) + notes


def _site_words(site: Site) -> str:
    if site.kind == "order":
        return describe_change(Change(site=site, value=True)).partition(" -> ")[0]
    return describe_site(site)


def _end_lines(sites: Sequence[Site]) -> Iterator[str]:
    """What can be added behind everything: a prefetch where there is none, and options."""
    for site in sites:
        if site.kind == "end" and site.method == "prefetch":
            yield "A prefetch can be added" + (f" behind {site.partner}." if site.partner else ".")
    options = [site for site in sites if site.id.startswith(END_OPTIONS)]
    for site in options:
        if site.written:
            yield f"options.{site.argument} = {plain_text(site.value)} can be set otherwise."
    names = ", ".join(site.argument for site in options if not site.written)
    if names:
        yield f"Options can be set: {names}."


def _notes(site: Site) -> list[str]:
    notes = []
    if site.limits:
        notes.append(site.limits)
    if site.symbolic:
        notes.append("The value is computed in the graph: it can be overridden with a number.")
    if site.occurrences > 1:
        notes.append(f"This place runs {site.occurrences} times; this is number {site.occurrence}.")
    if not site.reaches_end:
        notes.append("It is no part of the dataset that the factory returns, so it is left alone.")
    return notes
