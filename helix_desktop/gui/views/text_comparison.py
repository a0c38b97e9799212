"""Shows two texts side by side, scrolled together, with the differences highlighted. They are found in slices."""

import time
from collections.abc import Iterator, Sequence

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QLabel, QPushButton, QSplitter, QWidget

from helix_desktop.engine.changes.line_comparison import DiffRow, diff_rows, pair_rows
from helix_desktop.gui.layouts import build_column, build_row
from helix_desktop.gui.shared.plain_widgets import TransientDialog, build_plain_label, build_push_button
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.views.text_line_view import TextLineView

SLICE = 0.005


class TextComparisonView(QWidget):
    """`compared` carries how many lines are only in the first and only in the second text; `moved`: at which of how many places."""

    compared = Signal(int, int)
    moved = Signal(int, int)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._titles = (QLabel(self), QLabel(self))
        self.left = TextLineView(theme, self)
        self.right = TextLineView(theme, self)
        self._pairs: list[tuple[DiffRow | None, DiffRow | None]] = []
        self._rows: list[DiffRow] = []
        self.difference_rows: list[int] = []  # The first row of each run of differing lines.
        self.at = -1
        self._finding: Iterator[DiffRow] | None = None
        self._slices = QTimer(self, interval=0)
        self._slices.timeout.connect(self._continue_comparison)
        split = QSplitter(Qt.Orientation.Horizontal, self)
        for label, view in zip(self._titles, (self.left, self.right), strict=True):
            label.setTextFormat(Qt.TextFormat.PlainText)
            set_widget_look(label, "heading")
            side = QWidget(split)
            build_column(label, (view, 1), owner=side, margins=0, spacing=theme.zoomed_pixels(6))
            split.addWidget(side)
        self.left.setAccessibleName(tr("Before"))
        self.right.setAccessibleName(tr("After"))
        build_row(split, owner=self, margins=0)
        self._scroll_together()

    def compare_texts(self, titles: tuple[str, str], texts: tuple[str, str]) -> None:
        """Begin to compare two texts; they show as soon as it is done."""
        for label, title in zip(self._titles, titles, strict=True):
            label.setText(title)
        self._rows = []
        self._finding = diff_rows(texts[0].split("\n"), texts[1].split("\n"))
        self._slices.start()

    def _continue_comparison(self) -> None:
        until = time.perf_counter() + SLICE
        for row in self._finding or ():
            self._rows.append(row)
            if time.perf_counter() > until:
                return
        self._slices.stop()
        self._finding = None
        self._pairs = pair_rows(self._rows)
        for view, side, tone in ((self.left, 0, "danger_soft"), (self.right, 1, "added_soft")):
            self._fill_comparison_side(view, [pair[side] for pair in self._pairs], tone)
        differs = [any(row is None or row.sign != " " for row in pair) for pair in self._pairs]
        self.difference_rows = [n for n, here in enumerate(differs) if here and not (n and differs[n - 1])]
        self.at = -1
        self.compared.emit(sum(row.sign == "-" for row in self._rows), sum(row.sign == "+" for row in self._rows))

    def _fill_comparison_side(self, view: TextLineView, rows: Sequence[DiffRow | None], tone: str) -> None:
        def line_background(number: int) -> str:
            row = rows[number]
            return "free" if row is None else ("" if row.sign == " " else tone)

        def line_number_label(number: int) -> str:
            row = rows[number]
            return str((row.left if tone == "danger_soft" else row.right) + 1) if row is not None else ""

        view.show_text_lines(
            [row.text if row is not None else "" for row in rows], tone=line_background, labels=line_number_label
        )

    def go_to_next_difference(self, by: int) -> None:
        if self.difference_rows:
            self.at = (self.at + by) % len(self.difference_rows)
            self.left.scroll_to_line(self.difference_rows[self.at])
            self.moved.emit(self.at + 1, len(self.difference_rows))

    def _scroll_together(self) -> None:
        for one, other in ((self.left, self.right), (self.right, self.left)):
            one.verticalScrollBar().valueChanged.connect(other.verticalScrollBar().setValue)
            one.horizontalScrollBar().valueChanged.connect(other.horizontalScrollBar().setValue)


class TextComparisonDialog(TransientDialog):
    def __init__(
        self, theme: Theme, titles: tuple[str, str], texts: tuple[str, str], parent: QWidget | None = None
    ) -> None:
        super().__init__(tr("Compare"), parent)
        self.resize(theme.zoomed_pixels(1100), theme.zoomed_pixels(640))
        self.view = TextComparisonView(theme, self)
        self._said = build_plain_label(tr("Comparing…"), "small", self, wraps=False)
        self._place = QLabel(self)
        set_widget_look(self._place, "small")
        line = build_row((self._said, 1), self._place)
        self._steps = [
            self._build_step_button(words, by) for words, by in ((tr("Previous change"), -1), (tr("Next change"), 1))
        ]
        for button in self._steps:
            line.addWidget(button)
        build_column((self.view, 1), line, owner=self)
        self.view.compared.connect(self._show_difference_count)
        self.view.moved.connect(lambda at, of: self._place.setText(tr("{n} of {total}{more}", n=at, total=of, more="")))
        self.view.compare_texts(titles, texts)

    def _build_step_button(self, words: str, by: int) -> QPushButton:
        button = build_push_button(words, self, lambda: self.view.go_to_next_difference(by))
        button.setShortcut(QKeySequence("F8" if by > 0 else "Shift+F8"))
        button.setEnabled(False)
        return button

    def _show_difference_count(self, gone: int, come: int) -> None:
        if not gone and not come:
            self._said.setText(tr("No differences."))
            return
        for button in self._steps:
            button.setEnabled(True)
        self.view.go_to_next_difference(1)
        removed = format_count(gone, "{n} line only in the first", "{n} lines only in the first")
        self._said.setText(
            removed + " · " + format_count(come, "{n} line only in the second", "{n} lines only in the second")
        )
