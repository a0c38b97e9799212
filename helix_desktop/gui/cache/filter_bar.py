"""The bar above the table: search or paste a hash, and choose what is shown."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtGui import QActionGroup, QKeyEvent, Qt
from PySide6.QtWidgets import QBoxLayout, QMenu, QPushButton, QWidget

from helix_desktop.engine.cache_entry_rows import EntryFilter
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.cache.entry_columns import name_of_writer
from helix_desktop.gui.common.escape_key import EscapeCloser
from helix_desktop.gui.common.widgets import (
    add_menu_choice,
    build_line_edit,
    build_plain_label,
    build_push_button,
)
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_number, read_shown_names, tr

_DAY = 86_400
_KB = 1000
MOST_CONVERSATIONS = 60  # So many of the newest conversations are in the menu.
TYPING_PAUSE_MS = 250
TWO_LINES_BELOW_PIXELS = 700  # If the bar is narrower, the search field moves above the filters.


@dataclass(frozen=True, slots=True)
class _FilterChoice:
    """A line of a filter's menu. `button_words` stand on the button while it is chosen."""

    menu_words: str
    button_words: str
    value: str


class EntryFilterBar(QWidget):
    """`filter_chosen` carries a Filter, `searched` the text after a pause.
    `table_wanted` moves the focus.
    """

    filter_chosen = Signal(object)
    searched = Signal(str)
    table_wanted = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        """Builds the search field and the filters. The search begins after a pause in
        typing, so that not every letter starts one.
        """
        super().__init__(parent)
        self._theme = theme
        self.filter = EntryFilter()
        self._tools: Sequence[tuple[str, int]] = ()

        hint = tr("Search inside stored outputs, or paste a hash")
        self.field = build_line_edit(hint, hint, self, clearButtonEnabled=True)
        self.field.installEventFilter(self)
        EscapeCloser(self.field, self._has_words_to_search, self.field.clear)
        self.field.textChanged.connect(self._hide_hint_and_schedule_search)
        self.field.returnPressed.connect(self._search_immediately)
        self._hint = build_plain_label("", "kbd", self.field, wraps=False)
        self._pause = QTimer(self, interval=TYPING_PAUSE_MS, singleShot=True)
        self._pause.timeout.connect(self._emit_search)

        self._tool_button = build_push_button("", self, look="pill")
        self._conversation_button = build_push_button("", self, look="pill")
        self._time_button = build_push_button("", self, look="pill")
        self._more_filters_button = build_push_button("", self, look="pill")
        self._lay_out_filter_bar(theme)
        self.reset_filters()

    def _has_words_to_search(self) -> bool:
        return bool(self.field.text())

    def _emit_search(self) -> None:
        self.searched.emit(self.field.text().strip())

    def _lay_out_filter_bar(self, theme: Theme) -> None:
        """Puts the field and the four filters into one row, or into two where the
        window is narrow.
        """
        buttons_row = build_row(
            (self._tool_button, 1),
            (self._conversation_button, 1),
            (self._time_button, 1),
            (self._more_filters_button, 1),
            wraps=True,
        )
        theme.keep_lengths_scaled(self, buttons_row.setSpacing, 10)
        self._rows = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        theme.keep_lengths_scaled(self, self._rows.setContentsMargins, 20, 12, 20, 12)
        theme.keep_lengths_scaled(self, self._rows.setSpacing, 10)
        self._rows.addWidget(self.field, 1)
        self._rows.addLayout(buttons_row)
        theme.keep_lengths_scaled(self, self.field.setMinimumWidth, 120)
        theme.keep_lengths_scaled(self, self.setMinimumWidth, 300)

    def show_find_shortcut(self, shortcut: str) -> None:
        self._hint.setText(shortcut)
        self._place_shortcut_hint()

    def reset_filters(self) -> None:
        self.filter = EntryFilter()
        self.field.clear()
        self.set_tools(())
        self.set_conversations(())
        self._fill_time_menu()
        self._fill_size_and_state_menu()

    def show_searched_words(self, words: str) -> None:
        """Shows words for which the page searches already, without asking for another search."""
        self.field.setText(words)
        self._pause.stop()

    def set_tools(self, tools: Sequence[tuple[str, int]]) -> None:
        """The tools, with the number of their entries. The menu is rebuilt only for a new tool."""
        names = [name for name, _count in tools]
        known_names = [name for name, _count in self._tools]
        if tools and names == known_names:
            return
        self._tools = tools
        choices: list[_FilterChoice] = []
        for tool, count in tools:
            if tool:
                name = name_of_writer(tool)
                choices.append(_FilterChoice(f"{name}  ({format_number(count)})", name, tool))
        self._fill_filter_menu(
            self._tool_button,
            tr("All tools"),
            choices,
            lambda chosen_tool: replace(self.filter, tool=chosen_tool),
            self.filter.tool,
        )

    def set_conversations(self, conversations: Sequence[tuple[str, str]]) -> None:
        choices: list[_FilterChoice] = []
        for conversation, title in conversations[:MOST_CONVERSATIONS]:
            menu_words = title[:60] or conversation
            button_words = title[:24] or conversation
            choices.append(_FilterChoice(menu_words, button_words, conversation))
        self._fill_filter_menu(
            self._conversation_button,
            tr("Any conversation"),
            choices,
            lambda chosen: replace(self.filter, conversation=chosen),
            self.filter.conversation,
        )

    def _filter_since_days(self, days: str) -> EntryFilter:
        """Returns the filter for outputs of so many last days, or of any time if `days` is empty."""
        if not days:
            return replace(self.filter, since=0.0)
        earliest = time.time() - int(days) * _DAY
        return replace(self.filter, since=earliest)

    def resizeEvent(self, event: object) -> None:
        super().resizeEvent(event)  # type: ignore[arg-type]
        direction = QBoxLayout.Direction.LeftToRight
        if self.width() < self._theme.zoomed_pixels(TWO_LINES_BELOW_PIXELS):
            direction = QBoxLayout.Direction.TopToBottom
        self._rows.setDirection(direction)
        self._place_shortcut_hint()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            if event.key() == Qt.Key.Key_Down:
                self.table_wanted.emit()
                return True
        if event.type() == QEvent.Type.Resize:
            self._place_shortcut_hint()
        return super().eventFilter(watched, event)

    def _place_shortcut_hint(self) -> None:
        size = self._hint.sizeHint()
        # In a narrow field, the hint would cover what the field is for.
        has_room = self.field.width() > 9 * size.width()
        self._hint.setVisible(has_room and not self.field.text())
        self._hint.resize(size)
        left = self.field.width() - size.width() - 10
        top = (self.field.height() - size.height()) // 2
        self._hint.move(left, top)

    def _hide_hint_and_schedule_search(self, text: str) -> None:
        self._hint.setVisible(not text)
        self._pause.start()

    def _search_immediately(self) -> None:
        self._pause.stop()
        self.searched.emit(self.field.text().strip())

    def _fill_filter_menu(
        self,
        pill: QPushButton,
        words_for_all: str,
        choices: Sequence[_FilterChoice],
        build_filter: Callable[[str], EntryFilter],
        chosen_value: str = "",
    ) -> None:
        """Fills the menu of a button. `build_filter` makes a filter of the value of a choice. The
        first line, without a limit, is added.
        """

        def apply_choice(choice: _FilterChoice) -> None:
            self._apply_filter(pill, choice.button_words, build_filter(choice.value))

        menu = QMenu(pill)
        group = QActionGroup(menu)
        all_choices = [_FilterChoice(words_for_all, words_for_all, "")]
        all_choices += choices
        for choice in all_choices:
            is_chosen = choice.value == chosen_value
            apply = partial(apply_choice, choice)
            group.addAction(add_menu_choice(menu, choice.menu_words, apply, chosen=is_chosen))
            if is_chosen:
                _set_button_words(pill, choice.button_words)
        _replace_button_menu(pill, menu)

    def _fill_time_menu(self) -> None:
        spans = {tr("Today"): 1, tr("Last 7 days"): 7, tr("Last 30 days"): 30}
        choices: list[_FilterChoice] = []
        for words, days in spans.items():
            choices.append(_FilterChoice(words, words, str(days)))
        any_time = tr("Any time")
        self._fill_filter_menu(self._time_button, any_time, choices, self._filter_since_days)

    def _fill_size_and_state_menu(self) -> None:
        """Fills the menu of further filters: one least size, and states that can be combined."""
        menu = QMenu(self._more_filters_button)
        group = QActionGroup(menu)
        kilobytes_by_words = {
            tr("Any size"): 0,
            tr("Over 10 KB"): 10,
            tr("Over 100 KB"): 100,
            tr("Over 1 MB"): 1000,
        }
        for words, kilobytes in kilobytes_by_words.items():
            apply_size = partial(self._apply_more_filters, least=kilobytes * _KB)
            is_any_size = kilobytes == 0
            group.addAction(add_menu_choice(menu, words, apply_size, chosen=is_any_size))
        menu.addSeparator()
        for name, words in read_shown_names()["filter of entries"].items():
            action = menu.addAction(tr(words))
            action.setCheckable(True)
            action.toggled.connect(partial(self._apply_state_filter, name))
        _set_button_words(self._more_filters_button, tr("Filters"))
        _replace_button_menu(self._more_filters_button, menu)

    def _apply_state_filter(self, name: str, is_on: bool) -> None:  # noqa: FBT001 - a slot
        self._apply_more_filters(**{name: is_on})

    def _apply_more_filters(self, **changes: bool | int) -> None:
        new_filter = replace(self.filter, **changes)  # type: ignore[arg-type]
        has_least_size = new_filter.least > 0
        limits = [has_least_size, new_filter.pinned, new_filter.unused, new_filter.gone]
        active_count = limits.count(True)
        words = tr("Filters")
        if active_count:
            words = tr("Filters ({n})", n=active_count)
        self._apply_filter(self._more_filters_button, words, new_filter)

    def _apply_filter(self, pill: QPushButton, words: str, chosen: EntryFilter) -> None:
        _set_button_words(pill, words)
        self.filter = chosen
        self.filter_chosen.emit(chosen)


def _set_button_words(pill: QPushButton, words: str) -> None:
    pill.setText(f"{words.replace('&', '&&')} ▾")
    pill.setAccessibleName(words)


def _replace_button_menu(pill: QPushButton, menu: QMenu) -> None:
    old_menu = pill.menu()
    pill.setMenu(menu)
    if old_menu is not None:
        old_menu.deleteLater()  # The button's menu belongs to it, so it would stay until the end.
