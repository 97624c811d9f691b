"""Steps of a block in whole cycles, where a pipeline stalls regularly.

A pipeline whose every tenth batch is slow, or that stalls at each epoch's start, does so at the same place after
every start. A block of fixed length then holds the same part of a cycle each time, and its mean is wrong by the same
amount in every round. Any stretch of whole cycles has the right mean.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tfpipe.records import Block

# A stall is a fetch that exceeds the typical one of its block by more than this share of the block: one more or less
# of them changes what the block says by a point.
STALL = 0.01
# The same distance between stalls, seen this often and in half of all cases, makes a cycle. Taking one for regular
# that is not does no harm: less than a cycle per block is left out, and no matter of which kind.
MIN_REPEATS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive steps of one block, summed."""

    steps: int
    step_s: float
    fetch_s: float


def stretches(blocks: Sequence[Block]) -> list[list[Stretch]]:
    """Each block as whole cycles, the last ones that fit; as single steps where there is no cycle.

    A block shorter than a cycle has none, unless all are. Of a block on an asynchronous device only the sum means
    anything: it is one stretch.
    """
    if not all(block.synchronous for block in blocks):
        return [[_stretch(block, 0, block.steps)] for block in blocks]
    cycle = _cycle_steps(blocks)
    if all(block.steps < cycle for block in blocks):
        cycle = 1
    return [
        [_stretch(block, begin, begin + cycle) for begin in range(block.steps % cycle, block.steps, cycle)]
        if block.steps >= cycle
        else []
        for block in blocks
    ]


def _stretch(block: Block, begin: int, end: int) -> Stretch:
    return Stretch(
        steps=end - begin, step_s=math.fsum(block.step_s[begin:end]), fetch_s=math.fsum(block.fetch_s[begin:end])
    )


def _cycle_steps(blocks: Sequence[Block]) -> int:
    """Steps from one stall to the next, 1 where there is no such rule."""
    gaps = Counter(later - earlier for block in blocks for earlier, later in itertools.pairwise(_stalls(block)))
    if not gaps:
        return 1
    gap, count = gaps.most_common(1)[0]
    return gap if count >= MIN_REPEATS and 2 * count >= gaps.total() else 1


def _stalls(block: Block) -> list[int]:
    # The lower quartile is no stall even where every second fetch is one.
    typical = sorted(block.fetch_s)[block.steps // 4]
    threshold = typical + STALL * math.fsum(block.step_s)
    return [number for number, fetch in enumerate(block.fetch_s) if fetch > threshold]
