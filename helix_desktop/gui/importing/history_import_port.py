"""What the window needs to import conversations; implemented by `desktop/history_import.py`."""

from collections.abc import Callable, Sequence
from typing import Protocol

from helix_desktop.fast_dataclass import dataclass

ImportProgressCallback = Callable[[int, int], None]  # Called with the number of bytes read and the total number.


@dataclass(frozen=True, slots=True)
class HistoryGroup:
    """What one file holds about one folder. `is_folder_present`: the folder is on this computer."""

    program: str
    folder: str
    conversations: int
    size: int
    last: float
    is_folder_present: bool = True
    path: str = ""


@dataclass(frozen=True, slots=True)
class HistoryDetails:
    """What a file says when it is read whole. `last`: the time of its last message; `reason`: why it cannot be imported."""

    title: str = ""
    messages: int = 0
    cost: float = 0.0
    reason: str = ""
    last: float = 0.0


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """What came of it. `first_conversation`: the workspace and the conversation to look at first;
    `masked_keys`: what looks like a key, masked; `workspaces`: the names of those it came into.
    """

    new_count: int = 0
    grown_count: int = 0
    unchanged_count: int = 0
    stopped: bool = False
    first_conversation: tuple[str, str] = ("", "")
    masked_keys: Sequence[str] = ()
    complaints: Sequence[str] = ()
    workspaces: Sequence[str] = ()


class HistoryImportPort(Protocol):
    """One import after another; `undo_last_import` and `forget_found_keys` are about the last."""

    async def find_history_groups(self) -> Sequence[HistoryGroup]:
        """What lies on this computer, the newest first."""

    async def describe_history(self, group: HistoryGroup) -> HistoryDetails:
        """Reads a conversation for its title, its length and what it cost."""

    async def import_history_groups(
        self, groups: Sequence[HistoryGroup], report: ImportProgressCallback
    ) -> ImportOutcome:
        """Each into the workspace of its folder, which is made where there is none."""

    def stop_import(self) -> None:
        """End `import_history_groups` soon: it returns what came until then."""

    async def undo_last_import(self) -> Sequence[str]:
        """Take the last import back; a sentence for each conversation that stays."""

    async def delete_recorded(self, kind: str, days: int) -> int:
        """Delete what was recorded or imported from one program, or with no kind from all, and last changed so many days ago; how many."""

    async def forget_found_keys(self) -> int:
        """Remove what looks like a key from each workspace of the last import for good; how many."""
