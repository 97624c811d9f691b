"""From a path to the trace files of one profiling session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tfpipe.errors import DataError, UsageError

SUFFIXES = (".xplane.pb", ".xplane.pb.gz")
_PROFILE = Path("plugins") / "profile"
_JSON = (".trace.json.gz", ".trace.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The trace files of one session, one per host, by host name. ``others`` names the sessions left aside."""

    name: str | None
    files: tuple[Path, ...]
    others: tuple[str, ...] = ()


def find_session(path: Path, session: str | None = None) -> Session:
    """The session that ``path`` means: a trace file, a session's directory, or a log directory's newest session.

    Raises:
        UsageError: nothing is there, or not the session asked for.
        DataError: there is only a trace of an older format.
    """
    try:
        return _find_session(path, session)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.", "Check its permissions.") from None


def _find_session(path: Path, session: str | None) -> Session:
    if not path.exists():
        raise UsageError(f"{path} does not exist.", "Name a .xplane.pb file, or the directory given to the profiler.")
    if path.is_file():
        if session is not None:
            raise UsageError(f"--session needs a directory, and {path} is a file.", "Leave --session out.")
        return Session(name=None, files=(path,))
    if session is None and (files := _traces(path)):
        return Session(name=path.name, files=files)
    found = _sessions(path)
    if not found:
        _complain(path)
    names = sorted({directory.name for directory in found})
    if session is not None:
        found = [directory for directory in found if directory.name == session]
        if not found:
            raise UsageError(f"{path} has no session {session!r}.", f"It has: {', '.join(names[-5:])}.")
    # Session names are times; where they are not, the age of the trace decides.
    # By name, which is the time of the session; a clone or a copy gives every file the same age.
    newest = max(found, key=lambda directory: directory.name)
    others = tuple(name for name in names if name != newest.name)
    return Session(name=newest.name, files=_traces(newest), others=others)


def host_of(path: Path) -> str:
    """The host that a trace file is named after."""
    name = path.name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name or path.name


def choose_hosts(session: Session, host: str | None) -> tuple[Path, ...]:
    """The files of ``host``, or of all hosts. Raises UsageError when there is no such host."""
    if host is None:
        return session.files
    chosen = tuple(path for path in session.files if host_of(path) == host)
    if not chosen:
        hosts = ", ".join(host_of(path) for path in session.files[:8])
        raise UsageError(f"The session has no host {host!r}.", f"It has: {hosts}.")
    return chosen


def _traces(directory: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in directory.iterdir() if path.name.endswith(SUFFIXES) and path.is_file()))


def _sessions(path: Path) -> list[Path]:
    """Directories with traces: those of the profiler's own layout, else any below ``path``."""
    roots = [path] if path.name == "profile" else [path / _PROFILE, path / "train" / _PROFILE, path / "profile"]
    found = [d for root in roots if root.is_dir() for d in root.iterdir() if d.is_dir() and _traces(d)]
    if found:
        return found
    return sorted({file.parent for suffix in SUFFIXES for file in path.rglob(f"*{suffix}") if file.is_file()})


def _complain(path: Path) -> None:
    if any(next(path.rglob(f"*{suffix}"), None) for suffix in _JSON):
        raise DataError(
            f"{path} holds only JSON traces, the format of older TensorFlow.",
            "Record again with TensorFlow 2.4 or later: tfpipe reads .xplane.pb.",
        )
    raise UsageError(
        f"There is no trace (.xplane.pb) in {path} or below it.",
        "Name the directory given to the TensorBoard callback or to tf.profiler.experimental.start.",
    )
