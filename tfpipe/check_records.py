"""What ``tfpipe check`` knows and finds: frozen plain data that the checker fills, a run confirms and reports render.

Lines and columns count from 1, as editors and compilers print them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]
# "seen" was observed while the code ran; "suspected" was read in the source and not (or not yet) observed.
Status = Literal["suspected", "seen"]
SEVERITIES: tuple[Severity, ...] = ("warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of mistake.

    ``error``: the code fails, or does something else than it says. ``warning``: it is slow, or right only by luck.
    ``bad`` is a whole small file in which exactly this rule is found once, ``good`` its mended twin with no finding.
    """

    name: str
    severity: Severity
    summary: str
    reason: str
    instead: str
    bad: str
    good: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One place where a rule is broken.

    ``function`` is the qualified name of the traced function around it ("" at module level) and ``traced`` says why
    that function is traced. ``evidence`` is what the run observed, None without a run.
    """

    rule: str
    severity: Severity
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    function: str
    traced: str
    message: str
    status: Status = "suspected"
    evidence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedFunction:
    """A function that TensorFlow traces: its qualified name, the line of its ``def``, and why it is traced."""

    name: str
    line: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """One source file read, with its traced functions in the order of their lines."""

    path: str
    traced: tuple[TracedFunction, ...]
    suppressed: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTraces:
    """The graphs one ``tf.function`` built during a run. ``causes`` has one line per graph after the first."""

    function: str
    calls: int
    traces: int
    operations: int | None
    causes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """What running the target observed. ``error`` is the exception that ended it early, in one line."""

    steps: int
    elapsed_s: float
    functions: tuple[FunctionTraces, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """Everything a report renders. ``rules`` is the whole registry, findings are sorted by path and line."""

    tfpipe_version: str
    targets: tuple[str, ...]
    rules: tuple[Rule, ...]
    files: tuple[CheckedFile, ...]
    findings: tuple[Finding, ...]
    run: CheckRun | None = None

    def rule(self, name: str) -> Rule:
        """The rule of that name. Raises KeyError."""
        for rule in self.rules:
            if rule.name == name:
                return rule
        raise KeyError(name)

    def reached(self, fail_on: Severity) -> int:
        """How many findings are at least as severe as ``fail_on``."""
        limit = SEVERITIES.index(fail_on)
        return sum(SEVERITIES.index(finding.severity) >= limit for finding in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What to run: ``target`` and ``pipeline``, the factory of the data set whose batches it is called with, are
    ``MODULE:NAME`` or ``FILE.py:NAME``. ``file`` is the target's file, ``findings`` those of both."""

    target: str
    pipeline: str
    steps: int
    file: CheckedFile
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """The findings with what was observed of them, and the run; or why it could not be run."""

    findings: tuple[Finding, ...] = ()
    run: CheckRun | None = None
    message: str | None = None
    hint: str | None = None
    exit_code: int = 0
