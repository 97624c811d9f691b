from __future__ import annotations

import pytest

from tfpipe.analysis.memory import (
    ELEMENT_OVERHEAD_BYTES,
    FRAGMENTATION,
    PIPELINE_BYTES,
    TEMPORARIES,
    THREAD_BYTES,
    array_part,
    cache_part,
    fits,
    forecast_memory,
    interleave_part,
    shared_row_bytes,
)
from tfpipe.settings import PipelineSettings

EXAMPLE, MAPPED, BATCH = 1024, 4096, 32
BATCH_BYTES = BATCH * MAPPED


def forecast(resident_bytes=0, examples=1000, cores=2, shared_bytes=0, array_bytes=0, budget=None, others=(), **knobs):
    return forecast_memory(
        PipelineSettings(**knobs),
        examples=examples,
        example_bytes=EXAMPLE,
        mapped_example_bytes=MAPPED,
        batch_size=BATCH,
        cores=cores,
        resident_bytes=resident_bytes,
        shared_bytes=shared_bytes,
        array_bytes=array_bytes,
        autotune_budget_bytes=budget,
        others=others,
    )


def part(name, **knobs):
    return next((part for part in forecast(**knobs).parts if part.name == name), None)


def test_total_is_the_sum_of_the_parts_and_of_what_was_resident():
    result = forecast(resident_bytes=10**9, shuffle_buffer=100, prefetch_depth=4, map_parallelism=2)
    assert result.growth_bytes == sum(part.size_bytes for part in result.parts)
    assert result.total_bytes == 10**9 + result.growth_bytes
    assert result.high_bytes == 10**9 + sum(part.high_bytes for part in result.parts)


def test_shuffle_buffer_holds_examples_but_never_more_than_there_are():
    each = EXAMPLE + ELEMENT_OVERHEAD_BYTES
    assert part("shuffle buffer") is None
    assert part("shuffle buffer", shuffle_buffer=100).size_bytes == 100 * each
    for knob in ("full", 1000, 10**9):
        assert part("shuffle buffer", shuffle_buffer=knob).size_bytes == 1000 * each
    assert part("shuffle buffer", shuffle_buffer=100).high_bytes == FRAGMENTATION * 100 * each


def test_rows_that_are_slices_of_an_array_cost_no_more_than_the_slice():
    assert part("shuffle buffer", shuffle_buffer=100, shared_bytes=1000).size_bytes == 100 * (
        EXAMPLE - 1000 + ELEMENT_OVERHEAD_BYTES
    )
    assert shared_row_bytes(3072) == 3072
    assert shared_row_bytes(8) == shared_row_bytes(3069) == 0


def test_prefetch_holds_mapped_batches():
    assert part("prefetch") is None
    fixed = part("prefetch", prefetch_depth=4)
    assert fixed.size_bytes == 4 * BATCH_BYTES
    assert fixed.high_bytes == FRAGMENTATION * 4 * BATCH_BYTES


def test_autotuned_prefetch_is_a_range_that_ends_at_tensorflow_s_budget():
    assert part("prefetch", prefetch_depth="auto").size_bytes == BATCH_BYTES
    assert part("prefetch", prefetch_depth="auto").high_bytes is None
    assert forecast(prefetch_depth="auto").high_bytes is None
    assert part("prefetch", prefetch_depth="auto", budget=10**9).high_bytes == 10**9


@pytest.mark.parametrize(
    ("knobs", "low", "high"),
    [
        # Fused: one batch at work and one complete, more when the calls together reach into further batches.
        ({"map_parallelism": 2}, 2 * BATCH_BYTES, 2 * BATCH_BYTES),
        ({"map_parallelism": 33}, 3 * BATCH_BYTES, 3 * BATCH_BYTES),
        ({"map_parallelism": None}, 2 * BATCH_BYTES, 2 * BATCH_BYTES),
        ({"map_parallelism": "auto", "threadpool": 64}, 2 * BATCH_BYTES, 3 * BATCH_BYTES),
        # As written: single results, and the batch.
        ({"map_parallelism": 8, "rewrites": "off"}, BATCH_BYTES + 8 * MAPPED, BATCH_BYTES + 8 * MAPPED),
        ({"map_parallelism": "auto", "rewrites": "off"}, BATCH_BYTES + MAPPED, BATCH_BYTES + 2 * MAPPED),
        ({"map_parallelism": None, "rewrites": "off"}, BATCH_BYTES, BATCH_BYTES),
    ],
)
def test_map_before_batch(knobs, low, high):
    calls = part("map and batch", **knobs)
    assert (calls.size_bytes, calls.high_bytes) == (low, FRAGMENTATION * high)


@pytest.mark.parametrize(
    ("knobs", "low", "high"),
    [
        ({"map_parallelism": 3}, 3, 3),
        ({"map_parallelism": None}, 1, 2),
        ({"map_parallelism": "auto", "cores": 16}, 1, 16),
        ({"map_parallelism": None, "rewrites": "off"}, 1, 1),
    ],
)
def test_batch_before_map_holds_whole_batches_per_call(knobs, low, high):
    calls = part("map and batch", order="batch-map", **knobs)
    each = BATCH_BYTES + BATCH * EXAMPLE
    assert (calls.size_bytes, calls.high_bytes) == (low * each, FRAGMENTATION * high * each)


@pytest.mark.parametrize(
    ("knobs", "running", "call_bytes"),
    [
        ({"map_parallelism": 64}, 2, MAPPED),
        ({"map_parallelism": 64, "threadpool": 16}, 16, MAPPED),
        ({"map_parallelism": 4, "threadpool": 16, "order": "batch-map"}, 4, BATCH_BYTES),
        ({"map_parallelism": None, "rewrites": "off"}, 1, MAPPED),
    ],
)
def test_threads_that_run_calls_may_need_memory_for_the_moment(knobs, running, call_bytes):
    threads = part("threads and graph", **knobs)
    assert threads.size_bytes == PIPELINE_BYTES
    assert threads.high_bytes == FRAGMENTATION * PIPELINE_BYTES + running * (THREAD_BYTES + TEMPORARIES * call_bytes)


def test_rewriting_copies_the_arrays_for_a_moment_before_any_buffer_is_full():
    copied = forecast(resident_bytes=1000, array_bytes=2**30)
    assert copied.growth_bytes == 2**30
    assert copied.total_bytes == 1000 + 2**30
    assert copied.arithmetic.startswith("a copy of the arrays while TensorFlow rewrites the pipeline: 1.00 GiB; ")
    assert fits(copied, 2**30).endswith("Use --rewrites off, which makes no such copy, or a machine with more memory.")
    larger = forecast(array_bytes=2**20, prefetch_depth=1000)
    assert larger.growth_bytes == larger.buffered_bytes == sum(part.size_bytes for part in larger.parts)
    assert forecast(array_bytes=2**30, rewrites="off").growth_bytes < 2**30


def test_stages_without_a_setting_are_added():
    others = (cache_part(100, 1000), interleave_part(16, 2**18), array_part(10**6))
    with_others, without = forecast(others=others), forecast()
    assert with_others.growth_bytes - without.growth_bytes == (
        100 * (1000 + ELEMENT_OVERHEAD_BYTES) + 16 * 2**18 + 10**6
    )
    assert "interleave: 16 inner pipelines x 256 KiB = 4.00 MiB" in with_others.arithmetic


def test_the_arithmetic_in_words():
    result = forecast(
        resident_bytes=2**30, examples=50_000, shuffle_buffer="full", map_parallelism=1, prefetch_depth="auto"
    )
    assert result.arithmetic == (
        "shuffle buffer: 50,000 examples x 1.20 KiB = 58.4 MiB; "
        "map and batch: 2 batches x 128 KiB = 256 KiB; "
        "prefetch: AUTOTUNE from 1 batch x 128 KiB = 128 KiB; "
        "in hand: 2 batches x 128 KiB = 256 KiB; "
        "threads and graph: 1 pipeline x 4.00 MiB = 4.00 MiB; "
        "resident before: 1.00 GiB; together 1.06 GiB"
    )


def test_what_fits_has_no_message():
    result = forecast(resident_bytes=1000, shuffle_buffer=10)
    assert fits(result, result.total_bytes) is None
    assert fits(result, result.total_bytes - 1) is not None


def test_what_autotune_may_add_is_no_reason_to_skip():
    result = forecast(prefetch_depth="auto", budget=10**12)
    assert fits(result, 10**9) is None


def test_what_does_not_fit_has_the_arithmetic_and_what_to_do():
    result = forecast(examples=10**9, shuffle_buffer="full", prefetch_depth=1)
    message = fits(result, 2**30)
    assert message.startswith("It needs at least 1.11 TiB where 1.00 GiB are to be had (shuffle buffer: 1,000,000,000 ")
    assert result.arithmetic in message
    assert message.endswith("Use a smaller --shuffle-buffer, or a machine with more memory.")
    assert "smaller --prefetch" in fits(forecast(prefetch_depth=100_000), 2**30)
    assert fits(forecast(others=(array_part(2**40),)), 2**30).endswith("Free some memory, or use a machine with more.")
