"""The process on this computer that has a workspace open, for commands that are its clients."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from helix_desktop.console import Console
from helix_desktop.errors import OwnerEnded
from helix_desktop.gateway import wrapped_agent
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.workspace_host.host_connection import connect_to_host
from helix_desktop.workspace_host.kept_host import HostStarter
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost


class WorkspaceOwner:
    """If the owner ends, the next one is its successor: who has opened the workspace since, or a
    process of its own. `console`: is told if it takes long to find one.
    """

    becomes_usual = False
    sentence_after_break = "The program that had the workspace open has ended or does not answer. The turn goes on there, or in the next one."

    def __init__(self, places: ProgramFolders, workspace: str, console: Console) -> None:
        self._connect_to_host = partial(connect_to_host, places.run, workspace)
        program = wrapped_agent.command_of_this_program(places)
        self._starter = HostStarter(places.run, workspace, program, console)

    async def is_serving_clients(self) -> bool:
        """Whether it has agents. A command that has the workspace open for a moment has none."""
        try:
            host = await self._connect_to_host()
        except OwnerEnded:  # It ended just now.
            return False
        if host is None:
            return False
        await host.close_host()
        return True

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[RemoteWorkspaceHost]:
        host = await self._starter.connect_or_start(self._connect_to_host)
        try:
            yield host
        finally:
            await host.close_host()
