"""Pipelines whose input wait is known by how they are built, and a run of each exactly as ``tfpipe profile`` does it.

A sleeping map takes a known time and no processor; so does a simulated step. Compositions follow: a serial pipeline
waits for the sum, an overlapped one for the excess of its period over the step's, and one with uneven batches for what
a discrete-event simulation of producer, buffer and consumer says. A producer that works in a row keeps to a timetable
where it can, so that its period is exact whatever tf.data adds. What a sleep really lasts elsewhere, and what tf.data
adds to it, is measured beside every round with a clock of this file's own: the pipeline's one sleeping stage alone, the
step alone, an empty fetch after a step. Nothing that tfpipe computes goes into the truth.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

import msgspec
import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing as tf_data_testing

from tests.unit.machine import prepared, started
from tfpipe.analysis.verdict import INPUT_HIGH, INPUT_MODERATE
from tfpipe.engine.loop import Step, drive, drive_floor
from tfpipe.engine.pipeline import executed_nodes
from tfpipe.engine.steps.none import NoStep
from tfpipe.engine.steps.simulated import SimulatedStep
from tfpipe.messages import (
    CaptureTrace,
    MeasureCapacity,
    Measured,
    MeasureFetchFloor,
    MeasureFloor,
    MeasureStep,
    Prepare,
    Prepared,
    Reply,
    Request,
    Traced,
    Workload,
)
from tfpipe.records import Block, Bound, Candidate, Run
from tfpipe.runner.assemble import assemble_run
from tfpipe.runner.journal import Journal
from tfpipe.runner.profile import Profile
from tfpipe.settings import NamedSettings, PipelineSettings

BATCH_SIZE = 8
MS = 1e-3
# A value this many times the median is a pause of the machine.
PAUSE = 3.0
# A producer that works in a row is calibrated beside a step of this share of the case's own, so that it is waited for.
NEARLY = 0.9
# What each calibration beside a round lasts, at least.
CALIBRATE_S = 0.3
CALIBRATE_COUNT = 5
Dataset = Any


# --- the parts of pipelines ----------------------------------------------------------------------------------


class Pace:
    """Sleeps whose mean is exact: what one call overslept, the next sleeps less."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owed_s = 0.0

    def sleep(self, seconds: float) -> None:
        with self._lock:
            wanted_s, self._owed_s = seconds - self._owed_s, 0.0
        begin = time.perf_counter()
        if wanted_s > 0:
            time.sleep(wanted_s)
        overslept_s = time.perf_counter() - begin - wanted_s
        with self._lock:
            # No more than one sleep is made up for: after a long pause of the machine there is no burst.
            self._owed_s = min(self._owed_s + overslept_s, seconds)


class Timetable:
    """Sleeps of ``calls`` at a time whose results come at exact times while they follow one another: each is due
    ``seconds`` after the one ``calls`` before it, whatever passed between the two."""

    def __init__(self, calls: int) -> None:
        self._lock = threading.Lock()
        self._due = deque([-math.inf] * calls, maxlen=calls)

    def sleep(self, seconds: float) -> None:
        with self._lock:
            now = time.perf_counter()
            due = self._due[0] + seconds
            # Late by more than a whole sleep: it was not asked for in time, or the machine paused.
            if due < now - seconds:
                due = now + seconds
            self._due.append(due)
        time.sleep(max(0.0, due - time.perf_counter()))


def lat(seconds: float | Callable[[int], float]) -> Callable[[Dataset], Dataset]:
    """A map function's body that sleeps, the interpreter's lock released; by element number if a function."""
    pace = Pace()
    seconds_of = seconds if callable(seconds) else lambda number: seconds
    return _python(lambda number: pace.sleep(seconds_of(number)))


def steady(seconds: float, *, calls: int = 1) -> Callable[[Dataset], Dataset]:
    """As ``lat``, for ``calls`` at a time that follow one another: ``calls`` results every ``seconds``, exactly."""
    timetable = Timetable(calls)
    return _python(lambda number: timetable.sleep(seconds))


def _python(sleep: Callable[[int], None]) -> Callable[[Any], Any]:
    def slept(number: Any) -> Any:
        sleep(int(number))
        return number

    def body(number: Any) -> Any:
        result = tf.numpy_function(slept, [number], tf.int64)
        result.set_shape(())
        return result

    return body


def spin(number: Any) -> Any:
    """A map function's body: some milliseconds of Python arithmetic that never lets go of the interpreter's lock."""

    result = tf.numpy_function(_spin, [number], tf.int64)
    result.set_shape(())
    return result


# Outside the function that uses it, where AutoGraph would convert it.
def _spin(value: Any) -> Any:
    total = 0
    for i in range(40_000):
        total += i * i
    return value + (total & 0)


def burn(loops: int) -> Callable[[Any], Any]:
    """A map function's body that keeps one core busy in TensorFlow operations for a time to be calibrated."""

    def body(number: Any) -> Any:
        x = tf.fill((64, 64), tf.cast(number % 7, tf.float32) / 64)
        x = tf.while_loop(lambda i, x: i < loops, lambda i, x: (i + 1, tf.tanh(tf.matmul(x, x))), (0, x))[1]
        return number + tf.cast(tf.reduce_sum(x) * 0, tf.int64)

    return body


def cpp_sleep(seconds: float) -> Callable[[Dataset], Dataset]:
    """A dataset that sleeps per element in C++, off the interpreter."""
    return lambda dataset: dataset.apply(tf_data_testing.sleep(round(seconds * 1e6)))


def numbers() -> Dataset:
    return tf.data.Dataset.range(10**9)


def as_written(dataset: Dataset) -> Dataset:
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


def with_pool(dataset: Dataset, threads: int) -> Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    return dataset.with_options(options)


# --- steps ---------------------------------------------------------------------------------------------------


class AsynchronousStep:
    """A device that is told what to do and does it later, one thing after the other, as a GPU."""

    synchronous = False
    parameters = None
    traces = None
    description = "a simulated asynchronous device"

    def __init__(self, duration_s: float) -> None:
        self._duration_s = duration_s
        self._work: Queue[tuple[float, threading.Event]] = Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        """Each step takes exactly its time, from when it was told or from the end of the one before."""
        free = -math.inf
        while True:
            told, done = self._work.get()
            free = max(told, free) + self._duration_s
            time.sleep(max(0.0, free - time.perf_counter()))
            done.set()

    def __call__(self, batch: Any) -> threading.Event:
        done = threading.Event()
        self._work.put((time.perf_counter(), done))
        return done

    def finish(self, result: threading.Event) -> None:
        result.wait()


class CpuStep:
    """Matrix products on all cores, in one ``tf.function``; done when it returns."""

    synchronous = True
    parameters = None
    description = "matrix products on the CPU"

    def __init__(self, products: int) -> None:
        matrix = tf.random.stateless_uniform((512, 512), seed=(1, 2)) / 512

        @tf.function
        def work() -> Any:
            x = matrix
            for _ in range(products):
                x = tf.matmul(x, matrix)
            return tf.reduce_sum(x)

        self._work = work

    @property
    def traces(self) -> int:
        return int(self._work.experimental_get_tracing_count())

    def __call__(self, batch: Any) -> Any:
        return self._work()

    def finish(self, result: Any) -> None:
        result.numpy()


class ConvolutionStep:
    """A small convolutional classifier with gradient and SGD on batches of 64 images of 32x32."""

    synchronous = True
    parameters = None
    description = "four convolutions on the CPU"

    def __init__(self) -> None:
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                tf.keras.Input((32, 32, 3)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, activation="relu"),
                layers.Conv2D(64, 3, activation="relu"),
                layers.GlobalAveragePooling2D(),
                layers.Dense(10),
            ]
        )

        @tf.function
        def train(images: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
                )
            for variable, gradient in zip(
                model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True
            ):
                variable.assign_sub(0.01 * gradient)
            return loss

        self._train = train

    @property
    def traces(self) -> int:
        return int(self._train.experimental_get_tracing_count())

    def __call__(self, batch: Any) -> Any:
        return self._train(*batch)

    def finish(self, result: Any) -> None:
        result.numpy()


# --- truth ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What was calibrated beside the rounds: seconds of the step alone, of an empty fetch after a step, and by how
    much one batch of the sleeping stage alone, an empty fetch aside, exceeds the sleep that was asked for."""

    step_s: float
    fetch_s: float
    overhead_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The seconds that a timing is made of: steps, empty fetches after them, batches of the stage alone."""

    step_s: tuple[float, ...]
    fetch_s: tuple[float, ...]
    alone_s: tuple[float, ...]


Truth = Callable[[Timing], tuple[float, float]]


def simulate(
    production_s: Callable[[int], float], consumer_s: float, *, depth: int, cycle: int = 1, cycles: int = 60
) -> tuple[float, float]:
    """Mean wait and mean period per batch of a producer, a buffer for ``depth`` batches, and a consumer.

    The producer begins a batch as soon as it has a place for it, as tf.data's Prefetch does; with depth 0 the
    consumer itself produces. The second half of ``cycles`` times ``cycle`` batches is averaged.
    """
    done = free = 0.0
    taken: list[float] = []
    waits: list[float] = []
    for number in range(cycle * cycles):
        begin = free
        if depth:
            begin = max(done, taken[number - depth] if number >= depth else 0.0)
        done = begin + production_s(number)
        taken.append(max(done, free))
        waits.append(taken[-1] - free)
        free = taken[-1] + consumer_s
    half = cycle * (cycles // 2)
    return statistics.fmean(waits[half:]), (taken[-1] - taken[half - 1]) / (len(taken) - half)


def serial(production_s: float) -> Truth:
    return uneven(lambda number: production_s, depth=0)


def overlapped(production_s: float, *, parallel: float = 1.0) -> Truth:
    """The batches of ``parallel`` producers arrive at regular times, and the buffer holds more than they vary."""

    def truth(timing: Timing) -> tuple[float, float]:
        period_s = (production_s + timing.overhead_s) / parallel
        busy_s = timing.step_s + timing.fetch_s
        return max(0.0, period_s - busy_s), max(period_s, busy_s)

    return truth


def overlapped_device(production_s: float, device_s: float, *, in_turn: bool) -> Truth:
    """Beside a device that runs asynchronously everything on the host overlaps with it, fetching too."""

    def truth(timing: Timing) -> tuple[float, float]:
        fetch_s = timing.fetch_s if in_turn else 0.0
        period_s = max(device_s, production_s + timing.overhead_s + fetch_s)
        return period_s - device_s, period_s

    return truth


def uneven(production_s: Callable[[int], float], *, depth: int, cycle: int = 1) -> Truth:
    def truth(timing: Timing) -> tuple[float, float]:
        consumer_s = timing.step_s + timing.fetch_s
        return simulate(lambda number: production_s(number) + timing.overhead_s, consumer_s, depth=depth, cycle=cycle)

    return truth


def no_wait(timing: Timing) -> tuple[float, float]:
    return 0.0, timing.step_s + timing.fetch_s


# --- cases ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One pipeline with its step.

    ``alone`` is the sleeping or burning stage by itself, serial, of which one batch is meant to take ``alone_s``
    (None: nothing to calibrate). It is calibrated after a step where a batch is made only when it is asked for
    (``in_turn``), and behind a prefetch otherwise. Where ``clocked``, the whole pipeline is instead, behind the step
    itself: its period is what is calibrated. ``truth`` is None where only the verdict is known. ``verdict`` overrides
    the one that the truth implies.
    """

    name: str
    build: Callable[[], Dataset]
    step: Callable[[], Step]
    truth: Truth | None
    alone: Callable[[], Dataset] | None = None
    alone_s: float = 0.0
    in_turn: bool = False
    clocked: bool = False
    verdict: Bound | None = None

    def expected(self, fraction: float) -> Bound:
        if self.verdict is not None:
            return self.verdict
        if fraction < INPUT_MODERATE:
            return "compute"
        return "input-moderate" if fraction < INPUT_HIGH else "input-high"


def idle(milliseconds: float) -> Callable[[], Step]:
    return lambda: SimulatedStep(milliseconds * MS)


def device(milliseconds: float) -> Callable[[], Step]:
    return lambda: AsynchronousStep(milliseconds * MS)


def one_sleep(seconds: float, *, in_a_row: bool = False) -> Callable[[], Dataset]:
    """Batches (here one number each) that take one sleep in a Python map; ``in_a_row`` behind a buffer."""
    return lambda: numbers().map(_sleep(seconds, calls=1, in_a_row=in_a_row))


def one_cpp_sleep(seconds: float) -> Callable[[], Dataset]:
    return lambda: cpp_sleep(seconds)(numbers())


def _sleep(seconds: float, *, calls: int, in_a_row: bool) -> Callable[[Dataset], Dataset]:
    return steady(seconds, calls=calls) if in_a_row else lat(seconds)


def element_sleeps(seconds: float) -> Callable[[], Dataset]:
    """Batches of BATCH_SIZE elements of one sleep each."""
    return lambda: as_written(numbers().map(lat(seconds)).batch(BATCH_SIZE))


def _serial_case(name: str, sleep_ms: float, step_ms: float, *, cpp: bool = False) -> Case:
    stage = (one_cpp_sleep if cpp else one_sleep)(sleep_ms * MS)
    return Case(
        name=name,
        build=lambda: as_written(stage()),
        step=idle(step_ms),
        truth=serial(sleep_ms * MS),
        alone=lambda: as_written(stage()),
        alone_s=sleep_ms * MS,
        in_turn=True,
    )


def _prefetch_case(
    name: str, sleep_ms: float, step_ms: float, *, depth: int = 2, cpp: bool = False, asynchronous: bool = False
) -> Case:
    exact = depth > 0 and not cpp and sleep_ms > step_ms
    stage = one_cpp_sleep(sleep_ms * MS) if cpp else one_sleep(sleep_ms * MS, in_a_row=exact)
    on_device = overlapped_device(sleep_ms * MS, step_ms * MS, in_turn=not depth)
    return Case(
        name=name,
        build=lambda: as_written(stage().prefetch(depth) if depth else stage()),
        step=(device if asynchronous else idle)(step_ms),
        truth=on_device if asynchronous else overlapped(sleep_ms * MS),
        alone=None if exact else lambda: as_written(stage()),
        alone_s=sleep_ms * MS,
        in_turn=not depth,
    )


def _uneven_case(
    name: str, base_ms: float, slow_ms: float, every: int, step_ms: float, *, depth: int, batches: int | None = None
) -> Case:
    """Every ``every``-th batch is slow; with ``batches`` it is the first of each epoch of so many."""

    def seconds(number: int) -> float:
        return (slow_ms if number % every == 0 else base_ms) * MS

    def build() -> Dataset:
        source = numbers() if batches is None else tf.data.Dataset.range(batches)
        dataset = source.map(lat(seconds))
        if batches is not None:
            dataset = dataset.repeat()
        return as_written(dataset.prefetch(depth) if depth else dataset)

    return Case(
        name=name,
        build=build,
        step=idle(step_ms),
        truth=uneven(seconds, depth=depth, cycle=every),
        alone=lambda: as_written(one_sleep(10 * MS)()),
        alone_s=10 * MS,
        in_turn=not depth,
    )


def _late_start_case(name: str, first_ms: float, sleep_ms: float, step_ms: float, *, depth: int) -> Case:
    def seconds(number: int) -> float:
        return (sleep_ms if number else first_ms) * MS

    def build() -> Dataset:
        dataset = numbers().map(lat(seconds))
        return as_written(dataset.prefetch(depth) if depth else dataset)

    case = _prefetch_case(name, sleep_ms, step_ms, depth=depth)
    return Case(
        name=name,
        build=build,
        step=case.step,
        truth=case.truth if depth else serial(sleep_ms * MS),
        alone=case.alone,
        alone_s=case.alone_s,
        in_turn=case.in_turn,
    )


def _mapped_case(
    name: str, sleep_ms: float, step_ms: float, *, calls: int, pool: int, count: int = 1, clocked: bool = False
) -> Case:
    """``calls`` parallel map calls on ``pool`` threads; ``count`` elements to a batch (1: a batch is one element).

    ``clocked``: with many calls in flight the loop's own Python waits for the interpreter's lock, which no sleep tells.
    """
    parallel = min(calls, pool)
    waited_for = sleep_ms * count > parallel * step_ms

    def build() -> Dataset:
        body = _sleep(sleep_ms * MS, calls=parallel, in_a_row=waited_for)
        dataset = numbers().map(body, num_parallel_calls=calls)
        if count > 1:
            dataset = dataset.batch(count)
        return with_pool(as_written(dataset.prefetch(2)), pool)

    return Case(
        name=name,
        build=build,
        step=idle(step_ms),
        truth=overlapped(0.0) if clocked else overlapped(sleep_ms * count * MS, parallel=parallel),
        clocked=clocked,
    )


def _fused_case(name: str, sleep_ms: float, step_ms: float, *, calls: int, pool: int) -> Case:
    """``map().batch()`` fused into one MapAndBatch, which reads ahead by itself; its batches come at regular times."""
    batch_s = sleep_ms * BATCH_SIZE * MS / min(calls, pool)

    def build() -> Dataset:
        options = tf.data.Options()
        options.experimental_optimization.apply_default_optimizations = False
        options.experimental_optimization.inject_prefetch = False
        options.experimental_optimization.map_and_batch_fusion = True
        body = _sleep(sleep_ms * MS, calls=min(calls, pool), in_a_row=batch_s > step_ms * MS)
        dataset = numbers().map(body, num_parallel_calls=calls).batch(BATCH_SIZE)
        return with_pool(dataset.with_options(options), pool)

    return Case(name=name, build=build, step=idle(step_ms), truth=overlapped(batch_s))


def _interleaved_case(name: str, sleep_ms: float, step_ms: float, *, files: int, parallel: bool) -> Case:
    """``files`` inner datasets that sleep in C++ per element, read at the same time or in turn."""

    def build() -> Dataset:
        dataset = tf.data.Dataset.range(files).interleave(
            lambda number: cpp_sleep(sleep_ms * MS)(numbers()),
            cycle_length=files,
            num_parallel_calls=files if parallel else None,
        )
        return as_written(dataset.prefetch(2) if parallel else dataset)

    return Case(
        name=name,
        build=build,
        step=idle(step_ms),
        truth=overlapped(sleep_ms * MS, parallel=files) if parallel else serial(sleep_ms * MS),
        alone=lambda: as_written(one_cpp_sleep(sleep_ms * MS)()),
        alone_s=sleep_ms * MS,
        in_turn=not parallel,
    )


def _shuffled(sleep_ms: float, buffer: int, count: int, *, before: bool, exact: bool) -> Callable[[], Dataset]:
    def build() -> Dataset:
        dataset = numbers()
        if before:
            dataset = dataset.shuffle(buffer)
        dataset = dataset.map(steady(sleep_ms * MS)) if exact else cpp_sleep(sleep_ms * MS)(dataset)
        if not before:
            dataset = dataset.shuffle(buffer)
        return as_written(dataset.batch(count).prefetch(2))

    return build


def _filling_case(name: str, sleep_ms: float, buffer: int, step_ms: float, *, count: int, before: bool = False) -> Case:
    """A shuffle buffer behind the slow map is filled before the first batch; one in front costs nothing."""
    exact = sleep_ms * count > step_ms
    return Case(
        name=name,
        build=_shuffled(sleep_ms, buffer, count, before=before, exact=exact),
        step=idle(step_ms),
        truth=overlapped(sleep_ms * count * MS),
        alone=None if exact else lambda: as_written(cpp_sleep(sleep_ms * MS)(numbers()).batch(count)),
        alone_s=sleep_ms * count * MS,
    )


def _refilling_case(name: str, sleep_ms: float, buffer: int, batches: int, step_ms: float) -> Case:
    """``shuffle().repeat()`` as written: the buffer is filled anew at the start of each epoch, which stalls."""
    examples = batches * BATCH_SIZE

    def elements(number: int) -> int:
        """Elements read for batch ``number`` of an epoch: the buffer on top of the first, none for the last."""
        begin = number % batches * BATCH_SIZE
        read_before = min(examples, begin + buffer) if begin else 0
        return min(examples, begin + BATCH_SIZE + buffer) - read_before

    def truth(timing: Timing) -> tuple[float, float]:
        element_s = sleep_ms * MS + timing.overhead_s / BATCH_SIZE
        return simulate(
            lambda number: elements(number) * element_s, timing.step_s + timing.fetch_s, depth=1, cycle=batches
        )

    return Case(
        name=name,
        build=lambda: as_written(
            tf.data.Dataset.range(examples)
            .map(lat(sleep_ms * MS))
            .shuffle(buffer)
            .batch(BATCH_SIZE)
            .repeat()
            .prefetch(1)
        ),
        step=idle(step_ms),
        truth=truth,
        alone=element_sleeps(sleep_ms * MS),
        alone_s=sleep_ms * BATCH_SIZE * MS,
    )


def _latency_case(name: str, sleep_ms: float, step_ms: float, *, count: int, written: bool, truth: Truth) -> Case:
    """A map of unset parallelism and a batch, as TensorFlow rewrites it or as written."""

    def build() -> Dataset:
        dataset = numbers().map(_sleep(sleep_ms * MS, calls=1, in_a_row=written)).batch(count)
        return as_written(dataset) if written else dataset

    return Case(
        name=name,
        build=build,
        step=idle(step_ms),
        truth=truth,
        alone=build if written else None,
        alone_s=sleep_ms * count * MS,
        in_turn=written,
    )


def _burning_case(name: str, loops: int, step_ms: float, *, depth: int) -> Case:
    def build() -> Dataset:
        dataset = numbers().map(burn(loops))
        return as_written(dataset.prefetch(depth) if depth else dataset)

    return Case(
        name=name,
        build=build,
        step=idle(step_ms),
        truth=overlapped(0.0) if depth else serial(0.0),
        alone=lambda: as_written(numbers().map(burn(loops))),
        in_turn=not depth,
    )


def _constant(*shape: int) -> Dataset:
    return tf.data.Dataset.from_tensors(tf.zeros(shape)).repeat()


def _images() -> Dataset:
    images = tf.random.stateless_uniform((2000, 32, 32, 3), seed=(1, 2), maxval=256, dtype=tf.int32)
    labels = tf.random.stateless_uniform((2000,), seed=(3, 4), maxval=10, dtype=tf.int32)
    dataset = tf.data.Dataset.from_tensor_slices((tf.cast(images, tf.uint8), labels)).repeat().shuffle(2000)
    return dataset.map(lambda x, y: (tf.cast(x, tf.float32) / 255, y)).batch(64, drop_remainder=True)


CASES: tuple[Case, ...] = (
    # Serial: the step waits for all of it.
    _serial_case("serial-half", 30, 30),
    _serial_case("serial-3%", 1.1, 36, cpp=True),
    _serial_case("serial-6.5%", 2.4, 36, cpp=True),
    _serial_case("serial-18%", 6.7, 31, cpp=True),
    _serial_case("serial-22%", 8.6, 31),
    _serial_case("serial-fast-step", 6, 2, cpp=True),
    # Overlapped by a prefetch: the excess of the producer's period over the step's.
    _prefetch_case("prefetch1-half", 60, 30, depth=1, cpp=True),
    _prefetch_case("prefetch-4%", 42.6, 40),
    _prefetch_case("prefetch-7%", 43.7, 40),
    _prefetch_case("prefetch-17.5%", 37.0, 30, cpp=True),
    _prefetch_case("prefetch-22%", 39.2, 30),
    _prefetch_case("prefetch-none", 15, 30),
    _prefetch_case("prefetch-none-5ms", 2, 5),
    _prefetch_case("prefetch-none-2ms", 0.5, 2, cpp=True),
    _prefetch_case("prefetch1-just-in-time", 26, 30, depth=1),
    # Several map calls at once, on a pool that allows it; fused; interleaved.
    _mapped_case("map2-quarter", 82, 30, calls=2, pool=2),
    _mapped_case("map2-18.5%", 75.5, 30, calls=2, pool=2),
    _mapped_case("map4-none", 60, 30, calls=4, pool=4),
    _fused_case("fused2-22%", 9.8, 30, calls=2, pool=2),
    _fused_case("fused2-none", 5, 30, calls=2, pool=2),
    _interleaved_case("interleaved4-quarter", 160, 30, files=4, parallel=True),
    _interleaved_case("interleaved4-in-turn", 10, 30, files=4, parallel=False),
    # Uneven batches: in a row, behind a small buffer, behind one that absorbs them, rarely and far apart.
    _uneven_case("burst-serial", 1, 60, 5, 20, depth=0),
    _uneven_case("burst-depth2", 2, 120, 10, 20, depth=2),
    _uneven_case("burst-absorbed", 2, 90, 8, 20, depth=8),
    _uneven_case("burst-18%", 2, 160, 16, 20, depth=4),
    _uneven_case("burst-rare", 2, 300, 30, 10, depth=2),
    # Where a run starts, and where an epoch ends.
    _late_start_case("first-batch-late", 1000, 5, 20, depth=2),
    _late_start_case("first-batch-late-serial", 1000, 10, 30, depth=0),
    _uneven_case("epoch-stall", 5, 150, 12, 20, depth=1, batches=12),
    _refilling_case("epoch-refill", 1.0, 64, 20, 20),
    _filling_case("shuffle-filling", 11.8, 30, 20, count=2),
    _filling_case("shuffle-filling-none", 1.0, 1000, 20, count=10),
    _filling_case("shuffle-before", 1.0, 1000, 20, count=10, before=True),
    # The timing cases with their twins.
    _latency_case("hidden-overlap", 2.5, 25, count=8, written=False, truth=no_wait),
    _latency_case("hidden-overlap-off", 2.5, 25, count=8, written=True, truth=serial(20 * MS)),
    _mapped_case("latency-beyond-cores", 5, 20, calls=1, pool=2, count=16),
    _mapped_case("latency-beyond-cores-8", 5, 20, calls=8, pool=8, count=16, clocked=True),
    Case(
        name="interpreter-lock",
        build=lambda: numbers().map(spin).batch(16).prefetch(2),
        step=idle(10),
        truth=None,
        verdict="input-high",
    ),
    Case(name="empty-fetch", build=lambda: as_written(_constant(8, 8)), step=idle(5), truth=no_wait),
    _uneven_case("five-batches", 3, 3, 5, 30, depth=0, batches=5),
    # Processors: a burning map beside an idle step, a busy step beside nothing, and both at once.
    _burning_case("burning-serial", 250, 30, depth=0),
    _burning_case("burning-prefetch", 250, 40, depth=2),
    Case(name="busy-step", build=lambda: as_written(_constant(8, 8)), step=lambda: CpuStep(20), truth=no_wait),
    Case(name="convolutions", build=_images, step=ConvolutionStep, truth=no_wait),
    Case(
        name="contended",
        build=lambda: numbers().map(burn(250), num_parallel_calls=2).batch(8).prefetch(8),
        step=lambda: CpuStep(20),
        truth=None,
        verdict="contended",
    ),
    # A device that runs asynchronously.
    _prefetch_case("device-none", 20, 30, asynchronous=True),
    _prefetch_case("device-third", 45, 30, asynchronous=True),
    _prefetch_case("device-serial-none", 20, 30, depth=0, asynchronous=True),
    _prefetch_case("device-21%", 38.2, 30, asynchronous=True),
)


def case(name: str) -> Case:
    return next(c for c in CASES if c.name == name)


# --- a run of one case ---------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Bench:
    """Carries out a run's requests on one case, as the worker does, and calibrates before each round's block.

    The profiler is left out: a trace is answered with a copy of the last block.
    """

    case: Case
    calibrations: list[Calibration] = field(default_factory=list)
    calibrating_s: float = 0.0
    _step: Any = None
    _batch: Any = None
    _last: Block | None = None

    def execute(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        reply: Reply
        if isinstance(request, Prepare):
            return self._prepare(request.workload)
        if isinstance(request, CaptureTrace):
            assert self._last is not None
            return Traced(path=f"{request.logdir}/plugins/profile/none", block=self._last, size_bytes=0)
        if isinstance(request, MeasureFloor):
            return Measured(block=drive_floor(self._batch, self._step, request.length, round=request.round))
        if isinstance(request, MeasureFetchFloor):
            batches = iter(tf.data.Dataset.from_tensors(self._batch).repeat())
            return Measured(block=drive(batches, self._step, request.length, kind="fetch-floor", round=request.round))
        batches = iter(self.case.build())
        if isinstance(request, MeasureCapacity):
            block = drive(batches, NoStep(), request.length, kind="capacity", round=request.round)
        else:
            assert isinstance(request, MeasureStep)
            block = drive(batches, self._step, request.length, kind="step", round=request.round)
            self._last = block
        reply = Measured(block=block, executed=executed_nodes(batches))
        del batches
        if isinstance(request, MeasureStep):
            self.calibrations.append(self._calibrate())
        return reply

    def close(self) -> None:
        """Nothing is running."""

    def clock(self) -> float:
        """Seconds that do not count the calibrations, so that they take nothing from the run's time budget."""
        return time.monotonic() - self.calibrating_s

    def timing(self) -> tuple[Timing, Timing]:
        """What was calibrated beside all rounds and the standard error of each part."""
        step_s, fetch_s, alone_s = (
            _over_rounds([typical for one in self.calibrations if (typical := _typical(getattr(one, name)))])
            for name in Calibration.__slots__
        )
        calibrated = self.case.clocked or self.case.alone is not None
        overhead_s = alone_s[0] - self.case.alone_s if calibrated else 0.0
        if self.case.in_turn:
            overhead_s -= fetch_s[0]
        return (
            Timing(step_s=step_s[0], fetch_s=fetch_s[0], overhead_s=overhead_s),
            Timing(step_s=step_s[1], fetch_s=fetch_s[1], overhead_s=alone_s[1]),
        )

    def _prepare(self, workload: Workload) -> Prepared:
        self._step = self.case.step()
        self._batch = next(iter(self.case.build()))
        self._step.finish(self._step(self._batch))
        return prepared(workload)

    def _calibrate(self) -> Calibration:
        begin = time.monotonic()
        constant = tf.data.Dataset.from_tensors(self._batch).repeat()
        step_s, fetch_s = _steps_and_fetches_s(iter(constant), self._step, self._batch)
        alone_s: list[float] = []
        if self.case.clocked:
            alone_s = _batches_s(iter(self.case.build()), self._step)
        elif self.case.alone is not None and self.case.in_turn:
            # Threads and caches are cold after a step, so that the same batch takes longer than in a row.
            _, alone_s = _steps_and_fetches_s(iter(self.case.alone()), self._step, self._batch, seconds=2 * CALIBRATE_S)
        elif self.case.alone is not None:
            # Taken by a step that is only a little faster: how a loop waits for a batch changes what making it costs,
            # since both want the interpreter then.
            share = NEARLY if self._step.synchronous else 0.5
            busy_s = min(NEARLY * statistics.fmean(step_s), share * self.case.alone_s)
            alone_s = _batches_s(iter(as_written(self.case.alone().prefetch(1))), SimulatedStep(busy_s))
        self.calibrating_s += time.monotonic() - begin
        return Calibration(step_s=tuple(step_s), fetch_s=tuple(fetch_s), alone_s=tuple(alone_s))


def _typical(values: Sequence[float]) -> float:
    """The mean without pauses of the machine; 0 of nothing. Sleeps make up for one another, so that their mean is
    exact and their median is not."""
    longest = PAUSE * statistics.median(values) if values else 0.0
    return statistics.fmean([value for value in values if value <= longest]) if values else 0.0


def _over_rounds(values: Sequence[float]) -> tuple[float, float]:
    """The mean over rounds and its standard error."""
    if len(values) < 2:
        return (values[0] if values else 0.0), 0.0
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))


def _batches_s(batches: Iterator[Any], step: Any) -> list[float]:
    """Seconds from batch to batch, each taken by ``step``; the first is left out."""
    next(batches)
    taken = [time.perf_counter()]
    while len(taken) <= CALIBRATE_COUNT or taken[-1] - taken[0] < 2 * CALIBRATE_S:
        batch = next(batches)
        taken.append(time.perf_counter())
        step.finish(step(batch))
    return [later - earlier for earlier, later in itertools.pairwise(taken)]


def _steps_and_fetches_s(
    batches: Iterator[Any], step: Any, batch: Any, *, seconds: float = CALIBRATE_S
) -> tuple[list[float], list[float]]:
    """Seconds of steps alone, each waited for, and of an empty fetch right after each."""
    step_s: list[float] = []
    fetch_s: list[float] = []
    while len(step_s) < CALIBRATE_COUNT or sum(step_s) < seconds:
        begin = time.perf_counter()
        step.finish(step(batch))
        stepped = time.perf_counter()
        next(batches)
        fetch_s.append(time.perf_counter() - stepped)
        step_s.append(stepped - begin)
    return step_s, fetch_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run of one case: what tfpipe says, and what is so (None where it is not known).

    ``timing_error`` is the standard error of each part of ``timing``.
    """

    case: Case
    run: Run
    timing: Timing
    timing_error: Timing
    calibrations: Sequence[Calibration]
    rounds: int

    @property
    def candidate(self) -> Candidate:
        return self.run.candidates[0]

    @property
    def truth(self) -> float | None:
        return self._truth(self.timing)

    @property
    def truth_half_width(self) -> float:
        """Half the 95 % interval of the truth itself, which is calibrated and no more exact than that."""
        truth = self._truth(self.timing)
        if truth is None:
            return 0.0
        moved = [
            self._truth(dataclasses.replace(self.timing, **{name: getattr(self.timing, name) + error}))
            for name in Timing.__slots__
            if (error := getattr(self.timing_error, name))
        ]
        return 1.96 * math.hypot(*(other - truth for other in moved if other is not None))

    def _truth(self, timing: Timing) -> float | None:
        if self.case.truth is None:
            return None
        wait_s, step_s = self.case.truth(timing)
        return wait_s / step_s

    @property
    def error(self) -> float | None:
        return None if self.truth is None else self.estimate.value - self.truth

    @property
    def estimate(self) -> Any:
        assert self.candidate.input_fraction is not None, self.candidate.error
        return self.candidate.input_fraction

    @property
    def holds_truth(self) -> bool:
        return self.truth is None or self.estimate.low <= self.truth <= self.estimate.high

    @property
    def agrees(self) -> bool:
        """Whether estimate and truth differ by no more than both their intervals explain: an E_n score of at most 1
        (ISO 13528, section 9.7)."""
        if self.error is None:
            return True
        below, above = self.estimate.value - self.estimate.low, self.estimate.high - self.estimate.value
        return abs(self.error) <= math.hypot(below if self.error > 0 else above, self.truth_half_width)

    @property
    def bound(self) -> Bound:
        assert self.candidate.verdict is not None
        return self.candidate.verdict.bound

    @property
    def beyond_bound(self) -> bool:
        """Whether the candidate ran faster than the bound printed for it, its interval included."""
        assert self.run.floor.step_s is not None
        assert self.candidate.step_s is not None
        return self.candidate.step_s.value < self.run.floor.step_s.low


class _Silent:
    def show(self, text: str, *, elapsed_s: float, budget_s: float) -> None:
        """The bench prints its own table."""


def measure_case(of: Case, *, time_budget_s: float) -> Outcome:
    """One run of ``of`` from the probe to the verdict, with the rounds, lengths and stopping of ``tfpipe profile``."""
    bench = Bench(case=of)
    named = NamedSettings(name=of.name, settings=PipelineSettings())
    with tempfile.TemporaryDirectory() as directory:
        journal = Journal(Path(directory) / "journal.jsonl")
        start = started((named,), step="bench", time_budget_s=time_budget_s)
        # Another seed each time: it chooses the order of the blocks within a round.
        workload = msgspec.structs.replace(start.workload, seed=time.time_ns() % 2**31)
        journal.append(msgspec.structs.replace(start, workload=workload))
        try:
            Profile(bench, journal, Path(directory) / "traces", _Silent(), clock=bench.clock).run()
        finally:
            journal.close()
        run = assemble_run(journal.entries)
    assert run is not None
    blocks = [block for block in run.candidates[0].blocks if block.kind == "step"]
    timing, timing_error = bench.timing()
    return Outcome(
        case=of,
        run=run,
        timing=timing,
        timing_error=timing_error,
        calibrations=bench.calibrations,
        rounds=len(blocks),
    )
