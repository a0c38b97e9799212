"""A conversation: facts go to the disk first, all or none, in order, whoever is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from helix_desktop import concurrency
from helix_desktop.engine import conversation as conversation_module
from helix_desktop.engine.context_usage import measure_window
from helix_desktop.engine.conversation import Conversation, resolve_relative_cover
from helix_desktop.engine.facts import (
    Fact,
    Folded,
    FoldKind,
    PartRef,
    Recorded,
    Span,
    Text,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.session_events import ConversationReplaced, Event, FactAppended
from helix_desktop.engine.view import build_state
from helix_desktop.errors import NotFound, StoreFull
from helix_desktop.store.in_memory_stores import MemoryJournal
from tests.engine.talk import stored


def said(text: str) -> UserSaid:
    return UserSaid((Text(text, 1),))


class SlowJournal(MemoryJournal):
    """Writes when it is let; `full`: refuses."""

    def __init__(self) -> None:
        super().__init__(now=lambda: 1.0)
        self.gate = asyncio.Event()
        self.full = False

    async def append_to_journal(
        self, conversation: str, facts: Sequence[Fact]
    ) -> Sequence[Recorded]:
        await self.gate.wait()
        if self.full:
            raise StoreFull("The disk is full.")
        return await super().append_to_journal(conversation, facts)


async def test_listeners_are_told_in_order_after_the_state_knows() -> None:
    conversation = await Conversation.open(MemoryJournal(), "c")
    heard: list[tuple[Event, int]] = []
    conversation.listeners.append(lambda event: heard.append((event, conversation.state.seq)))
    recorded = await conversation.append_facts(said("one"), said("two"))
    assert [event for event, _ in heard] == [FactAppended(one) for one in recorded]
    assert {seq for _, seq in heard} == {2}
    assert conversation.fact_at(2) == said("two")


async def test_reopened_it_is_the_same() -> None:
    journal = MemoryJournal()
    conversation = await Conversation.open(journal, "c")
    await conversation.append_facts(said("one"), said("two"))
    again = await Conversation.open(journal, "c")
    assert again.current_view() == conversation.current_view()
    assert (await again.moment_at(1)).get_view() == (await conversation.moment_at(1)).get_view()
    assert again.current_meter().used == conversation.current_meter().used
    assert (
        measure_window((await again.moment_at(1)), again.policy).used < again.current_meter().used
    )


async def test_a_fold_and_the_output_it_covers_go_in_together() -> None:
    conversation = await Conversation.open(MemoryJournal(), "c")
    await conversation.append_facts(said("go"))
    fold = Folded("e", FoldKind.EXCERPT, PartRef(-1), "short", 2, 500)
    recorded = await conversation.append_facts(
        ToolReturned("a", stored("a"), 5), ToolReturned("b", stored("b"), 500), fold
    )
    assert isinstance(recorded[2].fact, Folded)
    assert recorded[2].fact.cover == PartRef(3)
    assert resolve_relative_cover(
        Folded("h", FoldKind.HANDOVER, Span(1, 2), "x", 1, 2), 9
    ) == Folded("h", FoldKind.HANDOVER, Span(1, 2), "x", 1, 2)


async def test_what_is_made_under_the_lock_sees_what_is_there_then() -> None:
    journal = SlowJournal()
    conversation = await Conversation.open(journal, "c")
    seen: list[int] = []

    def make(next_seq: int) -> list[Fact]:
        seen.append(next_seq)
        return [] if conversation.state.seq else [said("only if nothing is there")]

    async with asyncio.TaskGroup() as group:
        group.create_task(conversation.append_facts(said("one")))
        group.create_task(conversation.append_facts_from(make))
        journal.gate.set()
    assert seen == [2]
    assert conversation.state.seq == 1


async def test_a_caller_cancelled_while_the_disk_writes_leaves_journal_and_state_the_same() -> None:
    journal = SlowJournal()
    conversation = await Conversation.open(journal, "c")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(conversation.append_facts(said("one")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    journal.gate.set()
    await conversation.append_facts(said("two"))
    assert [r.fact for r in await journal.read_facts("c")] == [said("one"), said("two")]
    assert list(await journal.read_facts("c")) == conversation.state.facts


async def test_a_journal_that_refuses_leaves_the_state_as_it_was() -> None:
    journal = SlowJournal()
    journal.full = True
    journal.gate.set()
    conversation = await Conversation.open(journal, "c")
    with pytest.raises(StoreFull):
        await conversation.append_facts(said("one"))
    assert conversation.state.seq == 0
    journal.full = False
    await conversation.append_facts(said("one"))
    assert conversation.state.seq == 1


async def test_a_number_that_is_not_there() -> None:
    conversation = await Conversation.open(MemoryJournal(), "c")
    await conversation.append_facts(said("one"))
    for seq in (0, 2, -1):
        with pytest.raises(NotFound, match=f"no record {seq}"):
            conversation.fact_at(seq)


async def test_what_is_appended_together_is_in_the_journal_at_once_at_the_end() -> None:
    journal = MemoryJournal()
    conversation = await Conversation.open(journal, "c")
    await conversation.append_facts(said("one"))
    heard: list[Event] = []
    conversation.listeners.append(heard.append)
    async with conversation.append_together() as draft:
        for text in ("two", "three"):
            await draft.append_facts(said(text))
        assert (conversation.state.seq, len(await journal.read_facts("c")), heard) == (3, 1, [])
    recorded = await journal.read_facts("c")
    assert [each.fact for each in recorded] == [said(text) for text in ("one", "two", "three")]
    assert heard == [FactAppended(each) for each in recorded[1:]]
    assert conversation.state.facts == list(recorded)
    assert conversation.current_view().blocks == build_state(recorded).get_view().blocks
    async with conversation.append_together():
        pass
    assert conversation.state.seq == 3


async def test_facts_of_a_long_history_do_not_hold_the_texts_of_outputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation_module, "LEAST_FACTS", 2)
    journal = MemoryJournal()
    short = "exit 0"
    conversation = await Conversation.open(journal, "c")
    returned = [
        ToolReturned("1", stored("a"), 1, head="x" * 2_000),
        ToolReturned("2", stored("b"), 1, head=short),
    ]
    async with conversation.append_together() as draft:
        await draft.append_facts(*returned)
    assert [each.fact for each in await journal.read_facts("c")] == returned
    held = [each.fact for each in conversation.state.facts]
    assert held == [replace(returned[0], head=""), returned[1]]


async def test_somebody_elses_fact_stands_behind_what_is_appended_together() -> None:
    """Such as a pin of the user's, which comes while it is written."""
    journal = MemoryJournal()
    own = concurrency.OwnedTasks("c")
    conversation = await Conversation.open(journal, "c")
    async with conversation.append_together() as draft:
        await draft.append_facts(said("one"))
        pinned = own.spawn_task(conversation.append_facts(said("elsewhere")), name="elsewhere")
        await asyncio.sleep(0)
        await draft.append_facts(said("two"))
    await pinned
    assert [each.fact for each in await journal.read_facts("c")] == [
        said("one"),
        said("two"),
        said("elsewhere"),
    ]
    assert conversation.state.facts == list(await journal.read_facts("c"))


async def test_of_what_could_not_be_appended_together_nothing_stays() -> None:
    journal = SlowJournal()
    journal.gate.set()
    conversation = await Conversation.open(journal, "c")
    await conversation.append_facts(said("one"))
    heard: list[Event] = []
    conversation.listeners.append(heard.append)

    async def write(*, fails: bool) -> None:
        async with conversation.append_together() as draft:
            await draft.append_facts(said("two"))
            if fails:
                draft.fact_at(9)

    with pytest.raises(NotFound):
        await write(fails=True)
    journal.full = True
    with pytest.raises(StoreFull):
        await write(fails=False)
    journal.full = False
    assert heard == [ConversationReplaced("c"), ConversationReplaced("c")]
    assert [block.content for block in conversation.current_view().blocks] == [Text("one", 1)]
    await conversation.append_facts(said("three"))
    assert conversation.state.facts == list(await journal.read_facts("c"))
    assert [each.fact for each in conversation.state.facts] == [said("one"), said("three")]


async def test_after_any_error_of_the_journal_the_next_fact_can_be_appended() -> None:
    """Also after one that nobody foresaw: the conversation must not wait for ever."""

    class BrokenJournal(MemoryJournal):
        async def append_to_journal(
            self, conversation: str, facts: Sequence[Fact]
        ) -> Sequence[Recorded]:
            if said("broken") in facts:
                raise ValueError("nobody foresaw this")
            return await super().append_to_journal(conversation, facts)

    conversation = await Conversation.open(BrokenJournal(), "c")
    heard: list[Event] = []
    conversation.listeners.append(heard.append)
    with pytest.raises(ValueError, match="foresaw"):
        async with conversation.append_together() as draft:
            await draft.append_facts(said("broken"))
    assert heard == [ConversationReplaced("c")]
    await concurrency.wait_with_limit(conversation.append_facts(said("one")), 5)
    assert [recorded.fact for recorded in conversation.state.facts] == [said("one")]


async def test_listeners_are_told_of_a_state_that_was_read_again_after_a_failure() -> None:
    journal = MemoryJournal()
    conversation = await Conversation.open(journal, "c")
    heard: list[Event] = []
    conversation.listeners.append(heard.append)

    async def write_and_fail() -> None:
        async with conversation.block_appending():
            await journal.append_to_journal("c", [said("one")])
            raise NotFound("It failed half-way.")

    with pytest.raises(NotFound):
        await write_and_fail()
    assert conversation.state.seq == 1
    assert heard == [ConversationReplaced("c")]


async def test_what_is_appended_together_is_written_though_its_writer_is_cancelled_meanwhile() -> (
    None
):
    journal = SlowJournal()
    own = concurrency.OwnedTasks("c")
    conversation = await Conversation.open(journal, "c")

    async def write() -> None:
        async with conversation.append_together() as draft:
            await draft.append_facts(said("one"), said("two"))

    writing = own.spawn_task(write(), name="write")
    await asyncio.sleep(0)
    later = own.spawn_task(conversation.append_facts(said("three")), name="later")
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    journal.gate.set()
    await later
    assert [each.fact for each in await journal.read_facts("c")] == [
        said("one"),
        said("two"),
        said("three"),
    ]
    assert conversation.state.facts == list(await journal.read_facts("c"))
