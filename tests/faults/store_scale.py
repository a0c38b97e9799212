"""A workspace that grows to very many conversations and entries, while its process is killed.

    python -m tests.faults.store_scale [--entries 1000000] [--conversations 10000] [--seed 1]

A child stores entries and appends facts, as fast as it can, and says how far it is. It is killed
again and again at a random moment, while it opens, too. Each time, another child opens the
workspace and finds every acknowledged entry and conversation: all of the last batch, and a sample
of all others. At the end, all contents are checked against their hashes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from helix_desktop.engine.facts import ConversationStarted, Fact, Text, ToolReturned, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from tests.faults.store_load import NAME, Say, begin, home, in_child, told
from tests.faults.store_report import report

BATCH = 500
SAMPLE = 400
LEAST_SECONDS = 0.2
MOST_SECONDS = 60.0
MOST_SECONDS_OF_CHECK = 1_800


def content_of_entry(number: int) -> bytes:
    """The same each time, of some hundreds of bytes."""
    return random.Random(number).randbytes(number % 300) + b"entry %d of many " % number * 5


def conversation_of(number: int, conversations: int) -> str:
    return f"c{number % conversations}"


async def grow(folder: Path, first: int, conversations: int, last: int, say: Say) -> None:
    workspace = await home(folder).open_stored_workspace(NAME)
    origin = EntryOrigin("shell", "a command")
    for start in range(first, last, BATCH):
        numbers = range(start, min(start + BATCH, last))
        stored = await asyncio.gather(
            *(workspace.cache.store_content(content_of_entry(n), origin) for n in numbers)
        )
        for number, entry in list(zip(numbers, stored, strict=True))[:: max(1, BATCH // 20)]:
            facts: list[Fact] = [
                UserSaid((Text(f"about {number}"),)),
                ToolReturned(str(number), entry, 1),
            ]
            await workspace.journal.append_to_journal(
                conversation_of(number // (BATCH // 20), conversations), facts
            )
        say(f"{numbers[-1] + 1}")
    await workspace.aclose()


async def begin_conversations(folder: Path, conversations: int) -> None:
    workspace = await home(folder).open_stored_workspace(NAME)
    for number in range(conversations):
        await workspace.journal.append_to_journal(
            f"c{number}", [ConversationStarted(f"Conversation {number}")]
        )
    await workspace.aclose()


async def check(folder: Path, acknowledged: int, conversations: int, seed: int, say: Say) -> None:
    begun = time.monotonic()
    workspace = await home(folder).open_stored_workspace(NAME)
    say(f"opened {time.monotonic() - begun:.2f}")
    for note in workspace.notes:
        say(f"LOST note: {note}")
    rows = await workspace.journal.list_conversations()
    if len(rows) != conversations:
        say(f"LOST conversations: {len(rows)} of {conversations}")
    chance = random.Random(seed)
    numbers = set(range(max(0, acknowledged - BATCH), acknowledged))
    numbers.update(chance.randrange(acknowledged) for _ in range(SAMPLE if acknowledged else 0))
    for number in numbers:
        content = content_of_entry(number)
        if await workspace.cache.read_content(Digest.of_content(content)) != content:
            say(f"LOST entry {number}")
    for _ in range(50):
        await workspace.journal.read_facts(f"c{chance.randrange(conversations)}")
    await workspace.aclose()


async def check_all(folder: Path, say: Say) -> None:
    workspace = await home(folder).open_stored_workspace(NAME)
    checked = await workspace.cache.verify_cache()
    for digest, why in checked.damaged:
        say(f"LOST {digest} {why}")
    say(f"checked {checked.checked}")
    await workspace.aclose()


def trials(entries: int, conversations: int, seed: int, found: Counter[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="helix-scale-"))
    chance = random.Random(seed)
    try:
        begin(folder)
        _run(lambda _: asyncio.run(begin_conversations(folder, conversations)))
        found["conversations"] = conversations
        acknowledged = 0
        while acknowledged < entries:
            acknowledged = _grow_and_kill(folder, acknowledged, conversations, entries, chance)
            found["kills"] += 1
            found["entries"] = acknowledged
            checking = partial(
                _check_in_child, folder, acknowledged, conversations, chance.randrange(1 << 30)
            )
            lines = _run(checking)
            if not lines or not lines[0].startswith("opened"):
                found[f"LOST after kill {found['kills']}: {lines}"] += 1
                return
            seconds = float(lines[0].split()[1])
            found["slowest opening in ms"] = max(
                found["slowest opening in ms"], round(seconds * 1000)
            )
            for line in lines[1:]:
                found[f"LOST after kill {found['kills']}: {line}"] += 1
        for line in _run(lambda say: asyncio.run(check_all(folder, say))):
            if line.startswith("checked "):
                found["entries intact at the end"] = int(line.split()[1])
            else:
                found[f"LOST at the end: {line}"] += 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_in_child(folder: Path, count: int, conversations: int, seed: int, say: Say) -> None:
    asyncio.run(check(folder, count, conversations, seed, say))


def _run(work: Callable[[Say], object]) -> list[str]:
    def work_without_limit(say: Say) -> None:
        signal.alarm(MOST_SECONDS_OF_CHECK)
        work(say)

    child, reading = in_child(work_without_limit)
    lines = told(reading)
    os.waitpid(child, 0)
    return lines


def _grow_and_kill(
    folder: Path, acknowledged: int, conversations: int, entries: int, chance: random.Random
) -> int:
    """Return how many entries are acknowledged after the kill."""

    def work(say: Say) -> None:
        asyncio.run(grow(folder, acknowledged, conversations, entries, say))

    child, reading = in_child(work)
    seconds = LEAST_SECONDS + chance.random() ** 2 * MOST_SECONDS
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    lines = [line for line in told(reading) if line.isdigit()]
    os.waitpid(child, 0)
    return max([acknowledged, *map(int, lines)])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report(
        "scale",
        arguments.seed,
        lambda found: trials(arguments.entries, arguments.conversations, arguments.seed, found),
    )


if __name__ == "__main__":
    raise SystemExit(main())
