"""What looking after entries needs of a store of them: checking, collecting, forgetting, moving, emptying, following.

`cache.CacheFolder` is one, in a folder of this machine; another one may keep its entries elsewhere. All calls are made on
the store's own thread. Nothing but the store itself knows how and where its entries are kept.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.store.cache_records import CacheRecord
from helix_desktop.store.incoming_content import IncomingContent, StagedEntry


class EntryStore(Protocol):
    """Entries by number, in the order they came, and by the SHA-256 of their content."""

    put_again: set[Digest] | None  # While content is being removed: existing content that was put again meanwhile.

    def last_entry_number(self) -> int:
        """The highest number of an entry that is known."""
        ...

    def records_after(self, after: int = 0, limit: int = 1000) -> list[CacheRecord]:
        """Known entries by number."""
        ...

    def digests_after(self, after: Digest | None, limit: int) -> list[Digest]:
        """Hashes in their order, from the one behind `after`; none: the end. CacheCorrupt where they cannot be read."""
        ...

    def without_content(self, digests: Iterable[Digest]) -> frozenset[Digest]:
        """Which of these have no content here."""
        ...

    def record_of_content(self, digest: Digest) -> CacheRecord:
        """What is known of an entry whose content is there; NotFound, CacheCorrupt."""
        ...

    def record_of_entry(self, digest: Digest) -> CacheRecord:
        """The same where the content may be gone."""
        ...

    def record_numbered(self, number: int) -> CacheRecord: ...

    def read_part(self, digest: Digest, start: int, length: int) -> bytes: ...

    def iterate_chunks(self, record: CacheRecord) -> Iterator[bytes]:
        """Chunk by chunk, each checked."""
        ...

    def begin_incoming(self, about: EntryOrigin, *, time: float | None = None) -> IncomingContent: ...

    def commit_staged(self, staged: Sequence[StagedEntry]) -> None: ...

    def discard_staged(self, staged: StagedEntry) -> None: ...

    def record_collected(self, record: CacheRecord) -> None:
        """An entry whose content was removed before it came here."""
        ...

    def rewrite_hash_key(self, record: CacheRecord) -> None:
        """Write the way to an entry again."""
        ...

    def rewrite_record(self, record: CacheRecord) -> None:
        """Put another description in the place of an entry's."""
        ...

    def set_entry_pinned(self, digest: Digest, *, pinned: bool = True) -> None: ...

    def pinned_entries(self) -> frozenset[Digest]: ...

    def collect_entry(self, digest: Digest) -> int:
        """Remove the content to make room; what it was stays known. Returns the bytes freed."""
        ...

    def forget_entry(self, digest: Digest) -> None:
        """Remove the entry and all that is known of it; a tombstone stays. `scrub_deleted_bytes` then takes it off the disk."""
        ...

    def was_forgotten(self, digest: Digest) -> bool: ...

    def scrub_deleted_bytes(self) -> None:
        """Let nothing of what was removed stay readable on the disk."""
        ...

    def close(self) -> None: ...
