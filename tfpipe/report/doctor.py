"""What ``tfpipe doctor`` found, judged and rendered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfpipe.report.rendering import pairs, paragraph
from tfpipe.report.text import join

State = Literal["ok", "note", "broken"]

_STATE_STYLES: dict[State, str] = {"ok": "green", "note": "yellow", "broken": "bold red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at. ``broken`` means that something tfpipe needs will fail; ``mend`` is what to type or do."""

    name: str
    state: State
    found: str
    mend: str = ""


def doctor_report(checks: list[Check], *, width: int, color: bool) -> str:
    """The checks in order, each with what to do about it, and what the whole means."""
    lines = []
    for check in checks:
        line = f"{check.state:<6}  {check.name}: {check.found}"
        lines.append(paragraph(line, width=width, color=color, style=_STATE_STYLES[check.state] if color else ""))
        lines.append(pairs([("mend", check.mend)], width=width, color=color, indent=8))
    broken = [check.name for check in checks if check.state == "broken"]
    outcome = f"Broken: {', '.join(broken)}." if broken else "Everything that tfpipe needs works here."
    return join(["".join(lines), paragraph(outcome, width=width, color=color, style="bold")])
