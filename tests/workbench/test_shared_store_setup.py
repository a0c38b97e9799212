"""Sharing and joining over a real PostgreSQL, as the window does it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import psycopg
from keyring.backends.fail import Keyring as NoKeyring

from helix_desktop import program_folders, program_settings
from helix_desktop.engine.facts import (
    ModelReplied,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    Usage,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
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


async def test_what_looks_like_a_key_is_found_in_messages_and_in_long_outputs(
    tmp_path: Path,
) -> None:
    here = desk(tmp_path / "desktop")
    in_message = "sk-proj-" + "a1b2" * 8
    in_output = "ghp_" + "c3d4" * 9
    try:
        bench = await here.create_workspace("Pairs", tmp_path)
        session = await bench.start_conversation("Keys")
        content = f"{'x' * 90_000} {in_output}".encode()
        await bench.workspace.cache.store_content(content, EntryOrigin("run_command", "env"))
        output = Stored(Digest.of_content(content), len(content), 1)
        call = ToolCall("c1", "run_command", "{}", tokens=1)
        await bench.workspace.journal.append_to_journal(
            session.id,
            (
                UserSaid((Text(f"use {in_message}", 20),)),
                ModelReplied((call,), "m", Stop.CALLS, Usage()),
                ToolReturned("c1", output, 20_000),
            ),
        )
        found = await bench.sharing_setup.find_secrets_of_conversation(session.id)
        assert set(found) == {in_message, in_output}
        other = await bench.start_conversation("Nothing")
        assert await bench.sharing_setup.find_secrets_of_conversation(other.id) == []
    finally:
        await here.aclose()


async def test_long_outputs_are_searched_for_keys_one_after_another(tmp_path: Path) -> None:
    """All outputs of a conversation were in memory at once, and there may be gigabytes of them."""
    here = desk(tmp_path / "desktop")
    count = 12
    size = 2 << 20
    try:
        bench = await here.create_workspace("Pairs", tmp_path)
        session = await bench.start_conversation("Logs")
        for number in range(count):
            content = f"{number:08} ".encode() * (size // 9)
            await bench.workspace.cache.store_content(content, EntryOrigin("run_command", "log"))
            call = ToolCall(f"c{number}", "run_command", "{}", tokens=1)
            output = Stored(Digest.of_content(content), len(content), 1)
            await bench.workspace.journal.append_to_journal(
                session.id,
                (
                    ModelReplied((call,), "m", Stop.CALLS, Usage()),
                    ToolReturned(call.id, output, size // 3),
                ),
            )
        await bench.workspace.index.wait_until_indexed()
        tracemalloc.start()
        try:
            assert await bench.sharing_setup.find_secrets_of_conversation(session.id) == []
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < count * size / 2
    finally:
        await here.aclose()
