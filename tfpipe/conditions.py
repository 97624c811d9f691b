"""What the machine allows this process, and what else was going on in it: read as a normal user, None when unknown.

psutil for what every system has; files for Linux's control groups, of both versions, and its swap counters.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from tfpipe.records import Warning
from tfpipe.units import format_bytes, format_percent, format_seconds

ROOT = Path("/")

# Thresholds of the warnings. Others using this share of the cores during a run: as much as a verdict's first cut.
OTHER_LOAD = 0.05
# Stopped by the quota for this share of the run: a tenth of the accuracy that an input fraction should have (1 point).
THROTTLED = 0.001
# Frequencies breathe by a few per cent; a machine that gets hot or changes its profile loses more.
FREQUENCY_DROP = 0.10
# Less is the kernel putting idle pages away, which slows nobody.
SWAPPED_BYTES = 16 * 2**20
# The shortest time measured is an empty fetch, 0.25 ms; at this resolution its error is 2 %.
COARSE_CLOCK_S = 5e-6
# Enough that one of them is free of interruptions.
_CLOCK_STEPS = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """One reading. Counters (``_s`` of CPU time, ``_bytes`` swapped) have any origin: only differences mean something.

    Attributes:
        at_s: ``time.monotonic`` of the reading.
        cores: processors to be had, by affinity and cgroup quota.
        quota_cores: the cgroup's CPU quota; None without one.
        load: the 1-minute load average.
        machine_cpu_s: CPU time of everything on the machine, time stolen by a hypervisor included.
        own_cpu_s: CPU time of this process and its children.
        throttled_s: how long the cgroup's quota has stopped its threads.
        swapped_in_bytes, swapped_out_bytes: of the whole machine.
        on_battery: None where there is no battery.
        frequency_hz: of the fastest core just now, which is the one that reads it.
        max_frequency_hz: the most that a core is allowed.
        clock_s: the smallest step of ``time.perf_counter``.
    """

    at_s: float
    cores: float
    quota_cores: float | None = None
    load: float | None = None
    machine_cpu_s: float | None = None
    own_cpu_s: float | None = None
    throttled_s: float | None = None
    swapped_in_bytes: int | None = None
    swapped_out_bytes: int | None = None
    on_battery: bool | None = None
    frequency_hz: float | None = None
    max_frequency_hz: float | None = None
    clock_s: float | None = None


def read_conditions(root: Path = ROOT) -> Conditions:
    """The conditions now. Takes some milliseconds: read between blocks, not inside them."""
    frequencies = _known(lambda: psutil.cpu_freq(percpu=True)) or []
    return Conditions(
        at_s=time.monotonic(),
        cores=cores(root),
        quota_cores=quota_cores(root),
        load=_known(lambda: float(psutil.getloadavg()[0])),
        machine_cpu_s=_known(_machine_cpu_s),
        own_cpu_s=_known(_own_cpu_s),
        throttled_s=throttled_s(root),
        swapped_in_bytes=_swapped_bytes(root, "pswpin"),
        swapped_out_bytes=_swapped_bytes(root, "pswpout"),
        on_battery=_known(_on_battery),
        frequency_hz=_highest_hz([frequency.current for frequency in frequencies]),
        max_frequency_hz=_highest_hz([frequency.max for frequency in frequencies]),
        clock_s=_clock_s(time.perf_counter),
    )


def compare_conditions(before: Conditions, after: Conditions) -> tuple[Warning, ...]:
    """What happened between two readings that makes the numbers of that time doubtful; each text ends in an action."""
    return tuple(warning for find in _ALL for warning in find(before, after))


# --- limits ------------------------------------------------------------------------------------------------


def cores(root: Path = ROOT) -> float:
    """Processors to be had: those of the affinity mask, or the cgroup's quota if that is less.

    TensorFlow sees the former only, and starts that many threads.
    """
    allowed = usable_cores()
    quota = quota_cores(root)
    return float(allowed) if quota is None else min(float(allowed), quota)


def usable_cores() -> int:
    """Processors that the scheduler may put this process on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quota_cores(root: Path = ROOT) -> float | None:
    """The CPU quota of this process's cgroups in cores, the tightest of them; None without one."""
    quotas = []
    for folder in _cgroup_folders(root, "cpu"):
        words = _read(folder / "cpu.max").split()
        words = words or [_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")]
        quota, period = (_number(word) for word in (*words, "", "")[:2])
        if quota and period and quota > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def memory_limit_bytes(pid: int | None = None, root: Path = ROOT) -> int | None:
    """How large process ``pid`` (None: this one) could become in resident memory: what it has and what is left.

    Left is the least of the machine's available memory and of what each of its cgroups leaves below its limit, the
    cache that the kernel would give back not counted as used.
    """
    resident = _known(lambda: int(psutil.Process(pid).memory_info().rss))
    available = _known(lambda: int(psutil.virtual_memory().available))
    room = [] if available is None else [available]
    for folder in _cgroup_folders(root, "memory", pid):
        limit = _number(_read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes"))
        if limit is None:  # v1 writes a huge number instead
            continue
        used = _number(_read(folder / "memory.current") or _read(folder / "memory.usage_in_bytes")) or 0
        statistics = _statistics(folder / "memory.stat")
        cache = statistics.get("total_inactive_file", statistics.get("inactive_file", 0))
        room.append(max(0, int(limit - max(0, used - cache))))
    return None if resident is None or not room else resident + min(room)


def free_disk_bytes() -> int:
    """Free where temporary files are made."""
    return int(psutil.disk_usage(tempfile.gettempdir()).free)


def throttled_s(root: Path = ROOT) -> float | None:
    """How long a CPU quota has stopped this process's cgroups, the most of them; None where none is counted."""
    counted = []
    for folder in _cgroup_folders(root, "cpu"):
        statistics = _statistics(folder / "cpu.stat")
        if "throttled_usec" in statistics:
            counted.append(statistics["throttled_usec"] / 1e6)
        elif "throttled_time" in statistics:
            counted.append(statistics["throttled_time"] / 1e9)
    return max(counted, default=None)


def _cgroup_folders(root: Path, controller: str, pid: int | None = None) -> Iterator[Path]:
    """The folders of the process's cgroup for ``controller`` and of all that contain it, innermost first.

    Inside a container the path may name folders of the host that are not there; what there is counts.
    """
    base = root / "sys/fs/cgroup"
    for line in _read(root / "proc" / ("self" if pid is None else str(pid)) / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mount = base if (base / "cgroup.controllers").exists() else base / "unified"
        elif controller in controllers.split(","):
            mount = next((base / name for name in (controllers, controller) if (base / name).is_dir()), base)
        else:
            continue
        inner = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(inner), -1, -1):
            folder = mount.joinpath(*inner[:depth])
            if folder.is_dir():
                yield folder


# --- readings ----------------------------------------------------------------------------------------------


def _machine_cpu_s() -> float:
    times = psutil.cpu_times()
    # user holds guest and nice holds guest_nice already; Windows and macOS lack some of these.
    names = ("user", "nice", "system", "irq", "softirq", "steal", "interrupt", "dpc")
    return float(sum(getattr(times, name, 0.0) for name in names))


def _own_cpu_s() -> float:
    """This process, its living children and theirs, and those that have ended."""
    process = psutil.Process()
    total = 0.0
    for member in (process, *process.children(recursive=True)):
        try:
            times = member.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _swapped_bytes(root: Path, name: str) -> int | None:
    pages = _statistics(root / "proc/vmstat").get(name)
    return None if pages is None else int(pages * os.sysconf("SC_PAGE_SIZE"))


def _on_battery() -> bool | None:
    battery = psutil.sensors_battery()
    return None if battery is None or battery.power_plugged is None else not battery.power_plugged


def _highest_hz(megahertz: list[float]) -> float | None:
    highest = max(megahertz, default=0.0)
    return highest * 1e6 if highest > 0 else None


def _clock_s(clock: Callable[[], float]) -> float:
    """The smallest of some steps of ``clock``."""
    steps = []
    for _ in range(_CLOCK_STEPS):
        begin = end = clock()
        while end == begin:
            end = clock()
        steps.append(end - begin)
    return min(steps)


def _known(read: Callable[[], T]) -> T | None:
    """What ``read`` gives, or None where this system cannot tell (psutil raises a bit of everything)."""
    try:
        return read()
    except (OSError, psutil.Error, AttributeError, NotImplementedError, RuntimeError, ValueError, KeyError, IndexError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _statistics(path: Path) -> dict[str, float]:
    """A file of lines ``name value``."""
    pairs = (line.split() for line in _read(path).splitlines())
    numbers = ((pair[0], _number(pair[1])) for pair in pairs if len(pair) == 2)
    return {name: number for name, number in numbers if number is not None}


# --- warnings ----------------------------------------------------------------------------------------------


def _growth(before: float | None, after: float | None) -> float | None:
    """How far a counter moved; None when unknown, or when it was set back in between."""
    return None if before is None or after is None or after < before else after - before


def _other_load(before: Conditions, after: Conditions) -> Iterator[Warning]:
    machine = _growth(before.machine_cpu_s, after.machine_cpu_s)
    own = _growth(before.own_cpu_s, after.own_cpu_s)
    elapsed_s = after.at_s - before.at_s
    if machine is None or own is None or elapsed_s <= 0:
        return
    busy = (machine - own) / elapsed_s
    if busy > OTHER_LOAD * after.cores:
        yield Warning(
            code="other-load",
            text=f"Other programs, or other virtual machines on the same host, kept {busy:.1f} processors busy "
            f"during the run, which has {after.cores:g}. Close them and repeat the run.",
        )


def _throttled(before: Conditions, after: Conditions) -> Iterator[Warning]:
    stopped_s = _growth(before.throttled_s, after.throttled_s)
    elapsed_s = after.at_s - before.at_s
    if stopped_s is None or stopped_s <= THROTTLED * elapsed_s:
        return
    quota = "" if after.quota_cores is None else f" of {after.quota_cores:g} processors"
    threads = "" if after.quota_cores is None else f", or try --threadpool {max(1, int(after.quota_cores))}"
    yield Warning(
        code="throttled",
        text=f"The container's CPU quota{quota} stopped threads of the run for {format_seconds(stopped_s)} in all. "
        f"Raise the quota{threads}.",
    )


def _frequency_dropped(before: Conditions, after: Conditions) -> Iterator[Warning]:
    if before.frequency_hz is None or after.frequency_hz is None:
        return
    drop = 1 - after.frequency_hz / before.frequency_hz
    if drop > FREQUENCY_DROP:
        yield Warning(
            code="frequency",
            text=f"The processor slowed down by {format_percent(drop)} during the run, from "
            f"{before.frequency_hz / 1e9:.2f} to {after.frequency_hz / 1e9:.2f} GHz. Let it cool, fix its frequency "
            "(cpupower frequency-set --governor performance), and repeat the run.",
        )


def _battery(before: Conditions, after: Conditions) -> Iterator[Warning]:
    if before.on_battery or after.on_battery:
        yield Warning(
            code="battery",
            text="The machine ran on battery, where processors save power. Plug it in and repeat the run.",
        )


def _swapping(before: Conditions, after: Conditions) -> Iterator[Warning]:
    moved = [
        _growth(before.swapped_in_bytes, after.swapped_in_bytes),
        _growth(before.swapped_out_bytes, after.swapped_out_bytes),
    ]
    total = sum(value for value in moved if value is not None)
    if total > SWAPPED_BYTES:
        yield Warning(
            code="swap",
            text=f"{format_bytes(total)} went to swap or came back during the run. Free some memory, or profile "
            "smaller buffers: --shuffle-buffer and --prefetch.",
        )


def _coarse_clock(before: Conditions, after: Conditions) -> Iterator[Warning]:
    step_s = after.clock_s
    if step_s is not None and step_s > COARSE_CLOCK_S:
        yield Warning(
            code="clock",
            text=f"The clock moves in steps of {format_seconds(step_s)}, too coarse for single fetches. Measure longer "
            "blocks: raise --time-budget or --steps.",
        )


_ALL: tuple[Callable[[Conditions, Conditions], Iterator[Warning]], ...] = (
    _other_load,
    _throttled,
    _frequency_dropped,
    _battery,
    _swapping,
    _coarse_clock,
)
