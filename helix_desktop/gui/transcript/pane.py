"""The chat with what floats over it: the bar that finds, and the button that brings the end back."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLineEdit, QToolButton, QVBoxLayout, QWidget

from helix_desktop.engine.events import Event
from helix_desktop.engine.view import State
from helix_desktop.gui.background import Doing
from helix_desktop.gui.theme import Theme, set_look
from helix_desktop.gui.transcript.content import Content, Source
from helix_desktop.gui.transcript.finding import Finding
from helix_desktop.gui.transcript.gestures import TranscriptView
from helix_desktop.gui.words import numeral, tr

ScrollPlace = tuple[int, int, bool]


class FindBar(QWidget):
    """A field, how many were found, on and back. `changed` carries the text."""

    changed = Signal(str)
    stepped = Signal(int)
    closed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.field = QLineEdit(self)
        self.field.setPlaceholderText(tr("Find in this conversation"))
        self.field.setAccessibleName(tr("Find in this conversation"))
        self.field.setClearButtonEnabled(True)
        self.counts = QLabel(self)
        set_look(self.counts, "muted")
        row = QHBoxLayout(self)
        row.setContentsMargins(20, 8, 20, 8)
        row.addWidget(self.field, 1)
        row.addWidget(self.counts)
        for sign, words, by in (("↑", tr("Previous match"), -1), ("↓", tr("Next match"), 1)):
            row.addWidget(self._button(sign, words, lambda by=by: self.stepped.emit(by)))
        row.addWidget(self._button("✕", tr("Close"), self.closed.emit))
        self.field.textChanged.connect(self.changed)
        self.field.installEventFilter(self)

    def say(self, number: int, total: int, *, done: bool) -> None:
        """Which of how many; an ellipsis while it still looks."""
        more = "" if done else "…"
        if not self.field.text():
            self.counts.setText("")
        elif total:
            self.counts.setText(tr("{n} of {total}{more}", n=numeral(number + 1), total=numeral(total), more=more))
        else:
            self.counts.setText(tr("Nothing found") if done else tr("Loading…"))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                back = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
                self.stepped.emit(-1 if back else 1)
                return True
            if event.key() == Qt.Key.Key_Escape:
                self.closed.emit()
                return True
        return super().eventFilter(watched, event)

    def _button(self, sign: str, words: str, act: object) -> QToolButton:
        button = QToolButton(self)
        button.setText(sign)
        button.setToolTip(words)
        button.setAccessibleName(words)
        button.setAutoRaise(True)
        button.clicked.connect(act)
        return button


class TranscriptPane(QWidget):
    """`wanted` carries a value of `wants`; what it asks for is the window's to do."""

    wanted = Signal(object)

    def __init__(self, theme: Theme, doing: Doing, source: Source, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.content = Content(source, doing, self)
        self.view = TranscriptView(theme, self.content, self)
        self.bar = FindBar(self)
        self.bar.hide()
        self._theme = theme
        self._end = self.view.over = QToolButton(self.view)
        self._end.setText("↓")
        self._end.setToolTip(tr("Jump to the end"))
        self._end.setAccessibleName(tr("Jump to the end"))
        set_look(self._end, "pill")
        self._end.hide()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.bar)
        column.addWidget(self.view, 1)
        self._slices = QTimer(self, interval=0)
        self._slices.timeout.connect(self._look_on)
        self._connect()

    def _connect(self) -> None:
        self._end.clicked.connect(self.view.jump_to_end)
        self.view.following_changed.connect(lambda _following: self._show_button())
        self.view.verticalScrollBar().rangeChanged.connect(lambda _least, _most: self._show_button())
        self.view.wanted.connect(self.wanted)
        self.view.find_wanted.connect(self.find)
        self.bar.changed.connect(self._look_for)
        self.bar.stepped.connect(self._step)
        self.bar.closed.connect(self._close_find)

    # --- what the window calls

    def open(self, history: State, place: ScrollPlace | None = None) -> None:
        """Show a conversation, at its end or where the reader was."""
        self._close_find(take_focus=False)
        self.content.forget()
        self.view.open(history)
        if place is not None:
            self.view.go_to(place)

    async def prepare(self, history: State) -> None:
        """Before a long history is opened: read it in a thread."""
        await self.view.prepare(history)

    def hear(self, events: Sequence[Event]) -> None:
        self.view.hear(events)

    def place(self) -> ScrollPlace:
        """Where the reader is, to be given to `open` again."""
        return self.view.place()

    def show_seq(self, seq: int) -> None:
        """Bring a fact into sight."""
        self.view.show_index(self.view.items.at_seq(seq))

    def show_fold(self, fold: str) -> None:
        self.view.show_index(self.view.items.of_fold(fold))

    def find(self) -> None:  # type: ignore[override]  # of QWidget: windows by their id
        """Open the bar that finds, with what is selected."""
        chosen = self.view.selected_text()
        if chosen and "\n" not in chosen and len(chosen) < 200:
            self.bar.field.setText(chosen)
        self.bar.show()
        self.bar.field.setFocus()
        self.bar.field.selectAll()

    # --- finding

    def _look_for(self, text: str) -> None:
        self.view.finding = Finding(self.view.items, text)
        self.view.current = -1
        self._slices.start()

    def _look_on(self) -> None:
        finding = self.view.finding
        if finding is None:
            self._slices.stop()
            return
        done = finding.advance()
        if self.view.current < 0 and finding.places:
            index, _ = self.view.item_at(self.view.viewport().rect().topLeft())
            if done or finding.places[-1] >= index:
                self._go_to(finding.near(index))
        if done:
            self._slices.stop()
        self.bar.say(max(self.view.current, 0), len(finding.places), done=done)
        self.view.viewport().update()

    def _step(self, by: int) -> None:
        finding = self.view.finding
        if finding is not None and finding.places:
            self._go_to((self.view.current + by) % len(finding.places))
            self.bar.say(self.view.current, len(finding.places), done=finding.done)

    def _go_to(self, number: int) -> None:
        finding = self.view.finding
        if finding is None or number < 0:
            return
        self.view.current = number
        index = finding.places[number]
        found = self.view.column.whole(index).found(finding.needle)
        within = min(finding.within(number), len(found) - 1)
        self.view.show_index(index, found[within][0] if within >= 0 else 0)

    def _close_find(self, *_: object, take_focus: bool = True) -> None:
        self.view.finding, self.view.current = None, -1
        self._slices.stop()
        self.bar.hide()
        if take_focus:
            self.view.setFocus()
        self.view.viewport().update()

    # --- the end

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._put_button()

    def _show_button(self) -> None:
        """Where all of it can be seen there is no end to jump to."""
        self._end.setVisible(not self.view.following and self.view.verticalScrollBar().maximum() > 0)
        self._put_button()

    def _put_button(self) -> None:
        size = self._theme.px(34)
        area = self.view.viewport().geometry()
        self._end.setGeometry(area.center().x() - size // 2, area.bottom() - size - 12, size, size)
        self._end.raise_()
