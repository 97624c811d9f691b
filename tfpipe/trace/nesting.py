"""Which event encloses which, on one thread."""

from __future__ import annotations

import numpy as np

from tfpipe.trace.columns import Ints


def enclosing(start: Ints, end: Ints) -> Ints:
    """For each event the position of the innermost event around it, -1 for none.

    Expects the events of one thread sorted by start, longest first. An event's depth is the number of earlier events
    that have not ended when it starts; its parent is the last earlier event one level up. Events of a thread nest; for
    those of a damaged trace that merely overlap the answer is a close one and never an error.
    """
    count = len(start)
    index = np.arange(count)
    # An event without duration still takes part in the order, as if it had lasted one tick.
    over = np.sort(np.maximum(end, start + 1))
    depth = index - np.searchsorted(over, start, side="right")
    depth = np.maximum(depth, 0)
    by_depth = np.lexsort((index, depth))
    keys = depth[by_depth] * count + by_depth
    wanted = (depth - 1) * count + index
    slot = np.searchsorted(keys, wanted) - 1
    parent = np.where(slot >= 0, by_depth[np.maximum(slot, 0)], -1)
    parent[(parent >= 0) & (depth[np.maximum(parent, 0)] != depth - 1)] = -1
    parent[depth == 0] = -1
    return parent
