from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop import concurrency
from helix_desktop.engine.cache_entry_rows import EntryFilter
from helix_desktop.engine.facts import Fact, Recorded, Text, ToolReturned, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import CacheCorrupt, InvalidInput
from helix_desktop.store import async_stores
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.cache_records import CHUNK
from helix_desktop.store.stored_workspace import StoredWorkspace

SHELL = EntryOrigin("shell", "ls")


async def test_puts_that_come_together_share_a_sync(workspace: StoredWorkspace) -> None:
    level = workspace._stores.cache.level
    batches: list[int] = []
    write = level.write_batch

    def counted(writes: list[tuple[bytes, bytes | None]]) -> None:
        batches.append(len(writes))
        write(writes)

    level.write_batch = counted  # type: ignore[method-assign, assignment]  # counts, and does it
    await asyncio.gather(
        *(workspace.cache.store_content(b"%d" % number, SHELL) for number in range(50))
    )
    assert sum(batches) == 150
    assert len(batches) < 25


async def test_facts_that_come_together_share_a_transaction(workspace: StoredWorkspace) -> None:
    ran: list[str] = []
    workspace._stores.journal.connection.set_trace_callback(ran.append)
    said = UserSaid((Text("hello", 1),))
    found = await asyncio.gather(
        *(workspace.journal.append_to_journal(f"c{number % 40}", [said]) for number in range(80))
    )
    assert ran.count("COMMIT") < 20
    assert sorted((one.conversation, one.seq) for (one,) in found) == sorted(
        (f"c{number}", seq) for number in range(40) for seq in (1, 2)
    )
    assert [each.fact for each in await workspace.journal.read_facts("c7")] == [said, said]


async def test_a_cancelled_append_keeps_the_right_to_write_until_its_facts_are_on_disk(
    workspace: StoredWorkspace,
) -> None:
    journal = workspace.journal
    has_begun = threading.Event()
    may_end = threading.Event()
    events: list[str] = []
    append = workspace._stores.journal.append_all_or_nothing
    tell_changed = journal._changed

    def append_when_allowed(conversation: str, facts: Sequence[Fact]) -> tuple[Recorded, ...]:
        has_begun.set()
        may_end.wait(5)
        events.append("written")
        return append(conversation, facts)

    def note_change() -> None:
        events.append("changed")
        tell_changed()

    @contextlib.asynccontextmanager
    async def right_to_write(_conversation: str, _count: int) -> AsyncIterator[None]:
        try:
            yield
        finally:
            events.append("right given back")

    journal.asked = right_to_write
    journal._changed = note_change
    workspace._stores.journal.append_all_or_nothing = append_when_allowed  # type: ignore[method-assign]
    tasks = concurrency.OwnedTasks("append")
    appending = tasks.spawn_task(
        journal.append_to_journal("c", [UserSaid((Text("hello", 1),))]), name="append"
    )
    await asyncio.to_thread(has_begun.wait, 5)
    appending.cancel()
    asyncio.get_running_loop().call_later(0.05, may_end.set)
    await asyncio.wait([appending])
    assert appending.cancelled()
    assert events == ["written", "changed", "right given back"]
    assert len(await journal.read_facts("c")) == 1


async def test_facts_that_fail_fail_alone(workspace: StoredWorkspace) -> None:
    said = UserSaid((Text("hello", 1),))
    append = workspace.journal.append_to_journal
    found = await asyncio.gather(
        append("a", [said]), append("", [said]), append("b", [said, said]), return_exceptions=True
    )
    assert isinstance(found[1], InvalidInput)
    assert [len(await workspace.journal.read_facts(name)) for name in ("a", "b")] == [1, 2]


async def test_a_failing_put_fails_alone(workspace: StoredWorkspace) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield bytes(2 * CHUNK)
        raise EOFError

    results = await asyncio.gather(
        workspace.cache.store_content(b"one", SHELL),
        workspace.cache.store_content(broken(), SHELL),
        workspace.cache.store_content(b"two", SHELL),
        return_exceptions=True,
    )
    assert isinstance(results[1], EOFError)
    assert await workspace.cache.read_content(Digest.of_content(b"two")) == b"two"
    assert (
        len(
            await workspace._stores.thread.run_work(
                list, workspace._stores.cache.level.keys_in_range(b"b", b"c")
            )
        )
        == 2
    )


async def test_a_cancelled_stream_leaves_nothing(workspace: StoredWorkspace) -> None:
    halfway = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield bytes(CHUNK)
        halfway.set()
        await asyncio.Event().wait()

    putting = asyncio.get_running_loop().create_task(
        workspace.cache.store_content(endless(), SHELL)
    )
    await halfway.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert (
        await workspace._stores.thread.run_work(
            list, workspace._stores.cache.level.keys_in_range(b"b", b"c")
        )
        == []
    )


async def test_a_large_entry_is_streamed_in_checked_chunks(workspace: StoredWorkspace) -> None:
    stored = await workspace.cache.store_content(bytes(range(256)) * 12_000, SHELL)
    await workspace.index.wait_until_indexed()  # or it might meet the damage first
    chunks = [chunk async for chunk in workspace.cache.stream_content(stored.digest)]
    assert [len(chunk) for chunk in chunks] == [CHUNK, CHUNK, 256 * 12_000 - 2 * CHUNK]
    cache = workspace._stores.cache
    blob = cache.reader.record_of_content(stored.digest).blob
    await workspace._stores.thread.run_work(
        cache.level.write_batch, [(b"b" + blob.to_bytes(8, "big") + b"\0\0\0\2", b"\0wrong")]
    )
    got = []

    async def take() -> None:
        async for chunk in workspace.cache.stream_content(stored.digest):
            got.append(chunk)

    with pytest.raises(CacheCorrupt):
        await take()
    assert got == chunks[:2]


async def test_a_long_conversation_is_read_in_pages(
    workspace: StoredWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_stores, "_FACTS_IN_PAGE", 4)
    facts = await workspace.journal.append_to_journal(
        "c", [UserSaid((Text(str(number)),)) for number in range(20)]
    )
    for after, limit in [(0, 0), (3, 0), (0, 4), (0, 9), (5, 8), (16, 4), (18, 9), (20, 0)]:
        assert list(await workspace.journal.read_facts("c", after, limit)) == list(
            facts[after : after + limit if limit else None]
        )


async def test_tokens_are_known_once_the_index_has_counted_them_and_nobody_waits_for_that(
    tmp_path: Path,
) -> None:
    workspaces = AllWorkspaces(tmp_path, count=lambda text: len(text) // 4)
    named = workspaces.create_stored_workspace("Counted").id
    async with aclosing(await workspaces.open_stored_workspace(named)) as workspace:
        index = workspace.index
        known = []
        stored = await workspace.cache.store_content(b"a line of words\n" * 400, SHELL)
        await index.wait_until_indexed()
        entry = await workspace.cache.describe_entry(stored.digest, 5)
        assert (entry.beginning, entry.tokens) == (b"a lin", 1_600)

        async def ask_while_there_is_no_index() -> None:
            known.append((await workspace.cache.describe_entry(stored.digest, 5)).tokens)

        await index.rebuild_after(ask_while_there_is_no_index)
        assert known == [0]


async def test_what_is_removed_for_room_is_counted_oldest_first_and_only_as_much_as_needed(
    workspace: StoredWorkspace,
) -> None:
    for number in range(4):
        content = random.Random(number).randbytes(1_000)
        await workspace.cache.store_content(content, EntryOrigin("shell", f"{number}"))
    await workspace.index.wait_until_indexed()
    kept_before = (await workspace.index.compute_figures()).kept

    nothing = await workspace.cache.remove_unused_down_to(kept_before)
    assert (nothing.entries, nothing.bytes) == (0, 0)
    removed = await workspace.cache.remove_unused_down_to(kept_before - 1_500)
    assert removed.entries == 2
    kept_now = (await workspace.index.compute_figures()).kept
    assert removed.bytes == kept_before - kept_now
    rows = await workspace.index.entries_page(EntryFilter(gone=True))
    assert {row.about.source for row in rows} == {"0", "1"}


async def test_a_check_names_an_entry_that_the_cache_never_had(workspace: StoredWorkspace) -> None:
    """A fact refers to it, and no list of the cache has it."""
    kept = await workspace.cache.store_content(b"kept", SHELL)
    lost = replace(kept, digest=Digest.of_content(b"lost"))
    returned = [ToolReturned("1", kept, 1), ToolReturned("2", lost, 1)]
    await workspace.journal.append_to_journal("c", returned)
    checked = await workspace.cache.verify_cache()
    assert [digest for digest, _why in checked.damaged] == [lost.digest]
