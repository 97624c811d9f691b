"""What a journal says about the run so far: who takes part, what is measured, how long it took. Pure queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tfpipe.messages import Measured, Prepared
from tfpipe.records import Block, BlockKind
from tfpipe.runner.journal import (
    CandidateFailed,
    CandidateMeasured,
    CandidatesChosen,
    CandidateSkipped,
    CandidateTraced,
    Confirming,
    Decided,
    Entry,
    FloorMeasured,
    WorkloadPrepared,
)
from tfpipe.settings import Execution, NamedSettings

T = TypeVar("T")


class SoFar:
    """Reads ``entries`` anew at each question, so that it is never behind the journal."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def every(self, kind: type[T]) -> list[T]:
        return [entry for entry in self._entries if isinstance(entry, kind)]

    @property
    def prepared(self) -> Prepared:
        return self.every(WorkloadPrepared)[0].prepared

    # --- the ways to run the step ------------------------------------------------------------------------------

    @property
    def executions(self) -> tuple[Execution, ...]:
        """As they were asked for."""
        steps = (self.prepared.step, *self.prepared.other_steps)
        return tuple(step.execution for step in steps)

    @property
    def main(self) -> Execution:
        """The one behind which pipelines are compared: the fastest, whose input has to keep up most."""
        return min(self.executions, key=self.probed_floor_s)

    def probed_floor_s(self, execution: Execution) -> float:
        """Seconds per step of the first floor block; 0 where there is none."""
        blocks = self.floor_blocks("floor", execution)
        return blocks[0].elapsed_s / blocks[0].steps if blocks else 0.0

    def floor_blocks(self, kind: BlockKind, execution: Execution) -> list[Block]:
        measured = [e.measured for e in self.every(FloorMeasured) if (e.execution or self.executions[0]) == execution]
        return [m.block for m in measured if m.block.kind == kind]

    def through(self, execution: Execution) -> list[Measured]:
        """Everything that was measured through the step run in that way, in order."""
        first = self.executions[0]
        entries = [e for e in self._entries if isinstance(e, FloorMeasured | CandidateMeasured)]
        return [e.measured for e in entries if (e.execution or first) == execution]

    # --- the candidates ----------------------------------------------------------------------------------------

    def decided(self, number: int) -> Decided | None:
        """What was decided after round ``number``."""
        return next((entry for entry in self.every(Decided) if entry.round == number), None)

    @property
    def confirming(self) -> Confirming | None:
        return next(iter(self.every(Confirming)), None)

    def candidates(self, number: int | None = None) -> tuple[NamedSettings, ...]:
        """All that were ever chosen, or that were chosen before round ``number``; the first is what the user has."""
        decisions = [e for e in self.every(Decided) if number is None or e.round < number]
        chosen = [*self.every(CandidatesChosen)[0].candidates, *(n for e in decisions for n in e.add)]
        return tuple({named.settings.id: named for named in chosen}.values())

    def alive(self, number: int | None = None) -> list[NamedSettings]:
        """Those that take part in round ``number``, or that still did when the rounds ended."""
        decisions = [e for e in self.every(Decided) if number is None or e.round < number]
        out = {e.id for e in self.every(CandidateSkipped)} | {e.id for e in self.every(CandidateFailed)}
        out.update(identity for e in decisions for identity in e.drop)
        confirming = self.confirming
        if number is not None and confirming is not None and number >= confirming.round:
            out.update(n.settings.id for n in self.candidates(number) if n.settings.id not in confirming.candidates)
        return [named for named in self.candidates(number) if named.settings.id not in out]

    def has_failed(self, identity: str) -> bool:
        return any(entry.id == identity for entry in self.every(CandidateFailed))

    def is_traced(self, identity: str) -> bool:
        return any(entry.id == identity for entry in self.every(CandidateTraced))

    def measured(self, identity: str, execution: Execution) -> list[CandidateMeasured]:
        """The candidate alone, which has nothing to do with the step, and behind the step run in that way."""
        first = self.executions[0]
        of_it = [entry for entry in self.every(CandidateMeasured) if entry.id == identity]
        return [e for e in of_it if e.measured.block.kind == "capacity" or (e.execution or first) == execution]

    def blocks(self, identity: str, kind: BlockKind, execution: Execution) -> list[Block]:
        blocks = [entry.measured.block for entry in self.measured(identity, execution)]
        return [block for block in blocks if block.kind == kind]

    def batch_s(self, identity: str) -> float | None:
        """Seconds per batch of the pipeline alone."""
        capacities = self.blocks(identity, "capacity", self.main)
        return capacities[0].elapsed_s / capacities[0].steps if capacities else None

    def step_s(self, identity: str) -> float:
        """Seconds per step behind the candidate's pipeline, in the main execution."""
        blocks = self.blocks(identity, "step", self.main)
        return sum(block.elapsed_s for block in blocks) / sum(block.steps for block in blocks)

    def task_s(self) -> float:
        """Seconds that one block of a candidate takes in the main execution, with its start and its warm-up."""
        blocks = [b for named in self.alive() for b in self.blocks(named.settings.id, "step", self.main)]
        seconds = [b.elapsed_s * (b.steps + b.warmup_steps) / b.steps + (b.first_batch_s or 0.0) for b in blocks]
        return sum(seconds) / len(seconds) if seconds else 0.0

    # --- the rounds --------------------------------------------------------------------------------------------

    @property
    def measured_s(self) -> float:
        """Seconds that all blocks took."""
        measured = [e.measured for e in self._entries if isinstance(e, FloorMeasured | CandidateMeasured)]
        return sum(m.block.elapsed_s for m in measured)
