"""What is run on each batch: one file per kind of step, made anew for each way to run it."""

from __future__ import annotations

from typing import Any, TypeAlias

from tfpipe.engine.steps.fit import FitStep
from tfpipe.engine.steps.none import NoStep
from tfpipe.engine.steps.running import FunctionStep
from tfpipe.engine.steps.simulated import SimulatedStep
from tfpipe.engine.steps.training import open_resnet18
from tfpipe.engine.steps.user import open_user_step
from tfpipe.errors import UsageError
from tfpipe.messages import Workload
from tfpipe.settings import Execution, parse_step

AnyStep: TypeAlias = FunctionStep | FitStep | NoStep | SimulatedStep


def check_step(workload: Workload) -> None:
    """Raises UsageError where what is asked for does not go with the step."""
    kind, _ = parse_step(workload.step)
    if kind in ("none", "simulated") and workload.executions:
        raise UsageError(
            f"--execution {','.join(workload.executions)}: --step {workload.step} has nothing to execute.",
            "Leave --execution out, or name another step.",
        )
    if kind != "resnet18" and (workload.precision != "float32" or workload.packaging != "functional"):
        raise UsageError(
            "--precision and --packaging are the built-in model's.", "Use --step resnet18, or leave them out."
        )
    if workload.steps_per_execution != 1 and "fit" not in workload.executions:
        raise UsageError(
            f"--steps-per-execution {workload.steps_per_execution} is an option of fit.",
            "Add fit to --execution, or leave it out.",
        )


def open_step(
    workload: Workload, execution: Execution | None, *, spec: Any, batch: Any, classes: int | None
) -> AnyStep:
    """The workload's step, run as ``execution`` says, or as it is written; not yet called.

    Args:
        spec: TensorSpecs of one batch.
        batch: one batch.
        classes: labels there are; None where that is not known.

    Raises:
        UsageError: an unknown step, one that cannot be run in that way, or batches that it cannot take.
    """
    kind, duration_s = parse_step(workload.step)
    if kind == "none":
        return NoStep()
    if kind == "simulated":
        return SimulatedStep(duration_s)
    if kind == "resnet18":
        if classes is None:
            raise UsageError(
                "resnet18 trains the built-in data sets, not a pipeline of your own.",
                "Use --step MODULE:FUNCTION, simulated:66ms or none.",
            )
        return open_resnet18(
            spec,
            width=workload.width,
            classes=classes,
            seed=workload.seed,
            execution=execution or "graph",
            precision=workload.precision,
            packaging=workload.packaging,
            steps_per_execution=workload.steps_per_execution,
        )
    return open_user_step(
        workload.step,
        spec,
        batch,
        execution=execution,
        seed=workload.seed,
        steps_per_execution=workload.steps_per_execution,
    )
