"""Shares a workspace through a store, tests and joins stores, and stops sharing."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from helix_desktop.errors import HelixError, InvalidInput, NotFound, SharedStoreUnreachable
from helix_desktop.histories import leaked_keys
from helix_desktop.secrets import SecretStorage, SharedStoreKey
from helix_desktop.store import workspace_link, workspace_settings
from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace
from helix_desktop.store.shared import row_encryption
from helix_desktop.store.shared import store_address as addresses
from helix_desktop.store.shared.async_rows import AsyncRowStore
from helix_desktop.store.shared.store_address import StoreAddress
from helix_desktop.store.stored_workspace import StoredWorkspace

_FACTS_SEARCHED_AT_ONCE = 500


class WorkspaceSharingSetup:
    """What the window needs to share a workspace."""

    def __init__(self, workspace: StoredWorkspace, secrets: SecretStorage) -> None:
        self._workspace = workspace
        self._secrets = secrets

    async def measure_shared_amount(self) -> tuple[int, int, int]:
        """Return how much would be sent: conversations, entries, and the bytes of these."""
        await self._workspace.index.wait_until_indexed()
        stored = await self._workspace.index.compute_figures()
        conversations = await self._workspace.journal.list_conversations()
        return len(conversations), stored.entries, stored.size

    async def find_secrets_of_conversation(self, conversation: str) -> list[str]:
        """Return what looks like a key in the messages and outputs of a conversation, each once.

        A conversation may have gigabytes of outputs, so they are read one after another.
        """
        secrets: dict[str, None] = {}
        last_seq = 0
        while True:
            facts = await self._workspace.journal.read_facts(
                conversation, last_seq, _FACTS_SEARCHED_AT_ONCE
            )
            found = await asyncio.to_thread(leaked_keys.find_keys_in_facts, facts, ())
            secrets.update(dict.fromkeys(found))
            for digest in leaked_keys.list_outputs_beside_facts(facts):
                contents = await self._workspace.cache.read_contents([digest])
                found = await asyncio.to_thread(
                    leaked_keys.find_keys_in_facts, (), contents.values()
                )
                secrets.update(dict.fromkeys(found))
            if len(facts) < _FACTS_SEARCHED_AT_ONCE:
                return list(secrets)
            last_seq = facts[-1].seq

    async def test_store_address(self, address: str) -> str:
        """Describe the store at an address, or raise why it cannot be used. No
        workspace data is sent.
        """
        store_address = addresses.parse_store_address(address)
        key = await _read_sealing_key(self._workspace.id, self._secrets)
        return await _probe_with_key(store_address, key, None)

    async def start_sharing_at(self, address: str) -> None:
        await share_workspace(self._workspace, address, self._secrets)

    async def read_key_for_joining(self) -> str:
        """Return the key that other machines need besides the address. NotFound if it
        is not shared from here.
        """
        key = await self._secrets.read_secret(SharedStoreKey(self._workspace.id))
        if key:
            return key
        raise NotFound(
            "This workspace has no key: it is not shared from this computer.",
            remedy="Share the workspace.",
        )


async def share_workspace(
    workspace: StoredWorkspace,
    address: str,
    secrets: SecretStorage,
    *,
    acknowledge: str = "",
    quota: int | None = None,
) -> str:
    """Share a workspace from now on, with its old key or a new one. Both secrets are
    stored in the keyring.

    If it is shared there already, only the password changes. Returns a description of the store.
    """
    store_address = addresses.parse_store_address(address)
    other = workspace.settings.shared.get("url")
    if other and other != store_address.url:
        raise InvalidInput(
            f"{workspace.name} is already shared through {other}.",
            remedy="Stop sharing the workspace first.",
        )
    key = await _read_sealing_key(workspace.id, secrets)
    description = await _probe_with_key(store_address, key, quota)
    await workspace_link.store_link_secrets(workspace.id, store_address, key, secrets)
    await workspace.stop_sharing()
    changes = {
        "shared.url": store_address.url,
        "shared.acknowledge": acknowledge or "local",
        "shared.environment": None,
    }
    await asyncio.to_thread(workspace.change_settings, changes)
    link = workspace_link.link_workspace(workspace, secrets, environ={})
    if link:
        # If this fails, the rows in use are announced later.
        with suppress(SharedStoreUnreachable):
            await link.announce_used_rows()
    return description


async def share_from_environment(
    workspace: StoredWorkspace, *, acknowledge: str = "", quota: int | None = None
) -> str:
    """Share through `HELIX_STORE` with `HELIX_STORE_KEY`, where others with this key
    find the workspace.
    """
    store_address = addresses.parse_store_address(os.environ[workspace_link.ADDRESS_VARIABLE])
    key = workspace_link.read_store_key()
    key_space = row_encryption.RowCipher(key).space.hex()
    await asyncio.to_thread(workspace_link.check_only_one_in_space, workspace.folder, key_space)
    description = await _probe_with_key(store_address, key, quota)
    changes = {"shared.environment": key_space, "shared.acknowledge": acknowledge or "local"}
    await asyncio.to_thread(workspace.change_settings, changes)
    connect = partial(asyncio.to_thread, workspace_link.build_store_connection, store_address, key)
    await workspace.stop_sharing()
    link = workspace.share_content(store_address.url, connect, acknowledge=acknowledge)
    await link.announce_used_rows()
    return description


async def join_shared_workspace(
    workspaces: AllWorkspaces,
    address: str,
    key_text: str,
    name: str,
    folder: Path,
    secrets: SecretStorage | None,
) -> KnownWorkspace:
    """Create a workspace for one that is shared there, or nothing if that fails.
    `secrets`: where to store the key.
    """
    store_address = addresses.parse_store_address(address)
    key = row_encryption.parse_key_line(key_text)
    await asyncio.to_thread(workspaces.check_usable_by_tools, folder)
    async with _connect_once(store_address, key) as remote:
        usage = await remote.fetch_usage()
        is_store_empty = not usage.rows
        if is_store_empty:
            published_uses = await remote.run_in_thread(remote.engine.fetch_published_uses)
            if not published_uses:
                raise NotFound(
                    "No workspace is shared at this address with this key.",
                    remedy="Nothing was created. Check the address and the key.",
                )
    key_space = row_encryption.RowCipher(key).space.hex()
    if secrets is None:
        await asyncio.to_thread(
            workspace_link.check_only_one_in_space, workspaces.folder / "new", key_space
        )
    joined = await asyncio.to_thread(workspaces.create_stored_workspace, name, folder)
    try:
        changes = {"shared.acknowledge": "local"}
        if secrets is not None:
            await workspace_link.store_link_secrets(joined.id, store_address, key, secrets)
            changes["shared.url"] = store_address.url
        else:
            changes["shared.environment"] = key_space
        await asyncio.to_thread(
            workspace_settings.change_workspace_settings,
            joined.folder / workspace_settings.NAME,
            changes,
        )
    except HelixError:
        await asyncio.to_thread(workspaces.trash_workspace, joined.id)
        await asyncio.to_thread(workspaces.delete_workspace, joined.id)
        raise
    return joined


async def unshare_workspace(workspace: StoredWorkspace) -> str:
    """Stop sharing. What was sent stays there, and the key here. Returns a sentence if
    the store was not told.
    """
    problem = ""
    try:
        if workspace.link is not None:
            await workspace.link.withdraw_used_rows()
    except HelixError as error:
        problem = f"The store could not be told: {error.what}"
    await workspace.stop_sharing()
    await asyncio.to_thread(workspace.change_settings, {"shared": None, "shared.environment": ""})
    return problem


async def _read_sealing_key(workspace: str, secrets: SecretStorage) -> bytes:
    """Return the workspace's key, or a new one if it has none yet."""
    stored_key = await secrets.read_secret(SharedStoreKey(workspace))
    if stored_key:
        return row_encryption.parse_key_line(stored_key)
    return row_encryption.new_workspace_key()


async def _probe_with_key(address: StoreAddress, key: bytes, quota: int | None) -> str:
    async with _connect_once(address, key) as remote:
        description = await remote.run_in_thread(remote.engine.describe_server)
        if quota is not None:
            await remote.run_in_thread(remote.engine.set_quota, quota)
    return description


@asynccontextmanager
async def _connect_once(address: StoreAddress, key: bytes) -> AsyncIterator[AsyncRowStore]:
    """Connect for a check. Nothing is shared yet, so errors do not speak of changes that wait."""
    connected = await asyncio.to_thread(workspace_link.build_store_connection, address, key)
    try:
        yield connected.remote
    except SharedStoreUnreachable as error:
        unchanged = "Check the address, or try again later. Nothing was changed."
        raise SharedStoreUnreachable(error.what, remedy=unchanged) from error
    finally:
        await connected.remote.aclose()
