from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import Attachment, Recorded, Stored, Text, UserSaid
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, QuestionAsked
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.gui.chat.composer import Composer
from helix_desktop.gui.chat.message_drafts import (
    encode_draft_message,
    find_unrecorded_messages,
    join_drafts,
)
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.theme import Theme
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches

GO_ON = (Text("go on"),)


def conversation(*messages: UserSaid) -> ConversationState:
    recorded = [Recorded("a", seq, 1.0, message) for seq, message in enumerate(messages, 1)]
    return build_state(recorded)


def test_a_message_that_was_recorded_before_the_program_was_killed_does_not_come_back() -> None:
    queued = [encode_draft_message(GO_ON, "a"), encode_draft_message((Text("more"),), "b")]
    # The journal counts tokens; what the window kept has none.
    state = conversation(UserSaid((Text("go on", 2),), command="a"))
    assert find_unrecorded_messages(queued, state) == [(Text("more"),)]


@pytest.mark.parametrize("command", ["", "b"])
def test_equal_words_do_not_hide_a_message(command: str) -> None:
    queued = [encode_draft_message(GO_ON, "a")]
    state = conversation(UserSaid(GO_ON, command=command))
    assert find_unrecorded_messages(queued, state) == [GO_ON]


def test_a_message_is_known_in_every_form() -> None:
    """A long one is recorded as an attachment, and a slash command as its text."""
    queued = [encode_draft_message((Text("/review"),), "a")]
    state = conversation(UserSaid((Text("Look at the changes."),), command="a"))
    assert find_unrecorded_messages(queued, state) == []


def queued_by_earlier_version(text: str, queued_at: float) -> dict[str, object]:
    return {"text": text, "attachments": [], "queued_at": queued_at}


def test_of_what_an_earlier_version_kept_each_recorded_message_counts_once() -> None:
    """It wrote when a message was sent and, for another computer, after which fact."""
    state = conversation(UserSaid(GO_ON), UserSaid((Text("go on", 2),)))
    go_on = queued_by_earlier_version("go on", 1.0)
    assert find_unrecorded_messages([go_on] * 3, state) == [GO_ON]
    assert find_unrecorded_messages([queued_by_earlier_version("go on", 2.0)], state) == [GO_ON]
    assert find_unrecorded_messages([go_on | {"after_seq": 2}], state) == [GO_ON]
    assert find_unrecorded_messages([go_on], conversation(UserSaid(GO_ON, command="b"))) == [GO_ON]


def test_a_long_message_of_an_earlier_version_is_known_by_its_content() -> None:
    text = "a long message " * 100
    content = text.encode()
    stored = Stored(Digest.of_content(content), len(content), 1, "text/plain")
    state = conversation(UserSaid((Attachment("message", stored, 300),)))
    assert find_unrecorded_messages([queued_by_earlier_version(text, 1.0)], state) == []


def test_what_the_first_versions_kept_comes_back() -> None:
    state = conversation(UserSaid(GO_ON))
    queued: list[object] = [{"text": "go on"}, "bare"]
    assert find_unrecorded_messages(queued, state) == [GO_ON, (Text("bare"),)]


def test_two_drafts_that_are_joined_stay_two_paragraphs() -> None:
    """The words of a message that was put back ran into those of the draft."""
    content = b"ok"
    file = Attachment("a.txt", Stored(Digest.of_content(content), 2, 1, "text/plain"), 1)
    assert join_drafts((Text("one"), file), (Text("two"),)) == (Text("one\n\ntwo"), file)
    assert join_drafts((), (Text("two"),)) == (Text("two"),)
    assert join_drafts((file,), ()) == (file,)


def _desk(home: Path) -> Workbenches:
    where = program_folders.find_program_folders(home)
    return Workbenches(where, SecretStorage(where.key_file, environ={}))


async def _send_twice(home: Path, folder: Path, theme: Theme, kill: Callable[[str], None]) -> None:
    """Sends "again" twice behind a turn that asks. `kill`: keeps the home as a kill leaves it."""
    desk = _desk(home)
    bench = await desk.create_workspace("Killed", folder)
    await bench.choose_model_for_role("demo/demo")
    session = await bench.start_conversation("Killed")
    is_asked = asyncio.Event()

    def listen(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            is_asked.set()

    session.subscribe_to_events(listen)
    session.send_message((Text("write b.txt: text"),))
    await is_asked.wait()

    file = WindowStateFile(home / "window.json")
    composer = Composer(theme, file)
    composer.show_draft_of(bench.id, session.id, "Killed")

    def type_again() -> str:
        composer.text.setPlainText("again")
        draft_id = composer.draft_id
        file.write_state_file()
        composer.text.clear()
        return draft_id

    first = type_again()
    session.send_message((Text("again"),), command_id=first)
    kill("the first one waits and is a draft")
    second = type_again()
    kill("the first one waits, the second one is a draft")
    (number,) = session.questions
    session.answer_question(number, PermissionAnswer(allowed=False))
    await session.wait_until_idle()
    kill("the first one is recorded after the second one was written")
    session.send_message((Text("again"),), command_id=second)
    await session.wait_until_idle()
    kill("both are recorded, the second one is a draft")
    await desk.aclose()


def _count_again(bench: Workbench, session: Session, composer: Composer) -> tuple[int, int, int]:
    """Returns how often it is recorded, waits, and stands in the message box."""
    recorded = 0
    for entry in session.all_facts:
        if isinstance(entry.fact, UserSaid):
            recorded += [part.text for part in entry.fact.parts if isinstance(part, Text)] == [
                "again"
            ]
    composer.show_draft_of(bench.id, session.id, "Killed")
    composer.take_over_messages_of_last_start(session.conversation.state, session.queue)
    return recorded, len(session.queue), composer.text.toPlainText().count("again")


async def test_each_of_two_equal_messages_is_there_once_after_a_kill(
    theme: Theme, tmp_path: Path
) -> None:
    """Through the real queue and journal: one was lost if its equal was recorded after it was
    written.
    """
    home = tmp_path / "home"
    folder = tmp_path / "folder"
    folder.mkdir()
    homes: dict[str, Path] = {}

    def kill(moment: str) -> None:
        homes[moment] = tmp_path / f"killed {len(homes)}"
        shutil.copytree(home, homes[moment])

    await _send_twice(home, folder, theme, kill)
    found: list[tuple[int, int, int]] = []
    for killed in homes.values():
        desk = _desk(killed)
        bench = await desk.open_workspace("Killed")
        (row,) = bench.list_conversations()
        session = await bench.open_session(row.id)
        composer = Composer(theme, WindowStateFile(killed / "window.json"))
        found.append(_count_again(bench, session, composer))
        await desk.aclose()
    assert dict(zip(homes, found, strict=True)) == {
        "the first one waits and is a draft": (0, 1, 0),
        "the first one waits, the second one is a draft": (0, 1, 1),
        "the first one is recorded after the second one was written": (1, 0, 1),
        "both are recorded, the second one is a draft": (2, 0, 0),
    }
