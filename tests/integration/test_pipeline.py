"""What is built from settings is what they say, and both orders deliver the same examples."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.runs import make_run
from tfpipe.report.code import pipeline_code
from tfpipe.settings import PipelineSettings

pytestmark = pytest.mark.tensorflow

BATCH = 16


@pytest.fixture(scope="module")
def cifar():
    from tfpipe.engine.sources import open_source

    return open_source(
        "cifar100", data_dir=None, require_data=False, image_size=32, seed=1, progress=lambda d, t: None, download=False
    )


def build(source, **knobs):
    from tfpipe.engine.pipeline import build_pipeline

    return build_pipeline(source, PipelineSettings(**knobs), batch_size=BATCH, seed=3)


def names(source, **knobs) -> list[str]:
    from tfpipe.engine.pipeline import executed_nodes

    iterator = iter(build(source, **knobs))
    next(iterator)
    return [node.node for node in executed_nodes(iterator)]


@pytest.mark.parametrize("shuffle_buffer", [0, 50, "full"])
def test_both_orders_deliver_the_same_examples_element_by_element(cifar, shuffle_buffer):
    first = build(cifar, shuffle_buffer=shuffle_buffer, order="map-batch", map_parallelism="auto", prefetch_depth=2)
    second = build(cifar, shuffle_buffer=shuffle_buffer, order="batch-map")
    for (images, labels), (others, other_labels) in itertools.islice(zip(first, second, strict=False), 20):
        np.testing.assert_array_equal(images, others)
        np.testing.assert_array_equal(labels, other_labels)


def test_augmentation_differs_from_example_to_example_and_from_epoch_to_epoch(cifar):
    """The same image, mapped with many draws, comes out in many ways."""
    import tensorflow as tf

    (example,) = cifar.dataset().take(1)
    draws = tf.data.Dataset.random(seed=1).take(300)
    seen = {cifar.map_example(example, draw)[0].numpy().tobytes() for draw in draws}
    # 9 x 9 offsets and a flip are 162 ways, of which 300 draws find about 137.
    assert 120 < len(seen) <= 162


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({"rewrites": "off"}, ["Map", "BatchV2"]),
        ({}, ["MapAndBatch"]),
        ({"rewrites": "off", "map_parallelism": 2, "prefetch_depth": 3}, ["ParallelMapV2", "BatchV2", "Prefetch"]),
        ({"order": "batch-map", "map_parallelism": 2, "prefetch_depth": 1}, ["ParallelMapV2", "Prefetch"]),
    ],
)
def test_what_runs_is_what_was_written_or_tensorflow_s_rewrite_of_it(cifar, knobs, expected):
    ran = [name for name in names(cifar, **knobs) if name not in ("TensorSlice", "ForeverRepeat", "Random", "Zip")]
    assert ran[-len(expected) :] == expected


def test_shuffle_is_in_or_out(cifar):
    assert not any("Shuffle" in name for name in names(cifar))
    assert any("Shuffle" in name for name in names(cifar, shuffle_buffer=10))


def test_the_values_in_force_are_reported(cifar):
    from tfpipe.engine.pipeline import executed_nodes

    iterator = iter(build(cifar, map_parallelism=2, prefetch_depth=5, rewrites="off"))
    for _ in range(8):
        next(iterator)
    nodes = {node.node: node for node in executed_nodes(iterator)}
    assert (nodes["ParallelMapV2"].parallelism, nodes["ParallelMapV2"].tunable) == (2, False)
    assert (nodes["Prefetch"].buffer_size, nodes["Prefetch"].tunable) == (5, False)
    tuned = iter(build(cifar, map_parallelism="auto", prefetch_depth="auto", rewrites="off"))
    next(tuned)
    assert all(node.tunable for node in executed_nodes(tuned) if node.node in ("ParallelMapV2", "Prefetch"))


@pytest.mark.parametrize(
    "knobs",
    [
        {"shuffle_buffer": 5000, "map_parallelism": "auto", "prefetch_depth": "auto", "order": "batch-map"},
        {"shuffle_buffer": "full", "map_parallelism": 2, "prefetch_depth": 1},
        {"rewrites": "off"},
        {"threadpool": 3, "deterministic": False, "map_parallelism": 2},
        {},
    ],
)
def test_pasted_code_runs_the_same_nodes_and_delivers_the_same_batches(cifar, knobs, monkeypatch):
    import keras

    from tfpipe.engine.pipeline import executed_nodes
    from tfpipe.records import Data

    settings = PipelineSettings(**knobs)
    data = Data(
        name=cifar.name,
        origin=cifar.origin,
        generated=True,
        examples=cifar.examples,
        batch_size=BATCH,
        element=cifar.element,
        example_bytes=cifar.example_bytes,
        code=cifar.code,
    )
    ((images, labels),) = cifar.dataset().batch(cifar.examples).as_numpy_iterator()
    # As Keras gives them: labels in a column.
    monkeypatch.setattr(keras.datasets.cifar100, "load_data", lambda: ((images, labels[:, None]), None))
    namespace: dict[str, object] = {}
    exec(compile(pipeline_code(make_run(data=data), settings), "pasted.py", "exec"), namespace)
    pasted = iter(namespace["make_dataset"](images, labels, seed=3))
    ours = iter(build(cifar, **knobs))
    for _ in range(3):
        for theirs, mine in zip(next(pasted), next(ours), strict=True):
            if settings.deterministic:
                np.testing.assert_array_equal(theirs, mine)
    assert [(n.node, n.tunable) for n in executed_nodes(pasted)] == [(n.node, n.tunable) for n in executed_nodes(ours)]


def test_an_order_that_the_data_cannot_run_is_refused():
    from tfpipe.engine.sources import open_source
    from tfpipe.errors import UsageError

    photos = open_source(
        "photos", data_dir=None, require_data=False, image_size=32, seed=1, progress=lambda d, t: None, download=False
    )
    with pytest.raises(UsageError, match="batch-map"):
        build(photos, order="batch-map")
