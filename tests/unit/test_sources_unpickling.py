"""A stranger's pickle gives arrays or an error, and never runs anything."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfpipe.engine.sources.unpickling import unpickle_arrays


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_lists_and_bytes_survive(protocol: int) -> None:
    value = {b"data": np.arange(12, dtype=np.uint8).reshape(3, 4), b"labels": [1, 2, 3], b"name": b"caf\xe9"}
    read = unpickle_arrays(pickle.dumps(value, protocol=protocol))
    assert read.keys() == value.keys()
    np.testing.assert_array_equal(read[b"data"], value[b"data"])
    assert read[b"data"].dtype == np.uint8
    assert read[b"labels"] == value[b"labels"]
    assert read[b"name"] == value[b"name"]


def test_numpy_1_and_python_2_spellings_are_read() -> None:
    """The official archives name `numpy.core` and hold Python 2's byte strings."""
    content = pickle.dumps({b"data": np.arange(3, dtype=np.uint8)}, protocol=2)
    old = content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert b"numpy.core.multiarray" in old
    np.testing.assert_array_equal(unpickle_arrays(old)[b"data"], np.arange(3))
    assert unpickle_arrays(b"\x80\x02U\x03abc.") == b"abc"  # SHORT_BINSTRING


class Call:
    """Pickles as a call of ``function(*arguments)``."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_call_is_refused_by_name_and_not_made(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "ran"
    content = pickle.dumps(Call(os.mkdir, str(marker)), protocol=protocol)
    pickle.loads(content)  # this is what it would do
    marker.rmdir()
    with pytest.raises(ValueError, match=r"run (posix|nt)\.mkdir"):
        unpickle_arrays(content)
    assert not marker.exists()


@pytest.mark.parametrize("function", [eval, getattr, np.load, np.lib.format.open_memmap, __import__])
def test_only_what_rebuilds_an_array_is_allowed(function: Any) -> None:
    with pytest.raises(ValueError, match="wants to run"):
        unpickle_arrays(pickle.dumps(Call(function, "x"), protocol=2))


def test_no_codec_but_latin1_is_run() -> None:
    with pytest.raises(ValueError, match="rot13"):
        unpickle_arrays(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.")


@pytest.mark.parametrize("content", [b"", b"\x80\x02", b"<html>", b"\x80\x04" + bytes(range(256)), b"\xff" * 64])
def test_what_is_no_pickle_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        unpickle_arrays(content)
