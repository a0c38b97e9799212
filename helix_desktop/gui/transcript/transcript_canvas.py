"""The chat as one scroll area that draws its items itself, so that invisible items cost nothing.

Three things never happen: what the reader looks at never jumps when something above changes its
height, only the reader's own gesture ends following, and no paint waits for a long text.
"""

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from itertools import chain

from PySide6.QtCore import QObject, QPoint, QPointF, QRect, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QAccessible, QColor, QPainter, QPaintEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QAbstractSlider, QScrollBar, QWidget

from helix_desktop.engine import session_events
from helix_desktop.engine.facts import Fact, ModelReplied, Rewound, Text
from helix_desktop.engine.view import ConversationState
from helix_desktop.gui.common.text_selection import FactPosition, TextPosition
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import LayoutBox, SectionKey
from helix_desktop.gui.transcript.call_and_fold_boxes import ToolCallBox
from helix_desktop.gui.transcript.content_fetching import FetchedTranscriptContent
from helix_desktop.gui.transcript.drawing_style import NO_MARKS, DrawingStyle, TextMarks
from helix_desktop.gui.transcript.failure_cards import FailureCardBox, describe_retry_pause
from helix_desktop.gui.transcript.item_column import (
    DrawnPlaces,
    ItemColumn,
    compute_scroll_and_redraw,
)
from helix_desktop.gui.transcript.item_layout import ItemLayout
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.layout_context import LayoutContext
from helix_desktop.gui.transcript.selectable_text_area import STEP, BoxSurface
from helix_desktop.gui.transcript.tool_call_lines import build_call_line
from helix_desktop.gui.transcript.transcript_item import TranscriptItemKind
from helix_desktop.gui.transcript.transcript_search import TranscriptSearch
from helix_desktop.gui.translation import tr

COLUMN = 720  # The widest a line of text becomes, in pixels.
MARGIN = 24
BUDGET = 0.006  # The seconds that a layout may take while the user waits for it.
SLICE = 0.003  # The seconds of idle work after which the window takes its turn.
LETTING_GO = 0.001  # The same for freeing what was closed.
DESCRIBED = 4_000  # So many of the visible characters are given to a screen reader.
MANY = 1_000  # A conversation with more facts than this is read in a thread.
SHARE_OF_VEIL = 0.65  # So much of what will leave the conversation is covered.
NEARLY_AT_END = 2  # So many pixels from the end are as good as the end.
EDGE = 4  # Drawing may extend this many pixels beyond the edge of a box.

_FETCHING = (TranscriptItemKind.CALL, TranscriptItemKind.USER, TranscriptItemKind.ADDITION)


class TranscriptCanvas(BoxSurface):
    """Draws and scrolls. `TranscriptView` adds what the user can do."""

    reply_finished = Signal(str)

    def __init__(
        self, theme: Theme, content: FetchedTranscriptContent, parent: QWidget | None = None
    ) -> None:
        """Sets up an empty canvas with its timers. What takes long is done in small
        steps between two frames, so that scrolling stays smooth.
        """
        super().__init__(theme, parent)
        self.items = TranscriptItems()
        self.finding: TranscriptSearch | None = None
        self.scrolling = FollowingScroll(self.verticalScrollBar())
        # The message that is being edited, or 0: it and what follows it leave with the new one.
        self._edited_seq = 0
        self.over: QWidget | None = None  # A button that covers part of the canvas at the bottom.
        self._drawn: DrawnPlaces = {}
        self._floated = QRect()  # The area that was drawn on top of the items.
        ink = DrawingStyle(theme)
        context = LayoutContext(ink, float(COLUMN), self.items, content, time.monotonic)
        self.column = ItemColumn(context)
        # What a thread read of a long conversation that is about to be shown.
        self._prepared_column: ItemColumn | None = None
        # Each step frees a part of the conversations that were closed.
        self._left: Iterator[None] = iter(())
        self._letting_go = QTimer(self, interval=0)
        self._letting_go.timeout.connect(self._clear_closed_conversations)
        self._later = QTimer(self, interval=0, singleShot=True)
        self._later.timeout.connect(self._continue_idle_work)
        self._describing = QTimer(self, interval=400, singleShot=True)
        self._describing.timeout.connect(self._describe_visible_items_to_screen_reader)
        self._clock = QTimer(self, interval=100)
        self._clock.timeout.connect(self._update_elapsed_times)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalScrollBar().setSingleStep(STEP)
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setAccessibleName(tr("Conversation"))
        theme.changed.connect(self._restyle_transcript)
        content.content_arrived.connect(self._lay_out_items_with_arrived_content)
        content.formulas_drawn.connect(self._lay_out_boxes_with_drawn_formulas)

    def show_history(self, history: ConversationState) -> None:
        """Shows another conversation, from its end. The items of the one before are
        freed in slices, as freeing a long one at once would be felt.
        """
        self._left = chain(self._left, self.items.clear_in_slices())
        self._letting_go.start()
        self.column = self._take_prepared_column(history)
        self.items = self.column.page.items
        for recorded in history.facts[self.items.newest_seq :]:
            self.column.apply_item_changes(self.items.show_fact(recorded))

        self.selection.clear_selection()
        self.finding = None
        self._spot = None
        self._near = None
        self._marked_item = -1
        self._fit_column_width()
        self.scrolling.set_following_end(following=True)
        self._lay_out_and_draw()

    def _take_prepared_column(self, history: ConversationState) -> ItemColumn:
        """Returns what a thread read of a long conversation, or reads it here."""
        prepared = self._prepared_column
        self._prepared_column = None
        page = self.column.page
        if prepared is None:
            return _build_item_column(history, page)
        # What a thread read may be of another conversation by now, or in another theme.
        is_of_history = prepared.page.items.history is history
        is_in_theme = prepared.page.ink is page.ink
        if not is_of_history or not is_in_theme:
            return _build_item_column(history, page)
        return prepared

    def _clear_closed_conversations(self) -> None:
        until = time.perf_counter() + LETTING_GO
        for _ in self._left:
            if time.perf_counter() > until:
                return
        self._letting_go.stop()

    async def build_items_of_long_history(self, history: ConversationState) -> None:
        """Reads a long history in a thread, for `show_history`."""
        if len(history.facts) > MANY:
            page = self.column.page
            self._prepared_column = await asyncio.to_thread(_build_item_column, history, page)
            gc.freeze()  # These objects live long, so garbage collection can skip them from now on.

    def apply_events(self, events: Sequence[session_events.Event]) -> None:
        """Shows what has just happened in the conversation. Who reads further up keeps
        their place; who is at the end stays at the end.
        """
        # The reader's place is taken before anything changes its height.
        place = self.reading_position()
        for event in events:
            change = self.items.show_session_event(event, self.column.page.now())
            if change is not None:
                self.column.apply_item_changes(change)
        if self.items.running_call_items() or self.items.retry_wait_item >= 0:
            self._clock.start()
        else:
            self._clock.stop()
        if self.isVisible() or not self.scrolling.is_following_end:
            self._lay_out_and_draw(self._scroll_value_of_place(place), anew=False)
        for event in events:
            if isinstance(event, session_events.FactAppended):
                self._announce_reply(event.recorded.fact)
                # Whoever was further up may be at the end now, as what stood below has gone.
                if isinstance(event.recorded.fact, Rewound) and self.is_scrolled_to_end:
                    self.scrolling.set_following_end(following=True)

    @property
    def is_scrolled_to_end(self) -> bool:
        bar = self.verticalScrollBar()
        return self.scrolling.is_following_end or bar.value() >= bar.maximum() - NEARLY_AT_END

    def _scroll_value_of_place(self, place: tuple[int, int, bool]) -> int | None:
        """Returns the scroll value of the reader's place, or None where the end is followed."""
        seq, pixels_below_top, is_following_end = place
        if is_following_end:
            return None
        return self.column.scroll_value_of_fact(seq, pixels_below_top)

    def _announce_reply(self, fact: Fact) -> None:
        if not isinstance(fact, ModelReplied):
            return
        texts = [part.text for part in fact.parts if isinstance(part, Text)]
        reply_text = "\n".join(texts)
        if reply_text:
            self.reply_finished.emit(reply_text)

    def showEvent(self, event: QShowEvent) -> None:
        """Lays out what was not laid out while the canvas was hidden and followed the end."""
        super().showEvent(event)
        self._lay_out_and_draw()

    def jump_to_end(self) -> None:
        self.scrolling.set_following_end(following=True)
        self._lay_out_and_draw()

    def reading_position(self) -> tuple[int, int, bool]:
        """Returns the reader's place: a fact, the distance below its top, and whether
        the end is followed.
        """
        y = self.verticalScrollBar().value()
        index = self.column.heights.item_covering(y)
        if index < 0 or self.scrolling.is_following_end:
            return 0, 0, True
        seq = self.items.all[index].fact_seq
        # A fact may have several items. The distance is measured from the first.
        first_item = self.items.item_of_fact(seq)
        top_of_fact = self.column.heights.total_height_before(first_item)
        return seq, y - top_of_fact, False

    def selection_by_facts(self) -> tuple[FactPosition, FactPosition] | None:
        """Returns what is selected so that it can be found in another list of the same facts. None
        if nothing is, or if it ends in what is no fact yet.
        """
        if self.selection.is_empty_selection:
            return None
        anchor = self._position_by_fact(self.selection.anchor)
        caret = self._position_by_fact(self.selection.caret)
        if not (anchor.seq and caret.seq):
            return None
        return anchor, caret

    def _position_by_fact(self, position: TextPosition) -> FactPosition:
        seq = self.items.all[position.number].fact_seq
        return FactPosition(seq, position.number - self.items.item_of_fact(seq), position.offset)

    def restore_selection(self, ends: tuple[FactPosition, FactPosition]) -> None:
        positions: list[TextPosition] = []
        for end in ends:
            first_item = self.items.item_of_fact(end.seq)
            if first_item < 0:
                return
            positions.append(TextPosition(first_item + end.item_in_fact, end.offset))
        self.selection.set_both_ends(*positions)
        self.show_selection()

    def restore_reading_position(self, place: tuple[int, int, bool]) -> None:
        seq, pixels_below_top, is_following_end = place
        first_item = self.items.item_of_fact(seq)
        if is_following_end or first_item < 0:
            self.jump_to_end()
            return
        self.scrolling.set_following_end(following=False)
        # The heights of the fact's items must be known to find the place in them.
        for index in range(first_item, len(self.items.all)):
            self.column.lay_out_fully(index)
            if self.items.all[index].fact_seq != seq:
                break
        y = self.column.heights.total_height_before(first_item) + pixels_below_top
        self._lay_out_and_draw(y, anchor=first_item)

    def scroll_to_item(self, index: int, offset: int = 0) -> None:
        """Scrolls to an item or a place in it, one third below the top of the view, and
        marks the item.
        """
        if not 0 <= index < len(self.items.all):
            return
        change = self.items.reveal_hidden_item(index)
        if change is not None:
            self.column.apply_item_changes(change)
        self.scrolling.set_following_end(following=False)
        self._marked_item = index
        top_in_item = 0.0
        if offset:
            top_in_item = self.column.lay_out_fully(index).caret_rect_at(offset).top()
        place = self.column.content_top(index) + top_in_item
        wanted = int(place - self.viewport().height() / 3)
        self._lay_out_and_draw(max(0, wanted), anchor=index)

    def _lay_out_and_draw(
        self, wanted_y: int | None = None, *, anchor: int = -1, anew: bool = True
    ) -> None:
        """Lays out visible items for a moment, corrects the scroll position, and draws
        all or only differences. Without `wanted_y`, the place stays.
        """
        height = self.viewport().height()
        y = wanted_y
        if y is None:
            y = self.verticalScrollBar().value()
        if len(self.column.heights) == 0:
            y = wanted_y or 0
        else:
            is_complete = True
            deadline = time.perf_counter() + BUDGET
            if self.scrolling.is_following_end:
                y, is_complete = self.column.lay_out_end(height, deadline)
            else:
                last_y = max(0, self.column.total_height - height)
                y, is_complete = self.column.lay_out_visible(
                    min(y, last_y), height, deadline, anchor=anchor
                )
            self._describing.start()
            if not is_complete or not self._later.isActive():
                self._later.start()
        self.scrolling.set_scroll_position_and_range(y, self.column.total_height, height)
        self._update_viewport(anew=anew)

    def _update_viewport(self, *, anew: bool) -> None:
        """Scrolls what has only moved, instead of drawing it again."""
        viewport = self.viewport()
        drawn_before = self._drawn
        self._drawn = self._currently_drawn_places()
        if anew or not self._can_scroll_what_is_drawn():
            viewport.update()
            return
        scroll_and_redraw = compute_scroll_and_redraw(drawn_before, self._drawn)
        if scroll_and_redraw is None:
            viewport.update()
            return

        shift, places_to_redraw = scroll_and_redraw
        if shift:
            self._scroll_viewport(shift)
        for top, bottom in places_to_redraw:
            height = int(bottom - top) + 2 * EDGE + 1
            viewport.update(0, int(top) - EDGE, viewport.width(), height)
        # The overlay was scrolled along, but it stands at a place of its own.
        scrolled_overlay = self._floated.translated(0, shift)
        overlay = self._overlay_rect()
        if scrolled_overlay != overlay:
            viewport.update(scrolled_overlay)
            viewport.update(overlay)

    def _scroll_viewport(self, shift: int) -> None:
        viewport = self.viewport()
        scrolled_area = viewport.rect()
        # Qt cannot scroll an area that another widget covers.
        if self.over is not None and self.over.isVisible():
            scrolled_area.setBottom(self.over.y() - 1)
        viewport.scroll(0, shift, scrolled_area)
        viewport.update(0, scrolled_area.bottom() + 1, viewport.width(), viewport.height())

    def _can_scroll_what_is_drawn(self) -> bool:
        # With a fractional screen scale, scrolling would move the content by fractions of a pixel.
        if not self.devicePixelRatioF().is_integer():
            return False
        # Marks may have changed in any item.
        has_marks = not self.selection.is_empty_selection or self.finding is not None
        return not has_marks and not self.has_focus_frame

    def _currently_drawn_places(self) -> DrawnPlaces:
        return self.column.drawn_places(self.verticalScrollBar().value(), self.viewport().height())

    def _overlay_rect(self) -> QRect:
        """Returns the area of what is drawn over the items."""
        return QRect()

    def _describe_visible_items_to_screen_reader(self) -> None:
        if not QAccessible.isActive():
            return
        y = self.verticalScrollBar().value()
        texts: list[str] = []
        for index in self.column.visible_items(y, self.viewport().height()):
            layout = self.column.existing_layout(index)
            if layout is not None:
                texts.append(layout.text_between_offsets(0, layout.text_length))
        self.setAccessibleDescription("\n".join(texts)[:DESCRIBED])

    def _continue_idle_work(self) -> None:
        """Runs a slice of idle work: first the rest of the visible items, then colours,
        then the next screen.
        """
        y = self.verticalScrollBar().value()
        height = self.viewport().height()
        deadline = time.perf_counter() + SLICE
        visible_layouts: list[ItemLayout] = []
        for index in self.column.visible_items(y, height):
            layout = self.column.existing_layout(index)
            if layout is None or not layout.done:
                self._lay_out_and_draw(anew=False)
                return
            visible_layouts.append(layout)

        for layout in visible_layouts:
            if layout.has_uncoloured_code:
                if layout.colour_code_boxes_and_report_change(deadline):
                    self.viewport().update()
                self._later.start()
                return

        # Whoever follows the end does not scroll, so the next screen is not needed.
        if self.scrolling.is_following_end:
            return
        new_y, is_done = self.column.lay_out_nearby(y, height, deadline)
        self.scrolling.set_scroll_position_and_range(new_y, self.column.total_height, height)
        if not is_done:
            self._later.start()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        if not self.scrolling.is_moving:
            self._lay_out_and_draw(anew=False)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_column_width()
        self._lay_out_and_draw()

    def _fit_column_width(self) -> None:
        room = max(200, self.width() - 2 * MARGIN)
        width = float(min(self.theme.zoomed_pixels(COLUMN), room))
        if width != self.column.page.width:
            self.column.set_style_and_width(self.column.page.ink, width)

    def _restyle_transcript(self) -> None:
        page = self.column.page
        self.column.set_style_and_width(DrawingStyle(self.theme), page.width)
        self._fit_column_width()
        self.column.reset_layouts()
        self._lay_out_and_draw()

    def _lay_out_items_with_arrived_content(self) -> None:
        self.column.discard_layouts(lambda laid: laid.item.kind in _FETCHING)
        self._lay_out_and_draw()

    def _lay_out_boxes_with_drawn_formulas(self) -> None:
        self.column.discard_layouts(
            lambda laid: any(box.is_waiting_for_drawing for box in laid.boxes)
        )
        self._lay_out_and_draw()

    def _update_elapsed_times(self) -> None:
        now = self.column.page.now()
        for index in self.items.running_call_items():
            layout = self.column.existing_layout(index)
            if layout is None:
                continue
            # The line of a group may stand above that of its first call.
            for box in layout.boxes[:2]:
                if isinstance(box, ToolCallBox):
                    box.line = build_call_line(self.items.tool_call_state(index), now)
        self._update_retry_pause(self.items.retry_at - now)
        self.viewport().update()

    def _update_retry_pause(self, seconds: float) -> None:
        retry_layout = self.column.existing_layout(self.items.retry_wait_item)
        if retry_layout is None or not retry_layout.boxes:
            return
        card = retry_layout.boxes[0]
        is_at_work = self.items.awaited_fold is not None and not self.items.awaited_fold.retry_why
        if isinstance(card, FailureCardBox) and not is_at_work:
            card.update_card_title(describe_retry_pause(seconds))

    # --- Drawing the visible items

    @property
    def column_left(self) -> int:
        return round((self.width() - self.column.page.width) / 2)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        for place in event.region():  # type: ignore[attr-defined]  # its rectangles
            painter.setClipRect(place)
            self._draw_visible_items(painter, place)
            # Drawing may have laid out more items.
            if place == self.viewport().rect():
                self._drawn = self._currently_drawn_places()
        painter.end()

    def mark_edited_message(self, seq: int) -> None:
        """Marks the message that is being edited and dims what follows it. 0: none is."""
        if seq != self._edited_seq:
            self._edited_seq = seq
            self.viewport().update()

    def _draw_visible_items(self, painter: QPainter, place: QRect) -> None:
        """Draws the items that lie in `place`, and a few pixels beyond it, for what
        stands out of an item. An item without a layout was not in sight before and is
        laid out later.
        """
        painter.fillRect(place, self.theme.colour_of_token("panel"))
        y = self.verticalScrollBar().value()
        top = place.top() - EDGE
        height = place.height() + 2 * EDGE
        for index in self.column.visible_items(y + top, height):
            layout = self.column.existing_layout(index)
            if layout is None or not layout.boxes:
                continue
            item_top = self.column.content_top(index) - y
            painter.save()
            painter.translate(self.column_left, item_top)
            marks = self._marks_of_item(index, layout)
            active_box = self._active_box_of(index, layout)
            first_drawn = top - item_top
            layout.draw_boxes(painter, first_drawn, first_drawn + height, marks, active_box)
            seq = self.items.all[index].fact_seq
            if index == self._marked_item or (self._edited_seq and seq == self._edited_seq):
                px = self.theme.zoomed_pixels
                mark = QRectF(-px(14), 0, px(3), layout.bottom_edge)
                painter.fillRect(mark, self.theme.colour_of_token("accent"))
            if 0 < self._edited_seq < seq:
                veil = QColor(self.theme.colour_of_token("panel"))
                veil.setAlphaF(SHARE_OF_VEIL)
                whole_item = QRectF(-self.column_left, 0, self.width(), layout.bottom_edge)
                painter.fillRect(whole_item, veil)
            self.draw_keyboard_focus(painter, index, layout)
            painter.restore()

    def _active_box_of(self, index: int, laid: ItemLayout) -> LayoutBox | None:
        """Returns the box with the focus, or else the one under the pointer, which
        shows its actions.
        """
        if self._spot is None or not self.hasFocus():
            return self._near
        focused_index, focused = self._spot
        # The bar of a message is a hot spot without a box.
        if focused_index == index and 0 <= focused.box < len(laid.boxes):
            return laid.boxes[focused.box]
        return self._near

    def _marks_of_item(self, index: int, laid: ItemLayout) -> TextMarks:
        selected = self.selection.selected_offsets_of(index, laid.text_length)
        selected_start, selected_end = selected
        has_selection = selected_end > selected_start
        if self.finding is None or not self.finding.needle:
            if has_selection:
                return TextMarks(selected)
            return NO_MARKS
        hits = laid.find_starts_and_lengths(self.finding.needle)
        if not hits and not has_selection:
            return NO_MARKS
        current_hit = self.finding.current_hit_in_item(index, len(hits))
        return TextMarks(selected, hits, current_hit)

    def item_and_point_under(self, point: QPointF | QPoint) -> tuple[int, QPointF]:
        y = int(point.y()) + self.verticalScrollBar().value()
        index = self.column.heights.item_covering(y)
        if index < 0:
            return -1, QPointF()
        return index, QPointF(point.x() - self.column_left, y - self.column.content_top(index))

    def rect_in_viewport(self, index: int, inner: QRectF) -> QRectF:
        return inner.translated(
            self.column_left, self.column.content_top(index) - self.verticalScrollBar().value()
        )


def _build_item_column(history: ConversationState, page: LayoutContext) -> ItemColumn:
    items = TranscriptItems(history)
    known_facts = history.facts[:]
    if history.has_unknown_facts:  # There may be very many, and none is drawn.
        known_facts = [recorded for recorded in known_facts if recorded.seq]
    items.add_many_facts(known_facts)
    # What was opened stays open if another process, such as the recorder, went on with the shown
    # conversation.
    section_amounts: dict[SectionKey, int] = {}
    is_same_conversation = page.items.history.facts[:1] == history.facts[:1]
    if is_same_conversation:
        section_amounts = page.section_amounts
    new_page = LayoutContext(page.ink, page.width, items, page.contents, page.now, section_amounts)
    return ItemColumn(new_page)


class FollowingScroll(QObject):
    following_changed = Signal(bool)

    def __init__(self, bar: QScrollBar) -> None:
        super().__init__(bar)
        self._bar = bar
        self.is_following_end = True
        self.is_moving = False  # True while the layout, not the reader, moves the scroll bar.
        bar.actionTriggered.connect(self._follow_if_scrolled_to_end)

    def set_following_end(self, *, following: bool) -> None:
        if following != self.is_following_end:
            self.is_following_end = following
            self.following_changed.emit(following)

    def set_scroll_position_and_range(self, y: int, content_height: int, view_height: int) -> None:
        """Scrolls to a place in content whose height may have changed."""
        self.is_moving = True
        self._bar.setRange(0, max(0, content_height - view_height))
        self._bar.setPageStep(view_height)
        self._bar.setValue(y)
        self.is_moving = False

    def _follow_if_scrolled_to_end(self, action: int) -> None:
        if action != QAbstractSlider.SliderAction.SliderNoAction.value:
            self.set_following_end(
                following=self._bar.sliderPosition() >= self._bar.maximum() - NEARLY_AT_END
            )
