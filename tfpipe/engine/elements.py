"""Real elements of a dataset: read within limits, handed out again, and compared."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe.engine.frames import plain_message
from tfpipe.sites import ReorderReason

# Seconds to spend on reading real elements; what was read until then is compared.
READ_BUDGET_S = 10.0
# Bytes of elements to hold at most.
READ_BUDGET_BYTES = 1 << 28
# Two orders of the same float operations may round differently: this many units in the last place of the component's
# largest value. A wrong axis or a missing row is off by far more.
ROUNDING_ULPS = 16
# Elements to read between two looks at the clock.
_DRAINED_AT_ONCE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """``size_bytes`` and ``seconds`` are of all ``elements`` together."""

    elements: list[Any]
    size_bytes: int
    seconds: float


def read_elements(dataset: Any, most: int, *, budget_s: float = READ_BUDGET_S) -> Read:
    """The first ``most`` elements, fewer when they are slow or large, or when there are no more."""
    begin = time.monotonic()
    elements: list[Any] = []
    size = 0
    for element in dataset:
        elements.append(element)
        size += size_bytes(element)
        if len(elements) == most or time.monotonic() - begin > budget_s or size > READ_BUDGET_BYTES:
            break
    return Read(elements=elements, size_bytes=size, seconds=time.monotonic() - begin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """``whole`` says that the dataset ended, after ``count`` elements."""

    count: int
    seconds: float
    whole: bool


def drain(dataset: Any, *, budget_s: float) -> Drained:
    """Read a dataset without handing its elements to Python, which would cost more than many a pipeline."""
    begin, count, whole = time.monotonic(), 0, True
    for part in dataset.map(lambda *_: tf.constant(0, tf.int8)).batch(_DRAINED_AT_ONCE):
        count += len(part)
        if time.monotonic() - begin > budget_s:
            whole = False
            break
    return Drained(count=count, seconds=time.monotonic() - begin, whole=whole)


def size_bytes(element: Any) -> int:
    """Bytes of a batch or an element; strings count with their length."""
    total = 0
    for leaf in tf.nest.flatten(element, expand_composites=True):
        if leaf.dtype == tf.string:
            total += sum(len(text) for text in np.ravel(leaf.numpy()))
        else:
            total += leaf.shape.num_elements() * leaf.dtype.size
    return total


def as_dataset(elements: list[Any], spec: Any) -> Any:
    """A dataset of just these elements, whatever they are made of."""
    return tf.data.Dataset.from_generator(lambda: iter(elements), output_signature=spec)


def first_line(error: Exception) -> str:
    """What an error says, in one line with its kind: TensorFlow's begin with it, those out of AutoGraph end with it."""
    lines = [line for line in plain_message(str(error)).splitlines() if line.strip()] or [""]
    text = lines[0 if isinstance(error, tf.errors.OpError) else -1].strip()
    kind = f"{type(error).__name__}: "
    return (text if text.startswith(kind) else kind + text)[:300].rstrip(".")


def spec_difference(expected: Any, swapped: Any, size: int) -> tuple[ReorderReason, str] | None:
    """Why the two orders' element_specs cannot be of the same data; static shapes only where both are known."""
    try:
        tf.nest.assert_same_structure(expected, swapped)
    except (ValueError, TypeError):
        return "structure", f"The structures differ: {expected} and {swapped}."
    for wanted, got in zip(tf.nest.flatten(expected), tf.nest.flatten(swapped), strict=True):
        if type(wanted) is not type(got) or wanted.dtype != got.dtype:
            return "types", f"The types differ: {wanted} and {got}."
        if not wanted.shape.is_compatible_with(got.shape):
            return "shapes", f"The shapes differ (batches of {size}): {wanted.shape} and {got.shape}."
    return None


def difference(wanted: Any, got: Any) -> tuple[ReorderReason | None, str, float]:
    """The first difference between two elements, and the largest relative one of floats."""
    worst = 0.0
    lefts, rights = (tf.nest.flatten(one, expand_composites=True) for one in (wanted, got))
    if len(lefts) != len(rights):
        return "structure", f"{len(lefts)} and {len(rights)} components", worst
    for left, right in zip(lefts, rights, strict=True):
        a, b = left.numpy(), right.numpy()
        if np.shape(a) != np.shape(b):
            return "shapes", f"{np.shape(a)} and {np.shape(b)}", worst
        gap = _relative_difference(a, b)
        if gap > ROUNDING_ULPS * _epsilon(left.dtype):
            return "values", f"they differ by up to {_largest_gap(a, b)}", gap
        worst = max(worst, gap)
    return None, "", worst


def _epsilon(dtype: Any) -> float:
    return float(tf.experimental.numpy.finfo(dtype.as_numpy_dtype).eps) if dtype.is_floating else 0.0


def _relative_difference(a: Any, b: Any) -> float:
    """Largest difference over the largest finite value; inf where anything but finite floats differs."""
    if not np.issubdtype(np.asarray(a).dtype, np.floating) and str(np.asarray(a).dtype) != "bfloat16":
        return 0.0 if np.array_equal(a, b) else float("inf")
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return float("inf")
    gap = float(np.max(np.abs(x - y)[finite], initial=0.0))
    scale = float(np.max(np.abs(x)[finite], initial=0.0))
    return 0.0 if gap == 0 else gap / scale if scale else float("inf")


def _largest_gap(a: Any, b: Any) -> str:
    try:
        gap = np.nanmax(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)))
    except (TypeError, ValueError):
        return "their text"
    return f"{gap:.3g}"
