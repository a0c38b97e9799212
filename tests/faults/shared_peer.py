"""A hostile peer of a shared store: it has the workspace's key, or runs the engine, and writes
whatever it likes. Nobody's facts are lost or changed by it, and nothing it sends ends a machine.

    python -m tests.faults.shared_peer [--trials 1000] [--seed 1]

In each trial two honest machines write and exchange, and the peer acts between their steps: rows
of nonsense, crafted segments and heads, replayed and rolled back heads, heads of other
conversations, ids that are paths, replaced texts under a new generation, leases without end. At
the end each honest machine must have every fact it wrote, in the conversation or in a branch, word
for word; a sentence must name what it refused; and an untouched conversation must still be shared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import zstandard

from helix_desktop.engine.facts import ConversationStarted
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.store.journal_file import StoredFact, checksum_of_fact
from helix_desktop.store.shared import fact_segments
from helix_desktop.store.shared.conversation_heads import ConversationHead
from helix_desktop.store.shared.fact_segments import FactSegment, HeadContents
from helix_desktop.store.shared.row_encryption import RowCipher
from tests.faults.store_report import report
from tests.store.shared.machines import KEY, Clock, Machine, Way
from tests.store.shared.memory_rows import MemoryHeads, MemoryRowStore, MemoryServer

CONVERSATIONS = ("a", "b", "c")
UNTOUCHED = "untouched"
PATHS = ("../../evil", "/etc/passwd", "..", ".", "", "a/b", "a\0b", "x" * 5000, "con", "\u202efdp")


class Peer:
    """Has the key, and the engine's tables in its hands."""

    def __init__(self, server: MemoryServer, heads: MemoryHeads, chance: random.Random) -> None:
        self.server = server
        self.heads = heads
        self.chance = chance
        self.cipher = RowCipher(KEY)
        self.seen: list[ConversationHead] = []

    def acts(self) -> list[Callable[[], None]]:
        return [
            self.write_nonsense_into_a_row,
            self.swap_two_rows,
            self.craft_a_segment,
            self.craft_a_head,
            self.head_with_a_name_to_deceive,
            self.put_a_head_under_another_name,
            self.replay_a_head,
            self.roll_back_a_version,
            self.replace_texts_under_a_new_generation,
            self.cut_a_conversation_short,
            self.lease_without_end,
            self.remove_rows,
        ]

    def act(self) -> str:
        chosen = self.chance.choice(self.acts())
        names = {self._name_of(conversation) for conversation in CONVERSATIONS}
        self.seen += [row for row, _, _ in self.heads._rows.values() if row.name in names]
        with suppress(IndexError, KeyError, ValueError):
            chosen()
        return chosen.__name__

    def write_nonsense_into_a_row(self) -> None:
        name = self._any_row()
        row, time, space = self.server.rows[name]
        if self.chance.random() < 0.5:
            row = self.chance.randbytes(self.chance.choice((0, 1, 40, 600)))
        else:
            row = self.cipher.encrypt_row(name, self.chance.randbytes(300))
        self.server.rows[name] = (row, time, space)

    def swap_two_rows(self) -> None:
        first = self._any_row()
        second = self._any_row()
        rows = self.server.rows
        rows[first], rows[second] = rows[second], rows[first]

    def remove_rows(self) -> None:
        del self.server.rows[self._any_row()]

    def craft_a_segment(self) -> None:
        """Under the name of a real one, so that a head leads to it."""
        contents = self._any_head()
        segment = self.chance.choice(contents.segments)
        lines = [self._crafted_line() for _ in range(self.chance.choice((0, 1, 3, 5000)))]
        about = {"segment": self._odd_number(1), "conversation": self._odd_id()}
        about["first"] = self._odd_number(segment.first)
        text = "\n".join([json.dumps(about), *lines])
        content = zstandard.ZstdCompressor().compress(text.encode("utf-8", "surrogatepass"))
        if self.chance.random() < 0.1:
            content = zstandard.ZstdCompressor().compress(bytes(80 << 20))
        self._put_row(segment.name, content)

    def craft_a_head(self) -> None:
        contents = self._any_head()
        segments = [
            [self._odd_name().hex(), self._odd_number(1), self._odd_number(9)]
            for _ in range(self.chance.choice((0, 1, 4, 3000)))
        ]
        body = {
            "head": self._odd_number(1),
            "conversation": self.chance.choice((contents.conversation, self._odd_id())),
            "machine": self.chance.choice(("\u202egnp.exe", "x" * 9000, "a\nb\x1b[2J", 5, None)),
            "last": self._odd_number(contents.last),
            "chain": self.chance.choice((contents.chain.hex(), "", "zz", "00" * 9000)),
            "segments": self.chance.choice((segments, None, 5, [[]], {"a": 1})),
            "generation": self._odd_number(contents.generation),
            "gone": self.chance.choice((True, False, None, "yes")),
        }
        for key in self.chance.sample([*body], self.chance.choice((0, 0, 1, 3))):
            del body[key]
        self._put_head(contents.conversation, json.dumps(body).encode("utf-8", "surrogatepass"))

    def head_with_a_name_to_deceive(self) -> None:
        """Right in all else, so that the name is shown."""
        contents = replace(self._any_head(), machine="\u202egnp.exe\n\x1b[2J" + "x" * 9000)
        self._put_head(contents.conversation, fact_segments.encode_head(contents))

    def put_a_head_under_another_name(self) -> None:
        contents = self._any_head()
        other = self.chance.choice(CONVERSATIONS)
        self._put_head(other, fact_segments.encode_head(contents))

    def replay_a_head(self) -> None:
        old = self.chance.choice(self.seen)
        now, _, _ = self.heads._rows[old.name]
        self.heads._store_head(replace(old, version=now.version + 1))

    def roll_back_a_version(self) -> None:
        self.heads._store_head(self.chance.choice(self.seen))

    def replace_texts_under_a_new_generation(self) -> None:
        """What a machine that forgets does, but with other words in the place of a blank."""
        contents = self._any_head()
        lines = self._lines_of(contents)
        changed = [self._with_text(line, line.fact.replace('"fact ', '"lie ')) for line in lines]
        self._share(replace(contents, generation=contents.generation + 1), changed)

    def cut_a_conversation_short(self) -> None:
        contents = self._any_head()
        lines = self._lines_of(contents)
        self._share(contents, lines[: self.chance.randrange(len(lines)) + 1])

    def lease_without_end(self) -> None:
        contents = self._any_head()
        row, _, changed = self.heads._rows[self._name_of(contents.conversation)]
        left = self.chance.choice((1e18, math.inf, math.nan, -1e18))
        row = replace(row, writer=self.chance.randbytes(16), version=row.version + 1)
        self.heads._rows[row.name] = (replace(row, lease_seconds_left=left), left, changed + 1)
        self.heads._changes += 1

    def _share(self, contents: HeadContents, lines: list[StoredFact]) -> None:
        content = fact_segments.pack_segment(lines)
        name = self.cipher.keyed_row_name("segment", content)
        self._put_row(name, content)
        chain = fact_segments.compute_chain(fact_segments.NOTHING, lines)
        segment = FactSegment(name, 1, len(lines))
        shared = replace(contents, chain=chain, segments=(segment,), last=len(lines))
        self._put_head(contents.conversation, fact_segments.encode_head(shared))

    def _lines_of(self, contents: HeadContents) -> list[StoredFact]:
        lines: list[StoredFact] = []
        with suppress(HelixError):
            for segment in contents.segments:
                row = self.server.rows[segment.name][0]
                content = self.cipher.decrypt_row(segment.name, row)
                lines += fact_segments.unpack_segment(content)
        return lines

    def _with_text(self, line: StoredFact, fact: str) -> StoredFact:
        digest = checksum_of_fact(line.conversation, line.seq, line.time, fact)
        return replace(line, fact=fact, digest=digest)

    def _any_row(self) -> bytes:
        return self.chance.choice(self._any_head().segments).name

    def _any_head(self) -> HeadContents:
        name = self._name_of(self.chance.choice(CONVERSATIONS))
        row, _, _ = self.heads._rows[name]
        try:
            return fact_segments.decode_head(self.cipher.decrypt_row(name, row.sealed))
        except HelixError as error:
            raise KeyError from error

    def _name_of(self, conversation: str) -> bytes:
        return self.cipher.keyed_row_name("head", conversation.encode())

    def _put_row(self, name: bytes, content: bytes) -> None:
        row = self.cipher.encrypt_row(name, content)
        self.server.rows[name] = (row, self.server.now(), self.cipher.space)

    def _put_head(self, conversation: str, content: bytes) -> None:
        name = self._name_of(conversation)
        version = self.heads._rows[name][0].version + 1 if name in self.heads._rows else 1
        sealed = self.cipher.encrypt_row(name, content)
        writer = self.chance.randbytes(self.chance.choice((0, 16, 300)))
        self.heads._store_head(ConversationHead(name, version, writer, 0.0, sealed))

    def _crafted_line(self) -> str:
        time = self.chance.choice(("1000.0", "nan", "inf", "-5", "1e999", "", "x"))
        deep = "[" * 3000 + "]" * 3000
        said = '{"fact":"UserSaid","parts":[]}'
        fact = self.chance.choice((said, "{}", "[]", "null", deep, '{"fact":"Evil"}', "\ud800"))
        return f"{time}\t{fact}"

    def _odd_name(self) -> bytes:
        return self.chance.randbytes(self.chance.choice((0, 8, 32)))

    def _odd_number(self, usual: int) -> object:
        odd: tuple[object, ...] = (0, -1, 1 << 70, 1.5, "1", None, math.nan, [], True)
        return self.chance.choice((usual, usual, usual + 1, *odd))

    def _odd_id(self) -> object:
        return self.chance.choice((*CONVERSATIONS, *PATHS, 5, None, []))


async def run_trial(chance: random.Random, folder: Path, found: Counter[str]) -> None:
    clock = Clock()
    server = MemoryServer(clock.now)
    heads = MemoryHeads(clock.now)
    space = RowCipher(KEY).space
    machines = [
        Machine.make(name, folder, Way(MemoryRowStore(server, space), heads), clock)
        for name in ("desk", "laptop")
    ]
    peer = Peer(server, heads, chance)
    # Every fact that a machine has had; the peer may lie only to one that never had them.
    had: dict[str, set[str]] = {machine.name: set() for machine in machines}
    for name in (*CONVERSATIONS, UNTOUCHED):
        await machines[0].append(name, ConversationStarted(f"conversation {name}"))
    said = []
    for step in range(24):
        machine = chance.choice(machines)
        await write_sometimes(machine, f"fact {step} of {machine.name}", chance)
        had[machine.name] |= await facts_of(machine)
        await sync(machine, found)
        had[machine.name] |= await facts_of(machine)
        if step > 4 and chance.random() < 0.6:
            said.append(peer.act())
            found[said[-1]] += 1
        clock.time += chance.choice((1, 40))
    for _ in range(3):
        for machine in machines:
            clock.time += 100
            await sync(machine, found)
    for machine in machines:
        await check(machine, had[machine.name], found, said)
    texts = [await texts_of(machine, UNTOUCHED) for machine in machines]
    if texts[0] != texts[1]:
        found[f"LOST: the untouched conversation is not shared any more after {said[-3:]}"] += 1


async def write_sometimes(machine: Machine, text: str, chance: random.Random) -> None:
    conversation = chance.choice((*CONVERSATIONS, UNTOUCHED))
    if chance.random() < 0.5 and machine.journal.conversation_rows():
        with suppress(HelixError):
            await machine.shared.acquire_turn_lease(conversation)
            await machine.write(conversation, text)


async def sync(machine: Machine, found: Counter[str]) -> None:
    try:
        await machine.shared.sync_once()
    except ActionRefused:
        return
    except Exception as error:  # noqa: BLE001 - whatever ends a machine is what is looked for
        found[f"LOST: {machine.name} was ended by {type(error).__name__}: {str(error)[:90]}"] += 1


async def facts_of(machine: Machine) -> set[str]:
    return {fact for lines in (await machine.everything()).values() for _, _, fact in lines}


async def check(machine: Machine, had: set[str], found: Counter[str], said: list[str]) -> None:
    everything = await machine.everything()
    for fact in had - await facts_of(machine):
        found[f"LOST: {machine.name} lacks {fact[:60]} after {sorted(set(said))}"] += 1
    for name in everything:
        if not name.isalnum() or len(name) > 80:
            found[f"LOST: a conversation is called {name[:40]!r}"] += 1
    shown = [*machine.shared.complaints.values()]
    shown += [machine.shared.leases.last_other_machine(name) for name in everything]
    found["refusals that were named"] += len(machine.shared.complaints)
    for sentence in shown:
        if any(unicodedata.category(letter) in ("Cc", "Cf") for letter in sentence):
            found["LOST: control characters in a sentence"] += 1
        if len(sentence) > 1000:
            found["LOST: a sentence without an end"] += 1


async def texts_of(machine: Machine, conversation: str) -> list[str]:
    return [fact for _, _, fact in (await machine.everything()).get(conversation, [])]


def trials(count: int, seed: int, found: Counter[str]) -> None:
    for trial in range(count):
        chance = random.Random(seed * 1_000_003 + trial)
        with tempfile.TemporaryDirectory(prefix="helix-peer-") as folder:
            asyncio.run(run_trial(chance, Path(folder), found))
        found["trials"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report(
        "peer", arguments.seed, lambda found: trials(arguments.trials, arguments.seed, found)
    )


if __name__ == "__main__":
    sys.exit(main())
