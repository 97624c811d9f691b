"""How long the consumer waited for each stage: the critical path through the pipeline.

The consumer's call of a root iterator blocks it from its first to its last moment. Inside a blocked call, the calls
that it makes on the same thread block; and so do calls on a producer's thread as far as they fall into the wait and
made the very element that was waited for. What a stage made ahead of time blocks nobody. Each moment of waiting is
counted once: it belongs to the deepest stage on the path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfpipe.trace.columns import Ints
from tfpipe.trace.host import Host, fetch_around
from tfpipe.trace.intervals import Intervals, intersect, merge, nothing, subtract, union
from tfpipe.trace.iterators import Iterators


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    """Per stage: the time the consumer was blocked in it and below (``whole``) and in it alone (``own``).

    A wait for an element whose making began before the trace is in ``whole`` of the stage that waited and in nobody's
    ``own``: which stage made it is not recorded.
    """

    whole: tuple[Intervals, ...]
    own: tuple[Intervals, ...]


def children_of(iterators: Iterators) -> dict[int, list[int]]:
    """The stages below each stage; -1 has the roots."""
    children: dict[int, list[int]] = {}
    for position, node in enumerate(iterators.nodes):
        children.setdefault(node.parent, []).append(position)
    return children


def find_blocking(host: Host, iterators: Iterators, fetches: Ints) -> Blocking:
    """The critical path of every pipeline in the trace, over the whole trace.

    ``fetches`` are the consumer's calls; a pipeline that only background threads read blocks nobody.
    """
    start, end = host.plane.start_ps, host.plane.end_ps
    count = len(iterators.nodes)
    whole = [nothing() for _ in range(count)]
    own = [nothing() for _ in range(count)]
    children = children_of(iterators)
    by_node = np.argsort(iterators.node, kind="stable")
    bounds = np.searchsorted(iterators.node[by_node], np.arange(count + 1))

    def calls_of(node: int) -> Intervals:
        mine = by_node[bounds[node] : bounds[node + 1]]
        mine = mine[~iterators.unused[mine]]
        at, owner = iterators.at[mine], iterators.owner[mine]
        owned = owner >= 0
        low = np.where(owned, start[np.maximum(owner, 0)], start[at])
        high = np.where(owned, end[np.maximum(owner, 0)], end[at])
        return union(np.maximum(start[at], low), np.minimum(end[at], high))

    unexplained = union(start[iterators.unexplained], end[iterators.unexplained])
    pending = []
    for node in children.get(-1, []):
        mine = by_node[bounds[node] : bounds[node + 1]]
        at = iterators.at[mine[iterators.root[mine]]]
        at = at[fetch_around(host, at, fetches) >= 0]
        whole[node] = union(start[at], end[at])
        pending.append(node)
    visited = set(pending)
    while pending:
        node = pending.pop()
        below = [(child, intersect(calls_of(child), whole[node])) for child in children.get(node, [])]
        taken = nothing()
        # Where two producers blocked at the same moment, the one that blocked longer in all gets it.
        for child, blocked in sorted(below, key=lambda pair: -pair[1].total_ps):
            if child in visited:
                continue
            visited.add(child)
            whole[child] = subtract(blocked, taken)
            taken = merge(taken, whole[child])
            pending.append(child)
        own[node] = subtract(subtract(whole[node], taken), unexplained)
    return Blocking(whole=tuple(whole), own=tuple(own))
