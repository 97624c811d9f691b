"""``tfpipe doctor``: each thing that can be broken, found and mended."""

from __future__ import annotations

import importlib.metadata
import subprocess
from typing import Any

import pytest
from click.testing import CliRunner

from tfpipe.cli import health
from tfpipe.cli.main import main
from tfpipe.report.doctor import Check, doctor_report

CPU = {"name": "/physical_device:CPU:0", "kind": "CPU"}
GPU = {"name": "/physical_device:GPU:0", "kind": "GPU"}
HEALTHY: dict[str, Any] = {"devices": [CPU], "profiler": None, "gpu_traced": None}

REPORT = """\
ok      Python: 3.11.7
note    processors: 8 usable, but the container's quota is 2.0
        mend  tf.data starts 8 threads; try --threadpool 2.
broken  profiler: it did not start, because there is something in the way that
takes two lines to say
        mend  End other profilers.

Broken: profiler.
"""


def test_the_report() -> None:
    checks = [
        Check(name="Python", state="ok", found="3.11.7"),
        Check(
            name="processors",
            state="note",
            found="8 usable, but the container's quota is 2.0",
            mend="tf.data starts 8 threads; try --threadpool 2.",
        ),
        Check(
            name="profiler",
            state="broken",
            found="it did not start, because there is something in the way that takes two lines to say",
            mend="End other profilers.",
        ),
    ]
    assert doctor_report(checks, width=80, color=False) == REPORT


def states(checks: Any) -> dict[str, str]:
    return {check.name: check.state for check in checks}


def test_healthy_tensorflow() -> None:
    assert states(health.check_tensorflow(HEALTHY)) == {"devices": "ok", "profiler": "ok"}


def test_a_profiler_that_fails() -> None:
    assert states(health.check_tensorflow({**HEALTHY, "profiler": "busy"}))["profiler"] == "broken"


def test_a_gpu_that_is_not_in_traces() -> None:
    with_gpu = {**HEALTHY, "devices": [CPU, GPU]}
    assert states(health.check_tensorflow({**with_gpu, "gpu_traced": True}))["GPU in traces"] == "ok"
    assert states(health.check_tensorflow({**with_gpu, "gpu_traced": False}))["GPU in traces"] == "note"


def test_tensorflow_that_does_not_import() -> None:
    (check,) = health.check_tensorflow({"error": "ImportError: no"})
    assert (check.name, check.state, check.found) == ("TensorFlow", "broken", "ImportError: no")


def test_a_package_of_the_wrong_version(monkeypatch: pytest.MonkeyPatch) -> None:
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0" if name == "click" else version(name))
    checks = {check.name: check for check in health.check_versions()}
    assert checks["click"].state == "broken"
    assert checks["click"].mend.startswith("pip install 'click")
    assert checks["rich"].state == "ok"


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    version = importlib.metadata.version

    def without_tensorboard(name: str) -> str:
        if name == "tensorboard":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", without_tensorboard)
    checks = {check.name: check for check in health.check_versions()}
    assert (checks["tensorboard"].state, checks["tensorboard"].found) == ("broken", "not installed")


def test_a_quota_below_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "usable_cores", lambda: 8)
    monkeypatch.setattr(health, "quota_cores", lambda: 1.5)
    checks = {check.name: check for check in health.check_machine()}
    assert checks["processors"].state == "note"
    assert "--threadpool 2" in checks["processors"].mend


def test_little_memory_in_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "memory_limit_bytes", lambda: 2**30)
    checks = {check.name: check for check in health.check_machine()}
    assert (checks["memory"].state, checks["memory"].found.startswith("1.00 GiB")) == ("note", True)


def test_a_taken_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "is_free", lambda port: False)
    checks = {check.name: check for check in health.check_machine()}
    assert checks["TensorBoard's port"].state == "note"


def fake_probe(monkeypatch: pytest.MonkeyPatch, *, stdout: str, stderr: str = "", code: int = 0) -> None:
    finished = subprocess.CompletedProcess([], code, stdout, stderr)
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: finished)


def test_the_probe_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_probe(monkeypatch, stdout='{"devices": []}\n')
    assert health.run_probe() == {"devices": []}


def test_the_probe_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_probe(monkeypatch, stdout="", stderr="first\nIllegal instruction\n", code=-4)
    assert health.run_probe() == {"error": "its process ended with code -4: Illegal instruction"}


def test_the_probe_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*arguments: object, **options: object) -> None:
        raise subprocess.TimeoutExpired("probe", 180)

    monkeypatch.setattr(subprocess, "run", hang)
    assert health.run_probe() == {"error": "it did not start within 180 s"}


@pytest.mark.parametrize(("findings", "code"), [(HEALTHY, 0), ({"error": "no"}, 1)])
def test_the_exit_code(findings: dict[str, Any], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "run_probe", lambda: findings)
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == code, result.stdout
    assert ("Broken: TensorFlow." in result.stdout) is (code == 1)
