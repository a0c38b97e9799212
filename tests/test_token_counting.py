from __future__ import annotations

import base64
import hashlib
import importlib
import random
import shutil
import socket
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop import concurrency, resources, token_counting
from helix_desktop.errors import StoreFailed
from helix_desktop.token_counting import (
    PIECE,
    VOCABULARIES,
    WHOLE,
    TiktokenCounter,
    cut_into_pieces,
    get_encoding,
)

COUNTER = TiktokenCounter()


@pytest.mark.parametrize("name", VOCABULARIES)
def test_a_vocabulary_is_the_one_tiktoken_publishes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = resources.resources_folder() / "encodings"

    def shipped(address: str, *, expected_hash: str) -> dict[bytes, int]:
        content = (folder / address.rpartition("/")[2]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == expected_hash == VOCABULARIES[name].sha256
        return {
            base64.b64decode(token): int(rank)
            for token, rank in map(bytes.split, content.splitlines())
        }

    published = importlib.import_module("tiktoken_ext.openai_public")
    monkeypatch.setattr(published, "load_tiktoken_bpe", shipped)
    theirs = getattr(published, name)()
    ours = get_encoding(name)
    # Ours of o200k_base has a group around its first expressions, for speed.
    assert (
        ours._pat_str.removeprefix("(?:").replace(r")|\s+(?!\S)", r"|\s+(?!\S)")
        == theirs["pat_str"]
    )
    assert ours._special_tokens == theirs["special_tokens"]
    assert ours.token_byte_values() == sorted(theirs["mergeable_ranks"])
    assert all(
        ours.encode_single_token(word) == rank for word, rank in theirs["mergeable_ranks"].items()
    )


def test_the_group_in_the_expression_changes_no_word() -> None:
    signs = [
        *" \n\r\t.,;'/-_#(){}=0129abcsStrXYZ",
        "\r\n",
        "'ll",
        "é",
        "ß",
        "ǅ",
        "漢",
        "क",
        "्",
        "\u0301",
        "\u00a0",
        "😀",
    ]
    grouped = VOCABULARIES["o200k_base"].pattern
    ungrouped = grouped.removeprefix("(?:").replace(r")|\s+(?!\S)", r"|\s+(?!\S)")
    regex = importlib.import_module("regex")
    ours = regex.compile(grouped)
    published = regex.compile(ungrouped)
    chance = random.Random(5)
    for _ in range(3_000):
        text = "".join(chance.choices(signs, k=30))
        assert ours.findall(text) == published.findall(text)
        assert COUNTER._count_batch([text, "", text]) == [
            COUNTER._count_piece(text),
            0,
            COUNTER._count_piece(text),
        ]


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("hello world", 2), ("<|endoftext|>", 7), ("日本語", 2), ("a" * 9, 2), ("\ud800", 1)],
)
def test_counts_are_those_of_o200k(text: str, count: int) -> None:
    assert COUNTER.count_tokens(text) == count


def test_a_panic_inside_tiktoken_ends_in_an_estimate(expect: Callable[[str], None]) -> None:
    expect("tiktoken gave up")

    class Panics:
        def encode_ordinary(self, text: str) -> list[int]:
            raise BaseException("panic")  # noqa: TRY002 - as pyo3 raises it

    counter = TiktokenCounter()
    counter._encoding = Panics()  # type: ignore[assignment]
    assert counter.count_tokens("x" * 360) == 100


def test_a_million_blanks_are_counted() -> None:
    assert 1000 < COUNTER.count_tokens(" " * WHOLE) < WHOLE


def test_an_interrupt_is_not_swallowed() -> None:
    class Interrupted:
        def encode_ordinary(self, text: str) -> list[int]:
            raise KeyboardInterrupt

    counter = TiktokenCounter()
    counter._encoding = Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        counter.count_tokens("text")


def test_no_network_is_ever_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert TiktokenCounter("cl100k_base").count_tokens("hello world") == 2


@pytest.mark.parametrize("content", [None, b"damaged"])
def test_a_missing_or_damaged_vocabulary_is_named(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "o200k_base.tiktoken").write_bytes(content)
    with pytest.raises(StoreFailed, match="o200k_base"):
        TiktokenCounter(folder=tmp_path).count_tokens("x")
    shutil.rmtree(tmp_path)


def test_a_loaded_vocabulary_stands_in_memory_once(tmp_path: Path) -> None:
    shutil.copy(resources.resources_folder() / "encodings" / "cl100k_base.tiktoken", tmp_path)
    tracemalloc.start()
    try:
        encoding = get_encoding("cl100k_base", tmp_path)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000  # of Python's; 100,000 words would be ten times that
    assert (
        encoding.decode(encoding.encode_ordinary("a word and ünicode 語"))
        == "a word and ünicode 語"
    )


def test_a_count_is_remembered() -> None:
    counter = TiktokenCounter()
    assert counter.count_tokens("the same words") == counter.count_tokens("the same words")
    counter._encoding = None
    counter._folder = Path("/nowhere")
    assert counter.count_tokens("the same words") == 3
    with pytest.raises(StoreFailed):
        counter.count_tokens("other words")


def test_a_remembered_count_does_not_wait_for_the_vocabulary() -> None:
    """The event loop asks for it while a thread loads the vocabulary, which takes half a second."""
    counter = TiktokenCounter()
    answers: list[int] = []
    counter._remember_count(token_counting._hash_of_text("known"), 7)
    with counter._loading:
        asking = concurrency.start_thread(
            lambda: answers.append(counter.count_tokens("known")), name="ask"
        )
        asking.join(60)
    assert answers == [7]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_counting, "REMEMBERED", 10)
    counter = TiktokenCounter()
    for number in range(30):
        counter.count_tokens(f"text {number}")
    assert len(counter._counts) == 10


def test_a_large_text_is_estimated_closely() -> None:
    chance = random.Random(1)
    words = ["alpha", "return", "parseHttpRequest", "0x7f", "\n", "{", "naïve", "self.index"]
    text = " ".join(chance.choice(words) for _ in range(400_000))
    assert len(text) > WHOLE
    exact = sum(COUNTER.count_tokens(piece) for piece in cut_into_pieces(text))
    assert abs(COUNTER.count_tokens(text) / exact - 1) < 0.03


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300), st.integers(1, 200))
def test_pieces_are_the_text(text: str, times: int) -> None:
    whole = text * times
    cut = list(cut_into_pieces(whole))
    assert "".join(cut) == whole
    assert all(len(piece) <= PIECE for piece in cut)


def test_pieces_end_at_lines() -> None:
    text = "a line of some length\n" * 3000
    assert all(piece.endswith("\n") for piece in cut_into_pieces(text) if piece)


def test_counting_from_many_threads_is_safe() -> None:
    counter = TiktokenCounter()
    found = set()
    threads = [
        threading.Thread(target=lambda: found.add(counter.count_tokens("one two three")))  # noqa: TID251
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {3}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=30))
def test_texts_counted_together_have_the_counts_they_have_alone(texts: list[str]) -> None:
    texts = [*texts, "<|endoftext|> in the middle", "line\n" * 5_000]
    ahead = TiktokenCounter()
    alone = TiktokenCounter()
    ahead._encoding = alone._encoding = COUNTER._loaded_encoding()
    ahead.count_ahead(texts)
    assert {token_counting._hash_of_text(text) for text in texts} == set(ahead._counts)
    assert [ahead.count_tokens(text) for text in texts] == [
        sum(map(alone._count_piece, cut_into_pieces(text))) for text in texts
    ]


def test_where_many_texts_together_make_tiktoken_panic_each_is_counted_alone() -> None:
    class Panics:
        def encode(self, *_: object, **__: object) -> list[int]:
            raise BaseException("panic")  # noqa: TRY002 - as pyo3 raises it

        def encode_ordinary(self, text: str) -> list[int]:
            return [0] * len(text)

    counter = TiktokenCounter()
    counter._encoding = Panics()  # type: ignore[assignment]
    counter.count_ahead(["ab", "abc"])
    assert (counter.count_tokens("ab"), counter.count_tokens("abc")) == (2, 3)
