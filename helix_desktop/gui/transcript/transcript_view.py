"""What the user can do in the chat: select, copy, click, use the keyboard, open a menu,
follow a link.
"""

from functools import partial

from PySide6 import QtGui
from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, QSizeF, Qt, Signal
from PySide6.QtWidgets import QMenu, QToolTip, QWidget

from helix_desktop.engine import hidden_characters
from helix_desktop.engine.facts import PartRef
from helix_desktop.engine.view import ConversationState
from helix_desktop.gui.common.text_selection import NO_POSITION, TextPosition
from helix_desktop.gui.common.widgets import build_popup_menu
from helix_desktop.gui.question_dialogs import DialogChoice, ask_to_choose_one
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
        self._over = -1
        self._bar = None
        super().show_history(history)

    def hot_spot_rect_of(self, want: chat_actions.ChatIntent) -> QRect:
        """The rectangle in the viewport whose click requests this intent; empty if
        there is none.
        """
        for index, spot in self.visible_hot_spots():
            layout = self.column.existing_layout(index)
            if layout is None or spot.box == message_bar.BAR:
                continue
            hot_spot, rect = layout.hot_spot_and_rect(spot)
            if hot_spot.act == want:
                return self.rect_in_viewport(index, rect).toRect()
        return QRect()

    def hover_bar_of(self, index: int) -> message_bar.HoverBar | None:
        """Returns the bar of a message, or None if the item has none or is hidden."""
        if not 0 <= index < len(self.items.all) or self.items.is_item_hidden(index):
            return None
        item = self.items.all[index]
        if item.recorded is None or not message_bar.has_hover_bar(item):
            return None
        ink = self.column.page.ink
        # The bar is asked for at each move of the pointer, so the last one is kept.
        key = (index, item, ink, self.items.answer_choice_of(index))
        if self._bar is not None:
            key_of_last_bar, last_bar = self._bar
            if key_of_last_bar == key:
                return last_bar
        time_words = message_bar.format_message_time(item.recorded.time)
        intents = list_item_intents(self.items, index)
        buttons = message_bar.list_hover_bar_buttons(self.items, index, intents)
        bar = message_bar.HoverBar(ink, time_words, buttons)
        self._bar = (key, bar)
        return bar

    def hover_bar_rect(self, index: int, bar: message_bar.HoverBar) -> QRectF:
        layout = self.column.existing_layout(index)
        height = 0.0
        if layout is not None:
            height = float(layout.current_height)
        message = self.rect_in_viewport(index, QRectF(0, 0, self.column.page.width, height))
        viewport_height = float(self.viewport().height())
        position = message_bar.position_of_hover_bar(bar, message, viewport_height)
        return QRectF(position, QSizeF(bar.width, bar.height))

    @property
    def _item_with_hover_bar(self) -> int:
        """Returns the item whose bar is shown: the one with the focus, or else under
        the pointer.
        """
        if self._spot is not None and self.hasFocus() and self._spot[1].box == message_bar.BAR:
            return self._spot[0]
        return self._over

    def paintEvent(self, event: QtGui.QPaintEvent) -> None:
        """Draws the conversation, and over it the buttons of the message under the
        pointer or with the keyboard focus.
        """
        super().paintEvent(event)
        index = self._item_with_hover_bar
        bar = self.hover_bar_of(index)
        self._floated = self._overlay_rect()
        if bar is None:
            return
        painter = QtGui.QPainter(self.viewport())
        painter.translate(self.hover_bar_rect(index, bar).topLeft())
        has_keyboard_focus = self._spot is not None and self.hasFocus()
        if has_keyboard_focus:
            bar.draw_hover_bar(painter, self._focused_hot_spot(), "accent")
        else:
            bar.draw_hover_bar(painter, self._pointed, "selected")
        painter.end()

    def _overlay_rect(self) -> QRect:
        index = self._item_with_hover_bar
        bar = self.hover_bar_of(index)
        if bar is None:
            return QRect()
        return self.hover_bar_rect(index, bar).toAlignedRect()

    # --- Selecting and copying text

    def select_all_text(self) -> None:
        if not self.items.all:
            return
        last = len(self.items.all) - 1
        end = TextPosition(last, self.column.lay_out_fully(last).end_offset)
        self.selection.set_both_ends(TextPosition(0, 0), end)
        self.viewport().update()

    def copy_selected_as_markdown(self) -> None:
        text = build_selected_text(
            self.selection, self.items, self.column.lay_out_fully, markdown=True
        )
        # Without a selection, what the clipboard holds stays.
        if text:
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
        sideways = _sideways_pixels(event)
        if abs(sideways) > abs(event.pixelDelta().y()):
            box = self.nearest_box_at_point(event.position().toPoint())
            if isinstance(box, CodeBox) and box.scroll_sideways(-float(sideways)):
                self.viewport().update()
            event.accept()
            return
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            event.ignore()  # With Ctrl, the wheel changes the text size. The window does that.
            return
        super().wheelEvent(event)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Leave:
            self._over = -1
            self._pointed = None
        return super().viewportEvent(event)

    def update_hover(self, point: QPoint) -> None:
        super().update_hover(point)
        hot_spot = self.hot_spot_at_point(point)
        index, _ = self.item_and_point_under(point)
        shown_bar = self.hover_bar_of(self._over)
        if shown_bar is not None and self.hover_bar_rect(self._over, shown_bar).contains(point):
            index = self._over  # The bar is in the gap to another message.
        if index != self._over or hot_spot != self._pointed:
            self._over = index
            self._pointed = hot_spot
            self.viewport().update()
        self.viewport().setToolTip(self._hot_spot_tooltip(hot_spot))

    def _hot_spot_tooltip(self, hot: HotSpot | None) -> str:
        """Returns the address of a link, or the meaning of an icon on the bar."""
        if hot is None:
            return ""
        if isinstance(hot.act, LinkAddress):
            return safe_tooltip(hot.act.address[:500])
        bar = self.hover_bar_of(self._over)
        if bar is not None and hot in bar.hot_spots:
            return hot.name
        return ""

    def hot_spot_at_point(self, point: QPoint) -> HotSpot | None:
        bar = self.hover_bar_of(self._over)
        if bar is not None:  # The bar covers what is under it.
            place = self.hover_bar_rect(self._over, bar)
            if place.contains(point):
                return bar.find_hot_spot(QPointF(point) - place.topLeft())
        index, inner = self.item_and_point_under(point)
        if index < 0:
            return None
        layout = self.column.existing_layout(index)
        if layout is None:
            return None
        return layout.hot_spot_at(inner)

    def nearest_box_at_point(self, point: QPoint) -> LayoutBox | None:
        index, inner = self.item_and_point_under(point)
        if index < 0:
            return None
        layout = self.column.existing_layout(index)
        if layout is None or not layout.boxes:
            return None
        box_number, _ = layout.nearest_box_and_inner_place(inner)
        return layout.boxes[box_number]

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
        """Moves the keyboard focus to the next button of a message's bar, from the last
        one to the first. Returns whether the key did that.
        """
        if self._spot is None:
            return False
        index, focused = self._spot
        if focused.box != message_bar.BAR:
            return False
        if key == Qt.Key.Key_Right:
            step = 1
        elif key == Qt.Key.Key_Left:
            step = -1
        else:
            return False
        bar = self.hover_bar_of(index)
        if bar is not None:
            next_button = (focused.hot + step) % len(bar.hot_spots)
            self._spot = (index, HotSpotIndex(message_bar.BAR, next_button))
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
            top_of_view = self.verticalScrollBar().value()
            visible_items = iter(self.column.visible_items(top_of_view, 1))
            first = next(visible_items, -1)
            self.selection.set_both_ends(TextPosition(first, 0))
        caret = self.selection.caret
        if caret.number < 0:
            return True
        self.selection.caret = move_caret(self.column, caret, key, whole=whole)
        self._scroll_to_caret()
        return True

    def _scroll_to_caret(self) -> None:
        caret = self.selection.caret
        layout = self.column.lay_out_fully(caret.number)
        rect_in_item = layout.caret_rect_at(caret.offset)
        place = self.rect_in_viewport(caret.number, rect_in_item)
        bar = self.verticalScrollBar()
        height_below_view = place.bottom() - self.viewport().height()
        if place.top() < 0:
            self.scrolling.set_following_end(following=False)
            bar.setValue(int(bar.value() + place.top() - STEP))
        elif height_below_view > 0:
            bar.setValue(int(bar.value() + height_below_view + STEP))
        self.viewport().update()

    def tab_stop_of(self, spot: HotSpotPlace | None) -> HotSpotPlace | None:
        """The bar of a message is one stop, in which the arrow keys move."""
        if spot is None:
            return None
        index, inner = spot
        if inner.box == message_bar.BAR:
            return index, HotSpotIndex(message_bar.BAR, 0)
        return spot

    def visible_hot_spots(self) -> list[HotSpotPlace]:
        hot_spots: list[HotSpotPlace] = []
        y = self.verticalScrollBar().value()
        for index in self.column.visible_items(y, self.viewport().height()):
            layout = self.column.existing_layout(index)
            if layout is None:
                continue
            for spot in layout.list_hot_spots():
                hot_spots.append((index, spot))
            if message_bar.has_hover_bar(self.items.all[index]):
                hot_spots.append((index, HotSpotIndex(message_bar.BAR, 0)))
        return hot_spots

    def hot_spot_in_viewport(self, spot: HotSpotPlace) -> tuple[HotSpot, QRectF] | None:
        index, inner = spot
        if inner.box == message_bar.BAR:  # The bar is always visible, so its place is not needed.
            bar = self.hover_bar_of(index)
            if bar is None:
                return None
            # The bar may have fewer buttons now than when it got the focus.
            button = min(inner.hot, len(bar.hot_spots) - 1)
            return bar.hot_spots[button], QRectF()
        layout = self.column.existing_layout(index)
        if layout is None or inner not in layout.list_hot_spots():
            return None
        hot_spot, place = layout.hot_spot_and_rect(inner)
        return hot_spot, self.rect_in_viewport(index, place)

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
        shown_address = hidden_characters.mark_on_one_line(address)
        clipboard = QtGui.QGuiApplication.clipboard()
        if not address.lower().startswith(_OPENED):
            clipboard.setText(address)
            tooltip = safe_tooltip(tr("Copied: {address}", address=shown_address[:200]))
            QToolTip.showText(self.cursor().pos(), tooltip, self)
            return
        question = tr("Open this link in your browser?")
        text = f"{question}\n\n{shown_address}"
        open_link = partial(self.intent_requested.emit, chat_actions.OpenLink(address))
        copy_link = partial(clipboard.setText, address)
        choices = [
            DialogChoice(tr("Open"), open_link),
            DialogChoice(tr("Copy link"), copy_link),
        ]
        ask_to_choose_one(self, tr("Open a link"), text, choices)

    def contextMenuEvent(self, event: QtGui.QContextMenuEvent) -> None:
        menu = build_popup_menu(self)
        has_selection = not self.selection.is_empty_selection
        copy_action = menu.addAction(tr("Copy"), self.copy_selected_text)
        copy_action.setEnabled(has_selection)
        markdown_action = menu.addAction(tr("Copy as Markdown"), self.copy_selected_as_markdown)
        markdown_action.setEnabled(has_selection)
        menu.addAction(tr("Select all"), self.select_all_text)
        index, _ = self.item_and_point_under(self.viewport().mapFromGlobal(event.globalPos()))
        if index >= 0:
            self._add_item_actions(menu, index)
        menu.popup(event.globalPos())

    def _add_item_actions(self, menu: QMenu, index: int) -> None:
        item = self.items.all[index]
        if message_bar.has_hover_bar(item):
            copy = CopyText(item_source_text(item))
            menu.addAction(tr("Copy message"), partial(self.perform_box_action, copy))
        intents = list_item_intents(self.items, index)
        if intents:
            menu.addSeparator()
        for words, intent in intents:
            menu.addAction(words, partial(self.intent_requested.emit, intent))


def _sideways_pixels(event: QtGui.QWheelEvent) -> int:
    # A touchpad reports pixels, a wheel eighths of a degree.
    pixels = event.pixelDelta().x() or event.angleDelta().x() // 2
    if not pixels and event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
        return event.angleDelta().y() // 2
    return pixels


def list_item_intents(
    items: TranscriptItems, index: int
) -> list[tuple[str, chat_actions.ChatIntent]]:
    """Returns what the menu of an item offers, each with its label."""
    item = items.all[index]
    # What is offered needs all of the conversation.
    if item.recorded is None or items.history.has_unknown_facts:
        return []
    seq = item.fact_seq
    intents: list[tuple[str, chat_actions.ChatIntent]] = []
    is_writable = not items.is_written_by_connected_agent
    if item.kind is TranscriptItemKind.USER and is_writable:
        intents.append((tr("Edit and resend…"), ActOnMessage(MessageAct.EDIT, seq)))
    if item.kind is TranscriptItemKind.REPLY and is_writable:
        intents.append((tr("Regenerate"), ActOnMessage(MessageAct.REGENERATE, seq)))
    # Another agent keeps its own context: what its model saw is not known, and it pins nothing.
    keeps_own_context = bool(items.history.acp_agent)
    if item.kind is TranscriptItemKind.REPLY and not keeps_own_context:
        intents.append((tr("What the model saw"), ActOnMessage(MessageAct.SHOW_REQUEST, seq)))
    intents.append((tr("Duplicate up to here"), ActOnMessage(MessageAct.FORK, seq)))
    if is_writable:
        intents.append((tr("Rewind to here…"), ActOnMessage(MessageAct.REWIND, seq)))

    part_ref = items.part_ref_of(index)
    if part_ref is not None and not keeps_own_context:
        is_pinned = part_ref in items.history.branch.pins
        intents.append(_build_pin_intent(part_ref, is_pinned=is_pinned))
    return intents


def _build_pin_intent(part_ref: PartRef, *, is_pinned: bool) -> tuple[str, chat_actions.ChatIntent]:
    if is_pinned:
        return tr("Unpin"), chat_actions.PinPart(part_ref, is_pinned=False)
    return tr("Pin: never shorten"), chat_actions.PinPart(part_ref)


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
        if whole:
            return TextPosition(0, 0)
        return TextPosition(caret.number, 0)
    if key == Qt.Key.Key_End:
        index = caret.number
        if whole:
            index = len(column.page.items.all) - 1
        return TextPosition(index, column.lay_out_fully(index).end_offset)
    lines, characters = _STEPS[key]
    if lines:
        return _move_by_line(column, caret, lines)
    return _move_by_character(column, caret, characters)


def _move_by_character(column: ItemColumn, caret: TextPosition, steps: int) -> TextPosition:
    if 0 <= caret.offset + steps <= column.lay_out_fully(caret.number).end_offset:
        return TextPosition(caret.number, caret.offset + steps)
    index = _next_visible_item(column, caret.number, steps)
    if index == caret.number:
        return caret
    if steps > 0:
        return TextPosition(index, 0)
    return TextPosition(index, column.lay_out_fully(index).end_offset)


def _move_by_line(column: ItemColumn, caret: TextPosition, steps: int) -> TextPosition:
    """Finds the place `steps` lines below the caret, or above it if negative, at the
    same distance from the left. At an item's edge that is in the next item in sight.
    """
    layout = column.lay_out_fully(caret.number)
    caret_rect = layout.caret_rect_at(caret.offset)
    y = caret_rect.center().y() + steps * caret_rect.height()
    end_of_text = layout.current_height - layout.vertical_padding
    if layout.vertical_padding <= y <= end_of_text:
        point = QPointF(caret_rect.x(), y)
        return TextPosition(caret.number, layout.text_offset_at(point))
    index = _next_visible_item(column, caret.number, steps)
    if index == caret.number:  # The first or the last line of the conversation.
        if steps > 0:
            return TextPosition(index, layout.end_offset)
        return TextPosition(index, 0)
    next_layout = column.lay_out_fully(index)
    inset = next_layout.vertical_padding + 1
    y_in_next = inset
    if steps < 0:
        y_in_next = next_layout.current_height - inset
    point_in_next = QPointF(caret_rect.x(), y_in_next)
    return TextPosition(index, next_layout.text_offset_at(point_in_next))


def _next_visible_item(column: ItemColumn, index: int, steps: int) -> int:
    items = column.page.items
    next_index = index + steps
    while 0 <= next_index < len(items.all):
        if not items.is_item_hidden(next_index):
            return next_index
        next_index += steps
    return index
