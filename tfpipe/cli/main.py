"""The command ``tfpipe``: its subcommands, loaded when they are asked for, and the one place that catches errors."""

from __future__ import annotations

import importlib
from typing import Any

import click

from tfpipe import __version__
from tfpipe.errors import EXIT_INTERRUPTED, TfpipeError

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

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TfpipeError as error:
            click.echo(f"tfpipe: {error.message}", err=True)
            if error.hint:
                click.echo(f"        {error.hint}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("tfpipe: interrupted.", err=True)
            ctx.exit(EXIT_INTERRUPTED)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tfpipe", message="%(prog)s %(version)s")
def main() -> None:
    """Tells whether a TensorFlow training waits for its data, and what to change.

    Start with: tfpipe profile --dataset cifar100
    """
