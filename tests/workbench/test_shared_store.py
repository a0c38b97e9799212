"""Sharing and joining over a real PostgreSQL, as the window does it."""

from __future__ import annotations

from pathlib import Path

import psycopg
from keyring.backends.fail import Keyring as NoKeyring

from helix_desktop import places, settings
from helix_desktop.secrets import Secrets
from helix_desktop.workbench import Desk
from helix_desktop.workbench.tour import Quick
from tests.peers import postgres
from tests.store.shared.conftest import server  # noqa: F401 - a fixture


def desk(home: Path) -> Desk:
    """One whose user lets keys be kept in a file."""
    where = places.find(home)
    home.mkdir()
    settings.Settings(where.settings).change(settings.KEYS_IN_FILE, value=True)
    return Desk(where, Secrets(where.key_file, environ={}, consent=lambda: True, keyring=NoKeyring), clock=Quick())


async def test_an_empty_workspace_can_be_joined_as_soon_as_it_is_shared(
    tmp_path: Path,
    server: postgres.Server,  # noqa: F811
) -> None:
    desks = desk(tmp_path / "desktop"), desk(tmp_path / "laptop")
    try:
        here = await desks[0].create("Pairs", tmp_path)
        await here.sharing.share(server.url)
        with psycopg.connect(
            server.url
        ) as connection:  # without a turn of the event loop, in which it could still be told
            assert connection.execute("SELECT count(*) FROM helix.machines").fetchall() == [(1,)]
        there = await desks[1].join(server.url, await here.sharing.key(), "Pairs", tmp_path)
        assert there.name == "Pairs"
    finally:
        for each in desks:
            await each.aclose()
