"""Rebuilds what the model was sent for any reply, and what it will be sent next, from the facts."""

import asyncio
from dataclasses import replace
from typing import Protocol

from helix_desktop.engine import facts, request_building
from helix_desktop.engine.messages import Request, View
from helix_desktop.engine.ports import ContentReader
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.state.request_digest import digest_of_request
from helix_desktop.engine.state.token_ledger import newest_fact_seen_by
from helix_desktop.engine.view import ConversationState
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.errors import NotFound


class RebuildableHistory(Protocol):
    """A conversation whose facts are known here, wherever it is open."""

    @property
    def expected_state(self) -> ConversationState: ...
    async def moment_at(self, seq: int) -> Moment: ...


async def rebuild_request(
    history: RebuildableHistory, contents: ContentReader, seq: int | None = None
) -> Request:
    """Return the request as sent for the ModelReplied `seq`, or the next one for None."""
    state = history.expected_state
    if seq is None:
        return await _build_request_of_view(state.get_view(), contents)
    reply = _require_reply(state, seq)
    newest_seq_seen = newest_fact_seen_by(state.facts[seq - 1])
    moment = await history.moment_at(newest_seq_seen)
    request = await _build_request_of_view(moment.get_view(), contents)
    if reply.stable is None:
        return request
    return replace(request, stable=reply.stable, settled=reply.settled, room=reply.room)


def matches_sent_request(state: ConversationState, seq: int, request: Request) -> bool | None:
    """Whether the reply `seq` answered this request, by its stored digest; None without one."""
    recorded_digest = _require_reply(state, seq).request
    if recorded_digest is None:
        return None
    return digest_of_request(request) == recorded_digest


async def _build_request_of_view(view: View, contents: ContentReader) -> Request:
    shown_contents = await ViewContents(contents).read_view_contents(view)
    return await asyncio.to_thread(request_building.build_request, view, shown_contents)


def _require_reply(state: ConversationState, seq: int) -> facts.ModelReplied:
    fact: object = None
    if 1 <= seq <= len(state.facts):
        fact = state.facts[seq - 1].fact
    if not isinstance(fact, facts.ModelReplied):
        raise NotFound(f"Record {seq} of this conversation is not a reply from the model.")
    return fact
