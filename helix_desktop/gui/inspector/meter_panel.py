"""The panel that the meter opens: what is in the context, its cost, and how it is saved."""

from collections.abc import Iterator, Sequence

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, Qt
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QApplication, QPushButton, QWidget

from helix_desktop.engine.message_cost_forecast import NextMessageEstimate
from helix_desktop.gui import tab_order
from helix_desktop.gui.common.policy_names import describe_preset_plainly, list_policy_choices
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button, set_surface_look
from helix_desktop.gui.inspector.inspector_boxes import (
    build_context_boxes,
    build_cost_boxes,
    build_next_message_boxes,
)
from helix_desktop.gui.model_setup_port import is_assumed_free, lacks_price
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.shown_workspace import ShownSession
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import LayoutBox
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.translation import tr
from helix_desktop.gui.views.boxes_view import BoxesView
from helix_desktop.gui.views.choice_pill import PolicyChoicePill

# The widths of the panel, in pixels: the usual one, and that where it would be too high.
PANEL_WIDTH = 400
WIDER_PANEL = 620


class ContextPanel(QWidget):
    """The panel stays above the meter until the user clicks elsewhere."""

    def __init__(self, theme: Theme, window: QWidget) -> None:
        super().__init__(window, accessibleName=tr("Context"))
        self._theme = theme
        self._opener = window
        self._window = window
        set_surface_look(self, "box")
        self.figures = BoxesView(theme, self, pad=(0, 0))
        self.figures.setAccessibleName(tr("Context"))
        self.policy = PolicyChoicePill(tr("Setting"), self)
        self._meaning = build_plain_label("", "small", self)
        policy_label = build_plain_label(tr("Long conversations"), "", self)
        saving = build_row((policy_label, 1), self.policy)
        self.fold_link = self._build_panel_link(tr("Shorten now…"))
        self.request_link = self._build_panel_link(tr("Show the request"))
        self.side_link = self._build_panel_link(tr("As a side panel"))
        # The tour puts a ring around the first, which touched the second.
        links = build_row(self.fold_link, self.request_link, self.side_link, 1, spacing=10)
        words = tr("What would other settings have cost here?")
        self.compare_link = self._build_panel_link(words)
        comparing = build_row(self.compare_link, 1)
        self._column = build_column(
            self.figures, saving, self._meaning, comparing, links, owner=self
        )
        theme.keep_lengths_scaled(self, self._column.setContentsMargins, 18, 14, 18, 12)
        theme.keep_lengths_scaled(self, self._column.setSpacing, 8)
        self.hide()

    def _build_panel_link(self, words: str) -> QPushButton:
        """Builds a link that closes the panel first. What it does then is connected by
        the window.
        """
        return build_push_button(words, self, self._close_panel_and_focus_opener, "link")

    def open_or_close_panel(self, opener: QWidget) -> None:
        """Opens or closes the panel above the control `opener`."""
        self._opener = opener
        self.setVisible(self.isHidden())
        if self.isVisible():
            self.raise_()
            self.policy.setFocus(Qt.FocusReason.PopupFocusReason)

    def show_policy(self, name: str) -> None:
        self.policy.show_choice(name, dict(list_policy_choices()).get(name, ""))
        self._meaning.setText(describe_preset_plainly(name))

    def show_context_of(
        self,
        session: ShownSession,
        next_message: NextMessageEstimate,
        words_on_cache: Sequence[str] = (),
        replaced_message: int = 0,
    ) -> None:
        """Shows a session's context. `words_on_cache`: how long what was sent costs less.
        `replaced_message`: the one that is being edited, with which what follows it leaves.
        """
        state = session.conversation.state
        has_facts = bool(state.facts)
        for link in (self.fold_link, self.request_link, self.compare_link):
            link.setVisible(has_facts)

        def build_panel_boxes(ink: DrawingStyle, width: float) -> Iterator[LayoutBox]:
            meter = session.context.next_request_meter(replaced_message)
            expected_state = session.conversation.expected_state
            yield from build_context_boxes(ink, width, expected_state, meter, thresholds=())
            yield from build_next_message_boxes(
                ink,
                width,
                next_message,
                words_on_cache,
                is_assumed_free=is_assumed_free(expected_state),
            )
            yield from build_cost_boxes(
                ink,
                width,
                session.conversation.state,
                session.context.cost_of_agents(),
                asks_for_price=lacks_price(expected_state),
            )

        self.figures.show_boxes(build_panel_boxes)
        self._place_panel()

    def _place_panel(self) -> None:
        """Places the panel above the meter. If it would be too high, it is widened, and
        then it scrolls.
        """
        px = self._theme.zoomed_pixels
        corner_in_opener = QPoint(self._opener.width(), 0)
        opener_corner = self._opener.mapTo(self._window, corner_in_opener)
        room_above = opener_corner.y() - px(18)
        width = self._lay_out_figures(PANEL_WIDTH)
        if self._column.totalHeightForWidth(width) > room_above:
            width = self._lay_out_figures(WIDER_PANEL)
        missing_height = self._column.totalHeightForWidth(width) - room_above
        self._scroll_figures_if_higher(missing_height)

        height = self._column.totalHeightForWidth(width)
        top = max(opener_corner.y() - px(10) - height, px(8))
        # The right edges of the panel and of the control are in line, if the window has the room.
        left_in_line = opener_corner.x() - width
        rightmost_left = self._window.width() - width
        left = max(min(left_in_line, rightmost_left), 0)
        self.setGeometry(QRect(left, top, width, height))

    def _lay_out_figures(self, wanted_width: int) -> int:
        """Lays out the figures for a width at 100 %. Returns the width that the panel gets."""
        px = self._theme.zoomed_pixels
        width = min(px(wanted_width), self._window.width() - px(24))
        self.figures.setFixedWidth(width - px(36))  # Without the panel's margins.
        self.figures.setFixedHeight(self.figures.lay_out_all_and_return_height())
        return width

    def _scroll_figures_if_higher(self, missing_height: int) -> None:
        px = self._theme.zoomed_pixels
        if missing_height <= 0:
            self.figures.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
            self.figures.setViewportMargins(0, 0, 0, 0)
            return
        scrolled_height = self.figures.height() - missing_height
        self.figures.setFixedHeight(max(scrolled_height, px(60)))
        self.figures.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self.figures.setViewportMargins(0, 0, px(8), 0)  # This makes room for the bar.

    # --- Placing the panel, and closing it by Escape or a click elsewhere

    def _close_panel_and_focus_opener(self) -> None:
        self._opener.setFocus(Qt.FocusReason.OtherFocusReason)
        self.hide()

    def showEvent(self, event: QEvent) -> None:
        self._place_panel()
        application = QApplication.instance()
        if application is not None:
            application.installEventFilter(self)

    def hideEvent(self, event: QEvent) -> None:
        application = QApplication.instance()
        if application is not None:
            application.removeEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Closes the panel on a press outside it, and on Esc, which then does not stop
        the agent.
        """
        if event.type() == QEvent.Type.MouseButtonPress and isinstance(event, QMouseEvent):
            pressed_at = event.globalPosition().toPoint()
            is_inside = _contains_point(self, pressed_at) or _contains_point(
                self._opener, pressed_at
            )
            has_open_menu = QApplication.activePopupWidget() is not None
            # Qt reports a press to the native window too, which is no widget.
            is_for_widget = isinstance(watched, QWidget)
            if is_for_widget and not is_inside and not has_open_menu:
                self.hide()
        elif event.type() == QEvent.Type.Resize and watched is self._window:
            self._place_panel()
        return False

    def event(self, event: QEvent) -> bool:
        # The override comes first: accepted, it keeps the key from the window's shortcuts.
        is_key = event.type() in (QEvent.Type.ShortcutOverride, QEvent.Type.KeyPress)
        if is_key and event.key() == Qt.Key.Key_Escape:  # type: ignore[attr-defined]  # a key event
            event.accept()
            if event.type() == QEvent.Type.KeyPress:
                self._close_panel_and_focus_opener()
            return True
        return super().event(event)

    def focusNextPrevChild(self, following: bool) -> bool:  # noqa: FBT001 - Qt's
        return tab_order.focus_next_stop((self,), self.window().focusWidget(), forward=following)


def _contains_point(widget: QWidget, global_point: QPoint) -> bool:
    return widget.rect().contains(widget.mapFromGlobal(global_point))
