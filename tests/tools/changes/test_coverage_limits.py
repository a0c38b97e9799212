"""No command switches undo off: what goes beyond a limit is left out by name, and the rest is covered."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from tests.tools.changes.conftest import Net, state
from tests.tools.changes.evading import as_an_ordinary_user, commands

ALL = commands()


def test_what_a_command_changes_comes_back_however_it_evades_the_checkpoint(tmp_path: Path) -> None:
    done = as_an_ordinary_user(tmp_path, list(range(14, len(ALL), 101)))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


async def test_a_huge_file_does_not_keep_the_rest_from_being_restored(net: Net) -> None:
    (net.folder / "thesis.txt").write_text("all my work\n")
    before = state(net.folder)

    def act() -> None:
        subprocess.run(["truncate", "-s", "6G", "big"], cwd=net.folder, check=True)
        (net.folder / "thesis.txt").unlink()

    fact = await net.step(act)
    assert fact is not None
    assert fact.names == ("thesis.txt",)
    assert fact.left_out == ("big",)
    assert [(left.path, left.why) for left in net.checkpoints.folders.uncovered_entries()] == [
        ("0/big", "larger than the limit for one file")
    ]
    await net.undo(fact)
    (net.folder / "big").unlink()
    assert state(net.folder) == before


async def test_a_step_that_only_makes_what_is_left_out_says_so(net: Net) -> None:
    (net.folder / "a").write_text("a")
    fact = await net.step(lambda: os.truncate(os.open(net.folder / "big", os.O_CREAT | os.O_RDWR), 6 << 30))
    assert fact is not None
    assert (fact.files, fact.names, fact.left_out) == (0, (), ("big",))
    assert await net.step(lambda: None) is None


async def test_what_is_new_and_largest_is_left_out_first(net: Net) -> None:
    (net.folder / "mine").write_bytes(b"m" * 600)
    checkpoints = net.again(CheckpointCoverage(most_files=5, most_bytes=1000))
    await checkpoints.ensure_first_check()
    (net.folder / "mine").write_bytes(b"n" * 700)
    for name, size in (("small", 100), ("large", 900), ("middle", 150)):
        (net.folder / name).write_bytes(b"x" * size)
    await checkpoints.check_for_changes()
    assert sorted(checkpoints.folders.known_items()) == ["0/middle", "0/mine", "0/small"]
    (net.folder / "many").mkdir()
    for number in range(30):
        (net.folder / "many" / f"f{number}").write_text("")
    await checkpoints.check_for_changes()
    assert sorted(checkpoints.folders.known_items()) == ["0/many", "0/middle", "0/mine", "0/small"]
    assert {left.path: left.why for left in checkpoints.folders.uncovered_entries()} == {
        "0/large": "over the limit",
        "0/many": "files in it over the limit: 30",
    }
    (net.folder / "large").unlink()
    (net.folder / "small").unlink()
    await checkpoints.check_for_changes()
    assert [left.path for left in checkpoints.folders.uncovered_entries()] == ["0/many"]


async def test_what_was_left_out_is_so_after_a_restart_and_covered_when_there_is_room(net: Net) -> None:
    for number in range(6):
        (net.folder / f"f{number}").write_bytes(b"x" * (number + 1))
    first = net.again(CheckpointCoverage(most_files=4))
    await first.ensure_first_check()
    covered = first.folders.known_items()
    await first.aclose()
    again = net.again(CheckpointCoverage(most_files=4))
    await again.ensure_first_check()
    assert again.folders.known_items() == covered
    await again.apply_coverage(CheckpointCoverage(most_files=0))
    assert len(again.folders.known_items()) == 6
