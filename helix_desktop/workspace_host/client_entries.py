"""The stored outputs of a workspace that another process has open, as the cache page asks for them.

Nothing is kept here but what the page keeps. What a host says of an entry is shortened, and its
content is checked against its hash.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from helix_desktop.engine.cache_entry_rows import (
    CacheEntryFigures,
    EntryFilter,
    EntryRow,
    EntrySort,
    EntryUse,
)
from helix_desktop.engine.ports import SearchHit
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, NotFound
from helix_desktop.workspace_host import host_interface
from helix_desktop.workspace_host.client_contents import ClientContents
from helix_desktop.workspace_host.host_interface import EntryAnswer, HostCommand
from helix_desktop.workspace_host.host_line import HostLine

LONGEST_TEXT = 1_000  # So many characters of what a host says of an entry are shown.
LATEST_TIME = 32_503_680_000.0  # The year 3000, in seconds since 1970. No clock shows more.


class ClientCatalogue:
    """What the cache page needs of a workspace, under the names of `StoredWorkspace`."""

    def __init__(self, line: HostLine) -> None:
        self.index = ClientEntryIndex(line)
        self.cache = ClientEntryContents(line)

    async def content_forgetter(self, *, text: str = "", entries: Sequence[Digest] = ()) -> object:
        raise ActionRefused(
            "This can only be done where the workspace is open, not from here.",
            remedy="Nothing was done.",
        )


class ClientEntryIndex:
    def __init__(self, line: HostLine) -> None:
        self._line = line

    async def entries_page(
        self, chosen: EntryFilter, *, sort: EntrySort, descending: bool, offset: int, limit: int
    ) -> Sequence[EntryRow]:
        command = host_interface.ListEntries(chosen, sort, descending, offset, limit)
        answer = await _ask_host_of_entries(self._line, command)
        return [_shortened_row(row) for row in answer.rows[:limit]]

    async def count_entries(self, chosen: EntryFilter) -> int:
        answer = await _ask_host_of_entries(self._line, host_interface.CountEntries(chosen))
        return max(answer.count, 0)

    async def compute_figures(self) -> CacheEntryFigures:
        answer = await _ask_host_of_entries(self._line, host_interface.MeasureEntries())
        return answer.figures or CacheEntryFigures(0, 0, 0)

    async def count_tools(self) -> Sequence[tuple[str, int]]:
        command = host_interface.CountEntriesByTool()
        answer = await _ask_host_of_entries(self._line, command)
        return [(name[:LONGEST_TEXT], count) for name, count in answer.tools]

    async def find_entry_row(self, digest: Digest) -> EntryRow | None:
        rows = await self.find_entry_rows([digest])
        return rows.get(digest)

    async def find_entry_rows(self, digests: Collection[Digest]) -> Mapping[Digest, EntryRow]:
        command = host_interface.FindEntries(tuple(digests))
        answer = await _ask_host_of_entries(self._line, command)
        rows: dict[Digest, EntryRow] = {}
        for row in answer.rows:
            rows[row.stored.digest] = _shortened_row(row)
        return rows

    async def find_entry_uses(self, digest: Digest) -> Sequence[EntryUse]:
        command = host_interface.FindEntryUses(digest)
        answer = await _ask_host_of_entries(self._line, command)
        uses: list[EntryUse] = []
        for use in answer.uses:
            time = possible_time(use.time)
            uses.append(replace(use, time=time))
        return uses

    async def search_index(
        self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False
    ) -> Sequence[SearchHit]:
        command = host_interface.SearchEntries(query, tool, limit, with_messages=not entries_only)
        answer = await _ask_host_of_entries(self._line, command)
        return shorten_search_hits(answer.hits[:limit])


class ClientEntryContents(ClientContents):
    async def resolve_prefix(self, prefix: str) -> Digest:
        answer = await _ask_host_of_entries(self._line, host_interface.ResolveEntry(prefix))
        if answer.digest is None:
            raise NotFound(f"No entry in this workspace has a hash that begins with {prefix}.")
        return answer.digest

    async def verify_entry(self, digest: Digest) -> None:
        """Has the host compare the content with its hash. Raises CacheCorrupt if they differ."""
        await self._line.run_at_host(host_interface.VerifyEntry(digest))

    async def pin_entry(self, digest: Digest, *, pinned: bool = True) -> None:
        await self._line.run_at_host(host_interface.PinEntry(digest, pinned))


async def _ask_host_of_entries(line: HostLine, command: HostCommand) -> EntryAnswer:
    result = await line.run_at_host(command)
    return result.entries or EntryAnswer()


def _shortened_row(row: EntryRow) -> EntryRow:
    """Returns the row as it can be drawn, whatever the host says in it."""
    tool = row.about.tool[:LONGEST_TEXT]
    source = row.about.source[:LONGEST_TEXT]
    shortened_origin = replace(row.about, tool=tool, source=source)
    return replace(
        row,
        about=shortened_origin,
        time=possible_time(row.time),
        recalled=possible_time(row.recalled),
    )


def shorten_search_hits(hits: Sequence[SearchHit]) -> Sequence[SearchHit]:
    shortened_hits: list[SearchHit] = []
    for hit in hits:
        snippet = hit.snippet[:LONGEST_TEXT]
        shortened_hits.append(replace(hit, snippet=snippet, time=possible_time(hit.time)))
    return shortened_hits


def possible_time(time: float) -> float:
    """Return 0 for a time that no clock shows, which would fail where it is formatted."""
    if 0.0 <= time <= LATEST_TIME:  # Not true of what is no number, either.
        return time
    return 0.0
