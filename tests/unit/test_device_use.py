from __future__ import annotations

import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tfpipe.engine.device_use import NvmlMeter, ProcessCpuMeter, Reading, ThreadSampler, open_sampler, summarise
from tfpipe.records import Device, DeviceUse

CPU = Device(name="/physical_device:CPU:0", kind="CPU", description="CPU")
GPU = Device(name="/physical_device:GPU:0", kind="GPU", description="NVIDIA H200")


class FakeNvml:
    """NVIDIA's library as ``pynvml`` shows it, of a machine with the GPUs ``names``.

    The functions in ``refused`` raise, as they do for a GPU or a user that may not use them.
    """

    class NVMLError(Exception):
        def __str__(self) -> str:
            return "Not Supported"

    def __init__(self, *names: str, refused: Sequence[str] = ()) -> None:
        self.names = names or ("NVIDIA H200",)
        self.refused = set(refused)
        self.percents = iter(range(10, 100, 10))

    def _answer(self, function: str) -> None:
        if function in self.refused:
            raise self.NVMLError

    def nvmlInit(self) -> None:
        self._answer("nvmlInit")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        if index >= len(self.names):
            raise self.NVMLError
        return SimpleNamespace(index=index)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        return SimpleNamespace(index=uuid)

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return self.names[handle.index]

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        self._answer("nvmlDeviceGetUtilizationRates")
        return SimpleNamespace(gpu=next(self.percents), memory=5)

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        self._answer("nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(total=2**37, free=2**37 - 2**30, used=2**30)

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        self._answer("nvmlDeviceGetPowerUsage")
        return 350_000


FAKED = [name for name in vars(FakeNvml) if name.startswith("nvml")]


@pytest.mark.parametrize("name", FAKED)
def test_the_fake_has_the_real_librarys_functions(name: str) -> None:
    pynvml = pytest.importorskip("pynvml")
    fake = inspect.signature(getattr(FakeNvml(), name))
    real = inspect.signature(getattr(pynvml, name))
    assert [(p.name, p.kind, p.default) for p in fake.parameters.values()] == [
        (p.name, p.kind, p.default) for p in real.parameters.values()
    ]


def test_the_fake_answers_with_the_real_librarys_fields() -> None:
    pynvml = pytest.importorskip("pynvml")
    handle = FakeNvml().nvmlDeviceGetHandleByIndex(0)
    for structure, answer in [
        (pynvml.c_nvmlUtilization_t, FakeNvml().nvmlDeviceGetUtilizationRates(handle)),
        (pynvml.c_nvmlMemory_t, FakeNvml().nvmlDeviceGetMemoryInfo(handle)),
    ]:
        assert {name for name, _ in structure._fields_} == set(vars(answer))
    assert issubclass(pynvml.NVMLError, Exception)


def test_the_code_calls_nothing_that_the_fake_has_not() -> None:
    import ast

    from tfpipe.engine import device_use

    called = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(device_use)))
        if isinstance(node, ast.Attribute) and node.attr.lower().startswith("nvml")
    }
    assert called == {*FAKED, "NVMLError"}


# --- what is read ------------------------------------------------------------------------------------------------


def test_a_gpu_tells_use_memory_and_power() -> None:
    meter = NvmlMeter(FakeNvml(), "NVIDIA H200")
    # The first answer, 10 %, was the trial that there is one.
    assert [meter.read(), meter.read()] == [
        Reading(fraction=0.2, memory_bytes=2**30, power_w=350.0),
        Reading(fraction=0.3, memory_bytes=2**30, power_w=350.0),
    ]


def test_what_a_gpu_does_not_tell_is_unknown() -> None:
    nvml = FakeNvml(refused=("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPowerUsage"))
    meter = NvmlMeter(nvml, "NVIDIA H200")
    assert meter.read() == Reading(fraction=0.2)
    nvml.refused.add("nvmlDeviceGetUtilizationRates")
    assert meter.read() is None


@pytest.mark.parametrize(
    ("visible", "index"),
    [("", 1), ("1", 1), ("1,0", 1), ("0", 1), ("2", 2), ("GPU-1234", "GPU-1234"), ("MIG-1234", "MIG-1234")],
)
def test_the_gpu_is_the_first_visible_one_of_tensorflows_name(
    visible: str, index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML's number 0 is CUDA's 0 only where CUDA's name for it says so."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    asked = []

    class Asked(FakeNvml):
        def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
            asked.append(handle.index)
            return super().nvmlDeviceGetUtilizationRates(handle)

    NvmlMeter(Asked("Quadro P400", "NVIDIA H200", "NVIDIA H200"), "NVIDIA H200")
    assert asked == [index]


def test_a_processs_use_is_its_cpu_time_over_that_of_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfpipe.engine.device_use.cores", lambda: 2.0)
    times, cpu_times = iter([0.0, 10.0, 12.0, 14.0, 14.0]), iter([0.0, 5.0, 8.0, 8.5, 8.5])
    meter = ProcessCpuMeter(clock=lambda: next(times), cpu_clock=lambda: next(cpu_times))
    meter.begin()
    assert meter.read() == Reading(fraction=0.75)
    assert meter.read() == Reading(fraction=0.125)
    assert meter.read() is None, "no time went by"


def test_mean_and_deviation() -> None:
    readings = [
        Reading(fraction=0.25, memory_bytes=5, power_w=100.0),
        Reading(fraction=0.5, memory_bytes=9, power_w=None),
        Reading(fraction=0.75, memory_bytes=7, power_w=200.0),
    ]
    assert summarise("nvml", readings) == DeviceUse(
        source="nvml", mean_fraction=0.5, deviation_fraction=0.25, samples=3, memory_bytes=9, power_w=150.0
    )
    assert summarise("process-cpu", readings[1:2]) == DeviceUse(
        source="process-cpu", mean_fraction=0.5, deviation_fraction=0.0, samples=1, memory_bytes=9
    )
    assert summarise("nvml", []) is None


# --- the sampler -------------------------------------------------------------------------------------------------


class Counting:
    """A meter that gives 0, 1, 2 ... and then, from ``ends`` on, no answer."""

    source = "process-cpu"

    def __init__(self, ends: int = 10**9) -> None:
        self.reads, self.ends = 0, ends
        self.read_enough = threading.Event()

    def begin(self) -> None:
        self.reads = 0

    def read(self) -> Reading | None:
        self.reads += 1
        if self.reads > 3:
            self.read_enough.set()
        return Reading(fraction=float(self.reads)) if self.reads <= self.ends else None


def sampling_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tfpipe-device-use"]


def test_it_samples_until_it_is_stopped_and_can_start_again() -> None:
    meter = Counting()
    sampler = ThreadSampler(meter, interval_s=0.001)
    for _ in range(2):
        meter.read_enough.clear()
        sampler.start()
        (thread,) = sampling_threads()
        assert thread.daemon, "it never keeps the process alive"
        assert meter.read_enough.wait(30)
        use = sampler.stop()
        assert use is not None
        assert use.samples == meter.reads >= 4
        assert not sampling_threads(), "it never outlives the block"


def test_a_block_shorter_than_an_interval_has_one_sample() -> None:
    sampler = ThreadSampler(Counting(), interval_s=3600.0)
    sampler.start()
    begin = time.monotonic()
    use = sampler.stop()
    assert use is not None
    assert (use.samples, use.mean_fraction) == (1, 1.0)
    assert time.monotonic() - begin < 60, "stopping waits for no interval"


def test_a_device_that_stops_answering_ends_the_samples() -> None:
    meter = Counting(ends=2)
    sampler = ThreadSampler(meter, interval_s=0.001)
    sampler.start()
    sampling_threads()[0].join(30)
    use = sampler.stop()
    assert use is not None
    assert use.samples == 2
    silent = ThreadSampler(Counting(ends=0), interval_s=0.001)
    silent.start()
    assert silent.stop() is None


def test_stopping_what_was_never_started_is_nothing() -> None:
    assert ThreadSampler(Counting()).stop() is None


def test_a_process_ends_although_it_samples() -> None:
    code = (
        "from tfpipe.engine.device_use import ProcessCpuMeter, ThreadSampler\n"
        "ThreadSampler(ProcessCpuMeter(), interval_s=0.01).start()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- which meter -------------------------------------------------------------------------------------------------


def test_without_a_gpu_the_process_is_sampled_and_nothing_is_missed() -> None:
    sampler, note = open_sampler([CPU])
    sampler.start()
    use = sampler.stop()
    assert use is not None
    assert (use.source, note) == ("process-cpu", None)


def test_with_a_gpu_it_is_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())  # type: ignore[arg-type]
    sampler, note = open_sampler([CPU, GPU])
    sampler.start()
    use = sampler.stop()
    assert use is not None
    assert (use.source, use.power_w, note) == ("nvml", 350.0, None)


@pytest.mark.parametrize("refused", ["nvmlInit", "nvmlDeviceGetUtilizationRates"])
def test_a_gpu_that_cannot_be_read_is_a_note(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(refused=[refused]))  # type: ignore[arg-type]
    sampler, note = open_sampler([CPU, GPU])
    assert note is not None
    assert note.endswith("stands in for it: NVML says 'Not Supported'.")
    sampler.start()
    use = sampler.stop()
    assert use is not None
    assert use.source == "process-cpu"


def test_a_missing_package_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    _, note = open_sampler([CPU, GPU])
    assert note is not None
    assert "pip install 'tfpipe[gpu]'" in note


def test_the_real_library_reads_a_gpu_or_says_why_not() -> None:
    pytest.importorskip("pynvml")
    sampler, note = open_sampler([CPU, GPU])
    sampler.start()
    use = sampler.stop()
    assert use is not None
    assert (use.source == "nvml") is (note is None)
