"""The built-in data sets, by name."""

from __future__ import annotations

from pathlib import Path

from tfpipe.engine.sources.base import Progress, Source
from tfpipe.errors import UsageError
from tfpipe.settings import DATASETS

__all__ = ["Source", "open_source"]


def open_source(
    name: str,
    *,
    data_dir: Path | None,
    require_data: bool,
    image_size: int,
    seed: int,
    progress: Progress,
    download: bool = True,
) -> Source:
    """Open a data set: the user's own files, or the best that can be had without them.

    Args:
        name: one of ``DATASETS``.
        data_dir: where its files are; None for Keras's cache, a download or a generated stand-in.
        require_data: refuse a generated stand-in.
        image_size: height and width of the mapped images in pixels; ``photos`` only.
        seed: of generated pixels.
        progress: told about a download.
        download: whether one may be tried.

    Raises:
        UsageError: no such data set, or nothing at ``data_dir``.
        DataError: the files cannot be used, or there are none and ``require_data``.
    """
    if name not in DATASETS:
        raise UsageError(f"There is no data set {name!r}.", f"Choose one of: {', '.join(DATASETS)}.")
    # Imported late: they load TensorFlow, which takes seconds that a mistyped name should not cost.
    from tfpipe.engine.sources.cifar import open_cifar
    from tfpipe.engine.sources.cifar_files import CIFAR10, CIFAR100
    from tfpipe.engine.sources.photos import open_photos

    if name == "photos":
        return open_photos(data_dir=data_dir, require_data=require_data, image_size=image_size, seed=seed)
    return open_cifar(
        CIFAR100 if name == CIFAR100.name else CIFAR10,
        data_dir=data_dir,
        require_data=require_data,
        seed=seed,
        progress=progress,
        may_download=download,
    )
