"""The command ``tfpipe``: its subcommands, loaded when they are asked for, and the one place that catches errors."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
import traceback
from typing import Any

import click

from tfpipe import __version__
from tfpipe.cli.start import end_at_once
from tfpipe.errors import EXIT_FAILED, EXIT_INTERRUPTED, TfpipeError
from tfpipe.printable import printable

# name -> (module that holds a command of that name, its line in the help), so that --help imports nothing.
COMMANDS = {
    "profile": ("tfpipe.cli.profile", "Measure input pipelines through a training step."),
    "recommend": ("tfpipe.cli.recommend", "The settings to use, what they bring, the code to paste."),
    "show": ("tfpipe.cli.show", "Every candidate of a run, or one with all details."),
    "analyze": ("tfpipe.cli.analyze", "The verdict and the bottleneck of any profiler trace."),
    "check": ("tfpipe.cli.check", "What is wrong with a tf.function."),
    "tensorboard": ("tfpipe.cli.tensorboard", "Open a run's traces and candidates in TensorBoard."),
    "doctor": ("tfpipe.cli.doctor", "What would fail on this machine, and how to mend it."),
}


class LazyGroup(click.Group):
    """A group that imports a subcommand's module only when that subcommand is run or asked for its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def main(self, *args: Any, **extra: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            # A name that the terminal's encoding lacks is no reason to say nothing.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if not _came_from_echo(error):
                raise
            _say(f"tfpipe: The output could not be written: {error.strerror}.")
            _give_up_stdout()
            sys.exit(EXIT_FAILED)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            if signal.getsignal(signal.SIGINT) is end_at_once:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            return super().invoke(ctx)
        except TfpipeError as error:
            _say(f"tfpipe: {error.message}")
            if error.hint:
                _say(f"        {error.hint}")
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            _say("tfpipe: interrupted.")
            ctx.exit(EXIT_INTERRUPTED)


def _say(text: str) -> None:
    """To standard error, if that can be written: the exit code says the rest."""
    with contextlib.suppress(OSError):
        click.echo(printable(text), err=True)


def _came_from_echo(error: OSError) -> bool:
    """Whether a standard stream could not be written, and not some file of ours."""
    return any(frame.f_code is click.echo.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))


def _give_up_stdout() -> None:
    """Keep the interpreter from writing what is left when it ends, and from failing at that."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tfpipe", message="%(prog)s %(version)s")
def main() -> None:
    """Tells whether a TensorFlow training waits for its data, and what to change.

    Start with: tfpipe profile --dataset cifar100
    """
