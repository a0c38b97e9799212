"""Looking through folders: what is remembered of a look finds the same as a look without it."""

from __future__ import annotations

import random
import time
from pathlib import Path

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.changes.folder_state import PathKind, TreeItem
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.changes.folder_walk import (
    FolderWalk,
    KnownRecords,
    UnchangedFolder,
    WalkResult,
    measure_top_folders,
)
from tests.tools.changes import hostile


def look(folder: Path, known: KnownRecords, seen: dict[str, UnchangedFolder] | None = None) -> WalkResult:
    return FolderWalk((folder,), known, CheckpointCoverage(), frozenset(), None, seen).walk_all_roots()


def taken(known: KnownRecords, found: WalkResult) -> KnownRecords:
    """What is known after a look; every content counts as read."""
    after = dict(known)
    for path, names in found.folders.items():
        if names is None:
            after.pop(path, None)
        else:
            after[path] = names
    for one in found.wanted:
        above, _, name = one.path.rpartition("/")
        after[above][name] = one.stamp + folder_state.pack_item(TreeItem(PathKind.FILE, one.mode, one.size, bytes(32)))
    return after


def told(found: WalkResult) -> object:
    linked = {identity: sorted(names) for identity, names in found.linked.items()}
    return found.folders, sorted(one.path for one in found.wanted), linked, found.files, found.bytes


def test_what_is_remembered_of_a_look_hides_nothing(tmp_path: Path) -> None:
    chance = random.Random(3)
    hostile.fill(tmp_path, chance, 120)
    seen: dict[str, UnchangedFolder] = {}
    known: KnownRecords = {}
    for _ in range(40):
        time.sleep(0.025)  # out of the clock's resolution, so that folders are remembered at all
        for _ in range(2):
            plain = look(tmp_path, known)
            assert told(look(tmp_path, known, seen)) == told(plain)
            known = taken(known, plain)
        hostile.turn(tmp_path, chance)
    assert seen


def test_the_largest_folders_are_named_with_what_they_hold(tmp_path: Path) -> None:
    for place, size in (("data/deep/a", 900), ("data/b", 100), ("src/c", 10), ("d", 1), ("node_modules/e", 5_000)):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(bytes(size))
    found = measure_top_folders((tmp_path,), CheckpointCoverage(), frozenset())
    assert found == [("data", 2, 1_000), ("src", 1, 10), ("", 1, 1)]


def test_files_with_several_names_are_known_with_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "a").write_text("x")
    (tmp_path / "inside" / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "alone").write_text("x")
    found = look(tmp_path, {})
    assert [sorted(names) for names in found.linked.values()] == [[("0/a", 2), ("0/inside/b", 2)]]
