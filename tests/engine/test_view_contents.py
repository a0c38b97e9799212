"""Stored content as a model is shown it: read once, kept while a view needs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from helix_desktop.engine.facts import PartRef, Stored
from helix_desktop.engine.messages import Block, ContextKind, Image, Role, View
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view_contents import SAMPLE_BYTES, ViewContents, estimate_entry_tokens
from helix_desktop.store.in_memory_stores import MemoryCache


class Counting(MemoryCache):
    """`asked`: what was read, in order; `meanwhile` is called before each read ends."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Digest] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def read_contents(self, digests: Collection[Digest]) -> Mapping[Digest, bytes]:
        self.asked += digests
        self.meanwhile()
        return await super().read_contents(digests)


def view(*stored: Stored) -> View:
    return View(
        tuple(
            Block(ContextKind.OUTPUT, Role.USER, PartRef(seq), each, 1)
            for seq, each in enumerate(stored, 1)
        )
    )


async def test_what_a_view_goes_on_needing_is_read_once_and_the_rest_is_let_go() -> None:
    cache = Counting()
    one, two = [await cache.store_content(text, EntryOrigin("shell")) for text in (b"one", b"two")]
    contents = ViewContents(cache)
    assert await contents.read_view_contents(view(one, two, one)) == {one: "one", two: "two"}
    assert await contents.read_view_contents(view(two)) == {two: "two"}
    assert cache.asked == [one.digest, two.digest]
    await contents.read_view_contents(view(one, two))
    assert cache.asked == [one.digest, two.digest, one.digest]


async def test_the_same_bytes_are_a_picture_in_one_place_and_text_in_another() -> None:
    cache = Counting()
    picture, text = [
        await cache.store_content(b"bytes", EntryOrigin("read_file", media_type=kind))
        for kind in ("image/png", "text/plain")
    ]
    assert await ViewContents(cache).read_view_contents(view(picture, text)) == {
        picture: Image("image/png", b"bytes"),
        text: "bytes",
    }


async def test_what_cannot_be_read_is_a_sentence_and_tried_again() -> None:
    cache = Counting()
    gone = Stored(Digest.of_content(b"late"), 4)
    contents = ViewContents(cache)
    assert "is not available" in str((await contents.read_view_contents(view(gone)))[gone])
    await cache.store_content(b"late", EntryOrigin("shell"))
    assert await contents.read_view_contents(view(gone)) == {gone: "late"}


async def test_what_is_forgotten_while_it_is_read_is_not_kept() -> None:
    cache = Counting()
    stored = await cache.store_content(b"secret", EntryOrigin("shell"))
    contents = ViewContents(cache)
    cache.meanwhile = contents.clear_read_contents
    await contents.read_view_contents(view(stored))
    cache.meanwhile = lambda: None
    await contents.read_view_contents(view(stored))
    assert cache.asked == [stored.digest, stored.digest]


def test_tokens_are_counted_in_the_first_megabyte_and_go_on_by_proportion() -> None:
    text = b"word " * SAMPLE_BYTES
    assert estimate_entry_tokens(len(text), text, len) == len(text)
    assert (
        estimate_entry_tokens(len(text), text, lambda read: len(read) // 8)
        == SAMPLE_BYTES // 8 * len(text) // SAMPLE_BYTES
    )
    assert estimate_entry_tokens(5, b"word ", len) == 5
    assert estimate_entry_tokens(0, b"", len) == 0
