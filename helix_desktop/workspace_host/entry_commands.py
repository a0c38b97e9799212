"""Commands of a host about stored outputs: what the cache page of a window elsewhere asks."""

from collections.abc import Mapping

from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workspace_host import host_interface
from helix_desktop.workspace_host.host_interface import (
    CommandResult,
    CommandRunner,
    EntryAnswer,
    HostCommand,
)

MOST_ROWS = 4_000  # In one answer.
MOST_HITS = 200


class EntryCommands:
    """Carries out these commands. `runners`: what runs each."""

    def __init__(self, workspace: StoredWorkspace) -> None:
        self._index = workspace.index
        self._cache = workspace.cache
        self.runners: Mapping[type[HostCommand], CommandRunner] = {
            host_interface.ListEntries: self._list_entries,
            host_interface.CountEntries: self._count_entries,
            host_interface.MeasureEntries: self._measure_entries,
            host_interface.CountEntriesByTool: self._count_entries_by_tool,
            host_interface.FindEntries: self._find_entries,
            host_interface.FindEntryUses: self._find_entry_uses,
            host_interface.SearchEntries: self._search_entries,
            host_interface.ResolveEntry: self._resolve_entry,
            host_interface.VerifyEntry: self._verify_entry,
            host_interface.PinEntry: self._pin_or_unpin_entry,
        }

    async def _list_entries(self, command: host_interface.ListEntries) -> CommandResult:
        offset = max(command.offset, 0)
        limit = _limited_count(command.limit, MOST_ROWS)
        rows = await self._index.entries_page(
            command.chosen,
            sort=command.sort,
            descending=command.descending,
            offset=offset,
            limit=limit,
        )
        answer = EntryAnswer(rows=tuple(rows))
        return _entries_result(answer)

    async def _count_entries(self, command: host_interface.CountEntries) -> CommandResult:
        count = await self._index.count_entries(command.chosen)
        return _entries_result(EntryAnswer(count=count))

    async def _measure_entries(self, _command: host_interface.MeasureEntries) -> CommandResult:
        figures = await self._index.compute_figures()
        return _entries_result(EntryAnswer(figures=figures))

    async def _count_entries_by_tool(
        self, _command: host_interface.CountEntriesByTool
    ) -> CommandResult:
        tools = await self._index.count_tools()
        answer = EntryAnswer(tools=tuple(tools))
        return _entries_result(answer)

    async def _find_entries(self, command: host_interface.FindEntries) -> CommandResult:
        wanted = command.digests[:MOST_ROWS]
        rows_by_digest = await self._index.find_entry_rows(wanted)
        answer = EntryAnswer(rows=tuple(rows_by_digest.values()))
        return _entries_result(answer)

    async def _find_entry_uses(self, command: host_interface.FindEntryUses) -> CommandResult:
        uses = await self._index.find_entry_uses(command.digest)
        answer = EntryAnswer(uses=tuple(uses))
        return _entries_result(answer)

    async def _search_entries(self, command: host_interface.SearchEntries) -> CommandResult:
        limit = _limited_count(command.limit, MOST_HITS)
        hits = await self._index.search_index(
            command.words, tool=command.tool, limit=limit, entries_only=not command.with_messages
        )
        answer = EntryAnswer(hits=tuple(hits))
        return _entries_result(answer)

    async def _resolve_entry(self, command: host_interface.ResolveEntry) -> CommandResult:
        digest = await self._cache.resolve_prefix(command.beginning)
        return _entries_result(EntryAnswer(digest=digest))

    async def _verify_entry(self, command: host_interface.VerifyEntry) -> CommandResult:
        await self._cache.verify_entry(command.digest)
        return CommandResult()

    async def _pin_or_unpin_entry(self, command: host_interface.PinEntry) -> CommandResult:
        await self._cache.pin_entry(command.digest, pinned=command.is_pinned)
        return CommandResult()


def _entries_result(entries: EntryAnswer) -> CommandResult:
    return CommandResult(entries=entries)


def _limited_count(wanted: int, most: int) -> int:
    return min(max(wanted, 0), most)
