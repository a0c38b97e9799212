"""The bar above the pages, with Chat, Changes, Cache and Timeline at the left and the
model at the right.
"""

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QPushButton, QWidget

from helix_desktop.gui.common import widgets
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.theme_icons import build_icon
from helix_desktop.gui.translation import tr
from helix_desktop.gui.views.choice_pill import ChoicePill

HEIGHT = 48
PAGES = ("chat", "changes", "cache", "timeline")
WIDE_TAB_SPACING = 4
NARROWED_BY = 14  # By so many pixels is a narrow tab narrower.
NARROW_MARGIN = 8  # At both ends of a bar with narrow tabs, if there is room.
LEAST_STATE_WIDTH = 90  # In pixels. Fewer would say nothing of the background work.
SHORTENED_CHOICE_WIDTH = 110  # The minimum width in pixels of a button whose text was shortened.


class TopBar(QWidget):
    """`page_chosen` carries a name from PAGES."""

    page_chosen = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        """Builds the bar above the page: the tabs, what the agent does, and the chosen
        model.
        """
        super().__init__(parent)
        self._theme = theme
        widgets.set_surface_look(self, "top")
        self.side = widgets.build_tool_button(tr("Show the sidebar"), self)
        self.side.setIconSize(QSize(16, 16))
        self.side.setFixedSize(28, 28)
        self._state = widgets.build_plain_label("", "small", self, wraps=False)
        self._state_words = ""  # Of which the label shows as many as there is room for.
        self._state_hint = ""
        self.copy = widgets.build_push_button("", self, look="link")
        self.stop = widgets.build_push_button(tr("Stop"), self, look="link")
        self.stop.hide()
        self._is_stopped_in_chat = False
        self.model = ChoicePill(tr("Model"), self)
        self._tabs = {
            "chat": self._build_page_tab("chat", tr("Chat")),
            "changes": self._build_page_tab("changes", tr("Changes")),
            "cache": self._build_page_tab("cache", tr("Cache")),
            "timeline": self._build_page_tab("timeline", tr("Timeline")),
        }
        self._row = build_row(self.side, owner=self, spacing=4)
        group = QButtonGroup(self)
        for tab in self._tabs.values():
            group.addButton(tab)
            self._row.addWidget(tab)
        self._row.addStretch(1)
        at_the_right = [self._state, self.stop, self.copy, self.model]
        for widget in at_the_right:
            self._row.addWidget(widget)
        self.side.hide()
        theme.changed.connect(self._apply_top_bar_sizes)
        self._apply_top_bar_sizes()

    def page_tab(self, page: str) -> QPushButton:
        return self._tabs[page]

    def mark_open_page(self, page: str) -> None:
        tab_before = self._tabs[self._open_page()]
        self._tabs[page].setChecked(True)
        if (
            self.window().focusWidget() is tab_before
        ):  # With its ring on another tab, two look chosen.
            self._tabs[page].setFocus()
        can_stop_beside_message_box = page == "chat" and self._is_stopped_in_chat
        shows_state = bool(self._state_words)
        self.stop.setVisible(shows_state and not can_stop_beside_message_box)
        self.fit_top_bar()

    def show_background_work(
        self, text: str, button: str, *, is_stopped_in_chat: bool = False, hint: str = ""
    ) -> None:
        """Shows background work in a word or two, as "folding: handover", and what can
        be done about it.

        `is_stopped_in_chat`: beside the chat's message box is a button that does the same. `hint`:
        why it takes longer.
        """
        self._state_words = text
        self._state_hint = hint
        self._state.setAccessibleName(text)
        self._state.setAccessibleDescription(hint)
        self.stop.setText(button)
        self._is_stopped_in_chat = is_stopped_in_chat
        self.mark_open_page(self._open_page())

    def _open_page(self) -> str:
        for page, tab in self._tabs.items():
            if tab.isChecked():
                return page
        return "chat"

    def show_working_copy(self, description: str) -> None:
        """Shows the copy that the conversation works in, to bring it back. Empty if it
        works in the original.
        """
        if description:
            self.copy.setText(f"{description} · {tr('Bring back…')}")
        else:
            self.copy.setText("")
        self.fit_top_bar()

    def show_sidebar_button(self, *, needed: bool) -> None:
        self.side.setVisible(needed)
        self.fit_top_bar()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit_top_bar()

    def fit_top_bar(self) -> None:
        """If room is short, shortens the model's name, makes the tabs narrower, then shortens what is
        said of background work, and last hides the model, because Ctrl+K finds it too.
        """
        px = self._theme.zoomed_pixels
        margin = px(20)
        if self.width() < px(560):
            margin = px(12)

        width_left = self.width() - 2 * margin - 16
        if not self.side.isHidden():
            width_left -= 36
        width_left -= self._width_of_wide_tabs()
        full_width = self.model.show_full_text_and_measure_width() + px(10)
        least_width = min(full_width, px(SHORTENED_CHOICE_WIDTH))
        are_tabs_narrow = width_left < least_width
        self._set_tabs_narrow(are_tabs_narrow, margin)
        if are_tabs_narrow:
            saved_of_each_tab = WIDE_TAB_SPACING + px(NARROWED_BY)
            width_left += 2 * margin + len(self._tabs) * saved_of_each_tab
            margins_beside_model = 2 * px(NARROW_MARGIN)
            if width_left >= least_width + margins_beside_model:
                self._row.setContentsMargins(px(NARROW_MARGIN), 0, px(NARROW_MARGIN), 0)
                width_left -= margins_beside_model

        if not self.stop.isHidden():
            width_left -= self.stop.sizeHint().width()
        self._fit_words_on_background_work(width_left - least_width)
        if self._state_words:
            width_left -= self._state.sizeHint().width()

        copy_width = self.copy.sizeHint().width()
        has_room_for_copy = width_left >= copy_width + px(SHORTENED_CHOICE_WIDTH)
        self.copy.setVisible(bool(self.copy.text()) and has_room_for_copy)
        if not self.copy.isHidden():
            width_left -= copy_width

        self.model.setVisible(width_left >= least_width)
        self.model.fit_pill_text(width_left - px(10))

    def _fit_words_on_background_work(self, room: int) -> None:
        """Says of the background work as much as there is room for, and the whole to who points at it."""
        room = max(room, self._theme.zoomed_pixels(LEAST_STATE_WIDTH))
        metrics = QFontMetrics(self._state.font())
        shown = metrics.elidedText(self._state_words, Qt.TextElideMode.ElideRight, room)
        whole_words = ""
        if shown != self._state_words:
            whole_words = self._state_words
        self._state.setText(shown)
        self._state.setToolTip("\n".join(filter(None, [whole_words, self._state_hint])))

    def _width_of_wide_tabs(self) -> int:
        # A tab needs this much more room when it is no longer narrow.
        extra_width = 0
        if self._tabs["chat"].property("look") == "narrow-tab":
            extra_width = self._theme.zoomed_pixels(NARROWED_BY)
        width = 0
        for tab in self._tabs.values():
            width += tab.sizeHint().width() + WIDE_TAB_SPACING + extra_width
        return width

    def _set_tabs_narrow(self, is_narrow: bool, margin: int) -> None:  # noqa: FBT001 - what is set
        if is_narrow:
            look = "narrow-tab"
            self._row.setSpacing(0)
            self._row.setContentsMargins(0, 0, 0, 0)
        else:
            look = "tab"
            self._row.setSpacing(WIDE_TAB_SPACING)
            self._row.setContentsMargins(margin, 0, margin, 0)
        for tab in self._tabs.values():
            set_widget_look(tab, look)
            tab.updateGeometry()

    def _build_page_tab(self, name: str, title: str) -> QPushButton:
        tab = widgets.build_push_button(title, self, lambda: self.page_chosen.emit(name), "tab")
        tab.setCheckable(True)
        tab.setAutoExclusive(True)  # Screen readers then announce a radio button, not a check box.
        tab.setAccessibleName(tr("{name} page", name=title))
        return tab

    def _apply_top_bar_sizes(self) -> None:
        self.setFixedHeight(self._theme.zoomed_pixels(HEIGHT))
        # The buttons may need more than this. In a narrow bar, some of them are hidden. It does not
        # grow with the text, because the page below it does not get wider either.
        self.setMinimumWidth(360)
        self.side.setIcon(build_icon("sidebar", self._theme.colour_of_token("muted")))
