"""Starts and stops a workspace's MCP servers, each in its own task, and lists their tools."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from helix_desktop.errors import NotFound
from helix_desktop.mcp_client import hosted_server
from helix_desktop.mcp_client.login_path import read_login_path
from helix_desktop.mcp_client.server_config import ServerConfig
from helix_desktop.processes.folders_of_agents import environment_without_agents
from helix_desktop.processes.starter import find_users_program

# Environment variables for MCP servers: enough to find programs, but none of our keys.
PASSED_ON = (
    "HOME USER LOGNAME SHELL LANG LC_ALL LC_CTYPE TZ TMPDIR TEMP TMP SYSTEMROOT COMSPEC PATHEXT APPDATA LOCALAPPDATA "
    "USERPROFILE PROGRAMFILES http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY SSL_CERT_FILE NODE_EXTRA_CA_CERTS"
)
Spawn = Callable[..., "asyncio.Task[Any]"]


class McpServerHost:
    """Servers get a few variables of `environment`, and the PATH of the user's login shell."""

    def __init__(
        self,
        spawn: Spawn,
        needs: hosted_server.McpServerDependencies,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._spawn = spawn
        self._needs = needs
        self._own_environment = environment
        self._reading_login_path: asyncio.Task[str] | None = None
        self._servers: dict[str, hosted_server.HostedServer] = {}
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    @property
    def hosted_servers(self) -> Sequence[hosted_server.HostedServer]:
        return list(self._servers.values())

    def find_hosted_server(self, name: str) -> hosted_server.HostedServer:
        if name not in self._servers:
            raise NotFound(
                f"There is no MCP server named {name[:60]!r}.",
                remedy=f"Available: {', '.join(self._servers) or 'none'}.",
            )
        return self._servers[name]

    def list_ready_tools(self) -> Sequence[hosted_server.McpServerTool]:
        """Return ready servers' tools. Only the first of each name is offered, so that
        no call goes astray.
        """
        offered: dict[str, hosted_server.McpServerTool] = {}
        for server in self._servers.values():
            for tool in server.offered_tools:
                offered.setdefault(tool.spec.name, tool)
        return list(offered.values())

    async def configure_servers(self, configs: Sequence[ServerConfig]) -> None:
        """Run exactly these servers: start new or changed ones, and end the others.

        A server goes on running if only a setting has changed that needs no new start.
        """
        configs_by_name = {config.name: config for config in configs}
        names_to_stop: list[str] = []
        for name, server in self._servers.items():
            new_config = configs_by_name.get(name)
            if new_config is not None and _can_go_on(server.config, new_config):
                server.config = new_config
            else:
                names_to_stop.append(name)

        await asyncio.gather(*map(self._stop_server, names_to_stop))
        for name, config in configs_by_name.items():
            if name not in self._servers:
                self._start_server(config)
        self._needs.changed()

    def _start_server(self, config: ServerConfig) -> None:
        """Start a server's task. One that is turned off is only listed."""
        server = hosted_server.HostedServer(config, self._needs, self._login_environment)
        self._servers[config.name] = server
        if config.enabled:
            starting = hosted_server.McpConnectionState.STARTING
            server.status = hosted_server.McpConnectionStatus(starting, since=time.time())
            self._tasks[config.name] = self._spawn(
                server.keep_connected(), name=f"MCP server {config.name}"
            )

    async def _stop_server(self, name: str) -> None:
        del self._servers[name]
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=2)

    async def aclose(self) -> None:
        """End all servers at the same time, each within two seconds."""
        await self.configure_servers([])

    async def try_out_server(
        self, config: ServerConfig
    ) -> tuple[
        hosted_server.McpConnectionStatus, Sequence[hosted_server.McpServerTool], Sequence[str]
    ]:
        """Connect to a server once, before the user adds it. It ends again afterwards.

        Returns its status, its tools, and what it wrote to standard error.
        """
        changed = asyncio.Event()
        needs = replace(self._needs, changed=changed.set)
        server = hosted_server.HostedServer(
            replace(config, enabled=True), needs, self._login_environment
        )
        task = self._spawn(server.keep_connected(), name=f"test of MCP server {config.name}")
        # Wakes the loop if the task ends, as when the workspace closes.
        task.add_done_callback(lambda _: changed.set())
        unfinished = (
            hosted_server.McpConnectionState.OFF,
            hosted_server.McpConnectionState.STARTING,
        )
        try:
            while server.status.state in unfinished and not task.done():
                changed.clear()
                await changed.wait()
            return server.status, server.all_tools, server.server_log_lines
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=2)

    async def check_programs(self, configs: Sequence[ServerConfig]) -> None:
        """Raise NotFound that names the first program that these servers need and that is not
        there, before anybody is asked whether they may run.
        """
        environment: Mapping[str, str] | None = None
        for config in configs:
            # A name with a reference in it is known only when the server starts.
            if config.kind != "stdio" or "$" in config.command:
                continue
            if environment is None:
                environment = await self._login_environment()
            find_users_program(config.command, environment)

    async def _login_environment(self) -> Mapping[str, str]:
        """Return the variables that servers get: a few of ours, and the PATH of the login shell.

        The shell is asked once, in a task of its own, since the server that asks first may end
        before it answers.
        """
        if self._reading_login_path is None:
            reading = read_login_path(self._own_environment)
            self._reading_login_path = self._spawn(reading, name="login path")
        login_path = await asyncio.shield(self._reading_login_path)

        passed_on: dict[str, str] = {}
        for name in PASSED_ON.split():
            if name in self._own_environment:
                passed_on[name] = self._own_environment[name]
        passed_on["PATH"] = login_path
        return environment_without_agents(passed_on)


def _can_go_on(present: ServerConfig, wanted: ServerConfig) -> bool:
    """Whether a running server can go on: only switched-off tools or limits may differ."""
    with_new_limits = replace(
        present, off=wanted.off, reading=wanted.reading, call_seconds=wanted.call_seconds
    )
    return with_new_limits == wanted
