"""The lines of the inspector and the meter's panel: what each says, and where it is painted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from PySide6.QtCore import QRect
from PySide6.QtGui import QColor, QImage, QPainter

from helix_desktop.engine.context_usage import WindowMeter
from helix_desktop.engine.facts import Folded, FoldKind, PartRef, ToolReturned
from helix_desktop.engine.message_cost_forecast import NextMessageEstimate
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.view import build_state
from helix_desktop.gui.inspector.inspector_boxes import (
    FigureBox,
    MeterBox,
    build_context_boxes,
    build_cost_boxes,
    build_next_message_boxes,
)
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import LayoutBox
from helix_desktop.gui.transcript.chat_actions import ConversationAct
from helix_desktop.gui.transcript.drawing_style import NO_MARKS, DrawingStyle
from tests.engine.talk import Talk, stored
from tests.gui import story

PARTS = {ContextKind.CONVERSATION: 30_000, ContextKind.OUTPUT: 20_000}
METER = WindowMeter(PARTS, 50_000, 100_000, 8_000, 1.0, counted=PARTS)


@pytest.fixture
def ink(theme: Theme) -> DrawingStyle:
    return DrawingStyle(theme)


def painted(box: LayoutBox, *, near: bool = False) -> QImage:
    picture = QImage(320, 60, QImage.Format.Format_ARGB32)
    picture.fill(0)
    painter = QPainter(picture)
    painter.translate(10, 10)
    box.draw_box(painter, NO_MARKS, near=near)
    painter.end()
    return picture


def columns_with_ink(picture: QImage, area: QRect) -> list[int]:
    return [
        x
        for x in range(area.left(), area.right() + 1)
        if any(picture.pixelColor(x, y).alpha() for y in range(area.top(), area.bottom() + 1))
    ]


LINE = QRect(0, 10, 320, 27)


def test_words_stand_at_the_left_and_the_figure_at_the_right(ink: DrawingStyle) -> None:
    box = FigureBox(ink, 300.0, "Words", "1.5K")
    assert box.text == "Words  1.5K"
    columns = columns_with_ink(painted(box), LINE)
    assert 10 <= columns[0] <= 13
    assert 305 <= columns[-1] <= 310
    dotted = painted(FigureBox(ink, 300.0, "Words", "1.5K", dot=QColor("red")))
    assert dotted.pixelColor(14, 10 + 13) == QColor("red")
    columns = columns_with_ink(dotted, LINE)
    assert [x for x in columns if x < 26][-1] < 10 + 9
    assert next(x for x in columns if x > 20) >= 26
    ring = painted(FigureBox(ink, 300.0, "Words", "1.5K", dot=QColor("red"), ring=True))
    assert ring.pixelColor(14, 10 + 13).alpha() == 0
    assert columns_with_ink(ring, LINE)[0] < 13


def test_more_is_said_while_the_pointer_is_on_the_line(ink: DrawingStyle) -> None:
    box = FigureBox(
        ink, 300.0, "Words", "1.5K", more="of 100K", act=ConversationAct.SET_MODEL_PRICE
    )
    right = QRect(200, 10, 110, 27)
    assert len(columns_with_ink(painted(box), right)) < 40
    assert len(columns_with_ink(painted(box, near=True), QRect(4, 10, 312, 27))) > 300
    plain = FigureBox(ink, 300.0, "Words", "1.5K", more="of 100K")
    assert len(columns_with_ink(painted(plain, near=True), right)) > 50
    assert columns_with_ink(painted(plain, near=True), QRect(0, 10, 9, 27)) == []


def test_a_long_name_wraps_and_a_files_name_is_cut(ink: DrawingStyle) -> None:
    one_line = FigureBox(ink, 300.0, "Words", "1.5K").height
    words = "Words that are too long for one line of this column of the side panel"
    wrapped = FigureBox(ink, 300.0, words, "1.5K")
    assert wrapped.height > one_line + 10
    assert FigureBox(ink, 300.0, words, "1.5K", mono=True).height == one_line
    assert FigureBox(ink, 300.0, words, "1.5K", wraps=False).height == one_line
    assert FigureBox(ink, 4.0, words, "1.5K").height > wrapped.height


def test_a_line_that_does_something_is_pressed_in_all_its_width(ink: DrawingStyle) -> None:
    assert FigureBox(ink, 300.0, "Words", "1").hot_spots == []
    box = FigureBox(ink, 300.0, "Words", "1", act=ConversationAct.SET_MODEL_PRICE)
    (spot,) = box.hot_spots
    assert spot.act is ConversationAct.SET_MODEL_PRICE
    assert (spot.place.width(), spot.place.height()) == (300, box.height)
    assert spot.name == "Words  1"


def test_the_bar_has_a_mark_at_each_threshold(ink: DrawingStyle) -> None:
    thresholds = [("Handover at 80%", ContextKind.HANDOVER, 0.8), ("Over", ContextKind.OUTPUT, 3.0)]
    box = MeterBox(ink, 300.0, METER, thresholds, gap=10)
    assert box.height == ink.scaled_pixels(35)
    picture = painted(box)
    above = columns_with_ink(picture, QRect(0, 7, 320, 2))
    assert min(abs(x - 250) for x in above) <= 1
    assert min(abs(x - 310) for x in above) <= 1
    assert all(min(abs(x - 250), abs(x - 310)) <= 1 for x in above)
    assert columns_with_ink(picture, QRect(0, 28, 100, 17))
    assert columns_with_ink(picture, QRect(200, 28, 111, 17))
    assert "50K of 100K" in box.text


def lines(boxes: Iterable[LayoutBox]) -> list[str]:
    return [box.text for box in boxes]


def test_each_kind_that_is_there_has_a_line(ink: DrawingStyle) -> None:
    state = build_state(story.recorded())
    boxes = list(build_context_boxes(ink, 300.0, state, METER, []))
    assert boxes[0].text == "Context · 50K of 100K"
    assert isinstance(boxes[1], MeterBox)
    figures = [box for box in boxes if isinstance(box, FigureBox)]
    assert lines(figures)[:2] == ["Conversation  30K", "Tool outputs  20K"]
    assert figures[0].gap == ink.scaled_pixels(12)
    assert figures[1].gap == 0
    estimated = replace(METER, is_estimate=True)
    assert lines(build_context_boxes(ink, 300.0, state, estimated, []))[0] == (
        "Context · ≈ 50K of 100K"
    )
    billed = replace(METER, parts={**PARTS, ContextKind.OUTPUT: 25_000}, used=55_000)
    assert any(
        "+5K" in line or "5.0K" in line
        for line in lines(build_context_boxes(ink, 300.0, state, billed, []))
    )


def test_outputs_that_can_be_recalled_have_a_line_of_their_own(ink: DrawingStyle) -> None:
    talk = Talk()
    content = stored("a long log")
    talk.reply("", "c1:read_file")
    seq = talk.add(ToolReturned("c1", content, 17_000, head="a long log"))
    assert "Originals of shortened outputs  17K" not in lines(
        build_context_boxes(ink, 300.0, talk.state, METER, [])
    )
    marker = Folded("e1", FoldKind.MARKER, PartRef(seq), "short", 31, 17_000)
    talk.add(replace(marker, entries=(content.digest,)))
    assert "Originals of shortened outputs  17K" in lines(
        build_context_boxes(ink, 300.0, talk.state, METER, [])
    )


def test_without_a_price_the_line_says_where_to_set_it(ink: DrawingStyle) -> None:
    state = Talk().state
    (box,) = build_cost_boxes(ink, 300.0, state, asks_for_price=True)
    assert box.text == "Cost so far  Set the price…"
    assert box.gap == ink.scaled_pixels(10)
    assert [spot.act for spot in box.hot_spots] == [ConversationAct.SET_MODEL_PRICE]
    costs = list(build_cost_boxes(ink, 300.0, state, 0.25, asks_for_price=True))
    assert "Price of the model  Set the price…" in lines(costs)
    assert list(build_cost_boxes(ink, 300.0, state, asks_for_price=False)) == []


def test_what_was_sent_is_among_the_details(ink: DrawingStyle) -> None:
    state = build_state(story.recorded())
    few = lines(build_cost_boxes(ink, 300.0, state, asks_for_price=False))
    more = lines(build_cost_boxes(ink, 300.0, state, asks_for_price=False, has_details=True))
    assert few
    assert more[-len(few) :] == few
    assert more[0].startswith("Sent")
    assert not few[0].startswith("Sent")


def test_what_the_next_message_takes_is_followed_by_what_that_is_made_of(ink: DrawingStyle) -> None:
    estimate = NextMessageEstimate(40_000, 2_000, 30_000)
    figure, note = build_next_message_boxes(
        ink, 300.0, estimate, ["price rises in 2 min"], is_assumed_free=False
    )
    assert figure.text.endswith("42K tokens") or figure.text.endswith("42K")
    assert figure.gap == ink.scaled_pixels(10)
    assert note.gap == 0
    assert note.text.endswith(" · price rises in 2 min")
