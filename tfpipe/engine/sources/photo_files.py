"""Finding photos on disk: a folder of JPEGs, or of TFRecords of them, checked without decoding any."""

from __future__ import annotations

import gzip
import pathlib
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tfpipe.errors import DataError, UsageError

JPEG_START = b"\xff\xd8\xff"
_GZIP_START = b"\x1f\x8b\x08"
# tensorflow.org's record format: length (8 bytes), its checksum (4), content, checksum of the content (4).
_LENGTH = struct.Struct("<Q4x")
_CHECKSUM_BYTES = 4
# A photo has some megabytes at most; a larger length is no length but a damaged or foreign file.
_MAX_RECORD_BYTES = 1 << 30
HINT = "Name a folder of .jpg files, or of .tfrecord files of them, with --data-dir."


def list_photos(folder: str) -> tuple[list[str], list[int]]:
    """JPEG files under `folder`, sorted, and a label for each.

    The class is the name of the subfolder; for a file directly in `folder`, its own name up to the first "_".
    """
    root = pathlib.Path(folder)
    files, names = [], []
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() in (".jpg", ".jpeg") and not path.name.startswith("."):
            files.append(str(path))
            names.append(path.name.partition("_")[0] if path.parent == root else path.parent.name)
    labels = {name: label for label, name in enumerate(sorted(set(names)))}
    return files, [labels[name] for name in names]


def list_records(folder: str) -> list[str]:
    """TFRecord files under `folder`, sorted: *.tfrecord(s), *.tfrec and *-00000-of-00001, .gz or not."""
    name = re.compile(r".*(\.tfrec(ord)?s?|-\d{5}-of-\d{5})(\.gz)?")
    return sorted(str(path) for path in pathlib.Path(folder).rglob("*") if name.fullmatch(path.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoFolder:
    """JPEG files with their labels; ``ignored`` counts the other files beside them."""

    files: tuple[str, ...]
    labels: tuple[int, ...]
    ignored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFiles:
    """TFRecord files, all compressed with gzip or none."""

    files: tuple[str, ...]
    gzipped: bool
    ignored: int


def find_photos(folder: Path) -> PhotoFolder | RecordFiles:
    """The JPEGs under ``folder`` or, where there are none, its TFRecords. A TFRecord file itself will do.

    Raises:
        UsageError: there is nothing at ``folder``.
        DataError: neither kind of file is there, or one of them is not what its name says.
    """
    if not folder.exists():
        raise UsageError(f"--data-dir {folder} does not exist.", HINT)
    try:
        if folder.is_file():
            return _record_files([str(folder)], ignored=0)
        files, labels = list_photos(str(folder))
        total = sum(path.is_file() for path in folder.rglob("*"))
        if files:
            for file in files:
                _check_jpeg(file)
            return PhotoFolder(files=tuple(files), labels=tuple(labels), ignored=total - len(files))
        records = list_records(str(folder))
        if records:
            return _record_files(records, ignored=total - len(records))
    except OSError as error:
        raise DataError(
            f"{error.filename or folder} cannot be read: {error.strerror or error}.", "Check its permissions."
        ) from None
    what = "no JPEG and no TFRecord file" if total else "no file"
    raise DataError(f"{folder} holds {what}.", HINT)


def iterate_records(file: str, *, gzipped: bool, read_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """The records of ``file`` in order: length, and content until ``read_bytes`` of them were read, then None.

    Checksums are left to TensorFlow, which verifies them whenever it reads a record.

    Raises:
        DataError: the file ends within a record, or is none.
    """
    with open(file, "rb") as raw:
        end = None if gzipped else raw.seek(0, 2)
        raw.seek(0)
        stream: IO[bytes] = gzip.GzipFile(fileobj=raw) if gzipped else raw  # type: ignore[assignment]
        number = 0
        try:
            while header := stream.read(_LENGTH.size):
                number += 1
                if len(header) < _LENGTH.size:
                    raise EOFError
                length: int = _LENGTH.unpack(header)[0]
                after = stream.tell() + length + _CHECKSUM_BYTES
                if length > _MAX_RECORD_BYTES or (end is not None and after > end):
                    raise EOFError
                content = stream.read(length) if read_bytes > 0 else None
                read_bytes -= length
                if stream.seek(after) < after:
                    raise EOFError
                yield length, content
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise DataError(
                f"{file} ends within record {number:,}: it is cut short, or no TFRecord file.", HINT
            ) from None


def _record_files(files: list[str], *, ignored: int) -> RecordFiles:
    gzipped = {_starts_with(file, _GZIP_START) for file in files}
    if len(gzipped) > 1:
        raise DataError(
            f"{Path(files[0]).parent} holds TFRecord files with and without gzip compression.",
            "Keep the two kinds in folders of their own.",
        )
    return RecordFiles(files=tuple(files), gzipped=gzipped.pop(), ignored=ignored)


def _check_jpeg(file: str) -> None:
    if not _starts_with(file, JPEG_START):
        raise DataError(f"{file} is not a JPEG file, whatever its name says.", "Replace or remove it.")


def _starts_with(file: str, magic: bytes) -> bool:
    with open(file, "rb") as stream:
        return stream.read(len(magic)) == magic
