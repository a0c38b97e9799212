"""Looking after a real workspace from the settings, and the tour as the window takes it."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_desktop import places
from helix_desktop.desktop.administration import Keeping
from helix_desktop.secrets import Secrets
from helix_desktop.store import backup
from helix_desktop.workbench import Desk, Workbench
from tests.conftest import Expect


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    where = places.find(tmp_path / "home")
    made = Desk(where, Secrets(where.key_file, environ={}))
    yield made
    await made.aclose()


@pytest.fixture
def keeping(desk: Desk) -> Keeping:
    return Keeping(desk.places, desk.secrets)


@pytest.fixture
async def bench(desk: Desk, tmp_path: Path) -> Workbench:
    (tmp_path / "folder").mkdir()
    opened = await desk.create("one", tmp_path / "folder")
    await opened.attach("a.txt", b"some text\n" * 100, "text/plain")
    await opened.workspace.index.caught_up()
    return opened


async def test_what_is_kept_is_counted_backed_up_and_verified(keeping: Keeping, bench: Workbench) -> None:
    kept = await keeping.kept(bench)
    assert (kept.entries, kept.size, kept.backup) == (1, 1_000, 0)
    assert "Backup saved as journal-" in await keeping.back_up(bench)
    assert (await keeping.kept(bench)).backup > 0
    said: list[str] = []
    assert await keeping.verify(bench, said.append) == "1 entry, 1.0 KB: every entry matches its hash."


async def test_a_backup_waits_for_what_is_being_forgotten(
    keeping: Keeping, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are done by one thread: a copy made beside it would keep the text."""
    threads: list[str] = []

    def noted(folder: Path) -> backup.Backup:
        threads.append(threading.current_thread().name)
        return made(folder)

    made = backup.make
    monkeypatch.setattr(backup, "make", noted)
    await keeping.back_up(bench)
    assert threads == [(await bench.workspace._stores.background.run(threading.current_thread)).name]


async def test_room_is_made_only_down_to_a_limit(keeping: Keeping, bench: Workbench) -> None:
    assert "No limit is set" in await keeping.collect(bench)
    await bench.change({"limits.cache_bytes": 1})
    going = await keeping.going(bench)
    assert going.over > 0
    assert (going.entries, going.names, going.left) == (1, ["user a.txt"], 0)
    assert "1 entry removed" in await keeping.collect(bench)


async def test_policy_model_and_limits_are_written_to_the_workspace(keeping: Keeping, bench: Workbench) -> None:
    await bench.choose_policy("observational", {"handover_share": 0.7})
    await bench.choose_model("demo/demo", "main")
    await bench.change({"limits.steps": 50})
    chosen = bench.workspace.settings
    assert (chosen.preset, dict(chosen.policy)) == ("observational", {"handover_share": 0.7})
    assert chosen.models == {"main": "demo/demo"}
    assert chosen.limits["steps"] == 50
    assert bench.policy == "observational"


async def test_the_installation_is_described(keeping: Keeping) -> None:
    assert "PySide6-Essentials" in dict(keeping.versions())
    assert "httpx" in keeping.licences()
    assert {finding.state for finding in await keeping.examine()} <= {"good", "note", "bad"}


async def test_the_tour_has_one_workspace_however_often_it_is_taken(
    keeping: Keeping, desk: Desk, tmp_path: Path
) -> None:
    first = await keeping.tour_workbench(desk, tmp_path / "tour")
    again = await keeping.tour_workbench(desk, tmp_path / "tour")
    assert first is again
    assert (tmp_path / "tour" / "run.log").exists()


async def test_servers_are_read_as_they_will_be_started_and_kept(keeping: Keeping, bench: Workbench) -> None:
    text = '{"mcpServers": {"files": {"command": "/nonexistent/server", "args": ["--root", "a b"]}}}'
    assert [(each.name, each.words) for each in keeping.read_servers(text, "")] == [
        ("files", "/nonexistent/server --root 'a b'")
    ]
    await bench.servers.paste(text, "")
    await bench.servers.switch("files", on=False)
    assert [(each.name, each.enabled) for each in keeping.servers(bench)] == [("files", False)]
    await bench.servers.remove("files")
    assert keeping.servers(bench) == []


async def test_one_servers_mistake_stops_no_other_and_limits_and_tools_are_kept(
    keeping: Keeping, bench: Workbench, expect: Expect
) -> None:
    expect("the settings of MCP server bad cannot be read")
    await bench.servers.paste("/nonexistent/server", "good")
    await bench.change({"mcp.bad": {"kind": "stdio", "command": "x", "start_seconds": "soon"}})
    good, bad = keeping.servers(bench)
    assert (good.name, good.mistake, bad.name) == ("good", "", "bad")
    assert bad.mistake
    await bench.servers.limit("good", call_seconds=30.0)
    await bench.servers.switch_tool("good", "delete", on=False)
    assert keeping.servers(bench)[0].call_seconds == 30.0
    assert bench.workspace.settings.mcp["good"]["off"] == ["delete"]
    assert "The program /nonexistent/server was not found" in await keeping.test_server(bench, "good")


async def test_a_server_that_answers_shows_its_tools_and_its_log(keeping: Keeping, bench: Workbench) -> None:
    script = Path(__file__).parents[1] / "mcp_host" / "modern_server.py"
    await bench.servers.paste(f"{sys.executable} {script}", "modern")
    assert "modern responded" in await keeping.test_server(bench, "modern")
    async with asyncio.timeout(60):
        while not keeping.servers(bench)[0].offered:
            await asyncio.sleep(0.02)
    (server,) = keeping.servers(bench)
    assert (server.state, server.words) == ("ready", f"{sys.executable} {script}")
    assert "count" in [tool.name for tool in server.offered]
