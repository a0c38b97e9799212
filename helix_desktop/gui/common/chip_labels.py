"""Chips (short text on its own background) and a label for a digest."""

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from helix_desktop.gui.theme import Theme


class ChipLabel(QWidget):
    """`strong`: the soft accent surface. `danger`: something is wrong. `plain`: with a border."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._text = ""
        self._look = "plain"
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self._restyle_chip)

    def set_chip_text(self, text: str, look: str = "plain") -> None:
        self._text = text
        self._look = look
        self.setAccessibleName(text)
        self.setVisible(bool(text))
        self._restyle_chip()

    def sizeHint(self) -> QSize:
        width = QFontMetricsF(self._theme.build_font(11)).horizontalAdvance(self._text)
        return QSize(round(width) + self._theme.zoomed_pixels(16), self._theme.zoomed_pixels(20))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the words on a coloured ground if they matter, or within a thin frame."""
        theme = self._theme
        radius = theme.zoomed_pixels(5)
        surface = QRectF(self.rect())
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self._look == "strong":
            theme.fill_surface(painter, surface, "accent_soft", radius)
            text_colour = "accent"
        elif self._look == "danger":
            theme.fill_surface(painter, surface, "danger_soft", radius)
            text_colour = "danger"
        else:
            painter.setPen(QPen(theme.colour_of_token("line"), 1))
            painter.drawRoundedRect(surface.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
            text_colour = "muted"
        font = theme.build_font(11)
        centred = Qt.AlignmentFlag.AlignCenter
        theme.draw_words(painter, surface, self._text, font, text_colour, centred)
        painter.end()

    def _restyle_chip(self) -> None:
        self.updateGeometry()
        self.update()


class DigestLabel(QLabel):
    """A hash in the strong monospaced font, which can be selected."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse
            | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self._restyle_digest()
        theme.changed.connect(self._restyle_digest)

    def _restyle_digest(self) -> None:
        family = self._theme.monospaced_font().families()[0]
        self.setStyleSheet(
            f'font-family: "{family}"; font-size: {self._theme.zoomed_pixels(12)}px; font-weight: {QFont.Weight.DemiBold};'
        )
