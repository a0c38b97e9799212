"""What only checkpoints had goes when no fact leads to it; the whole way to a state
that is named stays.
"""

from __future__ import annotations

import time as clock
from pathlib import Path

import pytest

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.facts import FilesChanged, Stored
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store import index_file
from helix_desktop.store.all_workspaces import AllWorkspaces

LAST = b"\xff" * 40
ABOUT = EntryOrigin("checkpoint", "", "application/octet-stream")


async def test_what_a_fact_or_the_present_leads_to_stays(tmp_path: Path) -> None:
    known = AllWorkspaces(tmp_path)
    workspace = await known.open_stored_workspace(known.create_stored_workspace("net", tmp_path).id)
    try:
        files = await workspace.cache.store_many(
            [(text, ABOUT) for text in (b"one", b"two", b"three", b"nobody's")]
        )
        items = [TreeItem(PathKind.FILE, 0o644, each.size, each.digest.raw) for each in files]
        manifest = await workspace.cache.store_content(
            b"".join(folder_state.encode_manifest([("0/a", folder_state.pack_item(items[0]))])),
            ABOUT,
        )

        async def then(before: Digest, old: int, new: int) -> Stored:
            content = folder_state.encode_difference(
                [PathChange("0/a", items[old], items[new])], before
            )
            return (await workspace.cache.store_many([(content, ABOUT)]))[0]

        second = await then(manifest.digest, 0, 1)
        third = await then(second.digest, 1, 2)
        now = await then(third.digest, 2, 0)
        lost = await then(manifest.digest, 0, 3)
        await workspace.journal.append_to_journal(
            "c", [FilesChanged(second, manifest.digest, second.digest)]
        )
        swept = await workspace.remove_old_checkpoints(-1, latest_checkpoint=now.digest)
        assert swept.entries == 3
        gone = await workspace.cache.find_missing_content(
            [each.digest for each in (*files, manifest, second, third, now, lost)]
        )
        assert set(gone) == {files[2].digest, files[3].digest, lost.digest}, (
            "the third had been replaced again by now"
        )
    finally:
        await workspace.aclose()


async def test_the_room_that_is_shown_is_what_the_store_holds(tmp_path: Path) -> None:
    known = AllWorkspaces(tmp_path)
    workspace = await known.open_stored_workspace(known.create_stored_workspace("net", tmp_path).id)

    def held() -> int:
        level = workspace._stores.cache.level
        return sum(
            len(key) + len(level.get_value(key) or b"")
            for kind in (b"h", b"m", b"b")
            for key in level.keys_in_range(kind, kind + LAST)
        )

    try:
        texts = [b"", b"one", b"two" * 500, bytes(range(256)) * 9000]
        stored = await workspace.cache.store_many([(text, ABOUT) for text in texts])
        assert await workspace.index.measure_checkpoint_bytes() == (4, held())
        await workspace.remove_old_checkpoints(-1, frozenset(one.digest for one in stored[2:]))
        assert await workspace.index.measure_checkpoint_bytes() == (2, held()), (
            "what is known of the two others takes room too"
        )
        await workspace.cache.store_content(texts[3], EntryOrigin("read_file", "a", "text/plain"))
        await workspace.remove_old_checkpoints(30)
        assert (await workspace.index.measure_checkpoint_bytes())[0] == 1, (
            "it is an entry like any other now"
        )
    finally:
        await workspace.aclose()


async def test_what_is_put_while_the_room_is_counted_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "ROWS", 2)
    known = AllWorkspaces(tmp_path)
    workspace = await known.open_stored_workspace(known.create_stored_workspace("net", tmp_path).id)
    try:
        await workspace.cache.store_many([(b"%d" % number, ABOUT) for number in range(5)])
        while (counted := await workspace.index.measure_checkpoint_bytes())[0] < 5:
            pass
        recount = workspace.index._file.recount_checkpoint_contents()
        assert next(recount) == 2
        await workspace.cache.store_content(b"new", ABOUT)
        while (more := await workspace.index.measure_checkpoint_bytes()) == counted:
            pass
        assert list(recount) == [4]
        assert more[0] == 6
        assert await workspace.index.measure_checkpoint_bytes() == more
    finally:
        await workspace.aclose()


async def test_a_clock_far_ahead_or_behind_for_a_while_removes_nothing_that_is_young(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = AllWorkspaces(tmp_path)
    workspace = await known.open_stored_workspace(known.create_stored_workspace("net", tmp_path).id)
    day = 86_400.0
    today = clock.time()
    shown = today
    monkeypatch.setattr(clock, "time", lambda: shown)
    cache = workspace._stores.cache
    cache.now = lambda: shown
    try:
        shown = today - 45 * day
        old = await workspace.cache.store_content(b"old", ABOUT)
        for days_before in range(40, 0, -5):
            shown = today - days_before * day
            await workspace.cache.store_content(f"{days_before}".encode(), ABOUT)
        shown = 0.0
        behind = await workspace.cache.store_content(b"stored with the clock behind", ABOUT)
        shown = today
        young = await workspace.cache.store_content(b"young", ABOUT)
        shown = today + 400 * day
        removed = await workspace.remove_old_checkpoints(30)
        missing = set(
            await workspace.cache.find_missing_content([old.digest, behind.digest, young.digest])
        )
        assert missing == {old.digest}, "it was old before the clock went wrong"
        assert removed.entries == 3, "that of 45, of 40 and of 35 days before"
    finally:
        await workspace.aclose()
