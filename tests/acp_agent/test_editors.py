"""The agent with each editor's own messages, in the editor's order, as its public
source or documentation has them.

Zed: agent_servers/acp.rs. JetBrains and Qt Creator: their documentation, and the
protocol's own examples. CodeCompanion: lua/codecompanion/acp. avante:
lua/avante/libs/acp_client.lua. Emacs: acp.el and agent-shell.el.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.acp_agent.editor import ROOT
from tests.acp_agent.test_official_clients import agent_words, create_workspace, folder
from tests.peers.chat_server import ChatServer, reply

__all__ = ["folder"]
FILES = {"readTextFile": True, "writeTextFile": True}
ZED = {"fs": FILES, "terminal": True, "_meta": {"terminal_output": True, "terminal-auth": True}}
# For each editor: what it says that it can do, what it sends besides a first turn, and
# how it stops one. Qt Creator sends what JetBrains does; CodeCompanion and avante send a
# part of what agent-shell does, and stop a turn as Zed does.
EDITORS: dict[str, tuple[dict[str, Any], tuple[str, ...], dict[str, Any]]] = {
    "Zed": (ZED, ("session/set_mode", "session/set_config_option", "session/list", "session/load", "session/resume"), {}),
    "JetBrains": ({"fs": FILES, "terminal": True}, ("session/set_mode", "session/load", "session/list"), {}),
    "agent-shell": (
        {"fs": FILES},
        (
            "authenticate", "session/set_mode", "session/set_config_option", "session/list", "session/resume",
            "session/load", "session/fork", "session/delete",
        ),
        {"reason": "User cancelled"},
    ),
}  # fmt: skip
REPLIES = [
    reply(
        "I look.",
        calls=[
            ("read_file", {"path": "a.txt"}),
            ("write_file", {"path": "b.txt", "content": "new\n"}),
        ],
    ),
    reply("done"),
    reply(calls=[("write_file", {"path": "c.txt", "content": "new\n"})]),
    *[reply("more")] * 4,
]


class RefusedByAgent(Exception):
    """With what the agent said."""


class RawEditor:
    """Lines of JSON, and nothing of an SDK. It answers what it announced, and refuses
    the rest as the editors do.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._lines = process.stdout
        self._sink = process.stdin
        self.updates: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self._number = 0

    def send(self, **message: Any) -> None:
        self._sink.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def request(
        self, method: str, cancelled_with: dict[str, Any] | None = None, /, **params: Any
    ) -> Any:
        """The answer, with what arrives before it handled. `cancelled_with`: the turn
        is stopped at its question.
        """
        self._number += 1
        self.send(id=self._number, method=method, params=params)
        while True:
            message = json.loads(await self._lines.readline())
            if message.get("id") == self._number and "method" not in message:
                if "error" in message:
                    raise RefusedByAgent(message["error"]["message"])
                return message["result"]
            if "id" not in message:
                self.updates.append(message["params"]["update"])
                continue
            self.asked.append(message["method"])
            if message["method"] == "session/request_permission" and cancelled_with is not None:
                self.send(
                    method="session/cancel",
                    params={"sessionId": params["sessionId"], **cancelled_with},
                )
                self.send(id=message["id"], result={"outcome": {"outcome": "cancelled"}})
                continue
            self._answer(message["id"], message["method"], message["params"])

    async def refused_request(self, method: str, **params: Any) -> str:
        """Why it was refused."""
        with pytest.raises(RefusedByAgent) as refused:
            await self.request(method, **params)
        return str(refused.value)

    def _answer(self, identity: Any, method: str, params: dict[str, Any]) -> None:
        if method == "session/request_permission":
            chosen = next(each for each in params["options"] if each["kind"] == "allow_once")
            self.send(
                id=identity,
                result={"outcome": {"outcome": "selected", "optionId": chosen["optionId"]}},
            )
        elif method == "fs/read_text_file" and Path(params["path"]).is_file():
            self.send(id=identity, result={"content": Path(params["path"]).read_text()})
        else:
            self.send(id=identity, error={"code": -32002, "message": "ENOENT"})

    def kinds(self) -> set[str]:
        return {update["sessionUpdate"] for update in self.updates}


@pytest.mark.parametrize("name", EDITORS)
async def test_an_editor_gets_an_answer_to_all_it_sends(
    tmp_path: Path, folder: Path, name: str
) -> None:
    _, methods, stops_with = EDITORS[name]
    pipe = asyncio.subprocess.PIPE
    with ChatServer(REPLIES) as server:
        await create_workspace(tmp_path / "home", folder, server.base_url)
        process = await asyncio.create_subprocess_exec(
            *agent_words(tmp_path / "home"), cwd=folder, stdin=pipe, stdout=pipe, limit=1 << 24,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        editor = RawEditor(process)
        session = await _begin_session(editor, name, folder)
        await _settings_are_chosen_and_unknown_ones_refused(editor, methods, session)
        await _one_turn_is_done_and_one_is_stopped(editor, session, stops_with, folder)
        await _the_session_is_found_again(editor, methods, session, folder)
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0


async def _begin_session(editor: RawEditor, name: str, folder: Path) -> str:
    abilities, methods, _ = EDITORS[name]
    can = await editor.request(
        "initialize",
        protocolVersion=1,
        clientCapabilities=abilities,
        clientInfo={"name": name, "version": "1"},
    )
    if "authenticate" in methods:
        await editor.request("authenticate", methodId=can["authMethods"][0]["id"])
    begun = await editor.request("session/new", cwd=str(folder), mcpServers=[])
    return str(begun["sessionId"])


async def _settings_are_chosen_and_unknown_ones_refused(
    editor: RawEditor, methods: Sequence[str], session: str
) -> None:
    if "session/set_mode" in methods:
        await editor.request("session/set_mode", sessionId=session, modeId="ask")
        said = await editor.refused_request("session/set_mode", sessionId=session, modeId="root")
        assert said == "mode has no choice root."
    if "session/set_config_option" in methods:
        chosen = {"configId": "model", "value": "peer/scripted"}
        await editor.request("session/set_config_option", sessionId=session, **chosen)
        wrong = {"sessionId": session, "configId": "policy", "value": "none of them"}
        said = await editor.refused_request("session/set_config_option", **wrong)
        assert said == "policy has no choice none of them."


async def _one_turn_is_done_and_one_is_stopped(
    editor: RawEditor, session: str, stops_with: dict[str, Any], folder: Path
) -> None:
    words = {"sessionId": session, "prompt": [{"type": "text", "text": "look, and write"}]}
    done = await editor.request("session/prompt", **words)
    assert done["stopReason"] == "end_turn"
    assert (folder / "b.txt").read_text() == "new\n"
    assert {"fs/read_text_file", "session/request_permission"} <= set(editor.asked)
    in_every_turn = {"agent_message_chunk", "tool_call", "tool_call_update", "usage_update"}
    assert in_every_turn <= editor.kinds()
    assert "compaction_update" not in editor.kinds()
    stopped = await editor.request("session/prompt", stops_with, **words)
    assert stopped["stopReason"] == "cancelled"
    assert not (folder / "c.txt").exists()


async def _the_session_is_found_again(
    editor: RawEditor, methods: Sequence[str], session: str, folder: Path
) -> None:
    here = {"cwd": str(folder), "mcpServers": []}
    if "session/list" in methods:
        listed = await editor.request("session/list", cwd=str(folder))
        assert session in [each["sessionId"] for each in listed["sessions"]]
    editor.updates.clear()
    if "session/load" in methods:
        await editor.request("session/load", sessionId=session, **here)
        assert {"user_message_chunk", "agent_message_chunk", "tool_call"} <= editor.kinds()
    if "session/resume" in methods:
        await editor.request("session/resume", sessionId=session, **here)
    if "session/fork" in methods:
        fork = (await editor.request("session/fork", sessionId=session, **here))["sessionId"]
        await editor.request("session/delete", sessionId=fork)
