"""The one-line boxes: a tool call, the line of a fold across the page, a header that opens what is under it."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QPen

from helix_desktop.engine.blocks import Kind
from helix_desktop.gui.transcript.boxes import Act, Box, Hot
from helix_desktop.gui.transcript.drawing import Ink, Marks
from helix_desktop.gui.transcript.tool_lines import CallLine, Chip, Look

_MIDDLE = Qt.AlignmentFlag.AlignVCenter
_DASHES = [1.75, 1.0]


class CallBox(Box):
    """Dot, words, chips, and how it went at the right. A click on the line does `toggle`; on the words at the right,
    `right`, or what the line wants there.
    """

    def __init__(
        self,
        ink: Ink,
        width: float,
        line: CallLine,
        toggle: Act,
        *,
        right: Act | None = None,
        gap: float = 0.0,
    ) -> None:
        super().__init__(ink, width, gap=gap)
        self.text = line.words
        self.height = float(ink.px(38))
        self._line = line
        self._act = right if right is not None else line.want
        self._chips: list[tuple[Chip, QRectF]] = []
        self._right = QRectF()
        self._arrange(toggle)

    def say(self, line: CallLine) -> None:
        """The same call a moment later: only the words at the right have changed."""
        self._line = line

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        frame = QRectF(0.5, 0.5, self.width - 1, self.height - 1)
        painter.setPen(QPen(self.ink.colour("line"), 1))
        painter.setBrush(self.ink.colour("window") if near else self.ink.colour("panel"))
        painter.drawRoundedRect(frame, self.ink.px(9), self.ink.px(9))
        if marks.selected[1] > marks.selected[0]:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self.ink.selection)
            painter.drawRoundedRect(frame, self.ink.px(9), self.ink.px(9))
        size = self.ink.px(9 if self._line.look is Look.CACHED else 8)
        paint_dot(painter, QRectF(self.ink.px(13), (self.height - size) / 2, size, size), self._line.look, self.ink)
        self._paint_words(painter, marks)
        for chip, place in self._chips:
            paint_chip(painter, place, chip, self.ink)
        painter.setFont(self.ink.text)
        painter.setPen(self.ink.colour(self._right_colour()))
        painter.drawText(self._right, _MIDDLE | Qt.AlignmentFlag.AlignRight, self._line.right)

    def _right_colour(self) -> str:
        if self._act is not None:
            return "accent"
        return {Look.FAILED: "danger", Look.WAITING: "handover_text"}.get(self._line.look, "muted")

    def _paint_words(self, painter: QPainter, marks: Marks) -> None:
        painter.setFont(self.ink.mono)
        painter.setPen(self.ink.colour("text"))
        metrics = QFontMetricsF(self.ink.mono)
        for number, (start, size) in enumerate(marks.found):
            before = metrics.horizontalAdvance(self.text[:start])
            place = QRectF(
                self._words.left() + before,
                self.height / 2 - 9,
                metrics.horizontalAdvance(self.text[start : start + size]),
                18,
            )
            painter.fillRect(
                place & self._words, self.ink.colour("found_current" if number == marks.current else "found")
            )
        painter.drawText(
            self._words, _MIDDLE, metrics.elidedText(self.text, Qt.TextElideMode.ElideRight, self._words.width())
        )

    def _arrange(self, toggle: Act) -> None:
        """Chips keep their width, the words give way, the figure at the right is never touched."""
        ink, line = self.ink, self._line
        pad, between = ink.px(13), ink.px(10)
        right = max(
            QFontMetricsF(ink.text).horizontalAdvance(line.right), ink.px(96) if line.look is Look.RUNNING else 0
        )
        self._right = QRectF(self.width - pad - right - 2, 0, right + 2, self.height)
        left = pad + ink.px(8) + between
        room = self._right.left() - between - left
        wanted = QFontMetricsF(ink.mono).horizontalAdvance(self.text) + 2
        sizes = [chip_size(chip, ink) for chip in line.chips]
        chips = sum(width + between for width, _ in sizes)
        words = min(wanted, max(room - chips, room * 0.4))
        self._words = QRectF(left, 0, words, self.height)
        x = self._words.right() + between
        for chip, (width, height) in zip(line.chips, sizes, strict=True):
            fits = min(width, self._right.left() - between - x)
            if fits < ink.px(40):
                break
            self._chips.append((chip, QRectF(x, (self.height - height) / 2, fits, height)))
            x += fits + between
        self._make_hots(toggle)

    def _make_hots(self, toggle: Act) -> None:
        line = self._line
        self.hots = [Hot(place, chip.want, chip.text) for chip, place in self._chips if chip.want is not None]
        if self._act is not None:
            self.hots.append(Hot(self._right.adjusted(-4, 6, 4, -6), self._act, line.right))
        self.hots.append(Hot(QRectF(0, 0, self.width, self.height), toggle, line.spoken))


class FoldBox(Box):
    """What a fold did, across the page, where it happened."""

    def __init__(self, ink: Ink, width: float, words: str, kind: Kind, act: Act, *, undone: bool) -> None:
        super().__init__(ink, width)
        self.text = words
        self._kind = kind
        self._font = QFont(ink.small)
        self._font.setStrikeOut(undone)
        self.height = float(ink.px(18))
        reach = min(QFontMetricsF(self._font).horizontalAdvance(words) + 2, width - ink.px(80))
        self._place = QRectF((width - reach) / 2, 0, reach, self.height)
        self.hots = [Hot(self._place, act, words)]

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        ink, middle = self.ink, round(self.height / 2)
        between = ink.px(12)
        painter.fillRect(QRectF(0, middle, self._place.left() - between, 1), ink.colour("line"))
        painter.fillRect(
            QRectF(self._place.right() + between, middle, self.width, 1) & QRectF(0, 0, self.width, self.height),
            ink.colour("line"),
        )
        if marks.found:
            painter.fillRect(self._place, ink.colour("found"))
        if marks.selected[1] > marks.selected[0]:
            painter.fillRect(self._place, ink.selection)
        painter.setFont(self._font)
        marked = bool(marks.found) or marks.selected[1] > marks.selected[0]
        painter.setPen(ink.colour("text") if marked else ink.theme.kind_text(self._kind))
        words = QFontMetricsF(self._font).elidedText(self.text, Qt.TextElideMode.ElideRight, self._place.width() + 1)
        painter.drawText(self._place, Qt.AlignmentFlag.AlignCenter, words)


class HeadBox(Box):
    """A quiet line with an arrow: reasoning, a plan, what was set aside."""

    def __init__(self, ink: Ink, width: float, words: str, act: Act, *, opened: bool, gap: float = 0.0) -> None:
        super().__init__(ink, width, gap=gap)
        self.text = words
        self._opened = opened
        self.height = float(ink.px(20))
        reach = QFontMetricsF(ink.small).horizontalAdvance(words) + ink.px(20)
        self.hots = [Hot(QRectF(0, 0, min(reach, width), self.height), act, words)]

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self.ink.colour("muted"), 1.4))
        middle, step = self.height / 2, self.ink.px(3)
        points = (
            [
                QPointF(step, middle - step / 2),
                QPointF(2 * step, middle + step / 2),
                QPointF(3 * step, middle - step / 2),
            ]
            if self._opened
            else [QPointF(1.5 * step, middle - step), QPointF(2.5 * step, middle), QPointF(1.5 * step, middle + step)]
        )
        painter.drawPolyline(points)
        painter.setFont(self.ink.small)
        painter.setPen(self.ink.colour("text" if near else "muted"))
        painter.drawText(QRectF(self.ink.px(16), 0, self.width, self.height), _MIDDLE, self.text)


class ChipsBox(Box):
    """Chips in a row: what is attached to a message."""

    def __init__(self, ink: Ink, width: float, chips: list[Chip], *, gap: float = 0.0) -> None:
        super().__init__(ink, width, gap=gap)
        self.text = "  ".join(chip.text for chip in chips)
        self._chips: list[tuple[Chip, QRectF]] = []
        x, y, between = 0.0, 0.0, float(ink.px(6))
        for chip in chips:
            reach, height = chip_size(chip, ink)
            reach = min(reach, width)
            if x and x + reach > width:
                x, y = 0.0, y + height + between
            self._chips.append((chip, QRectF(x, y, reach, height)))
            x += reach + between
        self.height = max((place.bottom() for _, place in self._chips), default=0.0)
        self.hots = [Hot(place, chip.want, chip.text) for chip, place in self._chips if chip.want is not None]

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for chip, place in self._chips:
            paint_chip(painter, place, chip, self.ink)


def chip_size(chip: Chip, ink: Ink) -> tuple[float, float]:
    metrics = QFontMetricsF(ink.chip_mono if chip.mono else ink.chip)
    return round(metrics.horizontalAdvance(chip.text) + ink.px(16)), float(ink.px(20))


def paint_chip(painter: QPainter, place: QRectF, chip: Chip, ink: Ink) -> None:
    radius = ink.px(5)
    if chip.strong:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(ink.colour("accent_soft"))
        painter.drawRoundedRect(place, radius, radius)
    else:
        painter.setPen(QPen(ink.colour("line"), 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(place.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
    font = ink.chip_mono if chip.mono else ink.chip
    painter.setFont(font)
    painter.setPen(ink.colour("accent" if chip.strong else "muted"))
    inner = place.adjusted(ink.px(7), 0, -ink.px(7), 0)
    words = QFontMetricsF(font).elidedText(chip.text, Qt.TextElideMode.ElideRight, inner.width() + 1.5)
    painter.drawText(place, Qt.AlignmentFlag.AlignCenter, words)


def paint_dot(painter: QPainter, place: QRectF, look: Look, ink: Ink) -> None:
    """Filled: done. Dashed ring: cached and recallable. Amber: it waits for the user. The word beside it says the same."""
    colours: dict[Look, QColor] = {
        Look.FAILED: ink.colour("danger"),
        Look.REFUSED: ink.colour("faint"),
        Look.WAITING: ink.colour("handover"),
    }
    colour = colours.get(look, ink.theme.kind(Kind.OUTPUT))
    if look is Look.CACHED:
        paint_ring(painter, place, colour)
    elif look is Look.REFUSED:
        painter.setPen(QPen(colour, 1.5))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawEllipse(place.adjusted(1, 1, -1, -1))
    else:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour)
        painter.drawEllipse(place)


def paint_ring(painter: QPainter, place: QRectF, colour: QColor) -> None:
    """The dashed ring of what is cached and can be recalled."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    pen = QPen(colour, 2)
    pen.setDashPattern(_DASHES)
    pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawEllipse(place.adjusted(1, 1, -1, -1))
