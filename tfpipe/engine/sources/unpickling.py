"""Reading pickles of arrays from a stranger's file without running what they carry."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np


def unpickle_arrays(content: bytes) -> Any:
    """The plain containers, bytes, numbers and numpy arrays pickled in ``content``; text of Python 2 stays bytes.

    Raises:
        ValueError: it is not a whole pickle, or names a function or class outside the few that rebuild an array.
    """
    try:
        return _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:
        # A damaged pickle can fail in any of its instructions, with nearly any exception type.
        raise ValueError(str(error) or type(error).__name__) from None


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # numpy 1 wrote numpy.core, numpy 2 writes numpy._core; both mean the same function.
        allowed = _ALLOWED.get((module.replace("numpy._core.", "numpy.core."), name))
        if allowed is None:
            raise pickle.UnpicklingError(f"it wants to run {module}.{name}, which no array needs")
        return allowed


def _encode(text: str, encoding: str) -> bytes:
    """How a pickle of protocol 2 spells bytes; any other codec would be a way to run decompressors."""
    if encoding != "latin1":
        raise ValueError(f"bytes are spelled in {encoding!r} instead of latin1")
    return text.encode("latin1")


# numpy's own rebuilding functions, taken from what it writes itself, so that no private path is imported.
_PROBE = np.zeros(1, dtype=np.uint8)
_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _PROBE.__reduce_ex__(2)[0],  # type: ignore[dict-item]
    ("numpy.core.numeric", "_frombuffer"): _PROBE.__reduce_ex__(5)[0],  # type: ignore[dict-item]
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}
