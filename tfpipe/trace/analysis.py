"""The whole way from a path to what a trace says."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

from tfpipe.printable import printable
from tfpipe.trace.blocking import find_blocking
from tfpipe.trace.findings import Facts, find_all
from tfpipe.trace.host import view_host
from tfpipe.trace.iterators import map_iterators
from tfpipe.trace.locate import choose_hosts, find_session
from tfpipe.trace.reader import Plane, Space, read_space
from tfpipe.trace.split import PS_PER_S, find_activity, mean_split, split_steps
from tfpipe.trace.stages import summarise_pipelines
from tfpipe.trace.steps import Cut, cut_steps, find_fetches
from tfpipe.trace.verdict import find_bottleneck, judge
from tfpipe.trace_records import Finding, HostRow, Pipeline, SessionAnalysis, Split, Steps, TraceAnalysis

# A slow host is one whose mean step is this much longer than the median host's.
SLOW_HOST = 1.1


def analyze_path(path: Path, *, session: str | None = None, host: str | None = None) -> SessionAnalysis:
    """All hosts of the session that ``path`` means; the one asked for, else the slowest, in full.

    Raises:
        UsageError: no such path, session or host.
        DataError: a trace that cannot be read.
    """
    found = find_session(path, session)
    analyses = [analyze_file(file, session=found.name) for file in choose_hosts(found, host)]
    slowest = max(analyses, key=lambda analysis: analysis.steps.mean_s)
    rows = tuple(_row(analysis) for analysis in analyses) if len(analyses) > 1 else ()
    main = slowest
    if rows:
        typical_s = statistics.median_low(sorted(row.step_s for row in rows))
        if typical_s > 0 and slowest.steps.mean_s >= SLOW_HOST * typical_s:
            main = _with_finding(slowest, typical_s, len(rows))
    return SessionAnalysis(main=main, hosts=rows, other_sessions=tuple(map(printable, found.others)))


def analyze_trace(path: Path, *, session: str | None = None, host: str | None = None) -> TraceAnalysis:
    """The analysis of one host: see ``analyze_path``."""
    return analyze_path(path, session=session, host=host).main


def analyze_file(path: Path, *, session: str | None = None) -> TraceAnalysis:
    """What the trace in the file ``path`` says. Raises DataError."""
    space = read_space(path)
    return analyze_space(space, path=printable(str(path)), session=session and printable(session))


def analyze_space(space: Space, *, path: str, session: str | None = None) -> TraceAnalysis:
    """What an already decoded trace says."""
    devices = tuple(plane for plane in space.planes if plane.title.startswith("/device:") and len(plane.name))
    hosts = [plane for plane in space.planes if plane.title.startswith("/host:") and len(plane.name)]
    notes = _notes(space, hosts)
    host = view_host(max(hosts, key=lambda plane: len(plane.name))) if hosts else None
    iterators = map_iterators(host) if host else None
    fetches = find_fetches(host, iterators) if host and iterators else None
    cut = cut_steps(host, fetches, devices)
    activity = find_activity(host, fetches, devices, cut)
    splits = split_steps(cut, activity)
    steps = _steps(cut, splits)
    pipelines: tuple[Pipeline, ...] = ()
    if host and iterators and fetches:
        pipelines = summarise_pipelines(host, iterators, find_blocking(host, iterators, fetches.at), fetches, cut)
    verdict = judge(steps, activity.device)
    bottleneck = find_bottleneck(pipelines, steps.mean_s, steps.count)
    pipeline = next((p for p in pipelines if bottleneck and p.name == bottleneck.pipeline), None)
    stage = next((s for s in pipeline.stages if bottleneck and s.path == bottleneck.path), None) if pipeline else None
    if not pipelines:
        notes.append(
            "The trace has no tf.data events: the host tracer was off, or the input does not come from tf.data."
        )
    findings = find_all(
        Facts(
            steps=steps,
            verdict=verdict,
            input_fraction=steps.mean.input_fraction,
            pipelines=pipelines,
            bottleneck=bottleneck,
            pipeline=pipeline,
            stage=stage,
            traced_calls=activity.traced_calls,
            dropped=sum(plane.dropped for plane in space.planes),
            complaints=space.complaints,
        )
    )
    return TraceAnalysis(
        path=path,
        session=session,
        host=space.host,
        size_bytes=space.size_bytes,
        events=space.events,
        span_s=_span_s(space.planes),
        device=activity.device,
        verdict=verdict,
        input_fraction=steps.mean.input_fraction if steps.mean_s > 0 else None,
        steps=steps,
        pipelines=pipelines,
        bottleneck=bottleneck,
        top_ops=stage.ops if stage else (),
        findings=findings,
        notes=tuple(notes),
    )


def _steps(cut: Cut, splits: tuple[Split, ...]) -> Steps:
    lengths = [split.step_s for split in splits]
    return Steps(
        basis=cut.basis,
        confidence=cut.confidence,
        statement=cut.statement,
        count=0 if cut.basis == "span" else len(splits),
        mean_s=statistics.fmean(lengths) if lengths else 0.0,
        median_s=statistics.median(lengths) if lengths else 0.0,
        min_s=min(lengths, default=0.0),
        max_s=max(lengths, default=0.0),
        mean=mean_split(splits),
        each=splits,
    )


def _span_s(planes: tuple[Plane, ...]) -> float:
    starts = [int(plane.start_ps.min()) for plane in planes if len(plane.name)]
    ends = [int(plane.end_ps.max()) for plane in planes if len(plane.name)]
    return (max(ends) - min(starts)) / PS_PER_S if starts else 0.0


def _notes(space: Space, hosts: list[Plane]) -> list[str]:
    notes = []
    if space.skipped_planes:
        names = ", ".join(dict.fromkeys(space.skipped_planes))
        notes.append(f"Not looked at: {names}.")
    if len(hosts) > 1:
        notes.append(f"The file holds {len(hosts)} host planes; the one with most events is analysed.")
    return notes


def _row(analysis: TraceAnalysis) -> HostRow:
    return HostRow(
        host=analysis.host,
        bound=analysis.verdict.bound,
        steps=analysis.steps.count,
        step_s=analysis.steps.mean_s,
        input_fraction=analysis.input_fraction,
        bottleneck=analysis.bottleneck.stage if analysis.bottleneck else None,
        path=analysis.path,
    )


def _with_finding(analysis: TraceAnalysis, typical_s: float, hosts: int) -> TraceAnalysis:
    finding = Finding(
        code="slow-host",
        evidence=(
            f"{analysis.host} is the slowest of {hosts} hosts: {analysis.steps.mean_s / typical_s:.2f} times the "
            "typical step."
        ),
        action="In synchronous training all wait for it: mend its input first, or look at what else runs there.",
    )
    return replace(analysis, findings=(finding, *analysis.findings))
