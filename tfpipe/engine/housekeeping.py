"""TensorFlow without what it says unasked, and without the files that it leaves behind."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

# AutoGraph writes the code that it generates into files of this name, and counts on the process to end in the regular
# way to remove them (TensorFlow 2.21).
GENERATED_PREFIX = "__autograph_generated_file"
# What TensorFlow 2.21 says on a machine without a GPU, and of oneDNN on some processors, before it can be told to be
# quiet.
_CHATTER = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\)"
    rb"|[IWE]\d{4} .* ((cudart_stub|cuda_platform)\.cc:\d+\]|port\.cc:\d+\] oneDNN)"
)


_directories: list[str] = []
_restore: list[Callable[[], None]] = []


@contextlib.contextmanager
def generated_code_in(directory: str) -> Iterator[None]:
    """Let AutoGraph write its files, and Python their bytecode, into ``directory`` and not among everybody's.

    Whoever made the directory removes it: a process that is killed cannot.
    """
    if not _directories:
        original: Any = tempfile.NamedTemporaryFile

        def redirected(*arguments: Any, **options: Any) -> Any:
            if options.get("prefix") == GENERATED_PREFIX and _directories:
                options["dir"] = _directories[-1]
            return original(*arguments, **options)

        setattr(tempfile, "NamedTemporaryFile", redirected)  # noqa: B010
        _restore.append(lambda: setattr(tempfile, "NamedTemporaryFile", original))
    _directories.append(directory)
    try:
        yield
    finally:
        # Two of them in one process need not end in the reverse order of their beginning.
        _directories.remove(directory)
        if not _directories:
            _restore.pop()()


def temporary_folder() -> str:
    """A new folder for what must not outlive this process, inside the directory of ``generated_code_in``."""
    return tempfile.mkdtemp(prefix="cache-", dir=_directories[-1] if _directories else None)


def import_quietly() -> None:
    """Import TensorFlow; on standard error leave out its remarks on the machine, and nothing else."""
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        standard_error = os.dup(2)
    except OSError:
        # Closed: nobody would read it.
        return
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            import tensorflow

            # Looking for a GPU is what it complains about.
            tensorflow.config.list_physical_devices()
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)
            said.seek(0)
            for line in said:
                if not _CHATTER.match(line):
                    os.write(2, line)
