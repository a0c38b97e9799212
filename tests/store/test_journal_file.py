from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from helix_desktop.engine.facts import (
    ConversationStarted,
    Received,
    Recorded,
    Rewound,
    Text,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.errors import JournalCorrupt, NotFound, StoreFull, WrittenByNewerVersion
from helix_desktop.store.journal_file import (
    JournalFile,
    checksum_of_fact,
    find_journal_defects,
    select_received_facts,
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JournalFile]:
    opened = JournalFile(tmp_path / "journal.sqlite3", now=lambda: 1000.5)
    opened.append_all_or_nothing(
        "a", [ConversationStarted("A"), said("one"), said("two"), said("three")]
    )
    opened.append_all_or_nothing("b", [said("other")])
    yield opened
    opened.close()


def said(text: str) -> UserSaid:
    return UserSaid((Text(text),))


def test_a_short_fact_alone_writes_a_few_small_pages(journal: JournalFile) -> None:
    log = journal.path.with_name(f"{journal.path.name}-wal")
    before = log.stat().st_size
    journal.append_all_or_nothing("a", [said("four")])
    assert 0 < log.stat().st_size - before <= 6 * (512 + 24)


def test_facts_of_all_conversations_come_in_the_order_they_were_written(
    journal: JournalFile,
) -> None:
    assert [(line.conversation, line.seq) for line in journal.stored_facts_since(0, 9)] == [
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("a", 4),
        ("b", 1),
    ]
    assert [line.id for line in journal.stored_facts_since(3, 1)] == [4]
    assert (journal.last_fact_id(), len(journal.stored_facts_since(0, 100))) == (5, 5)
    assert all(line.is_intact and line.time == 1000.5 for line in journal.stored_facts_since(0, 9))


def test_a_time_without_a_fraction_damages_no_record(journal: JournalFile) -> None:
    """Another program's history may say its time as a whole number."""
    journal.append_with_times("whole", [(1_793_614_272, UserSaid((Text("Hello", 1),)))])
    (recorded,) = journal.read_recorded("whole")
    assert recorded.time == 1_793_614_272


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            "UPDATE facts SET fact = replace(fact, 'two', 'too') WHERE seq = 3",
            "Record 3 of conversation a does not match",
        ),
        ("UPDATE facts SET time = 7.0 WHERE seq = 2", "Record 2 of conversation a does not match"),
        (
            "UPDATE facts SET digest = x'00' WHERE conversation = 'a' AND seq = 1",
            "Record 1 of conversation a does not match",
        ),
        (
            "UPDATE facts SET conversation = 'x' WHERE seq = 2",
            "Record 2 of conversation a is missing",
        ),
        ("UPDATE facts SET seq = 9 WHERE seq = 4", "Record 4 of conversation a is missing"),
        ("DELETE FROM facts WHERE seq = 3", "Record 3 of conversation a is missing"),
        ("DELETE FROM facts WHERE seq = 4", "Record 4 of conversation a is missing"),
        (
            "UPDATE facts SET fact = CAST(x'ff00' AS TEXT) WHERE seq = 3",
            "Record 3 of conversation a does not match",
        ),
    ],
)
def test_what_is_not_as_it_was_is_named(journal: JournalFile, change: str, named: str) -> None:
    assert list(find_journal_defects(journal)) == []
    journal.connection.execute(change)
    with pytest.raises(JournalCorrupt, match=named):
        journal.read_recorded("a")
    assert any(
        named.partition(" does")[0].partition(" is missing")[0] in line
        or "end of conversation a" in line
        for line in find_journal_defects(journal)
    )
    assert len(journal.read_recorded("b")) == 1


def test_which_messages_an_agent_sent_is_read_without_the_rest(tmp_path: Path) -> None:
    """A gateway that was killed read all facts of all agents, 37,000 of one for a
    second, before it answered.
    """
    received = Received(("a", "b"), (1, 2), "s", "h")
    back = Rewound(1)
    with closing(JournalFile(tmp_path / "journal", now=lambda: 5.0)) as journal:
        journal.append_all_or_nothing(
            "a", [said("one"), said("two"), received, back, said("three")]
        )
        journal.append_all_or_nothing("b", [said("four"), received])
        journal.connection.execute(
            "UPDATE facts SET time = 7.0 WHERE conversation = 'a' AND seq IN (1, 2, 5)"
        )
        found = [Recorded("a", 3, 5.0, received), Recorded("a", 4, 5.0, back)]
        assert list(select_received_facts(journal, "a")) == found
        assert list(select_received_facts(journal, "c")) == []
        journal.connection.execute(
            "UPDATE facts SET time = 7.0 WHERE conversation = 'a' AND seq = 3"
        )
        with pytest.raises(JournalCorrupt, match="Record 3 of conversation a does not match"):
            select_received_facts(journal, "a")


def test_a_damaged_description_of_the_tables_is_named(journal: JournalFile) -> None:
    journal.connection.execute("ALTER TABLE facts RENAME COLUMN digest TO tigest")
    with pytest.raises(JournalCorrupt, match="conversation a's file is damaged"):
        journal.read_recorded("a")
    assert any("no such column" in line for line in find_journal_defects(journal))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE conversations SET title = 'B' WHERE id = 'a'", "conversation a"),
        ("UPDATE conversations SET id = 'z' WHERE id = 'a'", "conversation z has lost its facts"),
        ("DELETE FROM conversations WHERE id = 'b'", "conversation b"),
        ("DELETE FROM facts WHERE conversation = 'b'", "conversation b has lost its facts"),
    ],
)
def test_a_damaged_list_is_found(journal: JournalFile, change: str, named: str) -> None:
    journal.connection.execute(change)
    assert any(named in line for line in find_journal_defects(journal))


def test_a_batch_that_does_not_fit_is_not_there_at_all(journal: JournalFile) -> None:
    pages = journal.connection.execute("PRAGMA page_count").fetchone()[0]
    journal.connection.execute(f"PRAGMA max_page_count={pages + 2}")
    noise = "".join(random.Random(1).choices("abcdefgh ", k=200_000))
    with pytest.raises(StoreFull):
        journal.append_all_or_nothing("a", [said("fits"), said(noise)])
    assert len(journal.read_recorded("a")) == 4
    journal.connection.execute("PRAGMA max_page_count=100000")
    assert [
        each.seq for each in journal.append_all_or_nothing("a", [said("fits"), said(noise)])
    ] == [5, 6]
    assert list(find_journal_defects(journal)) == []


def test_ids_never_come_again(journal: JournalFile) -> None:
    assert journal.delete_conversation("b") == 1
    journal.append_all_or_nothing("c", [said("new")])
    assert journal.last_fact_id() == 6
    assert [row.id for row in journal.conversation_rows()] == ["a", "c"]


def test_a_fact_in_anothers_place_takes_its_row_along(journal: JournalFile) -> None:
    journal.replace_fact(journal.read_stored_facts("a")[0], ConversationStarted("Changed"))
    assert journal.conversation_row("a").title == "Changed"
    assert journal.read_recorded("a")[0].fact == ConversationStarted("Changed")
    assert list(find_journal_defects(journal)) == []


def test_stored_facts_go_into_another_journal_as_they_are(
    journal: JournalFile, tmp_path: Path
) -> None:
    lines = journal.stored_facts_since(0, 9)
    for name, write in (
        ("restored", JournalFile.restore_facts),
        ("inserted", JournalFile.insert_stored_facts),
    ):
        other = JournalFile(tmp_path / name)
        write(other, lines[:3])
        write(other, lines[3:])
        assert other.read_recorded("a") == journal.read_recorded("a")
        assert other.conversation_rows() == journal.conversation_rows()
        other.close()


def test_a_newer_journal_is_left_alone(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "j")
    journal.connection.execute("PRAGMA user_version=2")
    journal.close()
    with pytest.raises(WrittenByNewerVersion):
        JournalFile(tmp_path / "j")


def test_a_seal_is_over_place_time_and_text() -> None:
    seals = {
        checksum_of_fact("a", 1, 1.0, "x"),
        checksum_of_fact("b", 1, 1.0, "x"),
        checksum_of_fact("a", 2, 1.0, "x"),
        checksum_of_fact("a", 1, 2.0, "x"),
        checksum_of_fact("a", 1, 1.0, "y"),
    }
    assert len(seals) == 5


def test_a_conversation_can_go_on_from_its_very_first_fact(journal: JournalFile) -> None:
    first, started = journal.copy_conversation("a", 1, "new")
    assert first.fact == ConversationStarted("A")
    assert started.fact == ConversationStarted(forked_from="a", forked_at=1)
    assert [recorded.seq for recorded in journal.read_recorded("new")] == [1, 2]
    for last in (0, -1, 5):
        with pytest.raises(NotFound, match=f"no record {last} to fork from"):
            journal.copy_conversation("a", last, "another")


def test_what_may_be_in_a_turn_is_what_of_the_last_day_has_no_end(tmp_path: Path) -> None:
    times = iter(range(0, 10_000_000, 3_600))
    with closing(JournalFile(tmp_path / "journal.sqlite3", now=lambda: float(next(times)))) as file:
        file.append_all_or_nothing("old", [said("long ago")])
        for _ in range(30):
            file.append_all_or_nothing("other", [ConversationStarted("B")])
        file.append_all_or_nothing("ended", [said("one"), TurnEnded(TurnEnd.DONE)])
        file.append_all_or_nothing("open", [said("one"), TurnEnded(TurnEnd.DONE), said("two")])
        file.append_all_or_nothing("later", [said("one")])
        assert file.conversations_maybe_in_turn() == ("open", "later")
