"""The interface of an engine that machines share: it stores opaque rows by name, and
cannot read them.

A row is encrypted (`row_encryption`): `ROW_KEY_BYTES` bytes, from which its key is
derived with the workspace's, and then padded ciphertext. An engine may store the two
apart, and destroys both to forget a row. All calls block, may come from any thread, and
may be repeated after an error. After `SharedStoreUnreachable`, a later call may
succeed; any other StoreFailed needs a person.
"""

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from helix_desktop.errors import StoreFull
from helix_desktop.fast_dataclass import dataclass

ROW_KEY_BYTES = 32  # Each row begins with this many random bytes, from which its key is derived.
MOST_ROWS_IN_CALL = 500  # The maximum number of rows in one call.
MOST_BYTES_IN_CALL = 8 << 20  # The maximum bytes in one call, unless a single row is larger.


@dataclass(frozen=True, slots=True)
class RowUsage:
    """What this workspace's rows take there, and the most that they may take; 0: no limit."""

    rows: int
    bytes: int
    quota: int = 0


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A forgotten row. `sealed_digest`: its entry, encrypted for the workspace's other machines."""

    name: bytes
    sealed_digest: bytes


class RowStore(Protocol):
    """The rows of one workspace. `server`: equal for stores that share a server's threads."""

    server: str

    def store_rows(self, rows: Mapping[bytes, bytes]) -> None:
        """Store rows that do not exist, durably. Rows with forgotten names are ignored."""

    def fetch_rows(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Return the rows that exist, by name, unchecked."""

    def find_missing_rows(self, names: Collection[bytes]) -> frozenset[bytes]:
        """Return the names that are missing and can be stored."""

    def remove_rows(self, names: Collection[bytes]) -> None:
        """Remove rows to free space. They may be stored again."""

    def forget_rows(self, tombs: Sequence[Tombstone]) -> None:
        """Destroy keys and rows for good. Afterwards, no machine can read them there or
        store them again.
        """

    def fetch_tombstones(self, after: int) -> tuple[Sequence[Tombstone], int]:
        """Return tombstones after a mark (0: all), each at least once, and the mark for
        the next call.
        """

    def publish_used_rows(self, machine: bytes, encrypted: bytes) -> None:
        """Publish, encrypted, which rows this machine uses, or that it no longer takes
        part (empty).
        """

    def fetch_published_uses(self) -> Mapping[bytes, bytes]:
        """Return, by machine, what it published."""

    def list_old_rows(
        self, older: float, after: bytes = b"", limit: int = 10_000
    ) -> Sequence[bytes]:
        """Return rows stored more than `older` seconds ago by the engine's clock, by
        name, for removal.
        """

    def fetch_row_usage(self) -> RowUsage: ...

    def set_quota(self, quota: int) -> None:
        """Set how many bytes this workspace's rows may take; 0: no limit."""

    def describe_server(self) -> str:
        """Describe the server in a few words for people."""

    def describe_remaining_copies(self) -> Sequence[str]:
        """Say in sentences what may still hold ciphertext of forgotten rows."""

    def close(self) -> None: ...


def is_private_host(host: str) -> bool:
    """Whether it is this machine or a private address. A name may be anywhere."""
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
