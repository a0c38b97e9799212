from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from threading import Barrier

import pytest

from helix_desktop import concurrency
from helix_desktop.errors import InvalidInput
from helix_desktop.gateway.gateway_socket import (
    CAN_RESERVE_PORTS,
    agent_address,
    listen_on_loopback,
    reserve_port_beside_listener,
)

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


def test_of_two_that_start_at_once_only_one_listens() -> None:
    counts = set()
    for _ in range(50):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        together = Barrier(2)

        def listen(_: int, port: int = port, together: Barrier = together) -> socket.socket | None:
            together.wait(60)
            with suppress(InvalidInput):
                return listen_on_loopback(port)
            return None

        with concurrency.create_thread_pool("listen", threads=2) as threads:
            listening = [found for found in threads.map(listen, range(2)) if found is not None]
        for each in listening:
            each.close()
        counts.add(len(listening))
    assert max(counts) == 1  # 0 where another program got the port meanwhile.


def test_a_reserved_port_is_refused_to_who_does_not_know_that_it_is_reserved() -> None:
    with listen_on_loopback(0) as first:
        port = first.getsockname()[1]
        reserved = reserve_port_beside_listener(port)
    assert reserved is not None
    with reserved, pytest.raises(InvalidInput, match="already in use"):
        listen_on_loopback(port)


@pytest.mark.skipif(
    os.name != "posix" or os.getuid() != 0, reason="only root can try as another user"
)
def test_another_user_does_not_get_a_reserved_port_when_its_listener_is_gone() -> None:
    with listen_on_loopback(0) as first:
        port = first.getsockname()[1]
        reserved = reserve_port_beside_listener(port)
    assert reserved is not None
    squat = [sys.executable, "-I", "-c", SQUATTER, str(port)]
    with reserved:
        refused = subprocess.run(squat, capture_output=True, check=False)
        assert b"Address already in use" in refused.stderr
        with (
            listen_on_loopback(port, is_reserved=True) as again,
            socket.create_connection(("127.0.0.1", port), timeout=20),
        ):
            again.accept()[0].close()
    assert subprocess.run(squat, capture_output=True, check=False).returncode == 0


def test_a_reserved_port_takes_no_connection_from_its_listener() -> None:
    with listen_on_loopback(0) as listener:
        port = listener.getsockname()[1]
        with reserve_port_beside_listener(port) as reserved:  # type: ignore[union-attr]
            for _ in range(50):
                with socket.create_connection(("127.0.0.1", port), timeout=20):
                    listener.accept()[0].close()
            with pytest.raises(OSError, match="Invalid argument"):
                reserved.accept()


def test_a_port_that_is_anothers_is_not_reserved_and_an_address_has_port_and_token() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert reserve_port_beside_listener(other.getsockname()[1]) is None
    assert agent_address(4356, "token") == "http://127.0.0.1:4356/t/token"


def test_an_address_can_be_listened_at_again_at_once_also_where_connections_were_ended_from_here() -> (
    None
):
    first = listen_on_loopback(0)
    port = first.getsockname()[1]
    with first, socket.create_connection(("127.0.0.1", port)) as client:
        served, _ = first.accept()
        # The end that closes first waits for late packets for a minute, and holds the
        # address.
        served.close()
        assert client.recv(1) == b""
    with listen_on_loopback(port) as again:
        assert again.getsockname()[1] == port
