from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Iterator

import pytest

from tfpipe.analysis.memory import ELEMENT_OVERHEAD_BYTES
from tfpipe.analysis.shuffling import ShuffleChoice, fill_s, shuffle_quality, shuffle_table


def epochs(buffer: int, examples: int) -> Iterator[tuple[float, list[int]]]:
    """Every epoch that tf.data's buffer can make of 0, 1, 2, ..., with its probability: the algorithm, written out."""

    def go_on(
        held: tuple[int, ...], coming: int, probability: float, out: list[int]
    ) -> Iterator[tuple[float, list[int]]]:
        if not held:
            yield probability, out
            return
        for chosen in held:
            rest = tuple(example for example in held if example != chosen)
            refilled = (*rest, coming) if coming < examples else rest
            yield from go_on(refilled, coming + 1, probability / len(held), [*out, chosen])

    size = min(buffer, examples)
    yield from go_on(tuple(range(size)), size, 1.0, [])


def shuffled(buffer: int, examples: int, rng: random.Random) -> list[int]:
    """One epoch of the same algorithm."""
    held = list(range(min(buffer, examples)))
    out = []
    for place in range(examples):
        chosen = rng.randrange(len(held))
        out.append(held[chosen])
        coming = place + buffer
        if coming < examples:
            held[chosen] = coming
        else:
            held[chosen] = held[-1]
            held.pop()
    return out


def squared_distances(epoch: list[int]) -> int:
    return sum((place - example) ** 2 for place, example in enumerate(epoch))


@pytest.mark.parametrize("examples", [2, 3, 5, 7])
def test_the_formula_is_exact_over_all_epochs_of_a_small_data_set(examples):
    uniform = examples * (examples**2 - 1) / 6
    for buffer in range(1, examples + 1):
        expected = math.fsum(weight * squared_distances(epoch) for weight, epoch in epochs(buffer, examples))
        quality = shuffle_quality(buffer=buffer, examples=examples, order="sorted")
        assert quality == pytest.approx(math.sqrt(expected / uniform), abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_the_formula_against_simulation_on_random_sizes(seed):
    """The simulated mean is within four of its own standard errors."""
    rng = random.Random(seed)
    examples = rng.randrange(20, 400)
    buffer = rng.randrange(2, examples)
    uniform = examples * (examples**2 - 1) / 6
    shares = [squared_distances(shuffled(buffer, examples, rng)) / uniform for _ in range(120)]
    error = statistics.stdev(shares) / math.sqrt(len(shares))
    quality = shuffle_quality(buffer=buffer, examples=examples, order="sorted")
    assert abs(quality**2 - statistics.mean(shares)) < 4 * error


@pytest.mark.parametrize("examples", [2, 3, 10, 57])
def test_quality_grows_with_the_buffer_from_0_to_1(examples):
    qualities = [shuffle_quality(buffer=buffer, examples=examples, order="sorted") for buffer in range(examples + 2)]
    assert qualities[:2] == [0.0, 0.0]
    assert qualities[examples:] == [1.0, 1.0]
    assert all(low < high for low, high in itertools.pairwise(qualities[1 : examples + 1]))


def test_a_small_buffer_has_2_4_times_its_share_of_the_data():
    quality = shuffle_quality(buffer=10_000, examples=100_000_000, order="sorted")
    assert quality == pytest.approx(math.sqrt(6) * 1e-4, rel=1e-3)
    assert shuffle_quality(buffer=5_000, examples=50_000, order="sorted") == pytest.approx(0.228, abs=5e-4)


def test_order_of_the_source():
    """Random needs no buffer; unknown is taken for the worst."""
    assert shuffle_quality(buffer=0, examples=50_000, order="random") == 1.0
    for buffer in (0, 100, 50_000):
        assert shuffle_quality(buffer=buffer, examples=50_000, order="unknown") == shuffle_quality(
            buffer=buffer, examples=50_000, order="sorted"
        )


def test_one_example_is_always_shuffled():
    assert shuffle_quality(buffer=1, examples=1, order="sorted") == 1.0


@pytest.mark.parametrize(("buffer", "examples"), [(-1, 10), (1, 0)])
def test_sizes_that_make_no_sense(buffer, examples):
    with pytest.raises(ValueError, match="makes no sense"):
        shuffle_quality(buffer=buffer, examples=examples, order="sorted")


def test_filling_takes_the_source_s_rate():
    assert fill_s(1000, 500.0) == 2.0
    with pytest.raises(ValueError, match="cannot be filled"):
        fill_s(1000, 0.0)


def test_a_table_has_cost_beside_benefit():
    table = shuffle_table(
        [0, 50, "full", 500], examples=200, example_bytes=1000, examples_per_s=100.0, order="sorted", shared_bytes=900
    )
    each_bytes = 100 + ELEMENT_OVERHEAD_BYTES
    assert [choice.buffer for choice in table] == [0, 50, 200, 200]
    assert [choice.memory_bytes for choice in table] == [0, 50 * each_bytes, 200 * each_bytes, 200 * each_bytes]
    assert [choice.fill_s for choice in table] == [0.0, 0.5, 2.0, 2.0]
    assert [choice.quality for choice in table] == [
        0.0, shuffle_quality(buffer=50, examples=200, order="sorted"), 1.0, 1.0,
    ]  # fmt: skip
    (unknown,) = shuffle_table([50], examples=200, example_bytes=1000, examples_per_s=None, order="random")
    assert unknown == ShuffleChoice(
        buffer=50, memory_bytes=50 * (1000 + ELEMENT_OVERHEAD_BYTES), fill_s=None, quality=1.0
    )
