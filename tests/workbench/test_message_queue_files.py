"""Messages that wait in a queue are there again when their conversation is opened after a kill."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from helix_desktop.engine.facts import Text, TurnEnd, TurnEnded, UserSaid
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, QuestionAsked
from helix_desktop.errors import StoreFailed
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workbench.message_queue_files import DAMAGED_ENDING, ENDING, NEW_ENDING
from helix_desktop.workspace_host.host_interface import SendMessage
from helix_desktop.workspace_host.local_workspace_host import LocalWorkspaceHost
from tests.conftest import Expect
from tests.workbench.conftest import Desks


class OpenConversation:
    """A desk on the home of the test, with its only conversation open."""

    def __init__(self, desk: Workbenches, bench: Workbench, session: Session) -> None:
        self.desk = desk
        self.bench = bench
        self.session = session

    @property
    def waiting(self) -> list[str]:
        texts: list[str] = []
        for message in self.session.queue:
            (part,) = message.parts
            assert isinstance(part, Text)
            texts.append(part.text)
        return texts

    @property
    def queue_file(self) -> Path:
        return self.bench.workspace.folder / "partial" / f"{self.session.id}{ENDING}"

    @property
    def kept_commands(self) -> list[str]:
        content = json.loads(self.queue_file.read_text())
        return [message["command"] for message in content["messages"]]

    async def wait_for_question(self) -> None:
        """Starts a turn that asks. Whatever is sent from now on waits behind it."""
        is_asked = asyncio.Event()

        def listen(event: Event) -> None:
            if isinstance(event, QuestionAsked):
                is_asked.set()

        self.session.subscribe_to_events(listen)
        self.session.send_message((Text("write b.txt: text"),))
        await is_asked.wait()


@pytest.fixture
async def opened(desks: Desks, folder: Path) -> OpenConversation:
    desk = desks()
    bench = await desk.create_workspace("Killed", folder)
    await bench.choose_model_for_role("demo/demo")
    return OpenConversation(desk, bench, await bench.start_conversation("Killed"))


async def open_again(desks: Desks, before: OpenConversation) -> OpenConversation:
    desk = desks()
    bench = await desk.open_workspace("Killed")
    return OpenConversation(desk, bench, await bench.open_session(before.session.id))


async def test_what_waited_waits_again_and_is_sent_when_the_user_goes_on(
    opened: OpenConversation, desks: Desks
) -> None:
    await opened.wait_for_question()
    (attachment,) = await opened.bench.attach_file("notes.txt", b"notes", opened.session.id)
    opened.session.send_message((Text("later"), attachment))
    opened.session.send_message((Text("now"),), steer=True)
    waiting = list(opened.session.queue)
    await opened.desk.aclose()

    again = await open_again(desks, opened)
    assert list(again.session.queue) == waiting
    assert again.session.turns.task is None
    again.session.resume_turn()
    await again.session.wait_until_idle()
    said = [
        entry.fact.parts for entry in again.session.all_facts if isinstance(entry.fact, UserSaid)
    ]
    assert said[1:] == [message.parts for message in waiting]
    assert not again.queue_file.exists()


async def test_what_was_taken_back_moved_or_recorded_is_not_kept_as_it_was(
    opened: OpenConversation, desks: Desks
) -> None:
    await opened.wait_for_question()
    for words in ("one", "two", "three"):
        opened.session.send_message((Text(words),))
    opened.session.queue.take_back_queued(0)
    opened.session.queue.move_message(1, 0)
    await opened.desk.aclose()
    again = await open_again(desks, opened)
    assert again.waiting == ["three", "two"]


async def test_of_equal_messages_each_is_kept_once(opened: OpenConversation, desks: Desks) -> None:
    """People send "go on" twice. One was recorded when the program was killed, or not yet noted."""
    await opened.wait_for_question()
    for _ in range(2):
        opened.session.send_message((Text("go on"),))
    before_recording = opened.queue_file.read_bytes()
    first = opened.session.queue.pop_next_message()
    left_the_queue = opened.queue_file.read_bytes()
    await opened.session.conversation.append_facts(UserSaid(first.parts))
    after_recording = opened.queue_file.read_bytes()
    await opened.desk.aclose()
    for content in (before_recording, left_the_queue, after_recording):
        opened.queue_file.write_bytes(content)
        again = await open_again(desks, opened)
        assert again.waiting == ["go on"]
        await again.desk.aclose()


async def test_a_message_that_left_the_queue_is_kept_until_it_is_recorded(
    opened: OpenConversation, desks: Desks
) -> None:
    """Between the queue and the journal hooks run, and long texts are stored."""
    await opened.wait_for_question()
    opened.session.send_message((Text("first"),))
    message = opened.session.queue.pop_next_message()
    opened.session.send_message((Text("second"),))
    kept = opened.queue_file.read_text()
    assert "first" in kept
    assert "second" in kept
    opened.session.queue.requeue_messages([message])
    await opened.desk.aclose()
    again = await open_again(desks, opened)
    assert again.waiting == ["first", "second"]


async def test_equal_messages_are_told_apart_by_their_commands(
    opened: OpenConversation, desks: Desks
) -> None:
    """People send "again" twice. The second one was recorded, or taken back, or waits on."""
    await opened.wait_for_question()
    for command in ("a", "b", "c"):
        opened.session.send_message((Text("again"),), command_id=command)
    before_recording = opened.queue_file.read_bytes()
    opened.session.queue.take_back_queued(0)
    assert opened.kept_commands == ["b", "c"]
    opened.session.queue.move_message(1, 0)
    message = opened.session.queue.pop_next_message()
    assert opened.kept_commands == ["c", "b"]
    fact = UserSaid(message.parts, command=message.command_id)
    await opened.session.conversation.append_facts(fact)
    assert opened.kept_commands == ["b"]
    opened.queue_file.write_bytes(before_recording)
    await opened.desk.aclose()
    again = await open_again(desks, opened)
    assert [message.command_id for message in again.session.queue] == ["a", "b"]


async def test_messages_are_recorded_with_their_commands(opened: OpenConversation) -> None:
    """One that waits for the turn's end, and one that steers."""
    await opened.wait_for_question()
    opened.session.send_message((Text("again"),), command_id="later")
    opened.session.send_message((Text("again"),), steer=True, command_id="now")
    (number,) = opened.session.questions
    opened.session.answer_question(number, PermissionAnswer(allowed=False))
    await opened.session.wait_until_idle()
    said = [entry.fact for entry in opened.session.all_facts if isinstance(entry.fact, UserSaid)]
    assert [fact.command for fact in said] == ["", "now", "later"]
    assert not opened.queue_file.exists()


async def test_what_was_recorded_by_a_killed_host_is_not_sent_again(
    opened: OpenConversation, desks: Desks
) -> None:
    """Its line broke before the answer, so the client sends the command again to the next host."""
    command = SendMessage(opened.session.id, "hello")
    await LocalWorkspaceHost(opened.bench).run_host_command(command, "the same")
    await opened.session.wait_until_idle()
    await opened.desk.aclose()
    again = await open_again(desks, opened)
    await LocalWorkspaceHost(again.bench).run_host_command(command, "the same")
    await again.session.wait_until_idle()
    said = [entry for entry in again.session.all_facts if isinstance(entry.fact, UserSaid)]
    assert len(said) == 1


async def test_a_client_that_sends_again_after_a_kill_sends_once(
    opened: OpenConversation, desks: Desks
) -> None:
    await opened.wait_for_question()
    command = SendMessage(opened.session.id, "once")
    await LocalWorkspaceHost(opened.bench).run_host_command(command, "the same")
    await opened.desk.aclose()
    again = await open_again(desks, opened)
    assert again.waiting == ["once"]
    host = LocalWorkspaceHost(again.bench)
    await host.run_host_command(command, "the same")
    await again.session.wait_until_idle()
    assert again.waiting == []
    said = [entry for entry in again.session.all_facts if isinstance(entry.fact, UserSaid)]
    assert len(said) == 2


async def test_what_was_left_and_recorded_since_is_not_sent_again_either(
    opened: OpenConversation, desks: Desks
) -> None:
    """The client's line broke, so it does not know yet that its message is in the conversation."""
    await opened.wait_for_question()
    command = SendMessage(opened.session.id, "once")
    await LocalWorkspaceHost(opened.bench).run_host_command(command, "the same")
    await opened.desk.aclose()
    again = await open_again(desks, opened)
    again.session.resume_turn()
    await again.session.wait_until_idle()
    await LocalWorkspaceHost(again.bench).run_host_command(command, "the same")
    await again.session.wait_until_idle()
    said = [entry for entry in again.session.all_facts if isinstance(entry.fact, UserSaid)]
    assert len(said) == 2
    assert again.waiting == []


async def test_a_message_that_cannot_be_kept_is_refused_and_not_sent(
    opened: OpenConversation, expect: Expect
) -> None:
    expect("could not be kept")
    await opened.wait_for_question()
    # Nothing can be written over a folder that is not empty.
    (opened.queue_file / "in the way").mkdir(parents=True)
    host = LocalWorkspaceHost(opened.bench)
    with pytest.raises(StoreFailed, match="was not sent"):
        await host.run_host_command(SendMessage(opened.session.id, "never"))
    assert opened.waiting == []


async def test_forgotten_text_and_deleted_conversations_leave_no_waiting_words(
    opened: OpenConversation, desks: Desks
) -> None:
    await opened.wait_for_question()
    for words in ("the gooseberry", "the plum"):
        opened.session.send_message((Text(words),))
    await opened.desk.aclose()
    again = await open_again(desks, opened)
    await again.bench.forget_content(text="gooseberry")
    assert "gooseberry" not in again.queue_file.read_text()
    assert again.waiting == ["the plum"]
    await again.desk.aclose()

    closed = desks()
    bench = await closed.open_workspace("Killed")
    await bench.forget_content(text="plum")
    assert not again.queue_file.exists()
    last = OpenConversation(closed, bench, await bench.open_session(again.session.id))
    last.session.queue.add_message((Text("pear"),), steer=False)
    assert last.queue_file.exists()
    damaged = last.queue_file.with_suffix(DAMAGED_ENDING)
    damaged.write_text("cut o")
    await last.session.set_trashed()
    await bench.empty_conversation_trash()
    assert not last.queue_file.exists()
    assert not damaged.exists()


@pytest.mark.parametrize("content", ['{"version": 1, "messages": [{"said"', '{"version": 2}', "[]"])
async def test_words_in_a_file_that_cannot_be_read_are_kept(
    opened: OpenConversation, desks: Desks, expect: Expect, content: str
) -> None:
    """It is damaged, or a later version has written it."""
    expect("could not be read")
    await opened.desk.aclose()
    opened.queue_file.parent.mkdir(exist_ok=True)
    for number in range(2):
        opened.queue_file.write_text(content)
        again = await open_again(desks, opened)
        again.session.queue.add_message((Text(f"next {number}"),), steer=False)
        await again.desk.aclose()
    damaged = [*opened.queue_file.parent.glob(f"*{DAMAGED_ENDING}")]
    assert [path.read_text() for path in damaged] == [content, content]


async def test_forgetting_a_text_leaves_the_other_messages_of_a_closed_conversation(
    opened: OpenConversation, desks: Desks
) -> None:
    await opened.wait_for_question()
    for words in ("the gooseberry", "the plum"):
        opened.session.send_message((Text(words),))
    await opened.desk.aclose()
    damaged = opened.queue_file.with_suffix(DAMAGED_ENDING)
    damaged.write_text("the gooseberry, cut o")
    closed = desks()
    bench = await closed.open_workspace("Killed")
    await bench.forget_content(text="gooseberry")
    assert not damaged.exists()
    await closed.aclose()
    again = await open_again(desks, opened)
    assert again.waiting == ["the plum"]


async def test_what_a_killed_program_was_writing_is_removed(
    opened: OpenConversation, desks: Desks
) -> None:
    """It may end in the middle of a word, so Forget would not find the text in it."""
    await opened.desk.aclose()
    interrupted = opened.queue_file.with_suffix(NEW_ENDING)
    interrupted.parent.mkdir(exist_ok=True)
    interrupted.write_text('{"version": 1, "messages": [{"said": "the gooseber')
    await open_again(desks, opened)
    assert not interrupted.exists()


async def test_waiting_messages_do_not_keep_a_broken_turn_open(
    opened: OpenConversation, desks: Desks
) -> None:
    await opened.session.conversation.append_facts(TurnEnded(TurnEnd.DONE))
    opened.session.queue.add_message((Text("later"),), steer=False)
    assert not opened.session.is_idle
    assert not opened.session.is_working
