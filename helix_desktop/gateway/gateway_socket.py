"""Opens the gateway's listening socket, only on this machine."""

import errno
import os
import socket
import sys

from helix_desktop.errors import InvalidInput

GATEWAY_PORT = 4356
BACKLOG = 256
CAN_RESERVE_PORTS = sys.platform == "linux"


def listen_on_loopback(port: int, *, is_reserved: bool = False) -> socket.socket:
    """Listen on this port, or any for 0. `is_reserved`: processes of this home may reserve it."""
    # asyncio sends small packets without delay only on sockets that name their protocol as TCP.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    is_shared = CAN_RESERVE_PORTS and is_reserved
    try:
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", port))
        if is_shared:
            _check_nobody_listens(port)
        listener.listen(BACKLOG)
        if CAN_RESERVE_PORTS:
            # Needed by `reserve_port_beside_listener`. Set any earlier, it would let a
            # second process listen on the port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as error:
        listener.close()
        raise InvalidInput(
            f"Port {port} is already in use: {error.strerror}.",
            remedy="Choose another port with --port, or 0 for any free port.",
        ) from error
    return listener


def reserve_port_beside_listener(port: int) -> socket.socket | None:
    """Reserve the port for this user while the socket is open, even if the process
    listening there is killed: agents with the address would send keys to whoever takes
    it. It does not listen, so no connection comes here. Linux lets only the same user
    bind further sockets to it. None elsewhere, or if it is taken.
    """
    if not CAN_RESERVE_PORTS:
        return None
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        reservation.bind(("127.0.0.1", port))
    except OSError:
        reservation.close()
        return None
    return reservation


def _check_nobody_listens(port: int) -> None:
    """Raise OSError if another process of this user listens there, which the kernel would allow."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def agent_address(port: int, token: str) -> str:
    """Return the address that an agent is given, with the token that lets its requests in."""
    return f"http://127.0.0.1:{port}/t/{token}"
