"""The page as a process: what commands start, what a browser hears, and how it is encrypted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from helix_desktop import cli
from helix_desktop.bounded_http_protocol import MOST_WAITING_CONNECTIONS
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import Text
from helix_desktop.errors import InvalidInput
from helix_desktop.phone_page import page_certificate, page_server
from helix_desktop.phone_page.open_hosts import OpenHosts
from helix_desktop.phone_page.page_guard import COOKIE
from helix_desktop.phone_page.paired_devices import PairedDevices
from helix_desktop.processes.starter import own_program_command
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.program_settings import PAGE_ADDRESS, PAGE_PORT, ProgramSettings
from helix_desktop.workbench import Workbench
from helix_desktop.workspace_host.followed_conversation import FollowedConversation
from helix_desktop.workspace_host.host_connection import connect_to_host
from helix_desktop.workspace_host.host_interface import SendMessage
from tests.peers.ssh_machine import list_kept_hosts

LIMIT = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
async def url(where: ProgramFolders, tmp_path: Path) -> AsyncIterator[str]:
    """The address of a page's process."""
    where.config.mkdir(parents=True, exist_ok=True)
    ProgramSettings(where.settings_file).change_setting(PAGE_PORT, free_port())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "helix_desktop", "--home", str(tmp_path / "home")),
        *("resident", "page", "serve"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    async with asyncio.timeout(LIMIT):
        said = (await process.stdout.readline()).decode().strip()
        yield said.rstrip("/")
        process.stdin.close()  # As if the resident had ended.
        assert await process.wait() == 0


async def heard(lines: AsyncIterator[str], *wanted: str) -> dict[str, Any]:
    """The parts of a page once they have had all of these words."""
    parts: dict[str, Any] = {}
    missing = set(wanted)
    async with asyncio.timeout(LIMIT):
        while missing:
            line = await anext(lines)
            if line.startswith("data: "):
                parts |= json.loads(line.removeprefix("data: "))
                missing -= {words for words in missing if words in json.dumps(parts)}
    return parts


async def test_a_phone_hears_the_conversation_grow_until_it_is_revoked(
    url: str, bench: Workbench, devices: PairedDevices
) -> None:
    device, cookie = devices.pair_device(devices.create_pairing_code(may_allow=True), "Phone")
    session = await bench.start_conversation("Work")
    headers = {"cookie": f"{COOKIE}={cookie}"}
    address = url + device.own_path
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=LIMIT) as phone:
        assert "Work" in (await phone.get("/")).text
        path = f"/w/{bench.id}/c/{session.id}"
        async with phone.stream("GET", f"{path}/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.aiter_lines()
            await heard(lines, "Work")
            session.send_message((Text("read README.md"),))
            await heard(lines, "read README.md", "1 call", "article")
            await session.wait_until_idle()
            session.send_message((Text("write b.txt: text"),))
            parts = await heard(lines, "Allow once")
            assert "Create b.txt" in parts["questions"]
            session.stop_turn()
            await session.wait_until_idle()
            devices.revoke_device(device.id)
            async with asyncio.timeout(LIMIT):
                async for line in lines:  # It ends.
                    assert "data" not in line or "Stopped" in line or "head" in line
        assert (await phone.get(path)).status_code == 401


async def test_a_workspace_that_a_window_has_open_is_not_opened_twice(
    url: str, bench: Workbench, devices: PairedDevices
) -> None:
    await bench.start_conversation("From yesterday")
    device, cookie = devices.pair_device(devices.create_pairing_code(may_allow=True), "Phone")
    headers = {"cookie": f"{COOKIE}={cookie}", "origin": url}
    address = url + device.own_path
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=LIMIT) as phone:
        opened = await phone.post(f"/w/{bench.id}/open", data={"token": device.form_token})
        assert opened.status_code == 303
        assert "From yesterday" in (await phone.get("/")).text


@pytest.fixture
def no_window(tmp_path: Path, folder: Path) -> str:
    home = str(tmp_path / "home")
    assert cli.main(["--home", home, "workspace", "new", "Pairs", "--folder", str(folder)]) == 0
    assert cli.main(["--home", home, "model", "set", "-w", "Pairs", "demo/demo"]) == 0
    assert cli.main(["--home", home, "ask", "-w", "Pairs", "hello"]) == 0
    return "Pairs"


async def test_without_a_window_a_process_of_its_own_opens_a_workspace(
    no_window: str, url: str, devices: PairedDevices, where: ProgramFolders
) -> None:
    device, cookie = devices.pair_device(devices.create_pairing_code(may_allow=True), "Phone")
    headers = {"cookie": f"{COOKIE}={cookie}", "origin": url}
    address = url + device.own_path
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=LIMIT) as phone:
        page = (await phone.get("/")).text
        assert "not open" in page
        workspace = page[page.index("/w/") + 3 :].partition("/")[0]
        opened = await phone.post(f"/w/{workspace}/open", data={"token": device.form_token})
        assert opened.status_code == 303
        page = (await phone.get("/")).text
        assert "hello" in page
        assert no_window in page
    for pid in list_kept_hosts(where.data):
        os.kill(pid, signal.SIGKILL)


async def test_an_agent_goes_on_when_the_page_that_opened_its_workspace_ends(
    no_window: str, where: ProgramFolders, folder: Path
) -> None:
    hosts = OpenHosts(where, own_program_command("--home", str(where.data)))
    (closed,) = await hosts.list_closed_workspaces()
    assert closed.name == no_window
    await hosts.open_in_own_process(closed.id)
    connected = hosts.get_connected(closed.id)
    (row,) = connected.rows.values()
    message = SendMessage(row.row.id, "write b.txt: text")
    await connected.host.run_host_command(message)
    try:
        watched = hosts.watch_conversation(connected, row.row.id)
        async with asyncio.timeout(LIMIT):
            while not watched.shown.questions:
                await watched.changed.wait_for_later_version(watched.changed.version, LIMIT)
        await hosts.aclose()
        later = await connect_to_host(where.run, closed.id)
        assert later is not None
        follower = await later.follow_conversation(row.row.id)
        shown = FollowedConversation()
        while not shown.has_caught_up:
            for event in await follower.next_events():
                shown.apply_event(event)
        assert list(shown.questions) == list(watched.shown.questions)
        await later.close_host()
    finally:
        for pid in list_kept_hosts(where.data):
            os.kill(pid, signal.SIGKILL)


def test_the_certificate_is_for_its_address_and_made_anew_for_another(tmp_path: Path) -> None:
    certificate, key = page_certificate.ensure_certificate(tmp_path, "192.0.2.7")
    fingerprint = page_certificate.read_certificate_fingerprint(certificate)
    assert len(fingerprint.split(":")) == 32
    assert page_certificate.ensure_certificate(tmp_path, "192.0.2.7") == (certificate, key)
    assert page_certificate.read_certificate_fingerprint(certificate) == fingerprint
    if os.name == "posix":
        assert key.stat().st_mode & 0o077 == 0
    page_certificate.ensure_certificate(tmp_path, "192.0.2.8")
    assert page_certificate.read_certificate_fingerprint(certificate) != fingerprint
    key.unlink()
    page_certificate.ensure_certificate(tmp_path, "192.0.2.8")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)


@pytest.mark.parametrize("address", ["", "example.org", "0.0.0.0", "::", "224.0.0.1", "1.2.3"])  # noqa: S104
def test_what_is_no_address_of_a_computer_is_refused(where: ProgramFolders, address: str) -> None:
    where.config.mkdir(parents=True, exist_ok=True)
    ProgramSettings(where.settings_file).change_setting(PAGE_ADDRESS, address)
    with pytest.raises(InvalidInput, match="address"):
        page_server.read_page_address(where)


def test_only_the_loopback_is_without_encryption() -> None:
    for address, is_encrypted in (("127.0.0.1", False), ("::1", False), ("192.168.1.2", True), ("100.64.0.1", True)):  # fmt: skip
        place = page_server.PageAddress(address, 4357)
        assert place.is_encrypted is is_encrypted
        assert place.url.startswith("https" if is_encrypted else "http:")
    assert page_server.PageAddress("192.168.1.2", 1).own_names == {"192.168.1.2"}


@asynccontextmanager
async def encrypted_page(
    where: ProgramFolders, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[str, ssl.SSLContext]]:
    """Its origin, and what a browser needs that has accepted its certificate."""
    # The tests reach no other address than this, so this one is taken for one of the network.
    monkeypatch.setattr(page_server.PageAddress, "is_encrypted", property(lambda _: True))
    place = page_server.PageAddress("127.0.0.1", free_port())
    hosts = OpenHosts(where, [])
    server = page_server._PageServer(page_server._build_page_config(where, place, hosts))
    tasks = OwnedTasks("page of a test")
    with page_server._listen(place) as listening:
        serving = tasks.spawn_task(server.serve(sockets=[listening]), name="serve")
        certificate, _ = page_certificate.ensure_certificate(where.config, "127.0.0.1")
        yield place.url.rstrip("/"), ssl.create_default_context(cafile=str(certificate))
        server.should_exit = True
        await asyncio.wait_for(serving, LIMIT)
    await hosts.aclose()


async def test_at_an_address_of_the_network_it_is_encrypted_with_its_own_certificate(
    where: ProgramFolders, devices: PairedDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with encrypted_page(where, monkeypatch) as (origin, context):
        form = {"code": devices.create_pairing_code(may_allow=True), "name": "Phone"}
        async with httpx.AsyncClient(verify=context, trust_env=False, timeout=LIMIT) as browser:
            answer = await browser.post(f"{origin}/pair", data=form, headers={"origin": origin})
            assert answer.status_code == 303
            assert "Secure" in answer.headers["set-cookie"]
            plain = origin.replace("https", "http")
            with pytest.raises(httpx.TransportError):
                await browser.get(plain)
        async with httpx.AsyncClient(trust_env=False, timeout=LIMIT) as stranger:
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await stranger.get(origin)


@pytest.mark.skipif(sys.platform == "win32", reason="not limited there")
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02"], ids=["nothing", "a part"])
async def test_connections_that_never_begin_to_speak_encrypted_do_not_take_all_files(
    where: ProgramFolders, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Each stayed for a minute, in any number, before anything that limits connections saw it."""
    async with encrypted_page(where, monkeypatch) as (origin, context):
        port = int(origin.rpartition(":")[2])
        strangers: list[socket.socket] = []
        for _ in range(4):
            for _ in range(100):
                stranger = socket.create_connection(("127.0.0.1", port))
                stranger.sendall(sent)
                strangers.append(stranger)
            async with httpx.AsyncClient(verify=context, trust_env=False, timeout=LIMIT) as browser:
                assert (await browser.get(origin)).status_code in (200, 303, 401)
        still_open = 0
        for stranger in strangers:
            stranger.setblocking(False)
            try:
                still_open += stranger.recv(1) != b""
            except BlockingIOError:
                still_open += 1
            except ConnectionError:
                pass
            stranger.close()
        assert still_open <= MOST_WAITING_CONNECTIONS
        assert strangers


def test_the_commands_turn_it_on_pair_show_revoke_and_turn_it_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = str(tmp_path / "home")
    port = free_port()

    def run(*words: str) -> Any:
        code = cli.main(["--home", home, "resident", *words, "--json"])
        said = capsys.readouterr()
        assert code == 0, said.err
        return json.loads(said.out)

    try:
        page = run("page", "on", "--port", str(port))
        assert page["url"].endswith(f"127.0.0.1:{port}/")
        paired = run("page", "pair", "--look-only")
        origin = page["url"].rstrip("/")
        form = {"code": paired["code"], "name": "Phone"}
        headers = {"origin": origin}
        answer = httpx.post(f"{origin}/pair", data=form, headers=headers, trust_env=False)
        assert answer.status_code == 303, answer.text
        shown = run("page", "status")
        assert (shown["on"], [each["name"] for each in shown["devices"]]) == (True, ["Phone"])
        assert shown["devices"][0]["may_allow"] is False
        run("page", "revoke", "Phone")
        assert run("page", "status")["devices"] == []
        assert run("page", "off") == {"on": False}
        gone = threading.Event()
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) != 0:
                    break
            gone.wait(0.05)
        else:
            pytest.fail("the page still answers")
    finally:
        cli.main(["--home", home, "resident", "stop"])


def test_a_port_that_is_taken_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = str(tmp_path / "home")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        try:
            assert cli.main(["--home", home, "resident", "page", "on", "--port", port]) == 1
        finally:
            cli.main(["--home", home, "resident", "page", "off"])
            cli.main(["--home", home, "resident", "stop"])
    assert f"The page cannot answer at http://127.0.0.1:{port}/" in capsys.readouterr().err
