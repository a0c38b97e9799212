"""The changes of a workspace elsewhere are those that its host has, and are undone by it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from helix_desktop.engine.changes import diff_hunks
from helix_desktop.engine.changes.turn_changes import UndoOutlook
from helix_desktop.engine.facts import Text
from helix_desktop.errors import InvalidInput
from helix_desktop.workbench import Workbench
from helix_desktop.workspace_host import sent_changes
from helix_desktop.workspace_host.client_workspace import ClientWorkspace
from tests.workspace_host.test_client_workspace import client, is_done, line, until

__all__ = ["client", "line"]


async def write_files(client: ClientWorkspace, bench: Workbench, *messages: str) -> str:
    await bench.choose_permission_mode("allow all")
    session = await client.start_users_conversation()
    for number, message in enumerate(messages, 1):
        session.send_message((Text(message),))
        await until(partial(is_done, session, number), client)
    return session.id


async def test_they_are_the_same_as_in_the_workspace(
    client: ClientWorkspace, bench: Workbench
) -> None:
    conversation = await write_files(client, bench, "write b.txt: one", "write c.txt: two")
    here = client.file_changes_of(conversation)
    there = bench.file_changes_of(conversation)
    turns = await here.turns_with_changes(conversation)
    assert [(turn.seq, turn.end, turn.sources) for turn in turns] == [
        (turn.seq, turn.end, turn.sources) for turn in await there.turns_with_changes(conversation)
    ]
    groups = [turn.sources for turn in turns]
    listed = await here.file_changes_of_groups(groups)
    assert listed == await there.file_changes_of_groups(groups)
    assert [file.place for files in listed for file in files] == ["b.txt", "c.txt"]
    (written,) = listed[0]
    assert await here.contents_of_both_versions(written) == (b"", b"one\n")
    checkpoint = turns[0].first_checkpoint
    assert await here.changes_since_checkpoint(checkpoint) == list(
        await there.changes_since_checkpoint(checkpoint)
    )
    await here.read_coverage()
    assert here.checkpoint_progress == there.checkpoint_progress
    assert list(here.list_uncovered_paths()) == list(there.list_uncovered_paths())
    assert await here.git_repository.find_committed_paths([written.change]) == frozenset()


async def test_a_file_is_undone_and_restored_by_the_host(
    client: ClientWorkspace, bench: Workbench, folder: Path
) -> None:
    conversation = await write_files(client, bench, "write b.txt: one")
    changes = client.file_changes_of(conversation)
    (turn,) = await changes.turns_with_changes(conversation)
    files = await changes.changes_with_folders(turn.sources)
    (planned,) = await changes.plan_undo(files)
    assert planned.how is UndoOutlook.RESTORE
    undone = await changes.undo_file_changes(files, conversation=conversation)
    assert (undone.restored, undone.files_deleted) == (("b.txt",), 1)
    assert undone.fact is not None
    assert not (folder / "b.txt").exists()
    (redone_turn,) = await changes.turns_with_changes(conversation)
    undos = [source for source in redone_turn.sources if source.fact.by == "undo"]
    files = await changes.changes_with_folders(undos)
    await changes.undo_file_changes(files, conversation=conversation)
    assert (folder / "b.txt").read_text() == "one\n"


async def test_a_file_that_others_changed_is_left_alone_unless_the_user_chooses(
    client: ClientWorkspace, bench: Workbench, folder: Path
) -> None:
    conversation = await write_files(client, bench, "write b.txt: one")
    (folder / "b.txt").write_text("mine")
    changes = client.file_changes_of(conversation)
    (turn,) = await changes.turns_with_changes(conversation)
    files = await changes.changes_with_folders(turn.sources)
    (planned,) = await changes.plan_undo(files)
    assert planned.how is UndoOutlook.CONFLICT
    assert await changes.three_versions_of_file(planned) == (b"", b"one\n", b"mine")
    undone = await changes.undo_file_changes(files, conversation=conversation)
    assert [path for path, _ in undone.paths_left_alone] == ["b.txt"]
    assert (folder / "b.txt").read_text() == "mine"
    choices = {files[0].path_of_change: "before"}
    await changes.undo_file_changes(files, conversation=conversation, choices=choices)
    assert not (folder / "b.txt").exists()


async def test_a_hunk_is_kept_and_undone(
    client: ClientWorkspace, bench: Workbench, folder: Path
) -> None:
    conversation = await write_files(client, bench, "write b.txt: one")
    changes = client.file_changes_of(conversation)
    (turn,) = await changes.turns_with_changes(conversation)
    (file,) = await changes.file_changes_of_steps(turn.sources)
    (hunk,) = diff_hunks.find_hunks(*await changes.contents_of_both_versions(file))
    await changes.keep_hunk(conversation, file.path_of_change, hunk.stable_id)
    kept = await bench.file_changes_of(conversation).kept_hunks_by_path(conversation)
    assert kept == {file.path_of_change: frozenset({hunk.stable_id})}
    session = await client.open_session(conversation)
    newest = (await bench.open_session(conversation)).all_facts[-1].seq
    await until(lambda: session.conversation.state.seq >= newest, client)
    assert await changes.kept_hunks_by_path(conversation) == kept
    await changes.undo_hunks(file, [hunk.stable_id], conversation=conversation)
    assert not (folder / "b.txt").exists()


@pytest.mark.parametrize(
    "path", [b"", b"x/a", b"0/../a", b"0//etc/passwd", b"0/a\0b", "²/a".encode(), b"9" * 5_000]
)
def test_a_path_that_leads_out_of_the_folders_is_refused(path: bytes) -> None:
    with pytest.raises(InvalidInput):
        sent_changes.receive_path(path)


@pytest.mark.parametrize("packed", [b"f", b"z" + bytes(22), b"f" + bytes(22)])
def test_an_item_that_is_none_is_refused(packed: bytes) -> None:
    with pytest.raises(InvalidInput):
        sent_changes.receive_item(packed)
