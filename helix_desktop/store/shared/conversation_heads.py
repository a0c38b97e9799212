"""The heads of shared conversations: one row each, moved on by compare-and-set, with one writer at a time by a lease.

The engine's clock alone measures a lease: a machine only ever learns how many seconds are left. A row's contents are
sealed; the engine sees its name (a keyed digest), a random name of the machine that writes, and when it changed.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ConversationHead:
    """A row as the engine has it. `version` grows with every change; `lease_seconds_left`: seconds for which only `writer` may change it."""

    name: bytes
    version: int
    writer: bytes
    lease_seconds_left: float
    sealed: bytes


@dataclass(frozen=True, slots=True)
class HeadUpdate:
    """What a machine wants of a row that it last saw at `version` (0: there is none yet). `sealed`: its new contents, or None
    for the same. `lease_seconds`: how long nobody else may write. `force`: also where another machine's lease still runs.
    """

    name: bytes
    version: int
    writer: bytes
    sealed: bytes | None
    lease_seconds: float
    force: bool = False


# A database server, and the number of a change. A standby that took over counts as another server.
HeadMark = tuple[str, int]


class ConversationHeads(Protocol):
    """Compare-and-set over named rows of one workspace. All calls block, and may be made again after an error."""

    def update_heads(self, moves: Sequence[HeadUpdate]) -> list[tuple[bool, ConversationHead | None]]:
        """Of each whether it was done, and the row as it is now; None where there is none."""

    def fetch_changed_heads(self, since: int) -> tuple[Sequence[ConversationHead], HeadMark]:
        """The rows that changed behind a change (0: all), each at least once, and the mark to go on from next time."""

    def fetch_heads(self, names: Collection[bytes]) -> Sequence[ConversationHead]:
        """Those of these that are there."""
