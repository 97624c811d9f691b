"""Events of one line, from bytes to columns, without a Python object per event.

All events of a chunk are decoded in step: every round reads one field of each event that is not yet at its end, with a
few array operations. A varint of up to eight bytes is read as one little-endian word and its seven-bit groups are
pushed together with shifts; the rare longer ones are mended afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tfpipe.trace import schema

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Number = TypeVar("Number", bound=np.generic)

# Large enough that array operations outweigh their call overhead, small enough that a dozen temporaries fit a cache.
CHUNK_EVENTS = 1 << 14
# A word is read at every cursor, at most two fields past the end of a damaged event.
_PADDING = bytes(32)
_PLAIN_FIELDS = (schema.EVENT_METADATA_ID, schema.EVENT_OFFSET_PS, schema.EVENT_DURATION_PS)
_LONGEST = np.uint64(1 << 31)
_LOW_HALF = np.uint64(0xFFFFFFFF)
# One-byte tags with a field number and a wire type that exists: groups (3, 4) are not used and 6, 7 do not exist.
_KNOWN_TAGS = np.array([8 <= tag < 128 and tag & 7 in (0, 1, 2, 5) for tag in range(256)])
_BYTE_OF_WORD = np.uint64(0x0001020304050607)


def distinct(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Ascending, without repeats. Asked for the values alone, ``np.unique`` imports ``numpy.ma``: 20 ms."""
    unique: npt.NDArray[Number] = np.unique(values, return_counts=True)[0]
    return unique


def is_in(values: npt.NDArray[Number], ascending: npt.NDArray[Number]) -> npt.NDArray[np.bool_]:
    """Which of ``values`` are among the ``ascending`` ones."""
    if not len(ascending):
        return np.zeros(len(values), dtype=bool)
    slot = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: npt.NDArray[np.bool_] = ascending[slot] == values
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EventChunk:
    """``metadata_id``, ``offset_ps``, ``duration_ps``: one value per event. Stats: one value per statistic, in order.

    ``stat_event`` is the position of the event within the chunk, ``stat_id`` its stat metadata id, ``stat_value``
    the 64 bits as stored (a double's bit pattern, a reference's id, an integer), ``stat_field`` the field of XStat
    that held it. A text is given as position and length in ``text``.
    """

    metadata_id: Ints
    offset_ps: Ints
    duration_ps: Ints
    stat_event: Ints
    stat_id: Ints
    stat_value: Words
    stat_field: Ints
    stat_length: Ints
    text: bytes


def decode_events(events: Sequence[bytes], unwanted: Ints, wanted_stats: Ints) -> Iterator[EventChunk]:
    """Chunks of the events of one line, in file order. A damaged event has what could be read before the damage.

    Of events whose metadata id is in ``unwanted`` nothing but that id is read, and only statistics in
    ``wanted_stats`` are given; both are ascending.
    """
    for first in range(0, len(events), CHUNK_EVENTS):
        yield _decode_chunk(events[first : first + CHUNK_EVENTS], unwanted, wanted_stats)


def _decode_chunk(events: Sequence[bytes], unwanted: Ints, wanted_stats: Ints) -> EventChunk:
    text = b"".join((*events, _PADDING))
    lengths = np.fromiter(map(len, events), dtype=np.int64, count=len(events))
    end = np.cumsum(lengths)
    owners: list[Ints] = []
    begins: list[Ints] = []
    ends: list[Ints] = []
    values = {field: np.zeros(len(events), dtype=np.uint64) for field in _PLAIN_FIELDS}
    cursor = _Cursor(text, end - lengths, end)
    while cursor.advance():
        for number, column in values.items():
            chosen = (cursor.field == number) & (cursor.wire_type == 0)
            column[cursor.owner[chosen]] = cursor.value[chosen]
        is_stat = np.flatnonzero((cursor.field == schema.EVENT_STATS) & (cursor.wire_type == 2))
        if len(is_stat):
            begin = cursor.position[is_stat]
            owners.append(cursor.owner[is_stat])
            begins.append(begin)
            ends.append(begin + cursor.value[is_stat].view(np.int64))
        is_id = cursor.field == schema.EVENT_METADATA_ID
        cursor.drop(is_id & is_in(cursor.value.view(np.int64), unwanted))
    empty = np.zeros(0, dtype=np.int64)
    owner, begin, stop = (np.concatenate(parts) if parts else empty for parts in (owners, begins, ends))
    order = np.argsort(begin, kind="stable")
    chosen, stats = _decode_stats(text, begin[order], stop[order], wanted_stats)
    return EventChunk(
        metadata_id=values[schema.EVENT_METADATA_ID].view(np.int64),
        offset_ps=values[schema.EVENT_OFFSET_PS].view(np.int64),
        duration_ps=values[schema.EVENT_DURATION_PS].view(np.int64),
        stat_event=owner[order][chosen],
        stat_id=stats["id"].view(np.int64),
        stat_value=stats["value"],
        stat_field=stats["field"].view(np.int64),
        stat_length=stats["length"].view(np.int64),
        text=text,
    )


def _decode_stats(text: bytes, begin: Ints, end: Ints, wanted: Ints) -> tuple[Ints, dict[str, Words]]:
    """Positions of the wanted statistics among the given ones, and their columns."""
    columns = {name: np.zeros(len(begin), dtype=np.uint64) for name in ("id", "value", "field", "length")}
    keep = np.zeros(len(begin), dtype=bool)
    cursor = _Cursor(text, begin, end)
    while cursor.advance():
        is_id = cursor.field == schema.STAT_METADATA_ID
        columns["id"][cursor.owner[is_id]] = cursor.value[is_id]
        holds = ~is_id
        holder = cursor.owner[holds]
        is_text = cursor.wire_type[holds] == 2
        value = cursor.value[holds]
        columns["value"][holder] = np.where(is_text, cursor.position[holds].view(np.uint64), value)
        columns["length"][holder] = np.where(is_text, value, np.uint64(0))
        columns["field"][holder] = cursor.field[holds].view(np.uint64)
        welcome = is_in(cursor.value.view(np.int64), wanted)
        keep[cursor.owner[is_id & welcome]] = True
        cursor.drop(is_id & ~welcome)
    chosen = np.flatnonzero(keep)
    return chosen, {name: column[chosen] for name, column in columns.items()}


class _Cursor:
    """Reads many messages in step. After ``advance`` the columns hold one field of each message not yet at its end.

    ``owner`` says which message; ``value`` is a varint, a fixed number, or the length of what begins at ``position``.
    A message whose next field is malformed or runs past its end is left at that point.
    """

    def __init__(self, text: bytes, begin: Ints, end: Ints) -> None:
        self._octets = np.frombuffer(text, dtype=np.uint8)
        self._words: Words = np.ndarray(shape=(len(text) - 7,), dtype="<u8", buffer=text, strides=(1,))
        self.owner: Ints = np.flatnonzero(begin < end)
        self._next = begin[self.owner]
        self._limit = end[self.owner]
        self.field = self.wire_type = self.position = self.owner
        self.value: Words = np.zeros(0, dtype=np.uint64)

    def advance(self) -> bool:
        """Read the next field of every message; False when all are at their end."""
        going_on = self._next < self._limit
        if not going_on.all():
            self.owner, self._next, self._limit = self.owner[going_on], self._next[going_on], self._limit[going_on]
        if not len(self.owner):
            return False
        tag = self._octets[self._next].astype(np.int64)
        self.field = tag >> 3
        self.wire_type = tag & 7
        start = self._next + 1
        self.value, size = _varints(self._words, self._octets, start)
        self.position = start + size
        is_bytes = self.wire_type == 2
        # A length beyond 31 bits is nonsense and would overflow the position.
        length = np.where(is_bytes, np.minimum(self.value, _LONGEST), np.uint64(0)).view(np.int64)
        self._next = self.position + length
        if np.any((self.wire_type & 3) == 1):  # fixed 64 (1) and fixed 32 (5) hold no varint
            is_fixed64, is_fixed32 = self.wire_type == 1, self.wire_type == 5
            word = self._words[start]
            self.value = np.where(is_fixed64, word, np.where(is_fixed32, word & _LOW_HALF, self.value))
            self._next = np.where(is_fixed64, start + 8, np.where(is_fixed32, start + 4, self._next))
        sound = _KNOWN_TAGS[tag] & (self._next <= self._limit)
        if not sound.all():
            self.drop(~sound)
        return True

    def drop(self, unwanted: npt.NDArray[np.bool_]) -> None:
        """Leave the messages chosen by ``unwanted``, a value per current row."""
        if not unwanted.any():
            return
        kept = ~unwanted
        for name in ("owner", "field", "wire_type", "value", "position", "_next", "_limit"):
            setattr(self, name, getattr(self, name)[kept])


def _varints(words: Words, octets: npt.NDArray[np.uint8], at: Ints) -> tuple[Words, Ints]:
    """The varints that start at ``at``, and how many bytes each takes."""
    u = np.uint64
    word = words[at]
    stops = ~word & u(0x8080808080808080)
    lowest = stops & (~stops + u(1))
    size = ((((lowest >> u(7)) * _BYTE_OF_WORD) >> u(56)) + u(1)).astype(np.int64)
    x = word & (lowest - u(1)) & u(0x7F7F7F7F7F7F7F7F)
    x = (x & u(0x007F007F007F007F)) | ((x & u(0x7F007F007F007F00)) >> u(1))
    x = (x & u(0x00003FFF00003FFF)) | ((x & u(0x3FFF00003FFF0000)) >> u(2))
    x = (x & u(0x000000000FFFFFFF)) | ((x & u(0x0FFFFFFF00000000)) >> u(4))
    long = np.flatnonzero(lowest == 0)
    if len(long):
        ninth = octets[at[long] + 8].astype(np.uint64)
        tenth = octets[at[long] + 9].astype(np.uint64)
        more = ninth >= u(0x80)
        x[long] |= (ninth & u(0x7F)) << u(56)
        x[long] |= np.where(more, tenth & u(1), u(0)) << u(63)
        size[long] = np.where(more, 10, 9)
    return x, size
