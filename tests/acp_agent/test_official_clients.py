"""The agent with the clients of both official SDKs, whose every method and notification
goes over the line at least once.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import program_folders
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.acp_agent.editor import ROOT
from tests.peers.chat_server import ChatServer, reply

CLIENT = Path(__file__).with_name("typescript_client.mjs")
SERVER = Path(__file__).parents[1] / "mcp_client" / "modern_server.py"
REPLIES = [
    reply(
        "I begin.",
        reasoning="hm, so",
        calls=[
            ("set_todo", {"items": [{"text": "look", "state": "doing"}]}),
            ("read_file", {"path": "a.txt"}),
            ("run_command", {"command": "seq 1 60000"}),
            ("write_file", {"path": "b.txt", "content": "text\n"}),
        ],
    ),
    reply("done"),
    reply(calls=[("modern__ask", {})]),
    reply("named"),
    reply(calls=[("write_file", {"path": "c.txt", "content": "text\n"})]),
    *[reply("more")] * 9,
]  # fmt: skip

SENT = {
    "initialize", "authenticate", "session/new", "session/load", "session/list", "session/resume", "session/fork", "session/close", "session/delete",
    "session/prompt", "session/cancel", "session/set_mode", "session/set_config_option",
}  # fmt: skip
UPDATES = {
    "user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan", "available_commands_update",
    "current_mode_update", "config_option_update", "session_info_update", "usage_update", "compaction_update",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "a.txt").write_text("alpha\nbeta\n")
    return made


def _typescript_sdk() -> Path | None:
    """Where `npm install --global @agentclientprotocol/sdk` puts it."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return None
    said = subprocess.run(
        [npm, "root", "--global"], capture_output=True, text=True, check=False
    ).stdout.strip()
    sdk = Path(said) / "@agentclientprotocol" / "sdk"
    return sdk if (sdk / "dist" / "v1" / "unstable" / "acp.js").is_file() else None


async def create_workspace(home: Path, folder: Path, address: str) -> None:
    where = program_folders.find_program_folders(home)
    desk = Workbenches(where, SecretStorage(where.key_file, environ={}))
    try:
        desk.configured.save_provider(ProviderConfig("peer", base_url=address))
        bench = await desk.create_workspace("project", folder)
        await bench.choose_model_for_role("peer/scripted")
        servers = {"modern": {"command": sys.executable, "args": ["-W", "ignore", str(SERVER)]}}
        await bench.mcp_servers.add_pasted_servers(json.dumps({"mcpServers": servers}))
    finally:
        await desk.aclose()


async def run_client(*words: str | Path, folder: Path, given: bytes = b"") -> tuple[str, str]:
    """What it printed, and its errors."""
    pipe = asyncio.subprocess.PIPE
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    client = await asyncio.create_subprocess_exec(
        *words, cwd=folder, env=env, stdin=pipe, stdout=pipe, stderr=pipe
    )
    out, errors = await asyncio.wait_for(client.communicate(given), 100)
    return out.decode(), errors.decode()


def agent_words(home: Path) -> list[str]:
    return [sys.executable, "-m", "helix_desktop", "--home", str(home), "acp"]


async def test_the_typescript_client_sends_and_receives_all_there_is(
    tmp_path: Path, folder: Path
) -> None:
    sdk = await asyncio.to_thread(_typescript_sdk)
    home = tmp_path / "home"
    if sdk is None:
        pytest.skip("needs node and the SDK: npm install --global @agentclientprotocol/sdk")
    with ChatServer(REPLIES) as server:
        await create_workspace(home, folder, server.base_url)
        out, errors = await run_client(
            "node", CLIENT, sdk, folder, *agent_words(home), folder=folder
        )
    assert errors == "", errors
    seen: dict[str, Any] = json.loads(out)
    assert seen["code"] == 0
    assert set(seen["sent"]) >= SENT
    assert set(seen["asked"]) == {
        "session/request_permission",
        "fs/read_text_file",
        "elicitation/create",
    }
    assert set(seen["updates"]) == UPDATES
    assert seen["ends"] == ["end_turn", "end_turn", "cancelled"]
    assert (seen["listed"], seen["left"]) == (2, [True])
    assert {
        "user_message_chunk",
        "agent_message_chunk",
        "agent_thought_chunk",
        "plan",
        "tool_call",
    } <= {*seen["loaded"]}
    assert [words[:20] for words in seen["errors"]] == [
        "Method not found",
        "There is no conversa",
        "/ is not a project f",
    ]
    assert (folder / "b.txt").read_text() == "text\n"
    assert not (folder / "c.txt").exists()
    results = [
        str(message["content"])
        for message in server.bodies[-1]["messages"]
        if message["role"] == "tool"
    ]
    assert any("as the editor shows it" in text for text in results)
    assert any("accept name='Ada'" in text for text in results)
