"""The tf.data tree with its numbers, from iterator calls and the critical path."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from tfpipe.trace.blocking import Blocking, children_of
from tfpipe.trace.columns import Ints, distinct
from tfpipe.trace.host import Host
from tfpipe.trace.intervals import Intervals, intersect, overlap_ps, union
from tfpipe.trace.iterators import UNKNOWN, Iterators
from tfpipe.trace.reader import Value, stat_of
from tfpipe.trace.roles import Role, holds_interpreter, op_type
from tfpipe.trace.steps import Cut, Fetches
from tfpipe.trace_records import Buffer, OpCost, Pipeline, SlowCall, Stage

PS_PER_S = 1e12
# Enough to see whether the slowest calls have one cause.
SLOW_CALLS = 5
_BYTES_OF_TYPE = {
    "bool": 1, "int8": 1, "uint8": 1, "qint8": 1, "quint8": 1, "half": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
    "float": 4, "int32": 4, "uint32": 4, "double": 8, "int64": 8, "uint64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
_SHAPE = re.compile(r"\[([0-9,]{0,100})\]|(\[[^\]]*\]|<[^>]*>)")
# Shown with a stage; the rest of its statistics have fields of their own.
_SETTINGS = (
    "batch_size", "buffer_size", "cycle_length", "block_length", "deterministic", "max_batch_results", "parallel_copy",
    "drop_remainder",
)  # fmt: skip
_ABSENT = -(1 << 40)


def summarise_pipelines(
    host: Host, iterators: Iterators, blocking: Blocking, fetches: Fetches, cut: Cut
) -> tuple[Pipeline, ...]:
    """Every pipeline of the trace, the one that was waited for longest first.

    Calls and totals are over the whole trace; what blocked is counted inside the steps only.
    """
    steps = Intervals(cut.start, cut.end)
    builder = _StageBuilder(host, iterators, blocking, steps)
    step_ps = int((cut.end - cut.start).sum())
    children = children_of(iterators)
    pipelines = []
    for number, name in enumerate(iterators.pipelines):
        roots = [root for root in children.get(UNKNOWN, []) if iterators.nodes[root].pipeline == number]
        order = _preorder(roots, children)
        mine = fetches.at[fetches.pipeline == number]
        calls = union(host.plane.start_ps[mine], host.plane.end_ps[mine])
        own_ps = sum(intersect(blocking.own[node], steps).total_ps for node, _ in order)
        wait_ps = intersect(calls, steps).total_ps
        sizes = stat_of(host.plane, "element_size", mine, 0)
        if not order:
            continue
        pipelines.append(
            Pipeline(
                name=name,
                calls=len(mine),
                wait_s=wait_ps / PS_PER_S,
                wait_fraction=wait_ps / step_ps if step_ps else 0.0,
                batch_bytes=int(np.median(sizes[sizes > 0])) if (sizes > 0).any() else None,
                stages=tuple(builder.build(node, depth, own_ps) for node, depth in order),
                slow_calls=_slow_calls(host, iterators, blocking, mine, [node for node, _ in order]),
            )
        )
    return tuple(sorted(pipelines, key=lambda pipeline: -pipeline.wait_s))


def _preorder(roots: list[int], children: dict[int, list[int]]) -> list[tuple[int, int]]:
    """Stages with their depth, parents first. A stage is listed once, whatever a damaged trace claims."""
    order: list[tuple[int, int]] = []
    pending = [(root, 0) for root in reversed(roots)]
    seen: set[int] = set()
    while pending:
        node, depth = pending.pop()
        if node not in seen:
            seen.add(node)
            order.append((node, depth))
            pending.extend((child, depth + 1) for child in reversed(children.get(node, [])))
    return order


def _slow_calls(
    host: Host, iterators: Iterators, blocking: Blocking, fetches: Ints, nodes: list[int]
) -> tuple[SlowCall, ...]:
    start, end = host.plane.start_ps[fetches], host.plane.end_ps[fetches]
    slowest = np.argsort(start - end, kind="stable")[:SLOW_CALLS]
    if not len(slowest) or not nodes:
        return ()
    held = np.stack([overlap_ps(blocking.own[node], start[slowest], end[slowest]) for node in nodes])
    origin = int(host.plane.start_ps.min())
    calls = []
    for column, call in enumerate(slowest.tolist()):
        worst = int(np.argmax(held[:, column]))
        duration = int(end[call] - start[call])
        if duration and held[worst, column]:
            calls.append(
                SlowCall(
                    at_s=(int(start[call]) - origin) / PS_PER_S,
                    duration_s=duration / PS_PER_S,
                    stage=iterators.nodes[nodes[worst]].path,
                    stage_share=int(held[worst, column]) / duration,
                )
            )
    return tuple(calls)


class _StageBuilder:
    """Sums per stage, computed once for all stages."""

    def __init__(self, host: Host, iterators: Iterators, blocking: Blocking, steps: Intervals) -> None:
        self._host, self._iterators, self._blocking, self._steps = host, iterators, blocking, steps
        plane, count = host.plane, len(iterators.nodes)
        duration = (plane.end_ps - plane.start_ps)[iterators.at]
        self._calls = np.bincount(iterators.node, minlength=count)
        self._total = np.bincount(iterators.node, weights=duration, minlength=count)
        inner = (iterators.owner >= 0) & ~iterators.background
        parent = iterators.node_of(iterators.owner[inner])
        known = parent >= 0
        self._nested = np.bincount(parent[known], weights=duration[inner][known], minlength=count)
        self._by_node = np.argsort(iterators.node, kind="stable")
        self._bounds = np.searchsorted(iterators.node[self._by_node], np.arange(count + 1))
        self._sum_functions(count)

    def _sum_functions(self, count: int) -> None:
        host, plane = self._host, self._host.plane
        started = host.of_role(Role.CAPTURED)
        self._function_calls = np.bincount(self._stage_of(started) + 1, minlength=count + 1)[1:]
        executors = host.of_role(Role.EXECUTOR)
        stage = self._stage_of_run(executors)
        lasted = (plane.end_ps - plane.start_ps)[executors]
        self._function_ps = np.bincount(stage + 1, weights=lasted, minlength=count + 1)[1:]
        workers = distinct(stage * (len(plane.lines) + 1) + host.line[executors])
        self._workers = Counter((workers // (len(plane.lines) + 1)).tolist())
        self._ops = self._sum_operations()

    def _sum_operations(self) -> dict[int, list[tuple[str, int, float]]]:
        """Per stage: type, calls and picoseconds of each kind of operation, without operations inside them."""
        host, plane = self._host, self._host.plane
        at = host.of_role(Role.OP)
        stage = self._stage_of_run(at)
        at, stage = at[stage >= 0], stage[stage >= 0]
        own = (plane.end_ps - plane.start_ps)[at].astype(np.float64)
        outer = host.ancestor(at, Role.OP)
        place = np.searchsorted(at, np.maximum(outer, 0))
        inside = (outer >= 0) & (at[np.minimum(place, len(at) - 1)] == outer) if len(at) else outer >= 0
        np.subtract.at(own, place[inside], (plane.end_ps - plane.start_ps)[at[inside]])
        pairs, group = np.unique(stage * len(plane.names) + plane.name[at], return_inverse=True)
        calls = np.bincount(group, minlength=len(pairs))
        time = np.bincount(group, weights=own, minlength=len(pairs))
        sums: dict[tuple[int, str], tuple[int, float]] = {}
        for pair, count, spent in zip(pairs.tolist(), calls.tolist(), time.tolist(), strict=True):
            key = pair // len(plane.names), op_type(plane.names[pair % len(plane.names)]) or "?"
            before = sums.get(key, (0, 0.0))
            sums[key] = before[0] + count, before[1] + max(spent, 0.0)
        found: dict[int, list[tuple[str, int, float]]] = {}
        for (node, operation), (count, spent) in sums.items():
            found.setdefault(node, []).append((operation, count, spent))
        return found

    def _stage_of(self, at: Ints) -> Ints:
        """The stage in whose call, or for which, the events at ``at`` happen."""
        iterators = self._iterators
        around = self._host.ancestor(at, Role.ITERATOR, Role.PRODUCE)
        node = iterators.node_of(around)
        if not len(iterators.produce_at):
            return node
        slot = np.minimum(np.searchsorted(iterators.produce_at, around), len(iterators.produce_at) - 1)
        made = (iterators.produce_at[slot] == around) & (around >= 0)
        return np.where(made, iterators.produce_node[slot], node)

    def _stage_of_run(self, at: Ints) -> Ints:
        """The stage whose function the events at ``at`` are part of; UNKNOWN for what is no tf.data function."""
        starter = self._host.starter(at)
        return np.where(starter >= 0, self._stage_of(np.maximum(starter, 0)), UNKNOWN)

    def build(self, node: int, depth: int, pipeline_own_ps: int) -> Stage:
        iterators, plane = self._iterators, self._host.plane
        this = iterators.nodes[node]
        stats = plane.stage_stats.get(this.name_index, {})
        mine = self._by_node[self._bounds[node] : self._bounds[node + 1]]
        at = iterators.at[mine]
        own_ps = intersect(self._blocking.own[node], self._steps).total_ps
        parallelism = stat_of(plane, "parallelism", at, _ABSENT)
        autotune = stats.get("autotune")
        function_s = float(self._function_ps[node]) / PS_PER_S
        child_calls = sum(int(self._calls[other]) for other, it in enumerate(iterators.nodes) if it.parent == node)
        return Stage(
            path=this.path,
            name=this.path.rpartition("::")[2],
            node=str(stats.get("name", "")),
            depth=depth,
            calls=int(self._calls[node]),
            total_s=float(self._total[node]) / PS_PER_S,
            self_s=max(float(self._total[node] - self._nested[node]), 0.0) / PS_PER_S,
            blocking_s=intersect(self._blocking.whole[node], self._steps).total_ps / PS_PER_S,
            blocking_self_s=own_ps / PS_PER_S,
            blocking_share=own_ps / pipeline_own_ps if pipeline_own_ps else 0.0,
            threads=self._workers.get(node, 0) or len(distinct(self._host.line[at])),
            function_s=function_s,
            function_calls=int(self._function_calls[node]),
            parallelism=int(parallelism[-1]) if len(at) and parallelism[-1] != _ABSENT else None,
            autotuned=None if autotune is None else str(autotune).lower() in ("true", "1"),
            buffer=self._buffer(at, stats),
            element_bytes=_element_bytes(stats),
            elements_per_call=child_calls / int(self._calls[node]) if child_calls and self._calls[node] else None,
            settings={key: stats[key] for key in _SETTINGS if key in stats},
            ops=_op_costs(self._ops.get(node, [])),
        )

    def _buffer(self, at: Ints, stats: dict[str, Value]) -> Buffer | None:
        """From the statistics of every call. The profiler leaves ``buffered_elements`` out when it is 0."""
        plane = self._host.plane
        limits = stat_of(plane, "buffer_limit", at, _ABSENT)
        size = stats.get("buffer_size")
        if not len(at) or (limits[-1] == _ABSENT and not isinstance(size, int)):
            return None
        in_time = np.argsort(plane.start_ps[at], kind="stable")
        held = np.maximum(stat_of(plane, "buffered_elements", at, 0), 0)[in_time]
        limits = limits[in_time] if limits[-1] != _ABSENT else np.full(len(at), size, dtype=np.int64)
        capacity = int(limits[-1])
        return Buffer(
            capacity=capacity if capacity > 0 else None,
            mean_elements=float(held.mean()),
            empty_fraction=float((held == 0).mean()),
            full_fraction=float((held >= limits).mean()) if capacity > 0 else None,
            first_elements=int(held[0]),
            last_elements=int(held[-1]),
        )


def _op_costs(sums: list[tuple[str, int, float]]) -> tuple[OpCost, ...]:
    total = sum(spent for _, _, spent in sums)
    return tuple(
        OpCost(
            operation=operation,
            calls=calls,
            time_s=spent / PS_PER_S,
            share=spent / total if total else 0.0,
            python=holds_interpreter(operation),
        )
        for operation, calls, spent in sorted(sums, key=lambda entry: (-entry[2], entry[0]))
    )


def _element_bytes(stats: dict[str, Value]) -> int | None:
    """Bytes of one element from its shapes and types; None when a dimension or a type has no fixed size."""
    types = str(stats.get("types", "")).split()
    shapes = _SHAPE.findall(str(stats.get("shapes", "")))
    if not types or len(types) != len(shapes):
        return None
    total = 0
    for kind, (sizes, unknown) in zip(types, shapes, strict=True):
        if unknown or kind not in _BYTES_OF_TYPE:
            return None
        count = 1
        for size in filter(None, sizes.split(",")):
            count *= int(size)
        total += count * _BYTES_OF_TYPE[kind]
    return total
