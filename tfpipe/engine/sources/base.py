"""What every data set gives to a pipeline: raw examples, the functions to map over them, and both as text."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfpipe.records import MapCode
from tfpipe.settings import Order

# Told while a file is fetched: bytes so far, and bytes in all (None when the server does not say).
Progress = Callable[[int, "int | None"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A data set, opened and checked.

    Attributes:
        name: as on the command line: ``cifar100``, ``cifar10``, ``photos``.
        origin: where the data came from, for people.
        generated: the pixels are a stand-in.
        examples: examples per epoch.
        classes: labels are ``0 <= label < classes``.
        element: type and shape of one raw example, for people.
        example_bytes: mean size of one raw example, which is what a shuffle buffer holds.
        orders: the orders of map and batch that this data allows.
        code: the same data set as text to paste; its functions are the text of the two below.
        dataset: gives one epoch of single raw examples, in order. Cheap: the arrays are never copied.
        map_example: for ``Dataset.map`` on one ``(example, draw)``, where ``draw`` is one element of
            ``tf.data.Dataset.random``; gives ``(float32 image, int64 label)``. All its randomness comes from ``draw``.
        map_batch: the same on a batch of them, with equal results; None where ``orders`` has no ``batch-map``.
    """

    name: str
    origin: str
    generated: bool
    examples: int
    classes: int
    element: str
    example_bytes: int
    orders: tuple[Order, ...]
    code: MapCode
    dataset: Callable[[], Any]
    map_example: Callable[..., Any]
    map_batch: Callable[..., Any] | None


def definitions(*functions: Callable[..., Any]) -> str:
    """The functions' own text below TensorFlow's import, so that what is pasted cannot differ from what ran."""
    return "import tensorflow as tf\n\n\n" + "\n\n".join(inspect.getsource(function) for function in functions)
