"""Shows two conversations beside each other, each below its title. Imported for the second one."""

from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QApplication, QSplitter, QWidget

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.common.elided_label import ElidedLabel
from helix_desktop.gui.common.widgets import build_surface, build_tool_button
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import tr

LEAST_WIDTH = 360  # If two sides would be narrower than this, only the current one is shown.


@dataclass(frozen=True, eq=False, slots=True)
class SideHeading:
    """The heading above one side: its title, and the button that leads to the other side."""

    surface: QWidget
    title: ElidedLabel
    swap_button: QWidget


class SideBySide(QSplitter):
    """Both signals carry a side. `chosen`: it was clicked or got the focus."""

    chosen = Signal(object)
    closing_wanted = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(
            Qt.Orientation.Horizontal, parent, handleWidth=1, childrenCollapsible=False
        )
        self._theme = theme
        self._headings: dict[ChatPage, SideHeading] = {}
        self._titles: Mapping[ChatPage, str] = {}
        self._current: ChatPage | None = None
        self.setMinimumWidth(1)  # The window may become narrower than two sides.
        QApplication.instance().focusChanged.connect(self._report_side_with_focus)  # type: ignore[union-attr]

    def add_side(self, side: ChatPage) -> None:
        heading = build_surface(side, "top")
        title = ElidedLabel(heading)
        swap_button = build_tool_button("", heading, "⇄")
        close_button = build_tool_button(tr("Close this pane"), heading, "✕")
        row = build_row((title, 1), swap_button, close_button, owner=heading)
        self._theme.keep_lengths_scaled(heading, row.setContentsMargins, 16, 4, 8, 4)
        swap_button.clicked.connect(lambda: self._choose_other_side(side))
        close_button.clicked.connect(lambda: self.closing_wanted.emit(side))
        self._headings[side] = SideHeading(heading, title, swap_button)
        layout = side.layout()
        layout.insertWidget(0, heading)  # type: ignore[union-attr]
        side.setMinimumWidth(1)  # Otherwise, the splitter's handle could not be moved.
        self.addWidget(side)
        self.setSizes([10_000, 10_000])  # Both sides get the same width.

    def show_sides(self, titles: Mapping[ChatPage, str], current: ChatPage) -> None:
        """Shows one or two sides. A single side has no heading. Without room for both,
        a button leads to the other.
        """
        self._titles = titles
        self._current = current
        has_room_for_both = self.width() >= 2 * self._theme.zoomed_pixels(LEAST_WIDTH)
        for side in titles:
            side.setVisible(has_room_for_both or side is current)
            self._update_heading_of_side(side, has_room_for_both=has_room_for_both)

    def _update_heading_of_side(self, side: ChatPage, *, has_room_for_both: bool) -> None:
        """Updates the title above one of two conversations, and marks the current one.

        If the window is too narrow for both, only the current conversation is visible, and the
        button beside its title switches to the other.
        """
        heading = self._headings[side]
        title = self._titles[side]
        has_two_sides = len(self._titles) > 1
        heading.surface.setVisible(has_two_sides)
        heading.title.set_elided_text(title)
        if side is self._current:
            set_widget_look(heading.surface, "current-side")
            set_widget_look(heading.title, "heading")
        else:
            set_widget_look(heading.surface, "top")
            set_widget_look(heading.title, "small")
        message_box = side.composer.text
        if has_two_sides:
            message_box.setAccessibleName(tr("Message to “{title}”", title=title))
        else:
            message_box.setAccessibleName(tr("Message"))
        show_other = tr("Show “{title}”", title=self._title_of_other_side(side))
        heading.swap_button.setVisible(not has_room_for_both)
        heading.swap_button.setToolTip(safe_tooltip(show_other))
        heading.swap_button.setAccessibleName(show_other)

    def _title_of_other_side(self, side: ChatPage) -> str:
        for other_side, title in self._titles.items():
            if other_side is not side:
                return title
        return ""

    def _choose_other_side(self, side: ChatPage) -> None:
        for other_side in self._titles:
            if other_side is not side:
                self._choose_side(other_side)
                return

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._current is not None:
            self.show_sides(self._titles, self._current)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Selects the side even if the click was on something that does not take the focus."""
        for side in tuple(self._titles):
            if side.geometry().contains(event.position().toPoint()):
                self._choose_side(side)

    def _choose_side(self, side: ChatPage) -> None:
        self.chosen.emit(side)
        side.composer.text.setFocus()

    def _report_side_with_focus(self, _old: QWidget | None, new: QWidget | None) -> None:
        if new is None:
            return
        for side in tuple(self._titles):
            if side.isAncestorOf(new):
                self.chosen.emit(side)
