"""Shows side by side what differs between two texts, with a few lines around it."""

import asyncio
from collections.abc import Sequence

from PySide6.QtWidgets import QWidget

from helix_desktop.engine.changes.diff_hunks import Hunk, find_hunks
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.difference_rows import (
    DifferenceSheet,
    build_difference_sheet,
    build_hunk_rows,
)
from helix_desktop.gui.common.widgets import TransientDialog, build_plain_label
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.views.difference_view import DifferenceView


@dataclass(frozen=True, eq=False, slots=True)
class ComparedTexts:
    """What differs, and the rows that show it."""

    hunks: Sequence[Hunk]
    sheet: DifferenceSheet


class TextComparisonDialog(TransientDialog):
    def __init__(
        self,
        runner: BackgroundRunner,
        theme: Theme,
        titles: Sequence[str],
        texts: Sequence[str],
        parent: QWidget,
    ) -> None:
        """Opens at once and compares the two texts in a thread. `titles` and `texts`:
        left, then right.
        """
        super().__init__(tr("Compare"), parent, 1100, 640)
        self.view = DifferenceView(theme, self)
        self.view.show_columns(two=True)
        self.titles = [build_plain_label(title, "heading", self) for title in titles]
        self._result_label = build_plain_label(tr("Comparing…"), "small", self, wraps=False)
        titles_row = build_row()
        for label in self.titles:
            titles_row.addWidget(label, 1)
        build_column(titles_row, (self.view, 1), self._result_label, owner=self)
        old_text, new_text = texts
        runner.run_in_background(
            asyncio.to_thread(_compare_texts, old_text, new_text),
            then=self._show_comparison,
            owner=self,
        )

    def _show_comparison(self, compared: ComparedTexts) -> None:
        """Shows the differences, and below them how many lines stand on one side only."""
        self.view.show_hunks(compared.hunks, made=compared.sheet, actions=False)
        if not compared.hunks:
            self._result_label.setText(tr("No differences."))
            return
        removed_count = 0
        added_count = 0
        for hunk in compared.hunks:
            for sign, _line in hunk.rows:
                if sign == "-":
                    removed_count += 1
                elif sign == "+":
                    added_count += 1
        removed = format_count(
            removed_count, "{n} line is only on the left", "{n} lines are only on the left"
        )
        added = format_count(
            added_count, "{n} line is only on the right", "{n} lines are only on the right"
        )
        self._result_label.setText(f"{removed} · {added}")


def _compare_texts(old_text: str, new_text: str) -> ComparedTexts:
    # If one text ends without a line break, that would count as a difference of its last line.
    line_break = "\n"
    if old_text.endswith("\n") and new_text.endswith("\n"):
        line_break = ""
    old_content = f"{old_text}{line_break}".encode("utf-8", "surrogatepass")
    new_content = f"{new_text}{line_break}".encode("utf-8", "surrogatepass")
    hunks = find_hunks(old_content, new_content)
    rows = build_hunk_rows(hunks, two_columns=True)
    return ComparedTexts(hunks, build_difference_sheet(rows, two_columns=True))
