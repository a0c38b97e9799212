"""What is typed beside the message box goes into the message."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.main_window import MainWindow

NONE = Qt.KeyboardModifier.NoModifier
SHIFT = Qt.KeyboardModifier.ShiftModifier
CONTROL = Qt.KeyboardModifier.ControlModifier
ALT = Qt.KeyboardModifier.AltModifier
KEYPAD = Qt.KeyboardModifier.KeypadModifier
GROUP = Qt.KeyboardModifier.GroupSwitchModifier


@pytest.mark.parametrize(
    ("key", "modifiers", "text", "typed"),
    [
        (Qt.Key.Key_A, NONE, "a", "a"),
        (Qt.Key.Key_A, SHIFT, "A", "A"),
        (Qt.Key.Key_7, KEYPAD, "7", "7"),
        (Qt.Key.Key_At, CONTROL | ALT, "@", "@"),
        (Qt.Key.Key_At, GROUP, "@", "@"),
        (Qt.Key.Key_A, ALT, "a", ""),
        (Qt.Key.Key_7, CONTROL, "7", ""),
    ],
)
def test_a_character_typed_at_the_page_goes_into_the_message(
    window: MainWindow, key: Qt.Key, modifiers: Qt.KeyboardModifier, text: str, typed: str
) -> None:
    window.chat.composer.text.setPlainText("")
    QApplication.sendEvent(window.chat, QKeyEvent(QEvent.Type.KeyPress, key, modifiers, text))
    assert window.chat.composer.text.toPlainText() == typed


def test_the_transcript_does_not_move_under_the_mouse_when_a_notice_comes(
    window: MainWindow,
) -> None:
    """A press on what had just moved up missed."""
    transcript = window.chat._transcript_place
    transcript.setAttribute(Qt.WidgetAttribute.WA_UnderMouse)
    window.chat.reserve_room_for_notice(66)
    assert window.chat._notice_room.isHidden()

    transcript.setAttribute(Qt.WidgetAttribute.WA_UnderMouse, on=False)
    QApplication.sendEvent(transcript, QEvent(QEvent.Type.Leave))
    assert not window.chat._notice_room.isHidden(), "now it covers nothing"
    assert window.chat._notice_room.height() == 66


def test_a_notice_that_came_and_went_under_the_mouse_leaves_no_room(window: MainWindow) -> None:
    transcript = window.chat._transcript_place
    transcript.setAttribute(Qt.WidgetAttribute.WA_UnderMouse)
    window.chat.reserve_room_for_notice(66)
    window.chat.reserve_room_for_notice(0)
    transcript.setAttribute(Qt.WidgetAttribute.WA_UnderMouse, on=False)
    QApplication.sendEvent(transcript, QEvent(QEvent.Type.Leave))
    assert window.chat._notice_room.isHidden()


def test_the_transcript_does_not_move_under_the_mouse_when_a_notice_goes(
    window: MainWindow,
) -> None:
    transcript = window.chat._transcript_place
    room = window.chat._notice_room
    window.chat.reserve_room_for_notice(66)
    transcript.setAttribute(Qt.WidgetAttribute.WA_UnderMouse)
    window.chat.reserve_room_for_notice(0)
    assert not room.isHidden()

    transcript.setAttribute(Qt.WidgetAttribute.WA_UnderMouse, on=False)
    QApplication.sendEvent(transcript, QEvent(QEvent.Type.Leave))
    assert room.isHidden()


def test_the_room_of_a_notice_goes_with_it_where_no_mouse_is(window: MainWindow) -> None:
    window.chat.reserve_room_for_notice(66)
    assert not window.chat._notice_room.isHidden()
    window.chat.reserve_room_for_notice(0)
    assert window.chat._notice_room.isHidden()


def test_the_room_of_a_notice_looks_like_the_page(window: MainWindow) -> None:
    """A grey strip lay across the page, also when the notice had gone and the mouse kept its room."""
    window.resize(1000, 700)
    window.chat.reserve_room_for_notice(66)
    QApplication.processEvents()
    room = window.chat._notice_room
    in_room = room.mapTo(window, room.rect().center())
    in_transcript = in_room - QPoint(0, room.height())
    picture = window.grab().toImage()
    assert picture.pixelColor(in_room) == picture.pixelColor(in_transcript)
