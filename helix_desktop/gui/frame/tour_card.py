"""Highlights a part of the window during the tour, and explains it on a card with Back, Next and
Leave.

The user presses the highlighted part themselves: the overlay lets every click and key
through except on its own buttons.
"""

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QKeyEvent, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from helix_desktop.gui.common.widgets import build_plain_label, build_push_button, set_surface_look
from helix_desktop.gui.frame.notices import announce_to_screen_reader
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.translation import tr

CARD_WIDTHS = (
    340,
    264,
)  # In pixels; the second width is used if the first would cover the highlighted area.
RING_TO_CARD_GAP = 14  # The distance in pixels between the highlighting ring and the card.
WINDOW_EDGE_GAP = 12  # The distance in pixels between the card and the window's edge.
SHADE_ALPHA = 70  # The opacity of the shade over the rest of the window, from 0 to 255.


class HighlightRing(QWidget):
    """Shades the whole window except for one outlined area."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent, focusPolicy=Qt.FocusPolicy.NoFocus)
        self._theme = theme
        self.highlighted_area = QRect()
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAttribute(Qt.WidgetAttribute.WA_NoSystemBackground)

    def highlight_area(self, place: QRect) -> None:
        if place != self.highlighted_area:
            self.highlighted_area = place
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.highlighted_area.isEmpty():
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        hole = QRectF(self.highlighted_area).adjusted(-4, -4, 4, 4)
        path = QPainterPath()
        path.addRect(QRectF(self.rect()))
        path.addRoundedRect(hole, 8, 8)
        painter.fillPath(path, QColor(0, 0, 0, SHADE_ALPHA))
        painter.setPen(QPen(self._theme.colour_of_token("accent"), 2))
        painter.drawRoundedRect(hole, 8, 8)
        painter.end()


class TourStepCard(QWidget):
    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent, accessibleName=tr("Tour"))
        set_surface_look(self, "card")
        self.setObjectName("tour")  # The window's Tab order refers to the card by this name.
        self.number = build_plain_label("", "small", self, wraps=False)
        self.title = build_plain_label("", "title", self)
        self.words = build_plain_label("", "", self)
        self.offer = build_push_button("", self)
        self.leave = build_push_button(tr("Leave the tour"), self, look="link")
        self.back = build_push_button(tr("Back"), self)
        self.next = build_push_button(tr("Next"), self)
        offered = build_row(self.offer, 1)
        below = build_row(self.leave, 1, self.back, self.next, spacing=8)
        words = (self.number, self.title, self.words)
        build_column(*words, offered, below, owner=self, margins=(16, 12, 16, 12), spacing=8)
        self._theme = theme

    def compute_card_size(self, width: int) -> QSize:
        # The buttons must fit.
        width = max(self._theme.zoomed_pixels(width), self.minimumSizeHint().width())
        height = self.heightForWidth(width)
        if height <= 0:
            height = self.sizeHint().height()
        return QSize(width, height)


class TourGuide(QObject):
    """The tour's ring and card. `target_needed` asks which area to highlight."""

    target_needed = Signal()

    def __init__(self, theme: Theme, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self.ring = HighlightRing(theme, window)
        self.card = TourStepCard(theme, window)
        self._shown_step: object = None
        # The areas that the card should not cover, in order of preference.
        self._clear_areas = [QRect()]
        self._timer = QTimer(self, interval=150)
        self._timer.timeout.connect(self.target_needed)
        window.installEventFilter(self)

    def show_tour_step(
        self, step: tuple[int, int], title: str, words: str, *, offer: str = "", done: bool = False
    ) -> None:
        """Shows one step. `offer` is an extra button's label; `done` marks Next as the
        button to press.
        """
        shown_step = (step, title, words, offer, done)
        if self._shown_step == shown_step:
            return
        self._shown_step = shown_step
        number, steps = step
        card = self.card
        card.number.setText(tr("Step {n} of {all}", n=number, all=steps))
        card.title.setText(title)
        card.words.setText(words)
        # The focus is moved first, because hiding the button would move it to "Leave the tour".
        if not offer and card.window().focusWidget() is card.offer:
            card.next.setFocus()
        card.offer.setText(offer)
        card.offer.setVisible(bool(offer))
        card.back.setEnabled(number > 1)
        card.next.setText(tr("Next"))
        if number == steps:
            card.next.setText(tr("Finish"))
        look = ""
        if done:
            look = "primary"
        set_widget_look(card.next, look)
        announce_to_screen_reader(self._window, f"{title}. {words}")
        for widget in (self.ring, card):
            widget.show()
            widget.raise_()
        self._timer.start()
        self._place_ring_and_card()

    def point_at_area(self, place: QRect, *keep_clear: QRect) -> None:
        """Points at an area of the window, or at nothing. The card avoids the areas in
        `keep_clear` if it can.
        """
        place &= self._window.rect()
        clear = [*filter(None, keep_clear), place]
        if (place, clear) != (self.ring.highlighted_area, self._clear_areas):
            self._clear_areas = clear
            self.ring.highlight_area(place)
            for widget in (
                self.ring,
                self.card,
            ):  # A panel that was opened in the meantime may cover them.
                widget.raise_()
            self._place_ring_and_card()

    def close_tour_guide(self) -> None:
        self._timer.stop()
        self._window.removeEventFilter(self)
        for widget in (self.ring, self.card):
            widget.hide()
            widget.deleteLater()
        self.deleteLater()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Escape leaves the tour if nothing else uses it: a running agent is stopped first."""
        if event.type() == QEvent.Type.Resize:
            self._place_ring_and_card()
        elif (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
            and event.key() == Qt.Key.Key_Escape
        ):
            self.card.leave.click()
            return True
        return False

    def _place_ring_and_card(self) -> None:
        self.ring.setGeometry(self._window.rect())
        sizes = [self.card.compute_card_size(width) for width in CARD_WIDTHS]
        window = self._window.rect()
        ways = [
            (area, QRect(position_beside_area(area, size, window), size))
            for area in self._clear_areas
            for size in sizes
        ]
        wanted = next((way for area, way in ways if not way.intersects(area)), ways[-1][1])
        if self.card.geometry() != wanted:
            self.card.setGeometry(wanted)


def position_beside_area(place: QRect, size: QSize, window: QRect) -> QPoint:
    """Returns where to put a card: on the side with the most room, and inside the window."""
    inside = window.adjusted(WINDOW_EDGE_GAP, WINDOW_EDGE_GAP, -WINDOW_EDGE_GAP, -WINDOW_EDGE_GAP)
    if place.isEmpty():
        return QPoint(inside.right() - size.width(), inside.top() + 3 * WINDOW_EDGE_GAP)
    middle = place.center()
    left = place.left() - RING_TO_CARD_GAP - size.width()
    right = place.right() + RING_TO_CARD_GAP
    above = place.top() - RING_TO_CARD_GAP - size.height()
    below = place.bottom() + RING_TO_CARD_GAP
    ways = (
        (inside.right() - right - size.width(), QPoint(right, middle.y() - size.height() // 2)),
        (left - inside.left(), QPoint(left, middle.y() - size.height() // 2)),
        (inside.bottom() - below - size.height(), QPoint(middle.x() - size.width() // 2, below)),
        (above - inside.top(), QPoint(middle.x() - size.width() // 2, above)),
    )
    _, at = max(ways, key=lambda way: way[0])
    left = max(inside.left(), min(at.x(), inside.right() - size.width()))
    top = max(inside.top(), min(at.y(), inside.bottom() - size.height()))
    return QPoint(left, top)
