"""The resident as wraps and windows meet it: real processes, real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from helix_desktop import program_folders
from helix_desktop.gateway import agent_run, agent_settings, gateway_socket
from helix_desktop.gateway.known_agents import KNOWN_AGENTS
from helix_desktop.resident import resident_client
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.gateway.running import Agent, wrapped
from tests.peers.agent_provider import Asked, Block, Provider, Says


def _script(_: Asked) -> Sequence[Block]:
    return [Says("fine")]


def status(home: Path) -> dict[str, Any]:
    found = asyncio.run(resident_client.ask_resident(program_folders.find_program_folders(home), "status"))
    assert found is not None
    return found


def wait_until(done: Any, seconds: float = 20.0) -> None:
    """Until something that another process does is done."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if done():
            return
        pause.wait(0.05)
    raise AssertionError("it was not done in time")


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider(_script) as provider:
        yield provider


def said(url: str, words: str, session: str) -> None:
    agent = Agent("anthropic", url, session=session)
    agent.say(words)
    agent.ask()


def test_two_wraps_inherit_nothing_and_the_second_goes_on_when_the_first_ends(
    tmp_path: Path, provider: Provider
) -> None:
    with Provider(_script) as elsewhere, ExitStack() as first:
        one = first.enter_context(wrapped(tmp_path, provider.url, agent="claude"))
        with wrapped(tmp_path, elsewhere.url, agent="codex") as other:
            assert urlsplit(one.first_address).port == urlsplit(other.first_address).port
            pids = status(tmp_path)["pid"], status(tmp_path)["gateway"]
            said(one.first_address, "mine", "a")
            said(other.first_address, "theirs", "b")
            assert [b"mine" in asked.raw for asked in provider.asked] == [True]
            assert [b"theirs" in asked.raw for asked in elsewhere.asked] == [True]
            figures = [(agent_run.fetch_gateway_status(held.first_address) or {})["figures"] for held in (one, other)]
            assert [[each["requests"] for each in found] for found in figures] == [[1], [1]]
            assert figures[0][0]["conversation"] != figures[1][0]["conversation"]
            first.close()
            assert httpx.get(f"{one.first_address}/v1/models", timeout=20).status_code == 403
            said(other.first_address, "still there", "b")
            assert (status(tmp_path)["pid"], status(tmp_path)["gateway"]) == pids
    wait_until(lambda: all(map(is_gone, pids)))
    assert agent_run.fetch_gateway_status(other.first_address) is None


def test_a_wrap_that_starts_while_the_last_resident_is_ending_gets_the_next_one(
    tmp_path: Path, provider: Provider
) -> None:
    for words in ("one", "two"):
        with wrapped(tmp_path, provider.url) as held:
            said(held.first_address, words, "a")
    assert len(provider.asked) == 2


def test_a_killed_gateway_is_back_at_its_address_and_nobody_else_gets_the_port_meanwhile(
    tmp_path: Path, provider: Provider
) -> None:
    with wrapped(tmp_path, provider.url) as held:
        said(held.first_address, "one", "a")
        pid = status(tmp_path)["gateway"]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(Exception, match="already in use"):
            gateway_socket.listen_on_loopback(urlsplit(held.first_address).port or 0)
        said(held.first_address, "two", "a")
        assert len(provider.asked) == 2
        assert status(tmp_path)["gateway"] != pid


def test_when_the_resident_is_killed_its_gateway_ends_and_the_wrap_goes_on_at_the_same_address(
    tmp_path: Path, provider: Provider
) -> None:
    with wrapped(tmp_path, provider.url) as held:
        told = status(tmp_path)
        os.kill(told["pid"], signal.SIGKILL)
        while not is_gone(told["gateway"]):  # nobody gets the port that is free now, to which the agent sends its key
            with pytest.raises(OSError, match="in use"):
                socket.create_server(("127.0.0.1", told["port"]))
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", told["port"]))
        wait_until(lambda: agent_run.fetch_gateway_status(held.first_address) is not None)
        said(held.first_address, "goes on", "a")
        assert b"goes on" in provider.asked[-1].raw


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_resident_that_is_told_to_end_leaves_nothing_behind(
    tmp_path: Path, provider: Provider, number: signal.Signals
) -> None:
    with wrapped(tmp_path, provider.url) as held:
        said(held.first_address, "hello", "a")  # so that a workspace is open
        told = status(tmp_path)
        os.kill(told["pid"], number)
        wait_until(lambda: is_gone(told["pid"]) and is_gone(told["gateway"]))
        wait_until(lambda: not held.is_held)
    assert (
        sorted(
            file.name for file in program_folders.find_program_folders(tmp_path).run.iterdir() if file.suffix != ".lock"
        )
        == []
    )


def test_an_address_in_an_agents_settings_keeps_the_resident_and_its_port(tmp_path: Path, provider: Provider) -> None:
    where = program_folders.find_program_folders(tmp_path)
    with wrapped(tmp_path, provider.url):
        port = status(tmp_path)["port"]
        change = agent_settings.plan_address_install(KNOWN_AGENTS["claude"], port, tmp_path / "user", {})
        agent_settings.install_address(change, where.config)
        asyncio.run(resident_client.ask_resident(where, "installed"))
        assert status(tmp_path)["installed"] == ["claude"]
    told = status(tmp_path)  # nobody is registered any more
    url = json.loads(change.file.read_text("utf-8"))["env"]["ANTHROPIC_BASE_URL"]
    assert agent_run.fetch_gateway_status(url) == {"figures": []}
    asyncio.run(resident_client.ask_resident(where, "stop"))
    wait_until(lambda: is_gone(told["pid"]))
    with socket.create_server(("127.0.0.1", port)) as squatter:
        found = asyncio.run(
            resident_client.ask_resident(where, "status", command=agent_run.command_of_this_program(where))
        )
        assert found is not None
        assert "Claude Code" in found["trouble"]
        assert not change.file.exists()  # the address was taken out: its holder is another now
        squatter.settimeout(0)
        with pytest.raises(BlockingIOError):
            squatter.accept()


def test_the_workspaces_of_other_registrations_are_not_reached_by_a_path(tmp_path: Path, provider: Provider) -> None:
    AllWorkspaces(program_folders.find_program_folders(tmp_path).workspaces_folder).create_stored_workspace("Secret")
    with wrapped(tmp_path, provider.url, workspace="Mine") as held:
        said(f"{held.first_address}/w/Secret", "hello", "a")
        assert b"hello" in provider.asked[-1].raw
        assert agent_run.fetch_gateway_status(held.first_address) == {
            "figures": []
        }  # there is no workspace Mine, and none else is taken
