"""The port to the rest of the program; implemented by `desktop/settings_backend.py`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.importing.history_import_port import HistoryImportPort
from helix_desktop.gui.replay_lab.replay_lab_port import RunReplay
from helix_desktop.gui.workbench_types import ConnectedAgents, DoctorFinding, Workbench, Workbenches


@dataclass(frozen=True, slots=True)
class WorkspaceStorage:
    """The disk space that a workspace uses: entries, their bytes, compressed, and its folder."""

    entries: int
    size: int
    disk_bytes: int
    limit: int
    folder: Path
    backup: float = 0.0  # The time of the last backup, or 0 if there is none.


@dataclass(frozen=True, slots=True)
class SpaceToFree:
    """The result of freeing up space: entries that no conversation uses, the bytes they free, some
    of their names. `over`: bytes above the limit now; `left`: bytes that would still be above it.
    """

    entries: int
    freed: int
    over: int
    left: int
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A server's tool. `is_enabled`: it is offered to the agent. `is_read_only`: the user says that it only reads."""

    name: str
    about: str = ""
    is_enabled: bool = True
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class McpServerState:
    """The state of an MCP server. `words`: its command or address with every value it is given,
    secrets as dots. `why`: what is wrong. `mistake`: why its settings cannot be read. `approvals`:
    the tools its file wants to run without approval; they are shown and never obeyed.
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
    """What commands see of the user's home, and the files hidden from agents. `openings`: what can be opened."""

    openings: Sequence[tuple[str, str, str]]
    opened: Sequence[str]
    readable: Sequence[str]
    hidden: Sequence[str]


class Installation(Protocol):
    """Long work reports its progress through `report` and stops when its task is cancelled."""

    def library_versions(self) -> Sequence[tuple[str, str]]: ...
    def licence_texts(self) -> str: ...
    async def examine_installation(self) -> Sequence[DoctorFinding]: ...
    async def measure_workspace_storage(self, bench: Workbench) -> WorkspaceStorage: ...
    async def verify_workspace_entries(self, bench: Workbench, report: Callable[[str], None]) -> str: ...
    async def estimate_space_to_free(self, bench: Workbench) -> SpaceToFree: ...
    async def free_up_space(self, bench: Workbench) -> str: ...
    async def back_up_workspace(self, bench: Workbench) -> str: ...
    def list_mcp_servers(self, bench: Workbench) -> Sequence[McpServerState]: ...
    def parse_server_configuration(self, text: str, name: str) -> Sequence[McpServerState]:
        """The servers that a pasted text would add. Raises InvalidInput if it cannot be read."""

    async def sign_in_to_mcp_server(self, bench: Workbench, name: str) -> None:
        """Opens the server's page until the user has signed in; otherwise, ActionRefused."""

    def is_rule_too_broad(self, rule: Mapping[str, Any]) -> bool:
        """Whether an allowing rule also allows programs other than the one it names."""

    def command_file_access(self, bench: Workbench) -> CommandFileAccess: ...
    async def test_mcp_server(self, bench: Workbench, name: str) -> str:
        """Starts a second copy of the server, and describes the result in a sentence or two."""

    @property
    def replay_policies(self) -> RunReplay: ...
    async def open_tour_workbench(self, desk: Workbenches, folder: Path) -> Workbench: ...
    def build_history_importer(self, desk: Workbenches) -> HistoryImportPort:
        """Returns the importer for conversations of other programs on this computer."""

    def connected_agents(self) -> ConnectedAgents:
        """Returns the gateway's state and the agents that may use it."""
