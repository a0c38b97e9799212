"""window_program.py: what was typed before the program is told to end belongs to the draft."""

from __future__ import annotations

import signal
import sys

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit

from helix_desktop.desktop.window_program import InterruptHandler
from helix_desktop.gui.theme import Theme


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_keys_that_are_still_waiting_are_typed_before_the_window_closes(theme: Theme) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    box, closed = QLineEdit(), list[str]()
    handler = InterruptHandler(lambda: closed.append(box.text()))
    try:
        for letter in "word":
            press = QKeyEvent(
                QEvent.Type.KeyPress, Qt.Key.Key_W, Qt.KeyboardModifier.NoModifier, letter
            )
            QCoreApplication.postEvent(box, press)
        handler._write.send(bytes([signal.SIGTERM]))
        handler._close_if_asked_to_end()
        assert closed == ["word"]
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
        handler._notifier.setEnabled(False)
        handler._read.close()
        handler._write.close()
        handler.deleteLater()
