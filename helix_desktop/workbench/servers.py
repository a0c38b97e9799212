"""The user's MCP servers in one workspace. Nothing of MCP is imported before the first one is configured."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from helix_desktop.engine.collaborators import Spawn
from helix_desktop.errors import NoKeyring, NotThere, WrongUse
from helix_desktop.secrets import Secrets, Where
from helix_desktop.store import config
from helix_desktop.store.workspace import Workspace
from helix_desktop.tools.runner import ForeignTool

if TYPE_CHECKING:
    from helix_desktop.mcp_host.config import Pasted, ServerConfig
    from helix_desktop.mcp_host.host import Host
    from helix_desktop.mcp_host.results import HostResult
    from helix_desktop.mcp_host.server import Hosted, HostPrompt, HostResource, HostTool, McpSecret, Status

log = logging.getLogger(__name__)


class Servers:
    """`listeners` hear when a server's status or its tools change. The settings say which servers there are."""

    def __init__(self, workspace: Workspace, secrets: Secrets, spawn: Spawn) -> None:
        self.listeners: list[Callable[[], None]] = []
        self.mistakes: dict[str, str] = {}  # by server, why its settings cannot be read
        self._workspace = workspace
        self._secrets = secrets
        self._spawn = spawn
        self._host: Host | None = None
        self._changing = asyncio.Lock()

    def begin(self) -> None:
        """Start what is configured, in the background: a slow server delays nothing."""
        if self._workspace.settings.mcp:
            self._spawn(self.configure(), name="MCP servers")

    def tools(self) -> Sequence[ForeignTool]:
        """What the servers that are ready offer now."""
        return self._host.tools() if self._host else ()

    def prompts(self) -> Sequence[HostPrompt]:
        """What the servers that are ready offer to be said with a slash."""
        return [prompt for server in self.servers if server.tools or server.prompts for prompt in server.prompts]

    def resources(self) -> Sequence[HostResource]:
        """What they offer to be read."""
        return [one for server in self.servers for one in server.resources]

    async def prompt(self, server: str, name: str, values: Mapping[str, str]) -> str:
        return await (await self._hosting()).server(server).prompt(name, values)

    async def resource(self, server: str, uri: str) -> HostResult:
        return await (await self._hosting()).server(server).read(uri)

    @property
    def servers(self) -> Sequence[Hosted]:
        return self._host.servers if self._host else ()

    async def configure(self) -> None:
        """Take over what the settings say now."""
        async with self._changing:
            if self._host is None and not self._workspace.settings.mcp:
                return
            host = await self._hosting()
            await host.configure(self._configs())

    async def paste(self, text: str, name: str = "") -> Pasted:
        """Add servers in any form people paste. Secrets are kept before anything is written."""
        await self._hosting()
        from helix_desktop.mcp_host.config import parse

        pasted = parse(text, name=name)
        servers = [replace(server, bound=self._workspace.id) for server in pasted.servers]
        for server in servers:
            for reference, value in pasted.secrets.items():
                if reference.startswith(f"mcp/{server.name}/"):
                    await self._secrets.keep(server.secret(reference), value)
        for server in servers:
            await self._write(server.name, server.plain())
        await self.configure()
        return pasted

    async def remove(self, name: str) -> None:
        await self._write(name, None)
        await self.configure()

    async def switch(self, name: str, *, on: bool) -> None:
        """Start a server, or end it and leave it in the list."""
        await self._change(name, lambda _: {"enabled": on})

    async def switch_tool(self, name: str, tool: str, *, on: bool) -> None:
        """Offer one tool of a server to the agent, or do not."""
        await self._change(
            name, lambda server: {"off": tuple(sorted({*server.off} - {tool} if on else {*server.off, tool}))}
        )

    async def mark_reading(self, name: str, tool: str, *, reads: bool) -> None:
        """The user knows that a tool only reads: it runs in plan mode as well."""
        await self._change(
            name,
            lambda server: {"reading": tuple(sorted({*server.reading, tool} if reads else {*server.reading} - {tool}))},
        )

    async def limit(self, name: str, **seconds: float) -> None:
        """How long starting (`start_seconds`) and a call (`call_seconds`) may take."""
        await self._change(name, lambda _: seconds)

    async def restart(self, name: str) -> None:
        (await self._hosting()).server(name).restart()

    async def sign_in(self, name: str, page: Callable[[str], Awaitable[object]]) -> Status:
        """The user asks to sign in to a server: `page` opens the address it names. How the server is when that is done."""
        await self.configure()
        from helix_desktop.mcp_host.server import State

        server = (await self._hosting()).server(name)
        if server.status.state is State.OFF:
            raise WrongUse(f"The MCP server {name} is turned off.", remedy="Turn it on first, on the server's page.")

        def settled() -> bool:
            return server.status.state is not State.STARTING or server not in self.servers  # changed meanwhile

        await self._until(settled)
        if server.status.state is not State.READY and server in self.servers:
            server.sign_in(page)
            await self._until(settled)
        return server.status

    async def _until(self, holds: Callable[[], bool]) -> None:
        news = asyncio.Event()
        self.listeners.append(news.set)
        try:
            while not holds():
                news.clear()
                await news.wait()
        finally:
            self.listeners.remove(news.set)

    async def test(self, name: str) -> tuple[Status, Sequence[HostTool], Sequence[str]]:
        """Try a server once, beside the one that runs: its status, its tools, what it wrote to its standard error."""
        return await (await self._hosting()).test(_config(self._workspace.settings, name))

    async def aclose(self) -> None:
        if self._host is not None:
            await self._host.aclose()

    async def _hosting(self) -> Host:
        if self._host is None:
            host = await asyncio.to_thread(importlib.import_module, "helix_desktop.mcp_host.host")
            self._host = self._host or host.Host(
                spawn=self._spawn,
                secret=self._secrets.get,
                keep=self._keep,
                changed=self._tell,
                approved=self._workspace.settings.approved,
                approve=self._approve,
            )
        return self._host

    def _configs(self) -> Sequence[ServerConfig]:
        """All that can be read; `mistakes` says what is wrong with the others."""
        from helix_desktop.mcp_host.config import from_plain

        configs, self.mistakes = [], {}
        for name, table in self._workspace.settings.mcp.items():
            try:
                configs.append(from_plain(name, table))
            except (WrongUse, ValueError, TypeError) as error:
                self.mistakes[name] = str(error)
                log.warning("the settings of MCP server %s cannot be read", name)
        return configs

    async def _change(self, name: str, wanted: Callable[[ServerConfig], Mapping[str, Any]]) -> None:
        """`wanted`: what becomes of a server as it stands in the file by then."""
        await self._hosting()

        def changes(now: config.Settings) -> Mapping[str, Any]:
            before = _config(now, name)
            return {f"mcp.{config.quoted(name)}": replace(before, **wanted(before)).plain()}

        await asyncio.to_thread(self._workspace.change, changes)
        await self.configure()

    async def _write(self, name: str, table: Mapping[str, Any] | None) -> None:
        await asyncio.to_thread(self._workspace.change, {f"mcp.{config.quoted(name)}": table})

    async def _keep(self, secret: McpSecret, value: str) -> None:
        """With the keyring, or in the file that was allowed; where there is neither, until the program ends."""
        try:
            await self._secrets.keep(secret, value)
        except NoKeyring:
            await self._secrets.set(secret, value, where=Where.SESSION)

    def _approve(self, tool: str, fingerprint: str) -> None:
        self._workspace.change(lambda now: {"permissions.approved": {**now.approved, tool: fingerprint}})

    def _tell(self) -> None:
        for listener in tuple(self.listeners):
            listener()


def _config(settings: config.Settings, name: str) -> ServerConfig:
    from helix_desktop.mcp_host.config import from_plain

    table = settings.mcp.get(name)
    if table is None:
        raise NotThere(f"There is no MCP server {name[:60]!r} in this workspace.")
    return from_plain(name, table)
