"""What a search asks for: stems, words that tell something, filters."""

from __future__ import annotations

import pytest

from helix_desktop.engine.search_query import (
    SearchFilters,
    query_words_and_user_if_first_person,
    split_query_into_words_and_filters,
    stem_of_word,
    without_stop_words,
)
from helix_desktop.errors import InvalidInput


@pytest.mark.parametrize(
    "forms",
    [
        ("paint", "paints", "painted", "painting", "paintings", "painter"),
        ("connection", "connections"),
        ("stopping", "stopped"),
        ("Rechnung", "Rechnungen"),
        ("Fehler", "Fehlern"),
        ("großen", "großer", "großes", "große"),
    ],
)
def test_the_forms_of_a_word_share_a_beginning(forms: tuple[str, ...]) -> None:
    stems = sorted({stem_of_word(form) for form in forms}, key=len)
    assert all(stem.startswith(stems[0]) for stem in stems)
    assert all(form.casefold().startswith(stem_of_word(form)[:4]) for form in forms)


@pytest.mark.parametrize("word", ["E0308", "a/b.py", "is", "东京", "snake_case", "this"])
def test_codes_paths_short_words_and_other_scripts_stay(word: str) -> None:
    assert stem_of_word(word) == word.casefold()


def test_words_that_tell_nothing_are_left_out_unless_there_are_no_others() -> None:
    assert without_stop_words(["what", "was", "the", "name", "of", "the", "river?"]) == [
        "name",
        "river?",
    ]
    assert without_stop_words(["wie", "ist", "der", "Name"]) == ["Name"]
    assert without_stop_words(["who", "is", "it"]) == ["who", "is", "it"]


def test_filters_are_taken_out_and_everything_else_stays() -> None:
    query, filters = split_query_into_words_and_filters(
        'Tool:shell timeout file:"my log.txt" by:user agent:Claude after:2026-01-02 before:03.02.2026'
    )
    assert query.split() == ["timeout"]
    assert filters == SearchFilters(
        "shell", "my log.txt", "user", "claude", 1770076800.0, 1767312000.0
    )
    for plain in ("file://etc", "note:this", '"before:noon"', "tool:", "xtool:y"):
        assert split_query_into_words_and_filters(plain) == (plain, SearchFilters())


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("before:noon", "“noon” is not a date."),
        ("lock after:2026-13", "“2026-13” is not a date."),
        ("by:me", "“by:” does not know “me”."),
    ],
)
def test_a_filter_with_a_wrong_value_says_what_is_expected(query: str, what: str) -> None:
    """It was searched for as a word, or found nothing, and nobody said why."""
    with pytest.raises(InvalidInput) as refused:
        split_query_into_words_and_filters(query)
    assert refused.value.what == what
    assert any(word in refused.value.remedy for word in ("2026-03-31", "user, agent or tool"))


@pytest.mark.parametrize(
    "query",
    ["Did I say so?", "my plan", "Wann war mein Termin?", "Was habe ich gesagt?", "我说过什么"],
)
def test_a_question_in_the_first_person_names_the_user(query: str) -> None:
    assert "user" in query_words_and_user_if_first_person(query)


@pytest.mark.parametrize(
    "query", ["for i in range", "Melanie's plan", "meine_funktion", "myself.py"]
)
def test_a_question_in_the_third_person_does_not(query: str) -> None:
    assert "user" not in query_words_and_user_if_first_person(query)
    assert "melanie" in query_words_and_user_if_first_person("Melanie's plan")
