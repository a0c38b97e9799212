"""Changes of an open workspace: what is covered, what the largest folders are, and what
is swept.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from helix_desktop.engine.changes import diff_hunks
from helix_desktop.engine.changes.turn_changes import ChangeSource, FileChange
from helix_desktop.engine.facts import FilesChanged, Text, ToolCall, UserSaid
from helix_desktop.engine.ports import CallContext, PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session import Session
from helix_desktop.gui.transcript.status_lines import describe_changed_files
from helix_desktop.tools.toolbox import Toolbox
from helix_desktop.workbench import Workbench
from helix_desktop.workbench.undo_and_change_list import FileChanges
from tests.workbench.conftest import Desks


async def test_what_is_over_the_limit_is_named_until_the_user_chooses(
    desks: Desks, folder: Path
) -> None:
    desk = desks()
    bench = await desk.create_workspace("W", folder)
    await bench.change_settings({"changes.most_files": 1})
    await bench.tasks.wait_for_all_tasks()
    changes = bench.file_changes
    assert changes.checkpoint_progress.state == "ready"
    (folder / "new.txt").write_text("new")
    await changes.workspace_checkpoints.check_for_changes()
    assert [(left.path, left.is_beyond_limits) for left in changes.list_uncovered_paths()] == [
        ("new.txt", True)
    ]
    assert [name for name, _, _ in await changes.largest_subfolders()] == ["src", ""]
    told: list[str] = []
    leave = changes.watch_checkpoints(lambda progress: told.append(progress.state))
    await changes.change_coverage(
        all_of_it=True, leave_out=[*changes.coverage_in_settings.leave_out, "src/"]
    )
    await bench.tasks.wait_for_all_tasks()
    assert told[-1] == changes.checkpoint_progress.state == "ready"
    assert [left.path for left in changes.list_uncovered_paths()] == ["src"]
    leave()


async def test_a_sweep_removes_what_no_conversation_and_no_checkpoint_of_now_needs(
    desks: Desks, folder: Path
) -> None:
    desk = desks()
    bench = await desk.create_workspace("W", folder)
    await bench.change_settings({"changes.keep_days": 0})
    changes = bench.file_changes
    await changes.prepare_checkpoints()
    window = await changes.workspace_checkpoints.begin_step("1", "c1", "command")
    assert window is not None
    (folder / "README.md").write_text("kept by a fact\n")
    fact = await changes.workspace_checkpoints.end_step(window)
    assert fact is not None
    await bench.workspace.journal.append_to_journal("c1", [UserSaid((Text("Change it", 3),)), fact])
    (folder / "README.md").write_text("nobody refers to this one\n")
    await changes.workspace_checkpoints.check_for_changes()
    (folder / "README.md").write_text("this one is there now\n")
    await changes.workspace_checkpoints.check_for_changes()
    before = await bench.workspace.index.measure_checkpoint_bytes()
    entries, freed = await changes.remove_unused_checkpoints()
    after = await bench.workspace.index.measure_checkpoint_bytes()
    assert entries > 0
    assert before[0] - after[0] == entries
    assert before[1] - after[1] >= freed > 0
    state = await changes.workspace_checkpoints.read_checkpoint_state(fact.after)
    assert (
        await changes.workspace_checkpoints.read_item_content(state["0/README.md"])
        == b"kept by a fact\n"
    )
    item = changes.workspace_checkpoints.folders.last_item_at("0/README.md")
    assert await changes.workspace_checkpoints.read_item_content(item) == b"this one is there now\n"
    assert (await changes.remove_unused_checkpoints())[0] == 0


async def test_a_clean_up_noted_while_the_clock_was_ahead_does_not_put_the_next_one_off(
    desks: Desks, folder: Path
) -> None:
    bench = await desks().create_workspace("W", folder)
    await bench.file_changes.prepare_checkpoints()
    clean_up_file = bench.workspace.folder / "checkpoints.swept"
    in_a_year = time.time() + 365 * 86_400
    os.utime(clean_up_file, (in_a_year, in_a_year))
    await bench.file_changes.prepare_checkpoints()
    assert clean_up_file.stat().st_mtime < in_a_year - 86_400


async def test_lines_are_counted_once_for_the_same_contents(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await desks().create_workspace("W", folder)
    await bench.file_changes.prepare_checkpoints()
    now = bench.file_changes.workspace_checkpoints.latest_checkpoint
    assert now is not None
    window = await bench.file_changes.workspace_checkpoints.begin_step("1", "c1", "command")
    assert window is not None
    (folder / "README.md").write_text("# Pairs\n\nOther words.\nAnd more.\n")
    fact = await bench.file_changes.workspace_checkpoints.end_step(window)
    assert fact is not None
    source = ChangeSource("c1", 2, 1.0, fact)
    (first,) = await bench.file_changes.file_changes_of_steps([source])
    assert (first.place, first.added, first.removed) == ("README.md", 2, 1)
    monkeypatch.setattr(bench.file_changes, "contents_of_both_versions", None)
    assert await bench.file_changes.file_changes_of_steps([source]) == [first]


async def test_files_are_counted_without_empty_folders_and_a_renamed_one_has_no_changed_lines(
    desks: Desks, folder: Path
) -> None:
    bench = await desks().create_workspace("W", folder)
    checkpoints = bench.file_changes.workspace_checkpoints
    await bench.file_changes.prepare_checkpoints()
    step = await checkpoints.begin_step("1", "c1", "command")
    assert step is not None
    (folder / ".benchmarks").mkdir()
    (folder / "README.md").rename(folder / "src" / "READ ME.md")
    (folder / "new.txt").write_text("new\n")
    fact = await checkpoints.end_step(step)
    assert fact is not None
    assert (fact.files, fact.names) == (3, ("README.md", "new.txt", "src/READ ME.md"))
    files = await bench.file_changes.file_changes_of_steps([ChangeSource("c1", 1, 1.0, fact)])
    assert [(file.place, file.added, file.removed, file.renamed) for file in files] == [
        (".benchmarks", 0, 0, ""),  # Listed, and not counted: it is on the disk.
        ("README.md", 0, 0, "src/READ ME.md"),
        ("new.txt", 1, 0, ""),
        ("src/READ ME.md", 0, 0, "README.md"),
    ]
    step = await checkpoints.begin_step("2", "c1", "command")
    assert step is not None
    (folder / "alone" / "deep").mkdir(parents=True)
    fact = await checkpoints.end_step(step)
    assert fact is not None
    assert (fact.files, fact.names) == (0, ()), "no file was changed"
    (folder_alone,) = await bench.file_changes.file_changes_of_steps(
        [ChangeSource("c1", 2, 2.0, fact)]
    )
    assert folder_alone.place == "alone/deep"
    assert describe_changed_files([fact]) == ""


async def test_everything_since_a_checkpoint_goes_back_whoever_changed_it(
    desks: Desks, folder: Path
) -> None:
    bench = await desks().create_workspace("W", folder)
    changes = bench.file_changes
    await changes.prepare_checkpoints()
    before = (folder / "README.md").read_bytes()
    window = await changes.workspace_checkpoints.begin_step("1", "c1", "command")
    assert window is not None
    (folder / "made").mkdir()
    (folder / "made" / "by the agent").write_text("x")
    fact = await changes.workspace_checkpoints.end_step(window)
    assert fact is not None
    (folder / "README.md").write_text("by the user")
    listed = [file.place for file in await changes.changes_since_checkpoint(fact.before)]
    assert listed == ["README.md", "made/by the agent"]
    undone = await changes.undo_file_changes(
        await changes.changes_since_checkpoint(fact.before, folders=True)
    )
    assert undone.paths_left_alone == ()
    assert (undone.files_put_back, undone.files_deleted) == (1, 1), "a folder is no file"
    assert not (folder / "made").exists()
    assert (folder / "README.md").read_bytes() == before


async def test_an_undo_of_an_earlier_turn_is_listed_with_it_and_can_be_redone(
    desks: Desks, folder: Path
) -> None:
    bench = await desks().create_workspace("W", folder)
    session = await bench.start_conversation()
    turns = TurnsOfCommands(bench.file_changes, session, folder)
    changes = bench.file_changes
    await changes.prepare_checkpoints()
    for name in ("a", "b", "c"):
        await turns.run_turn(name)

    of_first_file = [change for change in await turns.all_changes() if change.place == "a"]
    await changes.undo_file_changes(of_first_file[:1], conversation=session.id)
    assert await turns.listed() == [("1", ["both"]), ("2", ["b", "both"]), ("3", ["both", "c"])]

    later = await changes.changes_after_fact(session.id, session.all_facts[-1].seq - 5)
    await changes.undo_file_changes(later, conversation=session.id)
    assert turns.contents().keys().isdisjoint({"b", "c"})
    assert turns.contents()["both"] == b"a"
    assert await turns.listed() == [("1–3", ["a", "both"])]

    undo = [each.fact for each in session.all_facts if isinstance(each.fact, FilesChanged)][-1]
    (source,) = [source for source in await turns.sources() if source.fact is undo]
    await turns.undo(source)
    assert turns.contents()["both"] == b"c"
    assert await turns.listed() == [("1–3", ["b", "both", "c"])]

    before = turns.contents()
    fact = await turns.undo((await turns.sources())[-1])
    assert fact is not None
    await turns.undo(ChangeSource(session.id, 0, 0.0, fact))
    assert turns.contents() == before, "exact"


@dataclass(frozen=True)
class TurnsOfCommands:
    """A conversation each of whose turns writes two files by a command."""

    changes: FileChanges
    session: Session
    folder: Path

    async def run_turn(self, name: str) -> None:
        checkpoints = self.changes.workspace_checkpoints
        window = await checkpoints.begin_step("", self.session.id, "command")
        assert window is not None
        (self.folder / name).write_text(name)
        (self.folder / "both").write_text(name)
        fact = await checkpoints.end_step(window)
        assert fact is not None
        await self.session.conversation.append_facts(UserSaid((Text(name, 1),)), fact)

    async def listed(self) -> list[tuple[str, list[str]]]:
        rows = []
        for turn in await self.changes.turns_with_changes(self.session.id):
            files = await self.changes.file_changes_of_steps(turn.sources)
            rows.append((turn.turn_numbers, [file.place for file in files]))
        return rows

    async def sources(self) -> list[ChangeSource]:
        sources: list[ChangeSource] = []
        for turn in await self.changes.turns_with_changes(self.session.id):
            sources.extend(turn.sources)
        return sources

    async def all_changes(self) -> list[FileChange]:
        changes: list[FileChange] = []
        for turn in await self.changes.turns_with_changes(self.session.id):
            changes.extend(await self.changes.file_changes_of_steps(turn.sources))
        return changes

    async def undo(self, source: ChangeSource) -> FilesChanged | None:
        changes = await self.changes.changes_with_folders([source])
        result = await self.changes.undo_file_changes(changes, conversation=self.session.id)
        return result.fact

    def contents(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}


async def test_undoing_a_new_file_also_removes_the_folder_created_for_it(
    desks: Desks, folder: Path
) -> None:
    bench = await desks().create_workspace("W", folder)
    changes = bench.file_changes
    session = await bench.start_conversation()
    await changes.prepare_checkpoints()
    window = await changes.workspace_checkpoints.begin_step("", session.id, "command")
    assert window is not None
    for path in ("docs/deep/NOTES.md", "made/by the agent"):
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text("x")
    fact = await changes.workspace_checkpoints.end_step(window)
    assert fact is not None
    await session.conversation.append_facts(UserSaid((Text("Add notes", 2),)), fact)
    (folder / "made" / "by the user").write_text("mine")
    (turn,) = await changes.turns_with_changes(session.id)
    for file in await changes.file_changes_of_steps(turn.sources):
        assert (
            await changes.undo_file_changes([file], conversation=session.id)
        ).paths_left_alone == ()
    assert not (folder / "docs").exists()
    assert [path.name for path in (folder / "made").iterdir()] == ["by the user"]
    (turn,) = await changes.turns_with_changes(session.id)
    first, *_ = [source for source in turn.sources if source.fact.by == "undo"]
    await changes.undo_file_changes(
        await changes.changes_with_folders([first]), conversation=session.id
    )
    assert (folder / "docs/deep/NOTES.md").read_text() == "x"


async def test_undoing_the_deletion_of_a_file_also_undoes_that_of_its_folder(
    desks: Desks, folder: Path
) -> None:
    """The folder was there again, and the list still said that it had been deleted."""
    bench = await desks().create_workspace("W", folder)
    changes = bench.file_changes
    session = await bench.start_conversation()
    (folder / "data" / "old").mkdir(parents=True)
    (folder / "data" / "old" / "loans.csv").write_text("x")
    (folder / "data").chmod(0o700)
    await changes.prepare_checkpoints()
    window = await changes.workspace_checkpoints.begin_step("", session.id, "command")
    assert window is not None
    shutil.rmtree(folder / "data")
    fact = await changes.workspace_checkpoints.end_step(window)
    assert fact is not None
    await session.conversation.append_facts(UserSaid((Text("Tidy up", 2),)), fact)
    (turn,) = await changes.turns_with_changes(session.id)
    files = await changes.file_changes_of_steps(turn.sources)
    assert [file.place for file in files] == ["data/old/loans.csv"]
    result = await changes.undo_file_changes(files, conversation=session.id)
    assert (result.files_put_back, result.paths_left_alone) == (1, ())
    assert (folder / "data" / "old" / "loans.csv").read_text() == "x"
    assert (folder / "data").stat().st_mode & 0o777 == 0o700
    (turn,) = await changes.turns_with_changes(session.id)
    assert await changes.file_changes_of_steps(turn.sources) == []


@pytest.mark.parametrize("before_more", [False, True])
async def test_the_users_own_lines_are_never_the_agents_after_an_undo_beside_them(
    desks: Desks,
    folder: Path,
    before_more: bool,
) -> None:
    """Else the next undo of what is listed would take the user's lines."""
    bench = await desks().create_workspace("W", folder)
    changes = bench.file_changes
    file = folder / "lines"
    lines = [f"{number}\n" for number in range(40)]
    file.write_text("".join(lines))
    session = await bench.start_conversation()

    async def step(number: str, at: int, words: str) -> None:
        window = await changes.workspace_checkpoints.begin_step(number, session.id, "command")
        assert window is not None
        lines[at] = words
        file.write_text("".join(lines))
        fact = await changes.workspace_checkpoints.end_step(window)
        assert fact is not None
        await session.conversation.append_facts(fact)

    def newest_change() -> FilesChanged:
        fact = session.all_facts[-1].fact
        assert isinstance(fact, FilesChanged)
        return fact

    async def listed() -> list[tuple[int, int]]:
        (turn,) = await changes.turns_with_changes(session.id)
        return [
            (each.added, each.removed) for each in await changes.file_changes_of_steps(turn.sources)
        ]

    await session.conversation.append_facts(UserSaid((Text("Change it", 3),)))
    await step("1", 20, "by the agent\n")
    if before_more:
        await step("2", 30, "by the agent as well\n")
    lines[2] = "by the user\n"
    file.write_text("".join(lines))
    (turn,) = await changes.turns_with_changes(session.id)
    (one,) = await changes.file_changes_of_steps(turn.sources)
    if before_more:  # one of two hunks
        hunk = diff_hunks.find_hunks(*await changes.contents_of_both_versions(one))[0]
        await changes.undo_hunks(one, [hunk.stable_id], conversation=session.id)
    else:
        await changes.undo_file_changes(
            [one], conversation=session.id, choices={one.path_of_change: "merge"}
        )
    # Nothing is left of the first step, whatever the second one did elsewhere.
    assert newest_change().is_whole
    lines[20] = "20\n"
    assert file.read_text() == "".join(lines)
    assert await listed() == ([(1, 1)] if before_more else [])
    await step("3", 25, "by the agent again\n")
    assert await listed() == ([(2, 2)] if before_more else [(1, 1)])
    (turn,) = await changes.turns_with_changes(session.id)
    (one,) = await changes.file_changes_of_steps(turn.sources)
    assert not one.broken
    await changes.undo_file_changes(
        [one], conversation=session.id, choices={one.path_of_change: "merge"}
    )
    assert newest_change().is_whole
    lines[25] = "25\n"
    lines[30] = "30\n"
    assert file.read_text() == "".join(lines)
    assert await listed() == []


@dataclass
class TurnsOnOneFile:
    """A conversation whose turns each change one line of the same file."""

    changes: FileChanges
    session: Session
    file: Path
    lines: list[str]

    async def change_line(self, at: int, words: str) -> int:
        """Let the agent change a line in a turn of its own. Returns the number of its fact."""
        checkpoints = self.changes.workspace_checkpoints
        window = await checkpoints.begin_step("", self.session.id, "command")
        assert window is not None
        self.lines[at] = words
        self.file.write_text("".join(self.lines))
        fact = await checkpoints.end_step(window)
        assert fact is not None
        await self.session.conversation.append_facts(UserSaid((Text("Change it", 3),)), fact)
        return self.session.conversation.state.seq

    async def list_files_of_whole_conversation(self) -> Sequence[FileChange]:
        sources: list[ChangeSource] = []
        for turn in await self.changes.turns_with_changes(self.session.id):
            sources += turn.sources
        return await self.changes.file_changes_of_steps(sources)

    async def undo_hunk_with(self, words: bytes) -> FilesChanged:
        (file,) = await self.list_files_of_whole_conversation()
        assert not file.broken
        hunks = diff_hunks.find_hunks(*await self.changes.contents_of_both_versions(file))
        (hunk,) = [hunk for hunk in hunks if any(words in line for _, line in hunk.rows)]
        await self.changes.undo_hunks(file, [hunk.stable_id], conversation=self.session.id)
        undo = self.session.all_facts[-1].fact
        assert isinstance(undo, FilesChanged)
        return undo

    async def list_changed_lines_by_turn(self) -> list[list[tuple[int, int]]]:
        changed_lines = []
        for turn in await self.changes.turns_with_changes(self.session.id):
            files = await self.changes.file_changes_of_steps(turn.sources)
            changed_lines.append([(file.added, file.removed) for file in files])
        return changed_lines


async def open_turns_on_one_file(desks: Desks, folder: Path) -> TurnsOnOneFile:
    bench = await desks().create_workspace("W", folder)
    file = folder / "lines"
    lines = [f"{number}\n" for number in range(40)]
    file.write_text("".join(lines))
    await bench.file_changes.prepare_checkpoints()
    return TurnsOnOneFile(bench.file_changes, await bench.start_conversation(), file, lines)


@pytest.mark.parametrize("undone", [0, 1, 2])
async def test_an_undone_hunk_belongs_to_the_turn_that_made_it(
    desks: Desks, folder: Path, undone: int
) -> None:
    """Every turn that had changed the file was said to be undone in parts, and the one whose
    work was gone altogether was not said to be undone.
    """
    turns = await open_turns_on_one_file(desks, folder)
    seqs = [await turns.change_line(at, f"turn {at}\n") for at in (5, 20, 35)]
    undo = await turns.undo_hunk_with(f"turn {(5, 20, 35)[undone]}".encode())
    assert (undo.undoes, undo.is_whole) == ((seqs[undone],), True)
    left = [[(1, 1)], [(1, 1)], [(1, 1)]]
    left[undone] = []
    assert await turns.list_changed_lines_by_turn() == left

    # Undone once more, the undo is taken back, and the turn has its change again.
    (undo_turn,) = [
        turn
        for turn in await turns.changes.turns_with_changes(turns.session.id)
        if any(source.fact.by == "undo" for source in turn.sources)
    ]
    (undo_source,) = [source for source in undo_turn.sources if source.fact.by == "undo"]
    await turns.changes.undo_file_changes(
        await turns.changes.file_changes_of_steps([undo_source]), conversation=turns.session.id
    )
    assert turns.file.read_text() == "".join(turns.lines)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
async def test_the_whole_conversation_shows_what_is_left_of_a_file_after_undos_in_any_order(
    desks: Desks, folder: Path, order: tuple[int, ...]
) -> None:
    """An undo stands in the turn that it undoes, before later turns: joined in that order, its
    lines came back.
    """
    turns = await open_turns_on_one_file(desks, folder)
    unchanged = turns.file.read_text()
    lines_at = (5, 20, 35)
    for at in lines_at:
        await turns.change_line(at, f"turn {at}\n")
    for number, turn in enumerate(order):
        await turns.undo_hunk_with(f"turn {lines_at[turn]}".encode())
        left = 2 - number
        files = await turns.list_files_of_whole_conversation()
        assert [(file.added, file.removed) for file in files] == [(left, left)] * bool(left)
        for file in files:
            _before, after = await turns.changes.contents_of_both_versions(file)
            assert after == turns.file.read_bytes()
    assert turns.file.read_text() == unchanged


async def test_an_undone_hunk_belongs_to_each_turn_that_worked_on_its_lines(
    desks: Desks, folder: Path
) -> None:
    turns = await open_turns_on_one_file(desks, folder)
    first = await turns.change_line(5, "turn one\n")
    await turns.change_line(30, "elsewhere\n")
    third = await turns.change_line(5, "turn three\n")
    undo = await turns.undo_hunk_with(b"turn three")
    assert undo.undoes == (first, third)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX shells")
class TestCommandInTheBackground:
    """Its changes are the conversation's own, as far as they cannot be the user's work."""

    bench: Workbench
    session: Session
    box: Toolbox

    async def start(self, desks: Desks, folder: Path, line: str) -> None:
        self.bench = await desks().create_workspace("W", folder)
        await self.bench.choose_permission_mode("allow all")
        self.session = await self.bench.start_conversation()
        await self.session.conversation.append_facts(UserSaid((Text("Change it", 3),)))
        self.box = self.bench.kit.build_toolbox()
        os.mkfifo(folder / "go")
        await self.call("run_command", command=line, background=True)
        await self.end_turn()

    async def call(self, tool: str, **arguments: object) -> None:
        async def allow(_question: PermissionQuestion) -> PermissionAnswer:
            return PermissionAnswer(allowed=True)

        context = CallContext(self.session.id, allow, lambda _: None)
        outcome = await self.box.run_tool_call(ToolCall(tool, tool, json.dumps(arguments)), context)
        await self.session.conversation.append_facts(*filter(None, [outcome.files]))

    async def end_turn(self) -> None:
        await self.session.conversation.append_facts(
            *await self.bench.kit.collect_unfinished_changes(self.session.id)
        )

    async def go_on_to_the_end(self, folder: Path) -> None:
        await asyncio.to_thread((folder / "go").write_text, "go")
        async with asyncio.timeout(120):
            while not any(isinstance(each.fact, FilesChanged) for each in self.session.all_facts):
                await asyncio.sleep(0)

    async def changed(self) -> list[str]:
        found = await self.bench.file_changes.turns_with_changes(self.session.id)
        return [
            file.place
            for turn in found
            for file in await self.bench.file_changes.file_changes_of_steps(turn.sources)
        ]

    async def test_what_it_does_after_the_turn_is_listed_and_undone(
        self, desks: Desks, folder: Path
    ) -> None:
        before = (folder / "README.md").read_text()
        await self.start(desks, folder, "read x < go; echo lost > README.md")
        assert await self.changed() == []
        await self.go_on_to_the_end(folder)
        assert await self.changed() == ["README.md"]
        (fact,) = [
            each.fact for each in self.session.all_facts if isinstance(each.fact, FilesChanged)
        ]
        assert (fact.by, fact.call) == ("background", "run_command")
        files = await self.bench.file_changes.changes_after_fact(self.session.id, 1)
        await self.bench.file_changes.undo_file_changes(files, conversation=self.session.id)
        assert (folder / "README.md").read_text() == before

    async def test_what_the_user_does_beside_a_server_stays_the_users(
        self, desks: Desks, folder: Path
    ) -> None:
        await self.start(desks, folder, "read x < go; echo lost > README.md; read x < go")
        (folder / "thesis").write_text("the user's\n")
        await self.call("list_commands")
        await self.call("run_command", command="echo agent > notes")
        assert await self.changed() == ["notes"]
        await asyncio.to_thread((folder / "go").write_text, "go")
        while (folder / "README.md").read_text() != "lost\n":
            await asyncio.sleep(0)
        await self.end_turn()
        assert await self.changed() == ["README.md", "notes"]
        (folder / "thesis").write_text("the user's, again\n")
        await self.call("stop_command", name="bg1")
        await self.end_turn()
        assert await self.changed() == ["README.md", "notes"]


async def test_a_file_of_which_something_was_undone_names_no_step(
    desks: Desks, folder: Path
) -> None:
    """The defect: the chip still named the step whose lines had just been undone."""
    bench = await desks().create_workspace("W", folder)
    checkpoints = bench.file_changes.workspace_checkpoints
    await bench.file_changes.prepare_checkpoints()
    before = (folder / "README.md").read_text()
    sources: list[ChangeSource] = []
    for number, line in ((6, "first\n"), (7, "second\n")):
        step = await checkpoints.begin_step(str(number), "c1", "command")
        assert step is not None
        (folder / "README.md").write_text(f"{before}{line}")
        fact = await checkpoints.end_step(step)
        assert fact is not None
        sources.append(ChangeSource("c1", number, 1.0, fact, "edit_file", step=number))
    (changed,) = await bench.file_changes.file_changes_of_steps(sources)
    assert (changed.by, changed.step) == ("edit_file", 7)
    undo = replace(sources[-1].fact, by="undo", undoes=(6, 7))
    sources.append(ChangeSource("c1", 8, 1.0, undo))
    (changed,) = await bench.file_changes.file_changes_of_steps(sources)
    assert (changed.by, changed.step) == ("edit_file", 0)
