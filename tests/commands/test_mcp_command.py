from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx
import mcp
import pytest
import tomlkit

from helix_desktop import cli, program_folders
from helix_desktop.commands import mcp_command, workspace_access
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.resident.resident_client import CollectingConsole
from helix_desktop.secrets import SecretStorage
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.workbench import Workbenches, all_workbenches

CLIENT_INFO = {"name": "a client", "version": "1"}


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """A workspace `w`, and the beginning of every command line about it."""
    (tmp_path / "work").mkdir()
    base = ["--home", str(tmp_path / "home")]
    assert cli.main(base + ["workspace", "new", "w", "--folder", str(tmp_path / "work")]) == 0
    capsys.readouterr()
    return base


def test_the_configuration_is_shown_for_every_program(
    made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(made + ["mcp", "install", "--workspace", "w", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["client"] for one in shown] == [
        "claude-code",
        "codex",
        "gemini",
        "opencode",
        "pi",
        "qwen-code",
        "cursor",
        "vscode",
        "goose",
    ]
    arguments = shown[0]["entry"]["args"]
    assert arguments[arguments.index("mcp") :][:2] == ["mcp", "--workspace"]
    assert arguments[arguments.index("--home") + 1] == made[1]


def test_it_is_written_only_when_asked_and_only_for_one_program(
    made: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "work" / ".mcp.json"
    assert cli.main(made + ["mcp", "install", "-w", "w", "--client", "claude-code"]) == 0
    assert not file.exists()
    write = ["mcp", "install", "-w", "w", "--client", "claude-code", "--write"]
    assert cli.main(made + write) == 0
    (name,) = json.loads(file.read_text())["mcpServers"]
    assert name.startswith("helix-w"), "the same name as in the settings of Codex"
    capsys.readouterr()
    assert cli.main(made + ["mcp", "install", "-w", "w", "--write"]) == 2
    out, err = capsys.readouterr()
    assert "--client" in err
    assert out == ""


def test_the_servers_of_two_workspaces_stand_side_by_side_in_settings_for_all_folders(
    made: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second one replaced the first without a word, because both had one name in
    Codex's only file.
    """
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    (tmp_path / "codex").mkdir()
    capsys.readouterr()
    new_workspace = ["workspace", "new", "other", "--folder", str(tmp_path), "--json"]
    assert cli.main(made + new_workspace) == 0
    other = json.loads(capsys.readouterr().out)["id"]
    for workspace in ("w", "other"):
        write = ["mcp", "install", "-w", workspace, "--client", "codex", "--write"]
        assert cli.main(made + write) == 0
    servers = tomlkit.parse((tmp_path / "codex" / "config.toml").read_text()).unwrap()[
        "mcp_servers"
    ]
    assert len({one["args"][-1] for one in servers.values()}) == 2
    assert f"helix-{other}" in servers, "`conversation restore --mcp` adds it under the same name"


def test_a_home_named_by_the_environment_is_in_the_configuration(
    made: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other program starts the server in an environment of its own."""
    monkeypatch.setenv("HELIX_HOME", made[1])
    assert cli.main(["mcp", "install", "-w", "w", "--client", "cursor", "--json"]) == 0
    (entry,) = (one["entry"] for one in json.loads(capsys.readouterr().out))
    assert entry["args"][entry["args"].index("--home") + 1] == made[1]


def test_what_lies_in_the_folder_of_the_other_program_is_not_run(
    made: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It starts the server in the user's folder, where a file may be called like a module."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(made + ["mcp", "install", "-w", "w", "--client", "cursor", "--json"]) == 0
    (entry,) = (one["entry"] for one in json.loads(capsys.readouterr().out))
    (tmp_path / "http.py").write_text("raise SystemExit('a file of the folder was run')")
    started = [entry["command"]] + entry["args"]
    ran = subprocess.run(
        started, cwd=tmp_path, input=b"", capture_output=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_the_workspace_has_to_be_named(made: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(made + ["mcp"]) == 2
    assert "No workspace was specified" in capsys.readouterr().err
    assert cli.main(made + ["mcp", "-w", "gone"]) == 1
    with pytest.raises(SystemExit):
        cli.main(made + ["mcp", "-w", "w", "--http", "70000"])


async def test_an_agent_uses_the_workspace_over_stdio(made: list[str], tmp_path: Path) -> None:
    """The whole way: another process, the real stores, an entry put by the command line."""
    program = [sys.executable, "-m", "helix_desktop"] + made
    (tmp_path / "log").write_text("one\nneedle\n")
    put = subprocess.run(
        program + ["cache", "put", "-w", "w", str(tmp_path / "log")],
        capture_output=True,
        text=True,
        check=True,
    )
    server = mcp.StdioServerParameters(
        command=program[0], args=program[1:] + ["mcp", "--workspace", "w"]
    )
    async with mcp.Client(server, cache=None) as client:
        recalled = await client.call_tool(
            "recall_cached_content", {"sha256": put.stdout.strip(), "grep": "need"}
        )
        assert recalled.structured_content["text"] == "2: needle"
        hits = (
            await client.call_tool("search_cached_content", {"query": "needle"})
        ).structured_content["hits"]
        assert [hit["sha256"] for hit in hits] == [put.stdout.strip()]
        refused = await client.call_tool(
            "compact_cached_content", {"sha256": put.stdout.strip(), "keep": "x"}
        )
        assert refused.is_error
        assert "This workspace has no model" in str(refused.content)


async def test_another_agent_gives_tasks_and_sees_what_came_of_them(made: list[str]) -> None:
    program = [sys.executable, "-m", "helix_desktop"] + made
    server = mcp.StdioServerParameters(
        command=program[0], args=program[1:] + ["mcp", "--workspace", "w"]
    )
    async with mcp.Client(server, cache=None) as client:
        given = [
            await client.call_tool("add_task", {"text": text, "key": "k"})
            for text in ("-", "- again")
        ]
        (task,) = {one.structured_content["task"] for one in given}
        shown = (await client.call_tool("show_tasks", {})).structured_content["tasks"]
        assert [(one["id"], one["state"], one["text"]) for one in shown] == [(task, "waiting", "-")]
        waited = await client.call_tool("show_tasks", {"tasks": [task], "wait_seconds": 1})
        assert waited.structured_content["tasks"][0]["state"] == "waiting"
        unknown = await client.call_tool("show_tasks", {"tasks": ["ffff"]})
        assert unknown.is_error
        assert "There is no task ffff" in str(unknown.content)
        cancel = program + ["task", "cancel", "-w", "w", task]
        await asyncio.to_thread(subprocess.run, cancel, check=True)
        ended = await client.call_tool("show_tasks", {"tasks": [task], "wait_seconds": 60})
        assert ended.structured_content["tasks"][0]["state"] == "cancelled"


async def test_the_sessions_of_ended_servers_are_kept_while_another_server_is_open(
    tmp_path: Path,
) -> None:
    """A window that runs for weeks sees thousands of servers start and end."""
    where = program_folders.find_program_folders(tmp_path / "home")
    known = AllWorkspaces(where.workspaces_folder).create_stored_workspace("w", tmp_path)
    workspace = await AllWorkspaces(where.workspaces_folder).open_stored_workspace(known.id)
    ends = asyncio.Event()

    class Ending(CollectingConsole):
        async def read_input(self) -> bytes:
            await ends.wait()
            return b""

    def serve(session: str, console: CollectingConsole) -> Coroutine[Any, Any, int]:
        given = argparse.Namespace(http=None, session=session, addresses="", places=where)
        return mcp_command.serve_workspace_over_mcp(given, workspace, console)

    kept = mcp_command._sessions_by_server
    lasting = OwnedTasks("test").spawn_task(serve("lasting", Ending()), name="lasting")
    while workspace.id not in kept:
        await asyncio.sleep(0)
    await serve("short", CollectingConsole())
    assert sorted(map(sorted, kept[workspace.id].values())) == [["lasting"], ["short"]]
    ends.set()
    await lasting
    assert workspace.id not in kept
    await workspace.aclose()


@pytest.mark.parametrize("ending", ["kill", "end of input"])
async def test_a_client_stays_served_when_the_process_that_has_the_workspace_open_ends(
    made: list[str], ending: str
) -> None:
    """Every agent lost its server when a window, an `ask` or an import ended."""
    program = [sys.executable, "-m", "helix_desktop"] + made
    serve = program + ["mcp", "--workspace", "w"]
    owner = await asyncio.create_subprocess_exec(
        *serve, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdin
    assert owner.stdout
    greeting = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT_INFO}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}
    owner.stdin.write(json.dumps(request).encode() + b"\n")
    await owner.stdout.readline()
    server = mcp.StdioServerParameters(command=serve[0], args=serve[1:])
    async with mcp.Client(server, cache=None) as client:
        stored = await client.call_tool("put_cached_content", {"content": "kept words"})
        digest = stored.structured_content["sha256"]
        if ending == "kill":
            owner.kill()
        else:
            owner.stdin.close()
        await owner.wait()
        recalled = await client.call_tool("recall_cached_content", {"sha256": digest})
        assert recalled.structured_content["text"] == "kept words"
        listed = (await client.list_tools()).tools
        assert "cache_stats" in {tool.name for tool in listed}


async def test_a_server_over_http_keeps_its_port_and_token_when_the_owner_ends(
    made: list[str],
) -> None:
    program = [sys.executable, "-m", "helix_desktop"] + made
    serve = program + ["mcp", "--workspace", "w"]
    owner = await asyncio.create_subprocess_exec(
        *serve, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdin
    assert owner.stdout
    greeting = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT_INFO}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}
    owner.stdin.write(json.dumps(request).encode() + b"\n")
    await owner.stdout.readline()
    guest = await asyncio.create_subprocess_exec(
        *serve, "--http", "0", stdout=asyncio.subprocess.PIPE
    )
    assert guest.stdout
    try:
        url = (await guest.stdout.readline()).decode().strip()
        name, _, value = (await guest.stdout.readline()).decode().strip().partition(": ")
        headers = {name: value, "Accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient(headers=headers, timeout=30) as http:
            assert (await http.post(url, json=request)).status_code == 200
            owner.kill()
            await owner.wait()
            assert (await _post_until_answered(http, url, request)).status_code == 200
    finally:
        guest.kill()
        await guest.wait()


async def _post_until_answered(
    http: httpx.AsyncClient, url: str, request: dict[str, Any]
) -> httpx.Response:
    """While the server moves, nobody listens."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await http.post(url, json=request)
            except httpx.TransportError:
                await asyncio.sleep(0.05)


async def test_a_window_opens_the_workspace_of_a_server_and_serves_its_client(
    made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy computer may take longer than the window waits for the server to close it.
    monkeypatch.setattr(all_workbenches, "MOST_ATTEMPTS", 600)
    where = program_folders.find_program_folders(Path(made[1]))
    serve = ["-m", "helix_desktop"] + made + ["mcp", "--workspace", "w"]
    server = mcp.StdioServerParameters(command=sys.executable, args=serve)
    window = Workbenches(
        where,
        SecretStorage(where.key_file, environ={}),
        serve=lambda opened: workspace_access.listen_for_commands(opened, where),
    )
    async with mcp.Client(server, cache=None) as client:
        stored = await client.call_tool("put_cached_content", {"content": "kept words"})
        digest = stored.structured_content["sha256"]
        (known,) = await asyncio.to_thread(AllWorkspaces(where.workspaces_folder).list_workspaces)
        await window.open_workspace(known.id)
        recalled = await client.call_tool("recall_cached_content", {"sha256": digest})
        assert recalled.structured_content["text"] == "kept words"
        await window.aclose()
        again = await client.call_tool("recall_cached_content", {"sha256": digest})
        assert again.structured_content["text"] == "kept words"
