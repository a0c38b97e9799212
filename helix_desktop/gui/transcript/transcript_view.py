"""What the user can do in the chat: select, copy, click, use the keyboard, open a menu,
follow a link.
"""

from functools import partial

from PySide6 import QtGui
from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, QSizeF, Qt, Signal
from PySide6.QtWidgets import QToolTip, QWidget

from helix_desktop.engine import hidden_characters
from helix_desktop.engine.view import ConversationState
from helix_desktop.gui.common.text_selection import NO_POSITION, TextPosition
from helix_desktop.gui.common.widgets import build_popup_menu
from helix_desktop.gui.question_dialogs import ask_to_choose_one
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript import chat_actions, message_bar
from helix_desktop.gui.transcript.basic_boxes import (
    BoxAction,
    CopyText,
    HotSpot,
    LayoutBox,
    LinkAddress,
    ToggleSection,
)
from helix_desktop.gui.transcript.box_stack import HotSpotIndex
from helix_desktop.gui.transcript.chat_actions import ActOnMessage, MessageAct
from helix_desktop.gui.transcript.code_box import CodeBox
from helix_desktop.gui.transcript.content_fetching import FetchedTranscriptContent
from helix_desktop.gui.transcript.item_column import ItemColumn
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.transcript.selectable_text_area import STEP, HotSpotPlace
from helix_desktop.gui.transcript.transcript_canvas import TranscriptCanvas
from helix_desktop.gui.transcript.transcript_item import TranscriptItemKind, item_source_text
from helix_desktop.gui.transcript.transcript_selection import build_selected_text
from helix_desktop.gui.translation import tr

_OPENED = ("http://", "https://", "mailto:")


class TranscriptView(TranscriptCanvas):
    """Emits `intent_requested` with a value of `chat_actions`."""

    find_wanted = Signal()

    def __init__(
        self, theme: Theme, content: FetchedTranscriptContent, parent: QWidget | None = None
    ) -> None:
        super().__init__(theme, content, parent)
        self._pointed: HotSpot | None = None
        self.reply_finished.connect(self.speak_to_screen_reader)
        self._over = -1  # The item under the pointer.
        self._bar: tuple[object, message_bar.HoverBar] | None = None

    def show_history(self, history: ConversationState) -> None:
        self._over, self._bar = -1, None
        super().show_history(history)

    def hot_spot_rect_of(self, want: chat_actions.ChatIntent) -> QRect:
        """The rectangle in the viewport whose click requests this intent; empty if
        there is none.
        """
        for index, spot in self.visible_hot_spots():
            laid = self.column.existing_layout(index)
            if (
                laid is not None
                and spot.box != message_bar.BAR
                and laid.hot_spot_and_rect(spot)[0].act == want
            ):
                return self.rect_in_viewport(index, laid.hot_spot_and_rect(spot)[1]).toRect()
        return QRect()

    def hover_bar_of(self, index: int) -> message_bar.HoverBar | None:
        """Returns the bar of a message, or None if the item has none or is hidden."""
        there = 0 <= index < len(self.items.all) and not self.items.is_item_hidden(index)
        if not there or not message_bar.has_hover_bar(self.items.all[index]):
            return None
        item, ink = self.items.all[index], self.column.page.ink
        key = (index, item, ink, self.items.answer_choice_of(index))
        if self._bar is None or self._bar[0] != key:
            words = message_bar.format_message_time(item.recorded.time) if item.recorded else ""
            intents = list_item_intents(self.items, index)
            buttons = message_bar.list_hover_bar_buttons(self.items, index, intents)
            self._bar = (key, message_bar.HoverBar(ink, words, buttons))
        return self._bar[1]

    def hover_bar_rect(self, index: int, bar: message_bar.HoverBar) -> QRectF:
        laid = self.column.existing_layout(index)
        height = float(laid.current_height) if laid is not None else 0.0
        message = self.rect_in_viewport(index, QRectF(0, 0, self.column.page.width, height))
        return QRectF(
            message_bar.position_of_hover_bar(bar, message), QSizeF(bar.width, bar.height)
        )

    @property
    def _item_with_hover_bar(self) -> int:
        """Returns the item whose bar is shown: the one with the focus, or else under
        the pointer.
        """
        if self._spot is not None and self.hasFocus() and self._spot[1].box == message_bar.BAR:
            return self._spot[0]
        return self._over

    def paintEvent(self, event: QtGui.QPaintEvent) -> None:
        super().paintEvent(event)
        index = self._item_with_hover_bar
        bar = self.hover_bar_of(index)
        self._floated = self._overlay_rect()
        if bar is None:
            return
        painter = QtGui.QPainter(self.viewport())
        painter.translate(self.hover_bar_rect(index, bar).topLeft())
        if self._spot is not None and self.hasFocus():
            bar.draw_hover_bar(painter, self._focused_hot_spot(), "accent")
        else:
            bar.draw_hover_bar(painter, self._pointed, "selected")
        painter.end()

    def _overlay_rect(self) -> QRect:
        bar = self.hover_bar_of(self._item_with_hover_bar)
        return (
            self.hover_bar_rect(self._item_with_hover_bar, bar).toAlignedRect()
            if bar is not None
            else QRect()
        )

    # --- Selecting and copying text

    def select_all_text(self) -> None:
        if (last := len(self.items.all) - 1) >= 0:
            end = TextPosition(last, self.column.lay_out_fully(last).end_offset)
            self.selection.set_both_ends(TextPosition(0, 0), end)
            self.viewport().update()

    def copy_selected_as_markdown(self) -> None:
        if text := build_selected_text(
            self.selection, self.items, self.column.lay_out_fully, markdown=True
        ):
            QtGui.QGuiApplication.clipboard().setText(text)

    def selected_text(self) -> str:
        return build_selected_text(
            self.selection, self.items, self.column.lay_out_fully, markdown=False
        )

    def text_position_at(self, point: QPoint) -> TextPosition:
        index, inner = self.item_and_point_under(point)
        if index < 0:
            return NO_POSITION
        return TextPosition(index, self.column.lay_out_fully(index).text_offset_at(inner))

    def word_or_paragraph_at(self, place: TextPosition, *, paragraph: bool) -> tuple[int, int]:
        return self.column.lay_out_fully(place.number).word_or_paragraph_at(
            place.offset, paragraph=paragraph
        )

    def wheelEvent(self, event: QtGui.QWheelEvent) -> None:
        by = event.pixelDelta().x() or event.angleDelta().x() // 2
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and not by:
            by = event.angleDelta().y() // 2
        if by and abs(by) > abs(event.pixelDelta().y()):
            box = self.nearest_box_at_point(event.position().toPoint())
            if isinstance(box, CodeBox) and box.scroll_sideways(-float(by)):
                self.viewport().update()
            event.accept()
            return
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            event.ignore()  # With Ctrl, the wheel changes the text size. The window does that.
            return
        super().wheelEvent(event)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Leave:
            self._over, self._pointed = -1, None
        return super().viewportEvent(event)

    def update_hover(self, point: QPoint) -> None:
        super().update_hover(point)
        hot, index = self.hot_spot_at_point(point), self.item_and_point_under(point)[0]
        if (index, hot) != (self._over, self._pointed):
            self._over, self._pointed = index, hot
            self.viewport().update()
        self.viewport().setToolTip(self._hot_spot_tooltip(hot))

    def _hot_spot_tooltip(self, hot: HotSpot | None) -> str:
        """Returns the address of a link, or the meaning of an icon on the bar."""
        if hot is not None and isinstance(hot.act, LinkAddress):
            return safe_tooltip(hot.act.address[:500])
        bar = self.hover_bar_of(self._over)
        return hot.name if hot is not None and bar is not None and hot in bar.hot_spots else ""

    def hot_spot_at_point(self, point: QPoint) -> HotSpot | None:
        if (bar := self.hover_bar_of(self._over)) is not None:
            place = self.hover_bar_rect(self._over, bar)
            if place.contains(point):
                return bar.find_hot_spot(QPointF(point) - place.topLeft())
        index, inner = self.item_and_point_under(point)
        laid = self.column.existing_layout(index) if index >= 0 else None
        return laid.hot_spot_at(inner) if laid is not None else None

    def nearest_box_at_point(self, point: QPoint) -> LayoutBox | None:
        index, inner = self.item_and_point_under(point)
        laid = self.column.existing_layout(index) if index >= 0 else None
        return (
            laid.boxes[laid.nearest_box_and_inner_place(inner)[0]]
            if laid is not None and laid.boxes
            else None
        )

    def update_following_for_scroll(self, wanted: int) -> None:
        bar = self.verticalScrollBar()
        self.scrolling.set_following_end(
            following=wanted >= bar.maximum() and wanted >= bar.value()
        )

    def keyPressEvent(self, event: QtGui.QKeyEvent) -> None:
        if event.matches(QtGui.QKeySequence.StandardKey.Find):
            self.find_wanted.emit()
        elif QtGui.QKeySequence(event.keyCombination()) == QtGui.QKeySequence("Ctrl+Shift+C"):
            self.copy_selected_as_markdown()
        elif event.key() == Qt.Key.Key_Escape and not self.selection.is_empty_selection:
            self.selection.clear_selection()
            self.viewport().update()
        elif not self._move_along_hover_bar(Qt.Key(event.key())):
            super().keyPressEvent(event)

    def _move_along_hover_bar(self, key: Qt.Key) -> bool:
        if (
            self._spot is None
            or self._spot[1].box != message_bar.BAR
            or key not in (Qt.Key.Key_Left, Qt.Key.Key_Right)
        ):
            return False
        if (bar := self.hover_bar_of(self._spot[0])) is not None:
            by = 1 if key == Qt.Key.Key_Right else -1
            self._spot = (
                self._spot[0],
                HotSpotIndex(message_bar.BAR, (self._spot[1].hot + by) % len(bar.hot_spots)),
            )
            self._scroll_to_and_announce_focused_hot_spot()
            self.viewport().update()
        return True

    def move_selection_end(self, key: Qt.Key, *, whole: bool) -> bool:
        """Moves the end of the selection by a character or line, or to the start or end
        of an item or of the chat.
        """
        if key not in CARET_KEYS:
            return False
        if self.selection.anchor.number < 0:
            first = next(iter(self.column.visible_items(self.verticalScrollBar().value(), 1)), -1)
            self.selection.set_both_ends(TextPosition(first, 0))
        caret = self.selection.caret
        if caret.number < 0:
            return True
        self.selection.caret = move_caret(self.column, caret, key, whole=whole)
        self._scroll_to_caret()
        return True

    def _scroll_to_caret(self) -> None:
        caret = self.selection.caret
        place = self.rect_in_viewport(
            caret.number, self.column.lay_out_fully(caret.number).caret_rect_at(caret.offset)
        )
        bar = self.verticalScrollBar()
        if place.top() < 0:
            self.scrolling.set_following_end(following=False)
            bar.setValue(int(bar.value() + place.top() - STEP))
        elif place.bottom() > self.viewport().height():
            bar.setValue(int(bar.value() + place.bottom() - self.viewport().height() + STEP))
        self.viewport().update()

    def tab_stop_of(self, spot: HotSpotPlace | None) -> HotSpotPlace | None:
        """The bar of a message is one stop, in which the arrow keys move."""
        return (
            (spot[0], HotSpotIndex(message_bar.BAR, 0))
            if spot and spot[1].box == message_bar.BAR
            else spot
        )

    def visible_hot_spots(self) -> list[HotSpotPlace]:
        return [
            (index, spot)
            for index in self.column.visible_items(
                self.verticalScrollBar().value(), self.viewport().height()
            )
            if (laid := self.column.existing_layout(index)) is not None
            for spot in (
                *laid.list_hot_spots(),
                *(
                    [HotSpotIndex(message_bar.BAR, 0)]
                    if message_bar.has_hover_bar(self.items.all[index])
                    else ()
                ),
            )
        ]

    def hot_spot_in_viewport(self, spot: HotSpotPlace) -> tuple[HotSpot, QRectF] | None:
        index, inner = spot
        if inner.box == message_bar.BAR:  # The bar is always visible, so its place is not needed.
            bar = self.hover_bar_of(index)
            return (
                (bar.hot_spots[min(inner.hot, len(bar.hot_spots) - 1)], QRectF())
                if bar is not None
                else None
            )
        laid = self.column.existing_layout(index)
        if laid is None or inner not in laid.list_hot_spots():
            return None
        hot, place = laid.hot_spot_and_rect(inner)
        return hot, self.rect_in_viewport(index, place)

    def perform_box_action(self, act: BoxAction) -> None:
        if isinstance(act, ToggleSection):
            y = self.verticalScrollBar().value()
            self.column.toggle_section(act)
            self.scrolling.set_following_end(following=False)
            self._lay_out_and_draw(y)
        elif isinstance(act, LinkAddress):
            self._ask_to_open_link(act.address)
        else:
            super().perform_box_action(act)

    def _ask_to_open_link(self, address: str) -> None:
        """Shows the address of a link before anything is opened."""
        shown = hidden_characters.mark_on_one_line(address)
        if not address.lower().startswith(_OPENED):
            QtGui.QGuiApplication.clipboard().setText(address)
            QToolTip.showText(
                self.cursor().pos(),
                safe_tooltip(tr("Copied: {address}", address=shown[:200])),
                self,
            )
            return
        text = "\n\n".join([tr("Open this link in your browser?"), shown])
        ways = [
            (tr("Open"), partial(self.intent_requested.emit, chat_actions.OpenLink(address))),
            (tr("Copy link"), partial(QtGui.QGuiApplication.clipboard().setText, address)),
        ]
        ask_to_choose_one(self, tr("Open a link"), text, "", ways)

    def contextMenuEvent(self, event: QtGui.QContextMenuEvent) -> None:
        index, _ = self.item_and_point_under(self.viewport().mapFromGlobal(event.globalPos()))
        menu = build_popup_menu(self)
        chosen = not self.selection.is_empty_selection
        menu.addAction(tr("Copy"), self.copy_selected_text).setEnabled(chosen)
        menu.addAction(tr("Copy as Markdown"), self.copy_selected_as_markdown).setEnabled(chosen)
        menu.addAction(tr("Select all"), self.select_all_text)
        if index >= 0 and message_bar.has_hover_bar(self.items.all[index]):
            copy = CopyText(item_source_text(self.items.all[index]))
            menu.addAction(tr("Copy message"), partial(self.perform_box_action, copy))
        if index >= 0 and (wants := list_item_intents(self.items, index)):
            menu.addSeparator()
            for words, want in wants:
                menu.addAction(words, partial(self.intent_requested.emit, want))
        menu.popup(event.globalPos())


def list_item_intents(
    items: TranscriptItems, index: int
) -> list[tuple[str, chat_actions.ChatIntent]]:
    item = items.all[index]
    if item.recorded is None:
        return []
    found: list[tuple[str, chat_actions.ChatIntent]] = []
    if item.kind is TranscriptItemKind.USER:
        found.append((tr("Edit and resend…"), ActOnMessage(MessageAct.EDIT, item.fact_seq)))
    if item.kind is TranscriptItemKind.REPLY:
        found.append((tr("Regenerate"), ActOnMessage(MessageAct.REGENERATE, item.fact_seq)))
        found.append(
            (tr("What the model saw"), ActOnMessage(MessageAct.SHOW_REQUEST, item.fact_seq))
        )
    found.append((tr("Fork from here"), ActOnMessage(MessageAct.FORK, item.fact_seq)))
    found.append((tr("Rewind to here…"), ActOnMessage(MessageAct.REWIND, item.fact_seq)))
    ref = items.part_ref_of(index)
    if ref is not None:
        is_pinned = ref in items.history.branch.pins
        words = tr("Unpin") if is_pinned else tr("Pin: never shorten")
        found.append((words, chat_actions.PinPart(ref, is_pinned=not is_pinned)))
    return found


_STEPS = {
    Qt.Key.Key_Left: (0, -1),
    Qt.Key.Key_Right: (0, 1),
    Qt.Key.Key_Up: (-1, 0),
    Qt.Key.Key_Down: (1, 0),
}
CARET_KEYS = frozenset({*_STEPS, Qt.Key.Key_Home, Qt.Key.Key_End})


def move_caret(
    column: ItemColumn, caret: TextPosition, key: Qt.Key, *, whole: bool
) -> TextPosition:
    """Moves by a character or line, or to the start or end of the item, or of the
    conversation with `whole`.
    """
    if key == Qt.Key.Key_Home:
        return TextPosition(0 if whole else caret.number, 0)
    if key == Qt.Key.Key_End:
        last = len(column.page.items.all) - 1 if whole else caret.number
        return TextPosition(last, column.lay_out_fully(last).end_offset)
    lines, letters = _STEPS[key]
    return (
        _move_by_line(column, caret, lines) if lines else _move_by_character(column, caret, letters)
    )


def _move_by_character(column: ItemColumn, caret: TextPosition, steps: int) -> TextPosition:
    if 0 <= caret.offset + steps <= column.lay_out_fully(caret.number).end_offset:
        return TextPosition(caret.number, caret.offset + steps)
    index = _next_visible_item(column, caret.number, steps)
    if index == caret.number:
        return caret
    return TextPosition(index, 0 if steps > 0 else column.lay_out_fully(index).end_offset)


def _move_by_line(column: ItemColumn, caret: TextPosition, steps: int) -> TextPosition:
    laid = column.lay_out_fully(caret.number)
    where = laid.caret_rect_at(caret.offset)
    y = where.center().y() + steps * where.height()
    if laid.vertical_padding <= y <= laid.current_height - laid.vertical_padding:
        return TextPosition(caret.number, laid.text_offset_at(QPointF(where.x(), y)))
    index = _next_visible_item(column, caret.number, steps)
    if index == caret.number:
        return TextPosition(index, laid.end_offset if steps > 0 else 0)
    other = column.lay_out_fully(index)
    inset = other.vertical_padding + 1
    y = inset if steps > 0 else other.current_height - inset
    return TextPosition(index, other.text_offset_at(QPointF(where.x(), y)))


def _next_visible_item(column: ItemColumn, index: int, steps: int) -> int:
    items, beyond = column.page.items, index + steps
    while 0 <= beyond < len(items.all) and items.is_item_hidden(beyond):
        beyond += steps
    return beyond if 0 <= beyond < len(items.all) else index
