"""Where each box of a stack lies, and which text runs through them."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QImage, QPainter

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import HotSpot, LayoutBox, ToggleSection
from helix_desktop.gui.transcript.box_stack import BoxStack, HotSpotIndex
from helix_desktop.gui.transcript.drawing_style import NO_MARKS, DrawingStyle, TextMarks


class PlainBox(LayoutBox):
    """Notes what it is asked to draw."""

    def __init__(
        self, ink: DrawingStyle, text: str, height: float, gap: float = 0.0, left: float = 0.0
    ) -> None:
        super().__init__(ink, 100.0, left=left)
        self.text = text
        self.height = height
        self.gap = gap
        self.drawn: list[tuple[float, float, TextMarks, bool]] = []

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        place = painter.transform().map(QPointF(0, 0))
        self.drawn.append((place.x(), place.y(), marks, near))


@pytest.fixture
def ink(theme: Theme) -> DrawingStyle:
    return DrawingStyle(theme)


@pytest.fixture
def boxes(ink: DrawingStyle) -> list[PlainBox]:
    """Their tops are 0, 25 and 50; the space above the second and third is 5 and 10."""
    return [
        PlainBox(ink, "one two", 20.0),
        PlainBox(ink, "", 15.0, gap=5.0),
        PlainBox(ink, "👩 drei", 30.0, gap=10.0, left=7.0),
    ]


@pytest.fixture
def stack(boxes: list[PlainBox]) -> BoxStack:
    stack = BoxStack(pad=(3.0, 4.0))
    for box in boxes:
        stack.add_box(box)
    return stack


def test_an_empty_stack_has_places_for_nothing() -> None:
    stack = BoxStack()
    assert (stack.bottom_edge, stack.end_offset, stack.text_length) == (0, 0, 0)
    assert stack.text_offset_at(QPointF(5, 5)) == 0
    assert stack.hot_spot_at(QPointF(5, 5)) is None
    assert stack.caret_rect_at(0) == QRectF(0, 0, 1, 16)
    assert stack.word_or_paragraph_at(3, paragraph=True) == (3, 3)
    assert stack.nearest_box_and_inner_place(QPointF(5, 5)) == (-1, QPointF(5, 5))


def test_heights_and_spaces_and_texts_add_up(stack: BoxStack) -> None:
    assert stack.bottom_edge == 20 + 5 + 15 + 10 + 30 + 2 * 4
    assert stack.vertical_padding == 4
    assert stack.text_length == len("one two") + 1 + 0 + 1 + len("xx drei") + 1
    assert stack.end_offset == stack.text_length - 1


def test_what_was_added_last_goes_without_a_trace(stack: BoxStack, ink: DrawingStyle) -> None:
    before = (stack.bottom_edge, stack.text_length, list(stack.boxes))
    stack.add_box(PlainBox(ink, "more", 11.0, gap=2.0))
    stack.remove_last_box()
    assert (stack.bottom_edge, stack.text_length, stack.boxes) == before
    for _ in range(3):
        stack.remove_last_box()
    assert (stack.bottom_edge, stack.text_length) == (8.0, 0)


@pytest.mark.parametrize(
    ("y", "number"), [(-50, 0), (4, 0), (28.9, 0), (29, 1), (53.9, 1), (54, 2), (500, 2)]
)
def test_the_nearest_box_is_the_last_that_begins_above(
    stack: BoxStack, y: float, number: int
) -> None:
    found, inner = stack.nearest_box_and_inner_place(QPointF(20, y))
    assert found == number
    tops = [0, 25, 50]
    lefts = [0, 0, 7]
    assert inner == QPointF(20 - 3 - lefts[number], y - 4 - tops[number])


def test_a_click_leads_to_the_text_of_its_box(stack: BoxStack) -> None:
    assert stack.text_offset_at(QPointF(0, 5)) == 0
    assert stack.text_offset_at(QPointF(0, 23)) == len("one two")
    assert stack.text_offset_at(QPointF(0, 55)) == 9
    assert stack.caret_rect_at(10) == QRectF(7 + 3, 50 + 4, 1, 30)
    assert stack.caret_rect_at(7) == QRectF(3, 4, 1, 20)


@pytest.mark.parametrize(("offset", "box"), [(0, 0), (7, 0), (8, 1), (9, 2), (99, 2)])
def test_an_offset_belongs_to_the_box_that_its_line_end_closes(
    stack: BoxStack, offset: int, box: int
) -> None:
    assert stack.box_index_of_offset(offset) == box


def test_a_word_and_a_paragraph_are_found_in_the_text_of_all(stack: BoxStack) -> None:
    assert stack.word_or_paragraph_at(5, paragraph=False) == (4, 7)
    assert stack.word_or_paragraph_at(5, paragraph=True) == (0, 7)
    assert stack.word_or_paragraph_at(10, paragraph=True) == (9, 16)


def test_only_boxes_in_sight_are_drawn_each_at_its_place(
    stack: BoxStack, boxes: list[PlainBox]
) -> None:
    picture = QImage(100, 100, QImage.Format.Format_ARGB32)
    painter = QPainter(picture)
    stack.draw_boxes(painter, 0, 53, NO_MARKS, boxes[1])
    assert [box.drawn for box in boxes] == [
        [(3, 4, NO_MARKS, False)],
        [(3, 29, NO_MARKS, True)],
        [],
    ]
    stack.draw_boxes(painter, 54, 200, TextMarks((2, 12)), None)
    assert painter.transform().map(QPointF(0, 0)) == QPointF(0, 0)
    painter.end()
    assert len(boxes[0].drawn) == len(boxes[1].drawn) == 1
    ((x, y, marks, near),) = boxes[2].drawn
    assert (x, y, near) == (10, 54, False)
    assert marks == TextMarks((2, 12)).marks_within(9, 7)


def test_what_a_sub_agent_wrote_has_a_line_at_its_left(
    stack: BoxStack, boxes: list[PlainBox], ink: DrawingStyle
) -> None:
    boxes[2].is_from_subagent = True
    picture = QImage(100, 100, QImage.Format.Format_ARGB32)
    picture.fill(0)
    painter = QPainter(picture)
    stack.draw_boxes(painter, 0, 100, NO_MARKS, None)
    painter.end()
    left = round(3 + ink.scaled_pixels(6))
    line = ink.token_colour("line")
    column = [y for y in range(100) if picture.pixelColor(left, y) == line]
    assert (column[0], column[-1]) == (44, 83)
    assert picture.pixelColor(left + 2, 60).alpha() == 0
    assert picture.pixelColor(left - 1, 60).alpha() == 0


def test_pieces_have_the_space_above_them(stack: BoxStack, boxes: list[PlainBox]) -> None:
    assert list(stack.pieces_with_top_and_height(0, 100)) == [
        (boxes[0], 4, 20),
        (boxes[1], 24, 20),
        (boxes[2], 44, 40),
    ]
    assert [piece for piece, _, _ in stack.pieces_with_top_and_height(30, 53)] == [boxes[1]]


def test_tab_visits_what_can_be_pressed_from_the_top(
    stack: BoxStack, boxes: list[PlainBox]
) -> None:
    spots = [HotSpot(QRectF(0, 0, 10, 5), ToggleSection((name,)), name) for name in ("a", "b", "c")]
    boxes[0].hot_spots = spots[:1]
    boxes[2].hot_spots = spots[1:]
    stops = stack.list_hot_spots()
    assert stops == [HotSpotIndex(0, 0), HotSpotIndex(2, 0), HotSpotIndex(2, 1)]
    assert stack.hot_spot_and_rect(stops[2]) == (spots[2], QRectF(10, 54, 10, 5))
    assert stack.hot_spot_at(QPointF(12, 56)) is spots[1]
    assert stack.hot_spot_at(QPointF(5, 6)) is spots[0]
    assert stack.hot_spot_at(QPointF(50, 6)) is None


def test_words_are_found_in_all_boxes_and_counted_as_qt_does(
    stack: BoxStack, ink: DrawingStyle
) -> None:
    assert stack.find_starts_and_lengths("rei") == ((9 + 4, 3),)
    assert stack.find_starts_and_lengths("o") == ((0, 1), (6, 1))
    assert stack.find_starts_and_lengths("zwei") == ()
    stack.add_box(PlainBox(ink, "AA aa", 10.0))
    assert [start for start, _ in stack.find_starts_and_lengths("aa")] == [17, 20]
    stack.add_box(PlainBox(ink, "q" * 3_000, 10.0))
    assert len(stack.find_starts_and_lengths("q")) == 2_000


def test_what_is_copied_has_a_line_for_each_box_within(
    stack: BoxStack, boxes: list[PlainBox]
) -> None:
    boxes[2].copied_prefix = "- "
    assert stack.text_between_offsets(0, 99) == "one two\n\n- 👩 drei"
    assert stack.text_between_offsets(4, 7) == "two"
    assert stack.text_between_offsets(4, 9) == "two\n"
    assert stack.text_between_offsets(12, 99) == "drei"
    assert stack.text_between_offsets(8, 8) == ""
