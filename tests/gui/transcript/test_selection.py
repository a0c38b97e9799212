"""What is selected, and what of it is copied."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.item_layout import Laid
from helix_desktop.gui.transcript.projection import Items
from helix_desktop.gui.transcript.selection import Place, Selection, copied
from tests.gui.transcript.facts import Told, call
from tests.gui.transcript.test_layout import laid, page_of


@pytest.fixture
def talk(theme: Theme) -> tuple[Items, Callable[[int], Laid]]:
    told = Told()
    told.user("first")
    told.reply("the *middle*", call(1))
    told.user("last")
    page = page_of(theme, told.facts)
    return page.items, lambda index: laid(page, index)


def test_a_selection_backwards_is_the_same(talk: tuple[Items, Callable[[int], Laid]]) -> None:
    items, made = talk
    forth = Selection(Place(0, 1), Place(3, 2))
    back = Selection(Place(3, 2), Place(0, 1))
    wanted = "irst\n\nthe middle\n\nread_file src/a.rs\n\nla"
    assert copied(forth, items, made, markdown=False) == copied(back, items, made, markdown=False) == wanted
    assert forth.within(1, 9) == (0, 9)
    assert forth.within(3, 4) == (0, 2)


def test_markdown_keeps_what_was_written(talk: tuple[Items, Callable[[int], Laid]]) -> None:
    items, made = talk
    whole = Selection(Place(0, 0), Place(3, 5))
    assert copied(whole, items, made, markdown=True) == "first\n\nthe *middle*\n\n`read_file src/a.rs`\n\nlast"


def test_nothing_selected_is_nothing_copied(talk: tuple[Items, Callable[[int], Laid]]) -> None:
    items, made = talk
    assert copied(Selection(), items, made, markdown=False) == ""
    assert copied(Selection(Place(1, 3), Place(1, 3)), items, made, markdown=False) == ""
