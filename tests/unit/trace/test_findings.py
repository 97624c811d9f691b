"""Every finding of the closed list: what brings it about, and what must not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from tfpipe.trace.findings import Facts, find_all
from tfpipe.trace.verdict import find_bottleneck, judge
from tfpipe.trace_records import Buffer, FindingCode, OpCost, Pipeline, Split, Stage, Steps

DECODE = OpCost(operation="DecodeJpeg", calls=320, time_s=1.0, share=1.0, python=False)
PYTHON = OpCost(operation="PyFunc", calls=320, time_s=1.0, share=1.0, python=True)


def stage(name: str, depth: int, blocking_s: float = 0.0, **changes: Any) -> Stage:
    """A stage of ten batches; ``blocking_s`` is its own part of the waiting."""
    fields: dict[str, Any] = {
        "path": f"Iterator::Root::{depth}::{name}", "name": name, "node": "", "depth": depth, "calls": 10,
        "total_s": blocking_s, "self_s": blocking_s, "blocking_s": blocking_s, "blocking_self_s": blocking_s,
        "blocking_share": blocking_s, "threads": 1, "function_s": 0.0, "function_calls": 0,
        "parallelism": None, "autotuned": None, "buffer": None, "element_bytes": None, "elements_per_call": None,
        "settings": {}, "ops": (),
    }  # fmt: skip
    return Stage(**{**fields, **changes})


def buffer(first: int, last: int, capacity: int, *, empty: float = 0.0, full: float = 0.0) -> Buffer:
    return Buffer(
        capacity=capacity,
        mean_elements=(first + last) / 2,
        empty_fraction=empty,
        full_fraction=full,
        first_elements=first,
        last_elements=last,
    )


def facts(
    *stages: Stage, waiting: float = 0.5, computing: float | None = None, step_s: float = 0.1, **changes: Any
) -> Facts:
    """Ten steps of 100 ms; ``waiting`` and ``computing`` are fractions of them, the rest is other.

    Without waiting the steps compute, unless said otherwise.
    """
    if computing is None:
        computing = 0.4 if waiting >= 0.05 else 0.7
    parts = {
        "device_compute_s": computing * step_s, "input_wait_s": waiting * step_s, "host_to_device_s": 0.0,
        "host_s": 0.0, "compile_s": 0.0, **{name: changes.pop(name) for name in list(changes) if name.endswith("_s")},
    }  # fmt: skip
    mean = Split(step_s=step_s, other_s=step_s - sum(parts.values()), **parts)
    steps = Steps(
        basis="marker",
        confidence="high",
        statement="10 steps",
        count=10,
        mean_s=step_s,
        median_s=step_s,
        min_s=step_s,
        max_s=step_s,
        mean=mean,
        each=(mean,) * 10,
    )
    pipeline = Pipeline(
        name="P", calls=10, wait_s=waiting, wait_fraction=waiting, batch_bytes=None, stages=stages, slow_calls=()
    )
    bottleneck = find_bottleneck((pipeline,), step_s, 10) if stages and waiting else None
    worst = next((s for s in stages if bottleneck and s.path == bottleneck.path), None)
    made = Facts(
        steps=steps,
        verdict=judge(steps, "CPU"),
        input_fraction=mean.input_fraction,
        pipelines=(pipeline,) if stages else (),
        bottleneck=bottleneck,
        pipeline=pipeline if bottleneck else None,
        stage=worst,
        traced_calls=0,
        dropped=0,
        complaints=(),
    )
    return replace(made, **changes)


ROOT = stage("Root", 0)
PREFETCH = stage("Prefetch", 1, buffer=buffer(1, 1, 2))
STARVED = stage("Prefetch", 1, buffer=buffer(0, 0, 2, empty=0.9))

CASES: dict[str, tuple[Facts, list[str]]] = {
    "slow source": (facts(ROOT, PREFETCH, stage("TFRecord", 2, 0.5)), ["slow-source"]),
    "a source that does not block": (facts(ROOT, PREFETCH, stage("TFRecord", 2, 0.5), waiting=0.01), []),
    "sequential map": (
        facts(ROOT, PREFETCH, stage("Map", 2, 0.5, function_calls=320, function_s=1.0, ops=(DECODE,))),
        ["sequential-map"],
    ),
    "a map that is parallel": (
        facts(ROOT, PREFETCH, stage("ParallelMapV2", 2, 0.5, parallelism=4, function_calls=320, function_s=1.0)),
        [],
    ),
    "cheap map per element": (
        facts(ROOT, PREFETCH, stage("ParallelMapV2", 2, 0.5, parallelism=2, function_calls=10_000, function_s=0.1)),
        ["map-per-element"],
    ),
    "cheap map per batch": (
        facts(ROOT, PREFETCH, stage("ParallelMapV2", 2, 0.5, parallelism=2, function_calls=10, function_s=1e-4)),
        [],
    ),
    "python in a parallel map": (
        facts(ROOT, PREFETCH, stage("ParallelMapV2", 2, 0.5, parallelism=1, function_calls=320, ops=(PYTHON,))),
        ["python-in-pipeline"],
    ),
    "generator": (facts(ROOT, PREFETCH, stage("Generator", 2, 0.5)), ["python-in-pipeline"]),
    "data service": (facts(ROOT, PREFETCH, stage("DataServiceDatasetV4", 2, 0.5)), ["data-service-behind"]),
    "batch copy": (facts(ROOT, PREFETCH, stage("BatchV2", 2, 0.5), stage("Range", 3)), ["batch-copy"]),
    "no prefetch": (facts(ROOT, stage("BatchV2", 1, 0.5)), ["no-prefetch", "batch-copy"]),
    "starved prefetch": (
        facts(ROOT, STARVED, stage("ParallelMapV2", 2, 0.5, parallelism=4, function_calls=320, function_s=1.0)),
        ["starved-prefetch"],
    ),
    "oversized prefetch": (
        facts(ROOT, stage("Prefetch", 1, buffer=buffer(99, 99, 100, full=1.0), autotuned=False), waiting=0.0),
        ["oversized-prefetch"],
    ),
    "deep prefetch that AUTOTUNE chose": (
        facts(ROOT, stage("Prefetch", 1, buffer=buffer(99, 99, 100, full=1.0), autotuned=True), waiting=0.0),
        [],
    ),
    "narrow interleave": (
        facts(
            ROOT,
            PREFETCH,
            stage("ParallelInterleaveV4", 2, parallelism=1, settings={"cycle_length": 8}),
            stage("TFRecord", 3, 0.5),
        ),
        ["slow-source", "narrow-interleave"],
    ),
    "wide interleave": (
        facts(
            ROOT,
            PREFETCH,
            stage("ParallelInterleaveV4", 2, parallelism=8, settings={"cycle_length": 8}),
            stage("TFRecord", 3, 0.5),
        ),
        ["slow-source"],
    ),
    "shuffle still filling": (
        facts(ROOT, PREFETCH, stage("Shuffle", 2, buffer=buffer(0, 400, 1000)), waiting=0.0),
        ["shuffle-filling"],
    ),
    "shuffle filled in the window": (
        facts(ROOT, PREFETCH, stage("Shuffle", 2, buffer=buffer(0, 999, 1000), elements_per_call=3.5), waiting=0.0),
        ["shuffle-filling"],
    ),
    "shuffle larger than its data": (
        facts(ROOT, PREFETCH, stage("Shuffle", 2, buffer=buffer(32, 33, 5000), elements_per_call=1.0), waiting=0.0),
        [],
    ),
    "full shuffle": (
        facts(ROOT, PREFETCH, stage("Shuffle", 2, buffer=buffer(999, 999, 1000), elements_per_call=1.0), waiting=0.0),
        [],
    ),
    "shuffle that drains at the end": (
        facts(ROOT, PREFETCH, stage("Shuffle", 2, buffer=buffer(999, 10, 1000), elements_per_call=0.1), waiting=0.0),
        [],
    ),
    "shuffle after decode": (
        facts(
            ROOT,
            PREFETCH,
            stage("Shuffle", 2, buffer=buffer(99, 99, 100), element_bytes=1 << 20),
            stage("ParallelMapV2", 3, ops=(DECODE,)),
            waiting=0.0,
        ),
        ["shuffle-after-decode"],
    ),
    "shuffle before decode": (
        facts(ROOT, PREFETCH, stage("Map", 2, ops=(DECODE,)), stage("Shuffle", 3, buffer=buffer(9, 9, 9)), waiting=0.0),
        [],
    ),
    "cache being written": (
        facts(ROOT, PREFETCH, stage("MemoryCacheImpl", 2), stage("Map", 3, calls=99), waiting=0.0),
        ["cache-incomplete"],
    ),
    "cache being read": (facts(ROOT, PREFETCH, stage("MemoryCacheImpl", 2), waiting=0.0), []),
    "cache missing": (
        facts(
            ROOT,
            PREFETCH,
            stage("ForeverRepeat", 2),
            stage("ParallelMapV2", 3, 0.5, parallelism=8, function_calls=320, function_s=1.0, ops=(DECODE,)),
        ),
        ["cache-missing"],
    ),
    "copy": (facts(waiting=0.0, host_to_device_s=0.02), ["copy-not-overlapped"]),
    "retracing": (facts(waiting=0.0, computing=0.9, traced_calls=3), ["retracing"]),
    "host": (facts(waiting=0.0, computing=0.1, host_s=0.08), ["host-python"]),
    "outside": (facts(waiting=0.0, computing=0.1), ["host-python"]),
    "computing": (facts(waiting=0.0, computing=0.9), []),
    "short step": (facts(waiting=0.0, computing=0.9, step_s=1e-4), ["short-step"]),
    "dropped": (facts(waiting=0.0, computing=0.9, dropped=5, complaints=("buffer full",)), ["events-dropped"]),
}


@pytest.mark.parametrize("name", CASES)
def test_findings(name: str) -> None:
    given, expected = CASES[name]
    found = find_all(given)
    assert [finding.code for finding in found] == expected
    for finding in found:
        assert finding.evidence.endswith((".", "full"))
        assert finding.action.endswith(".")


def test_the_cases_cover_the_closed_list() -> None:
    """``slow-host`` needs several traces and is tested with them."""
    covered = {code for _, codes in CASES.values() for code in codes}
    assert covered == set(get_args(FindingCode)) - {"slow-host"}
