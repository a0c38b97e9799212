"""A conversation of 20,000 facts is continued on a second machine: fetched whole,
opened, taken over, and the first fact written there.

python -m tests.benchmarks.shared_conversation [--quick: 2,000 facts]      needs PostgreSQL

The second machine has nothing of it at the beginning; then the first one, which has
read live, takes it back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import (
    ConversationStarted,
    Fact,
    ModelReplied,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store.async_stores import StoreJournal
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.store.shared.async_rows import AsyncRowStore
from helix_desktop.store.shared.conversation_sync import ConversationSync
from helix_desktop.store.shared.postgres_heads import PostgresHeads
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher, new_workspace_key
from helix_desktop.store.shared.sync_state import SyncState
from helix_desktop.store.store_thread import StoreThread
from tests.benchmarks.row import Figure, Row
from tests.peers import postgres

FACTS = 20_000
QUICK = 2_000
RUNS = 2
ASKED = 3.0  # seconds


def rows(*, quick: bool) -> list[Row]:
    if postgres.why_not():
        return []
    count = QUICK if quick else FACTS
    server = postgres.Server().start()
    try:
        runs = [asyncio.run(_measured(server.url, count)) for _ in range(1 if quick else RUNS)]
    finally:
        server.remove()
    whole, step, live = (Figure.of([run[at] for run in runs]) for at in range(3))
    asked = "" if quick else f"within {ASKED:.0f} s"
    met = None if quick else whole.median <= ASKED
    return [
        Row(f"{count:,} facts continued on a machine that has none of them", "s", whole, asked=asked, met=met),
        Row("of that, fetching them", "s", step),
        Row(f"{count:,} facts continued on a machine that read live", "s", live, asked=asked, met=None if quick else live.median <= ASKED),
    ]  # fmt: skip


async def _measured(url: str, count: int) -> tuple[float, float, float]:
    seal = RowCipher(new_workspace_key())
    with tempfile.TemporaryDirectory() as folder:
        here, here_journal = await _machine("desktop", url, Path(folder), seal)
        await here.thread.run_work(here_journal.append_all_or_nothing, "c", _facts(count))
        await here.sync_once()
        there, there_journal = await _machine("laptop", url, Path(folder), seal)
        began = time.perf_counter()
        await there.sync_once()
        fetched = time.perf_counter() - began
        await _continued(there, there_journal)
        whole = time.perf_counter() - began
        await here.sync_once()
        began = time.perf_counter()
        await _continued(here, here_journal)
        live = time.perf_counter() - began
        for each, journal in ((here, here_journal), (there, there_journal)):
            await each.remote.aclose()
            await each.thread.run_work(journal.close)
            await each.thread.aclose()
    return whole, fetched, live


async def _machine(
    name: str, url: str, folder: Path, seal: RowCipher
) -> tuple[ConversationSync, JournalFile]:
    thread = StoreThread(name)
    journal = await thread.run_work(JournalFile, folder / f"{name}.sqlite3")
    engine = PostgresRowStore(url, seal.space)
    steps = await thread.run_work(SyncState, journal)
    heads = PostgresHeads(engine, seal.space)
    return ConversationSync(
        journal, thread, steps, AsyncRowStore(engine), heads, seal, name
    ), journal


async def _continued(machine: ConversationSync, file: JournalFile) -> None:
    await machine.take_over_lease("c")
    journal = StoreJournal(file, machine.thread, lambda: None, lambda: None)
    conversation = await Conversation.open(journal, "c")
    conversation.current_view()
    await conversation.append_facts(UserSaid((Text("Go on here.", 4),)))
    await machine.sync_once()


def _facts(count: int) -> list[Fact]:
    """Steps of an agent: a call, its output, now and then a word of the user's."""
    found: list[Fact] = [ConversationStarted("A long one")]
    number = 0
    while len(found) < count:
        number += 1
        if number % 20 == 1:
            found.append(
                UserSaid((Text(f"Now look at module {number} and say what it does. " * 4, 48),))
            )
        call = ToolCall(
            f"call-{number}", "read_file", json.dumps({"path": f"src/module_{number}.py"}), 20
        )
        found.append(
            ModelReplied(
                (Text(f"I read module {number} first. " * 8, 64), call), "demo/demo", Stop.CALLS
            )
        )
        digest = Digest.of_content(f"content {number}".encode())
        found.append(
            ToolReturned(
                f"call-{number}",
                Stored(digest, 4_000, 100),
                900,
                head=f"def f{number}(): pass\n" * 40,
            )
        )
    return found[:count]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    for row in rows(quick=parser.parse_args().quick):
        print(
            f"{row.name}: {row.ours.median:.2f} {row.unit} ({row.ours.least:.2f} to {row.ours.most:.2f})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
