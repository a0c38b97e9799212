"""Who may come in."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from helix_desktop.gateway import door


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel is asked on Linux")
def test_the_kernel_and_its_tables_say_the_same_of_who_asks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        peer, here = client.getsockname(), server.getsockname()
        assert door._asked(peer, here) == door._listed(peer, here) == os.getuid()
        assert door.refusal({"host": "127.0.0.1"}, peer, here, "token", "") == ""
    assert door._asked(("127.0.0.1", 1), here) is None


@pytest.mark.parametrize(
    "headers", [{"host": "page.example"}, {"host": "127.0.0.1", "origin": "https://page.example"}, {}]
)
def test_another_host_and_a_page_are_refused(headers: dict[str, str]) -> None:
    assert door.refusal(headers, ("127.0.0.1", 1), ("127.0.0.1", 2), "token", "token")
