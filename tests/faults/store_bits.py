"""Single bits flipped anywhere in a workspace's files: never a wrong byte delivered,
and what is hurt is found and named.

    python -m tests.faults.store_bits [--trials 1000] [--seed 1]

Half of the trials flip in a workspace that was closed, half in one whose process was
killed, with its logs as they lay. Whatever content or fact is not there any more must
be named by its hash or number: by the notes of opening, by the check, or by the error
of reading it. What is hurt and comes back whole is recovered.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pickle
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from helix_desktop.engine.facts import Recorded, Text, ToolReturned, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, JournalCorrupt
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.faults.store_load import NAME, Say, begin, home, in_child, told
from tests.faults.store_report import report
from tests.store.journal_damage import find_journal_damage

Truth = tuple[dict[str, bytes], dict[tuple[str, int], Recorded]]
LOGS = ("-wal", ".log")


def contents(chance: random.Random) -> list[bytes]:
    sizes = [0, 5, 300, 4000, 4000, 20_000, 60_000, (1 << 20) + 5000]
    words = [f"zebra{n} ".encode() * 200 for n in range(20)]
    return [*(chance.randbytes(size) for size in sizes), *words]


async def fill(folder: Path, seed: int) -> None:
    """Some entries, three conversations, an index that has caught up; left open."""
    chance = random.Random(seed)
    workspace = await home(folder).open_stored_workspace(NAME)
    for number, content in enumerate(contents(chance)):
        stored = await workspace.cache.store_content(
            content, EntryOrigin("shell", f"command {number}")
        )
        said = UserSaid((Text(f"about {number}: " + "words " * chance.randrange(200)),))
        await workspace.journal.append_to_journal(
            f"c{number % 3}", [said, ToolReturned("1", stored, 1, head="zebra")]
        )
    await workspace.index.wait_until_indexed()


async def truth_of(folder: Path) -> Truth:
    workspace = await home(folder).open_stored_workspace(NAME)
    facts = {}
    entries: dict[str, bytes] = {}
    for row in await workspace.journal.list_conversations():
        for each in await workspace.journal.read_facts(row.id):
            facts[row.id, each.seq] = each
            if isinstance(each.fact, ToolReturned):
                digest = each.fact.output.digest
                entries[digest.hex] = await workspace.cache.read_content(digest)
    await workspace.aclose()
    return entries, facts


async def examine(folder: Path, truth: Truth, say: Say) -> None:
    """Open, read everything, check everything; say what is wrong and what is hurt and
    stands nowhere named.
    """
    entries, facts = truth
    workspace = await home(folder).open_stored_workspace(NAME)
    named = [*workspace.notes]
    hurt = [
        text
        for text, content in entries.items()
        if not await _is_whole(workspace, text, content, say)
    ]
    present = await _facts(workspace, {name for name, _ in facts}, named)
    for key, fact in facts.items():
        got = present.get(key)
        if got is None or type(got.fact) is not type(fact.fact):
            hurt.append(f"Record {key[1]} of conversation {key[0]}")
        elif got != fact:
            say(f"WRONG fact {key}")
    checked = await workspace.cache.verify_cache()
    named += [
        *(f"{digest} {why}" for digest, why in checked.damaged),
        *checked.notes,
        *await find_journal_damage(workspace),
    ]
    hits = await workspace.index.search_index("zebra", limit=50)
    wrong = [
        hit.snippet
        for hit in hits
        if "zebra" not in hit.snippet.lower() and "about" not in hit.snippet
    ]
    await workspace.aclose()
    for each in hurt:
        if not any(each in line for line in named) and not _whole_end_named(each, named):
            say(f"UNNAMED {each}; named: {named}")
    for snippet in wrong:
        say(f"WRONG snippet {snippet[:60]}")
    say(f"hurt {len(hurt)}")


async def _is_whole(workspace: StoredWorkspace, text: str, content: bytes, say: Say) -> bool:
    try:
        got = await workspace.cache.read_content(Digest.from_hex(text))
    except HelixError:
        return False
    if got != content:
        say(f"WRONG bytes of {text}")
    return got == content


async def _facts(
    workspace: StoredWorkspace, names: set[str], named: list[str]
) -> dict[tuple[str, int], Recorded]:
    """What can be read of each conversation, up to a damaged fact and behind it."""
    found: dict[tuple[str, int], Recorded] = {}
    for name in names:
        after = 0
        while after < 100:
            try:
                for each in await workspace.journal.read_facts(name, after, 1):
                    found[name, each.seq] = each
            except JournalCorrupt as error:
                named.append(error.what)
            after += 1
    return found


def _whole_end_named(fact: str, named: list[str]) -> bool:
    """A check names the end of a conversation, or a conversation that lost all, by the
    conversation.
    """
    name = fact.rpartition(" ")[2]
    ways = (
        f"end of conversation {name} ",
        f"conversation {name} has lost",
        f"conversation {name}'s file",
        f"conversation {name} could not be read",
    )
    return any(way in line for line in named for way in ways)


def flip(folder: Path, chance: random.Random) -> str:
    """One bit of one file of the workspace; which."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
    files = [
        path
        for path in files
        if path.name not in ("LOCK", "LOG", "LOG.old", "lock", "workspace.toml", "said")
    ]
    files = [path for path in files if not path.name.endswith("-shm")]
    weights = [path.stat().st_size if chance.random() < 0.8 else 4096 for path in files]
    path = chance.choices(files, weights)[0]
    content = bytearray(path.read_bytes())
    bit = chance.randrange(len(content) * 8)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return f"{path.name} bit {bit}"


def trials(count: int, seed: int, found: Counter[str]) -> None:
    base = Path(tempfile.mkdtemp(prefix="helix-bits-"))
    try:
        truth = prepare(base, seed)
        for trial in range(count):
            chance = random.Random(seed * 1_000_003 + trial)
            folder = base / "trial"
            shutil.copytree(base / ("closed" if trial % 2 else "killed"), folder)
            where = flip(folder, chance)
            for line in examined(folder, truth):
                if line.startswith("hurt "):
                    found["hurt and named"] += line != "hurt 0"
                    found["harmless or recovered"] += line == "hurt 0"
                else:
                    found[f"LOST in trial {trial}, {where}: {line}"] += 1
            found["flips"] += 1
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def prepare(base: Path, seed: int) -> Truth:
    """A killed workspace and a closed one, with the same in it; what is in it."""
    killed = base / "killed"
    killed.mkdir()
    begin(killed)

    def work(say: Say) -> None:
        asyncio.run(fill(killed, seed))
        say("filled")
        os.kill(os.getpid(), signal.SIGKILL)

    if (lines := _done(work)) != ["filled"]:
        raise RuntimeError(lines)
    shutil.copytree(killed, base / "closed")
    _done(
        lambda _: (base / "truth").write_bytes(pickle.dumps(asyncio.run(truth_of(base / "closed"))))
    )
    truth: Truth = pickle.loads((base / "truth").read_bytes())  # noqa: S301 - written by our own child
    return truth


def _done(work: Callable[[Say], object]) -> list[str]:
    child, reading = in_child(work)
    lines = told(reading)
    os.waitpid(child, 0)
    return lines


def examined(folder: Path, truth: Truth) -> list[str]:
    def work(say: Say) -> None:
        asyncio.run(examine(folder, truth, say))

    child, reading = in_child(work)
    lines = told(reading)
    _, status = os.waitpid(child, 0)
    return [*lines, f"DIED with status {status}"] if status and not lines else lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report(
        "bits", arguments.seed, lambda found: trials(arguments.trials, arguments.seed, found)
    )


if __name__ == "__main__":
    raise SystemExit(main())
