"""What a candidate will hold in memory, before it runs: a sum of named parts, shown as arithmetic. Pure.

Each part has what it surely comes to hold and the most that it may grow to. Sizes are those of TensorFlow 2.21's
tf.data on Linux; ``tests/bench/bench_memory.py`` compares forecast and growth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tfpipe.settings import PipelineSettings
from tfpipe.units import format_bytes

# A buffered element beside its data: tensor, shape, allocation. Measured with int64 scalars and shared rows, 40,000 of
# them in a shuffle buffer: 114 to 207 bytes each.
ELEMENT_OVERHEAD_BYTES = 200
# glibc's aligned allocation does not find the gaps that other aligned blocks left, so that a buffer of tensors grows
# while it turns over: a shuffle buffer took 1.0 times its content when filled, 1.4 after one turn, 2.0 after four.
FRAGMENTATION = 2
# A row of an array in memory is copied unless it lies on this boundary, tf.data's (EIGEN_MAX_ALIGN_BYTES of the build;
# measured: rows of 32, 48 and 96 bytes are copied, of 3,072, 3,136 and 150,528 are not).
ALIGNMENT_BYTES = 64
# An iterator's own graph, functions, threads and their stacks: measured 4 to 6 MB in a process that has had one before.
PIPELINE_BYTES = 4 * 2**20
# What malloc keeps in reserve for each thread that ran a map function: measured 2 MB.
THREAD_BYTES = 2 * 2**20
# An element in a cache on disk beside its data: its entries in the file's index, measured 26 bytes for each tensor of
# it; room for four.
DISK_ELEMENT_BYTES = 104
# What a map function needs for the moment, in outputs of one call: measured 5 for a padded, gathered and scaled batch.
TEMPORARIES = 5
# AUTOTUNE's share of the memory that is free when an iterator is made (kRamBudgetShare in tensorflow/core/framework/
# model.h). It knows nothing of a cgroup's limit.
AUTOTUNE_SHARE = 0.5
# The loop holds its batch until it has the next one.
BATCHES_IN_HAND = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One term of the sum.

    ``size_bytes`` is what it surely holds, ``high_bytes`` the most it may come to, None when that is not known;
    ``words`` is its arithmetic for people; ``flag`` is the option that makes it smaller.
    """

    name: str
    size_bytes: int
    high_bytes: int | None
    words: str
    flag: str | None = None

    @property
    def arithmetic(self) -> str:
        """The part as ``name: words = bytes``."""
        return f"{self.name}: {self.words} = {format_bytes(self.size_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryForecast:
    """A candidate's memory. Parts without a size are left out.

    ``resident_bytes`` is the process before. ``rewriting_bytes`` are there only while the iterator is made, when no
    buffer is filled yet, so they count where they are more than the parts.
    """

    resident_bytes: int
    rewriting_bytes: int
    parts: tuple[Part, ...]

    @property
    def buffered_bytes(self) -> int:
        """The sum of the parts, which the candidate surely adds once its buffers are full."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def growth_bytes(self) -> int:
        """What the candidate surely adds at its highest moment."""
        return max(self.rewriting_bytes, self.buffered_bytes)

    @property
    def total_bytes(self) -> int:
        """What the process surely comes to hold."""
        return self.resident_bytes + self.growth_bytes

    @property
    def high_bytes(self) -> int | None:
        """The most that the process may come to hold; None when a part's most is unknown."""
        high = 0
        for part in self.parts:
            if part.high_bytes is None:
                return None
            high += part.high_bytes
        return self.resident_bytes + max(self.rewriting_bytes, high)

    @property
    def arithmetic(self) -> str:
        """The sum in words and units, one line."""
        if self.rewriting_bytes > self.buffered_bytes:
            terms = [
                f"a copy of the arrays while TensorFlow rewrites the pipeline: {format_bytes(self.rewriting_bytes)}"
            ]
        else:
            terms = [part.arithmetic for part in self.parts]
        terms.append(f"resident before: {format_bytes(self.resident_bytes)}")
        return "; ".join(terms) + f"; together {format_bytes(self.total_bytes)}"


def forecast_memory(
    settings: PipelineSettings,
    *,
    examples: int,
    example_bytes: int,
    mapped_example_bytes: int,
    batch_size: int,
    cores: int,
    resident_bytes: int,
    shared_bytes: int = 0,
    array_bytes: int = 0,
    autotune_budget_bytes: int | None = None,
    others: Sequence[Part] = (),
) -> MemoryForecast:
    """The forecast for ``settings``.

    Args:
        examples: examples per epoch, which a buffer never exceeds.
        example_bytes: one raw example.
        mapped_example_bytes: one example as the step gets it.
        cores: threads of tf.data's pool, AUTOTUNE's limit, unless ``settings.threadpool`` says otherwise.
        resident_bytes: the process before the candidate, with data, step and TensorFlow.
        shared_bytes: how much of ``example_bytes`` a buffered example only points to; see ``shared_row_bytes``.
        array_bytes: tensors in memory that the pipeline reads. TensorFlow's rewrites copy them once for a moment
            while an iterator is made (measured: 1.0 times; nothing with rewrites off).
        autotune_budget_bytes: what AUTOTUNE may give to buffers: AUTOTUNE_SHARE of free memory; None when unknown.
        others: stages that no setting describes: ``cache_part``, ``interleave_part``, ``array_part``.
    """
    batch_bytes = batch_size * mapped_example_bytes
    buffer = examples if settings.shuffle_buffer == "full" else min(settings.shuffle_buffer, examples)
    parts = [
        shuffle_part(buffer, example_bytes=example_bytes, shared_bytes=shared_bytes),
        _calls_part(
            settings,
            example_bytes=example_bytes,
            mapped_example_bytes=mapped_example_bytes,
            batch_size=batch_size,
            cores=cores,
        ),
        _prefetch_part(settings, batch_bytes, autotune_budget_bytes),
        _buffer_part("in hand", BATCHES_IN_HAND, "batch", batch_bytes, flag="--batch-size"),
        _threads_part(
            settings,
            call_bytes=batch_bytes if settings.order == "batch-map" else mapped_example_bytes,
            cores=cores,
        ),
        *others,
    ]
    return MemoryForecast(
        resident_bytes=resident_bytes,
        rewriting_bytes=array_bytes if settings.rewrites == "default" else 0,
        parts=tuple(part for part in parts if part.size_bytes),
    )


def fits(forecast: MemoryForecast, limit_bytes: int) -> str | None:
    """Why the forecast cannot stay within ``limit_bytes`` of resident memory, with the arithmetic; None when it can.

    Only what a candidate surely holds counts: what AUTOTUNE may add, it adds within its own budget.
    """
    if forecast.total_bytes <= limit_bytes:
        return None
    message = (
        f"It needs at least {format_bytes(forecast.total_bytes)} where {format_bytes(limit_bytes)} are to be had "
        f"({forecast.arithmetic})."
    )
    if forecast.rewriting_bytes > forecast.buffered_bytes:
        return f"{message} Use --rewrites off, which makes no such copy, or a machine with more memory."
    largest = max(forecast.parts, key=lambda part: part.size_bytes)
    if largest.flag is None:
        return f"{message} Free some memory, or use a machine with more."
    return f"{message} Use a smaller {largest.flag}, or a machine with more memory."


# --- parts -------------------------------------------------------------------------------------------------


def shuffle_part(buffer: int, *, example_bytes: int, shared_bytes: int = 0) -> Part:
    """A shuffle buffer of ``buffer`` examples, of whose bytes ``shared_bytes`` each lie in the source's array."""
    each_bytes = example_bytes - shared_bytes + ELEMENT_OVERHEAD_BYTES
    shared = f" ({format_bytes(shared_bytes)} more of each lie in the array)" if shared_bytes else ""
    return _buffer_part("shuffle buffer", buffer, "example", each_bytes, note=shared, flag="--shuffle-buffer")


def shared_row_bytes(row_bytes: int) -> int:
    """How much of a row of an array in memory a slice shares: all of it, or nothing when it lies off the boundary."""
    return row_bytes if row_bytes % ALIGNMENT_BYTES == 0 else 0


def cache_part(elements: int, element_bytes: int) -> Part:
    """``cache()`` in memory once it is complete."""
    return _buffer_part("cache", elements, "element", element_bytes + ELEMENT_OVERHEAD_BYTES)


def place_cache(
    elements: int, element_bytes: int, *, resident_bytes: int, memory_bytes: int | None, disk_bytes: int
) -> tuple[Literal["memory", "disk"] | None, str]:
    """Where a cache that is added can be, memory first, and the arithmetic of where it cannot; None for nowhere.

    Args:
        resident_bytes: the process before.
        memory_bytes: how large it may become; None for any size.
        disk_bytes: free where temporary files are.
    """
    part = cache_part(elements, element_bytes)
    held = MemoryForecast(resident_bytes=resident_bytes, rewriting_bytes=0, parts=(part,))
    if memory_bytes is None or held.total_bytes <= memory_bytes:
        return "memory", ""
    no_memory = (
        f"In memory it needs {format_bytes(held.total_bytes)} where {format_bytes(memory_bytes)} are to be had "
        f"({held.arithmetic})."
    )
    each_bytes = element_bytes + DISK_ELEMENT_BYTES
    on_disk = f"{_times(elements, 'element', each_bytes)} = {format_bytes(elements * each_bytes)}"
    if elements * each_bytes <= disk_bytes:
        return "disk", f"{no_memory} It is tried on disk: {on_disk}, where {format_bytes(disk_bytes)} are free."
    return None, f"{no_memory} Nor does it fit on disk: {on_disk}, where {format_bytes(disk_bytes)} are free."


def interleave_part(cycle_length: int, inner_bytes: int) -> Part:
    """``interleave`` over ``cycle_length`` inner pipelines, each with buffers of ``inner_bytes``."""
    return _buffer_part("interleave", cycle_length, "inner pipeline", inner_bytes)


def array_part(array_bytes: int) -> Part:
    """A NumPy array that ``from_tensor_slices`` copies; nothing for one that is a tensor on the CPU already.

    Add it to ``forecast_memory``'s ``array_bytes`` too: the copy is copied while the iterator is made.
    """
    return Part(name="arrays", size_bytes=array_bytes, high_bytes=array_bytes, words=_times(1, "copy", array_bytes))


def _buffer_part(
    name: str, count: int, unit: str, each_bytes: int, *, most: int = 0, note: str = "", flag: str | None = None
) -> Part:
    """``count`` tensors of ``each_bytes``, ``most`` if that is more, in memory that fragments."""
    return Part(
        name=name,
        size_bytes=count * each_bytes,
        high_bytes=FRAGMENTATION * max(count, most) * each_bytes,
        words=_times(count, unit, each_bytes) + note,
        flag=flag,
    )


def _prefetch_part(settings: PipelineSettings, batch_bytes: int, budget_bytes: int | None) -> Part:
    if settings.prefetch_depth != "auto":
        return _buffer_part("prefetch", settings.prefetch_depth, "batch", batch_bytes, flag="--prefetch")
    # AUTOTUNE begins with one batch and deepens while the buffer runs empty and its budget lasts.
    return Part(
        name="prefetch",
        size_bytes=batch_bytes,
        high_bytes=None if budget_bytes is None else max(batch_bytes, budget_bytes),
        words=f"AUTOTUNE from {_times(1, 'batch', batch_bytes)}",
        flag="--prefetch",
    )


def _calls_part(
    settings: PipelineSettings, *, example_bytes: int, mapped_example_bytes: int, batch_size: int, cores: int
) -> Part:
    """What the stages of map and batch hold: results that wait, and one unfinished result per running call."""
    calls, most_calls = _calls(settings, cores)
    batch_bytes = batch_size * mapped_example_bytes
    if settings.order == "batch-map":
        # A call works on a whole batch, whose raw form it keeps until it is done.
        unit, each_bytes = "batch", batch_bytes + batch_size * example_bytes
        least, most = max(1, calls), max(1, most_calls)
    elif settings.rewrites == "default":
        # Fused into MapAndBatch, whose calls write into batches: as many as all calls together can be at work on,
        # and one that is complete (tensorflow/core/kernels/data/experimental/map_and_batch_dataset_op.cc).
        unit, each_bytes = "batch", batch_bytes
        least, most = math.ceil(calls / batch_size) + 1, math.ceil(most_calls / batch_size) + 1
    else:
        # One result per call, and the batch that they are copied into.
        unit, each_bytes = "example", mapped_example_bytes
        least, most = calls + batch_size, most_calls + batch_size
    return _buffer_part("map and batch", least, unit, each_bytes, most=most, flag="--map-parallelism")


def _threads_part(settings: PipelineSettings, *, call_bytes: int, cores: int) -> Part:
    """The pipeline itself, and at most what its running calls need for the moment."""
    running = max(1, min(_calls(settings, cores)[1], settings.threadpool or cores))
    return Part(
        name="threads and graph",
        size_bytes=PIPELINE_BYTES,
        high_bytes=FRAGMENTATION * PIPELINE_BYTES + running * (THREAD_BYTES + TEMPORARIES * call_bytes),
        words=_times(1, "pipeline", PIPELINE_BYTES),
    )


def _calls(settings: PipelineSettings, cores: int) -> tuple[int, int]:
    """The least and most parallel calls: AUTOTUNE's range ends at the pool; a serial map is 0 calls."""
    if isinstance(settings.map_parallelism, int):
        return settings.map_parallelism, settings.map_parallelism
    if settings.map_parallelism == "auto" or settings.rewrites == "default":
        return 1, settings.threadpool or cores
    return 0, 0


def _times(count: int, unit: str, each_bytes: int) -> str:
    plural = {"batch": "batches", "copy": "copies"}.get(unit, f"{unit}s")
    return f"{count:,} {unit if count == 1 else plural} x {format_bytes(each_bytes)}"
