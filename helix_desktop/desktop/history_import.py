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
    HistoryDetails,
    ImportOutcome,
    ImportProgressCallback,
)
from helix_desktop.gui.translation import tr
from helix_desktop.histories import history_facts, history_finding, history_reading
from helix_desktop.histories.history_finding import FoundHistories
from helix_desktop.histories.leaked_keys import mask_key
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
        self._results: dict[
            str, history_imports.ImportResult
        ] = {}  # The last import's results, by workspace.
        self._subagents: set[str] = (
            set()
        )  # Their conversations come with their parent's file and were not listed.
        self._going: asyncio.Task[history_imports.ImportResult] | None = None
        self._stopped = False
        self._run = ""

    async def find_history_groups(self) -> Sequence[FoundHistories]:
        places = history_finding.HistoryPlaces.of_this_user()
        stamps = history_imports.stamps_at_last_import(await self._desk.read_import_facts())

        def mark_if_imported(group: FoundHistories) -> FoundHistories:
            known = stamps.get(str(group.path))
            return replace(
                group,
                is_imported=known is not None
                and known == history_imports.stamp_of_history_file(group.path),
            )

        found = await asyncio.to_thread(
            lambda: [*map(mark_if_imported, history_finding.find_histories(places))]
        )
        return sorted(found, key=lambda group: -group.last)

    async def describe_history(self, group: FoundHistories) -> HistoryDetails:
        return await asyncio.to_thread(_describe_history_file, group.path, group.folder, group.size)

    async def import_history_groups(
        self, groups: Sequence[FoundHistories], report: ImportProgressCallback
    ) -> ImportOutcome:
        if not self._stopped:  # After a stop, this call continues the same import.
            self._results, self._run = {}, history_imports.new_import_name()
        self._stopped = False
        parts = await asyncio.to_thread(self._split_by_workspace, groups)
        total, done = sum(part.size for part in parts), 0
        for part in parts:
            if self._stopped:
                break
            opened = {bench.id for bench in self._desk.opened_workbenches()}
            bench = await self._workbench_of_folder(part.folder)
            await self._import_into_workbench(
                bench, part, lambda read, _of, _file, before=done: report(before + read, total)
            )
            done += part.size
            if bench.id not in opened and part is not parts[0] and not self._stopped:
                await self._desk.close_workspace(bench.id)
        return await asyncio.to_thread(self._build_import_outcome)

    async def _import_into_workbench(
        self, bench: Workbench, part: _WorkspaceImport, heard: object
    ) -> None:
        result = self._results.setdefault(bench.id, history_imports.ImportResult(self._run))
        preparation = SessionPreparation(
            wanted={str(file): frozenset(those) for file, those in part.files.items()}
        )
        work = bench.import_histories(
            list(part.files),
            preparation=preparation,
            report=heard,  # type: ignore[arg-type]
            result=result,
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
                stayed += (await bench.undo_import_run(result.run))[1]
        return stayed

    async def delete_recorded_conversations(self, agent_kind: str, older_than_days: int) -> int:
        before, count = time.time() - older_than_days * 86_400, 0
        for row in await asyncio.to_thread(self._desk.list_workspaces):
            bench = await self._desk.open_workspace(row.id)
            if chosen := await history_imports.find_recorded_conversations(
                bench.workspace, [agent_kind] if agent_kind else [], before
            ):
                count += len((await bench.empty_conversation_trash(chosen)).conversations)
        return count

    async def forget_found_api_keys(self) -> int:
        keys = {
            (workspace, key) for workspace, result in self._results.items() for key in result.keys
        }
        for workspace, key in keys:
            await (await self._desk.open_workspace(workspace)).forget_content(text=key)
        return len({key for _, key in keys})

    def _split_by_workspace(self, groups: Sequence[FoundHistories]) -> list[_WorkspaceImport]:
        """Groups the chosen histories by workspace, the one with the newest conversation first."""
        parts: dict[Path | None, _WorkspaceImport] = {}
        newest: dict[Path | None, float] = {}
        for group in groups:
            folder = Path(group.folder) if group.is_folder_present() else None
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
        name = folder.name or str(folder) if folder is not None else tr("Imported conversations")
        if folder is None:
            known = next((row.id for row in rows if row.name in {name, *_EARLIER}), "")
        else:
            known = next((row.id for row in rows if row.first_folder == folder), "")
        if known:
            return await self._desk.open_workspace(known)
        try:
            return await self._desk.create_workspace(
                _make_name_unique(name, [row.name for row in rows]), folder
            )
        except ActionRefused:  # The program's own folder, such as a copy that an agent worked in.
            return await self._workbench_of_folder(None)

    def _build_import_outcome(self) -> ImportOutcome:
        results = self._results
        brought = [
            (one, at) for at, each in results.items() for one in each.imported if not one.parent
        ]
        _, *show = max(((one.last, at, one.id) for one, at in brought), default=(0.0, "", ""))
        return ImportOutcome(
            sum(one.state in ("new", "fork", "back") for one, _ in brought),
            sum(one.state == "more" for one, _ in brought),
            sum(len(each.unchanged_conversations - self._subagents) for each in results.values()),
            self._stopped,
            (show[0], show[1]),
            sorted({mask_key(key) for result in results.values() for key in result.keys}),
            [sentence for result in results.values() for sentence in result.complaints],
            sorted(
                row.name
                for row in self._desk.list_workspaces()
                if row.id in results and results[row.id].imported
            ),
        )


def _describe_history_file(path: Path, folder: str, size: int) -> HistoryDetails:
    """Describes a file. If it does not say what was paid, the cost is computed from the
    prices that are shipped.
    """
    if size > MAX_DESCRIBED:
        return HistoryDetails(path.stem)
    try:
        sessions = [*history_reading.read_history_file(path).recordings]
    except HelixError as error:
        return HistoryDetails(path.stem, reason=error.what)
    sessions = [session for session in sessions if session.folder == folder] or sessions
    messages = [message for session in sessions for message in session.messages]
    cost = sum(
        compute_cost(said.usage, shipped_prices(said.model))
        for said in messages
        if said.role == "assistant"
    )
    last = max((message.time for message in messages), default=0.0)
    return HistoryDetails(
        history_facts.title_of_recording(sessions[0]), len(messages), cost, last=last
    )


def _make_name_unique(name: str, taken: Sequence[str]) -> str:
    known = {one.casefold() for one in taken}
    numbered = (f"{name[:70]} {number}" for number in range(2, len(taken) + 2))
    return next(one for one in (name[:70], *numbered) if one.casefold() not in known)
