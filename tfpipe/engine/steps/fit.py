"""``model.fit``, whose loop is Keras's own: timed from a callback, and where that can be from inside the step.

``fit`` fetches inside its ``tf.function``, so that Python sees only whole steps. On a CPU the model's ``train_step``
writes down when its batch has come, and the time before that is the fetch. With a device that runs asynchronously,
XLA, or several steps per execution it cannot tell: such blocks say ``synchronous=False``, since only their sum means
something, and the wait is then taken from the difference to the floor.

Only ``on_train_batch_begin`` is used: Keras calls it in order and without reading the step's result, which
``on_train_batch_end`` would do and so wait for the device at every step.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfpipe.engine.environment import has_accelerator
from tfpipe.engine.loop import STRETCH, UNEVEN, UseSampler
from tfpipe.engine.steps.running import Explain, count_parameters
from tfpipe.engine.whole_batches import has_fixed_size
from tfpipe.errors import TfpipeError
from tfpipe.messages import Length, Traced
from tfpipe.records import Block, BlockKind, DeviceUse, Retrace
from tfpipe.settings import Execution

# TensorFlow's own clock inside a graph is the wall clock, so all times here are.
_clock = time.time


class FitStep:
    """Training by ``model.fit``.

    Args:
        model: compiled, with its ``steps_per_execution``.
        spec: TensorSpecs of one batch.
        explain: turns what the first call raised into what to tell.
    """

    execution: Execution = "fit"

    def __init__(self, model: Any, description: str, spec: Any, explain: Explain = lambda error: error) -> None:
        self.model = model
        self.description = description
        self.state = (model,)
        self.steps_per_execution = int(model.steps_per_execution)
        self._spec = spec
        self._explain = explain
        self._calls = 0
        self.synchronous = not has_accelerator() and not model.jit_compile and self.steps_per_execution == 1
        self._arrived = tf.Variable(0.0, trainable=False, dtype=tf.float64)
        own = model.train_step

        def train_step(data: Any) -> Any:
            self._calls += 1
            if self.synchronous:
                with tf.control_dependencies(tf.nest.flatten(data, expand_composites=True)):
                    self._arrived.assign(tf.timestamp())
            return own(data)

        # Keras keeps what it makes here; the model itself may be trained in other ways too.
        model.train_step = train_step
        model.make_train_function(force=True)
        model.train_step = own

    @property
    def parameters(self) -> int | None:
        return count_parameters(self.model.trainable_variables)

    @property
    def traces(self) -> int | None:
        """Python runs ``train_step`` only to build a graph, unless the model runs eagerly."""
        return None if self.model.run_eagerly or tf.config.functions_run_eagerly() else self._calls

    def arrived_s(self) -> float:
        """When the last batch had come; only where ``synchronous``."""
        return float(self._arrived)

    def finish(self) -> None:
        """Wait for the device: a variable that a step writes can only be read after it."""
        variables = self.model.trainable_variables
        if variables:
            min(variables, key=lambda variable: variable.shape.num_elements()).numpy()

    def constant(self, batch: Any) -> Any:
        """An endless data set of ``batch`` with the pipeline's element spec, without which ``fit`` is traced anew."""
        dataset = tf.data.Dataset.from_tensors(batch)
        if dataset.element_spec != self._spec:
            spec = self._spec

            def forget_sizes(*parts: Any) -> Any:
                leaves = map(_with_shape_of, tf.nest.flatten(parts), tf.nest.flatten(spec))
                return tf.nest.pack_sequence_as(spec, list(leaves))

            dataset = dataset.map(forget_sizes).cache()
        return dataset.repeat()

    def first_call(self, batch: Any) -> None:
        """Train on ``batch`` for one execution, tracing and compiling. Raises what ``explain`` makes of an error."""
        try:
            self.model.fit(self.constant(batch).take(self.steps_per_execution), shuffle=False, verbose=0)
            return
        except Exception as raised:
            error = self._explain(raised)
        raise error

    def drive(
        self,
        dataset: Any,
        length: Length,
        *,
        kind: BlockKind,
        round: int,
        retraces: Sequence[Retrace] = (),
        sampler: UseSampler | None = None,
    ) -> tuple[Block, Any]:
        """``fit`` on ``dataset`` for as long as ``length`` says, as ``loop.drive`` does; and the iterator it used.

        The first step of an epoch is not counted, nor a last one that may be smaller.

        Raises:
            TfpipeError: epochs are too short to have a step that counts.
        """
        clock = _Clock(self, length, retraces, sampler, fixed_size=has_fixed_size(dataset.element_spec))
        try:
            iterator = self._fit(dataset, clock)
        finally:
            clock.stop_sampling()
        return clock.block(kind, round), iterator

    def capture(self, dataset: Any, *, warmup_steps: int, steps: int, logdir: str) -> Traced:
        """As ``profiler.capture_trace``: one step marker for each execution."""
        tracer = _Tracer(self, warmup_steps, steps, logdir)
        try:
            self._fit(dataset, tracer)
        finally:
            tracer.stop()
        session = max(Path(logdir).glob("plugins/profile/*"), key=lambda path: path.stat().st_mtime)
        size_bytes = sum(path.stat().st_size for path in session.iterdir())
        return Traced(path=str(session), block=tracer.block(), size_bytes=size_bytes)

    def _fit(self, dataset: Any, callback: keras.callbacks.Callback) -> Any:
        with _last_iterator_of(dataset) as kept, warnings.catch_warnings():
            # The end of an epoch is no mistake here.
            warnings.filterwarnings("ignore", message="Your input ran out of data")
            self.model.fit(dataset, epochs=sys.maxsize, shuffle=False, verbose=0, callbacks=[callback])
        return kept[0]


def _with_shape_of(tensor: Any, spec: Any) -> Any:
    if not isinstance(tensor, tf.Tensor):
        return tensor
    return tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=spec.shape)


@contextmanager
def _last_iterator_of(dataset: Any) -> Iterator[list[Any]]:
    """The iterator over ``dataset`` that Keras makes and keeps to itself; only from it is known what ran."""
    original = tf.data.Dataset.__iter__
    kept: list[Any] = [None]

    def make(self: Any) -> Any:
        iterator = original(self)
        if self is dataset:
            kept[0] = iterator
        return iterator

    tf.data.Dataset.__iter__ = make
    try:
        yield kept
    finally:
        tf.data.Dataset.__iter__ = original


class _Clock(keras.callbacks.Callback):  # type: ignore[misc]
    """First batch, warm-up, then what counts; ends ``fit`` when that is enough.

    An execution ends when the next one begins, so that the last one of each epoch is never seen to end.
    """

    def __init__(
        self,
        step: FitStep,
        length: Length,
        retraces: Sequence[Retrace],
        sampler: UseSampler | None,
        *,
        fixed_size: bool,
    ) -> None:
        super().__init__()
        self._step = step
        self._length = length
        self._retraces = retraces
        self._sampler = sampler
        self._whole = fixed_size and step.steps_per_execution == 1
        self._steps, self._seconds = length.steps, length.seconds
        self._retraces_before = self._retraces_warm = len(retraces)
        # When the running execution began; when the first batch of the epoch was asked for, until it has come.
        self._begun_s: float | None = None
        self._asked_s: float | None = None
        self._warm_since_s: float | None = None
        self._counting_since_s: float | None = None
        self._warmup_steps = self._finished_steps = self._steps_in_epoch = 0
        self._start_s: list[float] = []
        self._step_s: list[float] = []
        self._fetch_s: list[float] = []
        self._cpu_began_s = self._cpu_s = 0.0
        self._device_use: DeviceUse | None = None
        self._samples = self._ended = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._begun_s, self._asked_s, self._steps_in_epoch = None, _clock(), 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        now = _clock()
        if self._ended:
            return
        if self._begun_s is not None:
            self._take(self._begun_s, now)
            if self._counting_since_s is None:
                self._warm_up()
            elif self._is_enough(now - self._counting_since_s):
                self._end()
        self._begun_s = _clock()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._ended:
            return
        # Of an epoch whose length Keras knows, the last execution is left out anyway: no other begins after it.
        if self.params["steps"] is None and not self._whole:
            count = self._step.steps_per_execution
            self._steps_in_epoch -= count
            if self._step_s:
                del self._step_s[-count:], self._fetch_s[-count:]
        if self._steps_in_epoch <= 0:
            raise TfpipeError(
                "An epoch of the pipeline has too few batches to time a step of fit between them.",
                "Put .repeat() before the batch, or make the batches smaller.",
            )

    def _take(self, begun_s: float, now: float) -> None:
        """Note the execution that began at ``begun_s`` and has just ended."""
        arrived_s = self._step.arrived_s() if self._step.synchronous else now
        if self._asked_s is not None:
            # It waited for a pipeline to start, and not for a batch.
            self._start_s.append(arrived_s - self._asked_s)
            self._asked_s = None
            return
        count = self._step.steps_per_execution
        self._steps_in_epoch += count
        if self._counting_since_s is None:
            self._warmup_steps += count
            return
        self._step_s += [(now - begun_s) / count] * count
        self._fetch_s += [(arrived_s - begun_s) / count] * count

    def _warm_up(self) -> None:
        """Begin to count where the warm-up is over; wait for an asynchronous device after 1, 2, 4, 8 ... steps."""
        if self._warm_since_s is None:
            if not self._step.synchronous:
                self._step.finish()
            self._warm_since_s = _clock()
        if not self._step.synchronous and self._warmup_steps >= max(1, 2 * self._finished_steps):
            self._step.finish()
            self._finished_steps = self._warmup_steps
        warm_s = _clock() - self._warm_since_s
        if self._warmup_steps < self._length.warmup_steps or warm_s < self._length.warmup_s:
            return
        if not self._step.synchronous and self._warmup_steps:
            self._step.finish()
            warm_s = _clock() - self._warm_since_s
            self._steps = max(self._steps, math.ceil(self._length.seconds * self._warmup_steps / warm_s))
        self._retraces_warm = len(self._retraces)
        if self._sampler is not None:
            self._sampler.start()
            self._samples = True
        self._cpu_began_s = time.process_time()
        self._counting_since_s = _clock()

    def _is_enough(self, spent_s: float) -> bool:
        if len(self._step_s) < self._steps:
            return False
        if not self._step.synchronous:
            return True
        if spent_s < self._seconds:
            return False
        uneven = max(self._fetch_s) - statistics.fmean(self._fetch_s) > UNEVEN * spent_s
        if uneven and self._seconds < STRETCH * self._length.seconds:
            self._seconds = STRETCH * self._length.seconds
            return False
        return True

    def _end(self) -> None:
        """Stop counting. The execution that begins now is the last one and does not count."""
        if not self._step.synchronous:
            before = _clock()
            self._step.finish()
            self._step_s[-1] += _clock() - before
        self._cpu_s = time.process_time() - self._cpu_began_s
        self.stop_sampling()
        self._ended = True
        self.model.stop_training = True

    def stop_sampling(self) -> None:
        if self._samples and self._sampler is not None:
            self._samples = False
            self._device_use = self._sampler.stop()

    def block(self, kind: BlockKind, round: int) -> Block:
        """What was counted. A floor's steps are without their fetch, of a batch that is always there."""
        step_s, fetch_s, start_s = self._step_s, self._fetch_s, self._start_s
        if not self._step.synchronous:
            # The fetch is somewhere in the step, unless there is nothing to wait for; the first step beside it.
            fetch_s = list(step_s) if kind == "step" else [0.0] * len(step_s)
            execution_s = statistics.fmean(step_s) * self._step.steps_per_execution
            start_s = [max(0.0, start - execution_s) for start in start_s]
        elif kind == "floor":
            step_s = [step - fetch for step, fetch in zip(step_s, fetch_s, strict=True)]
            fetch_s = [0.0] * len(step_s)
        first_batch_s, *epoch_start_s = start_s
        return Block(
            kind=kind,
            round=round,
            warmup_steps=self._warmup_steps,
            steps=len(step_s),
            elapsed_s=math.fsum(step_s),
            step_s=tuple(step_s),
            fetch_s=tuple(fetch_s),
            cpu_s=self._cpu_s,
            first_batch_s=None if kind == "floor" else first_batch_s,
            synchronous=self._step.synchronous,
            retraced=len(self._retraces) - self._retraces_warm,
            epoch_start_s=tuple(epoch_start_s),
            retraces=tuple(self._retraces[self._retraces_warm :]),
            warmup_retraces=tuple(self._retraces[self._retraces_before : self._retraces_warm]),
            device_use=self._device_use,
        )


class _Tracer(keras.callbacks.Callback):  # type: ignore[misc]
    """Starts the profiler after the warm-up, puts a step marker around each execution, and ends ``fit``.

    Where an epoch ends because there is no batch, that is in one marker with the first execution of the next epoch.
    """

    def __init__(self, step: FitStep, warmup_steps: int, steps: int, logdir: str) -> None:
        super().__init__()
        self._step = step
        self._warmup = warmup_steps
        self._steps = steps
        self._logdir = logdir
        self._marker: Any = None
        self._begun_s = 0.0
        self._begun = 0
        self._spans_epochs = False
        self._profiles = False
        self._step_s: list[float] = []
        self._fetch_s: list[float] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._marker is None:
            return
        if self.params["steps"] is None:
            # What began last found no batch.
            self._spans_epochs = True
        else:
            self._close(_clock())

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._spans_epochs:
            self._spans_epochs = False
            return
        if self._marker is not None:
            self._close(_clock())
        if self._begun * self._step.steps_per_execution >= self._warmup and not self._profiles:
            self._step.finish()
            tf.profiler.experimental.start(self._logdir)
            self._profiles = True
        self._begun += 1
        if not self._profiles:
            return
        if len(self._step_s) >= self._steps:
            before = _clock()
            self._step.finish()
            self._step_s[-1] += _clock() - before
            self.stop()
            self.model.stop_training = True
            return
        number = len(self._step_s) // self._step.steps_per_execution
        self._begun_s = _clock()
        self._marker = tf.profiler.experimental.Trace("train", step_num=number, _r=1)
        self._marker.__enter__()

    def _close(self, now: float) -> None:
        self._marker.__exit__(None, None, None)
        self._marker = None
        count = self._step.steps_per_execution
        arrived_s = self._step.arrived_s() if self._step.synchronous else now
        self._step_s += [(now - self._begun_s) / count] * count
        self._fetch_s += [max(0.0, arrived_s - self._begun_s) / count] * count

    def stop(self) -> None:
        """End the profiler where it runs."""
        if self._marker is not None:
            self._marker.__exit__(None, None, None)
            self._marker = None
        if self._profiles:
            self._profiles = False
            tf.profiler.experimental.stop()

    def block(self) -> Block:
        return Block(
            kind="trace",
            round=0,
            warmup_steps=self._warmup,
            steps=len(self._step_s),
            elapsed_s=math.fsum(self._step_s),
            step_s=tuple(self._step_s),
            fetch_s=tuple(self._fetch_s),
            synchronous=self._step.synchronous,
        )
