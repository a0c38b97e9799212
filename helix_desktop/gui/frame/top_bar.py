"""The bar above the pages, with Chat, Changes, Cache and Timeline at the left and the
model at the right.
"""

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QPushButton, QWidget

from helix_desktop.gui.common import widgets
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.theme_icons import build_icon
from helix_desktop.gui.translation import tr
from helix_desktop.gui.views.choice_pill import ChoicePill

HEIGHT = 48
PAGES = ("chat", "changes", "cache", "timeline")
SHORTENED_CHOICE_WIDTH = 110  # The minimum width in pixels of a button whose text was shortened.


class TopBar(QWidget):
    """`page_chosen` carries a name from PAGES."""

    page_chosen = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        widgets.set_surface_look(self, "top")
        self.side = widgets.build_tool_button(tr("Show the sidebar"), self)
        self.side.setIconSize(QSize(16, 16))
        self.side.setFixedSize(28, 28)
        self._state = widgets.build_plain_label("", "small", self, wraps=False)
        self.copy = widgets.build_push_button("", self, look="link")
        self.stop = widgets.build_push_button(tr("Stop"), self, look="link")
        self.stop.hide()
        self._is_stopped_in_chat = False
        self.model = ChoicePill(tr("Model"), self)
        titles = tr("Chat"), tr("Changes"), tr("Cache"), tr("Timeline")
        self._tabs = {
            name: self._build_page_tab(name, words)
            for name, words in zip(PAGES, titles, strict=True)
        }
        group = QButtonGroup(self)
        tabs = self._tabs.values()
        for tab in tabs:
            group.addButton(tab)
        right = self._state, self.stop, self.copy, self.model
        self._row = build_row(self.side, *tabs, 1, *right, owner=self, spacing=4)
        self.side.hide()
        theme.changed.connect(self._apply_top_bar_sizes)
        self._apply_top_bar_sizes()

    def page_tab(self, page: str) -> QPushButton:
        return self._tabs[page]

    def mark_open_page(self, page: str) -> None:
        self._tabs[page].setChecked(True)
        self.stop.setVisible(
            bool(self._state.text()) and not (page == "chat" and self._is_stopped_in_chat)
        )
        self.fit_top_bar()

    def show_background_work(
        self, text: str, button: str, *, is_stopped_in_chat: bool = False
    ) -> None:
        """Shows background work in a word or two, as "folding: handover", and what can
        be done about it.

        `is_stopped_in_chat`: beside the chat's message box is a button that does the same.
        """
        self._state.setText(text)
        self.stop.setText(button)
        self._is_stopped_in_chat = is_stopped_in_chat
        self.mark_open_page(
            next((page for page, tab in self._tabs.items() if tab.isChecked()), "chat")
        )

    def show_working_copy(self, words: str) -> None:
        """Shows the copy that the conversation works in, to bring it back. Empty if it
        works in the original.
        """
        self.copy.setText(words and f"{words} · {tr('Bring back…')}")
        self.fit_top_bar()

    def show_sidebar_button(self, *, needed: bool) -> None:
        self.side.setVisible(needed)
        self.fit_top_bar()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit_top_bar()

    def fit_top_bar(self) -> None:
        """Shortens the model's name if room is short, then hides it, because Ctrl+K finds it too.

        Tabs that do not fit even then get narrower.
        """
        px = self._theme.zoomed_pixels
        margin = px(20)
        if self.width() < px(560):
            margin = px(12)
        room = self.width() - 2 * margin - 16
        if not self.side.isHidden():
            room -= 36
        room -= self._width_of_wide_tabs()
        self._set_tabs_narrow(room < 0, margin)
        if self._state.text():
            for part in (self._state, self.stop):
                if not part.isHidden():
                    room -= part.sizeHint().width()
        copy_width = self.copy.sizeHint().width()
        leaves_room = room >= copy_width + px(SHORTENED_CHOICE_WIDTH)
        self.copy.setVisible(bool(self.copy.text()) and leaves_room)
        if not self.copy.isHidden():
            room -= copy_width
        full_width = self.model.show_full_text_and_measure_width() + px(10)
        self.model.setVisible(room >= min(full_width, px(SHORTENED_CHOICE_WIDTH)))
        self.model.fit_pill_text(room - px(10))

    def _width_of_wide_tabs(self) -> int:
        # A tab needs this much more room when it is no longer narrow.
        missing = 0
        if self._tabs["chat"].property("look") == "narrow-tab":
            missing = 2 * self._theme.zoomed_pixels(7)
        return sum(tab.sizeHint().width() + 4 + missing for tab in self._tabs.values())

    def _set_tabs_narrow(self, is_narrow: bool, margin: int) -> None:  # noqa: FBT001 - what is set
        look = "tab"
        spacing = 4
        if is_narrow:
            look = "narrow-tab"
            spacing = 0
            margin = 0
        for tab in self._tabs.values():
            set_widget_look(tab, look)
            tab.updateGeometry()
        self._row.setSpacing(spacing)
        self._row.setContentsMargins(margin, 0, margin, 0)

    def _build_page_tab(self, name: str, words: str) -> QPushButton:
        tab = widgets.build_push_button(words, self, lambda: self.page_chosen.emit(name), "tab")
        tab.setCheckable(True)
        tab.setAutoExclusive(True)  # Screen readers then announce a radio button, not a check box.
        tab.setAccessibleName(tr("{name} page", name=words))
        return tab

    def _apply_top_bar_sizes(self) -> None:
        self.setFixedHeight(self._theme.zoomed_pixels(HEIGHT))
        # The buttons may need more than this. In a narrow bar, some of them are hidden. It does not
        # grow with the text, because the page below it does not get wider either.
        self.setMinimumWidth(360)
        self.side.setIcon(build_icon("sidebar", self._theme.colour_of_token("muted")))
