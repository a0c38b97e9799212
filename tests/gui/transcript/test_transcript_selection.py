"""What is selected, and what of it is copied."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helix_desktop.gui.common.text_selection import TextPosition, TextSelection
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.item_layout import ItemLayout
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.transcript_selection import (
    build_selected_text,
)
from tests.gui.transcript.facts import Told, call
from tests.gui.transcript.laid_out_items import laid, page_of


@pytest.fixture
def talk(theme: Theme) -> tuple[TranscriptItems, Callable[[int], ItemLayout]]:
    told = Told()
    told.user("first")
    told.reply("the *middle*", call(1))
    told.user("last")
    page = page_of(theme, told.facts)
    return page.items, lambda index: laid(page, index)


def test_a_selection_backwards_is_the_same(
    talk: tuple[TranscriptItems, Callable[[int], ItemLayout]],
) -> None:
    items, made = talk
    forth = TextSelection(TextPosition(0, 1), TextPosition(3, 2))
    back = TextSelection(TextPosition(3, 2), TextPosition(0, 1))
    wanted = "irst\n\nthe middle\n\nRead src/a.rs\n\nla"
    assert (
        build_selected_text(forth, items, made, markdown=False)
        == build_selected_text(back, items, made, markdown=False)
        == wanted
    )
    assert forth.selected_offsets_of(1, 9) == (0, 9)
    assert forth.selected_offsets_of(3, 4) == (0, 2)


def test_markdown_keeps_what_was_written(
    talk: tuple[TranscriptItems, Callable[[int], ItemLayout]],
) -> None:
    items, made = talk
    whole = TextSelection(TextPosition(0, 0), TextPosition(3, 5))
    assert (
        build_selected_text(whole, items, made, markdown=True)
        == "first\n\nthe *middle*\n\n`Read src/a.rs`\n\nlast"
    )


def test_nothing_selected_is_nothing_copied(
    talk: tuple[TranscriptItems, Callable[[int], ItemLayout]],
) -> None:
    items, made = talk
    assert build_selected_text(TextSelection(), items, made, markdown=False) == ""
    assert (
        build_selected_text(
            TextSelection(TextPosition(1, 3), TextPosition(1, 3)), items, made, markdown=False
        )
        == ""
    )
