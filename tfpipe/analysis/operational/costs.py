"""What an example costs at each stage, from what TensorFlow counted while the pipeline ran alone. Pure.

For each stage AUTOTUNE's model has the time spent inside it, summed over its threads, and the elements it has made.
What it calls processing time is not processor time: it is measured by the clock while an operation runs, so a function
that sleeps, reads or waits for Python's lock has that in it (TensorFlow 2.21; a map of 5 ms of ``time.sleep`` is 5.4 ms
there, at 0.2 ms of processor). That makes it the *residence time* of operational analysis: how long a call keeps its
place. Processor time of the whole process is known from its own clock; what residence exceeds it by is waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tfpipe.analysis.operational.shape import Shape
from tfpipe.records import Node

# Names of TensorFlow's nodes by what they are; the longest that fits counts.
_KINDS = {
    "MapAndBatch": ("map", "batch"),
    "ParallelMap": ("map",),
    "Map": ("map",),
    "ParallelBatch": ("batch",),
    "PaddedBatch": ("batch",),
    "Batch": ("batch",),
    "ParallelInterleave": ("interleave",),
    "Interleave": ("interleave",),
    "LegacyParallelInterleave": ("interleave",),
    "FlatMap": ("interleave",),
    "Prefetch": ("prefetch",),
}

Residence = Mapping[str, float]


def residence_s(nodes: Sequence[Node], shape: Shape, batch_size: int) -> dict[str, float] | None:
    """Seconds that an example stays in each stage of ``shape``; None where the nodes are not what the shape expects.

    Args:
        nodes: of an iterator, source first, the inner pipelines of an interleave in front of it all.
    """
    outer, inner = _split(nodes, shape)
    found = {stage.name: 0.0 for stage in shape.stages}
    expected = [stage for stage in shape.stages if stage.kind not in ("serial", "prefetch") and not stage.inner]
    between = 0.0
    batched = False
    for node in outer:
        kinds = _kinds(node)
        if kinds == ("prefetch",):
            continue
        if kinds == ("interleave",) and not any(stage.kind == "interleave" for stage in expected):
            # How TensorFlow reads several files, or a generator.
            kinds = ()
        if not kinds:
            between += _per_example(node, batch_size if batched else 1)
            continue
        if [stage.kind for stage in expected[: len(kinds)]] != list(kinds):
            return None
        stage, expected = expected[0], expected[len(kinds) :]
        batched = batched or "batch" in kinds
        found[stage.name] = _per_example(node, batch_size if batched else 1)
        # What stands in front of it; the stages' own names are all in ``found``.
        before = f"before {stage.name}"
        if before in found:
            found[before] += between
            between = 0.0
    if expected:
        return None
    if "end" in found:
        found["end"] += between
    _add_inner(inner, shape, found)
    return found


def _split(nodes: Sequence[Node], shape: Shape) -> tuple[Sequence[Node], Sequence[Node]]:
    """The nodes of the main pipeline and those of an interleave's inner ones, which were made later."""
    if not any(stage.kind == "interleave" for stage in shape.stages):
        return nodes, ()
    last = max((index for index, node in enumerate(nodes) if _kinds(node) == ("interleave",)), default=-1)
    if last < 0:
        return nodes, ()
    # Of the main pipeline's source, which lists what is interleaved, hardly anything is asked: it may count as inner.
    return nodes[last:], nodes[:last]


def _add_inner(inner: Sequence[Node], shape: Shape, found: dict[str, float]) -> None:
    """Inner maps with calls of their own to themselves, the rest to the interleave that asks for it one by one."""
    interleave = next((stage.name for stage in shape.stages if stage.kind == "interleave"), None)
    if interleave is None:
        return
    own = next((stage.name for stage in shape.stages if stage.inner), interleave)
    for target, nodes in (
        (own, [node for node in inner if "map" in _kinds(node)]),
        (interleave, [node for node in inner if "map" not in _kinds(node)]),
    ):
        # Several stages in a row make the same elements: those of one of them are counted.
        made: dict[str, int] = {}
        for node in nodes:
            made[node.node] = made.get(node.node, 0) + (node.elements or 0)
        if any(made.values()):
            found[target] += sum(node.processing_s or 0.0 for node in nodes) / max(made.values())


def _kinds(node: Node) -> tuple[str, ...]:
    fitting = [name for name in _KINDS if node.node.startswith(name)]
    return _KINDS[max(fitting, key=len)] if fitting else ()


def _per_example(node: Node, examples: int) -> float:
    """``examples`` are those in one of its elements."""
    return (node.processing_s or 0.0) / ((node.elements or 0) * examples) if node.elements else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """Seconds per example: of processor, of waiting, and, of the former, of holding Python's lock."""

    name: str
    cpu_s: float
    wait_s: float
    lock_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What an example costs under one variant. ``handing_s`` is processor time outside the stages: threads that wake
    each other, and the loop that asks."""

    stages: tuple[StageCost, ...]
    handing_s: float

    @property
    def cpu_s(self) -> float:
        return self.handing_s + sum(stage.cpu_s for stage in self.stages)

    @property
    def lock_s(self) -> float:
        return sum(stage.lock_s for stage in self.stages)

    def of(self, name: str) -> StageCost:
        """That of stage ``name``; nothing for a stage that was not seen."""
        nothing = StageCost(name=name, cpu_s=0.0, wait_s=0.0, lock_s=0.0)
        return next((stage for stage in self.stages if stage.name == name), nothing)

    def residence_s(self, name: str) -> float:
        stage = self.of(name)
        return stage.cpu_s + stage.wait_s


def split_costs(residence: Residence, shape: Shape, *, cpu_s: float, fastest_s: float, locks: bool = True) -> Costs:
    """Residence as processor and waiting.

    Operations on tensors compute for as long as they last; the processor time that they leave belongs to the stages
    that may wait (Python, readers), in proportion to their residence. Where they last longer than there is processor
    time for, they all wait in proportion (files that are read inside a map, a machine with other work). Python holds
    the interpreter's lock while it computes, unless some setting was faster than one thread could be.

    Args:
        cpu_s: processor seconds of the process per example.
        fastest_s: the least seconds per example that any setting of this variant took.
    """
    waiting = {stage.name for stage in shape.stages if stage.waits}
    computing_s = sum(seconds for name, seconds in residence.items() if name not in waiting)
    waiting_s = sum(seconds for name, seconds in residence.items() if name in waiting)
    computing = min(1.0, cpu_s / computing_s) if computing_s > 0 else 1.0
    left_s = max(0.0, cpu_s - computing_s)
    partly = min(1.0, left_s / waiting_s) if waiting_s > 0 else 0.0
    costs = []
    for stage in shape.stages:
        seconds = residence.get(stage.name, 0.0)
        cpu = seconds * (partly if stage.name in waiting else computing)
        costs.append(
            StageCost(name=stage.name, cpu_s=cpu, wait_s=seconds - cpu, lock_s=cpu if stage.python and locks else 0.0)
        )
    lock_s = sum(cost.lock_s for cost in costs)
    if lock_s > fastest_s > 0:
        costs = [replace(cost, lock_s=cost.lock_s * fastest_s / lock_s) for cost in costs]
    return Costs(stages=tuple(costs), handing_s=max(0.0, cpu_s - sum(cost.cpu_s for cost in costs)))


# What batching an element takes, and each of its bytes: measured with TensorFlow 2.21, 0.46 us for 24 bytes, 0.87 for
# 3 KiB, 24 for 147 KiB.
COPY_S, COPY_BYTE_S = 0.5e-6, 0.16e-9


def without_map(shape: Shape, costs: Costs, name: str, *, before: int, after: int) -> tuple[Shape, Costs]:
    """``shape`` and its costs when the map ``name`` is left out, which makes elements of ``after`` bytes out of
    ``before``.

    A batch behind it then copies ``before`` bytes; of a map that fills batches only that copying is left. Threads that
    wake each other are gone with the last stage that has calls of its own.
    """
    names = [stage.name for stage in shape.stages]
    place = names.index(name)
    stages = {stage.name: costs.of(stage.name) for stage in shape.stages if stage.name != name}
    copied = StageCost(name="", cpu_s=COPY_S + COPY_BYTE_S * before, wait_s=0.0, lock_s=0.0)
    for batch in shape.stages[place + 1 :]:
        if batch.kind == "batch" and batch.name in shape.fused:
            stages[batch.name] = replace(copied, name=batch.name)
        elif batch.kind == "batch":
            stages[batch.name] = _times(stages[batch.name], before / after)
    left = replace(shape, stages=tuple(s for s in shape.stages if s.name != name), fused=frozenset())
    calling = any(stage.ahead is not None and stage.kind != "prefetch" for stage in left.stages)
    handing_s = costs.handing_s if calling or shape.stages[place].ahead is None else 0.0
    return left, Costs(stages=tuple(stages.values()), handing_s=handing_s)


def _times(cost: StageCost, share: float) -> StageCost:
    return replace(cost, cpu_s=cost.cpu_s * share, wait_s=cost.wait_s * share, lock_s=cost.lock_s * share)
