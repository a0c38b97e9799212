"""After an undo the folder is what it was: bytes, kinds, modes and links. What somebody else wrote meanwhile is never touched."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.changes.turn_changes import UndoOutlook
from helix_desktop.tools.changes import change_restoring
from tests.tools.changes import hostile
from tests.tools.changes.conftest import Net, state


def fill(folder: Path) -> None:
    for number in range(12):
        path = folder / f"d{number % 3}" / f"f{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"line {number}\n" * 5)
    (folder / "d0" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "d0" / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("d0/f0.txt")
    (folder / "out").symlink_to("/etc")
    (folder / "empty").mkdir()
    (folder / "one").write_text("one file")
    (folder / "two").hardlink_to(folder / "one")
    (folder / os.fsdecode(b"b\xff\xfe")).write_bytes(b"\0\1")


def shell(line: str) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        subprocess.run(["sh", "-c", line], cwd=folder, check=False, capture_output=True)

    return run


CASES: dict[str, Callable[[Path], None]] = {
    "everything deleted": shell("rm -rf ./*"),
    "in place": shell("sed -i s/line/LINE/ d*/*.txt"),
    "moved over": shell("mv d0/f0.txt d1/f1.txt; mv d2 moved"),
    "modes": shell("chmod -R 000 d1; chmod 600 d0/run.sh; chmod 700 empty"),
    "a file becomes a folder": shell("rm one; mkdir one; touch one/in"),
    "a folder becomes a file": shell("rm -rf d1; echo x > d1"),
    "a link becomes a file": shell("rm link out; echo a > link; mkdir out"),
    "links instead of files": shell("rm d0/f0.txt; ln -s /etc/passwd d0/f0.txt; rm -rf d2; ln -s / d2"),
    "through a second name": shell("echo more >> two"),
    "the second name is a file of its own": shell("cp two x; mv x two; echo y >> two"),
    "new names of one file": shell("ln d0/f0.txt zz; ln one three; rm two"),
    "only case": shell("mv one ONE; mv ONE One"),
    "strange names": shell("mv b* \"$(printf 'n\\377\\n')\"; mkdir 'a\\b'; touch 'a\\b/\"q\"'"),
    "the same size, the time set back": shell(
        "printf 'LINE 0\\n' | dd of=d0/f0.txt conv=notrunc; touch -d 2001-01-01 d0/f0.txt"
    ),
    "a pipe": shell("mkfifo pipe; rm -rf empty"),
}


@pytest.mark.parametrize("case", CASES)
async def test_the_folder_is_as_it_was(net: Net, case: str) -> None:
    fill(net.folder)
    before = state(net.folder)
    fact = await net.step(lambda: CASES[case](net.folder))
    after = state(net.folder)
    assert fact is not None
    assert after != before
    done = await net.undo(fact)
    assert done.paths_left_alone == []
    assert state(net.folder) == before
    assert done.fact is not None
    redone = await net.undo(done.fact)
    if case == "a pipe":
        assert [path for path, _ in redone.paths_left_alone] == ["0/pipe"]
    else:
        assert state(net.folder) == after


@pytest.mark.parametrize("seed", range(4))
async def test_hostile_turns(net: Net, seed: int) -> None:
    chance = random.Random(seed)
    hostile.fill(net.folder, chance, 60)
    shell("git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm x")(net.folder)
    await net.checkpoints.ensure_first_look()
    for _ in range(3):
        before = state(net.folder)
        git = hostile.git_state(net.folder)
        fact = await net.step(lambda: hostile.turn(net.folder, chance))
        if fact is not None:
            left = {left.path for left in net.checkpoints.uncovered_entries()}
            changed_git = hostile.git_state(net.folder)
            done = await net.undo(fact)
            assert [path for path, _ in done.paths_left_alone if path not in left] == []
            assert hostile.git_state(net.folder) == changed_git, "the undo does not touch .git"
        assert state(net.folder) == before
        assert git is not None


async def test_what_somebody_else_changed_is_left_alone(net: Net) -> None:
    fill(net.folder)
    fact = await net.step(lambda: shell("echo agent > d0/f0.txt; rm one; echo new > new")(net.folder))
    assert fact is not None
    (net.folder / "d0" / "f0.txt").write_text("mine\n")
    (net.folder / "new").write_text("mine too\n")
    done = await net.undo(fact)
    assert (net.folder / "d0" / "f0.txt").read_text() == "mine\n"
    assert (net.folder / "new").read_text() == "mine too\n"
    assert (net.folder / "one").read_text() == "one file"
    assert done.restored == ["0/one", "0/two"], "two names of one file again"
    await net.undo(fact, {"0/d0/f0.txt": "before"})
    assert (net.folder / "d0" / "f0.txt").read_text() == "line 0\n" * 5


async def test_doing_it_again_does_nothing_more(net: Net) -> None:
    fill(net.folder)
    before = state(net.folder)
    fact = await net.step(lambda: CASES["everything deleted"](net.folder))
    assert fact is not None
    await net.undo(fact)
    again = await net.undo(fact)
    assert again.restored == []
    assert state(net.folder) == before


async def test_a_folder_swapped_for_a_link_is_not_followed(net: Net, tmp_path: Path) -> None:
    fill(net.folder)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f0.txt").write_text("theirs")
    fact = await net.step(lambda: shell("rm -rf d0")(net.folder))
    assert fact is not None
    (net.folder / "d0").symlink_to(outside)
    done = await net.undo(fact)
    assert (outside / "f0.txt").read_text() == "theirs"
    assert sorted(outside.iterdir()) == [outside / "f0.txt"]
    assert "0/d0" not in done.restored


async def test_what_an_undo_that_was_cut_short_left_is_removed_where_nothing_is_lost(net: Net) -> None:
    fill(net.folder)
    await net.checkpoints.ensure_first_look()
    before = state(net.folder)
    await net.checkpoints.aclose()
    ours = net.folder / "d0" / ".helix-undo-0123456789abcdef"
    ours.write_bytes((net.folder / "d0" / "f0.txt").read_bytes())
    (net.folder / "d1" / ours.name).symlink_to("d0/f0.txt")
    theirs = net.folder / "d2" / ours.name
    theirs.write_text("what somebody else had put there")
    net.again()
    fact = await net.step((net.folder / "d0" / "f0.txt").unlink)
    assert fact is not None
    await net.undo(fact)
    assert theirs.read_text() == "what somebody else had put there"
    theirs.unlink()
    assert state(net.folder) == before


async def test_what_somebody_changed_between_two_steps_is_not_overwritten(net: Net) -> None:
    """The file is as the last step left it, but not all of that is the agent's: without a choice it stays."""
    file = net.folder / "a"
    file.write_text("one\n")
    first = await net.step(lambda: file.write_text("one\ntwo\n"))
    file.write_text("mine\ntwo\n")
    second = await net.step(lambda: file.write_text("mine\ntwo\nthree\n"))
    assert first is not None
    assert second is not None
    differences = [
        folder_state.decode_difference(await net.cache.read_content(fact.difference.digest)) for fact in (first, second)
    ]
    whole, broken = folder_state.join_changes([*differences[0], *differences[1]])
    (planned,) = await change_restoring.plan_undo_of_changes(net.checkpoints, whole, broken)
    assert planned.how is UndoOutlook.CONFLICT
    assert change_restoring.restore_steps([planned]) == ()
    (without,) = await change_restoring.plan_undo_of_changes(net.checkpoints, differences[1])
    assert without.how is UndoOutlook.RESTORE
