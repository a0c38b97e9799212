"""The rows of what was shortened: their words, their height, and which one is chosen."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import pytest
from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QFont, QFontMetrics
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QAbstractItemView, QApplication, QStyle, QStyleOptionViewItem

from helix_desktop.engine.facts import Folded, FoldKind, PartRef, Rewound, Unfolded
from helix_desktop.engine.messages import ContextKind
from helix_desktop.gui.common.fold_descriptions import context_kind_of_fold
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline import fold_list
from helix_desktop.gui.timeline.conversation_timeline import ConversationTimeline, TimelineEvent
from helix_desktop.gui.timeline.fold_list import (
    FIGURES_LINE,
    ROW,
    SEPARATOR,
    FoldList,
    describe_event_state,
    describe_event_time,
    wrap_figures,
)
from helix_desktop.gui.timeline.fold_sentences import describe_event_briefly, describe_event_title
from tests.gui.timeline.conftest import Written
from tests.gui.timeline.recording_painter import RecordingPainter

ROLE = Qt.ItemDataRole


@pytest.fixture
def story(written: Written) -> ConversationTimeline:
    made = ConversationTimeline()
    made.read_all_facts(written.facts)
    return made


@pytest.fixture
def rows(theme: Theme, story: ConversationTimeline) -> FoldList:
    made = FoldList(theme)
    made.resize(600, 400)
    made.show_fold_events(list(reversed(story.events)), keep=None)
    made.show()
    return made


@pytest.fixture
def long_rows(rows: FoldList, written: Written) -> FoldList:
    """A row that is newer than the others, and has more words than fit in a narrow line."""
    output = written.output(9)
    asked = "failing tests and panics only, with the lines around them"
    written.add(Folded("e", FoldKind.EXCERPT, PartRef(output), "…", 400, 5_000, asked=asked))
    longer = ConversationTimeline()
    longer.read_all_facts(written.facts)
    rows.show_fold_events(list(reversed(longer.events)), keep=None)
    return rows


def test_a_row_says_what_was_shortened_when_and_what_it_did(rows: FoldList) -> None:
    newest = rows.rows.items[0]
    index = rows.rows.index(0)
    title = describe_event_title(newest)
    brief = describe_event_briefly(newest)
    spoken = f"{title}, {describe_event_time(newest)}, {brief}"
    assert rows.rows.data(index) == spoken
    assert rows.rows.data(index, ROLE.AccessibleTextRole) == spoken
    assert rows.rows.data(index, ROLE.DecorationRole) is None
    tooltip = str(rows.rows.data(index, ROLE.ToolTipRole))
    assert title in tooltip
    assert "tokens" in tooltip


def test_an_undone_row_says_so_and_the_start_of_the_conversation_is_never_undone(
    rows: FoldList, story: ConversationTimeline, written: Written
) -> None:
    assert "undone" not in str(rows.rows.data(rows.rows.index(0)))
    written.add(Unfolded("h2"))
    story.read_next_fact(written.facts[-1])
    assert str(rows.rows.data(rows.rows.index(0))).endswith(", undone")
    states = [describe_event_state(event) for event in story.events]
    assert states == ["", "", "", "undone"]


def test_a_row_that_a_rewind_left_behind_says_so_and_not_that_it_was_undone(
    rows: FoldList, story: ConversationTimeline, written: Written
) -> None:
    written.add(Rewound(5))
    story.read_next_fact(written.facts[-1])
    words = str(rows.rows.data(rows.rows.index(0)))
    assert words.endswith(", no longer part of this conversation")
    assert "undone" not in words
    assert describe_event_state(story.events[0]) == ""


def test_the_time_of_several_that_share_a_row_is_from_the_first_to_the_last(
    story: ConversationTimeline,
) -> None:
    event = story.events[1]
    alone = describe_event_time(event)
    assert "–" not in alone
    together = describe_event_time(replace(event, last_time=event.time + 600))
    assert together.startswith(f"{alone}–")
    assert together[-2:] != alone[-2:]


def width_of(words: str, metrics: QFontMetrics) -> int:
    return metrics.horizontalAdvance(words)


def test_figures_are_broken_between_two_of_them_where_they_no_longer_fit(theme: Theme) -> None:
    metrics = QFontMetrics(theme.build_font())
    both = SEPARATOR.join(("one figure", "another"))
    room = width_of(both, metrics)
    assert wrap_figures(both, metrics, room) == [both]
    assert wrap_figures(both, metrics, room - 1) == ["one figure", "another"]


def test_a_figure_longer_than_a_line_is_broken_between_words_and_a_longer_word_is_cut(
    theme: Theme,
) -> None:
    metrics = QFontMetrics(theme.build_font())
    room = width_of("two words", metrics)
    assert wrap_figures("two words more", metrics, room) == ["two words", "more"]
    (cut,) = wrap_figures("w" * 80, metrics, room)
    assert cut.endswith("…")
    assert width_of(cut, metrics) <= room


def heights(rows: FoldList) -> list[int]:
    option = QStyleOptionViewItem()
    delegate = rows.itemDelegate()
    count = rows.rows.rowCount()
    return [delegate.sizeHint(option, rows.rows.index(row)).height() for row in range(count)]


def test_a_row_is_higher_by_a_line_for_each_line_of_figures_beyond_the_first(
    rows: FoldList, theme: Theme
) -> None:
    rows.resize(2_000, 400)
    assert set(heights(rows)) == {theme.zoomed_pixels(ROW)}
    rows.resize(230, 400)
    narrow = heights(rows)
    line = theme.zoomed_pixels(FIGURES_LINE)
    extra = [height - theme.zoomed_pixels(ROW) for height in narrow]
    assert max(extra) >= line
    assert all(height % line == 0 for height in extra)


def test_in_a_very_long_list_all_rows_are_equally_high(
    rows: FoldList, story: ConversationTimeline, theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.resize(230, 400)
    monkeypatch.setattr(fold_list, "MOST_MEASURED_ROWS", len(story.events))
    rows.show_fold_events(story.events, keep=None)
    assert not rows.uniformItemSizes()
    monkeypatch.setattr(fold_list, "MOST_MEASURED_ROWS", len(story.events) - 1)
    rows.show_fold_events(story.events, keep=None)
    assert rows.uniformItemSizes()
    assert set(heights(rows)) == {theme.zoomed_pixels(ROW)}


def test_a_row_that_is_clicked_is_chosen_and_one_that_stays_chosen_is_not_chosen_again(
    rows: FoldList, story: ConversationTimeline
) -> None:
    chosen = QSignalSpy(rows.chosen)
    second = rows.rows.items[1]
    place = rows.visualRect(rows.rows.index(1)).center()
    QTest.mouseClick(rows.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert [chosen.at(number)[0] for number in range(chosen.count())] == [second]
    rows.show_fold_events(list(reversed(story.events)), keep=second)
    assert chosen.count() == 1
    assert rows.currentIndex().row() == 1
    QTest.keyClick(rows, Qt.Key.Key_Down)
    assert chosen.at(1)[0] is rows.rows.items[2]


def test_new_rows_leave_the_list_where_it_was_scrolled_to(
    rows: FoldList, story: ConversationTimeline
) -> None:
    many = list(story.events) * 20
    rows.show_fold_events(many, keep=None)
    rows.doItemsLayout()
    rows.verticalScrollBar().setValue(120)
    rows.show_fold_events(many, keep=None)
    assert rows.verticalScrollBar().value() == 120


def test_an_event_is_found_in_the_row_that_it_shares_with_others(
    rows: FoldList, story: ConversationTimeline
) -> None:
    start, markers, first, second = story.events
    shared = replace(first, made_folds=first.made_folds + second.made_folds, last_time=second.time)
    shown: list[TimelineEvent] = [shared, markers, start]
    rows.show_fold_events(shown, keep=None)
    assert not rows.currentIndex().isValid()
    rows.select_fold_event(first)
    assert rows.currentIndex().row() == 0
    rows.select_fold_event(None)
    assert rows.currentIndex().row() == 0
    rows.select_fold_event(markers)
    assert rows.currentIndex().row() == 1


def test_an_event_of_another_conversation_or_time_is_in_no_row(
    rows: FoldList, story: ConversationTimeline, written: Written
) -> None:
    other = ConversationTimeline()
    other.read_all_facts(written.facts)
    rows.show_fold_events(story.events[1:], keep=None)
    rows.select_fold_event(other.events[2])
    assert not rows.currentIndex().isValid()
    rows.select_fold_event(replace(story.events[2], time=story.events[2].time + 1))
    assert not rows.currentIndex().isValid()
    rows.select_fold_event(replace(story.events[2]))
    assert rows.currentIndex().row() == 1


def painted(
    rows: FoldList, row: int, height: int, width: int = 600, *, is_selected: bool = False
) -> RecordingPainter:
    painter = RecordingPainter(width, height)
    option = QStyleOptionViewItem()
    option.rect = QRect(0, 0, width, height)
    if is_selected:
        option.state |= QStyle.StateFlag.State_Selected
    delegate: Any = rows.itemDelegate()
    delegate.draw_row(painter, option, rows.rows.index(row))
    painter.end()
    return painter


def words_of(painter: RecordingPainter) -> list[str]:
    return [painted_words.text for painted_words in painter.words]


def test_a_row_has_its_title_the_time_behind_it_and_the_figures_below(
    rows: FoldList, theme: Theme
) -> None:
    event = rows.rows.items[0]
    painter = painted(rows, 0, ROW, width=720)
    title, when, *figures = painter.words
    assert (title.text, when.text) == (describe_event_title(event), describe_event_time(event))
    assert [line.text for line in figures] == [describe_event_briefly(event)]
    assert title.rect.top() == when.rect.top()
    assert when.rect.left() > title.rect.left() + 20
    assert figures[0].rect.left() == title.rect.left()
    assert figures[0].rect.top() >= title.rect.top() + QFontMetrics(theme.build_font()).height()
    assert figures[0].rect.bottom() <= ROW
    assert not title.is_struck_out
    (ring,) = painter.shapes
    assert ring.rect.right() < title.rect.left()
    assert title.rect.top() <= ring.rect.center().y() <= title.rect.bottom()


def test_an_undone_row_is_struck_out_and_a_selected_one_stands_on_a_surface(
    rows: FoldList, story: ConversationTimeline, written: Written
) -> None:
    plain = painted(rows, 0, ROW)
    assert len(painted(rows, 0, ROW, is_selected=True).shapes) == len(plain.shapes) + 1
    written.add(Unfolded("h2"))
    story.read_next_fact(written.facts[-1])
    title, when, below = painted(rows, 0, ROW).words
    assert title.is_struck_out
    assert title.colour != plain.words[0].colour
    assert below.text.startswith("undone · ")
    assert not when.is_struck_out
    assert not below.is_struck_out


def test_an_undone_row_of_a_narrow_list_keeps_as_much_of_its_title_as_any_other(
    rows: FoldList, story: ConversationTimeline, written: Written
) -> None:
    title_before = painted(rows, 2, ROW, width=230).words[0].text
    for number in range(3):
        written.add(Unfolded(f"m{number}"))
        story.read_next_fact(written.facts[-1])
    title, when, *_ = painted(rows, 2, ROW, width=230).words
    assert title.is_struck_out
    assert title.text == title_before
    assert len(title.text) > 3
    assert when.text.startswith(describe_event_time(rows.rows.items[2]))


def test_each_kind_has_a_ring_in_its_own_colour(rows: FoldList) -> None:
    colours = [painted(rows, row, ROW).shapes[0].colour for row in range(4)]
    summary, earlier_summary, markers, _start = colours
    assert summary == earlier_summary
    assert markers != summary


def test_lines_that_have_no_room_are_cut_and_those_that_have_are_below_each_other(
    long_rows: FoldList, theme: Theme
) -> None:
    rows = long_rows
    metrics = QFontMetrics(theme.build_font())
    brief = describe_event_briefly(rows.rows.items[0])
    high = painted(rows, 0, ROW + 6 * FIGURES_LINE, width=300).words[2:]
    assert len(high) > 1
    assert SEPARATOR.join(line.text for line in high).replace(SEPARATOR, " ") == brief.replace(
        SEPARATOR, " "
    )
    tops = [line.rect.top() for line in high]
    assert all(after - before >= metrics.height() for before, after in itertools.pairwise(tops))
    low = painted(rows, 0, ROW, width=300).words[2:]
    assert len(low) == 1
    assert low[0].text.endswith("…")
    assert low[0].text[:5] == brief[:5]


def test_in_a_narrow_row_the_title_has_the_line_and_the_time_is_below(
    rows: FoldList, theme: Theme
) -> None:
    """In German at 900x600, "Zusa…" stood beside the time."""
    title, below, *_ = painted(rows, 2, ROW, width=230).words
    assert len(title.text) > 18
    assert below.text.startswith(describe_event_time(rows.rows.items[2]))
    assert below.rect.top() > title.rect.top()
    metrics = QFontMetrics(theme.build_font())
    assert below.rect.left() + metrics.horizontalAdvance(below.text) <= 230


def test_a_long_time_stands_below_the_title_of_a_narrow_row(
    rows: FoldList, story: ConversationTimeline
) -> None:
    """There was no title at all beside it."""
    month = 30 * 86_400
    event = replace(story.events[1], time=story.events[1].time - month, last_time=time.time())
    rows.show_fold_events([event], keep=None)
    title, below, *_ = painted(rows, 0, ROW + 6 * FIGURES_LINE, width=230).words
    assert len(title.text) > 8
    assert below.text.startswith(describe_event_time(event)[:6])


def test_a_resized_list_keeps_the_chosen_row_in_sight(
    rows: FoldList, story: ConversationTimeline
) -> None:
    many = list(story.events) * 20
    rows.show_fold_events(many, keep=None)
    rows.setCurrentIndex(rows.rows.index(60))
    rows.resize(600, 160)
    for _ in range(5):
        QApplication.processEvents()
    assert rows.viewport().rect().intersects(rows.visualRect(rows.rows.index(60)))


def test_everything_of_a_row_has_its_exact_place(long_rows: FoldList, theme: Theme) -> None:
    rows = long_rows
    event = rows.rows.items[0]
    painter = painted(rows, 0, ROW + FIGURES_LINE, width=300)
    title, when, first, second = painter.words
    assert title.rect.getCoords() == (48, 8, 300 - 18, 28)
    width = QFontMetrics(theme.build_font(weight=QFont.Weight.DemiBold)).horizontalAdvance(
        title.text
    )
    assert when.rect.getCoords() == (48 + width + 10, 8, 300 - 18, 28)
    assert first.rect.top() - title.rect.top() == theme.zoomed_pixels(19.5)
    assert second.rect.top() - first.rect.top() == theme.zoomed_pixels(19.5)
    (ring,) = painter.shapes
    assert ring.rect.getCoords() == (26, 14, 34, 22)
    kind = context_kind_of_fold(event.fold_kind) if event.fold_kind else ContextKind.OUTPUT
    assert ring.colour == theme.fill_colour_of_kind(kind).name()
    assert (title.colour, when.colour) == (
        theme.colour_of_token("text").name(),
        theme.colour_of_token("faint").name(),
    )
    assert first.colour == second.colour == theme.colour_of_token("muted").name()
    surface = painted(rows, 0, ROW, is_selected=True).shapes[0]
    assert surface.rect.getCoords() == (12, 0, 600 - 12, ROW - 2)


def test_as_many_lines_are_drawn_as_the_row_has_room_for(long_rows: FoldList) -> None:
    rows = long_rows
    lines = len(painted(rows, 0, ROW + 9 * FIGURES_LINE, width=300).words) - 2
    assert lines > 2
    for room in range(1, lines + 1):
        height = ROW + (room - 1) * FIGURES_LINE
        for higher in (0, FIGURES_LINE - 1):
            figures = painted(rows, 0, height + higher, width=300).words[2:]
            assert len(figures) == room
            assert figures[-1].text.endswith("…") is (room < lines)


def test_a_list_says_what_it_is_and_is_never_lower_than_two_rows(rows: FoldList) -> None:
    assert rows.accessibleName() == "What was shortened, newest first"
    assert rows.minimumHeight() == 2 * ROW
    assert rows.selectionMode() is QAbstractItemView.SelectionMode.SingleSelection
    assert rows.verticalScrollMode() is QAbstractItemView.ScrollMode.ScrollPerPixel
