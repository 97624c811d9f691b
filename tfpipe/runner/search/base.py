"""What a search is: from the run so far to what is measured next. Pure, so that a resumed run goes on alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tfpipe.records import Prediction, Run
from tfpipe.settings import NamedSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``add`` joins the rounds from now on, ``drop`` leaves them (ids and why), ``stop`` ends the search.

    ``predictions`` are what the search expects of those it adds, by id, from before they are measured.
    """

    add: tuple[NamedSettings, ...] = ()
    drop: Mapping[str, str] = field(default_factory=dict)
    stop: bool = False
    predictions: Mapping[str, Prediction] = field(default_factory=dict)


class Search(Protocol):
    """Chooses among candidates that are known beforehand.

    ``grows`` says that it may add to the first ones.
    """

    @property
    def grows(self) -> bool: ...

    def first(self) -> tuple[NamedSettings, ...]:
        """What the first round measures; what the user has comes first."""
        ...

    def next(self, run: Run) -> Decision:
        """What to do after a whole round. ``run`` has everything measured so far."""
        ...
