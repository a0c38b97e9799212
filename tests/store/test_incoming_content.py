from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import About
from helix_desktop.store.cache import CacheFolder
from helix_desktop.store.incoming_content import line_count
from helix_desktop.store.records import CHUNK, VERSION_KEY

SHELL = About("shell", "ls")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[CacheFolder]:
    opened = CacheFolder(tmp_path / "cache")
    yield opened
    opened.close()


def test_what_is_abandoned_is_taken_back(cache: CacheFolder) -> None:
    incoming = cache.begin(SHELL)
    incoming.write(bytes(3 * CHUNK))
    incoming.abandon()
    assert list(cache.level.keys(b"a", b"z")) == [VERSION_KEY]


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
    about = About(media_type=media)
    assert line_count(content, about) == lines
    incoming = cache.begin(about)
    incoming.write(b"x" * 2 * CHUNK + b"\n" + content)
    assert incoming.finish().record.lines == (lines + 1 if media != "image/png" else 0)


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 3 * CHUNK), max_size=6), size=st.integers(0, 3 * CHUNK), seed=st.integers(0, 99))
def test_however_it_comes_it_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], size: int, seed: int
) -> None:
    cache = CacheFolder(tmp_path_factory.mktemp("cache"))
    content = random.Random(seed).randbytes(size)
    places = sorted({0, *(min(cut, size) for cut in cuts), size})
    incoming = cache.begin(SHELL)
    for start, stop in pairwise(places):
        incoming.write(content[start:stop])
    staged = incoming.finish()
    cache.commit([staged])
    assert staged.record.digest == Digest.of(content)
    assert cache.get(staged.record.digest) == content
    assert cache.read(staged.record.digest, size // 3, size) == content[size // 3 :]
    assert staged.record.kept >= size
    cache.close()
