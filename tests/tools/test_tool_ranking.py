from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.search_query import stem_of_word
from helix_desktop.tools.tool_ranking import TextRanking, distinguishing_stems

TOOLS = [
    ("create_issue", "Open a new issue in a repository"),
    ("listPullRequests", "All pull requests of a repository"),
    ("convert_currency", "Exchange rates between currencies"),
    ("weather", "The forecast for a city"),
]


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("please create an issue", 0),
        ("which pull request is open", 1),
        ("converting currencies", 2),
        ("what will the weather be in these cities", 3),
    ],
)
def test_the_tool_that_fits_comes_first(question: str, first: int) -> None:
    assert TextRanking(TOOLS).find_best_texts(question, 2)[0] == first


def test_what_is_not_allowed_is_not_found() -> None:
    assert TextRanking(TOOLS).find_best_texts("repository", 5, lambda number: number != 0) == [1]


def test_nothing_is_found_in_nothing() -> None:
    assert TextRanking(()).find_best_texts("anything", 5) == []
    assert TextRanking(TOOLS).find_best_texts("", 5) == []


def test_names_are_taken_apart_and_forms_of_a_word_are_one() -> None:
    found = distinguishing_stems("getHTTPStatus create_issue")
    assert found == ["http", stem_of_word("status"), stem_of_word("create"), "issu"]
    assert len(set(distinguishing_stems("convert converts converting converter"))) == 1


@given(st.text(max_size=40))
def test_any_word_has_a_stem(word: str) -> None:
    assert all(distinguishing_stems(word))


def test_a_search_among_nine_thousand_takes_milliseconds() -> None:
    line = "creates updates deletes lists searches repository issue message file calendar contact invoice"
    said = line.split()
    texts = [
        (f"server{n % 60}__{said[n % 12]}_{n}", " ".join(said[n % 7 : n % 7 + 6]) + f" number {n}")
        for n in range(9_000)
    ]
    ranking = TextRanking(texts)
    started = time.process_time()
    assert len(ranking.find_best_texts("search the repository for an issue about invoices", 5)) == 5
    assert (
        time.process_time() - started < 0.5
    )  # 20 ms on a quiet machine; tests/benchmarks/finding.py measures it
