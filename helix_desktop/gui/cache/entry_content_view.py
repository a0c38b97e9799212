"""Shows the content of one entry as text, indented JSON, picture or hex, one megabyte at a time."""

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from functools import partial

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
from helix_desktop.gui.shown_workspace import ShownCatalogue
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.code_highlighting import (
    MOST,
    highlight_code,
    highlight_language_of,
)
from helix_desktop.gui.transcript.content_fetching import LARGEST_PICTURE, WIDEST
from helix_desktop.gui.translation import format_number, tr
from helix_desktop.gui.views.large_text_view import TextLineView, split_runs_by_line


class EntryImageView(QWidget):
    """An image at its own size, or scaled down to the available room."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.image = QImage()

    def show_image(self, image: QImage) -> None:
        self.image = image
        name = tr("Image, {w} × {h}", w=image.width(), h=image.height())
        self.setAccessibleName(name)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._theme.colour_of_token("code"))
        if not self.image.isNull():
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
            painter.drawImage(self._place_of_image(), self.image)
        painter.end()

    def _place_of_image(self) -> QRectF:
        """Returns where the image is drawn: in the middle, and never enlarged."""
        scale_to_width = self.width() / self.image.width()
        scale_to_height = self.height() / self.image.height()
        scale = min(1.0, scale_to_width, scale_to_height)
        drawn_width = self.image.width() * scale
        drawn_height = self.image.height() * scale
        left = (self.width() - drawn_width) / 2
        top = (self.height() - drawn_height) / 2
        return QRectF(left, top, drawn_width, drawn_height)


class EntryContentView(QWidget):
    """Shows the content of an entry page by page, in one of its shapes: as text, as indented
    JSON, as a picture or as hex.

    `shapes_found` carries the shapes to choose from, and `reading_failed` the error.
    """

    content_read = Signal()
    reading_failed = Signal(object)
    shapes_found = Signal(object)

    def __init__(
        self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None
    ) -> None:
        """Builds a view without content. Text is shown as lines, a picture as a
        picture; for anything else, and while it is read, there is a sentence.
        """
        super().__init__(parent)
        self._doing = doing
        self._catalogue: ShownCatalogue | None = None
        self._stored: Stored | None = None
        self._origin = EntryOrigin()
        self._page = 0
        self._content = b""
        # By page: the number of its first line in the entry, where all pages before were read.
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
        """Builds the bar that turns the pages of a large output. It is hidden for all
        others.
        """
        self._bar = QWidget(self)
        turn_back = partial(self.turn_page_by, -1)
        turn_on = partial(self.turn_page_by, 1)
        self._previous_button = build_push_button(tr("Previous page"), self._bar, turn_back, "pill")
        self._next_button = build_push_button(tr("Next page"), self._bar, turn_on, "pill")
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
        self, catalogue: ShownCatalogue, stored: Stored, origin: EntryOrigin
    ) -> None:
        self._catalogue = catalogue
        self._stored = stored
        self._origin = origin
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
            last_page = self._page_count - 1
            self._page = min(max(self._page + pages, 0), last_page)
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
        selected_text = self.lines.selected_text()
        if selected_text:
            return selected_text
        if self.shape is content_shapes.ContentShape.JSON:
            return self._content.decode("utf-8", "replace")
        all_lines = self.lines.viewed_lines
        return "\n".join(all_lines[number] for number in range(len(all_lines)))

    def selected_entry_lines(self) -> tuple[int, int] | None:
        """The selected lines, counted from 1 in the entry. None if there are none or
        the count is unknown.
        """
        if self.shape is not content_shapes.ContentShape.TEXT:
            return None
        selected_range = self.lines.selected_line_range()
        first_line_of_page = self._first_lines.get(self._page)
        if selected_range is None or first_line_of_page is None:
            return None
        first_in_page, last_in_page = selected_range
        return first_in_page + first_line_of_page, last_in_page + first_line_of_page

    @property
    def _page_count(self) -> int:
        if self._stored is None:
            return 1
        return max(1, math.ceil(self._stored.size / content_shapes.PAGE_BYTES))

    def _read_current_page(self) -> None:
        """Reads a page of the entry in the background and shows it, unless another entry or page
        was chosen in the meantime. Long entries are read and shown page by page.
        """
        stored = self._stored
        if stored is None or self._catalogue is None:
            return
        page = self._page

        def show_if_current(content: bytes) -> None:
            if self._stored is stored and self._page == page:
                self._content = content
                self._show_read_page()

        def show_read_error(error: HelixError) -> None:
            if self._stored is stored:
                self.show_sentence(translate_sentences(str(error)))
                self.reading_failed.emit(error)

        start = page * content_shapes.PAGE_BYTES
        length = min(content_shapes.PAGE_BYTES, stored.size - start)
        is_picture = stored.media_type.startswith("image/")
        if is_picture and stored.size <= LARGEST_PICTURE:  # A picture is not cut into pages.
            start = 0
            length = stored.size
        work = self._catalogue.cache.read_range(stored.digest, start, max(length, 0))
        self._doing.run_in_background(
            work, then=show_if_current, owner=self, failed=show_read_error
        )

    def _show_read_page(self) -> None:
        """Shows the page that was just read, and which of how many it is.

        The first page decides in which ways the entry can be shown (as text or as a picture, for
        example); the other pages are shown in the same way.
        """
        if self._stored is None:
            return
        if self._page == 0:
            shapes = content_shapes.list_possible_content_shapes(
                self._stored.media_type, self._origin.source, self._content, self._stored.size
            )
            self.shape = shapes[0]
            self.shapes_found.emit(shapes)
        self._bar.setVisible(self._page_count > 1)
        self._previous_button.setEnabled(self._page > 0)
        self._next_button.setEnabled(self._page + 1 < self._page_count)
        page_words = tr(
            "page {n} of {all}",
            n=format_number(self._page + 1),
            all=format_number(self._page_count),
        )
        self._page_label.setText(f"{page_words} · {format_byte_size(self._stored.size)}")
        self._show_in_current_shape()
        self.content_read.emit()

    def _show_in_current_shape(self) -> None:
        match self.shape:
            case content_shapes.ContentShape.TEXT:
                self._show_text()
            case content_shapes.ContentShape.JSON:
                self._show_indented_json()
            case content_shapes.ContentShape.IMAGE:
                self._show_picture()
            case content_shapes.ContentShape.HEX:
                self._show_hex()

    def _show_text(self) -> None:
        is_last_page = self._page + 1 >= self._page_count
        lines, line_end_count = content_shapes.split_page_lines(
            self._content, first=self._page == 0, last=is_last_page
        )
        first_line = self._first_lines.get(self._page)
        if first_line is not None:
            self._first_lines[self._page + 1] = first_line + line_end_count
        media_type = ""
        if self._stored is not None:
            media_type = self._stored.media_type
        language = highlight_language_of(self._origin.source, media_type)
        self._show_coloured_lines(lines, language, first_number=first_line or 1)

    def _show_coloured_lines(
        self, lines: Sequence[str], language: str, *, first_number: int
    ) -> None:
        colours = None
        character_count = sum(len(line) for line in lines)
        if language and character_count <= MOST:
            runs = highlight_code("\n".join(lines), language)
            colours = split_runs_by_line(runs, lines)
        tone = _difference_line_tones(lines)
        self.lines.show_text_lines(lines, first_number=first_number, colours=colours, tone=tone)
        self._stack.setCurrentWidget(self.lines)

    def _show_hex(self) -> None:
        page_start = self._page * content_shapes.PAGE_BYTES
        hex_rows = content_shapes.HexDumpLines(self._content, page_start)
        self.lines.show_text_lines(hex_rows, labels=hex_rows.format_offset_of_hex_row)
        self._stack.setCurrentWidget(self.lines)

    def _show_indented_json(self) -> None:
        container = content_shapes.parse_json_container(self._content.decode("utf-8", "replace"))
        indented = json.dumps(container, ensure_ascii=False, indent=2)
        self._show_coloured_lines(indented.split("\n"), "json", first_number=1)

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
        names_file = line.startswith(("+++ ", "--- "))
        if names_file:
            return ""
        if line.startswith("+"):
            return "added_soft"
        if line.startswith("-"):
            return "danger_soft"
        return ""

    return tone_of_line
