from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.cache_records import CHUNK, VERSION_KEY
from helix_desktop.store.incoming_content import count_text_lines

SHELL = EntryOrigin("shell", "ls")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[CacheFolder]:
    opened = CacheFolder(tmp_path / "cache")
    yield opened
    opened.close()


def test_what_is_abandoned_is_taken_back(cache: CacheFolder) -> None:
    incoming = cache.begin_incoming(SHELL)
    incoming.write_piece(bytes(3 * CHUNK))
    incoming.abandon_entry()
    assert list(cache.level.keys_in_range(b"a", b"z")) == [VERSION_KEY]


@pytest.mark.parametrize(
    ("content", "media", "lines"),
    [
        (b"", "text/plain", 0),
        (b"a", "text/plain", 1),
        (b"a\n", "text/plain", 1),
        (b"a\nb", "application/json", 2),
        (b"\n\n", "text/html", 2),
        (b"\n\n", "image/png", 0),
    ],
)
def test_lines(cache: CacheFolder, content: bytes, media: str, lines: int) -> None:
    about = EntryOrigin(media_type=media)
    assert count_text_lines(content, about) == lines
    incoming = cache.begin_incoming(about)
    incoming.write_piece(b"x" * 2 * CHUNK + b"\n" + content)
    assert incoming.finish_entry().record.lines == (lines + 1 if media != "image/png" else 0)


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 3 * CHUNK), max_size=6), size=st.integers(0, 3 * CHUNK), seed=st.integers(0, 99))
def test_however_it_comes_it_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], size: int, seed: int
) -> None:
    cache = CacheFolder(tmp_path_factory.mktemp("cache"))
    content = random.Random(seed).randbytes(size)
    places = sorted({0, *(min(cut, size) for cut in cuts), size})
    incoming = cache.begin_incoming(SHELL)
    for start, stop in pairwise(places):
        incoming.write_piece(content[start:stop])
    staged = incoming.finish_entry()
    cache.commit_staged([staged])
    assert staged.record.digest == Digest.of_content(content)
    assert cache.get_content(staged.record.digest) == content
    assert cache.read_part(staged.record.digest, size // 3, size) == content[size // 3 :]
    assert staged.record.kept >= size
    cache.close()
