"""Code, output and differences on their soft surface: not wrapped, scrolled sideways, coloured,
copied with one click.

Only a limited number of lines is laid out; a click shows the rest. A line of a megabyte is cut.
"""

import time
from collections.abc import Iterator, Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QTextLayout, QTextLine, QTextOption

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.transcript import basic_boxes, drawing_style
from helix_desktop.gui.transcript.chat_actions import OpenFile
from helix_desktop.gui.transcript.code_highlighting import Run, highlight_code
from helix_desktop.gui.transcript.file_references import (
    FileReference,
    find_file_reference_at,
    find_file_references,
)
from helix_desktop.gui.translation import format_count, tr

FIRST_LINES = 100
MORE_LINES = 300  # The lines that "Show more" adds.
LONGEST_LINE = 2_000
AT_ONCE = 1_200
MOST_TAB_STOPS = 50  # So many different paths in a block of code are reached with Tab.
MARKED_EDGE = 12  # The pixels that are marked of a path that is scrolled out of sight.
LABEL = 34  # The height of the line with the name of the language, in pixels.

_LINE_END = "\N{LINE SEPARATOR}"
_DIFFS = frozenset({"diff", "patch", "udiff"})


def cut_very_long_line(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    return line[:LONGEST_LINE] + "…"


def _looks_like_difference(text: str) -> bool:
    begins_like_one = text.startswith(("diff --git ", "--- "))
    return begins_like_one and "\n@@" in text[:4000]


@dataclass(frozen=True, slots=True)
class _ReferenceInCode:
    """A path in the code, and its line, counted from 0."""

    line_number: int
    reference: FileReference


class CodeBox(basic_boxes.LayoutBox):
    """Shows code. `whole` is what the copy button copies, `more` the key under which `lines` more
    are open. Text of up to `at_once` characters is coloured immediately, longer text by
    `colour_code_and_report_completion`. `label` is the heading.
    """

    def __init__(  # noqa: PLR0913 - all but the text are keywords with defaults
        self,
        ink: drawing_style.DrawingStyle,
        width: float,
        whole: str,
        language: str = "",
        *,
        left: float = 0.0,
        gap: float = 0.0,
        more: basic_boxes.SectionKey = (),
        lines: int = FIRST_LINES,
        at_once: int = AT_ONCE,
        label: str = "",
    ) -> None:
        """Lays out the first lines of the code. Long code is coloured in slices after
        it is shown; "Show more" at its end shows further lines. A difference ("+" and
        "-" before its lines) has the colours of what changed, not those of a language.
        """
        super().__init__(ink, width, left=left, gap=gap)
        self._whole = whole
        self._label = label
        self._references: list[_ReferenceInCode] | None = None  # None: they were not needed yet.
        self._is_difference = language in _DIFFS or _looks_like_difference(whole)
        self.scrolled = 0.0

        first_lines = whole.split("\n", lines)[:lines]
        self._lines = [cut_very_long_line(line) for line in first_lines]
        self.text = _LINE_END.join(self._lines)
        self._layout = QTextLayout(self.text, ink.mono)
        self._layout.setTextOption(ink.build_code_option(QTextOption.WrapMode.NoWrap))

        self._runs: Iterator[Run] | None = None  # What is still to be coloured.
        self._coloured: list[Run] = []
        # The lines of a difference have the colours of what changed instead.
        if language and language not in _DIFFS:
            self._start_colouring(language, at_once)

        padding = ink.scaled_pixels(12)
        self._side = ink.scaled_pixels(14)
        self._top = padding
        if label:
            self._top = ink.scaled_pixels(LABEL)
        self.height = self._top + self._lay_out_code_and_return_height() + padding

        hidden_lines = whole.count("\n") + 1 - len(first_lines)
        if hidden_lines:
            self.height += ink.scaled_pixels(24)
            self._add_show_more_line(hidden_lines, more)
        self._add_copy_button()

    def _start_colouring(self, language: str, at_once: int) -> None:
        runs = highlight_code("\n".join(self._lines), language)
        if len(self.text) <= at_once:
            self._coloured = list(runs)
        else:
            self._runs = runs

    @property
    def needs_colours(self) -> bool:
        return self._runs is not None

    def colour_code_and_report_completion(self, deadline: float) -> bool:
        if self._runs is None:
            return False
        for run in self._runs:
            self._coloured.append(run)
            if time.perf_counter() > deadline:
                return False
        self._runs = None
        self._lay_out_code_and_return_height()
        return True

    def draw_box(self, painter: QPainter, marks: drawing_style.TextMarks, *, near: bool) -> None:
        """Draws the code on its ground, cut off at the edges, and on top what can be used with
        the mouse: the scroll bar of lines that are too long, and the buttons.
        """
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        whole_box = QRectF(0, 0, self.width, self.height)
        self.ink.theme.fill_surface(painter, whole_box, "code", self.ink.scaled_pixels(8))

        painter.save()
        painter.setClipRect(whole_box, Qt.ClipOperation.IntersectClip)
        if self._is_difference:
            self._draw_grounds_of_changed_lines(painter)
        if self._label:
            px = self.ink.scaled_pixels
            label_area = QRectF(self._side, px(7), self.width / 2, px(22))
            self.ink.draw_words(painter, label_area, self._label, self.ink.chip, "muted")
        self._draw_code(painter, marks)
        painter.restore()

        if self._overflow_width and (near or self.scrolled):
            self._draw_horizontal_scroll_bar(painter)
        for hot_spot in self.hot_spots:
            if near or not hot_spot.only_when_near:
                self._draw_copy_button_or_more_line(painter, hot_spot)

    def _draw_code(self, painter: QPainter, marks: drawing_style.TextMarks) -> None:
        painter.setPen(self.ink.token_colour("text"))
        overlays: list[QTextLayout.FormatRange] = []
        if marks is not drawing_style.NO_MARKS:
            overlays = self.ink.overlay_formats(marks)
        visible_area = painter.clipBoundingRect()
        place = QPointF(self._side - self.scrolled, self._top)
        self._layout.draw(painter, place, overlays, visible_area)

    def _draw_grounds_of_changed_lines(self, painter: QPainter) -> None:
        colour_names = {"+": "added_soft", "-": "danger_soft"}
        for number, line in enumerate(self._lines):
            colour_name = colour_names.get(line[:1])
            is_file_name = line.startswith(("+++ ", "--- "))
            if colour_name is None or is_file_name:
                continue
            top = self._top + number * self.ink.code_line_height
            ground = QRectF(0, top, self.width, self.ink.code_line_height)
            painter.fillRect(ground, self.ink.token_colour(colour_name))

    def scroll_sideways(self, pixels: float) -> bool:
        """Scrolls sideways. Returns False if there is nothing to scroll to."""
        wanted: float = min(max(self.scrolled + pixels, 0.0), self._overflow_width)
        moved = wanted != self.scrolled
        self.scrolled = wanted
        return moved

    @property
    def _overflow_width(self) -> float:
        return max(0.0, self._layout.maximumWidth() + 2 * self._side - self.width)

    def _draw_horizontal_scroll_bar(self, painter: QPainter) -> None:
        px = self.ink.scaled_pixels
        track_width = self.width - px(16)
        visible_share = self.width / (self.width + self._overflow_width)
        handle_width = max(track_width * visible_share, px(24))
        scrolled_share = self.scrolled / self._overflow_width
        left = px(8) + (track_width - handle_width) * scrolled_share
        place = QRectF(left, self.height - px(6), handle_width, px(3))
        self.ink.theme.fill_surface(painter, place, "edge", px(2))

    def find_hot_spot(self, place: QPointF) -> basic_boxes.HotSpot | None:
        return super().find_hot_spot(place) or self._find_file_reference(place)

    def _find_file_reference(self, place: QPointF) -> basic_boxes.HotSpot | None:
        """Returns the path under a point, in outputs and code of any length: it is looked for when
        somebody points at it.
        """
        number = int((place.y() - self._top) // self.ink.code_line_height)
        line_count = min(len(self._lines), self._layout.lineCount())
        if not 0 <= number < line_count:
            return None
        text = self._lines[number]
        line = self._layout.lineAt(number)
        x = place.x() - self._side + self.scrolled
        position = line.xToCursor(x, QTextLine.CursorPosition.CursorOnCharacter)
        # Qt counts in UTF-16, where some characters are two.
        units_before = position - line.textStart()
        text_before = basic_boxes.utf16_slice(text, 0, units_before)
        reference = find_file_reference_at(text, len(text_before))
        if reference is None or x > line.naturalTextWidth():
            return None
        return self._hot_spot_of_reference(number, reference)

    def _hot_spot_of_reference(
        self, line_number: int, reference: FileReference
    ) -> basic_boxes.HotSpot:
        text = self._lines[line_number]
        text_before = text[: reference.start]
        reference_words = text[reference.start : reference.end]
        line_start = self._layout.lineAt(line_number).textStart()
        start = line_start + basic_boxes.utf16_length(text_before)
        end = start + basic_boxes.utf16_length(reference_words)
        left = self.caret_rect(start)
        right = self.caret_rect(end)
        width = right.x() - left.x()
        area = QRectF(left.x(), left.y(), width, self.ink.code_line_height)
        act = OpenFile(reference.path, reference.first_line, reference.last_line)
        return basic_boxes.HotSpot(area, act, reference_words)

    def list_tab_stops(self) -> Sequence[basic_boxes.HotSpot]:
        """The buttons, and the paths in the code. Each path is a stop once, however often it stands
        there.
        """
        if self._references is None:
            self._references = self._find_first_references()
        stops = list(self.hot_spots)
        for placed in self._references:
            spot = self._hot_spot_of_reference(placed.line_number, placed.reference)
            # Of a path that is scrolled out of sight, the nearest edge is marked.
            visible_left = min(max(spot.place.left(), 0.0), self.width - MARKED_EDGE)
            visible_right = min(max(spot.place.right(), MARKED_EDGE), self.width)
            place = QRectF(spot.place)
            place.setLeft(visible_left)
            place.setRight(visible_right)
            stops.append(basic_boxes.HotSpot(place, spot.act, spot.name))
        return stops

    def _find_first_references(self) -> list[_ReferenceInCode]:
        references: list[_ReferenceInCode] = []
        seen_words: set[str] = set()
        for line_number, text in enumerate(self._lines):
            for reference in find_file_references(text):
                words = text[reference.start : reference.end]
                if words in seen_words:
                    continue
                seen_words.add(words)
                references.append(_ReferenceInCode(line_number, reference))
                if len(references) == MOST_TAB_STOPS:
                    return references
        return references

    def nearest_offset(self, place: QPointF) -> int:
        line_count = self._layout.lineCount()
        if line_count == 0:
            return 0
        line_number = int((place.y() - self._top) / self.ink.code_line_height)
        nearest_line = min(max(line_number, 0), line_count - 1)
        x_in_line = place.x() - self._side + self.scrolled
        return int(self._layout.lineAt(nearest_line).xToCursor(x_in_line))

    def caret_rect(self, offset: int) -> QRectF:
        line_height = self.ink.code_line_height
        offset_in_text = min(offset, len(self.text))
        line = self._layout.lineForTextPosition(offset_in_text)
        if not line.isValid():
            return QRectF(self._side, self._top, 1, line_height)
        x = basic_boxes.x_of_character(line, offset)
        left = self._side + x - self.scrolled
        top = self._top + line.lineNumber() * line_height
        return QRectF(left, top, 1, line_height)

    def _lay_out_code_and_return_height(self) -> float:
        ranges = self.ink.highlight_ranges(self._coloured)
        if self._is_difference:
            ranges += self._ranges_of_changed_words()
        self._layout.setFormats(ranges)
        # Code is not wrapped, so its lines may be as wide as they are.
        return basic_boxes.break_into_lines(self._layout, 1e7, self.ink.code_line_height)

    def _ranges_of_changed_words(self) -> list[QTextLayout.FormatRange]:
        from helix_desktop.gui.common.difference_rows import find_changed_words

        line_starts: list[int] = []
        start = 0
        for line in self._lines:
            line_starts.append(start)
            start += len(line) + 1
        ranges: list[QTextLayout.FormatRange] = []
        for line_number, sign, (offset, length) in find_changed_words(self._lines):
            word_start = line_starts[line_number] + offset
            word_format = self.ink.changed_word_format(sign)
            ranges.append(drawing_style.build_format_range(word_start, length, word_format))
        return ranges

    def _add_show_more_line(self, hidden_lines: int, more: basic_boxes.SectionKey) -> None:
        if not more:
            return
        px = self.ink.scaled_pixels
        place = QRectF(self._side, self.height - px(30), px(240), px(22))
        hidden = format_count(hidden_lines, "{n} more line", "{n} more lines")
        label = tr("Show more ({rest})", rest=hidden)
        show_more = basic_boxes.ToggleSection(more, MORE_LINES)
        self.hot_spots.append(basic_boxes.HotSpot(place, show_more, label))

    def _add_copy_button(self) -> None:
        if not self._whole:
            return
        px = self.ink.scaled_pixels
        label = tr("Copy")
        label_width = QFontMetricsF(self.ink.chip).horizontalAdvance(label)
        width = max(label_width + px(16), px(52))
        left = self.width - width - px(8)
        place = QRectF(left, px(7), width, px(22))
        act = basic_boxes.CopyText(self._whole)
        hot_spot = basic_boxes.HotSpot(place, act, label, only_when_near=True)
        self.hot_spots.append(hot_spot)

    def _draw_copy_button_or_more_line(
        self, painter: QPainter, hot_spot: basic_boxes.HotSpot
    ) -> None:
        if isinstance(hot_spot.act, basic_boxes.CopyText):
            self.ink.draw_frame(painter, hot_spot.place, "panel", 6, edge="edge")
            painter.setFont(self.ink.chip)
            painter.setPen(self.ink.token_colour("muted"))
            painter.drawText(hot_spot.place, Qt.AlignmentFlag.AlignCenter, hot_spot.name)
            return
        painter.setFont(self.ink.small)
        painter.setPen(self.ink.token_colour("accent"))
        painter.drawText(hot_spot.place, Qt.AlignmentFlag.AlignVCenter, hot_spot.name)
