"""A factory run again with other arguments: what is built, what is refused, and what is not copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfpipe.engine.capture import capture, rebuild
from tfpipe.errors import CallSitesChangedError, TfpipeError
from tfpipe.sites import OverrideValue

pytestmark = pytest.mark.tensorflow


def make_plain() -> tf.data.Dataset:
    ds = tf.data.Dataset.range(20).shuffle(4).cache()
    ds = ds.map(lambda x: x * 2)
    return ds.batch(5).prefetch(1)


def on(axis: str, value: OverrideValue, factory: Callable[[], Any] = make_plain) -> dict[str, OverrideValue]:
    return {site.id: value for site in capture(factory).sites if site.axis == axis and site.kind != "end"}


def stages(factory: Callable[[], Any], overrides: dict[str, OverrideValue]) -> list[str]:
    """Class names of the datasets built, source first, with the argument that was overridden."""
    dataset, names = rebuild(factory, overrides), []
    waiting = [dataset]
    while waiting:
        one = waiting.pop()
        names.append(type(one).__name__.strip("_").removesuffix("Dataset"))
        waiting += one._inputs()
    return names[::-1]


def arguments(dataset: Any, name: str) -> list[int]:
    """The attribute ``name`` of every dataset in the chain, source first."""
    found = [int(getattr(dataset, name))] if hasattr(dataset, name) else []
    return [value for one in dataset._inputs() for value in arguments(one, name)] + found


def test_without_overrides_it_is_the_users_pipeline() -> None:
    assert stages(make_plain, {}) == ["Range", "Shuffle", "Cache", "Map", "Batch", "Prefetch"]


def test_arguments_are_replaced() -> None:
    assert arguments(rebuild(make_plain, on("map_parallelism", 3)), "_num_parallel_calls") == [3]
    assert arguments(rebuild(make_plain, on("map_parallelism", "auto")), "_num_parallel_calls") == [tf.data.AUTOTUNE]
    depth = rebuild(make_plain, on("prefetch_depth", "auto"))
    assert arguments(depth, "_buffer_size") == [4, tf.data.AUTOTUNE]
    assert arguments(rebuild(make_plain, on("shuffle_buffer", "full")), "_buffer_size") == [20, 1]
    deterministic = on("map_parallelism", 2) | on("deterministic", False)
    assert sorted(int(x) for x in rebuild(make_plain, deterministic).unbatch()) == list(range(0, 40, 2))


def test_stages_are_left_out() -> None:
    gone = on("shuffle_buffer", 0) | on("cache", False) | on("prefetch_depth", 0)
    assert stages(make_plain, gone) == ["Range", "Map", "Batch"]


def test_a_prefetch_and_options_are_added_at_the_end() -> None:
    def make() -> tf.data.Dataset:
        return tf.data.Dataset.range(3).batch(2)

    ends = {site.argument: site for site in capture(make).sites if site.kind == "end"}
    assert ends["buffer_size"].axis == "prefetch_depth"
    assert not any(site.id == "end:prefetch(buffer_size)" for site in capture(make_plain).sites)
    added: dict[str, OverrideValue] = {
        "end:prefetch(buffer_size)": 2,
        "end:options(threading.private_threadpool_size)": 4,
        "end:options(experimental_optimization.apply_default_optimizations)": False,
        "end:options(deterministic)": None,
    }
    assert stages(make, added) == ["Range", "Batch", "Prefetch", "Options"]
    options = rebuild(make, added).options()
    assert options.threading.private_threadpool_size == 4
    assert options.experimental_optimization.apply_default_optimizations is False
    with pytest.raises(TfpipeError, match=r"has no threading\.size"):
        rebuild(make, {"end:options(threading.size)": 4})


def test_batch_before_map() -> None:
    def make() -> tf.data.Dataset:
        ds = tf.data.Dataset.range(7).map(lambda x: x + 1).map(lambda x: x * 2, num_parallel_calls=2)
        return ds.batch(3, drop_remainder=True)

    orders = on("order", "batch-map", make)
    assert len(orders) == 2
    assert stages(make, orders | on("map_parallelism", 4, make)) == ["Range", "Batch", "ParallelMap", "ParallelMap"]
    wanted, got = ([batch.numpy().tolist() for batch in ds] for ds in (make(), rebuild(make, orders)))
    assert wanted == got == [[2, 4, 6], [8, 10, 12]]


def test_moves_with_tensors_among_the_arguments() -> None:
    def make() -> tf.data.Dataset:
        ds = tf.data.Dataset.range(8).map(lambda x: x * 2).shuffle(tf.constant([4, 5], tf.int64)[0], seed=1)
        return ds.take(tf.constant([6, 7], tf.int64)[0])

    mapped, shuffled = (next(s.id for s in capture(make).stages if s.method == name) for name in ("map", "shuffle"))
    assert stages(make, {f"{mapped}(behind {shuffled})": True}) == ["Range", "Shuffle", "Map", "Take"]
    with pytest.raises(CallSitesChangedError, match="made no call at"):
        rebuild(make, {f"{shuffled}(before nowhere.py:1:map)": True})


def test_calls_inside_functions_are_overridden_too() -> None:
    def make() -> tf.data.Dataset:
        return tf.data.Dataset.range(3).flat_map(lambda x: tf.data.Dataset.range(4).batch(2).map(lambda y: y, 1))

    sites = [site for site in capture(make).sites if site.axis == "map_parallelism"]
    assert [site.value for site in sites] == [1]
    rebuilt = rebuild(make, {sites[0].id: 7})
    functions = rebuilt._functions()[0].function.graph.as_graph_def()
    constants = [node.attr["value"].tensor.int64_val for node in functions.node if node.op == "Const"]
    assert [7] in [list(values) for values in constants]


def test_call_sites_that_changed_are_named() -> None:
    state = {"runs": 0}

    def make() -> tf.data.Dataset:
        state["runs"] += 1
        ds = tf.data.Dataset.range(3)
        return ds.prefetch(1) if state["runs"] == 1 else ds.shuffle(2)

    captured = capture(make)
    site = next(site for site in captured.sites if site.axis == "prefetch_depth")
    with pytest.raises(CallSitesChangedError, match=r"test_capture_rebuild.py:\d+:prefetch"):
        rebuild(make, {site.id: 2})
    with pytest.raises(CallSitesChangedError, match=r"prefetch.*is gone.*shuffle.*is new"):
        rebuild(make, {}, expected=captured.sites)
    assert rebuild(make, {}) is not None


def test_a_buffer_of_the_whole_data_set_needs_a_known_size() -> None:
    def make() -> tf.data.Dataset:
        return tf.data.Dataset.range(3).repeat().shuffle(2)

    with pytest.raises(TfpipeError, match="infinite or unknown"):
        rebuild(make, on("shuffle_buffer", "full", make))


def test_factories_with_other_data_each_time() -> None:
    random = np.random.default_rng(1)

    def make() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(random.random(1 << 18)).batch(4).prefetch(1)

    first, second = (next(iter(rebuild(make, {}))).numpy() for _ in range(2))
    assert not np.array_equal(first, second)


def test_large_arrays_are_shared_by_all_builds() -> None:
    array = np.arange(1 << 20, dtype=np.float32).reshape(-1, 4)
    labels = np.zeros(len(array), np.int8)

    def make() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices({"x": array.copy(), "y": labels}).batch(2).prefetch(1)

    def tensors(dataset: Any) -> list[Any]:
        source = dataset
        while source._inputs():
            source = source._inputs()[0]
        return list(source._tensors)

    depth = on("prefetch_depth", 3, make)
    first, second = tensors(capture(make).dataset), tensors(rebuild(make, depth))
    assert first[0] is second[0]  # 4 MiB, made anew by the factory each time
    assert first[1] is not second[1]  # a quarter of a MiB: not worth looking for
    array[5, 1] = -1
    third = tensors(rebuild(make, depth))
    assert third[0] is not first[0]
    assert float(third[0][5, 1]) == -1


def test_two_arrays_of_one_shape_are_kept_apart_and_forgotten_when_unused() -> None:
    arrays = [np.full(1 << 18, value, np.float64) for value in (1, 2)]

    def make() -> tf.data.Dataset:
        return tf.data.Dataset.zip(tuple(tf.data.Dataset.from_tensor_slices(array) for array in arrays))

    for _ in range(2):
        assert [float(x) for x in next(iter(rebuild(make, {})))] == [1.0, 2.0]
    arrays.reverse()
    assert [float(x) for x in next(iter(rebuild(make, {})))] == [2.0, 1.0]
