"""The closed list of rules, one file per family."""

from __future__ import annotations

from tfpipe.check.rules import creation, eager, loops, py_function, retracing, side_effects, tensors, training
from tfpipe.check.rules.base import Check
from tfpipe.check_records import Rule

CHECKS: tuple[Check, ...] = (
    *side_effects.CHECKS,
    *loops.CHECKS,
    *tensors.CHECKS,
    *creation.CHECKS,
    *retracing.CHECKS,
    *eager.CHECKS,
    *training.CHECKS,
    *py_function.CHECKS,
)
# The one that is broken before any other can be looked for.
UNREADABLE = Rule(
    name="unreadable-file",
    severity="error",
    summary="a file that is no Python source",
    reason="What cannot be read cannot run, and nothing in it was checked.",
    instead="Mend it, or name the files to check without it.",
    bad="def step(batch:\n    return batch\n",
    good="def step(batch):\n    return batch\n",
)
RULES: tuple[Rule, ...] = (*(check.rule for check in CHECKS), UNREADABLE)
