"""CIFAR's training split from its archive or its extracted folder, in the `python` and the `binary` layout.

Layouts are those of https://www.cs.toronto.edu/~kriz/cifar.html. Nothing is extracted to disk. How many images there
are is the files' own business; what is checked is that they agree with themselves.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from tfpipe.engine.sources.unpickling import unpickle_arrays
from tfpipe.errors import DataError, UsageError

IMAGE_SHAPE = (32, 32, 3)
IMAGE_BYTES = 32 * 32 * 3
# The largest real file (CIFAR-100's pickled training split) has 156 MB; far larger is a bomb or another data set.
MAX_FILE_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Names of the files with training images, and of the one that describes them (which may be missing)."""

    parts: tuple[str, ...]
    meta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cifar:
    """One of the two data sets. ``label_bytes`` is how many precede an image in the binary layout; the last counts."""

    name: str
    title: str
    classes: int
    label_key: bytes
    class_names_key: bytes
    label_bytes: int
    python: Layout
    binary: Layout
    url: str
    sha256: str
    folders: tuple[str, ...]
    archives: tuple[str, ...]
    keras_name: str


# The checksums are those that Keras's own loaders expect of the same URLs.
CIFAR100 = Cifar(
    name="cifar100",
    title="CIFAR-100",
    classes=100,
    label_key=b"fine_labels",
    class_names_key=b"fine_label_names",
    label_bytes=2,
    python=Layout(parts=("train",), meta="meta"),
    binary=Layout(parts=("train.bin",), meta="fine_label_names.txt"),
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    folders=("cifar-100-python", "cifar-100-binary"),
    archives=("cifar-100-python.tar.gz", "cifar-100-binary.tar.gz"),
    keras_name="cifar-100-python-target",
)
CIFAR10 = Cifar(
    name="cifar10",
    title="CIFAR-10",
    classes=10,
    label_key=b"labels",
    class_names_key=b"label_names",
    label_bytes=1,
    python=Layout(parts=tuple(f"data_batch_{i}" for i in range(1, 6)), meta="batches.meta"),
    binary=Layout(parts=tuple(f"data_batch_{i}.bin" for i in range(1, 6)), meta="batches.meta.txt"),
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    folders=("cifar-10-batches-py", "cifar-10-batches-bin"),
    archives=("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz"),
    keras_name="cifar-10-batches-py-target",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CifarImages:
    """``images`` uint8 (n, 32, 32, 3), ``labels`` int64 (n,), ``path`` the archive or folder they were read from."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    path: Path


def read_cifar(cifar: Cifar, path: Path) -> CifarImages:
    """The training split at ``path``: the archive, the extracted folder, or a folder that holds either.

    Raises:
        UsageError: ``path`` does not exist.
        DataError: it holds no such data set, or a damaged one; the message names the file.
    """
    try:
        if path.is_dir():
            return _read_folder(cifar, path)
        if path.is_file():
            return _read_files(cifar, path, _archive_files(cifar, path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.", "Check its permissions.") from None
    raise UsageError(f"--data-dir {path} does not exist.", _hint(cifar))


def find_cifar(cifar: Cifar, folder: Path) -> Path | None:
    """The extracted folder or the archive of ``cifar`` in ``folder``; None when there is neither."""
    for candidate in (folder, *(folder / name for name in cifar.folders)):
        if any((candidate / part).is_file() for part in cifar.python.parts + cifar.binary.parts):
            return candidate
    archives = (folder / name for name in cifar.archives)
    return next((archive for archive in archives if archive.is_file()), None)


def _read_folder(cifar: Cifar, folder: Path) -> CifarImages:
    found = find_cifar(cifar, folder)
    if found is None:
        raise _not_found(cifar, folder, {entry.name for entry in folder.iterdir()})
    if found.is_file():
        return _read_files(cifar, found, _archive_files(cifar, found))
    return _read_files(cifar, found, _folder_files(cifar, found))


def _folder_files(cifar: Cifar, folder: Path) -> dict[str, bytes]:
    files = {}
    for name in _wanted(cifar):
        path = folder / name
        if path.is_file():
            _check_size(cifar, str(path), path.stat().st_size)
            files[name] = path.read_bytes()
    return files


def _archive_files(cifar: Cifar, path: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    wanted, seen = _wanted(cifar), set()
    try:
        with open(path, "rb") as raw:
            content: Any = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw
            with tarfile.open(fileobj=content, mode="r:") as archive:
                for member in archive:
                    name = PurePosixPath(member.name)
                    if name.is_absolute() or ".." in name.parts or not (member.isfile() or member.isdir()):
                        raise _damaged(cifar, f"{path} has the unsafe entry {member.name!r}")
                    seen.add(name.name)
                    if name.name in wanted and member.isfile():
                        _check_size(cifar, f"{path}: {member.name}", member.size)
                        files[name.name] = archive.extractfile(member).read()  # type: ignore[union-attr]
            while content.read(1 << 20):  # to the end, where gzip keeps its checksum
                pass
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise _damaged(cifar, f"{path} is not a whole .tar.gz archive ({error})") from None
    if not any(part in files for part in cifar.python.parts + cifar.binary.parts):
        raise _not_found(cifar, path, seen)
    return files


def _wanted(cifar: Cifar) -> set[str]:
    return {name for layout in (cifar.python, cifar.binary) for name in (*layout.parts, layout.meta)}


def _read_files(cifar: Cifar, path: Path, files: Mapping[str, bytes]) -> CifarImages:
    layout = cifar.python if any(part in files for part in cifar.python.parts) else cifar.binary
    missing = [part for part in layout.parts if part not in files]
    if missing:
        raise _damaged(cifar, f"{path} lacks {', '.join(missing)}")
    read = _python_part if layout is cifar.python else _binary_part
    images, labels = zip(*(read(cifar, path, name, files[name]) for name in layout.parts), strict=True)
    _check_meta(cifar, path, layout, files, {name: len(part) for name, part in zip(layout.parts, labels, strict=True)})
    # Files keep each image as three planes; pipelines and convolutions on CPU want the channels last.
    planes = np.concatenate(images).reshape(-1, 3, 32, 32)
    return CifarImages(
        images=np.ascontiguousarray(planes.transpose(0, 2, 3, 1)),
        labels=np.concatenate(labels).astype(np.int64),
        path=path,
    )


def _python_part(
    cifar: Cifar, path: Path, name: str, content: bytes
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    part = _unpickle(cifar, path, name, content)
    for key in (b"data", cifar.label_key):
        if key not in part:
            raise _damaged(cifar, f"{path}: {name} has no {key.decode()!r}")
    images = part[b"data"]
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (IMAGE_BYTES,):
        found = f"{images.dtype} {images.shape}" if isinstance(images, np.ndarray) else type(images).__name__
        raise _damaged(cifar, f"{path}: 'data' of {name} is {found} instead of uint8 (images, {IMAGE_BYTES})")
    for key in (cifar.label_key, b"coarse_labels", b"filenames"):
        items = part.get(key, images)
        count = len(items) if isinstance(items, Sized) else 0
        if count != len(images):
            words = key.decode().replace("_", " ")
            raise _damaged(cifar, f"{path}: {name} has {len(images):,} images but {count:,} {words}")
    return images, _check_labels(cifar, path, name, part[cifar.label_key])


def _binary_part(
    cifar: Cifar, path: Path, name: str, content: bytes
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    record = cifar.label_bytes + IMAGE_BYTES
    if len(content) % record:
        raise _damaged(
            cifar, f"{path}: {name} has {len(content):,} bytes, which is no multiple of {record:,} bytes an image"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, record)
    labels = _check_labels(cifar, path, name, records[:, cifar.label_bytes - 1])
    return records[:, cifar.label_bytes :], labels


def _check_labels(cifar: Cifar, path: Path, name: str, values: Any) -> npt.NDArray[np.int64]:
    try:
        labels = np.asarray(values)
    except ValueError:  # a list of lists of different lengths
        labels = np.empty(1, dtype=object)
    if labels.ndim != 1 or (labels.size and labels.dtype.kind not in "iu"):
        raise _damaged(cifar, f"{path}: the labels of {name} are not a list of whole numbers")
    if not labels.size:
        raise _damaged(cifar, f"{path}: {name} holds no images")
    outside = labels[(labels < 0) | (labels >= cifar.classes)]
    if outside.size:
        raise _damaged(cifar, f"{path}: {name} has the label {outside[0]}, outside 0 to {cifar.classes - 1}")
    return labels.astype(np.int64)


def _check_meta(cifar: Cifar, path: Path, layout: Layout, files: Mapping[str, bytes], counts: dict[str, int]) -> None:
    """Hold class names and the images per file against what the description beside them says."""
    content = files.get(layout.meta)
    if content is None:
        return
    if layout is cifar.binary:
        names: Any = content.split()
        per_part = None
    else:
        meta = _unpickle(cifar, path, layout.meta, content)
        names = meta.get(cifar.class_names_key)
        per_part = meta.get(b"num_cases_per_batch")
    count = len(names) if isinstance(names, Sized) else 0
    if count != cifar.classes:
        raise _damaged(cifar, f"{path}: {layout.meta} names {count} classes instead of {cifar.classes}")
    for name, images in counts.items():
        if per_part is not None and images != per_part:
            raise _damaged(cifar, f"{path}: {name} has {images:,} images but {layout.meta} says {per_part}")


def _unpickle(cifar: Cifar, path: Path, name: str, content: bytes) -> dict[bytes, Any]:
    try:
        value = unpickle_arrays(content)
    except ValueError as error:
        raise _damaged(cifar, f"{path}: {name} is not a readable CIFAR pickle: {error}") from None
    if not isinstance(value, dict):
        raise _damaged(cifar, f"{path}: {name} holds a {type(value).__name__} instead of a dictionary")
    return {key.encode() if isinstance(key, str) else key: item for key, item in value.items()}


def _check_size(cifar: Cifar, where: str, size_bytes: int) -> None:
    if size_bytes > MAX_FILE_BYTES:
        raise _damaged(cifar, f"{where} has {size_bytes:,} bytes, more than any file of {cifar.title}")


def _not_found(cifar: Cifar, path: Path, names: set[str]) -> DataError:
    other = CIFAR10 if cifar is CIFAR100 else CIFAR100
    if names & {*other.python.parts, *other.binary.parts, *other.folders, *other.archives}:
        return DataError(f"{path} holds {other.title}, not {cifar.title}.", f"Try --dataset {other.name}.")
    what = "is empty" if not names else f"holds no {cifar.title}"
    expected = f"{cifar.archives[0]} or {cifar.python.parts[0]} was expected there"
    return DataError(f"{path} {what}; {expected}.", _hint(cifar))


def _damaged(cifar: Cifar, message: str) -> DataError:
    return DataError(f"{message}.", _hint(cifar))


def _hint(cifar: Cifar) -> str:
    return f"Fetch it from {cifar.url} and name it with --data-dir, or leave --data-dir out."
