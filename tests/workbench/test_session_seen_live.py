"""A file of an agent tells again what was seen live: what is new in it follows, once."""

from __future__ import annotations

import random
from dataclasses import replace

from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationStarted,
    Fact,
    Forgotten,
    ModelReplied,
    Origin,
    Purpose,
    Received,
    Recorded,
    ReplyPart,
    Rewound,
    Spent,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.histories.history_facts import FactDraft
from helix_desktop.histories.seen_twice import is_seen_live
from helix_desktop.workbench.import_decision import Append, Unchanged
from helix_desktop.workbench.session_seen_live import (
    Apart,
    ToldMessage,
    decide_for_session_seen_live,
    match_first_messages,
    told_message_from_texts,
)

PAID = Usage(1_000, output=10)
OUTPUT = Stored(Digest.of_content(b"x"), 1, 1, "text/plain")


def said(words: str) -> UserSaid:
    return UserSaid((Text(words),))


def reply(words: str, *calls: str, usage: Usage = PAID) -> ModelReplied:
    parts: list[ReplyPart] = [Text(words)]
    for call in calls:
        parts.append(ToolCall(call, "Bash", f'{{"command": "{call}"}}'))
    return ModelReplied(tuple(parts), "m", Stop.CALLS if calls else Stop.END, usage)


def result(call: str) -> ToolReturned:
    return ToolReturned(call, OUTPUT, 1)


def here(*facts: Fact, first_time: float = 100.0) -> list[Recorded]:
    begun = (ConversationStarted(agent="Claude Code"), Received((), (), "s"))
    return [
        Recorded("live", seq, first_time + seq, fact)
        for seq, fact in enumerate((*begun, *facts), 1)
    ]


def in_file(*facts: Fact, first_time: float = 102.0) -> list[FactDraft]:
    return [FactDraft(first_time + number, fact) for number, fact in enumerate(facts, 1)]


def decide(
    facts: list[Recorded], drafts: list[FactDraft], *, is_reply_under_way: bool = False
) -> Unchanged | Append | Apart:
    return decide_for_session_seen_live(facts, drafts, is_reply_under_way=is_reply_under_way)


FIRST = (said("go"), reply("I look.", "c1"), result("c1"), reply("Done."))


def test_what_is_seen_live_is_not_appended_again() -> None:
    facts = here(*FIRST)
    assert is_seen_live(facts)
    assert not is_seen_live(facts[:1])
    for count in range(2, len(FIRST) + 1):
        assert decide(facts, in_file(*FIRST[:count])) == Unchanged()


def test_what_went_on_elsewhere_is_appended_behind_it() -> None:
    more = (
        TurnEnded(TurnEnd.DONE),
        said("more"),
        reply("More.", "c2"),
        result("c2"),
        reply("End."),
    )
    decision = decide(here(*FIRST), in_file(*FIRST, *more))
    assert isinstance(decision, Append)
    assert decision.first_new == len(FIRST) + 2
    # The fold of an agent covers facts here by these numbers.
    assert [decision.places[number] for number in range(1, 6)] == [4, 4, 4, 6, 6]


def test_words_and_results_without_a_reply_come_through_the_gateway() -> None:
    assert decide(here(*FIRST), in_file(*FIRST, said("more"))) == Unchanged()
    assert decide(here(*FIRST[:2]), in_file(*FIRST[:3])) == Unchanged()


def test_nothing_is_appended_while_a_reply_is_under_way() -> None:
    facts = here(*FIRST, said("more"))
    drafts = in_file(*FIRST, said("more"), reply("A part of it"))
    assert decide(facts, drafts, is_reply_under_way=True) == Unchanged()
    decision = decide(facts, drafts)
    assert isinstance(decision, Append)
    assert decision.first_new == len(FIRST) + 2, "the words are here already"


def test_results_that_are_here_are_not_appended_with_the_reply_to_them() -> None:
    decision = decide(here(*FIRST[:3]), in_file(*FIRST))
    assert isinstance(decision, Append)
    assert decision.first_new == 4


def test_a_session_without_any_reply_here_is_appended_whole() -> None:
    decision = decide(here(said("go")), in_file(*FIRST))
    assert isinstance(decision, Append)
    assert decision.first_new == 2


def test_a_file_with_other_replies_stays_apart() -> None:
    other = in_file(said("go"), reply("No.", "c9"), result("c9"), reply("Never."))
    assert decide(here(*FIRST), other) == Apart()
    # It would have to stand before what is here.
    earlier = in_file(said("first"), reply("First."), *FIRST)
    assert decide(here(*FIRST), earlier) == Apart()
    # Here it went on in another way.
    facts = here(*FIRST, said("on"), reply("Here."))
    assert decide(facts, in_file(*FIRST, said("on"), reply("There."))) == Apart()
    # Agents write some replies themselves. Nobody misses them.
    own = reply("No response requested.", usage=Usage())
    assert decide(here(*FIRST), in_file(said("go"), own, *FIRST[1:])) == Unchanged()


def test_forgotten_text_does_not_come_back_in_a_conversation_of_its_own() -> None:
    facts = list(here(*FIRST)) + [Recorded("live", 9, 200.0, Forgotten())]
    assert decide(facts, in_file(said("first"), reply("First."), *FIRST)) == Unchanged()


def test_replies_far_apart_in_time_are_not_the_same() -> None:
    assert decide(here(*FIRST), in_file(*FIRST, first_time=9_000.0)) == Apart()
    # The agent's history was told again to the gateway, later.
    told = here(*FIRST, BroughtIn(Origin(), "", 3), said("on"), reply("Now."), first_time=5_000.0)
    assert decide(told, in_file(*FIRST, first_time=90.0)) == Unchanged()


def test_what_the_gateway_knows_from_the_agents_history_is_paid_once_by_what_the_file_says() -> (
    None
):
    untold = [
        replace(fact, usage=Usage()) if isinstance(fact, ModelReplied) else fact for fact in FIRST
    ]
    facts = here(*untold, BroughtIn(Origin(), "", 3))
    decision = decide(facts, in_file(*FIRST))
    assert isinstance(decision, Append)
    assert decision.first_new == len(FIRST) + 1
    assert [getattr(fact, "usage", None) for fact in decision.changes] == [PAID, PAID]
    noted = list(facts)
    for fact in (*decision.changes, BroughtIn(Origin("claude-code", "s"), "run", 8)):
        noted.append(Recorded("live", len(noted) + 1, 200.0, fact))
    assert decide(noted, in_file(*FIRST)) == Unchanged()
    # A reply that was paid through the gateway is never paid a second time.
    assert decide(here(*FIRST), in_file(*FIRST)) == Unchanged()
    assert any(
        isinstance(fact, Spent) and fact.purpose is Purpose.STEP for fact in decision.changes
    )


def test_a_reply_that_an_agent_tells_again_behind_its_own_summary_is_paid_once() -> None:
    facts = here(*FIRST, Rewound(5), said("summary"), reply("Done.", usage=Usage()))
    facts.append(Recorded("live", len(facts) + 1, 200.0, BroughtIn(Origin(), "", len(facts) - 1)))
    assert decide(facts, in_file(*FIRST)) == Unchanged()


def test_a_branch_that_was_left_here_is_not_missed() -> None:
    facts = here(*FIRST, Rewound(2), said("go again"), reply("Again."))
    drafts = in_file(*FIRST, said("go again"), reply("Again."), first_time=104.0)
    assert decide(facts, drafts) == Unchanged()


def told(*facts: Fact) -> list[ToldMessage]:
    messages = []
    for fact in facts:
        if isinstance(fact, ModelReplied):
            messages.append(ToldMessage(fact))
        elif isinstance(fact, ToolReturned):
            messages.append(told_message_from_texts([], [fact.call]))
        elif isinstance(fact, UserSaid):
            texts = [part.text for part in fact.parts if isinstance(part, Text)]
            messages.append(told_message_from_texts(texts, []))
    return messages


def test_a_request_that_tells_again_what_was_imported_is_recognised_message_by_message() -> None:
    facts = here(*FIRST)
    assert match_first_messages(facts, told(*FIRST, said("more"))) == (3, 4, 5, 6)
    with_reminder = said("<system-reminder>\nBe brief.\n</system-reminder>\ngo")
    assert match_first_messages(facts, told(with_reminder, *FIRST[1:])) == (3, 4, 5, 6)
    assert match_first_messages(facts, told(*FIRST[:2], said("stop"))) == (3, 4)
    waiting = here(*FIRST, said("more"))
    assert match_first_messages(waiting, told(*FIRST, said("more"))) == (3, 4, 5, 6, 7)


def test_a_request_with_another_first_reply_continues_nothing() -> None:
    assert match_first_messages(here(*FIRST), told(said("go"))) == ()
    assert match_first_messages(here(*FIRST), told(said("go"), reply("No."))) == ()
    assert match_first_messages(here(said("go")), told(*FIRST)) == ()


def test_one_message_may_stand_for_several_replies() -> None:
    facts = here(said("go"), reply("I look.", "c1"), result("c1"), reply("One."), reply("Two."))
    both = ModelReplied((Text("One."), Text("Two.")), "m", Stop.END)
    assert match_first_messages(facts, told(*FIRST[:3], both)) == (3, 4, 5, 7)


def take_in(facts: list[Recorded], drafts: list[FactDraft]) -> None:
    """Apply the decision to the facts, as an import does."""
    decision = decide(facts, drafts)
    assert not isinstance(decision, Apart)
    if isinstance(decision, Append):
        new: list[Fact] = list(decision.changes)
        new += [draft.fact for draft in drafts[decision.first_new - 1 :]]
        first = len(facts) + 1
        for fact in new + [BroughtIn(Origin("claude-code", "s"), "run", first)]:
            facts.append(Recorded("live", len(facts) + 1, facts[-1].time, fact))


def calls_of(facts: list[Recorded]) -> list[str]:
    return [
        part.id
        for recorded in facts
        if isinstance(recorded.fact, ModelReplied)
        for part in recorded.fact.parts
        if isinstance(part, ToolCall)
    ]


def tell_history(facts: list[Recorded], drafts: list[FactDraft], time: float) -> None:
    """Append what the agent's history has and nobody recorded, as the gateway does."""
    known = calls_of(facts)
    for asked, answered in zip(drafts[::2], drafts[1::2], strict=True):
        said_again = answered.fact
        assert isinstance(said_again, ModelReplied)
        if calls_of([Recorded("", 1, 0.0, said_again)])[0] not in known:
            first = len(facts) + 1
            unpaid = replace(said_again, usage=Usage())
            for fact in (asked.fact, unpaid, BroughtIn(Origin(), "", first)):
                facts.append(Recorded("live", len(facts) + 1, time, fact))


def test_whoever_saw_a_step_first_it_is_there_once_and_paid_once() -> None:
    for trial in range(200):
        _each_step_is_there_once_and_paid_once(trial)


def _each_step_is_there_once_and_paid_once(trial: int) -> None:
    """Each step is seen live, or only in the file, or told to the gateway later by the agent's
    history, which does not say what it cost. The file is read at any moment.
    """
    chance = random.Random(trial)
    facts = here()
    drafts: list[FactDraft] = []
    clock = 200.0
    steps = chance.randint(1, 9)
    for step in range(steps):
        clock += chance.uniform(1, 300)
        words = chance.choice(["Done.", f"step {step} of {trial}"])
        asked = said(f"question {step}")
        answered = reply(words, f"call-{trial}-{step}")
        if step == 0 or chance.random() < 0.6:
            tell_history(facts, drafts, clock)
            facts.append(Recorded("live", len(facts) + 1, clock, asked))
            facts.append(Recorded("live", len(facts) + 1, clock, answered))
        drafts += [FactDraft(clock - 1, asked), FactDraft(clock + 1, answered)]
        if chance.random() < 0.4:
            take_in(facts, drafts[: len(drafts) - chance.choice([0, 1])])
    take_in(facts, drafts)
    assert calls_of(facts) == [f"call-{trial}-{step}" for step in range(steps)]
    paid = [recorded.fact for recorded in facts if isinstance(recorded.fact, ModelReplied | Spent)]
    assert sum(fact.usage.input for fact in paid) == steps * PAID.input
