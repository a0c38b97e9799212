"""Imports conversations of other programs for the window, by folder, and undoes that."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from helix_desktop import concurrency
from helix_desktop.engine.context_usage import compute_cost
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.importing.history_import_port import (
    ChosenHistories,
    HistoryDetails,
    ImportOutcome,
    ImportProgressCallback,
)
from helix_desktop.gui.translation import tr
from helix_desktop.histories import (
    foreign_sqlite,
    history_facts,
    history_finding,
    history_reading,
    subagent_files,
)
from helix_desktop.histories.history_finding import FoundHistories
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.leaked_keys import longest_first, mask_key
from helix_desktop.histories.recorded_session import RecordedSession
from helix_desktop.providers.model_prices import shipped_prices
from helix_desktop.workbench import history_imports
from helix_desktop.workbench.all_workbenches import Workbenches
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workbench.session_preparation import SessionPreparation

MAX_DESCRIBED = 64 << 20  # A larger file, in bytes, is not read until the user imports it.
# What earlier versions called the workspace for conversations without a folder.
_EARLIER_NAMES = ("Brought in", "Übernommen")
LONGEST_NAME = 70
SECONDS_OF_DAY = 86_400


@dataclass(slots=True)
class _WorkspaceImport:
    """The files to import into one workspace, with the folder they belong to and where
    it is on this computer.
    """

    folder: Path | None
    files: dict[Path, set[str]] = field(default_factory=dict)
    size: int = 0
    newest_time: float = 0.0


class HistoryImporter:
    def __init__(self, desk: Workbenches) -> None:
        self._desk = desk
        # The last import's results, by workspace.
        self._results: dict[str, history_imports.ImportResult] = {}
        # Their conversations come with their parent's file and were not listed.
        self._subagents: set[str] = set()
        self._running_import: asyncio.Task[history_imports.ImportResult] | None = None
        self._is_stopped = False
        self._run = ""

    async def find_history_groups(self) -> Sequence[FoundHistories]:
        places = HistoryPlaces.of_this_user()
        stamps = history_imports.stamps_at_last_import(await self._desk.read_import_facts())
        groups = await asyncio.to_thread(_find_groups_and_mark_imported, places, stamps)
        return sorted(groups, key=lambda group: group.last, reverse=True)

    async def read_chosen_files(self, paths: Sequence[Path]) -> ChosenHistories:
        groups: list[FoundHistories] = []
        reasons: list[str] = []
        for path in paths:
            try:
                groups += await asyncio.to_thread(_read_chosen_file, path)
            except HelixError as error:
                reasons.append(str(error))
        return ChosenHistories(groups, reasons)

    async def describe_history(self, group: FoundHistories) -> HistoryDetails:
        return await asyncio.to_thread(_describe_history_file, group.path, group.folder, group.size)

    async def import_history_groups(
        self, groups: Sequence[FoundHistories], report: ImportProgressCallback
    ) -> ImportOutcome:
        if not self._is_stopped:  # After a stop, this call continues the same import.
            self._results = {}
            self._run = history_imports.new_import_name()
        self._is_stopped = False
        parts = await asyncio.to_thread(self._split_by_workspace, groups)
        total_bytes = sum(part.size for part in parts)
        bytes_before = 0

        def report_bytes_read(bytes_of_part: int, _total: int, _file: str) -> None:
            report(bytes_before + bytes_of_part, total_bytes)

        for part in parts:
            if self._is_stopped:
                break
            opened_before = {bench.id for bench in self._desk.opened_workbenches()}
            bench = await self._workbench_of_folder(part.folder)
            await self._import_into_workbench(bench, part, report_bytes_read)
            bytes_before += part.size
            # The first workspace is shown afterwards. Others would only stay open unseen.
            is_first = part is parts[0]
            if bench.id not in opened_before and not is_first and not self._is_stopped:
                await self._desk.close_workspace(bench.id)
        return await asyncio.to_thread(self._build_import_outcome)

    async def _import_into_workbench(
        self, bench: Workbench, part: _WorkspaceImport, report: history_imports.Report
    ) -> None:
        result = self._results.setdefault(bench.id, history_imports.ImportResult(self._run))
        folders_by_file: dict[str, frozenset[str]] = {}
        for file, folders in part.files.items():
            folders_by_file[str(file)] = frozenset(folders)
        importing = bench.import_histories(
            list(part.files),
            preparation=SessionPreparation(wanted_folders=folders_by_file),
            report=report,
            result=result,
        )
        self._running_import = concurrency.OwnedTasks("window").spawn_task(
            importing, name="bring in conversations"
        )
        try:
            await asyncio.shield(self._running_import)
        except asyncio.CancelledError:
            self._running_import.cancel()
            await asyncio.wait([self._running_import])
            if not self._is_stopped:
                raise
        finally:
            self._running_import = None
            for row in bench.list_conversations():
                if row.parent:
                    self._subagents.add(row.id)

    def stop_import(self) -> None:
        self._is_stopped = True
        if self._running_import is not None:
            self._running_import.cancel()

    async def undo_last_import(self) -> Sequence[str]:
        all_kept: list[str] = []
        for workspace, result in self._results.items():
            if result.imported:
                bench = await self._desk.open_workspace(workspace)
                _trashed, kept = await bench.undo_import_run(result.run)
                all_kept += kept
        return all_kept

    async def delete_recorded_conversations(self, agent_kind: str, older_than_days: int) -> int:
        newest_time = time.time() - older_than_days * SECONDS_OF_DAY
        agent_kinds: list[str] = []  # Empty for all programs.
        if agent_kind:
            agent_kinds.append(agent_kind)
        count = 0
        for row in await asyncio.to_thread(self._desk.list_workspaces):
            bench = await self._desk.open_workspace(row.id)
            conversations = await history_imports.find_recorded_conversations(
                bench.workspace, agent_kinds, newest_time
            )
            if conversations:
                emptied = await bench.empty_conversation_trash(conversations)
                count += len(emptied.conversations)
        return count

    async def forget_found_api_keys(self) -> int:
        forgotten_keys = set[str]()
        for workspace, result in tuple(self._results.items()):
            for key in longest_first(result.keys):
                bench = await self._desk.open_workspace(workspace)
                await bench.forget_content(text=key)
                forgotten_keys.add(key)
        return len(forgotten_keys)

    def _split_by_workspace(self, groups: Sequence[FoundHistories]) -> list[_WorkspaceImport]:
        """Groups the chosen histories by workspace, the one with the newest conversation first."""
        files_by_session = subagent_files.find_files_of_sessions(group.path for group in groups)
        part_by_folder: dict[Path | None, _WorkspaceImport] = {}
        for group in groups:
            folder = None
            if group.is_folder_present():
                folder = Path(group.folder)
            if folder not in part_by_folder:
                part_by_folder[folder] = _WorkspaceImport(folder)
            part = part_by_folder[folder]
            part.newest_time = max(part.newest_time, group.last)
            for file in files_by_session[group.path]:
                part.files.setdefault(file, set()).add(group.folder)
            part.size += group.size
        parts = list(part_by_folder.values())
        parts.sort(key=lambda part: part.newest_time, reverse=True)
        return parts

    async def _workbench_of_folder(self, folder: Path | None) -> Workbench:
        """Returns the workbench of a folder. All histories without a folder on this
        computer share one workspace.
        """
        rows = await asyncio.to_thread(self._desk.list_workspaces)
        if folder is None:
            name = tr("Imported conversations")
            known_names = [name]
            known_names += _EARLIER_NAMES
            existing_ids = [row.id for row in rows if row.name in known_names]
        else:
            name = folder.name or str(folder)
            existing_ids = [row.id for row in rows if row.first_folder == folder]

        if existing_ids:
            return await self._desk.open_workspace(existing_ids[0])

        unique_name = _make_name_unique(name, [row.name for row in rows])
        try:
            return await self._desk.create_workspace(unique_name, folder)
        except ActionRefused:  # The program's own folder, such as a copy that an agent worked in.
            return await self._workbench_of_folder(None)

    def _build_import_outcome(self) -> ImportOutcome:
        new_count = 0
        grown_count = 0
        unchanged_count = 0
        newest_time = 0.0
        newest_conversation = ("", "")  # Its workspace and its id.
        masked_keys = set[str]()
        complaints: list[str] = []
        for workspace, result in self._results.items():
            for conversation in result.imported:
                if conversation.parent:  # The user does not count sub-agents.
                    continue
                if conversation.state in ("new", "fork", "back"):
                    new_count += 1
                elif conversation.state == "more":
                    grown_count += 1
                if conversation.last >= newest_time:
                    newest_time = conversation.last
                    newest_conversation = (workspace, conversation.id)
            unchanged_count += len(result.unchanged_conversations - self._subagents)
            masked_keys.update(mask_key(key) for key in result.keys)
            complaints.extend(result.complaints)
        return ImportOutcome(
            new_count,
            grown_count,
            unchanged_count,
            self._is_stopped,
            newest_conversation,
            sorted(masked_keys),
            complaints,
            self._names_of_changed_workspaces(),
        )

    def _names_of_changed_workspaces(self) -> list[str]:
        names: list[str] = []
        for row in self._desk.list_workspaces():
            result = self._results.get(row.id)
            if result is not None and result.imported:
                names.append(row.name)
        return sorted(names)


def _find_groups_and_mark_imported(
    places: HistoryPlaces, stamps: Mapping[str, tuple[int, int]]
) -> list[FoundHistories]:
    """Finds all histories. `stamps`: what identified each file's content at its last import."""
    groups: list[FoundHistories] = []
    for group in history_finding.find_histories(places):
        imported_stamp = stamps.get(str(group.path))
        is_imported = False
        if imported_stamp is not None:
            # A file that has grown since is offered again.
            current_stamp = history_imports.stamp_of_history_file(group.path)
            is_imported = imported_stamp == current_stamp
        groups.append(replace(group, is_imported=is_imported))
    return groups


def _read_chosen_file(path: Path) -> list[FoundHistories]:
    """Returns what is in a file: a database has a group for each working folder, as it is
    imported folder by folder.
    """
    sessions = history_reading.read_history_file(path).recordings
    is_database = foreign_sqlite.is_sqlite_file(path)
    has_several_folders = len({session.folder for session in sessions}) > 1
    sessions_by_folder: dict[str, list[RecordedSession]] = {}
    for session in sessions:
        folder = session.folder
        if has_several_folders and not is_database:
            folder = ""  # All sessions of the file are imported together.
        sessions_by_folder.setdefault(folder, []).append(session)

    groups: list[FoundHistories] = []
    file_status = path.stat()
    for folder, sessions_of_folder in sessions_by_folder.items():
        times: list[float] = []
        conversation_count = 0
        for session in sessions_of_folder:
            times.extend(message.time for message in session.messages)
            if not session.parent:  # The user does not count sub-agents.
                conversation_count += 1
        group = FoundHistories(
            sessions_of_folder[0].kind,
            path,
            folder,
            max(1, conversation_count),
            file_status.st_size,
            min(times, default=0.0),
            # Some programs record no times.
            max(times, default=0.0) or file_status.st_mtime,
        )
        groups.append(group)
    return groups


def _describe_history_file(path: Path, folder: str, size: int) -> HistoryDetails:
    """Describes a file. If it does not say what was paid, the cost is computed from the
    prices that are shipped.
    """
    if size > MAX_DESCRIBED:
        return HistoryDetails(path.stem)
    try:
        sessions_of_file = list(history_reading.read_history_file(path).recordings)
    except HelixError as error:
        return HistoryDetails(path.stem, reason=error.what)
    # A database has the sessions of many folders.
    sessions = [session for session in sessions_of_file if session.folder == folder]
    if not sessions:
        sessions = sessions_of_file
    message_count = 0
    cost = 0.0
    last_time = 0.0
    models: list[str] = []
    for session in sessions:
        message_count += len(session.messages)
        for message in session.messages:
            last_time = max(last_time, message.time)
            if message.role == "assistant":
                cost += compute_cost(message.usage, shipped_prices(message.model))
                models.append(message.model)
    title = history_facts.title_of_recording(sessions[0])
    names_of_models = [model for model in dict.fromkeys(models) if model]
    return HistoryDetails(title, message_count, cost, last=last_time, models=names_of_models)


def _make_name_unique(name: str, used_names: Sequence[str]) -> str:
    folded_names = {used_name.casefold() for used_name in used_names}
    short_name = name[:LONGEST_NAME]
    unique_name = short_name
    number = 2
    while unique_name.casefold() in folded_names:
        unique_name = f"{short_name} {number}"
        number += 1
    return unique_name
