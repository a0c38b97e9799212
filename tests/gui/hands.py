"""A person at the real window: the mouse and the keyboard of the X server it stands on, from inside of the program.

What stands where is asked of the widgets; every press goes the way a person's goes, through the server and the window manager.
"""

from __future__ import annotations

import asyncio
import subprocess

from PySide6.QtCore import QPoint, QRect
from PySide6.QtWidgets import QApplication, QMenu, QMessageBox, QPushButton, QWidget

from helix_desktop.gui.views.boxes_view import BoxesView
from tests.soak.driven import until

LIMIT = 30.0
REST = 10  # looks at a place that has not moved, before it is clicked


async def xdotool(*words: str) -> None:
    await asyncio.to_thread(subprocess.run, ["xdotool", *words], check=True, capture_output=True)
    await asyncio.sleep(0.05)


async def key(*names: str) -> None:
    await xdotool("key", "--delay", "20", *names)


async def type_(words: str) -> None:
    await xdotool("type", "--delay", "8", words)


async def click(widget: QWidget, place: QRect | QPoint | None = None, button: str = "1") -> None:
    """In the middle of a widget, or of a place in it, once it can be seen."""
    await until(widget.isVisible, LIMIT)
    at = place.center() if isinstance(place, QRect) else place
    point = widget.mapToGlobal(widget.rect().center() if at is None else at)
    await xdotool("mousemove", str(point.x()), str(point.y()), "click", button)


async def drag(widget: QWidget, first: QPoint, last: QPoint) -> None:
    one, two = widget.mapToGlobal(first), widget.mapToGlobal(last)
    await xdotool("mousemove", str(one.x()), str(one.y()), "mousedown", "1")
    await xdotool("mousemove", str(two.x()), str(two.y()), "mouseup", "1")


async def choose(words: str) -> None:
    """From the menu that is open."""
    await until(lambda: isinstance(QApplication.activePopupWidget(), QMenu), LIMIT)
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    action = next(each for each in menu.actions() if words in each.text())
    await click(menu, menu.actionGeometry(action))


async def hot(view: BoxesView, name: str) -> None:
    """Click the place of a painted page that has this name, once it has come to rest: a page may still be arranged."""
    stack = view._stack
    seen: list[QRect | None] = []

    def at_rest() -> bool:
        seen.append(next((rect.toRect() for hot, rect in map(stack.spot, stack.spots()) if name in hot.name), None))
        return seen[-1] is not None and len(seen) > REST and len({str(place) for place in seen[-REST:]}) == 1

    await until(at_rest, LIMIT)
    place = seen[-1]
    assert place is not None
    bar = view.verticalScrollBar()
    if not 0 < place.center().y() - bar.value() < view.viewport().height():
        bar.setValue(place.top() - 60)
    await click(view.viewport(), place.translated(0, -bar.value()))


async def answer(words: str) -> None:
    """Press a button of the question that is open."""

    def boxes() -> list[QMessageBox]:
        return [each for each in QApplication.topLevelWidgets() if isinstance(each, QMessageBox) and each.isVisible()]

    await until(lambda: bool(boxes()), LIMIT)
    await press(boxes()[0], words)


async def press(parent: QWidget, words: str) -> None:
    """The button with these words."""

    def found() -> list[QPushButton]:
        return [each for each in parent.findChildren(QPushButton) if words in each.text() and each.isVisible()]

    await until(lambda: bool(found()), LIMIT)
    await click(found()[0])
