"""What the window needs to import conversations; implemented by `desktop/history_import.py`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from helix_desktop.fast_dataclass import dataclass

if TYPE_CHECKING:
    # At run time, this would import the readers of all formats when the window starts.
    from helix_desktop.histories.history_finding import FoundHistories

# Called with the number of bytes read and the total number.
ImportProgressCallback = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class HistoryDetails:
    """What a file contains. `last`: the time of its last message. `reason`: why it
    cannot be imported. `models`: those that wrote its replies, as far as it names them.
    """

    title: str = ""
    messages: int = 0
    cost: float = 0.0
    reason: str = ""
    last: float = 0.0
    models: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """The result of an import. `first_conversation` is to be shown first."""

    new_count: int = 0
    grown_count: int = 0
    unchanged_count: int = 0
    stopped: bool = False
    first_conversation: tuple[str, str] = ("", "")
    masked_keys: Sequence[str] = ()
    complaints: Sequence[str] = ()
    workspaces: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ChosenHistories:
    """What is in the files that the user chose. `reasons`: why some cannot be imported."""

    groups: Sequence["FoundHistories"] = ()
    reasons: Sequence[str] = ()


class HistoryImportPort(Protocol):
    """Runs one import after another. Undoing and forgetting concern the last one."""

    async def find_history_groups(self) -> Sequence["FoundHistories"]:
        """Finds histories on this computer, the newest first."""

    async def read_chosen_files(self, paths: Sequence[Path]) -> ChosenHistories:
        """Reads files that the user chose, of any program."""

    async def describe_history(self, group: "FoundHistories") -> HistoryDetails:
        """Reads a conversation's title, length and cost."""

    async def import_history_groups(
        self, groups: Sequence["FoundHistories"], report: ImportProgressCallback
    ) -> ImportOutcome:
        """Imports each group into the workspace of its folder, which is created if necessary."""

    def stop_import(self) -> None:
        """Ends `import_history_groups` soon. It returns what was imported until then."""

    async def undo_last_import(self) -> Sequence[str]:
        """Undoes the last import. Returns a sentence for each conversation that stays."""

    async def delete_recorded_conversations(self, agent_kind: str, older_than_days: int) -> int:
        """Deletes conversations of one program, or of all, unchanged for so many days.
        Returns how many.
        """

    async def forget_found_api_keys(self) -> int:
        """Forgets possible keys in each workspace of the last import. Returns how many."""
