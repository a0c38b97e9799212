"""The interface of an engine that machines share: it stores opaque rows by name, and cannot read them.

A row is sealed bytes (`row_encryption`): first `ROW_KEY_BYTES` bytes that make its key together with the workspace's, then padded ciphertext. An
engine may store the two apart; to forget a row it destroys both. All calls block and may come from any thread; each may be made
again after an error. `SharedStoreUnreachable` says that asking later may help; every other StoreFailed needs a person.
"""

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from helix_desktop.errors import StoreFull
from helix_desktop.fast_dataclass import dataclass

ROW_KEY_BYTES = 32  # Each row begins with this many random bytes, from which its key is derived.
MOST_ROWS_IN_CALL = 500  # A call carries at most this many rows.
MOST_BYTES_IN_CALL = 8 << 20  # In bytes. A call carries at most this much, or a single larger row.


@dataclass(frozen=True, slots=True)
class RowUsage:
    """What the rows of this workspace take there, and what they may take at most; 0: no limit."""

    rows: int
    bytes: int
    quota: int = 0


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A row that was forgotten. `sealed_digest`: sealed, for the workspace's other machines."""

    name: bytes
    sealed_digest: bytes


class RowStore(Protocol):
    """The rows of one workspace. `server`: the same for all engines that reach the same one; they share threads."""

    server: str

    def store_rows(self, rows: Mapping[bytes, bytes]) -> None:
        """Store those that are not there; durable when it returns. A name that was forgotten takes nothing any more."""

    def fetch_rows(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Those of these that are there; not checked in any way."""

    def find_missing_rows(self, names: Collection[bytes]) -> frozenset[bytes]:
        """Which of these it has not and would take."""

    def remove_rows(self, names: Collection[bytes]) -> None:
        """Remove them to make room; they may come again."""

    def forget_rows(self, tombs: Sequence[Tombstone]) -> None:
        """Destroy keys and rows for good. When it returns, no machine can read them there or put them again."""

    def fetch_tombstones(self, after: int) -> tuple[Sequence[Tombstone], int]:
        """What was forgotten behind a mark (0: ever), each at least once, and the mark to ask with next time."""

    def publish_used_rows(self, machine: bytes, encrypted: bytes) -> None:
        """Put what this machine uses in the place of what it published before; empty: it is no part of this any more."""

    def fetch_published_uses(self) -> Mapping[bytes, bytes]:
        """What each machine uses."""

    def list_old_rows(self, older: float, after: bytes = b"", limit: int = 10_000) -> Sequence[bytes]:
        """Rows that were put more than `older` seconds ago by the engine's clock, in the order of their names: for collecting."""

    def fetch_row_usage(self) -> RowUsage: ...

    def set_quota(self, quota: int) -> None:
        """How many bytes this workspace's rows may take; 0: no limit."""

    def describe_server(self) -> str:
        """What it is, in a few words for people."""

    def describe_remaining_copies(self) -> Sequence[str]:
        """What may still hold ciphertext of a forgotten row, in sentences."""

    def close(self) -> None: ...


def is_private_host(host: str) -> bool:
    """Whether it is this machine or an address of a private network; a name may be anywhere."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False


def quota_reached_error(quota: int) -> StoreFull:
    return StoreFull(
        f"This workspace has reached its limit of {quota:,} bytes in the shared store.",
        remedy="Your changes are stored on this computer until they can be sent. Raise the limit, or run `workspace sync --collect`.",
    )
