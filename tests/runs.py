"""Fake runs, for every test of what happens right of the run file.

``make_run()`` is a finished run of four candidates on real-looking numbers: input-bound as written, three that
are not. Every argument replaces one field, so a test names only what it is about.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tfpipe.records import (
    Block,
    Candidate,
    Data,
    Device,
    Environment,
    Floor,
    Gain,
    Interval,
    MapCode,
    Node,
    Recommendation,
    Run,
    Step,
    TraceRecord,
    Verdict,
    Warning,
)
from tfpipe.settings import PipelineSettings

CODE = MapCode(
    definitions=(
        "import tensorflow as tf\n"
        "\n"
        "\n"
        "def scale(image, seed):\n"
        "    return tf.cast(image, tf.float32) / 255.0\n"
        "\n"
        "\n"
        "def scale_batch(images, seeds):\n"
        "    return tf.cast(images, tf.float32) / 255.0"
    ),
    load='images = tf.zeros([100, 32, 32, 3], tf.uint8)',
    source="tf.data.Dataset.from_tensor_slices(images)",
    arguments=("images",),
    map_example="scale",
    map_batch="scale_batch",
)  # fmt: skip


def interval(value: float, spread: float = 0.0) -> Interval:
    """``value`` with an interval of ``spread`` times it on either side."""
    return Interval(value=value, low=value * (1 - spread), high=value * (1 + spread))


def make_candidate(
    settings: PipelineSettings,
    *,
    name: str = "",
    floor_s: float = 0.125,
    input_wait_s: float = 0.0,
    contention_s: float = 0.0,
    bound: Any = "compute",
    batch_size: int = 32,
    **fields: Any,
) -> Candidate:
    """A complete candidate whose parts sum to its step."""
    step_s = floor_s + input_wait_s + contention_s
    block = Block(
        kind="step",
        round=0,
        warmup_steps=2,
        steps=4,
        elapsed_s=4 * step_s,
        step_s=(step_s,) * 4,
        fetch_s=(input_wait_s,) * 4,
        cpu_s=0.5,
        first_batch_s=0.25,
    )
    candidate = Candidate(
        id=settings.id,
        name=name,
        settings=settings,
        status="complete",
        blocks=(block, replace(block, round=1)),
        step_s=interval(step_s, 0.02),
        floor_s=floor_s,
        compute_s=floor_s,
        input_wait_s=input_wait_s,
        contention_s=contention_s,
        input_fraction=interval(input_wait_s / step_s, 0.1),
        contention_fraction=interval(contention_s / step_s, 0.1),
        verdict=Verdict(bound=bound, statement=f"{input_wait_s / step_s:.1%} of a step waits for input."),
        examples_per_s=interval(batch_size / step_s, 0.02),
        capacity_examples_per_s=batch_size / max(input_wait_s, 0.03125),
        first_batch_s=0.25,
        cpu_s_per_example=0.0005,
        buffered_bytes=20_000_000,
        peak_memory_bytes=1_500_000_000,
        epoch_s=50_000 / batch_size * step_s,
        executed=(
            Node(node="TensorSlice", elements=256, processing_s=0.001),
            Node(node="Shuffle", buffer_size=5000.0, elements=256, processing_s=0.01, buffered_bytes=15_360_000),
            Node(node="MapAndBatch", parallelism=2.0, tunable=True, elements=8, processing_s=0.128, buffered_bytes=800),
        ),
        trace=TraceRecord(
            path=f"traces/{settings.id}/plugins/profile/2026_01_02_03_04_05",
            steps=4,
            step_s=step_s * 1.125,
            fetch_s=input_wait_s,
            size_bytes=1_500_000,
            overhead_fraction=0.125,
        ),
        profiler_overhead_fraction=0.125,
    )
    return replace(candidate, **fields)


SERIAL = PipelineSettings(shuffle_buffer=5000, rewrites="off")
DEFAULTS = PipelineSettings(shuffle_buffer=5000)
AUTOTUNE = PipelineSettings(shuffle_buffer=5000, map_parallelism="auto", prefetch_depth="auto")
SEED_RECIPE = PipelineSettings(shuffle_buffer=5000, map_parallelism="auto", prefetch_depth="auto", order="batch-map")


def make_candidates() -> tuple[Candidate, ...]:
    return (
        make_candidate(
            SERIAL,
            name="serial, as written",
            input_wait_s=0.1,
            contention_s=0.002,
            bound="input-high",
            buffered_bytes=15_360_000,
        ),
        make_candidate(
            DEFAULTS,
            name="serial, TensorFlow's defaults",
            input_wait_s=0.015625,
            contention_s=0.004,
            bound="input-moderate",
        ),
        make_candidate(AUTOTUNE, name="all AUTOTUNE", input_wait_s=0.0005, contention_s=0.0085),
        make_candidate(
            SEED_RECIPE,
            name="seed recipe: batch first, AUTOTUNE",
            input_wait_s=0.00025,
            contention_s=0.0005,
            buffered_bytes=21_000_000,
        ),
    )


def gain(over: PipelineSettings, label: str, value: float, low: float, high: float) -> Gain:
    return Gain(over=over.id, label=label, ratio=Interval(value=value, low=low, high=high))


def make_recommendation(**fields: Any) -> Recommendation:
    recommendation = Recommendation(
        candidate=SEED_RECIPE.id,
        change=True,
        summary=f"Use {SEED_RECIPE.id}: 1.81 times as fast as the serial pipeline as written.",
        why=(
            "As written, 44 % of a step waits for input. Batching before the map takes its cost per example "
            "from 480 us to 90 us, so that one core prepares more than the step uses."
        ),
        gains=(
            gain(SERIAL, "the serial pipeline as written", 1.81, 1.74, 1.88),
            gain(AUTOTUNE, "all AUTOTUNE", 1.06, 0.99, 1.13),
        ),
        ties=(AUTOTUNE.id,),
        fastest=SEED_RECIPE.id,
        headspace=1.01,
        memory_bytes=21_000_000,
        device_speedup_before_input_bound=3.5,
    )
    return replace(recommendation, **fields)


def make_no_change(**fields: Any) -> Recommendation:
    return make_recommendation(
        **{
            "candidate": DEFAULTS.id,
            "change": False,
            "summary": f"No change worth making: {DEFAULTS.id} is as fast as anything measured.",
            "why": "The slowest candidate waits 1.2 % of a step for input, the step itself takes 125 ms.",
            "gains": (gain(SERIAL, "the serial pipeline as written", 1.0, 0.97, 1.03),),
            "ties": (),
            "fastest": DEFAULTS.id,
            "headspace": 1.02,
            "memory_bytes": 15_360_000,
            "device_speedup_before_input_bound": 8.25,
            **fields,
        }
    )


def make_environment(**fields: Any) -> Environment:
    environment = Environment(
        python="3.11.2",
        tensorflow="2.21.0",
        keras="3.15.1",
        platform="Linux-6.1-x86_64",
        hostname="host",
        cpu_model="A processor",
        cores=2,
        memory_bytes=8 * 2**30,
        devices=(Device(name="/physical_device:CPU:0", kind="CPU", description="CPU"),),
    )
    return replace(environment, **fields)


def make_data(**fields: Any) -> Data:
    data = Data(
        name="cifar100",
        origin="/data/cifar-100-python.tar.gz",
        generated=False,
        examples=50_000,
        batch_size=32,
        element="uint8 32x32x3, int64",
        example_bytes=3080,
        code=CODE,
    )
    return replace(data, **fields)


def make_run(**fields: Any) -> Run:
    """A finished run; every keyword replaces a field of ``records.Run``."""
    floor_block = Block(
        kind="floor", round=0, warmup_steps=2, steps=4, elapsed_s=0.5, step_s=(0.125,) * 4, fetch_s=(0.0,) * 4
    )
    run = Run(
        tfpipe_version="0.1.0",
        created="2026-01-02T03:04:05+00:00",
        command=("tfpipe", "profile", "--dataset", "cifar100"),
        complete=True,
        environment=make_environment(),
        data=make_data(),
        step=Step(
            name="resnet18",
            description="ResNet18, width 64",
            synchronous=True,
            parameters=11_220_132,
            first_call_s=5.0,
            traces=1,
        ),
        floor=Floor(step_s=interval(0.125, 0.02), fetch_s=0.00025, blocks=(floor_block,)),
        pipeline=None,
        current=SERIAL.id,
        candidates=make_candidates(),
        recommendation=make_recommendation(),
        warnings=(
            Warning(
                code="few-steps",
                text="Each candidate was measured for 8 steps only. Give it more with --time-budget 10min.",
            ),
        ),
        timings_s={"start": 6.0, "measure": 180.0},
    )
    return replace(run, **fields)
