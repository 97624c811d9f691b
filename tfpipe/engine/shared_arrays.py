"""Large NumPy arrays handed to TensorFlow once, however often the factory that slices them is run."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe.engine.frames import unwrapped

# Arrays from this size on are handed to TensorFlow once and shared by all builds of a factory, bytes. Below it a
# copy costs less than looking for an equal array.
SHARED_ARRAY_BYTES = 1 << 20
_COMPARED_AT_ONCE_BYTES = 1 << 24


@dataclass(slots=True)
class SharedArrays:
    """Tensors of the large arrays that a factory slices, so that every build of it uses the same memory.

    An array is recognised by its content: a factory that loads the file each time is served like one that keeps the
    array, and one that changed it gets a new tensor.
    """

    _known: list[Any] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)

    def share(self, value: Any, used: list[Any]) -> Any:
        """``value`` with its large arrays replaced; lists are left alone, tf.data stacks them."""
        if type(value) is dict:
            return {key: self.share(item, used) for key, item in value.items()}
        if isinstance(value, tuple):
            items = [self.share(item, used) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if type(value) is np.ndarray and value.nbytes >= SHARED_ARRAY_BYTES and value.dtype.kind in "biufc":
            used.append(self._tensor(value))
            return used[-1]
        return value

    def _tensor(self, array: Any) -> Any:
        with self._lock:
            for tensor in self._known:
                if _same_content(np.asarray(memoryview(tensor)), array):
                    return tensor
            with tf.device("/CPU:0"):
                tensor = tf.constant(array)
            self._known.append(tensor)
            return tensor

    def keep(self, used: list[Any]) -> None:
        with self._lock:
            self._known = list({id(tensor): tensor for tensor in used}.values())


def _same_content(first: Any, second: Any) -> bool:
    """Equal bit for bit, compared in slices so that no large mask is made."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    rows = max(1, _COMPARED_AT_ONCE_BYTES // (first.nbytes // len(first)))
    for start in range(0, len(first), rows):
        part, other = first[start : start + rows], np.ascontiguousarray(second[start : start + rows])
        if not np.array_equal(part.view(np.uint8), other.view(np.uint8)):
            return False
    return True


_lock_of_functions = threading.Lock()
_by_function: weakref.WeakKeyDictionary[Any, SharedArrays] = weakref.WeakKeyDictionary()


def shared_arrays_of(factory: Callable[..., Any]) -> SharedArrays:
    """The shared tensors of ``factory``, whatever arguments are bound to it; they live as long as its function."""
    with _lock_of_functions:
        try:
            return _by_function.setdefault(unwrapped(factory), SharedArrays())
        except TypeError:  # not hashable or without weak references: nothing to share between builds
            return SharedArrays()
