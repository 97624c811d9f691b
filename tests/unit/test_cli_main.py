"""The roof: finding commands, and the one place that catches errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import import_module

import click
import pytest
from click.testing import CliRunner

from tfpipe.cli import main as main_module
from tfpipe.cli.main import COMMANDS, main
from tfpipe.errors import DataError, GateError, TfpipeError, UsageError

HELP = """\
Usage: tfpipe [OPTIONS] COMMAND [ARGS]...

  Tells whether a TensorFlow training waits for its data, and what to change.

  Start with: tfpipe profile --dataset cifar100

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit.

Commands:
  profile      Measure input pipelines through a training step.
  recommend    The settings to use, what they bring, the code to paste.
  show         Every candidate of a run, or one with all details.
  analyze      The verdict and the bottleneck of any profiler trace.
  check        What is wrong with a tf.function.
  tensorboard  Open a run's traces and candidates in TensorBoard.
  doctor       What would fail on this machine, and how to mend it.
"""


def test_help() -> None:
    result = CliRunner().invoke(main, ["--help"], prog_name="tfpipe")
    assert (result.exit_code, result.output) == (0, HELP)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_in_the_help_exists(name: str) -> None:
    command = getattr(import_module(COMMANDS[name][0]), name)
    assert isinstance(command, click.Command)
    assert command.name == name


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["shwo"])
    assert result.exit_code == 2
    assert "No such command 'shwo'" in result.stderr


def command_that_raises(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Puts a command ``fail`` into the group that raises ``error``."""

    @click.command()
    def fail() -> None:
        raise error

    monkeypatch.setitem(COMMANDS, "fail", ("tfpipe.cli.main", "Fails."))
    monkeypatch.setattr(main_module, "fail", fail, raising=False)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TfpipeError("It broke.", "Mend it."), 1),
        (DataError("It broke.", "Mend it."), 1),
        (UsageError("It broke.", "Mend it."), 2),
        (GateError("It broke.", "Mend it."), 3),
    ],
)
def test_our_errors_become_a_message_and_a_code(error: TfpipeError, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    command_that_raises(monkeypatch, error)
    result = CliRunner().invoke(main, ["fail"])
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", "tfpipe: It broke.\n        Mend it.\n")


def test_an_error_without_a_hint_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    command_that_raises(monkeypatch, TfpipeError("It broke."))
    assert CliRunner().invoke(main, ["fail"]).stderr == "tfpipe: It broke.\n"


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    command_that_raises(monkeypatch, KeyboardInterrupt())
    result = CliRunner().invoke(main, ["fail"])
    assert (result.exit_code, result.stderr) == (130, "tfpipe: interrupted.\n")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    command_that_raises(monkeypatch, ZeroDivisionError("a bug"))
    result = CliRunner().invoke(main, ["fail"])
    assert isinstance(result.exception, ZeroDivisionError)


WRITES_MUCH = """
import click
from tfpipe.cli import main as module
@click.command()
def much():
    for _ in range(100_000):
        click.echo("a line of output")
module.much = much
module.COMMANDS["much"] = ("tfpipe.cli.main", "")
module.main(["much"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes on Windows")
def test_a_closed_pipe_is_quiet() -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITES_MUCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait(timeout=30)


SLEEPS = """
import click, time
from tfpipe.cli import main as module
@click.command()
def sleeps():
    print("ready", flush=True)
    time.sleep(60)
module.sleeps = sleeps
module.COMMANDS["sleeps"] = ("tfpipe.cli.main", "")
module.main(["sleeps"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is not a signal on Windows")
def test_ctrl_c_ends_with_130_and_no_traceback() -> None:
    # A shell's background job ignores the signal and would hand that down.
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (130, "tfpipe: interrupted.\n")
