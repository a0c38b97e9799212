"""Two texts side by side, in step, with what differs on its ground. Found in slices while the window lives."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QPushButton, QSplitter, QVBoxLayout, QWidget

from helix_desktop.engine.changes.lines import Row, difference, side_by_side
from helix_desktop.gui.shared.plain import push_button
from helix_desktop.gui.theme import Theme, set_look
from helix_desktop.gui.views.line_view import LineView
from helix_desktop.gui.words import count, tr

SLICE = 0.005


class CompareView(QWidget):
    """`compared` carries how many lines are only in the first and only in the second text; `moved`: at which of how many places."""

    compared = Signal(int, int)
    moved = Signal(int, int)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._titles = (QLabel(self), QLabel(self))
        self.left = LineView(theme, self)
        self.right = LineView(theme, self)
        self._pairs: list[tuple[Row | None, Row | None]] = []
        self._rows: list[Row] = []
        self.places: list[int] = []  # where a run of lines that differ begins
        self.at = -1
        self._finding: Iterator[Row] | None = None
        self._slices = QTimer(self, interval=0)
        self._slices.timeout.connect(self._find_on)
        split = QSplitter(Qt.Orientation.Horizontal, self)
        for label, view in zip(self._titles, (self.left, self.right), strict=True):
            label.setTextFormat(Qt.TextFormat.PlainText)
            set_look(label, "heading")
            side = QWidget(split)
            column = QVBoxLayout(side)
            column.setContentsMargins(0, 0, 0, 0)
            column.setSpacing(theme.px(6))
            column.addWidget(label)
            column.addWidget(view, 1)
            split.addWidget(side)
        self.left.setAccessibleName(tr("Before"))
        self.right.setAccessibleName(tr("After"))
        whole = QHBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(split)
        self._keep_in_step()

    def show_texts(self, titles: tuple[str, str], texts: tuple[str, str]) -> None:
        """Begin to compare two texts; they show as soon as it is done."""
        for label, title in zip(self._titles, titles, strict=True):
            label.setText(title)
        self._rows = []
        self._finding = difference(texts[0].split("\n"), texts[1].split("\n"))
        self._slices.start()

    def _find_on(self) -> None:
        until = time.perf_counter() + SLICE
        for row in self._finding or ():
            self._rows.append(row)
            if time.perf_counter() > until:
                return
        self._slices.stop()
        self._finding = None
        self._pairs = side_by_side(self._rows)
        for view, side, tone in ((self.left, 0, "danger_soft"), (self.right, 1, "added_soft")):
            self._fill(view, [pair[side] for pair in self._pairs], tone)
        differs = [any(row is None or row.sign != " " for row in pair) for pair in self._pairs]
        self.places = [n for n, here in enumerate(differs) if here and not (n and differs[n - 1])]
        self.at = -1
        self.compared.emit(sum(row.sign == "-" for row in self._rows), sum(row.sign == "+" for row in self._rows))

    def _fill(self, view: LineView, rows: Sequence[Row | None], tone: str) -> None:
        def ground(number: int) -> str:
            row = rows[number]
            return "free" if row is None else ("" if row.sign == " " else tone)

        def label(number: int) -> str:
            row = rows[number]
            return str((row.left if tone == "danger_soft" else row.right) + 1) if row is not None else ""

        view.show_lines([row.text if row is not None else "" for row in rows], tone=ground, labels=label)

    def step(self, by: int) -> None:
        """To the next place that differs, or the one before; around at the end."""
        if self.places:
            self.at = (self.at + by) % len(self.places)
            self.left.show_line(self.places[self.at])
            self.moved.emit(self.at + 1, len(self.places))

    def _keep_in_step(self) -> None:
        for one, other in ((self.left, self.right), (self.right, self.left)):
            one.verticalScrollBar().valueChanged.connect(other.verticalScrollBar().setValue)
            one.horizontalScrollBar().valueChanged.connect(other.horizontalScrollBar().setValue)


class CompareDialog(QDialog):
    """The same in a window of its own."""

    def __init__(
        self, theme: Theme, titles: tuple[str, str], texts: tuple[str, str], parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Compare"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(theme.px(1100), theme.px(640))
        self.view = CompareView(theme, self)
        self._said = QLabel(tr("Comparing…"), self)
        set_look(self._said, "small")
        column = QVBoxLayout(self)
        self._place = QLabel(self)
        set_look(self._place, "small")
        line = QHBoxLayout()
        line.addWidget(self._said, 1)
        line.addWidget(self._place)
        self._steps = [self._button(words, by) for words, by in ((tr("Previous change"), -1), (tr("Next change"), 1))]
        for button in self._steps:
            line.addWidget(button)
        column.addWidget(self.view, 1)
        column.addLayout(line)
        self.view.compared.connect(self._say)
        self.view.moved.connect(lambda at, of: self._place.setText(tr("{n} of {total}{more}", n=at, total=of, more="")))
        self.view.show_texts(titles, texts)

    def _button(self, words: str, by: int) -> QPushButton:
        button = push_button(words, self, lambda: self.view.step(by))
        button.setShortcut(QKeySequence("F8" if by > 0 else "Shift+F8"))
        button.setEnabled(False)
        return button

    def _say(self, gone: int, come: int) -> None:
        if not gone and not come:
            self._said.setText(tr("No differences."))
            return
        for button in self._steps:
            button.setEnabled(True)
        self.view.step(1)
        removed = count(gone, "{n} line only in the first", "{n} lines only in the first")
        self._said.setText(removed + " · " + count(come, "{n} line only in the second", "{n} lines only in the second"))
