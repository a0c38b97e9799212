"""Providers and an installation in memory, for the first start and the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from helix_desktop.doctor_findings import DoctorFinding, DoctorFindingState
from helix_desktop.engine.cache_entry_rows import CacheEntryFigures
from helix_desktop.engine.context_usage import WindowSizeSource
from helix_desktop.errors import (
    ActionRefused,
    HelixError,
    NotFound,
    NoUsableKeyring,
    ProviderKeyRefused,
    ProviderUnreachable,
    StoreFailed,
)
from helix_desktop.gui.importing.history_import_port import ChosenHistories, HistoryDetails
from helix_desktop.gui.importing.history_import_port import ImportOutcome as Brought
from helix_desktop.gui.model_setup_port import (
    ModelChoice,
    ProviderChoice,
    ProviderTestResult,
    RefreshedModels,
)
from helix_desktop.gui.replay_lab.replay_lab_port import PolicyOutcome
from helix_desktop.gui.settings.installation_port import (
    McpServerState,
    PairingInvitation,
    PhoneDevice,
    RuleProblem,
    ShownExtension,
    SpaceToFree,
)
from helix_desktop.gui.workbench_types import ConnectedAgents, Workbench, Workbenches
from helix_desktop.histories.history_finding import FoundHistories
from helix_desktop.mcp_client.hosted_server import (
    McpConnectionState,
    McpConnectionStatus,
    McpServerResource,
)
from helix_desktop.mcp_client.server_config import ServerConfig, parse_pasted_text
from helix_desktop.providers.provider_catalog import is_provider_address
from helix_desktop.tools.home_access import OPENINGS, HomeOpening
from helix_desktop.tools.permission import (
    PermissionRule,
    covers_every_command,
    does_rule_fit,
    is_rule_for_script,
    is_rule_too_wide,
)

ANTHROPIC = ProviderChoice(
    "anthropic", "Anthropic", "https://api.anthropic.com", "anthropic", needs_key=True
)
OLLAMA = ProviderChoice("ollama", "Ollama", "http://127.0.0.1:11434/v1")
SONNET = ModelChoice("anthropic/claude-sonnet", 200_000, 3.0, 15.0)
QWEN = ModelChoice("ollama/qwen3", 32_000, local=True)


class FakeSetup:
    """Knows one good key. `keyring` says whether there is one; `servers` what runs on
    this machine.
    """

    def __init__(self, *, keyring: bool = True, servers: bool = True) -> None:
        self.keyring = keyring
        self.servers = servers
        self.added: list[tuple[ProviderChoice, str, str]] = []
        self.listed: Sequence[ModelChoice] = (SONNET, QWEN)
        self.corrected: dict[str, ModelChoice] = {}
        self.silent: tuple[tuple[str, str], ...] = ()
        self.asked_again = 0
        self.checked: list[str] = []
        self.well_known: Sequence[ProviderChoice] = (ANTHROPIC,)
        self.offered: tuple[ModelChoice, ...] = (SONNET,)

    def allow_asking_keyring_again(self) -> None:
        self.asked_again += 1

    def list_well_known_providers_with_key(self) -> Sequence[ProviderChoice]:
        return self.well_known

    async def list_configured_providers(self) -> Sequence[ProviderChoice]:
        return [replace(provider, key=keep if key else "") for provider, key, keep in self.added]

    async def is_local_server_connected(self) -> bool:
        return any("127.0.0.1" in provider.address for provider, _, _ in self.added)

    async def find_local_providers(self) -> Sequence[tuple[ProviderChoice, Sequence[ModelChoice]]]:
        return [(OLLAMA, [QWEN])] if self.servers else []

    def is_provider_address(self, address: str) -> bool:
        return is_provider_address(address)

    async def check_provider_address(self, provider: ProviderChoice) -> None:
        self.checked.append(provider.address)
        if "wrong" in provider.address:
            raise ProviderUnreachable(f"No connection to {provider.name}: host not found.")

    async def test_provider(self, provider: ProviderChoice, key: str) -> ProviderTestResult:
        if provider.needs_key and key != "good":
            raise ProviderKeyRefused(
                f"{provider.title} does not accept this key.",
                remedy="Look whether all of it was copied.",
            )
        return ProviderTestResult(self.offered, SONNET.name if self.offered else "")

    async def add_provider_with_key(
        self, provider: ProviderChoice, key: str, keep: str = "keyring"
    ) -> None:
        if key and keep == "keyring" and not self.keyring:
            raise NoUsableKeyring("There is no keyring here.")
        self.added.append((provider, key, keep))

    async def remove_provider_and_key(self, name: str) -> None:
        self.added = [each for each in self.added if each[0].name != name]

    async def list_provider_models(self, provider: str) -> Sequence[ModelChoice]:
        return [SONNET]

    async def list_known_models(self) -> Sequence[ModelChoice]:
        return [
            *(model for model in self.listed if model.name not in self.corrected),
            *self.corrected.values(),
        ]

    async def refresh_model_lists(self) -> RefreshedModels:
        return RefreshedModels(tuple(await self.list_known_models()), self.silent)

    async def correct_model_values(self, model: str, values: Mapping[str, float | bool]) -> None:
        (known,) = [each for each in await self.list_known_models() if each.name == model]
        self.corrected[model] = replace(
            known, window=int(values.get("window", known.window)), sure=WindowSizeSource.USER
        )

    async def reset_model_values(self, model: str) -> None:
        self.corrected.pop(model, None)


def listed_server(
    text: str,
    name: str,
    state: str = "off",
    why: str = "",
    *,
    tools: Mapping[str, str] | None = None,
    **given: Any,
) -> McpServerState:
    """A server as the settings list it. `text`: what is pasted to add it; `tools`: each
    with its description.
    """
    (config,) = parse_pasted_text(text, name=name).servers
    status = McpConnectionStatus(McpConnectionState(state), why, len(tools or ()))
    return McpServerState(replace(config, **given), status, tuple((tools or {}).items()))


class FakeServers:
    """`running`: those of the settings; `changes`: the limits that were written,
    `marked` the tools that only read.
    """

    def __init__(self) -> None:
        self.running: list[McpServerState] = []
        self.changes: list[tuple[str, float]] = []
        self.marked: list[tuple[str, str, bool]] = []
        self.missing_program = ""

    def list_offered_resources(self) -> Sequence[McpServerResource]:
        return [McpServerResource("docs", "docs://style", "The style guide")]

    async def check_programs_of_servers(self, servers: Sequence[ServerConfig]) -> None:
        if self.missing_program:
            raise NotFound(
                f"The program {self.missing_program} was not found.",
                remedy="Install the program, or specify its full path.",
            )

    async def add_pasted_servers(self, text: str, name: str = "") -> None:
        self.running += [
            McpServerState(config) for config in parse_pasted_text(text, name=name).servers
        ]

    async def remove_server(self, name: str) -> None:
        self.running = [server for server in self.running if server.config.name != name]

    async def switch_server(self, name: str, *, on: bool) -> None:
        self._change_config(name, enabled=on)

    async def switch_server_tool(self, name: str, tool: str, *, on: bool) -> None:
        (server,) = [each.config for each in self.running if each.config.name == name]
        self._change_config(name, off=tuple({*server.off} - {tool}) if on else (*server.off, tool))

    def _change_config(self, name: str, **values: Any) -> None:
        self.running = [
            replace(each, config=replace(each.config, **values))
            if each.config.name == name
            else each
            for each in self.running
        ]

    async def set_server_timeouts(self, name: str, **seconds: float) -> None:
        self.changes += [(f"{name}.{key}", value) for key, value in seconds.items()]

    async def restart_server(self, name: str) -> None:
        raise NotFound(f"There is no MCP server named {name}.")

    async def mark_tool_as_read_only(self, name: str, tool: str, *, reads: bool) -> None:
        self.marked.append((name, tool, reads))


class FakeHistories:
    """Two programs; `done` is what was brought in. `stays`: an import goes on until it
    is stopped.
    """

    def __init__(self) -> None:
        self.groups = [
            FoundHistories(
                "claude-code", Path("a.db"), "/home/me/project", 12, 3_400_000, 0.0, 1_768_000_000.0
            ),
            FoundHistories("codex", Path("/b.jsonl"), "/gone", 1, 20_000, 0.0, 1_767_000_000.0),
        ]
        self.details = HistoryDetails("Extract the lock manager", 24, 0.31)
        self.done: list[Sequence[FoundHistories]] = []
        self.keys: Sequence[str] = ("sk-ant-…9f",)
        self.stopped = self.undone = self.forgotten = False
        self.deleted = ("", -1)
        self.newest = ("w1", "c1")  # Of an import: its workspace and its conversation.

    async def find_history_groups(self) -> Sequence[FoundHistories]:
        return self.groups

    async def read_chosen_files(self, paths: Sequence[Path]) -> ChosenHistories:
        reasons = [f"{path} is not a file." for path in paths if path.suffix == ".txt"]
        groups = [
            FoundHistories("chatgpt", path, "", 3, 9_000, 0.0, 1_766_000_000.0)
            for path in paths
            if path.suffix == ".zip"
        ]
        return ChosenHistories(groups, reasons)

    async def describe_history(self, group: FoundHistories) -> HistoryDetails:
        return self.details

    async def import_history_groups(
        self, groups: Sequence[FoundHistories], report: Callable[[int, int], None]
    ) -> Brought:
        self.done.append(groups)
        report(1, 2)
        new = sum(group.conversations for group in groups)
        return Brought(
            new,
            0,
            2,
            self.stopped,
            self.newest,
            self.keys,
            ("a.jsonl, line 3: it was left out.",),
            ("Imported", "thesis"),
        )

    def stop_import(self) -> None:
        self.stopped = True

    async def undo_last_import(self) -> Sequence[str]:
        self.undone = True
        return ()

    async def delete_recorded_conversations(self, kind: str, days: int) -> int:
        self.deleted = (kind, days)
        return 2

    async def forget_found_api_keys(self) -> int:
        self.forgotten = True
        return len(self.keys)


class FakePhoneDevices:
    def __init__(self) -> None:
        self.devices = [
            PhoneDevice("d1", "Pixel", True, 1_795_000_000.0),
            PhoneDevice("d2", "Kitchen tablet", False, 1_794_000_000.0),
        ]
        self.invited: list[bool] = []
        self.own_addresses = ["192.168.1.20", "10.8.0.2"]
        self.restarts = 0
        self.trouble = ""
        self.page_address = "https://192.168.1.20:4357/pair"
        self.fingerprint = "AB:CD:EF"
        self.tests = 0

    async def list_devices(self) -> Sequence[PhoneDevice]:
        return list(self.devices)

    async def list_own_addresses(self) -> Sequence[str]:
        return list(self.own_addresses)

    async def restart_page(self) -> None:
        self.restarts += 1
        if self.trouble:
            raise HelixError(self.trouble)

    async def invite_device(self, *, may_allow: bool) -> PairingInvitation:
        self.invited.append(may_allow)
        code = f"ABCDE-FGHJ{len(self.invited)}"
        modules = [[(row + column) % 3 == 0 for column in range(33)] for row in range(33)]
        return PairingInvitation(code, self.page_address, self.fingerprint, modules)

    async def send_test_notice(self) -> None:
        self.tests += 1
        if self.tests > 1:
            raise HelixError("ntfy.sh did not take the notice (status 403).")

    async def revoke_device(self, device: str) -> None:
        self.devices = [each for each in self.devices if each.id != device]


class FakeExtensions:
    def __init__(self) -> None:
        self.known = [
            ShownExtension("words", "helix-words", "1.0", "words:extension", 2, "ab" * 32, "off"),
            ShownExtension(
                "films", "helix-films", "2.1", "films:extension", 3, "cd" * 32, "allowed"
            ),
            ShownExtension("old", "helix-old", "0.1", "old:extension", 1, "ef" * 32, "changed"),
            ShownExtension(
                "bad",
                "helix-bad",
                "0.1",
                "bad:extension",
                1,
                "01" * 32,
                "failed",
                "its module raised KeyError: 7",
            ),
        ]

    async def list_extensions(self) -> Sequence[ShownExtension]:
        return tuple(self.known)

    async def allow_extension(self, shown: ShownExtension) -> None:
        if shown.name == "old":
            raise ActionRefused(
                "The extension old has changed since it was shown, so it was not allowed.",
                remedy="Look at it again.",
            )
        self._set_state(shown.name, "allowed")

    async def switch_extension_off(self, name: str) -> None:
        self._set_state(name, "off")

    def _set_state(self, name: str, state: str) -> None:
        self.known = [
            replace(each, state=state, why="") if each.name == name else each for each in self.known
        ]


class FakeInstallation:
    """`played`: what the replay lab was asked for."""

    def __init__(self) -> None:
        self.of_others = FakeHistories()
        self.phones = FakePhoneDevices()
        self.extensions = FakeExtensions()
        self.played: list[tuple[list[str], list[str], int]] = []
        self.replay_error = ""
        self.cheapest = ["helix"]
        self.peaks: dict[str, float] = {}

    def build_history_importer(self, desk: Workbenches) -> FakeHistories:
        return self.of_others

    def connected_agents(self) -> ConnectedAgents:
        raise NotImplementedError

    def phone_devices(self) -> FakePhoneDevices:
        return self.phones

    def installed_extensions(self) -> FakeExtensions:
        return self.extensions

    def licence_texts(self) -> str:
        return "Helix Desktop: Apache-2.0"

    async def examine_installation(self) -> Sequence[DoctorFinding]:
        return [
            DoctorFinding("Python", DoctorFindingState.GOOD, "3.11."),
            DoctorFinding("Keyring", DoctorFindingState.BAD, "There is none.", "Install one."),
        ]

    async def examine_histories(self) -> Sequence[DoctorFinding]:
        return [
            DoctorFinding(
                "Histories",
                DoctorFindingState.NOTE,
                "Codex: 1 file (1.1 MB) is not read: index.db. It stays as it is.",
            )
        ]

    async def measure_workspace_storage(self, bench: Workbench) -> tuple[CacheEntryFigures, float]:
        return CacheEntryFigures(1_284, 96_200_000, 21_800_000), 1_795_162_800.0

    async def verify_workspace_entries(
        self, bench: Workbench, report: Callable[[str], None]
    ) -> str:
        report("half")
        return "All of it is whole."

    async def repair_workspace_cache(self, bench: Workbench) -> str:
        return "Cache entries intact: 1; lost: 0."

    async def estimate_space_to_free(self, bench: Workbench) -> SpaceToFree:
        return SpaceToFree(
            2, 9_000_000, 12_000_000, 3_000_000, ["read_file a.rs", "read_file b.rs"]
        )

    async def free_up_space(self, bench: Workbench) -> str:
        raise HelixError("The disk refused.", remedy="Try again.")

    async def back_up_workspace(self, bench: Workbench) -> str:
        return "Backed up."

    def list_mcp_servers(self, bench: Workbench) -> Sequence[McpServerState]:
        return cast("FakeServers", bench.mcp_servers).running

    def parse_server_configuration(self, text: str, name: str) -> Sequence[ServerConfig]:
        return parse_pasted_text(text, name=name).servers

    async def test_mcp_server(self, bench: Workbench, name: str) -> str:
        return f"{name} answers: 3 tools."

    async def sign_in_to_mcp_server(self, bench: Workbench, name: str) -> None:
        servers = cast("FakeServers", bench.mcp_servers)
        ready = McpConnectionStatus(McpConnectionState.READY)
        servers.running = [
            replace(each, status=ready) if each.config.name == name else each
            for each in servers.running
        ]

    def find_rule_problem(self, rule: Mapping[str, Any]) -> RuleProblem:
        parsed_rule = PermissionRule.parse_permission_rule(rule)
        if covers_every_command(parsed_rule):
            return RuleProblem.EVERY_COMMAND
        if is_rule_for_script(parsed_rule):
            return RuleProblem.ANY_ARGUMENTS
        if is_rule_too_wide(parsed_rule):
            return RuleProblem.OTHER_PROGRAMS
        return RuleProblem.NONE

    def does_rule_fit(self, rule: Mapping[str, Any], tried: str) -> bool:
        return does_rule_fit(PermissionRule.parse_permission_rule(rule), tried)

    def list_command_openings(self, opened: Sequence[str]) -> Sequence[HomeOpening]:
        return OPENINGS

    def list_hidden_patterns(self, bench: Workbench) -> Sequence[str]:
        return (".env", "*.pem")

    async def replay_policies(
        self,
        bench: Workbench,
        conversations: Sequence[str],
        policies: Sequence[str],
        window: int,
        report: Callable[[int, int], None],
    ) -> Sequence[PolicyOutcome]:
        report(1, 2)
        self.played.append((list(conversations), list(policies), window))
        if self.replay_error:
            raise StoreFailed(self.replay_error)
        return [
            PolicyOutcome(
                name,
                50_000 if name in self.cheapest else 60_000,
                self.peaks.get(name, 0.8),
                0.9,
                sent=90_000 if name in self.cheapest else 120_000,
            )
            for name in policies
        ]

    async def open_tour_workbench(self, desk: Workbenches, folder: Path) -> Workbench:
        folder.mkdir(parents=True, exist_ok=True)
        return await desk.create_workspace("Tour", folder)
