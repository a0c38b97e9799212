"""Conversations that leave a disk once others have them: they come back whole, and what
they use stays in the shared store.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from helix_desktop.engine.facts import ConversationStarted, ToolReturned
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.store.shared.conversation_sync import ConversationSync
from helix_desktop.store.shared.row_encryption import RowCipher
from tests.store.shared.homes import Machine, machine
from tests.store.shared.memory_rows import MemoryHeads, MemoryRowStore, MemoryServer

SHELL = EntryOrigin("shell", "ls")


@asynccontextmanager
async def sharing(
    home: Path, shelf: MemoryServer, heads: MemoryHeads, seal: RowCipher
) -> AsyncIterator[tuple[Machine, ConversationSync]]:
    async with machine(home, lambda: MemoryRowStore(shelf, seal.space), seal) as one:
        sync = await one.workspace.build_conversation_sync(
            await one.link.ensure_connected(), heads, home.name
        )

        async def send_content(_entries: object) -> None:
            await one.link.send_waiting_content()

        async def list_rows() -> tuple[bytes, ...]:
            return await sync.thread.run_work(sync.sync_state.needed_segment_names)

        sync.send_content = send_content
        one.link.list_other_used_rows = list_rows
        await sync.read_known_writers()
        yield one, sync


async def begin(one: Machine, name: str, *outputs: bytes) -> None:
    stored = [await one.cache.store_content(output, SHELL) for output in outputs]
    returned = [ToolReturned(str(n), each, 1) for n, each in enumerate(stored)]
    await one.workspace.journal.append_to_journal(name, [ConversationStarted(name), *returned])


async def names(one: Machine) -> set[str]:
    return {row.id for row in await one.workspace.journal.list_conversations()}


async def test_what_left_comes_back_whole_and_what_it_uses_is_not_collected(
    tmp_path: Path, seal: RowCipher
) -> None:
    shelf = MemoryServer()
    heads = MemoryHeads(time.monotonic)
    async with sharing(tmp_path / "here", shelf, heads, seal) as (here, sync):
        await begin(here, "old", b"only old", b"both")
        await begin(here, "new", b"only new", b"both")
        before = await here.workspace.journal.read_facts("old")
        assert await here.workspace.release_conversations(["old"]) == []  # the store has none of it
        await sync.sync_once()
        await begin(here, "unsent", b"unsent")
        assert await here.workspace.release_conversations(["old", "unsent"]) == ["old"]
        assert await names(here) == {"new", "unsent"}
        live = {
            record.digest
            for record in await here.workspace._stores.thread.run_work(
                here.cache._folder.reader.records_after
            )
        }
        kept = {
            one.output.digest
            for one in (fact.fact for fact in before)
            if isinstance(one, ToolReturned)
        }
        assert len(kept & live) == 1  # "both" stays
        await sync.sync_once()  # sends the rest, and no word of a removal
    async with sharing(tmp_path / "here", shelf, heads, seal) as (
        here,
        sync,
    ):  # also after a restart
        await sync.sync_once()
        assert await names(here) == {"new", "unsent"}
        assert await here.link.remove_unused_rows(grace=-1) == 0
    async with sharing(tmp_path / "there", shelf, heads, seal) as (there, sync):
        await sync.sync_once()
        assert await there.workspace.journal.read_facts("old") == before
        assert [await there.cache.read_content(digest) for digest in kept]
    async with sharing(tmp_path / "here", shelf, heads, seal) as (here, sync):
        await sync.acquire_turn_lease("old")
        assert await here.workspace.journal.read_facts("old") == before
        assert {await here.cache.read_content(digest) for digest in kept} == {b"only old", b"both"}
        await here.workspace.journal.append_to_journal("old", [ConversationStarted("goes on")])
        await sync.sync_once()
        assert not sync.sync_state.released.list_released_entries()


async def test_what_left_and_goes_on_elsewhere_comes_back_with_it(
    tmp_path: Path, seal: RowCipher
) -> None:
    shelf = MemoryServer()
    heads = MemoryHeads(time.monotonic)
    async with sharing(tmp_path / "here", shelf, heads, seal) as (here, sync):
        await begin(here, "c", b"first")
        await sync.sync_once()
        await sync.send_and_release_leases()
        assert await here.workspace.release_conversations(["c"]) == ["c"]
        async with sharing(tmp_path / "there", shelf, heads, seal) as (there, other):
            await other.sync_once()
            await there.workspace.journal.append_to_journal("c", [ConversationStarted("more")])
            await other.sync_once()
            await sync.sync_once()
            facts = await here.workspace.journal.read_facts("c")
            assert facts == await there.workspace.journal.read_facts("c")
            assert len(facts) == 3


async def test_what_another_machine_removed_for_good_is_used_no_more(
    tmp_path: Path, seal: RowCipher
) -> None:
    shelf = MemoryServer()
    heads = MemoryHeads(time.monotonic)
    async with sharing(tmp_path / "here", shelf, heads, seal) as (here, sync):
        await begin(here, "c", b"first")
        await sync.sync_once()
        await sync.send_and_release_leases()
        async with sharing(tmp_path / "there", shelf, heads, seal) as (_, other):
            await other.sync_once()
            assert await here.workspace.release_conversations(["c"]) == ["c"]
            await other.thread.run_work(other.journal.delete_conversation, "c")
            await other.sync_once()
            await sync.sync_once()
        assert not sync.sync_state.released.list_released_entries()
        assert await here.link.remove_unused_rows(grace=-1) == 1
