"""The request of a recorded reply is made again, and compared with what was sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helix_desktop.engine.facts import ModelReplied
from helix_desktop.engine.rebuilt_request import matches_sent_request, rebuild_request
from helix_desktop.errors import NotFound
from tests.engine.agent import calls, says, told, world


async def test_the_request_of_each_reply_is_what_was_sent_and_the_next_is_what_comes() -> None:
    at = await world(calls("look"), says("done"), says("again"))
    await told(at)
    sent = list(at.model.requests)
    replies = [
        recorded.seq for recorded in at.session.all_facts if isinstance(recorded.fact, ModelReplied)
    ]
    history = at.session.conversation
    for seq, request in zip(replies, sent, strict=True):
        rebuilt = await rebuild_request(history, at.cache, seq)
        assert rebuilt.messages == request.messages
        assert (rebuilt.stable, rebuilt.settled) == (request.stable, request.settled)
        assert matches_sent_request(history.expected_state, seq, rebuilt)
        other = replace(rebuilt, system="You are somebody else.")
        assert not matches_sent_request(history.expected_state, seq, other)
    upcoming = await rebuild_request(history, at.cache)
    sent_before = len(sent[-1].messages)
    assert upcoming.messages[:sent_before] == sent[-1].messages
    assert "done" in str(upcoming.messages[sent_before])


@pytest.mark.parametrize("which", ["before the first", "a message", "behind the last"])
async def test_only_a_reply_has_a_request(which: str) -> None:
    at = await world(says("done"))
    await told(at)
    seqs = {"before the first": 0, "a message": 1, "behind the last": len(at.session.all_facts) + 1}
    with pytest.raises(NotFound, match=f"Record {seqs[which]} of this conversation is not a reply"):
        await rebuild_request(at.session.conversation, at.cache, seqs[which])


async def test_without_a_recorded_digest_nothing_is_known() -> None:
    at = await world(says("done"))
    await told(at)
    state = at.session.conversation.expected_state
    seq = next(one.seq for one in at.session.all_facts if isinstance(one.fact, ModelReplied))
    request = await rebuild_request(at.session.conversation, at.cache, seq)
    recorded = state.facts[seq - 1]
    assert isinstance(recorded.fact, ModelReplied)
    state.facts[seq - 1] = replace(recorded, fact=replace(recorded.fact, request=None))
    assert matches_sent_request(state, seq, request) is None
