"""``tfpipe tensorboard``: the real TensorBoard on a run's traces."""

from __future__ import annotations

import click

from tfpipe.errors import TfpipeError, UsageError

DEFAULT_PORT = 6006


@click.command()
@click.argument("run", required=False)
@click.option("--port", type=click.IntRange(1, 65535), default=DEFAULT_PORT, show_default=True)
def tensorboard(run: str | None, port: int) -> None:
    """Open a run's traces (Profile tab) and candidates (HParams tab) in TensorBoard, on localhost. Ctrl-C ends it.

    RUN is a run directory or its run.json; left out, the newest under runs/.
    """
    import os
    import sys

    from tfpipe.printable import printable
    from tfpipe.runfile import TRACES_NAME, find_run, load_run

    directory = find_run(run)
    # What show refuses is not shown here either: HParams would come from a run that contradicts itself.
    load_run(directory)
    traces = directory / TRACES_NAME
    if not traces.is_dir() or not any(traces.iterdir()):
        raise UsageError(f"{traces} holds no traces.", "Make a run with traces: tfpipe profile --dataset cifar100")
    _check_installed()
    _check_port(port)
    about = f"TensorBoard on {traces}: http://localhost:{port}/ (tabs Profile and HParams; Ctrl-C ends it)"
    click.echo(printable(about), err=True)
    # TensorBoard takes this process's place: signals and exit code are its own and nothing is left behind.
    arguments = ["--logdir", str(traces), "--host", "localhost", "--port", str(port)]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}
    os.execve(sys.executable, [sys.executable, "-m", "tfpipe.engine.board", *arguments], environment)


def _check_installed() -> None:
    from importlib.util import find_spec

    for module, package in (("tensorboard", "tensorboard"), ("xprof", "tensorboard-plugin-profile")):
        if find_spec(module) is None:
            raise TfpipeError(f"{package} is not installed.", f"Install it with: pip install {package}")


def _check_port(port: int) -> None:
    from tfpipe.cli.ports import free_port, is_free

    if not is_free(port):
        other = free_port(port + 1)
        hint = "Name another one with --port." if other is None else f"Try: --port {other}"
        raise TfpipeError(f"Port {port} is taken by another program.", hint)
