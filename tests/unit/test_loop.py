from __future__ import annotations

import itertools

import pytest

from tfpipe.engine.loop import STRETCH, EndOfDataError, drive, drive_floor
from tfpipe.messages import Length
from tfpipe.records import DeviceUse, Retrace


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeStep:
    description = "fake"
    parameters = None
    traces: int | None = 1

    def __init__(self, clock: Clock, step_s: float, *, synchronous: bool = True, finish_s: float = 0.0) -> None:
        self.clock, self.step_s, self.synchronous, self.finish_s = clock, step_s, synchronous, finish_s
        self.calls = 0
        self.finished_at: list[int] = []

    def __call__(self, batch: object) -> None:
        self.calls += 1
        self.clock.now += self.step_s

    def finish(self, result: object) -> None:
        self.finished_at.append(self.calls)
        self.clock.now += self.finish_s


def batches(clock: Clock, fetch_s: float, first_s: float = 8.0):
    for number in itertools.count():
        clock.now += fetch_s if number else first_s
        yield number


def length(*, steps: int = 4, warmup_steps: int = 0, seconds: float = 0.0, warmup_s: float = 0.0) -> Length:
    return Length(warmup_steps=warmup_steps, warmup_s=warmup_s, steps=steps, seconds=seconds)


def run(step: FakeStep, clock: Clock, what: Length, *, fetch_s: float = 0.25):
    return drive(batches(clock, fetch_s), step, what, kind="step", round=3, clock=clock, cpu_clock=clock)


def test_counted_part_holds_as_many_fetches_as_steps_and_sums_to_its_length():
    clock = Clock()
    step = FakeStep(clock, 0.5)
    block = run(step, clock, length(steps=4, warmup_steps=2))
    assert block.step_s == (0.75,) * 4
    assert block.fetch_s == (0.25,) * 4
    assert block.elapsed_s == sum(block.step_s) == 3.0
    assert block.first_batch_s == 8.0
    assert (block.warmup_steps, block.steps, block.round, step.calls) == (2, 4, 3, 6)


def test_both_minima_are_reached():
    clock = Clock()
    assert run(FakeStep(clock, 0.5), clock, length(steps=2, seconds=6.0)).steps == 8
    clock = Clock()
    assert run(FakeStep(clock, 0.5), clock, length(steps=9, seconds=1.0)).steps == 9
    clock = Clock()
    assert run(FakeStep(clock, 0.5), clock, length(warmup_steps=1, warmup_s=3.0)).warmup_steps == 4


def uneven(clock: Clock, stall_s: float, every: int):
    for number in itertools.count():
        clock.now += stall_s if number % every == 0 else 0.0
        yield number


def test_a_block_whose_batches_come_unevenly_goes_on_for_longer():
    clock = Clock()
    block = drive(
        uneven(clock, 4.0, 4),
        FakeStep(clock, 0.5),
        length(steps=1, seconds=8.0),
        kind="step",
        round=0,
        clock=clock,
        cpu_clock=clock,
    )
    # Four steps and a stall take 6 s: two stalls by 8 s would make 2 or 3 of a block; by 16 s it has four.
    assert block.elapsed_s >= STRETCH * 8.0
    assert sum(fetch > 0 for fetch in block.fetch_s) > 2
    assert block.elapsed_s == sum(block.step_s)


def test_a_fixed_number_of_steps_is_never_stretched():
    clock = Clock()
    assert run(FakeStep(clock, 0.5), clock, length(steps=4)).steps == 4
    clock = Clock()
    stalled = drive(uneven(clock, 4.0, 3), FakeStep(clock, 0.5), length(steps=4), kind="step", round=0, clock=clock)
    assert stalled.steps == 4


def test_an_asynchronous_device_is_waited_for_at_the_ends_only():
    clock = Clock()
    step = FakeStep(clock, 0.125, synchronous=False, finish_s=2.0)
    block = run(step, clock, length(steps=4, warmup_steps=2))
    assert step.finished_at == [1, 2, 6]
    assert block.elapsed_s == sum(block.step_s) == 4 * 0.375 + 2.0


def test_steps_are_not_dispatched_without_end_to_a_device_that_is_slower():
    """Dispatching takes no time at all on this clock: only what finishing takes tells how long a step is."""
    clock = Clock()

    class Queueing(FakeStep):
        queued = 0

        def __call__(self, batch: object) -> None:
            super().__call__(batch)
            self.queued += 1
            assert self.queued < 100

        def finish(self, result: object) -> None:
            self.finished_at.append(self.calls)
            self.clock.now += 0.5 * self.queued
            self.queued = 0

    step = Queueing(clock, 0.0, synchronous=False)
    block = run(step, clock, length(steps=2, seconds=8.0, warmup_steps=2, warmup_s=3.0), fetch_s=0.0)
    assert step.finished_at == [1, 2, 4, 8, 24]
    assert (block.warmup_steps, block.steps, block.elapsed_s) == (8, 16, 8.0)


def test_the_floor_fetches_nothing():
    clock = Clock()
    block = drive_floor("batch", FakeStep(clock, 0.5), length(steps=3), round=0, clock=clock, cpu_clock=clock)
    assert block.kind == "floor"
    assert block.step_s == (0.5,) * 3
    assert block.fetch_s == (0.0,) * 3


def test_a_data_set_that_ends_says_how_far_it_came():
    clock = Clock()
    with pytest.raises(EndOfDataError, match="after 1 counted steps"):
        drive(iter([1, 2]), FakeStep(clock, 0.5), length(steps=4), kind="step", round=0, clock=clock)


class Retracing(FakeStep):
    """Builds a graph in the calls ``graphs``, counted from 1, and has built one before the block."""

    def __init__(self, clock: Clock, graphs: set[int], **arguments: bool) -> None:
        super().__init__(clock, 0.5, **arguments)
        self.graphs = graphs
        self.retraces = [retrace(0)]

    def __call__(self, batch: object) -> None:
        super().__call__(batch)
        if self.calls in self.graphs:
            self.retraces.append(retrace(self.calls))


def retrace(call: int) -> Retrace:
    return Retrace(function="train", cause=f"x is now {call}", seconds=0.25)


@pytest.mark.parametrize("synchronous", [True, False])
def test_new_graphs_belong_to_the_block_and_spoil_what_they_are_counted_in(synchronous: bool) -> None:
    clock = Clock()
    step = Retracing(clock, {1, 3, 4, 6}, synchronous=synchronous)
    block = drive(
        batches(clock, 0.25),
        step,
        length(warmup_steps=3, steps=3),
        kind="step",
        round=0,
        retraces=step.retraces,
        clock=clock,
    )
    assert block.warmup_retraces == (retrace(1), retrace(3))
    assert block.retraces == (retrace(4), retrace(6))
    assert block.retraced == 2
    floor = drive_floor("batch", step, length(steps=2), round=0, retraces=step.retraces, clock=clock)
    assert (floor.retraced, floor.retraces, floor.warmup_retraces) == (0, (), ())


USE = DeviceUse(source="nvml", mean_fraction=0.5, deviation_fraction=0.25, samples=4)


class FakeSampler:
    """Notes how many steps were done when it was started and stopped."""

    def __init__(self, step: FakeStep) -> None:
        self.step = step
        self.running = False
        self.at: list[int] = []

    def start(self) -> None:
        assert not self.running
        self.running = True
        self.at.append(self.step.calls)

    def stop(self) -> DeviceUse | None:
        assert self.running
        self.running = False
        self.at.append(self.step.calls)
        return USE


def test_the_device_is_sampled_in_the_counted_part_until_it_has_finished() -> None:
    clock = Clock()

    class Finishing(FakeStep):
        def finish(self, result: object) -> None:
            assert sampler.running or not sampler.at, "its last work belongs to the block"

    step = Finishing(clock, 0.5, synchronous=False)
    sampler = FakeSampler(step)
    block = drive(
        batches(clock, 0.25),
        step,
        length(warmup_steps=3, steps=4),
        kind="step",
        round=0,
        sampler=sampler,
        clock=clock,
    )
    assert block.device_use == USE
    assert sampler.at == [3, 7]
    floor = drive_floor("batch", FakeStep(clock, 0.5), length(steps=2), round=0, sampler=sampler, clock=clock)
    assert floor.device_use == USE
    assert run(FakeStep(clock, 0.5), clock, length()).device_use is None


def test_the_sampler_stops_with_a_block_that_fails() -> None:
    clock = Clock()
    step = FakeStep(clock, 0.5)
    sampler = FakeSampler(step)
    with pytest.raises(EndOfDataError):
        drive(iter([1, 2]), step, length(steps=4), kind="step", round=0, sampler=sampler, clock=clock)
    assert not sampler.running
    assert sampler.at == [0, 2]


def test_the_end_of_an_epoch_is_no_step_and_its_length_is_kept_apart():
    clock = Clock()

    def epoch():
        return itertools.islice(batches(clock, 0.25, first_s=4.0), 5)

    block = drive(
        epoch(),
        FakeStep(clock, 0.5),
        length(steps=9, warmup_steps=6),
        kind="step",
        round=0,
        restart=epoch,
        clock=clock,
        cpu_clock=clock,
    )
    assert block.step_s == (0.75,) * 9
    assert block.elapsed_s == 9 * 0.75
    # 4 fetches an epoch after its first batch: 6 for the warm-up, 9 that count.
    assert block.epoch_start_s == (4.0,) * 3


def test_a_block_of_short_epochs_that_start_slowly_ends_in_time():
    """4 s to start an epoch of two counted steps of 0.75 s: 20 s are over in the fourth epoch, with 6 steps counted."""
    clock = Clock()

    def epoch():
        return itertools.islice(batches(clock, 0.25, first_s=4.0), 3)

    block = drive(
        epoch(),
        FakeStep(clock, 0.5),
        length(steps=2, seconds=20.0),
        kind="step",
        round=0,
        restart=epoch,
        clock=clock,
        cpu_clock=clock,
    )
    assert sum(block.epoch_start_s) >= 12.0
    assert block.steps <= 9


def test_epochs_of_one_batch_cannot_be_measured():
    clock = Clock()
    with pytest.raises(EndOfDataError):
        drive(
            iter([1]),
            FakeStep(clock, 0.5),
            length(steps=2),
            kind="step",
            round=0,
            restart=lambda: iter([1]),
            clock=clock,
        )
