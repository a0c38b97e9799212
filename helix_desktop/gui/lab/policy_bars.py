"""A chart of two groups of bars, one bar for each policy: cost and peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from helix_desktop.gui.lab.replay_lab_port import PolicyOutcome
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_percent, tr

LINE_HEIGHT, BAR_HEIGHT, GROUP_GAP = 20, 10, 24


class PolicyBars(QWidget):
    """Two groups of bars. The full width means the cost of sending everything, or the whole window."""

    def __init__(self, names: Mapping[str, str], theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._names, self._theme = names, theme
        self._played: Sequence[PolicyOutcome] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(tr("Cost and peak"))
        theme.changed.connect(self._relayout_bars)

    def show_policy_bars(self, played: Sequence[PolicyOutcome]) -> None:
        self._played = played
        told = [
            tr(
                "{name}: cost {cost}, peak {peak}",
                name=self._policy_title(each),
                cost=format_percent(each.cost_share),
                peak=format_percent(each.peak),
            )
            for each in played
        ]
        self.setAccessibleDescription("\n".join(told))
        self._relayout_bars()

    def sizeHint(self) -> QSize:
        return QSize(400, self._theme.zoomed_pixels(LINE_HEIGHT) * (len(self._played) + 1))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        gap = self._theme.zoomed_pixels(GROUP_GAP)
        width = (self.width() - gap) / 2
        left, right = QRectF(0, 0, width, self.height()), QRectF(width + gap, 0, width, self.height())
        if self.layoutDirection() == Qt.LayoutDirection.RightToLeft:
            left, right = right, left
        self._draw_bar_group(
            painter, left, tr("Cost, compared with sending everything"), [each.cost_share for each in self._played]
        )
        self._draw_bar_group(painter, right, tr("Peak, as a share of the window"), [each.peak for each in self._played])

    def _draw_bar_group(self, painter: QPainter, place: QRectF, head: str, shares: Sequence[float]) -> None:
        """Draws one group. If a share is above 100 %, all bars are scaled down and a thin line
        marks 100 %.
        """
        line, names, figure = self._theme.zoomed_pixels(LINE_HEIGHT), place.width() * 0.4, self._theme.zoomed_pixels(40)
        painter.setFont(self._theme.build_font(11))
        painter.setPen(self._theme.colour_of_token("faint"))
        painter.drawText(QRectF(place.left(), 0, place.width(), line), Qt.AlignmentFlag.AlignVCenter, head)
        painter.setFont(self._theme.build_font(12))
        room = QRectF(place.left() + names, 0, place.width() - names - figure, self._theme.zoomed_pixels(BAR_HEIGHT))
        most = max([1.0, *shares])
        for number, (each, share) in enumerate(zip(self._played, shares, strict=True), 1):
            top = line * number
            painter.setPen(self._theme.colour_of_token("text"))
            name = painter.fontMetrics().elidedText(
                self._policy_title(each), Qt.TextElideMode.ElideRight, int(names) - 8
            )
            painter.drawText(QRectF(place.left(), top, names, line), Qt.AlignmentFlag.AlignVCenter, name)
            bar = room.translated(0, top + (line - room.height()) / 2)
            self._draw_policy_bar(painter, bar, share / most, each.policy)
            beside = QRectF(bar.right() + 6, top, figure - 6, line)
            painter.setPen(self._theme.colour_of_token("muted"))
            painter.drawText(beside, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, format_percent(share))
        if most > 1.0:
            painter.setPen(self._theme.colour_of_token("text"))
            whole = room.left() + room.width() / most
            painter.drawLine(int(whole), line, int(whole), line * (len(self._played) + 1))

    def _draw_policy_bar(self, painter: QPainter, whole: QRectF, share: float, policy: str) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.colour_of_token("free"))
        painter.drawRoundedRect(whole, 3, 3)
        painter.setBrush(self._theme.colour_of_policy(policy))
        painter.drawRoundedRect(QRectF(whole.left(), whole.top(), whole.width() * share, whole.height()), 3, 3)

    def _policy_title(self, played: PolicyOutcome) -> str:
        return self._names.get(played.policy, played.policy)

    def _relayout_bars(self) -> None:
        self.updateGeometry()
        self.update()
