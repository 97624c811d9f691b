"""A worker without TensorFlow, run as a process: answers like the machine of ``machine.py``, or misbehaves.

``python -m tests.unit.fake_worker MODE READ_FD WRITE_FD DIRECTORY``; MODE is ``good``, or what to do when candidate
``map-batch-prefetch1`` is measured: ``abort``, ``exit``, ``hang``, ``close``, ``grow``; ``slow`` takes a moment.
"""

from __future__ import annotations

import os
import shutil
import sys
import time

from tests.unit.machine import FakeMachine
from tfpipe import messages
from tfpipe.messages import MeasureStep, Progress

WAITS = {"map-batch": 0.032, "map-batch-prefetch1": 0.0, "map-batch-prefetch2": 0.0}


def main() -> None:
    mode, read_fd, write_fd = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    machine = FakeMachine(fetch_s=WAITS)
    with os.fdopen(read_fd, "rb") as requests, os.fdopen(write_fd, "wb", buffering=0) as replies:
        for line in requests:
            request = messages.decode_request(line)
            if isinstance(request, MeasureStep) and request.settings.id == "map-batch-prefetch1":
                misbehave(mode, replies)
            replies.write(messages.encode(Progress(text="working")) + b"\n")
            replies.write(messages.encode(machine.execute(request)) + b"\n")
    shutil.rmtree(sys.argv[4], ignore_errors=True)


def misbehave(mode: str, replies) -> None:
    if mode == "abort":
        os.abort()
    if mode == "exit":
        os._exit(7)
    if mode == "hang":
        time.sleep(600)
    if mode == "close":
        replies.close()
        time.sleep(600)
    if mode == "grow":
        hoard = bytearray(300 * 2**20)
        time.sleep(600)
        del hoard
    if mode == "slow":
        time.sleep(0.002)


if __name__ == "__main__":
    main()
