"""What a person does with the cache page, and what it shows then."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu

from helix_desktop.gui.cache.cache_page import CachePage

Settle = Callable[[], None]
LEFT = Qt.MouseButton.LeftButton
CONTROL = Qt.KeyboardModifier.ControlModifier
SHIFT = Qt.KeyboardModifier.ShiftModifier


def click_row(
    page: CachePage, row: int, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
) -> None:
    y = page.table.rowViewportPosition(row) + 10
    QTest.mouseClick(page.table.viewport(), LEFT, modifiers, QPoint(40, y))


def shown(page: CachePage) -> str:
    lines = page.viewer.content_view.lines.viewed_lines
    return "\n".join(lines[i] for i in range(len(lines)))


def menu_of(page: CachePage, reason: QContextMenuEvent.Reason, at: QPoint) -> list[str]:
    QApplication.sendEvent(
        page.table.viewport(), QContextMenuEvent(reason, at, page.table.mapToGlobal(at))
    )
    menus = [each for each in page.findChildren(QMenu) if each.isVisible()]
    names = [action.text() for menu in menus for action in menu.actions() if action.text()]
    for menu in menus:
        menu.close()
    return names
