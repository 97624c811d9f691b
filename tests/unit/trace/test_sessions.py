"""Files, sessions, hosts, and two traces side by side."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.trace.builder import Trace, steps
from tfpipe.errors import DataError, UsageError
from tfpipe.trace.analysis import analyze_path, analyze_trace
from tfpipe.trace.compare import compare
from tfpipe.trace.locate import find_session


def waiting(step_ms: float, wait_ms: float, *, clock_ns: int = 0) -> Trace:
    """Three steps that each wait for a map."""
    trace = Trace()
    python = trace.host.line("python", timestamp_ns=clock_ns)
    steps(python, [place * step_ms for place in range(3)], step_ms)
    for place in range(3):
        at = place * step_ms
        python.add("IteratorGetNextOp::DoCompute", at, wait_ms, id=9)
        python.add("Iterator::Root", at, wait_ms, id=1)
        python.add("Iterator::Root::Map", at, wait_ms, id=2, parent_id=1)
    return trace


def session(logs: Path, name: str, **hosts: Trace) -> Path:
    for host, trace in hosts.items():
        trace.write(logs / "plugins" / "profile" / name, host)
    return logs / "plugins" / "profile" / name


class TestLocate:
    def test_the_newest_session_of_a_log_directory(self, tmp_path: Path) -> None:
        old = session(tmp_path, "2026_01_01_00_00_00", vm=waiting(10, 1))
        session(tmp_path, "2026_01_02_00_00_00", vm=waiting(10, 5))
        os.utime(old / "vm.xplane.pb", (1, 1))
        found = analyze_path(tmp_path)
        assert found.main.session == "2026_01_02_00_00_00"
        assert found.other_sessions == ("2026_01_01_00_00_00",)
        assert analyze_path(tmp_path, session="2026_01_01_00_00_00").main.input_fraction == pytest.approx(0.1)

    @pytest.mark.parametrize(
        "start", ["", "train", "train/plugins", "train/plugins/profile", "train/plugins/profile/s"]
    )
    def test_any_directory_on_the_way_will_do(self, tmp_path: Path, start: str) -> None:
        session(tmp_path / "train", "s", vm=waiting(10, 1))
        assert find_session(tmp_path / start).name == "s"

    def test_other_files_of_the_profiler_are_no_traces(self, tmp_path: Path) -> None:
        where = session(tmp_path, "s", vm=waiting(10, 1))
        (where / "ALL_HOSTS.op_stats_v2.pb").write_bytes(b"x")
        assert [path.name for path in find_session(tmp_path).files] == ["vm.xplane.pb"]

    def test_what_is_missing_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="does not exist"):
            find_session(tmp_path / "nowhere")
        with pytest.raises(UsageError, match="no trace"):
            find_session(tmp_path)
        session(tmp_path, "s", vm=waiting(10, 1))
        with pytest.raises(UsageError, match="no session 't'") as raised:
            find_session(tmp_path, "t")
        assert raised.value.hint == "It has: s."
        with pytest.raises(UsageError, match="no host 'w'") as raised:
            analyze_path(tmp_path, host="w")
        assert raised.value.hint == "It has: vm."
        with pytest.raises(UsageError, match="--session needs a directory"):
            find_session(tmp_path / "plugins/profile/s/vm.xplane.pb", "s")

    def test_a_directory_of_old_traces(self, tmp_path: Path) -> None:
        (tmp_path / "vm.trace.json.gz").write_bytes(b"x")
        with pytest.raises(DataError, match="only JSON traces"):
            find_session(tmp_path)


class TestHosts:
    def test_of_three_hosts_the_slow_one_is_shown(self, tmp_path: Path) -> None:
        """Their clocks differ by days: each host is judged by its own."""
        session(
            tmp_path,
            "s",
            a=waiting(100, 2),
            b=waiting(180, 90, clock_ns=10**14),
            c=waiting(100, 3, clock_ns=10**15),
        )
        found = analyze_path(tmp_path)
        assert found.main.host == "b"
        assert [(row.host, row.step_s) for row in found.hosts] == [
            ("a", pytest.approx(0.1)), ("b", pytest.approx(0.18)), ("c", pytest.approx(0.1)),
        ]  # fmt: skip
        assert found.main.findings[0].code == "slow-host"
        assert "1.80 times" in found.main.findings[0].evidence
        assert found.hosts[1].bottleneck == "Map"

    def test_hosts_that_are_alike_have_no_slow_one(self, tmp_path: Path) -> None:
        session(tmp_path, "s", a=waiting(100, 2), b=waiting(101, 2))
        assert "slow-host" not in [finding.code for finding in analyze_path(tmp_path).main.findings]

    def test_one_host_can_be_chosen(self, tmp_path: Path) -> None:
        session(tmp_path, "s", a=waiting(100, 2), b=waiting(180, 90))
        found = analyze_path(tmp_path, host="a")
        assert (found.main.host, found.hosts) == ("a", ())
        assert analyze_trace(tmp_path, host="a") == found.main


class TestCompare:
    def test_what_changed(self, tmp_path: Path) -> None:
        waiting(100, 50).write(tmp_path, "before")
        waiting(60, 6).write(tmp_path, "after")
        found = compare(*(analyze_path(tmp_path / f"{name}.xplane.pb") for name in ("before", "after")))
        assert found.statement == (
            "A step went from 100 ms to 60.0 ms (1.67 times as fast); waiting for input from 50 % to 10 % of it."
        )
        changes = {change.name: (change.before, change.after) for change in found.split}
        assert changes["step_s"] == (pytest.approx(0.1), pytest.approx(0.06))
        assert changes["input_wait_s"] == (pytest.approx(0.05), pytest.approx(0.006))
        stages = {change.name: (change.before, change.after) for change in found.stages}
        assert stages["Root::Map"] == (pytest.approx(0.05), pytest.approx(0.006))

    def test_a_stage_that_only_one_has(self, tmp_path: Path) -> None:
        waiting(100, 50).write(tmp_path, "before")
        other = Trace()
        python = other.host.line("python")
        steps(python, [0], 10)
        python.add("IteratorGetNextOp::DoCompute", 0, 5, id=9)
        python.add("Iterator::Root", 0, 5, id=1)
        other.write(tmp_path, "after")
        found = compare(*(analyze_path(tmp_path / f"{name}.xplane.pb") for name in ("before", "after")))
        assert {change.name: change.after for change in found.stages}["Root::Map"] is None
