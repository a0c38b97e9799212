"""The card of a task: its words and answer, what it asks for, and the buttons that fit its state."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtTest import QSignalSpy
from PySide6.QtWidgets import QApplication, QPushButton

from helix_desktop.gui.fleet.fleet_rows import ListedTask
from helix_desktop.gui.fleet.task_detail_card import LONGEST_ANSWER, LONGEST_TEXT, TaskDetailCard
from helix_desktop.gui.theme import Theme
from helix_desktop.program_folders import ProgramFolders
from tests.gui.fleet.fleet_parts import Parts, listed
from tests.gui.fleet.test_fleet_dialog import places

__all__ = ["places"]


@pytest.fixture
def parts(places: ProgramFolders) -> Parts:
    return Parts(places)


@pytest.fixture
def card(theme: Theme, parts: Parts) -> TaskDetailCard:
    made = TaskDetailCard(parts.parts, theme, None)  # type: ignore[arg-type]
    made.resize(900, 400)
    made.show()
    return made


def visible(card: TaskDetailCard) -> list[str]:
    return [one.text() for one in card.findChildren(QPushButton) if one.isVisible()]


def test_a_done_task_shows_its_words_and_its_answer_up_to_a_limit(card: TaskDetailCard) -> None:
    words, answer = "w" * (LONGEST_TEXT + 1), "a " * LONGEST_ANSWER
    card.show_task(listed("done", text=words, answer=answer))
    assert card.title.text() == "w" * LONGEST_TEXT
    assert card.answer._shown_answer == answer[:LONGEST_ANSWER]
    assert card.answer.isVisible()
    assert not card.reason.isVisible()
    assert not card.question.isVisible()
    assert card.open.isEnabled()


def test_a_failed_task_says_why_and_one_that_never_began_has_no_conversation(
    card: TaskDetailCard,
) -> None:
    card.show_task(listed("failed", why="It broke."))
    assert card.reason.text() == "It broke."
    assert card.reason.isVisible()
    card.show_task(listed("waiting", conversation=""))
    assert not card.open.isEnabled()
    assert not card.reason.isVisible()
    card.show_task(ListedTask())
    assert (card.title.text(), card.open.isEnabled()) == ("", False)


def test_an_ended_task_says_what_it_changed_and_offers_to_review_it(
    card: TaskDetailCard, parts: Parts
) -> None:
    """Which files a task had changed was known only after its conversation was opened."""
    card.show_task(listed("done", conversation="c1"))
    assert not card.changes.isVisible()
    assert not card.review.isVisible()
    parts.desk.bench.file_changes.fill(
        {"a.py": (b"one\n", b"two\nthree\n"), "b.py": (b"", b"new\n")}
    )
    card.show_task(listed("running", conversation="c1"))
    assert not card.changes.isVisible(), "it is not at its end"
    card.show_task(listed("done", conversation="c1"))
    assert card.changes.text() == "2 files changed +3 −1"
    review = QSignalSpy(card.review_wanted)
    card.review.click()
    assert review.count() == 1
    card.show_task(listed("done", number=2, conversation=""))
    assert not card.changes.isVisible()
    assert not card.review.isVisible()


def test_of_several_tasks_only_their_number_is_shown(card: TaskDetailCard) -> None:
    card.show_task(listed("done", answer="Yes."))
    card.show_number_of_tasks(1_234)
    assert card.title.text() == "1,234 tasks are selected."
    assert not card.answer.isVisible()
    assert not card.open.isEnabled()


@pytest.mark.parametrize(
    ("states", "buttons"),
    [
        ({"running"}, ["Stop"]),
        ({"waiting"}, ["Stop"]),
        ({"needs_you"}, ["Stop"]),
        ({"dead_letter"}, ["Stop", "Run again"]),
        ({"failed"}, ["Run again"]),
        ({"cancelled", "running"}, ["Stop", "Run again"]),
        ({"done"}, []),
        ({""}, []),
    ],
)
def test_the_buttons_are_those_that_do_something(
    card: TaskDetailCard, states: set[str], buttons: list[str]
) -> None:
    card.show_task(listed("done"))
    card.show_buttons_for(states)
    assert visible(card) == ["Open conversation", *buttons]


def test_each_button_asks_for_what_it_says(card: TaskDetailCard) -> None:
    card.show_task(listed("done"))
    card.show_buttons_for({"dead_letter"})
    signals = (card.open_wanted, card.stop_wanted, card.retry_wanted)
    spies = [QSignalSpy(signal) for signal in signals]
    for button in (card.open, card.stop, card.retry):
        button.click()
    assert [spy.count() for spy in spies] == [1, 1, 1]


def test_what_a_task_asks_for_is_answered_for_this_call_or_for_the_rest_of_the_task(
    card: TaskDetailCard, parts: Parts
) -> None:
    row = listed(
        "needs_you", 3, why="It asks.\n\nhead a.txt", asked="run_command", rules=("head *",)
    )
    card.show_task(row)
    assert card.question.isVisible()
    assert card.question.is_read_to_end
    assert "Allow once" in visible(card)
    task = row.task
    card._send_answer_to_task("w1", task, allowed=False, words="No.")
    card._allow_for_rest_of_task("w1", task, "head *")
    card.run_task_again("w1", task)
    assert parts.fleet.asked == [
        ("answer", "w1", task["id"], task["why"], False, "No."),
        ("allow", "w1", task["id"], "run_command", "head *"),
        ("retry", "w1", task["id"], ()),
    ]
    card.show_task(listed("failed", why="It broke."))
    assert not card.question.isVisible()
    assert "Allow once" not in visible(card)


def test_the_card_has_its_margins_and_its_parts_a_gap(card: TaskDetailCard) -> None:
    card.show_task(listed("failed", why="It broke."))
    card.show_buttons_for({"failed"})
    QApplication.processEvents()
    assert card.title.mapTo(card, QPoint()).x() == 16
    retry = card.retry
    assert retry.mapTo(card, QPoint(retry.width(), 0)).x() == card.width() - 16
    tops = [one.mapTo(card, QPoint()).y() for one in (card.title, card.open, retry)]
    assert min(tops) == 12
    layout = card.layout()
    assert layout is not None
    margins = layout.contentsMargins()
    assert (margins.left(), margins.top(), margins.right(), margins.bottom()) == (16, 12, 16, 12)
    assert layout.spacing() == 8
    assert card.title.width() > card.open.width() * 2, "the words get the room"
