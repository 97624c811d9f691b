"""Writes a run's candidates where TensorBoard's HParams tab finds them."""

from __future__ import annotations

from pathlib import Path

from tfpipe.records import Run
from tfpipe.report.hparams_events import candidate_events, experiment_events
from tfpipe.runfile import storage_error, write_atomically

# TensorBoard reads files whose name holds "tfevents". The name is fixed, so that writing again replaces.
EVENT_FILE_NAME = "events.out.tfevents.0.tfpipe"


def write_hparams(run: Run, logdir: Path) -> None:
    """Write ``logdir`` (a run's ``traces``) and one folder per candidate in it. Writing twice changes nothing.

    Raises:
        TfpipeError: the disk is full or cannot be written to.
    """
    _write(logdir, experiment_events(run))
    for candidate in run.candidates:
        _write(logdir / candidate.id, candidate_events(run, candidate))


def _write(directory: Path, content: bytes) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(directory, error) from None
    write_atomically(directory / EVENT_FILE_NAME, content)
