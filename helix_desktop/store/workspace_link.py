"""Links a workspace to its shared store, by its settings, with the key from the keyring.

On a machine without a desktop, both can come from the environment, and no keyring is
used: HELIX_STORE: the address, such as `postgresql://user:password@host/database`, with
which it was shared or joined. HELIX_STORE_KEY: the line that `workspace share
--show-key` or `workspace new-key` prints.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from helix_desktop.errors import ActionRefused, HelixError, NotFound, NoUsableKeyring
from helix_desktop.secrets import (
    Addressee,
    SecretKeeper,
    SecretStorage,
    SharedStoreKey,
    SharedStoreLogin,
)
from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace
from helix_desktop.store.shared import link_progress, row_encryption, store_address
from helix_desktop.store.shared.shared_store_link import SharedStoreConnection, SharedStoreLink
from helix_desktop.store.shared.store_address import StoreAddress
from helix_desktop.store.stored_workspace import StoredWorkspace

ADDRESS_VARIABLE = "HELIX_STORE"
KEY_VARIABLE = "HELIX_STORE_KEY"


def is_set_up_to_be_shared(
    workspace: StoredWorkspace | KnownWorkspace, environ: Mapping[str, str] = os.environ
) -> bool:
    """Whether the settings, or what an earlier version left, say that it is shared."""
    shared = workspace.settings.shared
    if shared.get("url"):
        return True
    if not environ.get(ADDRESS_VARIABLE):
        return False
    if "environment" in shared:  # The space it was shared in, or nothing if that has ended.
        return bool(shared["environment"])
    with suppress(HelixError):
        own_space = row_encryption.RowCipher(read_store_key(environ)).space.hex()
        return _read_known_space(workspace.folder, shared) == own_space
    return False


def _read_known_space(folder: Path, shared: Mapping[str, str]) -> str:
    """Return the space in which a workspace is shared, or was last in step, or an empty string."""
    known_space = shared.get("environment")
    if known_space is not None:
        return known_space
    return link_progress.read_link_progress(folder).space.partition(" ")[0]


def check_only_one_in_space(folder: Path, space: str) -> None:
    """Refuse a second workspace of this computer in the same space, since both would become one."""
    for other in AllWorkspaces(folder.parent).list_workspaces():
        if other.folder == folder:
            continue
        if _read_known_space(other.folder, other.settings.shared) == space:
            raise ActionRefused(
                f"The workspace {other.name} on this computer is already shared with the key in {KEY_VARIABLE}. The two workspaces would be merged.",
                remedy="Nothing was sent. Use another key, "
                "or run `workspace unshare --yes` for the workspace that you do not want to share with this key.",
            )


def link_workspace(
    workspace: StoredWorkspace,
    secrets: SecretStorage,
    *,
    environ: Mapping[str, str] = os.environ,
    syncs: bool = True,
) -> SharedStoreLink | None:
    """Share a workspace as its settings say, without waiting for the store, or return None.

    The link connects later, and again after each failure, by the function that it is given here.
    """
    if not is_set_up_to_be_shared(workspace, environ):
        return None
    url = workspace.settings.shared.get("url", "")
    address = store_address.parse_store_address(url or environ[ADDRESS_VARIABLE])

    async def connect() -> SharedStoreConnection:
        """Connect by the saved address and key, or by those of the environment, which may be wrong
        and are compared with what is known of the workspace.
        """
        if url:
            return await connect_with_key(workspace.id, address, secrets)
        key = read_store_key(environ)
        connection = await asyncio.to_thread(build_store_connection, address, key)
        try:
            await _check_own_space(workspace, address.url, connection)
        except BaseException:
            await connection.remote.aclose()
            raise
        return connection

    link = workspace.share_content(
        address.url, connect, acknowledge=workspace.settings.shared.get("acknowledge", "")
    )
    if syncs:
        link.start_syncing()
    return link


def read_store_key(environ: Mapping[str, str] = os.environ) -> bytes:
    """Return the key for the store in the environment. Raises NotFound without one."""
    if not environ.get(KEY_VARIABLE):
        raise NotFound(
            f"{ADDRESS_VARIABLE} is set, but {KEY_VARIABLE} is not.",
            remedy=f"Set {KEY_VARIABLE} to the key that `workspace share --show-key` prints, or create a key with `workspace new-key`.",
        )
    return row_encryption.parse_key_line(environ[KEY_VARIABLE])


async def _check_own_space(
    workspace: StoredWorkspace, url: str, connection: SharedStoreConnection
) -> None:
    """Refuse a connection that leads elsewhere than before: with another key, the store seems empty,
    and a new address may be wrong.

    A space is the part of a store that one key opens. Its name is computed from the key, and is
    remembered here.
    """
    folder = workspace.folder
    shared = workspace.settings.shared
    space = connection.seal.space.hex()
    if _read_known_space(folder, shared) != space:
        raise NotFound(
            f"The key in {KEY_VARIABLE} is not the key of this shared workspace.",
            remedy="Nothing was sent. Set the key that this workspace was shared with.",
        )
    if "environment" not in shared:
        await asyncio.to_thread(check_only_one_in_space, folder, space)
    if link_progress.read_link_progress(folder).space == connection.join_space_and_address(url):
        return
    if await _is_space_empty(connection):
        raise NotFound(
            f"No shared workspace was found at the address in {ADDRESS_VARIABLE} with the key in {KEY_VARIABLE}.",
            remedy="Nothing was sent. Check the address and the key. "
            "To share a workspace with this key for the first time, run `workspace share --yes`.",
        )


async def _is_space_empty(connection: SharedStoreConnection) -> bool:
    remote = connection.remote
    usage = await remote.fetch_usage()
    if usage.rows:
        return False
    published_uses = await remote.run_in_thread(remote.engine.fetch_published_uses)
    return not published_uses


async def connect_with_key(
    workspace: str, address: StoreAddress, secrets: SecretStorage
) -> SharedStoreConnection:
    """Connect with the workspace's key. Raises NotFound if this machine does not have the key."""
    key_line = await secrets.read_secret(SharedStoreKey(workspace))
    if not key_line:
        raise NotFound(
            "The key for this shared workspace is not on this computer.",
            remedy="Join the workspace again with the key that `workspace share --show-key` prints.",
        )
    if not address.login:
        login = await _read_login(workspace, address.url, secrets)
        address = StoreAddress(address.url, login or "")
    key = row_encryption.parse_key_line(key_line)
    return await asyncio.to_thread(build_store_connection, address, key)


async def _read_login(workspace: str, url: str, secrets: SecretStorage) -> str | None:
    """Return this address's login. One kept by an older version is assigned to its
    first address.
    """
    login_of_address = SharedStoreLogin(workspace, url)
    login = await secrets.read_secret(login_of_address)
    if login:
        return login
    login_of_older_version = SharedStoreLogin(workspace)
    old_login = await secrets.read_secret(login_of_older_version)
    if old_login:
        await secrets.store_secret(login_of_address, old_login)
        await secrets.delete_secret(login_of_older_version)
    return old_login


def build_store_connection(address: StoreAddress, key: bytes) -> SharedStoreConnection:
    from helix_desktop.store.shared.async_rows import AsyncRowStore

    seal = row_encryption.RowCipher(key)
    rows = AsyncRowStore(store_address.open_row_store(address, seal.space))
    return SharedStoreConnection(rows, seal)


async def store_link_secrets(
    workspace: str, address: StoreAddress, key: bytes, secrets: SecretStorage
) -> None:
    """Put key and password into the keyring. Without one, raises NoUsableKeyring, and
    nothing is shared.
    """
    values: dict[Addressee, str] = {SharedStoreKey(workspace): row_encryption.format_key_line(key)}
    if address.login:
        values[SharedStoreLogin(workspace, address.url)] = address.login
    try:
        for secret, value in values.items():
            await secrets.store_secret_at(secret, value)
    except NoUsableKeyring as error:
        # If the user allows it, keys are kept in a file instead.
        try:
            for secret, value in values.items():
                await secrets.store_secret_at(secret, value, where=SecretKeeper.FILE)
        except ActionRefused:
            raise NoUsableKeyring(
                f"{error.what} Nothing was shared.",
                remedy=f"Set the environment variables {ADDRESS_VARIABLE} and {KEY_VARIABLE} and run `helix-desktop workspace share` or `join` without an address, or allow a key file: click “Open file” in Settings > General, set file = true under [keys], and start the program again.",
            ) from error


async def delete_link_secrets(workspace: str, url: str, secrets: SecretStorage) -> None:
    await secrets.delete_secret(SharedStoreKey(workspace))
    await secrets.delete_secret(SharedStoreLogin(workspace, url))
    await secrets.delete_secret(SharedStoreLogin(workspace))
