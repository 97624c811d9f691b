"""From the knobs on the command line to the list of candidates. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfpipe import settings
from tfpipe.errors import UsageError
from tfpipe.settings import LARGE_GRID, NamedSettings, Order

# Flag, and how one value of its list is read, per knob.
KNOBS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "shuffle_buffer": ("--shuffle-buffer", settings.parse_shuffle_buffer),
    "map_parallelism": ("--map-parallelism", settings.parse_map_parallelism),
    "prefetch_depth": ("--prefetch", settings.parse_prefetch_depth),
    "order": ("--order", settings.parse_order),
    "threadpool": ("--threadpool", settings.parse_threadpool),
    "deterministic": ("--deterministic", settings.parse_deterministic),
    "rewrites": ("--rewrites", settings.parse_rewrites),
}
# The seed recipe's shuffle buffer.
SMALL_SHUFFLE_BUFFER = 5000


def choose_candidates(
    knobs: Mapping[str, str | None], *, orders: tuple[Order, ...], cores: int, yes: bool
) -> tuple[NamedSettings, ...]:
    """The product of the lists that were given, or the preset when none was.

    Args:
        knobs: text per knob of ``KNOBS``; None where it was not given.
        orders: the orders that the data set allows.
        cores: processors at hand.
        yes: a grid of hundreds is meant.

    Raises:
        UsageError: a list that cannot be read, an order the data set does not allow, or a large grid without ``yes``.
    """
    axes = {
        name: None if knobs.get(name) is None else settings.parse_list(flag, str(knobs[name]), parse)
        for name, (flag, parse) in KNOBS.items()
    }
    if all(values is None for values in axes.values()):
        return settings.preset(cores=cores, orders=orders, shuffle_buffer=SMALL_SHUFFLE_BUFFER)
    refused = [order for order in axes["order"] or () if order not in orders]
    if refused:
        raise UsageError(
            f"This data set cannot run {refused[0]}: its examples differ in size until they are mapped.",
            f"Use --order {orders[0]}.",
        )
    candidates = settings.grid(axes)
    if len(candidates) > LARGE_GRID and not yes:
        raise UsageError(
            f"These lists make {len(candidates):,} candidates, which takes hours.",
            "Shorten the lists, or add --yes if that is meant.",
        )
    return tuple(NamedSettings(name="", settings=candidate) for candidate in candidates)
