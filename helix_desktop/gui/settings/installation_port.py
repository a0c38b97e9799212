"""What the settings and the tour need of the program around the window, as Protocols; `desktop/installation_care.py` is the real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.connected.connected_agents_port import ConnectedAgentsPort
from helix_desktop.gui.importing.history_import_port import HistoryImportPort
from helix_desktop.gui.lab.replay_lab_port import ReplayOutcome, ReplaySelection
from helix_desktop.gui.window_ports import WorkbenchesPort, WorkbenchPort


@dataclass(frozen=True, slots=True)
class InstallationFinding:
    """`state`: good, note or bad."""

    what: str
    state: str
    says: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class WorkspaceStorage:
    """What a workspace keeps: entries, their bytes, what they take on the disk, and where."""

    entries: int
    size: int
    disk_bytes: int
    limit: int
    folder: Path
    backup: float = 0.0  # when the last one was made; 0: none


@dataclass(frozen=True, slots=True)
class SpaceToFree:
    """What making room would remove: entries no conversation uses, the bytes they free, and some of their names.

    `over`: bytes beyond the limit now; `left`: those that would still be beyond it.
    """

    entries: int
    freed: int
    over: int
    left: int
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool of a server, as the server describes it; `is_enabled`: whether the agent is offered it; `is_read_only`: the user says
    that it changes nothing.
    """

    name: str
    about: str = ""
    is_enabled: bool = True
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """What checkpoints cover: names that are left out, what asks for the user's word, how long they are kept."""

    leave_out: tuple[str, ...] = ()
    most_files: int = 0
    most_bytes: int = 0
    keep_days: int = 0
    off: bool = False


@dataclass(frozen=True, slots=True)
class McpServerState:
    """An MCP server: how it is. `words`: what it runs or reaches, and every value it is given, with dots for secrets. `why`: what is wrong, in a sentence.

    `mistake`: why its settings cannot be read. `approvals`: what its file wants allowed unseen; shown, never obeyed.
    """

    name: str
    words: str
    state: str = ""
    why: str = ""
    tools: int = 0
    enabled: bool = True
    offered: tuple[ServerTool, ...] = ()
    log: tuple[str, ...] = ()
    start_seconds: float = 60.0
    call_seconds: float = 600.0
    approvals: tuple[str, ...] = ()
    mistake: str = ""


@dataclass(frozen=True, slots=True)
class CommandFileAccess:
    """What commands see of the user's home, and which files no agent sees. `openings`: name, title and what is given away."""

    openings: Sequence[tuple[str, str, str]]
    opened: Sequence[str]
    readable: Sequence[str]
    hidden: Sequence[str]


class Installation(Protocol):
    """Long ones say how far they are through `report`, and can be cancelled with their task."""

    def library_versions(self) -> Sequence[tuple[str, str]]: ...
    def licence_texts(self) -> str: ...
    async def examine_installation(self) -> Sequence[InstallationFinding]: ...
    async def measure_workspace_storage(self, bench: WorkbenchPort) -> WorkspaceStorage: ...
    async def verify_workspace_entries(self, bench: WorkbenchPort, report: Callable[[str], None]) -> str: ...
    async def estimate_space_to_free(self, bench: WorkbenchPort) -> SpaceToFree: ...
    async def free_up_space(self, bench: WorkbenchPort) -> str: ...
    async def back_up_workspace(self, bench: WorkbenchPort) -> str: ...
    def list_mcp_servers(self, bench: WorkbenchPort) -> Sequence[McpServerState]: ...
    def parse_server_configuration(self, text: str, name: str) -> Sequence[McpServerState]:
        """What a pasted text would add; WrongUse says what is the matter with it."""
        ...

    async def sign_in_to_mcp_server(self, bench: WorkbenchPort, name: str) -> None:
        """Open the server's page in the browser and wait for the user to come back; Refused where that led to nothing."""
        ...

    def is_rule_too_broad(self, rule: Mapping[str, Any]) -> bool:
        """Whether a rule that allows also admits other programs than the one it names."""
        ...

    def checkpoint_settings(self, bench: WorkbenchPort) -> CheckpointSettings: ...
    def command_file_access(self, bench: WorkbenchPort) -> CommandFileAccess: ...
    async def test_mcp_server(self, bench: WorkbenchPort, name: str) -> str:
        """Try it once, beside the one that runs: how that went, in a sentence or two."""
        ...

    async def replay_policies(
        self, bench: WorkbenchPort, wanted: ReplaySelection, report: Callable[[int, int], None]
    ) -> ReplayOutcome: ...
    async def open_tour_workbench(self, desk: WorkbenchesPort, folder: Path) -> WorkbenchPort: ...
    def histories_for_import(self, desk: WorkbenchesPort) -> HistoryImportPort:
        """Conversations from other programs on this computer."""
        ...

    def connected_agents(self) -> ConnectedAgentsPort:
        """The gateway, and the agents that may use it."""
        ...
