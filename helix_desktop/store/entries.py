"""What looking after entries needs of a store of them: checking, collecting, forgetting, moving, emptying, following.

`cache.CacheFolder` is one, in a folder of this machine; another one may keep its entries elsewhere. All calls are made on
the store's own thread. Nothing but the store itself knows how and where its entries are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import About
from helix_desktop.store.incoming_content import Incoming, Staged
from helix_desktop.store.records import Record


class Entries(Protocol):
    """Entries by number, in the order they came, and by the SHA-256 of their content."""

    put_again: set[Digest] | None  # while somebody wants to know: what was there and is wanted now

    def known_last(self) -> int:
        """The highest number of an entry that is known."""
        ...

    def records(self, after: int = 0, limit: int = 1000) -> list[Record]:
        """Known entries by number."""
        ...

    def digests(self, after: Digest | None, limit: int) -> list[Digest]:
        """Hashes in their order, from the one behind `after`; none: the end. CacheCorrupt where they cannot be read."""
        ...

    def lacking(self, digests: Iterable[Digest]) -> frozenset[Digest]:
        """Which of these have no content here."""
        ...

    def record(self, digest: Digest) -> Record:
        """What is known of an entry whose content is there; NotThere, CacheCorrupt."""
        ...

    def described(self, digest: Digest) -> Record:
        """The same where the content may be gone."""
        ...

    def numbered(self, number: int) -> Record: ...

    def read(self, digest: Digest, start: int, length: int) -> bytes: ...

    def content(self, record: Record) -> Iterator[bytes]:
        """Chunk by chunk, each checked."""
        ...

    def begin(self, about: About, *, time: float | None = None) -> Incoming: ...

    def commit(self, staged: Sequence[Staged]) -> None: ...

    def unstage(self, staged: Staged) -> None: ...

    def put_collected(self, record: Record) -> None:
        """An entry whose content was removed before it came here."""
        ...

    def relink(self, record: Record) -> None:
        """Write the way to an entry again."""
        ...

    def redescribe(self, record: Record) -> None:
        """Put another description in the place of an entry's."""
        ...

    def pin(self, digest: Digest, *, pinned: bool = True) -> None: ...

    def pinned(self) -> frozenset[Digest]: ...

    def collect(self, digest: Digest) -> int:
        """Remove the content to make room; what it was stays known. Returns the bytes freed."""
        ...

    def forget(self, digest: Digest) -> None:
        """Remove the entry and all that is known of it; a tombstone stays. `scrub` then takes it off the disk."""
        ...

    def forgotten(self, digest: Digest) -> bool: ...

    def scrub(self) -> None:
        """Let nothing of what was removed stay readable on the disk."""
        ...

    def close(self) -> None: ...
