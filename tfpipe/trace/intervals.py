"""Sets of time as sorted, disjoint intervals, and the algebra on them; all times are picoseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfpipe.trace.columns import Ints


@dataclass(frozen=True, slots=True)
class Intervals:
    """``start[i] < end[i] <= start[i + 1]``: what the functions below return and expect."""

    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    @property
    def total_ps(self) -> int:
        return int((self.end - self.start).sum())


def nothing() -> Intervals:
    """The empty set."""
    return Intervals(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def union(start: Ints, end: Ints) -> Intervals:
    """The time covered by any of the given intervals, which may overlap and come in any order."""
    solid = end > start
    start, end = start[solid], end[solid]
    if not len(start):
        return nothing()
    if np.any(start[1:] < start[:-1]):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    fresh = np.concatenate([[True], start[1:] > reach[:-1]])
    last = np.concatenate([fresh[1:], [True]])
    return Intervals(start[fresh], reach[last])


def merge(*sets: Intervals) -> Intervals:
    """The time in any of the sets."""
    return union(np.concatenate([s.start for s in sets]), np.concatenate([s.end for s in sets]))


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The time in both sets."""
    if not len(a) or not len(b):
        return nothing()
    first = np.searchsorted(b.end, a.start, side="right")
    last = np.searchsorted(b.start, a.end, side="left")
    count = np.maximum(last - first, 0)
    owner = np.repeat(np.arange(len(a)), count)
    other = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return Intervals(np.maximum(a.start[owner], b.start[other]), np.minimum(a.end[owner], b.end[other]))


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The time in ``a`` and not in ``b``."""
    if not len(a) or not len(b):
        return a
    low, high = min(a.start[0], b.start[0]), max(a.end[-1], b.end[-1])
    gaps = Intervals(np.concatenate([[low], b.end]), np.concatenate([b.start, [high]]))
    solid = gaps.end > gaps.start
    return intersect(a, Intervals(gaps.start[solid], gaps.end[solid]))


def overlap_ps(of: Intervals, start: Ints, end: Ints) -> Ints:
    """For each window from ``start`` to ``end``: how much of the set falls into it."""
    return _covered_before(of, end) - _covered_before(of, start)


def _covered_before(of: Intervals, at: Ints) -> Ints:
    if not len(of):
        return np.zeros(len(at), dtype=np.int64)
    whole = np.concatenate([[0], np.cumsum(of.end - of.start)])
    index = np.searchsorted(of.start, at, side="right")
    inside = np.where(index > 0, np.minimum(at, of.end[index - 1]) - of.start[index - 1], 0)
    return whole[np.maximum(index - 1, 0)] + np.where(index > 0, inside, 0)
