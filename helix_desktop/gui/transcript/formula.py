"""Formulas as pictures: LaTeX drawn by ziamath, offline, off the window's thread. What cannot be drawn is shown as it was written."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

from helix_desktop.gui.transcript.boxes import Box, Formula, length, piece
from helix_desktop.gui.transcript.drawing import Ink, Marks
from helix_desktop.gui.transcript.markdown import Math
from helix_desktop.values import dataclass

LONGEST = 400  # characters: what is longer takes seconds to draw
WIDEST = 8_000  # pixels of a picture
INDENT, QUOTE = 22, 14


@dataclass(frozen=True, slots=True)
class Wanted:
    """A formula as it is to look. `size`: of its letters, in pixels; `ratio`: device pixels for one of them."""

    latex: str
    display: bool
    size: float
    colour: str
    ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """`width`, `height` and how much of it lies below the line, in pixels of the window."""

    image: QImage
    width: float
    height: float
    depth: float


def draw(wanted: Wanted) -> Drawn | None:
    """May run on any thread. None for what is too long or no formula."""
    if len(wanted.latex) > LONGEST:
        return None
    try:
        from ziafont.config import config
        from ziamath.zmath import Latex

        config.svg2 = False  # Qt draws no symbols that are defined elsewhere in the picture
        made = Latex(wanted.latex, size=wanted.size, color=wanted.colour, inline=not wanted.display)
        svg, depth = made.svg(), -float(made.getyofst())
    except Exception:  # noqa: BLE001 - a model wrote it: whatever is wrong with it, its source is shown
        return None
    return _painted(svg, depth, wanted.ratio)


def _painted(svg: str, depth: float, ratio: float) -> Drawn | None:
    renderer = QSvgRenderer(QByteArray(svg.encode()))
    box = renderer.viewBoxF()
    if not renderer.isValid() or box.isEmpty() or box.width() * ratio > WIDEST or box.height() * ratio > WIDEST:
        return None
    image = QImage(
        QSize(round(box.width() * ratio), round(box.height() * ratio)), QImage.Format.Format_ARGB32_Premultiplied
    )
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    renderer.render(painter, QRectF(0, 0, image.width(), image.height()))
    painter.end()
    image.setDevicePixelRatio(ratio)
    return Drawn(image, box.width(), box.height(), max(0.0, box.bottom()) if box.bottom() > 0 else depth)


class FormulaBox(Box):
    """A formula on lines of its own."""

    def __init__(self, ink: Ink, width: float, block: Math, drawn: Formula, *, gap: float = 0.0) -> None:
        left = float(ink.px(INDENT) * block.indent + ink.px(QUOTE) * block.quote)
        super().__init__(ink, max(width - left, 40.0), left=left, gap=gap)
        self._drawn = drawn
        scale = min(1.0, self.width / max(drawn.width, 1.0))
        self._place = QRectF(
            (self.width - drawn.width * scale) / 2, ink.px(4), drawn.width * scale, drawn.height * scale
        )
        self.height = self._place.height() + ink.px(8)
        self.text = f"$${block.text}$$"

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        if marks.selected[1] > marks.selected[0] or marks.found:
            painter.fillRect(self._place, self.ink.selection)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        painter.drawImage(self._place, self._drawn.image)

    def offset_at(self, place: QPointF) -> int:
        return 0 if place.x() < self.width / 2 else length(self.text)

    def copied(self, first: int, last: int) -> str:
        return piece(self.text, first, last)
