"""The entries of a workspace as a list shows them: what a row says, and what rows are chosen and sorted by."""

from __future__ import annotations

from enum import StrEnum

from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.fast_dataclass import dataclass


class EntrySort(StrEnum):
    """The columns a catalogue is sorted by."""

    TIME = "time"
    TOOL = "tool"
    SOURCE = "source"
    SIZE = "size"
    TOKENS = "tokens"
    USES = "uses"
    RECALLED = "recalled"
    HASH = "digest"


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """What is shown; everything by default. Times in seconds since 1970, sizes in bytes; 0: no limit. `text` stands in the
    tool's name or the source.
    """

    tool: str = ""
    conversation: str = ""
    since: float = 0.0
    until: float = 0.0
    least: int = 0  # bytes
    most: int = 0
    pinned: bool = False
    unused: bool = False
    text: str = ""
    gone: bool = False  # show what was collected, and nothing else


EVERYTHING = EntryFilter()


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One line of the catalogue. `kept`: its bytes on the disk; `recalled`: when it was last recalled, or 0; `gone`: it was
    collected, and only this is left.
    """

    stored: Stored
    about: EntryOrigin
    kept: int
    tokens: int
    time: float
    uses: int = 0
    recalled: float = 0.0
    pinned: bool = False
    gone: bool = False
    number: int = 0


@dataclass(frozen=True, slots=True)
class EntryUse:
    """Where an entry is used. `how`: output, attachment, image, change, fold or recall."""

    conversation: str
    seq: int
    time: float
    how: str


@dataclass(frozen=True, slots=True)
class CatalogueFigures:
    """The workspace's entries in figures. `kept`: bytes on the disk."""

    entries: int
    size: int
    kept: int
    tokens: int = 0
    pinned: int = 0
    gone: int = 0
    repeated: int = 0  # uses of an output beyond its first: what was stored once and would have been stored again
    repeated_size: int = 0

    def figures_by_name(self) -> dict[str, int]:
        """As the command line and the context server tell them."""
        return {
            "entries": self.entries,
            "bytes": self.size,
            "on_disk": self.kept,
            "tokens": self.tokens,
            "pinned": self.pinned,
            "removed_to_make_room": self.gone,
            "stored_once_used_again": self.repeated,
            "bytes_not_stored_twice": self.repeated_size,
        }
