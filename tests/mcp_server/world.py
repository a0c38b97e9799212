"""A served workspace on stores in memory, with two entries and a handover."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helix_desktop.engine.cache_entry_rows import CacheEntryFigures, EntryFilter, EntryRow
from helix_desktop.engine.facts import (
    ConversationStarted,
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    Span,
    Stop,
    Text,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin, SearchHit
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.mcp_server.cache_operations import ServedWorkspace
from helix_desktop.store.conversation_rows import StoredConversation, advance_row, build_empty_row
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal

LOG = "".join(f"line {number}\n" for number in range(1, 2001)).encode()


class Words:
    """Counts a token for every four characters."""

    def count_tokens(self, text: str) -> int:
        return -(-len(text) // 4)


class Journal(MemoryJournal):
    """With the list of its conversations."""

    async def list_conversations(self) -> Sequence[StoredConversation]:
        return [
            StoredConversation.from_columns(
                (*advance_row(build_empty_row(name, 1.0), held).column_values(), "")
            )
            for name, held in self._facts.items()
        ]


class FewFigures(CacheEntryFigures):
    def figures_by_name(self) -> dict[str, int]:
        return {"entries": self.entries}


@dataclass
class Catalogue:
    cache: MemoryCache
    index: MemoryIndex

    async def search_index(
        self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False
    ) -> Sequence[SearchHit]:
        return await self.index.search_index(
            query, tool=tool, limit=limit, entries_only=entries_only
        )

    async def find_left_entries(
        self, digests: Collection[Digest]
    ) -> Mapping[Digest, frozenset[str]]:
        return await self.index.find_left_entries(digests)

    async def wait_until_indexed(self) -> None: ...

    async def entries_page(self, chosen: EntryFilter, *, limit: int) -> Sequence[EntryRow]:
        return [
            EntryRow(e.stored, e.about, e.stored.size, 1, e.time)
            for _, e in self.cache.all_contents()
            if chosen.tool in {"", e.about.tool}
        ][:limit]

    async def count_entries(self, chosen: EntryFilter) -> int:
        return len(await self.entries_page(chosen, limit=1_000_000))

    async def compute_figures(self) -> CacheEntryFigures:
        return FewFigures(len(list(self.cache.all_contents())), 0, 0)


async def matching(pattern: str, content: AsyncIterator[bytes], context: int) -> str:
    whole = b"".join([piece async for piece in content]).decode()
    return "\n".join(line for line in whole.splitlines() if pattern in line)


async def compact(digest: Digest, keep: str) -> str:
    return f"{digest.short_hex} kept: {keep}"


async def run_task_command(words: Sequence[str]) -> Any:
    """Tasks that were never given."""
    return (
        ["0a1b"]
        if words[0] == "add"
        else [dict.fromkeys(("id", "state", "why", "answer", "text"), words[-1])]
    )


async def served() -> tuple[ServedWorkspace, Digest]:
    """The workspace, and the hash of the long entry in it."""
    cache = MemoryCache(now=lambda: 1.0)
    journal = Journal(now=lambda: 1.0)
    stored = await cache.store_content(LOG, EntryOrigin("run_command", "make"))
    await cache.store_content(
        b"\xff\x00binary", EntryOrigin("user", "a.bin", "application/octet-stream")
    )
    said: list[Fact] = [
        UserSaid((Text("Do it, never quickly.", 400),)),
        ModelReplied((Text("Done. " * 300, 400),), "m", Stop.END),
    ]
    await journal.append_to_journal(
        "c1", [ConversationStarted(title="Work"), *said, TurnEnded(TurnEnd.DONE)]
    )
    document = Folded(
        "f1", FoldKind.HANDOVER, Span(2, 3), "## Completed Work\nIt is done.", 8, 800, number=1
    )
    await journal.append_to_journal("c1", [document])
    made = ServedWorkspace(
        "w",
        cache,
        Catalogue(cache, MemoryIndex(journal, cache)),
        journal,
        Words(),
        matching,
        compact,
        run_task_command,
    )
    return made, stored.digest
