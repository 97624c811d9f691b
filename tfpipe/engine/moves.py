"""Whether stages may change places, or a cache be added: shown on real elements, or refused with a reason.

One proof for all: the stages between the first and the last that are concerned are run in both orders on the same real
elements, for two epochs, with shuffling made the same on both sides. What a function draws, remembers or does in Python
cannot be compared so, and is not moved. ``batch`` before ``map`` has the further proof of ``tfpipe.engine.reorder``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from tfpipe.engine.caches import FILL_BUDGET_S
from tfpipe.engine.capture import Call, Captured
from tfpipe.engine.elements import (
    READ_BUDGET_S,
    Read,
    as_dataset,
    difference,
    drain,
    first_line,
    read_elements,
    spec_difference,
)
from tfpipe.engine.functions import components_kept, components_read
from tfpipe.engine.reorder import check_batch_before_map
from tfpipe.engine.structure import Noticed
from tfpipe.sites import CACHE_BEFORE, Finding, Move, Site, method_of
from tfpipe.units import format_bytes, format_seconds

# Seconds for all proofs of a pipeline together; what is left then is named without a proof.
PROOF_BUDGET_S = 30.0
# Elements to compare: a function of one element that is the same on so many is the same.
COMPARED = 256
# Elements whose size stands for the others'.
SIZED = 512
# Seconds to spend on reading a data set to its end, to count it and to see how long that takes.
COUNT_BUDGET_S = 5.0
# Epochs longer than this are not worth naming a cache for: there is hardly a second one.
LONGEST_EPOCH_S = 86_400.0


class _RefusedError(Exception):
    """Why a change is not offered, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Findings with their proofs, and the sites at which candidates can make the changes."""

    findings: tuple[Finding, ...]
    sites: tuple[Site, ...]


def settle(captured: Captured, noticed: Sequence[Noticed]) -> Settled:
    """Prove what was noticed, each by the best of its tries that can be proven."""
    prover = _Prover(captured)
    findings, sites = [], dict[str, Site]()
    for one in noticed:
        finding, added = prover.settle(one)
        if finding is not None:
            findings.append(finding)
            sites |= {site.id: site for site in added}
    return Settled(findings=tuple(findings), sites=tuple(sites.values()))


@dataclass(slots=True)
class _Prover:
    captured: Captured
    _reads: dict[int, list[Any]] = field(default_factory=dict)
    _deadline: float = field(default_factory=lambda: time.monotonic() + PROOF_BUDGET_S)

    def settle(self, one: Noticed) -> tuple[Finding | None, tuple[Site, ...]]:
        why = ""
        for moves in one.tries:
            try:
                note = self._prove(one.finding, moves)
            except _RefusedError as refused:
                why = str(refused)
            else:
                site_ids = tuple(move.site for move in moves)
                finding = replace(one.finding, sites=site_ids, note=note)
                if one.finding.kind == "suggestion":
                    finding = replace(finding, remedy=_remedy(one.finding, moves))
                return finding, tuple(self._site(move) for move in moves)
        if one.cache_before is not None:
            return self._settle_cache(one.finding, one.cache_before)
        return replace(one.finding, note=why or one.finding.note), ()

    def _site(self, move: Move) -> Site:
        place = self.captured.calls[move.stage].site
        return replace(place, id=move.site, argument=f"{move.place} {move.partner}", partner=move.partner)

    # --- stages that change places ------------------------------------------------------------------------------

    def _prove(self, finding: Finding, moves: Sequence[Move]) -> str:
        """What was shown. Raises _RefusedError."""
        calls = self._range(moves)
        if any(call.method == "cache" and _file_of(call) for call in calls):
            raise _RefusedError("The cache is kept in a file, which a run of another order would read.")
        if finding.kind == "wrong":
            return "What is cached then does not change between epochs; what follows is drawn anew in each."
        moved = {move.stage for move in moves}
        note = ""
        if calls[-1].method == "batch":
            batch = calls.pop()
            for mover in [call for call in calls if call.stage in moved]:
                proof = check_batch_before_map(self.captured, mover.stage, batch.stage)
                if proof.verdict != "equal":
                    raise _RefusedError(f"{proof.text} {proof.remedy}".strip())
                note = proof.text
        for call in calls:
            _check_function(call)
        elements = self._read(calls[0].input)
        if len(elements) < 2:
            raise _RefusedError(f"The pipeline gave {len(elements)} elements before {calls[0].method}; two are needed.")
        if any(call.method == "filter" for call in calls):
            self._check_filter(calls)
        if any(call.method == "cache" for call in calls) and any(call.method == "take" for call in calls):
            self._check_same_twice(calls[0].input)
        others = [call for call in calls if call.stage not in moved]
        movers = [call for call in calls if call.stage in moved]
        first = moves[0].place == "before"
        compared = _compare(elements, calls, [*movers, *others] if first else [*others, *movers])
        return note or compared

    def _range(self, moves: Sequence[Move]) -> list[Call]:
        """The calls from the first to the last that is concerned, in the order of the data."""
        partner = self.captured.calls[moves[0].partner]
        movers = [self.captured.calls[move.stage] for move in moves]
        first, last = (partner, movers[0]) if moves[0].place == "before" else (movers[0], partner)
        by_output = {id(call.output): call for call in self.captured.calls.values()}
        calls = [last]
        while calls[0] is not first:
            calls.insert(0, by_output[id(calls[0].input)])
        return calls

    def _read(self, dataset: Any) -> list[Any]:
        """Elements to compare; read once."""
        if id(dataset) not in self._reads:
            self._reads[id(dataset)] = self._read_anew(dataset, COMPARED).elements
        return self._reads[id(dataset)]

    def _read_anew(self, dataset: Any, most: int) -> Read:
        budget_s = self._budget_s()
        try:
            return read_elements(dataset, most, budget_s=budget_s)
        except Exception as error:  # whatever is in their data or functions
            raise _RefusedError(f"Reading its elements failed: {first_line(error)}.") from None

    def _budget_s(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise _RefusedError("Reading elements took too long to try this one too.")
        return min(left, READ_BUDGET_S)

    def _check_same_twice(self, dataset: Any) -> int:
        """Refuse where a second reading gives something else. The number of elements compared."""
        first = self._read(dataset)
        second = self._read_anew(dataset, len(first)).elements if first else []
        compared = min(len(first), len(second))
        if not compared or any(difference(a, b)[0] for a, b in zip(first, second, strict=False)):
            raise _RefusedError("What comes before it is not the same when it is read twice.")
        return compared

    def _check_filter(self, calls: Sequence[Call]) -> None:
        """That the condition looks only at what the maps hand on unchanged, for any element and not just those read."""
        condition = calls[-1]
        function = condition.arguments["predicate"]
        wanted = components_read(condition.output)
        for call in reversed(calls[:-1]):
            if call.method == "map":
                kept = components_kept(call.output)
                if not wanted <= kept.keys():
                    raise _RefusedError("Its condition looks at what the map makes.")
                wanted = frozenset(kept[index] for index in wanted)
        try:
            looked_at = components_read(calls[0].input.filter(function))
        except Exception as error:  # whatever their function raises when it is given other elements
            raise _RefusedError(f"Its condition does not work before the map: {first_line(error)}.") from None
        if looked_at != wanted:
            raise _RefusedError("Before the map, its condition would look at another part of the elements.")

    # --- a cache that is added ----------------------------------------------------------------------------------

    def _settle_cache(self, finding: Finding, stage: str) -> tuple[Finding | None, tuple[Site, ...]]:
        call = self.captured.calls[stage]
        try:
            read = self._read_anew(call.input, SIZED)
            self._reads.setdefault(id(call.input), read.elements[:COMPARED])
            if not read.elements:
                raise _RefusedError("The pipeline gave no elements before it.")
            drained = drain(call.input, budget_s=min(COUNT_BUDGET_S, self._budget_s()))
            count = drained.count if drained.whole else int(call.input.cardinality())
            if count < 0:
                raise _RefusedError("How many elements there are is not known before they were all read.")
            fill_s = drained.seconds * count / max(1, drained.count)
            if fill_s > LONGEST_EPOCH_S:
                return None, ()
            memory_bytes = read.size_bytes * count // len(read.elements)
            size = format_bytes(memory_bytes)
            if fill_s > FILL_BUDGET_S:
                raise _RefusedError(
                    f"It would hold {size} and take {format_seconds(fill_s)} to fill, too long to measure here; "
                    "tfpipe recommend --what-if cache=memory, or cache=disk, predicts what it would bring."
                )
            compared = self._check_same_twice(call.input)
        except _RefusedError as refused:
            return replace(finding, note=str(refused)), ()
        made = replace(
            finding,
            sites=(f"{stage}({CACHE_BEFORE})",),
            note=f"It will hold {size}. {compared} elements before it were the same when read twice.",
            memory_bytes=memory_bytes,
            elements=count,
        )
        return made, (replace(call.site, id=made.sites[0], axis="cache", argument=CACHE_BEFORE),)


def _remedy(finding: Finding, moves: Sequence[Move]) -> str:
    """What to write, where the best try was not the one that can be proven."""
    partner = method_of(moves[0].partner)
    if finding.code == "cast-before-buffer":
        return f"Move the cast behind {partner}."
    if finding.code == "decode-before-shuffle" and partner == "batch":
        return "Decode behind batch: the buffer then holds the encoded strings, and whole batches are decoded at once."
    return finding.remedy


def _file_of(call: Call) -> bool:
    return bool(call.arguments.get("filename", ""))


def _check_function(call: Call) -> None:
    """Refuse a function that comparing shows nothing about."""
    function = call.arguments.get("map_func", call.arguments.get("predicate"))
    name = getattr(function, "__name__", call.method)
    if call.facts.random:
        raise _RefusedError(
            f"{name} draws random numbers ({', '.join(call.facts.random)}), so comparing both orders shows nothing. "
            "Draws are per example either way: you can move it by hand."
        )
    if call.facts.python:
        raise _RefusedError(
            f"{name} runs Python for each element ({', '.join(call.facts.python)}), which tfpipe cannot look into."
        )
    if call.facts.state:
        raise _RefusedError(f"{name} changes state ({', '.join(call.facts.state)}): how often it runs matters.")


def _compare(elements: list[Any], calls: Sequence[Call], moved: Sequence[Call]) -> str:
    """Run ``calls`` and ``moved``, the same in another order, on ``elements``. Raises _RefusedError."""
    source = as_dataset(elements, calls[0].input.element_spec)
    epochs = 2 if any(call.method in ("cache", "repeat") for call in calls) else 1
    try:
        expected, got = (_made(source, order, len(elements)) for order in (calls, moved))
        problem = spec_difference(expected.element_spec, got.element_spec, 1)
        if problem is not None:
            raise _RefusedError(problem[1])
        count = 0
        for _ in range(epochs):
            wanted, found = list(expected), list(got)
            if len(wanted) != len(found):
                raise _RefusedError(f"One order gives {len(wanted)} elements, the other {len(found)}.")
            if any(call.method == "filter" for call in calls) and any(call.method == "shuffle" for call in calls):
                wanted, found = _sorted(wanted), _sorted(found)
            for one, other in zip(wanted, found, strict=True):
                reason, text, _ = difference(one, other)
                if reason is not None:
                    raise _RefusedError(f"Both orders give other {reason}: {text}.")
            count = len(wanted)
    except _RefusedError:
        raise
    except Exception as error:  # whatever their functions raise in another place
        raise _RefusedError(f"Running both orders failed: {first_line(error)}.") from None
    if any(call.method == "filter" for call in calls) and not 0 < count < len(elements):
        raise _RefusedError(f"All {len(elements)} elements read fare alike, so comparing them shows nothing.")
    return f"Both orders gave the same structure, types and values on {len(elements)} elements."


def _made(source: Any, calls: Iterable[Call], count: int) -> Any:
    """``calls`` on ``source``, which has ``count`` elements: with one order of shuffling, and numbers that fit."""
    dataset = source
    for call in calls:
        arguments = dict(call.arguments)
        if call.method == "shuffle":
            buffer = min(int(arguments["buffer_size"]), count)
            arguments = {"buffer_size": max(1, buffer), "seed": 1, "reshuffle_each_iteration": False}
        elif call.method == "cache":
            arguments = {}
        elif call.method in ("take", "skip"):
            arguments["count"] = min(int(arguments["count"]), count // 2)
        elif call.method == "repeat":
            arguments = {"count": 2}
        elif call.method == "map":
            arguments.pop("deterministic", None)
        dataset = getattr(dataset, call.method)(**arguments)
    return dataset


def _sorted(elements: list[Any]) -> list[Any]:
    """In an order that depends on the elements alone."""

    def content(element: Any) -> list[bytes]:
        return [tf.io.serialize_tensor(leaf).numpy() for leaf in tf.nest.flatten(element, expand_composites=True)]

    return sorted(elements, key=content)
