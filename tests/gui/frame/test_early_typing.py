from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from helix_desktop.gui.frame.top_level_window import WindowShell
from helix_desktop.gui.window_state_file import WindowMemory

PLACE = ("one", "talk")


@pytest.fixture
def shell(memory: WindowMemory) -> WindowShell:
    memory.remember_value("workspace", value="one")
    memory.remember_value("conversation", "one", value="talk")
    memory.remember_value("draft", *PLACE, value={"text": "begun ", "attachments": []})
    made = WindowShell(memory, "Helix Desktop")
    made.show()
    return made


def draft(memory: WindowMemory) -> str:
    return memory.get_remembered("draft", *PLACE, default=dict[str, str]()).get("text", "")


def test_what_is_typed_before_the_window_is_furnished_goes_on_the_draft(
    shell: WindowShell, memory: WindowMemory
) -> None:
    QTest.keyClicks(shell, "helo")
    QTest.keyClick(shell, Qt.Key.Key_Backspace)
    QTest.keyClicks(shell, "lo")
    QTest.keyClick(shell, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClicks(shell, "there")
    QTest.keyClick(shell, Qt.Key.Key_W, Qt.KeyboardModifier.AltModifier)
    assert draft(memory) == "begun hello\nthere"
    assert shell.placeholder.early_typing.sent_messages == []


def test_enter_takes_the_message_out_of_the_draft_and_keeps_it(shell: WindowShell, memory: WindowMemory) -> None:
    QTest.keyClicks(shell, "hello")
    QTest.keyClick(shell, Qt.Key.Key_Return)
    QTest.keyClick(shell, Qt.Key.Key_Return)
    QTest.keyClicks(shell, "next")
    sent = [{"text": "begun hello", "attachments": []}]
    assert shell.placeholder.early_typing.sent_messages == sent
    assert memory.get_remembered("waiting", *PLACE, default=list[object]()) == sent
    assert draft(memory) == "next"


def test_what_is_typed_after_control_n_belongs_to_a_new_conversation(shell: WindowShell, memory: WindowMemory) -> None:
    QTest.keyClick(shell, Qt.Key.Key_Return)
    QTest.keyClick(shell, Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClicks(shell, "hello")
    QTest.keyClick(shell, Qt.Key.Key_Return)
    sent = {
        place: [each["text"] for each in some]
        for place, some in shell.placeholder.early_typing.sent_by_conversation.items()
    }
    assert sent == {PLACE: ["begun"], ("one", "new"): ["hello"]}
    assert draft(memory) == ""


def test_where_enter_breaks_the_line_only_with_control_it_sends(memory: WindowMemory) -> None:
    memory.remember_value("newline-with-enter", value=True)
    memory.remember_value("workspace", value="one")
    memory.remember_value("conversation", "one", value="talk")
    shell = WindowShell(memory, "Helix Desktop")
    shell.show()
    QTest.keyClicks(shell, "a")
    QTest.keyClick(shell, Qt.Key.Key_Return)
    QTest.keyClicks(shell, "b")
    assert draft(memory) == "a\nb"
    QTest.keyClick(shell, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert [each["text"] for each in shell.placeholder.early_typing.sent_messages] == ["a\nb"]


@pytest.mark.parametrize("why", ["another page", "no box"])
def test_where_no_message_box_was_shown_nothing_is_kept(memory: WindowMemory, why: str) -> None:
    memory.remember_value("workspace", value="one")
    if why == "another page":
        memory.remember_value("layout", "one", "page", value="cache")
    else:
        memory.remember_value("box", value={"name": "one", "is_shown": False})
    shell = WindowShell(memory, "Helix Desktop")
    QTest.keyClicks(shell, "hello")
    assert memory.get_remembered("draft", "one", "new", default=dict[str, str]()) == {}
