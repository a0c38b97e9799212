"""Reads stored content as a model sees it. Content is read once and kept while a view needs it."""

from collections.abc import Callable, Iterator, Mapping

from helix_desktop.engine.facts import Attachment, Stored
from helix_desktop.engine.messages import Image, View
from helix_desktop.engine.ports import ContentCache
from helix_desktop.errors import CacheCorrupt, NotFound

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
SAMPLE_BYTES = 1 << 20  # An entry's tokens are estimated from this many of its first bytes.


class ViewContents:
    """The content that a view refers to. A request reads only what the last view lacked."""

    def __init__(self, cache: ContentCache) -> None:
        self._cache = cache
        self._kept: dict[Stored, str | Image] = {}

    async def read_view_contents(self, view: View) -> Mapping[Stored, str | Image]:
        """Return all content of the view. A sentence replaces what cannot be read."""
        kept, wanted = self._kept, dict.fromkeys(_stored_references(view))
        found = {stored: kept[stored] for stored in wanted if stored in kept}
        lacking = [stored for stored in wanted if stored not in found]
        fresh = await self._cache.read_contents(
            list(dict.fromkeys(stored.digest for stored in lacking))
        )
        found |= {
            stored: content_for_model(stored, fresh[stored.digest])
            for stored in lacking
            if stored.digest in fresh
        }
        if self._kept is kept:  # If it is another object, content was forgotten during the read.
            self._kept = found
        return {
            **found,
            **{
                stored: await self._read_or_explain(stored)
                for stored in lacking
                if stored not in found
            },
        }

    async def _read_or_explain(self, stored: Stored) -> str | Image:
        """Return content, or what to show in its place."""
        try:
            return content_for_model(stored, await self._cache.read_content(stored.digest))
        except (NotFound, CacheCorrupt) as error:
            return f"[This content is not available: {error.what}]"

    def clear_read_contents(self) -> None:
        """Read everything again from now on, as some of it may have been forgotten."""
        self._kept = {}


def _stored_references(view: View) -> Iterator[Stored]:
    for block in view.blocks:
        stored = block.content.stored if isinstance(block.content, Attachment) else block.content
        if isinstance(stored, Stored):
            yield stored


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
    return count(sample.decode("utf-8", "replace")) * max(size, 1) // max(len(sample), 1)
