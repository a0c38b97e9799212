from __future__ import annotations

import asyncio
import hashlib
import json
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from helix_desktop.engine import fact_encoding
from helix_desktop.engine.facts import ConversationStarted, Stored, Text, ToolReturned, UserSaid
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import build_state
from helix_desktop.errors import ActionRefused, JournalCorrupt, SharedStoreUnreachable
from helix_desktop.store.journal_file import (
    JournalFile,
    StoredFact,
    checksum_of_fact,
    find_journal_defects,
)
from helix_desktop.store.shared import conversation_sync, fact_segments
from helix_desktop.store.shared.conversation_heads import ConversationHead, HeadMark, HeadUpdate
from helix_desktop.store.shared.fact_segments import FactSegment, HeadContents
from helix_desktop.store.shared.postgres_heads import PostgresHeads
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.sync_state import SharedProgress, SyncState
from tests.peers import postgres
from tests.store.shared.machines import KEY, LEASE, Clock, Machine, P, T, Way
from tests.store.shared.memory_rows import MemoryHeads, MemoryRowStore, MemoryServer


class Machines(RuleBasedStateMachine):
    """Two or three of them write, are cut off, take over, are killed and come late: no
    fact is lost, and at the end all have the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.heads = MemoryHeads(self.clock.now)
        self.shelf = MemoryServer(self.clock.now)
        self.machines: list[Machine] = []
        self.texts: dict[str, int] = {}  # what was written, and by which machine
        self.begun = self.forks = self.written = 0
        self.forgotten: set[str] = set()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize(count=st.sampled_from([2, 3]))
    def _make(self, count: int) -> None:
        for number in range(count):
            self.machines.append(
                Machine.make(f"machine {number}", Path(self.folder.name), self._way(), self.clock)
            )
        self.begin(0)
        for machine in self.machines:
            self.run(machine.step())

    def _way(self) -> Way:
        return Way(MemoryRowStore(self.shelf, b"space"), self.heads)

    def _machine(self, number: int) -> Machine:
        return self.machines[number % len(self.machines)]

    def _conversation(self, which: int) -> str:
        return f"c{which % self.begun + 1}"

    @precondition(lambda self: self.begun < 3)
    @rule(number=st.integers(0, 2))
    def begin(self, number: int) -> None:
        self.begun += 1
        self.run(self._machine(number).begin(f"c{self.begun}", f"Conversation {self.begun}"))

    @rule(
        which=st.integers(0, 2), number=st.integers(0, 2), count=st.sampled_from([1, 1, 1, 3, 40])
    )
    def write(self, which: int, number: int, count: int) -> None:
        """Where it is here; also where another machine has the lease, as a machine does
        that has been cut off.
        """
        machine = self._machine(number)
        conversation = self._conversation(which)
        if not machine.journal.read_stored_facts(conversation, 0, 1):
            return
        self.clock.time += 0.001
        for _ in range(count):
            self.written += 1
            text = f"text {self.written:06}"
            self.run(machine.write(conversation, text))
            self.texts[text] = number % len(self.machines)

    @rule(which=st.integers(0, 2))
    def write_apart(self, which: int) -> None:
        for number in range(len(self.machines)):
            self.write(which, number, 1)

    @rule(number=st.integers(0, 2))
    def sync(self, number: int) -> None:
        self.run(self._machine(number).step())

    @rule(number=st.integers(0, 2), after=st.integers(0, 6), lost=st.booleans())
    def cut_in_the_middle(self, number: int, after: int, lost: bool) -> None:
        machine = self._machine(number)
        machine.way.left = after
        machine.way.answer_lost = lost
        self.run(machine.step())

    @rule(number=st.integers(0, 2))
    def mend(self, number: int) -> None:
        self._machine(number).way.left = None

    @rule(number=st.integers(0, 2))
    def kill(self, number: int) -> None:
        machine = self._machine(number)
        machine.start()
        self.run(machine.shared.read_known_writers())

    @rule(which=st.integers(0, 2), number=st.integers(0, 2))
    def take_over(self, which: int, number: int) -> None:
        machine = self._machine(number)
        conversation = self._conversation(which)
        if machine.way.left is None and conversation not in machine.desk.working:
            self.run(machine.shared.take_over_lease(conversation))
            assert machine.shared.leases.find_machine_writing(conversation) == ""

    @rule(which=st.integers(0, 2), number=st.integers(0, 2), at=st.integers(2, 20))
    def forget(self, which: int, number: int, at: int) -> None:
        """A message is blanked in place, as forgetting does, and a mark is left."""
        machine = self._machine(number)
        conversation = self._conversation(which)
        line = next(iter(machine.journal.read_stored_facts(conversation, at - 1, 1)), None)
        if line is None or not isinstance(said := line.decode_recorded().fact, UserSaid):
            return
        for part in said.parts:
            if isinstance(part, Text) and part.text in self.texts:
                del self.texts[part.text]
                self.forgotten.add(part.text)
                machine.forget(part.text)

    @precondition(lambda self: self.forks < 2)
    @rule(which=st.integers(0, 2), number=st.integers(0, 2), at=st.integers(2, 20))
    def fork(self, which: int, number: int, at: int) -> None:
        """A conversation with the facts of another: also with those that were forgotten
        elsewhere meanwhile.
        """
        machine = self._machine(number)
        conversation = self._conversation(which)
        if len(machine.journal.read_stored_facts(conversation, 0, at)) == at:
            self.forks += 1
            machine.journal.copy_conversation(conversation, at, f"fork-{self.forks}")

    @rule(which=st.integers(0, 2), number=st.integers(0, 2))
    def work(self, which: int, number: int) -> None:
        self._machine(number).desk.working ^= {self._conversation(which)}

    @rule(seconds=st.sampled_from([1.0, 20.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.clock.time += seconds

    def nothing_is_lost_where_it_was_written(self) -> None:
        for number, machine in enumerate(self.machines):
            there = self.run(machine.everything())
            texts = {
                found
                for lines in there.values()
                for _, _, fact in lines
                for found in re.findall(r'"(text \d+)"', fact)
            }
            assert {text for text, writer in self.texts.items() if writer == number} <= texts

    def teardown(self) -> None:
        if self.machines:
            self._all_end_with_the_same()
        for machine in self.machines:
            self.run(machine.aclose())
        self.loop.close()
        self.folder.cleanup()

    def _all_end_with_the_same(self) -> None:
        self.nothing_is_lost_where_it_was_written()
        for machine in self.machines:
            machine.way.left = None
            machine.desk.working.clear()
        self._exchange_until_nothing_is_new()
        everything = [self.run(machine.everything()) for machine in self.machines]
        first = everything[0]
        for other in everything[1:]:
            assert other == first
        written_texts = set(re.findall(r'"(text \d+)"', repr(first)))
        assert set(self.texts) <= written_texts
        self.nothing_is_lost_where_it_was_written()
        for machine in self.machines:
            assert machine.shared.complaints == {}
            assert machine.shared.sync_state.count_facts_to_send() == {}
            assert list(find_journal_defects(machine.journal)) == []
        for conversation in first:
            self._all_show_the_same_view(conversation)
        assert not self.forgotten & written_texts
        self._every_conversation_is_accounted_for(first)

    def _exchange_until_nothing_is_new(self) -> None:
        for _ in range(3 + 2 * len(self.machines)):
            self.clock.time += LEASE + 1
            for machine in self.machines:
                assert self.run(machine.step())

    def _all_show_the_same_view(self, conversation: str) -> None:
        views = [
            build_state(machine.journal.read_recorded(conversation)).get_view()
            for machine in self.machines
        ]
        assert all(view == views[0] for view in views)

    def _every_conversation_is_accounted_for(self, conversations: Collection[str]) -> None:
        """One that was begun, forked, or parted from another's writing."""
        branches = [parted for machine in self.machines for parted in machine.desk.parted_]
        event(f"branches: {min(4, len(branches))}")
        # Where something was forgotten on another machine, what was written here may
        # stay in its own place.
        parted = sum(branch != origin for origin, branch in branches)
        assert len(conversations) == self.begun + self.forks + parted


Machines.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestMachines = Machines.TestCase


async def test_what_was_written_apart_does_not_keep_a_machine_from_taking_over(
    tmp_path: Path,
) -> None:
    clock = Clock()
    heads = MemoryHeads(clock.now)
    shelf = MemoryServer(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [
        Machine.make(name, tmp_path, way, clock)
        for name, way in zip(("one", "two"), ways, strict=True)
    ]
    await one.begin("c", "Pairs")
    await one.step()
    await two.step()
    await one.write("c", "here")
    await two.write("c", "apart")
    await one.step()
    await two.shared.take_over_lease("c")
    assert two.shared.leases.find_machine_writing("c") == ""
    ((conversation, branch),) = two.desk.parted_
    assert "apart" in repr((await two.everything())[branch])
    await two.write(conversation, "it goes on")
    for machine in (two, one):
        await machine.step()
    assert [
        text in repr((await one.everything())["c"]) for text in ("here", "it goes on", "apart")
    ] == [
        True,
        True,
        False,
    ]
    for machine in (one, two):
        await machine.aclose()


async def test_a_fork_made_before_a_forgetting_was_heard_of_brings_nothing_back(
    tmp_path: Path,
) -> None:
    clock = Clock()
    heads = MemoryHeads(clock.now)
    shelf = MemoryServer(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [
        Machine.make(name, tmp_path, way, clock)
        for name, way in zip(("one", "two"), ways, strict=True)
    ]
    await one.begin("c", "Passwords")
    await one.write("c", "the password is swordfish")
    await one.step()
    await two.step()
    two.journal.copy_conversation("c", 2, "copy")
    one.forget("swordfish")
    for _ in range(4):
        clock.time += LEASE + 1
        for machine in (one, two):
            await machine.step()
            assert machine is two or "swordfish" not in repr(await one.everything())
    assert await one.everything() == await two.everything()
    assert "swordfish" not in repr(await two.everything())
    assert len(await one.everything()) == 2
    for machine in (one, two):
        await machine.aclose()


def test_a_fact_that_quotes_a_forgotten_entry_is_taken_in_without_the_quotation(
    tmp_path: Path,
) -> None:
    gone, stays = (
        Stored(Digest.of_content(content), len(content)) for content in (b"swordfish", b"cod")
    )
    one = JournalFile(tmp_path / "one.sqlite3")
    two = JournalFile(tmp_path / "two.sqlite3")
    one.append_all_or_nothing(
        "c",
        [
            ToolReturned(str(each), each, 1, head=head)
            for each, head in ((gone, "swordfish"), (stays, "cod"))
        ],
    )
    lines = SyncState(
        two, RowCipher(KEY), lambda digest: digest == gone.digest
    ).blank_forgotten_facts(one.read_stored_facts("c"))
    facts = [line.decode_recorded().fact for line in lines]
    assert [fact.head for fact in facts if isinstance(fact, ToolReturned)] == ["", "cod"]
    one.close()
    two.close()


async def test_two_machines_that_forgot_different_words_of_one_message_bring_back_neither(
    tmp_path: Path,
) -> None:
    clock = Clock()
    heads = MemoryHeads(clock.now)
    shelf = MemoryServer(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [
        Machine.make(name, tmp_path, way, clock)
        for name, way in zip(("one", "two"), ways, strict=True)
    ]
    await one.begin("c", "Passwords")
    await one.write("c", "swordfish or mackerel")
    await one.write("c", "thank you")
    await one.step()
    await two.step()
    one.forget("swordfish")
    two.forget("mackerel")
    for _ in range(4):
        clock.time += LEASE + 1
        for machine in (two, one):
            await machine.step()
    there = repr(await one.everything())
    assert there == repr(await two.everything())
    assert "swordfish" not in there
    assert "mackerel" not in there
    assert "thank you" in there
    for machine in (one, two):
        await machine.aclose()


async def test_heads_that_were_lost_are_sent_again_when_the_workspace_is_opened(
    tmp_path: Path,
) -> None:
    clock = Clock()
    shelf = MemoryServer(clock.now)
    one, two = [
        Machine.make(
            name, tmp_path, Way(MemoryRowStore(shelf, b"space"), MemoryHeads(clock.now)), clock
        )
        for name in ("one", "two")
    ]
    await one.begin("c", "Lost")
    await one.write("c", "word")
    await one.step()
    two.way.heads = one.way.heads = left = MemoryHeads(clock.now)
    for version in range(5):  # the engine's count of changes goes on
        assert left.update_heads([HeadUpdate(b"another", version, b"somebody", b"", 0.0)])[0][0]
    for machine in (one, two):
        machine.start()
        await machine.step()
    assert await two.everything() == await one.everything()
    for machine in (one, two):
        await machine.aclose()


async def two_machines(folder: Path) -> tuple[Machine, Machine, MemoryHeads]:
    """Both have the conversation c, and the first one works in it."""
    clock = Clock()
    shelf = MemoryServer()
    heads = MemoryHeads(clock.now)
    one, two = [
        Machine.make(name, folder, Way(MemoryRowStore(shelf, b"space"), heads), clock)
        for name in ("one", "two")
    ]
    await one.begin("c", "Work")
    for machine in (one, two):
        await machine.step()
    one.desk.working.add("c")
    return one, two, heads


async def test_an_answer_that_was_lost_holds_up_nobody_who_works(tmp_path: Path) -> None:
    """The head had moved, and a turn that was going on never learned that it was its
    own machine's doing.
    """
    one, two, _ = await two_machines(tmp_path)
    await one.write("c", "before the call")
    one.way.left = 1
    one.way.answer_lost = True
    assert not await one.step()
    one.way.left = None
    assert await one.step()
    assert one.shared.sync_state.count_facts_to_send() == {}
    assert await two.step()
    assert await two.everything() == await one.everything()
    for machine in (one, two):
        await machine.aclose()


async def test_what_a_standby_that_took_over_lacks_is_sent_again_by_who_works(
    tmp_path: Path,
) -> None:
    """A standby may lack what was confirmed last. Others had changed so much since that
    its count of changes went on.
    """
    one, two, heads = await two_machines(tmp_path)
    standby = heads.fail_over()
    await one.write("c", "the call that runs now")
    assert await one.step()
    two.shared.heads = one.shared.heads = standby
    again = list[str]()

    async def send_last_again() -> None:
        again.append("content")

    one.shared.send_last_again = send_last_again
    for number in range(3):
        await two.begin(f"other-{number}", "Other")
    for machine in (two, one, two):
        assert await machine.step()
    assert again == ["content"]
    assert one.shared.sync_state.count_facts_to_send() == {}
    assert await two.everything() == await one.everything()
    for machine in (one, two):
        await machine.aclose()


async def test_what_was_looked_at_is_known_after_a_restart(tmp_path: Path) -> None:
    one, two, _ = await two_machines(tmp_path)
    two.start()
    asked: list[int] = []
    fetch = two.shared.heads.fetch_changed_heads

    def note_and_fetch(since: int) -> tuple[Sequence[ConversationHead], HeadMark]:
        asked.append(since)
        return fetch(since)

    two.shared.heads.fetch_changed_heads = note_and_fetch  # type: ignore[method-assign]
    assert await two.step()
    assert asked == [1]
    for machine in (one, two):
        await machine.aclose()


class Counted(Way):
    """How often it was gone: each time, a busy loop must come round."""

    count = 0

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.count += 1
        return await super().run_in_thread(work, *args, **kwargs)


async def test_many_conversations_are_sent_in_few_calls(tmp_path: Path) -> None:
    """One at a time, a worker whose loop was full of agents sent one a second, and fell behind."""
    clock = Clock()
    shelf = MemoryServer()
    heads = MemoryHeads(clock.now)
    ways = [Counted(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [
        Machine.make(name, tmp_path, way, clock)
        for name, way in zip(("one", "two"), ways, strict=True)
    ]
    await one.step()
    before = ways[0].count
    for number in range(300):
        await one.begin(f"c{number}", "Task")
        await one.write(f"c{number}", "done")
    await one.step()
    assert ways[0].count - before < 30
    before = ways[0].count
    await one.shared.send_and_release_leases()
    assert ways[0].count - before < 10
    await two.step()
    assert two.shared.leases.conversations_written_elsewhere() == {}
    assert await two.everything() == await one.everything()
    for machine in (one, two):
        await machine.aclose()


async def test_a_machine_that_starts_again_looks_only_at_what_changed_since(tmp_path: Path) -> None:
    clock = Clock()
    shelf = MemoryServer()
    heads = MemoryHeads(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [
        Machine.make(name, tmp_path, way, clock)
        for name, way in zip(("one", "two"), ways, strict=True)
    ]
    await one.write("c", "word")
    await one.step()
    await two.step()
    two.start()
    assert two.shared.sync_state.read_mark()[1] > 0
    for machine in (one, two):
        await machine.aclose()


async def test_looking_where_nothing_is_new_writes_nothing_to_the_disk(tmp_path: Path) -> None:
    """The engine's mark moves with every transaction of anybody: an idle workspace
    wrote it down every second.
    """
    clock = Clock()
    shelf = MemoryServer()
    heads = MemoryHeads(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [
        Machine.make(name, tmp_path, way, clock)
        for name, way in zip(("one", "two"), ways, strict=True)
    ]
    await one.step()
    await one.write("c", "word")
    await one.step()
    await two.step()
    for machine in (one, two):
        before = machine.journal.connection.total_changes
        await machine.step()
        assert machine.journal.connection.total_changes == before
    one.start()  # again, from an older mark
    await one.shared.read_known_writers()
    before = one.journal.connection.total_changes
    await one.step()
    await one.step()
    assert one.journal.connection.total_changes - before <= 1  # the mark, once
    await two.write("c", "answer")
    clock.time += LEASE + 1
    await two.step()
    await one.step()
    assert await one.everything() == await two.everything()
    for machine in (one, two):
        await machine.aclose()


async def test_a_conversation_of_many_facts_is_sent_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_sync, "_MOST_SEGMENT_BYTES", 2_000)
    clock = Clock()
    shelf = MemoryServer()
    heads = MemoryHeads(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [
        Machine.make(name, tmp_path, way, clock)
        for name, way in zip(("one", "two"), ways, strict=True)
    ]
    for name in ("long", "short", "last"):
        for number in range(60 if name == "long" else 30):
            await one.write(name, f"{number} " + "word " * 20)
    await one.step()
    assert one.shared.sync_state.count_facts_to_send() == {}
    await two.step()
    assert await two.everything() == await one.everything()
    for machine in (one, two):
        await machine.aclose()


@pytest.mark.parametrize("off", [-3600.0, 3600.0])
async def test_a_clock_an_hour_off_changes_neither_order_nor_who_writes(
    tmp_path: Path, off: float
) -> None:
    clock = Clock(10_000.0)
    wrong = Clock(10_000.0 + off)
    # The lease is on the engine's clock.
    heads = MemoryHeads(clock.now)
    shelf = MemoryServer(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [
        Machine.make(name, tmp_path, way, own)
        for name, way, own in zip(("one", "two"), ways, (clock, wrong), strict=True)
    ]
    await one.begin("c", "Clocks")
    for turn in range(6):
        for machine, other in ((one, two), (two, one)):
            await machine.step()
            await machine.write("c", f"{machine.name} {turn}")
            await machine.step()
            await other.step()
            assert other.shared.leases.find_machine_writing("c") == machine.name
            clock.time += LEASE + 1
            wrong.time += LEASE + 1
            assert other.shared.leases.find_machine_writing("c") == ""
    there = await one.everything()
    assert there == await two.everything()
    assert re.findall(r'"((?:one|two) \d)"', repr(there["c"])) == [
        f"{name} {turn}" for turn in range(6) for name in ("one", "two")
    ]
    assert list(there) == ["c"]
    for machine in (one, two):
        await machine.aclose()


@pytest.mark.parametrize("off", [-3600.0, 3600.0])
async def test_on_postgresql_a_lease_ends_by_the_servers_clock(
    tmp_path: Path, server: postgres.Server, seal: RowCipher, off: float
) -> None:
    ways: list[Way] = []
    for _ in range(2):
        engine = PostgresRowStore(server.url, seal.space)
        ways.append(Way(engine, PostgresHeads(engine, seal.space)))
    clocks = Clock(10_000.0), Clock(10_000.0 + off)
    one, two = [
        Machine.make(name, tmp_path, way, own)
        for name, way, own in zip(("one", "two"), ways, clocks, strict=True)
    ]
    await one.begin("c", "Clocks")
    for turn in range(3):
        for machine, other in ((one, two), (two, one)):
            await machine.step()
            await machine.write("c", f"{machine.name} {turn}")
            await machine.step()
            await other.step()
            assert other.shared.leases.find_machine_writing("c") == machine.name
            (head,) = machine.way.heads.fetch_changed_heads(0)[0]
            assert 0 < head.lease_seconds_left <= LEASE
            await machine.shared.send_and_release_leases()
            await other.step()
            assert other.shared.leases.find_machine_writing("c") == ""
    there = await one.everything()
    assert there == await two.everything()
    assert re.findall(r'"((?:one|two) \d)"', repr(there["c"])) == [
        f"{name} {turn}" for turn in range(3) for name in ("one", "two")
    ]
    for machine in (one, two):
        await machine.aclose()
        machine.way.engine.close()


async def test_who_writes_where_is_known_from_the_lease_and_the_last_head(tmp_path: Path) -> None:
    clock = Clock()
    shelf = MemoryServer()
    heads = MemoryHeads(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [
        Machine.make(name, tmp_path, way, clock)
        for name, way in zip(("one", "two"), ways, strict=True)
    ]
    await one.write("c", "word")
    await one.step()
    await two.step()
    assert (
        one.shared.leases.find_machine_writing("c"),
        one.shared.leases.last_other_machine("c"),
        one.shared.leases.conversations_written_elsewhere(),
    ) == ("", "", {})
    assert (
        two.shared.leases.find_machine_writing("c"),
        two.shared.leases.last_other_machine("c"),
    ) == ("one", "one")
    assert (
        two.shared.leases.conversations_written_elsewhere(),
        two.shared.leases.find_machine_writing("unknown"),
    ) == (
        {"c": "one"},
        "",
    )
    clock.time += LEASE - 1
    assert two.shared.leases.find_machine_writing("c") == "one"
    clock.time += 1
    assert (
        two.shared.leases.find_machine_writing("c"),
        two.shared.leases.last_other_machine("c"),
        two.shared.leases.conversations_written_elsewhere(),
    ) == ("", "one", {})
    await one.write("c", "more")
    await one.step()
    await two.step()
    assert two.shared.leases.find_machine_writing("c") == "one"
    two.way.left = 0
    with pytest.raises(SharedStoreUnreachable):
        await two.shared.take_over_lease("c")  # the engine is away: it is done here
    assert (
        two.shared.leases.find_machine_writing("c"),
        two.shared.leases.last_other_machine("c"),
    ) == ("", "one")
    for machine in (one, two):
        await machine.aclose()


async def test_a_lease_is_renewed_where_somebody_works_when_less_than_half_of_it_is_left(
    tmp_path: Path,
) -> None:
    one, two, heads = await two_machines(tmp_path)
    await one.write("c", "word")
    await one.begin("idle", "Nobody works here")
    for machine in (one, two):
        await machine.step()
    change = heads.fetch_changed_heads(0)[1]
    one.clock.time += LEASE / 2
    await one.shared.renew_leases(["c"])
    assert heads.fetch_changed_heads(0)[1] == change, "half of it is left"
    one.clock.time += 1
    await two.shared.renew_leases(["c"])
    await one.shared.renew_leases([])
    assert heads.fetch_changed_heads(0)[1] == change, "it is not the other one's, and nobody works"
    await one.shared.renew_leases(["c"])
    assert heads.fetch_changed_heads(0)[1] != change
    left = {name: one.shared.leases.seconds_left(name) for name in ("c", "idle")}
    assert left == {"c": LEASE, "idle": LEASE / 2 - 1}
    await two.step()
    one.clock.time += LEASE - 1
    assert two.shared.leases.find_machine_writing("c") == "one"
    assert two.shared.leases.find_machine_writing("idle") == ""
    await two.shared.take_over_lease("c")
    one.clock.time += LEASE / 2 + 1
    await one.shared.renew_leases(["c"])
    assert one.shared.leases.find_machine_writing("c") == "two", (
        "what another one took over is not taken back"
    )
    for machine in (one, two):
        await machine.aclose()


async def test_while_facts_are_changed_in_place_the_shared_store_is_not_asked(
    tmp_path: Path,
) -> None:
    one, two, _ = await two_machines(tmp_path)
    await one.write("c", "word")
    for machine in (one, two):
        async with machine.shared.pause_sync():
            machine.way.left = 0  # A call would fail at once.
            for work in (machine.shared.sync_once, machine.shared.fetch_new_facts):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0):
                        await work()
        with pytest.raises(SharedStoreUnreachable):
            await machine.shared.fetch_new_facts()
        machine.way.left = None
        assert await machine.step()
    assert await two.everything() == await one.everything()
    for machine in (one, two):
        await machine.aclose()


class Noted(Way):
    """What was asked of the engine, in its order, by the names of the calls."""

    def __init__(self, engine: MemoryRowStore, heads: MemoryHeads) -> None:
        super().__init__(engine, heads)
        self.asked: list[str] = []

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.asked.append(str(getattr(work, "__name__", work)))
        return await super().run_in_thread(work, *args, **kwargs)

    def take(self) -> list[str]:
        asked = self.asked
        self.asked = []
        return asked


@dataclass
class World:
    """Two machines, the first with a conversation c that the second has too; the
    engine's clock and theirs.
    """

    one: Machine
    two: Machine
    clock: Clock
    shelf: MemoryServer
    heads: MemoryHeads

    @property
    def both(self) -> tuple[Machine, Machine]:
        return self.one, self.two

    @staticmethod
    def asked(machine: Machine) -> list[str]:
        assert isinstance(machine.way, Noted)
        return machine.way.take()

    def name(self, conversation: str = "c") -> bytes:
        return self.one.shared._head_row_name(conversation)

    def head(self, conversation: str = "c") -> tuple[ConversationHead, HeadContents]:
        (row,) = self.heads.fetch_heads([self.name(conversation)])
        return row, fact_segments.decode_head(RowCipher(KEY).decrypt_row(row.name, row.sealed))

    def segments(self, conversation: str = "c") -> list[tuple[int, int]]:
        return [(one.first, one.last) for one in self.head(conversation)[1].segments]

    def known(self, machine: Machine, conversation: str = "c") -> SharedProgress:
        return machine.shared.sync_state.read_shared_progress(conversation)

    async def all_ends(self) -> None:
        """Every lease has ended, and both have looked."""
        self.clock.time += LEASE + 1
        for machine in self.both + self.both:
            assert await machine.step()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    clock = Clock()
    heads = MemoryHeads(clock.now)
    shelf = MemoryServer(clock.now)
    one, two = [
        Machine.make(name, tmp_path, Noted(MemoryRowStore(shelf, b"space"), heads), clock)
        for name in ("one", "two")
    ]
    await one.begin("c", "Work")
    made = World(one, two, clock, shelf, heads)
    for machine in made.both:
        assert await machine.step()
        made.asked(machine)
    yield made
    for machine in made.both:
        await machine.aclose()


def texts(machine: Machine, conversation: str = "c") -> list[str]:
    said = [one.fact for one in machine.journal.read_recorded(conversation)]
    return [
        part.text
        for fact in said
        if isinstance(fact, UserSaid)
        for part in fact.parts
        if isinstance(part, Text)
    ]


async def test_content_goes_first_then_the_segment_together_with_the_head_that_names_it(
    world: World,
) -> None:
    asked = world.one.way.asked  # type: ignore[attr-defined]
    here = Stored(Digest.of_content(b"cod"), 3)
    heard = list[Collection[Digest]]()

    async def send_content(entries: Collection[Digest]) -> None:
        asked.append("content")
        heard.append(entries)

    world.one.shared.send_content = send_content
    world.two.shared.on_new_entries = heard.append
    await world.one.append("c", ToolReturned("1", here, 1))
    await world.one.step()
    assert world.asked(world.one) == [
        "fetch_changed_heads",
        "content",
        "_update_heads_now",
    ]
    # The first segment was made anew with the second fact.
    assert world.shelf.rows.keys() == {segment.name for segment in world.head()[1].segments}
    await world.two.step()
    assert world.asked(world.two) == ["fetch_changed_heads", "fetch_rows"]
    assert heard == [{here.digest}, {here.digest}]
    assert world.segments() == [(1, 2)]
    assert world.shelf.rows.keys() == {one.name for one in world.head()[1].segments}
    for machine in world.both:
        await machine.step()
        assert world.asked(machine) == ["fetch_changed_heads"], "nothing is new"


async def test_what_both_know_of_a_conversation_that_one_wrote(world: World) -> None:
    await world.one.write("c", "word")
    for machine in world.both:
        await machine.step()
    row, contents = world.head()
    own = world.one.shared.sync_state.machine
    lines = world.one.journal.read_stored_facts("c")
    chain = fact_segments.compute_chain(fact_segments.NOTHING, lines)
    assert (row.version, row.writer, row.lease_seconds_left) == (2, own, LEASE)
    assert contents == HeadContents("c", "one", 2, chain, contents.segments, 0)
    expected = SharedProgress("c", 2, chain, 2, own, contents)
    assert [world.known(each) for each in world.both] == [expected, expected]
    assert (
        world.two.shared._merged_versions
        == world.one.shared._merged_versions
        == {world.name(): (2, "c")}
    )
    assert [each.shared.leases.seconds_left("c") for each in world.both] == [LEASE, LEASE]
    assert [each.shared.leases.last_other_machine("c") for each in world.both] == ["", "one"]


async def test_fetching_sends_nothing(world: World) -> None:
    await world.one.write("c", "word")
    await world.one.step()
    await world.two.begin("other", "Other")
    await world.two.shared.fetch_new_facts()
    assert texts(world.two) == ["word"]
    assert world.two.shared.sync_state.count_facts_to_send() == {"other": 1}


@pytest.mark.parametrize(
    ("later", "asked"),
    [
        (0.0, []),
        (LEASE / 2 - 1, []),
        (LEASE / 2, ["fetch_heads", "_update_heads_now"]),
        (LEASE + 1, ["fetch_heads", "_update_heads_now"]),
    ],
)
async def test_a_turn_asks_for_the_lease_when_no_more_than_half_of_it_is_left(
    world: World, later: float, asked: list[str]
) -> None:
    world.clock.time += later
    await world.one.shared.acquire_turn_lease("c")
    assert world.asked(world.one) == asked
    assert world.head()[0].version == (2 if asked else 1)
    assert world.one.shared.leases.seconds_left("c") == (LEASE if asked else LEASE - later)


async def test_a_turn_in_a_conversation_that_nobody_shares_yet_sends_it(world: World) -> None:
    await world.two.shared.acquire_turn_lease("unknown")
    assert world.asked(world.two) == ["fetch_heads"]
    await world.two.begin("new", "New")
    await world.two.shared.acquire_turn_lease("new")
    assert world.asked(world.two) == ["fetch_heads", "_update_heads_now"]
    assert world.head("new")[1].machine == "two"
    assert world.two.shared.leases.holds_lease("new", LEASE - 1)


WAIT = "Wait until the turn ends, continue here anyway, or continue in a copy."


async def test_a_turn_is_refused_where_another_machine_works_and_begins_where_its_lease_ended(
    world: World,
) -> None:
    with pytest.raises(ActionRefused) as refused:
        await world.two.shared.acquire_turn_lease("c")
    assert (refused.value.what, refused.value.remedy) == (
        "one is working in this conversation.",
        WAIT,
    )
    assert world.head()[0].version == 1
    world.clock.time += LEASE
    await world.one.write("c", "late")
    await world.one.shared.send_and_release_leases()
    assert world.head()[0].lease_seconds_left == 0
    world.asked(world.two)
    await world.two.shared.acquire_turn_lease("c")
    assert texts(world.two) == ["late"], "what the other wrote is here first"
    assert world.asked(world.two) == ["fetch_heads", "fetch_rows", "_update_heads_now"]
    row, contents = world.head()
    assert (row.writer, contents.machine, contents.last) == (
        world.two.shared.sync_state.machine,
        "two",
        2,
    )
    await world.one.step()
    assert world.one.shared.leases.find_machine_writing("c") == "two"


async def test_a_turn_whose_conversation_stays_in_use_here_is_refused_after_eight_tries(
    world: World,
) -> None:
    await world.one.write("c", "new")
    await world.one.step()
    world.clock.time += LEASE + 1
    world.two.desk.working.add("c")
    with pytest.raises(ActionRefused) as refused:
        await world.two.shared.acquire_turn_lease("c")
    assert str(refused.value) == f"one is working in this conversation. {WAIT}"
    assert [one for one in world.asked(world.two) if one == "fetch_heads"] == ["fetch_heads"] * 8
    assert texts(world.two) == []
    await world.two.step()
    assert world.two.shared.sync_state.read_unread_heads() == {world.name()}
    world.two.desk.working.clear()
    await world.two.step()
    assert texts(world.two) == ["new"]
    assert world.two.shared.sync_state.read_unread_heads() == frozenset()
    assert world.two.shared._heads_to_merge_later == {}


async def test_a_conversation_that_was_in_use_when_the_program_ended_is_fetched_after_a_restart(
    world: World,
) -> None:
    await world.one.write("c", "new")
    await world.one.step()
    world.two.desk.working.add("c")
    await world.two.step()
    world.two.desk.working.clear()
    world.two.start()
    await world.two.shared.read_known_writers()
    assert world.two.shared.leases.last_other_machine("c") == "one"
    world.asked(world.two)
    await world.two.step()
    assert texts(world.two) == ["new"]
    assert world.asked(world.two)[0] == "fetch_heads", "the mark is behind it"


MISSING = "Part of the conversation c is missing. The missing part will be requested again."
DAMAGED = "Content from the shared store failed its authenticity check."


@pytest.mark.parametrize("is_missing", [True, False])
async def test_a_segment_that_cannot_be_read_is_complained_of_until_it_can(
    world: World, is_missing: bool
) -> None:
    await world.one.write("c", "new")
    await world.one.begin("other", "Other")
    await world.one.step()
    (segment,) = world.head()[1].segments
    row = world.shelf.rows.pop(segment.name)
    if not is_missing:
        damaged = row[0][:-1] + bytes([row[0][-1] ^ 1])
        world.shelf.rows[segment.name] = (damaged,) + row[1:]
    await world.two.step()
    (complaint,) = world.two.shared.complaints.items()
    assert complaint[0] == world.name().hex()
    expected_complaint = DAMAGED
    if is_missing:
        expected_complaint = MISSING
    assert complaint[1].startswith(expected_complaint)
    assert (world.name() in world.two.shared._heads_to_merge_later) == is_missing
    assert world.two.shared.sync_state.read_unread_heads() == {world.name()}
    assert world.known(world.two, "other").seq == 1, "the others are not held up"
    if not is_missing:
        with pytest.raises(JournalCorrupt) as refused:
            await world.two.shared.acquire_turn_lease("c")
        assert refused.value.what == complaint[1]
        assert (
            refused.value.remedy == "To work here anyway, continue in a copy of the conversation."
        )
    world.shelf.rows[segment.name] = row
    await world.two.step()
    assert texts(world.two) == ["new"]
    assert (world.two.shared.complaints, world.two.shared._heads_to_merge_later) == ({}, {})
    assert world.two.shared.sync_state.read_unread_heads() == frozenset()


async def test_a_head_whose_chain_does_not_fit_its_facts_changes_nothing_here(world: World) -> None:
    row, contents = world.head()
    seal = RowCipher(KEY)
    wrong = fact_segments.encode_head(replace(contents, chain=b"w" * 32, conversation="d"))
    name = world.name("d")
    assert world.heads.update_heads(
        [HeadUpdate(name, 0, row.writer, seal.encrypt_row(name, wrong), 0.0)]
    )[0][0]
    await world.two.step()
    differs = (
        "The conversation d differs from what the other computer shared. Your own copy is intact."
    )
    assert world.two.shared.complaints == {name.hex(): differs}
    assert world.two.journal.read_stored_facts("d") == []


@pytest.mark.parametrize(
    "fields",
    [
        {
            "fact": "ToolReturned",
            "call": "a",
            "output": {"digest": "0" * 64, "size": "9"},
            "tokens": 1,
        },
        {"fact": "ConversationChanged", "title": ["x"]},
        {"fact": "Spent", "purpose": "title", "model": "m", "usage": {"input": "9"}},
        {"fact": "UserSaid", "parts": [{"is": "Span", "first": 1, "last": 2}]},
        {
            "fact": "Folded",
            "fold": "f",
            "kind": "marker",
            "cover": None,
            "text": "",
            "tokens": 1,
            "tokens_before": 2,
        },
    ],
    ids=lambda fields: str(fields["fact"]),
)
async def test_a_fact_of_others_with_a_wrong_value_stops_its_conversation_alone(
    world: World, fields: dict[str, object]
) -> None:
    await world.one.begin("bad", "Bad")
    text = json.dumps({"version": 1} | fields)
    bad = StoredFact(0, "bad", 2, 5.0, text, checksum_of_fact("bad", 2, 5.0, text))
    insert = "INSERT INTO facts(conversation, seq, time, fact, digest) VALUES(?, ?, ?, ?, ?)"
    world.one.journal.connection.execute(insert, ("bad", 2, 5.0, bad.fact, bad.digest))
    world.one.journal.connection.execute("UPDATE conversations SET last_seq = 2 WHERE id = 'bad'")
    await world.one.step()
    await world.one.begin("other", "Other")
    await world.one.step()
    await world.two.step()
    (complaint,) = world.two.shared.complaints.values()
    assert complaint.startswith("Record 2 of the shared conversation bad cannot be read.")
    assert world.known(world.two, "other").seq == 1, "the others are not held up"
    assert world.two.journal.read_stored_facts("bad") == []


UNIT = 1_000  # The bytes of a fact are a multiple of it here.


@pytest.mark.parametrize(
    ("most", "sizes", "there", "again", "fresh", "is_whole"),
    [
        ((3, 4_096), [1] * 3, [], [], [1, 2, 3], True),
        ((3, 4_096), [1] * 7, [], [], [1, 2, 3], False),
        ((3, 4_096), [4, 1], [], [], [1], False),  # One fact that is too large goes alone.
        ((3, 4_096), [4], [], [], [1], True),
        ((3, 4_096), [1, 4, 1], [], [], [1], False),
        ((3, 4_096), [4, 1], [1], [], [2], True),
        (
            (6, 4_096),
            [1] * 6,
            [3],
            [1, 2, 3],
            [4, 5, 6],
            True,
        ),  # What is small is made anew in one,
        ((5, 4_096), [1] * 6, [3], [], [4, 5, 6], True),  # but for what would make it too large.
        ((3, 4_096), [1] * 4, [2, 1], [3], [4], True),
        ((3, 4_096), [1] * 7, [3], [], [4, 5, 6], False),
        ((99, 4), [1] * 3, [], [], [1, 2, 3], True),
        ((99, 4), [1] * 4, [], [], [1, 2, 3, 4], False),
        ((99, 4), [1] * 7, [4, 2], [5, 6], [7], True),
        ((99, 4), [1] * 6, [2, 2], [3, 4], [5, 6], True),
    ],
)
async def test_the_next_segment_holds_no_more_than_it_may(  # noqa: PLR0917 - the columns of the table
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    most: tuple[int, int],
    sizes: list[int],
    there: list[int],
    again: list[int],
    fresh: list[int],
    is_whole: bool,
) -> None:
    monkeypatch.setattr(conversation_sync, "_MOST_SEGMENT_BYTES", most[0] * UNIT)
    monkeypatch.setattr(fact_segments, "MOST_FACTS_IN_SEGMENT", most[1])
    empty = len(fact_encoding.encode_fact(UserSaid((Text("", 1),))))
    for size in sizes:
        await world.two.write("d", "x" * (size * UNIT - empty))
    stored = world.two.journal.read_stored_facts("d")
    assert [len(line.fact) for line in stored] == [size * UNIT for size in sizes]
    segments: list[FactSegment] = []
    end = 0
    for count in there:
        segments.append(FactSegment(bytes([end + count]), end + 1, end + count))
        end += count
    contents = HeadContents("d", "two", end, segments=tuple(segments))
    known = SharedProgress("d", end, contents=contents)
    made, whole = world.two.shared._build_next_segment(known)
    assert [line.seq for line in made.facts_sent_before] == again
    assert [line.seq for line in made.new_facts] == fresh
    assert whole == is_whole
    assert made.replaced_segments == tuple(one for one in segments if one.first in again)
    await world.two.step()
    await world.one.step()
    in_heads: set[bytes] = set()
    for name in ("c", "d"):
        in_heads.update(segment.name for segment in world.head(name)[1].segments)
    assert world.shelf.rows.keys() == in_heads
    assert await world.one.everything() == await world.two.everything()


async def test_the_facts_of_several_conversations_go_together_until_they_are_too_many_bytes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_sync, "_MOST_SEGMENT_BYTES", 2_000)
    names = ["a", "b", "d", "e"]
    empty = len(fact_encoding.encode_fact(UserSaid((Text("", 1),))))
    # The first one has just as many bytes as there may be.
    await world.two.write("a", "x" * (2_000 - empty))
    for name in names[1:]:
        await world.two.write(name, "x" * 1_200)
    batch = world.two.shared._build_outgoing_batch(["c"] + names)
    assert [segment.progress.conversation for segment in batch.segments] == ["a", "b"]
    assert (batch.to_send_as_whole, batch.with_more) == ([], ["d", "e"])
    await world.two.step()
    asked = ["fetch_changed_heads", "_update_heads_now", "_update_heads_now"]
    assert world.asked(world.two) == asked
    await world.one.step()
    assert await world.one.everything() == await world.two.everything()


async def test_a_conversation_changed_in_place_is_sent_whole_in_new_segments(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        await world.one.write("c", f"word {number}")
    await world.all_ends()
    old = {one.name for one in world.head()[1].segments}
    monkeypatch.setattr(fact_segments, "MOST_FACTS_IN_SEGMENT", 3)
    world.one.forget("word 2")
    count = len(world.one.journal.read_stored_facts("c"))
    world.asked(world.one)
    await world.one.step()
    assert world.segments() == [(at + 1, min(at + 3, count)) for at in range(0, count, 3)]
    assert world.head()[1].generation == 1
    assert old.isdisjoint(world.shelf.rows)
    assert world.shelf.rows.keys() == {one.name for one in world.head()[1].segments}
    asked = world.asked(world.one)
    assert asked[0] == "fetch_changed_heads"
    assert asked[1:-2] == ["store_rows"] * len(world.segments())
    assert asked[-2:] == ["_update_heads_now", "remove_rows"]
    world.two.start()  # It has forgotten who wrote.
    await world.two.step()
    assert world.two.desk.parted_ == [("c", "c")], "whoever has it open reads it anew"
    assert world.two.shared.leases.last_other_machine("c") == "one"
    assert "word 2" not in texts(world.two)
    assert await world.two.everything() == await world.one.everything()


async def test_no_segment_of_a_conversation_sent_whole_is_larger_than_it_may_be(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_sync, "_MOST_SEGMENT_BYTES", 2_000)
    for number in range(9):
        await world.one.write("c", f"word {number} " + "x" * (3_000 if number == 4 else 700))
    await world.all_ends()
    world.one.forget("word 2")
    await world.one.step()
    lines = world.one.journal.read_stored_facts("c")
    sizes = [
        [len(one.fact) for one in lines if first <= one.seq <= last]
        for first, last in world.segments()
    ]
    assert [size for size in sizes if sum(size) > 2_000 and len(size) > 1] == []
    assert sum(map(len, sizes)) == len(lines)
    await world.two.step()
    assert await world.two.everything() == await world.one.everything()


async def test_what_two_machines_wrote_at_once_is_in_a_branch_that_says_whose_it_is(
    world: World,
) -> None:
    await world.one.write("c", "one's")
    await world.two.write("c", "two's")
    await world.one.step()
    here = world.two.journal.read_stored_facts("c", 1)
    link = fact_segments.compute_chain(fact_segments.NOTHING, here)
    state = world.two.shared.sync_state
    branch = hashlib.sha256(f"c\0{state.machine.hex()}\0{link.hex()}".encode()).hexdigest()[:20]
    world.two.shared.leases.taken_over.add("c")
    await world.two.step()
    assert world.two.desk.parted_ == [("c", branch)]
    assert (texts(world.two), texts(world.two, branch)) == (["one's"], ["two's"])
    last = world.two.journal.read_recorded(branch)[-1].fact
    assert last == ConversationStarted("Work (two)", forked_from="c", forked_at=1)
    assert world.two.shared.leases.taken_over == set(), "it is the other one's again"
    assert world.two.shared.leases.find_machine_writing("c") == "one"
    await world.all_ends()
    assert await world.two.everything() == await world.one.everything()


async def write_as_worker(machine: Machine, *texts_of_agent: str) -> None:
    for text in texts_of_agent:
        machine.shared.sync_state.note_facts_of_worker("c", 1)
        await machine.append("c", UserSaid((Text(text, 1),), by="agent"))


@pytest.mark.parametrize("is_killed", [False, True])
async def test_what_a_worker_that_hung_or_died_had_not_sent_splits_no_conversation(
    world: World, *, is_killed: bool
) -> None:
    """Nothing was based on it, so it is as if the worker had been stopped just before."""
    await world.two.shared.take_over_lease("c")
    await world.two.write("c", "the task")
    await write_as_worker(world.two, "sent")
    await world.two.step()
    await world.one.step()
    await write_as_worker(world.two, "not", "sent any more")
    world.clock.time += LEASE + 1
    await world.one.shared.take_over_lease("c")
    await write_as_worker(world.one, "goes on")
    await world.one.step()
    if is_killed:
        world.two.start()
        await world.two.shared.read_known_writers()
    await world.two.step()
    assert world.two.desk.parted_ == [("c", "c")]
    assert texts(world.two) == texts(world.one) == ["the task", "sent", "goes on"]
    await world.all_ends()
    assert await world.two.everything() == await world.one.everything()


async def test_what_a_person_said_after_a_worker_died_is_kept_in_a_branch(world: World) -> None:
    await world.two.shared.take_over_lease("c")
    await world.two.write("c", "the task")
    await write_as_worker(world.two, "sent")
    await world.two.step()
    world.two.shared.sync_state.note_facts_of_worker("c", 3)  # It died before it wrote them.
    await world.two.write("c", "go on here")
    await world.one.step()
    await world.one.shared.take_over_lease("c")
    await write_as_worker(world.one, "goes on")
    await world.one.step()
    await world.two.step()
    ((_, branch),) = world.two.desk.parted_
    assert branch != "c"
    assert texts(world.two, branch) == ["the task", "sent", "go on here"]


async def test_a_conversation_removed_for_good_stays_with_the_others_and_is_shared_no_more(
    world: World,
) -> None:
    await world.one.write("c", "word")
    await world.all_ends()
    world.one.journal.delete_conversation("c")
    world.asked(world.one)
    await world.one.step()
    removal = ["fetch_changed_heads", "_update_heads_now", "remove_rows"]
    assert world.asked(world.one) == removal
    assert world.head()[1] == HeadContents("c", "one", is_removed=True)
    assert world.shelf.rows == {}
    for machine in world.both:
        await machine.step()
        await machine.step()
    assert world.asked(world.one) == ["fetch_changed_heads"] * 2, "it is removed once"
    assert (texts(world.one), texts(world.two)) == ([], ["word"])
    known = world.known(world.two)
    assert known.contents is not None
    assert (known.contents.is_removed, known.seq) == (True, 2)
    version = world.head()[0].version
    world.clock.time += LEASE + 1
    await world.two.shared.acquire_turn_lease("c")
    assert world.segments() == [(1, 2)], "who works in it shares it again, from its first fact on"
    await world.two.write("c", "more")
    await world.all_ends()
    assert (world.segments(), world.head()[0].version) == ([(1, 3)], version + 2)
    assert texts(world.one) == ["word", "more"]


async def test_a_removed_conversation_is_no_reason_to_send_anything_again(world: World) -> None:
    world.one.journal.delete_conversation("c")
    world.clock.time += LEASE + 1
    await world.one.step()
    world.heads._rows.clear()
    world.one.start()
    await world.one.step()
    known = world.known(world.one).contents
    assert known is not None
    assert known.is_removed


async def test_a_head_the_engine_lost_while_its_lease_was_renewed_is_sent_again(
    world: World,
) -> None:
    world.heads._rows.clear()
    world.clock.time += LEASE / 2 + 1
    await world.one.shared.renew_leases(["c"])
    assert world.known(world.one) == SharedProgress("c")
    assert world.one.shared._merged_versions == {}
    await world.one.step()
    assert (world.head()[0].version, world.segments()) == (1, [(1, 1)])


async def test_a_head_older_than_it_was_is_sent_again_by_a_machine_that_starts(
    world: World,
) -> None:
    old = dict(world.heads._rows)
    await world.one.write("c", "word")
    await world.one.step()
    world.heads._rows = old
    world.clock.time += LEASE + 1
    world.one.start()
    await world.one.step()
    assert world.one.shared.sync_state.count_facts_to_send() == {}
    assert world.segments() == [(1, 2)]


async def test_a_lease_whose_head_did_not_change_is_measured_again(world: World) -> None:
    """Of a machine whose clock ran ahead: the engine's says that the other one still writes."""
    world.two.shared.now = Clock(world.clock.time + LEASE + 5).now
    assert world.two.shared.leases.find_machine_writing("c") == ""
    with pytest.raises(ActionRefused):
        await world.two.shared.acquire_turn_lease("c")
    assert world.two.shared.leases.seconds_left("c") == LEASE


async def test_what_others_have_forgotten_is_learned_before_new_facts_are_merged(
    world: World,
) -> None:
    seen = list[list[str]]()

    async def learn_forgotten() -> None:
        seen.append(texts(world.two))

    world.two.shared.learn_forgotten = learn_forgotten
    await world.two.step()
    assert seen == [], "nothing is new"
    await world.one.write("c", "word")
    await world.one.step()
    await world.two.step()
    assert seen == [[]]
    assert texts(world.two) == ["word"]


@pytest.mark.parametrize("count", [1, 64, 65, 129])
async def test_every_lease_is_let_go_of_in_batches_of_64(world: World, count: int) -> None:
    world.clock.time += LEASE + 1
    names = [f"d{number:03}" for number in range(count)]
    for name in names:
        await world.one.begin(name, "Task")
    await world.one.step()
    world.asked(world.one)
    await world.one.shared.send_and_release_leases()
    assert world.asked(world.one) == ["_update_heads_now"] * -(-count // 64)
    assert world.one.shared.leases.list_held() == []
    rows = world.heads.fetch_heads([world.name(name) for name in names])
    assert [(row.version, row.lease_seconds_left) for row in rows] == [(2, 0.0)] * count


async def test_only_conversations_the_store_has_whole_are_safe(world: World) -> None:
    names = ["whole", "moved", "lacking", "waiting"]
    for name in names:
        await world.one.begin(name, "Task")
        await world.one.write(name, "word")
    await world.one.step()
    await world.one.write("waiting", "more")
    asked = conversation_sync.list_completely_stored
    wanted = ["c"] + names + ["unknown"]
    assert sorted(await asked(world.one.shared, wanted)) == ["c", "lacking", "moved", "whole"]
    row, contents = world.head("moved")
    moved = HeadUpdate(row.name, row.version, row.writer, None, 0.0)
    assert world.heads.update_heads([moved])[0][0]
    world.shelf.rows.pop(world.head("lacking")[1].segments[0].name)
    assert contents.last == 2
    assert await asked(world.one.shared, wanted) == ["c", "whole"]
    assert await asked(world.one.shared, ["whole"]) == ["whole"]
    assert await asked(world.one.shared, []) == []


async def test_nobody_has_conversations_open_unless_somebody_says_so() -> None:
    open_here = conversation_sync.OpenConversations()
    worked: list[str] = []

    async def work() -> None:
        worked.append("c")

    await open_here.append_facts_of_others("c", work)
    async with open_here.hold_for_change("c"):
        worked.append("changed")
    assert worked == ["c", "changed"]


async def test_a_machine_that_starts_again_learns_from_the_engine_who_works(world: World) -> None:
    world.two.start()
    with pytest.raises(ActionRefused) as refused:
        await world.two.shared.acquire_turn_lease("c")
    assert refused.value.what == "one is working in this conversation."
    assert world.asked(world.two) == ["fetch_heads"]
    assert world.two.shared.leases.seconds_left("c") == LEASE


async def test_a_head_that_another_machine_holds_stays_as_it_is_until_it_is_taken_over(
    world: World,
) -> None:
    known = world.known(world.two)
    assert known.contents is not None
    before = world.two.journal.connection.total_changes
    for force in (None, False):
        assert (
            await world.two.shared._update_heads([(known, known.contents)], force=force)
            == frozenset()
        )
        assert world.known(world.two) == known
    assert world.two.journal.connection.total_changes == before
    await world.two.shared.take_over_lease("c")
    assert world.head()[0].writer == world.two.shared.sync_state.machine
    assert world.two.shared.leases.taken_over == set()
    await world.one.shared.renew_leases(["c"])
    assert world.head()[0].writer == world.two.shared.sync_state.machine


async def test_a_head_of_a_standby_is_merged_though_another_head_had_its_number(
    world: World, tmp_path: Path
) -> None:
    for number in range(40):  # So many that their segment stays as it is.
        await world.one.write("c", f"text {number}")
    for machine in world.both:
        await machine.step()
    standby = world.heads.fail_over()
    await world.one.write("c", "the standby lacks this")
    for machine in world.both:
        await machine.step()
    seen = world.two.shared._merged_versions[world.name()]
    three = Machine.make(
        "three", tmp_path, Noted(MemoryRowStore(world.shelf, b"space"), standby), world.clock
    )
    world.clock.time += LEASE + 1
    await three.step()
    await three.write("c", "written on the standby")
    await three.step()
    assert [(head.version, "c") for head in standby.fetch_heads([world.name()])] == [seen], (
        "as that which it has seen"
    )
    world.two.shared.heads = standby
    await world.two.step()
    said = {
        text
        for conversation in await world.two.everything()
        for text in texts(world.two, conversation)
    }
    assert said >= {"text 39", "the standby lacks this", "written on the standby"}
    await three.aclose()
