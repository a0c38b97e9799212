"""A workspace's files harmed anywhere: never a wrong byte delivered, what is lost is only
what the harmed place held, and it is named.

    python -m tests.faults.store_bits [--trials 1000] [--seed 1] [--first 0]

A harm is a flipped bit, a zeroed page of 4 KB, or a file cut off. Half of the trials harm a
workspace that was closed, half one whose process was killed, with its logs as they lay. It is
opened twice, as some harm is met only when it is read. Whatever content or fact is not there
any more must be named by its hash or number: by the notes of opening, by the check, or by the
error of reading it.
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
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.engine.changes.folder_state import (
    PathChange,
    PathKind,
    TreeItem,
    encode_difference,
    encode_manifest,
    pack_item,
)
from helix_desktop.engine.facts import FilesChanged, Recorded, Text, ToolReturned, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, JournalCorrupt
from helix_desktop.store.cache_folder import CHECKPOINT
from helix_desktop.store.cache_records import key_of_chunk
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.faults.store_load import NAME, Say, begin, home, in_child, told
from tests.faults.store_report import report
from tests.store.journal_damage import find_journal_damage

PAGE = 4096
NEVER_HARMED = ("LOCK", "LOG", "LOG.old", "lock", "workspace.toml", "said")
SLICE = 24
CHECKPOINTS = EntryOrigin(CHECKPOINT)


@dataclass(frozen=True)
class Truth:
    """What was in the workspace: contents by their hash, facts, and the bytes of each as stored."""

    entries: dict[str, bytes]
    facts: dict[tuple[str, int], Recorded]
    stored: dict[str, list[bytes]]
    files: frozenset[str]


@dataclass(frozen=True)
class Harm:
    """`changed`: where bytes of the file differ, from the first to the last; `before`: all of it."""

    path: Path
    what: str
    before: bytes
    changed: tuple[int, int]

    def held(self, stored: list[bytes]) -> bool:
        """Whether a byte of these pieces was in a changed page, or a page beside it."""
        first = (self.changed[0] // PAGE - 1) * PAGE
        last = (self.changed[1] // PAGE + 2) * PAGE
        for piece in stored:
            place = self.before.find(piece[:SLICE])
            while place >= 0:
                if place < last and place + len(piece) >= first:
                    return True
                place = self.before.find(piece[:SLICE], place + 1)
        return False


def slices_of(text: bytes, digest: bytes) -> list[bytes]:
    """SQLite keeps a long row in pieces, on pages that need not be neighbours. The last piece may
    have a few bytes of the digest alone.
    """
    slices = [text[start : start + SLICE] for start in range(0, len(text), SLICE)]
    return slices + [digest[start : start + 5] for start in range(len(digest) - 4)]


def contents(chance: random.Random) -> list[bytes]:
    sizes = [0, 5, 300, 4000, 4000, 20_000, 60_000, (1 << 20) + 5000]
    words = [f"zebra{n} ".encode() * 200 + chance.randbytes(60) for n in range(60)]
    return [*(chance.randbytes(size) for size in sizes), *words]


async def fill(folder: Path, seed: int) -> None:
    """Some entries, three conversations, two checkpoints, an index that has caught up; left open."""
    chance = random.Random(seed)
    workspace = await home(folder).open_stored_workspace(NAME)
    for number, content in enumerate(contents(chance)):
        stored = await workspace.cache.store_content(
            content, EntryOrigin("shell", f"command {number}")
        )
        words = [chance.randbytes(6).hex() for _ in range(chance.randrange(100))]
        said = UserSaid((Text(f"about {number}: {' '.join(words)}"),))
        returned = ToolReturned(f"{number}{chance.random()}", stored, 1, head="zebra")
        await workspace.journal.append_to_journal(f"c{number % 3}", [said, returned])
        if number == 30:
            await workspace._stores.thread.run_work(workspace._stores.cache.level.flush_log)
    await store_checkpoints(workspace, chance)
    await workspace.index.wait_until_indexed()


async def store_checkpoints(workspace: StoredWorkspace, chance: random.Random) -> None:
    """Twenty files, a state of them, and a change of one."""
    files = [chance.randbytes(chance.choice((40, 900, 7000))) for _ in range(20)]
    for content in files:
        await workspace.cache.store_content(content, CHECKPOINTS)
    items = [file_item(content) for content in files]
    bodies = [(f"0/{number}.txt", pack_item(item)) for number, item in enumerate(items)]
    state = b"".join(encode_manifest(bodies))
    before = await workspace.cache.store_content(state, CHECKPOINTS)
    change = encode_difference([PathChange("0/0.txt", items[0], items[1])], before.digest)
    after = await workspace.cache.store_content(change, CHECKPOINTS)
    changed = FilesChanged(after, before.digest, after.digest, files=1)
    await workspace.journal.append_to_journal("c0", [changed])


def file_item(content: bytes) -> TreeItem:
    return TreeItem(PathKind.FILE, 0o644, len(content), Digest.of_content(content).raw)


async def truth_of(folder: Path) -> Truth:
    workspace = await home(folder).open_stored_workspace(NAME)
    facts = {}
    stored: dict[str, list[bytes]] = {}
    for row in await workspace.journal.list_conversations():
        for each in await workspace.journal.read_facts(row.id):
            facts[row.id, each.seq] = each
    for line in workspace._stores.journal.stored_facts_since(0, 10_000):
        stored[f"Record {line.seq} of conversation {line.conversation}"] = slices_of(
            line.fact.encode(), line.digest
        )
    entries: dict[str, bytes] = {}
    files = set()
    cache = workspace._stores.cache
    for record in cache.reader.records_after():
        entries[record.digest.hex] = cache.reader.get_content(record.digest)
        if record.about == CHECKPOINTS:
            files.add(record.digest.hex)
        keys = [key_of_chunk(record.blob, chunk) for chunk in range(record.count_chunks)]
        stored[record.digest.hex] = [cache.level.get_value(key) or b"" for key in keys]
    await workspace.aclose()
    return Truth(entries, facts, stored, frozenset(files))


async def examine(folder: Path, truth: Truth, harm: Harm, say: Say) -> None:
    """Open, read everything, check everything; say what is wrong and what is hurt and
    stands nowhere named.
    """
    entries = truth.entries
    named = await met_at_first(folder, truth, say)
    workspace = await home(folder).open_stored_workspace(NAME)
    named += workspace.notes
    hurt: list[str] = []
    for text, content in entries.items():
        if not await _is_whole(workspace, text, content, say):
            hurt.append(text)
    hurt += await _hurt_facts(workspace, truth, named, say)
    checked = await workspace.cache.verify_cache()
    named += [f"{digest} {why}" for digest, why in checked.damaged]
    named += checked.notes
    named += await find_journal_damage(workspace)
    hits = await workspace.index.search_index("zebra", limit=50)
    await workspace.aclose()
    _say_what_is_not_named(hurt, named, truth, harm, say)
    for hit in hits:
        if "zebra" not in hit.snippet.lower() and "about" not in hit.snippet:
            say(f"WRONG snippet {hit.snippet[:60]}")
    of_checkpoints = sum(each in truth.files for each in hurt)
    say(f"hurt {len(hurt)} {of_checkpoints}")


async def _hurt_facts(
    workspace: StoredWorkspace, truth: Truth, named: list[str], say: Say
) -> list[str]:
    """The facts that are not there any more, or only as a gap."""
    present = await _facts(workspace, {name for name, _ in truth.facts}, named)
    hurt: list[str] = []
    for (conversation, number), fact in truth.facts.items():
        got = present.get((conversation, number))
        if got is None or type(got.fact) is not type(fact.fact):
            hurt.append(f"Record {number} of conversation {conversation}")
        elif got != fact:
            say(f"WRONG fact {(conversation, number)}")
    return hurt


def _say_what_is_not_named(
    hurt: list[str], named: list[str], truth: Truth, harm: Harm, say: Say
) -> None:
    lost_end = hurt_facts_at_end(named)
    # Only a state names its files. Where it is lost and named, nothing else knows of them.
    lost_states = [
        each for each in hurt if truth.entries.get(each, b"").startswith(b"helix manifest")
    ]
    for each in hurt:
        if each.startswith("Record ") and lost_end >= len(hurt):
            continue
        if each in truth.files and lost_states:
            continue
        if not any(each in line for line in named) and not _whole_end_named(each, named):
            say(f"UNNAMED {each}; named: {named}")
        if not harm.held(truth.stored[each]):
            say(f"BEYOND the harmed place: {each}")


def hurt_facts_at_end(named: list[str]) -> int:
    """The index knows how many facts a cut end had, but not the places of those without words."""
    for line in named:
        if "The end of the journal is missing." in line:
            return int(line.rsplit(" ", 1)[1].rstrip("."))
    return 0


async def met_at_first(folder: Path, truth: Truth, say: Say) -> list[str]:
    """Read everything once. What a first opening says is not said again."""
    workspace = await home(folder).open_stored_workspace(NAME)
    for text, content in truth.entries.items():
        await _is_whole(workspace, text, content, say)
    await _facts(workspace, {name for name, _ in truth.facts}, [])
    await workspace.aclose()
    return list(workspace.notes)


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


def harm_a_file(folder: Path, chance: random.Random) -> Harm:
    """A bit, a page or the end of one file of the workspace."""
    path = choose_file(folder, chance)
    before = path.read_bytes()
    content = bytearray(before)
    what = chance.choice(("flip", "flip", "zeroed page", "cut"))
    start = chance.randrange(len(content))
    end = start + 1
    if what == "flip":
        content[start] ^= 1 << chance.randrange(8)
    elif what == "zeroed page":
        start -= start % PAGE
        end = min(start + PAGE, len(content))
        content[start:end] = bytes(end - start)
    else:
        end = len(content)
        del content[start:]
    path.write_bytes(content)
    return Harm(path, f"{what} of {path.name} at {start}", before, (start, end - 1))


def name_store(path: Path) -> str:
    """Checkpoints are entries of the cache."""
    if path.parent.name in ("cache", "backups"):
        return path.parent.name
    return path.name.partition(".")[0]


def choose_file(folder: Path, chance: random.Random) -> Path:
    """A large file as often as its size says, or as all others."""
    files: list[Path] = []
    weights: list[int] = []
    for path in sorted(folder.rglob("*")):
        is_spared = path.name in NEVER_HARMED or path.name.endswith("-shm")
        if not is_spared and path.is_file() and path.stat().st_size:
            files.append(path)
            weights.append(path.stat().st_size if chance.random() < 0.5 else PAGE)
    return chance.choices(files, weights)[0]


def trials(count: int, seed: int, found: Counter[str], first: int = 0) -> None:
    base = Path(tempfile.mkdtemp(prefix="helix-bits-"))
    try:
        truth = prepare(base, seed)
        whole = len(truth.entries) + len(truth.facts)
        for trial in range(first, first + count):
            chance = random.Random(seed * 1_000_003 + trial)
            folder = base / "trial"
            shutil.copytree(base / ("closed" if trial % 2 else "killed"), folder)
            harm = harm_a_file(folder, chance)
            for line in examined(folder, truth, harm):
                if line.startswith("hurt "):
                    lost, of_checkpoints = (int(word) for word in line.split()[1:])
                    found["entries and facts lost"] += lost
                    found["of them of checkpoints"] += of_checkpoints
                    found["entries and facts back"] += whole - lost
                    found["harmless or recovered"] += not lost
                else:
                    found[f"LOST in trial {trial}, {harm.what}: {line}"] += 1
            found[harm.what.split(" of ")[0]] += 1
            found[f"of the {name_store(harm.path)}"] += 1
            found["harms"] += 1
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


def examined(folder: Path, truth: Truth, harm: Harm) -> list[str]:
    def work(say: Say) -> None:
        asyncio.run(examine(folder, truth, harm, say))

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
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    arguments = parser.parse_args()
    return report(
        "bits",
        arguments.seed,
        lambda found: trials(arguments.trials, arguments.seed, found, arguments.first),
    )


if __name__ == "__main__":
    raise SystemExit(main())
