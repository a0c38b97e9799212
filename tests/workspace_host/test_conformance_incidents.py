"""Whole stories of what happens to a workspace while people work in it: it is closed, upgraded, deleted
from, imported into, or the disk is full. Each is told in the process, over a socket and at the owner.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import pytest

from helix_desktop.engine.facts import (
    Decided,
    Folded,
    FoldKind,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.errors import ActionRefused, HelixError, NotFound, StoreFailed
from helix_desktop.providers.lent_providers import LentProvider, ProviderLender
from helix_desktop.workbench import Workbench
from helix_desktop.workbench.message_queue_files import ENDING
from helix_desktop.workspace_host.host_interface import (
    AnswerQuestion,
    ChangeConversation,
    DescribeWorkspace,
    FoldConversation,
    LentKey,
    ResumeTurn,
    SendMessage,
    StopTurn,
    TakeKeyBack,
    UndoFileChanges,
    WorkspaceHost,
    question_fingerprint,
)
from tests.conftest import Expect
from tests.histories import written
from tests.workbench.conftest import Desks
from tests.workspace_host.conftest import NewHost, open_in_process, open_over_socket
from tests.workspace_host.test_conformance import (
    allow,
    begun,
    check_same_as_host,
    read_three_files,
)
from tests.workspace_host.test_conformance_stories import messages_of, wait_for_question
from tests.workspace_host.viewer import Viewer

HOUR = 3600.0
OpenHost = Callable[[Workbench, AsyncExitStack], Awaitable[WorkspaceHost]]


async def test_a_summary_is_written_while_somebody_else_types(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench, folder: Path
) -> None:
    desk = await read_three_files(host, bench, folder)
    phone = await Viewer.begin(await new_host(), desk.conversation)
    ends = desk.ends
    await asyncio.gather(
        host.run_host_command(FoldConversation(desk.conversation, FoldKind.HANDOVER)),
        phone.host.run_host_command(SendMessage(desk.conversation, "typed meanwhile")),
    )
    await desk.until_ended(ends + 1)

    def is_summarized() -> bool:
        folds = [fact for fact in desk.facts if isinstance(fact, Folded)]
        return any(fold.kind is FoldKind.HANDOVER for fold in folds)

    await desk.until(is_summarized)
    assert messages_of(desk)[-1] == "typed meanwhile"
    await check_same_as_host(bench, desk)
    await check_same_as_host(bench, phone)


async def test_files_are_undone_by_another_client_and_the_agent_is_told(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench, folder: Path
) -> None:
    desk = await begun(host)
    seq = desk.state.seq
    await host.run_host_command(SendMessage(desk.conversation, "write b.txt: text"))
    await allow(desk)
    await desk.until_ended(1)
    phone = await new_host()
    undone = await phone.run_host_command(UndoFileChanges(desk.conversation, seq))
    assert [Path(path).name for path in undone.paths] == ["b.txt"]
    assert not (folder / "b.txt").exists()
    await desk.say("hello")
    notes = [fact for fact in desk.facts if isinstance(fact, UserSaid) and fact.by]
    assert "b.txt" in str(notes)
    await check_same_as_host(bench, desk)


async def test_a_question_is_allowed_on_the_phone_while_the_desk_stops_the_turn(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench
) -> None:
    desk = await begun(host)
    phone = await Viewer.begin(await new_host(), desk.conversation)
    await host.run_host_command(SendMessage(desk.conversation, "run echo once >> marks.txt"))
    await wait_for_question(phone)
    number, question = next(iter(phone.questions.items()))
    answer = AnswerQuestion(
        desk.conversation,
        number,
        question_fingerprint(question),
        PermissionAnswer(allowed=True, device="phone"),
    )
    results = await asyncio.gather(
        host.run_host_command(StopTurn(desk.conversation)),
        phone.host.run_host_command(answer),
        return_exceptions=True,
    )
    await desk.until_ended(1)
    refused = [result for result in results if isinstance(result, BaseException)]
    assert all(isinstance(error, ActionRefused) for error in refused)
    decisions = [fact for fact in desk.facts if isinstance(fact, Decided) and fact.by == "user"]
    assert len(decisions) <= 1
    if not decisions:
        assert not (bench.main_folder / "marks.txt").exists()
    assert not desk.questions
    await check_same_as_host(bench, phone)


class LenderOfOneKey:
    """A process beside the host that holds a key for one conversation."""

    computer = "key holder"
    providers = (LentProvider("far", "openai-chat", "https://far.example/v1"),)

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        self.is_dismissed = False

    def end_lending(self) -> None:
        pass

    def dismiss(self) -> None:
        self.is_dismissed = True


async def test_a_lent_key_is_seen_and_taken_back_by_another_client(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench
) -> None:
    desk = await begun(host)
    other = await begun(host)
    lender = LenderOfOneKey(desk.conversation)
    bench.models.lent_providers.add_lender(cast("ProviderLender", lender))
    phone = await new_host()
    described = await phone.run_host_command(DescribeWorkspace())
    assert described.description is not None
    assert described.description.lent_keys == (LentKey(desk.conversation, ("far",)),)
    with pytest.raises(NotFound, match="No key is lent"):
        await phone.run_host_command(TakeKeyBack(other.conversation))
    assert not lender.is_dismissed
    await phone.run_host_command(TakeKeyBack(desk.conversation))
    assert lender.is_dismissed
    described = await host.run_host_command(DescribeWorkspace())
    assert described.description is not None
    assert described.description.lent_keys == ()


async def test_a_history_is_imported_while_the_list_is_followed_and_an_agent_works(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench, tmp_path: Path
) -> None:
    desk = await begun(host)
    await host.run_host_command(SendMessage(desk.conversation, "write b.txt: text"))
    await desk.until(lambda: bool(desk.questions))
    follower = await (await new_host()).follow_list()
    await follower.next_rows()
    files = [make(tmp_path / kind) for kind, make in list(written.KINDS.items())[:2]]
    result = await bench.import_histories(files)
    imported = {conversation.id for conversation in result.imported}
    assert len(imported) == 2
    told: set[str] = set()
    while not imported <= told:
        told.update(listed.row.id for listed in await follower.next_rows())
    viewer = await Viewer.begin(host, imported.pop())
    assert messages_of(viewer)
    await check_same_as_host(bench, viewer)
    await allow(desk, allowed=False)
    await desk.until_ended(1)
    await check_same_as_host(bench, desk)


async def test_a_conversation_that_was_deleted_under_a_client_takes_no_message(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench
) -> None:
    desk = await begun(host)
    await desk.say("hello")
    other = await begun(await new_host())
    await host.run_host_command(ChangeConversation(desk.conversation, is_trashed=True))
    await bench.empty_conversation_trash()
    with pytest.raises(NotFound):
        await host.run_host_command(SendMessage(desk.conversation, "into nothing"))
    with pytest.raises(NotFound):
        await host.follow_conversation(desk.conversation)
    await other.say("hello")
    await check_same_as_host(bench, other)


async def test_a_conversation_that_is_deleted_for_good_leaves_the_list_of_every_client(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench
) -> None:
    """It stayed in the trash of every other window until that was started again."""
    desk = await begun(host)
    kept = await begun(host)
    follower = await (await new_host()).follow_list()
    told = {listed.row.id for listed in await follower.next_rows()}
    assert told == {desk.conversation, kept.conversation}
    await host.run_host_command(ChangeConversation(desk.conversation, is_trashed=True))
    await bench.empty_conversation_trash()
    deleted: list[str] = []
    while not deleted:
        rows = await follower.next_rows()
        deleted += [listed.row.id for listed in rows if listed.is_deleted]
    assert deleted == [desk.conversation]


async def test_an_hour_passes_at_once_while_three_agents_wait(
    host: WorkspaceHost,
    new_host: NewHost,
    bench: Workbench,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lid was closed. What was allowed for an hour is not allowed any more."""
    viewers: list[Viewer] = []
    for name in ("a.txt", "b.txt", "c.txt"):
        viewer = await begun(host)
        viewers.append(viewer)
        await host.run_host_command(SendMessage(viewer.conversation, f"write {name}: text"))
        await wait_for_question(viewer)
    hours_later = time.time() + HOUR
    monkeypatch.setattr(time, "time", lambda: hours_later)
    opened_again = await new_host()
    for viewer in viewers:
        again = await Viewer.begin(opened_again, viewer.conversation)
        await allow(again)
        await again.until_ended(1)
        await check_same_as_host(bench, again)
        await check_same_as_host(bench, viewer)
    assert {path.name for path in folder.glob("*.txt")} == {"a.txt", "b.txt", "c.txt"}


@pytest.mark.parametrize("opening", [open_in_process, open_over_socket])
async def test_a_host_that_was_upgraded_goes_on_from_the_last_fact(
    opening: OpenHost, desks: Desks, folder: Path
) -> None:
    """It is closed while an agent asks, and another process opens the workspace."""
    desk_before = desks()
    bench = await desk_before.create_workspace("Upgraded", folder)
    await bench.choose_model_for_role("demo/demo")
    async with AsyncExitStack() as until_closed:
        desk = await begun(await opening(bench, until_closed))
        await desk.host.run_host_command(SendMessage(desk.conversation, "write b.txt: text"))
        await desk.until(lambda: bool(desk.questions))
        await desk.host.run_host_command(SendMessage(desk.conversation, "and hello"))
        known = list(desk.state.facts)
        await desk_before.aclose()
    bench_after = await desks().open_workspace("Upgraded")
    async with AsyncExitStack() as until_closed:
        host = await opening(bench_after, until_closed)
        again = await Viewer.begin(host, desk.conversation, known)
        (end,) = [fact for fact in again.facts if isinstance(fact, TurnEnded)]
        assert end.reason is TurnEnd.STOPPED
        assert again.queued is not None
        assert len(again.queued.messages) == 1
        await host.run_host_command(ResumeTurn(again.conversation))
        await again.until_ended(2)
        assert messages_of(again) == ["write b.txt: text", "and hello"]
        await check_same_as_host(bench_after, again)


async def test_a_closed_workspace_refuses_with_a_sentence(
    host: WorkspaceHost, bench: Workbench
) -> None:
    desk = await begun(host)
    await desk.say("hello")
    await bench.aclose()
    with pytest.raises(HelixError):
        await asyncio.wait_for(
            host.run_host_command(SendMessage(desk.conversation, "too late")), 10
        )


async def test_on_a_full_disk_a_waiting_message_is_refused_and_can_be_sent_later(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench, expect: Expect
) -> None:
    expect("could not be kept")
    desk = await begun(host)
    phone = await Viewer.begin(await new_host(), desk.conversation)
    await host.run_host_command(SendMessage(desk.conversation, "write b.txt: text"))
    await desk.until(lambda: bool(desk.questions))
    # Nothing can be written over a folder that is not empty.
    in_the_way = bench.workspace.folder / "partial" / f"{desk.conversation}{ENDING}" / "in the way"
    in_the_way.mkdir(parents=True)
    with pytest.raises(StoreFailed, match="was not sent"):
        await phone.host.run_host_command(SendMessage(desk.conversation, "no room"))
    in_the_way.rmdir()
    in_the_way.parent.rmdir()
    await phone.host.run_host_command(SendMessage(desk.conversation, "now there is"))
    await allow(desk, allowed=False)
    await desk.until_ended(2)
    assert messages_of(desk) == ["write b.txt: text", "now there is"]
    returned = [fact for fact in desk.facts if isinstance(fact, ToolReturned)]
    assert returned
    await check_same_as_host(bench, phone)
