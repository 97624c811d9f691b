"""The part of ``tfpipe doctor`` that needs TensorFlow, run as doctor runs it."""

from __future__ import annotations

import pytest

from tfpipe.cli.health import check_tensorflow, run_probe


@pytest.mark.tensorflow
def test_tensorflow_and_its_profiler_work_here() -> None:
    findings = run_probe()
    assert "CPU" in {device["kind"] for device in findings["devices"]}
    assert findings["profiler"] is None
    assert "broken" not in {check.state for check in check_tensorflow(findings)}
