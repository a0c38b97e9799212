"""What is pressed in a chat is done: links, sub-agents, rewinds and edits, duplicates and copies."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMessageBox

from helix_desktop.engine.facts import ModelReplied, Rewound, Text, UserSaid
from helix_desktop.errors import StoreFailed
from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.dialogs_and_notifications import DialogsAndNotifications
from helix_desktop.gui.frame.command_palette import match_palette_items
from helix_desktop.gui.help_search import find_help_pages
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.search_suggestions import suggest_actions
from helix_desktop.gui.transcript import chat_actions
from helix_desktop.gui.transcript.chat_actions import ActOnMessage, MessageAct
from tests.gui import story
from tests.gui.fake_desk import FakeDesk, FakeSession, FakeWorkbench
from tests.gui.test_dialogs_and_notifications import front, setup
from tests.gui.test_main_window import (
    FILE,
    click_way,
    own_messages,
    rewind,
    said,
    texts_for_model,
    write,
)
from tests.turns import qt_works

__all__ = ["front", "setup"]


def test_links_go_to_their_place(window: MainWindow, desk: FakeDesk) -> None:
    digest = story.stored(story.TABLE).digest
    window.places.go_to_place(WindowPlace("entry", "storage-engine", digest=digest))
    assert window.showing.page == "cache"
    window.places.go_to_place(
        WindowPlace("fold", "storage-engine", story.CONVERSATION, fold="fold-3")
    )
    assert window.showing.page == "timeline"
    window.places.go_to_place(WindowPlace("conversation", "storage-engine", "flaky", 3))
    assert (window.showing.page, window.current_session.id if window.current_session else "") == (
        "chat",
        "flaky",
    )
    window.parts.requests.place_wanted.emit(WindowPlace("changes", "storage-engine", "argparse"))
    assert window.showing.page == "changes"
    assert window.showing.conversation_id == "argparse"
    window.places.go_to_place(WindowPlace("workspace", "infra"))
    assert window.current_workbench is desk.benches["infra"]
    window.places.go_to_place(WindowPlace("workspace", "nowhere"))
    assert window.notices.shown_text == "There is no workspace nowhere."


def test_what_is_wanted_in_the_chat_is_done(window: MainWindow, session: FakeSession) -> None:
    digest = story.stored(story.TABLE).digest
    window.chat_actions.carry_out_intent(chat_actions.RecallEntry(digest))
    assert [held.stored.digest for held in window.chat.composer.attachments.listed_attachments] == [
        digest
    ]
    window.chat_actions.carry_out_intent(
        chat_actions.ActOnMessage(chat_actions.MessageAct.EDIT, 14)
    )
    assert window.chat.composer.text.toPlainText().startswith("The guard must never")
    QTest.keyClick(window.chat.composer.text, Qt.Key.Key_Return)
    assert session.state.facts[-2].fact.__class__.__name__ == "Rewound"
    assert said(session)[-1].startswith("The guard must never")


def test_the_sub_agent_of_a_running_call_is_opened(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession
) -> None:
    window.chat_actions.carry_out_intent(chat_actions.OpenSubAgent("c1"))
    assert window.notices.shown_text == "The sub-agent hasn't started yet."
    for name, begun in (("flaky", 2.0), ("argparse", 1.0)):  # a model that numbers its calls anew
        bench.rows[name] = replace(
            bench.rows[name], parent=session.id, parent_call="c1", updated=begun
        )
    window.chat_actions.carry_out_intent(chat_actions.OpenSubAgent("c1"))
    assert window.current_session is not None
    assert window.current_session.id == "flaky"


def test_a_rewind_says_before_that_files_stay_if_checkpoints_are_off(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession
) -> None:
    bench.file_changes.checkpoint_progress = replace(
        bench.file_changes.checkpoint_progress, state="off"
    )
    seq = next(each.seq for each in session.state.facts if isinstance(each.fact, UserSaid))
    window.chat_actions.carry_out_intent(ActOnMessage(MessageAct.REWIND, seq))
    (box,) = window.findChildren(QMessageBox)
    assert box.text().startswith("Rewind to this message? It goes back into the message box.")
    assert box.text().endswith("Checkpoints are turned off, so files stay as they are.")


def test_a_rewound_message_is_in_the_box_again_and_no_longer_sent(
    window: MainWindow, session: FakeSession
) -> None:
    second = own_messages(session)[1]
    rewound = said(session)[1]
    assert rewound in texts_for_model(session)
    rewind(window, second)
    assert window.chat.composer.text.toPlainText() == rewound
    assert rewound not in texts_for_model(session)
    window.chat.composer.text.clear()
    write(window, "Otherwise")
    assert texts_for_model(session)[-1] == "Otherwise"
    assert rewound not in texts_for_model(session)


def test_what_an_edited_message_takes_along_is_dimmed_until_the_edit_is_given_up(
    window: MainWindow, session: FakeSession
) -> None:
    """Nothing showed that messages below the edited one would leave."""
    seqs: list[int] = []
    for number in range(3):
        session.append(UserSaid((Text(f"MMMM {number}", 5),)))
        seqs.append(session.state.seq)
    window.chat.bridge.emit_waiting_events()
    window.sides.jump_to_end_of(session)
    qt_works(20)
    view = window.chat.transcript.view

    def darkest_of_messages() -> list[int]:
        image = view.viewport().grab().toImage()
        y = view.verticalScrollBar().value()
        darkest: list[int] = []
        for seq in seqs:
            item = view.items.item_of_fact(seq)
            top = round(view.column.content_top(item) - y)
            shades = [
                image.pixelColor(view.column_left + x, top + line).lightness()
                for x in range(5, 100)
                for line in range(5, 40)
            ]
            darkest.append(min(shades))
        return darkest

    usual = darkest_of_messages()
    window.chat.composer.edit_earlier_message(seqs[1], (Text("Better."),))
    edited = darkest_of_messages()
    assert edited[:2] == usual[:2]
    assert edited[2] > usual[2] + 60
    window.chat.composer.stop_editing_and_restore_draft()
    assert darkest_of_messages() == usual


def test_the_meter_says_what_is_left_when_the_edited_message_is_sent(
    window: MainWindow, session: FakeSession
) -> None:
    """Everything below was dimmed, and the meter stayed at 32% until it was sent, then it said 3%."""
    session.append(UserSaid((Text("First.", 5),)))
    edited = session.state.seq
    session.append(UserSaid((Text("A very long message.", 60_000),)))
    window.chat.bridge.emit_waiting_events()
    composer = window.chat.composer

    def percent() -> int:
        return int(re.findall(r"(\d+)%", composer._figures.text())[0])

    everything = percent()
    composer.edit_earlier_message(edited, (Text("Better."),))
    without_end = percent()
    assert without_end < everything - 30
    composer.stop_editing_and_restore_draft()
    assert percent() == everything
    composer.edit_earlier_message(edited, (Text("Better."),))
    QTest.keyClick(composer.text, Qt.Key.Key_Return)
    window.chat.bridge.emit_waiting_events()
    assert abs(percent() - without_end) <= 1


def test_a_rewound_message_loses_neither_a_draft_nor_a_message_that_is_edited(
    window: MainWindow, session: FakeSession
) -> None:
    first, second = own_messages(session)[:2]
    box = window.chat.composer
    box.text.setPlainText("A draft")
    box.attachments.add_attachment(FILE)
    window.chat_actions.carry_out_intent(ActOnMessage(MessageAct.EDIT, second))
    QTest.keyClicks(box.text, " Edited.")
    edited = box.text.toPlainText()
    assert edited == f"{said(session)[1]} Edited."
    rewind(window, first)
    assert box.text.toPlainText() == f"{said(session)[0]}\n\n{edited}\n\nA draft"
    assert list(box.attachments.listed_attachments) == [FILE]
    # It is a new message: as an edited one, it would go back to where the old one was.
    assert not box._editing.isVisibleTo(window)
    QTest.keyClick(box.text, Qt.Key.Key_Return)
    assert said(session)[-1].endswith("A draft")
    assert len(texts_for_model(session)) == 2  # With the system prompt.


def test_a_message_that_could_not_be_rewound_is_not_in_the_box_as_well(
    window: MainWindow, session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(seq: int) -> None:
        raise StoreFailed("The disk is full.", remedy="Make room.")

    monkeypatch.setattr(session, "rewind_to", fail)
    window.chat.composer.text.setPlainText("A draft")
    rewind(window, own_messages(session)[1])
    assert window.chat.composer.text.toPlainText() == "A draft"


def test_the_box_is_on_the_disk_before_the_message_leaves_the_conversation(
    window: MainWindow, session: FakeSession, state_file: WindowStateFile, tmp_path: Path
) -> None:
    """Else, a program that is killed then would have the message in neither."""
    second = own_messages(session)[1]
    on_disk: list[object] = []

    async def rewind_to(seq: int) -> None:
        then = WindowStateFile(state_file._file)
        place = window.chat.composer.draft_place
        on_disk.append(then.get_remembered("draft", *place, default={}))

    session.rewind_to = rewind_to  # type: ignore[method-assign]
    rewind(window, second)
    assert said(session)[1] in str(on_disk)


def test_an_answer_of_the_agent_stays_when_one_rewinds_to_it(
    window: MainWindow, session: FakeSession
) -> None:
    reply = next(each.seq for each in session.state.facts if isinstance(each.fact, ModelReplied))
    rewind(window, reply)
    assert session.state.facts[-1].fact == Rewound(reply)
    assert window.chat.composer.text.toPlainText() == ""


def test_the_notice_of_a_rewind_does_not_cover_the_way_back(
    window: MainWindow, session: FakeSession, front: DialogsAndNotifications
) -> None:
    """The mouse is on the transcript, where the line of the rewind is now the last."""
    transcript = window.chat._transcript_place
    transcript.setAttribute(Qt.WidgetAttribute.WA_UnderMouse)
    rewind(window, own_messages(session)[1])
    assert window.notices.shown_text == "Conversation rewound."
    qt_works(20)
    bottom_of_transcript = transcript.mapTo(window, transcript.rect().bottomLeft()).y()
    assert bottom_of_transcript < window.notices.mapTo(window, QPoint()).y()


def test_a_rewind_can_be_undone_from_its_notice(window: MainWindow, session: FakeSession) -> None:
    before = [each.seq for each in session.state.facts_on_path()]
    window.chat.composer.text.setPlainText("A draft")
    rewind(window, own_messages(session)[0])
    assert window.notices.shown_text == "Conversation rewound."
    assert window.notices._button.text() == "Undo"
    assert not set(before) <= {each.seq for each in session.state.facts_on_path()}
    window.window_actions["undo"].trigger()
    assert set(before) <= {each.seq for each in session.state.facts_on_path()}
    assert window.chat.composer.text.toPlainText() == "A draft"


def test_who_returns_does_not_find_the_rewound_message_in_the_box_as_well(
    window: MainWindow, session: FakeSession
) -> None:
    window.chat.composer.text.setPlainText("A draft")
    rewind(window, own_messages(session)[0])
    window.window_actions["return"].trigger()
    assert window.chat.composer.text.toPlainText() == "A draft"

    rewind(window, own_messages(session)[0])
    window.chat.composer.text.setPlainText("Written anew")
    window.window_actions["return"].trigger()
    assert window.chat.composer.text.toPlainText() == "Written anew"


def test_one_returns_to_what_was_rewound_by_its_line_or_from_the_palette(
    window: MainWindow, session: FakeSession
) -> None:
    def path() -> set[int]:
        return {each.seq for each in session.state.facts_on_path()}

    window.window_actions["return"].trigger()
    assert "Nothing was rewound here." in window.notices.shown_text
    before = path()
    rewind(window, own_messages(session)[0])
    session.append(UserSaid((Text("Otherwise", 1),)))
    assert not before <= path()
    window.window_actions["return"].trigger()
    assert before <= path()
    assert window.notices.shown_text.endswith("Files stay as they are.")
    other = session.state.last_seq_left_by_rewind()
    assert said(session)[-1] == "Otherwise"
    window.chat_actions.carry_out_intent(ActOnMessage(MessageAct.RETURN, other))
    assert not before <= path()
    window.window_actions["undo"].trigger()
    assert before <= path()


@pytest.mark.parametrize("words", ["rewind", "return", "go back"])
def test_rewind_is_found_in_the_palette_and_in_the_help(window: MainWindow, words: str) -> None:
    found = match_palette_items(suggest_actions(window.window_actions), words)
    titles = [item.text for item in found]
    assert "Return to the messages that were rewound" in titles
    if words != "return":
        assert "Rewind to an earlier message…" in titles
    lines = [finding.line for finding in find_help_pages(words)]
    assert any("go back to an earlier message (rewind), and return?" in line for line in lines)


def test_the_palette_lists_the_own_messages_and_rewinds_to_the_chosen_one(
    window: MainWindow, session: FakeSession
) -> None:
    """Only the menu of a message led to a rewind, so that the keyboard could not."""
    newest = said(session)[-1]
    window.window_actions["rewind"].trigger()
    palette = window.search._palette
    assert palette.line.placeholderText() == "Rewind to which message?"
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    click_way(window, "Rewind")
    assert window.chat.composer.text.toPlainText() == newest
    assert newest not in texts_for_model(session)


def test_the_undo_of_a_rewind_leaves_a_box_that_was_written_in_since(
    window: MainWindow, session: FakeSession
) -> None:
    rewind(window, own_messages(session)[0])
    QTest.keyClicks(window.chat.composer.text, " And more.")
    written = window.chat.composer.text.toPlainText()
    window.window_actions["undo"].trigger()
    assert window.chat.composer.text.toPlainText() == written


def test_a_duplicate_up_to_a_message_has_that_message_in_its_box(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession
) -> None:
    """In the conversation, nothing would answer it, and it would be sent with the next one."""
    second = own_messages(session)[1]
    window.chat_actions.carry_out_intent(ActOnMessage(MessageAct.FORK, second))
    fork = window.current_session
    assert fork is not None
    assert fork is not session
    assert bench.forked_at == [second - 1]
    assert window.chat.composer.text.toPlainText() == said(session)[1]


def test_a_rewind_names_the_changed_files_and_both_are_undone_from_its_notice(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession
) -> None:
    bench.file_changes.fill({"a.py": (b"one\n", b"two\n"), "b.py": (b"", b"new\n")})
    before = [each.seq for each in session.state.facts_on_path()]
    window.chat_actions.carry_out_intent(ActOnMessage(MessageAct.REWIND, 1))
    assert "2 files changed since this message: a.py (Edit), b.py (Edit)" in click_way(
        window, "Rewind and undo these changes"
    )
    assert bench.file_changes.now == {"a.py": b"one\n", "b.py": b""}
    assert session.state.facts[-1].fact == Rewound(1)
    assert window.notices.shown_text.startswith("Conversation rewound.\n2 files were restored.")
    window.window_actions["undo"].trigger()
    assert bench.file_changes.now == {"a.py": b"two\n", "b.py": b"new\n"}
    assert set(before) <= {each.seq for each in session.state.facts_on_path()}


def test_return_takes_the_way_of_a_rewind_that_changes_no_file(
    window: MainWindow, session: FakeSession
) -> None:
    window.chat_actions.carry_out_intent(ActOnMessage(MessageAct.REWIND, 1))
    (box,) = window.findChildren(QMessageBox)
    assert box.defaultButton().text() == "Rewind"
    QTest.keyClick(box, Qt.Key.Key_Return)
    assert session.state.facts[-1].fact == Rewound(1)


@pytest.mark.parametrize("act", [MessageAct.REWIND, MessageAct.EDIT])
def test_it_is_said_before_an_undo_which_files_were_changed_later_and_stay(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession, act: MessageAct
) -> None:
    bench.file_changes.fill({"a.py": (b"one\n", b"two\n"), "b.py": (b"", b"new\n")})
    bench.file_changes.now["a.py"] = b"by the user\n"
    seq = next(each.seq for each in session.state.facts if isinstance(each.fact, UserSaid))
    window.chat_actions.carry_out_intent(ActOnMessage(act, seq))
    if act is MessageAct.EDIT:
        write(window, "Otherwise")
    asked = click_way(window, "Cancel")
    assert asked.endswith("\nChanged later, so not undone: a.py")


def test_after_a_preview_was_closed_the_message_is_written_on(window: MainWindow) -> None:
    preview = window.pages.preview
    window.show_preview(preview)
    preview.lines.setFocus()
    preview.close_preview()
    assert not window.is_preview_shown
    assert window.focusWidget() is window.chat.composer.text


def test_the_last_answer_is_copied_without_reasoning_and_calls(window: MainWindow) -> None:
    session = window.parts.showing.conversation
    assert session is not None
    answers = [
        part.text
        for recorded in session.conversation.state.facts_on_path()
        if isinstance(recorded.fact, ModelReplied)
        for part in recorded.fact.parts
        if isinstance(part, Text)
    ]
    QGuiApplication.clipboard().setText("before")
    window.window_actions["copy-answer"].trigger()
    assert QGuiApplication.clipboard().text() == answers[-1]
    assert window.notices.shown_text == "The last answer was copied."
