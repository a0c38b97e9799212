"""The computer that `--host ssh://…` names, and what commands ask of a workspace there."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from helix_desktop.commands import workspace_access
from helix_desktop.commands.workspace_access import find_id_by_prefix
from helix_desktop.errors import AmbiguousName
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.key_lender import KeyLender
from helix_desktop.workspace_host.key_holder import build_key_offer
from helix_desktop.workspace_host.ssh_address import SshAddress
from helix_desktop.workspace_host.ssh_host import connect_over_ssh, lend_key_over_ssh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from helix_desktop.workspace_host.host_interface import HostListRow, WorkspaceHost
    from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost


class OtherComputer:
    """The computer that `--host` names. Connect to it as often as the line breaks."""

    def __init__(self, arguments: Namespace) -> None:
        self.address = SshAddress.from_text(arguments.host)
        self._workspace = arguments.workspace or ""
        self._configured = ConfiguredProviders(arguments.places.providers_file)
        self._keys = workspace_access.open_secrets(arguments.places)
        self._connections = ProviderConnections()
        # One for all connections: by it, the host knows that the same computer has come again.
        self._lender = KeyLender(self._configured, self._keys, self._connections)

    # The first model that is named there becomes the workspace's: nobody may be there to choose one.
    becomes_usual = True

    @property
    def sentence_after_break(self) -> str:
        return f"The connection to {self.address.target} broke off. What the agent does there goes on. Connecting again…"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[RemoteWorkspaceHost]:
        host = await connect_over_ssh(self.address, self._workspace)
        try:
            await host.lend_providers(self._lender)
            yield host
        finally:
            await host.close_host()

    async def lend_key(self, conversation: str, provider: str) -> None:
        """Has a process over there hold a provider's key until the conversation's turn is done."""
        offer = await build_key_offer(conversation, provider, self._configured, self._keys)
        await lend_key_over_ssh(self.address, self._workspace, offer)

    async def aclose(self) -> None:
        await self._connections.aclose()


async def read_list(host: WorkspaceHost) -> Sequence[HostListRow]:
    follower = await host.follow_list()
    rows = await follower.next_rows()
    await follower.close_follower()
    return rows


def find_row_by_prefix(rows: Sequence[HostListRow], prefix: str) -> str:
    """Returns the id of the conversation with this title, or with this beginning of its id."""
    all_ids = [entry.row.id for entry in rows]
    named_ids: list[str] = []
    ids_in_use: list[str] = []
    for entry in rows:
        row = entry.row
        if prefix not in (row.id, row.title):
            continue
        named_ids.append(row.id)
        if not row.archived and not row.trashed:
            ids_in_use.append(row.id)
    # Others only if none that is in use has this name.
    chosen_ids = ids_in_use or named_ids
    if len(chosen_ids) > 1:
        some_ids = ", ".join(chosen_ids[:10])
        raise AmbiguousName(
            f"{len(chosen_ids)} conversations are called {prefix}: {some_ids}.",
            remedy="Use the ID instead of the name.",
        )
    if chosen_ids:
        return chosen_ids[0]
    remedy = "To see all conversations, run `conversation list`."
    return find_id_by_prefix(all_ids, prefix, ("conversation", "conversations"), remedy)
