"""Looking after a real workspace from the settings, and the tour as the window takes it."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.desktop.settings_backend import SettingsBackend
from helix_desktop.errors import NotFound
from helix_desktop.secrets import SecretStorage
from helix_desktop.store import journal_backups
from helix_desktop.workbench import Workbench, Workbenches
from tests.conftest import Expect


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Workbenches]:
    where = program_folders.find_program_folders(tmp_path / "home")
    made = Workbenches(where, SecretStorage(where.key_file, environ={}))
    yield made
    await made.aclose()


@pytest.fixture
def backend(desk: Workbenches) -> SettingsBackend:
    return SettingsBackend(desk.places, desk.secrets)


@pytest.fixture
async def bench(desk: Workbenches, tmp_path: Path) -> Workbench:
    (tmp_path / "folder").mkdir()
    opened = await desk.create_workspace("one", tmp_path / "folder")
    await opened.attach_content("a.txt", b"some text\n" * 100, "text/plain")
    await opened.workspace.index.wait_until_indexed()
    return opened


async def test_what_is_kept_is_counted_backed_up_and_verified(
    backend: SettingsBackend, bench: Workbench
) -> None:
    kept, backup = await backend.measure_workspace_storage(bench)
    assert (kept.entries, kept.size, backup) == (1, 1_000, 0)
    assert "Backup saved as journal-" in await backend.back_up_workspace(bench)
    assert (await backend.measure_workspace_storage(bench))[1] > 0
    said: list[str] = []
    assert (
        await backend.verify_workspace_entries(bench, said.append)
        == "1 stored output, 1.0 KB: everything matches its hash."
    )


async def test_a_backup_waits_for_what_is_being_forgotten(
    backend: SettingsBackend, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are done by one thread: a copy made beside it would keep the text."""
    threads: list[str] = []

    def noted(folder: Path) -> journal_backups.JournalBackup:
        threads.append(threading.current_thread().name)
        return made(folder)

    made = journal_backups.create_backup
    monkeypatch.setattr(journal_backups, "create_backup", noted)
    await backend.back_up_workspace(bench)
    assert threads == [
        (await bench.workspace._stores.background.run_work(threading.current_thread)).name
    ]


async def test_room_is_made_only_down_to_a_limit(
    backend: SettingsBackend, bench: Workbench
) -> None:
    assert "No limit is set" in await backend.free_up_space(bench)
    await bench.change_settings({"limits.cache_bytes": 1})
    going = await backend.estimate_space_to_free(bench)
    assert going.over > 0
    assert (going.entries, going.names, going.left) == (1, ["user a.txt"], 0)
    assert "1 stored output removed" in await backend.free_up_space(bench)


async def test_policy_model_and_limits_are_written_to_the_workspace(
    backend: SettingsBackend, bench: Workbench
) -> None:
    await bench.choose_context_policy("observational", {"handover_share": 0.7})
    await bench.choose_model_for_role("demo/demo", "main")
    await bench.change_settings({"limits.steps": 50})
    chosen = bench.workspace.settings
    assert (chosen.preset, dict(chosen.policy)) == ("observational", {"handover_share": 0.7})
    assert chosen.models == {"main": "demo/demo"}
    assert chosen.limits["steps"] == 50
    assert bench.policy_name == "observational"


async def test_the_installation_is_described(backend: SettingsBackend) -> None:
    assert "PySide6-Essentials" in dict(backend.library_versions())
    assert "httpx" in backend.licence_texts()
    assert {finding.state for finding in await backend.examine_installation()} <= {
        "good",
        "note",
        "bad",
    }


async def test_the_tour_has_one_workspace_however_often_it_is_taken(
    backend: SettingsBackend, desk: Workbenches, tmp_path: Path
) -> None:
    first = await backend.open_tour_workbench(desk, tmp_path / "tour")
    again = await backend.open_tour_workbench(desk, tmp_path / "tour")
    assert first is again
    assert (tmp_path / "tour" / "run.log").exists()


async def test_servers_are_read_as_they_will_be_started_and_kept(
    backend: SettingsBackend, bench: Workbench
) -> None:
    text = (
        '{"mcpServers": {"files": {"command": "/nonexistent/server", "args": ["--root", "a b"]}}}'
    )
    assert [
        (each.name, each.full_description_without_secrets)
        for each in backend.parse_server_configuration(text, "")
    ] == [("files", "/nonexistent/server --root 'a b'")]
    await bench.mcp_servers.add_pasted_servers(text, "")
    await bench.mcp_servers.switch_server("files", on=False)
    assert [
        (each.config.name, each.config.enabled) for each in backend.list_mcp_servers(bench)
    ] == [("files", False)]
    await bench.mcp_servers.remove_server("files")
    assert backend.list_mcp_servers(bench) == []


async def test_a_missing_program_is_named_before_anybody_is_asked_to_start_it(
    backend: SettingsBackend, bench: Workbench
) -> None:
    """The question showed a command that could not run, and the card failed afterwards."""
    missing = backend.parse_server_configuration("no-such-program-here --mcp", "")
    with pytest.raises(NotFound, match="The program no-such-program-here was not found"):
        await bench.mcp_servers.check_programs_of_servers(missing)
    found = backend.parse_server_configuration("sh -c true", "")
    far_away = backend.parse_server_configuration("https://example.org/mcp", "")
    await bench.mcp_servers.check_programs_of_servers([*found, *far_away])


async def test_one_servers_mistake_stops_no_other_and_limits_and_tools_are_kept(
    backend: SettingsBackend, bench: Workbench, expect: Expect
) -> None:
    expect("the settings of MCP server bad cannot be read")
    await bench.mcp_servers.add_pasted_servers("/nonexistent/server", "good")
    await bench.change_settings(
        {"mcp.bad": {"kind": "stdio", "command": "x", "start_seconds": "soon"}}
    )
    good, bad = backend.list_mcp_servers(bench)
    assert (good.config.name, good.mistake, bad.config.name) == ("good", "", "bad")
    assert bad.mistake
    await bench.mcp_servers.set_server_timeouts("good", call_seconds=30.0)
    await bench.mcp_servers.switch_server_tool("good", "delete", on=False)
    assert backend.list_mcp_servers(bench)[0].config.call_seconds == 30.0
    assert bench.workspace.settings.mcp["good"]["off"] == ["delete"]
    assert "The program /nonexistent/server was not found" in await backend.test_mcp_server(
        bench, "good"
    )


async def test_a_server_that_answers_shows_its_tools_and_its_log(
    backend: SettingsBackend, bench: Workbench
) -> None:
    script = Path(__file__).parents[1] / "mcp_client" / "modern_server.py"
    await bench.mcp_servers.add_pasted_servers(f"{sys.executable} {script}", "modern")
    assert "modern responded" in await backend.test_mcp_server(bench, "modern")
    async with asyncio.timeout(60):
        while not backend.list_mcp_servers(bench)[0].tools:
            await asyncio.sleep(0.02)
    (server,) = backend.list_mcp_servers(bench)
    assert server.config.full_description_without_secrets == f"{sys.executable} {script}"
    assert server.status is not None
    assert server.status.state == "ready"
    assert "count" in dict(server.tools)
