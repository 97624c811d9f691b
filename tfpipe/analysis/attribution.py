"""Where the time of a step goes: compute, input wait, contention. The three sum to the step.

``compute_s`` is the floor. ``input_wait_s`` is the time the step's device had nothing to do because the batch was
not there. ``contention_s`` is the rest: the pipeline used the cores that the step needed, or overhead.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tfpipe.analysis.cycles import stretches
from tfpipe.analysis.statistics import Estimate, combine, mean, ratio
from tfpipe.records import Block

# Fetching a finished batch costs this share more or less than the fetch floor, as a standard error, depending on which
# stage hands it over, what the processor did before and who else wants the interpreter: the estimates of 320 runs of
# the 40 sleeping pipelines with a synchronous step of tests/bench/ground_truth.py, six at a time on 2 cores, were off
# by 19 % of it (root mean square) beyond what steps and truth themselves were known to. Beside a step of 30 ms that is
# a third of a point of the input fraction.
FETCH_FLOOR_ERROR = 0.2
# Nothing is awaited in a fetch of the fetch floor: one that takes this many times the median was a pause of the
# machine. A single one of 360 ms among thirty of 0.5 ms made the mean 25 times as long, and the pipelines of that run
# seem not to wait. Without a pause the longest of forty was at most 2.5 times the median.
PAUSE = 10
# Telling an asynchronous device of a block's first step and hearing of the end of its last takes about this long, as a
# standard error of the block: 0.2 to 0.35 ms in most of 240 blocks of the simulated device of
# tests/bench/ground_truth.py.
BLOCK_ENDS_S = 0.3e-3
# Enough degrees of freedom for an error that is not estimated from the run.
MANY = 1000


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

    Pauses of the machine are left out of the fetch floor, but not out of what is compared with it.

    Raises:
        ValueError: no fetch-floor block.
    """
    if not fetch_floor_blocks:
        raise ValueError("a fetch floor needs at least one block")
    longest_s = PAUSE * statistics.median(fetch for block in fetch_floor_blocks for fetch in block.fetch_s)
    fetch_s = mean([[fetch for fetch in block.fetch_s if fetch <= longest_s] for block in fetch_floor_blocks])
    return FloorEstimate(
        step_s=mean_step_s(floor_blocks) if floor_blocks else None,
        fetch_s=_known_to(fetch_s, FETCH_FLOOR_ERROR * fetch_s.value),
    )


def _known_to(estimate: Estimate, standard_error: float) -> Estimate:
    """With another error, which is not estimated from the run."""
    lasting = Estimate(value=0.0, standard_error=standard_error, degrees_of_freedom=MANY)
    return combine(estimate.value, (1.0, estimate), (1.0, lasting))


def attribute(blocks: Sequence[Block], floor: FloorEstimate) -> Attribution:
    """Split the mean step of ``blocks``.

    On a synchronous device the loop is blocked for exactly as long as the device has nothing to do, so the wait is
    the mean fetch less the fetch floor. On an asynchronous one steps are dispatched ahead and a blocked loop need
    not mean an idle device: the wait is then what the step takes beyond the floor, but no more than the loop was
    blocked.

    Raises:
        ValueError: no counted steps.
    """
    step_s = mean_step_s(blocks)
    if floor.step_s is None:
        return Attribution(step_s=step_s)
    fetch_floor = floor.fetch_s.value
    blocked = ratio([[(s.fetch_s - s.steps * fetch_floor, s.step_s) for s in block] for block in stretches(blocks)])
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


def mean_step_s(blocks: Sequence[Block]) -> Estimate:
    """Seconds per step over all of ``blocks``; where they ran asynchronously, known no better than their ends.

    Raises:
        ValueError: no counted steps.
    """
    step_s = ratio([[(stretch.step_s, stretch.steps) for stretch in block] for block in stretches(blocks)])
    if all(block.synchronous for block in blocks):
        return step_s
    return _known_to(step_s, BLOCK_ENDS_S / statistics.fmean(block.steps for block in blocks))


def examples_per_s(step_s: Estimate, batch_size: int) -> Estimate:
    """Throughput from the mean step; the error carried over to first order."""
    value = batch_size / step_s.value
    return combine(value, (value / step_s.value, step_s))


def rate_by_round(blocks: Sequence[Block]) -> dict[int, float]:
    """Steps per second in each round, for comparing candidates round by round."""
    totals: dict[int, list[float]] = {}
    for block, counted in zip(blocks, stretches(blocks), strict=True):
        steps_and_seconds = totals.setdefault(block.round, [0.0, 0.0])
        steps_and_seconds[0] += sum(stretch.steps for stretch in counted)
        steps_and_seconds[1] += math.fsum(stretch.step_s for stretch in counted)
    return {key: steps / seconds for key, (steps, seconds) in totals.items() if seconds > 0}
