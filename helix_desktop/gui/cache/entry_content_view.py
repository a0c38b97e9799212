"""Shows the content of one entry as text, indented JSON, picture or hex, one megabyte at a time."""

import asyncio
import json
from collections.abc import Callable, Sequence

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QImage, QPainter, QPaintEvent
from PySide6.QtWidgets import QStackedWidget, QWidget

from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.cache import content_shapes
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.common.picture_reader import read_picture
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.code_highlighting import (
    MOST,
    highlight_code,
    highlight_language_of,
)
from helix_desktop.gui.transcript.content_fetching import LARGEST_PICTURE, WIDEST
from helix_desktop.gui.translation import format_number, tr
from helix_desktop.gui.views.large_text_view import TextLineView, split_runs_by_line
from helix_desktop.gui.workbench_types import StoredWorkspace


class EntryImageView(QWidget):
    """An image at its own size, or scaled down to the available room."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.image = QImage()

    def show_image(self, image: QImage) -> None:
        self.image = image
        self.setAccessibleName(tr("Image, {w} × {h}", w=image.width(), h=image.height()))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._theme.colour_of_token("code"))
        if not self.image.isNull():
            scale_to_width = self.width() / self.image.width()
            scale_to_height = self.height() / self.image.height()
            scale = min(1.0, scale_to_width, scale_to_height)
            wide = self.image.width() * scale
            high = self.image.height() * scale
            left = (self.width() - wide) / 2
            top = (self.height() - high) / 2
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
            painter.drawImage(QRectF(left, top, wide, high), self.image)
        painter.end()


class EntryContentView(QWidget):
    """`shapes_found` carries the shapes to choose from, and `reading_failed` the error."""

    content_read = Signal()
    reading_failed = Signal(object)
    shapes_found = Signal(object)

    def __init__(
        self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._doing = doing
        self._catalogue: StoredWorkspace | None = None
        self._stored: Stored | None = None
        self._about = EntryOrigin()
        self._page = 0
        self._content = b""
        self._first_lines: dict[int, int] = {0: 1}
        self.shape = content_shapes.ContentShape.TEXT
        self.lines = TextLineView(theme, self)
        self._picture = EntryImageView(theme, self)
        self._sentence_label = build_plain_label(
            parent=self, alignment=Qt.AlignmentFlag.AlignCenter
        )
        self._stack = QStackedWidget(self)
        for widget in (self.lines, self._picture, self._sentence_label):
            self._stack.addWidget(widget)
        build_column((self._stack, 1), self._build_page_bar(), owner=self, margins=0, spacing=6)

    def _build_page_bar(self) -> QWidget:
        self._bar = QWidget(self)
        self._previous_button = build_push_button(
            tr("Previous page"), self._bar, lambda: self.turn_page_by(-1), "pill"
        )
        self._next_button = build_push_button(
            tr("Next page"), self._bar, lambda: self.turn_page_by(1), "pill"
        )
        self._page_label = build_plain_label("", "muted", self._bar, wraps=False)
        build_row(
            self._previous_button,
            self._next_button,
            (self._page_label, 1),
            owner=self._bar,
            margins=0,
        )
        self._bar.hide()
        return self._bar

    def show_entry_content(
        self, catalogue: StoredWorkspace, stored: Stored, about: EntryOrigin
    ) -> None:
        self._catalogue = catalogue
        self._stored = stored
        self._about = about
        self._page = 0
        self._first_lines = {0: 1}
        self._read_current_page()

    def show_sentence(self, words: str) -> None:
        self._stored = None
        self._bar.hide()
        self._sentence_label.setText(words)
        self._stack.setCurrentWidget(self._sentence_label)

    def turn_page_by(self, pages: int) -> None:
        if self._stored is not None:
            self._page = min(max(self._page + pages, 0), self._page_count - 1)
            self._read_current_page()

    def change_shape(self, shape: content_shapes.ContentShape) -> None:
        if self._stored is not None and shape is not self.shape:
            self.shape = shape
            self._show_in_current_shape()

    def content_for_clipboard(self) -> str | QImage:
        """Returns the selected text, or else everything that is shown, for the clipboard."""
        if self._stored is None:
            return ""
        if self.shape is content_shapes.ContentShape.IMAGE:
            return self._picture.image
        selected = self.lines.selected_text()
        if self.shape is content_shapes.ContentShape.JSON:
            return selected or self._content.decode("utf-8", "replace")
        return selected or "\n".join(
            self.lines.viewed_lines[i] for i in range(len(self.lines.viewed_lines))
        )

    def selected_entry_lines(self) -> tuple[int, int] | None:
        """The selected lines, counted from 1 in the entry. None if there are none or
        the count is unknown.
        """
        if self.shape is not content_shapes.ContentShape.TEXT:
            return None
        selected = self.lines.selected_line_range()
        first_line = self._first_lines.get(self._page)
        if selected is None or first_line is None:
            return None
        return selected[0] + first_line, selected[1] + first_line

    @property
    def _page_count(self) -> int:
        if self._stored is None:
            return 1
        full_pages, rest = divmod(self._stored.size, content_shapes.PAGE_BYTES)
        return max(1, full_pages + bool(rest))

    def _read_current_page(self) -> None:
        stored = self._stored
        if stored is None or self._catalogue is None:
            return
        page = self._page
        start = page * content_shapes.PAGE_BYTES
        length = min(content_shapes.PAGE_BYTES, stored.size - start)
        # A picture is not cut into pages.
        if stored.media_type.startswith("image/") and stored.size <= LARGEST_PICTURE:
            start = 0
            length = stored.size

        def show_if_current(content: bytes) -> None:
            if self._stored is stored and self._page == page:
                self._content = content
                self._show_read_page()

        def show_read_error(error: HelixError) -> None:
            if self._stored is stored:
                self.show_sentence(translate_sentences(str(error)))
                self.reading_failed.emit(error)

        work = self._catalogue.cache.read_range(stored.digest, start, max(length, 0))
        self._doing.run_in_background(
            work, then=show_if_current, owner=self, failed=show_read_error
        )

    def _show_read_page(self) -> None:
        if self._stored is None:
            return
        if self._page == 0:
            shapes = content_shapes.list_possible_content_shapes(
                self._stored.media_type, self._about.source, self._content, self._stored.size
            )
            self.shape = shapes[0]
            self.shapes_found.emit(shapes)
        self._bar.setVisible(self._page_count > 1)
        self._previous_button.setEnabled(self._page > 0)
        self._next_button.setEnabled(self._page + 1 < self._page_count)
        place = tr(
            "page {n} of {all}",
            n=format_number(self._page + 1),
            all=format_number(self._page_count),
        )
        self._page_label.setText(f"{place} · {format_byte_size(self._stored.size)}")
        self._show_in_current_shape()
        self.content_read.emit()

    def _show_in_current_shape(self) -> None:
        show = {
            content_shapes.ContentShape.TEXT: self._show_text,
            content_shapes.ContentShape.JSON: self._show_indented_json,
            content_shapes.ContentShape.IMAGE: self._show_picture,
            content_shapes.ContentShape.HEX: self._show_hex,
        }
        show[self.shape]()

    def _show_text(self) -> None:
        lines, ends = content_shapes.split_page_lines(
            self._content, first=self._page == 0, last=self._page + 1 >= self._page_count
        )
        first_line = self._first_lines.get(self._page)
        if first_line is not None:
            self._first_lines[self._page + 1] = first_line + ends
        media_type = ""
        if self._stored is not None:
            media_type = self._stored.media_type
        language = highlight_language_of(self._about.source, media_type)
        self._show_coloured_lines(lines, first_line or 1, language)

    def _show_coloured_lines(self, lines: Sequence[str], first: int, language: str) -> None:
        colours = None
        if language and sum(map(len, lines)) <= MOST:
            runs = highlight_code("\n".join(lines), language)
            colours = split_runs_by_line(runs, lines)
        tone = _difference_line_tones(lines)
        self.lines.show_text_lines(lines, first_number=first, colours=colours, tone=tone)
        self._stack.setCurrentWidget(self.lines)

    def _show_hex(self) -> None:
        hexed = content_shapes.HexDumpLines(self._content, self._page * content_shapes.PAGE_BYTES)
        self.lines.show_text_lines(hexed, labels=hexed.format_offset_of_hex_row)
        self._stack.setCurrentWidget(self.lines)

    def _show_indented_json(self) -> None:
        value = content_shapes.parse_json_container(self._content.decode("utf-8", "replace"))
        self._show_coloured_lines(
            json.dumps(value, ensure_ascii=False, indent=2).split("\n"), 1, "json"
        )

    def _show_picture(self) -> None:
        stored = self._stored

        def show_decoded_image(image: QImage | None) -> None:
            if self._stored is not stored:
                return
            if image is None:
                self.change_shape(content_shapes.ContentShape.HEX)
            else:
                self._picture.show_image(image)
                self._stack.setCurrentWidget(self._picture)

        work = asyncio.to_thread(read_picture, self._content, WIDEST)
        self._doing.run_in_background(work, then=show_decoded_image, owner=self)


def _difference_line_tones(lines: Sequence[str]) -> Callable[[int], str] | None:
    """Returns a function for the background tones of a difference's lines, or None for
    any other text.
    """
    if not any(line.startswith("@@ ") for line in lines[:60]):
        return None

    def tone_of_line(number: int) -> str:
        line = lines[number]
        if line.startswith(("+++ ", "--- ")):
            return ""
        return {"+": "added_soft", "-": "danger_soft"}.get(line[:1], "")

    return tone_of_line
