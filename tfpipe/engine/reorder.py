"""Whether ``batch`` may come before ``map``: both orders run on the same real elements and compared.

A function acts row by row when its result for a batch is, row for row, its result for each element. That is shown
for real elements, at the pipeline's own batch size, at a batch of one and at an odd one, and again with one
row of a batch replaced by values unlike the others'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe.engine.capture import Call, Captured
from tfpipe.engine.elements import difference, first_line, read_elements, spec_difference
from tfpipe.errors import UsageError
from tfpipe.sites import Reorder, ReorderReason

# Elements to compare at most: two whole batches of the usual sizes. A batch that is larger is compared at this size.
MAX_EXAMPLES = 2048
# Batches to compare at each size; more of the same size show nothing new.
MAX_BATCHES = 32

_PER_EXAMPLE_SEED = (
    "Possible, but it would change your augmentation: one draw for the whole batch. To keep one draw per example, "
    "zip the elements with Dataset.counter() before the batch, and in the function draw with tf.random.stateless_* "
    "from each example's own seed."
)


def check_batch_before_map(captured: Captured, map_stage: str, batch_stage: str) -> Reorder:
    """Run ``map`` then ``batch`` and ``batch`` then ``map`` on real elements of a captured pipeline.

    Args:
        map_stage, batch_stage: ids of two top-level stages; the batch reads the map's dataset, or that of a map
            which does (the maps between are then left out: each is to be checked by itself).

    Raises:
        UsageError: there is no such pair of stages.
    """
    mapping, batching = captured.calls.get(map_stage), captured.calls.get(batch_stage)
    if mapping is None or batching is None or mapping.method != "map" or batching.method != "batch":
        raise UsageError(
            f"{map_stage} and {batch_stage} are no map and batch of this pipeline.", "Take the ids from its sites."
        )
    return _check(mapping, batching)


def _check(mapping: Call, batching: Call) -> Reorder:
    def verdict(
        reason: ReorderReason | None, text: str, remedy: str = "", examples: int = 0, difference: float | None = None
    ) -> Reorder:
        compared = reason in (None, "error", "structure", "types", "shapes", "values")
        return Reorder(
            map_stage=mapping.stage,
            batch_stage=batching.stage,
            verdict="equal" if reason is None else "different" if compared else "refused",
            reason=reason,
            text=text,
            remedy=remedy,
            examples=examples,
            difference=difference,
        )

    name = getattr(mapping.arguments["map_func"], "__name__", "the function")
    facts = mapping.facts
    if facts.random:
        return verdict("randomness", f"{name} draws random numbers ({', '.join(facts.random)}).", _PER_EXAMPLE_SEED)
    if facts.python:
        return verdict(
            "python",
            f"{name} runs Python for each element ({', '.join(facts.python)}), which tfpipe cannot look into.",
            "Write it with TensorFlow's operations, or make the Python take whole batches and swap by hand.",
        )
    if facts.state:
        return verdict(
            "state",
            f"{name} changes state ({', '.join(facts.state)}): how often it runs is part of what it does.",
            "Move the state out of the function.",
        )
    source = mapping.input
    if not _all_dense(source.element_spec) or not _all_dense(mapping.output.element_spec):
        return verdict(
            "ragged-or-sparse",
            f"{name} takes or gives ragged or sparse elements, which have another form in a batch.",
            "If it acts row by row on a batch too, swap by hand and compare.",
        )
    loose = [leaf for leaf in tf.nest.flatten(source.element_spec) if not leaf.shape.is_fully_defined()]
    if loose:
        return verdict(
            "variable-shapes",
            f"The elements that {name} gets are of varying shape ({loose[0].shape}), so they cannot be batched first.",
            "If they are all alike, say so before the map: tf.ensure_shape, or output_signature in from_generator.",
        )
    size = _size(batching.arguments["batch_size"])
    wanted = min(MAX_EXAMPLES, 2 * size + max(1, size // 2))
    try:
        read = read_elements(source, max(2, wanted)).elements
    except Exception as error:  # whatever is in their data or functions
        return verdict("no-elements", f"Reading the elements before {name} failed: {first_line(error)}.")
    elements = [tf.nest.map_structure(_as_array, element) for element in read]
    if len(elements) < 2:
        return verdict("no-elements", f"The pipeline gave {len(elements)} elements before {name}; two are needed.")
    rows = _stack(elements)
    if all(_alike(leaf) for leaf in tf.nest.flatten(rows)):
        return verdict(
            "alike", f"The {len(elements)} elements read are all the same, so comparing them proves nothing.",
            "Check with data that varies.",
        )  # fmt: skip
    return _compare(mapping, batching, rows, len(elements), name, verdict)


def _compare(
    mapping: Call, batching: Call, rows: Any, count: int, name: str, verdict: Callable[..., Reorder]
) -> Reorder:
    arguments = {key: value for key, value in mapping.arguments.items() if key != "map_func"}
    function = mapping.arguments["map_func"]
    source = _slices(rows)
    varying, fixed = _string_lengths(rows)

    def one_by_one(data: Any, size: int) -> Any:
        return data.map(function, **arguments).batch(size)

    def batch_first(data: Any, size: int) -> Any:
        return data.batch(size).map(function, **arguments)

    full = min(_size(batching.arguments["batch_size"]), count)
    worst = 0.0
    # The pipeline's own size, one row at a time, and a size that divides neither (its last batch is partial).
    for size in dict.fromkeys((full, 1, max(2, full // 2 + 1))):
        try:
            some = source.take(MAX_BATCHES * size)
            expected, swapped = one_by_one(some, size), batch_first(some, size)
            problem = spec_difference(expected.element_spec, swapped.element_spec, size)
            if problem is not None:
                return verdict(*problem, examples=count)
            for wanted, got in zip(expected, swapped, strict=True):
                reason, text, gap = difference(wanted, got)
                if reason is not None:
                    remedy = (
                        "Make it safe by giving the axes of reductions and reshapes from the end (axis=-1), "
                        "then check again."
                    )
                    if varying:
                        return verdict(
                            "strings", f"{name} depends on the length of its strings: {text}", examples=count
                        )
                    return verdict(
                        reason, f"Batched in {size}s, {name} gives other {reason}: {text}.", remedy, count, gap
                    )
                worst = max(worst, gap)
        except Exception as error:  # whatever the user's function raises when it is given a batch
            summary = first_line(error)
            if varying:
                return verdict(
                    "strings",
                    f"{name} gets strings of different lengths and does not work on a batch of them: {summary}.",
                    "Leave the order as it is.",
                    count,
                )
            return verdict("error", f"{name} does not work on a batch: {summary}.", "Leave the order as it is.", count)
    leak = _leak(rows, count, full, one_by_one, batch_first)
    if leak is not None:
        return verdict(
            "values",
            f"{name} mixes the rows of a batch: {leak}.",
            "Make it safe by giving the axes of reductions from the end (axis=-1), then check again.",
            count,
        )
    text = f"Both orders gave the same structure, types and values on {count} elements"
    if worst:
        text += f", floats within {worst:.1e} of the largest (rounding)"
    if fixed:
        text += f"; all strings read had {fixed[0]} bytes, and the rest of the data must too"
    return verdict(None, text + ".", "", count, worst)


def _size(batch_size: Any) -> int:
    return max(1, int(batch_size))


def _all_dense(spec: Any) -> bool:
    return all(isinstance(leaf, tf.TensorSpec) for leaf in tf.nest.flatten(spec))


def _stack(elements: list[Any]) -> Any:
    return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *elements)


def _as_array(tensor: Any) -> Any:
    """Strings as objects: NumPy's own type of bytes drops zeros at their ends."""
    return np.asarray(tensor.numpy(), dtype=object if tensor.dtype == tf.string else None)


def _alike(rows: Any) -> bool:
    return all(np.array_equal(row, rows[0]) for row in rows[1:])


def _slices(rows: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices(rows)


def _string_lengths(rows: Any) -> tuple[list[int], list[int]]:
    """(lengths of the string components that vary, lengths of those whose strings all have the same)."""
    varying: list[int] = []
    fixed: list[int] = []
    for leaf in tf.nest.flatten(rows):
        if leaf.dtype == object:
            lengths = {len(text) for text in leaf.ravel()}
            (fixed if len(lengths) == 1 else varying).extend(lengths)
    return varying, fixed


def _leak(
    rows: Any,
    count: int,
    size: int,
    one_by_one: Callable[[Any, int], Any],
    batch_first: Callable[[Any, int], Any],
) -> str | None:
    """What shows that a row's result depends on the rows beside it; None when nothing does.

    One row of a batch is halved, then replaced by zeros, then by very large numbers. Values that the function refuses
    (an index out of range) prove nothing and are passed over.
    """
    size = min(max(2, size), count)
    for word, changed in _with_extreme_row(rows, size):
        try:
            expected = next(iter(one_by_one(_slices(changed), size)))
            swapped = next(iter(batch_first(_slices(changed), size)))
        except Exception:  # the made-up row is no valid input
            continue
        reason, text, _ = difference(expected, swapped)
        if reason is not None:
            return f"with one row {word}, {text}"
    return None


def _with_extreme_row(rows: Any, size: int) -> Iterator[tuple[str, Any]]:
    """The first ``size`` rows with row 0 replaced: in all numbers at once."""

    def zero(leaf: Any) -> Any:
        leaf = leaf[:size].copy()
        if leaf.dtype != object:
            leaf[0] = 0
        return leaf

    def half(leaf: Any) -> Any:
        leaf = leaf[:size].copy()
        if leaf.dtype != object:
            leaf[0] = leaf[0] // 2 if np.issubdtype(leaf.dtype, np.integer) else leaf[0] / 2
        return leaf

    def large(leaf: Any) -> Any:
        leaf = leaf[:size].copy()
        if np.issubdtype(leaf.dtype, np.integer):
            leaf[0] = np.iinfo(leaf.dtype).max
        elif np.issubdtype(leaf.dtype, np.floating):
            leaf[0] = 1e3 * (1 + np.abs(leaf[np.isfinite(leaf)]).max(initial=0.0))
        return leaf

    yield "of half its values", tf.nest.map_structure(half, rows)
    yield "of zeros", tf.nest.map_structure(zero, rows)
    yield "of large values", tf.nest.map_structure(large, rows)
