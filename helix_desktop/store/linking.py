"""How a workspace gets its link: from its settings, with the key from the keyring; or, on a machine without a desktop, both from its
environment, and then no keyring is asked.

HELIX_STORE       postgresql://user:password@host/database   for workspaces that share nothing else
HELIX_STORE_KEY   the line that `workspace share --show-key` or `workspace new-key` prints
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from helix_desktop.errors import NoKeyring, NotThere, Refused
from helix_desktop.secrets import Addressee, Secrets, SharedStoreKey, SharedStoreLogin, Where
from helix_desktop.store.shared import address, noted, sealing
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
        if url:
            return await connected(workspace.id, own, secrets)
        found = await asyncio.to_thread(opened, own, environment_key(environ))
        try:
            await _expect_own_key(noted.read(workspace.folder).space, own.url, found)
        except BaseException:
            await found.remote.aclose()
            raise
        return found

    linked = workspace.share(own.url, connect, acknowledge=workspace.settings.shared.get("acknowledge", ""))
    if working:
        linked.begin()
    return linked


def environment_key(environ: Mapping[str, str] = os.environ) -> bytes:
    """The key that belongs to the store in the environment; NotThere where there is none."""
    if not environ.get(KEY):
        raise NotThere(
            f"{STORE} is set, and {KEY} is not.",
            remedy=f"Set {KEY} to the key that `workspace share --show-key` prints, or make one with `workspace new-key`.",
        )
    return sealing.read_key(environ[KEY])


async def _expect_own_key(known: str, url: str, found: Connected) -> None:
    """With another key, the same store looks like an empty one. `known`: the space this workspace was last in step with."""
    if known == found.space_at(url):
        return
    if known.endswith(f" {url}"):
        raise NotThere(
            f"The key in {KEY} is not the key of this shared workspace.",
            remedy="Nothing was sent. Set the key that was used before.",
        )
    remote = found.remote
    if not (await remote.usage()).rows and not await remote.run(remote.engine.published):
        raise NotThere(
            f"No workspace is shared at the address in {STORE} with the key in {KEY}.",
            remedy="Nothing was sent. Check both, or begin to share with this key: run `workspace share --yes`.",
        )


async def connected(workspace: str, where: Address, secrets: Secrets) -> Connected:
    """The store with the workspace's key; NotThere where the key is not on this machine."""
    text = await secrets.get(SharedStoreKey(workspace))
    if not text:
        raise NotThere(
            "The key of this shared workspace is not on this computer.",
            remedy="Join the workspace again with the key that `workspace share --show-key` prints.",
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
