"""The filters above the table of entries."""

from __future__ import annotations

from PySide6.QtGui import QAction

from helix_desktop.gui.cache.filter_bar import EntryFilterBar
from helix_desktop.gui.theme import Theme


def menu_of_tools(bar: EntryFilterBar) -> list[QAction]:
    return bar._tool_button.menu().actions()


def test_the_menu_of_tools_is_built_anew_for_a_new_tool_alone(theme: Theme) -> None:
    """Not for each entry, as it may be open meanwhile."""
    bar = EntryFilterBar(theme)
    bar.set_tools([("read_file", 2)])
    assert [action.text() for action in menu_of_tools(bar)] == ["All tools", "Read  (2)"]
    shown = menu_of_tools(bar)
    bar.set_tools([("read_file", 3)])
    assert menu_of_tools(bar) == shown
    bar.set_tools([("read_file", 3), ("search", 1)])
    texts = [action.text() for action in menu_of_tools(bar)]
    assert texts == ["All tools", "Read  (3)", "Search  (1)"]
