"""What a person does in the chat: select, copy, click, walk through it with the keyboard, open a menu, follow a link."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, QSizeF, Qt, QTimer, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QContextMenuEvent,
    QFocusEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QApplication, QMenu, QToolTip, QWidget

from helix_desktop.engine import exact
from helix_desktop.engine.facts import ModelReplied, PartRef, ToolReturned, UserSaid
from helix_desktop.engine.view import State
from helix_desktop.gui.questions import ask_which
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.boxes import Act, Address, CopyText, Hot, Toggle
from helix_desktop.gui.transcript.code import CodeBox
from helix_desktop.gui.transcript.content import Content
from helix_desktop.gui.transcript.harmless import harmless, hint
from helix_desktop.gui.transcript.hover_bar import BAR, HoverBar, buttons, has_bar, place_of, time_of
from helix_desktop.gui.transcript.intents import Edit, Fork, OpenLink, Pin, Regenerate, Rewind, ShowRequest, Unpin, Want
from helix_desktop.gui.transcript.item import Item, ItemKind, text_of
from helix_desktop.gui.transcript.selection import Place, copied
from helix_desktop.gui.transcript.stack import Spot
from helix_desktop.gui.transcript.view import STEP, Canvas
from helix_desktop.gui.words import tr

_OPENED = ("http://", "https://", "mailto:")
_MOVES = {
    Qt.Key.Key_Left: (0, -1),
    Qt.Key.Key_Right: (0, 1),
    Qt.Key.Key_Up: (-1, 0),
    Qt.Key.Key_Down: (1, 0),
}


class TranscriptView(Canvas):
    """`wanted` carries a value of `wants`."""

    wanted = Signal(object)
    find_wanted = Signal()

    def __init__(self, theme: Theme, content: Content, parent: QWidget | None = None) -> None:
        super().__init__(theme, content, parent)
        self._pressed: Hot | None = None
        self._pointed: Hot | None = None
        self._press_at = QPoint()
        self._dragging = False
        self._clicks = 0
        self._drag_to = QPoint()
        self._pull = QTimer(self, interval=30)
        self._pull.timeout.connect(self._pull_on)
        self._again = QTimer(self, interval=QApplication.doubleClickInterval(), singleShot=True)
        self._again.timeout.connect(self._forget_clicks)
        self.viewport().setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setCursor(Qt.CursorShape.IBeamCursor)
        self.answered.connect(self.announce)
        self._over = -1  # the item under the pointer
        self._bar: tuple[object, HoverBar] | None = None

    def open(self, history: State) -> None:
        self._over, self._bar = -1, None
        super().open(history)

    def place_of(self, want: Want) -> QRect:
        """Where something in sight asks for `want`, in the viewport; empty where nothing does."""
        for index, spot in self._in_sight():
            laid = self.column.known(index)
            if laid is not None and spot.box != BAR and laid.spot(spot)[0].act == want:
                return self.rect_of(index, laid.spot(spot)[1]).toRect()
        return QRect()

    # --- the bar of a message

    def bar(self, index: int) -> HoverBar | None:
        """What can be done with a message; None where the item is none, or is hidden."""
        there = 0 <= index < len(self.items.all) and not self.items.hidden(index)
        if not there or not has_bar(self.items.all[index]):
            return None
        item, ink = self.items.all[index], self.column.page.ink
        key = (index, item, ink, self.items.answers(index))
        if self._bar is None or self._bar[0] != key:
            words = time_of(item.recorded.time) if item.recorded else ""
            self._bar = (key, HoverBar(ink, words, buttons(self.items, index)))
        return self._bar[1]

    def bar_place(self, index: int, bar: HoverBar) -> QRectF:
        """Its place in the viewport."""
        laid = self.column.known(index)
        height = float(laid.height) if laid is not None else 0.0
        message = self.rect_of(index, QRectF(0, 0, self.column.page.width, height))
        return QRectF(place_of(bar, message), QSizeF(bar.width, bar.height))

    @property
    def _with_bar(self) -> int:
        """The item whose bar is shown: where the keyboard is, else under the pointer."""
        by_key = self._spot[0] if self._spot is not None and self.hasFocus() and self._spot[1].box == BAR else -1
        return by_key if by_key >= 0 else self._over

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        index = self._with_bar
        bar = self.bar(index)
        self._floated = self._floating()
        if bar is None:
            return
        painter = QPainter(self.viewport())
        place = self.bar_place(index, bar)
        painter.translate(place.topLeft())
        bar.draw(painter, self._spotted() if self._spot is not None else self._pointed)
        painter.end()

    def _floating(self) -> QRect:
        bar = self.bar(self._with_bar)
        return self.bar_place(self._with_bar, bar).toAlignedRect() if bar is not None else QRect()

    # --- selecting and copying

    def select_all(self) -> None:
        last = len(self.items.all) - 1
        if last >= 0:
            self.selection.anchor = Place(0, 0)
            self.selection.caret = Place(last, self.column.whole(last).end)
            self.viewport().update()

    def copy(self, *, markdown: bool = False) -> None:
        """What is selected, to the clipboard."""
        text = copied(self.selection, self.items, self.column.whole, markdown=markdown)
        if text:
            QGuiApplication.clipboard().setText(text)

    def selected_text(self) -> str:
        return copied(self.selection, self.items, self.column.whole, markdown=False)

    def place_at(self, point: QPoint | QPointF) -> Place:
        """The character nearest to a point of the viewport."""
        index, inner = self.item_at(point)
        if index < 0:
            return Place(-1, 0)
        return Place(index, self.column.whole(index).offset_at(inner))

    # --- the mouse

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton:
            return
        point = event.position().toPoint()
        self._press_at, self._dragging, self._spot = point, False, None
        self._pressed = self._hot_at(point)
        self._clicks += 1
        self._again.start()
        place = self.place_at(point)
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and self.selection.anchor.item >= 0:
            self.selection.caret = place
        elif self._clicks >= 2 and self._pressed is None and place.item >= 0:
            laid = self.column.whole(place.item)
            first, last = laid.word_at(place.offset) if self._clicks == 2 else laid.paragraph_at(place.offset)
            self.selection.anchor, self.selection.caret = Place(place.item, first), Place(place.item, last)
        else:
            self.selection.anchor = self.selection.caret = place
        self.viewport().update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        point = event.position().toPoint()
        if not event.buttons() & Qt.MouseButton.LeftButton:
            self._hover(point)
            return
        if (point - self._press_at).manhattanLength() >= QApplication.startDragDistance():
            self._dragging = True
        if self._dragging and self.selection.anchor.item >= 0:
            self._drag_to = point
            self.selection.caret = self.place_at(point)
            self.viewport().update()
            if 0 <= point.y() < self.viewport().height():
                self._pull.stop()
            elif not self._pull.isActive():
                self._pull.start()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._pull.stop()
        pressed, self._pressed = self._pressed, None
        if event.button() != Qt.MouseButton.LeftButton or self._dragging or pressed is None:
            return
        if self._hot_at(event.position().toPoint()) == pressed:
            self.do(pressed.act)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.mousePressEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        by = event.pixelDelta().x() or event.angleDelta().x() // 2
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and not by:
            by = event.angleDelta().y() // 2
        if by and abs(by) > abs(event.pixelDelta().y()):
            box = self._code_at(event.position())
            if box is not None and box.scroll(-float(by)):
                self.viewport().update()
            event.accept()
            return
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            event.ignore()  # the window changes the size of text
            return
        super().wheelEvent(event)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Leave:
            self._near, self._over, self._pointed = None, -1, None
            self.viewport().update()
        return super().viewportEvent(event)

    def _hover(self, point: QPoint) -> None:
        hot = self._hot_at(point)
        shape = Qt.CursorShape.PointingHandCursor if hot else Qt.CursorShape.IBeamCursor
        if self.viewport().cursor().shape() != shape:
            self.viewport().setCursor(shape)
        index, inner = self.item_at(point)
        if (index, hot) != (self._over, self._pointed):
            self._over, self._pointed = index, hot
            self.viewport().update()
        laid = self.column.known(index) if index >= 0 else None
        near = laid.boxes[laid.box_at(inner)[0]] if laid is not None and laid.boxes else None
        if near is not self._near:
            self._near = near
            self.viewport().update()
        self.viewport().setToolTip(self._tip(hot))

    def _tip(self, hot: Hot | None) -> str:
        """Where a link leads, and what a picture on the bar does."""
        if hot is not None and isinstance(hot.act, Address):
            return hint(hot.act.address[:500])
        bar = self.bar(self._over)
        return hot.name if hot is not None and bar is not None and hot in bar.hots else ""

    def _hot_at(self, point: QPoint) -> Hot | None:
        if (bar := self.bar(self._over)) is not None:
            place = self.bar_place(self._over, bar)
            if place.contains(point):
                return bar.hot_at(QPointF(point) - place.topLeft())
        index, inner = self.item_at(point)
        laid = self.column.known(index) if index >= 0 else None
        return laid.hot_at(inner) if laid is not None else None

    def _code_at(self, point: QPointF) -> CodeBox | None:
        index, inner = self.item_at(point)
        laid = self.column.known(index) if index >= 0 else None
        if laid is None or not laid.boxes:
            return None
        box = laid.boxes[laid.box_at(inner)[0]]
        return box if isinstance(box, CodeBox) else None

    def _pull_on(self) -> None:
        """Dragging beyond the edge scrolls."""
        beyond = self._drag_to.y() - (0 if self._drag_to.y() < 0 else self.viewport().height())
        bar = self.verticalScrollBar()
        self._set_following(following=False)
        bar.setValue(bar.value() + max(-120, min(120, beyond)))
        self.selection.caret = self.place_at(self._drag_to)
        self.viewport().update()

    def _forget_clicks(self) -> None:
        self._clicks = 0

    # --- the keyboard

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, modifiers = event.key(), event.modifiers()
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            self.select_all()
        elif event.matches(QKeySequence.StandardKey.Find):
            self.find_wanted.emit()
        elif _is_copy_markdown(event):
            self.copy(markdown=True)
        elif modifiers & Qt.KeyboardModifier.ShiftModifier and key in (*_MOVES, Qt.Key.Key_Home, Qt.Key.Key_End):
            self._extend(Qt.Key(key), whole=bool(modifiers & Qt.KeyboardModifier.ControlModifier))
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) and self._spot is not None:
            self._act_on_spot()
        elif key == Qt.Key.Key_Escape and not self.selection.empty:
            self.selection.clear()
            self.viewport().update()
        elif not self._along_bar(Qt.Key(key)) and not self._scroll_by_key(Qt.Key(key)):
            event.ignore()

    def _along_bar(self, key: Qt.Key) -> bool:
        """Left and right go from button to button."""
        if self._spot is None or self._spot[1].box != BAR or key not in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            return False
        bar = self.bar(self._spot[0])
        if bar is not None:
            by = 1 if key == Qt.Key.Key_Right else -1
            self._spot = (self._spot[0], Spot(BAR, (self._spot[1].hot + by) % len(bar.hots)))
            self._speak_spot()
            self.viewport().update()
        return True

    def _scroll_by_key(self, key: Qt.Key) -> bool:
        bar = self.verticalScrollBar()
        page = self.viewport().height() - STEP
        steps = {Qt.Key.Key_Up: -STEP, Qt.Key.Key_Down: STEP, Qt.Key.Key_PageUp: -page, Qt.Key.Key_PageDown: page}
        if key == Qt.Key.Key_End:
            self.jump_to_end()
        elif key == Qt.Key.Key_Home:
            self._set_following(following=False)
            self._refresh(0)
        elif key in steps:
            wanted = bar.value() + steps[key]
            self._set_following(following=wanted >= bar.maximum() and steps[key] > 0)
            bar.setValue(wanted)
        else:
            return False
        return True

    def _extend(self, key: Qt.Key, *, whole: bool) -> None:
        """Move the end of the selection: by a character, a line, to the start or end of an item or of all."""
        if self.selection.anchor.item < 0:
            first = next(iter(self.column.shown(self.verticalScrollBar().value(), 1)), -1)
            self.selection.anchor = self.selection.caret = Place(first, 0)
        caret = self.selection.caret
        if caret.item < 0:
            return
        laid = self.column.whole(caret.item)
        if key in (Qt.Key.Key_Home, Qt.Key.Key_End):
            last = len(self.items.all) - 1
            ends = (Place(0, 0), Place(last, self.column.whole(last).end)) if whole else _ends(caret.item, laid.end)
            self.selection.caret = ends[key == Qt.Key.Key_End]
        else:
            lines, signs = _MOVES[key]
            self.selection.caret = self._by_line(caret, lines) if lines else self._by_sign(caret, signs, laid.end)
        self._show_caret()

    def _by_sign(self, caret: Place, by: int, length: int) -> Place:
        if 0 <= caret.offset + by <= length:
            return Place(caret.item, caret.offset + by)
        index = self._next_item(caret.item, by)
        return Place(index, 0 if by > 0 else self.column.whole(index).end) if index != caret.item else caret

    def _by_line(self, caret: Place, by: int) -> Place:
        laid = self.column.whole(caret.item)
        where = laid.caret(caret.offset)
        y = where.center().y() + by * where.height()
        if laid.pad <= y <= laid.height - laid.pad:
            return Place(caret.item, laid.offset_at(QPointF(where.x(), y)))
        index = self._next_item(caret.item, by)
        if index == caret.item:
            return Place(index, laid.end if by > 0 else 0)
        other = self.column.whole(index)
        return Place(
            index, other.offset_at(QPointF(where.x(), other.pad + 1 if by > 0 else other.height - other.pad - 1))
        )

    def _next_item(self, index: int, by: int) -> int:
        beyond = index + by
        while 0 <= beyond < len(self.items.all) and self.items.hidden(beyond):
            beyond += by
        return beyond if 0 <= beyond < len(self.items.all) else index

    def _show_caret(self) -> None:
        caret = self.selection.caret
        place = self.rect_of(caret.item, self.column.whole(caret.item).caret(caret.offset))
        bar = self.verticalScrollBar()
        if place.top() < 0:
            self._set_following(following=False)
            bar.setValue(int(bar.value() + place.top() - STEP))
        elif place.bottom() > self.viewport().height():
            bar.setValue(int(bar.value() + place.bottom() - self.viewport().height() + STEP))
        self.viewport().update()

    def focusNextPrevChild(self, forward: bool) -> bool:  # noqa: FBT001 - Qt's signature
        """Tab walks through what can be clicked in sight, then leaves."""
        spots = self._in_sight()
        here = self._spot
        if here is not None and here[1].box == BAR:
            here = (here[0], Spot(BAR, 0))  # the bar is one stop; the arrows go along it
        now = spots.index(here) if here in spots else (-1 if forward else len(spots))
        beyond = now + (1 if forward else -1)
        if not 0 <= beyond < len(spots):
            self._spot = None
            self.viewport().update()
            return super().focusNextPrevChild(forward)
        self._spot = spots[beyond]
        self._speak_spot()
        self.viewport().update()
        return True

    def _in_sight(self) -> list[tuple[int, Spot]]:
        return [
            (index, spot)
            for index in self.column.shown(self.verticalScrollBar().value(), self.viewport().height())
            if (laid := self.column.known(index)) is not None
            for spot in (*laid.spots(), *([Spot(BAR, 0)] if has_bar(self.items.all[index]) else ()))
        ]

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Tab that leads here leads to what can be clicked first, or last."""
        super().focusInEvent(event)
        if event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason) and self._in_sight():
            self._spot = None
            self.focusNextPrevChild(event.reason() is Qt.FocusReason.TabFocusReason)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.viewport().update()

    def _speak_spot(self) -> None:
        hot = self._spotted()
        if hot is None or self._spot is None:
            return
        laid = self.column.known(self._spot[0])
        if laid is not None and self._spot[1].box != BAR:
            place = self.rect_of(self._spot[0], laid.spot(self._spot[1])[1])
            if place.top() < 0 or place.bottom() > self.viewport().height():
                self._set_following(following=False)
                self.verticalScrollBar().setValue(int(self.verticalScrollBar().value() + place.top() - STEP))
        self.announce(hot.name)

    def _spotted(self) -> Hot | None:
        if self._spot is None:
            return None
        index, spot = self._spot
        if spot.box == BAR:
            bar = self.bar(index)
            return bar.hots[min(spot.hot, len(bar.hots) - 1)] if bar is not None else None
        laid = self.column.known(index)
        return laid.spot(spot)[0] if laid is not None and spot in laid.spots() else None

    def _act_on_spot(self) -> None:
        hot = self._spotted()
        if hot is not None:
            self.do(hot.act)

    # --- doing

    def do(self, act: Act) -> None:
        """What a click or Enter on a hot place means."""
        if isinstance(act, Toggle):
            self._toggle(act)
        elif isinstance(act, CopyText):
            QGuiApplication.clipboard().setText(act.text)
            QToolTip.showText(self.cursor().pos(), tr("Copied"), self)
            self.announce(tr("Copied"))
        elif isinstance(act, Address):
            self._ask_to_open(act.address)
        else:
            self.wanted.emit(act)

    def _toggle(self, act: Toggle) -> None:
        opened = self.column.page.opened
        if act.key[-2:-1] in (("rewound",), ("group",)):
            change = self.items.open_rewound if act.key[-2] == "rewound" else self.items.open_group
            y = self.verticalScrollBar().value()
            self.column.apply(change(int(str(act.key[-1]))))
            self._set_following(following=False)
            self._refresh(y)
            return
        default = act.key[0] == "live" or self._is_plan(act)
        opened[act.key] = opened.get(act.key, 0) + act.by if act.by else int(not opened.get(act.key, int(default)))
        y = self.verticalScrollBar().value()
        self.column.drop_all(frozenset(ItemKind))
        self._set_following(following=False)
        self._refresh(y)

    def _is_plan(self, act: Toggle) -> bool:
        seq = act.key[1] if len(act.key) > 1 else 0
        index = self.items.at_seq(seq) if isinstance(seq, int) else -1
        return index >= 0 and self.items.all[index].kind is ItemKind.PLAN

    def _ask_to_open(self, address: str) -> None:
        """A link is shown as it is before anything is opened."""
        shown = exact.one_line(address)
        if not address.lower().startswith(_OPENED):
            QGuiApplication.clipboard().setText(address)
            QToolTip.showText(self.cursor().pos(), hint(tr("Copied: {address}", address=shown[:200])), self)
            return
        text = "\n\n".join([tr("Open this link in your browser?"), shown])
        ways = [
            (tr("Open"), partial(self.wanted.emit, OpenLink(address))),
            (tr("Copy link"), partial(QGuiApplication.clipboard().setText, address)),
        ]
        ask_which(self, tr("Open a link"), text, "", ways)

    def announce(self, text: str) -> None:
        """Say something to a screen reader."""
        if QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, harmless(text[:2_000])))

    # --- the menu

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        index, _ = self.item_at(self.viewport().mapFromGlobal(event.globalPos()))
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        copying = menu.addAction(tr("Copy"), self.copy)
        as_markdown = menu.addAction(tr("Copy as Markdown"), lambda: self.copy(markdown=True))
        copying.setEnabled(not self.selection.empty)
        as_markdown.setEnabled(not self.selection.empty)
        menu.addAction(tr("Select all"), self.select_all)
        if index >= 0 and has_bar(self.items.all[index]):
            menu.addAction(tr("Copy message"), lambda: self.do(CopyText(text_of(self.items.all[index]))))
        if index >= 0 and (wants := self.wants_for(index)):
            menu.addSeparator()
            for words, want in wants:
                menu.addAction(words, partial(self.wanted.emit, want))
        menu.popup(event.globalPos())

    def wants_for(self, index: int) -> list[tuple[str, Want]]:
        """What can be done with an item."""
        item = self.items.all[index]
        if item.recorded is None:
            return []
        found: list[tuple[str, Want]] = []
        if item.kind is ItemKind.USER:
            found.append((tr("Edit and resend…"), Edit(item.seq)))
        if item.kind is ItemKind.REPLY:
            found.append((tr("Regenerate"), Regenerate(item.seq)))
            found.append((tr("What the model saw"), ShowRequest(item.seq)))
        found.append((tr("Fork from here"), Fork(item.seq)))
        found.append((tr("Rewind to here…"), Rewind(item.seq)))
        ref = self._ref(index, item)
        if ref is not None:
            pinned = self.items.pinned(ref)
            found.append((tr("Unpin") if pinned else tr("Pin: never fold"), Unpin(ref) if pinned else Pin(ref)))
        return found

    def _ref(self, index: int, item: Item) -> PartRef | None:
        if item.kind is ItemKind.CALL:
            state = self.items.call(index)
            return PartRef(state.returned_seq) if isinstance(state.returned, ToolReturned) else None
        if isinstance(item.fact, UserSaid):
            return PartRef(item.seq, 0)
        return PartRef(item.seq, item.part) if isinstance(item.fact, ModelReplied) else None


def _is_copy_markdown(event: QKeyEvent) -> bool:
    wanted = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    return event.key() == Qt.Key.Key_C and event.modifiers() == wanted


def _ends(index: int, length: int) -> tuple[Place, Place]:
    return Place(index, 0), Place(index, length)
