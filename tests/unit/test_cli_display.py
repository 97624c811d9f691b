"""Progress where nobody watches: a line per phase, and none in the way of the run."""

from __future__ import annotations

import io
import sys

import pytest

from tfpipe.cli.display import ProgressDisplay
from tfpipe.messages import Progress


def go_through_a_run(display: ProgressDisplay) -> None:
    with display:
        display.show("starting", elapsed_s=0.0, budget_s=180.0)
        display.on_progress(Progress(text="importing TensorFlow"))
        for fraction in (0.1, 0.2):
            display.on_progress(Progress(text="downloading cifar100", fraction=fraction))
        for round_ in ("round 1", "round 2"):
            for candidate in ("all AUTOTUNE", "serial: as written"):
                display.show(f"{round_}: {candidate}", elapsed_s=60.0, budget_s=180.0)
                display.show("compute alone", elapsed_s=61.0, budget_s=180.0)
        display.show("trace: all AUTOTUNE", elapsed_s=190.0, budget_s=180.0)


LINES = """\
tfpipe: starting (at most 3.0 min left)
tfpipe: importing TensorFlow
tfpipe: downloading cifar100
tfpipe: round 1 (at most 2.0 min left)
tfpipe: compute alone (at most 119 s left)
tfpipe: round 2 (at most 2.0 min left)
tfpipe: trace
"""


def test_a_line_per_phase_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    go_through_a_run(ProgressDisplay(quiet=False))
    assert capsys.readouterr() == ("", LINES)


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    go_through_a_run(ProgressDisplay(quiet=True))
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", ["[/bold] of [red", "\x1b[2J"])
def test_in_a_terminal_a_name_is_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with ProgressDisplay(quiet=False) as display:
        display.show(f"round 1: {name}", elapsed_s=0.0, budget_s=180.0)
        display._progress.refresh()
    shown = terminal.getvalue()
    assert (name if name.isprintable() else r"\x1b[2J") in shown
    assert "\x1b[2J" not in shown
    assert "tfpipe: " not in shown


@pytest.mark.parametrize("stream", [None, "full"])
def test_where_nothing_can_be_written_the_run_goes_on(stream: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", None if stream is None else Full())
    go_through_a_run(ProgressDisplay(quiet=False))
