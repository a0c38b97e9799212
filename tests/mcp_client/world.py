"""A host with servers that are started for a test, and somebody who answers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.ports import CallContext, PermissionAnswer, PermissionQuestion
from helix_desktop.mcp_client.hosted_server import (
    McpConnectionState,
    McpSecret,
    McpServerDependencies,
)
from helix_desktop.mcp_client.server_config import ServerConfig
from helix_desktop.mcp_client.server_host import McpServerHost

SCRIPT = Path(__file__).with_name("strange_server.py")


@dataclass
class Here:
    host: McpServerHost
    answer: PermissionAnswer = PermissionAnswer(allowed=True)
    asked: list[PermissionQuestion] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    approved: dict[str, str] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
        self.asked.append(question)
        return self.answer

    @property
    def context(self) -> CallContext:
        return CallContext("c", self.ask, self.shown.append)

    async def until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                self.news.clear()
                await self.news.wait()

    async def settled(self) -> None:
        """Until no server is starting any more."""
        await self.until(
            lambda: all(
                server.status.state is not McpConnectionState.STARTING
                for server in self.host.hosted_servers
            )
        )


def strange(way: str, *more: str, starts: float = 60, answers: float = 60) -> ServerConfig:
    """`starts`, `answers`: seconds it is given; those of a test that does not wait for
    them only guard against hanging.
    """
    return ServerConfig(
        "strange",
        command=sys.executable,
        args=("-I", str(SCRIPT), way, *more),
        start_seconds=starts,
        call_seconds=answers,
    )


@asynccontextmanager
async def hosting(
    *configs: ServerConfig,
    approved: dict[str, str] | None = None,
    secrets: dict[str, str] | None = None,
    further: Mapping[str, str] = {},
) -> AsyncIterator[Here]:
    """`further`: variables of the program beside those that every test has."""
    tasks = OwnedTasks("test")
    news = asyncio.Event()
    here: Here

    async def secret(wanted: McpSecret) -> str | None:
        return here.secrets.get(wanted.keyring_name)

    async def keep(kept: McpSecret, value: str) -> None:
        here.secrets[kept.keyring_name] = value

    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/",
        "SHELL": "/bin/sh",
        "OPENAI_API_KEY": "not for servers",
        **further,
    }

    def approve(name: str, mark: str) -> None:
        here.approved.update({name: mark})

    needs = McpServerDependencies(secret, news.set, dict(approved or {}), approve, keep)
    host = McpServerHost(tasks.spawn_task, needs, environment)
    here = Here(host, news=news, secrets=secrets or {})
    await host.configure_servers(configs)
    try:
        yield here
    finally:
        await host.aclose()
        await tasks.aclose()
