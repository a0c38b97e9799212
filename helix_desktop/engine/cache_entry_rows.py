"""The rows of the list of cache entries, and how they are filtered and sorted."""

from enum import StrEnum

from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.fast_dataclass import dataclass


class EntrySort(StrEnum):
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
    """Which entries to show. `text` is searched in tool names and sources."""

    tool: str = ""
    conversation: str = ""
    since: float = 0.0
    least: int = 0  # Entries of fewer bytes are not shown.
    most: int = 0
    pinned: bool = False
    unused: bool = False
    text: str = ""
    gone: bool = False  # True to show only entries whose content was removed.


EVERYTHING = EntryFilter()


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One row of the list. `kept`: bytes on disk. `recalled`: last recall's time, or 0.
    `gone`: content removed.
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

    def as_json_table(self) -> dict[str, object]:
        """Return what the command line and the MCP server show."""
        return {
            "sha256": self.stored.digest.hex,
            "size": self.stored.size,
            "lines": self.stored.lines,
            "tokens": self.tokens,
            "media_type": self.stored.media_type,
            "tool": self.about.tool,
            "source": self.about.source,
            "time": self.time,
            "uses": self.uses,
            "pinned": self.pinned,
        }


@dataclass(frozen=True, slots=True)
class EntryUse:
    """Where an entry is used. `how`: output, attachment, image, change, fold or recall."""

    conversation: str
    seq: int
    time: float
    how: str


@dataclass(frozen=True, slots=True)
class CacheEntryFigures:
    """Figures about all entries of the workspace. `kept`: bytes on disk."""

    entries: int
    size: int
    kept: int
    tokens: int = 0
    pinned: int = 0
    gone: int = 0
    # How many outputs repeated an earlier one and would be stored twice if there were no hashes.
    repeated: int = 0
    repeated_size: int = 0

    def figures_by_name(self) -> dict[str, int]:
        """Return the figures under the names that the command line and the MCP server use."""
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
