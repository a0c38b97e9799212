"""SIGKILL at every step in which finished conversations leave a worker's disk: none is
lost, none is half there, and what they use stays.

A process of its own lets conversations leave and is ended at its first, second, third …
step on a store, here or in PostgreSQL. After each kill the home is opened again,
everything that no machine says it uses is removed from the shared store, and all
conversations are read.

python -m tests.faults.fleet_leaving [--conversations 6] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import ConversationStarted, Fact, Recorded, ToolReturned
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.store.shared.async_rows import AsyncRowStore
from helix_desktop.store.shared.conversation_sync import ConversationSync
from helix_desktop.store.shared.postgres_heads import heads_of_connection
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.store_thread import StoreThread
from tests.faults.store_report import report
from tests.peers import postgres
from tests.store.shared.homes import Machine, machine

SEAL = RowCipher(bytes(range(32)))


@asynccontextmanager
async def sharing(home: Path, url: str) -> AsyncIterator[tuple[Machine, ConversationSync]]:
    async with machine(home, lambda: PostgresRowStore(url, SEAL.space), SEAL) as one:
        connected = await one.link.ensure_connected()
        heads = heads_of_connection(connected)
        assert heads is not None
        sync = await one.workspace.build_conversation_sync(connected, heads, home.name)

        async def send_content(_entries: object) -> None:
            await one.link.send_waiting_content()

        async def list_rows() -> tuple[bytes, ...]:
            return await sync.thread.run_work(sync.sync_state.needed_segment_names)

        sync.send_content, one.link.list_other_used_rows = send_content, list_rows
        await sync.read_known_writers()
        yield one, sync


async def leave(home: Path, url: str, steps: int) -> None:
    """In the process that is killed before its step number `steps`."""
    async with sharing(home, url) as (one, sync):
        await sync.sync_once()
        wanted = [row.id for row in await one.workspace.journal.list_conversations()]
        left = iter(range(steps))

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any, **kwargs: Any) -> Any:
                if next(left, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **kwargs)

            return run

        StoreThread.submit_work = counted(StoreThread.submit_work)  # type: ignore[method-assign]
        AsyncRowStore.run_in_thread = counted(AsyncRowStore.run_in_thread)  # type: ignore[method-assign]
        await one.workspace.release_conversations(wanted[1:])


async def _begin(
    home: Path, url: str, conversations: int, chance: random.Random
) -> dict[str, list[Recorded]]:
    made = {}
    async with sharing(home, url) as (one, sync):
        both = await one.cache.store_content(b"of all", EntryOrigin("shell", "ls"))
        for name in (f"{number:020x}" for number in range(conversations)):
            own = await one.cache.store_content(chance.randbytes(2_000), EntryOrigin("shell", name))
            facts: list[Fact] = [
                ConversationStarted(name),
                ToolReturned("1", own, 1),
                ToolReturned("2", both, 1),
            ]
            made[name] = list(await one.workspace.journal.append_to_journal(name, facts))
        await sync.sync_once()
        await sync.send_and_release_leases()
        await one.link.announce_used_rows()
    return made


async def _check_home(
    home: Path, url: str, made: dict[str, list[Recorded]], found: Counter[str]
) -> None:
    async with sharing(home.with_name("other"), url) as (one, _):  # which uses nothing itself
        if await one.link.remove_unused_rows(grace=-1):
            found["LOST: rows of the store that the killed machine uses were removed"] += 1
    async with sharing(home, url) as (one, sync):
        await sync.sync_once()
        there = {row.id for row in await one.workspace.journal.list_conversations()}
        found["conversations that had left"] += len(made) - len(there)
        if await one.link.remove_unused_rows(grace=-1):
            found["LOST: rows of the store that somebody uses were removed"] += 1
        for name, facts in made.items():
            if name not in there:
                await sync.acquire_turn_lease(name)
            if list(await one.workspace.journal.read_facts(name)) != facts:
                found["LOST: conversations that are not whole"] += 1
            for one_fact in facts:
                if isinstance(one_fact.fact, ToolReturned):
                    await one.cache.read_content(one_fact.fact.output.digest)
        await sync.send_and_release_leases()


def trials(conversations: int, seed: int, found: Counter[str], every: int = 1) -> None:
    """What was found, counted. Anything under a key that begins with LOST is a failure."""
    chance, folder = random.Random(seed), Path(tempfile.mkdtemp(prefix="helix-leaving-"))
    server = postgres.Server(postgres.FAST).start()
    try:
        made = asyncio.run(_begin(folder / "home", server.url, conversations, chance))
        code, steps = -signal.SIGKILL, 0
        while code == -signal.SIGKILL:
            command = [
                sys.executable,
                "-m",
                "tests.faults.fleet_leaving",
                "--child",
                str(folder / "home"),
                server.url,
            ]
            code = subprocess.run([*command, str(steps)], check=False).returncode
            found["kills"] += code == -signal.SIGKILL
            asyncio.run(_check_home(folder / "home", server.url, made, found))
            steps += every
        if code:
            found["LOST: the process failed by itself"] += 1
    finally:
        server.remove()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        asyncio.run(leave(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return report(
        "fleet_leaving", given.seed, lambda found: trials(given.conversations, given.seed, found)
    )


if __name__ == "__main__":
    raise SystemExit(main())
