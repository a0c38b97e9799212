"""An editor at the other end of the pipe that the workspace switch uses: no process is started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from helix_desktop.acp_agent.editor_requests import EditorAgent
from helix_desktop.acp_agent.workspace_switch import WorkspacePipe
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.workbench import Workbench

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def choose(option_id: str) -> Answer:
    return lambda _request: {"result": {"outcome": {"outcome": "selected", "optionId": option_id}}}


class EditorInProcess:
    """`answers`: what it says to a request of the agent, by method; it refuses all others."""

    def __init__(self) -> None:
        self.pipe = WorkspacePipe(1, "w", self._hear)
        self.updates: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[str, Answer] = {}
        self._open: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._heard = asyncio.Event()

    async def _hear(self, _pipe: WorkspacePipe, message: dict[str, Any]) -> None:
        if "method" not in message:
            self._open.pop(message["id"]).set_result(message)
        elif "id" not in message:
            self.updates.append(message["params"]["update"])
        else:
            self.asked.append(message)
            answer = self.answers.get(message["method"])
            if answer is not None:
                self.pipe.send_message({"jsonrpc": "2.0", "id": message["id"], **answer(message)})
        self._heard.set()

    def begin_request(self, method: str, **params: Any) -> asyncio.Future[dict[str, Any]]:
        number = len(self._open) + 1
        while number in self._open:
            number += 1
        waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[number] = waiting
        self.pipe.send_message({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return waiting

    async def request(self, method: str, **params: Any) -> Any:
        answer = await asyncio.wait_for(self.begin_request(method, **params), 60)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    async def refusal(self, method: str, **params: Any) -> dict[str, Any]:
        """The error with which the agent answers."""
        answer = await asyncio.wait_for(self.begin_request(method, **params), 60)
        error: dict[str, Any] = answer["error"]
        return error

    async def prompt(self, session: str, text: str) -> Any:
        return await self.request("session/prompt", sessionId=session, prompt=words(text))

    async def wait_until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._heard.clear()
                await self._heard.wait()

    def updates_of(self, kind: str) -> list[dict[str, Any]]:
        return [update for update in self.updates if update["sessionUpdate"] == kind]


def words(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


@asynccontextmanager
async def connected(bench: Workbench, **capabilities: Any) -> AsyncIterator[EditorInProcess]:
    editor = EditorInProcess()
    owner = OwnedTasks("editor of a trial")
    serving = owner.spawn_task(EditorAgent(bench).serve_editor(editor.pipe), name="agent")
    await editor.request("initialize", protocolVersion=1, clientCapabilities=capabilities)
    try:
        yield editor
    finally:
        editor.pipe.send_end_of_input()
        await asyncio.wait_for(serving, 30)
        await owner.aclose()


async def new_session(editor: EditorInProcess, bench: Workbench) -> str:
    session = await editor.request("session/new", cwd=str(bench.main_folder), mcpServers=[])
    session_id: str = session["sessionId"]
    return session_id
