"""What the settings and the tour need of the program around the window, as Protocols; `desktop/administration.py` is the real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from helix_desktop.gui.bring_in.port import Histories
from helix_desktop.gui.connected.port import ConnectedAgents
from helix_desktop.gui.lab.port import Outcome, Wanted
from helix_desktop.gui.ports import Desk, Workbench
from helix_desktop.values import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """`state`: good, note or bad."""

    what: str
    state: str
    says: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a workspace keeps: entries, their bytes, what they take on the disk, and where."""

    entries: int
    size: int
    taken: int
    limit: int
    folder: Path
    backup: float = 0.0  # when the last one was made; 0: none


@dataclass(frozen=True, slots=True)
class Going:
    """What making room would remove: entries no conversation uses, the bytes they free, and some of their names.

    `over`: bytes beyond the limit now; `left`: those that would still be beyond it.
    """

    entries: int
    freed: int
    over: int
    left: int
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool of a server, as the server describes it; `on`: whether the agent is offered it; `reads`: the user says
    that it changes nothing.
    """

    name: str
    about: str = ""
    on: bool = True
    reads: bool = False


@dataclass(frozen=True, slots=True)
class Covered:
    """What checkpoints cover: names that are left out, what asks for the user's word, how long they are kept."""

    leave_out: tuple[str, ...] = ()
    most_files: int = 0
    most_bytes: int = 0
    keep_days: int = 0
    off: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """An MCP server: how it is. `words`: what it runs or reaches, and every value it is given, with dots for secrets. `why`: what is wrong, in a sentence.

    `mistake`: why its settings cannot be read. `approvals`: what its file wants allowed unseen; shown, never obeyed.
    """

    name: str
    words: str
    state: str = ""
    why: str = ""
    tools: int = 0
    enabled: bool = True
    offered: tuple[Offered, ...] = ()
    log: tuple[str, ...] = ()
    start_seconds: float = 60.0
    call_seconds: float = 600.0
    approvals: tuple[str, ...] = ()
    mistake: str = ""


@dataclass(frozen=True, slots=True)
class CommandAccess:
    """What commands see of the user's home, and which files no agent sees. `openings`: name, title and what is given away."""

    openings: Sequence[tuple[str, str, str]]
    opened: Sequence[str]
    readable: Sequence[str]
    hidden: Sequence[str]


class Installation(Protocol):
    """Long ones say how far they are through `report`, and can be cancelled with their task."""

    def versions(self) -> Sequence[tuple[str, str]]: ...
    def licences(self) -> str: ...
    async def examine(self) -> Sequence[Finding]: ...
    async def kept(self, bench: Workbench) -> Kept: ...
    async def verify(self, bench: Workbench, report: Callable[[str], None]) -> str: ...
    async def going(self, bench: Workbench) -> Going: ...
    async def collect(self, bench: Workbench) -> str: ...
    async def back_up(self, bench: Workbench) -> str: ...
    def servers(self, bench: Workbench) -> Sequence[Server]: ...
    def read_servers(self, text: str, name: str) -> Sequence[Server]:
        """What a pasted text would add; WrongUse says what is the matter with it."""
        ...

    async def sign_in_server(self, bench: Workbench, name: str) -> None:
        """Open the server's page in the browser and wait for the user to come back; Refused where that led to nothing."""
        ...

    def too_wide(self, rule: Mapping[str, Any]) -> bool:
        """Whether a rule that allows also admits other programs than the one it names."""
        ...

    def covered(self, bench: Workbench) -> Covered: ...
    def command_access(self, bench: Workbench) -> CommandAccess: ...
    async def test_server(self, bench: Workbench, name: str) -> str:
        """Try it once, beside the one that runs: how that went, in a sentence or two."""
        ...

    async def play(self, bench: Workbench, wanted: Wanted, report: Callable[[int, int], None]) -> Outcome: ...
    async def tour_workbench(self, desk: Desk, folder: Path) -> Workbench: ...
    def histories(self, desk: Desk) -> Histories:
        """Conversations from other programs on this computer."""
        ...

    def connected_agents(self) -> ConnectedAgents:
        """The gateway, and the agents that may use it."""
        ...
