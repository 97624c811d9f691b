"""From the knobs on the command line to the list of candidates. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from tfpipe import settings
from tfpipe.analysis.recommend import AUTOTUNE
from tfpipe.errors import UsageError
from tfpipe.settings import LARGE_GRID, SEARCHES, NamedSettings, Order, PipelineSettings, SearchName

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
    listed = tuple(candidates)
    autotuned = next((candidate for candidate in listed if _is_autotuned(candidate)), None)
    return tuple(NamedSettings(name=AUTOTUNE if c is autotuned else "", settings=c) for c in listed)


def _is_autotuned(candidate: PipelineSettings) -> bool:
    """Whether AUTOTUNE chooses whatever it can and the rest is left alone, the size of the shuffle buffer aside."""
    buffer = candidate.shuffle_buffer
    return candidate == PipelineSettings(shuffle_buffer=buffer, map_parallelism="auto", prefetch_depth="auto")


def choose_search(name: str | None, *, steps: int | None) -> SearchName:
    """The search that was asked for; of none, by the model, or everything where each candidate's steps are counted.

    Raises:
        UsageError: there is no such search, its package is not installed, or it chooses as it goes where the number of
            steps is fixed.
    """
    if name is None:
        return "model" if steps is None else "grid"
    search = next((known for known in SEARCHES if known == name), None)
    if search is None:
        raise UsageError(f"There is no search {name!r}.", f"Choose one of: {', '.join(SEARCHES)}.")
    if steps is not None and search != "grid":
        raise UsageError(
            f"--search {search} measures some candidates longer than others, a number of steps is the same for all.",
            "Give one of the two.",
        )
    if search == "optuna" and find_spec("optuna") is None:
        raise UsageError(
            "The search by Optuna needs the package optuna, which is not installed.",
            "pip install 'tfpipe[search]', or leave the search out.",
        )
    return search
