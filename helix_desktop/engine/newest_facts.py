"""The newest messages of a long conversation, which are shown while all of it is still being read.

They are facts with their own numbers, and what is not among them is unknown. So a state that is
built from them says nothing of the conversation's tokens, costs and folds: it is only drawn.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from helix_desktop.engine import facts
from helix_desktop.engine.facts import Fact, Recorded
from helix_desktop.engine.state.fold_covers import first_and_last
from helix_desktop.engine.view import ConversationState

LEAST_FACTS = 1_000  # A shorter conversation is read as quickly as its end.
MOST_NEWEST_FACTS = 200
MOST_CHARACTERS = 200_000
# The facts at a conversation's beginning say who answers in it.
FACTS_AT_START = 20
# A conversation with very many rewinds is read as a whole.
MOST_READS = 20
# Larger numbers are not believed: each unknown fact before one takes about 100 bytes.
MOST_FACTS = 500_000
# The page that reaches the limit is the last, so a host tells fewer than two pages. Many more would
# keep the window from painting.
MOST_TOLD_FACTS = 2 * MOST_NEWEST_FACTS + FACTS_AT_START
# Reads the facts of a conversation behind a number, and at most so many.
ReadFacts = Callable[[int, int], Awaitable[Sequence[Recorded]]]

_DRAWN = (
    facts.UserSaid
    | facts.ModelReplied
    | facts.ToolReturned
    | facts.Decided
    | facts.TodoSet
    | facts.FilesChanged
    | facts.TurnEnded
    | facts.FoldFailed
    | facts.Forgotten
    | facts.Unfolded
    | facts.Refolded
    | facts.DocumentEdited
)
_SAYS_WHO_ANSWERS = facts.ConversationStarted | facts.ModelSet


async def collect_newest_facts(read_facts: ReadFacts, last_seq: int) -> tuple[Recorded, ...]:
    """Return the newest facts that are drawn, and those that say who answers, by their numbers.

    They begin with a message or a reply, so that no output lacks its call. Nothing is returned of a
    conversation that is short, or whose beginning would be reached.
    """
    if last_seq < LEAST_FACTS:
        return ()
    newest = _begin_with_message(await _read_end_of_conversation(read_facts, last_seq))
    if not newest:
        return ()
    first_facts = await read_facts(0, FACTS_AT_START)
    says_who_answers = [
        recorded for recorded in first_facts if isinstance(recorded.fact, _SAYS_WHO_ANSWERS)
    ]
    return (*says_who_answers, *_keep_what_is_drawn(newest))


async def _read_end_of_conversation(read_facts: ReadFacts, last_seq: int) -> Sequence[Recorded]:
    """Return enough facts from the last one backwards, or none if the beginning is reached.

    Where a rewind stands, the conversation goes on where it went back to.
    """
    newest_first: list[Recorded] = []
    position = last_seq
    for _ in range(MOST_READS):
        first = max(1, position - MOST_NEWEST_FACTS + 1)
        page = await read_facts(first - 1, position - first + 1)
        position = first - 1
        for recorded in reversed(page):
            if isinstance(recorded.fact, facts.Rewound):
                position = max(0, min(recorded.fact.to, recorded.seq - 1))
                break
            newest_first.append(recorded)
        if position <= FACTS_AT_START:
            return ()
        within_limit = _within_character_limit(newest_first)
        is_limit_reached = len(within_limit) < len(newest_first)
        if is_limit_reached or len(newest_first) >= MOST_NEWEST_FACTS:
            return within_limit[::-1]
    return ()


def _within_character_limit(newest_first: Sequence[Recorded]) -> Sequence[Recorded]:
    characters = 0
    for index, recorded in enumerate(newest_first):
        characters += _count_characters(recorded.fact)
        if characters > MOST_CHARACTERS:
            return newest_first[: index + 1]
    return newest_first


def _count_characters(fact: Fact) -> int:
    characters = 0
    if isinstance(fact, facts.UserSaid | facts.ModelReplied):
        for part in fact.parts:
            if isinstance(part, facts.ToolCall):
                characters += len(part.arguments)
            elif isinstance(part, facts.Text | facts.Reasoning):
                characters += len(part.text)
    elif isinstance(fact, facts.ToolReturned):
        characters += len(fact.head)
    elif isinstance(fact, facts.Folded):
        characters += len(fact.text)
    return characters


def _begin_with_message(newest: Sequence[Recorded]) -> Sequence[Recorded]:
    """Return the facts from the user's first message on, or from the first reply on if there is
    none: in a long turn.
    """
    first_reply = len(newest)
    for index, recorded in enumerate(newest):
        fact = recorded.fact
        if isinstance(fact, facts.UserSaid) and not fact.by and not fact.steering:
            return newest[index:]
        if isinstance(fact, facts.ModelReplied):
            first_reply = min(first_reply, index)
    return newest[first_reply:]


def _keep_what_is_drawn(newest: Sequence[Recorded]) -> list[Recorded]:
    """Return the facts that are drawn, without what a provider wrote to the agent alone.

    A fold of messages that are not among them is left out: it would be drawn as if it covered
    fewer.
    """
    first_seq = newest[0].seq
    drawn: list[Recorded] = []
    for recorded in newest:
        fact = recorded.fact
        if isinstance(fact, facts.ModelReplied) and fact.raw:
            drawn.append(replace(recorded, fact=replace(fact, raw="")))
            continue
        if isinstance(fact, _DRAWN | _SAYS_WHO_ANSWERS):
            drawn.append(recorded)
            continue
        if isinstance(fact, facts.Folded):
            cover = fact.cover
        elif isinstance(fact, facts.Pinned | facts.Unpinned | facts.Excluded | facts.Included):
            cover = fact.ref
        else:
            continue
        first_covered, _ = first_and_last(cover)
        if first_covered >= first_seq:
            drawn.append(recorded)
    return drawn


def build_state_of_newest_facts(newest: Sequence[Recorded]) -> ConversationState:
    """Return a state in which all facts but these are unknown. ValueError if they are too
    many, or if their numbers do not grow or are too large: they may come from another computer.
    """
    if len(newest) > MOST_TOLD_FACTS:
        raise ValueError(f"{len(newest)} newest facts are more than a host sends")
    state = ConversationState()
    for recorded in newest:
        if not state.seq < recorded.seq <= MOST_FACTS:
            raise ValueError(f"the fact {recorded.seq} cannot follow {state.seq}")
        if recorded.seq > state.seq + 1:
            state.skip_unknown_facts(recorded)
        state.advance_state(recorded)
    return state
