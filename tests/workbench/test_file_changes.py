"""Changes of an open workspace: what is covered, what the largest folders are, and what is swept."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.engine.changes import hunks
from helix_desktop.engine.changes.story import Source
from helix_desktop.engine.facts import FilesChanged, Text, UserSaid
from tests.workbench.conftest import Desks


async def test_what_is_over_the_limit_is_named_until_the_user_chooses(desks: Desks, folder: Path) -> None:
    desk = desks()
    bench = await desk.create("W", folder)
    await bench.change({"changes.most_files": 1})
    await bench._tasks.ended()
    changes = bench.changes
    assert changes.progress.state == "ready"
    (folder / "new.txt").write_text("new")
    await changes.checkpoints.look()
    assert [(left.place, left.is_beyond_limits) for left in changes.not_covered()] == [("new.txt", True)]
    assert [name for name, _, _ in await changes.largest()] == ["src", ""]
    told: list[str] = []
    leave = changes.watch(lambda progress: told.append(progress.state))
    await changes.cover(all_of_it=True, leave_out=[*changes.rules(), "src/"])
    await bench._tasks.ended()
    assert told[-1] == changes.progress.state == "ready"
    assert [left.place for left in changes.not_covered()] == ["src"]
    leave()


async def test_a_sweep_removes_what_no_conversation_and_no_checkpoint_of_now_needs(desks: Desks, folder: Path) -> None:
    desk = desks()
    bench = await desk.create("W", folder)
    await bench.change({"changes.keep_days": 0})
    changes = bench.changes
    await changes.prepare()
    window = await changes.checkpoints.begin("1", "c1", "command")
    assert window is not None
    (folder / "README.md").write_text("kept by a fact\n")
    fact = await changes.checkpoints.end(window)
    assert fact is not None
    await bench.workspace.journal.append("c1", [UserSaid((Text("Change it", 3),)), fact])
    (folder / "README.md").write_text("nobody refers to this one\n")
    await changes.checkpoints.look()
    (folder / "README.md").write_text("this one is there now\n")
    await changes.checkpoints.look()
    before = await changes.room()
    entries, freed = await changes.sweep()
    after = await changes.room()
    assert entries > 0
    assert before[0] - after[0] == entries
    assert before[1] - after[1] >= freed > 0
    state = await changes.checkpoints.state(fact.after)
    assert await changes.checkpoints.content(state["0/README.md"]) == b"kept by a fact\n"
    item = changes.checkpoints.item("0/README.md")
    assert await changes.checkpoints.content(item) == b"this one is there now\n"
    assert (await changes.sweep())[0] == 0


async def test_lines_are_counted_once_for_the_same_contents(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await desks().create("W", folder)
    await bench.changes.prepare()
    now = bench.changes.checkpoints.now
    assert now is not None
    window = await bench.changes.checkpoints.begin("1", "c1", "command")
    assert window is not None
    (folder / "README.md").write_text("# Pairs\n\nOther words.\nAnd more.\n")
    fact = await bench.changes.checkpoints.end(window)
    assert fact is not None
    source = Source("c1", 2, 1.0, fact)
    (first,) = await bench.changes.files([source])
    assert (first.place, first.added, first.removed) == ("README.md", 2, 1)
    monkeypatch.setattr(bench.changes, "contents", None)
    assert await bench.changes.files([source]) == [first]


async def test_everything_since_a_checkpoint_goes_back_whoever_changed_it(desks: Desks, folder: Path) -> None:
    bench = await desks().create("W", folder)
    changes = bench.changes
    await changes.prepare()
    before = (folder / "README.md").read_bytes()
    window = await changes.checkpoints.begin("1", "c1", "command")
    assert window is not None
    (folder / "made").mkdir()
    (folder / "made" / "by the agent").write_text("x")
    fact = await changes.checkpoints.end(window)
    assert fact is not None
    (folder / "README.md").write_text("by the user")
    listed = [file.place for file in await changes.since(fact.before)]
    assert listed == ["README.md", "made/by the agent"]
    undone = await changes.take_back(await changes.since(fact.before, folders=True))
    assert undone.left == ()
    assert not (folder / "made").exists()
    assert (folder / "README.md").read_bytes() == before


async def test_an_undo_of_an_earlier_turn_is_listed_with_it_and_can_be_redone(desks: Desks, folder: Path) -> None:
    bench = await desks().create("W", folder)
    changes, session = bench.changes, await bench.new_conversation()
    await changes.prepare()

    async def turn(name: str) -> None:
        window = await changes.checkpoints.begin("", session.id, "command")
        assert window is not None
        (folder / name).write_text(name)
        (folder / "both").write_text(name)
        fact = await changes.checkpoints.end(window)
        assert fact is not None
        await session.conversation.append(UserSaid((Text(name, 1),)), fact)

    async def listed() -> list[tuple[str, list[str]]]:
        turns = await changes.turns(session.id)
        return [(turn.numbers, [file.place for file in await changes.files(turn.sources)]) for turn in turns]

    for name in ("a", "b", "c"):
        await turn(name)
    (first, *_) = [
        file
        for turn in await changes.turns(session.id)
        for file in await changes.files(turn.sources)
        if file.place == "a"
    ]
    await changes.take_back([first], conversation=session.id)
    assert await listed() == [("1", ["both"]), ("2", ["b", "both"]), ("3", ["both", "c"])]
    await session.rewind(session.facts[-1].seq - 5, restore_files=True)
    assert not {"b", "c"} & {path.name for path in folder.iterdir()}
    assert (folder / "both").read_text() == "a"
    assert await listed() == [("1–3", ["a", "both"])]
    undo = [each.fact for each in session.facts if isinstance(each.fact, FilesChanged)][-1]
    (source,) = [each for turn in await changes.turns(session.id) for each in turn.sources if each.fact is undo]
    await changes.take_back(await changes.with_folders([source]), conversation=session.id)
    assert (folder / "both").read_text() == "c"
    assert await listed() == [("1–3", ["b", "both", "c"])]


@pytest.mark.parametrize("before_more", [False, True])
async def test_the_users_own_lines_are_never_the_agents_after_an_undo_beside_them(
    desks: Desks,
    folder: Path,
    before_more: bool,
) -> None:
    """Else the next undo of what is listed would take the user's lines."""
    bench = await desks().create("W", folder)
    changes, file = bench.changes, folder / "lines"
    lines = [f"{number}\n" for number in range(40)]
    file.write_text("".join(lines))
    session = await bench.new_conversation()

    async def step(number: str, at: int, words: str) -> None:
        window = await changes.checkpoints.begin(number, session.id, "command")
        assert window is not None
        lines[at] = words
        file.write_text("".join(lines))
        fact = await changes.checkpoints.end(window)
        assert fact is not None
        await session.conversation.append(fact)

    async def listed() -> list[tuple[int, int]]:
        (turn,) = await changes.turns(session.id)
        return [(each.added, each.removed) for each in await changes.files(turn.sources)]

    await session.conversation.append(UserSaid((Text("Change it", 3),)))
    await step("1", 20, "by the agent\n")
    if before_more:
        await step("2", 30, "by the agent as well\n")
    lines[2] = "by the user\n"
    file.write_text("".join(lines))
    (turn,) = await changes.turns(session.id)
    (one,) = await changes.files(turn.sources)
    if before_more:  # one of two hunks
        hunk = hunks.hunks(*await changes.contents(one))[0]
        await changes.take_back_hunks(one, [hunk.id], conversation=session.id)
    else:
        await changes.take_back([one], conversation=session.id, choices={one.path: "merge"})
    lines[20] = "20\n"
    assert file.read_text() == "".join(lines)
    assert await listed() == ([(1, 1)] if before_more else [])
    await step("3", 25, "by the agent again\n")
    assert await listed() == ([(2, 2)] if before_more else [(1, 1)])
    (turn,) = await changes.turns(session.id)
    (one,) = await changes.files(turn.sources)
    assert not one.broken
    await changes.take_back([one], conversation=session.id, choices={one.path: "merge"})
    lines[25], lines[30] = "25\n", "30\n"
    assert file.read_text() == "".join(lines)
    assert await listed() == []
