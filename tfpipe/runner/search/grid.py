"""Everything that was asked for, in rounds, until more rounds would change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfpipe.analysis.ranking import is_settled
from tfpipe.records import Run
from tfpipe.runner.search.base import Decision
from tfpipe.settings import NamedSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSearch:
    """Measures every candidate and drops none."""

    candidates: Sequence[NamedSettings]

    @property
    def grows(self) -> bool:
        return False

    def first(self) -> tuple[NamedSettings, ...]:
        return tuple(self.candidates)

    def next(self, run: Run) -> Decision:
        return Decision(stop=is_settled(run.candidates))
