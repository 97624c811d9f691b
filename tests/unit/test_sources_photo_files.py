"""Photos on disk are found, labelled and checked without decoding any."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from tfpipe.engine.sources.photo_files import (
    JPEG_START,
    PhotoFolder,
    RecordFiles,
    find_photos,
    iterate_records,
    list_photos,
)
from tfpipe.errors import DataError, UsageError


def touch(root: Path, *names: str, content: bytes = JPEG_START) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def framed(*records: bytes) -> bytes:
    return b"".join(struct.pack("<Q4x", len(record)) + record + bytes(4) for record in records)


def test_labels_come_from_subfolders_else_from_names(tmp_path: Path) -> None:
    touch(tmp_path, "train/dog/1.jpg", "train/cat/2.JPEG", "dog_3.jpeg", "n01_tench_4.JPG", "plain.jpg")
    files, labels = list_photos(str(tmp_path))
    names = {Path(file).relative_to(tmp_path).as_posix(): label for file, label in zip(files, labels, strict=True)}
    assert files == sorted(files)
    # Classes in order: cat, dog, n01, plain.jpg
    assert names == {
        "dog_3.jpeg": 1,
        "n01_tench_4.JPG": 2,
        "plain.jpg": 3,
        "train/cat/2.JPEG": 0,
        "train/dog/1.jpg": 1,
    }


def test_other_files_are_counted_and_ignored(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "b/2.jpg", "readme.txt", "a/x.png", "a/._1.jpg", "a/rest.tfrecord")
    found = find_photos(tmp_path)
    assert isinstance(found, PhotoFolder)
    assert (len(found.files), found.labels, found.ignored) == (2, (0, 1), 4)


@pytest.mark.parametrize("content", [b"", b"\xff\xd8", b"\x89PNG\r\n", b"<html>"])
def test_a_file_that_is_no_jpeg_is_named(content: bytes, tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg")
    touch(tmp_path, "a/2.jpg", content=content)
    with pytest.raises(DataError, match=r"2\.jpg is not a JPEG file"):
        find_photos(tmp_path)


def test_record_files_by_name(tmp_path: Path) -> None:
    names = ["a.tfrecord", "b.tfrecords", "c.tfrec", "train-00000-of-00001", "x/d.tfrecord"]
    touch(tmp_path, *names, "meta.json", "train-0-of-1", content=framed(b"x"))
    found = find_photos(tmp_path)
    assert isinstance(found, RecordFiles)
    assert [Path(file).relative_to(tmp_path).as_posix() for file in found.files] == names
    assert (found.gzipped, found.ignored) == (False, 2)
    assert find_photos(tmp_path / "meta.json") == RecordFiles(
        files=(str(tmp_path / "meta.json"),), gzipped=False, ignored=0
    )


def test_gzip_is_told_by_content_and_not_mixed(tmp_path: Path) -> None:
    touch(tmp_path, "a.tfrecord", "b.tfrecord.gz", content=gzip.compress(framed(b"x")))
    found = find_photos(tmp_path)
    assert isinstance(found, RecordFiles)
    assert found.gzipped
    touch(tmp_path, "c.tfrecord", content=framed(b"x"))
    with pytest.raises(DataError, match="with and without gzip"):
        find_photos(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="missing does not exist"):
        find_photos(tmp_path / "missing")
    with pytest.raises(DataError, match="holds no file"):
        find_photos(tmp_path)
    touch(tmp_path, "a.png", "b.txt")
    with pytest.raises(DataError, match="holds no JPEG and no TFRecord file") as caught:
        find_photos(tmp_path)
    assert caught.value.hint is not None
    assert "--data-dir" in caught.value.hint


def records_of(file: Path, content: bytes, *, gzipped: bool, read_bytes: int) -> list[tuple[int, bytes | None]]:
    file.write_bytes(gzip.compress(content) if gzipped else content)
    return list(iterate_records(str(file), gzipped=gzipped, read_bytes=read_bytes))


@pytest.mark.parametrize("gzipped", [False, True])
class TestRecords:
    def test_contents_then_lengths_only(self, gzipped: bool, tmp_path: Path) -> None:
        records = [b"a" * 100, b"", b"b" * 50_000, b"c" * 7]
        content = framed(*records)
        whole = records_of(tmp_path / "x", content, gzipped=gzipped, read_bytes=10**9)
        assert whole == [(len(record), record) for record in records]
        some = records_of(tmp_path / "x", content, gzipped=gzipped, read_bytes=101)
        assert some == [(100, records[0]), (0, b""), (50_000, records[2]), (7, None)]
        none = records_of(tmp_path / "x", content, gzipped=gzipped, read_bytes=0)
        assert none == [(len(record), None) for record in records]

    @pytest.mark.parametrize("read_bytes", [0, 10**9])
    @pytest.mark.parametrize("kept", [-1, -5, -1000, -40_000, 5, 118, 120])
    def test_a_cut_file_is_refused(self, kept: int, read_bytes: int, gzipped: bool, tmp_path: Path) -> None:
        content = framed(b"a" * 100, b"b" * 50_000)[:kept]
        number = 1 if 0 < kept < 100 else 2
        with pytest.raises(DataError, match=f"ends within record {number}:"):
            records_of(tmp_path / "x", content, gzipped=gzipped, read_bytes=read_bytes)

    def test_another_format_is_refused(self, gzipped: bool, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="no TFRecord file"):
            records_of(tmp_path / "x", b"<html>" * 100, gzipped=gzipped, read_bytes=10**9)


def test_a_cut_gzip_stream_is_refused(tmp_path: Path) -> None:
    content = gzip.compress(framed(b"a" * 100, b"b" * 50_000))
    (tmp_path / "x").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="ends within record"):
        list(iterate_records(str(tmp_path / "x"), gzipped=True, read_bytes=10**9))
