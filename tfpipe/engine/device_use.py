"""How busy the device is while steps run: a GPU by NVIDIA's NVML, else this process's share of the processors.

A thread reads a meter a few times a second; nothing here imports TensorFlow, and NVML only where there is a GPU.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tfpipe.conditions import cores
from tfpipe.records import Device, DeviceUse

# NVML's utilisation is an average over 1/6 to 1 s, depending on the GPU (NVML's reference for
# nvmlDeviceGetUtilizationRates): reading it more often says nothing new. For a process it is ten periods of a CPU
# quota a second (cpu.cfs_period_us, 100 ms by default).
INTERVAL_S = 0.1
# A last sample of less time than this share of an interval is left out where there are others.
SHORTEST = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """``fraction`` of the device in use, since the last reading or as the device averages it; the rest where known."""

    fraction: float
    memory_bytes: int | None = None
    power_w: float | None = None


class Meter(Protocol):
    """Reads the use of one device."""

    @property
    def source(self) -> Literal["nvml", "process-cpu"]: ...

    def begin(self) -> None:
        """What is read next counts from now on."""
        ...

    def read(self) -> Reading | None:
        """The use now; None when the device does not answer any more."""
        ...


class ThreadSampler:
    """Reads ``meter`` every ``interval_s`` seconds in a thread between ``start`` and ``stop``, which ends the thread.

    A sampler can be started again after it was stopped. The thread never keeps the process alive.
    """

    def __init__(self, meter: Meter, *, interval_s: float = INTERVAL_S) -> None:
        self.meter = meter
        self._interval_s = interval_s
        self._readings: list[Reading] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._read_at = 0.0

    def start(self) -> None:
        self._readings = []
        self._stop.clear()
        self._read_at = time.perf_counter()
        self.meter.begin()
        self._thread = threading.Thread(target=self._run, name="tfpipe-device-use", daemon=True)
        self._thread.start()

    def stop(self) -> DeviceUse | None:
        """End the thread; the mean of its samples and their standard deviation, None without a sample."""
        if self._thread is None:
            return None
        self._stop.set()
        self._thread.join()
        self._thread = None
        if not self._readings or time.perf_counter() - self._read_at > SHORTEST * self._interval_s:
            self._read()
        return summarise(self.meter.source, self._readings)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s) and self._read():
            pass

    def _read(self) -> bool:
        reading = self.meter.read()
        self._read_at = time.perf_counter()
        if reading is not None:
            self._readings.append(reading)
        return reading is not None


def summarise(source: Literal["nvml", "process-cpu"], readings: Sequence[Reading]) -> DeviceUse | None:
    """Mean use and its sample standard deviation (0 for one reading), the most memory, the mean power."""
    if not readings:
        return None
    fractions = [reading.fraction for reading in readings]
    memory = [reading.memory_bytes for reading in readings if reading.memory_bytes is not None]
    power = [reading.power_w for reading in readings if reading.power_w is not None]
    return DeviceUse(
        source=source,
        mean_fraction=statistics.fmean(fractions),
        deviation_fraction=statistics.stdev(fractions) if len(fractions) > 1 else 0.0,
        samples=len(readings),
        memory_bytes=max(memory, default=None),
        power_w=statistics.fmean(power) if power else None,
    )


def open_sampler(devices: Sequence[Device]) -> tuple[ThreadSampler, str | None]:
    """The sampler for what the step runs on: the first GPU that TensorFlow has, else the processors.

    Where a GPU cannot be read, the processors are, and the second value says why.
    """
    gpu = next((device for device in devices if device.kind == "GPU"), None)
    if gpu is None:
        return ThreadSampler(ProcessCpuMeter()), None
    try:
        import pynvml
    except ImportError:
        return ThreadSampler(ProcessCpuMeter()), (
            "The GPU's use is not known, and the process's CPU use stands in for it: nvidia-ml-py is not installed "
            "(pip install 'tfpipe[gpu]')."
        )
    try:
        return ThreadSampler(NvmlMeter(pynvml, gpu.description)), None
    except pynvml.NVMLError as error:
        return ThreadSampler(ProcessCpuMeter()), (
            f"The GPU's use is not known, and the process's CPU use stands in for it: NVML says {str(error)!r}."
        )


class ProcessCpuMeter:
    """CPU time of this process, over the time that all its cores had."""

    source: Literal["process-cpu"] = "process-cpu"

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._cores = cores()
        self.begin()

    def begin(self) -> None:
        self._at_s, self._cpu_s = self._clock(), self._cpu_clock()

    def read(self) -> Reading | None:
        at_s, cpu_s = self._at_s, self._cpu_s
        self.begin()
        elapsed_s = self._at_s - at_s
        return Reading(fraction=(self._cpu_s - cpu_s) / (elapsed_s * self._cores)) if elapsed_s > 0 else None


class NvmlMeter:
    """One GPU, by NVML.

    Args:
        nvml: the module ``pynvml``.
        gpu_name: what TensorFlow calls the GPU, such as ``NVIDIA H200``.

    Raises:
        nvml.NVMLError: no driver, no such GPU, no rights, or a GPU (a MIG part, say) that does not tell its use.
    """

    source: Literal["nvml"] = "nvml"

    def __init__(self, nvml: Any, gpu_name: str) -> None:
        self._nvml = nvml
        nvml.nvmlInit()
        self._handle = _find_gpu(nvml, gpu_name, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        nvml.nvmlDeviceGetUtilizationRates(self._handle)

    def begin(self) -> None:
        """NVML averages by itself."""

    def read(self) -> Reading | None:
        try:
            percent = self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu
        except self._nvml.NVMLError:
            return None
        memory = self._known(lambda: int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used))
        power_mw = self._known(lambda: int(self._nvml.nvmlDeviceGetPowerUsage(self._handle)))
        return Reading(
            fraction=percent / 100, memory_bytes=memory, power_w=None if power_mw is None else power_mw / 1e3
        )

    def _known(self, read: Callable[[], int]) -> int | None:
        """None for what this GPU does not tell."""
        try:
            return read()
        except self._nvml.NVMLError:
            return None


def _find_gpu(nvml: Any, gpu_name: str, visible: str) -> Any:
    """NVML's handle of CUDA's first visible GPU.

    NVML counts GPUs by their place on the bus, CUDA by speed: with different GPUs in one machine the numbers differ,
    and the name that TensorFlow has from CUDA decides. Raises NVMLError.
    """
    first = visible.partition(",")[0].strip()
    if first.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(first)
    numbered = nvml.nvmlDeviceGetHandleByIndex(int(first) if first.isdecimal() else 0)
    handles = [numbered, *map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))]
    return next((handle for handle in handles if nvml.nvmlDeviceGetName(handle) == gpu_name), numbered)
