from __future__ import annotations

from PySide6.QtWidgets import QApplication, QWidget

from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.views.text_comparison import TextComparisonDialog

LINES = [f"line {number}" for number in range(275)]
OTHER = [("changed" if number in (120, 121, 260) else line) for number, line in enumerate(LINES)]


def test_only_what_differs_is_shown_side_by_side(theme: Theme, doing: BackgroundRunner) -> None:
    parent = QWidget()
    dialog = TextComparisonDialog(
        doing, theme, ("a", "b"), ("\n".join(LINES), "\n".join(OTHER)), parent
    )
    dialog.show()
    QApplication.processEvents()
    shown = [line.text for line in dialog.view.shown_lines]
    assert dialog.view.has_two_columns
    assert {"line 120", "line 121", "line 260", "changed", "line 117", "line 263"} <= set(shown)
    assert "line 100" not in shown
    assert (
        dialog._result_label.text()
        == "3 lines are only on the left · 3 lines are only on the right"
    )


def test_the_end_of_the_last_line_is_no_line(theme: Theme, doing: BackgroundRunner) -> None:
    parent = QWidget()
    dialog = TextComparisonDialog(doing, theme, ("a", "b"), ("one\ntwo\n", "one\nTWO\n"), parent)
    QApplication.processEvents()
    assert dialog._result_label.text() == "1 line is only on the left · 1 line is only on the right"
    assert [line.text for line in dialog.view.shown_lines if not line.text.strip()] == []
