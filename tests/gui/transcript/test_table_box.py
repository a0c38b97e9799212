"""A table: columns that fit, and pieces that keep them."""

from __future__ import annotations

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.markdown_blocks import StyledSpan, TableBlock
from helix_desktop.gui.transcript.table_box import TableBox


def test_columns_fit_and_pieces_keep_them(theme: Theme) -> None:
    def row(*cells: str) -> tuple[tuple[StyledSpan, ...], ...]:
        return tuple((StyledSpan(cell),) for cell in cells)

    wide = TableBlock((row("a", "b"), row("word " * 60, "x")), ("left", "right"))
    box = TableBox(DrawingStyle(theme), 400.0, wide)
    assert sum(box.columns) <= 400.0
    assert box.text == "a\tb\n" + "word " * 60 + "\tx"
    more = TableBox(
        DrawingStyle(theme),
        400.0,
        TableBlock((row("1", "2"),), ("left", "right"), continues=True),
        like=box,
    )
    assert more.columns == box.columns
    assert box.nearest_offset(box.caret_rect(0).center()) in (0, 1)
