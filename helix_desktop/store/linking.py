"""How a workspace gets its link: from its settings, or from `HELIX_STORE` on a machine without a desktop; the key from the keyring.

HELIX_STORE       postgresql://user:password@host/database   for workspaces that share nothing else
HELIX_STORE_KEY   the line that `workspace share --show-key` prints
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from helix_desktop.errors import NoKeyring, NotThere, Refused
from helix_desktop.secrets import Addressee, Secrets, SharedStoreKey, SharedStoreLogin, Where
from helix_desktop.store.shared import address, sealing
from helix_desktop.store.shared.address import Address

if TYPE_CHECKING:
    from helix_desktop.store.shared.link import Connected, Link
    from helix_desktop.store.workspace import Workspace

STORE, KEY = "HELIX_STORE", "HELIX_STORE_KEY"


def wanted(workspace: Workspace) -> bool:
    """Whether it is shared at all."""
    return bool(workspace.settings.shared.get("url") or os.environ.get(STORE))


def link(
    workspace: Workspace, secrets: Secrets, *, environ: Mapping[str, str] = os.environ, working: bool = True
) -> Link | None:
    """Share it as its settings or the environment say; None where they say nothing. Nothing waits for the store. `working`: it
    keeps in step by itself; else what is asked of it is done.
    """
    url = workspace.settings.shared.get("url", "")
    own = address.parse(url or environ.get(STORE, "")) if url or environ.get(STORE) else None
    if own is None:
        return None

    async def connect() -> Connected:
        return await connected(workspace.id, own, secrets, {} if url else environ)

    linked = workspace.share(own.url, connect, acknowledge=workspace.settings.shared.get("acknowledge", ""))
    if working:
        linked.begin()
    return linked


async def connected(workspace: str, where: Address, secrets: Secrets, environ: Mapping[str, str]) -> Connected:
    """The store with the workspace's key; NotThere where the key is not on this machine."""
    text = environ.get(KEY) or await secrets.get(SharedStoreKey(workspace))
    if not text:
        raise NotThere(
            "The key of this shared workspace is not on this computer.",
            remedy=f"Set {KEY}, or join the workspace again with the key that `workspace share --show-key` prints.",
        )
    if not where.login and (login := await secrets.get(SharedStoreLogin(workspace))):
        where = Address(where.url, login)
    return await asyncio.to_thread(opened, where, sealing.read_key(text))


def opened(where: Address, key: bytes) -> Connected:
    from helix_desktop.store.shared.link import Connected
    from helix_desktop.store.shared.remote import Remote

    seal = sealing.Seal(key)
    return Connected(Remote(address.connect(where, seal.space)), seal)


async def keep(workspace: str, where: Address, key: bytes, secrets: Secrets) -> None:
    """Put the key and the password into the keyring; NoKeyring where there is none, and nothing is shared then."""
    values: dict[Addressee, str] = {SharedStoreKey(workspace): sealing.written(key)}
    if where.login:
        values[SharedStoreLogin(workspace)] = where.login
    try:
        for secret, value in values.items():
            await secrets.set(secret, value)
    except NoKeyring as error:
        try:  # the file, where the user allows it
            for secret, value in values.items():
                await secrets.set(secret, value, where=Where.FILE)
        except Refused:
            raise NoKeyring(
                f"{error.what} Nothing was shared.",
                remedy=f"Set the environment variables {STORE} and {KEY} instead, or go to Settings > General > Keys and allow keys to be stored in a file.",
            ) from error


async def drop(workspace: str, secrets: Secrets) -> None:
    """Take both out of the keyring."""
    await secrets.delete(SharedStoreKey(workspace))
    await secrets.delete(SharedStoreLogin(workspace))
