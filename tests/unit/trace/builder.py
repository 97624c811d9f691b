"""Hand-made traces: every number is known because it was written down here.

The bytes are put together without the code under test, field by field as in ``xplane.proto``. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tfpipe.trace.analysis import analyze_file
from tfpipe.trace_records import Stage, TraceAnalysis

PS_PER_MS = 10**9
_REFERENCES = frozenset({"name", "shapes", "types", "tf_function_call", "autotune"})


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def number(field_number: int, value: int) -> bytes:
    return varint(field_number << 3) + varint(value)


def chunk(field_number: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(field_number << 3 | 2) + varint(len(content)) + content


@dataclass
class Line:
    """One thread. ``add`` takes begin and length in milliseconds."""

    plane: PlaneBuilder
    name: str
    timestamp_ns: int = 0
    events: list[bytes] = field(default_factory=list)

    def add(self, name: str, at: float, lasts: float, /, **stats: int | str | float) -> Line:
        encoded = b"".join(chunk(4, self.plane.stat(key, value)) for key, value in stats.items())
        self.events.append(
            number(1, self.plane.event_id(name))
            + number(2, round(at * PS_PER_MS))
            + number(3, round(lasts * PS_PER_MS))
            + encoded
        )
        return self

    def encode(self, line_id: int) -> bytes:
        head = number(1, line_id) + chunk(2, self.name) + number(3, self.timestamp_ns)
        return head + b"".join(chunk(4, event) for event in self.events)


@dataclass
class PlaneBuilder:
    """One plane with its own tables of names."""

    name: str
    lines: list[Line] = field(default_factory=list)
    event_names: dict[str, int] = field(default_factory=dict)
    stat_names: dict[str, int] = field(default_factory=dict)
    categories: dict[str, str] = field(default_factory=dict)
    stats: dict[str, int] = field(default_factory=dict)

    def line(self, name: str, timestamp_ns: int = 0) -> Line:
        self.lines.append(Line(self, name, timestamp_ns))
        return self.lines[-1]

    def event_id(self, name: str) -> int:
        return self.event_names.setdefault(name, len(self.event_names) + 1)

    def stat_id(self, name: str) -> int:
        return self.stat_names.setdefault(name, len(self.stat_names) + 1)

    def stat(self, name: str, value: int | str | float) -> bytes:
        head = number(1, self.stat_id(name))
        if isinstance(value, float):
            import struct

            return head + varint(2 << 3 | 1) + struct.pack("<d", value)
        if isinstance(value, str):
            return head + (number(7, self.stat_id(value)) if name in _REFERENCES else chunk(5, value))
        return head + number(3 if value >= 1 << 63 else 4, value)

    def encode(self) -> bytes:
        lines = b"".join(chunk(3, line.encode(place)) for place, line in enumerate(self.lines, start=1))
        stats = b"".join(chunk(6, self.stat(name, value)) for name, value in self.stats.items())
        events = b""
        for name, key in self.event_names.items():
            category = self.categories.get(name)
            described = chunk(5, number(1, self.stat_id("hlo_category")) + chunk(5, category)) if category else b""
            events += chunk(4, number(1, key) + chunk(2, number(1, key) + chunk(2, name) + described))
        names = b"".join(
            chunk(5, number(1, key) + chunk(2, number(1, key) + chunk(2, name)))
            for name, key in self.stat_names.items()
        )
        return chunk(2, self.name) + lines + events + names + stats


@dataclass
class Trace:
    """A whole trace; ``host`` is its CPU plane."""

    planes: list[PlaneBuilder] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.host = self.plane("/host:CPU")

    def plane(self, name: str) -> PlaneBuilder:
        self.planes.append(PlaneBuilder(name))
        return self.planes[-1]

    def encode(self) -> bytes:
        planes = b"".join(chunk(1, plane.encode()) for plane in self.planes)
        return planes + b"".join(chunk(2, error) for error in self.errors)

    def write(self, directory: Path, host: str = "vm") -> Path:
        path = directory / f"{host}.xplane.pb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.encode())
        return path

    def analyze(self, directory: Path) -> TraceAnalysis:
        return analyze_file(self.write(directory))


def steps(line: Line, starts: Iterable[float], lasts: float) -> None:
    """Step markers on ``line``."""
    for place, start in enumerate(starts):
        line.add("train", start, lasts, step_num=place, _r=1)


def stage(analysis: TraceAnalysis, name: str, pipeline: int = 0) -> Stage:
    """The one stage called ``name``."""
    (found,) = [stage for stage in analysis.pipelines[pipeline].stages if stage.name == name]
    return found


def full_trace(batches: int = 8) -> Trace:
    """A trace with a bit of everything: prefetch, map function, interleave, markers, a GPU, a TPU, unknown planes."""
    trace = Trace()
    python = trace.host.line("python", timestamp_ns=1000)
    producer = trace.host.line("tf_data_iterator_resource/1", timestamp_ns=1000)
    pool = trace.host.line("tf_data_private_threadpool/1", timestamp_ns=1000)
    steps(python, range(0, batches * 50, 50), 50)
    for batch in range(batches):
        at = batch * 50
        python.add("IteratorGetNextOp::DoCompute", at, 20, id=900, element_size=4096)
        python.add("Iterator::Root", at, 20, id=1, name="PrefetchDataset:3", shapes="[8,2]", types="float")
        python.add("Iterator::Root::Prefetch", at, 20, id=2, parent_id=1, buffer_limit=2, buffered_elements=batch % 3)
        python.add("PrefetchConsume", at + 19, 1, element_id=100 + batch)
        python.add("step", at + 20, 30, tf_function_call="notTraced-nonXla")
        producer.add("PrefetchProduce", at, 19, element_id=100 + batch)
        producer.add("Iterator::Root::Prefetch::Map", at, 18, id=3, parent_id=2, ratio=0.5)
        producer.add("InstantiatedCapturedFunction::Run", at + 1, 15, id=77 + batch)
        producer.add("Iterator::Root::Prefetch::Map::Interleave", at + 16, 1, id=4, parent_id=3, cycle_length=2)
        producer.add(
            f"Iterator::Root::Prefetch::Map::Interleave[{batch}]::TFRecord", at + 16, 1, id=5 + batch, parent_id=4
        )
        pool.add("ExecutorState::Process", at + 2, 12, id=77 + batch)
        pool.add("DecodeJpeg:DecodeJpeg", at + 2, 10)
    trace.plane("/device:GPU:0").line("Stream #1(Compute)").add("kernel", 30, 10)
    trace.plane("/host:python-tracer").line("main").add("$run.py:3 step", 0, 5)
    trace.plane("Task Environment").stats["profile_start_time"] = 17
    return trace
