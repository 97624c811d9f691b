"""The training loop and its clock: fetch a batch, run the step, note both times, nothing else.

The clock is an argument so that tests drive the loop with one of their own.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from tfpipe.messages import Length
from tfpipe.records import Block, BlockKind, DeviceUse, Retrace

Clock = Callable[[], float]

# Where one fetch exceeds the mean by more than this share of the block, the block goes on for STRETCH times its
# seconds: with a stall or two in it, one more or less would change what it says by more than a point.
UNEVEN = 0.01
STRETCH = 2


class Step(Protocol):
    """What is run on each batch.

    ``synchronous`` is True when a call returns only after the work is done, as on a CPU. ``traces`` counts the
    graphs built so far, None when the step is no ``tf.function``.
    """

    @property
    def description(self) -> str: ...

    @property
    def synchronous(self) -> bool: ...

    @property
    def parameters(self) -> int | None: ...

    @property
    def traces(self) -> int | None: ...

    def __call__(self, batch: Any) -> Any: ...

    def finish(self, result: Any) -> None:
        """Return when the device has done everything up to ``result``."""
        ...


class UseSampler(Protocol):
    """Looks at the device from a thread of its own between ``start`` and ``stop``."""

    def start(self) -> None: ...

    def stop(self) -> DeviceUse | None:
        """End the thread and say what it saw; None where that is nothing."""
        ...


def drive(
    batches: Iterator[Any],
    step: Step,
    length: Length,
    *,
    kind: BlockKind,
    round: int,
    restart: Callable[[], Iterator[Any]] | None = None,
    retraces: Sequence[Retrace] = (),
    sampler: UseSampler | None = None,
    clock: Clock = time.perf_counter,
    cpu_clock: Clock = time.process_time,
) -> Block:
    """Run ``step`` on ``batches``: first batch, warm-up, then what counts.

    When the batches end, ``restart`` gives those of the next epoch. The step at whose end that happens is not
    counted, since it waited for a pipeline to start and not for a batch; how long that took is kept apart.

    The first batch is timed by itself (it fills buffers) and handed to the first step. Warm-up and counted part
    each go on until both of ``length``'s minima are reached; where the batches come very unevenly, the counted part
    goes on for STRETCH times its seconds. A device that runs asynchronously is waited for
    once before the counted part and once at its end, never in between: the last ``step_s`` holds that wait. Steps
    may be dispatched much faster than they run, so there the number of counted steps follows from what a step took
    in the warm-up, during which the device is waited for after 1, 2, 4, 8 ... steps.

    ``retraces`` grows by itself while steps run: what it gains belongs to the block. ``sampler`` looks on during the
    counted part.

    Raises:
        EndOfDataError: the data set ended before the block did and there is no ``restart``, or an epoch has no
            more than one batch.
    """
    epoch_start_s: list[float] = []

    fetched_before = -1

    def next_epoch(fetched: int) -> Any:
        nonlocal batches, fetched_before
        if restart is None or fetched == fetched_before:
            raise EndOfDataError(len(step_s))
        fetched_before = fetched
        asked = clock()
        batches = restart()
        batch = _next(batches)
        epoch_start_s.append(clock() - asked)
        return batch

    step_s: list[float] = []
    fetch_s: list[float] = []
    start = clock()
    batch = _next(batches)
    first_batch_s = clock() - start

    retraces_begin = len(retraces)
    warmup_steps = finished_steps = 0
    result: Any = None
    start = clock()
    while warmup_steps < length.warmup_steps or clock() - start < length.warmup_s:
        result = step(batch)
        batch = next(batches, _END)
        if batch is _END:
            batch = next_epoch(warmup_steps)
        else:
            warmup_steps += 1
            if not step.synchronous and warmup_steps >= 2 * finished_steps:
                step.finish(result)
                finished_steps = warmup_steps
    fetched_before = -1
    steps = length.steps
    if warmup_steps and not step.synchronous:
        if finished_steps < warmup_steps:
            step.finish(result)
        took_s = clock() - start
        if took_s > 0:
            steps = max(steps, math.ceil(length.seconds * warmup_steps / took_s))

    retraces_warm = len(retraces)
    # Epoch starts included: they are not counted as steps, but a block must end all the same.
    spent_s = 0.0
    seconds = length.seconds
    try:
        if sampler is not None:
            sampler.start()
        cpu_before = cpu_clock()
        # The batch in hand was fetched before the clock starts: the counted part ends with a fetch, so that it holds
        # exactly as many fetches as steps.
        previous = clock()
        while True:
            result = step(batch)
            asked = clock()
            batch = next(batches, _END)
            now = clock()
            if batch is _END:
                batch = next_epoch(len(step_s))
                now = clock()
                spent_s += now - previous
                previous = now
                continue
            fetch_s.append(now - asked)
            step_s.append(now - previous)
            spent_s += now - previous
            previous = now
            if len(step_s) >= steps and (spent_s >= seconds or not step.synchronous):
                if not step.synchronous or seconds >= STRETCH * length.seconds or not _uneven(fetch_s, spent_s):
                    break
                seconds = STRETCH * length.seconds
                previous = clock()
        if not step.synchronous:
            step.finish(result)
            now = clock()
            step_s[-1] += now - previous
    finally:
        device_use = None if sampler is None else sampler.stop()
    return Block(
        kind=kind,
        round=round,
        warmup_steps=warmup_steps,
        steps=len(step_s),
        elapsed_s=math.fsum(step_s),
        step_s=tuple(step_s),
        fetch_s=tuple(fetch_s),
        cpu_s=cpu_clock() - cpu_before,
        first_batch_s=first_batch_s,
        synchronous=step.synchronous,
        retraced=len(retraces) - retraces_warm,
        epoch_start_s=tuple(epoch_start_s),
        retraces=tuple(retraces[retraces_warm:]),
        warmup_retraces=tuple(retraces[retraces_begin:retraces_warm]),
        device_use=device_use,
    )


def drive_floor(
    batch: Any,
    step: Step,
    length: Length,
    *,
    round: int,
    retraces: Sequence[Retrace] = (),
    sampler: UseSampler | None = None,
    clock: Clock = time.perf_counter,
    cpu_clock: Clock = time.process_time,
) -> Block:
    """Run ``step`` on the same batch again and again: compute alone, with the loop's own cost and no fetch."""
    block = drive(
        _repeat(batch),
        step,
        length,
        kind="floor",
        round=round,
        retraces=retraces,
        sampler=sampler,
        clock=clock,
        cpu_clock=cpu_clock,
    )
    # Handing out the same object is no fetch; what its two clock reads cost belongs to the step.
    return dataclasses.replace(block, fetch_s=(0.0,) * block.steps, first_batch_s=None)


class EndOfDataError(Exception):
    """The data set ended inside a block; ``steps`` were counted before."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"the data set ended after {steps} counted steps")
        self.steps = steps


def _uneven(fetch_s: list[float], counted_s: float) -> bool:
    return max(fetch_s) - math.fsum(fetch_s) / len(fetch_s) > UNEVEN * counted_s


_END = object()


def _next(batches: Iterator[Any]) -> Any:
    batch = next(batches, _END)
    if batch is _END:
        raise EndOfDataError(0)
    return batch


def _repeat(batch: Any) -> Iterator[Any]:
    while True:
        yield batch
