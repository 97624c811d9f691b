"""What is run on each batch: one file per kind of step, all of them a ``loop.Step``."""

from __future__ import annotations

from typing import Any

from tfpipe.engine.loop import Step
from tfpipe.errors import UsageError
from tfpipe.settings import parse_step


def open_step(name: str, *, element_spec: Any, width: int, classes: int, seed: int) -> Step:
    """The step called ``name``. Raises UsageError for an unknown name."""
    kind, duration_s = parse_step(name)
    if kind == "none":
        from tfpipe.engine.steps.none import NoStep

        return NoStep()
    if kind == "simulated":
        from tfpipe.engine.steps.simulated import SimulatedStep

        return SimulatedStep(duration_s)
    if kind == "resnet18":
        from tfpipe.engine.steps.resnet18 import ResNet18Step

        return ResNet18Step(element_spec, width=width, classes=classes, seed=seed)
    raise UsageError(f"There is no step {name!r}.", "Use --step resnet18, simulated:66ms or none.")
