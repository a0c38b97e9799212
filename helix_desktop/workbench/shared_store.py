"""Sharing a workspace through a store, testing one, joining, and sharing it no more: what the window and the command line both do."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from helix_desktop.errors import Away, HelixError, NotThere, WrongUse
from helix_desktop.secrets import SharedStoreKey
from helix_desktop.store import config, linking
from helix_desktop.store.shared import address as addresses
from helix_desktop.store.shared import sealing

if TYPE_CHECKING:
    from pathlib import Path

    from helix_desktop.secrets import Secrets
    from helix_desktop.store.shared.address import Address
    from helix_desktop.store.shared.link import Connected
    from helix_desktop.store.workspace import Workspace
    from helix_desktop.store.workspaces import Known, Workspaces


async def probe(workspace: str, address: str, secrets: Secrets) -> str:
    """What is there, in a few words; raises why it cannot be used. Nothing of the workspace is sent."""
    return await _tested(addresses.parse(address), await _key_of(workspace, secrets), None)


async def share(
    workspace: Workspace, address: str, secrets: Secrets, *, acknowledge: str = "", quota: int | None = None
) -> str:
    """From now on. Its key is made, unless it has one from before; both secrets go into the keyring. Gives what the store is.

    A workspace that is shared there already gets the new password.
    """
    where = addresses.parse(address)
    if (other := workspace.settings.shared.get("url")) and other != where.url:
        raise WrongUse(
            f"{workspace.name} is already shared through {other}.", remedy="Stop sharing the workspace first."
        )
    key = await _key_of(workspace.id, secrets)
    about = await _tested(where, key, quota)
    await linking.keep(workspace.id, where, key, secrets)
    await workspace.unshare()
    changes = {"shared.url": where.url, "shared.acknowledge": acknowledge or "local"}
    await asyncio.to_thread(workspace.change, changes)
    if link := linking.link(workspace, secrets, environ={}):
        with suppress(Away):  # then a little later
            await link.announce()
    return about


async def share_from_environment(workspace: Workspace, *, acknowledge: str = "", quota: int | None = None) -> str:
    """Begin to share through `HELIX_STORE` with `HELIX_STORE_KEY`: from now on, others with this key find the workspace there."""
    where, key_ = addresses.parse(os.environ[linking.STORE]), linking.environment_key()
    about = await _tested(where, key_, quota)

    async def connect() -> Connected:
        return await asyncio.to_thread(linking.opened, where, key_)

    await workspace.unshare()
    await workspace.share(where.url, connect, acknowledge=acknowledge).announce()
    return about


async def key(workspace: str, secrets: Secrets) -> str:
    """The line another machine needs; NotThere where it is not shared from here."""
    known = await secrets.get(SharedStoreKey(workspace))
    if not known:
        raise NotThere("This workspace has no key: it is not shared from this computer.", remedy="Share it first.")
    return known


async def join(workspaces: Workspaces, address: str, key_text: str, name: str, folder: Path, secrets: Secrets) -> Known:
    """A workspace here of one that is shared there; nothing is created where that fails."""
    where, key_ = addresses.parse(address), sealing.read_key(key_text)
    connected = await asyncio.to_thread(linking.opened, where, key_)
    try:
        await _expect_shared(connected)
    except Away as error:
        raise _unchanged(error) from error
    finally:
        await connected.remote.aclose()
    known = await asyncio.to_thread(workspaces.create, name, folder)
    try:
        await linking.keep(known.id, where, key_, secrets)
        changes = {"shared.url": where.url, "shared.acknowledge": "local"}
        await asyncio.to_thread(config.change, known.folder / config.NAME, changes)
    except HelixError:
        await asyncio.to_thread(workspaces.trash, known.id)
        await asyncio.to_thread(workspaces.delete, known.id)
        raise
    return known


async def _expect_shared(connected: Connected) -> None:
    remote = connected.remote
    if not (await remote.usage()).rows and not await remote.run(remote.engine.published):
        raise NotThere(
            "No workspace is shared at this address with this key.",
            remedy="Nothing was created. Check the address and the key.",
        )


async def unshare(workspace: Workspace) -> str:
    """What was sent stays for the others, and the key in the keyring. Gives a sentence where the store could not be told."""
    left = ""
    try:
        if workspace.link is not None:
            await workspace.link.leave()
    except HelixError as error:
        left = f"The store could not be told: {error.what}"
    await workspace.unshare()
    await asyncio.to_thread(workspace.change, {"shared": None})
    return left


async def _key_of(workspace: str, secrets: Secrets) -> bytes:
    known = await secrets.get(SharedStoreKey(workspace))
    return sealing.read_key(known) if known else sealing.new_key()


async def _tested(where: Address, key: bytes, quota: int | None) -> str:
    connected = await asyncio.to_thread(linking.opened, where, key)
    try:
        about = await connected.remote.about()
        if quota is not None:
            await connected.remote.run(connected.remote.engine.limit, quota)
    except Away as error:
        raise _unchanged(error) from error
    finally:
        await connected.remote.aclose()
    return about


def _unchanged(error: Away) -> Away:
    """Where nothing is shared yet, no changes wait."""
    return Away(error.what, remedy="Check the address, or try again later. Nothing was changed.")
