"""Tells which requests are beside a conversation, such as for a title or a choice of model,
and records what they cost in the conversation of their session.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_identity import AGENTS_WITH_TOOLS
from helix_desktop.gateway.conversations_port import AgentConversations, Replied, Ticket
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.gateway.request_parsing import SIDE_REQUEST_BYTES, ParsedRequest
from helix_desktop.protocols.gateway_message import PieceKind, Speaker, Wired

MOST_WAITING = 64  # Replies to requests that came before their conversation began.


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """Whose request it was: the agent, its name for the session, and where it is recorded."""

    agent: str
    session: str
    room: AgentConversations


@dataclass(frozen=True, slots=True)
class SideReply:
    origin: RequestOrigin
    ticket: Ticket
    replied: Replied | None


@dataclass(frozen=True, slots=True, eq=False)
class SideReplyRecorder:
    """Stands in for the conversations, for the reply to a side request."""

    find_conversation: Callable[[], str]
    origin: RequestOrigin
    waiting: deque[SideReply]

    async def record_agent_reply(
        self, ticket: Ticket, replied: Replied | None, _shown_key: str
    ) -> None:
        conversation = self.find_conversation()
        if conversation:
            ticket = replace(ticket, conversation=conversation)
            await self.origin.room.record_agent_reply(ticket, replied, "")
        else:
            self.waiting.append(SideReply(self.origin, ticket, replied))


class SideRequests:
    def __init__(self) -> None:
        self.waiting: deque[SideReply] = deque(maxlen=MOST_WAITING)
        self._senders_with_tools: set[tuple[str, str]] = set()

    async def is_side_request(
        self, request: ParsedRequest, registration: GatewayRegistration, room: AgentConversations
    ) -> bool:
        """Whether a request has no part in a conversation. One that offers tools always has."""
        arrival = request.arrival
        sender = (registration.token, arrival.agent)
        if arrival.tools:
            self._senders_with_tools.add(sender)
            return False
        if request.messages_after_instructions[0].speaker is Speaker.ASSISTANT:
            return True
        works_with_tools = arrival.agent in AGENTS_WITH_TOOLS or sender in self._senders_with_tools
        if not works_with_tools and registration.agent:
            return False  # An agent without tools, such as aider: all of its requests are its work.
        if len(request.body.places.content) < SIDE_REQUEST_BYTES:
            return True
        # Gemini CLI's choice of a model has the whole history in it, and begins like nothing else.
        return works_with_tools and not await room.count_known_messages(arrival)

    def record_waiting(self, origin: RequestOrigin, conversation: str, tasks: OwnedTasks) -> None:
        """Record the replies that waited for this conversation's next request."""
        for reply in list(self.waiting):
            if reply.origin == origin:
                self.waiting.remove(reply)
                ticket = replace(reply.ticket, conversation=conversation)
                recording = origin.room.record_agent_reply(ticket, reply.replied, "")
                tasks.spawn_task(recording, name="record a side reply")


def name_run_as_session(request: ParsedRequest, registration: GatewayRegistration) -> ParsedRequest:
    """Return a request of an agent without tools with its run as its session.

    aider puts the files that it works on behind the words of before, in each request anew:
    no request begins like the one before.
    """
    if request.arrival.session or request.arrival.tools or not registration.agent:
        return request
    arrival = replace(request.arrival, session=registration.run_name)
    return replace(request, arrival=arrival)


def origin_of_request(request: ParsedRequest, room: AgentConversations) -> RequestOrigin:
    return RequestOrigin(request.arrival.agent, request.arrival.session, room)


def is_about_same_words(side: ParsedRequest, step: ParsedRequest) -> bool:
    """Whether a side request asks about something that the user said in a conversation's step."""
    asked = "\n".join(_user_texts(side.messages_after_instructions[-1:]))
    for text in _user_texts(step.messages_after_instructions):
        if text in asked or (asked and asked in text):
            return True
    return False


def _user_texts(messages: Sequence[Wired]) -> Iterator[str]:
    for message in messages:
        if message.speaker is Speaker.USER:
            for piece in message.pieces_of_kind(PieceKind.TEXT):
                if piece.text.strip():
                    yield piece.text.strip()
