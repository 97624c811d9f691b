"""Decoding in bulk against one field at a time."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.trace.builder import chunk, number, varint
from tfpipe.trace import columns
from tfpipe.trace.columns import decode_events

NONE = np.zeros(0, dtype=np.int64)
STATS = np.arange(1, 60, dtype=np.int64)


@dataclass
class Event:
    metadata_id: int
    offset_ps: int
    duration_ps: int
    stats: list[tuple[int, int | float | str]] = field(default_factory=list)

    def encode(self) -> bytes:
        content = number(1, self.metadata_id) if self.metadata_id else b""
        content += number(2, self.offset_ps) if self.offset_ps else b""
        content += number(3, self.duration_ps) if self.duration_ps else b""
        return content + b"".join(chunk(4, encode_stat(*stat)) for stat in self.stats)


def encode_stat(stat_id: int, value: int | float | str) -> bytes:
    if isinstance(value, str):
        return number(1, stat_id) + chunk(5, value)
    if isinstance(value, float):
        return number(1, stat_id) + varint(2 << 3 | 1) + struct.pack("<d", value)
    return number(1, stat_id) + number(4, value)


whole_numbers = st.one_of(st.integers(0, 300), st.integers(0, (1 << 63) - 1))
any_stat = st.tuples(
    st.integers(1, 90),
    st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), st.text(max_size=200)),
)
events = st.lists(
    st.builds(Event, whole_numbers, whole_numbers, whole_numbers, st.lists(any_stat, max_size=6)), max_size=40
)


@settings(deadline=None, max_examples=150)
@given(events)
def test_any_events_come_back(written: list[Event]) -> None:
    decoded = list(decode_events([event.encode() for event in written], NONE, STATS))
    if not written:
        assert decoded == []
        return
    (read,) = decoded
    assert read.metadata_id.tolist() == [event.metadata_id for event in written]
    assert read.offset_ps.tolist() == [event.offset_ps for event in written]
    assert read.duration_ps.tolist() == [event.duration_ps for event in written]
    expected = [
        (place, stat_id, value)
        for place, event in enumerate(written)
        for stat_id, value in event.stats
        if stat_id in STATS
    ]
    got = []
    for row in range(len(read.stat_id)):
        bits = read.stat_value[row]
        value: object = int(bits.view(np.int64))
        if read.stat_field[row] == 5:
            value = read.text[int(bits) : int(bits) + int(read.stat_length[row])].decode()
        elif read.stat_field[row] == 2:
            value = float(bits.view(np.float64))
        got.append((int(read.stat_event[row]), int(read.stat_id[row]), value))
    assert got == expected


@settings(deadline=None, max_examples=150)
@given(st.lists(st.binary(max_size=60), max_size=40))
def test_garbage_is_decoded_to_something(garbage: list[bytes]) -> None:
    for read in decode_events(garbage, NONE, STATS):
        assert len(read.metadata_id) == len(garbage)
        assert len(read.stat_id) == len(read.stat_event) == len(read.stat_value)


def test_a_damaged_event_does_not_reach_into_the_next() -> None:
    whole = Event(7, 100, 5, [(3, 9)]).encode()
    cut = Event(8, 200, 6, [(3, 10)]).encode()[:-3]
    (read,) = decode_events([cut, whole], NONE, STATS)
    assert read.metadata_id.tolist() == [8, 7]
    assert read.stat_event.tolist() == [1]
    assert read.stat_value.tolist() == [9]


def test_of_unwanted_events_only_the_id_is_read() -> None:
    encoded = [Event(1, 5, 6, [(3, 9)]).encode(), Event(2, 7, 8, [(3, 10)]).encode()]
    (read,) = decode_events(encoded, np.array([1]), STATS)
    assert read.metadata_id.tolist() == [1, 2]
    assert read.offset_ps.tolist() == [0, 7]
    assert read.stat_value.tolist() == [10]


def test_fields_of_a_later_version_are_skipped() -> None:
    event = number(1, 4) + number(9, 77) + varint(10 << 3 | 5) + b"abcd" + number(2, 11) + number(3, 12)
    (read,) = decode_events([event], NONE, STATS)
    assert (read.metadata_id[0], read.offset_ps[0], read.duration_ps[0]) == (4, 11, 12)


def test_a_field_after_a_number_of_ten_bytes() -> None:
    (read,) = decode_events([number(1, 4) + number(2, -1) + number(3, 12)], NONE, STATS)
    assert (read.metadata_id[0], read.offset_ps[0], read.duration_ps[0]) == (4, -1, 12)


def test_chunks_have_all_events_in_order() -> None:
    count = columns.CHUNK_EVENTS + 3
    read = list(decode_events([Event(place % 100 + 1, place, 1).encode() for place in range(count)], NONE, STATS))
    assert [len(part.offset_ps) for part in read] == [columns.CHUNK_EVENTS, 3]
    assert np.concatenate([part.offset_ps for part in read]).tolist() == list(range(count))
