"""Selecting, copying, clicking and walking through the chat, by real mouse and keyboard events."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QPoint, QRectF, Qt
from PySide6.QtGui import QColor, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMessageBox

from helix_desktop.engine.facts import PartRef, Rewound
from helix_desktop.engine.session_events import FactAppended
from helix_desktop.engine.view import build_state
from helix_desktop.gui.transcript.basic_boxes import ToggleSection
from helix_desktop.gui.transcript.chat_actions import (
    ActOnMessage,
    ChatIntent,
    MessageAct,
    OpenEntry,
    OpenFile,
    OpenLink,
    PinPart,
    RecallEntry,
)
from helix_desktop.gui.transcript.transcript_item import TranscriptItemKind
from helix_desktop.gui.transcript.transcript_pane import TranscriptPane
from helix_desktop.gui.transcript.transcript_view import list_item_intents
from tests.gui.transcript.facts import OUTPUT, Told, call

Settle = Callable[[], None]
LEFT = Qt.MouseButton.LeftButton
CONTROL = Qt.KeyboardModifier.ControlModifier
SHIFT = Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def told() -> Told:
    made = Told()
    made.user("The first message.")
    made.reply("An **answer** with [a link](https://example.org/x).", call(1))
    made.returned("c1")
    made.marker(3)
    made.user("The last message.")
    return made


@pytest.fixture
def wanted(pane: TranscriptPane, told: Told, settle: Settle) -> list[ChatIntent]:
    pane.open_transcript(build_state(told.facts))
    settle()
    found: list[ChatIntent] = []
    pane.intent_requested.connect(found.append)
    pane.view.setFocus()
    return found


def at(pane: TranscriptPane, index: int, inner: QRectF) -> QPoint:
    return pane.view.rect_in_viewport(index, inner).center().toPoint()


def hot(pane: TranscriptPane, index: int, kind: type) -> QPoint:
    laid = pane.view.column.lay_out_fully(index)
    found = next(
        place
        for spot in laid.list_hot_spots()
        for act, place in [laid.hot_spot_and_rect(spot)]
        if isinstance(act.act, kind)
    )
    return at(pane, index, found)


def drag(pane: TranscriptPane, start: QPoint, end: QPoint) -> None:
    view = pane.view.viewport()
    QTest.mousePress(view, LEFT, pos=start)
    QTest.mouseMove(view, start + QPoint(0, 12))
    move(pane, end)
    QTest.mouseRelease(view, LEFT, pos=end)


def move(pane: TranscriptPane, point: QPoint) -> None:
    from PySide6.QtCore import QEvent, QPointF
    from PySide6.QtGui import QMouseEvent

    where = QPointF(point)
    event = QMouseEvent(
        QEvent.Type.MouseMove, where, where, LEFT, LEFT, Qt.KeyboardModifier.NoModifier
    )
    QApplication.sendEvent(pane.view.viewport(), event)


def test_a_selection_goes_across_messages(pane: TranscriptPane, wanted: list[ChatIntent]) -> None:
    column = pane.view.column
    start = at(pane, 0, column.lay_out_fully(0).caret_rect_at(4))
    last = len(pane.view.items.all) - 1
    end = at(pane, last, column.lay_out_fully(last).caret_rect_at(8))
    drag(pane, start, end)
    QTest.keyClick(pane.view, Qt.Key.Key_C, CONTROL)
    text = QGuiApplication.clipboard().text()
    assert text.startswith("first message.")
    assert text.endswith("The last")
    assert "An answer with a link." in text
    assert not wanted


def test_all_is_copied_as_markdown(pane: TranscriptPane, wanted: list[ChatIntent]) -> None:
    QTest.keyClick(pane.view, Qt.Key.Key_A, CONTROL)
    QTest.keyClick(pane.view, Qt.Key.Key_C, CONTROL | SHIFT)
    text = QGuiApplication.clipboard().text()
    assert "An **answer** with [a link](https://example.org/x)." in text
    assert "`Read src/a.rs`" in text
    assert text.endswith("The last message.")


def test_the_keyboard_selects(pane: TranscriptPane, wanted: list[ChatIntent]) -> None:
    column = pane.view.column
    QTest.mouseClick(
        pane.view.viewport(), LEFT, pos=at(pane, 0, column.lay_out_fully(0).caret_rect_at(0))
    )
    for _ in range(3):
        QTest.keyClick(pane.view, Qt.Key.Key_Right, SHIFT)
    assert pane.view.selected_text() == "The"
    QTest.keyClick(pane.view, Qt.Key.Key_End, SHIFT)
    assert pane.view.selected_text() == "The first message."
    QTest.keyClick(pane.view, Qt.Key.Key_End, SHIFT | CONTROL)
    assert pane.view.selected_text().endswith("The last message.")
    QTest.keyClick(pane.view, Qt.Key.Key_Up, SHIFT)
    assert not pane.view.selected_text().endswith("The last message.")
    QTest.keyClick(pane.view, Qt.Key.Key_Escape)
    assert pane.view.selected_text() == ""


def test_a_double_click_selects_a_word(pane: TranscriptPane, wanted: list[ChatIntent]) -> None:
    point = at(pane, 0, pane.view.column.lay_out_fully(0).caret_rect_at(6))
    QTest.mouseClick(pane.view.viewport(), LEFT, pos=point)
    QTest.mouseDClick(pane.view.viewport(), LEFT, pos=point)
    assert pane.view.selected_text() == "first"


def test_a_click_opens_and_closes_a_call(
    pane: TranscriptPane, wanted: list[ChatIntent], settle: Settle
) -> None:
    before = pane.view.column.lay_out_fully(2).current_height
    top = pane.view.column.content_top(2)
    point = at(pane, 2, QRectF(20, 19, 2, 2))
    QTest.mouseClick(pane.view.viewport(), LEFT, pos=point)
    settle()
    assert pane.view.column.lay_out_fully(2).current_height > before
    assert pane.view.column.content_top(2) == top
    QTest.mouseClick(pane.view.viewport(), LEFT, pos=point)
    settle()
    assert pane.view.column.lay_out_fully(2).current_height == before
    assert not wanted


def test_recall_and_the_hash_are_wanted(pane: TranscriptPane, wanted: list[ChatIntent]) -> None:
    QTest.mouseClick(pane.view.viewport(), LEFT, pos=hot(pane, 2, RecallEntry))
    QTest.mouseClick(pane.view.viewport(), LEFT, pos=hot(pane, 2, OpenEntry))
    assert wanted == [RecallEntry(OUTPUT.digest), OpenEntry(OUTPUT.digest)]


def test_a_link_asks_before_it_opens(
    pane: TranscriptPane, wanted: list[ChatIntent], settle: Settle
) -> None:
    laid = pane.view.column.lay_out_fully(1)
    spots = [laid.hot_spot_and_rect(spot) for spot in laid.list_hot_spots()]
    link = next(rect for spot, rect in spots if spot.name == "a link")
    QTest.mouseClick(pane.view.viewport(), LEFT, pos=at(pane, 1, link))
    settle()
    assert wanted == []
    boxes = [each for each in QApplication.topLevelWidgets() if isinstance(each, QMessageBox)]
    (box,) = [each for each in boxes if each.isVisible()]
    assert "https://example.org/x" in box.text()
    opening = next(b for b in box.buttons() if "Open" in b.text())
    QTest.mouseClick(opening, LEFT)
    assert wanted == [OpenLink("https://example.org/x")]


def test_tab_walks_through_what_can_be_clicked(
    pane: TranscriptPane, wanted: list[ChatIntent]
) -> None:
    pane.window().activateWindow()
    names = []
    for _ in range(12):
        if not pane.view.focusNextPrevChild(True):
            break
        found = pane.view._focused_hot_spot()
        if found is None:
            break
        names.append(found.name)
        if found.name == "Recall":
            QTest.keyClick(pane.view, Qt.Key.Key_Return)
    assert names[:3] == ["Copy message", "a link", "Copy message"]
    assert "Recall" in names
    assert any(name.startswith("Read src/a.rs, cached") for name in names)
    assert wanted == [RecallEntry(OUTPUT.digest)]


def test_tab_reaches_each_path_in_a_block_of_code_once(
    pane: TranscriptPane, settle: Settle
) -> None:
    """The defect: a path in code could only be pressed with the mouse."""
    told = Told()
    told.user("Where is it?")
    told.reply("```\nsrc/a.rs:7: fn lock\nsrc/b.rs\nsrc/a.rs:7: once more\n```")
    pane.open_transcript(build_state(told.facts))
    settle()
    found: list[ChatIntent] = []
    pane.intent_requested.connect(found.append)
    pane.window().activateWindow()
    pane.view.setFocus()
    names = []
    while pane.view.focusNextPrevChild(True):
        spot = pane.view._focused_hot_spot()
        if spot is None:
            break
        names.append(spot.name)
        if spot.name.startswith("src/"):
            pane.view.grab()
            QTest.keyClick(pane.view, Qt.Key.Key_Return)
    assert [name for name in names if name.startswith("src/")] == ["src/a.rs:7", "src/b.rs"]
    assert found == [OpenFile("src/a.rs", 7, 7), OpenFile("src/b.rs")]


def test_what_can_be_done_with_an_item(pane: TranscriptPane, wanted: list[ChatIntent]) -> None:
    assert [want for _, want in list_item_intents(pane.view.items, 0)] == [
        ActOnMessage(MessageAct.EDIT, 1),
        ActOnMessage(MessageAct.FORK, 1),
        ActOnMessage(MessageAct.REWIND, 1),
        PinPart(PartRef(1)),
    ]
    assert PinPart(PartRef(3)) in [want for _, want in list_item_intents(pane.view.items, 2)]


def test_a_conversation_that_a_connected_agent_writes_offers_nothing_that_only_it_can_do(
    pane: TranscriptPane, wanted: list[ChatIntent]
) -> None:
    """Here, its history went back, and its own did not."""
    items = pane.view.items
    items.is_written_by_connected_agent = True
    offered: list[object] = []
    for index in range(len(items.all)):
        offered.extend(intent for _, intent in list_item_intents(items, index))
    acts = {intent.act for intent in offered if isinstance(intent, ActOnMessage)}
    assert acts == {MessageAct.FORK, MessageAct.SHOW_REQUEST}


def test_of_an_agent_that_keeps_its_own_context_no_request_is_shown_and_nothing_is_pinned(
    pane: TranscriptPane, wanted: list[ChatIntent]
) -> None:
    items = pane.view.items
    items.history.acp_agent = "Echo agent"
    offered: list[object] = []
    for index in range(len(items.all)):
        offered.extend(intent for _, intent in list_item_intents(items, index))
    acts = {intent.act for intent in offered if isinstance(intent, ActOnMessage)}
    assert MessageAct.REGENERATE in acts
    assert MessageAct.SHOW_REQUEST not in acts
    assert not any(isinstance(intent, PinPart) for intent in offered)


def test_a_rewound_part_opens_with_a_click(
    pane: TranscriptPane, told: Told, wanted: list[ChatIntent], settle: Settle
) -> None:
    pane.view.apply_events([FactAppended(told.add(Rewound(1)))])
    settle()
    assert pane.view.items.is_item_hidden(1)
    QTest.mouseClick(
        pane.view.viewport(), LEFT, pos=hot(pane, len(pane.view.items.all) - 1, ToggleSection)
    )
    settle()
    assert not pane.view.items.is_item_hidden(1)


def test_an_opened_rewound_part_looks_replaced_and_can_be_closed_where_it_begins(
    pane: TranscriptPane, told: Told, wanted: list[ChatIntent], settle: Settle
) -> None:
    """It looked as if it were still sent, and the line that closes it stood below all of it."""

    def first_lines(index: int) -> list[str]:
        return [box.text for box in pane.view.column.lay_out_fully(index).boxes]

    def drawn(index: int) -> tuple[QColor, QColor]:
        """Beside the item and behind it."""
        picture = pane.view.grab().toImage()
        top = at(pane, index, QRectF(0, 30, 0, 0)).y()
        return picture.pixelColor(pane.view.column_left - 13, top), picture.pixelColor(
            pane.view.column_left - 6, top
        )

    pane.view.apply_events([FactAppended(told.add(Rewound(0)))])
    end = len(pane.view.items.all) - 1
    words = first_lines(end)[0]
    items = pane.view.items
    pane.view.column.toggle_section(ToggleSection(("rewound", end)))
    pane.view.verticalScrollBar().setValue(0)
    settle()
    assert first_lines(0)[0] == words
    assert [items.is_shown_though_replaced(index) for index in (0, 1, end)] == [True, True, False]
    colours = [pane.view.theme.colour_of_token(name) for name in ("faint", "window")]
    assert list(drawn(0)) == colours
    QTest.mouseClick(pane.view.viewport(), LEFT, pos=hot(pane, 0, ToggleSection))
    settle()
    assert items.is_item_hidden(0)
    assert items.is_item_hidden(1)
    assert not items.is_shown_though_replaced(0)


def test_names_for_a_screen_reader(pane: TranscriptPane) -> None:
    assert pane.view.accessibleName() == "Conversation"
    assert pane._end.accessibleName() == "Jump to the end"
    assert pane.bar.field.accessibleName() == "Find in this conversation"


@pytest.mark.parametrize(
    ("reason", "which"),
    [(Qt.FocusReason.TabFocusReason, 0), (Qt.FocusReason.BacktabFocusReason, -1)],
)
def test_tab_into_the_chat_shows_where_it_is(
    pane: TranscriptPane, wanted: list[ChatIntent], reason: Qt.FocusReason, which: int
) -> None:
    pane.view.clearFocus()
    pane.view.setFocus(reason)
    assert pane.view._spot == pane.view.visible_hot_spots()[which]


def test_the_line_of_what_was_rewound_leads_back_to_it(
    pane: TranscriptPane, told: Told, wanted: list[ChatIntent], settle: Settle
) -> None:
    """The dialog says that one can return, and nothing but a menu inside the closed line did."""
    last_left = len(told.facts)
    pane.view.apply_events([FactAppended(told.add(Rewound(1)))])
    settle()
    line = len(pane.view.items.all) - 1
    QTest.mouseClick(pane.view.viewport(), LEFT, pos=hot(pane, line, ActOnMessage))
    assert wanted == [ActOnMessage(MessageAct.RETURN, last_left)]
    rewound = pane.view.items.all[line]
    pane.view.items.is_written_by_connected_agent = True
    assert not pane.view.items.can_return_to_rewound(rewound)


@pytest.mark.usefixtures("wanted")
def test_nothing_offers_to_return_to_where_nothing_was_said(
    pane: TranscriptPane, told: Told, settle: Settle
) -> None:
    last_said = len(told.facts)
    pane.view.apply_events([FactAppended(told.add(Rewound(1)))])
    settle()
    pane.view.apply_events([FactAppended(told.add(Rewound(last_said)))])
    settle()
    pane.view.apply_events([FactAppended(told.add(Rewound(1)))])
    settle()
    rewinds = [item for item in pane.view.items.all if item.kind is TranscriptItemKind.REWOUND]
    assert [pane.view.items.can_return_to_rewound(rewind) for rewind in rewinds] == [True, True]
    pane.view.apply_events([FactAppended(told.add(Rewound(last_said)))])
    assert rewinds == [
        item for item in pane.view.items.all if item.kind is TranscriptItemKind.REWOUND
    ]
