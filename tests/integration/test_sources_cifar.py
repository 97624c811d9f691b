"""CIFAR through TensorFlow: which copy is opened, and that both orders deliver the same examples."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf

from tfpipe.engine.sources import Source, open_source
from tfpipe.engine.sources.cifar import keras_datasets, open_cifar
from tfpipe.engine.sources.cifar_files import CIFAR10, CIFAR100
from tfpipe.errors import DataError, UsageError

pytestmark = pytest.mark.tensorflow

COUNT = 600


def open_here(name: str = "cifar100", **changes: Any) -> Source:
    arguments: dict[str, Any] = {
        "data_dir": None,
        "require_data": False,
        "image_size": 224,
        "seed": 0,
        "progress": lambda done, total: None,
        "download": False,
    }
    return open_source(name, **(arguments | changes))


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    return tmp_path / "keras" / "datasets"


def write_data(folder: Path) -> Path:
    folder.mkdir(parents=True)
    images = np.random.default_rng(1).integers(0, 256, (COUNT, 3072), dtype=np.uint8)
    part = {b"data": images, b"fine_labels": [index % 100 for index in range(COUNT)]}
    (folder / "train").write_bytes(pickle.dumps(part, protocol=2))
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return open_here(data_dir=write_data(tmp_path / "given"))


def pipeline(dataset: Any, source: Source, order: str, *, seed: int = 3, batch_size: int = 64) -> Any:
    dataset = tf.data.Dataset.zip(dataset.shuffle(100, seed=seed).repeat(), tf.data.Dataset.random(seed=seed))
    if order == "map-batch":
        return dataset.map(source.map_example).batch(batch_size, drop_remainder=True)
    return dataset.batch(batch_size, drop_remainder=True).map(source.map_batch)


def test_a_given_folder_is_opened_in_order(source: Source, tmp_path: Path) -> None:
    assert (source.name, source.origin, source.generated) == ("cifar100", str(tmp_path / "given"), False)
    assert (source.examples, source.classes, source.example_bytes) == (COUNT, 100, 3072 + 8)
    assert source.orders == ("map-batch", "batch-map")
    elements = list(source.dataset().as_numpy_iterator())
    assert len(elements) == COUNT
    assert [label for _, label in elements] == [index % 100 for index in range(COUNT)]
    image, label = source.dataset().element_spec
    assert (image.dtype, image.shape, label.dtype, label.shape) == (tf.uint8, (32, 32, 3), tf.int64, ())


def test_both_orders_deliver_the_same_examples(source: Source) -> None:
    """Two epochs and more, shuffled, compared element by element."""
    one, other = (iter(pipeline(source.dataset(), source, order)) for order in source.orders)
    for _ in range(2 * COUNT // 64 + 2):
        images, labels = next(one)
        same_images, same_labels = next(other)
        np.testing.assert_array_equal(images, same_images)
        np.testing.assert_array_equal(labels, same_labels)
    assert images.dtype == tf.float32
    assert images.shape == (64, 32, 32, 3)
    assert pipeline(source.dataset(), source, "map-batch").element_spec == (
        pipeline(source.dataset(), source, "batch-map").element_spec
    )


def test_every_crop_and_flip_is_what_its_draw_says(source: Source) -> None:
    """All 162 of them, against plain numpy; a draw is 32 bits wide."""
    draws = np.arange(162) + 162 * np.arange(162) ** 3
    images, labels = next(source.dataset().batch(162).as_numpy_iterator())
    got, got_labels = source.map_batch((tf.constant(images), tf.constant(labels)), tf.constant(draws))  # type: ignore[misc]
    np.testing.assert_array_equal(got_labels, labels)
    for image, result, draw in zip(images, got.numpy(), draws, strict=True):
        padded = np.pad(image, [(4, 4), (4, 4), (0, 0)])
        top, left, flip = draw % 9, draw // 9 % 9, draw // 81 % 2
        expected = padded[top : top + 32, left : left + 32]
        expected = expected[:, ::-1] if flip else expected
        np.testing.assert_allclose(result, expected / 255, rtol=1e-6)


def test_every_example_has_a_crop_of_its_own(source: Source) -> None:
    """One image repeated: a batch with a single offset for all would come out equal."""
    image = tf.repeat(next(iter(source.dataset()))[0][None], 64, axis=0)
    dataset = tf.data.Dataset.from_tensor_slices((image, tf.zeros(64, tf.int64)))
    for order in source.orders:
        images, _ = next(iter(pipeline(dataset, source, order)))
        assert len({result.tobytes() for result in images.numpy()}) > 40
        again, _ = next(iter(pipeline(dataset, source, order)))
        np.testing.assert_array_equal(images, again)
        other, _ = next(iter(pipeline(dataset, source, order, seed=4)))
        assert not np.array_equal(images, other)


def test_random_draws_are_uniform_over_32_bits() -> None:
    """What the offsets and the flip are taken from."""
    draws = next(tf.data.Dataset.random(seed=5).batch(20_000).as_numpy_iterator())
    assert 0 <= draws.min() < 2**20
    assert 2**32 - 2**20 < draws.max() < 2**32
    counts = np.bincount(draws % 162, minlength=162)
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 240  # chi-square, 161 degrees: p = 5e-5


def test_a_batch_is_mapped_as_a_whole(source: Source) -> None:
    """No loop over its examples, in whatever way TensorFlow may spell one."""
    specification = source.dataset().batch(64, drop_remainder=True).element_spec
    graph = tf.function(source.map_batch).get_concrete_function(specification, tf.TensorSpec([64], tf.int64)).graph
    kinds = {operation.type for operation in graph.get_operations()}
    assert "GatherV2" in kinds
    assert not {kind for kind in kinds if "While" in kind or "Map" in kind or "PyFunc" in kind}
    assert not graph.as_graph_def().library.function


def test_the_pasted_code_delivers_the_same_examples(source: Source, tmp_path: Path) -> None:
    code = source.code
    bodies = {
        "example": f"dataset.map({code.map_example}).batch(64, drop_remainder=True)",
        "batch": f"dataset.batch(64, drop_remainder=True).map({code.map_batch})",
    }
    text = code.definitions
    for name, body in bodies.items():
        text += (
            f"\n\ndef make_{name}({', '.join(code.arguments)}):\n"
            f"    dataset = {code.source}.shuffle(100, seed=3).repeat()\n"
            "    dataset = tf.data.Dataset.zip(dataset, tf.data.Dataset.random(seed=3))\n"
            f"    return {body}\n"
        )
    pasted = import_text(tmp_path / "pasted.py", text)
    arrays = next(source.dataset().batch(COUNT).as_numpy_iterator())
    for name, order in zip(bodies, source.orders, strict=True):
        expected = pipeline(source.dataset(), source, order)
        for (images, labels), (own, own_labels) in zip(
            getattr(pasted, f"make_{name}")(*arrays).take(4), expected.take(4), strict=True
        ):
            np.testing.assert_array_equal(images, own)
            np.testing.assert_array_equal(labels, own_labels)


def import_text(path: Path, text: str) -> Any:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_code_to_load_runs_on_what_keras_returns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import keras

    images = np.zeros((5, 32, 32, 3), np.uint8)
    labels = np.arange(5).reshape(5, 1).astype(np.uint8)
    monkeypatch.setattr(getattr(keras.datasets, name), "load_data", lambda: ((images, labels), (images, labels)))
    values: dict[str, Any] = {"tf": tf}
    source = open_here(name)
    exec(source.code.load, values)
    assert eval(source.code.source, values).element_spec == source.dataset().element_spec


@pytest.mark.parametrize(("name", "classes"), [("cifar100", 100), ("cifar10", 10)])
def test_the_stand_in_has_the_real_counts_shapes_and_types(name: str, classes: int) -> None:
    source = open_here(name)
    assert source.generated
    title = name.replace("cifar", "CIFAR-")
    assert source.origin == f"generated stand-in: {title} could not be downloaded (downloading is switched off)"
    assert (source.examples, source.classes) == (50_000, classes)
    images, labels = next(source.dataset().batch(50_000).as_numpy_iterator())
    assert (images.shape, images.dtype, labels.shape, labels.dtype) == (
        (50_000, 32, 32, 3),
        "uint8",
        (50_000,),
        "int64",
    )
    assert set(labels) == set(range(classes))

    # No pipeline holds a copy of the arrays of its own.
    before = psutil.Process().memory_info().rss
    iterators = [iter(source.dataset().repeat()) for _ in range(4)]
    assert all(next(iterator)[1] == labels[0] for iterator in iterators)
    assert psutil.Process().memory_info().rss - before < images.nbytes

    again, _ = next(open_here(name).dataset().as_numpy_iterator())
    np.testing.assert_array_equal(images[0], again)
    other, _ = next(open_here(name, seed=1).dataset().as_numpy_iterator())
    assert not np.array_equal(images[0], other)


def test_required_data_is_not_replaced() -> None:
    with pytest.raises(DataError, match="CIFAR-100 is required but could not be downloaded") as caught:
        open_here(require_data=True)
    assert caught.value.hint is not None
    assert "--data-dir" in caught.value.hint


def test_a_given_place_is_never_replaced_by_a_stand_in(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"is empty; cifar-100-python\.tar\.gz or train was expected"):
        open_here(data_dir=tmp_path / "empty")


@pytest.mark.parametrize("place", ["cifar-100-python-target/cifar-100-python", "cifar-100-python"])
def test_keras_cache_is_used_before_a_download(place: str, empty_cache: Path) -> None:
    write_data(empty_cache / place)
    source = open_here(download=True)
    assert (source.origin, source.examples, source.generated) == (str(empty_cache / place), COUNT, False)


def test_a_download_is_kept_where_keras_and_the_next_run_find_it(empty_cache: Path, tmp_path: Path) -> None:
    archive = tmp_path / "served.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(write_data(tmp_path / "served"), "cifar-100-python")
    cifar = dataclasses.replace(CIFAR100, url=archive.as_uri(), sha256=hashlib.sha256(archive.read_bytes()).hexdigest())
    seen: list[tuple[int, int | None]] = []

    def open_it(*, may_download: bool) -> Source:
        return open_cifar(
            cifar,
            data_dir=None,
            require_data=True,
            seed=0,
            progress=lambda *state: seen.append(state),
            may_download=may_download,
        )

    kept = empty_cache / "cifar-100-python-target_archive"
    assert open_it(may_download=True).origin == str(kept)
    assert seen[-1] == (archive.stat().st_size, archive.stat().st_size)
    archive.unlink()
    assert open_it(may_download=False).origin == str(kept)
    kept.unlink()
    with pytest.raises(DataError, match="No such file"):
        open_it(may_download=True)


def test_a_damaged_cache_is_named_with_what_to_delete(empty_cache: Path) -> None:
    empty_cache.mkdir(parents=True)
    archive = empty_cache / "cifar-100-python-target_archive"
    archive.write_bytes(b"\x1f\x8bcut")
    with pytest.raises(DataError, match="not a whole") as caught:
        open_here()
    assert caught.value.hint == f"Delete {archive} to have it fetched anew."


def test_the_cache_is_where_keras_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and place are Keras's own, so that its loaders find what tfpipe fetched, and the other way round."""
    from keras.src.datasets import cifar10, cifar100

    for module, cifar in ((cifar10, CIFAR10), (cifar100, CIFAR100)):
        asked: dict[str, Any] = {}

        def get_file(asked: dict[str, Any] = asked, **arguments: Any) -> str:
            asked.update(arguments)
            raise InterruptedError

        monkeypatch.setattr(module, "get_file", get_file)
        with pytest.raises(InterruptedError):
            module.load_data()
        assert (asked["fname"], asked["origin"], asked["file_hash"]) == (cifar.keras_name, cifar.url, cifar.sha256)
    monkeypatch.delenv("KERAS_HOME")
    assert keras_datasets() == Path.home() / ".keras" / "datasets"


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no data set 'cifar1000'") as caught:
        open_here("cifar1000")
    assert caught.value.hint == "Choose one of: cifar100, cifar10, photos."
