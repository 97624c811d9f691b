"""Maps that only cast and scale are known for it; the code for the step does to a batch what they do to an element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfpipe.engine.capture import capture

pytestmark = pytest.mark.tensorflow

IMAGES = np.arange(4 * 2 * 2 * 3, dtype=np.uint8).reshape(4, 2, 2, 3)
LABELS = np.arange(4, dtype=np.int64)
MEAN = np.array([120.0, 110.0, 100.0], np.float32)


def casting(source: Any, function: Callable[..., Any]) -> tuple[str, ...]:
    def make() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(source).map(function).batch(2)

    (mapped,) = [stage for stage in capture(make).stages if stage.method == "map"]
    return mapped.casting


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            lambda image, label: (tf.cast(image, tf.float32) / 255.0, label),
            ("image = tf.cast(image, tf.float32) / 255.0",),
        ),
        (
            lambda image, label: ((tf.cast(image, tf.float32) - MEAN) * 0.5, tf.cast(label, tf.int32)),
            (
                "image = (tf.cast(image, tf.float32) - [120.0, 110.0, 100.0]) * 0.5",
                "label = tf.cast(label, tf.int32)",
            ),
        ),
        (
            lambda image, label: (1 - tf.image.convert_image_dtype(image, tf.float32), label),
            ("image = 1.0 - (tf.cast(image, tf.float32) * 0.003921569)",),
        ),
        (
            lambda image, label: (tf.cast(2.0 * tf.cast(image, tf.float32), tf.float16), label),
            ("image = tf.cast(2.0 * tf.cast(image, tf.float32), tf.float16)",),
        ),
    ],
    ids=["scales", "centres", "converts", "halves"],
)
def test_the_code_does_to_a_batch_what_the_map_does_to_each_element(
    function: Callable[..., Any], expected: tuple[str, ...]
) -> None:
    found = casting((IMAGES, LABELS), function)
    assert found == expected
    names: dict[str, Any] = {"tf": tf, "image": tf.constant(IMAGES), "label": tf.constant(LABELS)}
    exec("\n".join(found), names)
    mapped = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).map(function).batch(4)
    image, label = next(iter(mapped))
    np.testing.assert_allclose(names["image"].numpy(), image.numpy(), rtol=1e-6)
    np.testing.assert_array_equal(names["label"].numpy(), label.numpy())


def test_a_dictionary_is_assigned_to_by_key() -> None:
    source = {"pixels": IMAGES, "label": LABELS}
    found = casting(source, lambda row: {**row, "pixels": tf.cast(row["pixels"], tf.float32)})
    assert found == ("row['pixels'] = tf.cast(row['pixels'], tf.float32)",)


@pytest.mark.parametrize(
    "function",
    [
        lambda image, label: (tf.reverse(tf.cast(image, tf.float32), [1]), label),
        lambda image, label: (tf.cast(image, tf.float32), tf.one_hot(label, 4)),
        lambda image, label: (tf.cast(image, tf.float32) * tf.cast(label, tf.float32), label),
        lambda image, label: (tf.cast(image, tf.float32) / tf.constant(IMAGES[0] + 1.0, tf.float32), label),
        lambda image, label: tf.cast(image, tf.float32),
        lambda image, label: (label, image),
        lambda image, label: (image, tf.cast(label, tf.float32) * [1.0, 2.0]),
        lambda *example: (tf.cast(example[0], tf.float32), example[1]),
    ],
    ids=["moves", "widens", "multiplies", "large-constant", "drops", "swaps", "shapes", "unnamed"],
)
def test_whatever_does_more_than_cast_and_scale_is_none(function: Callable[..., Any]) -> None:
    assert casting((IMAGES, LABELS), function) == ()
