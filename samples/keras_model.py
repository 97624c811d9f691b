"""Images from memory into a Keras model that was compiled and would be trained with ``fit``.

The mistake in it: the result of ``shuffle`` is thrown away. A dataset does not change in place, so every epoch has the
same order.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf


def make_dataset(examples: int = 1024, batch_size: int = 32) -> tf.data.Dataset:
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (examples, 28, 28, 1), np.uint8)
    labels = random.integers(0, 10, examples, np.int64)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset.shuffle(examples)
    dataset = dataset.map(scale, num_parallel_calls=1)
    return dataset.batch(batch_size)


def scale(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.cast(image, tf.float32) / 255.0, label


def make_step(element_spec: Any) -> keras.Model:
    images, _ = element_spec
    model = keras.Sequential(
        [
            keras.Input(images.shape[1:]),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model
