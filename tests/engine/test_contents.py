"""Stored content as a model is shown it: read once, kept while a view needs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from helix_desktop.engine.blocks import Block, Image, Kind, Role, View
from helix_desktop.engine.contents import SAMPLE, Contents, tokens_in
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import PartRef, Stored
from helix_desktop.engine.ports import About
from helix_desktop.store.memory import MemoryCache


class Counting(MemoryCache):
    """`asked`: what was read, in order; `meanwhile` is called before each read ends."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Digest] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def contents(self, digests: Collection[Digest]) -> Mapping[Digest, bytes]:
        self.asked += digests
        self.meanwhile()
        return await super().contents(digests)


def view(*stored: Stored) -> View:
    return View(tuple(Block(Kind.OUTPUT, Role.USER, PartRef(seq), each, 1) for seq, each in enumerate(stored, 1)))


async def test_what_a_view_goes_on_needing_is_read_once_and_the_rest_is_let_go() -> None:
    cache = Counting()
    one, two = [await cache.put(text, About("shell")) for text in (b"one", b"two")]
    contents = Contents(cache)
    assert await contents.of(view(one, two, one)) == {one: "one", two: "two"}
    assert await contents.of(view(two)) == {two: "two"}
    assert cache.asked == [one.digest, two.digest]
    await contents.of(view(one, two))
    assert cache.asked == [one.digest, two.digest, one.digest]


async def test_the_same_bytes_are_a_picture_in_one_place_and_text_in_another() -> None:
    cache = Counting()
    picture, text = [
        await cache.put(b"bytes", About("read_file", media_type=kind)) for kind in ("image/png", "text/plain")
    ]
    assert await Contents(cache).of(view(picture, text)) == {picture: Image("image/png", b"bytes"), text: "bytes"}


async def test_what_cannot_be_read_is_a_sentence_and_tried_again() -> None:
    cache = Counting()
    gone = Stored(Digest.of(b"late"), 4)
    contents = Contents(cache)
    assert "is not available" in str((await contents.of(view(gone)))[gone])
    await cache.put(b"late", About("shell"))
    assert await contents.of(view(gone)) == {gone: "late"}


async def test_what_is_forgotten_while_it_is_read_is_not_kept() -> None:
    cache = Counting()
    stored = await cache.put(b"secret", About("shell"))
    contents = Contents(cache)
    cache.meanwhile = contents.clear
    await contents.of(view(stored))
    cache.meanwhile = lambda: None
    await contents.of(view(stored))
    assert cache.asked == [stored.digest, stored.digest]


def test_tokens_are_counted_in_the_first_megabyte_and_go_on_by_proportion() -> None:
    text = b"word " * SAMPLE
    assert tokens_in(len(text), text, len) == len(text)
    assert tokens_in(len(text), text, lambda read: len(read) // 8) == SAMPLE // 8 * len(text) // SAMPLE
    assert tokens_in(5, b"word ", len) == 5
    assert tokens_in(0, b"", len) == 0
