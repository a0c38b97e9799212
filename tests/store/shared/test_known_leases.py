"""Which machine may write where."""

from __future__ import annotations

import time

import pytest

from helix_desktop.store.shared.conversation_sync import ConversationSync
from helix_desktop.store.shared.fact_segments import HeadContents
from helix_desktop.store.shared.known_leases import KnownLeases, seconds_since_start_of_computer
from helix_desktop.store.shared.sync_state import SharedProgress

HERE = b"here"
THERE = b"there"


class Clock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def leases(clock: Clock) -> KnownLeases:
    """`mine` is written here and `theirs` on the laptop, both for ten seconds; the
    lease of `over` is over.
    """
    made = KnownLeases(HERE, clock)
    for name, writer, left in (("mine", HERE, 10.0), ("theirs", THERE, 10.0), ("over", THERE, 0.0)):
        made.set_writer_from_head(
            SharedProgress(name, writer=writer, contents=HeadContents(name, f"laptop of {name}"))
        )
        made.set_lease_end(name, left)
    return made


def test_a_lease_ends_while_the_computer_sleeps() -> None:
    """By the clock that goes on meanwhile; `time.monotonic` stands still."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now = seconds_since_start_of_computer()
    assert before <= now <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert ConversationSync.__dataclass_fields__["now"].default is seconds_since_start_of_computer


def test_another_machine_writes_until_its_lease_ends(leases: KnownLeases, clock: Clock) -> None:
    found = [leases.find_machine_writing(name) for name in ("mine", "theirs", "over", "unknown")]
    assert found == ["", "laptop of theirs", "", ""]
    assert leases.conversations_written_elsewhere() == {"theirs": "laptop of theirs"}
    clock.seconds += 9.5
    assert leases.find_machine_writing("theirs") == "laptop of theirs"
    clock.seconds += 0.5
    assert leases.find_machine_writing("theirs") == ""
    assert leases.conversations_written_elsewhere() == {}


def test_a_conversation_taken_over_is_free(leases: KnownLeases) -> None:
    leases.taken_over.add("theirs")
    assert leases.find_machine_writing("theirs") == ""
    assert leases.conversations_written_elsewhere() == {}
    assert leases.last_other_machine("theirs") == "laptop of theirs"


def test_leases_that_last_are_listed_whoever_has_them(leases: KnownLeases, clock: Clock) -> None:
    assert leases.list_held() == ["mine", "theirs"]
    clock.seconds += 9
    assert leases.list_held() == ["mine", "theirs"]
    leases.set_lease_end("mine", 5.0)
    clock.seconds += 1
    assert leases.list_held() == ["mine"]


def test_this_machine_may_write_only_for_as_long_as_its_lease_lasts(leases: KnownLeases) -> None:
    assert [leases.holds_lease("mine", seconds) for seconds in (0, 9.5, 10)] == [True, True, False]
    assert not leases.holds_lease("theirs", 0)
    assert not leases.holds_lease("unknown", -1e9)


def test_a_lease_counts_from_when_it_was_asked_for(leases: KnownLeases) -> None:
    leases.set_lease_end("mine", 10.0, asked_at=97.0)
    assert leases.seconds_left("mine") == 7.0
    leases.set_lease_end("mine", 10.0)
    assert leases.seconds_left("mine") == 10.0
    assert leases.seconds_left("unknown") == -100.0


def test_the_machine_that_wrote_last_is_named_where_it_is_another(leases: KnownLeases) -> None:
    assert [leases.last_other_machine(name) for name in ("mine", "theirs", "unknown")] == [
        "",
        "laptop of theirs",
        "",
    ]
    leases.set_writer_from_head(SharedProgress("bare", writer=THERE))
    assert leases.last_other_machine("bare") == ""
