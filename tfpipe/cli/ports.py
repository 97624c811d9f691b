"""Whether a port of localhost can be listened on."""

from __future__ import annotations

import socket
import sys

# How many ports after the wanted one are tried.
TRIES = 100
HIGHEST_PORT = 65535


def is_free(port: int) -> bool:
    """Whether a server could bind ``port`` on localhost now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if sys.platform != "win32":
            # As servers do: a port whose last connection is just closing is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(first: int) -> int | None:
    """The lowest free port from ``first`` on; None where a hundred are taken or there are no more."""
    return next((port for port in range(first, min(first + TRIES, HIGHEST_PORT + 1)) if is_free(port)), None)
