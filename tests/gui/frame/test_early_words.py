from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from helix_desktop.gui.frame.shell import Shell
from helix_desktop.gui.memory import Memory

PLACE = ("one", "talk")


@pytest.fixture
def shell(memory: Memory) -> Shell:
    memory.put("workspace", value="one")
    memory.put("conversation", "one", value="talk")
    memory.put("draft", *PLACE, value={"text": "begun ", "attachments": []})
    made = Shell(memory, "Helix Desktop")
    made.show()
    return made


def draft(memory: Memory) -> str:
    return memory.get("draft", *PLACE, default=dict[str, str]()).get("text", "")


def test_what_is_typed_before_the_window_is_furnished_goes_on_the_draft(shell: Shell, memory: Memory) -> None:
    QTest.keyClicks(shell, "helo")
    QTest.keyClick(shell, Qt.Key.Key_Backspace)
    QTest.keyClicks(shell, "lo")
    QTest.keyClick(shell, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClicks(shell, "there")
    QTest.keyClick(shell, Qt.Key.Key_W, Qt.KeyboardModifier.AltModifier)
    assert draft(memory) == "begun hello\nthere"
    assert shell.empty.early.sent == []


def test_enter_takes_the_message_out_of_the_draft_and_keeps_it(shell: Shell, memory: Memory) -> None:
    QTest.keyClicks(shell, "hello")
    QTest.keyClick(shell, Qt.Key.Key_Return)
    QTest.keyClick(shell, Qt.Key.Key_Return)
    QTest.keyClicks(shell, "next")
    sent = [{"text": "begun hello", "attachments": []}]
    assert shell.empty.early.sent == sent
    assert memory.get("waiting", *PLACE, default=list[object]()) == sent
    assert draft(memory) == "next"


def test_where_enter_breaks_the_line_only_with_control_it_sends(memory: Memory) -> None:
    memory.put("newline-with-enter", value=True)
    memory.put("workspace", value="one")
    memory.put("conversation", "one", value="talk")
    shell = Shell(memory, "Helix Desktop")
    shell.show()
    QTest.keyClicks(shell, "a")
    QTest.keyClick(shell, Qt.Key.Key_Return)
    QTest.keyClicks(shell, "b")
    assert draft(memory) == "a\nb"
    QTest.keyClick(shell, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert [each["text"] for each in shell.empty.early.sent] == ["a\nb"]


@pytest.mark.parametrize("why", ["another page", "no box"])
def test_where_no_message_box_was_shown_nothing_is_kept(memory: Memory, why: str) -> None:
    memory.put("workspace", value="one")
    if why == "another page":
        memory.put("layout", "one", "page", value="cache")
    else:
        memory.put("box", value={"name": "one", "is_shown": False})
    shell = Shell(memory, "Helix Desktop")
    QTest.keyClicks(shell, "hello")
    assert memory.get("draft", "one", "new", default=dict[str, str]()) == {}
