"""Lines of a conversation in a file that was made to have as many as it can."""

from __future__ import annotations

import time
from collections.abc import Sequence

from helix_desktop.histories import history_tree
from helix_desktop.histories.history_rows import HistoryMessages, ReadingReport
from helix_desktop.histories.history_tree import (
    ROOT,
    HistoryNode,
    HistoryTree,
    build_branch_sessions,
)
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession


def test_lines_within_lines_end_before_they_take_work_without_end() -> None:
    """Each leaves the one before it behind its first row, so the last one shares rows
    with all of them.
    """
    tree = HistoryTree()
    before = time.process_time()
    parent = ROOT
    for number in range(6_000):
        tree.add_node(2 * number, HistoryNode(f"a{number}", parent, begins=True))
        tree.add_node(2 * number + 1, HistoryNode(f"b{number}", f"a{number}", begins=True))
        parent = f"a{number}"
    assert len(tree.branches) == history_tree.MOST_BRANCHES
    assert sum(len(branch.rows) for branch in tree.branches) == 12_000
    assert (
        len(tree.rows_shared_with_parent(len(tree.branches) - 1)) == history_tree.MOST_BRANCHES - 1
    )
    assert time.process_time() - before < 5


def tree_of(*nodes: HistoryNode) -> HistoryTree:
    tree = HistoryTree()
    for index, node in enumerate(nodes):
        tree.add_node(index, node)
    return tree


def asks(name: str, parent: str) -> HistoryNode:
    return HistoryNode(name, parent, begins=True)


def replies(name: str, parent: str, step: str = "") -> HistoryNode:
    return HistoryNode(name, parent, step=step or name)


def rows(tree: HistoryTree) -> list[list[int]]:
    return [tree.rows_of_branch(branch) for branch in range(len(tree.branches))]


def test_words_behind_an_earlier_row_begin_a_line_of_their_own() -> None:
    tree = tree_of(
        asks("a", ROOT),
        replies("b", "a"),
        asks("c", "b"),
        replies("d", "c"),
        asks("e", "b"),
        replies("f", "e"),
    )
    assert rows(tree) == [[0, 1, 2, 3], [0, 1, 4, 5]]
    assert (tree.branches[1].parent, tree.branches[1].after_row) == (0, 1)
    assert tree.rows_shared_with_parent(1) == [0, 1]
    assert tree.rows_shared_with_parent(0) == []
    tree.add_node(6, asks("g", "f"))
    tree.add_node(7, asks("h", "e"))
    assert rows(tree)[1:] == [[0, 1, 4, 5, 6], [0, 1, 4, 7]]
    assert tree.rows_shared_with_parent(2) == [0, 1, 4]


def test_what_goes_on_or_has_no_known_place_stays_on_the_line() -> None:
    assert rows(tree_of(asks("a", ROOT), replies("b", "a", "s"), replies("c", "a", "s"))) == [
        [0, 1, 2]
    ]
    assert rows(tree_of(asks("a", ROOT), asks("b", "a"), asks("c", "nobody"))) == [[0, 1, 2]]
    assert rows(tree_of(asks("a", ROOT), replies("b", "a", "s"), asks("c", "a"))) == [
        [0, 1],
        [0, 2],
    ]
    assert rows(
        tree_of(asks("a", ROOT), replies("b", "a", "s"), replies("c", "b", "s"), asks("d", "b"))
    ) == [[0, 1, 2, 3]]
    assert rows(tree_of(asks("a", ROOT), asks("b", ROOT))) == [[0], [1]]
    assert rows(tree_of(asks("", ROOT), asks("", ""))) == [[0, 1]]


def test_what_follows_rows_that_a_compaction_kept_follows_the_newest_row() -> None:
    tree = tree_of(asks("a", ROOT), replies("b", "a"), asks("c", "b"), replies("d", "c"))
    tree.redirect_followers_to_newest_row(["a", "b"])
    tree.add_node(4, asks("e", "b"))
    assert rows(tree) == [[0, 1, 2, 3, 4]]


def test_each_line_is_a_session_that_names_the_one_it_left_and_how_much_it_shares() -> None:
    tree = tree_of(
        asks("a", ROOT), replies("b", "a"), asks("c", "b"), asks("d", "b"), asks("e", ROOT)
    )
    report = ReadingReport()

    def read(wanted: Sequence[int], complaints: ReadingReport) -> HistoryMessages:
        complaints.complaints.append(f"{len(wanted)} rows")
        return HistoryMessages(
            complaints, [RecordedMessage("user", f"row {one}") for one in wanted]
        )

    first = RecordedSession("file", (), "kind", "session", title="Named")
    row_ids = [f"row{number}" for number in range(5)]
    one, two, three = build_branch_sessions(tree, first, row_ids, read, report)
    assert report.complaints == ["3 rows"], "each row is told of once"
    assert [message.text for message in one.messages] == ["row 0", "row 1", "row 2"]
    assert (one.name, one.session, one.forked_from, one.forked_at) == ("file", "session", "", 0)
    assert [message.text for message in two.messages] == ["row 0", "row 1", "row 3"]
    assert (two.name, two.session, two.forked_from, two.forked_at) == (
        "file#2",
        "session#row3",
        "session",
        2,
    )
    assert (three.name, three.session, three.forked_from, three.forked_at) == (
        "file#3",
        "session#row4",
        "",
        0,
    )
    assert {each.title for each in (one, two, three)} == {"Named"}
