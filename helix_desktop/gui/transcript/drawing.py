"""What boxes are drawn with: the fonts and formats of a theme, made once, and the marks that lie over a text."""

from __future__ import annotations

import unicodedata
from functools import cached_property

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QTextCharFormat, QTextLayout, QTextOption

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.markdown import Style
from helix_desktop.values import dataclass

_HEADINGS = {1: 18.0, 2: 16.0, 3: 14.0, 4: 13.0, 5: 13.0, 6: 13.0}
LINE = 1.5
CODE_LINE = 1.55


@dataclass(frozen=True, slots=True)
class Marks:
    """What lies over the text of one box: the selected characters and the places found, one of them the current one."""

    selected: tuple[int, int] = (0, 0)
    found: tuple[tuple[int, int], ...] = ()
    current: int = -1

    def within(self, start: int, length: int) -> Marks:
        """The same marks as seen from a piece of the text."""
        first, last = self.selected
        inside = (min(max(first - start, 0), length), min(max(last - start, 0), length))
        pieces = tuple((at - start, size) for at, size in self.found if start <= at < start + length)
        skipped = sum(1 for at, _ in self.found if at < start)
        return Marks(inside, pieces, self.current - skipped if self.current >= 0 else -1)


NO_MARKS = Marks()


class Ink:
    """Everything that depends on the theme alone. A new one is made when the theme changes; layouts go with the old."""

    def __init__(self, theme: Theme) -> None:
        self.theme = theme
        self.text = theme.font()
        self.small = theme.font(12)
        self.chip = theme.font(11)
        self.chip_mono = theme.mono(11)
        self.name = theme.font(12, weight=QFont.Weight.DemiBold)
        self.mono = theme.mono()
        self._formats: dict[tuple[Style, bool], QTextCharFormat] = {}
        self._colours: dict[str, QTextCharFormat] = {}

    def px(self, length: float) -> int:
        return self.theme.px(length)

    def colour(self, name: str) -> QColor:
        return self.theme.colour(name)

    @cached_property
    def line(self) -> float:
        """The height of a line of text."""
        return self.theme.zoom * 13 * LINE

    @cached_property
    def code_line(self) -> float:
        return self.theme.zoom * 12 * CODE_LINE

    @cached_property
    def letter(self) -> float:
        """The width of a letter of code."""
        return QFontMetricsF(self.mono).horizontalAdvance("x")

    def heading(self, level: int) -> QFont:
        return self.theme.font(_HEADINGS[level], weight=QFont.Weight.DemiBold)

    def style(self, style: Style, *, link: bool) -> QTextCharFormat:
        """The format of a span."""
        made = self._formats.get((style, link))
        if made is None:
            made = self._formats[style, link] = self._styled(style, link=link)
        return made

    def coloured(self, name: str) -> QTextCharFormat:
        """The format of a run of highlighted code."""
        made = self._colours.get(name)
        if made is None:
            made = self._colours[name] = QTextCharFormat()
            made.setForeground(self.colour(name))
        return made

    def changed(self, sign: str) -> QTextCharFormat:
        """The format of the words of a line that went ("-") or came."""
        ground = QColor(self.colour("danger" if sign == "-" else "output"))
        ground.setAlpha(64)
        made = QTextCharFormat()
        made.setForeground(self.colour("text"))
        made.setBackground(ground)
        return made

    def overlays(self, marks: Marks) -> list[QTextLayout.FormatRange]:
        """The marks as Qt draws them over a text layout: what is selected lies over what is found."""
        ranges = [
            _range(at, size, self._ground("found_current" if number == marks.current else "found"))
            for number, (at, size) in enumerate(marks.found)
        ]
        first, last = marks.selected
        if last > first:
            ranges.append(_range(first, last - first, self._ground("")))
        return ranges

    def _styled(self, style: Style, *, link: bool) -> QTextCharFormat:
        made = QTextCharFormat()
        if style & Style.CODE:
            made.setFont(self.mono)
        if style & Style.BOLD:
            made.setFontWeight(QFont.Weight.DemiBold)
        if style & Style.ITALIC:
            made.setFontItalic(True)
        if style & Style.STRUCK:
            made.setFontStrikeOut(True)
        if link:
            made.setForeground(self.colour("accent"))
            made.setFontUnderline(True)
        return made

    def _ground(self, name: str) -> QTextCharFormat:
        key = f"ground {name}"
        made = self._colours.get(key)
        if made is None:
            made = self._colours[key] = QTextCharFormat()
            made.setBackground(self.colour(name) if name else self.selection)
            made.setForeground(self.colour("text"))  # the only colour that can be read on all of these
        return made

    @cached_property
    def selection(self) -> QColor:
        chosen = QColor(self.colour("accent"))
        chosen.setAlpha(70)
        return chosen


def _range(start: int, length: int, style: QTextCharFormat) -> QTextLayout.FormatRange:
    made = QTextLayout.FormatRange()
    made.start, made.length, made.format = start, length, style
    return made


def format_range(start: int, length: int, style: QTextCharFormat) -> QTextLayout.FormatRange:
    """A format for some characters of a layout."""
    return _range(start, length, style)


def spread(by: float) -> QTextCharFormat:
    """A sign that is wider by so many pixels."""
    made = QTextCharFormat()
    made.setFontLetterSpacingType(QFont.SpacingType.AbsoluteSpacing)
    made.setFontLetterSpacing(by)
    return made


def right_to_left(text: str) -> bool:
    """Whether the first letter that has a direction runs from the right."""
    if text.isascii():
        return False
    for sign in text[:500]:
        direction = unicodedata.bidirectional(sign)
        if direction in {"R", "AL"}:
            return True
        if direction == "L":
            return False
    return False


def wrapping(text: str = "", *, wrap: bool = True, align: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft) -> QTextOption:
    """How lines break. Arabic and Hebrew stand at the right by themselves."""
    option = QTextOption(Qt.AlignmentFlag.AlignRight if right_to_left(text) else align)
    option.setTextDirection(Qt.LayoutDirection.LayoutDirectionAuto)
    mode = QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere if wrap else QTextOption.WrapMode.NoWrap
    option.setWrapMode(mode)
    return option
