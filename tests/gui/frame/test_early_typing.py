from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.frame.top_level_window import TopLevelWindow
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile

PLACE = ("one", "talk")


@pytest.fixture
def top_window(state_file: WindowStateFile) -> TopLevelWindow:
    state_file.remember_value("workspace", value="one")
    state_file.remember_value("conversation", "one", value="talk")
    state_file.remember_value("draft", *PLACE, value={"text": "begun ", "attachments": []})
    made = TopLevelWindow(state_file, "Helix Desktop")
    made.show()
    return made


def draft(state_file: WindowStateFile) -> str:
    return state_file.get_remembered("draft", *PLACE, default=dict[str, str]()).get("text", "")


def test_what_is_typed_before_the_window_is_furnished_goes_on_the_draft(
    top_window: TopLevelWindow, state_file: WindowStateFile
) -> None:
    QTest.keyClicks(top_window, "helo")
    QTest.keyClick(top_window, Qt.Key.Key_Backspace)
    QTest.keyClicks(top_window, "lo")
    QTest.keyClick(top_window, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClicks(top_window, "there")
    QTest.keyClick(top_window, Qt.Key.Key_W, Qt.KeyboardModifier.AltModifier)
    assert draft(state_file) == "begun hello\nthere"
    assert top_window.placeholder.early_typing.sent_messages == []


def test_enter_takes_the_message_out_of_the_draft_and_keeps_it(
    top_window: TopLevelWindow, state_file: WindowStateFile
) -> None:
    QTest.keyClicks(top_window, "hello")
    QTest.keyClick(top_window, Qt.Key.Key_Return)
    QTest.keyClick(top_window, Qt.Key.Key_Return)
    QTest.keyClicks(top_window, "next")
    (sent,) = top_window.placeholder.early_typing.sent_messages
    assert sent == {"text": "begun hello", "attachments": [], "id": sent["id"]}
    assert state_file.get_remembered("waiting", *PLACE, default=list[object]()) == [sent]
    assert draft(state_file) == "next"


def test_each_message_has_an_id_of_its_own_and_a_changed_draft_a_new_one(
    top_window: TopLevelWindow, state_file: WindowStateFile
) -> None:
    """The draft of the last start may have been sent. What is written on it was not."""
    begun = {"text": "begun ", "attachments": [], "id": "a"}
    state_file.remember_value("draft", *PLACE, value=begun)
    QTest.keyClicks(top_window, "h")
    id_of_draft = state_file.get_remembered("draft", *PLACE, default=dict[str, str]())["id"]
    QTest.keyClicks(top_window, "ello")
    QTest.keyClick(top_window, Qt.Key.Key_Return)
    QTest.keyClicks(top_window, "next")
    QTest.keyClick(top_window, Qt.Key.Key_Return)
    hello, following = top_window.placeholder.early_typing.sent_messages
    assert hello["id"] == id_of_draft
    assert len({"a", hello["id"], following["id"]}) == 3


def test_a_draft_that_is_sent_as_it_was_keeps_its_id(
    top_window: TopLevelWindow, state_file: WindowStateFile
) -> None:
    """If the conversation has it already, it is not sent again."""
    begun = {"text": "begun", "attachments": [], "id": "a"}
    state_file.remember_value("draft", *PLACE, value=begun)
    QTest.keyClick(top_window, Qt.Key.Key_Return)
    assert top_window.placeholder.early_typing.sent_messages == [begun]


def test_what_is_typed_after_control_n_belongs_to_a_new_conversation(
    top_window: TopLevelWindow, state_file: WindowStateFile
) -> None:
    QTest.keyClick(top_window, Qt.Key.Key_Return)
    QTest.keyClick(top_window, Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClicks(top_window, "hello")
    QTest.keyClick(top_window, Qt.Key.Key_Return)
    sent = {
        place: [each["text"] for each in some]
        for place, some in top_window.placeholder.early_typing.sent_by_conversation.items()
    }
    assert sent == {PLACE: ["begun"], ("one", "new"): ["hello"]}
    assert draft(state_file) == ""


def test_where_enter_breaks_the_line_only_with_control_it_sends(
    state_file: WindowStateFile,
) -> None:
    state_file.remember_value("newline-with-enter", value=True)
    state_file.remember_value("workspace", value="one")
    state_file.remember_value("conversation", "one", value="talk")
    top_window = TopLevelWindow(state_file, "Helix Desktop")
    top_window.show()
    QTest.keyClicks(top_window, "a")
    QTest.keyClick(top_window, Qt.Key.Key_Return)
    QTest.keyClicks(top_window, "b")
    assert draft(state_file) == "a\nb"
    QTest.keyClick(top_window, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert [each["text"] for each in top_window.placeholder.early_typing.sent_messages] == ["a\nb"]


@pytest.mark.parametrize("why", ["another page", "no box"])
def test_where_no_message_box_was_shown_nothing_is_kept(
    state_file: WindowStateFile, why: str
) -> None:
    state_file.remember_value("workspace", value="one")
    if why == "another page":
        state_file.remember_value("layout", "one", "page", value="cache")
    else:
        state_file.remember_value("box", value={"name": "one", "is_shown": False})
    top_window = TopLevelWindow(state_file, "Helix Desktop")
    QTest.keyClicks(top_window, "hello")
    assert state_file.get_remembered("draft", "one", "new", default=dict[str, str]()) == {}


def test_a_character_typed_with_alt_gr_on_windows_belongs_to_the_message(
    top_window: TopLevelWindow, state_file: WindowStateFile
) -> None:
    alt_gr = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier
    typed = QKeyEvent(QEvent.Type.KeyPress, Qt.Key.Key_At, alt_gr, "@")
    QApplication.sendEvent(top_window, typed)
    assert draft(state_file) == "begun @"
