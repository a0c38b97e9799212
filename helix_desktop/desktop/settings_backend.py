"""Implements `gui/settings/installation_port.py`: the installation and its workspaces
for the settings.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix_desktop.desktop.phone_devices import PagePhoneDevices
from helix_desktop.errors import ActionRefused, InvalidInput
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.deep_links import open_in_browser
from helix_desktop.gui.importing.history_import_port import HistoryImportPort
from helix_desktop.gui.sentence_translation import join_sentences
from helix_desktop.gui.sentence_translation import translate_sentences as told
from helix_desktop.gui.settings import installation_port
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.histories import history_finding
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.secrets import SecretStorage
from helix_desktop.tools.home_access import HomeOpening, find_openings_on_computer
from helix_desktop.tools.permission import (
    PermissionRule,
    covers_every_command,
    covers_nothing,
    does_rule_fit,
    is_rule_for_script,
    is_rule_too_wide,
)
from helix_desktop.workbench.system_prompt_and_settings import parse_hidden_patterns

if TYPE_CHECKING:
    from helix_desktop.desktop.extension_administration import ExtensionAdministration
    from helix_desktop.doctor_findings import DoctorFinding
    from helix_desktop.engine.cache_entry_rows import CacheEntryFigures
    from helix_desktop.gui.replay_lab.replay_lab_port import RunReplay
    from helix_desktop.mcp_client.hosted_server import HostedServer
    from helix_desktop.mcp_client.server_config import ServerConfig
    from helix_desktop.resident.connected_agents import ConnectedAgents
    from helix_desktop.store.cache_check_and_cleanup import VerifyResult
    from helix_desktop.workbench.all_workbenches import Workbenches
    from helix_desktop.workbench.open_workbench import Workbench

# The maximum numbers of unused entries that are added up and that are named.
LOOKED_AT = 5_000
NAMED = 8
SHOWN_DAMAGED = 20
LONGEST_LICENSE_NAME = 80
LONGEST_SERVER_LINE = 300


class SettingsBackend:
    """Answers the settings page. `where` and `secrets` are used to check the installation."""

    def __init__(self, where: ProgramFolders, secrets: SecretStorage) -> None:
        self._where = where
        self._secrets = secrets

    # --- Checking and maintaining the installation

    def library_versions(self) -> Sequence[tuple[str, str]]:
        from helix_desktop import installation_checks

        return tuple(installation_checks.installed_library_versions().items())

    def licence_texts(self) -> str:
        lines = ["Helix Desktop: Apache-2.0", ""]
        for name, version in self.library_versions():
            metadata = importlib.metadata.metadata(name).json
            license_text = str(metadata.get("license_expression") or metadata.get("license") or "")
            if license_text:
                # Some libraries put the whole text there, not only its name.
                first_line = license_text.splitlines()[0]
                terms = first_line[:LONGEST_LICENSE_NAME]
            else:
                terms = tr("see the program's website")
            lines.append(f"{name} {version}: {terms}")
        return "\n".join(lines)

    async def examine_installation(self) -> Sequence[DoctorFinding]:
        from helix_desktop import installation_checks

        return await installation_checks.check_installation(self._where, self._secrets)

    async def examine_histories(self) -> Sequence[DoctorFinding]:
        from helix_desktop import installation_checks

        # The files are looked at in the thread, as the findings are taken one by one.
        findings = installation_checks.check_histories_of_agents(self._where)
        return await asyncio.to_thread(tuple, findings)

    def build_history_importer(self, desk: Workbenches) -> HistoryImportPort:
        from helix_desktop.desktop.history_import import HistoryImporter

        return HistoryImporter(desk)

    def connected_agents(self) -> ConnectedAgents:
        from helix_desktop.resident.connected_agents import ConnectedAgents

        return ConnectedAgents(self._where)

    def phone_devices(self) -> PagePhoneDevices:
        return PagePhoneDevices(self._where)

    def installed_extensions(self) -> ExtensionAdministration:
        from helix_desktop.desktop.extension_administration import ExtensionAdministration

        return ExtensionAdministration(self._where)

    async def measure_workspace_storage(self, bench: Workbench) -> tuple[CacheEntryFigures, float]:
        backups = await asyncio.to_thread(bench.workspace.list_journal_backups)
        last_backup = max((backup.time for backup in backups), default=0.0)
        figures = await bench.workspace.index.compute_figures()
        return figures, last_backup

    async def verify_workspace_entries(
        self, bench: Workbench, report: Callable[[str], None]
    ) -> str:
        def report_read_bytes(result_so_far: VerifyResult) -> None:
            read_bytes = result_so_far.bytes + result_so_far.checkpoint_bytes
            size = format_byte_size(read_bytes)
            report(tr("{size} read…", size=size))

        result = await bench.workspace.cache.verify_cache(report_read_bytes)
        if not result.damaged and not result.notes:
            entries = format_count(result.checked, "{n} stored output", "{n} stored outputs")
            size = format_byte_size(result.bytes)
            return tr("{entries}, {size}: everything matches its hash.", entries=entries, size=size)
        damaged_count = len(result.damaged)
        count = format_count(
            damaged_count, "{n} stored output is damaged:", "{n} stored outputs are damaged:"
        )
        lines = [count]
        for digest, reason in result.damaged[:SHOWN_DAMAGED]:
            lines.append(f"{digest.short_hex}: {told(reason)}")
        for note in result.notes:
            lines.append(told(note))
        return "\n".join(lines)

    async def repair_workspace_cache(self, bench: Workbench) -> str:
        places = HistoryPlaces.of_this_user()
        histories = await asyncio.to_thread(history_finding.list_json_files_of_histories, places)
        sentences = await bench.workspace.repair_cache(histories)
        return "\n".join(told(sentence) for sentence in sentences)

    async def estimate_space_to_free(self, bench: Workbench) -> installation_port.SpaceToFree:
        """Adds up the entries that `free_up_space` would remove, the oldest first."""
        workspace = bench.workspace
        limit = workspace.settings.limit
        excess_bytes = 0
        if limit:
            figures = await workspace.index.compute_figures()
            excess_bytes = max(figures.kept - limit, 0)
        names: list[str] = []
        freed_bytes = 0
        unused_digests = await workspace.index.find_unused_entries()
        for digest in unused_digests[:LOOKED_AT]:
            if freed_bytes >= excess_bytes:
                break
            row = await workspace.index.find_entry_row(digest)
            if row is not None:
                names.append(" ".join(filter(None, [row.about.tool, row.about.source])))
                freed_bytes += row.kept
        remaining_excess = max(excess_bytes - freed_bytes, 0)
        return installation_port.SpaceToFree(
            len(names), freed_bytes, excess_bytes, remaining_excess, names[:NAMED]
        )

    async def free_up_space(self, bench: Workbench) -> str:
        workspace = bench.workspace
        if not workspace.settings.limit:
            return tr(
                "No limit is set, so there is no need to free up space. Set a limit above first."
            )
        removed = await workspace.cache.remove_unused_down_to(workspace.settings.limit)
        entries = format_count(
            removed.entries, "{n} stored output removed", "{n} stored outputs removed"
        )
        return tr("{what}, {size} freed.", what=entries, size=format_byte_size(removed.bytes))

    async def back_up_workspace(self, bench: Workbench) -> str:
        backup = await bench.workspace.back_up_now()
        return tr("Backup saved as {file}.", file=backup.path.name)

    # --- Listing MCP servers and signing in to them

    def list_mcp_servers(self, bench: Workbench) -> Sequence[installation_port.McpServerState]:
        """Returns the servers in the settings, with the state of those that run."""
        running = {hosted.config.name: hosted for hosted in bench.mcp_servers.running_servers}
        states: list[installation_port.McpServerState] = []
        for name, table in bench.workspace.settings.mcp.items():
            states.append(_describe_configured_server(name, table, running.get(name)))
        return states

    def parse_server_configuration(self, text: str, name: str) -> Sequence[ServerConfig]:
        from helix_desktop.mcp_client.server_config import parse_pasted_text

        return parse_pasted_text(text, name=name).servers

    async def sign_in_to_mcp_server(self, bench: Workbench, name: str) -> None:
        async def open_sign_in_page(address: str) -> None:
            open_in_browser(address)

        status = await bench.mcp_servers.sign_in_at_server(name, open_sign_in_page)
        if status.state != "ready":
            reason = told(status.why)
            raise ActionRefused(tr("{name} isn't ready. {why}", name=name, why=reason))

    def find_rule_problem(self, rule: Mapping[str, Any]) -> installation_port.RuleProblem:
        parsed_rule = PermissionRule.parse_permission_rule(rule)
        if covers_nothing(parsed_rule):
            return installation_port.RuleProblem.COVERS_NOTHING
        if covers_every_command(parsed_rule):
            return installation_port.RuleProblem.EVERY_COMMAND
        if is_rule_for_script(parsed_rule):
            return installation_port.RuleProblem.ANY_ARGUMENTS
        if is_rule_too_wide(parsed_rule):
            return installation_port.RuleProblem.OTHER_PROGRAMS
        return installation_port.RuleProblem.NONE

    def does_rule_fit(self, rule: Mapping[str, Any], tried: str) -> bool:
        return does_rule_fit(PermissionRule.parse_permission_rule(rule), tried)

    def list_command_openings(self, opened: Sequence[str]) -> Sequence[HomeOpening]:
        return find_openings_on_computer(Path.home(), os.environ, opened)

    def list_hidden_patterns(self, bench: Workbench) -> Sequence[str]:
        return parse_hidden_patterns(bench.workspace.settings)

    async def test_mcp_server(self, bench: Workbench, name: str) -> str:
        status, tools, lines = await bench.mcp_servers.test_server_once(name)
        if not status.why:
            tool_count = format_count(len(tools), "{n} tool", "{n} tools")
            return tr("{name} responded and offers {tools}.", name=name, tools=tool_count)
        last_line = ""
        if lines:
            last_line = tr(
                "The last line written by the server: {line}", line=lines[-1][:LONGEST_SERVER_LINE]
            )
        return join_sentences(told(status.why), last_line)

    # --- Comparing policies in the replay lab, and preparing a workspace for the tour

    @property
    def replay_policies(self) -> RunReplay:
        from helix_desktop.desktop import replay_process

        return replay_process.replay_conversations

    async def open_tour_workbench(self, desk: Workbenches, folder: Path) -> Workbench:
        """Opens the workspace of the last tour, or creates one with a fresh sample."""
        from helix_desktop.workbench import tour_folder

        await asyncio.to_thread(tour_folder.create_tour_folder, folder)
        bench = await self._open_or_create_workspace(desk, folder)
        await bench.choose_model_for_role(tour_folder.MODEL)
        return bench

    async def _open_or_create_workspace(self, desk: Workbenches, folder: Path) -> Workbench:
        for row in desk.list_workspaces():
            if row.first_folder == folder:
                return await desk.open_workspace(row.id)
        return await desk.create_workspace(tr("Tour"), folder)


def _describe_configured_server(
    name: str, table: Mapping[str, Any], hosted: HostedServer | None
) -> installation_port.McpServerState:
    """Describes a configured server and its state. A mistake in its table affects no
    other server.
    """
    from helix_desktop.mcp_client.server_config import ServerConfig, parse_server_table

    try:
        config = parse_server_table(name, table)
    except (InvalidInput, ValueError, TypeError) as error:
        return installation_port.McpServerState(ServerConfig(name), mistake=str(error))
    if hosted is None:
        return installation_port.McpServerState(config)
    tools = tuple((tool.own_name, tool.spec.description) for tool in hosted.all_tools)
    return installation_port.McpServerState(config, hosted.status, tools, hosted.server_log_lines)
