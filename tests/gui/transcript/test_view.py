"""The chat scrolls, follows and stays still as a reader expects. Driven by real events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.blocks import TextDelta
from helix_desktop.engine.events import FactAppended, Running, StateChanged, Streamed, ToolShowed
from helix_desktop.engine.view import state_of
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript import view as view_module
from helix_desktop.gui.transcript.bars import CallBox
from helix_desktop.gui.transcript.pane import TranscriptPane
from tests.gui.transcript.facts import Told, call

Settle = Callable[[], None]


def long_talk(turns: int = 40) -> Told:
    told = Told()
    for number in range(turns):
        told.user(f"Question {number}. " + "word " * (number % 7) * 10)
        told.reply(f"Answer {number}.\n\n" + "Some words of an answer. " * (number % 11) * 4, call(number))
        told.returned(f"c{number}")
    return told


def wheel(pane: TranscriptPane, by: int) -> None:
    view = pane.view.viewport()
    middle = QPointF(view.rect().center())
    event = QWheelEvent(
        middle,
        middle,
        QPoint(),
        QPoint(0, by),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(view, event)
    QApplication.processEvents()


def test_a_history_that_was_read_in_a_thread_is_shown_as_any_other(
    pane: TranscriptPane, settle: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_module, "MANY", 10)
    told = long_talk()
    pane.open(state_of(told.facts))
    settle()
    wanted = [list(pane.view.items.all), pane.view.column.total, pane.view.verticalScrollBar().value()]
    history = state_of(told.facts[:-20])
    asyncio.run(pane.prepare(history))
    pane.open(state_of(told.facts[:3]))
    asyncio.run(pane.prepare(history))
    for recorded in told.facts[-20:]:  # while the thread was at work
        history.advance(recorded)
    pane.open(history)
    settle()
    assert [pane.view.items.all, pane.view.column.total, pane.view.verticalScrollBar().value()] == wanted


def test_a_conversation_that_was_left_is_let_go_of(pane: TranscriptPane, settle: Settle) -> None:
    pane.open(state_of(long_talk().facts))
    left = pane.view.items
    pane.open(state_of(long_talk().facts))
    assert left.all  # not at once
    settle()
    assert not left.all
    assert pane.view.items.all


def at_end(pane: TranscriptPane) -> bool:
    bar = pane.view.verticalScrollBar()
    return bar.value() == bar.maximum()


def first_seen(pane: TranscriptPane) -> tuple[int, int]:
    """The first item that begins in sight, and where."""
    y, height = pane.view.verticalScrollBar().value(), pane.view.viewport().height()
    column = pane.view.column
    index = next(i for i in column.shown(y, height) if column.heights.top(i) >= y)
    return index, column.heights.top(index) - y


def test_it_opens_at_the_end_and_follows(pane: TranscriptPane, settle: Settle) -> None:
    told = long_talk()
    pane.open(state_of(told.facts))
    settle()
    assert at_end(pane)
    assert pane.view.following
    for number in range(5):
        pane.hear([FactAppended(told.user(f"more {number} " * 30))])
        settle()
        assert at_end(pane)


def test_only_the_reader_ends_the_following(pane: TranscriptPane, settle: Settle) -> None:
    told = long_talk()
    pane.open(state_of(told.facts))
    settle()
    pane.hear([Streamed("c", TextDelta("One line. " * 200))])
    pane.resize(700, 500)
    settle()
    assert pane.view.following
    wheel(pane, 240)
    settle()
    assert not pane.view.following
    seen = first_seen(pane)
    for _ in range(5):
        pane.hear([Streamed("c", TextDelta("And more. " * 100))])
        settle()
        assert first_seen(pane) == seen
    assert pane._end.isVisible()
    QTest.mouseClick(pane._end, Qt.MouseButton.LeftButton)
    settle()
    assert pane.view.following
    assert at_end(pane)
    assert not pane._end.isVisible()


def test_scrolling_back_to_the_end_follows_again(pane: TranscriptPane, settle: Settle) -> None:
    pane.open(state_of(long_talk().facts))
    settle()
    wheel(pane, 360)
    assert not pane.view.following
    for _ in range(6):
        wheel(pane, -360)
    assert pane.view.following


def test_what_is_above_may_change_its_height(pane: TranscriptPane, settle: Settle) -> None:
    told = long_talk()
    pane.open(state_of(told.facts))
    settle()
    for _ in range(8):
        wheel(pane, 240)
    settle()
    seen = first_seen(pane)
    above = next(i for i in range(seen[0] - 1, 0, -1) if pane.view.items.all[i].kind == 3)
    pane.hear([FactAppended(told.marker(pane.view.items.call(above).returned_seq))])
    settle()
    assert first_seen(pane) == seen


def test_every_item_is_reached_by_scrolling_up(pane: TranscriptPane, settle: Settle) -> None:
    pane.open(state_of(long_talk(12).facts))
    settle()
    seen = set[int]()
    for _ in range(200):
        y, height = pane.view.verticalScrollBar().value(), pane.view.viewport().height()
        shown = list(pane.view.column.shown(y, height))
        assert not seen or max(shown) >= min(seen) - 1
        seen.update(shown)
        if y == 0:
            break
        wheel(pane, 120)
        settle()
    assert seen == set(range(len(pane.view.items.all)))


def test_the_place_of_the_reader_is_kept(pane: TranscriptPane, settle: Settle) -> None:
    told = long_talk()
    pane.open(state_of(told.facts))
    settle()
    for _ in range(10):
        wheel(pane, 240)
    settle()
    seen, place = first_seen(pane), pane.place()
    pane.open(state_of([]))
    pane.open(state_of(told.facts), place)
    settle()
    assert first_seen(pane) == seen
    assert not pane.view.following


def test_a_fact_is_brought_into_sight(pane: TranscriptPane, settle: Settle) -> None:
    told = long_talk()
    pane.open(state_of(told.facts))
    settle()
    pane.show_seq(31)
    settle()
    y, height = pane.view.verticalScrollBar().value(), pane.view.viewport().height()
    assert pane.view.items.at_seq(31) in list(pane.view.column.shown(y, height))


def test_a_running_call_counts_its_time_and_shows_its_output(pane: TranscriptPane, settle: Settle) -> None:
    told = Told()
    told.reply("", call(1, "run_command", '{"command": "make"}'))
    pane.open(state_of(told.facts))
    pane.hear([StateChanged("c", Running.TOOLS), ToolShowed("c", "c1", "compiling\n")])
    pane.view.column.page.opened["open", 1, 0] = 1
    pane.view.column.drop(0)
    pane.view._refresh()
    settle()
    laid = pane.view.column.known(0)
    assert laid is not None
    assert isinstance(laid.boxes[0], CallBox)
    assert laid.boxes[0]._line.right.startswith("running…")
    assert laid.boxes[1].text == "compiling"
    assert pane.view._clock.isActive()
    pane.hear([FactAppended(told.returned("c1")), StateChanged("c", Running.IDLE)])
    assert not pane.view._clock.isActive()


def test_another_theme_and_another_width_keep_the_place(pane: TranscriptPane, theme: Theme, settle: Settle) -> None:
    pane.open(state_of(long_talk().facts))
    settle()
    for _ in range(10):
        wheel(pane, 240)
    settle()
    index = first_seen(pane)[0]
    theme.set_look("dark", theme.zoom)
    settle()
    assert abs(first_seen(pane)[0] - index) <= 1
    theme.set_look("light", theme.zoom)


def test_everything_is_drawn(pane: TranscriptPane, settle: Settle) -> None:
    pane.open(state_of(long_talk(3).facts))
    settle()
    image = pane.view.viewport().grab().toImage()
    colours = {image.pixelColor(x, y).name() for x in range(0, image.width(), 3) for y in range(0, image.height(), 3)}
    assert "#f3f3ef" in colours
    assert len(colours) > 20
