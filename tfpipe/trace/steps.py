"""Where each step begins and ends, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tfpipe.trace.columns import Ints, distinct
from tfpipe.trace.host import Host, consumer_fetches, fetch_around
from tfpipe.trace.iterators import Iterators
from tfpipe.trace.reader import Plane, stat_of
from tfpipe.trace.roles import Role
from tfpipe.trace_records import Confidence, StepBasis

# The name under which Keras's TensorBoard callback marks a batch; it leaves the root mark (_r) out.
KERAS_MARKER = "Profiled batch"
_STEPS_LINE = "Steps"
# From this many steps on the first and the last are left out, as XProf does: the first carries start-up (caches,
# filling buffers, the profiler itself), the last may be cut.
MIN_STEPS_TO_TRIM = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Steps as disjoint windows in ascending order, and what they rest on."""

    start: Ints
    end: Ints
    basis: StepBasis
    confidence: Confidence
    statement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetches:
    """The consumer's calls for a batch: positions in the plane in order of time, and the pipeline each asks."""

    at: Ints
    pipeline: Ints


def find_fetches(host: Host, iterators: Iterators) -> Fetches:
    """The calls by which the steps ask for their batches."""
    at = consumer_fetches(host)
    inner = iterators.at[iterators.root]
    around = fetch_around(host, inner, at)
    known = around >= 0
    pipeline_of_node = np.array([node.pipeline for node in iterators.nodes], dtype=np.int64)
    pipeline = np.full(len(host.role), -1, dtype=np.int32)
    pipeline[around[known]] = pipeline_of_node[iterators.node_of(inner[known])] if known.any() else -1
    return Fetches(at=at, pipeline=pipeline[at].astype(np.int64))


def cut_steps(host: Host | None, fetches: Fetches | None, devices: tuple[Plane, ...]) -> Cut:
    """Steps from an accelerator's own step line, from step markers, from Keras's, from the fetches, or one span.

    Of six or more steps the first and the last are left out.
    """
    cut = _cut_all(host, fetches, devices)
    count = len(cut.start)
    if count < MIN_STEPS_TO_TRIM:
        return cut
    statement = f"{count - 2:,} steps {cut.statement.partition(' ')[2].partition(' ')[2]}"
    return replace(
        cut, start=cut.start[1:-1], end=cut.end[1:-1], statement=f"{statement} (first and last of {count:,} left out)"
    )


def _cut_all(host: Host | None, fetches: Fetches | None, devices: tuple[Plane, ...]) -> Cut:
    for device in devices:
        if cut := _from_device(device):
            return cut
    if host is not None and fetches is not None:
        for cut in (_from_markers(host, fetches), _from_fetches(host, fetches)):
            if cut is not None:
                return cut
    return _span(([host.plane] if host else []) + list(devices))


def marker_positions(host: Host) -> Ints:
    """Positions of the root step markers: events with a step number and the root mark, else Keras's."""
    plane = host.plane
    if "step_num" not in plane.stats:
        return np.zeros(0, dtype=np.int64)
    numbered: Ints = plane.stats["step_num"][0].astype(np.int64)
    marked: Ints = numbered[(stat_of(plane, "_r", numbered, 0) == 1) & (host.role[numbered] != Role.RUN_FUNCTION)]
    if len(marked):
        return marked
    is_keras = np.array([name == KERAS_MARKER for name in plane.names], dtype=bool)
    keras: Ints = numbered[is_keras[plane.name[numbered]]]
    return keras


def _from_device(device: Plane) -> Cut | None:
    for line in device.lines:
        if line.name == _STEPS_LINE and line.last - line.first > 0 and device.title.startswith("/device:TPU"):
            start, end = _disjoint(device.start_ps[line.first : line.last], device.end_ps[line.first : line.last])
            if len(start):
                return Cut(
                    start=start,
                    end=end,
                    basis="device",
                    confidence="high",
                    statement=f"{_steps(len(start))} from the step line of {device.title}",
                )
    return None


def _from_markers(host: Host, fetches: Fetches) -> Cut | None:
    plane = host.plane
    at = marker_positions(host)
    if not len(at):
        return None
    names, total = np.unique(plane.name[at], return_inverse=True)
    longest = int(np.argmax(np.bincount(total, weights=(plane.end_ps - plane.start_ps)[at])))
    label = plane.names[int(names[longest])]
    others = [f"{plane.names[int(name)]!r}" for name in names if name != names[longest]]
    at = at[plane.name[at] == names[longest]]
    start, end = _disjoint(plane.start_ps[at], plane.end_ps[at])
    if not len(start):
        return None
    keras = label == KERAS_MARKER
    source = "Keras's batch markers" if keras else f"step markers {label!r}"
    statement = f"{_steps(len(start))} from {source}"
    if others:
        statement += f" (those of {', '.join(others)} left out)"
    widened = _with_fetch_before(plane, start, end, fetches)
    if widened is not None:
        start = widened
        statement += ", each from its fetch on, which comes before the marker"
    return Cut(start=start, end=end, basis="keras" if keras else "marker", confidence="high", statement=statement)


def _with_fetch_before(plane: Plane, start: Ints, end: Ints, fetches: Fetches) -> Ints | None:
    """Step starts moved to the fetches between the markers; None when the fetches lie inside the markers.

    Of each pipeline the last fetch before a marker is that step's; earlier ones belong to steps without a marker.
    """
    began = plane.start_ps[fetches.at]
    step = np.searchsorted(start, began, side="right") - 1
    inside = (step >= 0) & (began < end[np.maximum(step, 0)])
    if 2 * int(inside.sum()) >= len(began):
        return None
    result: Ints = start.copy()
    previous_end = np.concatenate([[np.iinfo(np.int64).min], end[:-1]])
    for pipeline in distinct(fetches.pipeline).tolist():
        mine = began[(fetches.pipeline == pipeline) & ~inside]
        last = np.searchsorted(mine, start, side="right") - 1
        candidate = np.where(last >= 0, mine[np.maximum(last, 0)], start)
        result = np.where(candidate >= previous_end, np.minimum(result, candidate), result)
    return result


def _from_fetches(host: Host, fetches: Fetches) -> Cut | None:
    """From one fetch to the next of the pipeline that is asked most often; what follows the last fetch is no step."""
    if len(fetches.at) < 2:
        return None
    pipelines, calls = np.unique(fetches.pipeline, return_counts=True)
    at = fetches.at[fetches.pipeline == pipelines[int(np.argmax(calls))]]
    began = distinct(host.plane.start_ps[at])
    if len(began) < 2:
        return None
    return Cut(
        start=began[:-1],
        end=began[1:],
        basis="fetch",
        confidence="lower",
        statement=(
            f"{_steps(len(began) - 1)} inferred from the calls that fetch the next batch, as the trace has no step "
            "markers: less certain"
        ),
    )


def _span(planes: list[Plane]) -> Cut:
    starts = [int(plane.start_ps.min()) for plane in planes if len(plane.start_ps)]
    ends = [int(plane.end_ps.max()) for plane in planes if len(plane.end_ps)]
    empty = np.zeros(0, dtype=np.int64)
    if not starts or max(ends) <= min(starts):
        return Cut(
            start=empty, end=empty, basis="span", confidence="low", statement="no steps: the trace holds no events"
        )
    return Cut(
        start=np.array([min(starts)]),
        end=np.array([max(ends)]),
        basis="span",
        confidence="low",
        statement="no steps found, neither markers nor fetches: the whole span is taken as one",
    )


def _disjoint(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Windows in order of time without those that begin inside an earlier one, and without empty ones."""
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end) if len(end) else end
    outer = np.ones(len(start), dtype=bool)
    outer[1:] = start[1:] >= reach[:-1]
    outer &= end > start
    return start[outer], end[outer]


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"
