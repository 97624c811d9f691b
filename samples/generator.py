"""A Python generator that simulates signals, and Python that filters them: what research code often starts as.

The mistake in it: ``repeat`` stands before ``shuffle``, so epochs mix. And the work is Python's, which holds the
interpreter's lock: no number of parallel calls makes it faster.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

LENGTH = 256


def make_dataset(examples: int = 200, batch_size: int = 16) -> tf.data.Dataset:
    signature = (tf.TensorSpec([LENGTH], tf.float32), tf.TensorSpec([], tf.int32))
    dataset = tf.data.Dataset.from_generator(lambda: signals(examples), output_signature=signature)
    dataset = dataset.map(smooth, num_parallel_calls=4)
    dataset = dataset.repeat()
    dataset = dataset.shuffle(buffer_size=100)
    return dataset.batch(batch_size)


def signals(examples: int) -> Iterator[tuple[np.ndarray, int]]:
    random = np.random.default_rng(1)
    for _ in range(examples):
        label = int(random.integers(1, 5))
        wave = np.sin(np.linspace(0, 6.28 * label, LENGTH)) + random.normal(0, 0.1, LENGTH)
        yield wave.astype(np.float32), label


def smooth(signal: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    smoothed = tf.py_function(moving_average, [signal], tf.float32)
    return tf.ensure_shape(smoothed, [LENGTH]), label


def moving_average(signal: tf.Tensor) -> np.ndarray:
    values = signal.numpy().tolist()
    windows = [values[max(0, i - 4) : i + 5] for i in range(len(values))]
    return np.array([sum(window) / len(window) for window in windows], np.float32)
