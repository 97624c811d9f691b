"""A run from its first entry, or from where it was cut off, to its run file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfpipe import __version__
from tfpipe.errors import TfpipeError, UsageError
from tfpipe.records import Run
from tfpipe.runfile import JOURNAL_NAME, TRACES_NAME, create_run_directory, discard_new_run, keep_new_run, write_run
from tfpipe.runner.assemble import assemble_run
from tfpipe.runner.executor import Executor
from tfpipe.runner.journal import (
    CandidateFailed,
    CandidatesChosen,
    CandidateSkipped,
    Entry,
    Finished,
    Journal,
    Started,
    WorkloadPrepared,
    read_journal,
)
from tfpipe.runner.profile import Display, Profile, error_of
from tfpipe.runner.reading import TraceReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``run`` is None when nothing was measured yet; ``interrupted`` says that the user stopped it."""

    run: Run | None
    interrupted: bool


def begin(directory: Path, started: Started, *, force: bool) -> Journal:
    """A new run directory with a journal that says what is to be measured.

    Raises:
        UsageError: something is there already.
        TfpipeError: it cannot be written.
    """
    create_run_directory(directory, force=force)
    journal = Journal(directory / JOURNAL_NAME)
    journal.append(started)
    return journal


def reopen(directory: Path) -> Journal:
    """The journal of a run that was cut off, ready to go on.

    Raises:
        UsageError: there is none, or another version of tfpipe wrote it.
        DataError: it is damaged.
    """
    path = directory / JOURNAL_NAME
    if not path.is_file():
        raise UsageError(f"{directory} holds no {JOURNAL_NAME}, so there is nothing to resume.", "Start a new run.")
    entries = read_journal(path)
    started = entries[0]
    assert isinstance(started, Started)
    if started.tfpipe_version != __version__:
        raise UsageError(
            f"{directory} was begun by another tfpipe: tfpipe_version was {started.tfpipe_version}, now {__version__}.",
            "Resume it with the version that began it, or start a new run.",
        )
    return Journal(path, entries)


def conduct(
    journal: Journal,
    directory: Path,
    executor: Executor,
    display: Display,
    *,
    candidate_timeout_s: float | None = None,
    max_memory_bytes: int | None = None,
    reading: TraceReading | None = None,
) -> Outcome:
    """Measure what is missing and write the run file, also when interrupted or when something fails half-way.

    Raises:
        TfpipeError: the workload cannot be prepared, every candidate failed, the disk is full, or the machine is not
            the one of before.
        WorkerBugError: a fault of tfpipe's own.
    """
    interrupted = failed = False
    try:
        if not any(isinstance(entry, Finished) for entry in journal.entries):
            Profile(
                executor,
                journal,
                directory / TRACES_NAME,
                display,
                candidate_timeout_s=candidate_timeout_s,
                max_memory_bytes=max_memory_bytes,
                reading=reading,
            ).run()
    except KeyboardInterrupt:
        interrupted = True
    except TfpipeError as error:
        failed = True
        if error.hint is None and _is_prepared(journal):
            error.hint = f"What was measured is kept. Go on with: tfpipe profile --resume {directory}"
        raise
    finally:
        executor.close()
        journal.close()
        run = assemble_run(journal.entries)
        if run is not None:
            write_run(directory, run)
        if (failed or interrupted) and not _is_prepared(journal):
            # A mistake that only the worker could see: nothing was measured, and nothing is left behind.
            discard_new_run(directory)
        else:
            keep_new_run(directory)
    if not interrupted:
        _raise_if_all_failed(journal.entries)
    return Outcome(run=run, interrupted=interrupted)


def _is_prepared(journal: Journal) -> bool:
    return any(isinstance(entry, WorkloadPrepared) for entry in journal.entries)


def _raise_if_all_failed(entries: Sequence[Entry]) -> None:
    """A run in which every candidate failed has nothing to compare: what is wrong is not one candidate's fault."""
    failed = {entry.id: entry.failed for entry in entries if isinstance(entry, CandidateFailed)}
    skipped = {entry.id: entry.reason for entry in entries if isinstance(entry, CandidateSkipped)}
    chosen = next((entry.candidates for entry in entries if isinstance(entry, CandidatesChosen)), ())
    if chosen and all(named.settings.id in failed for named in chosen):
        raise error_of(failed[chosen[0].settings.id])
    if chosen and all(named.settings.id in skipped for named in chosen):
        first = chosen[0].settings.id
        raise TfpipeError(f"No candidate can be measured here. {first}: {skipped[first]}")
