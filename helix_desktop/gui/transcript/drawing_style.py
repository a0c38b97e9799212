"""The fonts and formats of a theme, built once, and the marks over a text."""

from collections.abc import Iterable
from functools import cache, cached_property

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetricsF,
    QPainter,
    QTextCharFormat,
    QTextLayout,
    QTextOption,
)

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.code_highlighting import Run
from helix_desktop.gui.transcript.markdown_blocks import Block, TextStyle
from helix_desktop.gui.transcript.safe_text import is_right_to_left

# The indents of a list level and of a quotation, in pixels.
INDENT = 22
QUOTE = 14
# The sizes of the letters of headings, in pixels, by level.
_HEADINGS = {1: 18.0, 2: 16.0, 3: 14.0, 4: 13.0, 5: 13.0, 6: 13.0}
# The heights of a line of text and of code, for each pixel of their letters.
LINE = 1.5
CODE_LINE = 1.55


@dataclass(frozen=True, slots=True)
class TextMarks:
    """The marks over one box's text: the selected characters and the search hits, one
    of which is the current one.
    """

    selected: tuple[int, int] = (0, 0)
    found: tuple[tuple[int, int], ...] = ()
    current: int = -1

    @property
    def has_selection(self) -> bool:
        first, last = self.selected
        return last > first

    def marks_within(self, start: int, length: int) -> "TextMarks":
        """Returns the marks with offsets relative to a piece of the text."""
        first_selected, last_selected = self.selected
        first_within = min(max(first_selected - start, 0), length)
        last_within = min(max(last_selected - start, 0), length)

        hits_within: list[tuple[int, int]] = []
        hits_before = 0
        for hit_start, hit_length in self.found:
            if hit_start < start:
                hits_before += 1
            elif hit_start < start + length:
                hits_within.append((hit_start - start, hit_length))

        current_hit = -1
        if self.current >= 0:
            current_hit = self.current - hits_before
        return TextMarks((first_within, last_within), tuple(hits_within), current_hit)


NO_MARKS = TextMarks()


class DrawingStyle:
    """Fonts, colours and formats of a theme. A changed theme replaces it and all layouts."""

    def __init__(self, theme: Theme) -> None:
        """Takes the fonts, lengths and colours that drawing needs from the theme. They
        are worked out once: a conversation that is scrolled asks for them thousands of
        times.
        """
        self.theme = theme
        self.scaled_pixels = cache(theme.zoomed_pixels)  # A frame needs a hundred lengths.
        self.token_colour = theme.colour_of_token
        self.draw_words = theme.draw_words
        self.text_line_height = theme.text_zoom * 13 * LINE
        self.code_line_height = theme.text_zoom * 12 * CODE_LINE
        self.text = theme.build_font()
        self.small = theme.build_font(12)
        self.chip = theme.build_font(11)
        self.chip_mono = theme.monospaced_font(11)
        self.name = theme.build_font(12, weight=QFont.Weight.DemiBold)
        self.mono = theme.monospaced_font()
        self._formats: dict[tuple[int, bool], QTextCharFormat] = {}
        self._colours: dict[str, QTextCharFormat] = {}

    @cached_property
    def code_letter_width(self) -> float:
        return QFontMetricsF(self.mono).horizontalAdvance("x")

    def heading_font(self, level: int) -> QFont:
        return self.theme.build_font(_HEADINGS[level], weight=QFont.Weight.DemiBold)

    def span_format(self, style: int, *, link: bool) -> QTextCharFormat:
        known_format = self._formats.get((style, link))
        if known_format is not None:
            return known_format
        new_format = self._build_span_format(style, link=link)
        self._formats[style, link] = new_format
        return new_format

    def highlight_ranges(self, runs: Iterable[Run]) -> list[QTextLayout.FormatRange]:
        ranges: list[QTextLayout.FormatRange] = []
        for start, length, colour_name in runs:
            run_format = self._highlight_format(colour_name)
            ranges.append(build_format_range(start, length, run_format))
        return ranges

    def _highlight_format(self, colour_name: str) -> QTextCharFormat:
        known_format = self._colours.get(colour_name)
        if known_format is not None:
            return known_format
        new_format = QTextCharFormat()
        new_format.setForeground(self.token_colour(colour_name))
        self._colours[colour_name] = new_format
        return new_format

    def changed_word_format(self, sign: str) -> QTextCharFormat:
        """Returns the format for the words that were removed ("-") or added."""
        colour = "output"
        if sign == "-":
            colour = "danger"
        background = QColor(self.token_colour(colour))
        background.setAlpha(64)
        word_format = QTextCharFormat()
        word_format.setForeground(self.token_colour("text"))
        word_format.setBackground(background)
        return word_format

    def overlay_formats(self, marks: TextMarks) -> list[QTextLayout.FormatRange]:
        """Returns format ranges for the marks. The selection is drawn over search hits."""
        ranges: list[QTextLayout.FormatRange] = []
        for number, (hit_start, hit_length) in enumerate(marks.found):
            colour_name = "found"
            if number == marks.current:
                colour_name = "found_current"
            hit_format = self._background_format(colour_name)
            ranges.append(build_format_range(hit_start, hit_length, hit_format))
        if marks.has_selection:
            first, last = marks.selected
            selection_format = self._background_format("")
            ranges.append(build_format_range(first, last - first, selection_format))
        return ranges

    def _build_span_format(self, style: int, *, link: bool) -> QTextCharFormat:
        span_format = QTextCharFormat()
        if style & TextStyle.CODE:
            span_format.setFont(self.mono)
        if style & TextStyle.BOLD:
            span_format.setFontWeight(QFont.Weight.DemiBold)
        if style & TextStyle.ITALIC:
            span_format.setFontItalic(True)
        if style & TextStyle.STRUCK:
            span_format.setFontStrikeOut(True)
        if link:
            span_format.setForeground(self.token_colour("accent"))
            span_format.setFontUnderline(True)
        return span_format

    def _background_format(self, name: str) -> QTextCharFormat:
        """Returns the format of a search hit, or of the selection if `name` is empty."""
        key = f"ground {name}"
        known_format = self._colours.get(key)
        if known_format is not None:
            return known_format
        background = self.selection_colour
        if name:
            background = self.token_colour(name)
        new_format = QTextCharFormat()
        new_format.setBackground(background)
        # No other colour is readable on all of these backgrounds.
        new_format.setForeground(self.token_colour("text"))
        self._colours[key] = new_format
        return new_format

    def left_edge_of(self, block: Block) -> float:
        list_indent = self.scaled_pixels(INDENT) * block.indent
        quote_indent = self.scaled_pixels(QUOTE) * block.quote
        return float(list_indent + quote_indent)

    def build_code_option(self, mode: QTextOption.WrapMode) -> QTextOption:
        option = QTextOption(Qt.AlignmentFlag.AlignLeft)
        option.setTextDirection(Qt.LayoutDirection.LeftToRight)
        option.setTabStopDistance(4 * self.code_letter_width)
        option.setWrapMode(mode)
        return option

    def draw_frame(
        self, painter: QPainter, place: QRectF, ground: str, radius: float, *, edge: str = "line"
    ) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(self.token_colour(edge))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if ground:
            painter.setBrush(self.token_colour(ground))
        corner = self.scaled_pixels(radius)
        painter.drawRoundedRect(place, corner, corner)

    @cached_property
    def selection_colour(self) -> QColor:
        chosen = QColor(self.token_colour("accent"))
        chosen.setAlpha(70)
        return chosen


def build_format_range(start: int, length: int, style: QTextCharFormat) -> QTextLayout.FormatRange:
    format_range = QTextLayout.FormatRange()
    format_range.start = start
    format_range.length = length
    format_range.format = style
    return format_range


def build_spacing_format(pixels: float) -> QTextCharFormat:
    """Returns a format that widens a character by this many pixels."""
    spacing_format = QTextCharFormat()
    spacing_format.setFontLetterSpacingType(QFont.SpacingType.AbsoluteSpacing)
    spacing_format.setFontLetterSpacing(pixels)
    return spacing_format


def build_wrap_option(
    text: str, align: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft
) -> QTextOption:
    """Returns how lines wrap. Arabic and Hebrew are aligned to the right automatically."""
    if is_right_to_left(text):
        align = Qt.AlignmentFlag.AlignRight
    option = QTextOption(align)
    option.setTextDirection(Qt.LayoutDirection.LayoutDirectionAuto)
    option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    return option
