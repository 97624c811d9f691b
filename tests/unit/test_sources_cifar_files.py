"""CIFAR is read from every layout and place, and what does not agree with itself is refused by name."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfpipe.engine.sources import cifar_files
from tfpipe.engine.sources.cifar_files import CIFAR10, CIFAR100, Cifar, read_cifar
from tfpipe.errors import DataError, UsageError

Files = dict[str, bytes]


def pixels(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def python_files(cifar: Cifar, count: int = 6, **changes: Any) -> Files:
    """The files of the `python` layout, ``count`` images each; ``changes`` go into the last part (``data=...``)."""
    files = {}
    for number, name in enumerate(cifar.python.parts):
        labels = [(number + index) % cifar.classes for index in range(count)]
        part = {b"data": pixels(count, number), cifar.label_key: labels, b"filenames": [b"x.png"] * count}
        if name == cifar.python.parts[-1]:
            part.update({key.encode(): value for key, value in changes.items()})
        files[name] = pickle.dumps(part, protocol=2)
    meta: dict[bytes, Any] = {cifar.class_names_key: [b"class"] * cifar.classes}
    if cifar is CIFAR10:
        meta[b"num_cases_per_batch"] = count
    files[cifar.python.meta] = pickle.dumps(meta, protocol=2)
    return files


def binary_files(cifar: Cifar, count: int = 6) -> Files:
    """The same images and labels in the `binary` layout."""
    files = {}
    for number, name in enumerate(cifar.binary.parts):
        labels = np.array([[7] * (cifar.label_bytes - 1) + [(number + i) % cifar.classes] for i in range(count)])
        files[name] = np.hstack([labels.astype(np.uint8), pixels(count, number)]).tobytes()
    files[cifar.binary.meta] = b"class\n" * cifar.classes + b"\n"
    return files


def write_folder(folder: Path, files: Files) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def write_archive(path: Path, files: Files, *, folder: str = "cifar", extra: tarfile.TarInfo | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        if extra is not None:
            archive.addfile(extra)
    return path


both = pytest.mark.parametrize("cifar", [CIFAR100, CIFAR10], ids=lambda cifar: cifar.name)
layouts = pytest.mark.parametrize("make", [python_files, binary_files])


@both
@layouts
def test_every_place_gives_the_same_images(cifar: Cifar, make: Callable[[Cifar], Files], tmp_path: Path) -> None:
    files = make(cifar)
    index = int(make is binary_files)
    folder = write_folder(tmp_path / "a" / cifar.folders[index], files)
    archive = write_archive(tmp_path / "anything.bin", files)
    write_folder(tmp_path / "b", {})
    write_archive(tmp_path / "b" / cifar.archives[index], files)
    plain = tmp_path / "plain.tar"
    plain.write_bytes(gzip.decompress(archive.read_bytes()))

    parts = len(cifar.python.parts)
    planes = np.concatenate([pixels(6, number) for number in range(parts)])
    labels = [(number + index) % cifar.classes for number in range(parts) for index in range(6)]
    for path in (folder, folder.parent, archive, tmp_path / "b", plain):
        read = read_cifar(cifar, path)
        assert read.images.shape == (6 * parts, 32, 32, 3)
        assert read.images.dtype == np.uint8
        assert read.images.flags.c_contiguous
        assert read.labels.dtype == np.int64
        assert read.labels.tolist() == labels
        # A file keeps the red plane first, row by row: byte 1024 * channel + 32 * row + column.
        for image, channel, row, column in ((0, 0, 0, 0), (1, 2, 3, 4), (5, 1, 31, 30)):
            assert read.images[image, row, column, channel] == planes[image, 1024 * channel + 32 * row + column]


@both
def test_the_description_may_be_missing(cifar: Cifar, tmp_path: Path) -> None:
    files = python_files(cifar)
    del files[cifar.python.meta]
    assert len(read_cifar(cifar, write_folder(tmp_path / "x", files)).labels) == 6 * len(cifar.python.parts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": np.zeros((6, 3071), np.uint8)}, r"train is uint8 \(6, 3071\) instead of uint8 \(images, 3072\)"),
        ({"data": np.zeros((6, 3072), np.float32)}, r"train is float32 \(6, 3072\)"),
        ({"data": np.zeros((6, 32, 32, 3), np.uint8)}, r"train is uint8 \(6, 32, 32, 3\)"),
        ({"data": [[0] * 3072] * 6}, "train is list instead of"),
        ({"data": np.array(1, np.uint8)}, r"train is uint8 \(\)"),
        ({"fine_labels": [1] * 5}, "6 images but 5 fine labels"),
        ({"fine_labels": 3}, "6 images but 0 fine labels"),
        ({"coarse_labels": [1] * 7}, "6 images but 7 coarse labels"),
        ({"filenames": [b"x"] * 4}, "6 images but 4 filenames"),
        ({"fine_labels": [0, 1, 2, 3, 4, 100]}, "label 100, outside 0 to 99"),
        ({"fine_labels": [0, 1, 2, 3, 4, -1]}, "label -1, outside 0 to 99"),
        ({"fine_labels": [0.5] * 6}, "not a list of whole numbers"),
        ({"fine_labels": [[1]] * 6}, "not a list of whole numbers"),
        ({"fine_labels": [[1], [1, 2], [], [], [], []]}, "not a list of whole numbers"),
    ],
)
def test_a_part_that_disagrees_with_itself_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "x", python_files(CIFAR100, **changes))
    with pytest.raises(DataError, match=message) as caught:
        read_cifar(CIFAR100, folder)
    assert str(folder) in caught.value.message
    assert caught.value.hint is not None
    assert "--data-dir" in caught.value.hint


def test_a_part_without_data_is_refused(tmp_path: Path) -> None:
    files = {"train": pickle.dumps({b"fine_labels": [1]}, protocol=2)}
    with pytest.raises(DataError, match="train has no 'data'"):
        read_cifar(CIFAR100, write_folder(tmp_path / "a", files))
    with pytest.raises(DataError, match="train holds a list instead of a dictionary"):
        read_cifar(CIFAR100, write_folder(tmp_path / "b", {"train": pickle.dumps([1], protocol=2)}))
    with pytest.raises(DataError, match="train is not a readable CIFAR pickle"):
        read_cifar(CIFAR100, write_folder(tmp_path / "c", {"train": b"cut"}))
    empty = {b"data": np.zeros((0, 3072), np.uint8), b"fine_labels": []}
    with pytest.raises(DataError, match="train holds no images"):
        read_cifar(CIFAR100, write_folder(tmp_path / "d", {"train": pickle.dumps(empty, protocol=4)}))


def test_counts_are_held_against_the_description(tmp_path: Path) -> None:
    files = python_files(CIFAR10)
    files["data_batch_3"] = python_files(CIFAR10, count=5)["data_batch_3"]
    with pytest.raises(DataError, match=r"data_batch_3 has 5 images but batches\.meta says 6"):
        read_cifar(CIFAR10, write_folder(tmp_path / "x", files))


@layouts
def test_a_missing_part_is_named(make: Callable[[Cifar], Files], tmp_path: Path) -> None:
    files = make(CIFAR10)
    gone = sorted(files)[1]
    del files[gone]
    with pytest.raises(DataError, match=f"lacks {gone}"):
        read_cifar(CIFAR10, write_archive(tmp_path / "x.tar.gz", files))


@layouts
def test_another_number_of_classes_is_refused(make: Callable[[Cifar], Files], tmp_path: Path) -> None:
    files = make(CIFAR100) | {
        "meta": pickle.dumps({b"fine_label_names": [b"a"] * 20}, protocol=2),
        "fine_label_names.txt": b"a\n" * 20,
    }
    with pytest.raises(DataError, match="names 20 classes instead of 100"):
        read_cifar(CIFAR100, write_folder(tmp_path / "x", files))


def test_binary_of_another_size_or_label_is_refused(tmp_path: Path) -> None:
    content = binary_files(CIFAR100)["train.bin"]
    with pytest.raises(DataError, match=r"train\.bin has 18,443 bytes, which is no multiple of 3,074"):
        read_cifar(CIFAR100, write_folder(tmp_path / "a", {"train.bin": content[:-1]}))
    with pytest.raises(DataError, match=r"train\.bin has the label 200, outside 0 to 99"):
        read_cifar(CIFAR100, write_folder(tmp_path / "b", {"train.bin": b"\x00\xc8" + content[2:]}))
    with pytest.raises(DataError, match=r"train\.bin holds no images"):
        read_cifar(CIFAR100, write_folder(tmp_path / "c", {"train.bin": b""}))


@pytest.mark.parametrize("kept", [0, 1, 10, 200, 5000, -2000, -9, -1])
def test_a_truncated_archive_is_refused(kept: int, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "x.tar.gz", python_files(CIFAR100))
    archive.write_bytes(archive.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"x\.tar\.gz is not a whole \.tar\.gz archive"):
        read_cifar(CIFAR100, archive)


def test_a_damaged_archive_is_refused_by_its_checksum(tmp_path: Path) -> None:
    """Stored without compression, one changed pixel is seen by gzip's checksum alone."""
    archive = write_archive(tmp_path / "x.tar.gz", python_files(CIFAR100))
    content = bytearray(gzip.compress(gzip.decompress(archive.read_bytes()), compresslevel=0))
    content[content.find(pixels(6)[3, 100:200].tobytes())] ^= 1
    archive.write_bytes(content)
    with pytest.raises(DataError, match="not a whole"):
        read_cifar(CIFAR100, archive)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "cifar-100-python.tar.gz"
    for content in (b"<html>" * 1000, gzip.compress(b"hello" * 1000)):
        page.write_bytes(content)
        with pytest.raises(DataError, match="not a whole"):
            read_cifar(CIFAR100, page)


def unsafe(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = "/etc/passwd"
    return member


@pytest.mark.parametrize(
    "extra",
    [unsafe("../train"), unsafe("/train"), unsafe("cifar/x", tarfile.SYMTYPE), unsafe("cifar/x", tarfile.LNKTYPE)],
    ids=["parent", "absolute", "symlink", "hard link"],
)
def test_an_archive_that_reaches_outside_is_refused(extra: tarfile.TarInfo, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "x.tar.gz", python_files(CIFAR100), extra=extra)
    with pytest.raises(DataError, match="unsafe entry") as caught:
        read_cifar(CIFAR100, archive)
    assert repr(extra.name) in caught.value.message


def test_nothing_is_extracted(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "x.tar.gz", python_files(CIFAR100))
    read_cifar(CIFAR100, archive)
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar.gz"]


def test_an_absurdly_large_file_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar_files, "MAX_FILE_BYTES", 1000)
    for path in (
        write_archive(tmp_path / "x.tar.gz", python_files(CIFAR100)),
        write_folder(tmp_path / "x", python_files(CIFAR100)),
    ):
        with pytest.raises(DataError, match="more than any file of CIFAR-100"):
            read_cifar(CIFAR100, path)


def test_the_other_data_set_is_recognised(tmp_path: Path) -> None:
    for path in (
        write_archive(tmp_path / "x.tar.gz", python_files(CIFAR10)),
        write_folder(tmp_path / "y", binary_files(CIFAR10)),
    ):
        with pytest.raises(DataError, match=r"holds CIFAR-10, not CIFAR-100\.") as caught:
            read_cifar(CIFAR100, path)
        assert caught.value.hint == "Try --dataset cifar10."


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="missing does not exist"):
        read_cifar(CIFAR100, tmp_path / "missing")
    with pytest.raises(DataError, match=r"is empty; cifar-100-python\.tar\.gz or train was expected"):
        read_cifar(CIFAR100, tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError, match="holds no CIFAR-100"):
        read_cifar(CIFAR100, tmp_path)
