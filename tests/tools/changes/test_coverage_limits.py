"""No command switches undo off: what goes beyond a limit is left out by name, and the
rest is covered.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from helix_desktop.engine.changes.folder_state import PathKind
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
    fact = await net.step(
        lambda: os.truncate(os.open(net.folder / "big", os.O_CREAT | os.O_RDWR), 6 << 30)
    )
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


async def test_what_was_left_out_is_so_after_a_restart_and_covered_when_there_is_room(
    net: Net,
) -> None:
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


def write_files(net: Net, **sizes: int) -> None:
    for name, size in sizes.items():
        path = net.folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)


async def covered_after(net: Net, coverage: CheckpointCoverage) -> list[str]:
    """The files that are covered at the first check with these limits, of which nothing
    is known yet.
    """
    net.file.unlink(missing_ok=True)
    checkpoints = net.again(coverage)
    await checkpoints.ensure_first_check()
    return sorted(
        p[2:] for p, item in checkpoints.folders.known_items().items() if item.kind is PathKind.FILE
    )


async def test_limits_are_what_may_be_covered_and_one_more_is_left_out(net: Net) -> None:
    write_files(net, a=400, b=600)
    for coverage in (CheckpointCoverage(most_bytes=1_000), CheckpointCoverage(most_files=2)):
        assert await covered_after(net, coverage) == ["a", "b"]
    checkpoints = net.again(CheckpointCoverage(most_bytes=1_000))
    await checkpoints.ensure_first_check()
    write_files(net, c=1)
    await checkpoints.check_for_changes()
    assert sorted(checkpoints.folders.known_items()) == ["0/a", "0/b"], (
        "what is covered stays, however large"
    )
    assert [one.path for one in checkpoints.folders.uncovered_entries()] == ["0/c"]


async def test_of_new_files_no_more_are_left_out_than_must_be_and_the_largest_first(
    net: Net,
) -> None:
    write_files(net, a=500, b=300, c=201)
    assert await covered_after(net, CheckpointCoverage(most_bytes=1_000)) == ["b", "c"]
    assert await covered_after(net, CheckpointCoverage(most_bytes=501)) == ["b", "c"]
    assert await covered_after(net, CheckpointCoverage(most_bytes=500)) == ["c"]
    assert await covered_after(net, CheckpointCoverage(most_bytes=200)) == []


async def test_of_too_many_files_those_of_the_fullest_folder_are_left_out(net: Net) -> None:
    write_files(net, few__a=1, many__a=1, many__b=1, some__a=1, some__b=1, some__c=1)
    assert await covered_after(net, CheckpointCoverage(most_files=6)) == [
        "few/a", "many/a", "many/b", "some/a", "some/b", "some/c",
    ]  # fmt: skip
    assert await covered_after(net, CheckpointCoverage(most_files=5)) == [
        "few/a",
        "many/a",
        "many/b",
    ]
    assert await covered_after(net, CheckpointCoverage(most_files=3)) == [
        "few/a",
        "many/a",
        "many/b",
    ]
    assert await covered_after(net, CheckpointCoverage(most_files=2)) == ["few/a"]


async def test_what_is_left_out_for_its_size_does_not_count_among_the_files(net: Net) -> None:
    write_files(net, one__large=900, one__larger=950, one__small=1, two__a=1, two__b=1)
    assert await covered_after(net, CheckpointCoverage(most_bytes=800, most_files=3)) == [
        "one/small",
        "two/a",
        "two/b",
    ]
    assert await covered_after(net, CheckpointCoverage(most_bytes=800, most_files=2)) == [
        "one/small"
    ]


async def test_folders_and_links_are_no_files_that_count(net: Net) -> None:
    write_files(net, inner__a=1, b=1)
    for number in range(3):
        (net.folder / f"link{number}").symlink_to("b")
        (net.folder / f"folder{number}").mkdir()
    assert await covered_after(net, CheckpointCoverage(most_files=2)) == ["b", "inner/a"]
    assert await covered_after(net, CheckpointCoverage(most_files=1)) in (["b"], ["inner/a"])


async def test_a_covered_file_that_grows_is_left_out_only_when_that_is_the_only_way(
    net: Net,
) -> None:
    write_files(net, a=400, b=400)
    checkpoints = net.again(CheckpointCoverage(most_bytes=1_000))
    await checkpoints.ensure_first_check()
    write_files(net, a=500, new=150)
    await checkpoints.check_for_changes(thorough=True)
    assert sorted(checkpoints.folders.known_items()) == ["0/a", "0/b"], (
        "the new one goes first, though it is smaller"
    )
    write_files(net, a=700)
    (net.folder / "new").unlink()
    await checkpoints.check_for_changes(thorough=True)
    assert [one.path for one in checkpoints.folders.uncovered_entries()] == ["0/a"]


@pytest.mark.parametrize("count", [20, 21])
async def test_of_many_files_in_one_folder_only_their_number_is_told(net: Net, count: int) -> None:
    write_files(net, a=1, **{f"many__f{number:02}": 1 for number in range(count)})
    (net.folder / "many" / "node_modules").mkdir()
    assert await covered_after(net, CheckpointCoverage(most_files=1)) == ["a"]
    told = [(one.path, one.why) for one in net.checkpoints.folders.uncovered_entries()]
    by_rule = ("0/many/node_modules", "node_modules/")
    if count == 20:
        assert told == [
            *((f"0/many/f{number:02}", "over the limit") for number in range(20)),
            by_rule,
        ]
    else:
        assert told == [("0/many", "files in it over the limit: 21"), by_rule]
    assert net.checkpoints.folders.paths_uncovered_by_limits() == {
        path for path, _ in told if path != by_rule[0]
    }
