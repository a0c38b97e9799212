"""Implements `WorkspaceConnections` for the window: opens a workspace here, or becomes a client of the
process that has it open, on this computer or on another.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop import running_instance
from helix_desktop.console import QuietConsole
from helix_desktop.errors import HelixError, StoreBusy
from helix_desktop.gui.shown_workspace import OTHER_COMPUTER, RememberedWorkspace, ShownWorkspace
from helix_desktop.program_folders import ProgramFolders

if TYPE_CHECKING:
    from helix_desktop.engine.ports import ClosedSearchResult
    from helix_desktop.providers.key_lender import KeyLender
    from helix_desktop.store.all_workspaces import KnownWorkspace
    from helix_desktop.workbench.all_workbenches import Workbenches
    from helix_desktop.workspace_host.client_workspace import ClientWorkspace
    from helix_desktop.workspace_host.host_line import HostLine
    from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost
    from helix_desktop.workspace_host.ssh_address import SshAddress

log = logging.getLogger(__name__)
MOST_HITS_ELSEWHERE = 20
MOST_MACHINES = 50  # So many of the names in the user's ssh configuration are offered.
LARGEST_CONFIGURATION = 1 << 20
# Another process that has a workspace open may be starting, ending or without a processor.
BUSY_SECONDS = 60.0
BUSY_PAUSE_SECONDS = 0.1


class HostConnections:
    """`clients_by_id`: the workspaces that other processes have open, by their ids in the window."""

    def __init__(self, where: ProgramFolders, desk: "Workbenches") -> None:
        self._where = where
        self._desk = desk
        self._lender: KeyLender | None = None
        self.clients_by_id: dict[str, ClientWorkspace] = {}
        # By workspace: where those of other computers are.
        self._addresses: dict[str, SshAddress] = {}
        # By workspace: another computer may not answer for minutes, and others must not wait for it.
        self._opening_locks: dict[str, asyncio.Lock] = {}

    def _lock_of(self, workspace: str) -> asyncio.Lock:
        return self._opening_locks.setdefault(workspace, asyncio.Lock())

    async def search_workspace(self, workspace: str, words: str) -> "ClosedSearchResult":
        """Searches a workspace of this computer that the window does not show: its files, or if
        another process has it open, such as the gateway, by asking that process.
        """
        try:
            return await self._desk.search_closed_workspace(workspace, words)
        except StoreBusy:
            found = await self._search_at_owner(workspace, words)
            if found is None:
                raise
            return found

    async def _search_at_owner(self, workspace: str, words: str) -> "ClosedSearchResult | None":
        """Returns None if no process answers."""
        from helix_desktop.engine.ports import ClosedSearchResult
        from helix_desktop.workspace_host.client_entries import shorten_search_hits
        from helix_desktop.workspace_host.host_connection import connect_to_host
        from helix_desktop.workspace_host.host_interface import SearchEntries

        host = await connect_to_host(self._where.run, workspace)
        if host is None:
            return None
        try:
            search = SearchEntries(words, "", MOST_HITS_ELSEWHERE, with_messages=True)
            result = await host.run_host_command(search)
            follower = await host.follow_list()
            rows = await follower.next_rows()
        finally:
            await host.close_host()
        if result.entries is None:
            return None
        titles = {listed.row.id: listed.row.title for listed in rows}
        return ClosedSearchResult(shorten_search_hits(result.entries.hits), titles)

    # --- Workspaces of this computer

    async def open_workspace(self, workspace: str) -> ShownWorkspace:
        """Opens a workspace of this computer in this process. If another process has it open and
        does not give it up, because an agent works there or it is another window, becomes its client.
        """
        if self._is_open_here(workspace):
            return await self._desk.open_workspace(workspace)
        async with self._lock_of(workspace):
            # Another call may have opened it meanwhile. This process would become its own client.
            if self._is_open_here(workspace):
                return await self._desk.open_workspace(workspace)
            client = self.clients_by_id.get(workspace)
            if client is not None:
                return client
            if await self._is_given_up(workspace):
                return await self._open_here_unless_busy(workspace)
            client = await self._connect_to_owner(workspace)
            if client is not None:
                return client
            return await self._desk.open_workspace(workspace)

    def _is_open_here(self, workspace: str) -> bool:
        return any(bench.id == workspace for bench in self._desk.opened_workbenches())

    async def _is_given_up(self, workspace: str) -> bool:
        """Asks the process that has the workspace open, if there is one, to give it up."""
        owner = await running_instance.connect_to_owner(self._where.run, workspace)
        if owner is None:
            return True
        try:
            code = await running_instance.run_at_owner(
                owner, ["gateway", "--release"], QuietConsole()
            )
        except HelixError as error:
            log.info("a workspace was not given up: %s", error.what)
            return False
        # A command that has it open for a moment says LATER. It is waited for.
        return code in (0, running_instance.LATER)

    async def _open_here_unless_busy(self, workspace: str) -> ShownWorkspace:
        """Opens it here. Another process may have been faster, and serve clients by now or soon."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            try:
                return await self._desk.open_workspace(workspace)
            except StoreBusy:
                client = await self._connect_to_owner(workspace)
                if client is not None:
                    return client
                if loop.time() > begun + BUSY_SECONDS:
                    raise
            await asyncio.sleep(BUSY_PAUSE_SECONDS)

    async def _connect_to_owner(self, workspace: str) -> "ClientWorkspace | None":
        from helix_desktop.workspace_host.host_connection import connect_to_host
        from helix_desktop.workspace_host.host_line import HostLine

        line = HostLine(partial(connect_to_host, self._where.run, workspace))
        return await self._become_client(line, workspace)

    # --- Workspaces of other computers

    async def open_remembered(self, remembered: RememberedWorkspace) -> ShownWorkspace:
        """Connects to a folder of another computer, with the user's own ssh."""
        from helix_desktop.workspace_host.host_line import HostLine
        from helix_desktop.workspace_host.ssh_address import SshAddress

        address = SshAddress.from_text(remembered.address)
        async with self._lock_of(remembered.id):
            client = self.clients_by_id.get(remembered.id)
            if client is not None:
                return client
            line = HostLine(partial(self._connect_and_lend, address), address.target)
            opened = await self._become_client(line, remembered.id)
            if opened is None:
                raise HelixError(f"There is no connection to {address.target}.")
            self._addresses[remembered.id] = address
            return opened

    async def lend_key(self, workspace: str, conversation: str, provider: str) -> None:
        """Has a process on the workspace's computer hold the user's key for a provider, for this
        conversation alone and until its turn is done. HelixError says why it does not.
        """
        from helix_desktop.workspace_host.key_holder import build_key_offer
        from helix_desktop.workspace_host.ssh_host import lend_key_over_ssh

        offer = await build_key_offer(
            conversation, provider, self._desk.configured, self._desk.secrets
        )
        await lend_key_over_ssh(self._addresses[workspace], "", offer, has_terminal=False)

    async def _connect_and_lend(self, address: "SshAddress") -> "RemoteWorkspaceHost":
        """Keys stay on this computer: the agent over there asks its models through it."""
        from helix_desktop.providers.key_lender import KeyLender
        from helix_desktop.workspace_host.ssh_host import connect_over_ssh

        if self._lender is None:
            self._lender = KeyLender(
                self._desk.configured, self._desk.secrets, self._desk.connections
            )
        host = await connect_over_ssh(address, has_terminal=False)
        await host.lend_providers(self._lender)
        return host

    async def _become_client(self, line: "HostLine", known_as: str) -> "ClientWorkspace | None":
        from helix_desktop.workspace_host.client_workspace import ClientWorkspace

        if not await line.connect_line():
            return None
        client = ClientWorkspace(line, known_as)
        try:
            await client.begin_with_list()
        except BaseException:
            await client.end_client()
            raise
        self.clients_by_id[known_as] = client
        return client

    # --- All

    async def close_client(self, workspace: str) -> None:
        client = self.clients_by_id.pop(workspace, None)
        if client is not None:
            await client.end_client()

    async def close_all_clients(self) -> None:
        closings = [self.close_client(workspace) for workspace in tuple(self.clients_by_id)]
        await asyncio.gather(*closings)

    def remember_address(self, text: str) -> RememberedWorkspace:
        """Returns what the window remembers of a folder on another computer. InvalidInput if the
        text is no address.
        """
        from helix_desktop.workspace_host.ssh_address import SshAddress

        address = SshAddress.from_text(text)
        # The id stands in paths and links, where an address cannot.
        digest = hashlib.sha256(text.encode()).hexdigest()
        name = Path(address.folder).name or address.target
        return RememberedWorkspace(f"{OTHER_COMPUTER}{digest[:16]}", text, name)

    def list_remembered(
        self, remembered: Sequence[RememberedWorkspace]
    ) -> "Sequence[KnownWorkspace]":
        """Returns them as the list of workspaces shows them."""
        # What this needs is loaded only by who works on other computers.
        if not remembered:
            return []
        from helix_desktop.store.all_workspaces import KnownWorkspace
        from helix_desktop.store.workspace_settings import WorkspaceConfig
        from helix_desktop.workspace_host.ssh_address import SshAddress

        rows: list[KnownWorkspace] = []
        for workspace in remembered:
            address = SshAddress.from_text(workspace.address)
            shown_folder = f"{address.target}:{address.folder}"
            settings = WorkspaceConfig(
                name=workspace.name, colour=workspace.colour, roots=(shown_folder,)
            )
            rows.append(KnownWorkspace(workspace.id, Path(shown_folder), settings))
        return rows

    async def list_machines(self) -> Sequence[str]:
        return await asyncio.to_thread(read_ssh_host_names, Path.home() / ".ssh" / "config")


def read_ssh_host_names(file: Path) -> list[str]:
    """Returns the machines that the user's ssh configuration names, without patterns."""
    try:
        with file.open(encoding="utf-8", errors="replace") as configuration:
            text = configuration.read(LARGEST_CONFIGURATION)
    except OSError:
        return []
    names: list[str] = []
    for line in text.splitlines():
        found = re.match(r"\s*Host(?:\s+|\s*=\s*)(.+)", line, re.IGNORECASE)
        if found is None:
            continue
        for name in found[1].split():
            is_machine = re.fullmatch(r"[A-Za-z0-9_][\w.@-]*", name) is not None
            if is_machine and name not in names:
                names.append(name)
    return names[:MOST_MACHINES]
