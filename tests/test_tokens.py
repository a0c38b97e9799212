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

from helix_desktop import resources, tokens
from helix_desktop.errors import StoreFailed
from helix_desktop.tokens import PIECE, VOCABULARIES, WHOLE, Counter, load, pieces

COUNTER = Counter()


@pytest.mark.parametrize("name", VOCABULARIES)
def test_a_vocabulary_is_the_one_tiktoken_publishes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = resources.folder() / "encodings"

    def shipped(address: str, *, expected_hash: str) -> dict[bytes, int]:
        content = (folder / address.rpartition("/")[2]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == expected_hash == VOCABULARIES[name].sha256
        return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, content.splitlines())}

    published = importlib.import_module("tiktoken_ext.openai_public")
    monkeypatch.setattr(published, "load_tiktoken_bpe", shipped)
    theirs = getattr(published, name)()
    ours = load(name)
    assert ours._pat_str == theirs["pat_str"]
    assert ours._special_tokens == theirs["special_tokens"]
    assert ours.token_byte_values() == sorted(theirs["mergeable_ranks"])
    assert all(ours.encode_single_token(word) == rank for word, rank in theirs["mergeable_ranks"].items())


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("hello world", 2), ("<|endoftext|>", 7), ("日本語", 2), ("a" * 9, 2), ("\ud800", 1)]
)
def test_counts_are_those_of_o200k(text: str, count: int) -> None:
    assert COUNTER.count(text) == count


def test_a_panic_inside_tiktoken_ends_in_an_estimate(expect: Callable[[str], None]) -> None:
    expect("tiktoken gave up")

    class Panics:
        def encode_ordinary(self, text: str) -> list[int]:
            raise BaseException("panic")  # noqa: TRY002 - as pyo3 raises it

    counter = Counter()
    counter._encoding = Panics()  # type: ignore[assignment]
    assert counter.count("x" * 360) == 100


def test_a_million_blanks_are_counted() -> None:
    assert 1000 < COUNTER.count(" " * WHOLE) < WHOLE


def test_an_interrupt_is_not_swallowed() -> None:
    class Interrupted:
        def encode_ordinary(self, text: str) -> list[int]:
            raise KeyboardInterrupt

    counter = Counter()
    counter._encoding = Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        counter.count("text")


def test_no_network_is_ever_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert Counter("cl100k_base").count("hello world") == 2


@pytest.mark.parametrize("content", [None, b"damaged"])
def test_a_missing_or_damaged_vocabulary_is_named(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "o200k_base.tiktoken").write_bytes(content)
    with pytest.raises(StoreFailed, match="o200k_base"):
        Counter(folder=tmp_path).count("x")
    shutil.rmtree(tmp_path)


def test_a_loaded_vocabulary_stands_in_memory_once(tmp_path: Path) -> None:
    shutil.copy(resources.folder() / "encodings" / "cl100k_base.tiktoken", tmp_path)
    tracemalloc.start()
    try:
        encoding = load("cl100k_base", tmp_path)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000  # of Python's; 100,000 words would be ten times that
    assert encoding.decode(encoding.encode_ordinary("a word and ünicode 語")) == "a word and ünicode 語"


def test_a_count_is_remembered() -> None:
    counter = Counter()
    assert counter.count("the same words") == counter.count("the same words")
    counter._encoding = None
    counter._folder = Path("/nowhere")
    assert counter.count("the same words") == 3
    with pytest.raises(StoreFailed):
        counter.count("other words")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "REMEMBERED", 10)
    counter = Counter()
    for number in range(30):
        counter.count(f"text {number}")
    assert len(counter._counts) == 10


def test_a_large_text_is_estimated_closely() -> None:
    chance = random.Random(1)
    words = ["alpha", "return", "parseHttpRequest", "0x7f", "\n", "{", "naïve", "self.index"]
    text = " ".join(chance.choice(words) for _ in range(400_000))
    assert len(text) > WHOLE
    exact = sum(COUNTER.count(piece) for piece in pieces(text))
    assert abs(COUNTER.count(text) / exact - 1) < 0.03


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300), st.integers(1, 200))
def test_pieces_are_the_text(text: str, times: int) -> None:
    whole = text * times
    cut = list(pieces(whole))
    assert "".join(cut) == whole
    assert all(len(piece) <= PIECE for piece in cut)


def test_pieces_end_at_lines() -> None:
    text = "a line of some length\n" * 3000
    assert all(piece.endswith("\n") for piece in pieces(text) if piece)


def test_counting_from_many_threads_is_safe() -> None:
    counter, found = Counter(), set()
    threads = [threading.Thread(target=lambda: found.add(counter.count("one two three"))) for _ in range(8)]  # noqa: TID251
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {3}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=30))
def test_texts_counted_together_have_the_counts_they_have_alone(texts: list[str]) -> None:
    texts = [*texts, "<|endoftext|> in the middle", "line\n" * 5_000]
    ahead, alone = Counter(), Counter()
    ahead._encoding = alone._encoding = COUNTER._loaded()
    ahead.ahead(texts)
    assert {tokens._key(text) for text in texts} == set(ahead._counts)
    assert [ahead.count(text) for text in texts] == [sum(map(alone._piece, pieces(text))) for text in texts]


def test_where_many_texts_together_make_tiktoken_panic_each_is_counted_alone() -> None:
    class Panics:
        def encode(self, *_: object, **__: object) -> list[int]:
            raise BaseException("panic")  # noqa: TRY002 - as pyo3 raises it

        def encode_ordinary(self, text: str) -> list[int]:
            return [0] * len(text)

    counter = Counter()
    counter._encoding = Panics()  # type: ignore[assignment]
    counter.ahead(["ab", "abc"])
    assert (counter.count("ab"), counter.count("abc")) == (2, 3)
