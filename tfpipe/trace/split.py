"""Each step's time as a partition: every moment belongs to exactly one part.

Where several things happen at once, the first of this order counts. With an accelerator: its computing, then waiting
for input, copying to the device, compiling, host work. On a CPU alone the host's operations are the computing, and
waiting for input comes first. Both are XProf's order, so that the input fraction agrees with its Input Pipeline
Analyzer. On a TPU the input wait is the time in infeed operations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tfpipe.trace.columns import Ints, distinct
from tfpipe.trace.host import Host
from tfpipe.trace.intervals import Intervals, merge, nothing, overlap_ps, subtract, union
from tfpipe.trace.nesting import enclosing
from tfpipe.trace.reader import Plane, stat_of
from tfpipe.trace.roles import Role
from tfpipe.trace.steps import Cut, Fetches
from tfpipe.trace_records import Split

PS_PER_S = 1e12
# Summaries that the profiler's own tools add to a GPU plane; the streams hold the same time.
_STREAM = "stream"
_TPU_LINES = ("XLA Ops", "XLA Modules")
_HOST_TO_DEVICE = re.compile(r"(?i)mem(?:ory)?cpy.{0,3}(?:h2d|htod|hosttodevice)|h2d|htod")
_OTHER_COPY = re.compile(r"(?i)mem(?:ory)?cpy.{0,3}(?:d2h|dtoh|devicetohost)|outfeed")
_INFEED = re.compile(r"(?i)%?infeed")
_NO_WORK = re.compile(r"(?i)train|test|TraceContext")


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """When each kind of thing went on, over the whole trace; the sets may overlap."""

    device: Literal["CPU", "GPU", "TPU"]
    compute: Intervals
    input_wait: Intervals
    host_to_device: Intervals
    compiling: Intervals
    host: Intervals
    traced_calls: int


def find_activity(host: Host | None, fetches: Fetches | None, devices: tuple[Plane, ...], cut: Cut) -> Activity:
    """What the host and the accelerators did and when."""
    compute = waiting = compiling = busy = nothing()
    traced_calls = 0
    if host is not None and fetches is not None:
        plane = host.plane
        waiting = union(plane.start_ps[fetches.at], plane.end_ps[fetches.at])
        compute = _step_operations(host)
        compiling, traced_calls = _compiling(host, cut)
        busy = _host_work(host, fetches)
    if not devices:
        return Activity(
            device="CPU",
            compute=compute,
            input_wait=waiting,
            host_to_device=nothing(),
            compiling=compiling,
            host=busy,
            traced_calls=traced_calls,
        )
    tpu = any(device.title.startswith("/device:TPU") for device in devices)
    kernels, copies, infeed = zip(*(_device_activity(device, leaves=tpu) for device in devices), strict=True)
    return Activity(
        device="TPU" if tpu else "GPU",
        compute=merge(*kernels),
        input_wait=merge(*infeed) if tpu else waiting,
        host_to_device=merge(*copies),
        compiling=compiling,
        host=merge(busy, compute),
        traced_calls=traced_calls,
    )


def split_steps(cut: Cut, activity: Activity) -> tuple[Split, ...]:
    """One partition per step; its parts sum to the step."""
    compute, waiting = ("device_compute_s", activity.compute), ("input_wait_s", activity.input_wait)
    ordered = [
        *([compute, waiting] if activity.device == "GPU" else [waiting, compute]),
        ("host_to_device_s", activity.host_to_device),
        ("compile_s", activity.compiling),
        ("host_s", activity.host),
    ]
    taken = nothing()
    parts = {}
    for name, when in ordered:
        parts[name] = overlap_ps(subtract(when, taken), cut.start, cut.end)
        taken = merge(taken, when)
    step = cut.end - cut.start
    parts["other_s"] = step - sum(parts.values())
    columns = {name: (values / PS_PER_S).tolist() for name, values in {"step_s": step, **parts}.items()}
    return tuple(Split(**dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True))


def mean_split(splits: tuple[Split, ...]) -> Split:
    """The mean of every part; zeros when there is no step."""
    names = list(Split.__dataclass_fields__)
    count = max(len(splits), 1)
    return Split(**{name: sum(getattr(split, name) for split in splits) / count for name in names})


def _step_operations(host: Host) -> Intervals:
    """Operations that belong to the steps and not to a tf.data function."""
    plane = host.plane
    at = _of_the_steps(host, host.of_role(Role.OP, Role.COMPUTE))
    at = at[host.ancestor(at, Role.ITERATOR, Role.PRODUCE) < 0]
    kernels = host.of_role(Role.KERNEL)
    caller = host.ancestor(kernels, Role.EAGER_OP, Role.EAGER_FUNCTION)
    eager = kernels[(caller >= 0) & (host.role[np.maximum(caller, 0)] == Role.EAGER_OP)]
    at = np.concatenate([at, eager])
    return union(plane.start_ps[at], plane.end_ps[at])


def _of_the_steps(host: Host, at: Ints) -> Ints:
    """Those of the events ``at`` that no tf.data function started and no thread of tf.data ran."""
    of_tf_data = np.array([line.name.startswith("tf_data") for line in host.plane.lines], dtype=bool)
    if not len(at):
        return at
    own: Ints = at[((host.starter(at) < 0) & ~of_tf_data[host.line[at]]) | host.in_loop(at)]
    return own


def _compiling(host: Host, cut: Cut) -> tuple[Intervals, int]:
    """When graphs were built or compiled, and how many calls of a tf.function in the steps built one."""
    plane = host.plane
    calls, values = plane.stats.get("tf_function_call", (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64)))
    traced = np.array([plane.references.get(value, "").startswith("traced") for value in values.tolist()], dtype=bool)
    traced_at = calls[traced].astype(np.int64)
    began = plane.start_ps[traced_at]
    step = np.searchsorted(cut.start, began, side="right") - 1
    in_steps = (step >= 0) & (began < cut.end[np.maximum(step, 0)]) if len(cut.start) else np.zeros(0, dtype=bool)
    at = np.concatenate([traced_at, host.of_role(Role.COMPILE)])
    return union(plane.start_ps[at], plane.end_ps[at]), int(in_steps.sum())


def _host_work(host: Host, fetches: Fetches) -> Intervals:
    """Everything on the threads that drive the steps, and the executors of the steps' graphs."""
    plane = host.plane
    drivers = distinct(host.line[np.concatenate([fetches.at, host.of_role(Role.EAGER_OP, Role.EAGER_FUNCTION)])])
    ignored = np.array([_NO_WORK.match(name) is not None for name in plane.names], dtype=bool)
    parts = [_of_the_steps(host, host.of_role(Role.EXECUTOR))]
    for number in drivers.tolist():
        line = plane.lines[number]
        if not line.name.startswith("tf_data"):
            at = np.arange(line.first, line.last)
            at = at[~ignored[plane.name[at]]]
            parts.append(at[stat_of(plane, "step_num", at, -1) < 0])
    at = np.concatenate(parts)
    return union(plane.start_ps[at], plane.end_ps[at])


def _device_activity(device: Plane, *, leaves: bool) -> tuple[Intervals, Intervals, Intervals]:
    """Kernels, copies from the host, and infeed of one accelerator.

    With ``leaves`` only innermost events count: a TPU's loop operation spans all that it repeats.
    """
    lines = [line for line in device.lines if _STREAM in line.name.lower()]
    if not lines:
        for name in _TPU_LINES:
            lines = lines or [line for line in device.lines if line.name == name]
    places = []
    for line in lines:
        at = np.arange(line.first, line.last)
        if leaves and len(at):
            around = enclosing(device.start_ps[at], device.end_ps[at])
            inner = np.ones(len(at), dtype=bool)
            inner[around[around >= 0]] = False
            at = at[inner]
        places.append(at)
    at = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
    kind = np.array(
        [_device_kind(name, category) for name, category in zip(device.names, device.categories, strict=True)],
        dtype=np.int64,
    )
    kinds = kind[device.name[at]] if len(at) else at
    sets = []
    for wanted in (_KERNEL, _COPY, _FEED):
        mine = at[kinds == wanted]
        sets.append(union(device.start_ps[mine], device.end_ps[mine]))
    return sets[0], sets[1], sets[2]


_KERNEL, _COPY, _FEED, _NEITHER = range(4)


def _device_kind(name: str, category: str) -> int:
    if category == "infeed" or _INFEED.match(name):
        return _FEED
    if _HOST_TO_DEVICE.search(name):
        return _COPY
    return _NEITHER if _OTHER_COPY.search(name) or category == "outfeed" else _KERNEL
