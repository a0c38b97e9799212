"""The bar above the table: search or paste a hash, and choose what is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtGui import QActionGroup, QKeyEvent, Qt
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLabel, QLineEdit, QMenu, QPushButton, QWidget

from helix_desktop.engine.catalogue import Filter
from helix_desktop.gui.theme import Theme, set_look
from helix_desktop.gui.words import numeral, tr

_DAY = 86_400
_KB = 1000
PAUSE = 250
TWO_LINES = 700  # pixels: in less, what is searched for stands above what is chosen


class FilterBar(QWidget):
    """`chosen` carries a Filter; `searched` the text, after a pause in typing; `down`: on into the table."""

    chosen = Signal(object)
    searched = Signal(str)
    down = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.filter = Filter()
        self._tools: Sequence[tuple[str, int]] = ()
        self.field = QLineEdit(self)
        self.field.setPlaceholderText(tr("Search inside cached outputs, or paste a hash"))
        self.field.setAccessibleName(tr("Search inside cached outputs, or paste a hash"))
        self.field.setClearButtonEnabled(True)
        self.field.installEventFilter(self)
        self._hint = QLabel(self.field)
        set_look(self._hint, "kbd")
        self._tool, self._conversation, self._time, self._more = (self._pill() for _ in range(4))
        self._theme = theme
        self._rows = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        theme.fit(self, self._rows.setContentsMargins, 20, 12, 20, 12)
        theme.fit(self, self._rows.setSpacing, 10)
        self._rows.addWidget(self.field, 1)
        row = QHBoxLayout()
        theme.fit(self, row.setSpacing, 10)
        self._rows.addLayout(row)
        for pill in (self._tool, self._conversation, self._time, self._more):
            row.addWidget(pill)
        self._pause = QTimer(self, interval=PAUSE, singleShot=True)
        self._pause.timeout.connect(lambda: self.searched.emit(self.field.text().strip()))
        self.field.textChanged.connect(self._typed)
        self.field.returnPressed.connect(self._at_once)
        self.reset()
        theme.fit(self, self.field.setMinimumWidth, 120)
        theme.fit(self, self.setMinimumWidth, 300)

    def show_shortcut(self, shortcut: str) -> None:
        """What brings the keyboard here."""
        self._hint.setText(shortcut)
        self._put_hint()

    def reset(self) -> None:
        """Everything again, as for another workspace."""
        self.filter = Filter()
        self.field.clear()
        self.set_tools(())
        self.set_conversations(())
        self._fill_times()
        self._fill_more()

    def set_tools(self, tools: Sequence[tuple[str, int]]) -> None:
        """The tools there are, with the number of their entries. The menu is made anew only when a tool is new."""
        if tools and [name for name, _ in tools] == [name for name, _ in self._tools]:
            return
        self._tools = tools
        choices = [(f"{name or tr('(none)')}  ({numeral(number)})", name, name) for name, number in tools if name]
        self._fill(self._tool, tr("All tools"), choices, lambda name: replace(self.filter, tool=name), self.filter.tool)

    def set_conversations(self, conversations: Sequence[tuple[str, str]]) -> None:
        """Ids and titles."""
        choices = [(title[:60] or name, title[:24] or name, name) for name, title in conversations[:60]]
        self._fill(
            self._conversation,
            tr("Any conversation"),
            choices,
            lambda name: replace(self.filter, conversation=name),
            self.filter.conversation,
        )

    def resizeEvent(self, event: object) -> None:
        super().resizeEvent(event)  # type: ignore[arg-type]
        beside = self.width() >= self._theme.px(TWO_LINES)
        self._rows.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
        self._put_hint()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            if event.key() == Qt.Key.Key_Down:
                self.down.emit()
                return True
            if event.key() == Qt.Key.Key_Escape and self.field.text():
                self.field.clear()
                return True
        if event.type() == QEvent.Type.Resize:
            self._put_hint()
        return super().eventFilter(watched, event)

    def _put_hint(self) -> None:
        size = self._hint.sizeHint()
        self._hint.setVisible(not self.field.text() and self.field.width() > 9 * size.width())
        self._hint.setGeometry(
            self.field.width() - size.width() - 10,
            (self.field.height() - size.height()) // 2,
            size.width(),
            size.height(),
        )

    def _typed(self, text: str) -> None:
        self._hint.setVisible(not text)
        self._pause.start()

    def _at_once(self) -> None:
        self._pause.stop()
        self.searched.emit(self.field.text().strip())

    def _pill(self) -> QPushButton:
        pill = QPushButton(self)
        set_look(pill, "pill")
        return pill

    def _fill(
        self,
        pill: QPushButton,
        everything: str,
        choices: Sequence[tuple[str, str, str]],
        make: Callable[[str], Filter],
        chosen: str = "",
    ) -> None:
        menu = QMenu(pill)
        group = QActionGroup(menu)
        for words, short, value in [(everything, everything, ""), *choices]:
            action = menu.addAction(words.replace("&", "&&"))
            action.setCheckable(True)
            action.setChecked(value == chosen)
            if value == chosen:
                _name(pill, short)
            group.addAction(action)
            action.triggered.connect(lambda _=False, value=value, short=short: self._choose(pill, short, make(value)))
        _give(pill, menu)

    def _fill_times(self) -> None:
        spans = [(tr("Today"), 1), (tr("Last 7 days"), 7), (tr("Last 30 days"), 30)]
        choices = [(words, words, str(days)) for words, days in spans]

        def since(days: str) -> Filter:
            return replace(self.filter, since=time.time() - int(days) * _DAY if days else 0.0)

        self._fill(self._time, tr("Any time"), choices, since)

    def _fill_more(self) -> None:
        menu = QMenu(self._more)
        group = QActionGroup(menu)
        sizes = [(tr("Any size"), 0), (tr("Over 10 KB"), 10), (tr("Over 100 KB"), 100), (tr("Over 1 MB"), 1000)]
        for words, kilobytes in sizes:
            action = menu.addAction(words)
            action.setCheckable(True)
            action.setChecked(not kilobytes)
            group.addAction(action)
            least = kilobytes * _KB
            action.triggered.connect(lambda _=False, least=least: self._refine(least=least))
        menu.addSeparator()
        for words, name in (
            (tr("Pinned"), "pinned"),
            (tr("Not used by any message"), "unused"),
            (tr("Removed to free up space"), "gone"),
        ):
            action = menu.addAction(words)
            action.setCheckable(True)
            action.toggled.connect(lambda on, name=name: self._refine(**{name: on}))
        _name(self._more, tr("Filters"))
        _give(self._more, menu)

    def _refine(self, **changes: bool | int) -> None:
        chosen = replace(self.filter, **changes)  # type: ignore[arg-type]
        active = sum((bool(chosen.least), chosen.pinned, chosen.unused, chosen.gone))
        self._choose(self._more, tr("Filters ({n})", n=active) if active else tr("Filters"), chosen)

    def _choose(self, pill: QPushButton, words: str, chosen: Filter) -> None:
        _name(pill, words)
        self.filter = chosen
        self.chosen.emit(chosen)


def _name(pill: QPushButton, words: str) -> None:
    pill.setText(f"{words.replace('&', '&&')} ▾")
    pill.setAccessibleName(words)


def _give(pill: QPushButton, menu: QMenu) -> None:
    """Another menu; the one before is not kept."""
    before = pill.menu()
    pill.setMenu(menu)
    if before is not None:
        before.deleteLater()
