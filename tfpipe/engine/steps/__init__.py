"""What is run on each batch: one file per kind of step, all of them a ``loop.Step``."""

from __future__ import annotations

from typing import Any

from tfpipe.engine.loop import Step
from tfpipe.errors import UsageError
from tfpipe.settings import parse_step


def open_step(name: str, *, spec: Any, batch: Any, classes: int | None, width: int, seed: int) -> Step:
    """The step called ``name``: resnet18, simulated:TIME, none, or the user's MODULE:FUNCTION.

    Args:
        spec: TensorSpecs of one batch.
        batch: one batch.
        classes: labels there are; None where that is not known.
        width, seed: of ResNet18.

    Raises:
        UsageError: an unknown name, or batches that the step cannot take.
    """
    kind, duration_s = parse_step(name)
    if kind == "none":
        from tfpipe.engine.steps.none import NoStep

        return NoStep()
    if kind == "simulated":
        from tfpipe.engine.steps.simulated import SimulatedStep

        return SimulatedStep(duration_s)
    if kind == "resnet18":
        from tfpipe.engine.steps.resnet18 import ResNet18Step

        if classes is None:
            raise UsageError(
                "resnet18 trains the built-in data sets, not a pipeline of your own.",
                "Use --step MODULE:FUNCTION, simulated:66ms or none.",
            )
        return ResNet18Step(spec, width=width, classes=classes, seed=seed)
    from tfpipe.engine.steps.user import open_user_step

    return open_user_step(name, spec, batch)
