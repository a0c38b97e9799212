"""Conversations of another computer are named as those here are."""

from __future__ import annotations

import pytest

from helix_desktop.commands.other_computer import find_row_by_prefix
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.errors import AmbiguousName, NotFound
from helix_desktop.workspace_host.host_interface import HostListRow


def row(name: str, title: str, *, archived: bool = False, trashed: bool = False) -> HostListRow:
    listed = ConversationListRow(name, title, 0.0, archived=archived, trashed=trashed)
    return HostListRow(listed, ConversationActivity.IDLE)


def test_a_title_names_what_is_in_use_before_what_was_put_away() -> None:
    archived = row("a1", "Talk", archived=True)
    trashed = row("t1", "Talk", trashed=True)
    assert find_row_by_prefix([archived, row("u1", "Talk"), trashed], "Talk") == "u1"
    assert find_row_by_prefix([archived], "Talk") == "a1"
    assert find_row_by_prefix([row("u1", "Other"), trashed], "Talk") == "t1"
    with pytest.raises(AmbiguousName, match="2 conversations are called Talk: a1, t1"):
        find_row_by_prefix([archived, trashed], "Talk")


def test_otherwise_it_is_the_beginning_of_an_id() -> None:
    rows = [row("abc", "x"), row("abd", "y")]
    assert find_row_by_prefix(rows, "abd") == "abd"
    assert find_row_by_prefix(rows, "abc") == "abc"
    with pytest.raises(AmbiguousName):
        find_row_by_prefix(rows, "ab")
    with pytest.raises(NotFound) as failure:
        find_row_by_prefix(rows, "q")
    assert failure.value.remedy == "To see all conversations, run `conversation list`."
