"""Stored content as a model is shown it: read from the cache once, kept while it is in use, bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from helix_desktop.engine.blocks import Image, View
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Attachment, Stored
from helix_desktop.engine.ports import Cache
from helix_desktop.errors import CacheCorrupt, NotThere

KEPT_BYTES = 64 << 20
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class Contents:
    """The content behind a view's references. A request re-reads only what the view did not hold before."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._kept: OrderedDict[Digest, tuple[int, str | Image]] = OrderedDict()
        self._bytes = 0

    async def of(self, view: View) -> Mapping[Digest, str | Image]:
        """Everything the view refers to. What cannot be read stands there as a sentence that says so."""
        found: dict[Digest, str | Image] = {}
        for block in view.blocks:
            stored = block.content.stored if isinstance(block.content, Attachment) else block.content
            if isinstance(stored, Stored) and stored.digest not in found:
                found[stored.digest] = await self._one(stored)
        return found

    def clear(self) -> None:
        """Read everything anew from here on: some of it may have been forgotten."""
        self._kept.clear()
        self._bytes = 0

    async def _one(self, stored: Stored) -> str | Image:
        if stored.digest in self._kept:
            self._kept.move_to_end(stored.digest)
            return self._kept[stored.digest][1]
        try:
            content = shown(stored, await self._cache.get(stored.digest))
        except (NotThere, CacheCorrupt) as error:
            return f"[This content is not available: {error.what}]"
        if stored.size <= KEPT_BYTES // 4:
            self._keep(stored, content)
        return content

    def _keep(self, stored: Stored, content: str | Image) -> None:
        self._kept[stored.digest] = (stored.size, content)
        self._bytes += stored.size
        while self._bytes > KEPT_BYTES:
            _, (size, _) = self._kept.popitem(last=False)
            self._bytes -= size


def shown(stored: Stored, content: bytes) -> str | Image:
    """Text as it is, in any encoding; a picture as a picture; other bytes as a sentence about them."""
    if stored.media_type in IMAGES:
        return Image(stored.media_type, content)
    if b"\0" in content[:4096] and not stored.media_type.startswith("text/"):
        return f"[{len(content):,} bytes of {stored.media_type}; not text]"
    return content.decode("utf-8", "replace").replace("\0", "\N{SYMBOL FOR NULL}")
