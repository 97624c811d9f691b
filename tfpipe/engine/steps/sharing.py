"""Whether the steps of several executions train the same weights, since the user's function does not make new ones."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfpipe.engine.frames import unwrapped

_VARIABLES = (keras.Variable, tf.Variable)
_OWNERS = (keras.layers.Layer, tf.Module)


def held_by(made: Any) -> tuple[Any, ...]:
    """The objects with weights that a function holds on to, and what these hold.

    Looked at are the function's own object, what it closes over and the globals that it names.
    """
    function = unwrapped(getattr(made, "python_function", made))
    held = [made, getattr(made, "__self__", None)]
    if inspect.isfunction(function):
        variables = inspect.getclosurevars(function)
        held += [*variables.nonlocals.values(), *variables.globals.values()]
    held += [part for item in held for part in getattr(item, "__dict__", {}).values()]
    return tuple(item for item in held if isinstance(item, (*_VARIABLES, *_OWNERS)))


def share_weights(states: Sequence[tuple[Any, ...]]) -> bool:
    """Whether two of ``states`` have a variable in common that is trained."""
    seen: set[int] = set()
    for state in states:
        own = {id(variable) for item in state for variable in _trained(item)}
        if own & seen:
            return True
        seen |= own
    return False


def _trained(item: Any) -> Sequence[Any]:
    if isinstance(item, _VARIABLES):
        return [item] if item.trainable else []
    return list(item.trainable_variables)
