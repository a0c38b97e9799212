"""The answer of a task is as high as it needs to be, up to a limit."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from helix_desktop.gui.fleet.task_answer_view import MOST_HEIGHT, TaskAnswerView
from helix_desktop.gui.theme import Theme


def view_of(theme: Theme) -> tuple[TaskAnswerView, QWidget]:
    parent = QWidget()
    parent.resize(400, 600)
    view = TaskAnswerView(theme, parent)
    view.resize(400, 100)
    parent.show()
    return view, parent


def test_a_short_answer_is_low_and_a_long_one_scrolls(theme: Theme) -> None:
    view, _parent = view_of(theme)
    assert not view.isVisible()
    view.show_answer("One line.")
    one_line = view.height()
    assert view.isVisible()
    assert 0 < one_line < MOST_HEIGHT / 2
    assert "One line." in view.all_text()
    view.show_answer("One line.\n\nAnother line.")
    assert one_line < view.height() < MOST_HEIGHT
    view.show_answer("word " * 3_000)
    assert view.height() == MOST_HEIGHT
    view.show_answer("")
    assert not view.isVisible()


def test_an_answer_that_is_being_read_stays_in_its_place(theme: Theme) -> None:
    view, _parent = view_of(theme)
    view.show_answer("word " * 3_000)
    view.verticalScrollBar().setValue(50)
    view.show_answer("word " * 3_000)
    assert view.verticalScrollBar().value() == 50


def test_in_a_narrow_window_it_is_higher(theme: Theme) -> None:
    view, _parent = view_of(theme)
    view.show_answer("word " * 40)
    wide = view.height()
    view.resize(150, view.height())
    assert view.height() > wide
    assert view.accessibleName() == "Answer"
