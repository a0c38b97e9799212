"""The guards of conftest.py guard."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest

from tests.conftest import SURPRISES, Expect


def test_an_unannounced_warning_is_a_surprise_and_an_announced_one_is_not(expect: Expect) -> None:
    logging.getLogger("helix_desktop.somewhere").warning("the roof is open")
    assert SURPRISES.unexpected() == ["WARNING helix_desktop.somewhere: the roof is open"]
    expect("roof is open")
    assert SURPRISES.unexpected() == []


def test_an_announced_warning_that_never_came_is_missed(expect: Expect) -> None:
    expect("roof is open", may_be_missing=True)
    assert SURPRISES.unheard() == []
    expect("door is shut")
    assert SURPRISES.unheard() == ["door is shut"]
    logging.getLogger("helix_desktop.somewhere").warning("the door is shut")
    assert SURPRISES.unheard() == []


def test_other_machines_are_out_of_reach_and_this_one_is_not() -> None:
    with pytest.raises(ConnectionRefusedError, match="tried to reach"):
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    with pytest.raises(ConnectionRefusedError, match="tried to reach"):
        socket.getaddrinfo("example.org", 80)
    assert len(SURPRISES.reached) == 2
    SURPRISES.reached.clear()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
    ):
        pass


def test_each_test_has_a_home_of_its_own(tmp_path: Path) -> None:
    assert Path(os.environ["HELIX_HOME"]).is_relative_to(tmp_path)
