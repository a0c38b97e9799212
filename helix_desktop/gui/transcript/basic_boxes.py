"""The basic boxes of which an item of the chat consists: text, rule, picture, and a line to click.

A box knows its text, so that it can be selected, searched and copied, and its hot
spots, which can be clicked, reached with the keyboard and read out. Coordinates are
relative to the box. Code, tables and lines have separate modules.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QImage, QPainter, QPen, QTextLayout, QTextLine

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.text_selection import word_range
from helix_desktop.gui.transcript import markdown_blocks
from helix_desktop.gui.transcript.chat_actions import ChatIntent, OpenFile
from helix_desktop.gui.transcript.drawing_style import (
    NO_MARKS,
    QUOTE,
    DrawingStyle,
    TextMarks,
    build_format_range,
    build_spacing_format,
    build_wrap_option,
)
from helix_desktop.gui.transcript.file_references import FILE_LINK, find_file_references
from helix_desktop.gui.transcript.markdown_blocks import ParagraphBlock, StyledSpan, TextStyle
from helix_desktop.gui.translation import tr

# The maximum size of a picture in a message, in pixels.
WIDE = 240
HIGH = 180
MOST_LINKS = 200  # Links of a paragraph beyond these cannot be clicked.
_LINE_END = "\N{LINE SEPARATOR}"
_ROOM = "\N{NO-BREAK SPACE}"

SectionKey = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class FormulaPicture:
    """A drawn formula: its size and its depth below the baseline, in pixels of the window."""

    image: QImage
    width: float
    height: float
    depth: float


# Gets LaTeX, and whether it has a line of its own.
FormulaLookup = Callable[[str, bool], FormulaPicture | None]


@dataclass(frozen=True, slots=True)
class ToggleSection:
    """Opens or closes what `key` names. `extra_lines` is the number of additional lines to show."""

    key: SectionKey
    extra_lines: int = 0


@dataclass(frozen=True, slots=True)
class CopyText:
    text: str


@dataclass(frozen=True, slots=True)
class LinkAddress:
    """A link in a text, which is shown to the user before it is opened."""

    address: str


BoxAction = ChatIntent | ToggleSection | CopyText | LinkAddress


@dataclass(frozen=True, slots=True)
class HotSpot:
    """A place that reacts to clicks. `only_when_near`: it is drawn only while the box
    has the pointer or the focus.
    """

    place: QRectF
    act: BoxAction
    name: str
    only_when_near: bool = False


class LayoutBox:
    """One part of an item. `gap`: the space above it; `left`: its distance from the
    column's left edge.
    """

    text: str = ""
    # Text that is put before the copied text, such as the bullet of a list item.
    copied_prefix: str = ""
    chunk_start = -1  # Where the part of the Markdown source that this box shows begins.
    chunk_end = -1  # Where that part of the source ends.
    is_table_continuation = False  # True if another piece of the same table comes before this one.
    is_from_subagent = False  # True if a sub-agent wrote the text.
    is_waiting_for_drawing = False  # True while a formula in this box is being drawn.

    def __init__(
        self, ink: DrawingStyle, width: float, *, left: float = 0.0, gap: float = 0.0
    ) -> None:
        self.ink = ink
        self.width = width
        self.left = left
        self.gap = 0.0
        if gap:
            self.gap = ink.scaled_pixels(gap)
        self.height = 0.0
        self.hot_spots: list[HotSpot] = []

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        """Draws the box at the origin. `near`: this box has the pointer or the focus."""

    def nearest_offset(self, place: QPointF) -> int:
        if place.y() < self.height / 2:
            return 0
        return utf16_length(self.text)

    def caret_rect(self, offset: int) -> QRectF:
        return QRectF(0, 0, 1, self.height)

    def copyable_text(self, first: int, last: int) -> str:
        """Returns the text between two offsets in the form that is copied."""
        return utf16_slice(self.text, first, last)

    def find_hot_spot(self, place: QPointF) -> HotSpot | None:
        for hot_spot in self.hot_spots:
            if hot_spot.place.contains(place):
                return hot_spot
        return None

    def list_tab_stops(self) -> Sequence[HotSpot]:
        """Returns what Tab visits in this box."""
        return self.hot_spots

    def word_range_at(self, offset: int) -> tuple[int, int]:
        last_offset = max(0, len(self.text) - 1)
        offset_in_text = min(offset, last_offset)
        return word_range(self.text, offset_in_text)


def break_into_lines(layout: QTextLayout, width: float, line_height: float) -> float:
    """Breaks a layout into lines of equal height. Returns the total height."""
    layout.setCacheEnabled(True)
    layout.beginLayout()
    y = 0.0
    for _ in range(10_000):
        line = layout.createLine()
        if not line.isValid():
            break
        line.setLineWidth(width)
        line.setPosition(QPointF(0, y + (line_height - line.height()) / 2))
        y += line_height
    layout.endLayout()
    return y


def x_of_character(line: QTextLine, offset: int) -> float:
    """Returns the x position of a character. Qt returns both the position and the
    offset it used.
    """
    x_or_pair: Any = line.cursorToX(offset)
    if isinstance(x_or_pair, tuple):
        return float(x_or_pair[0])
    return float(x_or_pair)


@dataclass(frozen=True, slots=True)
class _FormulaInText:
    """A formula whose picture stands at the placeholder at `offset`."""

    offset: int
    picture: FormulaPicture
    latex: str


class TextBox(LayoutBox):
    """Wrapped text: a paragraph, a heading, an item of a list, a note."""

    def __init__(
        self,
        ink: DrawingStyle,
        width: float,
        paragraph: ParagraphBlock,
        *,
        gap: float = 0.0,
        font: QFont | None = None,
        colour: str = "text",
        drawn: FormulaLookup | None = None,
    ) -> None:
        """Lays out a paragraph, a heading or an item of a list at once, so that its
        height is known before it is drawn. `drawn` finds the pictures of the formulas
        in the text; they get a placeholder of their width.
        """
        left = ink.left_edge_of(paragraph)
        super().__init__(ink, max(width - left, 40.0), left=left, gap=gap)
        self._paragraph = paragraph
        self._colour = colour
        if paragraph.quote and colour == "text":
            self._colour = "muted"
        if paragraph.marker:
            self.copied_prefix = f"{paragraph.marker} "

        self._formulas: list[_FormulaInText] = []
        spans = self._replace_drawn_formulas_with_placeholders(paragraph.spans, drawn)
        self.text = markdown_blocks.join_span_texts(spans).replace("\n", _LINE_END)
        self._font = self._choose_font(font)
        self._line_height = self._choose_line_height(font)

        formats = build_span_formats(ink, spans)
        formats += self._formats_widening_formula_placeholders()
        self._layout = QTextLayout(self.text, self._font)
        self._layout.setTextOption(build_wrap_option(self.text))
        self._layout.setFormats(formats)
        self.height = break_into_lines(self._layout, self.width, self._line_height)
        self._add_hot_spots_of_links(spans)

    def _choose_font(self, given_font: QFont | None) -> QFont:
        if given_font is not None:
            return given_font
        if self._paragraph.heading:
            return self.ink.heading_font(self._paragraph.heading)
        return self.ink.text

    def _choose_line_height(self, given_font: QFont | None) -> float:
        line_height = self.ink.text_line_height
        if self._paragraph.heading or given_font is not None:
            line_height = QFontMetricsF(self._font).height() * 1.25
        # All lines are as high as the highest formula, so that a place leads to its line quickly.
        for formula in self._formulas:
            room_for_formula = formula.picture.height + self.ink.scaled_pixels(4)
            line_height = max(line_height, room_for_formula)
        return line_height

    def _add_hot_spots_of_links(self, spans: Sequence[StyledSpan]) -> None:
        link_count = 0
        for start, span in _spans_with_starts(spans):
            if span.link and link_count < MOST_LINKS:
                self.hot_spots += self._hot_spots_of_link(start, span)
                link_count += 1

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        painter.setPen(self.ink.token_colour(self._colour))
        overlays: list[QTextLayout.FormatRange] = []
        if marks is not NO_MARKS:
            overlays = self.ink.overlay_formats(marks)
        self._layout.draw(painter, QPointF(0, 0), overlays)
        for formula in self._formulas:
            painter.drawImage(self._formula_rect(formula), formula.picture.image)
        if self._paragraph.marker:
            self._draw_list_marker(painter)
        # Each quotation that contains the paragraph has a line at its left.
        line_colour = self.ink.token_colour("line")
        for number in range(self._paragraph.quote):
            x = self.ink.scaled_pixels(QUOTE) * (number - self._paragraph.quote)
            quotation_line = QRectF(x, 0, 2, self.height)
            painter.fillRect(quotation_line, line_colour)

    def nearest_offset(self, place: QPointF) -> int:
        line_count = self._layout.lineCount()
        if line_count == 0:
            return 0
        line_number = int(place.y() / self._line_height)
        nearest_number = min(max(line_number, 0), line_count - 1)
        nearest_line = self._layout.lineAt(nearest_number)
        return int(nearest_line.xToCursor(place.x()))

    def caret_rect(self, offset: int) -> QRectF:
        line = self._layout.lineForTextPosition(min(offset, len(self.text)))
        if not line.isValid():
            return QRectF(0, 0, 1, self._line_height)
        x = x_of_character(line, offset)
        y = line.lineNumber() * self._line_height
        return QRectF(x, y, 1, self._line_height)

    def _replace_drawn_formulas_with_placeholders(
        self, spans: Sequence[StyledSpan], drawn: FormulaLookup | None
    ) -> tuple[StyledSpan, ...]:
        """Replaces each drawn formula with a placeholder as wide as its picture. Others
        stay as they were written.
        """
        shown_spans: list[StyledSpan] = []
        offset = 0
        for span in spans:
            shown_span = span
            if span.style & TextStyle.MATH:
                shown_span = self._place_formula(offset, span.text, drawn)
            shown_spans.append(shown_span)
            offset += utf16_length(shown_span.text)
        return tuple(shown_spans)

    def _place_formula(self, offset: int, latex: str, drawn: FormulaLookup | None) -> StyledSpan:
        source = StyledSpan(f"${latex}$", TextStyle.CODE)
        if drawn is None:
            return source
        picture = drawn(latex, False)
        if picture is None:
            self.is_waiting_for_drawing = True
            return source
        self._formulas.append(_FormulaInText(offset, picture, latex))
        return StyledSpan(_ROOM)

    def _formats_widening_formula_placeholders(self) -> list[QTextLayout.FormatRange]:
        placeholder_width = QFontMetricsF(self._font).horizontalAdvance(_ROOM)
        formats: list[QTextLayout.FormatRange] = []
        for formula in self._formulas:
            spacing = build_spacing_format(formula.picture.width - placeholder_width)
            formats.append(build_format_range(formula.offset, 1, spacing))
        return formats

    def _formula_rect(self, formula: "_FormulaInText") -> QRectF:
        """Returns the rectangle of a formula, on the baseline of the text."""
        picture = formula.picture
        caret = self.caret_rect(formula.offset)
        metrics = QFontMetricsF(self._font)
        baseline = caret.y() + (self._line_height - metrics.height()) / 2 + metrics.ascent()
        top = baseline - picture.height + picture.depth
        return QRectF(caret.x(), top, picture.width, picture.height)

    def copyable_text(self, first: int, last: int) -> str:
        copied = ""
        copied_up_to = first
        # A formula is copied as it was written, not as its placeholder.
        for formula in self._formulas:
            if first <= formula.offset < last:
                copied += utf16_slice(self.text, copied_up_to, formula.offset)
                copied += f"${formula.latex}$"
                copied_up_to = formula.offset + 1
        copied += utf16_slice(self.text, copied_up_to, last)
        return copied

    def _draw_list_marker(self, painter: QPainter) -> None:
        painter.setFont(self._font)
        painter.setPen(self.ink.token_colour("muted"))
        width = self.ink.scaled_pixels(60)
        left = -width - self.ink.scaled_pixels(7)
        place = QRectF(left, 0, width, self._line_height)
        alignment = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(place, alignment, self._paragraph.marker)

    def _hot_spots_of_link(self, start: int, span: StyledSpan) -> list[HotSpot]:
        """Returns one hot spot for each line of the link."""
        end = start + utf16_length(span.text)
        last_character = max(start, end - 1)
        first_line = self._layout.lineForTextPosition(start)
        last_line = self._layout.lineForTextPosition(last_character)
        if not first_line.isValid() or not last_line.isValid():
            return []
        action = action_of_link(span.link)
        hot_spots: list[HotSpot] = []
        for number in range(first_line.lineNumber(), last_line.lineNumber() + 1):
            line = self._layout.lineAt(number)
            start_in_line = max(start, line.textStart())
            begin = self.caret_rect(start_in_line)
            end_of_line = line.textStart() + line.textLength()
            if end < end_of_line:
                end_x = self.caret_rect(end).x()
            else:
                end_x = line.naturalTextRect().right()
            # In text from right to left, a link ends at the left of where it begins.
            left = min(begin.x(), end_x)
            width = abs(end_x - begin.x())
            place = QRectF(left, begin.y(), width, self._line_height)
            hot_spots.append(HotSpot(place, action, span.text))
        return hot_spots


def action_of_link(link: str) -> BoxAction:
    """Returns what a click on a link does: a path opens the preview, an address is shown first."""
    if link.startswith(FILE_LINK):
        reference = next(find_file_references(link.removeprefix(FILE_LINK)), None)
        if reference is not None:
            return OpenFile(reference.path, reference.first_line, reference.last_line)
    return LinkAddress(link)


def build_span_formats(
    ink: DrawingStyle, spans: Sequence[StyledSpan]
) -> list[QTextLayout.FormatRange]:
    formats: list[QTextLayout.FormatRange] = []
    for start, span in _spans_with_starts(spans):
        if span.style or span.link:
            span_format = ink.span_format(span.style, link=bool(span.link))
            length = utf16_length(span.text)
            formats.append(build_format_range(start, length, span_format))
    return formats


def _spans_with_starts(spans: Sequence[StyledSpan]) -> Iterable[tuple[int, StyledSpan]]:
    start = 0
    for span in spans:
        yield start, span
        start += utf16_length(span.text)


def utf16_length(text: str) -> int:
    """Returns the length in UTF-16 units, which Qt and all offsets into a box's text use."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "replace")) // 2


def utf16_slice(text: str, first: int, last: int) -> str:
    """Returns the text between two offsets in UTF-16 units."""
    # Without characters beyond the first plane, each is one unit.
    if text.isascii() or max(text, default="") <= "\uffff":
        return text[first:last]
    units = text.encode("utf-16-le", "replace")
    return units[2 * first : 2 * last].decode("utf-16-le", "replace")


def build_note_box(
    ink: DrawingStyle,
    width: float,
    text: str,
    *,
    gap: float = 0.0,
    colour: str = "muted",
    font: QFont | None = None,
) -> TextBox:
    """Builds a small, muted line of plain text, as below a tool's output."""
    paragraph = ParagraphBlock((StyledSpan(text),))
    note_font = font or ink.small
    return TextBox(ink, width, paragraph, gap=gap, font=note_font, colour=colour)


def build_heading_box(ink: DrawingStyle, width: float, text: str, *, gap: float = 0.0) -> TextBox:
    return build_note_box(ink, width, text, gap=gap, colour="text", font=ink.name)


class RuleBox(LayoutBox):
    text = "———"

    def __init__(
        self, ink: DrawingStyle, width: float, rule: markdown_blocks.RuleBlock, *, gap: float = 0.0
    ) -> None:
        left = ink.left_edge_of(rule)
        super().__init__(ink, width - left, left=left, gap=gap)
        self.height = ink.scaled_pixels(9)

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        painter.fillRect(QRectF(0, self.height / 2, self.width, 1), self.ink.token_colour("line"))


class PictureBox(LayoutBox):
    """A small picture from the cache. A click runs `act`."""

    def __init__(
        self,
        ink: DrawingStyle,
        width: float,
        image: QImage,
        name: str,
        *,
        gap: float = 0.0,
        act: BoxAction | None = None,
    ) -> None:
        """Shows a picture within the column, with its name for copying and for screen
        readers. `act`: what a press on it does.
        """
        super().__init__(ink, width, gap=gap)
        most_width = min(width, ink.scaled_pixels(WIDE))
        most_height = ink.scaled_pixels(HIGH)
        scale_by_width = most_width / max(1, image.width())
        scale_by_height = most_height / max(1, image.height())
        # A picture is never enlarged.
        scale = min(1.0, scale_by_width, scale_by_height)
        self._image = image
        self._place = QRectF(0, 0, image.width() * scale, image.height() * scale)
        self.height = self._place.height()
        self.text = f"[{name}]"
        if act is not None:
            words = tr("Open {name} at full size", name=name)
            self.hot_spots = [HotSpot(self._place, act, words)]

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        painter.drawImage(self._place, self._image)
        line_colour = self.ink.token_colour("line")
        painter.setPen(QPen(line_colour))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(self._place)


class ActionLineBox(LayoutBox):
    """A line to click, which shows more, opens or closes something."""

    def __init__(
        self, ink: DrawingStyle, width: float, words: str, act: BoxAction, *, gap: float
    ) -> None:
        super().__init__(ink, width, gap=gap)
        self.height = ink.scaled_pixels(22)
        metrics = QFontMetricsF(ink.small)
        self._words = metrics.elidedText(words, Qt.TextElideMode.ElideRight, width + 1)
        reach = metrics.horizontalAdvance(self._words) + 4
        words_area = QRectF(0, 0, reach, self.height)
        self.hot_spots = [HotSpot(words_area, act, words)]

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        whole = QRectF(0, 0, self.width, self.height)
        self.ink.draw_words(painter, whole, self._words, self.ink.small, "accent")
