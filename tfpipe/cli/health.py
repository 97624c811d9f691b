"""The checks of ``tfpipe doctor``: each looks at one thing and says what would fail and how to mend it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tfpipe.cli.ports import free_port, is_free
from tfpipe.cli.tensorboard import DEFAULT_PORT
from tfpipe.conditions import memory_limit_bytes, quota_cores, usable_cores
from tfpipe.report.doctor import Check
from tfpipe.units import format_bytes

# The default run stays below this (ResNet18, batch 32, CIFAR-100 in memory).
NEEDED_MEMORY_BYTES = 3 * 2**30
# Ten traces of a few MB each, with room for an element-wise pipeline's larger ones.
NEEDED_DISK_BYTES = 2**30
# Importing TensorFlow takes 5 s, on a slow disk a minute.
PROBE_TIMEOUT_S = 180


def check_versions() -> Iterator[Check]:
    """Python and the packages that tfpipe declares, each against the range it declares."""
    declared = importlib.metadata.metadata("tfpipe")
    python, wanted = platform.python_version(), declared["Requires-Python"]
    fits = SpecifierSet(wanted).contains(python, prereleases=True)
    yield Check(
        name="Python",
        state="ok" if fits else "broken",
        found=python,
        mend="" if fits else f"Use a Python that is {wanted}.",
    )
    requirements = [Requirement(text) for text in importlib.metadata.requires("tfpipe") or ()]
    needed = [requirement for requirement in requirements if requirement.marker is None]
    for requirement in [*needed, Requirement("keras"), Requirement("xprof"), Requirement("numpy")]:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            yield Check(
                name=requirement.name, state="broken", found="not installed", mend=f"pip install '{requirement}'"
            )
            continue
        fits = requirement.specifier.contains(version, prereleases=True)
        yield Check(
            name=requirement.name,
            state="ok" if fits else "broken",
            found=version if fits else f"{version}, where {requirement.specifier} is needed",
            mend="" if fits else f"pip install '{requirement}'",
        )


def check_machine() -> Iterator[Check]:
    """Processors, memory, disk and TensorBoard's port."""
    cores, quota = usable_cores(), quota_cores()
    throttled = quota is not None and quota < cores
    yield Check(
        name="processors",
        state="note" if throttled else "ok",
        found=f"{cores} usable" + (f", but the container's quota is {quota:.1f}" if throttled else ""),
        mend=f"tf.data starts {cores} threads; try --threadpool {max(1, round(quota or 1))}." if throttled else "",
    )
    usable = memory_limit_bytes() or psutil.virtual_memory().available
    yield Check(
        name="memory",
        state="ok" if usable >= NEEDED_MEMORY_BYTES else "note",
        found=f"{format_bytes(usable)} to be had, container limits included",
        mend=""
        if usable >= NEEDED_MEMORY_BYTES
        else f"The default run needs up to {format_bytes(NEEDED_MEMORY_BYTES)}; use --width 16 or free some.",
    )
    free = shutil.disk_usage(".").free
    yield Check(
        name="disk",
        state="ok" if free >= NEEDED_DISK_BYTES else "note",
        found=f"{format_bytes(free)} free in {os.getcwd()}",
        mend="" if free >= NEEDED_DISK_BYTES else "Traces may fill it; write elsewhere with --output.",
    )
    writable = os.access("runs" if os.path.exists("runs") else ".", os.W_OK)
    yield Check(
        name="run directory",
        state="ok" if writable else "broken",
        found="runs/ can be written" if writable else f"runs/ cannot be written in {os.getcwd()}",
        mend="" if writable else "Change to a directory of your own, or use --output.",
    )
    port_free = is_free(DEFAULT_PORT)
    yield Check(
        name="TensorBoard's port",
        state="ok" if port_free else "note",
        found=f"{DEFAULT_PORT} is {'free' if port_free else 'taken'}",
        mend="" if port_free else f"tfpipe tensorboard --port {free_port(DEFAULT_PORT + 1)}",
    )


def check_tensorflow(findings: dict[str, Any]) -> Iterator[Check]:
    """Devices and profiler, from what ``run_probe`` found."""
    if "error" in findings:
        yield Check(
            name="TensorFlow",
            state="broken",
            found=findings["error"],
            mend="Reinstall it: pip install --force-reinstall 'tensorflow>=2.21,<2.22'",
        )
        return
    devices = [device for device in findings["devices"] if device["kind"] != "CPU"]
    driver_unused = not devices and Path("/proc/driver/nvidia").exists()
    yield Check(
        name="devices",
        state="note" if driver_unused else "ok",
        found=", ".join(device["name"] for device in devices) or "CPU only",
        mend="There is an NVIDIA driver that TensorFlow does not use: pip install 'tensorflow[and-cuda]'"
        if driver_unused
        else ""
        if devices
        else "Nothing is wrong; to tune for an accelerator elsewhere, use --step simulated:66ms.",
    )
    problem = findings["profiler"]
    yield Check(
        name="profiler",
        state="ok" if problem is None else "broken",
        found="a short capture worked" if problem is None else problem,
        mend="" if problem is None else "End other profilers and check that the temporary directory can be written.",
    )
    if findings["gpu_traced"] is not None:
        traced = findings["gpu_traced"]
        yield Check(
            name="GPU in traces",
            state="ok" if traced else "note",
            found="yes" if traced else "the capture holds no GPU events",
            mend=""
            if traced
            else "Allow profiling to users: driver option NVreg_RestrictProfilingToAdminUsers=0, or the container "
            "capability SYS_ADMIN.",
        )


def run_probe() -> dict[str, Any]:
    """The probe's findings from a process of its own, or an ``error``."""
    try:
        finished = subprocess.run(
            [sys.executable, "-m", "tfpipe.engine.doctor_probe"],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ},
        )
        findings: dict[str, Any] = json.loads(finished.stdout)
    except subprocess.TimeoutExpired:
        return {"error": f"it did not start within {PROBE_TIMEOUT_S} s"}
    except json.JSONDecodeError:
        last = finished.stderr.strip().splitlines()[-1:] or ["no message"]
        return {"error": f"its process ended with code {finished.returncode}: {last[0]}"}
    return findings
