"""Fetching one file over HTTP, whole and checked or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from tfpipe.engine.sources.base import Progress

# No byte for this long means that nobody answers; a slow line still delivers something.
STALL_S = 20.0
_CHUNK_BYTES = 1 << 18


class DownloadError(Exception):
    """The file could not be had; the text says why in a few words."""


def download(url: str, path: Path, *, sha256: str, progress: Progress, stall_s: float = STALL_S) -> None:
    """Put the file at ``url`` into ``path``, which appears only once its checksum has been found right.

    Raises:
        DownloadError: no network, an HTTP error, a stall, a wrong checksum, or no room to write.
    """
    part: Path | None = None
    try:
        with urllib.request.urlopen(url, timeout=stall_s) as response:
            total = int(response.headers.get("Content-Length") or 0) or None
            path.parent.mkdir(parents=True, exist_ok=True)
            # A name of its own, so that two runs that fetch at the same time do not write into one file.
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".part")
            part = Path(name)
            digest, done = hashlib.sha256(), 0
            with os.fdopen(handle, "wb") as file:
                while chunk := response.read(_CHUNK_BYTES):
                    file.write(chunk)
                    digest.update(chunk)
                    done += len(chunk)
                    progress(done, total)
        if digest.hexdigest() != sha256:
            raise DownloadError(f"{done:,} bytes came, but their checksum is wrong")
        part.chmod(0o644)
        os.replace(part, path)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(_reason(error)) from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def _reason(error: OSError | http.client.HTTPException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        error = error.reason if isinstance(error.reason, OSError) else error
    if isinstance(error, TimeoutError):
        return "no answer"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    path = getattr(error, "filename", None)
    return f"{text}: {path}" if path else text
