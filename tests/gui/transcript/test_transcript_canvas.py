"""The chat scrolls, follows and stays still as a reader expects. Driven by real events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QImage, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.facts import Rewound
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    FactAppended,
    ReplyStreamed,
    ToolPrinted,
)
from helix_desktop.engine.view import build_state
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript import transcript_canvas as view_module
from helix_desktop.gui.transcript.call_and_fold_boxes import ToolCallBox
from helix_desktop.gui.transcript.transcript_pane import TranscriptPane
from tests.gui.transcript.facts import Told, call

Settle = Callable[[], None]


def long_talk(turns: int = 40) -> Told:
    told = Told()
    for number in range(turns):
        told.user(f"Question {number}. " + "word " * (number % 7) * 10)
        told.reply(
            f"Answer {number}.\n\n" + "Some words of an answer. " * (number % 11) * 4, call(number)
        )
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
    pane.open_transcript(build_state(told.facts))
    settle()
    wanted = [
        list(pane.view.items.all),
        pane.view.column.total_height,
        pane.view.verticalScrollBar().value(),
    ]
    history = build_state(told.facts[:-20])
    asyncio.run(pane.view.build_items_of_long_history(history))
    pane.open_transcript(build_state(told.facts[:3]))
    asyncio.run(pane.view.build_items_of_long_history(history))
    for recorded in told.facts[-20:]:  # while the thread was at work
        history.advance_state(recorded)
    pane.open_transcript(history)
    settle()
    assert [
        pane.view.items.all,
        pane.view.column.total_height,
        pane.view.verticalScrollBar().value(),
    ] == wanted


def test_a_conversation_that_was_left_is_let_go_of(pane: TranscriptPane, settle: Settle) -> None:
    pane.open_transcript(build_state(long_talk().facts))
    left = pane.view.items
    pane.open_transcript(build_state(long_talk().facts))
    assert left.all  # not at once
    settle()
    assert not left.all
    assert pane.view.items.all


def test_while_it_is_hidden_nothing_is_laid_out(pane: TranscriptPane, settle: Settle) -> None:
    told = long_talk(3)
    pane.open_transcript(build_state(told.facts))
    settle()
    pane.hide()
    total = pane.view.verticalScrollBar().maximum()
    known = len(told.facts)
    for number in range(20):
        told.user(f"Another question {number}")
    pane.view.apply_events(tuple(FactAppended(each) for each in told.facts[known:]))
    assert pane.view.verticalScrollBar().maximum() == total
    pane.show()
    settle()
    assert pane.view.verticalScrollBar().maximum() > total
    assert at_end(pane)


def at_end(pane: TranscriptPane) -> bool:
    bar = pane.view.verticalScrollBar()
    return bar.value() == bar.maximum()


def first_seen(pane: TranscriptPane) -> tuple[int, int]:
    """The first item that begins in sight, and where."""
    y = pane.view.verticalScrollBar().value()
    height = pane.view.viewport().height()
    column = pane.view.column
    index = next(
        i for i in column.visible_items(y, height) if column.heights.total_height_before(i) >= y
    )
    return index, column.heights.total_height_before(index) - y


def test_it_opens_at_the_end_and_follows(pane: TranscriptPane, settle: Settle) -> None:
    told = long_talk()
    pane.open_transcript(build_state(told.facts))
    settle()
    assert at_end(pane)
    assert pane.view.scrolling.is_following_end
    for number in range(5):
        pane.view.apply_events([FactAppended(told.user(f"more {number} " * 30))])
        settle()
        assert at_end(pane)


def test_only_the_reader_ends_the_following(pane: TranscriptPane, settle: Settle) -> None:
    told = long_talk()
    pane.open_transcript(build_state(told.facts))
    settle()
    pane.view.apply_events([ReplyStreamed("c", TextDelta("One line. " * 200))])
    pane.resize(700, 500)
    settle()
    assert pane.view.scrolling.is_following_end
    wheel(pane, 240)
    settle()
    assert not pane.view.scrolling.is_following_end
    seen = first_seen(pane)
    for _ in range(5):
        pane.view.apply_events([ReplyStreamed("c", TextDelta("And more. " * 100))])
        settle()
        assert first_seen(pane) == seen
    assert pane._end.isVisible()
    QTest.mouseClick(pane._end, Qt.MouseButton.LeftButton)
    settle()
    assert pane.view.scrolling.is_following_end
    assert at_end(pane)
    assert not pane._end.isVisible()


def test_scrolling_back_to_the_end_follows_again(pane: TranscriptPane, settle: Settle) -> None:
    pane.open_transcript(build_state(long_talk().facts))
    settle()
    wheel(pane, 360)
    assert not pane.view.scrolling.is_following_end
    for _ in range(6):
        wheel(pane, -360)
    assert pane.view.scrolling.is_following_end


def test_who_rewinds_to_what_is_in_sight_stays_at_the_end(
    pane: TranscriptPane, settle: Settle
) -> None:
    """The end was out of sight as soon as a second conversation made the column narrower, and still
    after a restart.
    """
    told = long_talk()
    pane.open_transcript(build_state(told.facts))
    settle()
    for _ in range(4):
        wheel(pane, 240)
    settle()
    first, _ = first_seen(pane)
    kept_fact = pane.view.items.all[first + 1].fact_seq
    pane.view.apply_events([FactAppended(told.add(Rewound(kept_fact)))])
    settle()
    assert at_end(pane)
    pane.resize(pane.width() // 2, pane.height())
    settle()
    assert at_end(pane)
    assert pane.view.scrolling.is_following_end


def test_who_reads_far_above_a_rewind_stays_there(pane: TranscriptPane, settle: Settle) -> None:
    told = long_talk()
    pane.open_transcript(build_state(told.facts))
    settle()
    for _ in range(20):
        wheel(pane, 240)
    settle()
    seen = first_seen(pane)
    pane.view.apply_events([FactAppended(told.add(Rewound(told.facts[-8].seq)))])
    settle()
    assert first_seen(pane) == seen
    assert not pane.view.scrolling.is_following_end


def test_what_is_above_may_change_its_height(pane: TranscriptPane, settle: Settle) -> None:
    told = long_talk()
    pane.open_transcript(build_state(told.facts))
    settle()
    for _ in range(8):
        wheel(pane, 240)
    settle()
    seen = first_seen(pane)
    above = next(i for i in range(seen[0] - 1, 0, -1) if pane.view.items.all[i].kind == 3)
    pane.view.apply_events(
        [FactAppended(told.marker(pane.view.items.tool_call_state(above).returned_seq))]
    )
    settle()
    assert first_seen(pane) == seen


def test_every_item_is_reached_by_scrolling_up(pane: TranscriptPane, settle: Settle) -> None:
    pane.open_transcript(build_state(long_talk(12).facts))
    settle()
    seen = set[int]()
    for _ in range(200):
        y = pane.view.verticalScrollBar().value()
        height = pane.view.viewport().height()
        shown = list(pane.view.column.visible_items(y, height))
        assert not seen or max(shown) >= min(seen) - 1
        seen.update(shown)
        if y == 0:
            break
        wheel(pane, 120)
        settle()
    assert seen == set(range(len(pane.view.items.all)))


def test_the_place_of_the_reader_is_kept(pane: TranscriptPane, settle: Settle) -> None:
    told = long_talk()
    pane.open_transcript(build_state(told.facts))
    settle()
    for _ in range(10):
        wheel(pane, 240)
    settle()
    seen = first_seen(pane)
    place = pane.view.reading_position()
    pane.open_transcript(build_state([]))
    pane.open_transcript(build_state(told.facts), place)
    settle()
    assert first_seen(pane) == seen
    assert not pane.view.scrolling.is_following_end


def test_a_fact_is_brought_into_sight(pane: TranscriptPane, settle: Settle) -> None:
    told = long_talk()
    pane.open_transcript(build_state(told.facts))
    settle()
    pane.scroll_to_fact(31)
    settle()
    y = pane.view.verticalScrollBar().value()
    height = pane.view.viewport().height()
    assert pane.view.items.item_of_fact(31) in list(pane.view.column.visible_items(y, height))


def test_a_running_call_counts_its_time_and_shows_its_output(
    pane: TranscriptPane, settle: Settle
) -> None:
    told = Told()
    told.reply("", call(1, "run_command", '{"command": "make"}'))
    pane.open_transcript(build_state(told.facts))
    pane.view.apply_events(
        [ActivityChanged("c", ConversationActivity.TOOLS), ToolPrinted("c", "c1", "compiling\n")]
    )
    pane.view.column.page.section_amounts["open", 1, 0] = 1
    pane.view.column._laid.pop(0)
    pane.view._lay_out_and_draw()
    settle()
    laid = pane.view.column.existing_layout(0)
    assert laid is not None
    assert isinstance(laid.boxes[0], ToolCallBox)
    assert laid.boxes[0].line.outcome.startswith("running…")
    assert laid.boxes[1].text == "compiling"
    assert pane.view._clock.isActive()
    pane.view.apply_events(
        [FactAppended(told.returned("c1")), ActivityChanged("c", ConversationActivity.IDLE)]
    )
    assert not pane.view._clock.isActive()


def test_another_theme_and_another_width_keep_the_place(
    pane: TranscriptPane, theme: Theme, settle: Settle
) -> None:
    pane.open_transcript(build_state(long_talk().facts))
    settle()
    for _ in range(10):
        wheel(pane, 240)
    settle()
    index = first_seen(pane)[0]
    theme.set_scheme_and_zoom("dark", theme.text_zoom)
    settle()
    assert abs(first_seen(pane)[0] - index) <= 1
    theme.set_scheme_and_zoom("light", theme.text_zoom)


def test_everything_is_drawn(pane: TranscriptPane, settle: Settle) -> None:
    pane.open_transcript(build_state(long_talk(3).facts))
    settle()
    image = pane.view.viewport().grab().toImage()
    colours = {
        image.pixelColor(x, y).name()
        for x in range(0, image.width(), 3)
        for y in range(0, image.height(), 3)
    }
    assert "#f3f3ef" in colours
    assert len(colours) > 20


def on_screen(pane: TranscriptPane) -> QImage:
    QApplication.processEvents()
    view = pane.view.viewport()
    corner = view.mapTo(pane, QPoint())
    return (
        pane.screen()
        .grabWindow(pane.winId(), corner.x(), corner.y(), view.width(), view.height())
        .toImage()
    )


def alike(one: QImage, other: QImage) -> bool:
    """A round corner at the edge of what is drawn may be a shade lighter."""
    pairs = zip(bytes(one.constBits()), bytes(other.constBits()), strict=True)
    return one == other or all(abs(a - b) < SHADE for a, b in pairs)


SHADE = 4  # of 256
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wheel"), st.sampled_from((-960, -240, -120, 40, 120, 360))),
        st.tuples(st.just("point"), st.integers(5, 590)),
        st.tuples(
            st.sampled_from(("write", "answer", "ask", "click", "end", "tab")), st.integers(0, 9)
        ),
    ),
    min_size=3,
    max_size=14,
)


def do(pane: TranscriptPane, told: Told, step: str, by: int) -> None:
    match step:
        case "wheel":
            wheel(pane, by)
        case "point":
            QTest.mouseMove(pane.view.viewport(), QPoint(100 + by, by))
        case "write":
            pane.view.apply_events(
                [
                    ReplyStreamed(
                        "c", TextDelta("Words of it. " * by + "\n\n```python\ncall(1)\n"[: 3 * by])
                    )
                ]
            )
        case "answer":
            pane.view.apply_events(
                [FactAppended(told.reply(f"Done: {by}.", call(100 + len(told.facts))))]
            )
        case "ask":
            pane.view.apply_events([FactAppended(told.user("Once more. " * by))])
        case "click":
            QTest.mouseClick(
                pane.view.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(120, 60 * by)
            )
        case "end":
            pane.view.jump_to_end()
        case "tab":
            pane.view.setFocus()
            QTest.keyClick(pane.view, Qt.Key.Key_Tab)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12, deadline=None
)
@given(STEPS)
def test_what_was_moved_looks_as_if_it_were_drawn_anew(
    pane: TranscriptPane, settle: Settle, steps: list[tuple[str, int]]
) -> None:
    told = long_talk(12)
    pane.open_transcript(build_state(told.facts))
    for step, by in steps:
        do(pane, told, step, by)
        settle()
        shown = on_screen(pane)
        pane.view.viewport().update()
        assert alike(on_screen(pane), shown), step


def test_what_was_opened_stays_open_when_another_process_goes_on_with_the_conversation(
    pane: TranscriptPane,
) -> None:
    """The defect: the recorder appended a turn of Claude Code, and the card that the
    reader had opened was closed.
    """
    told = long_talk(4)
    pane.open_transcript(build_state(told.facts))
    key = pane.view.column.page.section_key("open", told.facts[1].seq, 0)
    pane.view.column.page.section_amounts[key] = 1
    pane.open_transcript(build_state(told.facts))
    assert pane.view.column.page.section_amounts == {key: 1}
    other = [replace(one, conversation="other") for one in told.facts]
    pane.open_transcript(build_state(other))
    assert pane.view.column.page.section_amounts == {}
