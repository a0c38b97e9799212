from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from helix_desktop.errors import InvalidInput
from helix_desktop.gateway.gateway_socket import CAN_RESERVE_PORTS, listen_on_loopback, reserve_port

pytestmark = pytest.mark.skipif(not CAN_RESERVE_PORTS, reason="ports are reserved on Linux alone")
SQUATTER = """
import os, socket, sys
os.setuid(65534)
with socket.socket() as squatter:
    squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    squatter.bind(("127.0.0.1", int(sys.argv[1])))
"""


def test_a_port_at_which_somebody_listens_is_refused() -> None:
    with listen_on_loopback(0) as held, pytest.raises(InvalidInput, match="already in use"):
        listen_on_loopback(held.getsockname()[1])


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can try as another user")
def test_another_user_does_not_get_a_reserved_port_when_its_listener_is_gone() -> None:
    with listen_on_loopback(0) as first:
        port = first.getsockname()[1]
        reserved = reserve_port(port)
    assert reserved is not None
    squat = [sys.executable, "-I", "-c", SQUATTER, str(port)]
    with reserved:
        refused = subprocess.run(squat, capture_output=True, check=False)
        assert b"Address already in use" in refused.stderr
        with listen_on_loopback(port) as again, socket.create_connection(("127.0.0.1", port), timeout=20):
            again.accept()[0].close()
    assert subprocess.run(squat, capture_output=True, check=False).returncode == 0


def test_a_reserved_port_takes_no_connection_from_its_listener() -> None:
    with listen_on_loopback(0) as listener:
        port = listener.getsockname()[1]
        with reserve_port(port) as reserved:  # type: ignore[union-attr]
            for _ in range(50):
                with socket.create_connection(("127.0.0.1", port), timeout=20):
                    listener.accept()[0].close()
            with pytest.raises(OSError, match="Invalid argument"):
                reserved.accept()
