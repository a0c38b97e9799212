"""How a page of the help is found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from helix_desktop.gui import help_search
from helix_desktop.gui.help_search import HelpEntry, find_help_pages, list_help_contents
from helix_desktop.gui.theme import Theme


def test_a_page_is_found_by_its_words_and_those_with_them_in_the_title_come_first(
    theme: Theme,
) -> None:
    assert find_help_pages("undo")[0].file == "changes.md"
    assert find_help_pages("UNDO changes")[0].file == "changes.md"
    assert find_help_pages("keyring")[0].file == "keys.md"
    assert find_help_pages("xylophone") == ()
    assert {finding.file for finding in find_help_pages("")} == {
        entry.file for entry in list_help_contents()
    }


ENTRY = HelpEntry("keys.md", "Keys", "where they are kept")
TEXT = """# Keys and rings

Keyring.
The keyring of the desktop keeps keys, so that no file has them.
- The **keyring** asks [once](keyring.md) for a password. It keeps it.
"""


@pytest.mark.parametrize(
    ("words", "rank", "passage"),
    [
        ("keys", 0, "The keyring of the desktop keeps keys, so that no file has them."),
        ("keys kept", 1, ""),
        ("keeps keys", 2, "The keyring of the desktop keeps keys, so that no file has them."),
        ("ring keys", 2, "The keyring of the desktop keeps keys, so that no file has them."),
        ("password asks", 3, "The keyring asks once for a password."),
        ("password file", 4, ""),
    ],
)
def test_a_page_ranks_by_where_it_has_the_words(words: str, rank: int, passage: str) -> None:
    page = help_search._search_help_page(ENTRY, TEXT, words.split())
    assert page is not None
    assert (page.rank, page.passage) == (rank, passage)
    expected = f"Keys: {passage}" if passage else "Keys: where they are kept"
    assert page.line == expected


def test_a_page_without_one_of_the_words_is_not_found() -> None:
    assert help_search._search_help_page(ENTRY, TEXT, ["keys", "door"]) is None


def test_hits_are_counted_in_any_case() -> None:
    page = help_search._search_help_page(ENTRY, TEXT, ["keyring"])
    assert page is not None
    assert page.hits == 4
    assert page.passage == "The keyring asks once for a password."  # The shorter of two.


def test_the_contents_and_the_questions_are_read_without_their_signs() -> None:
    contents = (
        "# Help\n- [`Keys`](keys.md): where they are\n- [钥匙](keys.md)：在哪里\n- no link: x\n"
    )
    entries: Sequence[HelpEntry] = help_search._parse_help_contents(contents)
    assert [(entry.file, entry.line) for entry in entries] == [
        ("keys.md", "Keys: where they are"),
        ("keys.md", "钥匙: 在哪里"),
    ]
    questions = "- **… undo a change?** On [Changes](changes.md), press **Undo**.\nText\n"
    (question,) = help_search._parse_help_questions(questions)
    assert question.question == "undo a change?"
    assert question.answer == "On Changes, press Undo."


def test_words_in_a_title_come_before_answers_unless_a_question_is_asked(theme: Theme) -> None:
    typed = find_help_pages("keys")
    assert typed[0].file == "keys.md"
    assert typed[0].words == ("keys",)
    files = [finding.file for finding in typed if finding.file != "how.md"]
    assert len(files) == len(set(files))
    asked = find_help_pages("where are my keys kept?")
    assert asked[0].file != "index.md"
