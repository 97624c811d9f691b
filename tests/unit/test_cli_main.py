"""The roof: finding commands, and the one place that catches errors."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.runs import make_run
from tfpipe.cli import main as main_module
from tfpipe.cli.main import COMMANDS, main
from tfpipe.errors import DataError, GateError, TfpipeError, UsageError
from tfpipe.runfile import write_run

RECORDED = str(Path(__file__).parents[2] / "samples" / "recorded_run")

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


# Stops where nothing of tfpipe but its door has been imported, for as long as it takes to be interrupted.
BEGINS_SLOWLY = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "tfpipe.cli.main":
            print("ready", flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Slow())
from tfpipe.cli.start import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is not a signal on Windows")
def test_ctrl_c_before_anything_is_imported_is_the_same() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BEGINS_SLOWLY, "show"],
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


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a device that is always full")
@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        (["--help"], ""),
        (["profile", "--help"], "1"),
        (["show", RECORDED], "1"),
        (["show", RECORDED, "--format", "json"], ""),
        (["recommend", RECORDED], ""),
        (["recommend", RECORDED, "--format", "code"], "1"),
        (["analyze", RECORDED], ""),
        (["check", "--rules"], ""),
    ],
)
def test_a_full_disk_behind_stdout_is_one_message(arguments: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tfpipe", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            timeout=60,
        )
    *before, last = done.stderr.splitlines()
    assert (done.returncode, last) == (1, "tfpipe: The output could not be written: No space left on device.")
    assert all(line.startswith("tfpipe: the trace of") for line in before)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a device that is always full")
def test_a_full_disk_behind_stderr_does_not_change_the_exit_code() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "tfpipe", "show", "nosuch"], stderr=full, timeout=60)
    assert done.returncode == 2


LOCALES = {
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "ASCII": {"PYTHONIOENCODING": "ascii"},
    "Latin-1": {"PYTHONIOENCODING": "latin-1"},
}


@pytest.mark.parametrize("environment", LOCALES.values(), ids=LOCALES)
def test_names_are_shown_whatever_the_locale(environment: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "größe-日本"
    write_run(folder.parent, make_run())
    shutil.copytree(tmp_path, folder, ignore=shutil.ignore_patterns("größe*"))
    (folder / "日本.py").write_text("import tensorflow as tf\n@tf.function\ndef f(x):\n    print(x)\n")
    for arguments in (
        ["show", str(folder)],
        ["check", str(folder / "日本.py")],
        ["check", str(folder / "日本.py"), "--format", "json"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "tfpipe", *arguments],
            capture_output=True,
            env={**os.environ, **environment},
            timeout=60,
        )
        assert b"Traceback" not in done.stderr
        assert done.returncode == 0, done.stderr
        if arguments[-1] == "json":
            json.loads(done.stdout)
        else:
            assert re.search("gr.*e-", done.stdout.decode(errors="replace").replace("\n", ""))


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems refuse such a name")
def test_a_name_that_is_no_text_is_shown_or_refused(tmp_path: Path) -> None:
    file = os.fsencode(tmp_path) + b"/bad\xff.py"
    with open(file, "w") as out:
        out.write("def f(x):\n    return x\n")

    def tfpipe(*arguments: bytes) -> subprocess.CompletedProcess[bytes]:
        command = [os.fsencode(sys.executable), b"-m", b"tfpipe", *arguments]
        return subprocess.run(command, capture_output=True, timeout=60, env={**os.environ, "LC_ALL": "C.UTF-8"})

    assert json.loads(tfpipe(b"check", file, b"--format", b"json").stdout)["files"][0]["path"].endswith(r"bad\xff.py")
    for refused in (
        [b"check", file + b":f", b"--run", b"--pipeline", file + b":f"],
        [b"profile", b"--pipeline", file + b":f"],
    ):
        done = tfpipe(*refused)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"is not UTF-8 text" in done.stderr
