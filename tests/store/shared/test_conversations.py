from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from helix_desktop.engine.facts import Forgotten, Text, UserSaid
from helix_desktop.engine.view import state_of
from helix_desktop.store.shared.heads import Memory
from helix_desktop.store.shared.memory import MemoryEngine, Shelf
from tests.store.shared.machines import LEASE, Clock, Machine, Way


class Machines(RuleBasedStateMachine):
    """Two or three of them write, are cut off, take over, are killed and come late: no fact is lost, and at the end all have the same."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.heads = Memory(self.clock.now)
        self.shelf = Shelf(self.clock.now)
        self.machines: list[Machine] = []
        self.texts: dict[str, int] = {}  # what was written, and by which machine
        self.begun = 0
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
        return Way(MemoryEngine(self.shelf, b"space"), self.heads)

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
        if not machine.journal.lines(conversation, 0, 1):
            return
        self.clock.time += 0.001
        for _ in range(count):
            text = f"text {len(self.texts)}"
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
        self.run(machine.shared.begin())

    @rule(which=st.integers(0, 2), number=st.integers(0, 2))
    def take_over(self, which: int, number: int) -> None:
        machine, conversation = self._machine(number), self._conversation(which)
        if machine.way.left is None:
            self.run(machine.shared.take_over(conversation))
            assert machine.shared.elsewhere(conversation) == ""

    @rule(which=st.integers(0, 2), number=st.integers(0, 2), at=st.integers(2, 20))
    def forget(self, which: int, number: int, at: int) -> None:
        """A message is blanked in place, as forgetting does, and a mark is left."""
        machine, conversation = self._machine(number), self._conversation(which)
        line = next(iter(machine.journal.lines(conversation, at - 1, 1)), None)
        if line is None or not isinstance(said := line.recorded().fact, UserSaid):
            return
        for part in said.parts:
            if isinstance(part, Text):
                self.texts.pop(part.text, None)
                self.forgotten.add(part.text)
        machine.journal.replace(line, UserSaid((Text("forgotten", 1),)))
        self.run(machine.append(conversation, Forgotten((), 1, "forgotten at the user's wish")))
        machine.shared.steps.rewritten([conversation])

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
            assert machine.shared.steps.waiting() == {}
            assert list(machine.journal.damage()) == []
        for conversation in first:
            views = [state_of(self.machines[0].journal.read(conversation)).view()]
            views += [state_of(machine.journal.read(conversation)).view() for machine in self.machines[1:]]
            assert all(view == views[0] for view in views)
        event(f"branches: {min(4, sum(len(machine.desk.parted_) for machine in self.machines))}")
        if all(not machine.desk.parted_ for machine in self.machines):
            assert not self.forgotten & set(re.findall(r'"(text \d+)"', repr(first)))
        parted = sum(len(machine.desk.parted_) for machine in self.machines)
        assert len(first) == self.begun + parted


Machines.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestMachines = Machines.TestCase
