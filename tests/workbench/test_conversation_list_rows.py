from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationStarted,
    Fact,
    ModelReplied,
    Origin,
    Purpose,
    Spent,
    Stop,
    Text,
    TurnEnd,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.errors import JournalCorrupt
from helix_desktop.store.async_stores import StoreJournal
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.store.store_thread import StoreThread
from helix_desktop.workbench.conversation_list_rows import ConversationListRows


async def test_reading_one_row_again_takes_no_longer_with_many_conversations(
    tmp_path: Path,
) -> None:
    """Another machine continues a conversation: with 10,000 here, each time all their
    rows were read.
    """
    file = JournalFile(tmp_path / "journal.sqlite3")
    thread = StoreThread("store")
    rows = ConversationListRows(StoreJournal(file, thread, lambda: None, lambda: None))
    steps: list[int] = []
    for count in (10, 300):
        with file.in_one_transaction():
            for number in range(count):
                file.append_all_or_nothing(
                    f"{count} {number}", [ConversationStarted(f"Title {count}")]
                )
        looked: list[None] = []
        file.connection.set_progress_handler(lambda looked=looked: looked.append(None), 1)  # type: ignore[misc]
        await rows.reread_rows([f"{count} 5", "gone"])
        file.connection.set_progress_handler(None, 1)
        steps.append(len(looked))
    await thread.aclose()
    file.close()
    assert [(row.id, row.title) for row in rows] == [("10 5", "Title 10"), ("300 5", "Title 300")]
    assert steps[1] < 2 * steps[0]


def replied(cost: float) -> ModelReplied:
    return ModelReplied((Text("fine", 1),), "m", Stop.END, Usage(cost=cost))


async def test_all_rows_are_read_at_once_however_many_came_from_other_machines(
    tmp_path: Path,
) -> None:
    """Without a kept meter each conversation was read by itself: 10,000 took 3.6
    seconds at an opening.
    """
    file = JournalFile(tmp_path / "journal.sqlite3")
    thread = StoreThread("store")
    asked: list[str] = []
    run = thread.run_work

    async def count_and_run(work: Any, *arguments: Any) -> Any:
        asked.append(work.__name__)
        return await run(work, *arguments)

    thread.run_work = count_and_run  # type: ignore[method-assign, assignment]
    begun: list[Fact] = [
        ConversationStarted("T", agent="Bo"),
        UserSaid((Text("hello", 1),)),
        replied(0.5),
        TurnEnded(TurnEnd.DONE),
    ]
    with file.in_one_transaction():
        for number in range(50):
            file.append_all_or_nothing(f"c{number}", begun)
    file.append_all_or_nothing("plain", [ConversationStarted("Plain")])
    file.append_all_or_nothing(
        "brought",
        [ConversationStarted("B"), replied(4.0), BroughtIn(Origin("x"), "run", 2, cost=4.0)],
    )
    file.append_all_or_nothing("brought", [Spent(Purpose.TITLE, "m", Usage(cost=0.25))])
    file.copy_conversation("c0", 4, "fork")
    file.append_all_or_nothing("fork", [ConversationStarted("Fork's", agent="Al"), replied(0.125)])
    rows = ConversationListRows(StoreJournal(file, thread, lambda: None, lambda: None))
    await rows.read_all_rows()
    assert len(asked) <= 6
    shown = {row.id: (row.agent, row.cost) for row in rows}
    assert (shown["c7"], shown["plain"], shown["brought"]) == (("Bo", 0.5), ("", 0.0), ("", 0.25))
    assert shown["fork"][1] == 0.125
    assert rows.cost_today_and_ever() == (25.0 + 0.25 + 0.125, 25.0 + 0.25 + 0.125)
    await thread.aclose()
    file.close()


async def test_a_new_row_knows_what_its_agents_cost_without_reading_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = JournalFile(tmp_path / "journal.sqlite3")
    thread = StoreThread("store")
    file.append_all_or_nothing("top", [ConversationStarted("Top"), replied(1.0)])
    file.append_all_or_nothing(
        "child", [ConversationStarted("C", parent="top", parent_call="1"), replied(0.25)]
    )
    file.append_all_or_nothing(
        "below", [ConversationStarted("B", parent="child", parent_call="1"), replied(0.5)]
    )
    rows = ConversationListRows(StoreJournal(file, thread, lambda: None, lambda: None))

    def costs() -> dict[str, float]:
        found = {name: rows.find_row(name) for name in ("top", "child", "below")}
        return {name: row.agents_cost for name, row in found.items() if row is not None}

    with monkeypatch.context() as patch:
        patch.setattr(ConversationListRows, "__iter__", None)
        for name in ("below", "child", "top"):
            await rows.reread_rows([name])
        assert costs() == {"top": 0.75, "child": 0.5, "below": 0.0}
        rows.remove_conversation_rows(["child"])
        assert costs() == {"top": 0.0, "below": 0.0}
        await rows.reread_rows(["child"])
        assert costs() == {"top": 0.75, "child": 0.5, "below": 0.0}
        rows.remove_conversation_rows(["child", "below"])
        await rows.reread_rows(["child"])
        assert costs() == {"top": 0.25, "child": 0.0}
    await rows.read_all_rows()
    await rows.read_all_rows()
    assert costs() == {"top": 0.75, "child": 0.5, "below": 0.0}
    await thread.aclose()
    file.close()


async def test_a_turn_that_a_killed_program_left_open_is_marked_until_it_goes_on(
    tmp_path: Path,
) -> None:
    """Only who opened the conversation saw that it was interrupted."""
    file = JournalFile(tmp_path / "journal.sqlite3")
    thread = StoreThread("store")
    asked = UserSaid((Text("go", 1),))
    ended = TurnEnded(TurnEnd.DONE)
    told: dict[str, list[Fact]] = {
        "asked": [ConversationStarted("A"), asked],
        "replied": [ConversationStarted("B"), asked, replied(0.5)],
        "ended": [ConversationStarted("C"), asked, replied(0.5), ended],
        "new": [ConversationStarted("D")],
        "an agent's": [ConversationStarted("E", agent="Claude Code"), asked],
        "recorded": [ConversationStarted("F", origin=Origin("codex", "s")), asked],
    }
    for name, facts in told.items():
        file.append_all_or_nothing(name, facts)
    rows = ConversationListRows(StoreJournal(file, thread, lambda: None, lambda: None))
    await rows.read_all_rows()
    assert {row.id for row in rows if row.is_interrupted} == {"asked", "replied"}
    for fact in (replied(0.5), ended):
        (recorded,) = file.append_all_or_nothing("asked", [fact])
        rows.update_row_with_fact(recorded, None)
    assert {row.id for row in rows if row.is_interrupted} == {"replied"}
    await thread.aclose()
    file.close()


async def test_a_damaged_fact_is_told_at_once(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "journal.sqlite3")
    thread = StoreThread("store")
    file.append_all_or_nothing("c", [ConversationStarted("T"), replied(0.5)])
    told: list[str] = []
    rows = ConversationListRows(
        StoreJournal(file, thread, lambda: None, lambda: told.append("damaged"))
    )
    file.connection.execute("UPDATE facts SET fact = replace(fact, 'fine', 'fake') WHERE seq = 2")
    with pytest.raises(JournalCorrupt):
        await rows.read_all_rows()
    assert told == ["damaged"]
    await thread.aclose()
    file.close()


async def test_who_delegated_work_is_named_from_the_nearest_on_and_none_twice(
    tmp_path: Path,
) -> None:
    """Conversations of other machines may name each other as parents."""
    file = JournalFile(tmp_path / "journal.sqlite3")
    thread = StoreThread("store")
    rows = ConversationListRows(StoreJournal(file, thread, lambda: None, lambda: None))
    for name, parent in {"a": "", "b": "a", "c": "b", "d": "gone", "x": "y", "y": "x"}.items():
        file.append_all_or_nothing(name, [ConversationStarted(name, parent=parent)])
    await rows.read_all_rows()
    await thread.aclose()
    file.close()
    above = {name: rows.ids_above(name) for name in ("a", "c", "d", "x", "unknown")}
    assert above == {"a": [], "c": ["b", "a"], "d": [], "x": ["y"], "unknown": []}


async def test_a_row_that_is_told_of_an_import_counts_no_cost_of_it(tmp_path: Path) -> None:
    """Read again from the journal, it did not; told of each fact, it counted them all."""
    file = JournalFile(tmp_path / "journal.sqlite3")
    thread = StoreThread("store")
    rows = ConversationListRows(StoreJournal(file, thread, lambda: None, lambda: None))
    started = ConversationStarted("B")
    rows.add_new_row("b", started, 1.0)
    brought_in = BroughtIn(Origin("x"), "run", 3, cost=4.0)
    recorded_facts = file.append_all_or_nothing(
        "b", [started, replied(0.5), replied(4.0), brought_in]
    )
    for recorded in recorded_facts[1:]:
        rows.update_row_with_fact(recorded, None)
    told = rows.find_row("b")
    assert told is not None
    assert told.cost == pytest.approx(0.5)
    await rows.reread_rows(["b"])
    read_again = rows.find_row("b")
    assert read_again is not None
    assert read_again.cost == pytest.approx(told.cost)
    await thread.aclose()
    file.close()


async def test_rows_stand_in_the_order_of_use_although_the_clock_was_set(tmp_path: Path) -> None:
    """What was used while the clock was a year ahead stood above everything for a year."""
    now = time.time()
    moment = [now - 500]
    file = JournalFile(tmp_path / "journal.sqlite3", now=lambda: moment[0])
    thread = StoreThread("store")
    journal = StoreJournal(file, thread, lambda: None, lambda: None)
    for name, said_time in (
        ("first", now - 500),
        ("ahead", now + 31_557_600),
        ("then", now - 400),
        ("behind", 12.0),
        ("last", now - 300),
    ):
        moment[0] = said_time
        file.append_all_or_nothing(name, [ConversationStarted(name)])
    imported = ConversationStarted("imported", origin=Origin("codex", "s"))
    brought_in = BroughtIn(Origin("codex", "s"), "run", 2)
    old_facts: list[tuple[float, Fact]] = [(now - 1e8, imported), (now - 1e8, brought_in)]
    file.append_with_times("imported", old_facts)
    rows = ConversationListRows(journal)
    await rows.read_all_rows()

    def listed() -> list[str]:
        return [row.id for row in sorted(rows, key=lambda row: row.updated)]

    assert listed() == ["imported", "first", "ahead", "then", "behind", "last"]
    moment[0] = now - 31_557_600  # It is set back, and what is used then comes on top.
    (recorded,) = file.append_all_or_nothing("then", [replied(0.5)])
    rows.update_row_with_fact(recorded, None)
    assert listed() == ["imported", "first", "ahead", "behind", "last", "then"]
    await rows.read_all_rows()
    assert listed() == ["imported", "first", "ahead", "behind", "last", "then"]
    await thread.aclose()
    file.close()
