"""The bar of a message: under the pointer, by the keyboard, at the top of what is
longer than the window.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QPoint, QRectF, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest

from helix_desktop.engine.facts import Rewound
from helix_desktop.engine.session_events import FactAppended
from helix_desktop.engine.view import build_state
from helix_desktop.gui.transcript.box_stack import HotSpotIndex
from helix_desktop.gui.transcript.chat_actions import (
    ActOnMessage,
    ChatIntent,
    MessageAct,
)
from helix_desktop.gui.transcript.message_bar import BAR, format_message_time
from helix_desktop.gui.transcript.transcript_pane import TranscriptPane
from tests.gui.transcript.facts import Told

Settle = Callable[[], None]


@pytest.fixture
def wanted(pane: TranscriptPane, settle: Settle) -> list[ChatIntent]:
    told = Told()
    told.user("why?")
    told.reply("one")
    told.add(Rewound(1, again=True))
    told.reply("*two*")
    pane.open_transcript(build_state(told.facts))
    settle()
    found: list[ChatIntent] = []
    pane.intent_requested.connect(found.append)
    return found


def over(pane: TranscriptPane, index: int) -> None:
    laid = pane.view.column.lay_out_fully(index)
    inner = QRectF(0, 0, pane.view.column.page.width, laid.current_height)
    QTest.mouseMove(
        pane.view.viewport(), pane.view.rect_in_viewport(index, inner).center().toPoint()
    )
    pane.view.update_hover(pane.view.rect_in_viewport(index, inner).center().toPoint())


def press(pane: TranscriptPane, index: int, name: str) -> None:
    bar = pane.view.hover_bar_of(index)
    assert bar is not None
    hot = next(hot for hot in bar.hot_spots if hot.name == name)
    at = hot.place.translated(pane.view.hover_bar_rect(index, bar).topLeft()).center().toPoint()
    QTest.mouseClick(pane.view.viewport(), Qt.MouseButton.LeftButton, pos=at)


def test_the_buttons_of_a_message_and_of_an_answer(
    pane: TranscriptPane, wanted: list[ChatIntent]
) -> None:
    over(pane, 0)
    press(pane, 0, "Edit and resend…")
    press(pane, 0, "Duplicate up to here")
    press(pane, 0, "Rewind to here…")
    over(pane, 2)
    press(pane, 2, "Copy message")
    press(pane, 2, "Regenerate")
    press(pane, 2, "What the model saw")
    press(pane, 2, "Previous answer")
    assert wanted == [
        ActOnMessage(MessageAct.EDIT, 1),
        ActOnMessage(MessageAct.FORK, 1),
        ActOnMessage(MessageAct.REWIND, 1),
        ActOnMessage(MessageAct.REGENERATE, 4),
        ActOnMessage(MessageAct.SHOW_REQUEST, 4),
        ActOnMessage(MessageAct.CHOOSE, 2),
    ]
    assert QGuiApplication.clipboard().text() == "*two*"


def test_a_button_with_the_keyboard_has_a_frame_and_one_under_the_pointer_has_none(
    pane: TranscriptPane, wanted: list[ChatIntent], settle: Settle
) -> None:
    """Both had the same grey ground, which is hard to see without the pointer beside it."""

    def has_frame() -> bool:
        bar = pane.view.hover_bar_of(2)
        assert bar is not None
        copy = bar.hot_spots[0].place.translated(pane.view.hover_bar_rect(2, bar).topLeft())
        picture = pane.view.grab().toImage()
        row = round(copy.center().y())
        return any(
            picture.pixelColor(round(copy.left()) + x, row).red() < 160 for x in range(4)
        )  # It is green.

    over(pane, 2)
    assert not has_frame()
    pane.view._spot = (2, HotSpotIndex(BAR, 0))
    pane.view.setFocus()
    settle()
    assert has_frame()


def test_the_name_over_an_answer_says_which_it_is(
    pane: TranscriptPane, wanted: list[ChatIntent]
) -> None:
    laid = pane.view.column.lay_out_fully(2)
    assert [hot.name for hot in laid.boxes[0].hot_spots] == ["Previous answer"]


def test_the_keyboard_reaches_the_bar_and_goes_along_it(
    pane: TranscriptPane, wanted: list[ChatIntent]
) -> None:
    pane.window().activateWindow()
    pane.view.setFocus()
    while pane.view.focusNextPrevChild(True) and not (
        pane.view._spot and pane.view._spot == (2, pane.view._spot[1])
    ):
        pass
    while pane.view._spot is not None and pane.view._spot[1].box != BAR:
        pane.view.focusNextPrevChild(True)
    assert pane.view._item_with_hover_bar == 2 or not pane.view.hasFocus()
    for _ in range(2):
        QTest.keyClick(pane.view, Qt.Key.Key_Right)
    QTest.keyClick(pane.view, Qt.Key.Key_Return)
    assert wanted == [ActOnMessage(MessageAct.REGENERATE, 4)]


def test_it_stays_in_sight_above_what_is_long(pane: TranscriptPane, settle: Settle) -> None:
    told = Told()
    told.user("a line\n\n" * 90)
    pane.open_transcript(build_state(told.facts))
    settle()
    bar = pane.view.hover_bar_of(0)
    assert bar is not None
    assert pane.view.hover_bar_rect(0, bar).top() == 2.0
    pane.view.restore_reading_position((1, 0, False))
    pane.view.verticalScrollBar().setValue(0)
    place = pane.view.hover_bar_rect(0, bar)
    assert place.bottom() <= pane.view.rect_in_viewport(0, QRectF(0, 0, 1, 1)).top() + 8
    assert pane.view.hover_bar_of(0) is bar
    pane.view._over = 0
    pane.view.viewport().grab()
    assert (
        pane.view.hot_spot_at_point(
            QPoint(place.toRect().right() - 12, place.toRect().center().y())
        )
        is not None
    )


def test_it_covers_no_words_of_a_message_that_leaves_at_the_top(
    pane: TranscriptPane, settle: Settle
) -> None:
    """Of a message of two lines that was half out of sight, the bar covered the last words."""
    told = Told()
    told.user("many words in a row " * 18)
    told.user("a line\n\n" * 90)
    pane.open_transcript(build_state(told.facts))
    settle()
    view = pane.view
    line = QRectF(0, 0, view.column.page.width, view.column.lay_out_fully(0).current_height)
    out_of_sight = round(line.height() * 0.7)
    view.scrolling.set_following_end(following=False)
    view.verticalScrollBar().setValue(out_of_sight)
    settle()
    view.update_hover(view.rect_in_viewport(0, line).center().toPoint() + QPoint(0, 5))
    bar = view.hover_bar_of(0)
    assert bar is not None
    message = view.rect_in_viewport(0, line)
    place = view.hover_bar_rect(0, bar)
    assert message.top() < 0 < message.bottom()
    assert message.bottom() - 4 <= place.top() <= message.bottom()
    assert place.bottom() <= view.rect_in_viewport(1, QRectF(0, 0, 1, 1)).top() + 8

    view.update_hover(place.center().toPoint())  # On the way to a button, it stays.
    assert view._item_with_hover_bar == 0


def test_a_message_that_a_rewind_hides_takes_its_bar_along(
    pane: TranscriptPane, settle: Settle
) -> None:
    told = Told()
    told.user("one")
    told.user("two")
    pane.open_transcript(build_state(told.facts))
    settle()
    over(pane, 1)
    assert pane.view.hover_bar_of(1) is not None
    told.add(Rewound(1))
    pane.view.apply_events([FactAppended(told.facts[-1])])
    assert pane.view.hover_bar_of(1) is None


def test_the_day_is_said_where_it_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(format_message_time(1_000.0)) > len("00:00")
