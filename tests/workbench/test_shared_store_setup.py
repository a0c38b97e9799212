"""Sharing and joining over a real PostgreSQL, as the window does it."""

from __future__ import annotations

from pathlib import Path

import psycopg
from keyring.backends.fail import Keyring as NoKeyring

from helix_desktop import program_folders, program_settings
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.peers import postgres
from tests.scripted_tour import ClockWithoutPauses
from tests.store.shared.conftest import server  # noqa: F401 - a fixture


def desk(home: Path) -> Workbenches:
    """One whose user lets keys be kept in a file."""
    where = program_folders.find_program_folders(home)
    home.mkdir()
    program_settings.ProgramSettings(where.settings_file).change_setting(
        program_settings.KEYS_IN_FILE, value=True
    )
    return Workbenches(
        where,
        SecretStorage(where.key_file, environ={}, consent=lambda: True, keyring=NoKeyring),
        clock=ClockWithoutPauses(),
    )


async def test_an_empty_workspace_can_be_joined_as_soon_as_it_is_shared(
    tmp_path: Path,
    server: postgres.Server,  # noqa: F811
) -> None:
    desks = desk(tmp_path / "desktop"), desk(tmp_path / "laptop")
    try:
        here = await desks[0].create_workspace("Pairs", tmp_path)
        await here.sharing_setup.start_sharing_at(server.url)
        with psycopg.connect(
            server.url
        ) as connection:  # without a turn of the event loop, in which it could still be told
            assert connection.execute("SELECT count(*) FROM helix.machines").fetchall() == [(1,)]
        there = await desks[1].join_workspace(
            server.url, await here.sharing_setup.read_key_for_joining(), "Pairs", tmp_path
        )
        assert there.name == "Pairs"
    finally:
        for each in desks:
            await each.aclose()
