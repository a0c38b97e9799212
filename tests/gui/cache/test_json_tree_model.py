"""A JSON tree is built when it is opened, a piece at a time."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex

from helix_desktop.gui.cache.json_tree_model import CHILDREN_AT_ONCE, JsonTreeModel, format_json_preview
from helix_desktop.gui.theme import Theme


def test_branches_are_made_when_they_are_opened(theme: Theme) -> None:
    tree = JsonTreeModel({"list": list(range(1_000)), "text": "a\nb", "none": None}, theme)
    assert [tree.data(tree.index(i, 0)) for i in range(tree.rowCount())] == ["list", "text", "none"]
    branch = tree.index(0, 0)
    assert tree.rowCount(branch) == 0
    assert tree.hasChildren(branch)
    tree.fetchMore(branch)
    assert tree.rowCount(branch) == CHILDREN_AT_ONCE
    tree.fetchMore(branch)
    assert tree.rowCount(branch) == 2 * CHILDREN_AT_ONCE
    child = tree.index(5, 1, branch)
    assert tree.data(child) == "5"
    assert tree.parent(child) == branch
    assert tree.parent(branch) == QModelIndex()


def test_values_in_short() -> None:
    assert format_json_preview({"a": 1}) == "{ 1 key }"
    assert format_json_preview([]) == "[ 0 items ]"
    assert format_json_preview("a\nb\u202e") == '"a⏎b⟨202E⟩"'
    assert [format_json_preview(value) for value in (None, True, 1.5)] == ["null", "true", "1.5"]
    assert len(format_json_preview("x" * 10_000)) < 2_100
