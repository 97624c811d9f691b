"""CIFAR-10 and CIFAR-100 as a source: given, cached, fetched, or a stand-in with the same counts, shapes and types."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe.engine.sources.augment import augment, augment_batch
from tfpipe.engine.sources.base import Progress, Source, definitions
from tfpipe.engine.sources.cifar_files import IMAGE_SHAPE, Cifar, CifarImages, find_cifar, read_cifar
from tfpipe.engine.sources.download import DownloadError, download
from tfpipe.errors import DataError
from tfpipe.records import MapCode

# Images in the training split of either data set.
STAND_IN_EXAMPLES = 50_000


def open_cifar(
    cifar: Cifar,
    *,
    data_dir: Path | None,
    require_data: bool,
    seed: int,
    progress: Progress,
    may_download: bool,
) -> Source:
    """Open ``data_dir`` if there is one, else Keras's cache, else a download, else a generated stand-in.

    Raises:
        UsageError, DataError: what is at ``data_dir`` or in the cache cannot be used; or there is nothing and
            ``require_data``.
    """
    if data_dir is not None:
        found = read_cifar(cifar, data_dir)
        return _source(cifar, found.images, found.labels, origin=str(found.path))
    try:
        found = _cached_or_downloaded(cifar, progress, may_download)
    except DownloadError as error:
        if require_data:
            raise DataError(
                f"{cifar.title} is required but could not be downloaded ({error}).",
                f"Fetch {cifar.url} elsewhere and name it with --data-dir.",
            ) from None
        images, labels = stand_in(cifar, seed)
        origin = f"generated stand-in: {cifar.title} could not be downloaded ({error})"
        return _source(cifar, images, labels, origin=origin, generated=True)
    return _source(cifar, found.images, found.labels, origin=str(found.path))


def stand_in(cifar: Cifar, seed: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Random images and labels with the training split's count, shapes and types."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (STAND_IN_EXAMPLES, *IMAGE_SHAPE), dtype=np.uint8)
    return images, random.integers(0, cifar.classes, STAND_IN_EXAMPLES)


def _cached_or_downloaded(cifar: Cifar, progress: Progress, may_download: bool) -> CifarImages:
    cache = keras_datasets()
    archive = cache / f"{cifar.keras_name}_archive"
    in_folders = (find_cifar(cifar, cache / name) for name in (cifar.keras_name, cifar.folders[0]))
    archives = (path for path in (archive, cache / cifar.archives[0]) if path.is_file())
    found = next((path for path in (*in_folders, *archives) if path is not None), None)
    if found is None:
        if not may_download:
            raise DownloadError("downloading is switched off")
        download(cifar.url, archive, sha256=cifar.sha256, progress=progress)
        found = archive
    try:
        return read_cifar(cifar, found)
    except DataError as error:
        raise DataError(error.message, f"Delete {found} to have it fetched anew.") from None


def keras_datasets() -> Path:
    """Where Keras keeps data sets; what is fetched goes there under Keras's own name, so that both use one copy."""
    return Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "datasets"


def _source(
    cifar: Cifar,
    images: npt.NDArray[np.uint8],
    labels: npt.NDArray[np.int64],
    *,
    origin: str,
    generated: bool = False,
) -> Source:
    with tf.device("CPU"):
        tensors = tf.constant(images), tf.constant(labels)
    return Source(
        name=cifar.name,
        origin=origin,
        generated=generated,
        examples=len(labels),
        classes=cifar.classes,
        element="uint8 (32, 32, 3), int64 label",
        example_bytes=images[0].nbytes + labels[0].nbytes,
        orders=("map-batch", "batch-map"),
        code=MapCode(
            definitions=definitions(augment, augment_batch),
            load=(
                "import keras\n\n"
                f"(images, labels), _ = keras.datasets.{cifar.name}.load_data()\n"
                'labels = labels[:, 0].astype("int64")\n'
            ),
            source="tf.data.Dataset.from_tensor_slices((images, labels))",
            arguments=("images", "labels"),
            map_example=augment.__name__,
            map_batch=augment_batch.__name__,
        ),
        dataset=lambda: tf.data.Dataset.from_tensor_slices(tensors),
        map_example=augment,
        map_batch=augment_batch,
    )
