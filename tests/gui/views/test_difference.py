"""The view of a difference: long lines wrap, and no row is lower than what is laid out in it."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.changes.hunks import hunks
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.views.difference import DifferenceView


@pytest.mark.parametrize("two", [False, True])
def test_long_lines_wrap_and_nothing_is_cut(theme: Theme, *, two: bool) -> None:
    lines = [b"short", b"x" * 500, b"\ta tab " * 40, "漢字".encode() * 90, "naïve".encode() * 60]
    view = DifferenceView(theme)
    view.show_columns(two=two)
    for width in (420, 700, 1_100):
        view.resize(width, 300)
        view.show_hunks(hunks(b"", b"\n".join(lines) + b"\n"))
        view.show()
        QApplication.processEvents()
        for number, row in enumerate(view.rows):
            if row.right is None:
                continue
            laid = view._layout(number, row.right, right=True)
            high = view._tops[number + 1] - view._tops[number]
            assert laid.lineCount() * view._ink.code_line <= high + 0.01
            right = max(laid.lineAt(at).naturalTextWidth() for at in range(laid.lineCount()))
            assert view._code_left(True) + right <= view.viewport().width()
