"""A painter that paints, and remembers what: where it stands can be compared without its pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QImage, QPainter


@dataclass(frozen=True)
class PaintedWords:
    rect: QRectF
    text: str
    colour: str
    is_struck_out: bool


@dataclass(frozen=True)
class PaintedShape:
    rect: QRectF
    colour: str


@dataclass(frozen=True)
class PaintedLabel:
    """Words that begin at a point of their base line."""

    x: float
    y: float
    text: str
    colour: str


@dataclass(frozen=True)
class PaintedLine:
    """A line through these points; `fill`: that of the shape that it encloses, or empty."""

    points: tuple[tuple[float, float], ...]
    colour: str
    width: float = 0.0
    style: Qt.PenStyle = Qt.PenStyle.SolidLine
    fill: str = ""


def _as_pairs(points: Any) -> tuple[tuple[float, float], ...]:
    return tuple((point.x(), point.y()) for point in points)


class RecordingPainter(QPainter):
    """Paints on a picture of this size."""

    def __init__(self, width: int, height: int) -> None:
        self._picture = QImage(width, height, QImage.Format.Format_RGB32)
        super().__init__(self._picture)
        self.words: list[PaintedWords] = []
        self.shapes: list[PaintedShape] = []
        self.labels: list[PaintedLabel] = []
        self.lines: list[PaintedLine] = []
        self.dots: list[PaintedShape] = []  # Round shapes, with what fills them.

    def drawText(self, *given: Any) -> Any:
        rect, *_, text = given
        if isinstance(rect, QRectF):
            colour = self.pen().color().name()
            self.words.append(PaintedWords(QRectF(rect), text, colour, self.font().strikeOut()))
        elif isinstance(rect, QPointF):
            self.labels.append(PaintedLabel(rect.x(), rect.y(), text, self.pen().color().name()))
        return super().drawText(*given)

    def drawRect(self, rect: Any) -> None:  # type: ignore[override]  # the one that is used
        self.shapes.append(PaintedShape(QRectF(rect), self.brush().color().name()))
        super().drawRect(rect)

    def drawEllipse(self, *given: Any) -> None:
        if len(given) == 3:
            centre, width, height = given
            box = QRectF(centre.x() - width, centre.y() - height, 2 * width, 2 * height)
            self.shapes.append(PaintedShape(box, self.pen().color().name()))
            if self.brush().style() != Qt.BrushStyle.NoBrush:
                self.dots.append(PaintedShape(box, self.brush().color().name()))
        super().drawEllipse(*given)

    def drawLine(self, *given: Any) -> None:
        if isinstance(given[0], QPointF):
            self._note_line(given)
        super().drawLine(*given)

    def drawPolyline(self, points: Any) -> None:
        self._note_line(points)
        super().drawPolyline(points)

    def drawPolygon(self, polygon: Any) -> None:  # type: ignore[override]  # the one that is used
        self._note_line(polygon, self.brush().color().name())
        super().drawPolygon(polygon)

    def _note_line(self, points: Any, fill: str = "") -> None:
        pen = self.pen()
        line = PaintedLine(_as_pairs(points), pen.color().name(), pen.widthF(), pen.style(), fill)
        self.lines.append(line)

    def drawRoundedRect(self, rect: Any, *radii: Any) -> None:
        self.shapes.append(PaintedShape(QRectF(rect), self.brush().color().name()))
        super().drawRoundedRect(rect, *radii)
