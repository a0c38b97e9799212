"""Looking through folders: what is remembered of a look finds the same as a look without it."""

from __future__ import annotations

import random
import time
from pathlib import Path

from helix_desktop.engine.changes import tree
from helix_desktop.engine.changes.tree import Item, Kind
from helix_desktop.tools.changes.coverage import Coverage
from helix_desktop.tools.changes.walk import Found, Known, Seen, Walk, largest
from tests.tools.changes import hostile


def look(folder: Path, known: Known, seen: dict[str, Seen] | None = None) -> Found:
    return Walk((folder,), known, Coverage(), frozenset(), None, seen).everything()


def taken(known: Known, found: Found) -> Known:
    """What is known after a look; every content counts as read."""
    after = dict(known)
    for path, names in found.folders.items():
        if names is None:
            after.pop(path, None)
        else:
            after[path] = names
    for one in found.wanted:
        above, _, name = one.path.rpartition("/")
        after[above][name] = one.stamp + tree.pack(Item(Kind.FILE, one.mode, one.size, bytes(32)))
    return after


def told(found: Found) -> object:
    linked = {identity: sorted(names) for identity, names in found.linked.items()}
    return found.folders, sorted(one.path for one in found.wanted), linked, found.files, found.bytes


def test_what_is_remembered_of_a_look_hides_nothing(tmp_path: Path) -> None:
    chance = random.Random(3)
    hostile.fill(tmp_path, chance, 120)
    seen: dict[str, Seen] = {}
    known: Known = {}
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
    found = largest((tmp_path,), Coverage(), frozenset())
    assert found == [("data", 2, 1_000), ("src", 1, 10), ("", 1, 1)]
