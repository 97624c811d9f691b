"""The host's threads, with what encloses what and who asked for whom."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tfpipe.trace.columns import Ints, distinct, is_in
from tfpipe.trace.nesting import enclosing
from tfpipe.trace.reader import Plane, stat_of
from tfpipe.trace.roles import Role

_NESTED = (
    Role.ITERATOR, Role.PRODUCE, Role.CONSUME, Role.CAPTURED, Role.FETCH, Role.EXECUTOR, Role.OP, Role.EAGER_OP,
    Role.EAGER_FUNCTION, Role.KERNEL, Role.RUN_FUNCTION, Role.LOOP,
)  # fmt: skip
NO_ID = 0
# Real nesting is some twenty deep; a walk up that takes longer follows damage.
_MAX_CLIMB = 200
# A map function that calls a tf.function that calls another: each level has a run id of its own.
_MAX_CALL_DEPTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host plane and its structure.

    ``role``, ``parent`` and ``line`` have one value per event; ``parent`` is the position of the innermost enclosing
    event that has a part in the structure, -1 for none. ``function_ids`` are the run ids of graphs that tf.data
    started, ascending, and ``function_event`` the event that started each. ``loop_ids`` are those of steps that a
    loop inside a graph ran.
    """

    plane: Plane
    role: npt.NDArray[np.int8]
    parent: npt.NDArray[np.int32]
    line: npt.NDArray[np.int32]
    function_ids: Ints
    function_event: Ints
    loop_ids: Ints

    def of_role(self, *roles: Role) -> Ints:
        """Positions of the events that have one of ``roles``."""
        return np.flatnonzero(_table(roles)[self.role])

    def ancestor(self, at: Ints, *roles: Role) -> Ints:
        """For each event the innermost one around it (not itself) that has one of ``roles``; -1 for none."""
        wanted = _table(roles)
        result = self.parent[at].astype(np.int64)
        climbing = np.arange(len(at))
        for _ in range(_MAX_CLIMB):
            above = result[climbing]
            climbing = climbing[(above >= 0) & ~wanted[self.role[above]]]
            if not len(climbing):
                return result
            result[climbing] = self.parent[result[climbing]]
        result[climbing] = -1
        return result

    def starter(self, at: Ints) -> Ints:
        """For each event the one by which tf.data started the graph run that the event belongs to; -1 for none.

        An event belongs to the run whose id it carries, or to the run of the executor around it.
        """
        own, around = self._run_ids(at)
        found = self._find(own)
        return np.where(found >= 0, found, self._find(around))

    def in_loop(self, at: Ints) -> npt.NDArray[np.bool_]:
        """Which events are part of a step that a loop inside a graph ran."""
        own, around = self._run_ids(at)
        return is_in(own, self.loop_ids) | is_in(around, self.loop_ids)

    def _run_ids(self, at: Ints) -> tuple[Ints, Ints]:
        executor = self.ancestor(at, Role.EXECUTOR)
        around = np.where(executor >= 0, stat_of(self.plane, "id", np.maximum(executor, 0), NO_ID), NO_ID)
        return stat_of(self.plane, "id", at, NO_ID), around

    def _find(self, ids: Ints) -> Ints:
        if not len(self.function_ids):
            return np.full(len(ids), -1, dtype=np.int64)
        slot = np.minimum(np.searchsorted(self.function_ids, ids), len(self.function_ids) - 1)
        hit = (self.function_ids[slot] == ids) & (ids != NO_ID)
        return np.where(hit, self.function_event[slot], -1)


def _table(roles: tuple[Role, ...]) -> npt.NDArray[np.bool_]:
    """For each role whether it is one of ``roles``."""
    table = np.zeros(len(Role), dtype=bool)
    table[list(roles)] = True
    return table


def view_host(plane: Plane) -> Host:
    """The structure of a host plane."""
    role = plane.roles[plane.name].astype(np.int8) if len(plane.name) else np.zeros(0, dtype=np.int8)
    parent = np.full(len(role), -1, dtype=np.int32)
    line = np.zeros(len(role), dtype=np.int32)
    nested = _table(_NESTED)[role]
    for number, thread in enumerate(plane.lines):
        line[thread.first : thread.last] = number
        at = np.flatnonzero(nested[thread.first : thread.last]) + thread.first
        if len(at):
            around = enclosing(plane.start_ps[at], plane.end_ps[at])
            parent[at] = np.where(around >= 0, at[np.maximum(around, 0)], -1)
    host = Host(
        plane=plane,
        role=role,
        parent=parent,
        line=line,
        function_ids=np.zeros(0, dtype=np.int64),
        function_event=np.zeros(0, dtype=np.int64),
        loop_ids=np.zeros(0, dtype=np.int64),
    )
    return _with_functions(host)


def _with_functions(host: Host) -> Host:
    """Adds the run ids that tf.data's functions have, then those of the functions that these call."""
    started = host.of_role(Role.CAPTURED)
    around = host.ancestor(started, Role.ITERATOR, Role.PRODUCE, Role.LOOP)
    by_loop = (around >= 0) & (host.role[np.maximum(around, 0)] == Role.LOOP)
    host = replace(host, loop_ids=distinct(stat_of(host.plane, "id", started[by_loop], NO_ID)))
    started = started[~by_loop]
    ids = stat_of(host.plane, "id", started, NO_ID)
    calls = host.of_role(Role.RUN_FUNCTION)
    call_ids = stat_of(host.plane, "id", calls, NO_ID)
    for _ in range(_MAX_CALL_DEPTH):
        function_ids, first = np.unique(ids[ids != NO_ID], return_index=True)
        host = replace(host, function_ids=function_ids, function_event=started[ids != NO_ID][first])
        starter = host.starter(calls)
        new = (starter >= 0) & ~is_in(call_ids, function_ids)
        if not new.any():
            break
        ids = np.concatenate([ids, call_ids[new]])
        started = np.concatenate([started, starter[new]])
    return host


def consumer_fetches(host: Host) -> Ints:
    """Positions of the calls by which a step asks for its batch, in order of time.

    Those that tf.data itself makes (a pipeline that reads another one) are none, and of two that nest the outer one
    counts. Where nobody fetches, as when the loop over the data set is part of a graph or the trace is that of a
    tf.data worker, the calls of the root iterators count instead.
    """
    fetches = host.of_role(Role.FETCH)
    inside = host.ancestor(fetches, Role.ITERATOR, Role.PRODUCE, Role.FETCH) >= 0
    fetches = fetches[~inside]
    fetches = fetches[host.starter(fetches) < 0]
    if not len(fetches):
        calls = host.of_role(Role.ITERATOR)
        around = host.ancestor(calls, Role.ITERATOR, Role.PRODUCE, Role.LOOP)
        by_loop = (around >= 0) & (host.role[np.maximum(around, 0)] == Role.LOOP)
        has_parent = stat_of(host.plane, "parent_id", calls, NO_ID) != NO_ID
        fetches = calls[by_loop if by_loop.any() else ~has_parent & (around < 0)]
    return fetches[np.argsort(host.plane.start_ps[fetches], kind="stable")]


def fetch_around(host: Host, at: Ints, fetches: Ints) -> Ints:
    """For each event the one of ``fetches`` that it lies in or is; -1 for none."""
    chosen = np.zeros(len(host.role), dtype=bool)
    chosen[fetches] = True
    found = np.where(chosen[at], at, -1)
    around = at
    for _ in range(_MAX_CALL_DEPTH):
        around = np.where(around >= 0, host.ancestor(np.maximum(around, 0), Role.FETCH), -1)
        found = np.where((found < 0) & (around >= 0) & chosen[np.maximum(around, 0)], around, found)
    return found
