"""Whole stories of people who work at several places, each told in the process, over a socket and at
the owner. What single commands do is in `test_conformance.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from helix_desktop.engine.facts import (
    Attachment,
    ConversationStarted,
    Decided,
    Fact,
    ModelReplied,
    Stop,
    Text,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.newest_facts import build_state_of_newest_facts
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.errors import ActionRefused, NotFound
from helix_desktop.workbench import Workbench
from helix_desktop.workspace_host.followed_conversation import FollowedConversation, digest_of_view
from helix_desktop.workspace_host.host_interface import (
    AnswerQuestion,
    ChangeConversation,
    FactsAdded,
    ForkConversation,
    NewestFacts,
    ResumeTurn,
    RewindConversation,
    SendMessage,
    StoreContent,
    TakeBackMessage,
    TakeKeyBack,
    UndoFileChanges,
    WorkspaceHost,
    question_fingerprint,
    read_stored_content,
)
from tests.workspace_host.conftest import NewHost
from tests.workspace_host.test_conformance import allow, begun, check_same_as_host
from tests.workspace_host.viewer import Viewer


def messages_of(viewer: Viewer) -> list[str]:
    texts: list[str] = []
    for fact in viewer.facts:
        if isinstance(fact, UserSaid) and not fact.by:
            texts.append("".join(part.text for part in fact.parts if isinstance(part, Text)))
    return texts


async def wait_for_question(viewer: Viewer) -> None:
    await viewer.until(lambda: bool(viewer.questions))


async def test_who_left_during_a_turn_finds_all_of_it_from_the_last_fact_on(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench
) -> None:
    """The lid is closed while a question waits, and it is answered from elsewhere meanwhile."""
    laptop = await begun(host)
    await host.run_host_command(SendMessage(laptop.conversation, "write b.txt: text"))
    await laptop.until(lambda: bool(laptop.questions))
    known = list(laptop.state.facts)
    await laptop.close()
    phone = await Viewer.begin(await new_host(), laptop.conversation)
    await allow(phone, device="Ada's phone")
    await phone.until_ended(1)
    opened_again = await Viewer.begin(await new_host(), laptop.conversation, known)
    assert opened_again.added == list(range(len(known) + 1, phone.state.seq + 1))
    assert not opened_again.questions
    await check_same_as_host(bench, opened_again)


async def test_two_answer_the_same_question_at_once_and_one_of_them_counts(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench
) -> None:
    desk = await begun(host)
    phone = await Viewer.begin(await new_host(), desk.conversation)
    await host.run_host_command(SendMessage(desk.conversation, "run echo once >> marks.txt"))
    answers = []
    for viewer, is_allowed in ((desk, True), (phone, False)):
        await wait_for_question(viewer)
        number, question = next(iter(viewer.questions.items()))
        fingerprint = question_fingerprint(question)
        answer = PermissionAnswer(allowed=is_allowed)
        command = AnswerQuestion(viewer.conversation, number, fingerprint, answer)
        answers.append(viewer.host.run_host_command(command))
    results = await asyncio.gather(*answers, return_exceptions=True)
    refused = [result for result in results if isinstance(result, ActionRefused)]
    await desk.until_ended(1)
    decisions = [fact for fact in desk.facts if isinstance(fact, Decided) and fact.by == "user"]
    assert len(decisions) == 1
    assert len(refused) <= 1
    has_run = (bench.main_folder / "marks.txt").exists()
    assert has_run == decisions[0].allowed
    await check_same_as_host(bench, phone)


async def test_what_the_phone_says_waits_behind_the_turn_and_the_desk_takes_it_back(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench
) -> None:
    desk = await begun(host)
    phone = await Viewer.begin(await new_host(), desk.conversation)
    await host.run_host_command(SendMessage(desk.conversation, "write b.txt: text"))
    await desk.until(lambda: bool(desk.questions))
    for words in ("first", "second"):
        await phone.host.run_host_command(SendMessage(phone.conversation, words))
    await desk.until(lambda: desk.queued is not None and len(desk.queued.messages) == 2)
    await host.run_host_command(TakeBackMessage(desk.conversation, "first"))
    await phone.until(lambda: phone.queued is not None and len(phone.queued.messages) == 1)
    await allow(desk, allowed=False)
    await desk.until_ended(2)
    assert messages_of(desk) == ["write b.txt: text", "second"]
    await check_same_as_host(bench, phone)


async def test_a_message_that_is_sent_again_while_it_waits_is_sent_once(
    host: WorkspaceHost, new_host: NewHost
) -> None:
    """The line broke before the phone heard that its message had arrived."""
    desk = await begun(host)
    await host.run_host_command(SendMessage(desk.conversation, "write b.txt: text"))
    await desk.until(lambda: bool(desk.questions))
    command = SendMessage(desk.conversation, "later")
    for _ in range(3):
        await (await new_host()).run_host_command(command, "the id of the form")
    await allow(desk, allowed=False)
    await desk.until_ended(2)
    assert messages_of(desk) == ["write b.txt: text", "later"]


async def test_a_message_that_steers_goes_before_those_that_wait_for_the_end(
    host: WorkspaceHost, bench: Workbench
) -> None:
    desk = await begun(host)
    await host.run_host_command(SendMessage(desk.conversation, "write b.txt: text"))
    await desk.until(lambda: bool(desk.questions))
    await host.run_host_command(SendMessage(desk.conversation, "afterwards"))
    await host.run_host_command(SendMessage(desk.conversation, "at once", steer=True))
    await desk.until(lambda: desk.queued is not None and desk.queued.steering_count == 1)
    await allow(desk)
    await desk.until_ended(2)
    assert messages_of(desk) == ["write b.txt: text", "at once", "afterwards"]
    await check_same_as_host(bench, desk)


async def test_a_denial_with_words_is_read_by_the_agent_and_work_goes_on(
    host: WorkspaceHost, new_host: NewHost, folder: Path
) -> None:
    desk = await begun(host)
    phone = await Viewer.begin(await new_host(), desk.conversation)
    await host.run_host_command(SendMessage(desk.conversation, "write b.txt: text"))
    await allow(phone, allowed=False, words="call it c.txt", device="Ada's phone")
    await desk.until_ended(1)
    results = [fact for fact in desk.facts if isinstance(fact, ToolReturned)]
    assert "call it c.txt" in results[-1].head
    await host.run_host_command(SendMessage(desk.conversation, "write c.txt: text"))
    await allow(desk)
    await desk.until_ended(2)
    assert not (folder / "b.txt").exists()
    assert (folder / "c.txt").read_text() == "text\n"


async def test_what_was_attached_is_read_in_a_fork_by_somebody_else(
    host: WorkspaceHost, new_host: NewHost
) -> None:
    desk = await begun(host)
    content = ("a line of text\n" * 100_000).encode()
    stored = await host.run_host_command(StoreContent("data.txt", content, desk.conversation))
    await host.run_host_command(SendMessage(desk.conversation, "keep it", stored.attachments))
    await desk.until_ended(1)
    forked = await host.run_host_command(ForkConversation(desk.conversation, title="Another way"))
    colleague = await Viewer.begin(await new_host(), forked.conversation)
    (said,) = [fact for fact in colleague.facts if isinstance(fact, UserSaid)]
    (attachment,) = [part for part in said.parts if isinstance(part, Attachment)]
    assert await read_stored_content(colleague.host, attachment.stored) == content
    await colleague.say("hello")
    assert messages_of(colleague) == ["keep it", "hello"]
    assert messages_of(desk) == ["keep it"]


async def test_files_are_undone_and_the_conversation_goes_back_to_before_them(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench, folder: Path
) -> None:
    desk = await begun(host)
    phone = await Viewer.begin(await new_host(), desk.conversation)
    await desk.say("hello")
    before = desk.view
    seq = desk.state.seq
    await host.run_host_command(SendMessage(desk.conversation, "write README.md: nothing"))
    await allow(phone)
    await desk.until_ended(2)
    await host.run_host_command(UndoFileChanges(desk.conversation, seq))
    assert (folder / "README.md").read_text().startswith("# Pairs")
    await phone.host.run_host_command(RewindConversation(desk.conversation, seq))
    await check_same_as_host(bench, desk)
    assert desk.view == before
    await check_same_as_host(bench, phone)
    assert phone.view == desk.view


async def test_a_conversation_is_thrown_away_while_it_works_and_fetched_back(
    host: WorkspaceHost, new_host: NewHost, bench: Workbench
) -> None:
    desk = await begun(host)
    phone = await new_host()
    await host.run_host_command(SendMessage(desk.conversation, "write b.txt: text"))
    await desk.until(lambda: bool(desk.questions))
    await phone.run_host_command(ChangeConversation(desk.conversation, is_trashed=True))
    await desk.until_ended(1)
    (ended,) = [fact for fact in desk.facts if isinstance(fact, TurnEnded)]
    assert ended.reason is TurnEnd.STOPPED
    assert not desk.questions
    await phone.run_host_command(ChangeConversation(desk.conversation, is_trashed=False))
    await host.run_host_command(ResumeTurn(desk.conversation))
    await desk.until_ended(2)
    await check_same_as_host(bench, desk)


async def test_a_conversation_of_an_agent_at_the_gateway_is_followed_but_not_written_in(
    host: WorkspaceHost, bench: Workbench
) -> None:
    session = await bench.start_conversation("Its work", agent="claude-code")
    viewer = await Viewer.begin(host, session.id)
    await session.conversation.append_facts(
        UserSaid((Text("look around"),)), ModelReplied((Text("I see."),), "m", Stop.END)
    )
    await viewer.until(lambda: any(isinstance(fact, ModelReplied) for fact in viewer.facts))
    with pytest.raises(ActionRefused, match="conversation of claude-code"):
        await host.run_host_command(SendMessage(session.id, "hello"))
    with pytest.raises(NotFound, match="No key is lent"):
        await host.run_host_command(TakeKeyBack(session.id))
    await check_same_as_host(bench, viewer)


async def test_of_a_long_history_the_newest_messages_come_first(
    host: WorkspaceHost, bench: Workbench
) -> None:
    """On a slow line, all of it takes long. What is told first is what the history ends with."""
    conversation = await record_long_history(bench, turns=600)
    follower = await host.follow_conversation(conversation, newest_first=True)
    (newest,) = await follower.next_events()
    assert isinstance(newest, NewestFacts)
    whole = FollowedConversation()
    while not whole.has_caught_up:
        for event in await follower.next_events():
            assert not isinstance(event, NewestFacts)
            whole.apply_event(event)
    await follower.close_follower()
    shown = build_state_of_newest_facts(newest.facts)
    order = list(shown.branch.order)
    assert order == list(whole.state.branch.order)[-len(order) :]
    assert 50 < len(order) < 600
    session = await bench.open_session(conversation)
    assert digest_of_view(whole.state) == digest_of_view(session.conversation.state)


async def test_of_a_short_history_nothing_is_told_twice(
    host: WorkspaceHost, bench: Workbench
) -> None:
    conversation = await record_long_history(bench, turns=3)
    follower = await host.follow_conversation(conversation, newest_first=True)
    first = (await follower.next_events())[0]
    assert isinstance(first, FactsAdded)
    await follower.close_follower()


async def test_newest_messages_of_a_conversation_that_is_not_there(host: WorkspaceHost) -> None:
    with pytest.raises(NotFound):
        await host.follow_conversation("nowhere", newest_first=True)


async def record_long_history(bench: Workbench, turns: int) -> str:
    told: list[tuple[float, Fact]] = [(1.0, ConversationStarted(title="Long"))]
    for number in range(turns):
        time = 2.0 + number
        told.append((time, UserSaid((Text(f"words {number}", 2),))))
        told.append((time, ModelReplied((Text(f"answer {number}", 2),), "m", Stop.END)))
        told.append((time, TurnEnded(TurnEnd.DONE)))
    session = await bench.start_users_conversation()
    await bench.workspace.journal.append_imported_facts(session.id, told)
    await bench.sessions.close_sessions([session.id])
    return session.id
