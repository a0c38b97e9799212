"""What answers the question of a task: the buttons, and the rule by which it may go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QInputDialog, QWidget

from helix_desktop.gui.fleet.task_answer_buttons import TaskAnswerButtons, describe_rules_of_task
from helix_desktop.gui.theme import Theme

ASKING = {"id": "t1", "why": "May it?\n\nmake", "asked": "run_command", "rules": ("make", "make *")}


class Answers:
    """Keeps each answer that was given."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, ...]] = []
        self.rules: list[tuple[Any, ...]] = []

    def answer(self, workspace: str, task: Any, *, allowed: bool, words: str = "") -> None:
        self.given.append((workspace, task["id"], allowed, words))

    def allow(self, workspace: str, task: Any, rule: str) -> None:
        self.rules.append((workspace, task["id"], rule))


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def buttons(theme: Theme, answers: Answers) -> Iterator[TaskAnswerButtons]:
    parent = QWidget()
    parent.show()
    yield TaskAnswerButtons(answers.answer, answers.allow, parent)
    parent.close()


def visible(buttons: TaskAnswerButtons) -> list[str]:
    return [button.text() for button in buttons.buttons if button.isVisible()]


def press(buttons: TaskAnswerButtons, text: str) -> None:
    next(button for button in buttons.buttons if button.text() == text).click()


def test_what_refuses_stands_first_and_without_a_question_there_is_no_button(
    buttons: TaskAnswerButtons,
) -> None:
    buttons.show_question("w1", ASKING)
    assert visible(buttons) == ["Deny", "Allow once", "Allow in this task", "What to do instead"]
    buttons.show_question("", {})
    assert visible(buttons) == []
    assert not buttons.rule_label.isVisible()
    assert not buttons.rule_chooser.isVisible()


def test_each_button_answers_for_the_task_that_is_shown(
    buttons: TaskAnswerButtons, answers: Answers
) -> None:
    buttons.show_question("w1", ASKING)
    press(buttons, "Allow once")
    press(buttons, "Deny")
    assert answers.given == [("w1", "t1", True, ""), ("w1", "t1", False, "")]
    assert answers.rules == []


def test_the_rule_that_is_chosen_is_the_one_that_allows_it(
    buttons: TaskAnswerButtons, answers: Answers
) -> None:
    buttons.show_question("w1", ASKING)
    assert buttons.rule_chooser.isVisible()
    assert not buttons.only_rule.isVisible()
    press(buttons, "Allow in this task")
    buttons.rule_chooser.setCurrentIndex(1)
    press(buttons, "Allow in this task")
    assert answers.rules == [("w1", "t1", "make"), ("w1", "t1", "make *")]
    assert answers.given == []


def test_a_single_rule_is_a_label(buttons: TaskAnswerButtons, answers: Answers) -> None:
    buttons.show_question("w1", {**ASKING, "rules": ("make",)})
    assert buttons.rule_label.isVisible()
    assert buttons.only_rule.isVisible()
    assert not buttons.rule_chooser.isVisible()
    (described,) = describe_rules_of_task({**ASKING, "rules": ("make",)})
    assert buttons.only_rule.text() == described
    press(buttons, "Allow in this task")
    assert answers.rules == [("w1", "t1", "make")]


def test_without_a_rule_it_can_be_allowed_only_once(buttons: TaskAnswerButtons) -> None:
    buttons.show_question("w1", {**ASKING, "rules": ()})
    assert visible(buttons) == ["Deny", "Allow once", "What to do instead"]
    assert not buttons.rule_label.isVisible()
    assert not buttons.only_rule.isVisible()


def test_what_was_chosen_stays_while_the_same_question_is_shown_again(
    buttons: TaskAnswerButtons,
) -> None:
    buttons.show_question("w1", ASKING)
    buttons.rule_chooser.setCurrentIndex(1)
    buttons.show_question("w1", dict(ASKING))
    assert buttons.rule_chooser.currentIndex() == 1
    assert buttons.rule_chooser.count() == 2
    buttons.show_question("w1", {**ASKING, "why": "May it?\n\nmake clean"})
    assert buttons.rule_chooser.currentIndex() == 0
    buttons.rule_chooser.setCurrentIndex(1)
    buttons.show_question("w1", {**ASKING, "id": "t2", "why": "May it?\n\nmake clean"})
    assert buttons.rule_chooser.currentIndex() == 0
    buttons.rule_chooser.setCurrentIndex(1)
    buttons.show_question(
        "w1",
        {**ASKING, "id": "t2", "why": "May it?\n\nmake clean", "rules": ("make", "make c", "m *")},
    )
    assert buttons.rule_chooser.count() == 3


def test_only_allowing_waits_until_the_question_was_read(buttons: TaskAnswerButtons) -> None:
    buttons.show_question("w1", ASKING)
    buttons.enable_allowing(False)
    enabled = [button.text() for button in buttons.buttons if button.isEnabled()]
    assert enabled == ["Deny", "What to do instead"]
    buttons.enable_allowing(True)
    assert all(button.isEnabled() for button in buttons.buttons)


def test_the_words_that_deny_go_to_the_task_that_was_shown_when_they_were_begun(
    buttons: TaskAnswerButtons, answers: Answers
) -> None:
    buttons.show_question("w1", ASKING)
    press(buttons, "What to do instead")
    (dialog,) = [each for each in QApplication.topLevelWidgets() if isinstance(each, QInputDialog)]
    buttons.show_question("w2", {**ASKING, "id": "t2"})
    QTest.keyClicks(dialog.focusWidget() or dialog, "use tox")
    dialog.setTextValue("use tox")
    dialog.accept()
    assert answers.given == [("w1", "t1", False, "use tox")]


def test_a_rule_for_files_is_described_by_what_it_covers() -> None:
    task = {"asked": "write_file", "rules": ("src/**", "*"), "rule_folders": ("src",)}
    for_files, other = describe_rules_of_task(task)
    assert for_files != other
    assert describe_rules_of_task({"asked": "run_command"}) == []
