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
RULES: tuple[Rule, ...] = tuple(check.rule for check in CHECKS)
