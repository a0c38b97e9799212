"""A painter that paints, and remembers what: where it stands can be compared without its pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QRectF
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


class RecordingPainter(QPainter):
    """Paints on a picture of this size."""

    def __init__(self, width: int, height: int) -> None:
        self._picture = QImage(width, height, QImage.Format.Format_RGB32)
        super().__init__(self._picture)
        self.words: list[PaintedWords] = []
        self.shapes: list[PaintedShape] = []

    def drawText(self, *given: Any) -> Any:
        rect, *_, text = given
        if isinstance(rect, QRectF):
            colour = self.pen().color().name()
            self.words.append(PaintedWords(QRectF(rect), text, colour, self.font().strikeOut()))
        return super().drawText(*given)

    def drawRect(self, rect: Any) -> None:  # type: ignore[override]  # the one that is used
        self.shapes.append(PaintedShape(QRectF(rect), self.brush().color().name()))
        super().drawRect(rect)

    def drawEllipse(self, *given: Any) -> None:
        if len(given) == 3:
            centre, width, height = given
            box = QRectF(centre.x() - width, centre.y() - height, 2 * width, 2 * height)
            self.shapes.append(PaintedShape(box, self.pen().color().name()))
        super().drawEllipse(*given)

    def drawRoundedRect(self, rect: Any, *radii: Any) -> None:
        self.shapes.append(PaintedShape(QRectF(rect), self.brush().color().name()))
        super().drawRoundedRect(rect, *radii)
