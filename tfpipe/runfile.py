"""The run directory: ``run.json``, ``journal.jsonl``, ``traces/`` and ``worker.log``.

``run.json`` is written whole and renamed into place, so it is never half a file. Format history: 1, the first.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from tfpipe.consistency import find_contradiction
from tfpipe.errors import DataError, TfpipeError, UsageError
from tfpipe.records import Candidate, Run

FORMAT = "tfpipe-run"
VERSION = 1
RUN_NAME = "run.json"
JOURNAL_NAME = "journal.jsonl"
TRACES_NAME = "traces"
LOG_NAME = "worker.log"
RUNS_DIRECTORY = Path("runs")
_OWN_NAMES = {RUN_NAME, JOURNAL_NAME, TRACES_NAME, LOG_NAME}


def run_to_json(run: Run) -> bytes:
    """``run`` as the text of a run file, indented, with a final newline."""
    content = {"format": FORMAT, "version": VERSION, **msgspec.to_builtins(run)}
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def run_from_json(text: bytes, where: str) -> Run:
    """The run in ``text``; ``where`` names the file in errors. Raises DataError."""
    try:
        content: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            f"{where} is not a whole JSON file: {error}.",
            "It may have been cut short; repeat or resume the run.",
        ) from None
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise DataError(f"{where} is not a run file of tfpipe.", "Name a directory that tfpipe profile wrote.")
    version = content.pop("version", None)
    if version != VERSION:
        raise DataError(
            f"{where} has run format version {version!r}; this tfpipe reads version {VERSION}.",
            "Read it with the tfpipe that wrote it: " + str(content.get("tfpipe_version", "unknown")) + ".",
        )
    try:
        run = msgspec.convert(content, Run)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DataError(f"{where} is damaged: {error}.", "Repeat the run.") from None
    contradiction = find_contradiction(run)
    if contradiction is not None:
        raise DataError(f"{where} is damaged: {contradiction}.", "Repeat the run.")
    return run


def write_run(directory: Path, run: Run) -> Path:
    """Write ``run.json`` into ``directory``, atomically. Raises TfpipeError on a full or unwritable disk."""
    path = directory / RUN_NAME
    write_atomically(path, run_to_json(run))
    return path


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new and nothing between."""
    temporary = path.with_name(path.name + ".part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise storage_error(path, error) from None


def storage_error(path: Path, error: OSError) -> TfpipeError:
    """What to tell the user about a failed write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TfpipeError(
            f"The disk is full: {path} could not be written.",
            "Free some space; what was measured before is in the journal beside it.",
        )
    return TfpipeError(f"{path} could not be written: {error.strerror or error}.", "Choose another --output.")


def find_run(name: str | None) -> Path:
    """The run directory that ``name`` means: a directory, its ``run.json``, or the newest under ``runs/``.

    Raises:
        UsageError: nothing there, with what to type next.
    """
    try:
        return _find_run(name)
    except OSError as error:
        raise DataError(
            f"{name or RUNS_DIRECTORY} cannot be read: {error.strerror}.", "Check its permissions."
        ) from None


def _find_run(name: str | None) -> Path:
    if name is None:
        found = [path.parent for path in RUNS_DIRECTORY.glob(f"*/{RUN_NAME}")]
        if not found:
            raise UsageError(
                f"There is no run yet under {RUNS_DIRECTORY.absolute()}.",
                "Make one with: tfpipe profile --dataset cifar100",
            )
        return max(found, key=lambda directory: (directory / RUN_NAME).stat().st_mtime)
    path = Path(name)
    if path.name == RUN_NAME and path.is_file():
        return path.parent
    if (path / RUN_NAME).is_file():
        return path
    if not path.exists() and (RUNS_DIRECTORY / name / RUN_NAME).is_file():
        return RUNS_DIRECTORY / name
    if (path / JOURNAL_NAME).is_file():
        raise UsageError(f"{path} holds an unfinished run.", f"Finish it with: tfpipe profile --resume {path}")
    if not path.exists():
        raise UsageError(f"There is no {path}.", "Name a directory that tfpipe profile wrote.")
    raise UsageError(f"{path} holds no {RUN_NAME}.", "Name a directory that tfpipe profile wrote.")


def load_run(directory: Path) -> Run:
    """The run in ``directory``. Raises DataError when it is damaged or of another version."""
    path = directory / RUN_NAME
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from None
    return run_from_json(content, str(path))


def find_candidate(run: Run, wanted: str) -> Candidate:
    """The candidate of that id, name or number, counted from 1. Raises UsageError that lists what there is."""
    for number, candidate in enumerate(run.candidates, start=1):
        if wanted in (candidate.id, candidate.name, str(number)):
            return candidate
    raise UsageError(
        f"There is no candidate {wanted!r} in this run.",
        f"It has: {', '.join(candidate.id for candidate in run.candidates)}.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrace:
    """The trace of one candidate of a run; ``recommended`` says that it is the run's own choice. ``others`` are the ids
    of the other candidates that have one."""

    path: Path
    candidate: str
    recommended: bool
    others: tuple[str, ...]


def find_trace(path: Path, wanted: str | None) -> RunTrace | None:
    """The trace of the candidate ``wanted``, or of what ``path``'s run recommends; None where ``path`` is no run.

    A run is named by its directory, its ``run.json`` or its folder of traces.

    Raises:
        UsageError: no such candidate, or no trace of it.
        DataError: the run is damaged.
    """
    directory = path.parent if path.name in (RUN_NAME, TRACES_NAME) else path
    if not (directory / RUN_NAME).is_file():
        return None
    run = load_run(directory)
    traces = {c.id: directory / c.trace.path for c in run.candidates if c.trace is not None}
    chosen = run.current if run.recommendation is None else run.recommendation.candidate
    candidate = chosen if wanted is None else find_candidate(run, wanted).id
    if candidate not in traces:
        hint = f"There is one of: {', '.join(traces)}." if traces else "Profile again, to the end."
        raise UsageError(f"{directory} has no trace of {candidate}.", hint)
    others = tuple(name for name in traces if name != candidate)
    recommended = run.recommendation is not None and candidate == chosen
    return RunTrace(path=traces[candidate], candidate=candidate, recommended=recommended, others=others)


def new_run_directory(name: str | None, subject: str) -> Path:
    """Where a new run goes: ``name``, or a fresh directory under ``runs/`` named after what is measured and when."""
    if name is not None:
        return Path(name)
    return RUNS_DIRECTORY / f"{subject}-{datetime.now():%Y%m%d-%H%M%S}"


def create_run_directory(directory: Path, *, force: bool) -> None:
    """Make an empty run directory. An old run there is refused without ``force`` and set aside with it.

    Whoever made the directory ends with ``keep_new_run`` or ``discard_new_run``: until the new run has begun to
    measure, a mistake must not cost the old one.

    Raises:
        UsageError: something else is there, or a run without ``force``.
        TfpipeError: it cannot be written.
    """
    try:
        if directory.exists():
            _set_aside(directory, force=force)
        (directory / TRACES_NAME).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(directory, error) from None


def keep_new_run(directory: Path) -> None:
    """The new run is there to stay: the one that was set aside for it goes."""
    shutil.rmtree(_aside(directory), ignore_errors=True)


def discard_new_run(directory: Path) -> None:
    """Remove what a run that came to nothing wrote, and put back the one that was set aside for it."""
    for name in _OWN_NAMES:
        path = directory / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()
    if _aside(directory).is_dir():
        with contextlib.suppress(OSError):
            _aside(directory).rename(directory)


def _aside(directory: Path) -> Path:
    return directory.with_name(directory.name + ".replaced")


def _set_aside(directory: Path, *, force: bool) -> None:
    if not directory.is_dir():
        raise UsageError(f"{directory} is a file, not a directory.", "Choose another --output.")
    present = {path.name for path in directory.iterdir()}
    if not present:
        return
    foreign = sorted(present - _OWN_NAMES)
    if foreign or not _is_run(directory):
        raise UsageError(
            f"{directory} holds files that are not a run's ({', '.join((foreign or sorted(present))[:3])}).",
            "Choose another --output.",
        )
    if not force:
        raise UsageError(f"{directory} already holds a run.", "Add --force to replace it, or choose another --output.")
    journal = directory / JOURNAL_NAME
    if journal.is_file():
        with open(journal, "rb") as file:
            lock(file, journal)
    shutil.rmtree(_aside(directory), ignore_errors=True)
    directory.rename(_aside(directory))


def lock(file: IO[bytes], path: Path) -> None:
    """Keep other processes from writing the run while ``file``, its journal, is open. Raises UsageError if one does."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"Another tfpipe is writing {path.parent}.", "Wait for it to end, or choose another --output."
        ) from None


def _is_run(directory: Path) -> bool:
    """Whether a directory was written by tfpipe, judged by what its files hold and not by their names."""
    try:
        with open(directory / JOURNAL_NAME, "rb") as file:
            first: Any = msgspec.json.decode(file.readline())
        return isinstance(first, dict) and first.get("type") == "Started"
    except (OSError, msgspec.MsgspecError):
        pass
    try:
        content: Any = msgspec.json.decode((directory / RUN_NAME).read_bytes())
        return isinstance(content, dict) and content.get("format") == FORMAT
    except (OSError, msgspec.MsgspecError):
        return False
