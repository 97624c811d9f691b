"""The worker process: reads requests from one pipe, answers on another, until the first is closed.

Started as ``python -m tfpipe.engine.worker READ_FD WRITE_FD DIRECTORY``. Standard output is turned into standard error,
so that nothing a library or user code prints can mix with results. Generated files go into the directory, which whoever
ends last removes.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import threading
import time

from tfpipe import messages
from tfpipe.engine.handler import Handler
from tfpipe.engine.housekeeping import generated_code_in
from tfpipe.messages import Line

# Once a second costs nothing that a measurement could see.
ORPHAN_CHECK_S = 1.0


def main() -> None:
    read_fd, write_fd, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.dup2(2, 1)
    replies = os.fdopen(write_fd, "wb", buffering=0)

    def send(line: Line) -> None:
        replies.write(messages.encode(line) + b"\n")

    threading.Thread(target=_end_with_parent, args=(os.getppid(), directory), daemon=True).start()
    handle = Handler(send)
    with os.fdopen(read_fd, "rb") as requests, generated_code_in(directory):
        for text in requests:
            send(handle(messages.decode_request(text)))
            # An iterator that lives on keeps its threads and buffers; the next block must not meet them.
            gc.collect()
    # The pipe also closes when the parent was killed, which then removes nothing.
    shutil.rmtree(directory, ignore_errors=True)
    # Not sys.exit: a thread of user code inside a map function can keep the interpreter from ever ending.
    sys.stderr.flush()
    os._exit(0)


def _end_with_parent(parent: int, directory: str) -> None:
    """End this process when the parent is gone, however it ended and whatever is being measured."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_CHECK_S)
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main()
