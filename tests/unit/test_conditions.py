from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import psutil
import pytest

from tfpipe import conditions
from tfpipe.conditions import (
    Conditions,
    compare_conditions,
    cores,
    memory_limit_bytes,
    quota_cores,
    read_conditions,
    throttled_s,
)

PAGE = os.sysconf("SC_PAGE_SIZE")
QUIET = Conditions(
    at_s=0.0, cores=4.0, load=0.1, machine_cpu_s=0.0, own_cpu_s=0.0, throttled_s=0.0, swapped_in_bytes=0,
    swapped_out_bytes=0, on_battery=False, frequency_hz=4e9, max_frequency_hz=4e9, clock_s=1e-7,
)  # fmt: skip


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    """A pod with limits around a container without."""
    group = "sys/fs/cgroup"
    return write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/container",
            f"{group}/cgroup.controllers": "cpu memory",
            f"{group}/pod/cpu.max": "150000 100000",
            f"{group}/pod/cpu.stat": "usage_usec 5\nnr_throttled 3\nthrottled_usec 2500000",
            f"{group}/pod/memory.max": "1000000000",
            f"{group}/pod/memory.current": "400000000",
            f"{group}/pod/memory.stat": "anon 1\ninactive_file 100000000",
            f"{group}/pod/container/cpu.max": "max 100000",
            f"{group}/pod/container/cpu.stat": "usage_usec 5\nthrottled_usec 500000",
            f"{group}/pod/container/memory.max": "max",
            f"{group}/pod/container/memory.current": "300000000",
        },
    )


@pytest.fixture
def v1(tmp_path: Path) -> Path:
    """As inside Docker: the paths are those of the host, the folders those of the container."""
    group = "sys/fs/cgroup"
    return write(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n1:name=systemd:/docker/abc",
            f"{group}/cpu,cpuacct/cpu.cfs_quota_us": "50000",
            f"{group}/cpu,cpuacct/cpu.cfs_period_us": "100000",
            f"{group}/cpu,cpuacct/cpu.stat": "nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000",
            f"{group}/memory/memory.limit_in_bytes": "2000000000",
            f"{group}/memory/memory.usage_in_bytes": "1500000000",
            f"{group}/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 300000000",
        },
    )


@pytest.fixture
def machine(monkeypatch):
    """Eight cores, 64 GB available, 5 MB resident."""
    monkeypatch.setattr(conditions, "usable_cores", lambda: 8)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=64 * 10**9))
    memory_info = SimpleNamespace(rss=5 * 10**6)
    monkeypatch.setattr(psutil, "Process", lambda pid=None: SimpleNamespace(memory_info=lambda: memory_info))


@pytest.mark.usefixtures("machine")
class TestLimits:
    def test_v2_the_tightest_of_all_groups_counts(self, v2):
        assert quota_cores(v2) == cores(v2) == 1.5
        assert throttled_s(v2) == 2.5
        assert memory_limit_bytes(root=v2) == 5 * 10**6 + 1_000_000_000 - (400_000_000 - 100_000_000)

    def test_v2_a_limit_inside_a_larger_one(self, v2):
        write(v2, {"sys/fs/cgroup/pod/container/memory.max": "350000000"})
        assert memory_limit_bytes(root=v2) == 5 * 10**6 + 50_000_000

    def test_another_process_has_groups_of_its_own(self, v2):
        write(v2, {"proc/77/cgroup": "0::/"})
        assert memory_limit_bytes(77, v2) == 5 * 10**6 + 64 * 10**9

    def test_v1(self, v1):
        assert quota_cores(v1) == cores(v1) == 0.5
        assert throttled_s(v1) == 1.5
        assert memory_limit_bytes(root=v1) == 5 * 10**6 + 2_000_000_000 - (1_500_000_000 - 300_000_000)

    def test_v1_without_limits(self, v1):
        write(
            v1,
            {
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            },
        )
        assert quota_cores(v1) is None
        assert cores(v1) == 8.0
        assert memory_limit_bytes(root=v1) == 5 * 10**6 + 64 * 10**9

    def test_a_group_that_is_full_leaves_nothing(self, v1):
        write(v1, {"sys/fs/cgroup/memory/memory.usage_in_bytes": "2900000000"})
        assert memory_limit_bytes(root=v1) == 5 * 10**6

    def test_the_affinity_mask_can_be_the_tighter_one(self, v2, monkeypatch):
        monkeypatch.setattr(conditions, "usable_cores", lambda: 1)
        assert cores(v2) == 1.0

    @pytest.mark.parametrize("text", ["", "nonsense", "0::", ":::::", "\x00\xff"])
    def test_damaged_files_mean_unknown(self, tmp_path, text):
        write(
            tmp_path,
            {
                "proc/self/cgroup": text or "0::/",
                "sys/fs/cgroup/cgroup.controllers": "",
                "sys/fs/cgroup/cpu.max": text,
                "sys/fs/cgroup/cpu.stat": text,
                "sys/fs/cgroup/memory.max": text,
                "proc/vmstat": text,
            },
        )
        assert quota_cores(tmp_path) is None
        assert throttled_s(tmp_path) is None
        assert memory_limit_bytes(root=tmp_path) == 5 * 10**6 + 64 * 10**9
        assert conditions._swapped_bytes(tmp_path, "pswpin") is None


def test_swap_counters_are_pages(tmp_path, monkeypatch):
    write(tmp_path, {"proc/vmstat": "nr_free_pages 1\npswpin 3\npswpout 5"})
    reading = read_conditions(tmp_path)
    assert (reading.swapped_in_bytes, reading.swapped_out_bytes) == (3 * PAGE, 5 * PAGE)


def test_psutil_s_readings(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "sensors_battery", lambda: SimpleNamespace(power_plugged=False), raising=False)
    frequencies = [SimpleNamespace(current=800.0, max=4000.0), SimpleNamespace(current=3500.0, max=4200.0)]
    monkeypatch.setattr(psutil, "cpu_freq", lambda percpu: frequencies, raising=False)
    monkeypatch.setattr(psutil, "getloadavg", lambda: (1.5, 1.0, 0.5))
    reading = read_conditions(tmp_path)
    assert (reading.on_battery, reading.load) == (True, 1.5)
    assert (reading.frequency_hz, reading.max_frequency_hz) == (3.5e9, 4.2e9)


def test_nothing_that_fails_gets_out(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise errors.pop()

    for name in ("sensors_battery", "cpu_freq", "getloadavg", "cpu_times", "virtual_memory", "Process"):
        errors = [kind("no") for kind in (OSError, NotImplementedError, psutil.Error, AttributeError) * 3]
        monkeypatch.setattr(psutil, name, fail, raising=False)
    reading = read_conditions(tmp_path)
    unknown = {f.name for f in dataclasses.fields(reading) if getattr(reading, f.name) is None}
    assert unknown == {f.name for f in dataclasses.fields(reading)} - {"at_s", "cores", "clock_s"}
    assert memory_limit_bytes(root=tmp_path) is None
    assert compare_conditions(reading, dataclasses.replace(reading, at_s=reading.at_s + 1)) == ()


def test_this_machine_can_be_read_and_stored():
    before, after = read_conditions(), read_conditions()
    assert msgspec.json.decode(msgspec.json.encode(before), type=Conditions) == before
    assert after.at_s > before.at_s
    assert 0 < before.cores <= os.cpu_count()
    assert before.clock_s > 0
    assert after.own_cpu_s >= before.own_cpu_s > 0
    assert after.machine_cpu_s >= before.machine_cpu_s


def test_the_clock_s_step_is_found():
    reads = iter(n // 10 * 0.25 for n in range(1000))
    assert conditions._clock_s(lambda: next(reads)) == 0.25


def after(**changes: object) -> Conditions:
    return dataclasses.replace(QUIET, **{"at_s": 100.0, "machine_cpu_s": 200.0, "own_cpu_s": 195.0, **changes})


def codes(reading: Conditions, before: Conditions = QUIET) -> list[str]:
    return [warning.code for warning in compare_conditions(before, reading)]


def test_a_quiet_machine_gives_no_warning():
    assert codes(after()) == []


@pytest.mark.parametrize(
    ("changes", "code", "action"),
    [
        ({"machine_cpu_s": 395.0}, "other-load", "Close them and repeat the run."),
        ({"throttled_s": 1.0}, "throttled", "Raise the quota."),
        ({"throttled_s": 1.0, "quota_cores": 1.5}, "throttled", "Raise the quota, or try --threadpool 1."),
        ({"frequency_hz": 3e9}, "frequency", "and repeat the run."),
        ({"on_battery": True}, "battery", "Plug it in and repeat the run."),
        ({"swapped_in_bytes": 2**30}, "swap", "--shuffle-buffer and --prefetch."),
        ({"swapped_out_bytes": 2**30}, "swap", "--shuffle-buffer and --prefetch."),
        ({"clock_s": 0.0156}, "clock", "raise --time-budget or --steps."),
    ],
)
def test_each_warning_ends_in_an_action(changes, code, action):
    (warning,) = compare_conditions(QUIET, after(**changes))
    assert warning.code == code
    assert warning.text.endswith(action)


def test_other_load_is_what_is_left_of_the_machine_s_cpu_time():
    (warning,) = compare_conditions(QUIET, after(machine_cpu_s=395.0))
    assert "kept 2.0 processors busy during the run, which has 4." in warning.text
    # 4 cores for 100 s: the cut is at 20 s of CPU time.
    assert codes(after(machine_cpu_s=214.0)) == []
    assert codes(after(machine_cpu_s=216.0)) == ["other-load"]


@pytest.mark.parametrize(
    "changes",
    [
        {"throttled_s": 0.05},
        {"frequency_hz": 3.7e9},
        {"frequency_hz": 4.5e9},
        {"swapped_out_bytes": 2**20},
        {"clock_s": 1e-6},
    ],
)
def test_what_is_usual_is_not_warned_of(changes):
    assert codes(after(**changes)) == []


def test_unknown_is_no_warning_and_neither_is_a_counter_that_was_set_back():
    unknown = Conditions(at_s=0.0, cores=4.0)
    assert codes(after(), unknown) == []
    assert codes(Conditions(at_s=100.0, cores=4.0)) == []
    high = dataclasses.replace(QUIET, throttled_s=9.0, swapped_in_bytes=2**40, own_cpu_s=900.0)
    assert codes(after(), high) == []
