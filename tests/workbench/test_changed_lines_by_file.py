"""What the steps of a conversation did to each file, and how many lines that were."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_desktop.engine import facts
from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.changes.turn_changes import ChangeSource
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.async_stores import StoreCache
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.workbench import changed_lines_by_file
from helix_desktop.workbench.changed_lines_by_file import StepDifferences

BEFORE = "".join(f"line {number}\n" for number in range(20))


class Steps:
    """Versions of one file, and steps between them."""

    def __init__(self, cache: StoreCache, folder: Path) -> None:
        self.cache = cache
        checkpoints = Checkpoints([folder], cache, file=folder / "state")
        self.differences = StepDifferences(cache, lambda: checkpoints)

    async def version(self, text: str | None) -> TreeItem | None:
        if text is None:
            return None
        stored = await self.cache.store_content(text.encode(), EntryOrigin("checkpoint"))
        return TreeItem(PathKind.FILE, 0o644, len(text), stored.digest.raw)

    async def change(
        self, before: str | None, after: str | None, path: str = "0/a.txt"
    ) -> PathChange:
        return PathChange(path, await self.version(before), await self.version(after))

    def source(self, seq: int, by: str = "command", what: str = "edit_file") -> ChangeSource:
        digest = Digest.of_content(b"")
        stored = facts.Stored(digest, 0)
        fact = facts.FilesChanged(stored, digest, digest, by=by)
        return ChangeSource("c", seq, float(seq), fact, what, step=seq)

    async def text(self, item: TreeItem | None) -> str | None:
        if item is None:
            return None
        return (await self.cache.read_content(Digest(item.content))).decode()


@pytest.fixture
async def steps(tmp_path: Path) -> AsyncIterator[Steps]:
    known = AllWorkspaces(tmp_path / "home")
    workspace = await known.open_stored_workspace(known.create_stored_workspace("w", tmp_path).id)
    yield Steps(workspace.cache, tmp_path)
    await workspace.aclose()


async def test_steps_on_a_file_are_one_change_from_the_first_to_the_last(steps: Steps) -> None:
    first = await steps.change("a\n", "b\n")
    second = await steps.change("b\n", "c\n")
    other = await steps.change(None, "new\n", "0/b.txt")
    differences = [(steps.source(3), [first]), (steps.source(7), [second, other])]
    kept = await steps.differences.without_foreign_lines(differences)
    assert [list(changes) for _, changes in kept] == [[first], [second, other]]
    joined = steps.differences.join_differences(kept, list)
    assert [(file.place, file.by, file.step, file.broken) for file in joined] == [
        ("a.txt", "edit_file", 7, False),
        ("b.txt", "edit_file", 7, False),
    ]
    assert (joined[0].change.before, joined[0].change.after) == (first.before, second.after)
    assert [source.seq for source in joined[0].sources] == [3, 7]
    (shown,) = steps.differences.join_differences(kept, lambda changes: list(changes)[1:])
    assert shown.place == "b.txt"


async def test_a_file_that_others_changed_between_two_steps_is_called_so(steps: Steps) -> None:
    first = await steps.change("a\n", "b\n")
    second = await steps.change("theirs\n", "c\n")
    joined = steps.differences.join_differences(
        [(steps.source(1), [first]), (steps.source(2), [second])], list
    )
    assert [file.broken for file in joined] == [True]


async def test_an_undo_beside_the_users_lines_leaves_nothing_of_the_agents_work(
    steps: Steps,
) -> None:
    agents = BEFORE.replace("line 2\n", "agent\n")
    both = agents.replace("line 15\n", "user\n")
    users = BEFORE.replace("line 15\n", "user\n")
    work = await steps.change(BEFORE, agents)
    undo = await steps.change(both, users)
    later = await steps.change(users, users + "more\n")
    kept = await steps.differences.without_foreign_lines(
        [(steps.source(1), [work]), (steps.source(2, "undo"), [undo]), (steps.source(3), [later])]
    )
    assert [list(changes) for _, changes in kept] == [[], [], [later]]


async def test_an_undo_of_a_part_is_shown_without_the_users_lines(steps: Steps) -> None:
    agents = BEFORE.replace("line 2\n", "agent\n").replace("line 9\n", "agent too\n")
    both = agents.replace("line 15\n", "user\n")
    users = both.replace("agent too\n", "line 9\n")
    work = await steps.change(BEFORE, agents)
    undo = await steps.change(both, users)
    after = await steps.change(users, users.replace("line 18\n", "last\n"))
    kept = await steps.differences.without_foreign_lines(
        [(steps.source(1), [work]), (steps.source(2, "undo"), [undo]), (steps.source(3), [after])]
    )
    (_, first), (_, second), (_, third) = kept
    assert list(first) == [work]
    assert second[0].before == work.after
    half = agents.replace("agent too\n", "line 9\n")
    assert await steps.text(second[0].after) == half
    assert await steps.text(third[0].before) == half
    assert await steps.text(third[0].after) == half.replace("line 18\n", "last\n")


async def test_where_lines_cannot_be_told_apart_the_change_stays_as_it_was(steps: Steps) -> None:
    work = await steps.change("a\n", "b\n")
    undo = await steps.change("b and theirs\n", "a and theirs\n")
    kept = await steps.differences.without_foreign_lines(
        [(steps.source(1), [work]), (steps.source(2, "undo"), [undo])]
    )
    assert [list(changes) for _, changes in kept] == [[work], [undo]]


async def test_who_changed_a_file_last_is_the_agent_even_if_the_user_undid_a_part(
    steps: Steps,
) -> None:
    change = await steps.change("a\n", "b\n")
    agent = steps.source(4)
    undo = steps.source(5, "undo", what="")
    build = steps.differences.build_file_change
    assert (build(change, [agent, undo], False).by, build(change, [agent, undo], False).step) == (
        "edit_file",
        0,
    )
    assert build(change, [undo], False).by == "undo"
    assert build(change, [agent], False).step == 4
    nobodys = build(change, [], True)
    assert (nobodys.by, nobodys.step, nobodys.broken) == ("", 0, True)


async def test_lines_are_counted_once_for_the_same_two_versions(steps: Steps) -> None:
    change = await steps.change("a\nb\n", "a\nc\nd\n")
    link = PathChange("0/l", None, TreeItem(PathKind.LINK, 0o777, 1, b"a\nb\n"))
    build = steps.differences.build_file_change
    files = [build(change, [], False), build(link, [], False)]
    counted = await steps.differences.with_line_counts(files)
    assert [(file.added, file.removed) for file in counted] == [(2, 1), (2, 0)]
    assert len(steps.differences._counts) == 1  # A link's target is no content that stays.
    assert await steps.differences.read_both_versions(files[0]) == (b"a\nb\n", b"a\nc\nd\n")
    steps.differences._counts = dict.fromkeys(steps.differences._counts, (7, 7))
    again = await steps.differences.with_line_counts(files[:1])
    assert (again[0].added, again[0].removed) == (7, 7)


async def test_the_oldest_count_makes_room(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_lines_by_file, "COUNTED", 2)
    changes = [await steps.change("a\n", f"{number}\n") for number in range(3)]
    build = steps.differences.build_file_change
    await steps.differences.with_line_counts([build(change, [], False) for change in changes])
    assert [key[1] for key in steps.differences._counts] == [
        change.after.content for change in changes[1:] if change.after
    ]


async def test_of_large_files_and_unreadable_ones_no_lines_are_counted(steps: Steps) -> None:
    small = await steps.change(None, "a\n", "0/small")
    gone = PathChange("0/gone", None, TreeItem(PathKind.FILE, 0o644, 1, b"\0" * 32))
    large = PathChange("0/large", TreeItem(PathKind.FILE, 0o644, 16 << 20, b"\1" * 32), None)
    late = await steps.change(None, "b\n", "0/late")
    build = steps.differences.build_file_change
    files = [build(change, [], False) for change in (small, gone, large, late)]
    counted = await steps.differences.with_line_counts(files)
    assert [(file.place, file.added) for file in counted] == [
        ("small", 1),
        ("gone", 0),
        ("large", 0),
        ("late", 0),
    ]


async def test_a_step_is_read_as_it_was_stored(steps: Steps) -> None:
    change = await steps.change("a\n", "b\n")
    encoded = folder_state.encode_difference([change], Digest.of_content(b"before"))
    stored = await steps.cache.store_content(encoded, EntryOrigin("checkpoint"))
    fact = facts.FilesChanged(stored, stored.digest, stored.digest)
    source = ChangeSource("c", 1, 1.0, fact)
    assert list(await steps.differences.read_changes_of_step(source)) == [change]
