"""The heads of shared conversations: rows changed by compare-and-set, with one writer
at a time by a lease.

Only the engine's clock measures leases: machines merely learn how many seconds are
left. Contents are encrypted. The engine sees a row's name (a keyed digest), a random
name of its writer, and a time.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.shared.row_store import RowStore


@dataclass(frozen=True, slots=True)
class ConversationHead:
    """A head's row. `version` grows with each change. Only `writer` may change it for
    `lease_seconds_left`.
    """

    name: bytes
    version: int
    writer: bytes
    lease_seconds_left: float
    sealed: bytes


@dataclass(frozen=True, slots=True)
class HeadUpdate:
    """A change to a row last seen at `version` (0: none yet). `sealed`: new contents,
    or None to keep them. `lease_seconds`: how long nobody else may write. `force`: even
    during another machine's lease. `replaced_rows`: names of rows that the changed head no
    longer needs.
    """

    name: bytes
    version: int
    writer: bytes
    sealed: bytes | None
    lease_seconds: float
    force: bool = False
    replaced_rows: tuple[bytes, ...] = ()


# A database server and a change's number. A standby that took over counts as another server.
HeadMark = tuple[str, int]


class ConversationHeads(Protocol):
    """Compare-and-set for named rows of one workspace. All calls block, and can be
    repeated after errors.
    """

    def update_heads(
        self, moves: Sequence[HeadUpdate]
    ) -> list[tuple[bool, ConversationHead | None]]:
        """Return for each move whether it was made, and the current row, or None without one."""

    def update_heads_with_rows(
        self, engine: RowStore, rows: Mapping[bytes, bytes], updates: Sequence[HeadUpdate]
    ) -> list[tuple[bool, ConversationHead | None]]:
        """Store the rows in the heads' own engine, update the heads that name them, and remove the
        `replaced_rows` of those that were updated. Nobody sees a part of this.
        """

    def fetch_changed_heads(self, since: int) -> tuple[Sequence[ConversationHead], HeadMark]:
        """Return rows changed after a mark (0: all), each at least once, and the mark
        for the next call.
        """

    def fetch_heads(self, names: Collection[bytes]) -> Sequence[ConversationHead]:
        """Return the heads that exist."""
