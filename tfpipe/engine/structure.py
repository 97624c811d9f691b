"""What the order of a pipeline's stages gives away: fast but wrong, useless, or worth trying another way.

Only stages at top level that the returned dataset reads are judged; inside an ``interleave`` or ``flat_map`` other
rules hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tfpipe.sites import Finding, FindingKind, Stage

_BATCHING = frozenset({"batch", "padded_batch", "ragged_batch", "sparse_batch", "bucket_by_sequence_length"})
# What may stand behind a prefetch without undoing it.
_PASSIVE = frozenset({"with_options"})
_BUFFERING = frozenset({"shuffle", "cache", "prefetch"})
# A map whose result is this many times its input is worth moving behind a buffer: less is within the cost of moving it.
WIDENING = 2.0


def find_problems(stages: Sequence[Stage]) -> tuple[Finding, ...]:
    """Everything noticed, in the order of the lines that it is about."""
    pipeline = _Pipeline(stages)
    found: list[Finding] = list(_thrown_away(stages))
    for rule in _RULES:
        found += rule(pipeline)
    position = {stage.id: index for index, stage in enumerate(stages)}
    return tuple(sorted(found, key=lambda finding: position[finding.stages[-1]]))


class _Pipeline:
    """The top-level stages that count, source first, and who reads whom."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = [stage for stage in stages if stage.parent is None and stage.reaches_end]
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

    def _walk(self, stage: Stage, following: Callable[[Stage], list[Stage]]) -> list[Stage]:
        found: dict[str, Stage] = {}
        waiting = list(following(stage))
        while waiting:
            one = waiting.pop(0)
            if one.id not in found:
                found[one.id] = one
                waiting += following(one)
        return list(found.values())


def _finding(code: str, kind: FindingKind, stages: Sequence[Stage], text: str, remedy: str) -> Finding:
    return Finding(code=code, kind=kind, stages=tuple(stage.id for stage in stages), text=text, remedy=remedy)


def _thrown_away(stages: Sequence[Stage]) -> Iterator[Finding]:
    for stage in stages:
        if stage.discarded and not stage.reaches_end:
            yield _finding(
                "result-thrown-away",
                "useless",
                [stage],
                f"{stage.where}: the result of {stage.method}(...) is thrown away: datasets do not change in place.",
                f"Write dataset = dataset.{stage.method}(...), or delete the line.",
            )


def _frozen_by_cache(pipeline: _Pipeline) -> Iterator[Finding]:
    for cache in pipeline.of("cache"):
        for stage in pipeline.before(cache):
            if stage.method == "shuffle":
                yield _finding(
                    "shuffle-before-cache",
                    "wrong",
                    [stage, cache],
                    f"{cache.where}: cache() keeps the order that shuffle at {stage.where} gave the first epoch; every "
                    "later epoch has the same.",
                    "Move shuffle behind cache.",
                )
            elif stage.random and stage.method not in ("sample_from_datasets", "choose_from_datasets"):
                yield _finding(
                    "random-before-cache",
                    "wrong",
                    [stage, cache],
                    f"{cache.where}: cache() keeps the random numbers that {_call(stage)} drew in the first epoch; "
                    "every later epoch repeats them.",
                    "Cache before the first random operation.",
                )


def _cache_never_completes(pipeline: _Pipeline) -> Iterator[Finding]:
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
                yield _finding(
                    "cache-never-completes",
                    "useless",
                    [cache, stage],
                    f"{stage.where}: {stage.method} stops reading before cache() at {cache.where} has seen all, so the "
                    "cache is filled again in every epoch.",
                    f"Move {stage.method} before cache.",
                )
                break


def _shuffle_after_batch(pipeline: _Pipeline) -> Iterator[Finding]:
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


def _prefetch_not_last(pipeline: _Pipeline) -> Iterator[Finding]:
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


def _repeat_before_shuffle(pipeline: _Pipeline) -> Iterator[Finding]:
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


def _widened_before_buffer(pipeline: _Pipeline) -> Iterator[Finding]:
    """Cast and decode late: the buffer then holds the small form."""
    for stage in pipeline.of("map"):
        source = next(iter(pipeline.before(stage)), None)
        buffer = next((one for one in pipeline.after(stage) if one.method in _BUFFERING), None)
        following = pipeline.after(stage)
        if source is None or buffer is None or stage.element_bytes is None or following[0].id != buffer.id:
            continue
        if "tf.string" in source.element and "tf.string" not in stage.element and buffer.method == "shuffle":
            yield _finding(
                "decode-before-shuffle",
                "suggestion",
                [stage, buffer],
                f"{buffer.where}: the shuffle buffer holds decoded elements of {stage.element_bytes:,} bytes.",
                f"Shuffle before {_call(stage)}: the buffer then holds the encoded strings.",
            )
        elif source.element_bytes is not None and stage.element_bytes >= WIDENING * source.element_bytes:
            yield _finding(
                "cast-before-buffer",
                "suggestion",
                [stage, buffer],
                f"{buffer.where}: {buffer.method} holds elements of {stage.element_bytes:,} bytes, "
                f"{stage.element_bytes / source.element_bytes:.3g} times what they are before {_call(stage)}.",
                f"Move the cast behind {buffer.method}.",
            )


def _take_late(pipeline: _Pipeline) -> Iterator[Finding]:
    for take in pipeline.of("take"):
        nearest = next(iter(pipeline.before(take)), None)
        if nearest is not None and nearest.method == "map" and not nearest.stateful:
            yield _finding(
                "take-late",
                "suggestion",
                [nearest, take],
                f"{take.where}: take follows {_call(nearest)}; the map reads ahead of what is taken.",
                "Move take before the map.",
            )


def _no_batch(pipeline: _Pipeline) -> Iterator[Finding]:
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


def _partial_batch(pipeline: _Pipeline) -> Iterator[Finding]:
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


_RULES: tuple[Callable[[_Pipeline], Iterator[Finding]], ...] = (
    _frozen_by_cache,
    _cache_never_completes,
    _shuffle_after_batch,
    _prefetch_not_last,
    _repeat_before_shuffle,
    _widened_before_buffer,
    _take_late,
    _partial_batch,
    _no_batch,
)
