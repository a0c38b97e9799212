"""Looking through folders: what is remembered of a look finds the same as a look without it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.changes.folder_state import PathKind, TreeItem
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.changes.folder_walk import (
    STAMP,
    UNREADABLE,
    FolderWalk,
    KnownRecords,
    UnchangedFolder,
    WalkResult,
    measure_top_folders,
)
from tests.tools.changes import hostile


def look(
    folder: Path, known: KnownRecords, seen: dict[str, UnchangedFolder] | None = None
) -> WalkResult:
    return FolderWalk(
        (folder,), known, CheckpointCoverage(), frozenset(), None, seen
    ).walk_all_roots()


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
        after[above][name] = one.stamp + folder_state.pack_item(
            TreeItem(PathKind.FILE, one.mode, one.size, bytes(32))
        )
    return after


def told(found: WalkResult) -> object:
    linked = {identity: sorted(names) for identity, names in found.linked_files.items()}
    return found.folders, sorted(one.path for one in found.wanted), linked, found.file_count


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
    for place, size in (
        ("data/deep/a", 900),
        ("data/b", 100),
        ("src/c", 10),
        ("d", 1),
        ("node_modules/e", 5_000),
    ):
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
    assert [sorted(names) for names in found.linked_files.values()] == [
        [("0/a", 2), ("0/inside/b", 2)]
    ]


# --- one look after another


class Looks:
    """A folder that is looked at again and again."""

    def __init__(self, *roots: Path, coverage: CheckpointCoverage | None = None, closed: frozenset[tuple[int, int]] = frozenset()) -> None:  # fmt: skip
        self.roots = roots
        self.coverage = coverage or CheckpointCoverage()
        self.closed = closed
        self.known: KnownRecords = {}
        self.heard: list[str] = []

    def walk(self) -> FolderWalk:
        return FolderWalk(
            self.roots,
            self.known,
            self.coverage,
            self.closed,
            lambda path, *_: self.heard.append(path),
        )

    def all(self) -> WalkResult:
        found = self.walk().walk_all_roots()
        self.known = taken(self.known, found)
        return found

    def some(self, *folders: str) -> WalkResult:
        found = self.walk().walk_some_folders(set(folders))
        self.known = taken(self.known, found)
        return found


def put(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("text")


def wanted(found: WalkResult) -> list[str]:
    return sorted(one.path for one in found.wanted)


def uncovered(found: WalkResult) -> list[tuple[str, str, bool]]:
    return sorted(
        (one.path, one.why, one.is_beyond_limits)
        for each in found.uncovered.values()
        for one in each
    )


def test_each_folder_is_heard_of_before_it_is_listed_and_counted_once(tmp_path: Path) -> None:
    put(tmp_path, "a", "x/b", "x/y/c", ".git/config")
    looks = Looks(tmp_path)
    found = looks.all()
    assert sorted(looks.heard) == ["0", "0/x", "0/x/y"]
    assert (wanted(found), found.file_count) == (["0/a", "0/x/b", "0/x/y/c"], 3)
    assert sorted(looks.known) == ["0", "0/x", "0/x/y"]
    again = looks.all()
    assert again.file_count == 3


def test_what_is_gone_is_gone_with_all_beneath_it(tmp_path: Path) -> None:
    put(tmp_path, "x/y/a", "xy/b")
    for thorough in (True, False):
        looks = Looks(tmp_path)
        looks.all()
        (tmp_path / "x").rename(tmp_path / "away")
        found = looks.all() if thorough else looks.some("0")
        assert {path for path, names in found.folders.items() if names is None} == {"0/x", "0/x/y"}
        assert sorted(looks.known) == ["0", "0/away", "0/away/y", "0/xy"]
        (tmp_path / "away").rename(tmp_path / "x")


def test_a_folder_that_is_gone_when_it_is_asked_for_is_gone_with_all_beneath_it(
    tmp_path: Path,
) -> None:
    put(tmp_path, "x/y/a", "z/b")
    looks = Looks(tmp_path)
    looks.all()
    (tmp_path / "x" / "y" / "a").unlink()
    (tmp_path / "x" / "y").rmdir()
    (tmp_path / "x" / "y").symlink_to(tmp_path)
    found = looks.some("0/x/y", "0/x/y/deep")
    assert found.folders == {"0/x/y": None}
    assert looks.some("0/unknown").folders == {}
    put(tmp_path, "z/new", "z/more/inner")
    assert wanted(looks.some("0/z"))[-2:] == ["0/z/more/inner", "0/z/new"]
    assert "0/z/more" in looks.known


def test_of_a_root_that_is_missing_nothing_is_gone(tmp_path: Path) -> None:
    first = tmp_path / "first"
    second = tmp_path / "second"
    put(first, "x/a")
    put(second, "b")
    looks = Looks(first, second)
    looks.all()
    first.rename(tmp_path / "away")
    (second / "b").unlink()
    found = looks.all()
    assert sorted(looks.known) == ["0", "0/x", "1"]
    assert list(found.folders) == ["1"]
    assert looks.some("0", "0/x").folders == {}


def test_a_root_may_be_a_link_and_nothing_within_is_followed(tmp_path: Path) -> None:
    put(tmp_path / "real", "a")
    put(tmp_path / "outside", "secret")
    (tmp_path / "real" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "root").symlink_to(tmp_path / "real")
    looks = Looks(tmp_path / "root")
    assert wanted(looks.all()) == ["0/a"]
    item = folder_state.unpack_item(looks.known["0"]["link"][STAMP.size :])
    assert item == TreeItem(PathKind.LINK, 0o777, 0, str(tmp_path / "outside").encode())


def test_what_is_not_covered_is_told_with_its_reason(tmp_path: Path) -> None:
    put(tmp_path, "big", "node_modules/a", "own/b", "small")
    (tmp_path / "big").write_bytes(bytes(11))
    os.mkfifo(tmp_path / "pipe")
    st = (tmp_path / "own").stat()
    limits = CheckpointCoverage(most_file_bytes=10)
    looks = Looks(tmp_path, coverage=limits, closed=frozenset({(st.st_dev, st.st_ino)}))
    found = looks.all()
    assert wanted(found) == ["0/small"]
    assert uncovered(found) == [
        ("0/big", "larger than the limit for one file", True),
        ("0/node_modules", "node_modules/", False),
        ("0/own", "belongs to Helix Desktop", False),
        ("0/pipe", "a socket, pipe or device", False),
    ]
    assert set(looks.known["0"]) == {"small", "pipe"}
    (tmp_path / "small").write_bytes(bytes(11))
    looks.all()
    item = folder_state.unpack_item(looks.known["0"]["small"][STAMP.size :])
    assert item is not None
    assert (item.kind, item.size) == (PathKind.OTHER, 11), (
        "in the place of what was covered it is still told"
    )


def test_what_was_covered_stays_covered_whatever_is_put_beside_it(tmp_path: Path) -> None:
    put(tmp_path, "target/a")
    looks = Looks(tmp_path)
    looks.all()
    put(tmp_path, "Cargo.toml")
    assert uncovered(looks.all()) == []
    assert uncovered(Looks(tmp_path).all()) == [("0/target", "target/ beside Cargo.toml", False)]


def test_what_an_undo_left_behind_is_told_and_not_covered(tmp_path: Path) -> None:
    put(tmp_path, ".helix-undo-0123456789abcdef", ".helix-undo-mine")
    found = Looks(tmp_path).all()
    assert found.leftovers == ["0/.helix-undo-0123456789abcdef"]
    assert wanted(found) == ["0/.helix-undo-mine"]


def test_a_tree_that_is_too_deep_is_told(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(201):
        deep = deep / "d"
        deep.mkdir()
    put(deep, "a")
    found = Looks(tmp_path).all()
    (one,) = uncovered(found)
    assert (one[0].count("/"), one[1], one[2]) == (201, "too deep", True)
    assert max(path.count("/") for path in found.folders) == 200


def test_a_mode_and_a_kind_that_changed_are_something_new(tmp_path: Path) -> None:
    put(tmp_path, "a", "x/b")
    looks = Looks(tmp_path)
    looks.all()
    (tmp_path / "x").chmod(0o700)
    assert "0" in looks.all().folders
    item = folder_state.unpack_item(looks.known["0"]["x"][STAMP.size :])
    assert item == TreeItem(PathKind.FOLDER, 0o700)
    (tmp_path / "a").unlink()
    (tmp_path / "a").mkdir()
    found = looks.all()
    assert {"0", "0/a"} <= found.folders.keys()
    assert "0/a" not in wanted(found)


def test_a_time_in_whole_seconds_proves_little(tmp_path: Path) -> None:
    put(tmp_path, "a")
    walk = Looks(tmp_path).walk()

    def reliable(mtime: int, ctime: int) -> bool:
        stamps = SimpleNamespace(st_mtime_ns=mtime, st_ctime_ns=ctime)
        return walk._is_stamp_reliable(stamps)  # type: ignore[arg-type]

    now = walk._began
    whole = now // 1_000_000_000 * 1_000_000_000
    assert [reliable(now - age, now - age - 1) for age in (0, 10_000_000, 30_000_000)] == [
        False,
        False,
        True,
    ]
    assert [reliable(whole - age, whole - age) for age in (1_000_000_000, 3_000_000_000)] == [
        False,
        True,
    ]
    assert reliable(whole - 1_000_000_000, whole - 1_000_000_001)
    assert reliable(whole - 1_000_000_001, whole - 1_000_000_000)


def test_no_handle_is_left_open(tmp_path: Path) -> None:
    put(tmp_path, "a", "x/y/b", "z/c")
    looks = Looks(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        looks.all()
        looks.some("0", "0/x", "0/gone")
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 20


# --- folders that somebody has closed

# Root may open everything: then another user looks, who owns the folders.
CLOSED = """
import json, os, shutil, stat, tempfile, time
from contextlib import contextmanager
from pathlib import Path
from helix_desktop.tools.changes import folder_walk
from tests.tools.changes.test_folder_walk import look, taken

@contextmanager
def as_root():
    os.setresuid(0, 0, 0)
    yield
    os.setresuid(65534, 65534, 0)

told, is_root = {}, os.geteuid() == 0
if is_root:
    os.setresuid(65534, 65534, 0)
root = Path(tempfile.mkdtemp())
for name in ("one/inner", "two"):
    (root / name).mkdir(parents=True)
    (root / name / "file").write_text("x")
if is_root:
    with as_root():
        (root / "theirs" / "deep").mkdir(parents=True)
        (root / "theirs" / "deep" / "file").write_text("x")

def looked(known, *shown):
    found = look(root, known)
    found.folders.pop("0", None)
    for path, names in found.folders.items():
        found.folders[path] = names and sorted(names)
    opened = len(found.opened)
    folder_walk.restore_folder_modes(found.opened)
    left = sorted([one.path, one.why, one.is_beyond_limits] for lefts in found.uncovered.values() for one in lefts)
    return {"folders": found.folders, "left": left, "opened": opened, "modes": [oct(stat.S_IMODE((root / name).stat().st_mode)) for name in shown], "files": found.file_count}

time.sleep(0.05)  # Out of the clock's resolution, so that stamps are trusted.
known = taken({}, look(root, {}))
(root / "one").chmod(0o000)
(root / "two").chmod(0o444)
told["closed since"] = looked(known, "one", "two")
told["closed before"] = looked({path: names for path, names in known.items() if not path.startswith("0/one")}, "one", "two")
root.chmod(0o000)
told["root"] = looked(known, ".")
root.chmod(0o700)
(root / "one").chmod(0o700)
(root / "two").chmod(0o700)
if is_root:
    with as_root():
        (root / "theirs").chmod(0o700)
    told["another's"] = looked(known)
    told["known of theirs"] = sorted(path for path in known if "theirs" in path)
opened = []
(root / "one" / "inner" / "file").chmod(0o000)
(root / "one" / "inner").chmod(0o000)
folder_walk.grant_access_to_path(str(root), "one/inner/file", os.R_OK | os.X_OK, opened)
(root / "one" / "inner" / "file").read_text()
told["entries opened"] = len(opened)
folder_walk.restore_folder_modes(opened)
told["entries closed"] = oct(stat.S_IMODE((root / "one" / "inner").stat().st_mode))
(root / "one" / "inner").chmod(0o700)
if is_root:
    os.setresuid(0, 0, 0)
shutil.rmtree(root)
print(json.dumps(told))
"""


def test_folders_that_were_closed_since_are_looked_into_and_closed_again_and_others_are_told_of() -> (
    None
):
    ran = subprocess.run([sys.executable, "-c", CLOSED], capture_output=True, text=True, check=True)
    told = json.loads(ran.stdout)
    since = told["closed since"]
    assert (since["folders"], since["left"], since["opened"]) == ({}, [], 2), (
        "what is in them is as it was"
    )
    assert since["modes"] == ["0o0", "0o444"]
    before = told["closed before"]
    assert before["left"] == [["0/one", UNREADABLE, True]]
    assert before["modes"] == since["modes"]
    root = told["root"]
    assert (root["left"], root["folders"], root["files"]) == ([], {}, since["files"])
    assert root["modes"] == ["0o0"]
    assert (told["entries opened"], told["entries closed"]) == (2, "0o0")
    if "another's" in told:
        theirs = told["another's"]
        assert theirs["left"] == [["0/theirs", UNREADABLE, True]]
        assert told["known of theirs"] == ["0/theirs", "0/theirs/deep"]
        assert theirs["folders"] == {}, "nothing of it counts as gone"
