"""A person at the real window: the mouse and the keyboard of the X server it stands on,
from inside of the program.

What stands where is asked of the widgets; every press goes the way a person's goes,
through the server and the window manager.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable

from PySide6.QtCore import QEvent, QObject, QPoint, QRect
from PySide6.QtWidgets import QApplication, QMenu, QMessageBox, QPushButton, QWidget

from helix_desktop.gui.chat.permission_card import PermissionQuestionPanel
from helix_desktop.gui.views.boxes_view import BoxesView
from tests.soak.driven import until

LIMIT = 60.0
# seconds until what had no effect is done again: what a person clicked at had moved
# meanwhile
AGAIN = 15.0
REST = 10  # looks at a place that has not moved, before it is clicked
STILL = 3  # the same for a widget


async def xdotool(*words: str) -> None:
    await asyncio.to_thread(subprocess.run, ["xdotool", *words], check=True, capture_output=True)
    await asyncio.sleep(0.05)


async def key(*names: str) -> None:
    """To the window that has the keyboard; after a dialog was closed for a moment there is none."""
    await until(lambda: QApplication.activeWindow() is not None, LIMIT)
    await xdotool("key", "--delay", "20", *names)


async def type_(words: str) -> None:
    await xdotool("type", "--delay", "8", words)


class Presses(QObject):
    """Whether a press of the mouse came to a widget."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__()
        self.widget = widget
        self.came = False

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.MouseButtonPress, QEvent.Type.MouseButtonDblClick):
            mine = watched is self.widget or (
                isinstance(watched, QWidget) and self.widget.isAncestorOf(watched)
            )
            self.came = self.came or mine
        return False


async def click(widget: QWidget, place: QRect | QPoint | None = None, button: str = "1") -> None:
    """In the middle of a widget, or of a place in it, once it can be clicked and has
    come to rest; until it was hit.
    """
    at = place.center() if isinstance(place, QRect) else place
    presses = Presses(widget)
    application = QApplication.instance()
    assert application is not None
    application.installEventFilter(presses)
    try:
        while not presses.came:
            point = await _at_rest(widget, at)
            await xdotool("mousemove", str(point.x()), str(point.y()), "click", button)
            await happens(lambda: presses.came)
    finally:
        application.removeEventFilter(presses)


async def _at_rest(widget: QWidget, at: QPoint | None) -> QPoint:
    """Where it is on the screen."""
    seen: list[QPoint] = []

    def still() -> bool:
        if widget.isVisible() and widget.isEnabled():
            seen.append(widget.mapToGlobal(widget.rect().center() if at is None else at))
        return len(seen) >= STILL and all(each == seen[-1] for each in seen[-STILL:])

    await until(still, LIMIT)
    return seen[-1]


async def happens(what: Callable[[], bool]) -> bool:
    """Whether something comes to be so before it is worth another try."""
    try:
        await until(what, AGAIN)
    except TimeoutError:
        return False
    return True


async def drag(widget: QWidget, first: QPoint, last: QPoint) -> None:
    one = widget.mapToGlobal(first)
    two = widget.mapToGlobal(last)
    await xdotool("mousemove", str(one.x()), str(one.y()), "mousedown", "1")
    await xdotool("mousemove", str(two.x()), str(two.y()), "mouseup", "1")


async def choose(words: str, opening: Callable[[], Awaitable[None]]) -> None:
    """From the menu that opens then."""
    await opening()
    while not await happens(lambda: isinstance(QApplication.activePopupWidget(), QMenu)):
        await opening()
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    action = next(each for each in menu.actions() if words in each.text())
    await click(menu, menu.actionGeometry(action))


async def hot(view: BoxesView, name: str) -> None:
    """Click the place of a painted page that has this name, once it has come to rest: a
    page may still be arranged.
    """
    stack = view._stack
    seen: list[QRect | None] = []

    def at_rest() -> bool:
        seen.append(
            next(
                (
                    rect.toRect()
                    for hot, rect in map(stack.hot_spot_and_rect, stack.list_hot_spots())
                    if name in hot.name
                ),
                None,
            )
        )
        return (
            seen[-1] is not None
            and len(seen) > REST
            and len({str(place) for place in seen[-REST:]}) == 1
        )

    await until(at_rest, LIMIT)
    place = seen[-1]
    assert place is not None
    bar = view.verticalScrollBar()
    if not 0 < place.center().y() - bar.value() < view.viewport().height():
        bar.setValue(place.top() - 60)
    await click(view.viewport(), place.translated(0, -bar.value()))


async def allow(asked: PermissionQuestionPanel) -> None:
    """Say yes to the question that is there; one that has just come takes no answer yet."""
    await until(lambda: asked.visible_card is not None)
    card = asked.visible_card
    while asked.visible_card is card:
        await key("alt+y")
        await asyncio.sleep(0.1)


async def answer(words: str) -> None:
    """Press a button of the question that is open."""

    def boxes() -> list[QMessageBox]:
        return [
            each
            for each in QApplication.topLevelWidgets()
            if isinstance(each, QMessageBox) and each.isVisible()
        ]

    await until(lambda: bool(boxes()), LIMIT)
    await press(boxes()[0], words)


async def press(parent: QWidget, words: str) -> None:
    """The button with these words."""

    def found() -> list[QPushButton]:
        return [
            each
            for each in parent.findChildren(QPushButton)
            if words in each.text() and each.isVisible()
        ]

    await until(lambda: bool(found()), LIMIT)
    await click(found()[0])
