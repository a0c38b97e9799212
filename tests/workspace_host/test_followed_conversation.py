"""What a client computes from facts, also from those of a host that lies."""

from __future__ import annotations

import random

from helix_desktop.engine import facts, session_events
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.workspace_host.followed_conversation import FollowedConversation, digest_of_view
from helix_desktop.workspace_host.host_interface import FactsAdded, HistoryReplaced, LiveState

QUESTION = PermissionQuestion(facts.ToolCall("1", "run_command", "{}"), "Run?", "ls")
STORED = facts.Stored(Digest.of_content(b"x"), 1)


def random_fact(chance: random.Random) -> facts.Fact:
    def seq() -> int:
        return chance.choice([0, 1, 2, 3, 5, 50, 10**6, 2**39])

    def ref() -> facts.PartRef:
        return facts.PartRef(seq(), seq())

    name = chance.choice(["a", "b", "marker-1", "handover-2", ""])
    kind = chance.choice(list(facts.FoldKind))
    covers: list[facts.Cover] = [facts.Span(seq(), seq()), ref()]
    cover = chance.choice(covers)
    call = facts.ToolCall(name, "ls", chance.choice(["{}", "x", "[" * 50]))
    possible: list[facts.Fact] = [
        facts.UserSaid((facts.Text("hello", 1), facts.Attachment(name, STORED))),
        facts.ModelReplied((facts.Text("hello", 1), call), name, facts.Stop.CALLS),
        facts.ToolReturned(name, STORED, seq(), images=(STORED,)),
        facts.Folded(name, kind, cover, name, seq(), seq(), entries=(STORED.digest,)),
        facts.Unfolded(name),
        facts.Refolded(name),
        facts.Pinned(ref()),
        facts.Excluded(ref()),
        facts.Rewound(seq(), again=chance.random() < 0.5),
        facts.TurnEnded(facts.TurnEnd.DONE),
        facts.TodoSet(((name, "open"),)),
        facts.DocumentEdited(name, name, seq()),
        facts.ConversationStarted(name, forked_from=name, forked_at=seq()),
    ]
    return chance.choice(possible)


def test_facts_that_refer_to_nothing_never_crash_a_client() -> None:
    chance = random.Random(74)
    for _ in range(2_000):
        client = FollowedConversation()
        for number in range(1, 12):
            recorded = facts.Recorded("c", number, 1.0, random_fact(chance))
            client.apply_event(FactsAdded((recorded,)))
        digest_of_view(client.state)
        assert client.state.seq == 11


def test_events_change_what_is_not_stored() -> None:
    client = FollowedConversation()
    asked = session_events.QuestionAsked("c", 3, QUESTION)
    queued = session_events.MessagesQueued("c", ((facts.Text("next"),),))
    activity = session_events.ConversationActivity
    client.apply_event(LiveState(activity.ASKING, "Run?", (asked,), queued, "so far"))
    assert client.has_caught_up
    assert client.questions == {3: QUESTION}
    client.apply_event(session_events.QuestionAnswered("c", 3))
    client.apply_event(session_events.ActivityChanged("c", activity.THINKING))
    client.apply_event(session_events.ReplyStreamed("c", TextDelta(" and on")))
    assert (client.questions, client.running, client.why) == ({}, activity.THINKING, "")
    assert (client.reply_text, client.queued) == ("so far and on", queued)
    reply = facts.ModelReplied((facts.Text("so far and on"),), "m", facts.Stop.END)
    client.apply_event(FactsAdded((facts.Recorded("c", 1, 1.0, reply),)))
    assert client.reply_text == ""
    client.apply_event(HistoryReplaced())
    assert (client.state.seq, client.has_caught_up) == (0, False)
