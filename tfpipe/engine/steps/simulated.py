"""A device that is busy for a known time and leaves the host's cores alone, as an accelerator does."""

from __future__ import annotations

import time
from typing import Any

from tfpipe.settings import Execution
from tfpipe.units import format_seconds


class SimulatedStep:
    """Occupies ``duration_s`` seconds per step, asleep.

    A pipeline can thus be tuned on a CPU machine for the accelerator it will feed. The call returns when the time
    is over, so what the loop waits for its batch is exactly what the device would wait.
    """

    synchronous = True
    parameters = None
    traces = None
    state = ()
    execution: Execution = "graph"

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s
        self.description = f"a simulated device, {format_seconds(duration_s)} per step, no host cores used"

    def first_call(self, batch: Any) -> None:
        """There is nothing to trace."""

    def __call__(self, batch: Any) -> None:
        time.sleep(self.duration_s)

    def finish(self, result: Any) -> None:
        """Nothing is ever outstanding."""
