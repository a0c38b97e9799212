"""A conversation as it was, computed in slices, is what the engine says it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.view import State, state_of
from helix_desktop.gui.shared.past import Past, readable
from helix_desktop.gui.theme import Theme
from tests.gui import story


def ask(past: Past, seq: int) -> State:
    found: list[State] = []
    past.at(seq, found.append)
    for _ in range(1_000):
        if found:
            return found[0]
        QApplication.processEvents()
    raise AssertionError("no answer")


@pytest.mark.parametrize("order", [(3, 9, 16), (16, 9, 3), (9, 9, 1)])
def test_any_step_in_any_order(theme: Theme, order: tuple[int, ...]) -> None:
    facts = story.recorded()
    past = Past()
    past.of(facts)
    for seq in order:
        assert ask(past, seq).view() == state_of(facts[:seq]).view()


def test_a_later_question_takes_the_place_of_an_earlier_one(theme: Theme) -> None:
    facts = story.recorded() * 1
    past = Past()
    past.of(facts)
    answers: list[int] = []
    make: Callable[[int], Callable[[State], None]] = lambda seq: lambda _: answers.append(seq)  # noqa: E731
    past._then = make(1)
    past.at(5, make(5))
    QApplication.processEvents()
    assert answers == [5]


def test_a_view_as_text_names_every_block(theme: Theme) -> None:
    facts = story.recorded()
    state = state_of(facts)
    text = readable(state.view(), facts)
    assert text.count("── ") >= len(state.view().blocks)
    assert "You are Helix." in text
    assert "Handover" in text
