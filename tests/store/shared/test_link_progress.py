"""What a machine has noted of a shared store."""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop.engine.facts import ToolReturned
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.errors import WrittenByNewerVersion
from helix_desktop.store.shared import link_progress
from helix_desktop.store.shared.link_progress import (
    PROGRESS_FILE,
    LinkProgress,
    build_machine_name,
    read_link_progress,
    write_link_progress,
)
from helix_desktop.store.shared.row_encryption import RowCipher
from tests.store.shared.homes import machine
from tests.store.shared.memory_rows import MemoryRowStore, MemoryServer

NOTED = LinkProgress("space", "ab" * 16, 5, 3, 1.5, 2.5, {"cd" * 32: 2}, ["ef" * 32])


def test_what_was_noted_is_known_again_and_read_by_nobody_else(tmp_path: Path) -> None:
    noted = replace(NOTED, machine=build_machine_name(tmp_path))
    write_link_progress(tmp_path, noted)
    assert read_link_progress(tmp_path) == noted
    assert (tmp_path / PROGRESS_FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "content", ["{broken", "[]", "{}", '{"version": "x"}', '{"version": 1, "odd": 2}', ""]
)
def test_a_note_that_cannot_be_read_begins_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / PROGRESS_FILE).write_text(content)
    found = read_link_progress(tmp_path)
    assert (found.space, found.sent, len(found.machine)) == ("", 0, 32)
    assert read_link_progress(tmp_path / "nowhere").machine != found.machine


def test_a_copied_folder_takes_a_name_of_its_own_and_a_moved_one_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first"
    first.mkdir()
    noted = replace(NOTED, machine=build_machine_name(first))
    write_link_progress(first, noted)
    shutil.copytree(first, tmp_path / "copy")
    copied = read_link_progress(tmp_path / "copy")
    assert copied == replace(noted, machine=copied.machine, published=0.0)
    assert copied.machine != noted.machine
    write_link_progress(tmp_path / "copy", copied)
    assert read_link_progress(tmp_path / "copy") == copied
    first.rename(tmp_path / "moved")
    assert read_link_progress(tmp_path / "moved") == noted
    other = tmp_path / "machine-id"
    other.write_text("another computer\n")
    monkeypatch.setattr(link_progress, "COMPUTER", other)
    assert read_link_progress(tmp_path / "moved").machine != noted.machine


async def test_a_copied_home_is_another_machine_of_the_shared_store(
    tmp_path: Path, seal: RowCipher
) -> None:
    """Under one name, what the copy uses took the place of what the original uses, and
    was then removed.
    """
    shelf = MemoryServer()
    about = EntryOrigin("shell", "ls")
    async with machine(tmp_path / "here", lambda: MemoryRowStore(shelf, seal.space), seal) as here:
        await here.link.sync_content_now()
        await here.link.announce_and_send_missing()
        shutil.copytree(tmp_path / "here", tmp_path / "there")
        stored = await here.cache.store_content(secrets.token_bytes(99), about)
        await here.workspace.journal.append_to_journal("c", [ToolReturned("1", stored, 2)])
        await here.link.sync_content_now()
        await here.link.announce_and_send_missing()
        async with machine(
            tmp_path / "there", lambda: MemoryRowStore(shelf, seal.space), seal
        ) as there:
            assert there.link._progress.machine != here.link._progress.machine
            assert await there.link.remove_unused_rows(grace=-1) == 0
            assert len(shelf.machines) == 2


def test_a_note_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / PROGRESS_FILE).write_text(json.dumps({"version": 2}))
    with pytest.raises(WrittenByNewerVersion):
        read_link_progress(tmp_path)


def test_what_was_noted_of_another_store_does_not_hold() -> None:
    assert NOTED.progress_if_same_space("space") is NOTED
    assert NOTED.progress_if_same_space("other") == LinkProgress("other", NOTED.machine)


async def test_after_a_restart_a_machine_goes_on_from_what_it_had_noted(
    tmp_path: Path, seal: RowCipher
) -> None:
    shelf = MemoryServer()
    about = EntryOrigin("shell", "ls")
    async with machine(tmp_path / "here", lambda: MemoryRowStore(shelf, seal.space), seal) as here:
        digest = (await here.cache.store_content(secrets.token_bytes(99), about)).digest
        await here.link.sync_content_now()
        async with machine(
            tmp_path / "there", lambda: MemoryRowStore(shelf, seal.space), seal
        ) as there:
            await there.cache.read_content(digest)
            await here.link.save_entries_to_forget([digest])
            await here.link.forget_saved_entries_in_store()
            await there.link.sync_forgotten_content()
            heard = there.link._progress
            assert heard.obeyed > 0
            assert heard.space.startswith(seal.space.hex())
            assert heard.space.endswith("memory://")
        sent = here.link.sent
    async with machine(
        tmp_path / "there", lambda: MemoryRowStore(shelf, seal.space), seal
    ) as there:
        assert (there.link._progress.obeyed, there.link._progress.machine) == (
            heard.obeyed,
            heard.machine,
        )
    async with machine(tmp_path / "here", lambda: MemoryRowStore(shelf, seal.space), seal) as here:
        assert here.link.sent == sent > 0
    other = RowCipher(bytes(32))
    async with machine(
        tmp_path / "here", lambda: MemoryRowStore(shelf, other.space), other
    ) as here:
        await here.link.ensure_connected()
        assert here.link.sent == 0, "nothing of this store was noted yet"


def test_rows_are_announced_again_after_a_day_and_after_a_clock_was_set() -> None:
    """Rows that no machine announces are removed by others, even where this one needs them."""
    day = 86_400
    announced = LinkProgress(published=1_000_000.0)
    assert not announced.is_announcement_due(1_000_000.0 + day - 1)
    assert announced.is_announcement_due(1_000_000.0 + day + 1)
    assert announced.is_announcement_due(1_000_000.0 - 365 * day), "the clock was a year ahead"
    assert not announced.is_announcement_due(1_000_000.0 - 60), "another clock, nearly the same"
