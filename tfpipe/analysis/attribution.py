"""Where the time of a step goes: compute, input wait, contention. The three sum to the step.

``compute_s`` is the floor. ``input_wait_s`` is the time the step's device had nothing to do because the batch was
not there. ``contention_s`` is the rest: the pipeline used the cores that the step needed, or overhead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfpipe.analysis.statistics import Estimate, combine, mean, ratio
from tfpipe.records import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorEstimate:
    """Seconds per step with nothing to wait for, and seconds to fetch a batch that is already there."""

    step_s: Estimate | None
    fetch_s: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """One step split; fractions are of the whole step. Without a floor only ``step_s`` is known.

    ``contention_fraction`` leaves out the fetch floor, which ``contention_s`` contains: fetching a finished batch
    costs that much in any pipeline.
    """

    step_s: Estimate
    compute_s: float | None = None
    input_wait_s: float | None = None
    contention_s: float | None = None
    input_fraction: Estimate | None = None
    contention_fraction: Estimate | None = None


def estimate_floor(floor_blocks: Sequence[Block], fetch_floor_blocks: Sequence[Block]) -> FloorEstimate:
    """The floor from its blocks; ``step_s`` is None when there is no step to have a floor.

    Raises:
        ValueError: no fetch-floor block.
    """
    return FloorEstimate(
        step_s=mean([block.step_s for block in floor_blocks]) if floor_blocks else None,
        fetch_s=mean([block.fetch_s for block in fetch_floor_blocks]),
    )


def attribute(blocks: Sequence[Block], floor: FloorEstimate) -> Attribution:
    """Split the mean step of ``blocks``.

    On a synchronous device the loop is blocked for exactly as long as the device has nothing to do, so the wait is
    the mean fetch less the fetch floor. On an asynchronous one steps are dispatched ahead and a blocked loop need
    not mean an idle device: the wait is then what the step takes beyond the floor, but no more than the loop was
    blocked.

    Raises:
        ValueError: no counted steps.
    """
    step_s = mean([block.step_s for block in blocks])
    if floor.step_s is None:
        return Attribution(step_s=step_s)
    fetch_floor = floor.fetch_s.value
    blocked = ratio(
        [[(fetch - fetch_floor, step) for fetch, step in zip(b.fetch_s, b.step_s, strict=True)] for b in blocks]
    )
    fraction = combine(blocked.value, (1.0, blocked), (1 / step_s.value, floor.fetch_s))
    beyond_floor = combine(
        1 - floor.step_s.value / step_s.value,
        (1 / step_s.value, floor.step_s),
        (floor.step_s.value / step_s.value**2, step_s),
    )
    if not all(block.synchronous for block in blocks) and beyond_floor.value < fraction.value:
        fraction = beyond_floor
    input_wait_s = max(0.0, fraction.value) * step_s.value
    contention_s = step_s.value - floor.step_s.value - input_wait_s
    beyond_fetch = (contention_s - fetch_floor) / step_s.value
    contention_fraction = combine(beyond_fetch, (1.0, beyond_floor), (1.0, fraction), (1 / step_s.value, floor.fetch_s))
    return Attribution(
        step_s=step_s,
        compute_s=floor.step_s.value,
        input_wait_s=input_wait_s,
        contention_s=contention_s,
        input_fraction=fraction,
        contention_fraction=contention_fraction,
    )


def examples_per_s(step_s: Estimate, batch_size: int) -> Estimate:
    """Throughput from the mean step; the error carried over to first order."""
    value = batch_size / step_s.value
    return combine(value, (value / step_s.value, step_s))


def rate_by_round(blocks: Sequence[Block]) -> dict[int, float]:
    """Steps per second in each round, for comparing candidates round by round."""
    totals: dict[int, list[float]] = {}
    for block in blocks:
        steps_and_seconds = totals.setdefault(block.round, [0.0, 0.0])
        steps_and_seconds[0] += block.steps
        steps_and_seconds[1] += math.fsum(block.step_s)
    return {key: steps / seconds for key, (steps, seconds) in totals.items() if seconds > 0}
