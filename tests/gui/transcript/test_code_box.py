"""Code under its language, a piece at a time, with a button that copies all of it."""

from __future__ import annotations

from PySide6.QtGui import QImage, QPainter

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import CopyText, ToggleSection, utf16_length
from helix_desktop.gui.transcript.code_box import FIRST_LINES, CodeBox
from helix_desktop.gui.transcript.drawing_style import NO_MARKS, DrawingStyle
from tests.gui.transcript.facts import Told
from tests.gui.transcript.laid_out_items import laid, page_of


def test_long_code_opens_a_piece_at_a_time(theme: Theme) -> None:
    told = Told()
    told.reply("```\n" + "line\n" * 1_000 + "```")
    page = page_of(theme, told.facts)
    box = laid(page).boxes[1]
    assert isinstance(box, CodeBox)
    assert box.text.count("line") == FIRST_LINES
    (more,) = [hot for hot in box.hot_spots if isinstance(hot.act, ToggleSection)]
    assert "900 more lines" in more.name
    assert isinstance(more.act, ToggleSection)
    page.section_amounts[more.act.key] = more.act.extra_lines
    assert laid(page).boxes[1].text.count("line") == FIRST_LINES + more.act.extra_lines
    (copy,) = [hot.act for hot in box.hot_spots if isinstance(hot.act, CopyText)]
    assert copy.text.count("line") == 1_000


def test_code_stands_under_its_language_with_a_copy_button(theme: Theme) -> None:
    told = Told()
    told.reply("```python\nx = 1\n```\n\n```\nplain\n```")
    named, plain = [
        box for box in laid(page_of(theme, told.facts)).boxes if isinstance(box, CodeBox)
    ]
    assert named.height > plain.height
    assert [hot.only_when_near for hot in named.hot_spots] == [True]
    assert [hot.only_when_near for hot in plain.hot_spots] == [True]


def test_code_scrolls_sideways_only_as_far_as_it_goes(theme: Theme) -> None:
    box = CodeBox(DrawingStyle(theme), 300.0, "x" * 200 + "\nshort")
    assert box.scroll_sideways(50)
    assert box.scroll_sideways(100_000)
    assert not box.scroll_sideways(10)
    assert box.scroll_sideways(-1e9)
    assert box.scrolled == 0
    assert not CodeBox(DrawingStyle(theme), 300.0, "short").scroll_sideways(50)


def test_a_line_of_a_megabyte_is_cut(theme: Theme) -> None:
    box = CodeBox(DrawingStyle(theme), 300.0, "x" * 1_000_000)
    assert utf16_length(box.text) < 3_000


def test_a_bar_says_that_code_goes_on_sideways(theme: Theme) -> None:
    def bar(text: str, *, near: bool, by: float = 0.0) -> list[int]:
        """Where along the lower edge something is painted."""
        box = CodeBox(DrawingStyle(theme), 300.0, text)
        box.scroll_sideways(by)
        image = QImage(300, int(box.height), QImage.Format.Format_RGB32)
        image.fill(theme.colour_of_token("panel"))
        painter = QPainter(image)
        box.draw_box(painter, NO_MARKS, near=near)
        painter.end()
        ground = theme.colour_of_token("code").rgb()
        return [x for x in range(20, 280) if image.pixel(x, int(box.height) - 5) != ground]

    assert bar("short", near=True) == []
    assert bar("x" * 200, near=False) == []
    first = bar("x" * 200, near=True)
    last = bar("x" * 200, near=False, by=10_000)
    assert first
    assert min(first) < min(last)
    assert max(last) > max(first)
