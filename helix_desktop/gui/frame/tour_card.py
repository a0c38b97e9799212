"""Highlights a part of the window during the tour, and explains it on a card with Back, Next and
Leave.

The user presses the highlighted part themselves: the overlay lets every click and key
through except on its own buttons.
"""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QKeyEvent, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button, set_surface_look
from helix_desktop.gui.frame.notices import announce_to_screen_reader
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.translation import tr

# In pixels; the second width is used if the first would cover the highlighted area.
CARD_WIDTHS = (340, 264)
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

    def highlight_area(self, area: QRect) -> None:
        if area != self.highlighted_area:
            self.highlighted_area = area
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.highlighted_area.isEmpty():
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        hole = QRectF(self.highlighted_area).adjusted(-4, -4, 4, 4)
        window = QRectF(self.rect())
        path = QPainterPath()
        path.addRect(window)
        path.addRoundedRect(hole, 8, 8)
        shade = QColor(0, 0, 0, SHADE_ALPHA)
        painter.fillPath(path, shade)
        ring_colour = self._theme.colour_of_token("accent")
        painter.setPen(QPen(ring_colour, 2))
        painter.drawRoundedRect(hole, 8, 8)
        painter.end()


class TourStepCard(QWidget):
    def __init__(self, theme: Theme, parent: QWidget) -> None:
        """Builds the card of the tour's steps. What it says is set for each step."""
        super().__init__(parent, accessibleName=tr("Tour"))
        set_surface_look(self, "card")
        self.setObjectName("tour")  # The window's Tab order refers to the card by this name.
        self.number = build_plain_label("", "small", self, wraps=False)
        self.title = build_plain_label("", "title", self)
        self.words = build_plain_label("", "", self)
        self.offer = build_push_button("", self)
        self.leave = build_push_button(tr("Leave the tour"), self, look="link")
        self.back = build_push_button(tr("Back"), self)
        self.next = build_push_button("", self)
        self._keep_width_of_next_button()
        texts = [self.number, self.title, self.words]
        offer_row = build_row(self.offer, 1)
        step_row = build_row(self.leave, 1, self.back, self.next, spacing=8)
        margins = (16, 12, 16, 12)
        build_column(*texts, offer_row, step_row, owner=self, margins=margins, spacing=8)
        self._theme = theme

    def _keep_width_of_next_button(self) -> None:
        """Gives the button the width of its longest label, so that Back does not move."""
        widest = 0
        for label in (tr("Next"), tr("Skip"), tr("Finish")):
            self.next.setText(label)
            widest = max(widest, self.next.sizeHint().width())
        self.next.setMinimumWidth(widest)

    def compute_card_size(self, width: int) -> QSize:
        # The buttons must fit.
        width = max(self._theme.zoomed_pixels(width), self.minimumSizeHint().width())
        height = self.heightForWidth(width)
        if height <= 0:
            height = self.sizeHint().height()
        return QSize(width, height)


@dataclass(frozen=True, slots=True)
class ShownTourStep:
    """What the card shows. `number` is counted from 1. `offer` is the label of an extra button,
    if there is one. With `is_done`, Next is marked as the button to press.
    """

    number: int
    step_count: int
    title: str
    text: str
    offer: str = ""
    is_done: bool = False


class TourGuide(QObject):
    """The tour's ring and card. `target_needed` asks which area to highlight."""

    target_needed = Signal()

    def __init__(self, theme: Theme, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self.ring = HighlightRing(theme, window)
        self.card = TourStepCard(theme, window)
        self._shown_step: ShownTourStep | None = None
        self._card_rect = QRect()  # Where the card was placed last.
        # The areas that the card should not cover, in order of preference.
        self._clear_areas = [QRect()]
        self._timer = QTimer(self, interval=150)
        self._timer.timeout.connect(self.target_needed)
        window.installEventFilter(self)

    def show_tour_step(self, step: ShownTourStep) -> None:
        """Shows a step of the tour on the card, reads it to users of a screen reader, and places
        the ring around what the step is about. Does nothing if the card shows this step already.
        """
        if self._shown_step == step:
            return
        self._shown_step = step
        card = self.card
        card.number.setText(tr("Step {n} of {all}", n=step.number, all=step.step_count))
        card.title.setText(step.title)
        card.words.setText(step.text)

        # The focus is moved first, because hiding the button would move it to "Leave the tour".
        if not step.offer and card.window().focusWidget() is card.offer:
            card.next.setFocus()
        card.offer.setText(step.offer)
        card.offer.setVisible(bool(step.offer))
        card.back.setEnabled(step.number > 1)

        if step.number == step.step_count:
            card.next.setText(tr("Finish"))
        elif step.is_done:
            card.next.setText(tr("Next"))
        else:
            card.next.setText(tr("Skip"))

        if step.is_done:
            set_widget_look(card.next, "primary")
        else:
            set_widget_look(card.next, "")

        announce_to_screen_reader(self._window, f"{step.title}. {step.text}")
        for widget in (self.ring, card):
            widget.show()
            widget.raise_()
        self._timer.start()
        self._place_ring_and_card()

    def point_at_area(self, area: QRect, areas_to_keep_clear: Sequence[QRect]) -> None:
        """Points at an area of the window, or at nothing if it is empty. The card covers none of
        the other areas if it can.
        """
        visible_area = area & self._window.rect()
        clear_areas = [clear for clear in areas_to_keep_clear if not clear.isNull()]
        clear_areas.append(visible_area)
        is_unchanged = visible_area == self.ring.highlighted_area
        if is_unchanged and clear_areas == self._clear_areas:
            return
        self._clear_areas = clear_areas
        self.ring.highlight_area(visible_area)
        # A panel that was opened in the meantime may cover them.
        self.ring.raise_()
        self.card.raise_()
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
            return False
        if not isinstance(event, QKeyEvent) or event.type() != QEvent.Type.KeyPress:
            return False
        if event.key() != Qt.Key.Key_Escape:
            return False
        self.card.leave.click()
        return True

    def _place_ring_and_card(self) -> None:
        self.ring.setGeometry(self._window.rect())
        self._card_rect = self._find_place_for_card()
        if self.card.geometry() != self._card_rect:
            self.card.setGeometry(self._card_rect)

    def _find_place_for_card(self) -> QRect:
        """Returns the first place that covers none of the area beside which it is, or the last. If
        it can, the card stays, so that its buttons are where the last one was pressed.
        """
        window = self._window.rect()
        kept_rect = self._find_place_at_same_corner(window)
        if not kept_rect.isEmpty():
            return kept_rect
        card_rect = QRect()
        for area in self._clear_areas:
            for width in CARD_WIDTHS:
                size = self.card.compute_card_size(width)
                card_rect = QRect(position_beside_area(area, size, window), size)
                if not card_rect.intersects(area):
                    return card_rect
        return card_rect

    def _find_place_at_same_corner(self, window: QRect) -> QRect:
        """Returns the place with the card's lower right corner as it is, or an empty one if the card
        would cover something there.
        """
        if self._card_rect.isEmpty():
            return QRect()
        for width in CARD_WIDTHS:
            kept_rect = QRect(QPoint(), self.card.compute_card_size(width))
            kept_rect.moveBottomRight(self._card_rect.bottomRight())
            is_clear = not any(kept_rect.intersects(area) for area in self._clear_areas)
            if window.contains(kept_rect) and is_clear:
                return kept_rect
        return QRect()


@dataclass(frozen=True, slots=True)
class RoomBesideArea:
    """A side of an area: the room that a card there leaves, and its corner."""

    room: int
    corner: QPoint


def position_beside_area(area: QRect, size: QSize, window: QRect) -> QPoint:
    """Returns where to put a card: on the side with the most room, and inside the window."""
    gap = WINDOW_EDGE_GAP
    inside = window.adjusted(gap, gap, -gap, -gap)
    width = size.width()
    height = size.height()
    # Where the card stands against the right or the lower edge.
    largest_x = inside.right() - width
    largest_y = inside.bottom() - height
    if area.isEmpty():
        return QPoint(largest_x, inside.top() + 3 * gap)

    middle = area.center()
    centred_x = middle.x() - width // 2
    centred_y = middle.y() - height // 2
    x_at_right = area.right() + RING_TO_CARD_GAP
    x_at_left = area.left() - RING_TO_CARD_GAP - width
    y_below = area.bottom() + RING_TO_CARD_GAP
    y_above = area.top() - RING_TO_CARD_GAP - height
    at_right = RoomBesideArea(largest_x - x_at_right, QPoint(x_at_right, centred_y))
    at_left = RoomBesideArea(x_at_left - inside.left(), QPoint(x_at_left, centred_y))
    below = RoomBesideArea(largest_y - y_below, QPoint(centred_x, y_below))
    above = RoomBesideArea(y_above - inside.top(), QPoint(centred_x, y_above))
    sides = (at_right, at_left, below, above)
    widest_side = max(sides, key=lambda side: side.room)

    corner = widest_side.corner
    x = max(inside.left(), min(corner.x(), largest_x))
    y = max(inside.top(), min(corner.y(), largest_y))
    return QPoint(x, y)
