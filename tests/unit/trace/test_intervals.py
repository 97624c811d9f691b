"""Sets of time against sets of numbers, and nesting against looking at every pair."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfpipe.trace.intervals import Intervals, intersect, merge, overlap_ps, subtract, union
from tfpipe.trace.nesting import enclosing

pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def make(intervals: list[tuple[int, int]]) -> Intervals:
    table = np.array(intervals, dtype=np.int64).reshape(-1, 2)
    return union(table[:, 0], table[:, 1])


def moments(intervals: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in intervals for moment in range(start, end)}


def contents(intervals: Intervals) -> set[int]:
    table = list(zip(intervals.start.tolist(), intervals.end.tolist(), strict=True))
    assert all(start < end for start, end in table)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(table))
    assert intervals.total_ps == len(moments(table))
    return moments(table)


@given(pairs, pairs)
def test_the_algebra_of_sets(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    a, b = make(first), make(second)
    assert contents(a) == moments(first)
    assert contents(merge(a, b)) == moments(first) | moments(second)
    assert contents(intersect(a, b)) == moments(first) & moments(second)
    assert contents(subtract(a, b)) == moments(first) - moments(second)


@given(pairs, pairs)
def test_overlap_with_windows(first: list[tuple[int, int]], windows: list[tuple[int, int]]) -> None:
    table = np.array(windows, dtype=np.int64).reshape(-1, 2)
    found = overlap_ps(make(first), table[:, 0], table[:, 1])
    assert found.tolist() == [len(moments(first) & moments([window])) for window in windows]


@st.composite
def nested(draw: st.DrawFn, low: int = 0, high: int = 200, depth: int = 0) -> list[tuple[int, int]]:
    """Events of one thread: side by side or inside one another."""
    found: list[tuple[int, int]] = []
    at = low
    while at < high and len(found) < 12 and draw(st.booleans()):
        start = draw(st.integers(at, high))
        end = draw(st.integers(start, high))
        found.append((start, end))
        if depth < 3 and end > start:
            found += draw(nested(start, end, depth + 1))
        at = end + 1
    return found


@given(nested())
def test_the_innermost_enclosing_event(events: list[tuple[int, int]]) -> None:
    events.sort(key=lambda event: (event[0], -event[1]))
    table = np.array(events, dtype=np.int64).reshape(-1, 2)
    expected = []
    for place, (start, _) in enumerate(events):
        around = [other for other in range(place) if max(events[other][1], events[other][0] + 1) > start]
        expected.append(around[-1] if around else -1)
    assert enclosing(table[:, 0], table[:, 1]).tolist() == expected


@given(pairs)
def test_events_that_merely_overlap_get_some_answer(events: list[tuple[int, int]]) -> None:
    events.sort(key=lambda event: (event[0], -event[1]))
    table = np.array(events, dtype=np.int64).reshape(-1, 2)
    found = enclosing(table[:, 0], table[:, 1])
    assert all(-1 <= parent < place for place, parent in enumerate(found.tolist()))
