"""What a shuffle buffer buys and what it costs: quality beside fill time and memory. Pure.

tf.data's buffer (https://www.tensorflow.org/api_docs/python/tf/data/Dataset#shuffle) holds B of the n examples of an
epoch. Each step hands out one of them, chosen uniformly, and puts the next example of the source in its place; when
the source has ended the rest is handed out in random order. So an example stays for a geometric number of steps of
mean B - 1: it comes out around its own place, early by at most B - 1 and late by as much on average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from tfpipe.analysis.memory import shuffle_part
from tfpipe.records import ShuffleChoice
from tfpipe.settings import Buffer

# The order of the examples as they are stored: by class (or by time, or by file), already random, or not known.
SourceOrder = Literal["sorted", "random", "unknown"]


def shuffle_table(
    buffers: Sequence[Buffer],
    *,
    examples: int,
    example_bytes: int,
    examples_per_s: float | None,
    order: SourceOrder,
    shared_bytes: int = 0,
) -> tuple[ShuffleChoice, ...]:
    """Memory, fill time and quality of each of ``buffers``, in the order given.

    Args:
        buffers: sizes in examples; ``"full"`` is the whole data set, 0 no shuffle.
        examples: examples per epoch.
        example_bytes: size of one example where it is shuffled.
        examples_per_s: how fast the stages before the buffer deliver; None where it is not known.
        order: of the source.
        shared_bytes: as in ``forecast_memory``.
    """
    choices = []
    for size in buffers:
        buffer = examples if size == "full" else min(size, examples)
        part = shuffle_part(buffer, example_bytes=example_bytes, shared_bytes=shared_bytes)
        choices.append(
            ShuffleChoice(
                buffer=buffer,
                memory_bytes=part.size_bytes,
                fill_s=None if examples_per_s is None else fill_s(buffer, examples_per_s),
                quality=shuffle_quality(buffer=buffer, examples=examples, order=order),
            )
        )
    return tuple(choices)


def fill_s(buffer: int, examples_per_s: float) -> float:
    """Seconds until a buffer is full that is filled at ``examples_per_s``; paid again whenever the iterator is new.

    Raises:
        ValueError: a rate that is not above 0.
    """
    if not examples_per_s > 0:
        raise ValueError(f"a buffer cannot be filled at {examples_per_s} examples/s")
    return buffer / examples_per_s


def shuffle_quality(*, buffer: int, examples: int, order: SourceOrder) -> float:
    """How well an epoch is mixed: 0 is the order of the source unchanged, 1 as good as a uniform permutation.

    For a sorted source it is how far examples move: the root mean square distance between an example's place in the
    source and its place in the epoch, as a share of what a uniform permutation gives. That is ``sqrt(1 - rho)``, rho
    being the expected rank correlation between source and epoch (Spearman, Am. J. Psychol. 15, 1904:
    ``rho = 1 - 6 sum(d^2) / (n (n^2 - 1))``, 0 for a uniform permutation). With B the buffer, n the examples,
    places counted from 0 and ``q = 1 - 1/B``, the geometric stay of an example gives the expected place of example i

        E T_i = m - (B - 1)/2 * q^(n - 1 - m),    m = max(i, B - 1)

    (the second term: it was still there when the source ended, and the last B places are random). rho is linear in
    these; summing over i

        1 - rho = B (B - 1) (6 n + 4 - 8 B + 3 (B - 1) q^(n - B)) / (n (n^2 - 1))

    which is 0 at B = 1 and 1 at B = n, and grows in between; for a small buffer quality is about 2.4 B / n. What a
    small buffer does to the convergence of training on sorted data is measured in Xu et al., "In-Database Machine
    Learning with CorgiPile: Stochastic Gradient Descent without Full Data Shuffle", SIGMOD 2022.

    A source in random order is as good as a uniform permutation whatever the buffer. A buffer then only makes the
    epochs differ from each other, which gains little: Mishchenko, Khaled and Richtarik, "Random Reshuffling: Simple
    Analysis with Vast Improvements", NeurIPS 2020. An unknown order is taken for a sorted one, the worst case.

    Args:
        buffer: examples in the buffer; 0 and 1 change nothing, ``examples`` and more shuffle everything.
        examples: examples per epoch.
        order: of the source.

    Raises:
        ValueError: a negative size, or no examples.
    """
    if buffer < 0 or examples < 1:
        raise ValueError(f"a buffer of {buffer} examples for {examples} examples makes no sense")
    if order == "random" or buffer >= examples:
        return 1.0
    if buffer <= 1:
        return 0.0
    still_there = math.exp((examples - buffer) * math.log1p(-1 / buffer))
    one_minus_rho = (
        buffer
        * (buffer - 1)
        * (6 * examples + 4 - 8 * buffer + 3 * (buffer - 1) * still_there)
        / (examples * (examples**2 - 1))
    )
    return math.sqrt(min(1.0, one_minus_rho))
