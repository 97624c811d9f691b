"""Resident memory of this process: its peak since the last reset, where Linux can tell, else what it is now."""

from __future__ import annotations

import psutil


def reset_peak() -> None:
    """Start a new peak (Linux: ``echo 5 > /proc/self/clear_refs``, see proc(5)); no effect elsewhere."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def peak_bytes() -> int:
    """The highest resident size since ``reset_peak``; without Linux's VmHWM the present resident size."""
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resident_bytes()


def resident_bytes() -> int:
    """The present resident size."""
    return int(psutil.Process().memory_info().rss)
