"""Ports for servers that have to be told theirs before they start."""

from __future__ import annotations

import socket
import sys


def free_port() -> int:
    """One at which nobody listens. On Linux it stays bound as long as this process
    lives, also while the server that is to listen there has not started yet or was
    killed, so that no other process is given it by chance; a server that allows an
    address in use, as nearly all do, can listen there.
    """
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
        if sys.platform == "linux":
            one.detach()
    return port
