"""A model that says the same again and again is noticed, and one that does not is left alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.messages import CallDelta, ReasoningDelta, TextDelta
from helix_desktop.engine.repeated_text import (
    CHECKED_EVERY_BYTES,
    LIMIT_IN_TEXT,
    RepetitionWatch,
    find_repetition_over_limit,
)
from helix_desktop.token_counting import shared_token_counter

PROSE = " ".join(
    random.Random(7).choice(("late", "fee", "reader", "book", "day", "loan", "paid", "sent"))
    + str(number)
    for number in range(600)
)


def bytes_until_noticed(text: str, piece: int = 4) -> int | None:
    """How many bytes of a text are read before the repetition is noticed."""
    watch = RepetitionWatch()
    read = 0
    for start in range(0, len(text), piece):
        part = text[start : start + piece]
        read += len(part.encode())
        if watch.is_repeating(TextDelta(part)):
            return read
    return None


@given(
    st.text(min_size=1, max_size=700).filter(lambda text: len(text.encode()) <= 1_500),
    st.integers(0, 3_000),
)
@settings(max_examples=60, deadline=None)
def test_any_period_is_noticed_within_400_tokens_of_its_first_repetition(
    period: str, prose: int
) -> None:
    before = PROSE[:prose]
    repeated = period * (8_000 // len(period.encode()) + 2)
    read = bytes_until_noticed(before + repeated)
    assert read is not None
    first_repetition_at = len(before.encode()) + len(period.encode())
    assert read <= first_repetition_at + LIMIT_IN_TEXT.most_bytes + CHECKED_EVERY_BYTES + 16


@pytest.mark.parametrize(
    "repeated",
    [
        "is ",
        "As a language model I can help. ",
        "我可以帮助你。",
        "| 1 | 2 |\n",
        '{"port": 8080}, ',
    ],
)
def test_at_most_400_tokens_are_written_again(repeated: str) -> None:
    read = bytes_until_noticed(repeated * 3_000)
    assert read is not None
    written_again = (repeated * 3_000).encode()[len(repeated.encode()) : read]
    tokens = shared_token_counter().count_tokens(written_again.decode("utf-8", "ignore"))
    most_tokens_before_the_next_check = CHECKED_EVERY_BYTES // 2
    assert tokens <= LIMIT_IN_TEXT.most_tokens + most_tokens_before_the_next_check


def test_a_list_that_only_counts_on_is_noticed() -> None:
    entries = [f"{number}. Open the file and read it.\n" for number in range(1, 400)]
    read = bytes_until_noticed("".join(entries))
    assert read is not None
    assert read <= 2_000


def test_a_list_of_figures_is_left_alone() -> None:
    rows = [f"2026-01-{day % 31 + 1:02}: {day * 37 % 101} of 100\n" for day in range(93)]
    entries = [f"{number}. {row}" for number, row in enumerate(rows, 1)]
    assert bytes_until_noticed("".join(entries)) is None


def test_a_paragraph_that_is_longer_than_the_limit_is_noticed_when_it_stands_there_twice() -> None:
    paragraph = PROSE[:3_000]
    assert bytes_until_noticed(paragraph * 3) is not None


@pytest.mark.parametrize("path", sorted(Path("helix_desktop/engine").glob("*.py"))[:30], ids=str)
def test_code_is_no_repetition(path: Path) -> None:
    assert bytes_until_noticed(path.read_text("utf-8"), 50) is None


def test_the_same_passage_at_two_places_is_no_repetition() -> None:
    passage = PROSE[:2_000]
    assert bytes_until_noticed(f"{passage}\n\nNow with a change:\n\n{passage}\n\nDone.") is None


def test_thoughts_are_watched_and_arguments_may_repeat_more() -> None:
    watch = RepetitionWatch()
    assert any(watch.is_repeating(ReasoningDelta("Wait. ")) for _ in range(400))
    rows = RepetitionWatch()
    assert not any(rows.is_repeating(CallDelta(0, "c", "write", "0,0,0\n")) for _ in range(2_000))
    assert any(rows.is_repeating(CallDelta(0, "c", "write", "0,0,0\n")) for _ in range(2_000))


def test_what_stood_before_and_two_repetitions_are_kept() -> None:
    watch = RepetitionWatch()
    before = "I looked at the file. "
    for piece in [before, *["And again. "] * 400]:
        if watch.is_repeating(TextDelta(piece)):
            break
    kept = watch.text_without_repetitions()
    assert kept.startswith(before)
    assert kept.count("And again") == 2
    assert watch.written_text().count("And again.") > 100


@pytest.mark.parametrize("text", ["借书的日期是星期一。", "Книга на полке. ", "é"])
def test_characters_of_several_bytes_are_kept_whole(text: str) -> None:
    watch = RepetitionWatch()
    while not watch.is_repeating(TextDelta(text)):
        pass
    assert set(watch.text_without_repetitions()) <= set(text)


def test_a_short_text_is_never_a_repetition() -> None:
    assert find_repetition_over_limit(b"ab" * 700, LIMIT_IN_TEXT) is None
