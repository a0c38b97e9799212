"""After an undo the folder is what it was: bytes, kinds, modes and links. What somebody
else wrote meanwhile is never touched.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.changes.turn_changes import PlannedUndo, UndoOutlook
from helix_desktop.errors import ActionRefused
from helix_desktop.tools.changes import change_restoring
from helix_desktop.tools.changes.content_storing import ABOUT
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
    "links instead of files": shell(
        "rm d0/f0.txt; ln -s /etc/passwd d0/f0.txt; rm -rf d2; ln -s / d2"
    ),
    "through a second name": shell("echo more >> two"),
    "through a second name, the same size": shell("printf ONE | dd of=two conv=notrunc"),
    "the mode of a full folder": shell("chmod 700 d1"),
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
    shell("git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm x")(
        net.folder
    )
    await net.checkpoints.ensure_first_check()
    for _ in range(3):
        before = state(net.folder)
        git = hostile.git_state(net.folder)
        fact = await net.step(lambda: hostile.turn(net.folder, chance))
        if fact is not None:
            left = {left.path for left in net.checkpoints.folders.uncovered_entries()}
            changed_git = hostile.git_state(net.folder)
            done = await net.undo(fact)
            assert [path for path, _ in done.paths_left_alone if path not in left] == []
            assert hostile.git_state(net.folder) == changed_git, "the undo does not touch .git"
        assert state(net.folder) == before
        assert git is not None


async def test_what_somebody_else_changed_is_left_alone(net: Net) -> None:
    fill(net.folder)
    fact = await net.step(
        lambda: shell("echo agent > d0/f0.txt; rm one; echo new > new")(net.folder)
    )
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


async def test_the_folder_of_a_restored_file_is_synced(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(net.folder)
    fact = await net.step(lambda: shell("echo agent > d0/f0.txt")(net.folder))
    assert fact is not None
    synced = list[int]()
    sync = os.fsync

    def sync_and_note(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        sync(handle)

    monkeypatch.setattr(os, "fsync", sync_and_note)
    await net.undo(fact)
    assert (net.folder / "d0").stat().st_ino in synced


async def test_an_undo_in_a_folder_that_was_deleted_says_so(net: Net, tmp_path: Path) -> None:
    fill(net.folder)
    await net.checkpoints.check_for_changes()
    item = net.checkpoints.folders.last_item_at("0/one")
    net.folder.rename(tmp_path / "elsewhere")
    with pytest.raises(
        ActionRefused, match=f"^The workspace's folder {net.folder} no longer exists.$"
    ):
        await change_restoring.restore_paths(
            net.checkpoints, [change_restoring.RestoreStep("0/one", item, None)]
        )


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


async def test_what_an_undo_that_was_cut_short_left_is_removed_where_nothing_is_lost(
    net: Net,
) -> None:
    fill(net.folder)
    await net.checkpoints.ensure_first_check()
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
    """The file is as the last step left it, but not all of that is the agent's: without
    a choice it stays.
    """
    file = net.folder / "a"
    file.write_text("one\n")
    first = await net.step(lambda: file.write_text("one\ntwo\n"))
    file.write_text("mine\ntwo\n")
    second = await net.step(lambda: file.write_text("mine\ntwo\nthree\n"))
    assert first is not None
    assert second is not None
    differences = [
        folder_state.decode_difference(await net.cache.read_content(fact.difference.digest))
        for fact in (first, second)
    ]
    whole, broken = folder_state.merge_changes_and_find_paths_changed_by_others(
        [*differences[0], *differences[1]]
    )
    (planned,) = await change_restoring.plan_undo_of_changes(net.checkpoints, whole, broken)
    assert planned.how is UndoOutlook.CONFLICT
    assert change_restoring.plan_restore_steps([planned]) == ()
    (without,) = await change_restoring.plan_undo_of_changes(net.checkpoints, differences[1])
    assert without.how is UndoOutlook.RESTORE


FILE, LINK, FOLDER = (folder_state.PathKind(kind) for kind in "fld")
OURS = b"1\n2\n3\n4\n5\n"


@pytest.mark.parametrize(
    ("before", "after", "now", "expected"),
    [
        (OURS, b"1\n2\n3\n4\nagent\n", b"mine\n2\n3\n4\nagent\n", b"mine\n2\n3\n4\n5\n"),
        (OURS, b"1\n2\n3\n4\nagent\n", b"1\n2\n3\n4\nagent\n", OURS),
        (OURS, b"1\n2\n3\n4\nagent\n", b"1\n2\n3\n4\nmine\n", None),
        (OURS, b"1\n2\n3\n4\nagent\n", None, None),
        (OURS, None, OURS, None),
        (None, OURS, OURS, None),
        (OURS, b"1\n2\n3\n4\nagent\n", LINK, None),
        (OURS, FOLDER, OURS, None),
        (LINK, OURS, OURS, None),
        (OURS, b"1\n\0\n", b"1\n\0\n", None),
    ],
)
async def test_a_change_is_taken_out_of_what_others_wrote_where_the_two_do_not_touch(
    net: Net, before: object, after: object, now: object, expected: bytes | None
) -> None:
    items: list[folder_state.TreeItem | None] = []
    for mode, content in enumerate((before, after, now), start=0o640):
        if isinstance(content, bytes):
            stored = await net.cache.store_content(content, ABOUT)
            items.append(folder_state.TreeItem(FILE, mode, len(content), stored.digest.raw))
        else:
            items.append(
                None
                if content is None
                else folder_state.TreeItem(folder_state.PathKind(str(content)), 0o777)
            )
    planned = PlannedUndo("0/a", items[0], items[1], items[2], UndoOutlook.CONFLICT)
    merged = await change_restoring.merge_with_other_changes(net.checkpoints, planned)
    if expected is None:
        assert merged is None
    else:
        assert merged is not None
        assert (merged.kind, merged.mode, merged.size) == (FILE, 0o642, len(expected))
        assert await net.checkpoints.read_item_content(merged) == expected


async def test_an_undo_tells_what_it_did_and_leaves_nothing_open(net: Net) -> None:
    """What it changed is the undo's alone, also while another conversation works."""
    fill(net.folder)
    fact = await net.step(
        lambda: shell("rm one two; echo x > new; mkdir made; echo y > made/y; echo z > d0/f0.txt")(
            net.folder
        )
    )
    assert fact is not None
    other = await net.checkpoints.begin_step("other", "c", "command")
    assert other is not None
    done = await net.undo(fact)
    assert done.restored == ["0/made", "0/made/y", "0/new", "0/one", "0/d0/f0.txt", "0/two"]
    assert done.paths_left_alone == []
    assert done.fact is not None
    assert (done.fact.by, done.fact.call, done.fact.before) == ("undo", "", fact.after)
    read = net.checkpoints.read_checkpoint_state
    assert await read(done.fact.after) == await read(fact.before)
    changes = folder_state.decode_difference(
        await net.cache.read_content(done.fact.difference.digest)
    )
    assert [change.path for change in changes] == [
        "0/d0/f0.txt",
        "0/made",
        "0/made/y",
        "0/new",
        "0/one",
        "0/two",
    ]
    assert net.checkpoints.steps.open_steps_of_conversation("") == ()
    assert await net.checkpoints.end_step(other) is None
    open_files = [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]
    assert [one for one in open_files if one.startswith(os.path.realpath(net.folder))] == []


async def test_what_somebody_put_back_before_the_undo_is_in_its_fact(net: Net) -> None:
    (net.folder / "a").write_text("before")
    (net.folder / "b").write_text("before")
    fact = await net.step(lambda: shell("echo agent > a; echo agent > b")(net.folder))
    assert fact is not None
    (net.folder / "a").write_text("before")
    changes = folder_state.decode_difference(await net.cache.read_content(fact.difference.digest))
    planned = await change_restoring.plan_undo_of_changes(net.checkpoints, changes)
    assert [one.how for one in planned] == [UndoOutlook.ALREADY, UndoOutlook.RESTORE]
    steps = change_restoring.plan_restore_steps(planned)
    done = await change_restoring.restore_paths(net.checkpoints, steps, already=planned)
    assert done.restored == ["0/b"]
    assert done.fact is not None
    told = folder_state.decode_difference(await net.cache.read_content(done.fact.difference.digest))
    assert told == tuple(
        folder_state.PathChange(one.path, one.after, one.before) for one in changes
    )


async def test_files_that_are_not_covered_are_neither_deleted_nor_in_the_way(net: Net) -> None:
    (net.folder / "one").write_text("one file")
    fact = await net.step(
        lambda: shell("rm one; mkdir one new; echo x > one/x; echo x > new/x")(net.folder)
    )
    assert fact is not None
    for name in ("one", "new"):
        (net.folder / name / "node_modules").mkdir()
        (net.folder / name / "node_modules" / "theirs").write_text(name)
    done = await net.undo(fact)
    (aside,) = net.folder.glob("one.*")
    assert re.fullmatch(r"one\.not-undone-[0-9a-f]{6}", aside.name)
    assert done.paths_left_alone == [
        ("0/new", "it contains files that are not part of this undo"),
        ("0/one", f"what was in its place and is not covered is now {aside.name}"),
    ]
    assert done.restored == ["0/new/x", "0/one/x", "0/one"]
    assert (net.folder / "one").read_text() == "one file"
    assert (aside / "node_modules" / "theirs").read_text() == "one"
    assert (net.folder / "new" / "node_modules" / "theirs").read_text() == "new"


async def test_what_changes_after_the_plan_was_made_stays(net: Net) -> None:
    (net.folder / "folder").mkdir()
    (net.folder / "folder" / "x").write_text("x")
    (net.folder / "file").write_text("file")
    (net.folder / "good").write_text("good")
    fact = await net.step(
        lambda: shell("rm -r folder; echo a > folder; echo a > file; echo a > new; echo a > good")(
            net.folder
        )
    )
    assert fact is not None
    changes = folder_state.decode_difference(await net.cache.read_content(fact.difference.digest))
    steps = change_restoring.plan_restore_steps(
        await change_restoring.plan_undo_of_changes(net.checkpoints, changes)
    )
    for name in ("folder", "file", "new"):
        (net.folder / name).write_text("mine")
    done = await change_restoring.restore_paths(net.checkpoints, steps)
    assert sorted(done.paths_left_alone) == [
        ("0/file", "it was changed in the meantime"),
        ("0/folder", "it was changed in the meantime"),
        ("0/folder/x", "Not a directory"),
        ("0/new", "it was changed in the meantime"),
    ]
    assert done.restored == ["0/good"]
    assert {path.name: path.read_text() for path in net.folder.iterdir()} == {
        "folder": "mine", "file": "mine", "new": "mine", "good": "good",
    }  # fmt: skip


async def test_a_mode_comes_back_on_the_same_file_and_in_the_same_folder(net: Net) -> None:
    """Nothing is written again, so a program that holds them open notices nothing."""
    fill(net.folder)
    paths = (net.folder / "d0" / "run.sh", net.folder / "d1")
    before = [(path.stat().st_ino, path.stat().st_mode) for path in paths]
    fact = await net.step(lambda: shell("chmod 600 d0/run.sh; chmod 700 d1")(net.folder))
    assert fact is not None
    done = await net.undo(fact)
    assert (done.restored, done.paths_left_alone) == (["0/d1", "0/d0/run.sh"], [])
    assert [(path.stat().st_ino, path.stat().st_mode) for path in paths] == before


async def test_folders_somebody_deleted_are_made_for_a_file_that_is_wanted_back(net: Net) -> None:
    file = net.folder / "x" / "y" / "a"
    file.parent.mkdir(parents=True)
    file.write_text("before")
    fact = await net.step(lambda: file.write_text("agent"))
    assert fact is not None
    shell("rm -r x")(net.folder)
    assert (await net.undo(fact)).restored == []
    assert (await net.undo(fact, {"0/x/y/a": "before"})).restored == ["0/x/y/a"]
    assert file.read_text() == "before"
    umask = os.umask(0)
    os.umask(umask)
    assert [path.stat().st_mode & 0o7777 for path in file.parents[:2]] == [0o755 & ~umask] * 2


@pytest.mark.parametrize("size", [7, 8, 9, 16, 17])
async def test_a_large_file_comes_back_in_pieces(
    net: Net, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_restoring, "_CHUNK", 8)
    content = bytes(range(size))
    (net.folder / "a").write_bytes(content)
    fact = await net.step((net.folder / "a").unlink)
    assert fact is not None
    assert (await net.undo(fact)).restored == ["0/a"]
    assert (net.folder / "a").read_bytes() == content
