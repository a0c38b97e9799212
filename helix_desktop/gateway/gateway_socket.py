"""Where the gateway listens: on this machine alone."""

from __future__ import annotations

import socket

from helix_desktop.errors import InvalidInput

GATEWAY_PORT = 4356
BACKLOG = 256


def listen_on_loopback(port: int) -> socket.socket:
    """A socket of this machine alone; 0: on any port. WrongUse where the port is taken."""
    # named as TCP: asyncio sends small pieces at once only where the socket says so
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise InvalidInput(
            f"Port {port} is already in use: {error.strerror}.",
            remedy="Choose another port with --port, or 0 for any free port.",
        ) from error
    return found


def agent_address(port: int, token: str) -> str:
    """Where the agent that has this token sends its requests."""
    return f"http://127.0.0.1:{port}/t/{token}"
