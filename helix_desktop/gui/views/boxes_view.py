"""A page of boxes that scrolls: a document to read, with places to click, text to select, all of it by keyboard too."""

import time
from collections.abc import Callable, Iterable, Iterator

from PySide6.QtCore import QEvent, QPoint, QPointF, Qt, QTimer, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QFocusEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QFrame, QWidget

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import CopyText, HotSpot, LayoutBox
from helix_desktop.gui.transcript.box_stack import BoxStack, HotSpotIndex
from helix_desktop.gui.transcript.drawing_style import NO_MARKS, DrawingStyle, TextMarks
from helix_desktop.gui.translation import tr

Make = Callable[[DrawingStyle, float], Iterable[LayoutBox]]
SLICE = 0.006
STEP = 40


class BoxesView(QAbstractScrollArea):
    """`hot_spot_activated` carries the act of a hot place. `surface` names the colour behind the boxes."""

    hot_spot_activated = Signal(object)

    def __init__(
        self, theme: Theme, parent: QWidget | None = None, *, surface: str = "panel", pad: tuple[int, int] = (16, 12)
    ) -> None:
        super().__init__(parent)
        self.theme = theme
        self._surface = surface
        self._padding = pad
        self._ink = DrawingStyle(theme)
        self._make: Make = lambda _ink, _width: ()
        self._stack = BoxStack()
        self._rest: Iterator[LayoutBox] = iter(())
        self._laid_width = 0.0
        self._near: LayoutBox | None = None
        self._spot: HotSpotIndex | None = None
        self._wanted = 0  # The position to return to once the layout reaches it.
        self._anchor = self._caret = -1
        self._pressed: HotSpot | None = None
        self._press_at = QPoint()
        self._slices = QTimer(self, interval=0)
        self._slices.timeout.connect(self._continue_box_layout)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.verticalScrollBar().setSingleStep(STEP)
        self.verticalScrollBar().actionTriggered.connect(self._on_reader_scrolled)
        theme.changed.connect(self._restyle_boxes)

    def show_boxes(self, make: Make, *, keep_place: bool = False) -> None:
        """`make` gives the boxes for a width; it is called again when the width or the theme changes."""
        self._wanted = self.verticalScrollBar().value() if keep_place else 0
        self._make = make
        self._anchor = self._caret = -1
        self._spot = None
        self._start_box_layout()
        self.verticalScrollBar().setValue(self._wanted)

    def all_text(self) -> str:
        return self._stack.text_between_offsets(0, self._stack.text_length)

    def selected_box_text(self) -> str:
        first, last = sorted((self._anchor, self._caret))
        return self._stack.text_between_offsets(first, last) if first >= 0 else ""

    def _width_of_boxes(self) -> float:
        return float(self.viewport().width() - 2 * self._ink.scaled_pixels(self._padding[0]))

    def _start_box_layout(self) -> None:
        self._laid_width = self._width_of_boxes()
        self._stack = BoxStack(
            (float(self._ink.scaled_pixels(self._padding[0])), float(self._ink.scaled_pixels(self._padding[1])))
        )
        self._rest = iter(self._make(self._ink, max(self._laid_width, 60.0)))
        self._near = None
        self._continue_box_layout()

    def _continue_box_layout(self) -> None:
        """Lay out for some milliseconds; colours of code come last."""
        if self._width_of_boxes() != self._laid_width:
            self._start_box_layout()
            return
        until, longest = time.perf_counter() + SLICE, 0
        for box in self._rest:
            self._stack.add_box(box)
            if time.perf_counter() > until:
                self._slices.start()
                # a scroll bar that disappears and comes back would lay everything out twice
                longest = self.verticalScrollBar().maximum()
                break
        else:
            self._stack.colour_code_boxes(until)
            if self._stack.has_uncoloured_code:
                self._slices.start()
            else:
                self._slices.stop()
        bar = self.verticalScrollBar()
        bar.setRange(0, max(longest, round(self._stack.bottom_edge) - self.viewport().height()))
        bar.setPageStep(self.viewport().height())
        if bar.value() < self._wanted:
            bar.setValue(self._wanted)
        self.viewport().update()

    def _on_reader_scrolled(self, _action: int) -> None:
        self._wanted = 0

    def _restyle_boxes(self) -> None:
        self._ink = DrawingStyle(self.theme)
        self._start_box_layout()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._width_of_boxes() != self._laid_width:
            self._slices.start()  # Waits a moment, because a page that is being shown gets several widths in a row.
        else:
            self.verticalScrollBar().setRange(0, max(0, round(self._stack.bottom_edge) - self.viewport().height()))

    # --- drawing

    def height_of_boxes(self) -> int:
        if self._width_of_boxes() != self._laid_width:
            self._start_box_layout()
        return round(self._stack.bottom_edge)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._width_of_boxes() != self._laid_width:
            self._start_box_layout()
        painter = QPainter(self.viewport())
        painter.setLayoutDirection(Qt.LayoutDirection.LeftToRight)  # boxes place their words
        painter.fillRect(event.rect(), self._ink.token_colour(self._surface))
        y = self.verticalScrollBar().value()
        painter.translate(0, -y)
        first, last = sorted((self._anchor, self._caret))
        marks = TextMarks((first, last)) if 0 <= first < last else NO_MARKS
        self._stack.draw_boxes(painter, y, y + self.viewport().height(), marks, self._near)
        if self._spot is not None and self.hasFocus() and self._spot in self._stack.list_hot_spots():
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(self._ink.token_colour("accent"), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(self._stack.hot_spot_and_rect(self._spot)[1].adjusted(-1, -1, 1, 1), 5, 5)
        painter.end()

    def _to_content_position(self, point: QPoint | QPointF) -> QPointF:
        return QPointF(point.x(), point.y() + self.verticalScrollBar().value())

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._press_at = event.position().toPoint()
            self._pressed = self._stack.hot_spot_at(self._to_content_position(event.position()))
            self._spot = None
            self._anchor = self._caret = self._stack.text_offset_at(self._to_content_position(event.position()))
            self.viewport().update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        place = self._to_content_position(event.position())
        if event.buttons() & Qt.MouseButton.LeftButton:
            if (event.position().toPoint() - self._press_at).manhattanLength() >= QApplication.startDragDistance():
                self._pressed = None
                self._caret = self._stack.text_offset_at(place)
                self.viewport().update()
            return
        hot = self._stack.hot_spot_at(place)
        self.viewport().setCursor(Qt.CursorShape.PointingHandCursor if hot else Qt.CursorShape.IBeamCursor)
        number, _ = self._stack.nearest_box(place)
        near = self._stack.boxes[number] if number >= 0 else None
        if near is not self._near:
            self._near = near
            self.viewport().update()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        pressed, self._pressed = self._pressed, None
        if pressed is not None and self._stack.hot_spot_at(self._to_content_position(event.position())) == pressed:
            self._activate_hot_spot(pressed)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self._anchor, self._caret = self._stack.word_range_in_text(
            self._stack.text_offset_at(self._to_content_position(event.position()))
        )
        self.viewport().update()

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Leave:
            self._near = None
            self.viewport().update()
        return super().viewportEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        bar, page = self.verticalScrollBar(), self.viewport().height() - STEP
        steps = {
            Qt.Key.Key_Up: -STEP,
            Qt.Key.Key_Down: STEP,
            Qt.Key.Key_PageUp: -page,
            Qt.Key.Key_PageDown: page,
            Qt.Key.Key_Home: -bar.maximum(),
            Qt.Key.Key_End: bar.maximum(),
        }
        key = Qt.Key(event.key())
        if event.matches(QKeySequence.StandardKey.Copy):
            QGuiApplication.clipboard().setText(self.selected_box_text() or self.all_text())
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            self._anchor, self._caret = 0, self._stack.text_length
            self.viewport().update()
        elif key in steps:
            self._wanted = 0
            bar.setValue(bar.value() + steps[key])
        elif (
            key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space)
            and self._spot in self._stack.list_hot_spots()
        ):
            self._activate_hot_spot(self._stack.hot_spot_and_rect(self._spot)[0])
        else:
            event.ignore()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Tab that leads here leads to what can be pressed first, or last."""
        super().focusInEvent(event)
        if (
            event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
            and self._stack.list_hot_spots()
        ):
            self._spot = None
            self.focusNextPrevChild(event.reason() is Qt.FocusReason.TabFocusReason)

    def focusNextPrevChild(self, forward: bool) -> bool:  # noqa: FBT001 - Qt's signature
        spots = self._stack.list_hot_spots()
        now = spots.index(self._spot) if self._spot in spots else (-1 if forward else len(spots))
        beyond = now + (1 if forward else -1)
        if not 0 <= beyond < len(spots):
            self._spot = None
            self.viewport().update()
            return super().focusNextPrevChild(forward)
        self._spot = spots[beyond]
        hot, place = self._stack.hot_spot_and_rect(self._spot)
        bar = self.verticalScrollBar()
        if place.top() < bar.value() or place.bottom() > bar.value() + self.viewport().height():
            bar.setValue(round(place.top()) - STEP)
        if QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, hot.name))
        self.viewport().update()
        return True

    def _activate_hot_spot(self, hot: HotSpot) -> None:
        if isinstance(hot.act, CopyText):
            QGuiApplication.clipboard().setText(hot.act.text)
            if QAccessible.isActive():
                QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, tr("Copied")))
        else:
            self.hot_spot_activated.emit(hot.act)
