"""One content on its way into an open cache."""

from __future__ import annotations

from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.store.cache_folder import CacheFolder

BY_HAND = EntryOrigin()


def put_whole(cache: CacheFolder, content: bytes, about: EntryOrigin = BY_HAND) -> Stored:
    """On the disk when this returns. Putting it twice is harmless, and mends a damaged entry."""
    staged = cache.stage_content(content, about)
    cache.commit_staged([staged])
    return staged.record.stored_reference
