"""The end of a long conversation is the end that the whole conversation has."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import pytest

from helix_desktop.engine import newest_facts
from helix_desktop.engine.facts import (
    ConversationStarted,
    FoldKind,
    PartRef,
    Received,
    Recorded,
    Rewound,
    Span,
    SystemSet,
    TurnEnd,
    TurnEnded,
)
from helix_desktop.engine.newest_facts import (
    LEAST_FACTS,
    MOST_FACTS,
    build_state_of_newest_facts,
    collect_newest_facts,
)
from helix_desktop.engine.view import ConversationState
from tests.engine.talk import Talk


async def collected(state: ConversationState) -> Sequence[Recorded]:
    async def read_facts(after: int, limit: int) -> Sequence[Recorded]:
        return state.facts[after : after + limit]

    return await collect_newest_facts(read_facts, state.seq)


def grown(chance: random.Random, least: int) -> Talk:
    """A conversation with calls, folds and rewinds, of which some go back far."""
    talk = Talk()
    talk.add(ConversationStarted(title="Grown"))
    while talk.state.seq < least:
        talk.user(f"words {talk.state.seq}")
        for _ in range(chance.randrange(6)):
            seq = talk.step(f"c{talk.state.seq}")
            if chance.random() < 0.2:
                talk.fold(f"excerpt-{seq}", PartRef(seq), kind=FoldKind.EXCERPT)
        talk.reply(f"answer {talk.state.seq}")
        talk.add(TurnEnded(TurnEnd.DONE))
        talk.add(Received((), ()))
        if chance.random() < 0.05:
            back = chance.choice([3, 30, 300])
            talk.add(Rewound(max(1, talk.state.seq - back)))
        if chance.random() < 0.05:
            last = talk.state.branch.order[-1]
            first = talk.state.branch.order[max(0, len(talk.state.branch.order) - 30)]
            talk.fold(f"handover-{last}", Span(first, last))
    return talk


@pytest.mark.parametrize("seed", range(6))
async def test_the_newest_messages_are_those_that_the_whole_conversation_ends_with(
    seed: int,
) -> None:
    talk = grown(random.Random(seed), 1_500)
    newest = await collected(talk.state)
    assert newest
    state = build_state_of_newest_facts(newest)
    order = list(state.branch.order)
    assert len(order) > 20
    assert order == list(talk.state.branch.order)[-len(order) :]
    for seq in order:
        assert state.facts[seq - 1] == talk.facts[seq - 1]
    # No output stands without its call, and none with another one.
    for seq in order:
        if seq in talk.state.record.answered:
            assert state.record.answered[seq] == talk.state.record.answered[seq]
    assert state.title == "Grown"


async def test_what_is_not_known_is_taken_for_nothing_and_not_for_another_fact() -> None:
    talk = Talk()
    talk.add(ConversationStarted(title="Long"))
    talk.add(SystemSet("be good", 2))
    while talk.state.seq < LEAST_FACTS:
        talk.user("words")
        talk.reply("an answer")
    state = build_state_of_newest_facts(await collected(talk.state))
    assert state.has_unknown_facts
    assert len(state.facts) == state.seq
    assert state.seq == talk.state.seq
    first_known = state.branch.order[0]
    for recorded in state.facts[1 : first_known - 1]:
        assert recorded.seq == 0
    assert [block.source for block in state.get_view().blocks] == [
        PartRef(seq, 0) for seq in state.branch.order
    ]


async def test_a_fold_of_messages_that_are_not_known_is_left_out() -> None:
    talk = grown(random.Random(1), 1_200)
    middle = talk.state.branch.order[len(talk.state.branch.order) // 2]
    talk.fold("handover-of-half", Span(talk.state.branch.order[0], middle), tokens=1)
    assert talk.state.find_fold("handover-of-half") is not None
    state = build_state_of_newest_facts(await collected(talk.state))
    assert state.find_fold("handover-of-half") is None


async def test_a_short_conversation_is_read_as_a_whole() -> None:
    talk = grown(random.Random(2), LEAST_FACTS // 2)
    assert await collected(talk.state) == ()


async def test_a_conversation_that_went_back_to_its_beginning_is_read_as_a_whole() -> None:
    talk = grown(random.Random(3), 1_200)
    talk.add(Rewound(3))
    talk.user("once more")
    assert await collected(talk.state) == ()


async def test_few_long_messages_are_enough() -> None:
    talk = grown(random.Random(4), 1_200)
    for _ in range(10):
        talk.user("w" * (newest_facts.MOST_CHARACTERS // 3))
        talk.reply("short")
    state = build_state_of_newest_facts(await collected(talk.state))
    assert 2 < len(state.branch.order) < 10


async def test_numbers_that_no_journal_has_are_refused() -> None:
    talk = grown(random.Random(5), 1_200)
    newest = list(await collected(talk.state))
    with pytest.raises(ValueError):
        build_state_of_newest_facts([*newest, newest[-1]])
    with pytest.raises(ValueError):
        build_state_of_newest_facts([Recorded("talk", 1 << 60, 1.0, newest[-1].fact)])
    with pytest.raises(ValueError):
        build_state_of_newest_facts([Recorded("talk", 0, 1.0, newest[-1].fact)])


async def test_a_large_number_from_another_computer_takes_little_memory() -> None:
    talk = grown(random.Random(5), 1_200)
    newest = await collected(talk.state)
    tracemalloc.start()
    try:
        build_state_of_newest_facts([Recorded("talk", MOST_FACTS, 1.0, newest[-1].fact)])
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100 << 20


async def test_more_newest_facts_than_a_host_reads_are_refused() -> None:
    fact = grown(random.Random(5), 1_200).state.record.facts[-1].fact
    told = [Recorded("talk", seq, 1.0, fact) for seq in range(1, 2_000)]
    with pytest.raises(ValueError):
        build_state_of_newest_facts(told)


def test_facts_without_a_gap_leave_nothing_unknown() -> None:
    talk = Talk()
    talk.add(ConversationStarted(title="Whole"))
    talk.user("words")
    talk.reply("an answer")
    assert not build_state_of_newest_facts(talk.facts).has_unknown_facts
    assert build_state_of_newest_facts(talk.facts[1:]).has_unknown_facts
