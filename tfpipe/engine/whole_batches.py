"""Batches without the smaller one that ends an epoch.

That batch is no step to measure: it has fewer examples than are counted for it, a ``tf.function`` is traced anew for
its shape, and one with a fixed signature refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_END = object()


class WholeBatches:
    """A dataset, to be iterated over without its partial batches.

    A smaller batch is left out where the epoch ends behind it or a whole one follows. Other ones are a
    stream whose batches differ in size (``bucket_by_sequence_length``) and are handed on.
    """

    def __init__(self, dataset: Any, batch_size: int) -> None:
        self.dataset = dataset
        self._batch_size = batch_size

    def __iter__(self) -> WholeBatchIterator:
        return WholeBatchIterator(iter(self.dataset), self._batch_size)

    def repeat(self) -> WholeBatches:
        return WholeBatches(self.dataset.repeat(), self._batch_size)


class WholeBatchIterator:
    """``iterator`` is TensorFlow's own."""

    def __init__(self, iterator: Any, batch_size: int) -> None:
        self.iterator = iterator
        self._batch_size = batch_size
        self._held: Any = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch, self._held = self._held, None
        if batch is None:
            batch = next(self.iterator)
        if leading_size(batch) == self._batch_size:
            return batch
        following = next(self.iterator, _END)
        if following is _END:
            raise StopIteration
        if leading_size(following) == self._batch_size:
            return following
        self._held = following
        return batch


def with_partial_batches(batches: Any) -> Any:
    """TensorFlow's own dataset behind ``batches``, partial batches included."""
    return batches.dataset if isinstance(batches, WholeBatches) else batches


def leading_size(batch: Any) -> int:
    """Rows of the first component; 1 for elements without any."""
    first = tf.nest.flatten(batch)[0]
    if isinstance(first, tf.RaggedTensor):
        return int(first.nrows())
    if isinstance(first, tf.SparseTensor):
        return int(first.dense_shape[0])
    return int(first.shape[0]) if first.shape.rank else 1


def has_fixed_size(spec: Any) -> bool:
    """Whether every batch of ``spec`` surely has the same number of rows."""
    first = tf.nest.flatten(spec)[0]
    shape = getattr(first, "shape", None)
    return shape is not None and (shape.rank == 0 or (shape.rank is not None and shape[0] is not None))
