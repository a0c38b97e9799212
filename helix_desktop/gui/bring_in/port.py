"""What the window needs to bring in conversations of other programs; `desktop/histories.py` is the real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from helix_desktop.values import dataclass

Report = Callable[[int, int], None]  # bytes read, and of how many


@dataclass(frozen=True, slots=True)
class Group:
    """The conversations one program has about one folder. `there`: the folder is on this computer."""

    program: str
    folder: str
    conversations: int
    size: int
    first: float
    last: float
    there: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. `show`: the workspace and the conversation to look at first; `keys`: what looks like a key, masked;
    `workspaces`: the names of those it came into.
    """

    new: int = 0
    grown: int = 0
    unchanged: int = 0
    stopped: bool = False
    show: tuple[str, str] = ("", "")
    keys: Sequence[str] = ()
    complaints: Sequence[str] = ()
    workspaces: Sequence[str] = ()


class Histories(Protocol):
    """One import after another; `undo` and `forget_keys` are about the last. `watching`: what is new comes by itself."""

    @property
    def watching(self) -> bool: ...

    async def find(self) -> Sequence[Group]:
        """What lies on this computer, the largest number first."""
        ...

    async def bring_in(self, groups: Sequence[Group], report: Report) -> Outcome:
        """Each into the workspace of its folder, which is made where there is none."""
        ...

    def stop(self) -> None:
        """End `bring_in` soon: it returns what came until then."""
        ...

    def watch(self, groups: Sequence[Group], heard: Callable[[Outcome], object]) -> None:
        """From now on bring in what these programs write for these folders, until it is called with none or the program ends."""
        ...

    async def undo(self) -> Sequence[str]:
        """Take the last import back; a sentence for each conversation that stays."""
        ...

    async def forget_keys(self) -> int:
        """Remove what looks like a key from every workspace of the last import, for good; how many."""
        ...
