"""The model of the pipeline against a pipeline that is run event by event, and against cases with known answers."""

from __future__ import annotations

import statistics
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runs import interval, make_candidate, make_run
from tests.unit.paper_pipeline import CALLS, Setting, World, overrides_of, simulate, users_pipeline, world_run
from tests.unit.test_report_user_pipeline import make_site
from tfpipe.analysis.operational import PipelineModel, build_model, prediction_errors
from tfpipe.analysis.operational.costs import residence_s, split_costs
from tfpipe.analysis.operational.laws import asleep, bounds, buffered_step_s, ordered_rate
from tfpipe.analysis.operational.seen import Point, Seen
from tfpipe.analysis.operational.shape import distance, shape_of
from tfpipe.records import Block, Node, Pipeline, Prediction
from tfpipe.runner.proposals import POOL
from tfpipe.settings import PipelineSettings
from tfpipe.sites import END_PREFETCH, Stage

MS = 1e-3
LATENCY = World(wait_s=5 * MS, compute_s=0.1 * MS, batch_size=16, jitter=0.2)
SPIN = World(compute_s=3.6 * MS, lock=True, batch_size=16)
WORK = World(source_s=0.05 * MS, compute_s=2 * MS, batch_size=16)


def model_of(world: World, *seen: Setting, **fields: Any) -> PipelineModel:
    model = build_model(world_run(world, seen, **fields))
    assert model is not None
    return model


def rate(model: PipelineModel, setting: Setting, **circumstances: Any) -> float:
    return model.predict(overrides_of(setting), **circumstances).capacity_examples_per_s


def step_s(model: PipelineModel, setting: Setting, **circumstances: Any) -> float:
    return model.predict(overrides_of(setting), **circumstances).step_s


# --- against the pipeline on paper -----------------------------------------------------------------------------


def test_two_points_predict_random_pipelines() -> None:
    """Capacity and step of settings that were not seen, from one call and from as many as there are cores."""
    draw = Random(5)
    capacities, steps = [], []
    for _ in range(12):
        world = World(
            source_s=draw.choice((0.0, 0.01, 0.2)) * MS,
            wait_s=draw.choice((0.0, 0.0, 1.0, 5.0)) * MS,
            compute_s=10 ** draw.uniform(-1, 0.5) * MS,
            batch_s=draw.choice((0.0, 0.05)) * MS,
            cores=draw.choice((2, 4, 8)),
            jitter=0.3,
        )
        model = model_of(world, Setting(calls=1), Setting(calls=world.cores))
        for _ in range(2):
            setting = Setting(calls=draw.choice((2, 3, 4, 8, 16)), depth=draw.choice((1, 2, 4)))
            floor_s = 10 ** draw.uniform(0, 2) * MS
            alone = simulate(world, setting, step_s=0.0, batches=40).batch_s
            behind = simulate(world, setting, step_s=floor_s, batches=40).batch_s
            capacities.append(abs(rate(model, setting) * statistics.fmean(alone) / world.batch_size - 1))
            steps.append(abs(step_s(model, setting, floor_s=floor_s) / statistics.fmean(behind) - 1))
    for errors in (capacities, steps):
        errors.sort()
        assert statistics.median(errors) < 0.05
        assert errors[int(0.9 * len(errors))] < 0.15


@pytest.mark.parametrize("calls", [1, 2, 4, 8])
@pytest.mark.parametrize("threads", [2, 8])
def test_a_slow_example_holds_up_those_behind_it(calls: int, threads: int) -> None:
    world = World(wait_s=1 * MS, slow=40, every=20, cores=16)
    durations = [40 * MS, *[1 * MS] * 19]
    setting = Setting(calls=calls, threads=threads, depth=1, fused=False)
    alone = simulate(world, setting, step_s=0.0, batches=60).batch_s
    expected = world.batch_size / statistics.fmean(alone)
    assert ordered_rate(durations, calls=calls, threads=threads) == pytest.approx(expected, rel=0.1)


def test_the_order_is_seen_from_batches_of_single_calls() -> None:
    world = World(wait_s=1 * MS, slow=40, every=20)
    model = model_of(world, Setting(calls=1, fused=False, depth=1))
    ordered, unordered = (
        Setting(calls=8, threads=8, depth=1, fused=False, ordered=ordered) for ordered in (True, False)
    )
    for setting in (ordered, unordered):
        alone = simulate(world, setting, step_s=0.0, batches=60).batch_s
        assert rate(model, setting) == pytest.approx(world.batch_size / statistics.fmean(alone), rel=0.25)
    bottleneck = model.bottleneck(overrides_of(ordered))
    assert bottleneck is not None
    assert bottleneck.limit == "order"
    assert rate(model, unordered) > 3 * rate(model, ordered)
    # Calls that fill batches may finish in any order.
    fused = model_of(world, Setting(calls=1, depth=1))
    assert rate(fused, Setting(calls=8, threads=8, depth=1)) == pytest.approx(8 / (2.95 * MS), rel=0.1)


@given(
    production=st.lists(st.floats(0.1, 10), min_size=1, max_size=6),
    consumer=st.floats(0.1, 10),
    depth=st.integers(1, 5),
)
@settings(max_examples=40, deadline=None)
def test_a_buffer_is_as_counted_tick_by_tick(production: list[float], consumer: float, depth: int) -> None:
    production = [round(seconds, 1) for seconds in production]
    consumer = round(consumer, 1)
    expected = by_ticks([round(10 * seconds) for seconds in production], round(10 * consumer), depth) / 10
    assert buffered_step_s(production, consumer, depth=depth) == pytest.approx(expected, rel=0.02)


def by_ticks(production: list[int], consumer: int, depth: int) -> float:
    """Ticks per batch: a producer that works while there is a place, a consumer that takes what is there."""
    buffer = number = tick = taken = 0
    work, busy = production[0], 0
    ends = []
    while taken < 240:
        if busy == 0 and buffer:
            buffer, busy, taken = buffer - 1, consumer, taken + 1
            ends.append(tick)
        tick += 1
        busy = max(0, busy - 1)
        if work == 0 and buffer < depth:
            work = production[number % len(production)]
        if work:
            work -= 1
            if work == 0:
                buffer, number = buffer + 1, number + 1
    settled = len(production) * (60 // len(production))
    whole = len(production) * ((len(ends) - settled - 1) // len(production))
    return (ends[settled + whole] - ends[settled]) / whole


def test_bursts_need_depth_and_not_speed() -> None:
    """Every fifth batch takes five times as long: fast enough on average, and a deeper buffer is all it takes."""
    production = [4 * MS] * 4 + [24 * MS]
    shallow, deep = (buffered_step_s(production, 10 * MS, depth=depth) for depth in (1, 8))
    assert deep == pytest.approx(10 * MS, rel=0.01)
    assert shallow > 10.5 * MS


def test_uneven_batches_behind_a_buffer_as_on_paper() -> None:
    world, serial = World(wait_s=1 * MS, slow=40, every=20), Setting(calls=None, fused=False, depth=1)
    model = model_of(world, serial)
    for depth in (1, 8):
        setting = replace(serial, depth=depth)
        behind = simulate(world, setting, step_s=25 * MS, batches=120).batch_s
        assert step_s(model, setting, floor_s=25 * MS) == pytest.approx(statistics.fmean(behind), rel=0.05)
    assert step_s(model, serial, floor_s=25 * MS) > 1.1 * 25 * MS


def test_a_burst_of_other_work_is_not_taken_for_slow_examples() -> None:
    even, burst = world_run(WORK, (Setting(calls=2, depth=1), Setting(calls=2, depth=2)), step_s=17 * MS).candidates
    block = burst.blocks[0]
    uneven = replace(block, step_s=tuple(s * (5 if n % 10 == 0 else 0.5) for n, s in enumerate(block.step_s)))
    run = world_run(WORK, (Setting(calls=2),), step_s=17 * MS)
    model = build_model(replace(run, candidates=(even, replace(burst, blocks=(uneven,)))))
    assert model is not None
    assert step_s(model, Setting(calls=2, depth=1)) == pytest.approx(17 * MS, rel=0.02)


# --- cases with known answers ----------------------------------------------------------------------------------


def test_hidden_overlap_and_its_serial_twin() -> None:
    """2.5 ms of waiting for each of 8 examples, a step of 25 ms: rewritten it is hidden, as written it adds up."""
    world = World(wait_s=2.5 * MS, batch_size=8)
    hidden = model_of(world, Setting(calls=1), step_s=25 * MS)
    as_is = PipelineSettings(overrides=())
    assert hidden.predict(as_is).step_s == pytest.approx(25 * MS, rel=0.05)
    twin = model_of(world, Setting(calls=None, fused=False), step_s=25 * MS)
    assert step_s(twin, Setting(calls=None, fused=False)) == pytest.approx(45 * MS, rel=0.05)
    assert step_s(twin, Setting(calls=None, fused=False, depth=1)) == pytest.approx(25 * MS, rel=0.05)
    # Two calls without prefetch hold two examples ready; the other six are waited for, two at a time.
    assert step_s(twin, Setting(calls=2, fused=False)) == pytest.approx(32.5 * MS, rel=0.1)


def test_waiting_wants_calls_and_threads_together() -> None:
    model = model_of(LATENCY, Setting(calls=1), Setting(calls=2))
    one, both = rate(model, Setting(calls=1)), rate(model, Setting(calls=16, threads=16))
    assert rate(model, Setting(calls=16)) == pytest.approx(2 * one, rel=0.1)
    assert rate(model, Setting(calls=2, threads=16)) == pytest.approx(2 * one, rel=0.1)
    assert both == pytest.approx(16 * one, rel=0.1)
    bottleneck = model.bottleneck(overrides_of(Setting(calls=16)))
    assert bottleneck is not None
    assert bottleneck.limit == "threads"
    cost = model.costs(overrides_of(Setting())).of("data.py:2:map")
    assert cost.wait_s == pytest.approx(5 * MS, rel=0.1)
    assert model.cores_needed(overrides_of(Setting(calls=16)), floor_s=10 * MS) is None


def test_pythons_lock_is_one_core_whatever_the_calls() -> None:
    model = model_of(SPIN, Setting(calls=1), Setting(calls=2))
    for setting in (Setting(calls=4), Setting(calls=8, threads=8)):
        assert rate(model, setting) == pytest.approx(1 / (3.6 * MS), rel=0.1)
        bottleneck = model.bottleneck(overrides_of(setting))
        assert bottleneck is not None
        assert bottleneck.limit == "lock"
        assert model.cores_needed(overrides_of(setting), floor_s=10 * MS) is None


def test_a_loop_waits_for_the_lock_that_the_pipeline_holds() -> None:
    """57.6 ms of Python for a batch beside steps of 100 ms: twice for a call's 3.6 ms, 57.6 % of the time."""
    python = model_of(SPIN, Setting(calls=1), Setting(calls=2), step_s=100 * MS)
    waits_s = step_s(python, Setting(calls=2, depth=4)) - 100 * MS
    assert waits_s == pytest.approx(2 * 0.576 * 3.6 * MS, rel=0.15)
    tensors = model_of(WORK, Setting(calls=2), step_s=100 * MS)
    assert step_s(tensors, Setting(calls=2, depth=4)) == pytest.approx(100 * MS)


def test_python_that_lets_go_of_the_lock_is_not_taken_for_held() -> None:
    world = replace(SPIN, lock=False, cores=4)
    run = world_run(world, (Setting(calls=1), Setting(calls=4)))
    model = build_model(replace(run, pipeline=users_pipeline(python=True)))
    assert model is not None
    assert rate(model, Setting(calls=2)) == pytest.approx(2 / (3.6 * MS), rel=0.1)
    assert model.costs(overrides_of(Setting())).lock_s == 0


def test_a_lock_that_was_only_assumed_is_worth_a_probe() -> None:
    parallel = overrides_of(Setting(calls=2))
    assert model_of(SPIN, Setting(calls=1)).probes([parallel]) == (parallel,)
    assert model_of(SPIN, Setting(calls=1), Setting(calls=2)).probes([parallel]) == ()
    held = model_of(SPIN, Setting(calls=1), step_s=1 * MS).uncertainty(parallel)
    waiting = model_of(LATENCY, Setting(calls=1), step_s=1 * MS).uncertainty(parallel)
    assert held > 2 * waiting


def test_computing_ends_at_the_cores_and_more_cores_help() -> None:
    model = model_of(WORK, Setting(calls=1), Setting(calls=2))
    assert rate(model, Setting(calls=8, threads=8)) == pytest.approx(2 / (2.05 * MS), rel=0.1)
    assert rate(model, Setting(calls=8), cores=8) == pytest.approx(8 / (2.05 * MS), rel=0.15)
    needed = model.cores_needed(overrides_of(Setting(calls=64)), floor_s=4 * MS)
    assert needed == pytest.approx(16 * 2.05 / 4, abs=1.5)
    # The thread that reads the source is Amdahl's serial part: no number of cores makes batches faster than that.
    assert model.cores_needed(overrides_of(Setting(calls=64)), floor_s=16 * 0.04 * MS) is None


def test_a_call_keeps_its_place_while_it_gets_its_input() -> None:
    world = World(source_s=0.2 * MS, compute_s=0.4 * MS, cores=4)
    model = model_of(world, Setting(calls=1))
    assert rate(model, Setting(calls=2)) == pytest.approx(2 / (0.6 * MS), rel=0.05)


def test_every_resource_has_its_bound() -> None:
    users = shape((CALLS, 4), (POOL, 3))
    costs = split_costs(
        {"before data.py:2:map": 1 * MS, "data.py:2:map": 5 * MS}, users, cpu_s=2 * MS, fastest_s=9 * MS
    )
    found = {(bound.limit, bound.stage): bound.rate for bound in bounds(users, costs, cores=2)}
    assert found == {
        ("processors", ""): pytest.approx(1000),
        ("lock", ""): pytest.approx(1000),
        ("threads", ""): pytest.approx(600),
        ("calls", "data.py:2:map"): pytest.approx(4 / (6 * MS)),
        ("thread", "data.py:2:map"): pytest.approx(1000),
    }


# Processor time of an example outside its stages, in us, by (calls, threads): numbers that are shuffled and jittered
# one by one (tiny_elements of tests/bench/workloads.py), drained alone on 2 cores with TensorFlow 2.21.
WAKING_US = {
    (1, 2): 34, (2, 2): 23, (4, 2): 19, (16, 2): 4, (2, 4): 37, (4, 4): 27, (16, 4): 14, (2, 16): 52, (4, 16): 51,
    (16, 16): 35,
}  # fmt: skip


def calls_on(calls: int, threads: int) -> Any:
    return shape_of(
        overrides_of(Setting(calls=calls, threads=threads)), users_pipeline(python=False), cores=2, batch_size=16
    )


def test_threads_are_woken_as_often_as_was_measured() -> None:
    chances = {pair: asleep(calls_on(*pair)) for pair in WAKING_US}
    waking_us = sum(us * chances[pair] for pair, us in WAKING_US.items()) / sum(c**2 for c in chances.values())
    assert max(abs(waking_us * chances[pair] - us) for pair, us in WAKING_US.items()) < waking_us / 6
    serial = replace(Setting(), calls=None, fused=False)
    assert asleep(shape_of(overrides_of(serial), users_pipeline(python=False), cores=2, batch_size=16)) == 0


def test_calls_that_queue_spare_waking_threads_where_these_do_little() -> None:
    def seen_from(cpu_s: float, stage_s: float) -> Seen:
        residence = {"data.py:2:map": stage_s, "data.py:3:batch": 0.0}
        one = Point(shape=calls_on(2, 2), rate=2 / cpu_s, cpu_s=cpu_s, residence=residence)
        return Seen([one], cores=2, batch_size=16)

    def times(seen: Seen, calls: int, threads: int) -> float:
        there, here = calls_on(calls, threads), calls_on(2, 2)
        rate, now = (seen.rate(shape, seen.costs(shape), cores=2) for shape in (there, here))
        return rate / now

    little, much = seen_from(50e-6, 20e-6), seen_from(5030e-6, 5000e-6)
    # 20 us of work and 30 of waking with a chance of 1/2, which becomes 2/18, and 16/18 on as many threads as calls.
    assert times(little, 16, 2) == pytest.approx(50 / (20 + 30 * 4 / 18), rel=0.01)
    assert times(little, 2, 16) == pytest.approx(50 / (20 + 30 * 32 / 18), rel=0.01)
    assert times(little, 16, 16) == pytest.approx(1.0, rel=0.01)
    assert times(much, 16, 2) == pytest.approx(1.0, rel=0.01)


def test_calls_that_queue_for_a_core_do_not_cost_more() -> None:
    """Eight threads on two cores: each call lasts four times as long, most of it in the queue."""
    run = world_run(WORK, (Setting(calls=8, threads=8),))
    model = build_model(replace(run, pipeline=users_pipeline(python=False)))
    assert model is not None
    assert rate(model, Setting(calls=1)) == pytest.approx(1 / (2.05 * MS), rel=0.1)


def test_workers_share_what_one_machine_cannot_do() -> None:
    model = model_of(WORK, Setting(calls=2))
    settings = overrides_of(Setting(calls=2))
    assert model.device_step_s(settings) == pytest.approx(16.4 * MS, rel=0.1)
    assert model.data_service_workers(settings, floor_s=5 * MS) == 4
    assert model.data_service_workers(settings, floor_s=50 * MS) == 1


def test_a_step_on_the_same_cores_takes_what_both_need() -> None:
    run = world_run(WORK, (Setting(calls=2),), step_s=20 * MS)
    floor = Block(
        kind="floor", round=0, warmup_steps=1, steps=5, elapsed_s=0.1, step_s=(0.02,) * 5, fetch_s=(0.0,) * 5, cpu_s=0.2
    )  # fmt: skip
    model = build_model(replace(run, floor=replace(run.floor, blocks=(floor,))))
    assert model is not None
    # 40 ms of processor for the step and 16 * 2.05 for the batch, on two cores.
    assert step_s(model, Setting(calls=2, depth=2)) == pytest.approx((40 + 32.8) / 2 * MS, rel=0.02)


def test_other_circumstances() -> None:
    model = model_of(WORK, Setting(calls=1), Setting(calls=2), step_s=20 * MS)
    setting = Setting(calls=2, depth=2)
    assert step_s(model, setting, batch_size=32) == pytest.approx(2 * step_s(model, setting), rel=0.05)
    # Every example of the source 3 ms later, in the one thread that reads it.
    assert rate(model, setting, added_latency_s=3 * MS) == pytest.approx(1 / (3.05 * MS), rel=0.1)
    # A map that draws at random cannot be cached: only the source's share goes.
    assert rate(model, setting, cache="memory") >= rate(model, setting)


def test_latency_is_added_where_the_pipeline_waits() -> None:
    model = model_of(LATENCY, Setting(calls=1), Setting(calls=2))
    assert rate(model, Setting(calls=1), added_latency_s=5 * MS) == pytest.approx(1 / (10.1 * MS), rel=0.1)
    assert rate(model, Setting(calls=2), added_latency_s=5 * MS) == pytest.approx(2 / (10.1 * MS), rel=0.1)


# --- what never may be otherwise -------------------------------------------------------------------------------


@given(
    calls=st.sampled_from([1, 2, 4, 16]),
    threads=st.sampled_from([None, 4, 16]),
    depth=st.integers(0, 4),
    floor_ms=st.floats(0.1, 200),
    factor=st.floats(1, 8),
)
@settings(max_examples=60, deadline=None)
def test_more_never_hurts_and_less_never_helps(
    calls: int, threads: int | None, depth: int, floor_ms: float, factor: float
) -> None:
    setting, floor_s = Setting(calls=calls, threads=threads, depth=depth), floor_ms * MS
    base = MIXED.predict(overrides_of(setting), floor_s=floor_s)
    assert base.step_s >= floor_s * (1 - 1e-9)
    assert base.step_s >= 8 / base.capacity_examples_per_s * (1 - 1e-9)
    more_cores = MIXED.predict(overrides_of(setting), floor_s=floor_s, cores=4)
    assert more_cores.capacity_examples_per_s >= base.capacity_examples_per_s * (1 - 1e-9)
    assert step_s(MIXED, setting, floor_s=floor_s * factor) >= base.step_s * (1 - 1e-9)
    assert rate(MIXED, setting, added_latency_s=factor * MS) <= base.capacity_examples_per_s * (1 + 1e-9)
    assert step_s(MIXED, replace(setting, depth=max(1, depth) + 1), floor_s=floor_s) <= base.step_s * (1 + 1e-9)
    assert rate(MIXED, setting, cache="memory") >= base.capacity_examples_per_s * (1 - 1e-9)


MIXED = model_of(World(source_s=0.02 * MS, wait_s=2 * MS, compute_s=0.5 * MS, jitter=0.2), Setting(calls=1))


@given(calls=st.integers(1, 64), threads=st.integers(1, 64))
@settings(max_examples=40, deadline=None)
def test_more_calls_and_more_threads_are_never_slower_by_law(calls: int, threads: int) -> None:
    less = rate(MIXED, Setting(calls=calls, threads=threads))
    assert rate(MIXED, Setting(calls=calls + 1, threads=threads)) >= less * (1 - 1e-9)
    assert rate(MIXED, Setting(calls=calls, threads=threads + 1)) >= less * (1 - 1e-9)


@given(
    one=st.tuples(st.sampled_from([None, 1, 2, 8]), st.sampled_from([None, 8]), st.booleans()),
    other=st.tuples(st.sampled_from([None, 1, 2, 8]), st.sampled_from([None, 8]), st.booleans()),
)
@settings(max_examples=40, deadline=None)
def test_distance_is_symmetric_and_blind_to_depth(one: Any, other: Any) -> None:
    pipeline = users_pipeline(python=True)
    a, b, deeper = (
        shape_of(overrides_of(setting), pipeline, cores=2, batch_size=8)
        for setting in (
            Setting(calls=one[0], threads=one[1], fused=one[2]),
            Setting(calls=other[0], threads=other[1], fused=other[2]),
            Setting(calls=one[0], threads=one[1], fused=one[2], depth=3),
        )
    )
    assert distance(a, b) == distance(b, a)
    assert distance(a, deeper) == 0
    assert (distance(a, b) == 0) == (one == other) or {one[0], other[0]} == {None, 1}


# --- what is known, what is asked for, how far off it was --------------------------------------------------------


def test_nothing_drained_alone_is_no_model() -> None:
    run = make_run(candidates=(make_candidate(PipelineSettings(), capacity_examples_per_s=None),))
    assert build_model(run) is None


def test_work_that_was_never_seen_is_unknown_until_it_is() -> None:
    order = make_site(
        "data.py:2:map(order)", "data.py", kind="order", axis="order", stage="data.py:2:map", partner="data.py:3:batch",
        value="map-batch", written=True,
    )  # fmt: skip
    run = world_run(WORK, (Setting(calls=1), Setting(calls=2)))
    assert run.pipeline is not None
    run = replace(run, pipeline=replace(run.pipeline, sites=(*run.pipeline.sites, order)))
    model = build_model(run)
    assert model is not None
    batch_first = PipelineSettings(overrides=((CALLS, 2), (order.id, "batch-map")))
    reason = model.unknown(batch_first)
    assert reason is not None
    assert "batch-map" in reason
    with pytest.raises(ValueError, match="batch-map"):
        model.predict(batch_first)
    assert model.uncertainty(batch_first) == 1
    assert model.probes([batch_first]) == (batch_first,)
    seen = make_candidate(
        batch_first,
        capacity_examples_per_s=100_000.0,
        cpu_s_per_example=15e-6,
        capacity_executed=(
            Node(node="Range", elements=16_000, processing_s=0.016),
            Node(node="BatchV2", elements=1000, processing_s=0.16),
            Node(node="ParallelMapV2", elements=1000, processing_s=0.08),
        ),
    )
    known = build_model(replace(run, candidates=(*run.candidates, seen)))
    assert known is not None
    assert known.unknown(batch_first) is None
    deeper = PipelineSettings(overrides=((CALLS, 2), (order.id, "batch-map"), (END_PREFETCH, 4)))
    assert known.predict(deeper).capacity_examples_per_s == pytest.approx(100_000, rel=0.01)
    serial = known.bottleneck(deeper)
    assert serial is not None
    assert serial.limit == "thread"


def test_probes_are_asked_for_until_nothing_differs_any_more() -> None:
    grid = [Setting(calls=calls, threads=threads) for calls in (1, 2, 4, 8) for threads in (None, 8)]
    candidates = [overrides_of(setting) for setting in grid]
    seen = [Setting(calls=1)]
    for _ in range(6):
        wanted = model_of(LATENCY, *seen, step_s=1 * MS).probes(candidates)
        if not wanted:
            break
        seen.append(next(setting for setting in grid if overrides_of(setting) == wanted[0]))
    assert wanted == ()
    assert 2 <= len(seen) <= 6


def test_nothing_is_probed_that_a_long_step_hides() -> None:
    model = model_of(LATENCY, Setting(calls=1), step_s=1.0)
    assert model.probes([overrides_of(Setting(calls=8, threads=8, depth=2))]) == ()


def test_errors_of_predictions_made_beforehand() -> None:
    assert prediction_errors(make_run()) is None
    candidates = tuple(
        make_candidate(
            PipelineSettings(prefetch_depth=depth),
            predicted=Prediction(step_s=0.1 * (1 + error), capacity_examples_per_s=1.0),
            step_s=interval(0.1),
        )
        for depth, error in enumerate((0.01, -0.02, 0.03, 0.2))
    )
    errors = prediction_errors(make_run(candidates=candidates))
    assert errors is not None
    assert (errors.count, errors.median, errors.p90) == (4, pytest.approx(0.025), pytest.approx(0.2))
    assert not errors.fits
    assert replace(errors, p90=0.1).fits


def test_a_measured_step_is_predicted_as_it_was_and_teaches_those_like_it() -> None:
    run = world_run(WORK, (Setting(calls=1, depth=2), Setting(calls=2, depth=2)), step_s=10 * MS)
    slower = replace(run.candidates[1], step_s=interval(1.2 * 16.4 * MS))
    model = build_model(replace(run, candidates=(run.candidates[0], slower)))
    assert model is not None
    assert step_s(model, Setting(calls=2, depth=2)) == pytest.approx(1.2 * 16.4 * MS)
    assert 1.02 < step_s(model, Setting(calls=2, depth=1)) / (16.4 * MS) < 1.2
    # Circumstances that were not measured are not corrected by it.
    assert step_s(model, Setting(calls=2, depth=2), floor_s=1.0) == pytest.approx(1.0)


def test_a_step_that_waits_teaches_little_of_one_that_does_not() -> None:
    run = world_run(WORK, (Setting(calls=1, depth=2), Setting(calls=2, depth=2)), step_s=20 * MS)
    slower = replace(run.candidates[0], step_s=interval(1.5 * 32.8 * MS))
    model = build_model(replace(run, candidates=(slower, run.candidates[1])))
    assert model is not None
    assert step_s(model, Setting(calls=2, depth=2)) < 1.05 * 20 * MS
    assert step_s(model, Setting(calls=1, depth=1)) > 1.2 * 32.8 * MS


# --- shapes and costs -----------------------------------------------------------------------------------------


def shape(*overrides: tuple[str, Any], pipeline: Pipeline | None = None, **fields: Any) -> Any:
    settings = PipelineSettings(**fields) if fields else PipelineSettings(overrides=overrides)
    if pipeline is None and not fields:
        pipeline = users_pipeline(python=True)
    return shape_of(settings, pipeline, cores=2, batch_size=8)


def test_shapes_of_the_built_in_data_sets() -> None:
    serial = shape(rewrites="off")
    assert [(s.name, s.ahead) for s in serial.stages] == [("before map", None), ("map", None), ("batch", None)]
    rewritten = shape(rewrites="default")
    assert [(s.name, s.calls, s.ahead) for s in rewritten.stages if s.ahead] == [("map", 2, 8), ("prefetch", 1, 128)]
    assert rewritten.stages[1].tuned
    assert rewritten.fused == {"batch"}
    batch_first = shape(order="batch-map", map_parallelism=4, prefetch_depth=2, threadpool=3)
    assert [s.name for s in batch_first.stages] == ["before batch", "batch", "map", "prefetch"]
    assert [(s.calls, s.ahead) for s in batch_first.stages if s.ahead] == [(4, 32), (1, 16)]
    assert batch_first.threads == 3
    assert shape(deterministic=False, map_parallelism=2, rewrites="off").stages[1].ordered is False
    assert shape(map_parallelism=2, rewrites="off").stages[1].ordered is True


def test_shapes_of_a_users_pipeline() -> None:
    as_is = shape()
    assert [(s.name, s.calls, s.ahead) for s in as_is.stages] == [
        ("before data.py:2:map", 1, None), ("data.py:2:map", 1, 8), ("data.py:3:batch", 1, None),
        ("end:prefetch", 1, 128),
    ]  # fmt: skip
    assert as_is.variant == ()
    # Python has state: the map is made no more parallel than it is, but one of TensorFlow's operations alone is.
    plain = users_pipeline(python=False)
    plain = replace(plain, stages=tuple(replace(stage, random=False) for stage in plain.stages))
    assert shape(pipeline=plain).stage("data.py:2:map").calls == 2
    tuned = shape((CALLS, "auto"), (POOL, 16))
    assert (tuned.stage("data.py:2:map").calls, tuned.threads) == (16, 16)


def interleaved(**arguments: Any) -> Pipeline:
    pipeline = users_pipeline(python=True)
    stages = (
        pipeline.stages[0],
        Stage(id="d:5:range", file="d", line=5, method="range", parent="d:6:interleave"),
        Stage(id="d:5:map", file="d", line=5, method="map", parent="d:6:interleave", python=True),
        Stage(id="d:6:interleave", file="d", line=6, method="interleave"),
        pipeline.stages[2],
    )
    sites = (
        make_site("d:5:map(num_parallel_calls)", "d"),
        make_site(
            "d:6:interleave(num_parallel_calls)", "d", axis="interleave_parallelism", value=arguments.get("calls"),
            written="calls" in arguments,
        ),
        make_site("d:6:interleave(cycle_length)", "d", axis="cycle_length", value=4, written=True),
        *pipeline.sites[1:],
    )  # fmt: skip
    return replace(pipeline, stages=stages, sites=sites)


def test_an_interleave_has_no_more_calls_than_its_cycle_and_its_inner_maps_multiply() -> None:
    sequential = shape(pipeline=interleaved())
    assert (sequential.stage("d:6:interleave").ahead, sequential.stage("d:6:interleave").pooled) == (None, True)
    assert shape(pipeline=interleaved(calls=8)).stage("d:6:interleave").calls == 4
    wide = shape(("d:6:interleave(cycle_length)", 16), pipeline=interleaved(calls=8))
    assert wide.stage("d:6:interleave").calls == 8
    assert shape(("d:5:map(num_parallel_calls)", 2), pipeline=interleaved()).stage("d:5:map").calls == 8


def test_residence_is_read_from_the_nodes_in_their_order() -> None:
    fused = (
        Node(node="Range", elements=800, processing_s=0.008),
        Node(node="MapAndBatch", elements=100, processing_s=4.0),
        Node(node="Prefetch", elements=100, processing_s=0.1),
    )
    found = residence_s(fused, shape(), 8)
    assert found == {
        "before data.py:2:map": pytest.approx(1e-5),
        "data.py:2:map": pytest.approx(5e-3),
        "data.py:3:batch": 0,
        "end:prefetch": 0,
    }
    # Nodes of another pipeline than the one expected say nothing.
    assert residence_s(fused[:1], shape(), 8) is None
    assert residence_s((fused[1], fused[1]), shape(), 8) is None


def test_residence_of_readers() -> None:
    """TensorFlow reads files and generators with a flat map, and several files at a time with an interleave."""
    pipeline = users_pipeline(python=False)
    reader = Stage(id="d:1:TFRecordDataset", file="d", line=1, method="TFRecordDataset")
    reads = make_site("d:1:TFRecordDataset(num_parallel_reads)", "d", axis="read_parallelism")
    pipeline = replace(pipeline, stages=(reader, *pipeline.stages[1:]), sites=(reads, *pipeline.sites))
    nodes = (
        Node(node="TFRecord", elements=800, processing_s=0.08),
        Node(node="TensorSlice", elements=1, processing_s=0.0),
        Node(node="FlatMap", elements=800, processing_s=0.008),
        Node(node="MapAndBatch", elements=100, processing_s=4.0),
    )
    found = residence_s(nodes, shape(pipeline=pipeline), 8)
    assert found is not None
    assert found["before data.py:2:map"] == pytest.approx(1.1e-4)
    parallel = shape((reads.id, 3), pipeline=pipeline)
    assert [(s.name, s.kind, s.calls) for s in parallel.stages][:2] == [
        ("before d:1:TFRecordDataset", "serial", 1), ("d:1:TFRecordDataset", "interleave", 3),
    ]  # fmt: skip
    interleaving = Node(node="LegacyParallelInterleaveV2", elements=800, processing_s=0.016)
    found = residence_s((*[nodes[0]] * 3, interleaving, nodes[3]), parallel, 8)
    assert found is not None
    assert found["d:1:TFRecordDataset"] == pytest.approx(1.2e-4)


def test_residence_inside_an_interleave() -> None:
    inner = [
        node
        for _ in range(4)
        for node in (
            Node(node="Range", elements=200, processing_s=0.002),
            Node(node="Map", elements=200, processing_s=1.0),
        )
    ]
    outer = [
        Node(node="Range", elements=4, processing_s=0.0),
        Node(node="ParallelInterleaveV4", elements=800, processing_s=0.008),
        Node(node="BatchV2", elements=100, processing_s=0.08),
    ]
    found = residence_s([*inner, *outer], shape(pipeline=interleaved(calls=4)), 8)
    assert found is not None
    assert found["d:6:interleave"] == pytest.approx(5.02e-3, rel=0.01)
    assert found["data.py:3:batch"] == pytest.approx(1e-4)
    own = shape(("d:5:map(num_parallel_calls)", 2), pipeline=interleaved(calls=4))
    found = residence_s([*inner, *outer], own, 8)
    assert found is not None
    assert found["d:5:map"] == pytest.approx(5e-3)


def test_costs_sum_to_what_the_process_used() -> None:
    users = shape()
    costs = split_costs({"before data.py:2:map": 1e-5, "data.py:2:map": 5e-3}, users, cpu_s=2e-4, fastest_s=5e-3)
    assert costs.cpu_s == pytest.approx(2e-4)
    mapped = costs.of("data.py:2:map")
    assert (mapped.cpu_s, mapped.wait_s, mapped.lock_s) == pytest.approx((1.9e-4, 4.81e-3, 1.9e-4))
    # More processor time than the stages lasted: threads that wake each other.
    busy = split_costs({"data.py:2:map": 1e-5}, users, cpu_s=5e-5, fastest_s=1e-5)
    assert busy.handing_s == pytest.approx(4e-5)
    assert busy.cpu_s == pytest.approx(5e-5)
    # Operations that last longer than they compute wait as well, whoever may wait.
    slow = split_costs({"before data.py:2:map": 1e-3, "data.py:2:map": 1e-3}, users, cpu_s=5e-4, fastest_s=1e-3)
    assert slow.cpu_s == pytest.approx(5e-4)
    assert sum(stage.wait_s for stage in slow.stages) == pytest.approx(1.5e-3)
