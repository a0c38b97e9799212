"""What is known of the folders since the last walk: how much is covered, which other
names a file has, and what is in doubt.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helix_desktop.engine.changes.folder_state import PathKind
from helix_desktop.tools.changes import folder_walk, known_folders
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.changes.folder_walk import COARSE
from helix_desktop.tools.changes.known_folders import KnownFolders
from tests.tools.changes.conftest import Net


async def test_what_was_covered_before_a_restart_counts_towards_the_limits(net: Net) -> None:
    for name in ("a", "b"):
        (net.folder / name).write_bytes(b"x" * 400)
    for coverage in (CheckpointCoverage(most_files=2), CheckpointCoverage(most_bytes=1_000)):
        first = net.again(coverage)
        await first.ensure_first_check()
        await first.aclose()
        (net.folder / "c").write_bytes(b"x" * 400)
        again = net.again(coverage)
        await again.ensure_first_check()
        assert sorted(again.folders.known_items()) == ["0/a", "0/b"]
        assert again.folders.paths_uncovered_by_limits() == {"0/c"}
        (net.folder / "c").unlink()
        await again.check_for_changes(thorough=True)
        assert again.folders.uncovered_entries() == ()
        await again.aclose()
        net.file.unlink()


@pytest.mark.parametrize("thorough", [True, False])
async def test_a_file_that_was_left_out_is_not_named_any_more_once_it_is_deleted(
    net: Net, thorough: bool
) -> None:
    (net.folder / "inner").mkdir()
    (net.folder / "inner" / "a").write_bytes(b"x")
    checkpoints = net.again(CheckpointCoverage(most_files=1))
    await checkpoints.ensure_first_check()
    for _ in range(2):
        (net.folder / "inner" / "b").write_bytes(b"x")
        (net.folder / "inner" / "node_modules").mkdir()
        await checkpoints.check_for_changes(thorough=thorough)
        told = {one.path: one.why for one in checkpoints.folders.uncovered_entries()}
        assert told == {"0/inner/b": "over the limit", "0/inner/node_modules": "node_modules/"}
        (net.folder / "inner" / "b").unlink()
        await checkpoints.check_for_changes(thorough=thorough)
        assert [one.path for one in checkpoints.folders.uncovered_entries()] == [
            "0/inner/node_modules"
        ]
        (net.folder / "inner" / "node_modules").rmdir()
        await checkpoints.check_for_changes(thorough=thorough)
        assert checkpoints.folders.uncovered_entries() == ()


async def test_what_is_deleted_makes_room(net: Net) -> None:
    for name in ("a", "b"):
        (net.folder / name).write_bytes(b"x" * 500)
    checkpoints = net.again(CheckpointCoverage(most_files=2, most_bytes=1_000))
    await checkpoints.ensure_first_check()
    (net.folder / "a").unlink()
    await checkpoints.check_for_changes(thorough=True)
    (net.folder / "c").write_bytes(b"x" * 500)
    await checkpoints.check_for_changes(thorough=True)
    assert sorted(checkpoints.folders.known_items()) == ["0/b", "0/c"]
    assert (checkpoints.folders._covered.files, checkpoints.folders._covered.size_bytes) == (
        2,
        1_000,
    )


async def test_other_rules_forget_all_that_was_known(net: Net) -> None:
    (net.folder / "a").write_bytes(b"x" * 500)
    await net.checkpoints.ensure_first_check()
    folders = net.checkpoints.folders
    assert (folders._covered.files, folders.watch.is_in_doubt) == (1, False)
    folders.use_coverage(CheckpointCoverage(most_files=7))
    assert (folders.coverage.most_files, folders.records, folders._covered.files) == (7, {}, 0)
    assert folders.watch.is_in_doubt, "everything is read again"
    assert folders.last_item_at("0/a") is None


async def test_names_of_one_file_know_each_other_and_those_outside_are_told(
    net: Net, tmp_path: Path
) -> None:
    (net.folder / "inner").mkdir()
    for name in ("inner/b", "a", "alone"):
        (net.folder / name).write_text("one" if name != "alone" else "other")
    (net.folder / "a").unlink()
    (net.folder / "a").hardlink_to(net.folder / "inner" / "b")
    (net.folder / "c").hardlink_to(net.folder / "a")
    await net.checkpoints.ensure_first_check()
    folders = net.checkpoints.folders
    assert sorted(folders.other_names_of_file("0/a")) == ["0/c", "0/inner/b"]
    assert folders.other_names_of_file("0/alone") == []
    assert folders.uncovered_entries() == ()
    kinds = {path: item.kind for path, item in folders.known_items().items()}
    assert [kinds[path] for path in ("0/a", "0/c", "0/inner/b", "0/alone")] == [
        PathKind.FILE, PathKind.TWIN, PathKind.TWIN, PathKind.FILE,
    ]  # fmt: skip
    twin = folders.last_item_at("0/c")
    assert twin is not None
    assert twin.content == b"0/a", "the first name in order is the file"
    (tmp_path / "outside").hardlink_to(net.folder / "a")
    await net.checkpoints.check_for_changes(thorough=True)
    assert [(one.path, one.why, one.is_beyond_limits) for one in folders.uncovered_entries()] == [
        (path, "has another name outside", False) for path in ("0/a", "0/c", "0/inner/b")
    ]


async def test_a_folder_whose_permissions_were_taken_away_gets_them_back_and_others_keep_theirs(
    net: Net,
) -> None:
    net.folder.chmod(0o750)
    folders = net.checkpoints.folders
    folders.remember_permissions_of_roots()
    net.folder.chmod(0o777)
    folders.restore_permissions_of_roots()
    assert net.folder.stat().st_mode & 0o7777 == 0o777, "whoever opened it further meant it"
    if os.geteuid():
        net.folder.chmod(0o500)
        folders.restore_permissions_of_roots()
        assert net.folder.stat().st_mode & 0o7777 == 0o750


async def test_a_root_is_missing_until_it_is_there_again(net: Net) -> None:
    folders = net.checkpoints.folders
    assert not folders.is_any_root_missing
    aside = net.folder.rename(net.folder.with_name("aside"))
    folders.walk_folders(False)
    assert folders.is_any_root_missing
    aside.rename(net.folder)
    folders.walk_folders(False)
    assert not folders.is_any_root_missing


@pytest.mark.parametrize("count", [known_folders.FEW_CHANGES, known_folders.FEW_CHANGES + 1])
async def test_few_folders_are_looked_through_alone_and_many_with_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    folders = KnownFolders((tmp_path,), CheckpointCoverage(), ())
    folders.adopt_walk_result(folders.walk_folders(True))
    assert not folders.watch.is_in_doubt
    begun: list[int] = []
    monkeypatch.setattr(folders.watch, "forget_changes_before_walk", lambda: begun.append(1))
    monkeypatch.setattr(
        folders.watch, "pop_changed_folders", lambda: {f"0/f{number}" for number in range(count)}
    )
    folders.walk_folders(False)
    assert len(begun) == (count > known_folders.FEW_CHANGES)
    folders.watch.close()


async def test_a_folder_with_distrusted_times_is_looked_through_although_nothing_was_reported(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        folder_walk, "FINE", -COARSE
    )  # Otherwise, the times of a young file are in doubt anyway.
    (net.folder / "a").write_text("one")
    await net.checkpoints.ensure_first_check()
    folders = net.checkpoints.folders
    assert folders.walk_folders(False).folders == {}
    folders.distrust_times(["0"], 0)
    assert "0" in folders.walk_folders(False).folders
