"""Shows side by side what differs between two texts, with a few lines around it."""

import asyncio
from collections.abc import Sequence

from PySide6.QtWidgets import QWidget

from helix_desktop.engine.changes.diff_hunks import Hunk, find_hunks
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


class TextComparisonDialog(TransientDialog):
    def __init__(
        self,
        runner: BackgroundRunner,
        theme: Theme,
        titles: Sequence[str],
        texts: Sequence[str],
        parent: QWidget,
    ) -> None:
        super().__init__(tr("Compare"), parent, 1100, 640)
        self.view = DifferenceView(theme, self)
        self.view.show_columns(two=True)
        self.titles = [build_plain_label(title, "heading", self) for title in titles]
        self._result_label = build_plain_label(tr("Comparing…"), "small", self, wraps=False)
        heads = build_row(*((label, 1) for label in self.titles))
        build_column(heads, (self.view, 1), self._result_label, owner=self)
        runner.run_in_background(
            asyncio.to_thread(_find_differences, *texts),
            then=lambda differences: self._show_differences(*differences),
            owner=self,
        )

    def _show_differences(self, hunks: Sequence[Hunk], sheet: DifferenceSheet) -> None:
        self.view.show_hunks(hunks, made=sheet, actions=False)
        signs: list[str] = []
        for hunk in hunks:
            signs.extend(sign for sign, _line in hunk.rows)
        removed = format_count(
            signs.count("-"), "{n} line is only on the left", "{n} lines are only on the left"
        )
        added = format_count(
            signs.count("+"), "{n} line is only on the right", "{n} lines are only on the right"
        )
        if hunks:
            self._result_label.setText(f"{removed} · {added}")
        else:
            self._result_label.setText(tr("No differences."))


def _find_differences(old_text: str, new_text: str) -> tuple[Sequence[Hunk], DifferenceSheet]:
    # If one text ends without a line break, that would count as a difference of its last line.
    line_break = "\n"
    if old_text.endswith("\n") and new_text.endswith("\n"):
        line_break = ""
    old_content = f"{old_text}{line_break}".encode("utf-8", "surrogatepass")
    new_content = f"{new_text}{line_break}".encode("utf-8", "surrogatepass")
    hunks = find_hunks(old_content, new_content)
    return hunks, build_difference_sheet(build_hunk_rows(hunks, two_columns=True), two_columns=True)
