"""Fonts, colours and marks over a text."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QFont, QImage, QPainter, QTextFormat, QTextOption

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.drawing_style import (
    NO_MARKS,
    DrawingStyle,
    TextMarks,
    build_format_range,
    build_spacing_format,
    build_wrap_option,
)
from helix_desktop.gui.transcript.markdown_blocks import ParagraphBlock, StyledSpan, TextStyle


@pytest.fixture
def ink(theme: Theme) -> DrawingStyle:
    return DrawingStyle(theme)


@pytest.mark.parametrize(
    ("selected", "within"),
    [
        ((0, 0), (0, 0)),
        ((3, 12), (0, 2)),
        ((11, 13), (1, 3)),
        ((12, 99), (2, 5)),
        ((20, 30), (5, 5)),
    ],
)
def test_of_a_selection_each_piece_has_its_part(
    selected: tuple[int, int], within: tuple[int, int]
) -> None:
    assert TextMarks(selected).marks_within(10, 5).selected == within


def test_hits_belong_to_the_piece_in_which_they_begin_and_the_current_one_is_counted_there() -> (
    None
):
    marks = TextMarks(found=((2, 3), (9, 3), (10, 2), (14, 4), (15, 1)), current=3)
    piece = marks.marks_within(10, 5)
    assert piece.found == ((0, 2), (4, 4))
    assert piece.current == 1
    assert TextMarks(found=((2, 3), (10, 2))).marks_within(10, 5).current == -1
    assert TextMarks(found=((2, 3), (10, 2)), current=0).marks_within(10, 5).current == -1
    assert TextMarks(found=((10, 2),), current=0).marks_within(10, 5).current == 0


def test_a_selection_has_a_length() -> None:
    assert not NO_MARKS.has_selection
    assert not TextMarks((3, 3)).has_selection
    assert TextMarks((3, 4)).has_selection


def test_the_selection_lies_over_the_hits_and_the_current_hit_has_its_own_colour(
    ink: DrawingStyle,
) -> None:
    assert ink.overlay_formats(NO_MARKS) == []
    marks = TextMarks((1, 4), ((0, 2), (5, 3)), 1)
    ranges = ink.overlay_formats(marks)
    assert [(each.start, each.length) for each in ranges] == [(0, 2), (5, 3), (1, 3)]
    colours = [each.format.background().color() for each in ranges]
    assert colours == [
        ink.token_colour("found"),
        ink.token_colour("found_current"),
        ink.selection_colour,
    ]
    assert {each.format.foreground().color().name() for each in ranges} == {
        ink.token_colour("text").name()
    }
    assert 0 < ink.selection_colour.alpha() < 255


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize(
    "style", [0, TextStyle.BOLD, TextStyle.ITALIC, TextStyle.STRUCK, TextStyle.CODE, TextStyle.BOLD | TextStyle.ITALIC]
)  # fmt: skip
def test_a_span_looks_as_it_is_marked_and_no_otherwise(
    ink: DrawingStyle, style: int, link: bool
) -> None:
    made = ink.span_format(style, link=link)
    assert (made.fontWeight() == QFont.Weight.DemiBold) is bool(style & TextStyle.BOLD)
    assert made.fontItalic() is bool(style & TextStyle.ITALIC)
    assert made.fontStrikeOut() is bool(style & TextStyle.STRUCK)
    families = made.property(QTextFormat.Property.FontFamilies) or []
    assert bool(set(families) & set(ink.mono.families())) is bool(style & TextStyle.CODE)
    assert made.fontUnderline() is link
    is_accented = made.foreground().color() == ink.token_colour("accent")
    assert is_accented is link
    assert ink.span_format(style, link=link) is made


def test_code_has_the_colours_of_its_words(ink: DrawingStyle) -> None:
    first, second, third = ink.highlight_ranges(
        [(0, 3, "accent"), (4, 2, "danger"), (7, 1, "accent")]
    )
    assert [(each.start, each.length) for each in (first, second, third)] == [
        (0, 3),
        (4, 2),
        (7, 1),
    ]
    assert first.format.foreground().color() == ink.token_colour("accent")
    assert second.format.foreground().color() == ink.token_colour("danger")
    assert third.format.foreground().color() == ink.token_colour("accent")


def test_removed_words_are_red_and_added_ones_are_not(ink: DrawingStyle) -> None:
    removed = ink.changed_word_format("-").background().color()
    added = ink.changed_word_format("+").background().color()
    assert removed.rgb() == ink.token_colour("danger").rgb()
    assert added.rgb() == ink.token_colour("output").rgb()
    assert removed.alpha() == added.alpha() == 64
    assert ink.token_colour("danger").alpha() == 255


def test_headings_shrink_by_level_and_all_are_bold(ink: DrawingStyle) -> None:
    sizes = [ink.heading_font(level).pixelSize() for level in range(1, 7)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[2] > 0
    assert {ink.heading_font(level).weight() for level in range(1, 7)} == {QFont.Weight.DemiBold}
    assert ink.text_line_height > ink.text.pixelSize()
    assert ink.code_line_height > ink.mono.pixelSize()


def test_a_list_within_a_quotation_is_set_in_by_both(ink: DrawingStyle) -> None:
    block = ParagraphBlock((StyledSpan("x"),))
    assert ink.left_edge_of(block) == 0
    nested = ParagraphBlock((StyledSpan("x"),), indent=2, quote=1)
    assert ink.left_edge_of(nested) == 2 * ink.scaled_pixels(22) + ink.scaled_pixels(14)


def test_code_runs_from_left_to_right_with_tabs_of_four_letters(ink: DrawingStyle) -> None:
    option = ink.build_code_option(QTextOption.WrapMode.NoWrap)
    assert option.textDirection() is Qt.LayoutDirection.LeftToRight
    assert option.tabStopDistance() == 4 * ink.code_letter_width > 0
    assert option.wrapMode() is QTextOption.WrapMode.NoWrap


@pytest.mark.parametrize(
    ("text", "align", "expected"),
    [
        ("abc", Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignLeft),
        ("abc", Qt.AlignmentFlag.AlignHCenter, Qt.AlignmentFlag.AlignHCenter),
        ("שלום", Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight),
    ],
)
def test_text_stands_at_the_side_where_it_begins(
    text: str, align: Qt.AlignmentFlag, expected: Qt.AlignmentFlag
) -> None:
    option = build_wrap_option(text, align)
    assert option.alignment() == expected
    assert option.textDirection() is Qt.LayoutDirection.LayoutDirectionAuto
    assert option.wrapMode() is QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere


def test_a_range_and_a_space_are_as_they_were_asked_for(ink: DrawingStyle) -> None:
    spacing = build_spacing_format(7.5)
    assert spacing.fontLetterSpacing() == 7.5
    assert spacing.fontLetterSpacingType() is QFont.SpacingType.AbsoluteSpacing
    made = build_format_range(3, 4, spacing)
    assert (made.start, made.length) == (3, 4)
    assert made.format.fontLetterSpacing() == 7.5


def test_a_frame_has_an_edge_and_a_ground_only_where_it_has_one(ink: DrawingStyle) -> None:
    def centre_and_edge(ground: str) -> tuple[int, bool]:
        picture = QImage(40, 40, QImage.Format.Format_ARGB32)
        picture.fill(0)
        painter = QPainter(picture)
        ink.draw_frame(painter, QRectF(5.5, 5.5, 30, 30), ground, 4)
        painter.end()
        return picture.pixel(20, 20), picture.pixelColor(20, 5).alpha() > 0

    assert centre_and_edge("") == (0, True)
    centre, has_edge = centre_and_edge("accent")
    assert centre == ink.token_colour("accent").rgb()
    assert has_edge
