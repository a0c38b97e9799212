"""Imports conversations of other programs for the window, by folder, and undoes that."""

import asyncio
import time
from collections.abc import Sequence
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
)
from helix_desktop.histories.history_finding import FoundHistories
from helix_desktop.histories.leaked_keys import mask_key
from helix_desktop.histories.recorded_session import RecordedSession
from helix_desktop.providers.model_prices import shipped_prices
from helix_desktop.workbench import history_imports
from helix_desktop.workbench.all_workbenches import Workbenches
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workbench.session_preparation import SessionPreparation

MAX_DESCRIBED = 64 << 20  # A larger file, in bytes, is not read until the user imports it.
_EARLIER = (
    "Brought in",
    "Übernommen",
)  # Earlier names of the workspace for conversations without a folder.


@dataclass(slots=True)
class _WorkspaceImport:
    """The files to import into one workspace, with the folder they belong to and where
    it is on this computer.
    """

    folder: Path | None
    files: dict[Path, set[str]] = field(default_factory=dict)
    size: int = 0


class HistoryImporter:
    def __init__(self, desk: Workbenches) -> None:
        self._desk = desk
        # The last import's results, by workspace.
        self._results: dict[str, history_imports.ImportResult] = {}
        # Their conversations come with their parent's file and were not listed.
        self._subagents: set[str] = set()
        self._going: asyncio.Task[history_imports.ImportResult] | None = None
        self._stopped = False
        self._run = ""

    async def find_history_groups(self) -> Sequence[FoundHistories]:
        places = history_finding.HistoryPlaces.of_this_user()
        stamps = history_imports.stamps_at_last_import(await self._desk.read_import_facts())

        def find_and_mark_imported() -> list[FoundHistories]:
            groups: list[FoundHistories] = []
            for group in history_finding.find_histories(places):
                imported_stamp = stamps.get(str(group.path))
                is_imported = False
                if imported_stamp is not None:
                    # A file that has grown since is offered again.
                    stamp_now = history_imports.stamp_of_history_file(group.path)
                    is_imported = imported_stamp == stamp_now
                groups.append(replace(group, is_imported=is_imported))
            return groups

        groups = await asyncio.to_thread(find_and_mark_imported)
        return sorted(groups, key=lambda group: -group.last)

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
        if not self._stopped:  # After a stop, this call continues the same import.
            self._results = {}
            self._run = history_imports.new_import_name()
        self._stopped = False
        parts = await asyncio.to_thread(self._split_by_workspace, groups)
        total_bytes = sum(part.size for part in parts)
        bytes_before = 0

        def report_bytes_read(bytes_of_part: int, _total: int, _file: str) -> None:
            report(bytes_before + bytes_of_part, total_bytes)

        for part in parts:
            if self._stopped:
                break
            opened_before = {bench.id for bench in self._desk.opened_workbenches()}
            bench = await self._workbench_of_folder(part.folder)
            await self._import_into_workbench(bench, part, report_bytes_read)
            bytes_before += part.size
            # The first workspace is shown afterwards. Others would only stay open unseen.
            is_first = part is parts[0]
            if bench.id not in opened_before and not is_first and not self._stopped:
                await self._desk.close_workspace(bench.id)
        return await asyncio.to_thread(self._build_import_outcome)

    async def _import_into_workbench(
        self, bench: Workbench, part: _WorkspaceImport, report: history_imports.Report
    ) -> None:
        result = self._results.setdefault(bench.id, history_imports.ImportResult(self._run))
        wanted = {str(file): frozenset(folders) for file, folders in part.files.items()}
        preparation = SessionPreparation(wanted=wanted)
        work = bench.import_histories(
            list(part.files), preparation=preparation, report=report, result=result
        )
        self._going = concurrency.OwnedTasks("window").spawn_task(
            work, name="bring in conversations"
        )
        try:
            await asyncio.shield(self._going)
        except asyncio.CancelledError:
            self._going.cancel()
            await asyncio.wait([self._going])
            if not self._stopped:
                raise
        finally:
            self._going = None
            self._subagents |= {row.id for row in bench.list_conversations() if row.parent}

    def stop_import(self) -> None:
        self._stopped = True
        if self._going is not None:
            self._going.cancel()

    async def undo_last_import(self) -> Sequence[str]:
        stayed: list[str] = []
        for workspace, result in self._results.items():
            if result.imported:
                bench = await self._desk.open_workspace(workspace)
                _, stayed_here = await bench.undo_import_run(result.run)
                stayed += stayed_here
        return stayed

    async def delete_recorded_conversations(self, agent_kind: str, older_than_days: int) -> int:
        before = time.time() - older_than_days * 86_400
        agent_kinds: list[str] = []  # Empty for all programs.
        if agent_kind:
            agent_kinds.append(agent_kind)
        count = 0
        for row in await asyncio.to_thread(self._desk.list_workspaces):
            bench = await self._desk.open_workspace(row.id)
            conversations = await history_imports.find_recorded_conversations(
                bench.workspace, agent_kinds, before
            )
            if conversations:
                emptied = await bench.empty_conversation_trash(conversations)
                count += len(emptied.conversations)
        return count

    async def forget_found_api_keys(self) -> int:
        forgotten_keys = set[str]()
        for workspace, result in tuple(self._results.items()):
            for key in tuple(result.keys):
                bench = await self._desk.open_workspace(workspace)
                await bench.forget_content(text=key)
                forgotten_keys.add(key)
        return len(forgotten_keys)

    def _split_by_workspace(self, groups: Sequence[FoundHistories]) -> list[_WorkspaceImport]:
        """Groups the chosen histories by workspace, the one with the newest conversation first."""
        parts: dict[Path | None, _WorkspaceImport] = {}
        newest: dict[Path | None, float] = {}
        for group in groups:
            folder = None
            if group.is_folder_present():
                folder = Path(group.folder)
            part = parts.setdefault(folder, _WorkspaceImport(folder))
            newest[folder] = max(newest.get(folder, 0.0), group.last)
            for file in history_finding.list_files_of_history(group):
                part.files.setdefault(file, set()).add(group.folder)
            part.size += group.size
        return sorted(parts.values(), key=lambda part: -newest[part.folder])

    async def _workbench_of_folder(self, folder: Path | None) -> Workbench:
        """Returns the workbench of a folder. All histories without a folder on this
        computer share one workspace.
        """
        rows = await asyncio.to_thread(self._desk.list_workspaces)
        if folder is None:
            name = tr("Imported conversations")
            known_names = (name, *_EARLIER)
            known_ids = [row.id for row in rows if row.name in known_names]
        else:
            name = folder.name or str(folder)
            known_ids = [row.id for row in rows if row.first_folder == folder]
        if known_ids:
            return await self._desk.open_workspace(known_ids[0])
        unique_name = _make_name_unique(name, [row.name for row in rows])
        try:
            return await self._desk.create_workspace(unique_name, folder)
        except ActionRefused:  # The program's own folder, such as a copy that an agent worked in.
            return await self._workbench_of_folder(None)

    def _build_import_outcome(self) -> ImportOutcome:
        new = 0
        continued = 0
        unchanged = 0
        newest = (0.0, "", "")  # Its time, workspace and id.
        masked_keys = set[str]()
        complaints: list[str] = []
        for workspace, result in self._results.items():
            for conversation in result.imported:
                if conversation.parent:  # The user does not count sub-agents.
                    continue
                if conversation.state in ("new", "fork", "back"):
                    new += 1
                elif conversation.state == "more":
                    continued += 1
                newest = max(newest, (conversation.last, workspace, conversation.id))
            unchanged += len(result.unchanged_conversations - self._subagents)
            masked_keys.update(mask_key(key) for key in result.keys)
            complaints.extend(result.complaints)
        _, newest_workspace, newest_conversation = newest
        return ImportOutcome(
            new,
            continued,
            unchanged,
            self._stopped,
            (newest_workspace, newest_conversation),
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


def _read_chosen_file(path: Path) -> list[FoundHistories]:
    """Returns what is in a file: a database has a group for each working folder, as it is
    imported folder by folder.
    """
    by_folder: dict[str, list[RecordedSession]] = {}
    is_database = foreign_sqlite.is_sqlite_file(path)
    sessions = history_reading.read_history_file(path).recordings
    folders = {session.folder for session in sessions}
    for session in sessions:
        folder = session.folder
        if not is_database and len(folders) > 1:
            folder = ""  # Sessions of several folders, which are imported together.
        by_folder.setdefault(folder, []).append(session)
    size = path.stat().st_size
    groups: list[FoundHistories] = []
    for folder, sessions_there in by_folder.items():
        times = [message.time for session in sessions_there for message in session.messages]
        kind = sessions_there[0].kind
        first = min(times, default=0.0)
        last = max(times, default=0.0) or path.stat().st_mtime
        # The user does not count sub-agents.
        amount = max(1, sum(not session.parent for session in sessions_there))
        groups.append(FoundHistories(kind, path, folder, amount, size, first, last))
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
    for session in sessions:
        message_count += len(session.messages)
        for message in session.messages:
            last_time = max(last_time, message.time)
            if message.role == "assistant":
                cost += compute_cost(message.usage, shipped_prices(message.model))
    title = history_facts.title_of_recording(sessions[0])
    return HistoryDetails(title, message_count, cost, last=last_time)


def _make_name_unique(name: str, taken: Sequence[str]) -> str:
    taken_names = {taken_name.casefold() for taken_name in taken}
    short_name = name[:70]
    unique_name = short_name
    number = 2
    while unique_name.casefold() in taken_names:
        unique_name = f"{short_name} {number}"
        number += 1
    return unique_name
