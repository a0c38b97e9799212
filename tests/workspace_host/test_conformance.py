"""The same stories in the host's process, over a socket, and as a command at the owner."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from helix_desktop.engine.cache_entry_rows import EntryFilter, EntrySort
from helix_desktop.engine.changes.diff_hunks import find_hunks
from helix_desktop.engine.changes.turn_changes import UndoOutlook
from helix_desktop.engine.facts import (
    ChangeKept,
    Decided,
    Excluded,
    Folded,
    FoldKind,
    ModelReplied,
    Pinned,
    Span,
    Text,
    TurnEnd,
    TurnEnded,
    Unfolded,
    Unpinned,
    UserSaid,
)
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import ReplyStreamed
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput, NotFound
from helix_desktop.workbench import Workbench
from helix_desktop.workspace_host import local_workspace_host, window_commands
from helix_desktop.workspace_host.followed_conversation import digest_of_view
from helix_desktop.workspace_host.host_interface import (
    LONGEST_RANGE,
    AnswerAgain,
    AnswerQuestion,
    AttachEntry,
    ChangeConversation,
    ChangePart,
    ChangesAnswer,
    ChangeWaitingMessage,
    CheckMessage,
    ChooseLastingModel,
    ChooseModel,
    ChoosePermissionMode,
    CompareWithLastCommit,
    CompletePaths,
    CountEntries,
    CountEntriesByTool,
    DescribeCoverage,
    DescribeWorkspace,
    EditAndResend,
    EditFold,
    FindEntries,
    FindEntryUses,
    FoldConversation,
    ForkConversation,
    HistoryReplaced,
    HostCommand,
    HostListRow,
    KeepHunk,
    ListChangesAfter,
    ListChangesOfSteps,
    ListChangesSinceCheckpoint,
    ListChangesSinceRevision,
    ListEntries,
    ListTurnsWithChanges,
    LiveState,
    MeasureEntries,
    PartChange,
    PinEntry,
    PlanUndo,
    QueueChange,
    ReadFile,
    RepeatFold,
    ResolveEntry,
    ResumeTurn,
    RetryModelNow,
    RewindConversation,
    SearchEntries,
    SendMessage,
    StartConversation,
    StopFold,
    StopTurn,
    StoreContent,
    SwitchToAnswer,
    TakeBackMessage,
    UndoChangedFiles,
    UndoFileChanges,
    UndoFold,
    UndoHunks,
    VerifyEntry,
    WorkspaceHost,
    message_fingerprint,
    question_fingerprint,
    read_stored_content,
)
from helix_desktop.workspace_host.sent_changes import SentFiles, receive_turn
from tests.workspace_host.conftest import NewHost
from tests.workspace_host.viewer import Viewer


async def begun(host: WorkspaceHost) -> Viewer:
    started = await host.run_host_command(StartConversation())
    return await Viewer.begin(host, started.conversation)


async def session_of(bench: Workbench, viewer: Viewer) -> Session:
    return await bench.open_session(viewer.conversation)


async def check_same_as_host(bench: Workbench, viewer: Viewer) -> None:
    session = await session_of(bench, viewer)
    await viewer.until_as_far_as(session)
    assert list(viewer.state.facts) == list(session.all_facts)
    assert viewer.view == digest_of_view(session.conversation.state).hex


async def allow(viewer: Viewer, *, allowed: bool = True, words: str = "", device: str = "") -> int:
    await viewer.until(lambda: bool(viewer.questions))
    number, question = next(iter(viewer.questions.items()))
    answer = PermissionAnswer(allowed=allowed, words=words, device=device)
    command = AnswerQuestion(viewer.conversation, number, question_fingerprint(question), answer)
    await viewer.host.run_host_command(command)
    return number


async def test_a_turn_is_seen_as_the_host_has_it(host: WorkspaceHost, bench: Workbench) -> None:
    viewer = await begun(host)
    await viewer.say("hello")
    await viewer.say("read README.md")
    assert any(isinstance(fact, ModelReplied) for fact in viewer.facts)
    assert any(isinstance(event, ReplyStreamed) for event in viewer.events)
    assert viewer.reply_text == ""
    await check_same_as_host(bench, viewer)


async def test_who_comes_later_has_the_same_from_any_number_on(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench
) -> None:
    first = await begun(host)
    await first.say("read README.md")
    later = await Viewer.begin(await new_host(), first.conversation)
    assert later.view == first.view
    assert later.added == list(range(1, first.state.seq + 1))
    from_there = await Viewer.begin(await new_host(), first.conversation, list(first.state.facts))
    assert from_there.added == []
    assert from_there.view == first.view
    await first.say("hello")
    await later.until_as_far_as(await session_of(bench, first))
    assert from_there.state.seq < later.state.seq
    await check_same_as_host(bench, later)
    await check_same_as_host(bench, from_there)
    assert from_there.added == later.added[-len(from_there.added) :]


async def test_permission_is_asked_of_all_and_answered_once(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench, folder: Path
) -> None:
    viewer = await begun(host)
    other = await Viewer.begin(await new_host(), viewer.conversation)
    await host.run_host_command(SendMessage(viewer.conversation, "write b.txt: text"))
    await viewer.until(lambda: bool(viewer.questions))
    await other.until(lambda: bool(other.questions))
    assert viewer.questions == other.questions
    assert not (folder / "b.txt").exists()
    number, question = next(iter(other.questions.items()))
    await allow(viewer, device="Ada's phone")
    late = AnswerQuestion(
        viewer.conversation, number, question_fingerprint(question), PermissionAnswer(allowed=False)
    )
    await viewer.until_ended(1)
    with pytest.raises(ActionRefused, match="no longer open"):
        await other.host.run_host_command(late)
    assert (folder / "b.txt").read_text() == "text\n"
    assert not viewer.questions
    await other.until(lambda: not other.questions)
    decisions = [fact for fact in viewer.facts if isinstance(fact, Decided) and fact.by == "user"]
    assert [(fact.allowed, fact.device) for fact in decisions] == [(True, "Ada's phone")]
    await check_same_as_host(bench, viewer)


async def test_an_answer_to_other_words_is_refused(host: WorkspaceHost, folder: Path) -> None:
    viewer = await begun(host)
    await host.run_host_command(SendMessage(viewer.conversation, "write b.txt: text"))
    await viewer.until(lambda: bool(viewer.questions))
    number = next(iter(viewer.questions))
    wrong = AnswerQuestion(viewer.conversation, number, "00" * 32, PermissionAnswer(allowed=True))
    with pytest.raises(ActionRefused, match="no longer open"):
        await host.run_host_command(wrong)
    await allow(viewer, allowed=False, words="use another name")
    await viewer.until_ended(1)
    assert not (folder / "b.txt").exists()
    assert any("use another name" in getattr(fact, "head", "") for fact in viewer.facts)


async def test_a_question_that_is_open_is_told_to_who_comes_later(
    host: WorkspaceHost, new_host: NewHost
) -> None:
    viewer = await begun(host)
    await host.run_host_command(SendMessage(viewer.conversation, "write b.txt: text"))
    await viewer.until(lambda: bool(viewer.questions))
    later = await Viewer.begin(await new_host(), viewer.conversation)
    assert later.questions == viewer.questions
    assert later.running.value == "waiting for you"
    await allow(later)
    await later.until_ended(1)


async def test_a_command_that_is_sent_twice_is_done_once(
    host: WorkspaceHost, new_host: NewHost
) -> None:
    viewer = await begun(host)
    command = SendMessage(viewer.conversation, "hello")
    again = await new_host()
    await host.run_host_command(command, "the same")
    await again.run_host_command(command, "the same")
    await viewer.until_ended(1)
    first = await host.run_host_command(StartConversation(), "one more")
    second = await again.run_host_command(StartConversation(), "one more")
    assert first == second
    assert sum(isinstance(fact, UserSaid) for fact in viewer.facts) == 1


async def test_what_is_wrong_with_a_message_is_said_before_anything_is_begun(
    host: WorkspaceHost, bench: Workbench
) -> None:
    await host.run_host_command(CheckMessage("hello"))
    with pytest.raises(InvalidInput, match="no command or skill /nothing"):
        await host.run_host_command(CheckMessage("/nothing at all"))
    with pytest.raises(NotFound, match="There is no provider 'nobody'"):
        await host.run_host_command(CheckMessage("hello", "nobody/model"))
    assert not bench.list_conversations()


async def test_a_waiting_message_is_taken_back_once(host: WorkspaceHost, bench: Workbench) -> None:
    viewer = await begun(host)
    conversation = viewer.conversation
    await host.run_host_command(SendMessage(conversation, "write b.txt: text"))
    await viewer.until(lambda: bool(viewer.questions))
    for text in ("one", "two", "one"):
        await host.run_host_command(SendMessage(conversation, text))
    await host.run_host_command(TakeBackMessage(conversation, "one"))
    await viewer.until(lambda: viewer.queued is not None and bool(viewer.queued.taken_back))
    assert viewer.queued is not None
    waiting = [part.text for (part,) in viewer.queued.messages if isinstance(part, Text)]
    assert waiting == ["one", "two"]
    with pytest.raises(NotFound, match="does not wait any more"):
        await host.run_host_command(TakeBackMessage(conversation, "three"))
    await allow(viewer, allowed=False)
    await viewer.until_ended(3)
    await check_same_as_host(bench, viewer)


async def test_a_model_is_chosen_for_a_conversation_or_for_all(
    host: WorkspaceHost, bench: Workbench
) -> None:
    await bench.choose_model_for_role("")
    started = await host.run_host_command(StartConversation())
    await host.run_host_command(ChooseModel(started.conversation, "demo/demo"))
    assert bench.main_model_name == ""
    assert bench.model_of_conversation(started.conversation) == "demo/demo"
    usual = ChooseModel(started.conversation, "demo/demo", becomes_usual=True)
    await host.run_host_command(usual)
    assert bench.main_model_name == "demo/demo"


async def test_a_turn_is_stopped_and_goes_on(host: WorkspaceHost, bench: Workbench) -> None:
    viewer = await begun(host)
    await host.run_host_command(SendMessage(viewer.conversation, "write b.txt: text"))
    await viewer.until(lambda: bool(viewer.questions))
    await host.run_host_command(SendMessage(viewer.conversation, "hello"))
    await viewer.until(lambda: viewer.queued is not None and bool(viewer.queued.messages))
    await host.run_host_command(StopTurn(viewer.conversation))
    await viewer.until_ended(1)
    end = next(fact for fact in viewer.facts if isinstance(fact, TurnEnded))
    assert end.reason is TurnEnd.STOPPED
    await host.run_host_command(ResumeTurn(viewer.conversation))
    await viewer.until_ended(2)
    await check_same_as_host(bench, viewer)


async def read_three_files(host: WorkspaceHost, bench: Workbench, folder: Path) -> Viewer:
    """A conversation that is long enough to be summarized."""
    for name in ("one.txt", "two.txt", "three.txt"):
        lines = [f"Line {number} of {name} says little." for number in range(200)]
        (folder / name).write_text("\n".join(lines))
    await bench.choose_permission_mode("allow all")
    viewer = await begun(host)
    for words in ("Read one.txt", "Read two.txt", "Read three.txt", "hello"):
        await viewer.say(words)
    return viewer


async def summarize(viewer: Viewer) -> Folded:
    def list_summaries() -> list[Folded]:
        folds = [fact for fact in viewer.facts if isinstance(fact, Folded)]
        return [fold for fold in folds if fold.kind is FoldKind.HANDOVER]

    await viewer.host.run_host_command(FoldConversation(viewer.conversation, FoldKind.HANDOVER))
    await viewer.until(lambda: bool(list_summaries()))
    return list_summaries()[0]


async def test_folds_are_made_undone_and_repeated(
    host: WorkspaceHost, bench: Workbench, folder: Path
) -> None:
    viewer = await read_three_files(host, bench, folder)
    before = viewer.view
    fold = await summarize(viewer)
    folded = viewer.view
    assert folded != before
    await host.run_host_command(UndoFold(viewer.conversation, fold.fold))
    await viewer.until(lambda: any(isinstance(fact, Unfolded) for fact in viewer.facts))
    assert viewer.view == before
    await host.run_host_command(RepeatFold(viewer.conversation, fold.fold))
    await check_same_as_host(bench, viewer)
    assert viewer.view == folded


async def test_a_summary_is_edited(host: WorkspaceHost, bench: Workbench, folder: Path) -> None:
    viewer = await read_three_files(host, bench, folder)
    fold = await summarize(viewer)
    edit = EditFold(viewer.conversation, fold.fold, "In my own words.")
    await host.run_host_command(edit)
    await check_same_as_host(bench, viewer)
    edited = viewer.state.find_fold(fold.fold)
    assert edited is not None
    assert edited.text == "In my own words."
    with pytest.raises(NotFound):
        await host.run_host_command(EditFold(viewer.conversation, "none", "words"))


async def test_rewinding_asking_again_and_forking(host: WorkspaceHost, bench: Workbench) -> None:
    viewer = await begun(host)
    await viewer.say("hello")
    seq = viewer.state.seq
    await viewer.say("read README.md")
    await host.run_host_command(RewindConversation(viewer.conversation, seq))
    await check_same_as_host(bench, viewer)
    ends = viewer.ends
    await host.run_host_command(AnswerAgain(viewer.conversation))
    await viewer.until_ended(ends + 1)
    await check_same_as_host(bench, viewer)
    forked = await host.run_host_command(ForkConversation(viewer.conversation, title="Other"))
    fork = await Viewer.begin(host, forked.conversation)
    assert fork.state.title == "Other"
    await fork.say("hello")
    await check_same_as_host(bench, fork)


async def test_files_are_undone(host: WorkspaceHost, folder: Path) -> None:
    viewer = await begun(host)
    seq = viewer.state.seq
    await host.run_host_command(SendMessage(viewer.conversation, "write b.txt: text"))
    await allow(viewer)
    await viewer.until_ended(1)
    assert (folder / "b.txt").exists()
    undone = await host.run_host_command(UndoFileChanges(viewer.conversation, seq))
    assert [Path(path).name for path in undone.paths] == ["b.txt"]
    assert undone.left_alone == ()
    assert not (folder / "b.txt").exists()


async def written_file(host: WorkspaceHost, bench: Workbench, folder: Path) -> Viewer:
    await bench.choose_permission_mode("allow all")
    viewer = await begun(host)
    await viewer.say("write b.txt: text")
    assert (folder / "b.txt").exists()
    return viewer


async def ask_changes(host: WorkspaceHost, command: HostCommand) -> ChangesAnswer:
    result = await host.run_host_command(command)
    assert result.changes is not None
    return result.changes


async def list_files(host: WorkspaceHost, conversation: str) -> SentFiles:
    listed = await ask_changes(host, ListTurnsWithChanges(conversation))
    steps = tuple(step for turn in listed.turns for step in turn.steps)
    command = ListChangesOfSteps(conversation, (steps,), with_folders=True)
    changed = await ask_changes(host, command)
    return changed.groups[0]


async def test_changed_files_are_listed_by_turn_checkpoint_and_revision(
    host: WorkspaceHost, bench: Workbench, folder: Path
) -> None:
    viewer = await written_file(host, bench, folder)
    listed = await ask_changes(host, ListTurnsWithChanges(viewer.conversation))
    (turn,) = listed.turns
    assert turn.title == "write b.txt: text"
    files = await list_files(host, viewer.conversation)
    assert [file.shown_path for file in files.files] == [b"b.txt"]
    checkpoint = receive_turn(turn).first_checkpoint
    since = ListChangesSinceCheckpoint(viewer.conversation, checkpoint)
    (files_since,) = (await ask_changes(host, since)).groups
    assert [file.shown_path for file in files_since.files] == [b"b.txt"]
    with pytest.raises(HelixError):
        await host.run_host_command(ListChangesSinceRevision(viewer.conversation, "no such one"))
    coverage = (await ask_changes(host, DescribeCoverage(viewer.conversation))).coverage
    assert coverage is not None
    assert coverage.state == "ready"
    change = files.files[0].change
    committed = await ask_changes(host, CompareWithLastCommit(viewer.conversation, (change,)))
    assert committed.paths == ()


async def test_chosen_files_are_undone_as_planned(
    host: WorkspaceHost, bench: Workbench, folder: Path
) -> None:
    viewer = await written_file(host, bench, folder)
    files = await list_files(host, viewer.conversation)
    (plan,) = (await ask_changes(host, PlanUndo(viewer.conversation, files))).planned
    assert plan.outlook is UndoOutlook.RESTORE
    undone = (await ask_changes(host, UndoChangedFiles(viewer.conversation, files))).undone
    assert undone is not None
    assert (undone.restored, undone.files_deleted) == ((b"b.txt",), 1)
    assert not (folder / "b.txt").exists()
    await check_same_as_host(bench, viewer)


async def test_a_file_that_others_changed_is_left_alone_or_restored_as_chosen(
    host: WorkspaceHost, bench: Workbench, folder: Path
) -> None:
    viewer = await written_file(host, bench, folder)
    (folder / "b.txt").write_text("mine")
    files = await list_files(host, viewer.conversation)
    (plan,) = (await ask_changes(host, PlanUndo(viewer.conversation, files))).planned
    assert plan.outlook is UndoOutlook.CONFLICT
    refused = (await ask_changes(host, UndoChangedFiles(viewer.conversation, files))).undone
    assert refused is not None
    assert [path for path, _reason in refused.left_alone] == [b"b.txt"]
    assert (folder / "b.txt").read_text() == "mine"
    choice = (files.files[0].change.path, "before")
    await host.run_host_command(UndoChangedFiles(viewer.conversation, files, (choice,)))
    assert not (folder / "b.txt").exists()


async def test_a_hunk_is_kept_and_undone(
    host: WorkspaceHost, bench: Workbench, folder: Path
) -> None:
    viewer = await written_file(host, bench, folder)
    files = await list_files(host, viewer.conversation)
    (hunk,) = find_hunks(b"", b"text\n")
    path = files.files[0].change.path
    await host.run_host_command(KeepHunk(viewer.conversation, path, hunk.stable_id))
    await check_same_as_host(bench, viewer)
    assert ChangeKept("0/b.txt", hunk.stable_id) in viewer.facts
    undo = UndoHunks(viewer.conversation, files, (hunk.stable_id,))
    await host.run_host_command(undo)
    assert not (folder / "b.txt").exists()
    await check_same_as_host(bench, viewer)


async def test_no_path_outside_the_folders_is_undone(
    host: WorkspaceHost, bench: Workbench, folder: Path
) -> None:
    viewer = await written_file(host, bench, folder)
    files = await list_files(host, viewer.conversation)
    (file,) = files.files
    for path in (b"0/../b.txt", b"7/b.txt", b"0//etc/hostname"):
        change = msgspec.structs.replace(file.change, path=path)
        moved = msgspec.structs.replace(file, change=change)
        command = UndoChangedFiles(viewer.conversation, SentFiles(files.steps, (moved,)))
        with pytest.raises(InvalidInput):
            await host.run_host_command(command)
    assert (folder / "b.txt").exists()


async def test_a_conversation_is_changed_and_listed(host: WorkspaceHost, new_host: NewHost) -> None:
    listing = await (await new_host()).follow_list()
    assert await listing.next_rows() == ()
    viewer = await begun(host)
    command = ChangeConversation(
        viewer.conversation, title="A name", is_pinned=True, is_archived=True, is_trashed=False
    )
    await host.run_host_command(command)
    async with asyncio.timeout(60):
        rows: dict[str, HostListRow] = {}
        while "A name" not in [each.row.title for each in rows.values() if each.row.pinned]:
            rows |= {each.row.id: each for each in await listing.next_rows()}
        assert rows[viewer.conversation].row.archived
        await host.run_host_command(SendMessage(viewer.conversation, "write b.txt: text"))
        while rows[viewer.conversation].running.value != "waiting for you":
            rows |= {each.row.id: each for each in await listing.next_rows()}
        assert "b.txt" in rows[viewer.conversation].why
    await host.run_host_command(ChangeConversation(viewer.conversation, is_trashed=True))
    async with asyncio.timeout(60):
        while not rows[viewer.conversation].row.trashed:
            rows |= {each.row.id: each for each in await listing.next_rows()}
    await listing.close_follower()


async def test_stored_outputs_are_listed_counted_and_found(
    host: WorkspaceHost, bench: Workbench, folder: Path
) -> None:
    (folder / "notes.txt").write_text("a gooseberry\n" * 2_000)
    viewer = await begun(host)
    await viewer.say("read notes.txt")
    await viewer.say("read README.md")
    await bench.workspace.index.wait_until_indexed()
    chosen = EntryFilter()

    listed = await host.run_host_command(ListEntries(chosen, EntrySort.TIME, True, 0, 100))
    counted = await host.run_host_command(CountEntries(chosen))
    assert listed.entries is not None
    assert counted.entries is not None
    assert len(listed.entries.rows) == counted.entries.count > 1
    page = await host.run_host_command(ListEntries(chosen, EntrySort.TIME, True, 1, 1))
    assert page.entries is not None
    assert page.entries.rows == listed.entries.rows[1:2]

    measured = await host.run_host_command(MeasureEntries())
    assert measured.entries is not None
    assert measured.entries.figures == await bench.workspace.index.compute_figures()
    by_tool = await host.run_host_command(CountEntriesByTool())
    assert by_tool.entries is not None
    assert "read_file" in dict(by_tool.entries.tools)

    found = await host.run_host_command(SearchEntries("gooseberry", "", 10))
    assert found.entries is not None
    digest = found.entries.hits[0].digest
    assert digest is not None
    unknown = Digest.of_content(b"nobody stored this")
    rows = await host.run_host_command(FindEntries((unknown, digest)))
    assert rows.entries is not None
    assert [row.stored.digest for row in rows.entries.rows] == [digest]
    resolved = await host.run_host_command(ResolveEntry(digest.hex[:10]))
    assert resolved.entries is not None
    assert resolved.entries.digest == digest
    with pytest.raises(NotFound):
        await host.run_host_command(ResolveEntry(unknown.hex))
    used = await host.run_host_command(FindEntryUses(digest))
    assert used.entries is not None
    assert used.entries.uses[0].conversation == viewer.conversation


async def test_a_stored_output_is_pinned_and_verified(
    host: WorkspaceHost, bench: Workbench
) -> None:
    stored = await host.run_host_command(StoreContent("a.txt", b"kept"))
    await bench.workspace.index.wait_until_indexed()
    digest = stored.attachments[0].stored.digest
    for is_pinned in (True, False):
        await host.run_host_command(PinEntry(digest, is_pinned))
        rows = await host.run_host_command(FindEntries((digest,)))
        assert rows.entries is not None
        assert rows.entries.rows[0].pinned is is_pinned
    await host.run_host_command(VerifyEntry(digest))
    with pytest.raises(NotFound):
        await host.run_host_command(VerifyEntry(Digest.of_content(b"nobody stored this")))


async def test_content_comes_by_digest_and_range(host: WorkspaceHost) -> None:
    content = bytes(range(256)) * 12_000
    text = ("a line of text\n" * 100_000).encode()
    for whole in (content[:0] + b"one", text):
        stored = await host.run_host_command(StoreContent("a.txt", whole))
        (attachment,) = stored.attachments
        assert await read_stored_content(host, attachment.stored) == whole
        part = await host.read_content_range(attachment.stored.digest, 1, 2)
        assert part == whole[1:3]
    with pytest.raises(NotFound):
        await host.read_content_range(Digest.of_content(b"unknown"), 0, 10)
    with pytest.raises(InvalidInput, match="range"):
        await host.read_content_range(attachment.stored.digest, 0, LONGEST_RANGE + 1)


async def test_an_attachment_is_sent_with_a_message(host: WorkspaceHost) -> None:
    viewer = await begun(host)
    stored = await host.run_host_command(StoreContent("notes.txt", b"some notes"))
    await host.run_host_command(SendMessage(viewer.conversation, "hello", stored.attachments))
    await viewer.until_ended(1)
    said = next(fact for fact in viewer.facts if isinstance(fact, UserSaid))
    assert said.parts[1] == stored.attachments[0]


async def test_what_cannot_be_done_is_refused_with_the_same_error(host: WorkspaceHost) -> None:
    viewer = await begun(host)
    with pytest.raises(NotFound, match="no conversation nowhere"):
        await host.follow_conversation("nowhere")
    with pytest.raises(NotFound, match="no conversation nowhere"):
        await host.run_host_command(SendMessage("nowhere", "hello"))
    with pytest.raises(InvalidInput, match="empty"):
        await host.run_host_command(SendMessage(viewer.conversation, "  "))
    with pytest.raises(NotFound, match="regenerated"):
        await host.run_host_command(AnswerAgain(viewer.conversation))
    await host.run_host_command(SendMessage(viewer.conversation, "write b.txt: text"))
    await viewer.until(lambda: bool(viewer.questions))
    with pytest.raises(ActionRefused, match="Cannot rewind") as refused:
        await host.run_host_command(RewindConversation(viewer.conversation, 1))
    assert refused.value.remedy == "Stop the agent first (Esc)."
    await allow(viewer, allowed=False)


async def test_what_is_forgotten_is_told_again_from_the_first_fact(
    host: WorkspaceHost, bench: Workbench
) -> None:
    viewer = await begun(host)
    await viewer.say("hello, the word is gooseberry")
    assert any("gooseberry" in str(fact) for fact in viewer.facts)
    await bench.forget_content(text="gooseberry")
    await viewer.until(lambda: isinstance(viewer.events[-1], HistoryReplaced))
    await viewer.until(lambda: viewer.has_caught_up)
    assert not any("gooseberry" in str(fact) for fact in viewer.facts)
    await check_same_as_host(bench, viewer)


async def test_a_slow_viewer_loses_events_but_no_fact(
    host: WorkspaceHost, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_workspace_host, "MOST_WAITING_EVENTS", 3)
    viewer = await begun(host)
    session = await session_of(bench, viewer)
    await host.run_host_command(SendMessage(viewer.conversation, "read README.md"))
    await session.wait_until_idle()
    await viewer.until_as_far_as(session)
    assert viewer.added == list(range(1, session.conversation.state.seq + 1))
    await check_same_as_host(bench, viewer)


async def test_many_follow_one_conversation_and_see_the_same(
    new_host: NewHost, bench: Workbench
) -> None:
    viewer = await begun(await new_host())
    others = [await Viewer.begin(await new_host(), viewer.conversation) for _ in range(8)]
    await viewer.say("read README.md")
    session = await session_of(bench, viewer)
    for other in others:
        await other.until_as_far_as(session)
    assert {other.view for other in others} == {viewer.view}
    for other in others:
        await other.close()


async def test_who_joins_while_the_model_writes_has_what_was_written(
    host: WorkspaceHost, new_host: NewHost
) -> None:
    viewer = await begun(host)
    await host.run_host_command(SendMessage(viewer.conversation, "hello"))
    await viewer.until(lambda: bool(viewer.reply_text) or viewer.ends == 1)
    later = await Viewer.begin(await new_host(), viewer.conversation)
    await later.until_ended(1)
    replies = [fact for fact in later.facts if isinstance(fact, ModelReplied)]
    assert replies
    assert later.reply_text == ""


async def test_the_state_at_the_beginning_is_told_once(host: WorkspaceHost) -> None:
    viewer = await begun(host)
    live = [event for event in viewer.events if isinstance(event, LiveState)]
    assert len(live) == 1
    assert host.workspace_name == "Pairs"
    await viewer.close()
    with pytest.raises(HelixError):
        await host.run_host_command(SendMessage("", "x"))


# --- What a window asks for besides


async def test_a_workspace_is_described_with_what_was_chosen(
    host: WorkspaceHost, bench: Workbench, folder: Path
) -> None:
    described = await host.run_host_command(DescribeWorkspace())
    assert described.description is not None
    assert described.description.folders == (str(folder),)
    assert described.description.main_model == "demo/demo"
    assert described.description.permission_mode == bench.permission_mode
    await host.run_host_command(ChoosePermissionMode("read only"))
    described = await host.run_host_command(DescribeWorkspace())
    assert described.description is not None
    assert described.description.permission_mode == "read only"
    assert "read only" in dict(described.description.permission_modes)
    with pytest.raises(InvalidInput, match="no permission mode"):
        await host.run_host_command(ChoosePermissionMode("anything"))


async def test_a_model_is_chosen_for_good(host: WorkspaceHost, bench: Workbench) -> None:
    viewer = await begun(host)
    await host.run_host_command(ChooseLastingModel("demo/demo", viewer.conversation))
    await viewer.until(lambda: viewer.state.own_model == "demo/demo")
    await host.run_host_command(ChooseLastingModel("", viewer.conversation))
    await viewer.until(lambda: viewer.state.own_model == "")
    with pytest.raises(HelixError):
        await host.run_host_command(ChooseLastingModel("nobody/nothing"))
    assert bench.main_model_name == "demo/demo"


async def test_waiting_messages_are_changed_only_as_they_were_seen(
    host: WorkspaceHost, bench: Workbench
) -> None:
    viewer = await begun(host)
    session = await session_of(bench, viewer)
    name = viewer.conversation
    await host.run_host_command(SendMessage(name, "write b.txt: text"))
    await viewer.until(lambda: bool(viewer.questions))
    for text in ("first", "second", "third"):
        await host.run_host_command(SendMessage(name, text))
    await viewer.until(lambda: viewer.queued is not None and len(viewer.queued.messages) == 3)
    marks = [message_fingerprint(waiting.parts) for waiting in session.queue]
    move = ChangeWaitingMessage(name, 2, marks[2], QueueChange.MOVE, 0)
    await host.run_host_command(move)
    with pytest.raises(ActionRefused, match="does not wait"):  # It is elsewhere now.
        await host.run_host_command(move)
    with pytest.raises(ActionRefused, match="does not wait"):
        await host.run_host_command(ChangeWaitingMessage(name, 7, marks[0], QueueChange.TAKE_BACK))
    await host.run_host_command(ChangeWaitingMessage(name, 1, marks[0], QueueChange.TAKE_BACK))
    await host.run_host_command(ChangeWaitingMessage(name, 1, marks[1], QueueChange.STEER))
    words = [waiting.parts[0] for waiting in session.queue]
    assert [(part.text, waiting.steer) for part, waiting in zip(words, session.queue, strict=True)
            if isinstance(part, Text)] == [("second", True), ("third", False)]  # fmt: skip
    await host.run_host_command(ChangeWaitingMessage(name, 0, marks[1], QueueChange.QUEUE))
    assert not session.queue[0].steer
    await allow(viewer, allowed=False)


async def test_an_earlier_message_is_sent_anew_and_the_first_answer_is_chosen_again(
    host: WorkspaceHost, bench: Workbench
) -> None:
    viewer = await begun(host)
    await viewer.say("hello")
    end_of_first = viewer.state.seq
    seq = next(
        recorded.seq for recorded in viewer.state.facts if isinstance(recorded.fact, UserSaid)
    )
    await host.run_host_command(EditAndResend(viewer.conversation, seq, "hello again"))
    await viewer.until_ended(2)
    said = [fact for fact in viewer.facts if isinstance(fact, UserSaid)]
    assert [part.text for fact in said for part in fact.parts if isinstance(part, Text)] == [
        "hello",
        "hello again",
    ]
    await host.run_host_command(SwitchToAnswer(viewer.conversation, end_of_first))
    await check_same_as_host(bench, viewer)
    with pytest.raises(InvalidInput, match="empty"):
        await host.run_host_command(EditAndResend(viewer.conversation, seq, " "))
    with pytest.raises(NotFound, match="not one of your messages"):
        await host.run_host_command(EditAndResend(viewer.conversation, end_of_first, "x"))


async def test_a_part_is_excluded_and_included(host: WorkspaceHost, bench: Workbench) -> None:
    viewer = await begun(host)
    await viewer.say("hello")
    session = await session_of(bench, viewer)
    before = viewer.view
    said = next(entry for entry in session.all_facts if isinstance(entry.fact, UserSaid))
    await host.run_host_command(ChangePart(viewer.conversation, PartChange.EXCLUDE, said.seq))
    assert isinstance(session.all_facts[-1].fact, Excluded)
    await check_same_as_host(bench, viewer)
    assert viewer.view != before
    await host.run_host_command(ChangePart(viewer.conversation, PartChange.INCLUDE, said.seq))
    await check_same_as_host(bench, viewer)
    assert viewer.view == before


async def test_a_part_is_pinned_and_unpinned(host: WorkspaceHost, bench: Workbench) -> None:
    viewer = await begun(host)
    await viewer.say("hello")
    session = await session_of(bench, viewer)
    await host.run_host_command(ChangePart(viewer.conversation, PartChange.PIN, 2))
    assert isinstance(session.all_facts[-1].fact, Pinned)
    await host.run_host_command(ChangePart(viewer.conversation, PartChange.UNPIN, 2))
    assert isinstance(session.all_facts[-1].fact, Unpinned)
    await host.run_host_command(ChangePart(viewer.conversation, PartChange.PIN, 2, last_seq=3))
    assert session.all_facts[-1].fact == Pinned(Span(2, 3))
    await check_same_as_host(bench, viewer)


async def test_stored_content_is_recalled_as_an_attachment(host: WorkspaceHost) -> None:
    viewer = await begun(host)
    stored = await host.run_host_command(StoreContent("n.txt", b"one\ntwo\nthree\n"))
    (attachment,) = stored.attachments
    recall = AttachEntry(viewer.conversation, attachment.stored.digest.hex, 2, 2)
    (line,) = (await host.run_host_command(recall)).attachments
    assert await read_stored_content(host, line.stored) == b"two\n"
    with pytest.raises(InvalidInput, match="digest"):
        await host.run_host_command(AttachEntry(viewer.conversation, "no digest"))


async def test_paths_are_completed_below_the_folder(host: WorkspaceHost, folder: Path) -> None:
    (folder / "gooseberry.txt").write_text("x")
    found = await host.run_host_command(CompletePaths("gooseb"))
    assert found.paths == ("gooseberry.txt",)
    assert (await host.run_host_command(CompletePaths("gooseb", -1))).paths == ()


async def test_changed_files_are_named_before_they_are_undone(
    host: WorkspaceHost, folder: Path
) -> None:
    viewer = await begun(host)
    await host.run_host_command(SendMessage(viewer.conversation, "write b.txt: text"))
    await allow(viewer)
    await viewer.until_ended(1)
    changes = await host.run_host_command(ListChangesAfter(viewer.conversation, 1))
    assert [(file.path, file.has_conflict) for file in changes.changed] == [("b.txt", False)]
    (folder / "b.txt").write_text("others\n")
    changes = await host.run_host_command(ListChangesAfter(viewer.conversation, 1))
    assert [(file.path, file.has_conflict) for file in changes.changed] == [("b.txt", True)]


async def test_a_file_of_the_folders_is_read_for_a_preview_and_no_other(
    host: WorkspaceHost, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = await begun(host)
    (folder / "notes.md").write_text("# Notes")
    read = await host.run_host_command(ReadFile(viewer.conversation, "notes.md"))
    assert read.file is not None
    assert (read.file.shown_path, read.file.kind) == ("notes.md", "markdown")
    assert (read.file.content, read.file.text) == (b"# Notes", "# Notes")
    with pytest.raises(HelixError):
        await host.run_host_command(ReadFile(viewer.conversation, "/etc/passwd"))
    with pytest.raises(NotFound):
        await host.run_host_command(ReadFile("", "nowhere.txt"))
    monkeypatch.setattr(window_commands, "LARGEST_FILE", 3)
    with pytest.raises(InvalidInput, match="too large to be shown from here"):
        await host.run_host_command(ReadFile("", "notes.md"))


async def test_what_does_not_run_is_stopped_without_an_error(host: WorkspaceHost) -> None:
    viewer = await begun(host)
    await host.run_host_command(RetryModelNow(viewer.conversation))
    await host.run_host_command(StopFold(viewer.conversation))
