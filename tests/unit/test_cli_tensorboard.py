"""What ``tfpipe tensorboard`` refuses before it becomes TensorBoard, and what it starts."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.runs import make_run
from tfpipe.cli.main import main
from tfpipe.cli.ports import free_port, is_free
from tfpipe.report.hparams import write_hparams
from tfpipe.runfile import write_run


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    write_run(tmp_path, make_run())
    (tmp_path / "traces").mkdir()
    return tmp_path


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def tensorboard(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tensorboard", *arguments])


def test_it_becomes_tensorboard(run_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda program, arguments, environment: started.append(arguments))
    write_hparams(make_run(), run_directory / "traces")
    port = free_port(20000)
    result = tensorboard(str(run_directory), "--port", str(port))
    assert result.exit_code == 0, result.stderr
    logdir = str(run_directory / "traces")
    assert started == [
        [sys.executable, "-m", "tfpipe.engine.board", "--logdir", logdir, "--host", "localhost", "--port", str(port)]
    ]
    assert f"http://localhost:{port}/" in result.stderr


def test_a_run_without_traces(run_directory: Path) -> None:
    result = tensorboard(str(run_directory))
    assert result.exit_code == 2
    assert "holds no traces" in result.stderr


def test_a_taken_port_names_a_free_one(run_directory: Path, taken_port: int) -> None:
    write_hparams(make_run(), run_directory / "traces")
    result = tensorboard(str(run_directory), "--port", str(taken_port))
    assert result.exit_code == 1
    assert f"Port {taken_port} is taken" in result.stderr
    other = int(result.stderr.split("--port ")[1])
    assert other > taken_port
    assert is_free(other)


@pytest.mark.parametrize("port", ["0", "65536", "many"])
def test_a_port_that_is_none(port: str, run_directory: Path) -> None:
    assert tensorboard(str(run_directory), "--port", port).exit_code == 2


@pytest.mark.parametrize(
    ("module", "package"), [("tensorboard", "tensorboard"), ("xprof", "tensorboard-plugin-profile")]
)
def test_a_missing_package_is_named(
    module: str, package: str, run_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hparams(make_run(), run_directory / "traces")
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else find_spec(name))
    result = tensorboard(str(run_directory))
    assert result.exit_code == 1
    assert f"pip install {package}\n" in result.stderr


def test_ports_end() -> None:
    assert free_port(65536) is None
