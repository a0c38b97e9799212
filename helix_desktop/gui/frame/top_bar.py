"""The bar over the pages: Chat, Cache, Timeline at the left; policy and model at the right."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QLabel, QMenu, QPushButton, QToolButton, QWidget

from helix_desktop.gui.shared.policy_names import list_policy_choices
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.theme_icons import build_icon
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import tr

HEIGHT = 48
PAGES = ("chat", "changes", "cache", "timeline")
MAX_CHOICE_LENGTH = 32  # The most characters shown of a choice.
SHORTENED_CHOICE_WIDTH = 110  # pixels of a choice that is shortened


class ChoicePill(QPushButton):
    """A button that shows what is chosen. `choice_wanted`: the user wants to choose."""

    choice_wanted = Signal()

    def __init__(self, hint: str, parent: QWidget) -> None:
        super().__init__(parent)
        self._hint = hint
        self.setProperty("look", "pill")
        self.setAutoDefault(False)
        self.clicked.connect(self.open_choices)
        self.show_choice("")

    def show_choice(self, current: str, words: str = "") -> None:
        self.current = current
        words = words or current or self._hint
        half = MAX_CHOICE_LENGTH // 2
        self._words = words if len(words) <= MAX_CHOICE_LENGTH else f"{words[:half]}…{words[1 - half :]}"
        self._set_pill_text(self._words)
        self.setAccessibleName(f"{self._hint}: {words}")
        self.setToolTip(safe_tooltip(f"{self._hint}: {words}"))

    def full_width(self) -> int:
        """Returns the width at which the whole text fits."""
        self._set_pill_text(self._words)
        return self.sizeHint().width()

    def fit_pill_text(self, width: int) -> None:
        """Shortens the text in the middle to fit, because names differ at their beginning and end."""
        missing = self.full_width() - width
        if missing > 0:
            metrics = self.fontMetrics()
            room = metrics.horizontalAdvance(self._words) - missing
            self._set_pill_text(metrics.elidedText(self._words, Qt.TextElideMode.ElideMiddle, room))

    def open_choices(self) -> None:
        self.choice_wanted.emit()

    def _set_pill_text(self, words: str) -> None:
        self.setText(f"{words.replace('&', '&&')} ▾")


class PolicyChoicePill(ChoicePill):
    """Its few choices are a menu. `chosen` carries a preset's name."""

    chosen = Signal(str)
    more_wanted = Signal()

    def open_choices(self) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for name, words in list_policy_choices():
            action = menu.addAction(words)
            action.setCheckable(True)
            action.setChecked(name == self.current)
            action.triggered.connect(lambda _checked=False, n=name: self.chosen.emit(n))
        menu.addSeparator()
        menu.addAction(tr("Thresholds…")).triggered.connect(self.more_wanted)
        menu.popup(self.mapToGlobal(QPoint(0, self.height() + 4)))


class TopBar(QWidget):
    """`page_chosen` carries a name of PAGES."""

    page_chosen = Signal(str)
    sidebar_wanted = Signal()
    inspector_wanted = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setProperty("look", "top")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._side = self._build_top_bar_button("sidebar", tr("Show the sidebar"))
        self._side.clicked.connect(self.sidebar_wanted)
        self._inspect = self._build_top_bar_button("inspector", tr("Show or hide the inspector"))
        self._inspect.clicked.connect(self.inspector_wanted)
        self._state = QLabel(self)
        self._state.setProperty("look", "small")
        self.policy = PolicyChoicePill(tr("Policy"), self)
        self.model = ChoicePill(tr("Model"), self)
        self._tabs: dict[str, QPushButton] = {}
        self._row = QHBoxLayout(self)
        self._row.setSpacing(4)
        self._row.addWidget(self._side)
        group = QButtonGroup(self)
        for name, words in zip(PAGES, (tr("Chat"), tr("Changes"), tr("Cache"), tr("Timeline")), strict=True):
            self._tabs[name] = self._add_page_tab(name, words)
            group.addButton(self._tabs[name])
        self._row.addStretch(1)
        self._row.addWidget(self._state)
        self._row.addSpacing(6)
        self._row.addWidget(self.policy)
        self._row.addSpacing(6)
        self._row.addWidget(self.model)
        self._row.addSpacing(2)
        self._row.addWidget(self._inspect)
        self._side.hide()
        theme.changed.connect(self._apply_top_bar_sizes)
        self._apply_top_bar_sizes()

    def page_tab(self, page: str) -> QPushButton:
        return self._tabs[page]

    @property
    def inspector_button(self) -> QToolButton:
        return self._inspect

    def mark_open_page(self, page: str) -> None:
        self._tabs[page].setChecked(True)

    def show_background_work(self, text: str) -> None:
        """What goes on in the background, in a word or two: "folding: handover"."""
        self._state.setText(text)
        self.fit_top_bar()

    def show_side_buttons(self, *, sidebar: bool, can_inspect: bool) -> None:
        """The button that brings the sidebar back, and the one that shows and hides the inspector."""
        self._side.setVisible(not sidebar)
        self._inspect.setVisible(can_inspect)
        self.fit_top_bar()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit_top_bar()

    def fit_top_bar(self) -> None:
        """If room is short, a long model name is shortened first, then policy and model are hidden:
        both can also be reached through the settings and Ctrl+K.
        """
        px = self._theme.zoomed_pixels
        tight = self.width() < px(560)
        self._row.setContentsMargins(px(12 if tight else 20), 0, px(12 if tight else 20), 0)
        buttons = [each for each in (self._side, self._inspect) if not each.isHidden()]
        room = self.width() - px(24 if tight else 40) - 16 - 36 * len(buttons)
        room -= sum(tab.sizeHint().width() + 4 for tab in self._tabs.values())
        self._row.setSpacing(4 if room >= 0 else 0)
        if room < 0:
            self._row.setContentsMargins(0, 0, 0, 0)
        room -= self._state.sizeHint().width() if self._state.text() else 0
        policy, model = (pill.full_width() + px(10) for pill in (self.policy, self.model))
        least = min(model, px(SHORTENED_CHOICE_WIDTH))
        self.policy.setVisible(room >= policy + least)
        if room >= policy + least:
            room -= policy
        self.model.setVisible(room >= least)
        self.model.fit_pill_text(room - px(10))

    def _add_page_tab(self, name: str, words: str) -> QPushButton:
        tab = QPushButton(words, self)
        tab.setProperty("look", "tab")
        tab.setCheckable(True)
        tab.setAutoDefault(False)
        tab.setAccessibleName(tr("{name} page", name=words))
        tab.clicked.connect(lambda _checked=False: self.page_chosen.emit(name))
        self._row.addWidget(tab)
        return tab

    def _build_top_bar_button(self, name: str, hint: str) -> QToolButton:
        button = QToolButton(self)
        button.setObjectName(name)
        button.setProperty("look", "icon")
        button.setIconSize(QSize(16, 16))
        button.setFixedSize(28, 28)
        button.setToolTip(hint)
        button.setAccessibleName(hint)
        return button

    def _apply_top_bar_sizes(self) -> None:
        self.setFixedHeight(self._theme.zoomed_pixels(HEIGHT))
        # less than the buttons need: some of them are hidden then
        self.setMinimumWidth(self._theme.zoomed_pixels(360))
        self._row.setContentsMargins(self._theme.zoomed_pixels(20), 0, self._theme.zoomed_pixels(20), 0)
        for button in (self._side, self._inspect):
            button.setIcon(build_icon(button.objectName(), self._theme.colour_of_token("muted")))
