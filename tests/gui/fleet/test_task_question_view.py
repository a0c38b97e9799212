"""What a task asks for is shown word for word, and whether it was read to its end is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from PySide6.QtTest import QSignalSpy
from PySide6.QtWidgets import QApplication, QLabel, QWidget

from helix_desktop.gui.chat.consent_difference_view import ExactDifferenceView
from helix_desktop.gui.common.consent_text_view import ExactTextView
from helix_desktop.gui.fleet.task_question_view import HIGHEST, TaskQuestionView
from helix_desktop.gui.theme import Theme
from helix_desktop.tools.permission import ActionEffect, ToolAction, list_asked_programs

ASKED: dict[str, Any] = {"id": "t1", "why": "It asks.\n\nmake all", "asked": "run_command"}


@pytest.fixture
def view(theme: Theme) -> Iterator[TaskQuestionView]:
    parent = QWidget()
    parent.resize(500, 500)
    made = TaskQuestionView(theme, parent)
    made.resize(500, 400)
    parent.show()
    yield made
    parent.close()


def labels(view: TaskQuestionView) -> list[str]:
    QApplication.processEvents()
    return [one.text() for one in view.findChildren(QLabel) if one.isVisible() and one.text()]


def test_nothing_is_shown_and_nothing_is_to_be_read_while_nothing_is_asked(
    view: TaskQuestionView,
) -> None:
    assert not view.isVisible()
    assert view.is_read_to_end
    view.show_task_request({})
    view.show_task_request({"id": "t1", "why": "It broke.", "asked": ""})
    assert not view.isVisible()
    assert view._exact is None


def test_a_command_is_a_text_and_a_change_of_a_file_is_a_difference(
    view: TaskQuestionView,
) -> None:
    view.show_task_request(ASKED)
    assert view.isVisible()
    assert isinstance(view._exact, ExactTextView)
    assert view._exact.maximumHeight() == HIGHEST
    first = view._exact
    view.show_task_request(dict(ASKED))
    assert view._exact is first, "what is read stays as it is"
    edit = {**ASKED, "asked": "edit_file", "why": "It asks.\n\n--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y"}
    view.show_task_request(edit)
    assert isinstance(view._exact, ExactDifferenceView)
    view.show_task_request({})
    assert view._exact is None
    assert not view.isVisible()


@pytest.mark.parametrize("field", ["id", "why", "asked", "access"])
def test_another_question_is_shown_anew(view: TaskQuestionView, field: str) -> None:
    view.show_task_request(ASKED)
    first = view._exact
    other = {"id": "t2", "why": "It asks.\n\nmake", "asked": "fetch_url", "access": "no_sandbox"}
    view.show_task_request({**ASKED, field: other[field]})
    assert view._exact is not None
    assert view._exact is not first


def test_where_a_command_would_run_and_what_it_starts_stands_below_it(
    view: TaskQuestionView,
) -> None:
    view.show_task_request({**ASKED, "access": "no_sandbox"})
    alone = labels(view)
    assert len(alone) == 1
    action = ToolAction("run_command", ActionEffect.RUN, "", "make", command="make all")
    programs = list_asked_programs(action, ())
    view.show_task_request({**ASKED, "access": "no_sandbox"}, programs)
    assert view._programs is not None
    assert labels(view) != alone
    assert any("make" in text for text in labels(view))
    layout = view.layout()
    assert layout is not None
    assert layout.spacing() == 4
    row = view._programs.layout()
    assert row is not None
    assert row.contentsMargins().left() == 0
    view.show_task_request({**ASKED, "id": "t2"})
    assert labels(view) == []


def test_a_long_question_is_to_be_read_to_its_end(view: TaskQuestionView) -> None:
    heard = QSignalSpy(view.reading_state_changed)
    long_text = "\n".join(f"line {number}" for number in range(400))
    view.show_task_request({**ASKED, "why": f"It asks.\n\n{long_text}"})
    assert heard.count() >= 1
    assert not view.is_read_to_end
    assert labels(view)
    exact = view._exact
    assert isinstance(exact, ExactTextView)
