"""What points at something: beside it, never over it, and inside the window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QTextEdit, QWidget

from helix_desktop.gui.frame.sidebar import ConversationSearchField
from helix_desktop.gui.frame.tour_card import ShownTourStep, TourGuide, position_beside_area
from helix_desktop.gui.theme import Theme

SIZE = QSize(340, 170)


@given(
    st.integers(900, 2560),
    st.integers(600, 1440),
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.integers(20, 260),
    st.integers(20, 100),
)
def test_the_card_stands_in_the_window_and_not_over_what_it_is_about(
    width: int, height: int, x: int, y: int, wide: int, high: int
) -> None:
    window = QRect(0, 0, width, height)
    place = QRect(x * (width - wide) // 1000, y * (height - high) // 1000, wide, high)
    card = QRect(position_beside_area(place, SIZE, window), SIZE)
    assert window.contains(card)
    assert not card.intersects(place)


def test_beside_a_large_place_in_a_small_window_the_card_is_narrower(theme: Theme) -> None:
    window = QWidget()
    window.resize(884, 538)
    coach = TourGuide(theme, window)
    coach.show_tour_step(
        ShownTourStep(
            1,
            6,
            "Send a message",
            "Click the suggestion. A built-in script answers, the tools it calls are real.",
        )
    )
    question = QRect(304, 130, 580, 296)
    coach.point_at_area(question, [])
    assert not coach.card.geometry().intersects(question)
    coach.close_tour_guide()


def test_the_card_covers_nothing_of_the_panel_that_its_button_is_in(theme: Theme) -> None:
    window = QWidget()
    window.resize(1440, 900)
    coach = TourGuide(theme, window)
    coach.show_tour_step(
        ShownTourStep(3, 6, "Shorten now", "When the context fills up, older parts are folded.")
    )
    panel = QRect(480, 300, 560, 440)
    button = QRect(500, 700, 90, 24)
    coach.point_at_area(button, [panel])
    assert not coach.card.geometry().intersects(panel)
    coach.point_at_area(button, [QRect()])
    assert not coach.card.geometry().intersects(button)
    coach.close_tour_guide()


@pytest.mark.parametrize("place", [QRect(725, 276, 378, 28), QRect()])
def test_the_card_covers_nothing_of_the_page_while_there_is_room_beside_it(
    theme: Theme, place: QRect
) -> None:
    """It lay over the command that it spoke of, and over the end of the lines of an answer."""
    window = QWidget()
    window.resize(1266, 738)
    coach = TourGuide(theme, window)
    coach.show_tour_step(
        ShownTourStep(
            2, 6, "See what was left out", "One command printed 52,000 tokens. Click the label."
        )
    )
    page = QRect(309, 48, 957, 690)
    panel = QRect(480, 130, 290, 360)
    coach.point_at_area(place, [page, panel])
    assert not coach.card.geometry().intersects(page)
    coach.point_at_area(place, [QRect(56, 48, 1210, 690), panel])  # without the list beside it
    assert not coach.card.geometry().intersects(panel)
    coach.close_tour_guide()


def test_it_says_a_step_and_takes_no_click(theme: Theme) -> None:
    window = QWidget()
    window.resize(900, 600)
    window.show()
    coach = TourGuide(theme, window)
    heard = QSignalSpy(coach.card.next.clicked)
    coach.show_tour_step(ShownTourStep(1, 6, "One", "Do it."))
    coach.point_at_area(QRect(10, 10, 50, 20), [])
    assert coach.card.isVisible()
    assert not coach.card.back.isEnabled()
    assert not coach.card.offer.isVisible()
    assert coach.card.next.property("look") == ""
    assert window.childAt(300, 5) is None
    coach.show_tour_step(ShownTourStep(6, 6, "Six", "Done.", offer="Send “list”", is_done=True))
    assert (coach.card.next.text(), coach.card.next.property("look")) == ("Finish", "primary")
    coach.card.next.click()
    assert heard.count() == 1
    window.grab()
    coach.close_tour_guide()
    assert not coach.card.isVisible()


def test_the_keyboard_never_comes_to_leave_by_itself(theme: Theme) -> None:
    """The offer was pressed and went away, and Enter would have left the tour."""
    window = QWidget()
    window.resize(900, 600)
    window.show()
    window.activateWindow()
    coach = TourGuide(theme, window)
    coach.show_tour_step(ShownTourStep(3, 6, "Shorten now", "Send one more.", offer="Send “list”"))
    coach.card.offer.setFocus()
    coach.show_tour_step(ShownTourStep(3, 6, "Shorten now", "Press it."))
    assert window.focusWidget() is coach.card.next
    coach.close_tour_guide()


@pytest.mark.parametrize("place", [QRect(), QRect(-500, -500, 10, 10)])
def test_where_there_is_nothing_to_point_at_it_stands_in_the_corner(
    theme: Theme, place: QRect
) -> None:
    window = QWidget()
    window.resize(900, 600)
    coach = TourGuide(theme, window)
    coach.show_tour_step(ShownTourStep(1, 6, "One", "Do it."))
    coach.point_at_area(place, [])
    assert coach.card.geometry().right() > 800
    coach.close_tour_guide()


def test_escape_leaves_where_nothing_else_wants_it(theme: Theme) -> None:
    window = QWidget()
    window.resize(900, 600)
    search = ConversationSearchField(theme, window)
    text = QTextEdit(window)
    search.setText("words")
    window.show()
    coach = TourGuide(theme, window)
    coach.show_tour_step(ShownTourStep(1, 6, "One", "Do it."))
    left = QSignalSpy(coach.card.leave.clicked)
    QTest.keyClick(search, Qt.Key.Key_Escape)
    assert left.count() == 0
    QTest.keyClick(text, Qt.Key.Key_Return)
    assert left.count() == 0
    QTest.keyClick(text, Qt.Key.Key_Escape)
    assert left.count() == 1
    QTest.keyClick(coach.card.next, Qt.Key.Key_Escape)
    assert left.count() == 2
    coach.close_tour_guide()


def test_the_buttons_stay_where_they_were_pressed_while_nothing_is_covered(theme: Theme) -> None:
    """The card stood elsewhere at each step, and its Skip with it."""
    window = QWidget()
    window.resize(1440, 900)
    coach = TourGuide(theme, window)
    page = QRect(320, 40, 1120, 860)
    coach.show_tour_step(ShownTourStep(1, 6, "One", "Short."))
    coach.point_at_area(QRect(900, 300, 60, 20), [page])
    corner = coach.card.geometry().bottomRight()
    width_of_skip = coach.card.next.sizeHint().expandedTo(coach.card.next.minimumSize()).width()
    coach.show_tour_step(ShownTourStep(2, 6, "Two", "A longer text. " * 9, is_done=True))
    coach.point_at_area(QRect(700, 500, 60, 20), [page])
    assert coach.card.geometry().bottomRight() == corner
    width_of_next = coach.card.next.sizeHint().expandedTo(coach.card.next.minimumSize()).width()
    assert width_of_next == width_of_skip
    coach.point_at_area(coach.card.geometry(), [QRect()])
    assert coach.card.geometry().bottomRight() != corner, "it never covers what it speaks of"
    coach.close_tour_guide()
