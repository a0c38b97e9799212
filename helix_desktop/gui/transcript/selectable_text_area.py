"""A scrolling text with selection by mouse and keyboard, copying, and hot spots that Tab visits.

The chat, pages of boxes, lines and differences are subclasses, which define what is drawn and where
its letters are.
"""

from collections.abc import Sequence

from PySide6 import QtGui
from PySide6.QtCore import QEvent, QPoint, QRectF, Qt, QTimer, Signal
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QFrame, QToolTip, QWidget

from helix_desktop.gui.common.text_selection import TextPosition, TextSelection, word_range
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import BoxAction, CopyText, HotSpot, LayoutBox
from helix_desktop.gui.transcript.box_stack import BoxStack, HotSpotIndex
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr

STEP = 40  # The pixels that a turn of the wheel or an arrow key scrolls.
FASTEST = 120  # Dragging a selection past the edge scrolls by at most this many pixels at once.
_SHIFT = Qt.KeyboardModifier.ShiftModifier
_PRESSING = frozenset({Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space})

HotSpotPlace = tuple[int, HotSpotIndex]  # An item's number, and a place in it that can be clicked.


class TextSurface(QAbstractScrollArea):
    """A position is the number of a line or an item, and an offset into its text."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        """Sets up an empty surface. What it shows, and which text lies under a point,
        is up to the class that inherits from this one.
        """
        super().__init__(parent)
        self.theme = theme
        self.selection = TextSelection()
        self._press_at = QPoint()
        self._drag_to = QPoint()
        self._dragging = False
        self._spot: HotSpotPlace | None = None  # The hot spot that has the keyboard focus.
        self._reached_by_tab = False
        # Scrolls while the pointer is beyond the edge with the button held down.
        self._pull = QTimer(self, interval=30)
        self._pull.timeout.connect(self._scroll_and_extend_selection)
        # Runs after a double click, as long as another click makes three of it.
        self._again = QTimer(self, interval=QApplication.doubleClickInterval(), singleShot=True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setCursor(Qt.CursorShape.IBeamCursor)

    # --- What each kind of view must define

    def text_position_at(self, point: QPoint) -> TextPosition:
        raise NotImplementedError

    def line_text(self, number: int) -> str | None:
        """Returns a line as it is copied, or None for a row without text."""
        raise NotImplementedError

    def word_or_paragraph_at(self, place: TextPosition, *, paragraph: bool) -> tuple[int, int]:
        text = self.line_text(place.number) or ""
        if paragraph:
            return 0, len(text)
        return word_range(text, place.offset)

    def selected_text(self) -> str:
        return self.selection.join_selected_lines(self.line_text)

    def select_all_text(self) -> None:
        raise NotImplementedError

    def show_selection(self) -> None:
        self.viewport().update()

    def update_following_for_scroll(self, _wanted: int) -> None:
        """Called when the reader scrolls to about this position."""

    # --- Showing where the keyboard focus is

    @property
    def has_focus_frame(self) -> bool:
        """True if Tab moved the focus here, and no hot spot has it."""
        return self.hasFocus() and self._reached_by_tab and self._spot is None

    def focusInEvent(self, event: QtGui.QFocusEvent) -> None:
        super().focusInEvent(event)
        # Whoever comes back from another window finds the frame as it was.
        if event.reason() is Qt.FocusReason.ActiveWindowFocusReason:
            return
        self._reached_by_tab = event.reason() in (
            Qt.FocusReason.TabFocusReason,
            Qt.FocusReason.BacktabFocusReason,
        )

    def focusOutEvent(self, event: QtGui.QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.viewport().update()

    def viewportEvent(self, event: QEvent) -> bool:
        handled = super().viewportEvent(event)
        if event.type() == QEvent.Type.Paint and self.has_focus_frame:
            painter = QtGui.QPainter(self.viewport())
            painter.setPen(QtGui.QPen(self.theme.colour_of_token("accent"), 2))
            painter.drawRect(self.viewport().rect().adjusted(1, 1, -1, -1))
            painter.end()
        return handled

    # --- Selecting text with the mouse

    def mousePressEvent(self, event: QtGui.QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton:
            return
        # Qt reports a second click by itself, but not a third.
        distance = (event.position().toPoint() - self._press_at).manhattanLength()
        is_near = distance < QApplication.startDragDistance()
        clicks = 1
        if is_near and self._again.isActive():
            clicks = 3
        self._begin_or_extend_selection(event, clicks=clicks)

    def mouseDoubleClickEvent(self, event: QtGui.QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._again.start()
            self._begin_or_extend_selection(event, clicks=2)

    def _begin_or_extend_selection(self, event: QtGui.QMouseEvent, *, clicks: int) -> None:
        """Selects as every text field does: a press sets the caret, one with Shift
        extends the selection, two presses select a word and three a paragraph.
        """
        point = event.position().toPoint()
        self._press_at = point
        self._dragging = False
        self._reached_by_tab = False
        place = self.text_position_at(point)
        if event.modifiers() & _SHIFT and self.selection.anchor.number >= 0:
            self.selection.caret = place
        elif clicks > 1 and place.number >= 0:
            first, last = self.word_or_paragraph_at(place, paragraph=clicks > 2)
            self.selection.set_both_ends(
                TextPosition(place.number, first), TextPosition(place.number, last)
            )
        else:
            self.selection.set_both_ends(place)
        self.show_selection()

    def mouseMoveEvent(self, event: QtGui.QMouseEvent) -> None:
        """Extends the selection to the pointer while the left button is down. A move of
        a few pixels is still a press. Beyond the edge, a timer scrolls on.
        """
        if not event.buttons() & Qt.MouseButton.LeftButton:
            return
        point = event.position().toPoint()
        if (point - self._press_at).manhattanLength() >= QApplication.startDragDistance():
            self._dragging = True
        if not self._dragging or self.selection.anchor.number < 0:
            return
        self._drag_to = point
        self.selection.caret = self.text_position_at(point)
        self.show_selection()
        is_inside = 0 <= point.y() < self.viewport().height()
        if is_inside:
            self._pull.stop()
        elif not self._pull.isActive():
            self._pull.start()

    def mouseReleaseEvent(self, event: QtGui.QMouseEvent) -> None:
        self._pull.stop()

    def _scroll_and_extend_selection(self) -> None:
        # The farther the pointer is beyond the edge, the faster the text scrolls.
        beyond_edge = self._drag_to.y()
        if beyond_edge >= 0:
            beyond_edge -= self.viewport().height()
        step = max(-FASTEST, min(FASTEST, beyond_edge))
        self._scroll_to(self.verticalScrollBar().value() + step)
        self.selection.caret = self.text_position_at(self._drag_to)
        self.show_selection()

    # --- Selecting and scrolling with the keyboard

    def keyPressEvent(self, event: QtGui.QKeyEvent) -> None:
        if event.matches(QtGui.QKeySequence.StandardKey.Copy):
            self.copy_selected_text()
        elif event.matches(QtGui.QKeySequence.StandardKey.SelectAll):
            self.select_all_text()
        elif self._extend_selection_by_key(event) or self._scroll_by_key(Qt.Key(event.key())):
            return
        else:
            super().keyPressEvent(event)

    def _extend_selection_by_key(self, event: QtGui.QKeyEvent) -> bool:
        modifiers = event.modifiers()
        if not modifiers & _SHIFT:
            return False
        whole = bool(modifiers & Qt.KeyboardModifier.ControlModifier)
        return self.move_selection_end(Qt.Key(event.key()), whole=whole)

    def copy_selected_text(self) -> None:
        text = self.selected_text()
        if text:
            QtGui.QGuiApplication.clipboard().setText(text)

    def move_selection_end(self, _key: Qt.Key, *, whole: bool) -> bool:
        """Moves the selection's end with Shift, `whole` with Ctrl too. Returns whether it moved."""
        return False

    def _scroll_by_key(self, key: Qt.Key) -> bool:
        """Scrolls as a key says. Returns whether the key was one that scrolls."""
        bar = self.verticalScrollBar()
        line = bar.singleStep()
        page = self.viewport().height() - line
        steps = {
            Qt.Key.Key_Up: -line,
            Qt.Key.Key_Down: line,
            Qt.Key.Key_PageUp: -page,
            Qt.Key.Key_PageDown: page,
            Qt.Key.Key_Home: -bar.maximum(),
            Qt.Key.Key_End: bar.maximum(),
        }
        if key not in steps:
            return False
        self._scroll_to(bar.value() + steps[key])
        return True

    def _scroll_to(self, wanted: int) -> None:
        self.update_following_for_scroll(wanted)
        self.verticalScrollBar().setValue(wanted)


class BoxSurface(TextSurface):
    """A surface with hot spots for the pointer and for Tab. `intent_requested` carries
    a hot spot's action.
    """

    intent_requested = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self._near: LayoutBox | None = None  # The box that the pointer is over.
        self._pressed: HotSpot | None = None
        self.viewport().setMouseTracking(True)

    def hot_spot_at_point(self, point: QPoint) -> HotSpot | None:
        raise NotImplementedError

    def nearest_box_at_point(self, point: QPoint) -> LayoutBox | None:
        raise NotImplementedError

    def visible_hot_spots(self) -> Sequence[HotSpotPlace]:
        """Returns the hot spots that Tab visits."""
        raise NotImplementedError

    def hot_spot_in_viewport(self, spot: HotSpotPlace) -> tuple[HotSpot, QRectF] | None:
        """Returns a hot spot and its current place, or None if it no longer exists."""
        raise NotImplementedError

    # --- Clicking hot spots with the mouse

    def _begin_or_extend_selection(self, event: QtGui.QMouseEvent, *, clicks: int) -> None:
        self._spot = None
        self._pressed = self.hot_spot_at_point(event.position().toPoint())
        # A double click on a button presses it twice and selects no word.
        if self._pressed is not None:
            clicks = 1
        super()._begin_or_extend_selection(event, clicks=clicks)

    def mouseMoveEvent(self, event: QtGui.QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        if not event.buttons() & Qt.MouseButton.LeftButton:
            self.update_hover(event.position().toPoint())

    def mouseReleaseEvent(self, event: QtGui.QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        pressed = self._pressed
        self._pressed = None
        if event.button() != Qt.MouseButton.LeftButton or self._dragging or pressed is None:
            return
        if self.hot_spot_at_point(event.position().toPoint()) == pressed:
            self.perform_box_action(pressed.act)

    def update_hover(self, point: QPoint) -> None:
        shape = Qt.CursorShape.IBeamCursor
        if self.hot_spot_at_point(point):
            shape = Qt.CursorShape.PointingHandCursor
        if self.viewport().cursor().shape() != shape:
            self.viewport().setCursor(shape)
        nearest_box = self.nearest_box_at_point(point)
        if nearest_box is not self._near:
            self._near = nearest_box
            self.viewport().update()

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Leave:
            self._near = None
            self.viewport().update()
        return super().viewportEvent(event)

    # --- Reaching hot spots with the keyboard

    def keyPressEvent(self, event: QtGui.QKeyEvent) -> None:
        if event.key() in _PRESSING:
            hot_spot = self._focused_hot_spot()
            if hot_spot is not None:
                self.perform_box_action(hot_spot.act)
                return
        super().keyPressEvent(event)

    def focusInEvent(self, event: QtGui.QFocusEvent) -> None:
        """Moves the focus to the first or last hot spot when Tab enters."""
        super().focusInEvent(event)
        if self._reached_by_tab and self.visible_hot_spots():
            self._spot = None
            self.focusNextPrevChild(event.reason() is Qt.FocusReason.TabFocusReason)

    def focusNextPrevChild(self, forward: bool) -> bool:  # noqa: FBT001 - Qt's signature
        """Moves through the hot spots with Tab, then leaves. From a button in the text,
        it leaves at once.
        """
        if not self.hasFocus():
            return super().focusNextPrevChild(forward)
        self._spot = self._next_hot_spot(forward=forward)
        self.viewport().update()
        if self._spot is None:
            return super().focusNextPrevChild(forward)
        self._scroll_to_and_announce_focused_hot_spot()
        return True

    def _next_hot_spot(self, *, forward: bool) -> HotSpotPlace | None:
        """Returns the hot spot after or before the focused one. Without one, the first or last."""
        spots = self.visible_hot_spots()
        current_stop = self.tab_stop_of(self._spot)
        if current_stop in spots:
            current_index = spots.index(current_stop)
        elif forward:
            current_index = -1  # Before the first.
        else:
            current_index = len(spots)  # After the last.

        if forward:
            next_index = current_index + 1
        else:
            next_index = current_index - 1
        if not 0 <= next_index < len(spots):
            return None
        return spots[next_index]

    def tab_stop_of(self, spot: HotSpotPlace | None) -> HotSpotPlace | None:
        """Returns the stop of a hot spot, because several can share one."""
        return spot

    def _focused_hot_spot(self) -> HotSpot | None:
        if self._spot is None:
            return None
        hot_spot_and_place = self.hot_spot_in_viewport(self._spot)
        if hot_spot_and_place is None:
            return None
        hot_spot, _ = hot_spot_and_place
        return hot_spot

    def _scroll_to_and_announce_focused_hot_spot(self) -> None:
        if self._spot is None:
            return
        hot_spot_and_place = self.hot_spot_in_viewport(self._spot)
        if hot_spot_and_place is None:
            return
        hot_spot, place = hot_spot_and_place
        if place.top() < 0 or place.bottom() > self.viewport().height():
            self._scroll_to(int(self.verticalScrollBar().value() + place.top() - STEP))
        self.speak_to_screen_reader(hot_spot.name)

    def draw_keyboard_focus(self, painter: QtGui.QPainter, number: int, stack: BoxStack) -> None:
        """Draws a frame around the focused hot spot, if it is in this item."""
        if self._spot is None or not self.hasFocus():
            return
        focused_item, focused = self._spot
        if focused_item != number or focused not in stack.list_hot_spots():
            return
        painter.setRenderHint(QtGui.QPainter.RenderHint.Antialiasing)
        focus_colour = self.theme.colour_of_token("accent")
        painter.setPen(QtGui.QPen(focus_colour, 2))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        _, place = stack.hot_spot_and_rect(focused)
        frame = place.adjusted(-1, -1, 1, 1)
        painter.drawRoundedRect(frame, 6, 6)

    def perform_box_action(self, act: BoxAction) -> None:
        if isinstance(act, CopyText):
            QtGui.QGuiApplication.clipboard().setText(act.text)
            QToolTip.showText(self.cursor().pos(), tr("Copied"), self)
            self.speak_to_screen_reader(tr("Copied"))
        else:
            self.intent_requested.emit(act)

    def speak_to_screen_reader(self, text: str) -> None:
        if QtGui.QAccessible.isActive():
            QtGui.QAccessible.updateAccessibility(
                QtGui.QAccessibleAnnouncementEvent(self, make_safe_text(text[:2_000]))
            )
