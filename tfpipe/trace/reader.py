"""One ``.xplane.pb`` from disk to columns. Effects end here: everything after this module is pure."""

from __future__ import annotations

import mmap
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from tfpipe.errors import DataError
from tfpipe.trace import schema
from tfpipe.trace.columns import EventChunk, Ints, Words, decode_events, distinct, is_in
from tfpipe.trace.roles import Role, canonical, role_of

PS_PER_NS = 1000
# protobuf messages end at 2 GiB; a compressed file that grows beyond is not read to its end.
MAX_TRACE_BYTES = (1 << 31) - 1
# Three days. A trace lasts seconds; a time beyond this comes from a damaged byte and would swamp every sum.
MAX_SPAN_PS = 3 * 86_400 * 10**12
_INFLATE_BYTES = 1 << 20

# Statistics that are kept for every event, under these names.
EVENT_STATS = (
    "id", "parent_id", "element_id", "step_num", "_r", "tf_function_call", "element_size",
    "buffered_elements", "buffer_limit", "parallelism", "name",
)  # fmt: skip
# Statistics that describe a tf.data stage: the last value seen is kept.
STAGE_STATS = frozenset({
    "name", "shapes", "types", "parallelism", "autotune", "buffer_limit", "buffer_size", "batch_size", "cycle_length",
    "block_length", "deterministic", "max_batch_results", "parallel_copy", "interleave_depth", "buffered_elements",
    "drop_remainder", "cache_completed",
})  # fmt: skip
_DROPPED_STATS = frozenset({"dropped_traces", "dropped_events"})

Value = int | float | str
# Positions of events and of names: a trace cannot have 2 ** 31 of either, and halving them is felt.
Positions = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thread or stream: its events are ``first`` to ``last`` (exclusive) of the plane."""

    name: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """The events of one plane as columns, per line sorted by start, an enclosing event before what it encloses.

    ``name`` is a position in ``names``; ``start_ps`` and ``end_ps`` share one clock within a trace.
    ``stats`` maps a statistic to (positions of events, ascending; 64-bit values).
    """

    title: str
    names: tuple[str, ...]
    roles: Ints
    categories: tuple[str, ...]
    lines: tuple[Line, ...]
    name: Ints
    start_ps: Ints
    end_ps: Ints
    stats: dict[str, tuple[Positions, Words]]
    references: dict[int, str]
    stage_stats: dict[int, dict[str, Value]]
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A trace of one host. ``events`` counts all events of the file, also those that are not kept."""

    host: str
    planes: tuple[Plane, ...]
    skipped_planes: tuple[str, ...]
    events: int
    size_bytes: int
    complaints: tuple[str, ...] = ()


def read_space(path: Path) -> Space:
    """The trace in ``path``. Raises DataError when it is none, or damaged."""
    message, size_bytes = _parse(path)
    planes: list[Plane] = []
    skipped: list[str] = []
    for plane in message.planes:
        title = _text(plane.name)
        if title.startswith(("/host:CPU", "/device:")) and not title.startswith("/device:CUSTOM"):
            planes.append(_read_plane(title, plane))
        elif plane.lines:
            skipped.append(title)
    hosts = [_text(name) for name in message.hostnames]
    return Space(
        host=_host_of(path, hosts),
        planes=tuple(planes),
        skipped_planes=tuple(skipped),
        events=_count(message),
        size_bytes=size_bytes,
        complaints=tuple(dict.fromkeys(_text(text) for text in (*message.errors, *message.warnings) if text)),
    )


def count_events(path: Path) -> int:
    """How many events the trace in ``path`` has: what a capture is budgeted by. Raises DataError."""
    return _count(_parse(path)[0])


def _count(message: Any) -> int:
    return sum(len(line.events) for plane in message.planes for line in plane.lines)


def _parse(path: Path) -> tuple[Any, int]:
    """The message in ``path`` and its size in bytes, unpacked."""
    content = _content(path)
    _refuse_other_formats(content, path)
    try:
        message = schema.xspace_class().FromString(content)
    except DecodeError:
        raise DataError(
            f"{path} is a TensorBoard event file, not a profiler trace."
            if ".tfevents." in path.name
            else f"{path} is cut short, damaged, or not a profiler trace.",
            "Name a .xplane.pb file that the TensorFlow profiler has finished writing.",
        ) from None
    if not any(plane.lines or plane.event_metadata or plane.stats for plane in message.planes):
        raise DataError(
            f"{path} holds no planes: it is not a profiler trace, or nothing was recorded.",
            "Record again: the profiler has to run while steps are executed.",
        )
    return message, len(content)


def _host_of(path: Path, hosts: list[str]) -> str:
    name = path.name.removesuffix(".gz").removesuffix(".xplane.pb")
    return name or (hosts[0] if hosts else "host")


def _content(path: Path) -> Any:
    """The bytes of a trace, unpacked if they are compressed, else mapped and not copied."""
    try:
        with open(path, "rb") as file:
            size = path.stat().st_size
            if size == 0:
                raise DataError(
                    f"{path} is empty.",
                    "The profiler writes it when it stops; record again and let the program end by itself.",
                )
            if size > MAX_TRACE_BYTES:
                raise DataError(f"{path} is larger than 2 GiB.", "Record fewer steps.")
            if file.read(2) == b"\x1f\x8b":
                file.seek(0)
                return _inflate(file, path)
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.", "Check its permissions.") from None


def _inflate(file: Any, path: Path) -> bytes:
    unpack = zlib.decompressobj(wbits=31)
    content = bytearray()
    try:
        while block := file.read(_INFLATE_BYTES):
            content += unpack.decompress(block, MAX_TRACE_BYTES - len(content))
            if unpack.unconsumed_tail:
                raise DataError(f"{path} unpacks to more than 2 GiB.", "Record fewer steps.")
    except zlib.error:
        raise DataError(f"{path} is a damaged gzip file.", "Copy or record it again.") from None
    if not unpack.eof:
        raise DataError(f"{path} is a gzip file that was cut short.", "Copy or record it again.")
    return bytes(content)


def _refuse_other_formats(content: Any, path: Path) -> None:
    head = bytes(content[:64]).lstrip()
    if head[:1] in (b"{", b"["):
        raise DataError(
            f"{path} is a JSON trace, the format of older TensorFlow and of Chrome; it does not hold what is needed.",
            "Name the .xplane.pb file beside it, or record again with TensorFlow 2.4 or later.",
        )


def _text(value: bytes) -> str:
    return value.decode("utf-8", errors="replace")


def _stat_names(plane: Any) -> dict[int, str]:
    return {entry.key: _text(entry.value.name) for entry in plane.stat_metadata}


def _plain(stat: Any, stat_names: dict[int, str]) -> Value:
    fields = stat.ListFields()
    name, value = (fields[-1][0].name, fields[-1][1]) if fields else ("", 0)
    if name == "ref_value":
        return stat_names.get(value, "")
    return _text(value) if isinstance(value, bytes) else value


def _read_plane(title: str, plane: Any) -> Plane:
    return _PlaneReader(title, plane).read()


class _PlaneReader:
    """Collects the chunks of one plane. State exists only while the plane is read."""

    def __init__(self, title: str, plane: Any) -> None:
        self._title = title
        self._plane = plane
        self._stat_names = _stat_names(plane)
        self._names: dict[str, int] = {}
        self._categories: list[str] = []
        self._metadata = self._read_metadata()
        # "Iterator::Root", and "Iterator::Prefetch" on a device: only there the node's name tells pipelines apart.
        self._is_root = np.array(
            [role_of(name) == Role.ITERATOR and name.count("::") == 1 for name in self._names], dtype=bool
        )
        host = title.startswith("/host:")
        self._roles = np.array([role_of(name) if host else Role.OTHER for name in self._names], dtype=np.int64)
        ids, names = self._metadata
        self._noise = ids[self._roles[names] == Role.NOISE] if len(ids) else ids
        self._event_stat_ids = {key: name for key, name in self._stat_names.items() if name in EVENT_STATS}
        self._stage_stat_ids = np.array(
            sorted(key for key, name in self._stat_names.items() if name in STAGE_STATS), dtype=np.int64
        )
        self._wanted_stats = np.array(sorted({*self._event_stat_ids, *self._stage_stat_ids}), dtype=np.int64)
        self._stats: dict[str, list[tuple[Positions, Words]]] = {}
        self._stage_stats: dict[int, dict[str, Value]] = {}
        self._references: dict[int, str] = {}

    def _read_metadata(self) -> tuple[Ints, Ints]:
        """Sorted metadata ids and the position in ``names`` that each stands for."""
        found: dict[int, int] = {}
        for entry in self._plane.event_metadata:
            name = canonical(_text(entry.value.name))
            if name not in self._names:
                self._names[name] = len(self._names)
                self._categories.append(self._category(entry.value))
            found[entry.key] = self._names[name]
        ids = np.array(sorted(found), dtype=np.int64)
        return ids, np.array([found[key] for key in ids.tolist()], dtype=np.int64)

    def _category(self, metadata: Any) -> str:
        for stat in metadata.stats:
            if self._stat_names.get(stat.metadata_id) == "hlo_category":
                return str(_plain(stat, self._stat_names))
        return ""

    def read(self) -> Plane:
        lines: list[Line] = []
        columns: list[tuple[Ints, Ints, Ints]] = []
        count = 0
        for line in self._plane.lines:
            name, start, end = self._read_line(line, count)
            lines.append(Line(name=_text(line.display_name or line.name), first=count, last=count + len(name)))
            columns.append((name, start, end))
            count += len(name)
        empty = np.zeros(0, dtype=np.int64)
        name, start, end = (
            np.concatenate([column[part] for column in columns]) if columns else empty for part in range(3)
        )
        return Plane(
            title=self._title,
            names=tuple(self._names),
            roles=self._roles,
            categories=tuple(self._categories),
            lines=tuple(lines),
            name=name,
            start_ps=start,
            end_ps=end,
            stats={
                stat: (np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))
                for stat, parts in self._stats.items()
            },
            references=self._references,
            stage_stats=self._stage_stats,
            dropped=sum(
                int(value)
                for stat in self._plane.stats
                if self._stat_names.get(stat.metadata_id) in _DROPPED_STATS
                and isinstance(value := _plain(stat, self._stat_names), int)
            ),
        )

    def _read_line(self, line: Any, first: int) -> tuple[Ints, Ints, Ints]:
        names: list[Ints] = []
        starts: list[Ints] = []
        ends: list[Ints] = []
        line_stats: dict[str, list[tuple[Positions, Words]]] = {}
        count = 0
        base_ps = np.int64(min(max(line.timestamp_ns, 0), 1 << 52) * PS_PER_NS)
        for chunk in decode_events(line.events, self._noise, self._wanted_stats):
            name = self._names_of(chunk.metadata_id)
            sane = (chunk.offset_ps >= 0) & (chunk.offset_ps < MAX_SPAN_PS)
            sane &= (chunk.duration_ps >= 0) & (chunk.duration_ps < MAX_SPAN_PS)
            kept = sane & (name >= 0) & ~is_in(chunk.metadata_id, self._noise)
            place = np.where(kept, np.cumsum(kept) - 1, -1)
            names.append(name[kept].astype(np.int32))
            start = base_ps + chunk.offset_ps[kept]
            starts.append(start)
            ends.append(start + chunk.duration_ps[kept])
            self._keep_stats(chunk, name, place, count, line_stats)
            count += len(start)
        if not names:
            empty = np.zeros(0, dtype=np.int64)
            return empty.astype(np.int32), empty, empty
        name, start, end = np.concatenate(names), np.concatenate(starts), np.concatenate(ends)
        del names, starts, ends
        order = _order(start, end)
        if order is not None:
            name, start, end = name[order], start[order], end[order]
        self._file_stats(line_stats, order, first)
        return name, start, end

    def _names_of(self, metadata_id: Ints) -> Ints:
        ids, names = self._metadata
        if not len(ids):
            return np.full(len(metadata_id), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(ids, metadata_id), len(ids) - 1)
        return np.where(ids[at] == metadata_id, names[at], -1)

    def _keep_stats(
        self,
        chunk: EventChunk,
        name: Ints,
        place: Ints,
        count: int,
        line_stats: dict[str, list[tuple[Positions, Words]]],
    ) -> None:
        where = place[chunk.stat_event]
        for key, stat in self._event_stat_ids.items():
            chosen = np.flatnonzero((chunk.stat_id == key) & (where >= 0))
            if stat == "name":
                chosen = chosen[self._is_root[name[chunk.stat_event[chosen]]]]
            if len(chosen):
                at = (where[chosen] + count).astype(np.int32)
                line_stats.setdefault(stat, []).append((at, chunk.stat_value[chosen]))
                if stat in ("tf_function_call", "name"):
                    self._note_references(distinct(chunk.stat_value[chosen]))
        if not len(self._stage_stat_ids):
            return
        of_stage = np.flatnonzero((where >= 0) & is_in(chunk.stat_id, self._stage_stat_ids))
        if len(of_stage):
            # The last value of each (name, statistic): unique() keeps the first, so look from the end.
            of_stage = of_stage[::-1]
            pairs = name[chunk.stat_event[of_stage]] * (1 << 32) + chunk.stat_id[of_stage]
            for position in of_stage[np.unique(pairs, return_index=True)[1]].tolist():
                stage = self._stage_stats.setdefault(int(name[chunk.stat_event[position]]), {})
                stage[self._stat_names[int(chunk.stat_id[position])]] = self._value(chunk, position)

    def _note_references(self, values: Words) -> None:
        for value in values.tolist():
            self._references[value] = self._stat_names.get(value, "")

    def _value(self, chunk: EventChunk, position: int) -> Value:
        kind, value = int(chunk.stat_field[position]), chunk.stat_value[position]
        if kind == schema.STAT_REF:
            return self._stat_names.get(int(value), "")
        if kind == schema.STAT_DOUBLE:
            return float(value.view(np.float64))
        if kind == schema.STAT_STR:
            begin = int(value)
            return _text(chunk.text[begin : begin + int(chunk.stat_length[position])])
        # Unsigned numbers too: none that is meant reaches 2 ** 63, and what comes after them holds signed ones.
        return int(value.view(np.int64))

    def _file_stats(self, line_stats: dict[str, list[tuple[Positions, Words]]], order: Ints | None, first: int) -> None:
        rank = None
        if order is not None:
            rank = np.empty(len(order), dtype=np.int32)
            rank[order] = np.arange(len(order), dtype=np.int32)
        for stat, parts in line_stats.items():
            at = np.concatenate([part[0] for part in parts])
            value = np.concatenate([part[1] for part in parts])
            if rank is not None:
                at = rank[at]
                by_place = np.argsort(at, kind="stable")
                at, value = at[by_place], value[by_place]
            self._stats.setdefault(stat, []).append(((at + first).astype(np.int32), value))


def _order(start: Ints, end: Ints) -> Ints | None:
    """The order by start, then longest first; None when that is the order already."""
    following, tied = start[1:] >= start[:-1], start[1:] == start[:-1]
    if following.all() and not (tied & (end[1:] > end[:-1])).any():
        return None
    return np.lexsort((-end, start))


def stat_of(plane: Plane, stat: str, at: Ints, missing: int) -> Ints:
    """The statistic of the events at positions ``at``; ``missing`` where an event has none."""
    result = np.full(len(at), missing, dtype=np.int64)
    positions, values = plane.stats.get(stat, (None, None))
    if positions is None or values is None or not len(positions):
        return result
    slot = np.minimum(np.searchsorted(positions, at), len(positions) - 1)
    found = positions[slot] == at
    result[found] = values[slot[found]].view(np.int64)
    return result
