"""What this process may use of the machine."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
# cgroup v1 writes "no limit" as the largest page-aligned number.
_NO_LIMIT_BYTES = 2**60


def usable_cores() -> int:
    """Processors that the scheduler may put this process on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_cores(root: Path = _CGROUP) -> float | None:
    """The container's processor quota in cores; None without one. Reads cgroup v2, then v1."""
    limit = _read(root / "cpu.max").split()
    if not limit:
        limit = [_read(root / "cpu/cpu.cfs_quota_us"), _read(root / "cpu/cpu.cfs_period_us")]
    try:
        quota, period = (int(word) for word in limit)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


def cgroup_memory_bytes(root: Path = _CGROUP) -> int | None:
    """The container's memory limit in bytes; None without one. Reads cgroup v2, then v1."""
    text = _read(root / "memory.max") or _read(root / "memory/memory.limit_in_bytes")
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT_BYTES else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
