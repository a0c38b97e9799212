from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from PySide6.QtCore import QModelIndex, QPoint, Qt
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.list_rows import ConversationListRow as Row
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.frame.conversation_list import (
    ROWS_PER_FETCH,
    ConversationGroupHeading,
    ConversationList,
    format_age,
    format_age_below_heading,
    group_conversations,
    has_second_line,
    list_parts_of_second_line,
)
from helix_desktop.gui.theme import Theme
from tests.gui.fake_desk import parts

NOW = datetime(2026, 11, 20, 15, 0, tzinfo=UTC).astimezone().replace(hour=15).timestamp()
HOUR = 3_600
DAY = 86_400


def lines(rows: list[Row], words: str = "", place: str = "") -> list[str]:
    return [
        f"[{line.text}]" if isinstance(line, ConversationGroupHeading) else line.title
        for line in group_conversations(rows, words=words, place=place, now=NOW)
    ]


ROWS = [
    Row("a", "Old", NOW - 3 * DAY),
    Row("b", "New", NOW - HOUR),
    Row("c", "Newest", NOW - 60),
    Row("d", "Held", NOW - 9 * DAY, pinned=True),
    Row("e", "Put away", NOW, archived=True),
    Row("f", "Thrown away", NOW, trashed=True),
    Row("g", "A helper's", NOW, parent="a"),
]


def test_pinned_then_today_then_earlier_newest_first() -> None:
    assert lines(ROWS) == ["[Pinned]", "Held", "[Today]", "Newest", "New", "[Earlier]", "Old"]


def test_archive_and_trash_are_places_of_their_own() -> None:
    assert lines(ROWS, place="archived") == ["[Archive]", "Put away"]
    assert lines(ROWS, place="trashed") == ["[Trash]", "Thrown away"]


def test_every_word_has_to_be_in_the_title() -> None:
    assert lines(ROWS, words="new") == ["[Today]", "Newest", "New"]
    assert lines(ROWS, words="new old") == []


def test_ages_are_short() -> None:
    assert format_age(NOW - 5, NOW) == "now"
    assert format_age(NOW - 300, NOW) == "5m"
    assert format_age(NOW - 3 * HOUR, NOW) == "3h"
    assert format_age(NOW - 30 * DAY, NOW) == "21 Oct"
    assert format_age(NOW - 800 * DAY, NOW) == "2024"
    december = datetime(2025, 12, 30, 12, tzinfo=UTC).timestamp()
    assert format_age(datetime(2025, 1, 2, 12, tzinfo=UTC).timestamp(), december) == "2 Jan"


def test_below_the_heading_yesterday_stands_the_time_of_day() -> None:
    """“Sat” beside “Yesterday” said the day twice."""
    yesterday = NOW - 22 * HOUR
    assert ":00" in format_age_below_heading(Row("a", "A", yesterday), NOW)
    assert format_age_below_heading(Row("a", "A", yesterday, pinned=True), NOW) == "Thu"
    assert format_age_below_heading(Row("a", "A", yesterday, archived=True), NOW) == "Thu"
    assert format_age_below_heading(Row("a", "A", NOW - 3 * HOUR), NOW) == "3h"
    assert format_age_below_heading(Row("a", "A", NOW - 2 * DAY), NOW) == "Wed"


def test_rows_are_fetched_as_they_are_needed(theme: Theme) -> None:
    shown = ConversationList(theme)
    shown.lines.replace_list_lines(
        group_conversations([Row(str(n), f"Talk {n}", NOW - n) for n in range(5_000)], now=NOW)
    )
    assert shown.lines.rowCount() == ROWS_PER_FETCH
    shown.select_conversation("450")
    assert shown.selected_conversation_id() == "450"
    assert shown.lines.rowCount() < 1_000
    while shown.lines.canFetchMore(QModelIndex()):
        shown.lines.fetchMore(QModelIndex())
    assert shown.lines.rowCount() >= 5_001


def test_a_click_opens_a_conversation_and_a_heading_does_nothing(theme: Theme) -> None:
    shown = ConversationList(theme)
    shown.resize(252, 400)
    shown.lines.replace_list_lines(group_conversations(ROWS, now=NOW))
    shown.show()
    opened = QSignalSpy(shown.opened)
    QTest.mouseClick(shown.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(60, 10))
    QTest.mouseClick(shown.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(60, 40))
    assert [opened.at(at)[0] for at in range(opened.count())] == ["d"]


def test_the_neighbour_is_past_the_headings(theme: Theme) -> None:
    shown = ConversationList(theme)
    shown.lines.replace_list_lines(group_conversations(ROWS, now=NOW))
    shown.select_conversation("b")
    assert (shown.find_neighbour_conversation(1), shown.find_neighbour_conversation(-1)) == (
        "a",
        "c",
    )
    shown.select_conversation("a")
    assert shown.find_neighbour_conversation(1) == ""


def test_a_screen_reader_hears_title_and_state(theme: Theme) -> None:
    shown = ConversationList(theme)
    row = Row("a", "Extract the lock manager", NOW, parts(4, 9, 0, 8, 13))
    shown.lines.replace_list_lines(group_conversations([row], now=NOW))
    shown.lines.update_running_state("a", ConversationActivity.ASKING)
    said = shown.lines.index(1).data(Qt.ItemDataRole.AccessibleTextRole)
    assert said == "Extract the lock manager, needs you"
    shown.lines.replace_list_lines(
        group_conversations([Row("a", "Brought from elsewhere", NOW)], now=NOW)
    )
    shown.lines.update_running_state("a", ConversationActivity.IDLE)
    assert shown.lines.index(1).data(Qt.ItemDataRole.AccessibleTextRole) == "Brought from elsewhere"


def test_a_second_line_stands_only_where_there_is_something_to_say(theme: Theme) -> None:
    shown = ConversationList(theme)
    shown.resize(252, 400)
    quiet = Row("a", "Quiet", NOW, parts(4, 9, 0, 8, 13))
    agents = Row("b", "Theirs", NOW - 1, agent="Codex")
    shown.lines.replace_list_lines(group_conversations([quiet, agents], now=NOW))
    shown.show()
    heights = [shown.visualRect(shown.lines.index(at)).height() for at in (1, 2)]
    assert heights[0] < heights[1]
    shown.lines.update_running_state("a", ConversationActivity.ASKING)
    QApplication.processEvents()
    assert shown.visualRect(shown.lines.index(1)).height() == heights[1]


def test_the_list_says_which_program_recorded_a_conversation(theme: Theme) -> None:
    """Six recorded conversations had one beginning, and nothing told Claude Code's from Codex's."""
    shown = ConversationList(theme)
    recorded = Row("a", "Ledger work", NOW, recorded_from="Claude Code")
    shown.lines.replace_list_lines(group_conversations([recorded], now=NOW))
    said = shown.lines.index(1).data(Qt.ItemDataRole.AccessibleTextRole)
    assert (said, has_second_line(recorded, ConversationActivity.IDLE)) == (
        "Claude Code: Ledger work",
        True,
    )


def test_the_list_says_which_conversation_was_interrupted(theme: Theme) -> None:
    shown = ConversationList(theme)
    rows = [Row("a", "Ledger work", NOW, is_interrupted=True), Row("b", "Done", NOW - 1)]
    shown.lines.replace_list_lines(group_conversations(rows, now=NOW))
    index = shown.lines.index(1)
    assert index.data(Qt.ItemDataRole.AccessibleTextRole) == "interrupted: Ledger work"
    assert [has_second_line(row, ConversationActivity.IDLE) for row in rows] == [True, False]
    shown.show()
    assert shown.visualRect(index).height() > shown.visualRect(shown.lines.index(2)).height()
    shown.lines.update_running_state("a", ConversationActivity.THINKING)
    assert index.data(Qt.ItemDataRole.AccessibleTextRole) == "Ledger work, running"


def test_an_update_keeps_the_place_of_the_reader(theme: Theme) -> None:
    shown = ConversationList(theme)
    shown.resize(252, 200)
    rows = [Row(str(n), f"Talk {n}", NOW - n) for n in range(50)]
    shown.lines.replace_list_lines(group_conversations(rows, now=NOW))
    shown.show()
    shown.verticalScrollBar().setValue(300)
    shown.lines.replace_list_lines(
        group_conversations([*rows[:-1], Row("49", "Talk 49, renamed", NOW - 49)], now=NOW)
    )
    assert shown.verticalScrollBar().value() == 300
    assert shown.lines.index(50).data() == "Talk 49, renamed"


def test_who_writes_there_stands_in_the_line_and_is_spoken(theme: Theme) -> None:
    shown = ConversationList(theme)
    bare = Row("a", "Talk", NOW)
    agents = Row("a", "Talk", NOW, agent="Claude Code")
    shown.resize(260, 120)
    pictures = []
    for row in (bare, agents):
        shown.lines.replace_list_lines([row])
        pictures.append(shown.grab().toImage())
    assert pictures[0] != pictures[1]
    said = shown.lines.data(shown.lines.index(0, 0), Qt.ItemDataRole.AccessibleTextRole)
    assert str(said).startswith("Claude Code: Talk")


def test_the_end_of_a_title_that_tells_a_copy_apart_is_drawn(theme: Theme) -> None:
    pictures = []
    for end in ("(restored)", "(from Codex)", "at noon", "at night"):
        shown = ConversationList(theme)
        shown.resize(240, 300)
        shown.lines.replace_list_lines(
            [Row("a", f"Extract the lock manager into a module of its own {end}", NOW)]
        )
        pictures.append(shown.grab().toImage())
    assert pictures[0] != pictures[1]
    assert pictures[2] == pictures[3], "of other titles, the beginning is drawn"


def test_only_the_lines_that_changed_are_drawn_anew(theme: Theme) -> None:
    shown = ConversationList(theme)
    rows = [Row(str(n), f"Talk {n}", NOW - n) for n in range(9)]
    shown.lines.replace_list_lines(group_conversations(rows, now=NOW))
    shown.lines.replace_list_lines(group_conversations(rows, now=NOW))
    changed = QSignalSpy(shown.lines.dataChanged)
    shown.lines.replace_list_lines(
        group_conversations([*rows[:4], Row("4", "Talk 4, renamed", NOW - 4), *rows[5:]], now=NOW)
    )
    lines = {changed.at(at)[0].row() for at in range(changed.count())}
    assert lines in ({5}, set(range(10)))  # all of them where a minute has passed meanwhile


@pytest.mark.usefixtures("clocks_changed_today")
def test_today_begins_at_midnight_also_where_the_clocks_changed_in_the_night() -> None:
    now = time.time()
    hours, minutes, seconds = time.localtime(now)[3:6]
    midnight = (
        int(now) - (hours - 1) * HOUR - minutes * 60 - seconds
    )  # The night was an hour shorter.
    found = group_conversations(
        [Row("a", "Late", midnight - 1), Row("b", "Early", midnight)], now=now
    )
    texts = [
        line.text if isinstance(line, ConversationGroupHeading) else line.title for line in found
    ]
    assert texts == ["Today", "Early", "Yesterday", "Late"]


def test_what_was_done_before_midnight_is_of_yesterday() -> None:
    """Three minutes old, it stood under Earlier."""
    now = datetime.fromtimestamp(NOW, UTC).astimezone()
    just_after_midnight = now.replace(hour=0, minute=2).timestamp()
    rows = [
        Row("a", "Three minutes old", just_after_midnight - 180),
        Row("b", "A day and more", just_after_midnight - 23 * HOUR),
        Row("c", "Two days", just_after_midnight - 2 * DAY),
    ]
    found = [
        line.text if isinstance(line, ConversationGroupHeading) else line.title
        for line in group_conversations(rows, now=just_after_midnight)
    ]
    assert found == ["Yesterday", "Three minutes old", "A day and more", "Earlier", "Two days"]


@pytest.mark.parametrize("running", [ConversationActivity.ASKING, ConversationActivity.IDLE])
def test_the_cost_is_where_the_pointer_is_and_never_comes_and_goes_in_the_row(
    theme: Theme, running: ConversationActivity
) -> None:
    """It stood in the row while the agent waited, and was gone once it was done."""
    row = Row("c", "Newest", NOW - 60, cost=0.06, is_interrupted=True)
    shown = ConversationList(theme)
    shown.lines.replace_list_lines(group_conversations([row], now=NOW))
    shown.lines.update_running_state("c", running)
    second_line = [part.text for part in list_parts_of_second_line(row, running)]
    assert "$" not in "".join(second_line)
    index = shown.lines.index(1)
    assert "Cost so far: $0.060" in index.data(Qt.ItemDataRole.ToolTipRole)
    assert "$" not in index.data(Qt.ItemDataRole.AccessibleTextRole)
