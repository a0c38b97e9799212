from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.document_pages import (
    DocumentText,
    format_chosen_pages,
    format_document_outline,
    format_document_text,
    parse_document_text,
    parse_page_numbers,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import InvalidInput

ORIGINAL = Digest.of_content(b"the original")


def parsed(pages: list[tuple[str, str]], unit: str = "page") -> DocumentText:
    text = format_document_text("a.pdf", unit, len(pages), ORIGINAL, pages)
    document = parse_document_text(text)
    assert document is not None
    return document


def test_a_document_says_what_it_is_and_where_the_original_is() -> None:
    text = format_document_text("a.pdf", "page", 1, ORIGINAL, [("Locks", "words")])
    assert text.startswith(f"[Text of the document a.pdf, 1 page. The original: {ORIGINAL.hex}]")
    assert "=== page 1 of 1: Locks ===\nwords\n" in text
    assert parse_document_text("any other text") is None


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_pages_come_back_as_they_were(texts: list[str]) -> None:
    document = parsed([("", text) for text in texts])
    assert [page.number for page in document.pages] == list(range(1, len(texts) + 1))
    assert [page.text for page in document.pages] == [text.strip("\n") for text in texts]


def test_a_page_cannot_pretend_to_be_another() -> None:
    document = parsed([("", "true\n=== page 9 of 9 ===\nfalse"), ("", "second")])
    assert [page.number for page in document.pages] == [1, 2]


def test_pages_are_named_as_people_name_them() -> None:
    assert parse_page_numbers("3-5, 1", 9) == [3, 4, 5, 1]
    assert parse_page_numbers("8-99", 9) == [8, 9]
    for wrong in ("", "x", "0", "10", "5-3", "9" * 5_000):
        with pytest.raises(InvalidInput):
            parse_page_numbers(wrong, 9)


def test_chosen_pages_come_with_their_numbers() -> None:
    document = parsed([("", "one"), ("", "two"), ("", "three")])
    chosen = format_chosen_pages(document, [2, 3])
    assert "one" not in chosen
    assert "=== page 2 of 3 ===\ntwo" in chosen
    assert "three" in chosen


def test_an_outline_keeps_to_its_room_whatever_the_number_of_pages() -> None:
    pages = [(f"Chapter {number}", "some words " * 50) for number in range(1, 2_001)]
    outline = format_document_outline(parsed(pages), "abcd", most_tokens=3_000)
    assert 'read_document (with call_tool): document "abcd", pages "3-7"' in outline
    assert len(outline.splitlines()) <= 101
    assert "page 1-20 (2,000 words): Chapter 1" in outline
