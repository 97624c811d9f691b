"""Photos as a source: JPEG files, TFRecords of them, or a few generated ones. The input-heavy case."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe.engine.sources.augment import decode_photo, parse_photo, read_photo
from tfpipe.engine.sources.base import Source, definitions
from tfpipe.engine.sources.photo_files import (
    HINT,
    JPEG_START,
    PhotoFolder,
    RecordFiles,
    find_photos,
    iterate_records,
    list_photos,
    list_records,
)
from tfpipe.errors import DataError
from tfpipe.records import MapCode

GENERATED_PHOTOS = 64
# (height, width) of generated photos: ImageNet's usual sizes, most of them landscape.
_SHAPES = ((375, 500), (333, 500), (375, 500), (500, 375))
# With _noise, gives files of 100 KB in the mean, as ImageNet's are at these sizes.
_JPEG_QUALITY = 85
# Labels are read from this much of a set of TFRecords, which takes seconds; beyond it ImageNet's classes are assumed.
_LABEL_BYTES = 1 << 30
# ImageNet's TFRecords count from 1 and keep 0 for "background".
_IMAGENET_CLASSES = 1001


def open_photos(*, data_dir: Path | None, require_data: bool, image_size: int, seed: int) -> Source:
    """Open the photos in ``data_dir``; without one, generate a few.

    Raises:
        UsageError, DataError: nothing usable is there, or there is no ``data_dir`` and ``require_data``.
    """
    if data_dir is None:
        if require_data:
            raise DataError("photos has no data of its own.", HINT)
        return _generated(image_size, seed)
    found = find_photos(data_dir)
    if isinstance(found, PhotoFolder):
        return _from_folder(data_dir, found, image_size)
    return _from_records(data_dir, found, image_size)


def _from_folder(folder: Path, found: PhotoFolder, image_size: int) -> Source:
    with tf.device("CPU"):
        tensors = tf.constant(found.files), tf.constant(found.labels, tf.int64)
    return _source(
        origin=f"{folder}: {len(found.files):,} JPEG files{_ignored(found.ignored)}",
        examples=len(found.files),
        classes=max(found.labels) + 1,
        element="JPEG file name, int64 label",
        example_bytes=round(np.mean([len(file.encode()) for file in found.files])) + 8,
        dataset=lambda: tf.data.Dataset.from_tensor_slices(tensors),
        function=read_photo,
        image_size=image_size,
        load=(
            f"import pathlib\n\n\n{inspect.getsource(list_photos)}\n\n"
            f"files, labels = list_photos({str(folder.absolute())!r})\n"
        ),
        source="tf.data.Dataset.from_tensor_slices((files, tf.constant(labels, tf.int64)))",
        arguments=("files", "labels"),
    )


def _from_records(path: Path, found: RecordFiles, image_size: int) -> Source:
    records, total_bytes, largest_label = 0, 0, 0
    for file in found.files:
        unread = _LABEL_BYTES - total_bytes
        for length, record in iterate_records(file, gzipped=found.gzipped, read_bytes=unread):
            records += 1
            total_bytes += length
            if record is not None:
                largest_label = max(largest_label, _label(record, file))
    if not records:
        raise DataError(f"{path} holds TFRecord files without a single record.", HINT)
    classes = largest_label + 1
    files, compression = list(found.files), "GZIP" if found.gzipped else ""
    load = f"files = {files!r}\n"
    if path.is_dir():
        load = (
            f"import pathlib\nimport re\n\n\n{inspect.getsource(list_records)}\n\n"
            f"files = list_records({str(path.absolute())!r})\n"
        )
    return _source(
        origin=f"{path}: {records:,} records in TFRecord files ({len(files):,}){_ignored(found.ignored)}",
        examples=records,
        classes=classes if total_bytes <= _LABEL_BYTES else max(classes, _IMAGENET_CLASSES),
        element="serialised tf.train.Example",
        example_bytes=round(total_bytes / records),
        dataset=lambda: tf.data.TFRecordDataset(files, compression_type=compression),
        function=parse_photo,
        image_size=image_size,
        load=load,
        source=f"tf.data.TFRecordDataset(files, compression_type={compression!r})",
        arguments=("files",),
    )


def _label(record: bytes, file: str) -> int:
    """The label of a serialised example; raises DataError for one that ``parse_photo`` could not use."""
    try:
        features = tf.train.Example.FromString(record).features.feature
    except Exception:  # protobuf's DecodeError, which is another class in each of its implementations
        features = {}
    missing = [name for name in ("image/encoded", "image/class/label") if name not in features]
    if missing:
        raise DataError(
            f"{file} has a record without the feature {' and '.join(missing)}.",
            "Write tf.train.Example records as ImageNet's: a JPEG string and an int64 label under these names.",
        )
    photos, labels = features["image/encoded"].bytes_list.value, features["image/class/label"].int64_list.value
    if len(photos) != 1 or not photos[0].startswith(JPEG_START):
        raise DataError(f"{file} has a record whose image/encoded is no JPEG.", "Replace that record.")
    if len(labels) != 1 or labels[0] < 0:
        raise DataError(f"{file} has a record whose image/class/label is no label.", "Use one integer from 0 up.")
    return int(labels[0])


def _generated(image_size: int, seed: int) -> Source:
    photos = generate_photos(GENERATED_PHOTOS, seed)
    with tf.device("CPU"):
        tensors = tf.constant(photos), tf.range(len(photos), dtype=tf.int64)
    return _source(
        origin=f"generated stand-in: {len(photos)} JPEGs of noise, for lack of a --data-dir",
        generated=True,
        examples=len(photos),
        classes=len(photos),
        element="JPEG string, int64 label",
        example_bytes=round(np.mean([len(photo) for photo in photos])) + 8,
        dataset=lambda: tf.data.Dataset.from_tensor_slices(tensors),
        function=decode_photo,
        image_size=image_size,
        load=(
            "import pathlib\n\n"
            "# A folder of JPEGs of your own.\n"
            'photos = [file.read_bytes() for file in sorted(pathlib.Path("photos").glob("*.jpg"))]\n'
            "labels = list(range(len(photos)))\n"
        ),
        source="tf.data.Dataset.from_tensor_slices((photos, tf.constant(labels, tf.int64)))",
        arguments=("photos", "labels"),
    )


def generate_photos(count: int, seed: int) -> list[bytes]:
    """``count`` JPEGs of about 500x375 that cost as much to read and decode as photographs of that size."""
    random = np.random.default_rng(seed)
    field = _noise(1024, random)
    photos = []
    for index in range(count):
        height, width = _SHAPES[index % len(_SHAPES)]
        top, left = random.integers(0, 1024 - np.array((height, width)))
        image = tf.constant(field[top : top + height, left : left + width])
        photos.append(tf.io.encode_jpeg(image, quality=_JPEG_QUALITY).numpy())
    return photos


def _noise(size: int, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Colour noise (size, size, 3) whose amplitude falls as 1/frequency, which is the spectrum of natural images.

    D. J. Field, "Relations between the statistics of natural images and the response properties of cortical
    cells", J. Opt. Soc. Am. A 4 (1987).
    """
    rows, columns = np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None, :]
    frequency = np.hypot(rows, columns)
    frequency[0, 0] = np.inf
    grey, *tints = (
        np.fft.irfft2(np.fft.rfft2(random.standard_normal((size, size))) / frequency, s=(size, size)) for _ in range(4)
    )
    colour = np.stack([grey / grey.std() + 0.3 * tint / tint.std() for tint in tints], axis=-1)
    pixels: npt.NDArray[np.uint8] = np.clip(118 + 60 * colour, 0, 255).astype(np.uint8)
    return pixels


def _source(
    *,
    origin: str,
    generated: bool = False,
    examples: int,
    classes: int,
    element: str,
    example_bytes: int,
    dataset: Callable[[], Any],
    function: Callable[..., Any],
    image_size: int,
    load: str,
    source: str,
    arguments: tuple[str, ...],
) -> Source:
    functions = (decode_photo,) if function is decode_photo else (decode_photo, function)
    return Source(
        name="photos",
        origin=origin,
        generated=generated,
        examples=examples,
        classes=classes,
        element=element,
        example_bytes=example_bytes,
        orders=("map-batch",),
        code=MapCode(
            definitions="import functools\n\n" + definitions(*functions),
            load=load,
            source=source,
            arguments=arguments,
            map_example=f"functools.partial({function.__name__}, image_size={image_size})",
            map_batch=None,
        ),
        dataset=dataset,
        map_example=functools.partial(function, image_size=image_size),
        map_batch=None,
    )


def _ignored(count: int) -> str:
    return f", {count:,} other file{'s' if count > 1 else ''} ignored" if count else ""
