from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Stored, Text, ToolReturned, UserSaid
from helix_desktop.engine.view import build_state
from helix_desktop.errors import SharedStoreUnreachable
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.store.shared import conversation_sync
from helix_desktop.store.shared.conversation_heads import ConversationHead, HeadMark, HeadUpdate
from helix_desktop.store.shared.postgres_heads import PostgresHeads
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.sync_state import SyncState
from tests.peers import postgres
from tests.store.shared.machines import KEY, LEASE, Clock, Machine, P, T, Way
from tests.store.shared.memory_rows import MemoryHeads, MemoryRowStore, MemoryServer


class Machines(RuleBasedStateMachine):
    """Two or three of them write, are cut off, take over, are killed and come late: no fact is lost, and at the end all have the same."""

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
            self.machines.append(Machine.make(f"machine {number}", Path(self.folder.name), self._way(), self.clock))
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

    @rule(which=st.integers(0, 2), number=st.integers(0, 2), count=st.sampled_from([1, 1, 1, 3, 40]))
    def write(self, which: int, number: int, count: int) -> None:
        """Where it is here; also where another machine has the lease, as a machine does that has been cut off."""
        machine, conversation = self._machine(number), self._conversation(which)
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
        machine.way.left, machine.way.answer_lost = after, lost
        self.run(machine.step())

    @rule(number=st.integers(0, 2))
    def mend(self, number: int) -> None:
        self._machine(number).way.left = None

    @rule(number=st.integers(0, 2))
    def kill(self, number: int) -> None:
        machine = self._machine(number)
        machine.start()
        self.run(machine.shared.load_known_writers())

    @rule(which=st.integers(0, 2), number=st.integers(0, 2))
    def take_over(self, which: int, number: int) -> None:
        machine, conversation = self._machine(number), self._conversation(which)
        if machine.way.left is None and conversation not in machine.desk.working:
            self.run(machine.shared.take_over_lease(conversation))
            assert machine.shared.leases.find_machine_writing(conversation) == ""

    @rule(which=st.integers(0, 2), number=st.integers(0, 2), at=st.integers(2, 20))
    def forget(self, which: int, number: int, at: int) -> None:
        """A message is blanked in place, as forgetting does, and a mark is left."""
        machine, conversation = self._machine(number), self._conversation(which)
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
        """A conversation with the facts of another: also with those that were forgotten elsewhere meanwhile."""
        machine, conversation = self._machine(number), self._conversation(which)
        if len(machine.journal.read_stored_facts(conversation, 0, at)) == at:
            self.forks += 1
            machine.journal.copy_conversation(conversation, at, f"fork {self.forks}")

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
                found for lines in there.values() for _, _, fact in lines for found in re.findall(r'"(text \d+)"', fact)
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
        for _ in range(3 + 2 * len(self.machines)):
            self.clock.time += LEASE + 1
            for machine in self.machines:
                assert self.run(machine.step())
        first, *others = [self.run(machine.everything()) for machine in self.machines]
        for other in others:
            assert other == first
        assert set(self.texts) <= set(re.findall(r'"(text \d+)"', repr(first)))
        self.nothing_is_lost_where_it_was_written()
        for machine in self.machines:
            assert machine.shared.complaints == {}
            assert machine.shared.sync_state.count_facts_to_send() == {}
            assert list(machine.journal.find_damage()) == []
        for conversation in first:
            views = [build_state(self.machines[0].journal.read_recorded(conversation)).take_view()]
            views += [
                build_state(machine.journal.read_recorded(conversation)).take_view() for machine in self.machines[1:]
            ]
            assert all(view == views[0] for view in views)
        event(f"branches: {min(4, sum(len(machine.desk.parted_) for machine in self.machines))}")
        assert not self.forgotten & set(re.findall(r'"(text \d+)"', repr(first)))
        parted = sum(len(machine.desk.parted_) for machine in self.machines)
        assert len(first) == self.begun + self.forks + parted


Machines.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestMachines = Machines.TestCase


async def test_a_fork_made_before_a_forgetting_was_heard_of_brings_nothing_back(tmp_path: Path) -> None:
    clock = Clock()
    heads, shelf = MemoryHeads(clock.now), MemoryServer(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [Machine.make(name, tmp_path, way, clock) for name, way in zip(("one", "two"), ways, strict=True)]
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


def test_a_fact_that_quotes_a_forgotten_entry_is_taken_in_without_the_quotation(tmp_path: Path) -> None:
    gone, stays = (Stored(Digest.of_content(content), len(content)) for content in (b"swordfish", b"cod"))
    one, two = JournalFile(tmp_path / "one.sqlite3"), JournalFile(tmp_path / "two.sqlite3")
    one.append_in_transaction(
        "c", [ToolReturned(str(each), each, 1, head=head) for each, head in ((gone, "swordfish"), (stays, "cod"))]
    )
    lines = SyncState(two, RowCipher(KEY), lambda digest: digest == gone.digest).blank_forgotten_facts(
        one.read_stored_facts("c")
    )
    facts = [line.decode_recorded().fact for line in lines]
    assert [fact.head for fact in facts if isinstance(fact, ToolReturned)] == ["", "cod"]
    one.close()
    two.close()


async def test_two_machines_that_forgot_different_words_of_one_message_bring_back_neither(tmp_path: Path) -> None:
    clock = Clock()
    heads, shelf = MemoryHeads(clock.now), MemoryServer(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [Machine.make(name, tmp_path, way, clock) for name, way in zip(("one", "two"), ways, strict=True)]
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


async def test_heads_that_were_lost_are_sent_again_when_the_workspace_is_opened(tmp_path: Path) -> None:
    clock = Clock()
    shelf = MemoryServer(clock.now)
    one, two = [
        Machine.make(name, tmp_path, Way(MemoryRowStore(shelf, b"space"), MemoryHeads(clock.now)), clock)
        for name in ("one", "two")
    ]
    await one.begin("c", "Lost")
    await one.write("c", "word")
    await one.step()
    two.way.heads = one.way.heads = left = MemoryHeads(clock.now)
    for version in range(5):  # the engine's count of changes goes on
        assert left.update_head(HeadUpdate(b"another", version, b"somebody", b"", 0.0))[0]
    for machine in (one, two):
        machine.start()
        await machine.step()
    assert await two.everything() == await one.everything()
    for machine in (one, two):
        await machine.aclose()


async def two_machines(folder: Path) -> tuple[Machine, Machine, MemoryHeads]:
    """Both have the conversation c, and the first one works in it."""
    clock, shelf = Clock(), MemoryServer()
    heads = MemoryHeads(clock.now)
    one, two = [
        Machine.make(name, folder, Way(MemoryRowStore(shelf, b"space"), heads), clock) for name in ("one", "two")
    ]
    await one.begin("c", "Work")
    for machine in (one, two):
        await machine.step()
    one.desk.working.add("c")
    return one, two, heads


async def test_an_answer_that_was_lost_holds_up_nobody_who_works(tmp_path: Path) -> None:
    """The head had moved, and a turn that was going on never learned that it was its own machine's doing."""
    one, two, _ = await two_machines(tmp_path)
    await one.write("c", "before the call")
    one.way.left, one.way.answer_lost = 2, True
    assert not await one.step()
    one.way.left = None
    assert await one.step()
    assert one.shared.sync_state.count_facts_to_send() == {}
    assert await two.step()
    assert await two.everything() == await one.everything()
    for machine in (one, two):
        await machine.aclose()


async def test_what_a_standby_that_took_over_lacks_is_sent_again_by_who_works(tmp_path: Path) -> None:
    """A standby may lack what was confirmed last. Others had changed so much since that its count of changes went on."""
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
        await two.begin(f"other {number}", "Other")
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
    asked, fetch = list[int](), two.shared.heads.fetch_changed_heads

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
    clock, shelf = Clock(), MemoryServer()
    heads = MemoryHeads(clock.now)
    ways = [Counted(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [Machine.make(name, tmp_path, way, clock) for name, way in zip(("one", "two"), ways, strict=True)]
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
    clock, shelf = Clock(), MemoryServer()
    heads = MemoryHeads(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [Machine.make(name, tmp_path, way, clock) for name, way in zip(("one", "two"), ways, strict=True)]
    await one.write("c", "word")
    await one.step()
    await two.step()
    two.start()
    assert two.shared.sync_state.read_mark()[1] > 0
    for machine in (one, two):
        await machine.aclose()


async def test_looking_where_nothing_is_new_writes_nothing_to_the_disk(tmp_path: Path) -> None:
    """The engine's mark moves with every transaction of anybody: an idle workspace wrote it down every second."""
    clock, shelf = Clock(), MemoryServer()
    heads = MemoryHeads(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [Machine.make(name, tmp_path, way, clock) for name, way in zip(("one", "two"), ways, strict=True)]
    await one.step()
    await one.write("c", "word")
    await one.step()
    await two.step()
    for machine in (one, two):
        before = machine.journal.connection.total_changes
        await machine.step()
        assert machine.journal.connection.total_changes == before
    one.start()  # again, from an older mark
    await one.shared.load_known_writers()
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


async def test_a_conversation_of_many_facts_is_sent_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_sync, "_BYTES", 2_000)
    clock, shelf = Clock(), MemoryServer()
    heads = MemoryHeads(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [Machine.make(name, tmp_path, way, clock) for name, way in zip(("one", "two"), ways, strict=True)]
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
async def test_a_clock_an_hour_off_changes_neither_order_nor_who_writes(tmp_path: Path, off: float) -> None:
    clock, wrong = Clock(10_000.0), Clock(10_000.0 + off)
    heads, shelf = MemoryHeads(clock.now), MemoryServer(clock.now)  # the lease is on the engine's clock
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
        Machine.make(name, tmp_path, way, own) for name, way, own in zip(("one", "two"), ways, clocks, strict=True)
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
    clock, shelf = Clock(), MemoryServer()
    heads = MemoryHeads(clock.now)
    ways = [Way(MemoryRowStore(shelf, b"space"), heads) for _ in range(2)]
    one, two = [Machine.make(name, tmp_path, way, clock) for name, way in zip(("one", "two"), ways, strict=True)]
    await one.write("c", "word")
    await one.step()
    await two.step()
    assert (
        one.shared.leases.find_machine_writing("c"),
        one.shared.leases.last_other_machine("c"),
        one.shared.leases.conversations_written_elsewhere(),
    ) == ("", "", {})
    assert (two.shared.leases.find_machine_writing("c"), two.shared.leases.last_other_machine("c")) == ("one", "one")
    assert (two.shared.leases.conversations_written_elsewhere(), two.shared.leases.find_machine_writing("unknown")) == (
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
    assert (two.shared.leases.find_machine_writing("c"), two.shared.leases.last_other_machine("c")) == ("", "one")
    for machine in (one, two):
        await machine.aclose()


async def test_a_lease_is_renewed_where_somebody_works_when_less_than_half_of_it_is_left(tmp_path: Path) -> None:
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
    assert one.shared.leases.find_machine_writing("c") == "two", "what another one took over is not taken back"
    for machine in (one, two):
        await machine.aclose()


async def test_while_facts_are_changed_in_place_the_shared_store_is_not_asked(tmp_path: Path) -> None:
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
