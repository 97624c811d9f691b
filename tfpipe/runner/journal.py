"""The journal: one JSON line per thing that happened, on disk before the next begins.

It holds everything that was measured. ``run.json`` is made from it, and a run that was killed goes on from it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from tfpipe.conditions import Conditions
from tfpipe.errors import DataError
from tfpipe.messages import Failed, Measured, Prepared, Traced, Workload
from tfpipe.records import Explanation, Limits, Prediction
from tfpipe.runfile import lock, storage_error
from tfpipe.settings import Execution, NamedSettings, SearchName

VERSION = 1


class _Entry(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class Started(_Entry, frozen=True):
    """First line of every journal: what is measured. ``steps`` and ``time_budget_s`` are what the user set.

    ``knobs`` are the lists as the user wrote them. ``candidates`` is None for a user's own pipeline, whose knobs are
    known only once it was run. ``only_current`` says to measure nothing but what the user has. ``search`` chooses among
    the candidates; ``search_tolerance`` is the share of the throughput that it need not find.
    """

    version: int
    tfpipe_version: str
    created: str
    command: tuple[str, ...]
    workload: Workload
    knobs: dict[str, str]
    candidates: tuple[NamedSettings, ...] | None
    only_current: bool
    large_grid_allowed: bool
    steps: int | None
    time_budget_s: float
    limits: Limits | None = None
    baseline: str | None = None
    search: SearchName = "grid"
    search_tolerance: float = 0.02


class WorkloadPrepared(_Entry, frozen=True):
    prepared: Prepared


class CandidatesChosen(_Entry, frozen=True):
    """Candidates of this run; the very first is what the user has, or the first in its place. A search adds more."""

    candidates: tuple[NamedSettings, ...]


class Decided(_Entry, frozen=True):
    """What the search made of the rounds up to ``round``.

    ``add`` takes part from the next one on, with what was expected of them by id; ``drop`` is not measured any further
    (ids and why), but what was measured stays; ``stop`` ends the search. ``untried`` would have joined too, had there
    been time.
    """

    round: int
    add: tuple[NamedSettings, ...] = ()
    predictions: dict[str, Prediction] = {}
    drop: dict[str, str] = {}
    stop: bool = False
    untried: tuple[NamedSettings, ...] = ()


class Confirming(_Entry, frozen=True):
    """From round ``round`` on only ``candidates`` are measured: what the recommendation is between."""

    round: int
    candidates: tuple[str, ...]


class FloorMeasured(_Entry, frozen=True):
    """``execution`` is None for the first one asked for."""

    measured: Measured
    execution: Execution | None = None


class CandidateMeasured(_Entry, frozen=True):
    id: str
    measured: Measured
    execution: Execution | None = None


class CandidateTraced(_Entry, frozen=True):
    id: str
    traced: Traced
    explanation: Explanation | None
    note: str


class CandidateFailed(_Entry, frozen=True):
    id: str
    failed: Failed


class CandidateSkipped(_Entry, frozen=True):
    """Not measured, and why."""

    id: str
    reason: str


class ConditionsRead(_Entry, frozen=True):
    """The machine before and after a process measured."""

    before: Conditions
    after: Conditions


class Finished(_Entry, frozen=True):
    timings_s: dict[str, float]


Entry: TypeAlias = (
    Started
    | WorkloadPrepared
    | CandidatesChosen
    | Decided
    | Confirming
    | FloorMeasured
    | CandidateMeasured
    | CandidateTraced
    | CandidateFailed
    | CandidateSkipped
    | ConditionsRead
    | Finished
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


class Journal:
    """Appends entries to a file and remembers them.

    Args:
        path: the file; a last line that a crash cut off is removed from it.
        entries: what it holds already.

    Raises:
        UsageError: another process is writing it.
        TfpipeError: the disk is full or the file cannot be written.
    """

    def __init__(self, path: Path, entries: tuple[Entry, ...] = ()) -> None:
        self.entries = list(entries)
        self._path = path
        try:
            self._file: IO[bytes] = open(path, "ab", buffering=0)  # noqa: SIM115
            lock(self._file, path)
            self._file.truncate(_whole_lines_size(path))
        except OSError as error:
            raise storage_error(path, error) from None

    @property
    def started(self) -> Started:
        """The first entry."""
        started = self.entries[0]
        assert isinstance(started, Started)
        return started

    def append(self, entry: Entry) -> None:
        try:
            line = memoryview(_encode(entry) + b"\n")
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise storage_error(self._path, error) from None
        self.entries.append(entry)

    def close(self) -> None:
        self._file.close()


def _whole_lines_size(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1


def read_journal(path: Path) -> tuple[Entry, ...]:
    """The entries on disk; a last line that was cut off by a crash is left out.

    Raises:
        DataError: the file is missing, of another version, or damaged before its last line.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.", "Name a directory that tfpipe wrote.") from None
    entries: list[Entry] = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            entries.append(_decode(line))
        except msgspec.MsgspecError as error:
            raise DataError(f"{path}, line {number} is damaged: {error}.", "Repeat the run.") from None
    if not entries or not isinstance(entries[0], Started):
        raise DataError(f"{path} does not begin like a journal of tfpipe.", "Repeat the run.")
    if entries[0].version != VERSION:
        raise DataError(
            f"{path} has journal version {entries[0].version}; this tfpipe reads version {VERSION}.",
            f"Read it with the tfpipe that wrote it: {entries[0].tfpipe_version}.",
        )
    return tuple(entries)
