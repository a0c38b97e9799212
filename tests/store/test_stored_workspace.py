from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop.engine.cache_entry_rows import EntryFilter
from helix_desktop.engine.facts import ConversationStarted, Text, ToolReturned, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import (
    CacheCorrupt,
    JournalCorrupt,
    NotFound,
    StoreFailed,
)
from helix_desktop.store import workspace_settings
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.cache_check_and_cleanup import CollectResult
from helix_desktop.store.cache_folder import CHECKPOINT
from helix_desktop.store.stored_workspace import StoredWorkspace

of_posix = pytest.mark.skipif(sys.platform == "win32", reason="rights and pipes of POSIX")


async def test_an_open_one_hears_of_its_new_name(
    workspaces: AllWorkspaces, workspace: StoredWorkspace
) -> None:
    workspaces.rename_workspace(workspace.id, "New")
    assert workspace.name == "New"
    (workspace.folder / "workspace.toml").write_text('name = "By hand"')
    assert workspace.change_settings({}).name == "By hand"


async def test_all_is_there_when_it_opens_again(
    workspaces: AllWorkspaces, workspace: StoredWorkspace
) -> None:
    stored = await workspace.cache.store_content(b"kept", EntryOrigin("shell", "ls"))
    await workspace.journal.append_to_journal(
        "c", [ConversationStarted("T"), ToolReturned("1", stored, 1)]
    )
    await workspace.aclose()
    with pytest.raises(StoreFailed, match="closed"):
        await workspace.cache.read_content(stored.digest)
    again = await workspaces.open_stored_workspace(workspace.id)
    assert await again.cache.read_content(stored.digest) == b"kept"
    assert len(await again.journal.read_facts("c")) == 2
    assert again.notes == ()
    await again.aclose()
    await workspace.aclose()


async def test_what_is_derived_comes_back(
    workspaces: AllWorkspaces, workspace: StoredWorkspace
) -> None:
    stored = await workspace.cache.store_content(b"a zebra", EntryOrigin("shell", "cat"))
    await workspace.cache.pin_entry(stored.digest)
    await workspace.journal.append_to_journal(
        "c", [UserSaid((Text("about zebras"),)), ToolReturned("1", stored, 1)]
    )
    await workspace._stores.aclose()
    for path in workspace.folder.glob("index.sqlite3*"):
        path.write_bytes(b"nonsense")
    workspace._lock.release_lock()
    workspace.closed()
    again = await workspaces.open_stored_workspace(workspace.id)
    done = await again.index.wait_until_indexed()
    assert done.is_complete
    (row,) = await again.index.entries_page()
    assert (row.stored, row.uses, row.pinned) == (stored, 1, True)
    assert len(await again.index.search_index("zebra")) == 1
    workspace._stores = again._stores
    workspace._lock = again._lock


async def test_damage_met_while_open_is_mended_at_the_next_opening(
    workspaces: AllWorkspaces, workspace: StoredWorkspace
) -> None:
    await workspace.journal.append_to_journal(
        "c", [ConversationStarted("T"), UserSaid((Text("original"),)), UserSaid((Text("last"),))]
    )
    await workspace.back_up_now()
    connection = workspace._stores.journal.connection
    await workspace._stores.thread.run_work(
        connection.execute,
        "UPDATE facts SET fact = replace(fact, 'original', 'changed!') WHERE seq = 2",
    )
    with pytest.raises(JournalCorrupt, match="Record 2 of conversation c"):
        await workspace.journal.read_facts("c")
    await workspace.aclose()
    again = await workspaces.open_stored_workspace(workspace.id)
    assert [each.fact for each in await again.journal.read_facts("c")][1] == UserSaid(
        (Text("original"),)
    )
    assert "Journal records intact: 3, lost: 0" in again.notes[0]
    await again.aclose()


async def test_collection_takes_what_nobody_uses(workspace: StoredWorkspace) -> None:
    used, unused, by_hand, pinned = [
        await workspace.cache.store_content(name.encode() * 1000, EntryOrigin(tool, name))
        for name, tool in [
            ("used", "shell"),
            ("unused", "shell"),
            ("hand", ""),
            ("pinned", "shell"),
        ]
    ]
    await workspace.journal.append_to_journal("c", [ToolReturned("1", used, 1)])
    await workspace.cache.pin_entry(pinned.digest)
    collected = await workspace.cache.remove_unused_down_to(0)
    assert collected.entries == 1
    assert [
        row.stored.digest for row in await workspace.index.entries_page(EntryFilter(gone=True))
    ] == [unused.digest]
    with pytest.raises(NotFound, match=r"shell unused, 6,000 bytes.*removed to free up space"):
        await workspace.cache.read_content(unused.digest)
    for kept in (used, by_hand, pinned):
        assert await workspace.cache.read_content(kept.digest)
    assert (await workspace.cache.remove_unused_down_to(0)).entries == 0
    again = await workspace.cache.store_content(b"unused" * 1000, EntryOrigin("shell"))
    assert await workspace.cache.read_content(again.digest) == b"unused" * 1000


async def test_a_check_names_what_is_damaged_and_what_is_missing(
    workspace: StoredWorkspace,
) -> None:
    stored = [
        await workspace.cache.store_content(bytes([n]) * 9000, EntryOrigin("shell"))
        for n in range(5)
    ]
    await workspace.journal.append_to_journal("c", [ToolReturned("1", stored[2], 1)])
    await workspace.index.wait_until_indexed()
    cache = workspace._stores.cache
    thread = workspace._stores.thread
    damaged = cache.reader.record_of_content(stored[1].digest)
    missing = cache.reader.record_of_content(stored[2].digest)
    await thread.run_work(
        cache.level.write_batch, [(b"b" + damaged.blob.to_bytes(8, "big") + bytes(4), b"\x00wrong")]
    )
    await thread.run_work(
        cache.level.write_batch,
        [(b"h" + missing.digest.raw, None), (b"m" + missing.number.to_bytes(8, "big"), None)],
    )
    result = await workspace.cache.verify_cache()
    assert {digest for digest, _ in result.damaged} == {damaged.digest, missing.digest}
    assert (result.checked, result.bytes) == (3, 27_000)
    with pytest.raises(CacheCorrupt):
        await workspace.cache.verify_entry(damaged.digest)
    await workspace.cache.verify_entry(stored[0].digest)
    await workspace.cache.store_content(bytes([1]) * 9000, EntryOrigin("shell"))
    assert await workspace.cache.read_content(damaged.digest) == bytes([1]) * 9000
    assert Digest.of_content(b"") not in {
        digest for digest, _ in (await workspace.cache.verify_cache()).damaged
    }


async def test_a_repair_of_an_open_workspace_names_what_is_lost_and_restores_the_rest(
    workspace: StoredWorkspace,
) -> None:
    lost = await workspace.cache.store_content(b"gone" * 900, EntryOrigin("shell", "make"))
    short = await workspace.cache.store_content(b"short output", EntryOrigin("shell"))
    kept = await workspace.cache.store_content(b"kept" * 900, EntryOrigin("shell"))
    await workspace.journal.append_to_journal("c", [UserSaid((Text("build it"),))])
    await workspace.journal.append_to_journal("c", [ToolReturned("1", lost, 1)])
    await workspace.journal.append_to_journal(
        "c", [ToolReturned("2", short, 1, head="short output")]
    )
    cache = workspace._stores.cache
    thread = workspace._stores.thread
    for stored in (lost, short):
        blob = cache.reader.record_of_content(stored.digest).blob
        await thread.run_work(cache.delete_chunks, blob)
    await thread.run_work(cache.level.scrub_database_files)
    notes = await workspace.repair_cache()
    assert "Cache entries intact: 2; lost: 1." in notes
    assert "Cache entries restored from the journal: 1." in notes
    assert notes[-1].startswith(f"Lost: the entry {lost.digest} (shell make, 3,600 bytes)")
    assert notes[-1].endswith("used in: build it.")
    assert await workspace.cache.read_content(short.digest) == b"short output"
    assert await workspace.cache.read_content(kept.digest) == b"kept" * 900
    assert workspace.cache.quarantined_entries() == [lost.digest]
    with pytest.raises(CacheCorrupt, match="it was lost when the cache was damaged"):
        await workspace.cache.read_content(lost.digest)
    checked = await workspace.cache.verify_cache()
    assert [digest for digest, _ in checked.damaged] == [lost.digest]
    await workspace.index.wait_until_indexed()
    assert (await workspace.index.compute_figures()).entries >= 2
    await workspace.cache.store_content(b"gone" * 900, EntryOrigin("shell", "make"))
    assert workspace.cache.quarantined_entries() == []
    assert (await workspace.cache.verify_cache()).damaged == ()


async def test_whoever_watches_the_settings_hears_of_a_change_made_in_a_thread(
    workspace: StoredWorkspace,
) -> None:
    heard: list[str] = []
    leave = workspace.watch_settings(
        lambda: heard.append(workspace.settings.models.get("main", ""))
    )
    await asyncio.to_thread(workspace.change_settings, {"models.main": "demo/demo"})
    await asyncio.sleep(0)
    leave()
    workspace.change_settings({"models.main": "other/one"})
    await asyncio.sleep(0)
    assert heard == ["demo/demo"]


async def test_changes_made_side_by_side_are_all_there(workspace: StoredWorkspace) -> None:
    wanted = {f"mcp.server{number}.command": f"run {number}" for number in range(24)}
    await asyncio.gather(
        *(
            asyncio.to_thread(workspace.change_settings, {key: value})
            for key, value in wanted.items()
        )
    )
    assert {
        name: table["command"]
        for name, table in workspace_settings.read_workspace_settings(
            workspace.folder / workspace_settings.NAME
        ).mcp.items()
    } == {f"server{number}": f"run {number}" for number in range(24)}


@of_posix
async def test_a_workspace_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        workspaces = AllWorkspaces(tmp_path / "home" / "workspaces")
        opened = await workspaces.open_stored_workspace(
            workspaces.create_stored_workspace("Work", tmp_path).id
        )
        await opened.cache.store_content(b"content", EntryOrigin("shell"))
        await opened.journal.append_to_journal("c", [UserSaid((Text("hello"),))])
        await opened.index.wait_until_indexed()
        await opened.back_up_now()
        rights = {
            path: path.stat().st_mode & 0o077
            for path in (workspaces.folder, *opened.folder.rglob("*"))
        }
        await opened.aclose()
    finally:
        os.umask(before)
    assert {path.name: mode for path, mode in rights.items() if mode} == {}


async def test_contents_of_old_checkpoints_are_removed_and_what_that_frees_is_said(
    workspace: StoredWorkspace,
) -> None:
    origin = EntryOrigin(CHECKPOINT, "src/pairs.py")
    unused = await workspace.cache.store_content(b"old" * 1000, origin)
    kept = await workspace.cache.store_content(b"kept" * 1000, origin)
    nothing = await workspace.remove_old_checkpoints(1)
    assert nothing == CollectResult(0, 0)
    removed = await workspace.remove_old_checkpoints(0, frozenset({kept.digest}))
    assert removed.entries == 1
    assert removed.bytes > 0
    assert await workspace.cache.read_content(kept.digest) == b"kept" * 1000
    with pytest.raises(NotFound):
        await workspace.cache.read_content(unused.digest)


async def test_what_a_conversation_refers_to_is_used(workspace: StoredWorkspace) -> None:
    """What nothing uses may be removed, also from a shared store."""
    used = await workspace.cache.store_content(b"used", EntryOrigin("shell", "ls"))
    unused = await workspace.cache.store_content(b"unused", EntryOrigin("shell", "ls"))
    await workspace.journal.append_to_journal("c", [ToolReturned("1", used, 1)])
    entries = await workspace._used_entries()
    assert used.digest in entries
    assert unused.digest not in entries


async def test_a_workspace_without_a_name_is_called_by_its_id(workspace: StoredWorkspace) -> None:
    assert workspace.settings_file.parent == workspace.folder
    workspace.change_settings({"name": None})
    assert workspace.name == workspace.id == workspace.folder.name


async def test_what_is_in_force_without_being_saved_is_told_to_watchers(
    workspace: StoredWorkspace,
) -> None:
    heard: list[str] = []
    workspace.watch_settings(lambda: heard.append("one"))
    leave = workspace.watch_settings(lambda: heard.append("two"))
    leave()
    workspace.notify_settings_watchers()
    await asyncio.sleep(0)
    assert heard == ["one"]


async def test_an_export_is_written_whole_or_not_at_all(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    stored = await workspace.cache.store_content(os.urandom(3_000), EntryOrigin("shell", "ls"))
    await workspace.journal.append_to_journal("c", [ToolReturned("1", stored, 1)])
    file = tmp_path / "export.tar"
    sizes: list[int] = []
    assert await workspace.export_to_file(file, sizes.append) == ()
    assert sizes == sorted(sizes)
    assert sizes[-1] == file.stat().st_size > 3_000
    pieces = [piece async for piece in workspace.export_pieces()]
    assert b"" not in pieces
    assert sum(map(len, pieces)) == file.stat().st_size
    with pytest.raises(StoreFailed, match="could not be written") as refused:
        await workspace.export_to_file(tmp_path / "nowhere" / "export.tar")
    assert refused.value.remedy == "Choose another folder or file name."
    # The workspace can be used on.
    assert await workspace.cache.read_content(stored.digest)


async def test_a_backup_that_was_made_is_listed(workspace: StoredWorkspace) -> None:
    assert workspace.list_journal_backups() == ()
    await workspace.journal.append_to_journal("c", [UserSaid((Text("hello"),))])
    backup = await workspace.back_up_now()
    assert [listed.path for listed in workspace.list_journal_backups()] == [backup.path]


async def test_what_forgetting_would_change_is_said_and_then_changed(
    workspace: StoredWorkspace,
) -> None:
    secret = "the-private-thing-7712"
    stored = await workspace.cache.store_content(secret.encode() * 20, EntryOrigin("shell", "ls"))
    other = await workspace.cache.store_content(b"other" * 20, EntryOrigin("shell", "ls"))
    await workspace.journal.append_to_journal(
        "c", [UserSaid((Text(f"it is {secret}"),)), ToolReturned("1", stored, 1)]
    )
    await workspace.journal.append_to_journal("d", [ToolReturned("1", other, 1)])
    would, size = await workspace.find_content_to_forget(secret, ())
    assert would.entries == (stored.digest,)
    assert would.conversations == ("c",)
    assert would.facts >= 1
    assert size == workspace._stores.cache.reader.record_of_entry(stored.digest).kept
    steps: list[tuple[int, int]] = []
    done = await workspace.forget_content(
        text=secret, report=lambda read, total: steps.append((read, total))
    )
    assert (done.entries, done.conversations) == ((stored.digest,), ("c",))
    assert all(read < total for read, total in steps[:-1])
    assert steps[-1][0] == steps[-1][1]
    assert await workspace.cache.read_content(other.digest) == b"other" * 20
    with pytest.raises(NotFound):
        await workspace.cache.read_content(stored.digest)
    (fact, *_) = await workspace.journal.read_facts("c")
    assert secret not in repr(fact)


async def test_without_a_shared_store_nothing_waits_to_be_sent_or_released(
    workspace: StoredWorkspace,
) -> None:
    await workspace.journal.append_to_journal("c", [UserSaid((Text("hello"),))])
    assert await workspace.was_written_by_worker("c") is False
    assert await workspace.release_conversations(["c"]) == ()
    assert len(await workspace.journal.read_facts("c")) == 1
    assert await workspace._sync_state_if_shared() is None
    async with workspace.pause_sharing():
        assert workspace.link is None


async def test_only_what_is_in_the_trash_or_named_is_deleted(workspace: StoredWorkspace) -> None:
    for name in ("kept", "named", "empty"):
        await workspace.journal.append_to_journal(name, [ConversationStarted(name)])
    nothing = await workspace.delete_conversations_for_good()
    assert nothing.conversations == ()
    emptied = await workspace.delete_conversations_for_good({"named"})
    assert emptied.conversations == ("named",)
    await workspace.delete_new_conversation("empty")
    assert {row.id for row in await workspace.journal.list_conversations()} == {"kept"}


async def test_the_cache_is_over_its_limit_by_what_is_kept_beyond_it(
    workspace: StoredWorkspace,
) -> None:
    await workspace.cache.store_content(os.urandom(5_000), EntryOrigin("shell", "ls"))
    await workspace.index.wait_until_indexed()
    assert await workspace.bytes_over_limit() == 0
    kept = await workspace.index.measure_kept_bytes()
    workspace.settings = replace(workspace.settings, limit=kept - 1_000)
    assert await workspace.bytes_over_limit() == 1_000
    workspace.settings = replace(workspace.settings, limit=kept + 1)
    assert await workspace.bytes_over_limit() == 0


async def test_who_closed_it_is_told_once_and_the_lock_is_free(
    workspaces: AllWorkspaces, workspace: StoredWorkspace
) -> None:
    heard: list[str] = []
    forget_workspace = workspace.closed

    def note_closing() -> None:
        heard.append("closed")
        forget_workspace()

    workspace.closed = note_closing
    await workspace.aclose()
    await workspace.aclose()
    assert heard == ["closed"]
    again = await workspaces.open_stored_workspace(workspace.id)
    await again.aclose()


async def test_what_a_killed_program_was_writing_goes_at_the_next_opening(
    workspaces: AllWorkspaces, workspace: StoredWorkspace
) -> None:
    await workspace.back_up_now()
    await workspace.aclose()
    (workspace.folder / "partial").mkdir(exist_ok=True)
    leftovers = [
        workspace.folder / name
        for name in ("journal.mending-1", "backups/a.new1", "partial/c.queue-new", "x.probe")
    ]
    kept = [workspace.folder / name for name in ("partial/c.queue", "notes.txt")]
    for path in (*leftovers, *kept):
        path.write_text("x")
    again = await workspaces.open_stored_workspace(workspace.id)
    await again.aclose()
    assert [path.name for path in leftovers if path.exists()] == []
    assert [path.name for path in kept if not path.exists()] == []
