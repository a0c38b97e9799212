from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.store import search_words


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("parseHttpRequest", "parse Http Request"),
        ("HTTPServer2Go", "HTTP Server 2 Go"),
        ("XMLHttp", "XML Http"),
        ("sha256Sum", "sha 256 Sum"),
        ("get_fooBar()", "foo Bar"),
        ("plain snake_case UPPER Title", ""),
        ("日本語", "日 本 語"),
        ("aB cD", "a B . c D"),
    ],
)
def test_hidden_words_are_found(text: str, hidden: str) -> None:
    assert search_words.words_inside(text) == hidden


def test_the_index_adds_each_word_once() -> None:
    assert search_words.extra_words_for_index("fooBar … fooBar\nbarFoo").split() == [
        "foo",
        "Bar",
        ".",
        "bar",
        "Foo",
    ]
    assert search_words.extra_words_for_index("日本語 fooBar").split() == [
        "foo",
        "Bar",
        ".",
        "日",
        "本",
        "語",
        "日本",
        "本語",
    ]


@pytest.mark.parametrize("letter", ["a", "A", "aB", "1", " ", "日", "_", "a1"])
def test_no_text_takes_long(letter: str) -> None:
    started = time.process_time()
    search_words.words_inside(letter * (500_000 // len(letter)))
    assert time.process_time() - started < 2.0


@given(st.text(max_size=400_000 // 1000).map(lambda text: text * 500))
def test_pieces_are_the_text_in_order(text: str) -> None:
    found = list(search_words.split_for_index(text))
    assert "".join(piece for _, piece in found) == text
    assert all(
        text[start : start + len(piece)] == piece and 0 < len(piece) <= search_words.LONGEST_ROW
        for start, piece in found
    )


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("two words", ["two", "words"]),
        ('"a phrase" word', ["a phrase", "word"]),
        ("... ! (", []),
        ('"', []),
        ("", []),
    ],
)
def test_a_query_is_taken_apart(query: str, terms: list[str]) -> None:
    assert search_words.query_terms(query) == terms


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
        max_size=5,
    )
)
@example(
    ["กั", "हिन्दी", "v2缓存", "_", "a\u0378b\U0001f9ff", "Straße*", "ﬁn ²x", "getÜser東", '"', "*"]
)
def test_the_index_can_be_asked_for_whatever_is_typed_and_finds_it(terms: list[str]) -> None:
    asked = search_words.queries_of_terms(terms, lambda _: False)
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute(
            "CREATE VIRTUAL TABLE words USING"
            f" fts5(text, content='', detail=none, columnsize=0, tokenize='{search_words.TOKENIZER}')"
        )
        for row, term in enumerate(terms):
            index.execute(
                "INSERT INTO words(rowid, text) VALUES(?, ?)",
                (row, f"{term} {search_words.extra_words_for_index(term)}"),
            )
        for row, term in enumerate(terms):
            if expression := asked[term].expression:
                found = index.execute(
                    "SELECT rowid FROM words WHERE words MATCH ?", (expression,)
                ).fetchall()
                assert (row,) in found, term


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"plain", "plain"),
        (b"\xff\xfea\0b\0", "\ufeffab"),
        ("é".encode("utf-16"), "\ufeffé"),
        (b"\x89PNG\0\0", None),
        (b"x" * 8_191 + b"\0", None),
        (b"x" * 8_192 + b"\0", "x" * 8_192 + "\0"),
        (b"caf\xe9", "caf\ufffd"),
        (b"", ""),
    ],
)
def test_text_is_told_from_other_bytes(content: bytes, text: str | None) -> None:
    found = search_words.text_or_none(content)
    assert found == (text.removeprefix("\ufeff") if text else text)


def test_a_snippet_is_the_line_around() -> None:
    text = "first\n" + "x" * 300 + " needle " + "y" * 300 + "\nlast"
    at = search_words.find_first_term(text, ["needle"])
    shown = search_words.cut_snippet(text, at)
    assert "needle" in shown
    assert len(shown) <= 200
    assert "first" not in shown
    assert search_words.find_first_term(text, ["nowhere"]) == 0
    assert search_words.cut_snippet("", 0) == ""


def test_a_snippet_is_cut_between_words() -> None:
    text = " ".join(f"word{number}" for number in range(100))
    shown = search_words.cut_snippet(text, text.index("word50"))
    assert set(shown.strip("…").split()) <= set(text.split())
    assert (shown[0], shown[-1]) == ("…", "…")
    assert "word50" in shown.split()
    assert 150 <= len(shown) <= 202
    assert search_words.cut_snippet("字" * 500, 250) == f"…{'字' * 200}…"
    assert search_words.cut_snippet("a" * 500, 0) == f"{'a' * 200}…"


def test_words_after_line_ends_are_found_in_lines_that_no_reader_understands() -> None:
    line = rb'{"content": "20\nOUTPUT-MARK\tdone", "path": "C:\\new"}'
    notes = EntryOrigin(search_words.NOTES, "notes of the agent")
    text = search_words.searched_text_or_none(line, notes)
    assert text == r'{"content": "20  OUTPUT-MARK  done", "path": "C:\\new"}'
    assert len(text) == len(line), "positions are those in the content"
    output = search_words.searched_text_or_none(line, EntryOrigin("bash", "cat notes.json"))
    assert output == line.decode(), "other outputs may be code or paths"
