"""The resident as wraps and windows meet it: real processes, real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from helix_desktop import program_folders
from helix_desktop.gateway import address_in_agent_settings, gateway_socket, wrapped_agent
from helix_desktop.gateway.known_agents import KNOWN_AGENTS
from helix_desktop.resident import gateway_keeper, resident_client, resident_process
from helix_desktop.resident.gateway_keeper import GatewayKeeper
from helix_desktop.resident.page_keeper import PageKeeper
from helix_desktop.resident.schedule_keeper import ScheduleKeeper
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.gateway.running import Agent, wrapped
from tests.peers.agent_provider import Asked, Block, Provider, Says


def _script(_: Asked) -> Sequence[Block]:
    return [Says("fine")]


def status(home: Path) -> dict[str, Any]:
    found = asyncio.run(
        resident_client.ask_resident(program_folders.find_program_folders(home), "status")
    )
    assert found is not None
    return found


def wait_until(done: Any, seconds: float = 100.0) -> None:
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
    except (FileNotFoundError, ProcessLookupError):  # It may end between opening and reading.
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
            assert urlsplit(one.addresses[0]).port == urlsplit(other.addresses[0]).port
            pids = status(tmp_path)["pid"], status(tmp_path)["gateway"]
            said(one.addresses[0], "mine", "a")
            said(other.addresses[0], "theirs", "b")
            assert [b"mine" in asked.raw for asked in provider.asked] == [True]
            assert [b"theirs" in asked.raw for asked in elsewhere.asked] == [True]
            figures = [
                (wrapped_agent.fetch_gateway_status(held.addresses[0], 100) or {})["figures"]
                for held in (one, other)
            ]
            assert [[each["requests"] for each in found] for found in figures] == [[1], [1]]
            assert figures[0][0]["conversation"] != figures[1][0]["conversation"]
            first.close()
            assert httpx.get(f"{one.addresses[0]}/v1/models", timeout=100).status_code == 403
            said(other.addresses[0], "still there", "b")
            assert (status(tmp_path)["pid"], status(tmp_path)["gateway"]) == pids
    wait_until(lambda: all(map(is_gone, pids)))
    assert wrapped_agent.fetch_gateway_status(other.addresses[0]) is None


def test_a_wrap_that_starts_while_the_last_resident_is_ending_gets_the_next_one(
    tmp_path: Path, provider: Provider
) -> None:
    for words in ("one", "two"):
        with wrapped(tmp_path, provider.url) as held:
            said(held.addresses[0], words, "a")
    assert len(provider.asked) == 2


def test_a_killed_gateway_is_back_at_its_address_and_nobody_else_gets_the_port_meanwhile(
    tmp_path: Path, provider: Provider
) -> None:
    with wrapped(tmp_path, provider.url, since=1.0) as held:
        said(held.addresses[0], "one", "a")
        pid = status(tmp_path)["gateway"]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(Exception, match="already in use"):
            gateway_socket.listen_on_loopback(urlsplit(held.addresses[0]).port or 0)
        told = wrapped_agent.fetch_gateway_status(held.addresses[0], patience_seconds=100)
        assert [one["requests"] for one in (told or {})["figures"]] == [
            1
        ]  # what the wrap says at its end is still true
        said(held.addresses[0], "two", "a")
        assert len(provider.asked) == 2
        assert status(tmp_path)["gateway"] != pid


def test_when_the_resident_is_killed_its_gateway_ends_and_the_wrap_goes_on_at_the_same_address(
    tmp_path: Path, provider: Provider
) -> None:
    with wrapped(tmp_path, provider.url) as held:
        told = status(tmp_path)
        os.kill(told["pid"], signal.SIGKILL)
        while not is_gone(
            told["gateway"]
        ):  # nobody gets the port that is free now, to which the agent sends its key
            with pytest.raises(OSError, match="in use"):
                socket.create_server(("127.0.0.1", told["port"]))
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", told["port"]))
        wait_until(lambda: wrapped_agent.fetch_gateway_status(held.addresses[0]) is not None)
        said(held.addresses[0], "goes on", "a")
        assert b"goes on" in provider.asked[-1].raw


def test_a_wrap_at_another_port_than_the_usual_one_goes_on_there_when_the_resident_is_killed(
    tmp_path: Path, provider: Provider
) -> None:
    with socket.socket() as usual:
        with suppress(OSError):  # Another trial's gateway may have it: that is as good.
            usual.bind(("127.0.0.1", gateway_socket.GATEWAY_PORT))
        with wrapped(tmp_path, provider.url) as held:
            usual.close()
            told = status(tmp_path)
            os.kill(told["pid"], signal.SIGKILL)
            wait_until(
                lambda: is_gone(told["gateway"])
            )  # Until then it answers, though it is ending.
            wait_until(lambda: wrapped_agent.fetch_gateway_status(held.addresses[0]) is not None)
            said(held.addresses[0], "goes on", "a")
    assert b"goes on" in provider.asked[-1].raw


@pytest.mark.skipif(not gateway_socket.CAN_RESERVE_PORTS, reason="a port cannot be kept here")
def test_a_port_kept_for_the_agents_of_one_home_is_not_given_to_the_gateway_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another port stands for the usual one, which a gateway of the user's own may hold
    while the tests run.
    """
    with gateway_socket.listen_on_loopback(0) as listener:
        usual = listener.getsockname()[1]
        reserved = gateway_socket.reserve_port_beside_listener(usual)
    assert reserved is not None
    monkeypatch.setattr(gateway_keeper, "GATEWAY_PORT", usual)
    with reserved:
        for port, is_given in ((0, False), (usual, True)):
            keeper = GatewayKeeper([sys.executable, "-I", "-c", "import sys; sys.stdin.read()"])
            keeper.start_first_gateway(port)
            keeper.stop_gateway_process()
            assert (keeper.port == usual) is is_given


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_resident_that_is_told_to_end_leaves_nothing_behind(
    tmp_path: Path, provider: Provider, number: signal.Signals
) -> None:
    with wrapped(tmp_path, provider.url) as held:
        said(held.addresses[0], "hello", "a")  # so that a workspace is open
        told = status(tmp_path)
        os.kill(told["pid"], number)
        wait_until(lambda: is_gone(told["pid"]) and is_gone(told["gateway"]))
        wait_until(lambda: not held.is_held)
    assert (
        sorted(
            file.name
            for file in program_folders.find_program_folders(tmp_path).run.iterdir()
            if file.suffix != ".lock"
        )
        == []
    )


def test_an_address_in_an_agents_settings_keeps_the_resident_and_its_port(
    tmp_path: Path, provider: Provider
) -> None:
    where = program_folders.find_program_folders(tmp_path)
    with wrapped(tmp_path, provider.url):
        port = status(tmp_path)["port"]
        change = address_in_agent_settings.plan_address_install(
            KNOWN_AGENTS["claude"], port, tmp_path / "user", {}
        )
        address_in_agent_settings.install_address(change, where.config)
        asyncio.run(resident_client.ask_resident(where, "installed"))
        assert status(tmp_path)["installed"] == ["claude"]
    told = status(tmp_path)  # nobody is registered any more
    url = json.loads(change.file.read_text("utf-8"))["env"]["ANTHROPIC_BASE_URL"]
    wait_until(
        lambda: wrapped_agent.fetch_gateway_status(url, 100) == {"figures": []}
    )  # once the gateway has heard of it
    asyncio.run(resident_client.ask_resident(where, "stop"))
    wait_until(lambda: is_gone(told["pid"]))
    with socket.create_server(("127.0.0.1", port)) as squatter:
        found = asyncio.run(
            resident_client.ask_resident(
                where, "status", command=wrapped_agent.command_of_this_program(where)
            )
        )
        assert found is not None
        assert "Claude Code" in found["trouble"]
        assert not change.file.exists()  # the address was taken out: its holder is another now
        squatter.settimeout(0)
        with pytest.raises(BlockingIOError):
            squatter.accept()


# A gateway that hears of an address only when somebody has asked in vain, as it may on
# a busy machine.
SLOW_TO_HEAR = """
import os, sys, threading
from helix_desktop.gateway import registration
asked, replace_all = threading.Event(), registration.GatewayRegistrations.replace_all
find_by_token = registration.GatewayRegistrations.find_by_token
def find(self, token):
    found = find_by_token(self, token)
    asked.set()
    return found
def replace(self, registrations):
    if (known := list(registrations)) and threading.current_thread() is not threading.main_thread():
        asked.wait(100)
    replace_all(self, known)
registration.GatewayRegistrations.find_by_token = find
registration.GatewayRegistrations.replace_all = replace
from helix_desktop import cli
os._exit(cli.main(sys.argv[1:]))
"""


class AskingAtOnce(resident_client.CollectingConsole):
    """Uses the address that the resident gives out in the same moment."""

    def __init__(self, resident: resident_process.Resident) -> None:
        super().__init__()
        self.statuses: list[int] = []
        self._resident = resident

    async def print_line(self, text: str) -> None:
        async with httpx.AsyncClient(timeout=100) as client:
            for address in json.loads(text)["addresses"]:
                self.statuses.append((await client.get(f"{address}/.helix/status")).status_code)
        self._resident.ended.set()


async def test_an_address_is_given_out_when_the_gateway_answers_it(tmp_path: Path) -> None:
    where = program_folders.find_program_folders(tmp_path)
    command = [sys.executable, "-I", "-c", SLOW_TO_HEAR, "--home", str(tmp_path), "gateway"]
    resident = resident_process.Resident(
        where, GatewayKeeper(command), ScheduleKeeper(where.data, []), PageKeeper([])
    )
    try:
        await resident.answer_resident_request(["hold"], resident_client.CollectingConsole())
        asking = AskingAtOnce(resident)
        await resident.answer_resident_request(["register", "{}"], asking)
        assert asking.statuses == [200]
    finally:
        await resident.aclose()


def test_the_workspaces_of_other_registrations_are_not_reached_by_a_path(
    tmp_path: Path, provider: Provider
) -> None:
    AllWorkspaces(
        program_folders.find_program_folders(tmp_path).workspaces_folder
    ).create_stored_workspace("Secret")
    with wrapped(tmp_path, provider.url, workspace="Mine") as held:
        said(f"{held.addresses[0]}/w/Secret", "hello", "a")
        assert b"hello" in provider.asked[-1].raw
        told = wrapped_agent.fetch_gateway_status(held.addresses[0], 100)
        assert told is not None
        unread = told.pop("unread")
        assert told == {"figures": [], "unrecorded": "There is no workspace Mine."}, (
            "none else is taken"
        )
        assert unread["requests"] == 1
