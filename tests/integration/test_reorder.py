"""``batch`` before ``map`` only with proof: what is equal, what is not, and what is not even tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfpipe.engine.capture import capture, rebuild
from tfpipe.engine.reorder import check_batch_before_map
from tfpipe.errors import UsageError
from tfpipe.sites import Reorder

pytestmark = pytest.mark.tensorflow

ROWS = np.random.default_rng(1).integers(0, 256, (64, 6), np.uint8)


def check(source: Any, function: Callable[..., Any], batch_size: int = 16, **arguments: Any) -> Reorder:
    def make() -> tf.data.Dataset:
        return (source() if callable(source) else source).map(function, **arguments).batch(batch_size)

    captured = capture(make)
    site = [site for site in captured.sites if site.kind == "order"][-1]
    result = check_batch_before_map(captured, site.stage, site.partner or "")
    if result.verdict == "equal":
        wanted, got = (list(ds) for ds in (captured.dataset, rebuild(make, {site.id: "batch-map"})))
        assert len(wanted) == len(got)
        for left, right in zip(tf.nest.flatten(wanted), tf.nest.flatten(got), strict=True):
            assert left.dtype == right.dtype
            if left.dtype.is_floating:
                np.testing.assert_allclose(left, right, rtol=1e-5)
            else:
                np.testing.assert_array_equal(left, right)
    return result


def rows() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(ROWS)


def strings(*values: str) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(list(values) * 10)


TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "bb"]), tf.range(2)), -1)


@pytest.mark.parametrize(
    ("source", "function"),
    [
        (rows, lambda x: tf.cast(x, tf.float32) / 255.0),
        (rows, lambda x: tf.cast(x, tf.float32) - tf.reduce_mean(tf.cast(x, tf.float32), axis=-1, keepdims=True)),
        (rows, lambda x: {"a": x + 1, "b": (x, tf.cast(x, tf.int32))}),
        (lambda: strings("a", "bb", "ccc"), TABLE.lookup),
        (lambda: strings("abcd", "efgh"), lambda s: tf.io.decode_raw(s, tf.uint8)),
    ],
    ids=["cast and scale", "mean over the last axis", "structure", "lookup of strings", "strings of one length"],
)
def test_functions_that_act_row_by_row(source: Any, function: Any) -> None:
    result = check(source, function)
    assert (result.verdict, result.reason) == ("equal", None), result.text
    assert result.examples >= 20


def test_strings_of_one_length_are_said_to_be_a_condition() -> None:
    assert "strings read had 4 bytes" in check(strings("abcd", "efgh"), lambda s: tf.io.decode_raw(s, tf.uint8)).text


SHIFT = tf.constant(np.arange(16 * 6, dtype=np.int32).reshape(16, 6))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: tf.cast(x, tf.float32) - tf.reduce_mean(tf.cast(x, tf.float32)), "values"),
        (lambda x: tf.reverse(x, [0]), "values"),
        (lambda x: tf.reshape(x, [-1]), "shapes"),
        (lambda x: x[:3], "shapes"),
        (lambda x: tf.reduce_sum(x), "shapes"),
        (lambda x: tf.ensure_shape(x, [6]), "error"),
        (lambda x: (x, tf.shape(x)[0]), "shapes"),
        (lambda x: tf.random.stateless_uniform([6], [1, 2]), "shapes"),
    ],
    ids=["standardised over the batch", "axis 0", "flattened", "sliced", "summed", "fixed shape", "size", "one draw"],
)
def test_functions_that_do_not(function: Any, reason: str) -> None:
    result = check(rows, function)
    assert (result.verdict, result.reason) == ("different", reason), result.text
    assert result.text


def test_rows_that_leak_only_for_other_data_are_caught() -> None:
    """Every row holds a 0 and a 255, so dividing by the batch's largest value is equal on all real elements."""
    data = ROWS.copy()
    data[:, 0], data[:, 1] = 0, 255
    result = check(
        tf.data.Dataset.from_tensor_slices(data),
        lambda x: tf.cast(x, tf.float32) / tf.cast(tf.reduce_max(x), tf.float32),
    )
    assert (result.verdict, result.reason) == ("different", "values")
    assert "mixes the rows" in result.text


COUNTER = tf.Variable(0, dtype=tf.int64)


def draw(x: tf.Tensor) -> tf.Tensor:
    return tf.image.random_flip_left_right(tf.reshape(x, [2, 3, 1]))


def count(x: tf.Tensor) -> tf.Tensor:
    return COUNTER.assign_add(1)


@pytest.mark.parametrize(
    ("source", "function", "reason"),
    [
        (rows, draw, "randomness"),
        (rows, lambda x: tf.py_function(lambda y: y, [x], tf.uint8), "python"),
        (rows, lambda x: tf.numpy_function(lambda y: y, [x], tf.uint8), "python"),
        (rows, count, "state"),
        (
            lambda: tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])),
            lambda x: x + 1,
            "ragged-or-sparse",
        ),
        (
            lambda: tf.data.Dataset.from_tensor_slices(tf.sparse.from_dense(np.eye(4))),
            lambda x: x * 2.0,
            "ragged-or-sparse",
        ),
        (rows, lambda x: tf.RaggedTensor.from_row_lengths(x, [2, 4]), "ragged-or-sparse"),
        (
            lambda: tf.data.Dataset.range(1, 5).map(lambda n: tf.ones([n])),
            lambda x: tf.reduce_sum(x),
            "variable-shapes",
        ),
        (lambda: rows().take(1), lambda x: x, "no-elements"),
        (lambda: rows().take(1).repeat(9), lambda x: x, "alike"),
    ],
    ids=["random", "py", "numpy", "state", "ragged", "sparse", "makes ragged", "variable", "one", "alike"],
)
def test_what_is_refused_with_its_reason(source: Any, function: Any, reason: str) -> None:
    result = check(source, function)
    assert (result.verdict, result.reason) == ("refused", reason), result.text


def test_randomness_says_how_to_write_it() -> None:
    result = check(rows, draw)
    assert "would change your augmentation" in result.remedy
    assert "stateless" in result.remedy


def test_keras_layers_that_draw_are_random() -> None:
    import keras

    flip = keras.layers.RandomFlip()
    images = tf.data.Dataset.from_tensor_slices(np.zeros((4, 8, 8, 3), np.float32))
    assert check(images, lambda x: flip(x, training=True)).reason == "randomness"


def test_strings_that_differ_in_length() -> None:
    result = check(strings("ab", "cdef"), lambda s: tf.io.decode_raw(s, tf.uint8)[:2])
    assert result.reason == "strings"
    assert result.verdict in ("refused", "different")


def test_a_batch_larger_than_the_data_and_an_endless_source() -> None:
    assert check(rows, lambda x: x + 1, batch_size=1000).verdict == "equal"

    def make() -> tf.data.Dataset:
        return rows().repeat().map(lambda x: x + 1, num_parallel_calls=2).batch(8, drop_remainder=True)

    captured = capture(make)
    site = next(site for site in captured.sites if site.kind == "order")
    assert check_batch_before_map(captured, site.stage, site.partner or "").examples == 20


def test_stages_that_are_no_pair_are_a_wrong_question() -> None:
    with pytest.raises(UsageError, match="are no map and batch"):
        check_batch_before_map(capture(lambda: rows().batch(2)), "a", "b")
