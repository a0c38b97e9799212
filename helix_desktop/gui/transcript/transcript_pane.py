"""The transcript with its find bar and the button that scrolls to the end."""

from contextlib import suppress

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QToolButton, QWidget

from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import build_line_edit, build_plain_label, build_tool_button
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.content_fetching import (
    FetchedTranscriptContent,
    TranscriptContentSource,
)
from helix_desktop.gui.transcript.tool_call_records import is_output_whole_in_fact
from helix_desktop.gui.transcript.transcript_search import (
    TranscriptSearch,
    UnreadOutput,
    searchable_text,
)
from helix_desktop.gui.transcript.transcript_view import TranscriptView
from helix_desktop.gui.translation import format_number, tr

ScrollPlace = tuple[int, int, bool]
OUTPUTS_AT_A_TIME = 16  # So many outputs are read before what was found in them is shown.


class FindBar(QWidget):
    """A search field with the number of hits, and buttons to the next and previous hit.
    `changed` carries the text.
    """

    changed = Signal(str)
    stepped = Signal(int)
    closed = Signal()

    def __init__(self, parent: QWidget | None = None, hint: str = "") -> None:
        """Builds the bar with the field, "3 of 12" and the buttons. `hint`: what an
        empty field says.
        """
        super().__init__(parent)
        hint = hint or tr("Find in this conversation")
        self.field = build_line_edit(hint, hint, self)
        self.field.setClearButtonEnabled(True)
        self.counts = build_plain_label("", "muted", self, wraps=False)
        row = build_row((self.field, 1), self.counts, owner=self, margins=(20, 8, 20, 8))
        previous_button = self._build_button("↑", tr("Previous match"))
        previous_button.clicked.connect(lambda: self.stepped.emit(-1))
        row.addWidget(previous_button)
        next_button = self._build_button("↓", tr("Next match"))
        next_button.clicked.connect(lambda: self.stepped.emit(1))
        row.addWidget(next_button)
        close_button = self._build_button("✕", tr("Close"))
        close_button.clicked.connect(self.closed)
        row.addWidget(close_button)
        self.field.textChanged.connect(self.changed)
        self.field.installEventFilter(self)

    def _build_button(self, sign: str, name: str) -> QToolButton:
        button = build_tool_button(name, self, sign, "")
        button.setAutoRaise(True)
        return button

    def show_hit_count(self, number: int, total: int, *, done: bool) -> None:
        """Shows the number of the current hit and the total, with an ellipsis during the search."""
        if not self.field.text():
            self.counts.setText("")
        elif total:
            ellipsis = "…"
            if done:
                ellipsis = ""
            hit = format_number(number + 1)
            all_hits = format_number(total)
            self.counts.setText(tr("{n} of {total}{more}", n=hit, total=all_hits, more=ellipsis))
        elif done:
            self.counts.setText(tr("Nothing found"))
        else:
            self.counts.setText(tr("Loading…"))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                step = 1
                if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
                    step = -1
                self.stepped.emit(step)
                return True
            if event.key() == Qt.Key.Key_Escape:
                self.closed.emit()
                return True
        return super().eventFilter(watched, event)


class TranscriptPane(QWidget):
    """Emits `intent_requested` with a value of `chat_actions`; the window carries it out."""

    intent_requested = Signal(object)

    def __init__(
        self,
        theme: Theme,
        doing: BackgroundRunner,
        source: TranscriptContentSource,
        parent: QWidget | None = None,
    ) -> None:
        """Puts the conversation and its find bar together. `source` reads what a
        conversation refers to, such as stored outputs and pictures.
        """
        super().__init__(parent)
        self.content = FetchedTranscriptContent(source, doing, self)
        self.view = TranscriptView(theme, self.content, self)
        self.bar = FindBar(self)
        self.bar.hide()
        self._theme = theme
        self._doing = doing
        self._end = build_tool_button(tr("Jump to the end"), self.view, "↓", "pill")
        self._end.hide()
        self.view.over = self._end
        self._unread_part = build_plain_label(
            tr("Earlier messages are being read…"), "note", self.view, wraps=False
        )
        self._unread_part.hide()
        build_column(self.bar, (self.view, 1), owner=self, margins=0, spacing=0)
        # The item with which the next search begins, or -1 for the first visible one.
        self._search_from = -1
        # The outputs that the search opened. They are closed when other words are searched for.
        self._opened_outputs: list[int] = []
        # Outputs are being read from the store, in which there may be more hits.
        self._is_reading_outputs = False
        # The text of the output with the current hit is being fetched.
        self._awaits_shown_output = False
        self._slices = QTimer(self, interval=0)
        self._slices.timeout.connect(self._continue_search)
        self._connect_transcript_signals()

    def _connect_transcript_signals(self) -> None:
        self._end.clicked.connect(self.view.jump_to_end)
        scroll_bar = self.view.verticalScrollBar()
        self.view.scrolling.following_changed.connect(self._update_end_button)
        scroll_bar.rangeChanged.connect(self._update_end_button)
        scroll_bar.valueChanged.connect(self._update_end_button)
        self.view.intent_requested.connect(self.intent_requested)
        self.view.find_wanted.connect(self.open_find_bar)
        self.bar.changed.connect(self._start_search)
        self.bar.stepped.connect(self._step_to_hit)
        self.bar.closed.connect(self._close_find_bar)
        self.content.content_arrived.connect(self._show_hit_in_arrived_output)

    def open_transcript(self, history: ConversationState, place: ScrollPlace | None = None) -> None:
        self._close_find_bar(take_focus=False)
        self.content.discard_failures_and_subagent_items()
        self.view.show_history(history)
        if place is not None:
            self.view.restore_reading_position(place)
        self._unread_part.setVisible(history.has_unknown_facts)
        self._place_note_about_unread_part()

    def scroll_to_fact(self, seq: int, words: str = "") -> None:
        """Scrolls to a fact. Of `words`, which a search found, all or the longest are marked."""
        first_item = self.view.items.item_of_fact(seq)
        self.view.scroll_to_item(first_item)
        self._search_from = -1
        if words.strip():
            self._mark_words_of_fact(seq, max(first_item, 0), words)

    def _mark_words_of_fact(self, seq: int, first_item: int, words: str) -> None:
        needles = [words.strip()]
        needles += sorted(words.split(), key=len, reverse=True)
        items = self.view.items.all
        for index in range(first_item, len(items)):
            if items[index].fact_seq != seq:
                continue
            text = searchable_text(items[index]).lower()
            for needle in needles:
                if needle.lower() in text:
                    self._search_from = index
                    self.bar.field.setText(needle)
                    self.bar.show()
                    return

    def open_find_bar(self) -> None:
        if self.view.items.history.has_unknown_facts:
            return  # What is not there yet would not be found.
        chosen = self.view.selected_text()
        if chosen and "\n" not in chosen and len(chosen) < 200:
            self.bar.field.setText(chosen)
        self.bar.show()
        self.bar.field.setFocus()
        self.bar.field.selectAll()

    def _start_search(self, text: str) -> None:
        for index in self._opened_outputs:
            self.view.column.close_output(index)
        self._opened_outputs.clear()
        self._is_reading_outputs = False
        self.view.finding = TranscriptSearch(self.view.items, text)
        self._slices.start()

    def _continue_search(self) -> None:
        finding = self.view.finding
        if finding is None:
            self._slices.stop()
            return
        if finding.search_slice():
            self._slices.stop()
            self._read_next_outputs(finding)
        self._show_first_hit_and_count(finding)

    def _read_next_outputs(self, finding: TranscriptSearch) -> None:
        """Searches the next outputs that must be read from the store for it."""
        batch = finding.unread_outputs[:OUTPUTS_AT_A_TIME]
        del finding.unread_outputs[:OUTPUTS_AT_A_TIME]
        self._is_reading_outputs = bool(batch)
        if not batch:
            return

        def search_outputs(texts: list[str]) -> None:
            if self.view.finding is not finding:
                return
            for output, text in zip(batch, texts, strict=True):
                finding.add_output_hits(output.index, text)
            self._read_next_outputs(finding)
            self._show_first_hit_and_count(finding)

        self._doing.run_in_background(self._read_outputs(batch), then=search_outputs, owner=self)

    async def _read_outputs(self, outputs: list[UnreadOutput]) -> list[str]:
        texts: list[str] = []
        for output in outputs:
            text = ""
            # The line of a call whose output is gone or damaged says so when it is opened.
            with suppress(HelixError):
                text = await self.content.read_entry_text(output.stored)
            texts.append(text)
        return texts

    def _show_first_hit_and_count(self, finding: TranscriptSearch) -> None:
        is_done = finding.done and not self._is_reading_outputs
        if finding.current < 0 and finding.places:
            start_item = self._item_to_search_from()
            # Until the search has come so far, the first hit from there on is not known.
            if is_done or finding.places[-1] >= start_item:
                self._show_hit(finding.first_hit_from(start_item))
        current_hit = max(finding.current, 0)
        self.bar.show_hit_count(current_hit, len(finding.places), done=is_done)
        self.view.viewport().update()

    def _item_to_search_from(self) -> int:
        if self._search_from >= 0:
            return self._search_from
        upper_edge = self.view.viewport().rect().topLeft()
        index, _ = self.view.item_and_point_under(upper_edge)
        return index

    def _step_to_hit(self, steps: int) -> None:
        finding = self.view.finding
        if finding is not None and finding.places:
            self._show_hit((finding.current + steps) % len(finding.places))
            done = finding.done and not self._is_reading_outputs
            self.bar.show_hit_count(finding.current, len(finding.places), done=done)

    def _show_hit(self, number: int) -> None:
        """Scrolls to a hit of the search, and opens what hides it: a group of calls, a
        section, or a tool's output.
        """
        finding = self.view.finding
        if finding is None or number < 0:
            return
        finding.current = number
        self._search_from = -1
        index = finding.places[number]
        column = self.view.column
        column.reveal_found_item(index)
        self._open_output_with_hits(finding, index)

        hits = column.lay_out_fully(index).find_starts_and_lengths(finding.needle)
        hit_in_item = finding.current_hit_in_item(index, len(hits))
        offset = 0
        if hit_in_item >= 0:
            offset, _ = hits[hit_in_item]
        self.view.scroll_to_item(index, offset)

    def _open_output_with_hits(self, finding: TranscriptSearch, index: int) -> None:
        output_hits = finding.output_hits.get(index)
        if output_hits is None:
            return
        if not self.view.column.is_output_open(index):
            self._opened_outputs.append(index)
        self.view.column.open_output_with_hits(index, output_hits.last_line)
        returned = self.view.items.tool_call_state(index).returned
        if returned is not None and not is_output_whole_in_fact(returned):
            text = self.content.get_or_fetch_entry_text(returned.output)
            self._awaits_shown_output = text is None

    def _show_hit_in_arrived_output(self) -> None:
        """Scrolls to the hit once the output that holds it has been fetched."""
        finding = self.view.finding
        if self._awaits_shown_output and finding is not None:
            self._awaits_shown_output = False
            self._show_hit(finding.current)

    def is_find_bar_open(self) -> bool:
        return self.bar.isVisible()

    def close_find_bar(self) -> None:
        """Closes the find bar. The focus stays where it is, unless it is in the bar."""
        focused = self.window().focusWidget()
        is_focus_in_bar = focused is not None and self.bar.isAncestorOf(focused)
        self._close_find_bar(take_focus=is_focus_in_bar)

    def _close_find_bar(self, *_: object, take_focus: bool = True) -> None:
        self.view.finding = None
        # What the user found stays open.
        self._opened_outputs.clear()
        self._awaits_shown_output = False
        self._slices.stop()
        self.bar.hide()
        if take_focus:
            self.view.setFocus()
        self.view.viewport().update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_end_button()
        self._place_note_about_unread_part()

    def _update_end_button(self) -> None:
        scroll_bar = self.view.verticalScrollBar()
        is_above_end = scroll_bar.value() < scroll_bar.maximum()
        self._end.setVisible(is_above_end and not self.view.scrolling.is_following_end)
        self._place_end_button()
        self._place_note_about_unread_part()

    def _place_note_about_unread_part(self) -> None:
        """Puts the note at the top, over the messages: they must not move when it goes."""
        if self._unread_part.isHidden():
            return
        self._unread_part.adjustSize()
        area = self.view.viewport().geometry()
        left = area.center().x() - self._unread_part.width() // 2
        self._unread_part.move(left, area.top() + self._theme.zoomed_pixels(8))
        self._unread_part.raise_()

    def _place_end_button(self) -> None:
        size = self._theme.zoomed_pixels(34)
        area = self.view.viewport().geometry()
        # At the edge, it covers no running command in the middle of the column.
        self._end.setGeometry(area.right() - size - 12, area.bottom() - size - 12, size, size)
        self._end.raise_()
