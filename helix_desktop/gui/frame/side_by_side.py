"""Shows two conversations beside each other, each below its title. Imported for the second one."""

from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QApplication, QSplitter, QWidget

from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.common.elided_label import ElidedLabel
from helix_desktop.gui.common.widgets import build_surface, build_tool_button
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import tr

LEAST_WIDTH = 360  # If two sides would be narrower than this, only the current one is shown.


class SideBySide(QSplitter):
    """Both signals carry a side. `chosen`: it was clicked or got the focus."""

    chosen = Signal(object)
    closing_wanted = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(
            Qt.Orientation.Horizontal, parent, handleWidth=1, childrenCollapsible=False
        )
        self._theme = theme
        self._headings: dict[ChatPage, tuple[QWidget, ElidedLabel, QWidget]] = {}
        self._titles: Mapping[ChatPage, str] = {}
        self._current: ChatPage | None = None
        self.setMinimumWidth(1)  # The window may become narrower than two sides.
        QApplication.instance().focusChanged.connect(self._report_side_with_focus)  # type: ignore[union-attr]

    def add_side(self, side: ChatPage) -> None:
        heading = build_surface(side, "top")
        title = ElidedLabel(heading)
        swap = build_tool_button("", heading, "⇄")
        close = build_tool_button(tr("Close this pane"), heading, "✕")
        row = build_row((title, 1), swap, close, owner=heading)
        self._theme.keep_lengths_scaled(heading, row.setContentsMargins, 16, 4, 8, 4)
        swap.clicked.connect(
            lambda: self._choose_side(next(each for each in self._titles if each is not side))
        )
        close.clicked.connect(lambda: self.closing_wanted.emit(side))
        self._headings[side] = heading, title, swap
        side.layout().insertWidget(0, heading)  # type: ignore[union-attr]
        side.setMinimumWidth(1)  # Otherwise, the splitter's handle could not be moved.
        self.addWidget(side)
        self.setSizes([10_000, 10_000])  # Both sides get the same width.

    def show_sides(self, titles: Mapping[ChatPage, str], current: ChatPage) -> None:
        """Shows one or two sides. A single side has no heading. Without room for both,
        a button leads to the other.
        """
        self._titles = titles
        self._current = current
        room = self.width() >= 2 * self._theme.zoomed_pixels(LEAST_WIDTH)
        for side, words in titles.items():
            heading, title, swap = self._headings[side]
            heading.setVisible(len(titles) > 1)
            if side is current:
                set_widget_look(heading, "current-side")
                set_widget_look(title, "heading")
            else:
                set_widget_look(heading, "top")
                set_widget_look(title, "small")
            title.set_elided_text(words)
            side.composer.text.setAccessibleName(tr("Message"))
            if len(titles) > 1:
                side.composer.text.setAccessibleName(tr("Message to “{title}”", title=words))
            swap.setVisible(not room)
            other = ""
            for other_side, other_title in titles.items():
                if other_side is not side:
                    other = other_title
            show_other = tr("Show “{title}”", title=other)
            swap.setToolTip(safe_tooltip(show_other))
            swap.setAccessibleName(show_other)
            side.setVisible(room or side is current)

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
        for side in tuple(self._titles):
            if new is not None and side.isAncestorOf(new):
                self.chosen.emit(side)
