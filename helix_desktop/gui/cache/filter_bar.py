"""The bar above the table: search or paste a hash, and choose what is shown."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtGui import QActionGroup, QKeyEvent, Qt
from PySide6.QtWidgets import QBoxLayout, QMenu, QPushButton, QWidget

from helix_desktop.engine.cache_entry_rows import EntryFilter
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
TYPING_PAUSE_MS = 250
TWO_LINES_BELOW_PIXELS = 700  # If the bar is narrower, the search field moves above the filters.


class EntryFilterBar(QWidget):
    """`filter_chosen` carries a Filter, `searched` the text after a pause.
    `table_wanted` moves the focus.
    """

    filter_chosen = Signal(object)
    searched = Signal(str)
    table_wanted = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.filter = EntryFilter()
        self._tools: Sequence[tuple[str, int]] = ()
        words = tr("Search inside stored outputs, or paste a hash")
        self.field = build_line_edit(words, words, self, clearButtonEnabled=True)
        self.field.installEventFilter(self)
        EscapeCloser(self.field, lambda: bool(self.field.text()), self.field.clear)
        self._hint = build_plain_label("", "kbd", self.field, wraps=False)
        pills = [build_push_button("", self, look="pill") for _ in range(4)]
        (
            self._tool_button,
            self._conversation_button,
            self._time_button,
            self._more_filters_button,
        ) = pills
        self._theme = theme
        self._rows = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        theme.keep_lengths_scaled(self, self._rows.setContentsMargins, 20, 12, 20, 12)
        theme.keep_lengths_scaled(self, self._rows.setSpacing, 10)
        self._rows.addWidget(self.field, 1)
        row = build_row(*((pill, 1) for pill in pills), wraps=True)
        theme.keep_lengths_scaled(self, row.setSpacing, 10)
        self._rows.addLayout(row)
        self._pause = QTimer(self, interval=TYPING_PAUSE_MS, singleShot=True)
        self._pause.timeout.connect(lambda: self.searched.emit(self.field.text().strip()))
        self.field.textChanged.connect(self._hide_hint_and_schedule_search)
        self.field.returnPressed.connect(self._search_immediately)
        self.reset_filters()
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
        if tools and [name for name, _ in tools] == [name for name, _ in self._tools]:
            return
        self._tools = tools
        choices: list[tuple[str, str, str]] = []
        for tool, number in tools:
            if tool:
                name = name_of_writer(tool)
                choices.append((f"{name}  ({format_number(number)})", name, tool))
        self._fill_filter_menu(
            self._tool_button,
            tr("All tools"),
            choices,
            lambda name: replace(self.filter, tool=name),
            self.filter.tool,
        )

    def set_conversations(self, conversations: Sequence[tuple[str, str]]) -> None:
        choices = [
            (title[:60] or name, title[:24] or name, name) for name, title in conversations[:60]
        ]
        self._fill_filter_menu(
            self._conversation_button,
            tr("Any conversation"),
            choices,
            lambda name: replace(self.filter, conversation=name),
            self.filter.conversation,
        )

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
        self._hint.setVisible(not self.field.text() and self.field.width() > 9 * size.width())
        self._hint.resize(size)
        self._hint.move(
            self.field.width() - size.width() - 10, (self.field.height() - size.height()) // 2
        )

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
        choices: Sequence[tuple[str, str, str]],
        build_filter: Callable[[str], EntryFilter],
        chosen: str = "",
    ) -> None:
        """Fills the menu of a button. `choices`: the words in the menu, those on the button, and
        what `build_filter` makes a filter of. The first line, without a limit, is added.
        """

        def apply_choice(button_words: str, choice: str) -> None:
            self._apply_filter(pill, button_words, build_filter(choice))

        menu = QMenu(pill)
        group = QActionGroup(menu)
        lines = [(words_for_all, words_for_all, "")]
        lines += choices
        for menu_words, button_words, choice in lines:
            is_chosen = choice == chosen
            act = partial(apply_choice, button_words, choice)
            group.addAction(add_menu_choice(menu, menu_words, act, chosen=is_chosen))
            if is_chosen:
                _set_button_words(pill, button_words)
        _replace_button_menu(pill, menu)

    def _fill_time_menu(self) -> None:
        spans = [(tr("Today"), 1), (tr("Last 7 days"), 7), (tr("Last 30 days"), 30)]
        choices = [(words, words, str(days)) for words, days in spans]

        def filter_since_days(days: str) -> EntryFilter:
            if not days:
                return replace(self.filter, since=0.0)
            return replace(self.filter, since=time.time() - int(days) * _DAY)

        self._fill_filter_menu(self._time_button, tr("Any time"), choices, filter_since_days)

    def _fill_size_and_state_menu(self) -> None:
        menu = QMenu(self._more_filters_button)
        group = QActionGroup(menu)
        sizes = [
            (tr("Any size"), 0),
            (tr("Over 10 KB"), 10),
            (tr("Over 100 KB"), 100),
            (tr("Over 1 MB"), 1000),
        ]
        for words, kilobytes in sizes:
            apply = partial(self._apply_more_filters, least=kilobytes * _KB)
            group.addAction(add_menu_choice(menu, words, apply, chosen=not kilobytes))
        menu.addSeparator()
        for name, words in read_shown_names()["filter of entries"].items():
            action = menu.addAction(tr(words))
            action.setCheckable(True)
            action.toggled.connect(lambda on, name=name: self._apply_more_filters(**{name: on}))
        _set_button_words(self._more_filters_button, tr("Filters"))
        _replace_button_menu(self._more_filters_button, menu)

    def _apply_more_filters(self, **changes: bool | int) -> None:
        chosen = replace(self.filter, **changes)  # type: ignore[arg-type]
        has_least_size = bool(chosen.least)
        active_count = sum((has_least_size, chosen.pinned, chosen.unused, chosen.gone))
        if active_count:
            words = tr("Filters ({n})", n=active_count)
        else:
            words = tr("Filters")
        self._apply_filter(self._more_filters_button, words, chosen)

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
