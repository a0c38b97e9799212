from __future__ import annotations

from helix_desktop.gui.everything_search import CLOSED_WORKSPACES, PaletteSearch, SearchedPlace
from helix_desktop.gui.frame.command_palette import PaletteItem
from helix_desktop.gui.search_suggestions import group_search_suggestions

SHOWN = SearchedPlace(0, "messages", is_in_shown_workspace=True)
FILES = SearchedPlace(0, "names", is_in_shown_workspace=True)
OTHER = SearchedPlace(1, "messages", is_in_shown_workspace=False)


def item(
    text: str, *, is_named: bool = False, is_similar: bool = False, workspace: str = ""
) -> PaletteItem:
    return PaletteItem(
        text,
        print,
        kind="message",
        is_named=is_named,
        is_similar=is_similar,
        workspace=workspace,
    )


def test_what_answers_first_does_not_stand_first() -> None:
    """Return opened a message of another workspace, which was smaller and answered sooner."""
    search = PaletteSearch("heating", [], {SHOWN, FILES, OTHER})
    search.items_by_place[CLOSED_WORKSPACES] = [item("closed")]
    search.items_by_place[OTHER] = [item("other")]
    search.unanswered.discard(OTHER)
    assert not search.has_answer_of_shown_workspace()
    search.items_by_place[SHOWN] = [item("shown")]
    search.unanswered.discard(SHOWN)
    assert not search.has_answer_of_shown_workspace(), "a file may have this name"
    search.unanswered.discard(FILES)
    assert search.has_answer_of_shown_workspace()
    assert [found.text for found in search.list_items()] == ["shown", "other", "closed"]


def test_a_file_of_that_name_stands_before_what_mentions_it() -> None:
    found = [item("see fees.py"), item("fees.py", is_named=True)]
    grouped = group_search_suggestions(found, more=False)
    assert [row.text for row in grouped] == ["fees.py", "see fees.py"]


def test_what_was_found_in_other_workspaces_stands_below_their_names() -> None:
    """Each row named its workspace, in the middle of a long note, and they stood in one list."""
    found = [
        item("other", workspace="thesis"),
        item("mine"),
        item("another", workspace="thesis"),
        item("third", workspace="notes"),
    ]
    grouped = group_search_suggestions(found, more=False)
    assert [row.text for row in grouped] == [
        "mine",
        "In thesis:",
        "other",
        "another",
        "In notes:",
        "third",
    ]
    assert [row.text for row in grouped if not row.can_be_highlighted] == [
        "In thesis:",
        "In notes:",
    ]


def test_similar_findings_of_another_workspace_stand_below_its_name() -> None:
    found = [item("exact"), item("alike", is_similar=True, workspace="thesis")]
    grouped = group_search_suggestions(found, more=False)
    assert [row.text for row in grouped] == [
        "With all words: 1",
        "exact",
        "Similar:",
        "In thesis:",
        "alike",
    ]
