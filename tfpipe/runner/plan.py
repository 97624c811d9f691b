"""How long to measure what, from the floor and from each candidate's capacity. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tfpipe.messages import Length

# At least this many rounds, so that a slow spell of the machine cannot fall on one candidate alone.
MIN_ROUNDS = 3
# What takes part in a round of confirmation at least: what is recommended, what the user has, and the floor.
CONFIRMED = 3
# Rounds of confirmation that time is kept for; three often do. The interval of six is about half as wide.
CONFIRMING_ROUNDS = 6
# So many candidates a search should have time to add.
ADDED = 2
# And at least this many counted steps of each candidate.
MIN_STEPS = 5
# A counted block of fast steps lasts this long: hundreds of steps, yet short against the machine's slow spells.
BLOCK_S = 0.75
# Before a block counts: long enough for thread pools, allocators and AUTOTUNE's first moves (it acts every 10 ms at
# first, doubling; 6 moves take 0.63 s, and TensorFlow's initial choice is one core per call), and for buffers.
WARMUP_S = 0.5
WARMUP_STEPS = 2
# A step that lasts this many times as long as making a batch leaves every buffer full when it ends, so that there
# is nothing to warm up.
SETTLED_RATIO = 10
# A capacity block: enough batches to see bursts, long enough to outlast the buffers.
CAPACITY_STEPS = 4
CAPACITY_S = 0.6
# Profiled steps: as many as fit in TRACE_S, within limits.
TRACE_S = 1.0
TRACE_STEPS = 20
# XProf shows neither the first nor the last marked step.
MIN_TRACE_STEPS = 3
# Starting the profiler, stopping it and writing the trace.
PROFILER_S = 0.7
# What probing the floor costs at most, in steps, before the plan is made.
PROBE = Length(warmup_steps=1, warmup_s=0.1, steps=2, seconds=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The lengths of a run's blocks; ``steps`` is what the user fixed, else None and rounds go on until settled.

    ``scale`` shortens every time above in one proportion when the budget is too small for them.
    """

    floor_step_s: float
    steps: int | None
    scale: float

    @property
    def _slow(self) -> bool:
        return self.floor_step_s >= BLOCK_S

    def _per_block(self, number: int) -> int:
        """The steps that one round of MIN_ROUNDS has to count so that all of them together count what they must."""
        least, more = divmod(self.steps or MIN_STEPS, MIN_ROUNDS)
        return max(1, least + (number < more))

    @property
    def _block_s(self) -> float:
        return 0.0 if self.steps else BLOCK_S * self.scale

    @property
    def fetch_floor_rounds(self) -> int:
        """Beside a slow step the cost of a fetch is nothing, and measuring it again costs a step each time."""
        return 1 if self._slow else MIN_ROUNDS

    def floor(self, number: int) -> Length:
        return Length(
            warmup_steps=0 if self._slow else 1, warmup_s=0.0, steps=self._per_block(number), seconds=self._block_s
        )

    def fetch_floor(self) -> Length:
        return Length(
            warmup_steps=0 if self._slow else 1, warmup_s=0.0, steps=1 if self._slow else 2, seconds=self._block_s / 2
        )

    def capacity(self) -> Length:
        return Length(warmup_steps=1, warmup_s=0.1 * self.scale, steps=CAPACITY_STEPS, seconds=CAPACITY_S * self.scale)

    def block(self, number: int, *, batch_s: float | None) -> Length:
        """The block of round ``number`` of a candidate whose pipeline alone takes ``batch_s`` per batch."""
        settled = self._slow and batch_s is not None and self.floor_step_s >= SETTLED_RATIO * batch_s
        return Length(
            warmup_steps=0 if settled else WARMUP_STEPS,
            warmup_s=0.0 if settled else WARMUP_S * self.scale,
            steps=self._per_block(number),
            seconds=self._block_s,
        )

    def trace(self, step_s: float) -> tuple[int, int]:
        """Warm-up steps and profiled steps of a candidate whose step takes ``step_s``."""
        counted = math.ceil(TRACE_S * self.scale / step_s) if step_s > 0 else TRACE_STEPS
        return (0 if step_s >= BLOCK_S else WARMUP_STEPS), max(MIN_TRACE_STEPS, min(TRACE_STEPS, counted))


def make_plan(
    *, floor_step_s: float, steps: int | None, candidates: int, time_budget_s: float, grows: bool = False
) -> Plan:
    """The plan for a step that takes ``floor_step_s`` alone (0 for no step); ``steps`` is what the user fixed.

    ``grows`` says that a search will add candidates, which then need as many rounds.
    """
    rounds_s = MIN_ROUNDS * (WARMUP_S + BLOCK_S)
    needed_s = (rounds_s + CAPACITY_S + TRACE_S + PROFILER_S) * (candidates + 1)
    if candidates > 1:
        needed_s += CONFIRMING_ROUNDS * (WARMUP_S + BLOCK_S) * CONFIRMED
    if grows:
        needed_s += rounds_s * (candidates + ADDED + 1) + ADDED * (CAPACITY_S + TRACE_S + PROFILER_S)
    return Plan(floor_step_s=floor_step_s, steps=steps, scale=min(1.0, time_budget_s / needed_s))
