"""Pipelines that differ in what holds them up, each with the grid of settings that one would search.

Every factory is a user's pipeline, profiled by reference (``tests/bench/workloads.py:NAME``), serial as people write it
first. ``WORKLOADS`` lists them with the values of their knobs; ``grid_of`` makes the settings once the pipeline's call
sites are known.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe.messages import Workload
from tfpipe.records import Pipeline
from tfpipe.runner.proposals import DETERMINISTIC, POOL, REWRITES
from tfpipe.settings import PipelineSettings
from tfpipe.sites import Axis, OverrideValue, sites_on

Dataset = Any


# --- pipelines -----------------------------------------------------------------------------------------------


def memory_bound(batch_size: int = 32) -> Dataset:
    """Large rows, converted: the bytes cost, not the arithmetic."""
    images = tf.constant(np.random.default_rng(1).integers(0, 256, (256, 160, 160, 3), np.uint8))
    dataset = tf.data.Dataset.from_tensor_slices(images).repeat().shuffle(128)
    dataset = dataset.map(lambda image: tf.cast(image, tf.float32) / 255.0 - 0.5)
    return dataset.batch(batch_size, drop_remainder=True)


def decode_bound(batch_size: int = 16) -> Dataset:
    """JPEGs of 500x375, decoded, cropped at random and flipped."""
    dataset = tf.data.Dataset.from_tensor_slices(_photos()).repeat().shuffle(64)
    dataset = dataset.map(_augmented)
    return dataset.batch(batch_size, drop_remainder=True)


def latency_bound(batch_size: int = 16) -> Dataset:
    """A read of 5 ms for every example that keeps no processor busy."""
    dataset = tf.data.Dataset.range(10**9).map(_read)
    return dataset.batch(batch_size, drop_remainder=True)


def latency_interleaved(batch_size: int = 16) -> Dataset:
    """Sixteen files read in turn, 4 ms for every record."""

    def records(file: tf.Tensor) -> Dataset:
        return tf.data.Dataset.range(10**9).map(lambda record: _slept(file + record, 0.004))

    dataset = tf.data.Dataset.range(16).interleave(records, cycle_length=4)
    return dataset.batch(batch_size, drop_remainder=True)


def python_bound(batch_size: int = 16) -> Dataset:
    """Plain Python for every example, which holds the interpreter's lock."""
    dataset = tf.data.Dataset.range(10**9).map(_spun)
    return dataset.batch(batch_size, drop_remainder=True)


def order_decides(batch_size: int = 1024) -> Dataset:
    """A cheap map on small rows: it costs by the call, and may as well run on batches."""
    rows = tf.constant(np.random.default_rng(1).integers(0, 256, (65_536, 16), np.uint8))
    dataset = tf.data.Dataset.from_tensor_slices(rows).repeat()
    dataset = dataset.map(lambda row: tf.cast(row, tf.float32) / 255.0)
    return dataset.batch(batch_size, drop_remainder=True)


def huge_elements(batch_size: int = 2) -> Dataset:
    """Volumes of 8 MB, normalised each by itself."""
    volumes = tf.constant(np.random.default_rng(1).integers(0, 256, (24, 128, 128, 128), np.uint8))
    dataset = tf.data.Dataset.from_tensor_slices(volumes).repeat()
    dataset = dataset.map(_normalised)
    return dataset.batch(batch_size, drop_remainder=True)


def tiny_elements(batch_size: int = 512) -> Dataset:
    """Numbers, shuffled and jittered one by one: nothing but overhead, and random, so that its order must stay."""
    dataset = tf.data.Dataset.range(100_000).repeat().shuffle(10_000)
    dataset = dataset.map(lambda number: (tf.cast(number, tf.float32) + tf.random.uniform([]), number % 10))
    return dataset.batch(batch_size, drop_remainder=True)


def two_stages(batch_size: int = 16) -> Dataset:
    """A read that waits, then a photo to decode: the first needs calls in flight, the second processors."""
    photos = tf.constant(_photos())
    dataset = tf.data.Dataset.range(10**9).map(_read)
    dataset = dataset.map(lambda number: _decoded(photos[number % len(photos)]))
    return dataset.batch(batch_size, drop_remainder=True)


def slow_now_and_then(batch_size: int = 8) -> Dataset:
    """Every twentieth example takes 40 ms and the others 1: those behind it wait where the order is kept.

    The shuffle keeps TensorFlow from fusing map and batch, where examples of a batch may come in any order.
    """
    dataset = tf.data.Dataset.range(10**9).map(
        lambda number: _slept(number, tf.where(number % 20 == 0, tf.constant(0.04, tf.float64), 0.001))
    )
    return dataset.shuffle(16).batch(batch_size, drop_remainder=True)


@functools.cache
def _photos() -> list[bytes]:
    random = np.random.default_rng(1)
    photos = []
    for _ in range(32):
        coarse = random.uniform(0, 255, (1, 48, 64, 3))
        image = tf.image.resize(coarse, [375, 500], "bicubic")[0] + random.normal(0, 6, (375, 500, 3))
        photos.append(tf.io.encode_jpeg(tf.cast(tf.clip_by_value(image, 0, 255), tf.uint8), quality=90).numpy())
    return photos


def _decoded(photo: tf.Tensor) -> tf.Tensor:
    image = tf.image.resize(tf.io.decode_jpeg(photo, channels=3), [160, 160])
    image.set_shape((160, 160, 3))
    return image / 255.0


def _augmented(photo: tf.Tensor) -> tf.Tensor:
    return tf.image.random_flip_left_right(tf.image.random_crop(_decoded(photo), [144, 144, 3]))


def _normalised(volume: tf.Tensor) -> tf.Tensor:
    volume = tf.cast(volume, tf.float32)
    return (volume - tf.reduce_mean(volume)) / (tf.math.reduce_std(volume) + 1e-3)


def _slept(number: tf.Tensor, seconds: Any) -> tf.Tensor:
    result = tf.numpy_function(_sleep, [number, tf.cast(seconds, tf.float64)], tf.int64)
    result.set_shape(())
    return result


def _read(number: tf.Tensor) -> tf.Tensor:
    return _slept(number, 0.005)


def _spun(number: tf.Tensor) -> tf.Tensor:
    result = tf.numpy_function(_work, [number], tf.int64)
    result.set_shape(())
    return result


# Outside the functions that use them, where AutoGraph would convert them.
def _sleep(value: Any, duration_s: Any) -> Any:
    time.sleep(float(duration_s))
    return value


def _work(value: Any) -> Any:
    total = 0
    for i in range(60_000):
        total += i * i
    return value + (total & 0)


# --- what is searched ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchWorkload:
    """A factory of this module by name, and the values of each knob whose product is its grid.

    ``axes`` are turned at every site of that axis by itself where ``apart``, all together otherwise.
    """

    name: str
    axes: dict[Axis, tuple[OverrideValue, ...]]
    apart: bool = False

    def workload(self, step: str) -> Workload:
        """What the worker is to prepare; ``step`` as on the command line."""
        return Workload(
            dataset=None,
            pipeline=f"{__file__}:{self.name}",
            data_dir=None,
            require_data=False,
            download=False,
            image_size=224,
            batch_size=None,
            step=step,
            width=64,
            seed=1,
        )


CALLS: tuple[OverrideValue, ...] = (None, 1, 2, 4, "auto")
DEPTHS: tuple[OverrideValue, ...] = (0, 1, 2, "auto")
WORKLOADS = (
    BenchWorkload(
        name="memory_bound", axes={"map_parallelism": CALLS, "prefetch_depth": DEPTHS, "rewrites": (True, False)}
    ),
    BenchWorkload(
        name="decode_bound", axes={"map_parallelism": CALLS, "prefetch_depth": DEPTHS, "rewrites": (True, False)}
    ),
    BenchWorkload(
        name="latency_bound",
        axes={"map_parallelism": (None, 2, 4, 8, 16, "auto"), "prefetch_depth": (0, 2), "threadpool": (None, 4, 16)},
    ),
    BenchWorkload(
        name="latency_interleaved",
        axes={
            "cycle_length": (4, 16),
            "interleave_parallelism": (None, 2, 4, 8, "auto"),
            "prefetch_depth": (0, 2),
            "threadpool": (None, 16),
        },
    ),
    BenchWorkload(
        name="python_bound",
        axes={"map_parallelism": CALLS, "prefetch_depth": (0, 2, "auto"), "threadpool": (None, 8)},
    ),
    BenchWorkload(
        name="order_decides",
        axes={"order": ("map-batch", "batch-map"), "map_parallelism": CALLS, "prefetch_depth": DEPTHS},
    ),
    BenchWorkload(
        name="huge_elements", axes={"map_parallelism": CALLS, "prefetch_depth": DEPTHS, "rewrites": (True, False)}
    ),
    BenchWorkload(
        name="tiny_elements",
        axes={"map_parallelism": CALLS, "prefetch_depth": DEPTHS, "shuffle_buffer": (1000, 10_000)},
    ),
    BenchWorkload(
        name="two_stages",
        axes={"map_parallelism": (None, 2, 4, 8, "auto"), "prefetch_depth": (2,), "threadpool": (None, 8)},
        apart=True,
    ),
    BenchWorkload(
        name="slow_now_and_then",
        axes={
            "map_parallelism": (None, 2, 4, 8),
            "prefetch_depth": (0, 1, 8),
            "threadpool": (None, 8),
            "deterministic": (True, False),
        },
    ),
)  # fmt: skip


def named(name: str) -> BenchWorkload:
    return next(workload for workload in WORKLOADS if workload.name == name)


def grid_of(workload: BenchWorkload, pipeline: Pipeline) -> tuple[PipelineSettings, ...]:
    """Every setting of the grid that TensorFlow accepts, the pipeline as it is written first."""
    axes = [list(choices) for axis in workload.axes for choices in _choices(workload, axis, pipeline)]
    seen = {PipelineSettings(overrides=()): None}
    for parts in itertools.product(*axes):
        overrides = {site: value for part in parts for site, value in part.items()}
        if not _refused(overrides, pipeline):
            seen.setdefault(PipelineSettings(overrides=tuple(sorted(overrides.items()))))
    return tuple(seen)


Overrides = dict[str, OverrideValue]
_OPTIONS = {"threadpool": POOL, "deterministic": DETERMINISTIC, "rewrites": REWRITES}


def _choices(workload: BenchWorkload, axis: Axis, pipeline: Pipeline) -> Iterator[list[Overrides]]:
    """For each knob that is turned by itself, what it may be turned to; what is there already is no override."""
    values = workload.axes[axis]
    if axis in _OPTIONS:
        as_is = {"threadpool": None, "deterministic": True, "rewrites": True}[axis]
        yield [{} if value == as_is else {_OPTIONS[axis]: value} for value in values]
        return
    sites = sites_on(axis, pipeline.sites)
    if not sites:
        raise ValueError(f"{workload.name} has no site for {axis}")
    groups = [(site,) for site in sites] if workload.apart else [sites]
    for group in groups:
        yield [
            {site.id: value for site in group if value != (site.value if site.written else _absent(axis))}
            for value in values
        ]


def _absent(axis: Axis) -> OverrideValue:
    return {"prefetch_depth": 0, "order": "map-batch"}.get(axis)


def _refused(overrides: Overrides, pipeline: Pipeline) -> bool:
    """An interleave with more calls than its cycle has files."""
    for calls in sites_on("interleave_parallelism", pipeline.sites):
        cycle = next(s for s in sites_on("cycle_length", pipeline.sites) if s.stage == calls.stage)
        width, number = overrides.get(cycle.id, cycle.value), overrides.get(calls.id)
        if isinstance(width, int) and isinstance(number, int) and number > width:
            return True
    return False
