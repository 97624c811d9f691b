"""Caches are measured full, as they are from the second epoch on."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from tfpipe.engine.elements import drain, read_elements
from tfpipe.engine.functions import caches_that_complete
from tfpipe.records import CacheFill

# A cache that is not full after this many seconds of reading is measured as it is.
FILL_BUDGET_S = 10.0
# Bytes of filled caches that are kept between blocks; beyond, they are filled again.
KEEP_BYTES = 1 << 28
# Elements whose size stands for the rest.
SAMPLE = 100


class WarmDatasets:
    """Datasets whose caches are full, each built once and kept as long as there is room.

    A cache belongs to its dataset: every iterator over it reads the same one. Files are as full as an earlier one left
    them.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Any, int]] = {}

    def get(self, key: Hashable, build: Callable[[], Any]) -> Any:
        """What ``build`` gives, with the caches in it full, unless that takes longer than FILL_BUDGET_S."""
        if key in self._kept:
            return self._kept[key][0]
        dataset = build()
        caches = caches_that_complete(dataset)
        if caches:
            held_bytes = sum(fill(cache)[1] for cache in caches)
            self._kept[key] = dataset, held_bytes
            while sum(size for _, size in self._kept.values()) > KEEP_BYTES:
                del self._kept[next(iter(self._kept))]
        return dataset


def first_fill(dataset: Any) -> CacheFill | None:
    """Fill the caches of ``dataset`` and tell how long that took; None where there are none to fill."""
    filled = [fill(cache)[0] for cache in caches_that_complete(dataset)]
    if not filled:
        return None
    return CacheFill(seconds=sum(one.seconds for one in filled), complete=all(one.complete for one in filled))


def fill(cache: Any) -> tuple[CacheFill, int]:
    """Read the dataset of a cache to its end. What that was, and about how many bytes it holds."""
    drained = drain(cache, budget_s=FILL_BUDGET_S)
    sample = read_elements(cache, SAMPLE) if drained.whole else None
    held_bytes = sample.size_bytes * drained.count // max(1, len(sample.elements)) if sample is not None else 0
    return CacheFill(seconds=drained.seconds, complete=drained.whole), held_bytes
