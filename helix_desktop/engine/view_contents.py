"""Reads stored content as a model sees it. Content is read once and kept while a view needs it."""

from collections.abc import Callable, Iterator, Mapping

from helix_desktop.engine.facts import Attachment, Stored
from helix_desktop.engine.messages import Image, View
from helix_desktop.engine.ports import ContentReader
from helix_desktop.errors import CacheCorrupt, NotFound

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
SAMPLE_BYTES = 1 << 20  # An entry's tokens are estimated from this many of its first bytes.


class ViewContents:
    """The content that a view refers to. A request reads only what the last view lacked."""

    def __init__(self, cache: ContentReader) -> None:
        self._cache = cache
        self._contents_of_last_view: dict[Stored, str | Image] = {}

    async def read_view_contents(self, view: View) -> Mapping[Stored, str | Image]:
        """Return all stored content that a view refers to, as the model sees it.

        What the last view had, too, is not read again. A sentence replaces what cannot be read.
        """
        contents_of_last_view = self._contents_of_last_view
        contents: dict[Stored, str | Image] = {}
        stored_to_read: list[Stored] = []
        for stored in dict.fromkeys(_stored_references(view)):
            if stored in contents_of_last_view:
                contents[stored] = contents_of_last_view[stored]
            else:
                stored_to_read.append(stored)

        digests_to_read = dict.fromkeys(stored.digest for stored in stored_to_read)
        read_contents = await self._cache.read_contents(list(digests_to_read))
        unreadable: list[Stored] = []
        for stored in stored_to_read:
            if stored.digest in read_contents:
                contents[stored] = content_for_model(stored, read_contents[stored.digest])
            else:
                unreadable.append(stored)

        # If it is another object now, content was forgotten during the read.
        if self._contents_of_last_view is contents_of_last_view:
            self._contents_of_last_view = contents
        if not unreadable:
            return contents
        # The sentences are not remembered, because the content may be readable next time.
        explanations = {stored: await self._read_or_explain(stored) for stored in unreadable}
        return contents | explanations

    async def _read_or_explain(self, stored: Stored) -> str | Image:
        """Return content, or what to show in its place."""
        try:
            return content_for_model(stored, await self._cache.read_content(stored.digest))
        except (NotFound, CacheCorrupt) as error:
            return f"[This content is not available: {error.what}]"

    def clear_read_contents(self) -> None:
        """Read everything again from now on, as some of it may have been forgotten."""
        self._contents_of_last_view = {}


def _stored_references(view: View) -> Iterator[Stored]:
    for block in view.blocks:
        if isinstance(block.content, Attachment):
            yield block.content.stored
        elif isinstance(block.content, Stored):
            yield block.content


def content_for_model(stored: Stored, content: bytes) -> str | Image:
    """Return a picture, the text of any other readable content, or a sentence for other bytes."""
    if stored.media_type in IMAGES:
        return Image(stored.media_type, content)
    if b"\0" in content[:4096] and not stored.media_type.startswith("text/"):
        return f"[{len(content):,} bytes of {stored.media_type}; not text]"
    return content.decode("utf-8", "replace").replace("\0", "\N{SYMBOL FOR NULL}")


def estimate_entry_tokens(size: int, beginning: bytes, count: Callable[[str], int]) -> int:
    """Estimate an entry's tokens from its beginning, which everybody counts so that
    counters remember it.
    """
    sample = beginning[:SAMPLE_BYTES]
    tokens_of_sample = count(sample.decode("utf-8", "replace"))
    return tokens_of_sample * max(size, 1) // max(len(sample), 1)
