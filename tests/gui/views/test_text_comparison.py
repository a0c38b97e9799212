from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.views.text_comparison import TextComparisonDialog

LINES = [f"line {number}" for number in range(275)]
OTHER = [("changed" if number in (120, 121, 260) else line) for number, line in enumerate(LINES)]


def test_it_opens_at_the_first_place_that_differs_and_steps_to_the_next(theme: Theme) -> None:
    dialog = TextComparisonDialog(theme, ("a", "b"), ("\n".join(LINES), "\n".join(OTHER)))
    dialog.show()
    while dialog.view._finding is not None:
        dialog.view._continue_comparison()
    view = dialog.view
    assert len(view.difference_rows) == 2
    assert (view.at, dialog._place.text()) == (0, "1 of 2")
    first = view.left.verticalScrollBar().value()
    assert first > 0
    QTest.mouseClick(dialog._steps[1], Qt.MouseButton.LeftButton)
    assert (view.at, dialog._place.text()) == (1, "2 of 2")
    assert view.left.verticalScrollBar().value() > first
    QTest.mouseClick(dialog._steps[1], Qt.MouseButton.LeftButton)
    assert view.at == 0
    dialog.close()
