"""A training step written by hand: a ``tf.Module`` that owns its variables, and a ``tf.function`` with a fixed input.

The mistake in it: ``take`` stands behind ``cache``. Each epoch stops before the cache has seen all the data, so it
never completes and everything is read and mapped again every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

FEATURES = 32
CLASSES = 10


def make_dataset(examples: int = 2000, batch_size: int = 64) -> tf.data.Dataset:
    random = np.random.default_rng(1)
    rows = random.integers(0, 256, (examples, FEATURES), np.uint8)
    labels = random.integers(0, CLASSES, examples, np.int32)
    return (
        tf.data.Dataset.from_tensor_slices((rows, labels))
        .map(to_float)
        .cache()
        .take(examples // 2)
        .shuffle(1000)
        .batch(batch_size, drop_remainder=True)
        .prefetch(buffer_size=1)
    )


def to_float(row: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.cast(row, tf.float32) / 255.0, label


class Classifier(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(tf.random.normal([FEATURES, CLASSES], stddev=0.1))
        self.bias = tf.Variable(tf.zeros([CLASSES]))

    @tf.function(input_signature=[tf.TensorSpec([None, FEATURES], tf.float32), tf.TensorSpec([None], tf.int32)])
    def train(self, rows: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = rows @ self.weights + self.bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        variables = (self.weights, self.bias)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss


def make_step(element_spec: Any) -> Callable[[Any], tf.Tensor]:
    model = Classifier()
    return lambda batch: model.train(*batch)
