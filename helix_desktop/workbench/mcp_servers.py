"""The user's MCP servers in one workspace. Nothing of MCP is imported before the first
one is configured.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from helix_desktop.engine.session_setup import TaskSpawner
from helix_desktop.errors import HelixError, InvalidInput, NotFound, NoUsableKeyring
from helix_desktop.secrets import SecretKeeper, SecretStorage
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_settings import WorkspaceConfig, quote_key_part
from helix_desktop.tools.toolbox import ForeignTool

if TYPE_CHECKING:
    from helix_desktop.mcp_client.hosted_server import (
        HostedServer,
        McpConnectionStatus,
        McpSecret,
        McpServerPrompt,
        McpServerResource,
        McpServerTool,
    )
    from helix_desktop.mcp_client.server_config import PastedServers, ServerConfig
    from helix_desktop.mcp_client.server_host import McpServerHost

log = logging.getLogger(__name__)


class WorkspaceMcpServers:
    """The servers in the settings. `listeners` are called when a server's status or its
    tools change.
    """

    def __init__(
        self, workspace: StoredWorkspace, secrets: SecretStorage, spawn: TaskSpawner
    ) -> None:
        self.listeners: list[Callable[[], None]] = []
        self._workspace = workspace
        self._secrets = secrets
        self._spawn = spawn
        self._host: McpServerHost | None = None
        self._changing = asyncio.Lock()

    def start_configured_servers(self) -> None:
        """Start the configured servers in the background, so that a slow one delays nothing."""
        if self._workspace.settings.mcp:
            self._spawn(self.apply_server_settings(), name="MCP servers")

    def list_offered_server_tools(self) -> Sequence[ForeignTool]:
        if self._host is None:
            return ()
        return self._host.list_ready_tools()

    def list_server_prompts(self) -> Sequence[McpServerPrompt]:
        """Return the prompts of the running servers, which the user can enter with a slash."""
        prompts: list[McpServerPrompt] = []
        for server in self.running_servers:
            prompts += server.prompts
        return prompts

    def list_offered_resources(self) -> Sequence[McpServerResource]:
        resources: list[McpServerResource] = []
        for server in self.running_servers:
            resources += server.resources
        return resources

    async def find_server(self, name: str) -> HostedServer:
        host = await self._require_host()
        return host.find_hosted_server(name)

    @property
    def running_servers(self) -> Sequence[HostedServer]:
        if self._host is None:
            return ()
        return self._host.hosted_servers

    async def apply_server_settings(self) -> None:
        """Start, stop and reconnect servers as the settings say now."""
        async with self._changing:
            if self._host is None and not self._workspace.settings.mcp:
                return
            host = await self._require_host()
            await host.configure_servers(self._readable_configs())

    async def check_programs_of_servers(self, servers: Sequence[ServerConfig]) -> None:
        """Raise NotFound if a program that one of these servers needs is not on this computer."""
        host = await self._require_host()
        await host.check_programs(servers)

    async def add_pasted_servers(self, text: str, name: str = "") -> PastedServers:
        """Add servers from pasted text in any common form. Secrets are stored before settings.

        A server of the same name is replaced. What the user has set for it stays, but not which
        of its tools only read: another program may call others so.
        """
        await self._require_host()
        from helix_desktop.mcp_client.server_config import parse_pasted_text

        pasted = parse_pasted_text(text, name=name)
        servers = [replace(server, bound=self._workspace.id) for server in pasted.servers]
        for server in servers:
            for reference, value in pasted.secrets.items():
                if reference.startswith(f"mcp/{server.name}/"):
                    await self._store_server_secret(server.referenced_secret(reference), value)
        for server in servers:
            kept = self._keep_settings_of_replaced_server(server)
            await self._write_server_table(kept.name, kept.as_settings_table())
        await self.apply_server_settings()
        return pasted

    def _keep_settings_of_replaced_server(self, server: ServerConfig) -> ServerConfig:
        if server.name not in self._workspace.settings.mcp:
            return server
        try:
            replaced = _config_of_server(self._workspace.settings, server.name)
        except HelixError:  # Its table cannot be read: this is how the user mends it.
            return server
        return replace(
            server,
            off=replaced.off,
            start_seconds=replaced.start_seconds,
            call_seconds=replaced.call_seconds,
        )

    async def remove_server(self, name: str) -> None:
        await self._write_server_table(name, None)
        await self.apply_server_settings()

    async def switch_server(self, name: str, *, on: bool) -> None:
        """Start a server, or stop it and leave it in the list."""
        await self._change_server_table(name, lambda _: {"enabled": on})

    async def switch_server_tool(self, name: str, tool: str, *, on: bool) -> None:
        def with_switched_tool(server: ServerConfig) -> Mapping[str, Any]:
            off = set(server.off)
            if on:
                off.discard(tool)
            else:
                off.add(tool)
            return {"off": tuple(sorted(off))}

        await self._change_server_table(name, with_switched_tool)

    async def mark_tool_as_read_only(self, name: str, tool: str, *, reads: bool) -> None:
        """Note that the user says whether a tool only reads. If so, it runs in plan
        mode as well.
        """

        def with_marked_tool(server: ServerConfig) -> Mapping[str, Any]:
            reading = set(server.reading)
            if reads:
                reading.add(tool)
            else:
                reading.discard(tool)
            return {"reading": tuple(sorted(reading))}

        await self._change_server_table(name, with_marked_tool)

    async def set_server_timeouts(self, name: str, **seconds: float) -> None:
        """Set how long starting (`start_seconds`) and a call (`call_seconds`) may take."""
        await self._change_server_table(name, lambda _: seconds)

    async def restart_server(self, name: str) -> None:
        server = await self.find_server(name)
        server.reconnect_now()

    async def sign_in_at_server(
        self, name: str, page: Callable[[str], Awaitable[object]]
    ) -> McpConnectionStatus:
        """Sign in to a server: `page` opens the address that it names. Returns the
        server's status afterwards.
        """
        await self.apply_server_settings()
        from helix_desktop.mcp_client.hosted_server import McpConnectionState

        server = await self.find_server(name)
        if server.status.state is McpConnectionState.OFF:
            raise InvalidInput(
                f"The MCP server {name} is turned off.", remedy="Turn the server on first."
            )

        def is_sign_in_finished() -> bool:
            # If the settings have changed in the meantime, the server is no longer in the list.
            return (
                server.status.state is not McpConnectionState.STARTING
                or server not in self.running_servers
            )

        await self._wait_until_true(is_sign_in_finished)
        if server.status.state is not McpConnectionState.READY and server in self.running_servers:
            server.sign_in_with_page(page)
            await self._wait_until_true(is_sign_in_finished)
        return server.status

    async def _wait_until_true(self, condition: Callable[[], bool]) -> None:
        status_changed = asyncio.Event()
        self.listeners.append(status_changed.set)
        try:
            while not condition():
                status_changed.clear()
                await status_changed.wait()
        finally:
            self.listeners.remove(status_changed.set)

    async def test_server_once(
        self, name: str
    ) -> tuple[McpConnectionStatus, Sequence[McpServerTool], Sequence[str]]:
        """Start a server once more for a test. Returns its status, tools and error output."""
        host = await self._require_host()
        config = _config_of_server(self._workspace.settings, name)
        return await host.try_out_server(config)

    async def aclose(self) -> None:
        if self._host is not None:
            await self._host.aclose()

    async def _require_host(self) -> McpServerHost:
        """Return the object that runs the servers. It is created when it is first
        needed.
        """
        if self._host is None:
            host = await asyncio.to_thread(
                importlib.import_module, "helix_desktop.mcp_client.server_host"
            )
            needs = host.hosted_server.McpServerDependencies(
                self._secrets.read_secret,
                self._notify_server_listeners,
                dict(self._workspace.settings.approved),
                self._approve_tool_description,
                self._store_server_secret,
            )
            self._host = self._host or host.McpServerHost(self._spawn, needs)
        return self._host

    def _readable_configs(self) -> Sequence[ServerConfig]:
        """Return the configurations that can be read. The settings say why others cannot."""
        from helix_desktop.mcp_client.server_config import parse_server_table

        configs = []
        for name, table in self._workspace.settings.mcp.items():
            try:
                configs.append(parse_server_table(name, table))
            except (InvalidInput, ValueError, TypeError):
                log.warning("the settings of MCP server %s cannot be read", name)
        return configs

    async def _change_server_table(
        self, name: str, choose_values: Callable[[ServerConfig], Mapping[str, Any]]
    ) -> None:
        """Change a server's table. `choose_values` returns new values, given those in the file by
        then.
        """
        await self._require_host()

        def changed_server_keys(settings: WorkspaceConfig) -> Mapping[str, Any]:
            config = _config_of_server(settings, name)
            changed_config = replace(config, **choose_values(config))
            return {f"mcp.{quote_key_part(name)}": changed_config.as_settings_table()}

        await asyncio.to_thread(self._workspace.change_settings, changed_server_keys)
        await self.apply_server_settings()

    async def _write_server_table(self, name: str, table: Mapping[str, Any] | None) -> None:
        changes = {f"mcp.{quote_key_part(name)}": table}
        await asyncio.to_thread(self._workspace.change_settings, changes)

    async def _store_server_secret(self, secret: McpSecret, value: str) -> None:
        """Store it in the keyring or in the file that the user allowed, or else until
        the program ends.
        """
        try:
            await self._secrets.store_secret(secret, value)
        except NoUsableKeyring:
            await self._secrets.store_secret_at(secret, value, where=SecretKeeper.SESSION)

    def _approve_tool_description(self, tool: str, fingerprint: str) -> None:
        def with_approved_tool(settings: WorkspaceConfig) -> Mapping[str, Any]:
            approved = dict(settings.approved)
            approved[tool] = fingerprint
            return {"permissions.approved": approved}

        self._workspace.change_settings(with_approved_tool)

    def _notify_server_listeners(self) -> None:
        for listener in tuple(self.listeners):
            listener()


def _config_of_server(settings: WorkspaceConfig, name: str) -> ServerConfig:
    from helix_desktop.mcp_client.server_config import parse_server_table

    table = settings.mcp.get(name)
    if table is None:
        raise NotFound(f"There is no MCP server named {name[:60]!r} in this workspace.")
    return parse_server_table(name, table)
