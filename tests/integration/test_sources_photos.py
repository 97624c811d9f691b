"""Photos through TensorFlow: files, records and generated ones give the same kind of images."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import tensorflow as tf

from tests.integration.test_sources_cifar import import_text, open_here
from tfpipe.engine.sources import Source
from tfpipe.errors import DataError

pytestmark = pytest.mark.tensorflow

open_photos = functools.partial(open_here, "photos", image_size=48)


def jpegs(count: int) -> list[bytes]:
    """JPEGs of one colour each, of which all differ in size and the first is grey."""
    images = [np.full((60 + 7 * i, 90 + 5 * i, 1 if i == 0 else 3), 40 * i, np.uint8) for i in range(count)]
    return [tf.io.encode_jpeg(image).numpy() for image in images]


def write_folder(folder: Path) -> Path:
    for index, photo in enumerate(jpegs(4)):
        path = folder / ("cat", "dog")[index % 2] / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photo)
    (folder / "readme.txt").touch()
    return folder


def example(photo: bytes | None, label: int | None) -> bytes:
    feature = {}
    if photo is not None:
        feature["image/encoded"] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[photo]))
    if label is not None:
        feature["image/class/label"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
    serialised: bytes = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
    return serialised


def write_records(path: Path, records: list[bytes], *, gzipped: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), options="GZIP" if gzipped else None) as writer:
        for record in records:
            writer.write(record)
    return path


def mapped(source: Source, *, seed: int = 1) -> Any:
    dataset = tf.data.Dataset.zip(source.dataset().repeat(), tf.data.Dataset.random(seed=seed))
    return dataset.map(source.map_example).batch(8)


def check_images(source: Source, labels: list[int]) -> None:
    dataset = mapped(source)
    assert dataset.element_spec[0].shape == (None, 48, 48, 3)
    assert dataset.element_spec[1].shape == (None,)
    images, got_labels = next(iter(dataset))
    assert images.dtype == tf.float32
    assert got_labels.dtype == tf.int64
    assert got_labels.numpy().tolist() == (labels * 8)[:8]
    assert 0 <= images.numpy().min() <= images.numpy().max() <= 1


def test_a_folder_of_jpegs(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "photos")
    source = open_photos(data_dir=folder)
    assert source.origin == f"{folder}: 4 JPEG files, 1 other file ignored"
    assert (source.examples, source.classes, source.generated) == (4, 2, False)
    assert source.example_bytes == len(str(folder / "cat" / "0.jpg")) + 8
    assert (source.orders, source.map_batch, source.code.map_batch) == (("map-batch",), None, None)
    check_images(source, [0, 0, 1, 1])
    images, _ = next(iter(mapped(source)))
    means = images.numpy().mean(axis=(1, 2, 3))[:4] * 255
    np.testing.assert_allclose(means, [0, 80, 40, 120], atol=2)  # cat/0, cat/2, dog/1, dog/3


@pytest.mark.parametrize("gzipped", [False, True])
def test_a_folder_of_records(gzipped: bool, tmp_path: Path) -> None:
    records = [example(photo, label) for photo, label in zip(jpegs(4), [3, 0, 7, 1], strict=True)]
    write_records(tmp_path / "train-00000-of-00002", records[:3], gzipped=gzipped)
    write_records(tmp_path / "train-00001-of-00002", records[3:], gzipped=gzipped)
    source = open_photos(data_dir=tmp_path)
    assert source.origin == f"{tmp_path}: 4 records in TFRecord files (2)"
    assert (source.examples, source.classes, source.generated) == (4, 8, False)
    assert source.example_bytes == round(sum(map(len, records)) / 4)
    check_images(source, [3, 0, 7, 1])
    check_images(open_photos(data_dir=tmp_path / "train-00000-of-00002"), [3, 0, 7])


def test_labels_beyond_the_part_that_is_read_are_taken_as_imagenets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [example(photo, label) for photo, label in zip(jpegs(3), [3, 0, 900], strict=True)]
    write_records(tmp_path / "x.tfrecord", records)
    monkeypatch.setattr("tfpipe.engine.sources.photos._LABEL_BYTES", len(records[0]) + 1)
    source = open_photos(data_dir=tmp_path)
    assert (source.examples, source.classes) == (3, 1001)
    assert source.example_bytes == round(sum(map(len, records)) / 3)


@pytest.mark.parametrize(
    ("photo", "label", "message"),
    [
        (b"\xff\xd8\xff", None, "without the feature image/class/label"),
        (None, 1, "without the feature image/encoded"),
        (None, None, "without the feature image/encoded and image/class/label"),
        (b"\x89PNG", 1, "image/encoded is no JPEG"),
        (b"\xff\xd8\xff", -1, "image/class/label is no label"),
    ],
)
def test_a_record_of_another_kind_is_refused(
    photo: bytes | None, label: int | None, message: str, tmp_path: Path
) -> None:
    path = write_records(tmp_path / "x.tfrecord", [example(jpegs(1)[0], 0), example(photo, label)])
    with pytest.raises(DataError, match=message) as caught:
        open_photos(data_dir=tmp_path)
    assert str(path) in caught.value.message


def test_records_that_are_no_examples_are_refused(tmp_path: Path) -> None:
    write_records(tmp_path / "x.tfrecord", [b"\xff\xff\xff"])
    with pytest.raises(DataError, match="without the feature"):
        open_photos(data_dir=tmp_path)
    write_records(tmp_path / "x.tfrecord", [])
    with pytest.raises(DataError, match="without a single record"):
        open_photos(data_dir=tmp_path)


def test_generated_photos_are_photo_like() -> None:
    source = open_photos()
    assert source.generated
    assert source.origin.startswith("generated stand-in")
    assert (source.examples, source.classes) == (64, 64)
    check_images(source, list(range(64)))
    photos = [photo for photo, _ in source.dataset().as_numpy_iterator()]
    sizes = [len(photo) for photo in photos]
    assert source.example_bytes == round(np.mean(sizes)) + 8
    assert 80_000 < np.mean(sizes) < 125_000  # ImageNet's photographs of this size have about 110 KB
    assert {tuple(tf.io.extract_jpeg_shape(photo).numpy()) for photo in photos} == {
        (375, 500, 3),
        (333, 500, 3),
        (500, 375, 3),
    }
    assert [photo for photo, _ in open_photos().dataset().as_numpy_iterator()] == photos
    assert [photo for photo, _ in open_photos(seed=1).dataset().as_numpy_iterator()] != photos


def test_crops_follow_the_draw_and_cover_what_the_field_uses() -> None:
    """A photo whose colours are its coordinates tells where a crop was taken."""
    height, width = 300, 400
    rows, columns = np.meshgrid(np.linspace(0, 255, height), np.linspace(0, 255, width), indexing="ij")
    photo = tf.io.encode_jpeg(np.stack([rows, columns, 0 * rows], axis=-1).astype(np.uint8), quality=100)
    dataset = tf.data.Dataset.zip(tf.data.Dataset.from_tensors((photo, 0)).repeat(), tf.data.Dataset.random(seed=2))
    function = open_photos().map_example
    images = next(iter(dataset.map(function).batch(300)))[0].numpy()
    np.testing.assert_array_equal(images, next(iter(dataset.map(function).batch(300)))[0].numpy())

    tall = np.ptp(images[:, :, :, 0], axis=(1, 2)) * height
    signed = (images[:, 24, -1, 1] - images[:, 24, 0, 1]) * width
    wide = np.abs(signed)
    areas, ratios = tall * wide / (height * width), wide / tall
    assert 0.06 < areas.min() < 0.2
    assert 0.8 < areas.max() <= 1.02
    assert 0.7 < ratios.min() < 0.85
    assert 1.2 < ratios.max() < 1.42
    assert 0.4 < (signed < 0).mean() < 0.6


@pytest.mark.parametrize("kind", ["folder", "records", "generated"])
def test_the_pasted_code_delivers_the_same_images(kind: str, tmp_path: Path) -> None:
    data_dir: Path | None = None
    if kind == "folder":
        data_dir = write_folder(tmp_path / "photos")
    elif kind == "records":
        data_dir = tmp_path / "records"
        write_records(data_dir / "a.tfrecord", [example(photo, i) for i, photo in enumerate(jpegs(3))], gzipped=True)
    source = open_photos(data_dir=data_dir)
    code = source.code
    load = code.load
    if kind == "generated":
        (tmp_path / "photos").mkdir()
        for number, (photo, _) in enumerate(source.dataset().as_numpy_iterator()):
            (tmp_path / "photos" / f"{number:02}.jpg").write_bytes(photo)
        load = load.replace('"photos"', repr(str(tmp_path / "photos")))
    pasted = import_text(
        tmp_path / "pasted.py",
        f"{code.definitions}\n\ndef make_dataset({', '.join(code.arguments)}):\n"
        f"    dataset = tf.data.Dataset.zip({code.source}.repeat(), tf.data.Dataset.random(seed=1))\n"
        f"    return dataset.map({code.map_example}).batch(8)\n\n\n"
        f"{load}\ndataset = make_dataset({', '.join(code.arguments)})\n",
    )
    for (images, labels), (own, own_labels) in zip(pasted.dataset.take(2), mapped(source).take(2), strict=True):
        np.testing.assert_array_equal(images, own)
        np.testing.assert_array_equal(labels, own_labels)


def test_required_photos_are_not_generated() -> None:
    with pytest.raises(DataError, match="photos has no data of its own") as caught:
        open_photos(require_data=True)
    assert caught.value.hint is not None
    assert "--data-dir" in caught.value.hint


def test_a_photo_that_is_cut_short_is_named_when_the_run_begins(tmp_path: Path) -> None:
    from tests.unit.machine import workload
    from tfpipe.engine.sources.photos import generate_photos
    from tfpipe.engine.subjects import open_subject

    for index, photo in enumerate(generate_photos(4, seed=0)):
        content = photo[: len(photo) // 2] if index == 2 else photo
        (tmp_path / f"class_{index}.jpg").write_bytes(content)
    work = msgspec.structs.replace(workload("none"), dataset="photos", data_dir=str(tmp_path), batch_size=4)
    with pytest.raises(DataError, match=r"class_2\.jpg cannot be decoded"):
        open_subject(work, lambda done, total: None)
