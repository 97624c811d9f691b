"""Whether numbers from two preparations may stand in one table."""

from __future__ import annotations

from dataclasses import fields

from tfpipe.errors import UsageError
from tfpipe.messages import Prepared


def check_comparable(earlier: Prepared, now: Prepared) -> None:
    """Refuse to go on with a run on another machine, other versions or other data, naming what differs.

    Raises:
        UsageError: something differs.
    """
    for name, old, new in (
        ("environment", earlier.environment, now.environment),
        ("data", earlier.data, now.data),
    ):
        for field in fields(old):
            before, after = getattr(old, field.name), getattr(new, field.name)
            if before != after:
                raise UsageError(
                    f"This run cannot be resumed here: {name}.{field.name} was {before!r} and is {after!r}.",
                    "Resume it where it was begun, or start a new run.",
                )
