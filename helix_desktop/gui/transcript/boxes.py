"""The pieces an item of the chat is made of, each laid out for one width and drawn by itself: words, rules, notes.

A box knows its text, so that it can be selected, searched and copied, and its hot places, which can be clicked, reached
with the keyboard and read out. Coordinates are the box's own. Code, tables and lines have modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QImage, QPainter, QPen, QTextLayout, QTextLine

from helix_desktop.gui.transcript.drawing import NO_MARKS, Ink, Marks, format_range, spread, wrapping
from helix_desktop.gui.transcript.intents import Want
from helix_desktop.gui.transcript.markdown import Paragraph, Rule, Span, Style, joined
from helix_desktop.gui.words import tr
from helix_desktop.values import dataclass

INDENT = 22
QUOTE = 14
WIDE, HIGH = 240, 180  # of a picture in a message
_LINE_END = "\N{LINE SEPARATOR}"
_ROOM = "\N{NO-BREAK SPACE}"

Key = tuple[object, ...]


class Formula(Protocol):
    """A formula that was drawn: formula.Drawn."""

    @property
    def image(self) -> QImage: ...
    @property
    def width(self) -> float: ...
    @property
    def height(self) -> float: ...
    @property
    def depth(self) -> float: ...


Drawing = Callable[[str, bool], Formula | None]  # a formula, and whether it stands on lines of its own


@dataclass(frozen=True, slots=True)
class Toggle:
    """Open or close what `key` names; `by` is added to it (how many lines more are shown)."""

    key: Key
    by: int = 0


@dataclass(frozen=True, slots=True)
class CopyText:
    text: str


@dataclass(frozen=True, slots=True)
class Address:
    """A link in a text: to be shown to the user before it is opened."""

    address: str


Act = Want | Toggle | CopyText | Address


@dataclass(frozen=True, slots=True)
class Hot:
    """A place that does something. `quiet`: drawn only while the pointer is over the box or the keyboard on it."""

    place: QRectF
    act: Act
    name: str
    quiet: bool = False


class Box:
    """One piece. `gap` is the space above it, `left` its distance from the left edge of the column."""

    text: str = ""
    before: str = ""  # what stands before the text when it is copied from its start
    chunk = -1  # where the chunk of the source begins that this box shows
    last = -1  # and where it ends
    continues = False  # a piece of a table that is not its first
    nested = False  # of a sub-agent
    waits = False  # for something that is drawn elsewhere

    def __init__(self, ink: Ink, width: float, *, left: float = 0.0, gap: float = 0.0) -> None:
        self.ink = ink
        self.width = width
        self.left = left
        self.gap = gap
        self.height = 0.0
        self.hots: list[Hot] = []

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        """Draw at the origin. `near`: the pointer or the keyboard is here."""

    def offset_at(self, place: QPointF) -> int:
        """The character nearest to a place."""
        return 0 if place.y() < self.height / 2 else length(self.text)

    def caret(self, offset: int) -> QRectF:
        """Where the cursor stands before a character."""
        return QRectF(0, 0, 1, self.height)

    def copied(self, first: int, last: int) -> str:
        """The text between two offsets, as it is pasted elsewhere."""
        return piece(self.text, first, last)

    def hot_at(self, place: QPointF) -> Hot | None:
        return next((hot for hot in self.hots if hot.place.contains(place)), None)

    def words_at(self, offset: int) -> tuple[int, int]:
        """The word around a character, for a double click."""
        first = last = min(offset, max(0, len(self.text) - 1))
        while first > 0 and _of_word(self.text[first - 1]):
            first -= 1
        while last < len(self.text) and _of_word(self.text[last]):
            last += 1
        return first, max(last, first)


def _of_word(sign: str) -> bool:
    return sign.isalnum() or sign == "_"


def lay(layout: QTextLayout, width: float, line: float) -> float:
    """Break a layout into lines of one height; returns the height of all."""
    layout.setCacheEnabled(True)
    layout.beginLayout()
    y = 0.0
    for _ in range(10_000):
        made = layout.createLine()
        if not made.isValid():
            break
        made.setLineWidth(width)
        made.setPosition(QPointF(0, y + (line - made.height()) / 2))
        y += line
    layout.endLayout()
    return y


def across(line: QTextLine, offset: int) -> float:
    """Where a character of a line begins. Qt answers with the place and the offset it took."""
    found: Any = line.cursorToX(offset)
    return float(found[0]) if isinstance(found, tuple) else float(found)


class Words(Box):
    """Text that wraps: a paragraph, a heading, an item of a list, a note."""

    def __init__(
        self,
        ink: Ink,
        width: float,
        paragraph: Paragraph,
        *,
        gap: float = 0.0,
        font: QFont | None = None,
        colour: str = "text",
        drawn: Drawing | None = None,
    ) -> None:
        indent = ink.px(INDENT) * paragraph.indent + ink.px(QUOTE) * paragraph.quote
        super().__init__(ink, max(width - indent, 40.0), left=float(indent), gap=gap)
        self._paragraph = paragraph
        self._colour = "muted" if paragraph.quote and colour == "text" else colour
        self._formulas: list[tuple[int, Formula, str]] = []
        spans = self._with_formulas(paragraph.spans, drawn)
        self.text = joined(spans).replace("\n", _LINE_END)
        self.before = f"{paragraph.marker} " if paragraph.marker else ""
        self._font = font or (ink.heading(paragraph.heading) if paragraph.heading else ink.text)
        self._line = QFontMetricsF(self._font).height() * 1.25 if paragraph.heading or font else ink.line
        self._line = max([self._line, *(formula.height + ink.px(4) for _, formula, _ in self._formulas)])
        self._layout = QTextLayout(self.text, self._font)
        self._layout.setTextOption(wrapping(self.text))
        self._layout.setFormats([*_formats(ink, spans), *self._room_for_formulas()])
        self.height = lay(self._layout, self.width, self._line)
        self.hots = [hot for start, span in _linked(spans) for hot in self._link(start, span)]

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        painter.setPen(self.ink.colour(self._colour))
        overlays = [] if marks is NO_MARKS else self.ink.overlays(marks)
        self._layout.draw(painter, QPointF(0, 0), overlays)
        for at, formula, _ in self._formulas:
            painter.drawImage(self._place_of(at, formula), formula.image)
        if self._paragraph.marker:
            self._paint_marker(painter)
        for number in range(self._paragraph.quote):
            x = self.ink.px(QUOTE) * (number - self._paragraph.quote)
            painter.fillRect(QRectF(x, 0, 2, self.height), self.ink.colour("line"))

    def offset_at(self, place: QPointF) -> int:
        if not self._layout.lineCount():
            return 0
        number = min(max(int(place.y() / self._line), 0), self._layout.lineCount() - 1)
        return int(self._layout.lineAt(number).xToCursor(place.x()))

    def caret(self, offset: int) -> QRectF:
        line = self._layout.lineForTextPosition(min(offset, len(self.text)))
        if not line.isValid():
            return QRectF(0, 0, 1, self._line)
        x = across(line, offset)
        return QRectF(x, line.lineNumber() * self._line, 1, self._line)

    def _with_formulas(self, spans: Sequence[Span], drawn: Drawing | None) -> tuple[Span, ...]:
        """A formula that is drawn becomes one sign as wide as its picture; one that is not stands as it was written."""
        if not any(span.style & Style.MATH for span in spans):
            return tuple(spans)
        found: list[Span] = []
        at = 0
        for span in spans:
            shown = span
            if span.style & Style.MATH:
                formula = drawn(span.text, False) if drawn is not None else None
                self.waits = self.waits or (drawn is not None and formula is None)
                shown = Span(f"${span.text}$", Style.CODE) if formula is None else Span(_ROOM)
                if formula is not None:
                    self._formulas.append((at, formula, span.text))
            found.append(shown)
            at += length(shown.text)
        return tuple(found)

    def _room_for_formulas(self) -> list[QTextLayout.FormatRange]:
        space = QFontMetricsF(self._font).horizontalAdvance(_ROOM)
        return [format_range(at, 1, spread(formula.width - space)) for at, formula, _ in self._formulas]

    def _place_of(self, at: int, formula: Formula) -> QRectF:
        """With its line on the line of the words."""
        caret, metrics = self.caret(at), QFontMetricsF(self._font)
        base = caret.y() + (self._line - metrics.height()) / 2 + metrics.ascent()
        return QRectF(caret.x(), base - formula.height + formula.depth, formula.width, formula.height)

    def copied(self, first: int, last: int) -> str:
        found, end = "", first
        for at, _, latex in self._formulas:
            if first <= at < last:
                found += piece(self.text, end, at) + f"${latex}$"
                end = at + 1
        return found + piece(self.text, end, last)

    def _paint_marker(self, painter: QPainter) -> None:
        marker = self._paragraph.marker
        painter.setFont(self._font)
        painter.setPen(self.ink.colour("muted"))
        width = self.ink.px(60)
        place = QRectF(-width - self.ink.px(7), 0, width, self._line)
        painter.drawText(place, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, marker)

    def _link(self, start: int, span: Span) -> list[Hot]:
        """One hot place for each line the link stands on."""
        found: list[Hot] = []
        end = start + length(span.text)
        first = self._layout.lineForTextPosition(start)
        last = self._layout.lineForTextPosition(max(start, end - 1))
        if not first.isValid() or not last.isValid():
            return found
        for number in range(first.lineNumber(), last.lineNumber() + 1):
            line = self._layout.lineAt(number)
            a = self.caret(max(start, line.textStart()))
            beyond = line.textStart() + line.textLength()
            b = self.caret(end).x() if end < beyond else line.naturalTextRect().right()
            place = QRectF(min(a.x(), b), a.y(), abs(b - a.x()), self._line)
            found.append(Hot(place, Address(span.link), span.text))
        return found


def _formats(ink: Ink, spans: Sequence[Span]) -> list[QTextLayout.FormatRange]:
    found: list[QTextLayout.FormatRange] = []
    start = 0
    for span in spans:
        size = length(span.text)
        if span.style or span.link:
            found.append(format_range(start, size, ink.style(span.style, link=bool(span.link))))
        start += size
    return found


def _linked(spans: Sequence[Span]) -> list[tuple[int, Span]]:
    found: list[tuple[int, Span]] = []
    start = 0
    for span in spans:
        if span.link:
            found.append((start, span))
        start += length(span.text)
    return found[:200]


def length(text: str) -> int:
    """Qt counts in UTF-16, and so do all offsets into the text of a box."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "replace")) // 2


def piece(text: str, first: int, last: int) -> str:
    """The characters between two offsets."""
    if text.isascii() or max(text, default="") <= "\uffff":
        return text[first:last]
    return text.encode("utf-16-le", "replace")[2 * first : 2 * last].decode("utf-16-le", "replace")


def note(
    ink: Ink, width: float, text: str, *, gap: float = 0.0, colour: str = "muted", font: QFont | None = None
) -> Words:
    """A line of the program's own."""
    return Words(ink, width, Paragraph((Span(text),)), gap=gap, font=font or ink.small, colour=colour)


class RuleBox(Box):
    """A thematic break."""

    text = "———"

    def __init__(self, ink: Ink, width: float, rule: Rule, *, gap: float = 0.0) -> None:
        left = ink.px(INDENT) * rule.indent + ink.px(QUOTE) * rule.quote
        super().__init__(ink, width - left, left=float(left), gap=gap)
        self.height = float(ink.px(9))

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        painter.fillRect(QRectF(0, self.height / 2, self.width, 1), self.ink.colour("line"))


class Picture(Box):
    """A picture from the cache, small; a click does `act`."""

    def __init__(
        self, ink: Ink, width: float, image: QImage, name: str, *, gap: float = 0.0, act: Act | None = None
    ) -> None:
        super().__init__(ink, width, gap=gap)
        wide, high = min(width, ink.px(WIDE)), ink.px(HIGH)
        scale = min(1.0, wide / max(1, image.width()), high / max(1, image.height()))
        self._image = image
        self._place = QRectF(0, 0, image.width() * scale, image.height() * scale)
        self.height = self._place.height()
        self.text = f"[{name}]"
        if act is not None:
            self.hots = [Hot(self._place, act, tr("Open {name} at full size", name=name))]

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        painter.drawImage(self._place, self._image)
        painter.setPen(QPen(self.ink.colour("line")))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(self._place)


class More(Box):
    """A line to click: show more, open, close."""

    def __init__(self, ink: Ink, width: float, words: str, act: Act, *, gap: float) -> None:
        super().__init__(ink, width, gap=gap)
        self.height = float(ink.px(22))
        metrics = QFontMetricsF(ink.small)
        self._words = metrics.elidedText(words, Qt.TextElideMode.ElideRight, width + 1)
        reach = metrics.horizontalAdvance(self._words)
        self.hots = [Hot(QRectF(0, 0, reach + 4, self.height), act, words)]

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        painter.setFont(self.ink.small)
        painter.setPen(self.ink.colour("accent"))
        painter.drawText(QRectF(0, 0, self.width, self.height), Qt.AlignmentFlag.AlignVCenter, self._words)
