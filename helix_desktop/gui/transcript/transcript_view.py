"""What a person does in the chat: select, copy, click, walk through it with the keyboard, open a menu, follow a link."""

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
from PySide6.QtWidgets import QApplication, QToolTip, QWidget

from helix_desktop.engine import exact_text
from helix_desktop.engine.facts import ModelReplied, PartRef, ToolReturned, UserSaid
from helix_desktop.engine.view import ConversationState
from helix_desktop.gui.question_dialogs import ask_which_way
from helix_desktop.gui.shared.plain_widgets import build_popup_menu
from helix_desktop.gui.shared.text_selection import NO_POSITION, TextPosition
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import BoxAction, CopyText, HotSpot, LinkAddress, ToggleSection
from helix_desktop.gui.transcript.box_stack import HotSpotIndex
from helix_desktop.gui.transcript.chat_intents import (
    ChatIntent,
    EditMessage,
    ForkConversation,
    OpenLink,
    PinPart,
    RegenerateAnswer,
    RewindConversation,
    ShowRequest,
    UnpinPart,
)
from helix_desktop.gui.transcript.code_box import CodeBox
from helix_desktop.gui.transcript.content_fetching import FetchedTranscriptContent
from helix_desktop.gui.transcript.hover_bar import (
    BAR,
    HoverBar,
    format_message_time,
    has_hover_bar,
    list_hover_bar_buttons,
    position_of_hover_bar,
)
from helix_desktop.gui.transcript.safe_text import make_safe_text, safe_tooltip
from helix_desktop.gui.transcript.transcript_canvas import STEP, TranscriptCanvas
from helix_desktop.gui.transcript.transcript_item import TranscriptItem, TranscriptItemKind, item_source_text
from helix_desktop.gui.transcript.transcript_selection import copy_selection_text
from helix_desktop.gui.translation import tr

_OPENED = ("http://", "https://", "mailto:")
_MOVES = {
    Qt.Key.Key_Left: (0, -1),
    Qt.Key.Key_Right: (0, 1),
    Qt.Key.Key_Up: (-1, 0),
    Qt.Key.Key_Down: (1, 0),
}


class TranscriptView(TranscriptCanvas):
    """Emits `intent_requested` with a value of `chat_intents`."""

    intent_requested = Signal(object)
    find_wanted = Signal()

    def __init__(self, theme: Theme, content: FetchedTranscriptContent, parent: QWidget | None = None) -> None:
        super().__init__(theme, content, parent)
        self._pressed: HotSpot | None = None
        self._pointed: HotSpot | None = None
        self._press_at = QPoint()
        self._dragging = False
        self._clicks = 0
        self._drag_to = QPoint()
        self._pull = QTimer(self, interval=30)
        self._pull.timeout.connect(self._scroll_while_dragging)
        self._again = QTimer(self, interval=QApplication.doubleClickInterval(), singleShot=True)
        self._again.timeout.connect(self._reset_click_count)
        self.viewport().setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setCursor(Qt.CursorShape.IBeamCursor)
        self.reply_finished.connect(self.speak_to_screen_reader)
        self._over = -1  # the item under the pointer
        self._bar: tuple[object, HoverBar] | None = None

    def show_history(self, history: ConversationState) -> None:
        self._over, self._bar = -1, None
        super().show_history(history)

    def intent_rect(self, want: ChatIntent) -> QRect:
        """The rectangle in the viewport whose click requests this intent; empty if there is none."""
        for index, spot in self._visible_hot_spots():
            laid = self.column.existing_layout(index)
            if laid is not None and spot.box != BAR and laid.hot_spot_and_rect(spot)[0].act == want:
                return self.rect_in_viewport(index, laid.hot_spot_and_rect(spot)[1]).toRect()
        return QRect()

    # --- the bar of a message

    def hover_bar_of(self, index: int) -> HoverBar | None:
        """What can be done with a message; None where the item is none, or is hidden."""
        there = 0 <= index < len(self.items.all) and not self.items.is_item_hidden(index)
        if not there or not has_hover_bar(self.items.all[index]):
            return None
        item, ink = self.items.all[index], self.column.page.ink
        key = (index, item, ink, self.items.answer_choice_of(index))
        if self._bar is None or self._bar[0] != key:
            words = format_message_time(item.recorded.time) if item.recorded else ""
            self._bar = (key, HoverBar(ink, words, list_hover_bar_buttons(self.items, index)))
        return self._bar[1]

    def hover_bar_rect(self, index: int, bar: HoverBar) -> QRectF:
        laid = self.column.existing_layout(index)
        height = float(laid.current_height) if laid is not None else 0.0
        message = self.rect_in_viewport(index, QRectF(0, 0, self.column.page.width, height))
        return QRectF(position_of_hover_bar(bar, message), QSizeF(bar.width, bar.height))

    @property
    def _item_with_hover_bar(self) -> int:
        """The item whose bar is shown: where the keyboard is, else under the pointer."""
        by_key = self._spot[0] if self._spot is not None and self.hasFocus() and self._spot[1].box == BAR else -1
        return by_key if by_key >= 0 else self._over

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        index = self._item_with_hover_bar
        bar = self.hover_bar_of(index)
        self._floated = self._floating_rect()
        if bar is None:
            return
        painter = QPainter(self.viewport())
        place = self.hover_bar_rect(index, bar)
        painter.translate(place.topLeft())
        bar.draw_hover_bar(painter, self._focused_hot_spot() if self._spot is not None else self._pointed)
        painter.end()

    def _floating_rect(self) -> QRect:
        bar = self.hover_bar_of(self._item_with_hover_bar)
        return self.hover_bar_rect(self._item_with_hover_bar, bar).toAlignedRect() if bar is not None else QRect()

    # --- selecting and copying

    def select_all_items(self) -> None:
        last = len(self.items.all) - 1
        if last >= 0:
            self.selection.set_both_ends(
                TextPosition(0, 0), TextPosition(last, self.column.full_layout(last).end_offset)
            )
            self.viewport().update()

    def copy_selected_items(self, *, markdown: bool = False) -> None:
        text = copy_selection_text(self.selection, self.items, self.column.full_layout, markdown=markdown)
        if text:
            QGuiApplication.clipboard().setText(text)

    def selected_text(self) -> str:
        return copy_selection_text(self.selection, self.items, self.column.full_layout, markdown=False)

    def transcript_position_at(self, point: QPoint | QPointF) -> TextPosition:
        index, inner = self.item_under(point)
        if index < 0:
            return NO_POSITION
        return TextPosition(index, self.column.full_layout(index).text_offset_at(inner))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton:
            return
        point = event.position().toPoint()
        self._press_at, self._dragging, self._spot = point, False, None
        self._pressed = self._hot_spot_at(point)
        self._clicks += 1
        self._again.start()
        place = self.transcript_position_at(point)
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and self.selection.anchor.number >= 0:
            self.selection.caret = place
        elif self._clicks >= 2 and self._pressed is None and place.number >= 0:
            laid = self.column.full_layout(place.number)
            first, last = (
                laid.word_range_in_text(place.offset) if self._clicks == 2 else laid.paragraph_range_at(place.offset)
            )
            self.selection.set_both_ends(TextPosition(place.number, first), TextPosition(place.number, last))
        else:
            self.selection.set_both_ends(place)
        self.viewport().update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        point = event.position().toPoint()
        if not event.buttons() & Qt.MouseButton.LeftButton:
            self._update_hover(point)
            return
        if (point - self._press_at).manhattanLength() >= QApplication.startDragDistance():
            self._dragging = True
        if self._dragging and self.selection.anchor.number >= 0:
            self._drag_to = point
            self.selection.caret = self.transcript_position_at(point)
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
        if self._hot_spot_at(event.position().toPoint()) == pressed:
            self.perform_box_action(pressed.act)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.mousePressEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        by = event.pixelDelta().x() or event.angleDelta().x() // 2
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and not by:
            by = event.angleDelta().y() // 2
        if by and abs(by) > abs(event.pixelDelta().y()):
            box = self._code_box_at(event.position())
            if box is not None and box.scroll_sideways(-float(by)):
                self.viewport().update()
            event.accept()
            return
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            event.ignore()  # The window handles Ctrl and the wheel: it changes the text size.
            return
        super().wheelEvent(event)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Leave:
            self._near, self._over, self._pointed = None, -1, None
            self.viewport().update()
        return super().viewportEvent(event)

    def _update_hover(self, point: QPoint) -> None:
        hot = self._hot_spot_at(point)
        shape = Qt.CursorShape.PointingHandCursor if hot else Qt.CursorShape.IBeamCursor
        if self.viewport().cursor().shape() != shape:
            self.viewport().setCursor(shape)
        index, inner = self.item_under(point)
        if (index, hot) != (self._over, self._pointed):
            self._over, self._pointed = index, hot
            self.viewport().update()
        laid = self.column.existing_layout(index) if index >= 0 else None
        near = laid.boxes[laid.nearest_box(inner)[0]] if laid is not None and laid.boxes else None
        if near is not self._near:
            self._near = near
            self.viewport().update()
        self.viewport().setToolTip(self._hot_spot_tooltip(hot))

    def _hot_spot_tooltip(self, hot: HotSpot | None) -> str:
        """Where a link leads, and what a picture on the bar does."""
        if hot is not None and isinstance(hot.act, LinkAddress):
            return safe_tooltip(hot.act.address[:500])
        bar = self.hover_bar_of(self._over)
        return hot.name if hot is not None and bar is not None and hot in bar.hot_spots else ""

    def _hot_spot_at(self, point: QPoint) -> HotSpot | None:
        if (bar := self.hover_bar_of(self._over)) is not None:
            place = self.hover_bar_rect(self._over, bar)
            if place.contains(point):
                return bar.find_hot_spot(QPointF(point) - place.topLeft())
        index, inner = self.item_under(point)
        laid = self.column.existing_layout(index) if index >= 0 else None
        return laid.hot_spot_at(inner) if laid is not None else None

    def _code_box_at(self, point: QPointF) -> CodeBox | None:
        index, inner = self.item_under(point)
        laid = self.column.existing_layout(index) if index >= 0 else None
        if laid is None or not laid.boxes:
            return None
        box = laid.boxes[laid.nearest_box(inner)[0]]
        return box if isinstance(box, CodeBox) else None

    def _scroll_while_dragging(self) -> None:
        beyond = self._drag_to.y() - (0 if self._drag_to.y() < 0 else self.viewport().height())
        bar = self.verticalScrollBar()
        self._set_following_end(following=False)
        bar.setValue(bar.value() + max(-120, min(120, beyond)))
        self.selection.caret = self.transcript_position_at(self._drag_to)
        self.viewport().update()

    def _reset_click_count(self) -> None:
        self._clicks = 0

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, modifiers = event.key(), event.modifiers()
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_selected_items()
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            self.select_all_items()
        elif event.matches(QKeySequence.StandardKey.Find):
            self.find_wanted.emit()
        elif _is_copy_markdown_key(event):
            self.copy_selected_items(markdown=True)
        elif modifiers & Qt.KeyboardModifier.ShiftModifier and key in (*_MOVES, Qt.Key.Key_Home, Qt.Key.Key_End):
            self._extend_selection(Qt.Key(key), whole=bool(modifiers & Qt.KeyboardModifier.ControlModifier))
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) and self._spot is not None:
            hot = self._focused_hot_spot()
            if hot is not None:
                self.perform_box_action(hot.act)
        elif key == Qt.Key.Key_Escape and not self.selection.is_empty_selection:
            self.selection.clear_selection()
            self.viewport().update()
        elif not self._move_along_hover_bar(Qt.Key(key)) and not self._scroll_by_key(Qt.Key(key)):
            event.ignore()

    def _move_along_hover_bar(self, key: Qt.Key) -> bool:
        """Left and right go from button to button."""
        if self._spot is None or self._spot[1].box != BAR or key not in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            return False
        bar = self.hover_bar_of(self._spot[0])
        if bar is not None:
            by = 1 if key == Qt.Key.Key_Right else -1
            self._spot = (self._spot[0], HotSpotIndex(BAR, (self._spot[1].hot + by) % len(bar.hot_spots)))
            self._announce_focused_hot_spot()
            self.viewport().update()
        return True

    def _scroll_by_key(self, key: Qt.Key) -> bool:
        bar = self.verticalScrollBar()
        page = self.viewport().height() - STEP
        steps = {Qt.Key.Key_Up: -STEP, Qt.Key.Key_Down: STEP, Qt.Key.Key_PageUp: -page, Qt.Key.Key_PageDown: page}
        if key == Qt.Key.Key_End:
            self.jump_to_end()
        elif key == Qt.Key.Key_Home:
            self._set_following_end(following=False)
            self._lay_out_and_draw(0)
        elif key in steps:
            wanted = bar.value() + steps[key]
            self._set_following_end(following=wanted >= bar.maximum() and steps[key] > 0)
            bar.setValue(wanted)
        else:
            return False
        return True

    def _extend_selection(self, key: Qt.Key, *, whole: bool) -> None:
        """Move the end of the selection: by a character, a line, to the start or end of an item or of all."""
        if self.selection.anchor.number < 0:
            first = next(iter(self.column.visible_items(self.verticalScrollBar().value(), 1)), -1)
            self.selection.set_both_ends(TextPosition(first, 0))
        caret = self.selection.caret
        if caret.number < 0:
            return
        laid = self.column.full_layout(caret.number)
        if key in (Qt.Key.Key_Home, Qt.Key.Key_End):
            last = len(self.items.all) - 1
            ends = (
                (TextPosition(0, 0), TextPosition(last, self.column.full_layout(last).end_offset))
                if whole
                else (TextPosition(caret.number, 0), TextPosition(caret.number, laid.end_offset))
            )
            self.selection.caret = ends[key == Qt.Key.Key_End]
        else:
            lines, signs = _MOVES[key]
            self.selection.caret = (
                self._move_caret_by_line(caret, lines)
                if lines
                else self._move_caret_by_character(caret, signs, laid.end_offset)
            )
        self._scroll_to_caret()

    def _move_caret_by_character(self, caret: TextPosition, by: int, length: int) -> TextPosition:
        if 0 <= caret.offset + by <= length:
            return TextPosition(caret.number, caret.offset + by)
        index = self._next_visible_item(caret.number, by)
        return (
            TextPosition(index, 0 if by > 0 else self.column.full_layout(index).end_offset)
            if index != caret.number
            else caret
        )

    def _move_caret_by_line(self, caret: TextPosition, by: int) -> TextPosition:
        laid = self.column.full_layout(caret.number)
        where = laid.caret_rect_at(caret.offset)
        y = where.center().y() + by * where.height()
        if laid.vertical_padding <= y <= laid.current_height - laid.vertical_padding:
            return TextPosition(caret.number, laid.text_offset_at(QPointF(where.x(), y)))
        index = self._next_visible_item(caret.number, by)
        if index == caret.number:
            return TextPosition(index, laid.end_offset if by > 0 else 0)
        other = self.column.full_layout(index)
        return TextPosition(
            index,
            other.text_offset_at(
                QPointF(
                    where.x(),
                    other.vertical_padding + 1 if by > 0 else other.current_height - other.vertical_padding - 1,
                )
            ),
        )

    def _next_visible_item(self, index: int, by: int) -> int:
        beyond = index + by
        while 0 <= beyond < len(self.items.all) and self.items.is_item_hidden(beyond):
            beyond += by
        return beyond if 0 <= beyond < len(self.items.all) else index

    def _scroll_to_caret(self) -> None:
        caret = self.selection.caret
        place = self.rect_in_viewport(caret.number, self.column.full_layout(caret.number).caret_rect_at(caret.offset))
        bar = self.verticalScrollBar()
        if place.top() < 0:
            self._set_following_end(following=False)
            bar.setValue(int(bar.value() + place.top() - STEP))
        elif place.bottom() > self.viewport().height():
            bar.setValue(int(bar.value() + place.bottom() - self.viewport().height() + STEP))
        self.viewport().update()

    def focusNextPrevChild(self, forward: bool) -> bool:  # noqa: FBT001 - Qt's signature
        """Tab walks through what can be clicked in sight, then leaves."""
        spots = self._visible_hot_spots()
        here = self._spot
        if here is not None and here[1].box == BAR:
            here = (here[0], HotSpotIndex(BAR, 0))  # the bar is one tab stop; arrows move along it
        now = spots.index(here) if here in spots else (-1 if forward else len(spots))
        beyond = now + (1 if forward else -1)
        if not 0 <= beyond < len(spots):
            self._spot = None
            self.viewport().update()
            return super().focusNextPrevChild(forward)
        self._spot = spots[beyond]
        self._announce_focused_hot_spot()
        self.viewport().update()
        return True

    def _visible_hot_spots(self) -> list[tuple[int, HotSpotIndex]]:
        return [
            (index, spot)
            for index in self.column.visible_items(self.verticalScrollBar().value(), self.viewport().height())
            if (laid := self.column.existing_layout(index)) is not None
            for spot in (
                *laid.list_hot_spots(),
                *([HotSpotIndex(BAR, 0)] if has_hover_bar(self.items.all[index]) else ()),
            )
        ]

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Tab that leads here leads to what can be clicked first, or last."""
        super().focusInEvent(event)
        if (
            event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
            and self._visible_hot_spots()
        ):
            self._spot = None
            self.focusNextPrevChild(event.reason() is Qt.FocusReason.TabFocusReason)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.viewport().update()

    def _announce_focused_hot_spot(self) -> None:
        hot = self._focused_hot_spot()
        if hot is None or self._spot is None:
            return
        laid = self.column.existing_layout(self._spot[0])
        if laid is not None and self._spot[1].box != BAR:
            place = self.rect_in_viewport(self._spot[0], laid.hot_spot_and_rect(self._spot[1])[1])
            if place.top() < 0 or place.bottom() > self.viewport().height():
                self._set_following_end(following=False)
                self.verticalScrollBar().setValue(int(self.verticalScrollBar().value() + place.top() - STEP))
        self.speak_to_screen_reader(hot.name)

    def _focused_hot_spot(self) -> HotSpot | None:
        if self._spot is None:
            return None
        index, spot = self._spot
        if spot.box == BAR:
            bar = self.hover_bar_of(index)
            return bar.hot_spots[min(spot.hot, len(bar.hot_spots) - 1)] if bar is not None else None
        laid = self.column.existing_layout(index)
        return laid.hot_spot_and_rect(spot)[0] if laid is not None and spot in laid.list_hot_spots() else None

    def perform_box_action(self, act: BoxAction) -> None:
        if isinstance(act, ToggleSection):
            self._toggle_section(act)
        elif isinstance(act, CopyText):
            QGuiApplication.clipboard().setText(act.text)
            QToolTip.showText(self.cursor().pos(), tr("Copied"), self)
            self.speak_to_screen_reader(tr("Copied"))
        elif isinstance(act, LinkAddress):
            self._ask_to_open_link(act.address)
        else:
            self.intent_requested.emit(act)

    def _toggle_section(self, act: ToggleSection) -> None:
        opened = self.column.page.section_amounts
        if act.key[-2:-1] in (("rewound",), ("group",)):
            change = self.items.toggle_rewound_items if act.key[-2] == "rewound" else self.items.toggle_call_group
            y = self.verticalScrollBar().value()
            self.column.apply_item_changes(change(int(str(act.key[-1]))))
            self._set_following_end(following=False)
            self._lay_out_and_draw(y)
            return
        default = act.key[0] == "live" or self._is_plan_section(act)
        opened[act.key] = (
            opened.get(act.key, 0) + act.extra_lines if act.extra_lines else int(not opened.get(act.key, int(default)))
        )
        y = self.verticalScrollBar().value()
        self.column.discard_layouts_of(frozenset(TranscriptItemKind))
        self._set_following_end(following=False)
        self._lay_out_and_draw(y)

    def _is_plan_section(self, act: ToggleSection) -> bool:
        seq = act.key[1] if len(act.key) > 1 else 0
        index = self.items.item_of_fact(seq) if isinstance(seq, int) else -1
        return index >= 0 and self.items.all[index].kind is TranscriptItemKind.PLAN

    def _ask_to_open_link(self, address: str) -> None:
        """A link is shown as it is before anything is opened."""
        shown = exact_text.mark_on_one_line(address)
        if not address.lower().startswith(_OPENED):
            QGuiApplication.clipboard().setText(address)
            QToolTip.showText(self.cursor().pos(), safe_tooltip(tr("Copied: {address}", address=shown[:200])), self)
            return
        text = "\n\n".join([tr("Open this link in your browser?"), shown])
        ways = [
            (tr("Open"), partial(self.intent_requested.emit, OpenLink(address))),
            (tr("Copy link"), partial(QGuiApplication.clipboard().setText, address)),
        ]
        ask_which_way(self, tr("Open a link"), text, "", ways)

    def speak_to_screen_reader(self, text: str) -> None:
        if QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, make_safe_text(text[:2_000])))

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        index, _ = self.item_under(self.viewport().mapFromGlobal(event.globalPos()))
        menu = build_popup_menu(self)
        copying = menu.addAction(tr("Copy"), self.copy_selected_items)
        as_markdown = menu.addAction(tr("Copy as Markdown"), lambda: self.copy_selected_items(markdown=True))
        copying.setEnabled(not self.selection.is_empty_selection)
        as_markdown.setEnabled(not self.selection.is_empty_selection)
        menu.addAction(tr("Select all"), self.select_all_items)
        if index >= 0 and has_hover_bar(self.items.all[index]):
            menu.addAction(
                tr("Copy message"), lambda: self.perform_box_action(CopyText(item_source_text(self.items.all[index])))
            )
        if index >= 0 and (wants := self.intents_for_item(index)):
            menu.addSeparator()
            for words, want in wants:
                menu.addAction(words, partial(self.intent_requested.emit, want))
        menu.popup(event.globalPos())

    def intents_for_item(self, index: int) -> list[tuple[str, ChatIntent]]:
        item = self.items.all[index]
        if item.recorded is None:
            return []
        found: list[tuple[str, ChatIntent]] = []
        if item.kind is TranscriptItemKind.USER:
            found.append((tr("Edit and resend…"), EditMessage(item.fact_seq)))
        if item.kind is TranscriptItemKind.REPLY:
            found.append((tr("Regenerate"), RegenerateAnswer(item.fact_seq)))
            found.append((tr("What the model saw"), ShowRequest(item.fact_seq)))
        found.append((tr("Fork from here"), ForkConversation(item.fact_seq)))
        found.append((tr("Rewind to here…"), RewindConversation(item.fact_seq)))
        ref = self._part_ref_of(index, item)
        if ref is not None:
            pinned = ref in self.items.history.branch.pins
            found.append((tr("Unpin") if pinned else tr("Pin: never fold"), UnpinPart(ref) if pinned else PinPart(ref)))
        return found

    def _part_ref_of(self, index: int, item: TranscriptItem) -> PartRef | None:
        if item.kind is TranscriptItemKind.CALL:
            state = self.items.tool_call_state(index)
            return PartRef(state.returned_seq) if isinstance(state.returned, ToolReturned) else None
        if isinstance(item.source_fact, UserSaid):
            return PartRef(item.fact_seq, 0)
        return PartRef(item.fact_seq, item.part) if isinstance(item.source_fact, ModelReplied) else None


def _is_copy_markdown_key(event: QKeyEvent) -> bool:
    wanted = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    return event.key() == Qt.Key.Key_C and event.modifiers() == wanted
