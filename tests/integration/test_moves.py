"""Stages that may change places and caches that may be added: only with proof, built as proven, else with a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfpipe.engine import moves
from tfpipe.engine.capture import Captured, capture, rebuild
from tfpipe.engine.elements import difference
from tfpipe.engine.functions import caches_that_complete
from tfpipe.engine.moves import Settled, settle
from tfpipe.engine.structure import notice
from tfpipe.sites import Finding

pytestmark = pytest.mark.tensorflow

Factory = Callable[[], Any]
IMAGES = np.random.default_rng(1).integers(0, 256, (40, 4, 4, 1), np.uint8)
LABELS = np.arange(40)


def settled(make: Factory) -> tuple[Captured, Settled]:
    captured = capture(make)
    return captured, settle(captured, notice(captured.stages))


def finding(make: Factory, code: str) -> Finding:
    (one,) = (one for one in settled(make)[1].findings if one.code == code)
    return one


def stages(dataset: Any) -> list[str]:
    """The kinds of the datasets that ``dataset`` is made of, source first."""
    inner = [name for one in dataset._inputs() for name in stages(one)]
    return [*inner, type(dataset).__name__.strip("_").removesuffix("Dataset")]


def made(make: Factory, *sites: str) -> Any:
    return rebuild(make, dict.fromkeys(sites, True), expected=capture(make).sites)


def same(one: Any, other: Any) -> None:
    """The same elements in the same order, for two epochs."""
    for _ in range(2):
        wanted, got = list(one), list(other)
        assert len(wanted) == len(got)
        for left, right in zip(wanted, got, strict=True):
            assert difference(left, right)[0] is None


def slices() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))


def scale(image: Any, label: Any) -> Any:
    return tf.cast(image, tf.float32) / 255.0, label


# --- what is proven, and what is then built ----------------------------------------------------------------------


def cast_before_shuffle() -> tf.data.Dataset:
    return slices().map(scale).shuffle(40, seed=3).prefetch(1)


def cast_before_everything() -> tf.data.Dataset:
    return slices().map(scale).cache().shuffle(40, seed=3).batch(8).prefetch(1)


def two_maps_before_shuffle() -> tf.data.Dataset:
    return slices().map(scale).map(lambda image, label: (image - 0.5, label)).shuffle(9, seed=3).prefetch(1)


def decode_before_shuffle() -> tf.data.Dataset:
    encoded = tf.data.Dataset.from_tensor_slices([tf.io.encode_png(image).numpy() for image in IMAGES])
    return encoded.map(lambda text: tf.ensure_shape(tf.io.decode_png(text), [4, 4, 1])).shuffle(9, seed=3).batch(4)


def take_behind_cache() -> tf.data.Dataset:
    return slices().map(scale).cache().take(16).batch(4)


def take_behind_map() -> tf.data.Dataset:
    return slices().map(scale, num_parallel_calls=2).take(16).batch(4)


def filter_behind_map() -> tf.data.Dataset:
    return slices().map(scale).filter(lambda image, label: label % 3 == 0).batch(4)


def filter_behind_maps_and_shuffle() -> tf.data.Dataset:
    both = slices().map(lambda image, label: {"image": image, "label": label})
    scaled = both.map(lambda row: row | {"image": tf.cast(row["image"], tf.float32)}).shuffle(40, seed=3)
    return scaled.filter(lambda row: row["label"] > 20)


def map_before_shuffle_and_batch() -> tf.data.Dataset:
    return slices().map(lambda image, label: (255 - image, label)).shuffle(40, seed=3).batch(8)


def nothing_cached() -> tf.data.Dataset:
    return slices().map(scale).shuffle(40, seed=3).batch(8)


@pytest.mark.parametrize(
    ("make", "code", "remedy", "kinds"),
    [
        (cast_before_shuffle, "cast-before-buffer", "behind shuffle", "TensorSlice Shuffle Map Prefetch"),
        (cast_before_everything, "cast-before-buffer", "behind batch", "TensorSlice Cache Shuffle Batch Map Prefetch"),
        (two_maps_before_shuffle, "cast-before-buffer", "behind shuffle", "TensorSlice Shuffle Map Map Prefetch"),
        (decode_before_shuffle, "decode-before-shuffle", "Shuffle before", "TensorSlice Shuffle Map Batch"),
        (take_behind_cache, "cache-never-completes", "take before cache", "TensorSlice Map Take Cache Batch"),
        (take_behind_map, "take-late", "take before the map", "TensorSlice Take ParallelMap Batch"),
        (filter_behind_map, "filter-late", "filter before", "TensorSlice Filter Map Batch"),
        (map_before_shuffle_and_batch, "map-before-batch", "Behind batch", "TensorSlice Shuffle Batch Map"),
        (nothing_cached, "no-cache", ".cache() before shuffle", "TensorSlice Map Cache Shuffle Batch"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_proven_is_built_and_gives_the_same(make: Factory, code: str, remedy: str, kinds: str) -> None:
    one = finding(make, code)
    assert one.sites, one.note
    assert remedy in one.remedy
    assert "same" in one.note
    built = made(make, *one.sites)
    assert stages(built) == kinds.split()
    same(make(), built)
    assert {site.id for site in settled(make)[1].sites} >= set(one.sites)


def test_a_filter_that_moves_over_a_shuffle_gives_the_same_elements_in_another_order() -> None:
    one = finding(filter_behind_maps_and_shuffle, "filter-late")
    built = made(filter_behind_maps_and_shuffle, *one.sites)
    assert stages(built) == ["TensorSlice", "Map", "Filter", "Map", "Shuffle"], "the first map makes what it looks at"
    labels = [sorted(int(row["label"]) for row in rows) for rows in (built, filter_behind_maps_and_shuffle())]
    assert labels[0] == labels[1] == list(range(21, 40))


def test_all_that_is_proven_goes_together() -> None:
    def make() -> tf.data.Dataset:
        kept = slices().map(scale).cache().take(24)
        return kept.filter(lambda image, label: label % 2 == 0).shuffle(40, seed=3).batch(4, drop_remainder=True)

    found = settled(make)[1]
    assert {one.code for one in found.findings if one.sites} == {"cache-never-completes", "cast-before-buffer"}
    built = made(make, *(site.id for site in found.sites))
    assert stages(built) == ["TensorSlice", "Take", "Cache", "Map", "Filter", "Shuffle", "Batch"]
    same(make(), built)

    def both() -> tf.data.Dataset:
        return slices().map(scale).shuffle(40, seed=3).batch(4)

    found = settled(both)[1]
    built = made(both, *(site.id for site in found.sites))
    assert stages(built) == ["TensorSlice", "Cache", "Shuffle", "Batch", "Map"]
    same(both(), built)


def test_a_cache_moves_before_the_first_thing_that_is_drawn() -> None:
    def make() -> tf.data.Dataset:
        flipped = slices().map(scale).map(lambda image, label: (tf.image.random_flip_left_right(image), label))
        return flipped.cache().shuffle(40)

    one = finding(make, "random-before-cache")
    assert one.kind == "wrong"
    built = made(make, *one.sites)
    assert stages(built) == ["TensorSlice", "Map", "Cache", "Map", "Shuffle"]
    assert len(list(built)) == 40

    def ordered() -> tf.data.Dataset:
        return slices().shuffle(40).cache().batch(4)

    assert stages(made(ordered, *finding(ordered, "shuffle-before-cache").sites)) == [
        "TensorSlice", "Cache", "Shuffle", "Batch",
    ]  # fmt: skip


# --- what is refused ---------------------------------------------------------------------------------------------

COUNTER = tf.Variable(0, dtype=tf.int64)


def in_python(image: Any, label: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(lambda x: x.astype(np.float32), [image], tf.float32), image.shape), label


def flipped(image: Any, label: Any) -> Any:
    return tf.image.random_flip_left_right(tf.cast(image, tf.float32)), label


def swapped(one: Any, other: Any) -> Any:
    return other, one


def flip_bytes(image: Any, label: Any) -> Any:
    return tf.image.random_flip_left_right(image), label


def centred(image: Any, label: Any) -> Any:
    return image - tf.reduce_max(image), label


def with_datasets(image: Any, label: Any) -> Any:
    return tf.cast(image, tf.float32), label + tf.data.Dataset.range(3).reduce(np.int64(0), lambda a, b: a + b)


def counted(image: Any, label: Any) -> Any:
    return tf.cast(image, tf.float32), COUNTER.assign_add(label)


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda: slices().map(flipped).shuffle(9), "cast-before-buffer", "draws random numbers"),
        (lambda: slices().map(flip_bytes).shuffle(9).batch(4), "map-before-batch", "would change your augmentation"),
        (lambda: slices().map(centred).shuffle(9).batch(4), "map-before-batch", "axis=-1"),
        (lambda: slices().map(with_datasets).shuffle(9), "cast-before-buffer", "makes datasets of its own"),
        (lambda: slices().map(in_python).shuffle(9), "cast-before-buffer", "runs Python for each element"),
        (lambda: slices().map(counted).shuffle(9), "cast-before-buffer", "changes state"),
        (
            lambda: slices().map(scale).filter(lambda image, label: tf.reduce_mean(image) > 0.5),
            "filter-late",
            "looks at what the map makes",
        ),
        (
            lambda: slices().map(lambda image, label: {"label": label}).filter(lambda row: row["label"] > 3),
            "filter-late",
            "does not work before the map",
        ),
        (
            lambda: slices().map(lambda image, label: (label, image)).filter(lambda label, image: label > 3),
            "filter-late",
            "does not work before the map",
        ),
        (
            lambda: tf.data.Dataset.from_tensor_slices((LABELS, -LABELS)).map(swapped).filter(lambda a, b: a < -3),
            "filter-late",
            "Before the map, its condition would look at another part",
        ),
        (lambda: slices().map(scale).filter(lambda image, label: label >= 0), "filter-late", "fare alike"),
        (
            lambda: slices().map(lambda image, label: COUNTER.assign_add(label)).cache().take(3).batch(1),
            "cache-never-completes",
            "not the same when it is read twice",
        ),
        (lambda: tf.data.Dataset.range(10**7).map(lambda x: x + 1).shuffle(9), "no-cache", "too long to measure here"),
        (
            lambda: tf.data.Dataset.from_generator(
                lambda: iter(np.random.default_rng().normal(size=9)), output_signature=tf.TensorSpec([], tf.float64)
            ).shuffle(9),
            "no-cache",
            "not the same when it is read twice",
        ),
    ],
)
def test_what_is_refused_is_named_with_the_reason(make: Factory, code: str, words: str) -> None:
    one = finding(make, code)
    assert one.sites == ()
    assert words in one.note


def test_a_cache_of_unknown_size_is_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> tf.data.Dataset:
        return slices().filter(lambda image, label: label > 3).shuffle(9)

    assert finding(make, "no-cache").memory_bytes == 36 * (16 + 8)
    monkeypatch.setattr(moves, "COUNT_BUDGET_S", -1.0)
    one = finding(make, "no-cache")
    assert (one.sites, "is not known" in one.note) == ((), True)


def test_data_that_cannot_be_read_on_is_no_error_of_the_proof() -> None:
    def make() -> tf.data.Dataset:
        def first_ten(image: Any, label: Any) -> Any:
            with tf.control_dependencies([tf.debugging.assert_less(label, tf.constant(10, tf.int64), "a bad row")]):
                return image, tf.identity(label)

        return slices().map(first_ten).map(scale).shuffle(9).batch(4)

    for one in settled(make)[1].findings:
        assert one.sites == ()
        assert "a bad row" in one.note, one.code


def test_a_cache_in_a_file_is_not_read_by_another_order(tmp_path: Path) -> None:
    def make() -> tf.data.Dataset:
        return slices().map(scale).cache(str(tmp_path / "cache")).take(3).batch(1)

    one = finding(make, "cache-never-completes")
    assert (one.sites, "kept in a file" in one.note) == ((), True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: slices().map(scale).batch(4),
        lambda: slices().shuffle(9).map(scale),
        lambda: slices().repeat().map(scale).shuffle(9),
        lambda: slices().map(flipped).batch(2),
        lambda: slices().shuffle(9).map(scale).shuffle(9).batch(2),
        lambda: tf.data.Dataset.list_files(__file__).map(tf.io.read_file).shuffle(2),
    ],
    ids=[
        "nothing random",
        "random first",
        "endless",
        "nothing before the random map",
        "shuffled",
        "files in any order",
    ],
)
def test_no_cache_is_named_where_none_would_help_or_be_right(make: Factory) -> None:
    assert "no-cache" not in {one.code for one in settled(make)[1].findings}


def test_a_cache_says_what_it_holds() -> None:
    one = finding(nothing_cached, "no-cache")
    assert one.memory_bytes == 40 * (4 * 4 * 4 + 8)
    assert "2.81 KiB" in one.note
    assert one.elements == 40


def test_caches_that_complete() -> None:
    numbers = tf.data.Dataset.range(6)
    kept = numbers.cache()
    for dataset, complete in [
        (kept.batch(2), True),
        (kept.take(3), False),
        (kept.take(3).repeat(), False),
        (kept.repeat().take(3), True),
        (kept.concatenate(numbers), True),
        (tf.data.Dataset.zip(kept, numbers), False),
        (numbers.repeat().cache(), False),
        (numbers.map(lambda x: x), False),
    ]:
        assert (caches_that_complete(dataset) == (kept,)) is complete
