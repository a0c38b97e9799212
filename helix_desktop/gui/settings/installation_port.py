"""The port to the rest of the program; implemented by `desktop/settings_backend.py`."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from helix_desktop.engine.cache_entry_rows import CacheEntryFigures
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui import workbench_types
from helix_desktop.gui.importing.history_import_port import HistoryImportPort
from helix_desktop.gui.replay_lab.replay_lab_port import RunReplay


class RuleProblem(Enum):
    """What a person should know about a permission rule before it holds."""

    NONE = "none"
    COVERS_NOTHING = "covers nothing"
    EVERY_COMMAND = "every command"
    ANY_ARGUMENTS = "any arguments of a script"
    OTHER_PROGRAMS = "other programs"


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
class McpServerState:
    """An MCP server. `tools`: each with its description. `mistake`: why it cannot be read."""

    config: workbench_types.ServerConfig
    status: workbench_types.McpConnectionStatus | None = None  # None until it is hosted.
    tools: tuple[tuple[str, str], ...] = ()
    log: tuple[str, ...] = ()
    mistake: str = ""


@dataclass(frozen=True, slots=True)
class ShownExtension:
    """An installed extension. `state`: "off", "allowed", "changed" or "failed", with `why`.

    `target` is the code that its entry point names, `files_sha256` a digest of all its files.
    """

    name: str
    package: str
    version: str
    target: str
    file_count: int
    files_sha256: str
    state: str
    why: str = ""


class InstalledExtensions(Protocol):
    async def list_extensions(self) -> Sequence[ShownExtension]: ...
    async def allow_extension(self, shown: ShownExtension) -> None:
        """Raises ActionRefused if its files are not those that were shown."""

    async def switch_extension_off(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class PhoneDevice:
    """A phone or browser that may use the page. `may_allow`: it may not only look."""

    id: str
    name: str
    may_allow: bool
    last_used: float


@dataclass(frozen=True, slots=True)
class PairingInvitation:
    """What a device is paired with. `fingerprint`: of the page's certificate, or empty. `modules`:
    the rows of a QR code with the address and the code; True is dark.
    """

    code: str
    url: str
    fingerprint: str
    modules: Sequence[Sequence[bool]]


class PhoneDevices(Protocol):
    async def list_devices(self) -> Sequence[PhoneDevice]: ...
    async def list_own_addresses(self) -> Sequence[str]:
        """The addresses at which other devices can reach this computer."""

    async def restart_page(self) -> None:
        """Returns once the page answers as the settings say. HelixError says why it cannot."""

    async def invite_device(self, *, may_allow: bool) -> PairingInvitation:
        """Creates a code that pairs one device, within ten minutes. An earlier one is void.

        ActionRefused if the page does not answer, as a code would lead nowhere.
        """

    async def revoke_device(self, device: str) -> None: ...
    async def send_test_notice(self) -> None:
        """Sends a notice to the address in the settings. HelixError says why it was not taken."""


class Installation(Protocol):
    """Long work reports its progress through `report` and stops when its task is cancelled."""

    def licence_texts(self) -> str: ...
    async def examine_installation(self) -> Sequence[workbench_types.DoctorFinding]: ...
    async def examine_histories(self) -> Sequence[workbench_types.DoctorFinding]:
        """Returns how much of what agents write is read, by agent, and what is not."""

    async def measure_workspace_storage(
        self, bench: workbench_types.Workbench
    ) -> tuple[CacheEntryFigures, float]:
        """Returns the entries' figures and the time of the last backup, or 0 if there is none."""

    async def verify_workspace_entries(
        self, bench: workbench_types.Workbench, report: Callable[[str], None]
    ) -> str: ...
    async def repair_workspace_cache(self, bench: workbench_types.Workbench) -> str: ...
    async def estimate_space_to_free(self, bench: workbench_types.Workbench) -> SpaceToFree: ...
    async def free_up_space(self, bench: workbench_types.Workbench) -> str: ...
    async def back_up_workspace(self, bench: workbench_types.Workbench) -> str: ...
    def list_mcp_servers(self, bench: workbench_types.Workbench) -> Sequence[McpServerState]: ...
    def parse_server_configuration(
        self, text: str, name: str
    ) -> Sequence[workbench_types.ServerConfig]:
        """The servers that a pasted text would add. Raises InvalidInput if it cannot be read."""

    async def sign_in_to_mcp_server(self, bench: workbench_types.Workbench, name: str) -> None:
        """Opens the server's page until the user has signed in; otherwise, ActionRefused."""

    def find_rule_problem(self, rule: Mapping[str, Any]) -> RuleProblem:
        """What a person should know about a rule that allows something."""

    def does_rule_fit(self, rule: Mapping[str, Any], tried: str) -> bool:
        """Whether a rule decides about this command or path."""

    def list_command_openings(self, opened: Sequence[str]) -> Sequence[workbench_types.HomeOpening]:
        """What commands can be given of the home: what this computer has, and what is `opened`."""

    def list_hidden_patterns(self, bench: workbench_types.Workbench) -> Sequence[str]: ...
    async def test_mcp_server(self, bench: workbench_types.Workbench, name: str) -> str:
        """Starts a second copy of the server, and describes the result in a sentence or two."""

    @property
    def replay_policies(self) -> RunReplay: ...
    async def open_tour_workbench(
        self, desk: workbench_types.Workbenches, folder: Path
    ) -> workbench_types.Workbench: ...
    def build_history_importer(self, desk: workbench_types.Workbenches) -> HistoryImportPort:
        """Returns the importer for conversations of other programs on this computer."""

    def connected_agents(self) -> workbench_types.ConnectedAgents:
        """Returns the gateway's state and the agents that may use it."""

    def phone_devices(self) -> PhoneDevices: ...
    def installed_extensions(self) -> InstalledExtensions: ...
