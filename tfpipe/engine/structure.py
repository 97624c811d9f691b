"""What the order of a pipeline's stages gives away: fast but wrong, useless, or worth trying another way.

Only stages at top level that the returned dataset reads are judged; inside an ``interleave`` or ``flat_map`` other
rules hold. What to try is a guess here: ``tfpipe.engine.moves`` proves it or says why not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from tfpipe.sites import Finding, FindingKind, Move, Stage

_BATCHING = frozenset({"batch", "padded_batch", "ragged_batch", "sparse_batch", "bucket_by_sequence_length"})
# What may stand behind a prefetch without undoing it.
_PASSIVE = frozenset({"with_options"})
_BUFFERING = frozenset({"shuffle", "cache", "prefetch"})
# What a map may be moved behind: each hands elements on as they are.
_CROSSED_BY_MAP = frozenset({"shuffle", "cache", "prefetch", "take", "skip", "repeat"})
_CROSSED_BY_TAKE = frozenset({"map", "cache", "prefetch"})
_CROSSED_BY_FILTER = frozenset({"map", "shuffle", "cache", "prefetch"})
# Stages that cost next to nothing: nobody needs their results kept.
_CHEAP = frozenset(
    {
        *("range", "from_tensors", "from_tensor_slices", "list_files", "counter", "random", "batch", "unbatch"),
        *(
            "padded_batch",
            "take",
            "skip",
            "shard",
            "zip",
            "concatenate",
            "enumerate",
            "repeat",
            "prefetch",
            "with_options",
            "window",
        ),
    }
)
_FIXED = "A library makes one of these calls, or one makes datasets of its own, so that no candidate was made."
_SHUFFLES = frozenset({"shuffle", "sample_from_datasets", "rejection_resample", "random"})
# A map whose result is this many times its input is worth moving behind a buffer: less is within the cost of moving it.
WIDENING = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """A finding and what would mend it, the best first: each is moves to make together.

    ``cache_before`` is the stage that a cache could be added in front of.
    """

    finding: Finding
    tries: tuple[tuple[Move, ...], ...] = ()
    cache_before: str | None = None


def notice(stages: Sequence[Stage]) -> tuple[Noticed, ...]:
    """Everything noticed, in the order of the lines that it is about."""
    pipeline = _Pipeline(stages)
    found: list[Noticed] = list(_thrown_away(stages))
    for rule in _RULES:
        found += rule(pipeline)
    position = {stage.id: index for index, stage in enumerate(stages)}
    return tuple(sorted(found, key=lambda one: position[one.finding.stages[-1]]))


class _Pipeline:
    """The top-level stages that count, source first, and who reads whom."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = [stage for stage in stages if stage.parent is None and stage.reaches_end]
        self._inner: dict[str, list[Stage]] = {}
        for stage in stages:
            if stage.parent is not None:
                self._inner.setdefault(stage.parent, []).append(stage)
        self._by_id = {stage.id: stage for stage in self.stages}
        self._readers: dict[str, list[Stage]] = {stage.id: [] for stage in self.stages}
        for stage in self.stages:
            for name in stage.inputs:
                if name in self._readers:
                    self._readers[name].append(stage)

    def of(self, *methods: str) -> list[Stage]:
        return [stage for stage in self.stages if stage.method in methods]

    def before(self, stage: Stage) -> list[Stage]:
        """Every stage upstream, nearest first."""
        return self._walk(stage, lambda one: [self._by_id[name] for name in one.inputs if name in self._by_id])

    def after(self, stage: Stage) -> list[Stage]:
        """Every stage downstream, nearest first."""
        return self._walk(stage, lambda one: self._readers[one.id])

    def inside(self, stage: Stage) -> list[Stage]:
        """The stages made in the function of ``stage``, and in theirs."""
        found = list(self._inner.get(stage.id, ()))
        for one in found:
            found += self._inner.get(one.id, ())
        return found

    def chain_behind(self, stage: Stage) -> list[Stage]:
        """Downstream, nearest first, while each is the only reader of the one before and reads nothing else."""
        chain: list[Stage] = []
        while len(self._readers[stage.id]) == 1 and len(self._readers[stage.id][0].inputs) == 1:
            stage = self._readers[stage.id][0]
            chain.append(stage)
        return chain

    def chain_before(self, stage: Stage) -> list[Stage]:
        """Upstream, nearest first, while each is read by the one behind it alone."""
        chain: list[Stage] = []
        while len(stage.inputs) == 1 and len(self._readers.get(stage.inputs[0], ())) == 1:
            stage = self._by_id[stage.inputs[0]]
            chain.append(stage)
        return chain

    def chain_to(self, stage: Stage, first: Stage | None) -> list[Stage]:
        """``chain_before`` of ``stage`` as far as ``first`` and with it; [] where that is no part of it."""
        chain = self.chain_before(stage)
        return chain[: chain.index(first) + 1] if first in chain else []

    def varies(self, stage: Stage) -> bool:
        """Whether it, or what is made in its function, gives something else, or in another order, in each epoch."""
        files = stage.method == "list_files" and (stage.arguments or {}).get("shuffle") is not False
        changing = stage.random or stage.stateful or stage.method in _SHUFFLES or files
        return changing or any(self.varies(one) for one in self._inner.get(stage.id, ()))

    def movable(self, stage: Stage) -> bool:
        """Whether it is the user's own call, and makes no datasets of its own."""
        return stage.via is None and not self.inside(stage)

    def runs_of_maps(self) -> Iterator[list[Stage]]:
        """Maps that follow each other directly, source first."""
        for stage in self.of("map"):
            before = self.chain_before(stage)[:1]
            if not (before and before[0].method == "map"):
                yield [stage, *takewhile(lambda one: one.method == "map", self.chain_behind(stage))]

    def _walk(self, stage: Stage, following: Callable[[Stage], list[Stage]]) -> list[Stage]:
        found: dict[str, Stage] = {}
        waiting = list(following(stage))
        while waiting:
            one = waiting.pop(0)
            if one.id not in found:
                found[one.id] = one
                waiting += following(one)
        return list(found.values())


def _finding(
    code: str,
    kind: FindingKind,
    stages: Sequence[Stage],
    text: str,
    remedy: str,
    tries: Sequence[tuple[Move, ...]] | None = (),
    cache_before: str | None = None,
) -> Noticed:
    """``tries`` is None where the stages cannot be moved."""
    finding = Finding(
        code=code,
        kind=kind,
        stages=tuple(stage.id for stage in stages),
        text=text,
        remedy=remedy,
        note=_FIXED if tries is None else "",
    )
    return Noticed(finding=finding, tries=tuple(tries or ()), cache_before=cache_before)


def _before(stage: Stage, partner: Stage) -> tuple[Move, ...]:
    return (Move(stage=stage.id, place="before", partner=partner.id),)


def _behind(stages: Sequence[Stage], partner: Stage) -> tuple[Move, ...]:
    return tuple(Move(stage=stage.id, place="behind", partner=partner.id) for stage in stages)


def _thrown_away(stages: Sequence[Stage]) -> Iterator[Noticed]:
    for stage in stages:
        if stage.discarded and not stage.reaches_end:
            yield _finding(
                "result-thrown-away",
                "useless",
                [stage],
                f"{stage.where}: the result of {stage.method}(...) is thrown away: datasets do not change in place.",
                f"Write dataset = dataset.{stage.method}(...), or delete the line.",
            )


def _frozen_by_cache(pipeline: _Pipeline) -> Iterator[Noticed]:
    for cache in pipeline.of("cache"):
        frozen = [stage for stage in pipeline.before(cache) if stage.random or stage.method == "shuffle"]
        first = frozen[-1] if frozen else None
        crossed = pipeline.chain_to(cache, first)
        movable = all(pipeline.movable(stage) for stage in [cache, *crossed])
        tries = [_before(cache, first)] if first is not None and crossed and movable else []
        for stage in frozen:
            mending = tries if stage is first else []
            if stage.method == "shuffle":
                yield _finding(
                    "shuffle-before-cache",
                    "wrong",
                    [stage, cache],
                    f"{cache.where}: cache() keeps the order that shuffle at {stage.where} gave the first epoch; every "
                    "later epoch has the same.",
                    "Move shuffle behind cache.",
                    mending,
                )
            elif stage.method not in ("sample_from_datasets", "choose_from_datasets"):
                yield _finding(
                    "random-before-cache",
                    "wrong",
                    [stage, cache],
                    f"{cache.where}: cache() keeps the random numbers that {_call(stage)} drew in the first epoch; "
                    "every later epoch repeats them.",
                    "Cache before the first random operation.",
                    mending,
                )


def _cache_never_completes(pipeline: _Pipeline) -> Iterator[Noticed]:
    for cache in pipeline.of("cache"):
        endless = next((stage for stage in pipeline.before(cache) if stage.infinite), None)
        if endless is not None:
            yield _finding(
                "cache-never-completes",
                "useless",
                [endless, cache],
                f"{cache.where}: cache() of an endless dataset ({endless.method} at {endless.where}) never completes; "
                "it only grows.",
                "Move cache before repeat.",
            )
        for stage in pipeline.after(cache):
            if stage.method == "repeat":
                break  # reads the cache to its end before anything behind it can stop
            if stage.method in ("take", "take_while"):
                chain = pipeline.chain_to(stage, cache)
                crossable = chain and all(one.method in _CROSSED_BY_TAKE and pipeline.movable(one) for one in chain)
                yield _finding(
                    "cache-never-completes",
                    "useless",
                    [cache, stage],
                    f"{stage.where}: {stage.method} stops reading before cache() at {cache.where} has seen all, so the "
                    "cache is filled again in every epoch.",
                    f"Move {stage.method} before cache.",
                    [_before(stage, cache)] if crossable and stage.method == "take" else (),
                )
                break


def never_filled(stages: Sequence[Stage], taken: int | None) -> tuple[Finding, ...]:
    """Of a training that begins a new iterator after ``taken`` batches, and so reads no cache to its end."""
    caches = [] if taken is None else _Pipeline(stages).of("cache")
    return tuple(
        Finding(
            code="cache-never-completes",
            kind="useless",
            stages=(cache.id,),
            text=f"{cache.where}: your training begins a new iterator after {taken:,} batches, before cache() has seen "
            "all: the cache never completes, and is filled again in every epoch.",
            remedy="Make one iterator for all epochs, over a dataset that ends in .repeat().",
        )
        for cache in caches
    )


def _shuffle_after_batch(pipeline: _Pipeline) -> Iterator[Noticed]:
    for shuffle in pipeline.of("shuffle"):
        for stage in pipeline.before(shuffle):
            if stage.method == "unbatch":
                break
            if stage.method in _BATCHING:
                yield _finding(
                    "shuffle-after-batch",
                    "wrong",
                    [stage, shuffle],
                    f"{shuffle.where}: shuffle behind {stage.method} ({stage.where}) moves whole batches; the examples "
                    "in each stay together.",
                    f"Move shuffle before {stage.method}.",
                )
                break


def _prefetch_not_last(pipeline: _Pipeline) -> Iterator[Noticed]:
    for prefetch in pipeline.of("prefetch"):
        behind = [stage for stage in pipeline.after(prefetch) if stage.method not in _PASSIVE]
        if behind and all(stage.method != "prefetch" for stage in behind):
            yield _finding(
                "prefetch-not-last",
                "useless",
                [prefetch, behind[0]],
                f"{prefetch.where}: prefetch is not the last stage: {_call(behind[0])} and what follows run when the "
                "step asks, not ahead of it.",
                "Move prefetch to the end.",
            )


def _repeat_before_shuffle(pipeline: _Pipeline) -> Iterator[Noticed]:
    for shuffle in pipeline.of("shuffle"):
        repeat = next((stage for stage in pipeline.before(shuffle) if stage.method == "repeat"), None)
        if repeat is not None:
            yield _finding(
                "repeat-before-shuffle",
                "wrong",
                [repeat, shuffle],
                f"{shuffle.where}: shuffle behind repeat ({repeat.where}) mixes epochs: some examples come twice "
                "before others come once.",
                "Move repeat behind shuffle.",
            )


def _map_early(pipeline: _Pipeline) -> Iterator[Noticed]:
    """Cast and decode late, so that buffers hold the small form; and behind ``batch``, to work on whole batches."""
    for run in pipeline.runs_of_maps():
        crossed = _crossed(pipeline, run[-1])
        grown = next((i for i, stage in enumerate(run) if _grows(pipeline, stage, run[-1])), None)
        moved = run if grown is None else run[grown:]
        source = next(iter(pipeline.chain_before(moved[0])), None)
        decodes = grown is not None and source is not None and "tf.string" in source.element
        if grown is None or decodes:
            # What a cache keeps need not be computed again; only a cast is cheap enough for that.
            crossed = list(takewhile(lambda one: one.method != "cache", crossed))
        holding = "shuffle" if grown is None or decodes else "shuffle cache prefetch"
        buffers = [stage for stage in crossed if stage.method in holding.split()]
        if not buffers:
            continue
        following = pipeline.chain_behind(crossed[-1])[:1]
        batch = following[0] if following and following[0].method == "batch" else None
        movable = all(pipeline.movable(stage) for stage in [*moved, *crossed, *([] if batch is None else [batch])])
        at_batch = [] if batch is None else [_behind(moved, batch)]
        at_buffer = [_behind(moved, buffers[-1])]
        last, first = buffers[-1], buffers[0]
        calls = " and ".join(_call(stage) for stage in moved)
        if decodes:
            yield _finding(
                "decode-before-shuffle",
                "suggestion",
                [moved[0], first],
                f"{first.where}: the shuffle buffer holds decoded elements of {run[-1].element_bytes or 0:,} bytes.",
                f"Shuffle before {calls}: the buffer then holds the encoded strings.",
                [*at_batch, *at_buffer] if movable else None,
            )
        elif grown is not None and source is not None:
            times = (run[-1].element_bytes or 0) / max(1, source.element_bytes or 0)
            names = " and ".join(dict.fromkeys(stage.method for stage in buffers))
            yield _finding(
                "cast-before-buffer",
                "suggestion",
                [moved[0], last],
                f"{first.where}: {names} hold{'s' if len(buffers) == 1 else ''} elements of "
                f"{run[-1].element_bytes or 0:,} bytes, {times:.3g} times what they are before {calls}.",
                f"Move the cast behind {last.method}.",
                [*at_batch, *at_buffer] if movable else None,
            )
        elif batch is not None:
            yield _finding(
                "map-before-batch",
                "suggestion",
                [moved[0], batch],
                f"{moved[0].where}: {calls} work{'s' if len(moved) == 1 else ''} on one element at a time.",
                f"Behind batch ({batch.where}) whole batches would be mapped at once.",
                at_batch if movable else None,
            )


def _crossed(pipeline: _Pipeline, stage: Stage) -> list[Stage]:
    """What follows ``stage`` and hands elements on as they are, without a prefetch that ends the pipeline."""
    chain = pipeline.chain_behind(stage)
    crossed = list(takewhile(lambda one: one.method in _CROSSED_BY_MAP, chain))
    if all(one.method in _PASSIVE for one in chain[len(crossed) :]):
        while crossed and crossed[-1].method == "prefetch":
            crossed.pop()
    return crossed


def _grows(pipeline: _Pipeline, first: Stage, last: Stage) -> bool:
    """Whether elements are much larger behind ``last`` than before ``first``, or strings no more."""
    source = next(iter(pipeline.chain_before(first)), None)
    if source is None or last.element_bytes is None:
        return False
    if "tf.string" in source.element:
        return "tf.string" not in last.element
    return source.element_bytes is not None and last.element_bytes >= WIDENING * source.element_bytes


def _take_late(pipeline: _Pipeline) -> Iterator[Noticed]:
    for take in pipeline.of("take"):
        crossed = list(takewhile(lambda one: one.method in _CROSSED_BY_TAKE, pipeline.chain_before(take)))
        if any(stage.method == "cache" for stage in crossed):
            continue  # named with the cache that never completes
        maps = [stage for stage in crossed if stage.method == "map"]
        if maps and not maps[0].stateful:
            movable = all(pipeline.movable(stage) for stage in [take, *crossed])
            yield _finding(
                "take-late",
                "suggestion",
                [maps[0], take],
                f"{take.where}: take follows {_call(maps[0])}; the map reads ahead of what is taken.",
                "Move take before the map.",
                [_before(take, stage) for stage in reversed(maps)] if movable else None,
            )


def _filter_late(pipeline: _Pipeline) -> Iterator[Noticed]:
    for dropping in pipeline.of("filter"):
        crossed = list(takewhile(lambda one: one.method in _CROSSED_BY_FILTER, pipeline.chain_before(dropping)))
        maps = [stage for stage in crossed if stage.method == "map"]
        if maps:
            movable = all(pipeline.movable(stage) for stage in [dropping, *crossed])
            yield _finding(
                "filter-late",
                "suggestion",
                [maps[0], dropping],
                f"{dropping.where}: {_call(maps[0])} also maps what filter drops.",
                "Move filter before the map.",
                [_before(dropping, stage) for stage in reversed(maps)] if movable else None,
            )


def _no_cache(pipeline: _Pipeline) -> Iterator[Noticed]:
    """What is the same in every epoch could be kept: everything before the first random operation."""
    if pipeline.of("cache", "snapshot", "save"):
        return
    for stage in pipeline.stages:
        chain = pipeline.chain_before(stage)
        before = pipeline.before(stage)
        if (
            not (stage.random or stage.method in _SHUFFLES)
            or any(map(pipeline.varies, before))
            or len(stage.inputs) > 1
        ):
            continue
        while chain and chain[0].method in ("repeat", "prefetch"):
            stage = chain.pop(0)
        before = pipeline.before(stage)
        worth = [one for one in before if one.method not in _CHEAP]
        if worth and chain and stage.via is None and not any(one.infinite for one in before):
            yield _finding(
                "no-cache",
                "suggestion",
                [worth[0], stage],
                f"{stage.where}: all before {stage.method} is the same in every epoch and is made again in each.",
                f"Write .cache() before {stage.method}.",
                cache_before=stage.id,
            )


def _no_batch(pipeline: _Pipeline) -> Iterator[Noticed]:
    """Slices that are never batched: what is counted as a batch is one of them."""
    for source in pipeline.of("from_tensor_slices"):
        if not any("batch" in stage.method for stage in pipeline.after(source)):
            yield _finding(
                "no-batch",
                "wrong",
                [source],
                f"{source.where}: no batch follows from_tensor_slices, so each step gets one slice, and its first "
                "dimension is counted as the batch.",
                "Add .batch(...).",
            )


def _partial_batch(pipeline: _Pipeline) -> Iterator[Noticed]:
    for batch in pipeline.of("batch", "padded_batch"):
        arguments = batch.arguments or {}
        size = arguments.get("batch_size")
        source = next(iter(pipeline.before(batch)), None)
        if source is None or source.cardinality is None or not isinstance(size, int) or arguments.get("drop_remainder"):
            continue
        rest = source.cardinality % size if size > 0 else 0
        if rest and source.cardinality > size:
            yield _finding(
                "partial-batch",
                "suggestion",
                [source, batch],
                f"{batch.where}: the last batch of an epoch has {rest} of {size} examples, for which a tf.function is "
                "traced a second time. It was left out of measuring.",
                "Write drop_remainder=True if you can spare them.",
            )


def _call(stage: Stage) -> str:
    inside = stage.calls[0].rpartition(".")[2] if stage.calls else "..."
    return f"{stage.method}({inside}) at {stage.where}"


_RULES: tuple[Callable[[_Pipeline], Iterator[Noticed]], ...] = (
    _frozen_by_cache,
    _cache_never_completes,
    _shuffle_after_batch,
    _prefetch_not_last,
    _repeat_before_shuffle,
    _map_early,
    _take_late,
    _filter_late,
    _no_cache,
    _partial_batch,
    _no_batch,
)
