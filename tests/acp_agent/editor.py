"""An editor as the official Python SDK makes one: it answers what an agent asks and
keeps every update.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp import spawn_agent_process
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    CreateElicitationResponse,
    DeniedOutcome,
    FileSystemCapabilities,
    ReadTextFileResponse,
    RequestPermissionResponse,
)

ROOT = Path(__file__).parents[2]


class Editor:
    """`buffers`: files that are open in it, with their text; `choice`: which of the
    options it takes (None: it waits for ever).
    """

    def __init__(
        self, buffers: dict[str, str] | None = None, choice: str | None = "once:0"
    ) -> None:
        self.buffers = buffers or {}
        self.choice = choice
        self.updates: list[Any] = []
        self.asked: list[Any] = []

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> Any:
        self.asked.append((tool_call, options))
        if self.choice is None:
            await asyncio.Event().wait()
        if self.choice not in {option.option_id for option in options}:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=str(self.choice))
        )

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> ReadTextFileResponse:
        return ReadTextFileResponse(content=self.buffers.get(path) or Path(path).read_text())

    async def create_elicitation(
        self, message: str, mode: Any, **_: Any
    ) -> CreateElicitationResponse:
        raise NotImplementedError

    def on_connect(self, conn: Any) -> None:
        """Nothing to prepare."""

    def of_kind(self, kind: str) -> list[Any]:
        return [update for update in self.updates if update.session_update == kind]

    def said(self) -> str:
        return "".join(update.content.text for update in self.of_kind("agent_message_chunk"))


@asynccontextmanager
async def started(
    editor: Editor, home: Path, folder: Path, *options: str
) -> AsyncIterator[ClientSideConnection]:
    """The agent as an editor starts it: a process, on its standard streams."""
    command = [sys.executable, "-m", "helix_desktop", "--home", str(home), "acp", *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    async with spawn_agent_process(editor, *command, cwd=folder, env=env) as (agent, process):  # type: ignore[arg-type]
        files = FileSystemCapabilities(read_text_file=True)
        await agent.initialize(protocol_version=1, client_capabilities=ClientCapabilities(fs=files))
        yield agent
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 30)
        assert process.returncode == 0
