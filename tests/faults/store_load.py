"""A mixed load on a workspace that says, line by line, what was acknowledged; and the
check that all of it is there.

Both run in forked children: LevelDB starts a thread of its own, which no fork survives,
so the parent opens nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.engine import fact_encoding
from helix_desktop.engine.facts import (
    ConversationChanged,
    ConversationStarted,
    Fact,
    Text,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.journal_file import checksum_of_fact
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.store.journal_damage import find_journal_damage

NAME = "W"
Say = Callable[[str], None]


def home(folder: Path) -> AllWorkspaces:
    return AllWorkspaces(folder / "workspaces")


def begin(folder: Path) -> str:
    """A new workspace; its id."""
    return home(folder).create_stored_workspace(NAME).id


# --- the load


def content_of(chance: random.Random) -> bytes:
    """Of any kind: empty, text that packs well, bytes that do not, sometimes of several chunks."""
    size = chance.choice((0, 10, 300, 2_000, 2_000, 5_000, 30_000, 200_000))
    if chance.random() < 0.02:
        size = chance.randrange(1 << 20, 3 << 20)
    if chance.random() < 0.5:
        return chance.randbytes(size)
    word = chance.randbytes(6).hex().encode()
    return (word + b" line of output\n") * (size // 28 + 1)


async def _stream(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 100_000):
        yield content[start : start + 100_000]


async def one_step(workspace: StoredWorkspace, chance: random.Random, name: str, say: Say) -> None:
    """What a step of an agent does: some outputs at once, then one transaction that
    refers to them; sometimes more.
    """
    contents = [content_of(chance) for _ in range(chance.choice((1, 1, 2, 5)))]
    about = EntryOrigin("shell", f"step of {name}")
    puts = (
        workspace.cache.store_content(_stream(c) if chance.random() < 0.2 else c, about)
        for c in contents
    )
    stored = await asyncio.gather(*puts)
    for each in stored:
        say(f"put {each.digest}")
    facts: list[Fact] = [
        ToolReturned(str(n), each, 1, head="x" * chance.randrange(500))
        for n, each in enumerate(stored)
    ]
    if chance.random() < 0.3:
        facts.append(UserSaid((Text("said " * chance.randrange(400)),)))
    for recorded in await workspace.journal.append_to_journal(name, facts):
        sealed = checksum_of_fact(
            name, recorded.seq, recorded.time, fact_encoding.encode_fact(recorded.fact)
        ).hex()
        say(f"fact {name} {recorded.seq} {sealed}")
    if chance.random() < 0.05:
        await workspace.journal.append_to_journal(
            name, [ConversationChanged(title=f"Title {chance.randrange(1000)}")]
        )
    if chance.random() < 0.05 and stored:
        await workspace.cache.read_content(stored[0].digest)


async def load(folder: Path, chance: random.Random, say: Say, steps: int = 1_000_000) -> None:
    """Three conversations side by side, until killed or done."""
    workspace = await home(folder).open_stored_workspace(NAME)
    say("open")

    async def talk(name: str, seed: int) -> None:
        await workspace.journal.append_to_journal(name, [ConversationStarted(name)])
        own = random.Random(seed)
        for _ in range(steps):
            await one_step(workspace, own, name, say)

    names = [f"c{chance.randrange(1 << 40):x}" for _ in range(3)]
    await asyncio.gather(*(talk(name, chance.randrange(1 << 40)) for name in names))
    await workspace.aclose()


# --- the check


@dataclass(frozen=True)
class Acknowledged:
    """What the load said before its end."""

    puts: frozenset[str]
    facts: dict[tuple[str, int], str]

    @classmethod
    def of(cls, lines: Iterable[str]) -> Acknowledged:
        puts = set()
        facts = {}
        for line in lines:
            match line.split():
                case ["put", digest] if len(digest) == 64:
                    puts.add(digest)
                case ["fact", name, seq, sealed] if len(sealed) == 64:
                    facts[name, int(seq)] = sealed
        return cls(frozenset(puts), facts)


async def lost(folder: Path, acknowledged: Acknowledged) -> list[str]:
    """What of it is missing or wrong after opening the workspace again, each in a sentence."""
    workspace = await home(folder).open_stored_workspace(NAME)
    found = [
        f"content {text}"
        for text in acknowledged.puts
        if await _missing(workspace, Digest.from_hex(text))
    ]
    present: dict[tuple[str, int], str] = {}
    for row in await workspace.journal.list_conversations():
        for recorded in await workspace.journal.read_facts(row.id):
            sealed = checksum_of_fact(
                row.id, recorded.seq, recorded.time, fact_encoding.encode_fact(recorded.fact)
            )
            present[row.id, recorded.seq] = sealed.hex()
            if isinstance(recorded.fact, ToolReturned) and await _missing(
                workspace, recorded.fact.output.digest
            ):
                found.append(
                    f"dangling: fact {recorded.seq} of {row.id} refers to {recorded.fact.output.digest}"
                )
    found += [
        f"fact {key}" for key, sealed in acknowledged.facts.items() if present.get(key) != sealed
    ]
    found += [str(defect) for defect in await find_journal_damage(workspace)]
    await workspace.aclose()
    return found


async def _missing(workspace: StoredWorkspace, digest: Digest) -> bool:
    try:
        return hashlib.sha256(await workspace.cache.read_content(digest)).digest() != digest.raw
    except HelixError:
        return True


# --- children


def in_child(work: Callable[[Say], object]) -> tuple[int, int]:
    """Fork, and run `work` there with something to say lines with. Returns the child
    and the pipe's reading end.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.close(reading)
    signal.alarm(120)  # a child that hangs is a failure, and must not outlive the trial
    code = 1
    try:
        work(lambda line: write_line(writing, line))
        code = 0
    except BaseException:  # noqa: BLE001 - a child's last words
        write_line(writing, "RAISED " + traceback.format_exc(limit=-4).replace("\n", " | "))
    finally:
        sys.stdout.flush()
        os._exit(code)


def write_line(fd: int, line: str) -> None:
    """At once, so that what was said before a kill was said."""
    os.write(fd, f"{line}\n".encode())


def told(reading: int) -> list[str]:
    """All a child said, once it has ended."""
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().decode("utf-8", "replace").splitlines()


def check_in_child(folder: Path, acknowledged: Acknowledged) -> list[str]:
    """`lost`, in a child; what it raised counts as lost."""

    def work(say: Say) -> None:
        for line in asyncio.run(lost(folder, acknowledged)):
            say(line)

    child, reading = in_child(work)
    lines = told(reading)
    _, status = os.waitpid(child, 0)
    if status and not lines:
        lines = [f"the check died with status {status}"]
    return lines
