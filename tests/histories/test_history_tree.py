"""Lines of a conversation in a file that was made to have as many as it can."""

from __future__ import annotations

import time

from helix_desktop.histories import history_tree
from helix_desktop.histories.history_tree import ROOT, HistoryNode, HistoryTree


def test_lines_within_lines_end_before_they_take_work_without_end() -> None:
    """Each leaves the one before it behind its first row, so the last one shares rows with all of them."""
    tree, before = HistoryTree(), time.process_time()
    parent = ROOT
    for number in range(6_000):
        tree.add_node(2 * number, HistoryNode(f"a{number}", parent, begins=True))
        tree.add_node(2 * number + 1, HistoryNode(f"b{number}", f"a{number}", begins=True))
        parent = f"a{number}"
    assert len(tree.branches) == history_tree.MOST_BRANCHES
    assert sum(len(branch.rows) for branch in tree.branches) == 12_000
    assert len(tree.shared_rows(len(tree.branches) - 1)) == history_tree.MOST_BRANCHES - 1
    assert time.process_time() - before < 5
