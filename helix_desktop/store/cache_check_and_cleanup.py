"""Checks every byte of the cache, and frees space in it, in slices, so that nothing waits long."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import CacheCorrupt, HelixError, NotFound, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.cache_folder import CHECKPOINT, CacheFolder
from helix_desktop.store.cache_records import EntryState

SLICE = 4 << 20  # In bytes. After reading this many, we let other work run.
_PAGE = 500
_BYTES_FOR_LOOK_UP = 4096  # Looking an entry up counts as much as reading so many bytes.


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """A check's result: entries and their bytes, and why entries are damaged or missing."""

    checked: int
    bytes: int
    damaged: tuple[tuple[Digest, str], ...]
    notes: tuple[str, ...] = ()
    # Of contents of checkpoints, which are in no list and do not count as entries.
    checkpoint_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CollectResult:
    entries: int
    bytes: int


class CacheCheck:
    """A check of the whole cache, done slice by slice."""

    def __init__(self, cache: CacheFolder) -> None:
        self._cache = cache
        # The hashes are listed page by page, in order. This is the last one so far.
        self._last_listed: Digest | None = None
        self._are_all_listed = False  # True when all hashes have been listed.
        self._digests_to_check: list[Digest] = []
        self._checked_digests: set[bytes] = set()
        self._damaged: dict[Digest, str] = {}
        self._checked_count = 0
        self._checked_bytes = 0
        self._checkpoint_bytes = 0
        self._notes: list[str] = []

    def check_next_slice_if_any(self) -> bool:
        """Read some megabytes. Return False once everything has been read."""
        bytes_left = SLICE
        while bytes_left > 0:
            if self._digests_to_check:
                checked_bytes = self._check_entry(self._digests_to_check.pop())
                # Even a small entry takes a while to look up.
                bytes_left -= checked_bytes + _BYTES_FOR_LOOK_UP
            elif not self._are_all_listed:
                self._read_next_hashes()
            else:
                return False
        return True

    def check_everything(self) -> VerifyResult:
        """Check all at once, while nobody waits."""
        while self.check_next_slice_if_any():
            pass
        return self.check_result()

    def _read_next_hashes(self) -> None:
        """Read the next hashes. Those in an unreadable block are found missing later."""
        try:
            page = self._cache.reader.digests_after(self._last_listed, _PAGE)
        except (CacheCorrupt, ValueError):
            self._notes.append("A part of the cache's list of hashes cannot be read.")
            self._last_listed = _skip_ahead_in_hashes(self._last_listed)
            self._are_all_listed = self._last_listed is None
            return
        self._digests_to_check += page
        if page:
            self._last_listed = page[-1]
        self._are_all_listed = len(page) < _PAGE

    def _check_entry(self, digest: Digest) -> int:
        """Read an entry whole and count it; note it as damaged if that fails. Return its size,
        which is 0 if it is damaged or has no content.
        """
        self._checked_digests.add(digest.raw)
        try:
            record = self._cache.reader.record_of_content(digest)
            size = sum(len(chunk) for chunk in self._cache.reader.iterate_chunks(record))
        except NotFound:
            return 0
        except StoreFailed as error:
            self._damaged[digest] = error.what
            return 0
        if record.about.tool == CHECKPOINT:
            self._checkpoint_bytes += size
        else:
            self._checked_count += 1
            self._checked_bytes += size
        return size

    def repair_hash_keys(self) -> None:
        """Restore the hash keys of entries that exist but can't be found by their hash."""
        last_number = 0
        while True:
            records = self._cache.reader.records_after(last_number, _PAGE)
            if not records:
                return
            last_number = records[-1].number
            for record in records:
                if record.state is not EntryState.LIVE:
                    continue
                if record.digest.raw not in self._checked_digests:
                    self._cache.rewrite_hash_key(record)
                    self._digests_to_check.append(record.digest)

    def add_missing_to_result(self, digests: Iterable[Digest]) -> None:
        """Report those of `digests` that should exist but do not."""
        for digest in digests:
            if digest.raw in self._checked_digests or digest in self._damaged:
                continue
            try:
                self._cache.reader.record_of_content(digest)
            except NotFound as error:
                if not self._cache.reader.was_forgotten(digest):
                    self._damaged[digest] = error.what
            except HelixError as error:
                self._damaged[digest] = error.what

    def check_result(self) -> VerifyResult:
        return VerifyResult(
            self._checked_count,
            self._checked_bytes,
            tuple(self._damaged.items()),
            tuple(self._notes),
            self._checkpoint_bytes,
        )


def _skip_ahead_in_hashes(digest: Digest | None) -> Digest | None:
    """Return a hash further on by one 256th of all hashes, or None at the end."""
    first_byte = 0
    if digest is not None:
        first_byte = digest.raw[0]
    if first_byte == 0xFF:
        return None
    return Digest(bytes([first_byte + 1]).ljust(32, b"\0"))


def free_cache_bytes(
    cache: CacheFolder, digests: Sequence[Digest], bytes_to_free: int
) -> tuple[list[Digest], int]:
    """Remove contents in this order until `bytes_to_free` bytes are freed. Pinned ones stay."""
    removed: list[Digest] = []
    freed_bytes = 0
    pinned = cache.reader.pinned_entries()
    for digest in digests:
        if freed_bytes >= bytes_to_free:
            break
        if digest in pinned:
            continue
        with suppress(HelixError):  # Damaged and deleted entries free no space.
            freed_bytes += cache.discard_entry_content(digest)
            removed.append(digest)
    return removed, freed_bytes
