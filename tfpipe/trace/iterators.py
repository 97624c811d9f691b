"""Every call of a tf.data iterator: which stage of which pipeline it belongs to, and which call waited for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tfpipe.trace.columns import Ints, distinct, is_in
from tfpipe.trace.host import NO_ID, Host
from tfpipe.trace.reader import stat_of
from tfpipe.trace.roles import Role

# Pointer doubling: 2 ** 20 nested iterators is far beyond any pipeline.
_MAX_DOUBLINGS = 20
UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One stage of one pipeline. ``parent`` is the position of the stage that asks it, -1 for a root."""

    pipeline: int
    path: str
    name_index: int
    parent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterators:
    """The calls of all iterators, as columns, and the stages they make up.

    ``owner`` is the position (in the plane) of the call that got what this call made, -1 where it is not known.
    ``background`` tells that the call ran ahead on a thread of its own, ``unused`` that nobody took its element
    within the trace, ``root`` that a consumer made the call itself. ``produce_node`` is the stage that each
    Produce event works for. ``unexplained`` are calls that took an element whose making began before the trace.
    """

    at: Ints
    node: Ints
    owner: Ints
    background: npt.NDArray[np.bool_]
    unused: npt.NDArray[np.bool_]
    root: npt.NDArray[np.bool_]
    nodes: tuple[Node, ...]
    pipelines: tuple[str, ...]
    produce_at: Ints
    produce_node: Ints
    unexplained: Ints

    def node_of(self, at: Ints) -> Ints:
        """The stages of iterator calls given by their positions in the plane; UNKNOWN for any other event."""
        return _lookup(self.at, self.node, at)


def map_iterators(host: Host) -> Iterators:
    """Ties every iterator call to its stage and to the call that waited for its element."""
    plane = host.plane
    at = host.of_role(Role.ITERATOR)
    ids = stat_of(plane, "id", at, NO_ID)
    parent_ids = stat_of(plane, "parent_id", at, NO_ID)
    around = host.ancestor(at, Role.ITERATOR, Role.PRODUCE)
    in_produce = np.zeros(len(at), dtype=bool)
    in_produce[around >= 0] = host.role[around[around >= 0]] == Role.PRODUCE
    owner = np.where(in_produce, UNKNOWN, around)

    # A Produce event works for the iterator that is the parent of what is called inside it.
    produce_at = host.of_role(Role.PRODUCE)
    consume_at = host.of_role(Role.CONSUME)
    consume_call = host.ancestor(consume_at, Role.ITERATOR)
    inner = np.flatnonzero(in_produce)[::-1]
    slot = np.searchsorted(produce_at, around[inner])
    produce_instance = np.full(len(produce_at), NO_ID, dtype=np.int64)
    produce_instance[slot] = parent_ids[inner]
    consume_instance = np.where(consume_call >= 0, _lookup(at, ids, consume_call), NO_ID)
    produce_element = stat_of(plane, "element_id", produce_at, NO_ID)
    consume_element = stat_of(plane, "element_id", consume_at, NO_ID)
    taken_by = _nearest(
        (produce_instance, produce_element),
        plane.start_ps[produce_at],
        (consume_instance, consume_element),
        plane.start_ps[consume_at],
        later_only=True,
    )
    taken_by[produce_element == NO_ID] = UNKNOWN
    taker = _take(consume_call, taken_by)
    owner[inner] = taker[slot]
    unused = np.zeros(len(at), dtype=bool)
    unused[inner] = (produce_element != NO_ID)[slot] & (taker[slot] < 0)
    explained = np.zeros(len(consume_at), dtype=bool)
    explained[taken_by[taken_by >= 0]] = True

    # A pipeline that is read by a function of another one (a generator on a device) hangs below that stage.
    alone = (around < 0) & ((parent_ids == NO_ID) | ~is_in(parent_ids, np.sort(ids)))
    fetch = host.ancestor(at[alone], Role.FETCH)
    starter = np.where(fetch >= 0, host.starter(np.maximum(fetch, 0)), UNKNOWN)
    reader = np.where(starter >= 0, host.ancestor(np.maximum(starter, 0), Role.ITERATOR), UNKNOWN)
    owner[alone] = reader
    root = alone.copy()
    root[alone] = reader < 0

    pipeline, pipelines = _pipelines(host, at, ids, parent_ids, owner, root)
    keys, node = np.unique(pipeline * len(plane.names) + plane.name[at], return_inverse=True)
    produce_node = np.full(len(produce_at), UNKNOWN, dtype=np.int64)
    produce_node[slot] = _take(
        node,
        _nearest((parent_ids[inner], pipeline[inner]), plane.start_ps[at[inner]], (ids, pipeline), plane.start_ps[at]),
    )
    produce_node = np.where(produce_node < 0, _lookup(at, node, taker), produce_node)
    parents = _parents(at, node, owner, keys, plane.names)
    nodes = tuple(
        Node(
            pipeline=int(key) // len(plane.names),
            path=plane.names[int(key) % len(plane.names)],
            name_index=int(key) % len(plane.names),
            parent=parents[position],
        )
        for position, key in enumerate(keys.tolist())
    )
    return Iterators(
        at=at,
        node=node,
        owner=owner,
        background=in_produce | ((around < 0) & ~alone),
        unused=unused,
        root=root,
        nodes=nodes,
        pipelines=pipelines,
        produce_at=produce_at,
        produce_node=produce_node,
        unexplained=distinct(consume_call[~explained & (consume_element != NO_ID) & (consume_call >= 0)]),
    )


def _take(values: Ints, at: Ints) -> Ints:
    """``values`` at the positions ``at``; UNKNOWN where a position is negative."""
    if not len(values):
        return np.full(len(at), UNKNOWN, dtype=np.int64)
    return np.where(at >= 0, values[np.maximum(at, 0)], UNKNOWN)


def _lookup(keys: Ints, values: Ints, wanted: Ints) -> Ints:
    """``values`` at the places where ascending ``keys`` equal ``wanted``; UNKNOWN elsewhere."""
    if not len(keys):
        return np.full(len(wanted), UNKNOWN, dtype=np.int64)
    slot = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[slot] == wanted, values[slot], UNKNOWN)


def _nearest(
    keys: tuple[Ints, ...],
    time: Ints,
    of_keys: tuple[Ints, ...],
    of_time: Ints,
    *,
    later_only: bool = False,
) -> Ints:
    """For each entry the position of the next one of the second table with equal keys, else of the last one before.

    Ids are addresses and counters, so an id comes back after its owner is gone: equal ids mean the same thing only
    near each other in time.
    """
    asked = len(time)
    if not asked or not len(of_time):
        return np.full(asked, UNKNOWN, dtype=np.int64)
    both = [np.concatenate([ours, theirs]) for ours, theirs in zip(keys, of_keys, strict=True)]
    order = np.lexsort((np.concatenate([time, of_time]), *both))
    changes = np.zeros(len(order), dtype=bool)
    for column in both:
        changes[1:] |= np.diff(column[order]) != 0
    group = np.cumsum(changes)
    place = np.arange(len(order))
    target = order >= asked
    later = np.minimum.accumulate(np.where(target, place, len(order))[::-1])[::-1]
    found = _same_group(later, group, len(order))
    if not later_only:
        earlier = np.maximum.accumulate(np.where(target, place, UNKNOWN))
        found = np.where(found >= 0, found, _same_group(earlier, group, len(order)))
    result = np.empty(len(order), dtype=np.int64)
    result[order] = np.where(found >= 0, order[found] - asked, UNKNOWN)
    return result[:asked]


def _same_group(candidate: Ints, group: Ints, count: int) -> Ints:
    inside = (candidate >= 0) & (candidate < count)
    same = inside & (group[np.where(inside, candidate, 0)] == group)
    return np.where(same, candidate, UNKNOWN)


def _pipelines(
    host: Host, at: Ints, ids: Ints, parent_ids: Ints, owner: Ints, root: npt.NDArray[np.bool_]
) -> tuple[Ints, tuple[str, ...]]:
    """The pipeline of each call: that of the root call it was made for. Roots of one dataset node (epochs) share one.

    A call that was made for nobody within the trace goes with the calls of the same iterator, or of the one it names
    as its parent, or under the root that its path begins with.
    """
    plane = host.plane
    dataset = stat_of(plane, "name", at, UNKNOWN)
    keys: dict[tuple[int, int], int] = {}
    time = plane.start_ps[at]
    top = np.where(owner >= 0, _lookup(at, np.arange(len(at)), owner), np.arange(len(at)))
    for _ in range(_MAX_DOUBLINGS):
        higher = top[top]
        if np.array_equal(higher, top):
            break
        top = higher
    of_top = np.full(len(at), UNKNOWN, dtype=np.int64)
    for position in np.flatnonzero(root).tolist():
        key = (int(plane.name[at[position]]), int(dataset[position]))
        of_top[position] = keys.setdefault(key, len(keys))
    pipeline = of_top[top]
    for wanted_ids in (ids, parent_ids, ids, parent_ids):
        lost = np.flatnonzero((of_top < 0) & (top == np.arange(len(at))))
        if not len(lost):
            break
        known = np.flatnonzero((pipeline >= 0) & (ids != NO_ID))
        near = _nearest((wanted_ids[lost],), time[lost], (ids[known],), time[known])
        of_top[lost] = _take(pipeline[known], near)
        pipeline = of_top[top]
    prefixes = {plane.names[name] + "::": number for (name, _), number in keys.items()}
    for name in distinct(plane.name[at[pipeline < 0]]).tolist():
        path = plane.names[name]
        number = next((number for prefix, number in prefixes.items() if path.startswith(prefix)), None)
        if number is None:
            number = keys.setdefault((name, UNKNOWN), len(keys))
            prefixes[path + "::"] = number
        pipeline[(pipeline < 0) & (plane.name[at] == name)] = number
    titles = tuple(plane.references.get(node, plane.names[name].removeprefix("Iterator::")) for name, node in keys)
    return pipeline, titles


def _parents(at: Ints, node: Ints, owner: Ints, keys: Ints, names: Sequence[str]) -> list[int]:
    """The parent of each stage: the one that most of its calls were made for, else the one its path lies under."""
    owner_node = _lookup(at, node, owner)
    votes: dict[int, tuple[int, int]] = {}
    pairs, counts = np.unique(node * (len(keys) + 1) + owner_node + 1, return_counts=True)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        child, parent = pair // (len(keys) + 1), pair % (len(keys) + 1) - 1
        if parent not in (UNKNOWN, child) and count > votes.get(child, (0, 0))[1]:
            votes[child] = (parent, count)
    paths = {(key // len(names), names[key % len(names)]): position for position, key in enumerate(keys.tolist())}
    result = []
    for position, key in enumerate(keys.tolist()):
        if position in votes:
            result.append(votes[position][0])
            continue
        path = names[key % len(names)].rpartition("::")[0]
        while path and (key // len(names), path) not in paths:
            path = path.rpartition("::")[0]
        result.append(paths.get((key // len(names), path), UNKNOWN))
    return result
