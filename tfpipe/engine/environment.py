"""What the machine is: read once per run, kept with the numbers."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket

import psutil
import tensorflow as tf

from tfpipe.conditions import usable_cores
from tfpipe.records import Device, Environment

# Variables that change what TensorFlow runs or how fast.
FLAG_PREFIXES = ("TF_", "XLA_", "OMP_", "KMP_", "CUDA_VISIBLE_DEVICES", "KERAS_BACKEND")


def read_environment() -> Environment:
    """The versions, the machine and its devices."""
    return Environment(
        python=platform.python_version(),
        tensorflow=tf.__version__,
        keras=importlib.metadata.version("keras"),
        platform=platform.platform(),
        hostname=socket.gethostname(),
        cpu_model=_cpu_model(),
        cores=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        devices=tuple(_device(device) for device in tf.config.list_physical_devices()),
        flags={name: value for name, value in sorted(os.environ.items()) if name.startswith(FLAG_PREFIXES)},
    )


def has_accelerator() -> bool:
    """Whether TensorFlow sees anything but CPUs."""
    return any(device.device_type != "CPU" for device in tf.config.list_physical_devices())


def _device(device: tf.config.PhysicalDevice) -> Device:
    details = tf.config.experimental.get_device_details(device) if device.device_type != "CPU" else {}
    return Device(
        name=device.name, kind=device.device_type, description=details.get("device_name", "") or device.device_type
    )


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
