"""Passages: the lines as they are, the rarest words first, within the room, and how to go on."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine import text_passages
from tests.engine.keeping import Quarters

TOKENS = Quarters()
HEAD = re.compile(r"\[lines (\d+)-(\d+) of ([\d,]+)\]")
LINES = [f"line {number} says nothing" for number in range(1, 501)]


def test_the_rarest_words_decide() -> None:
    lines = LINES[:300] + ["def merge_tables(left, right):"] + LINES[300:]
    found = text_passages.find_passages(TOKENS, lines, "nothing merge_tables", 300)
    assert "def merge_tables(left, right):" in found
    assert found.startswith("[lines 291-311 of 501]")
    assert "also in lines" in found


def test_a_short_text_comes_whole_and_one_without_the_words_not_at_all() -> None:
    assert text_passages.find_passages(TOKENS, ["one", "two"], "TWO") == "one\ntwo"
    assert text_passages.find_passages(TOKENS, LINES, "absent") == ""
    assert text_passages.find_passages(TOKENS, LINES, "") == ""


def test_two_places_in_the_order_of_the_text() -> None:
    lines = LINES[:100] + ["alpha_one"] + LINES[100:400] + ["beta_two"] + LINES[400:]
    found = text_passages.find_passages(TOKENS, lines, "beta_two alpha_one", 400)
    assert [match[1] for match in HEAD.finditer(found)] == ["91", "392"]


def test_a_file_that_was_read_three_times_shows_its_line_once_and_leaves_room_for_other_places() -> (
    None
):
    file = LINES[:30] + ["timeout = 30"] + LINES[30:60]
    texts = [
        ("newest", file),
        ("older", file),
        ("oldest", file),
        ("notes", ["we raised the timeout because of CI"]),
    ]
    found = text_passages.find_passages_in_texts(TOKENS, texts, "timeout", 400)
    assert found.count("timeout = 30") == 1
    assert "of newest]" in found
    assert "we raised the timeout because of CI" in found


def test_a_word_in_many_places_shows_the_first_two_of_one_text_and_four_of_several() -> None:
    lines: list[str] = []
    for number in range(9):
        lines.append(f"retry number {number}")
        lines += LINES[:40]
    found = text_passages.find_passages(TOKENS, lines, "retry", 1_000)
    assert re.findall(r"^retry number \d", found, re.MULTILINE) == [
        "retry number 0",
        "retry number 1",
    ]
    assert "also in lines 83, 124" in found
    several = text_passages.find_passages_in_texts(
        TOKENS, [("one", lines), ("two", LINES)], "retry", 1_000
    )
    assert re.findall(r"^retry number \d", several, re.MULTILINE) == [
        f"retry number {at}" for at in range(4)
    ]


def test_words_that_a_passage_shows_leave_the_next_passage_to_the_other_words() -> None:
    far = LINES[:100]
    lines = ["rare_one"] + far
    lines += ["rare_one again"] + far
    lines += ["other_two"] + far
    lines += ["other_two again"] + far
    lines.append("other_two")
    found = text_passages.find_passages(TOKENS, lines, "rare_one other_two", 600)
    assert [match[1] for match in HEAD.finditer(found)] == ["1", "193"]


def test_a_line_that_the_view_shows_is_found_after_one_that_it_does_not_show() -> None:
    texts = [
        ("newest", LINES[:40] + ["  retry = 3"] + LINES[40:80]),
        ("older", LINES[100:140] + ["retry = 5"]),
    ]
    for room, expected in ((30, ["retry = 5"]), (1_000, ["  retry = 3", "retry = 5"])):
        found = text_passages.find_passages_in_texts(
            TOKENS, texts, "retry", room, in_view={"retry = 3"}
        )
        assert [line for line in found.splitlines() if "retry" in line] == expected


def test_words_that_follow_each_other_as_in_the_query_come_before_the_same_words_apart() -> None:
    lines = LINES[:100] + ["RelatedField: a class"]
    lines += LINES[100:300] + ["class RelatedField(Field):"]
    lines += LINES[300:]
    found = text_passages.find_passages(TOKENS, lines, "class RelatedField", 30)
    assert "class RelatedField(Field):" in found
    assert "RelatedField: a class" not in found


def test_words_a_few_lines_away_decide_between_equal_lines() -> None:
    far = ["def run(self):"] + LINES[:4] + ["    total_of_invoices += 1"]
    lines = ["def run(self):"] + LINES[100:200] + far + LINES[200:]
    found = text_passages.find_passages(TOKENS, lines, "run self total_of_invoices", 60)
    assert "total_of_invoices" in found
    assert "[lines 1-" not in found


def test_of_a_long_line_the_first_word_is_shown_though_others_follow_each_other_there() -> None:
    line = "a" * 50_000 + " class RelatedField " + "b" * 50_000
    assert "class RelatedField" in text_passages.find_passages(
        TOKENS, [line] + LINES, "class RelatedField", 600
    )


def test_of_a_very_long_line_what_is_around_the_word_is_shown_and_where() -> None:
    found = text_passages.find_passages(
        TOKENS, ["a" * 50_000 + " needle_here " + "b" * 50_000], "needle_here"
    )
    assert "needle_here" in found
    assert "[characters 49,502-50,501 of 100,013]" in found


def test_the_word_in_a_very_long_line_is_shown_also_behind_letters_that_grow_without_case() -> None:
    found = text_passages.find_passages(
        TOKENS, ["ß" * 50_000 + " Needle_here " + "b" * 50_000], "needle_here"
    )
    assert "Needle_here" in found
    assert "[characters 49,502-50,501 of 100,013]" in found


def test_no_more_of_a_very_long_line_is_named_than_it_has() -> None:
    found = text_passages.find_passages(TOKENS, ["a" * 50_000 + " needle_here"], "needle_here")
    assert "[characters 49,502-50,012 of 50,012]" in found


@given(
    st.lists(st.text("ab c\t", max_size=40), min_size=1, max_size=200),
    st.text("abc ", min_size=1, max_size=12),
)
def test_every_passage_is_the_lines_it_says_word_for_word(lines: list[str], words: str) -> None:
    found = text_passages.find_passages(TOKENS, lines, words, 60)
    if not found or found == "\n".join(lines):
        return
    shown = found.split("\n")
    assert "go on with lines=" in shown[-1]
    at = 0
    while match := HEAD.fullmatch(shown[at]):
        first = int(match[1])
        last = int(match[2])
        assert shown[at + 1 : at + 2 + last - first] == lines[first - 1 : last]
        at += 2 + last - first
    assert at == len(shown) - 1


@given(
    st.lists(
        st.lists(st.text("ab c", max_size=30), min_size=1, max_size=60), min_size=1, max_size=6
    ),
    st.text("abc ", min_size=1, max_size=12),
)
def test_passages_of_several_texts_are_lines_of_the_text_they_name(
    texts: list[list[str]], words: str
) -> None:
    found = text_passages.find_passages_in_texts(
        TOKENS, [(f"text {number}", text) for number, text in enumerate(texts)], words, 60
    )
    shown = found.split("\n") if found else []
    at = 0
    while at < len(shown):
        match = re.fullmatch(r"\[lines (\d+)-(\d+) of (\d+) of text (\d+)\]", shown[at])
        assert match is not None
        first, last, whole, number = map(int, match.groups())
        assert whole == len(texts[number])
        assert shown[at + 1 : at + 2 + last - first] == texts[number][first - 1 : last]
        at += 2 + last - first
