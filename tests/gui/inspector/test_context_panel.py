"""The panel above the meter gives the keyboard back."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from helix_desktop.gui.main_window import MainWindow


@pytest.mark.parametrize("key", [Qt.Key.Key_Escape, Qt.Key.Key_Return])
def test_the_keyboard_is_at_the_meter_again_once_it_is_closed(window: MainWindow, key: Qt.Key) -> None:
    """It was at the first workspace of the rail: what was typed next was lost, and Enter left the workspace."""
    assert QTest.qWaitForWindowActive(window)
    window.open_context_panel()
    panel = window.context_panel
    assert panel.isVisible()
    panel.fold_wanted.disconnect()
    panel.fold_link.setFocus()
    QTest.keyClick(panel.fold_link, key)
    assert panel.isHidden()
    assert window.focusWidget() is window.chat.composer.context_button
