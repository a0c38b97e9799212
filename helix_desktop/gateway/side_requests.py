"""Tells which requests are beside a conversation, such as for a title or a choice of model,
and records what they cost in the conversation of their session.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_identity import AGENTS_WITH_TOOLS
from helix_desktop.gateway.conversations_port import AgentConversations, Replied, Ticket
from helix_desktop.gateway.history_summarized_by_agent import asks_for_summary
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.gateway.request_parsing import SIDE_REQUEST_BYTES, ParsedRequest
from helix_desktop.protocols.gateway_message import PieceKind, ProtocolMessage, Speaker

MOST_WAITING = 64  # Replies to requests that came before their conversation began.


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """Whose request it was: the agent, its name for the session, and where it is recorded."""

    agent: str
    session: str
    conversations: AgentConversations


RememberConversation = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class SideReply:
    """A reply to a side request that came before its conversation began. `token`: of its agent's
    registration.
    """

    origin: RequestOrigin
    ticket: Ticket
    replied: Replied | None
    token: str


@dataclass(frozen=True, slots=True, eq=False)
class SideReplyRecorder:
    """Stands in for the conversations, for the reply to a side request.

    The reply is recorded in the conversation that `find_conversation` names, or in the one that an
    earlier gateway recorded of its session, or of what is said in its `text`: opencode's server is
    told to shorten a session of which nothing else may be asked then. If there is none yet, it waits
    for the session's next request.
    """

    find_conversation: Callable[[], str]
    origin: RequestOrigin
    waiting: deque[SideReply]
    token: str
    remember_conversation: RememberConversation
    text: str = ""

    async def record_agent_reply(
        self, ticket: Ticket, replied: Replied | None, _shown_key: str
    ) -> None:
        conversation = self.find_conversation()
        if not conversation:
            conversation = await self._find_recorded_conversation()
            if conversation:
                self.remember_conversation(conversation)
        if not conversation:
            self.waiting.append(SideReply(self.origin, ticket, replied, self.token))
            return
        own_ticket = replace(ticket, conversation=conversation)
        await self.origin.conversations.record_agent_reply(own_ticket, replied, "")

    async def _find_recorded_conversation(self) -> str:
        with suppress(HelixError):  # A window of an earlier version cannot answer this.
            return await self.origin.conversations.find_conversation_asked_about(
                self.origin.agent, self.origin.session, self.text
            )
        return ""


class SideRequests:
    """Knows which agents work with tools, and the replies that wait for their conversation.

    An agent that works with tools offers them with each step of its work. What it asks without
    them is beside that work.
    """

    def __init__(self) -> None:
        self.waiting: deque[SideReply] = deque(maxlen=MOST_WAITING)
        self._senders_with_tools: set[tuple[str, str]] = set()

    async def is_side_request(
        self,
        request: ParsedRequest,
        registration: GatewayRegistration,
        conversations: AgentConversations,
    ) -> bool:
        """Whether a request has no part in a conversation, such as one for a title.

        One that offers tools always has. Without tools it has, if its agent never uses any.
        """
        arrival = request.arrival
        sender = (registration.token, arrival.agent)
        if arrival.tools:
            self._senders_with_tools.add(sender)
            return False
        first_message = request.messages_after_instructions[0]
        if first_message.speaker is Speaker.ASSISTANT:
            return True
        works_with_tools = self._works_with_tools(arrival.agent, registration)
        if not works_with_tools and registration.agent:
            return False  # An agent without tools, such as aider: all of its requests are its work.
        is_small = len(request.body.places.content) < SIDE_REQUEST_BYTES
        # A summary is asked for as its conversation shows its messages, and paid for there.
        is_for_summary = asks_for_summary(request.messages_after_instructions)
        if is_small and not (works_with_tools and is_for_summary):
            return True
        if not works_with_tools:
            return False
        # Gemini CLI's choice of a model has the whole history in it, and begins like nothing else.
        known_count = await conversations.count_known_messages(arrival)
        return known_count == 0

    def _works_with_tools(self, agent: str, registration: GatewayRegistration) -> bool:
        return agent in AGENTS_WITH_TOOLS or (registration.token, agent) in self._senders_with_tools

    def name_run_as_session(
        self, request: ParsedRequest, registration: GatewayRegistration
    ) -> ParsedRequest:
        """Return a request of an agent without tools with its run as its session.

        aider sends the files that it works on anew in each request, behind the earlier messages. So
        no request begins like the one before, and its conversation could not be found by its words.
        """
        arrival = request.arrival
        if arrival.session or arrival.tools or not registration.agent:
            return request
        if self._works_with_tools(arrival.agent, registration):
            return request  # It asks for a summary of its conversation.
        return replace(request, arrival=replace(arrival, session=registration.run_name))

    def count_waiting(self, token: str) -> int:
        """Return how many requests of a registration were answered and are in no conversation."""
        answered = [reply for reply in self.waiting if reply.replied is not None]
        return sum(reply.token == token for reply in answered)

    def record_waiting(self, origin: RequestOrigin, conversation: str, tasks: OwnedTasks) -> None:
        """Record the replies that waited for this conversation's next request."""
        for reply in list(self.waiting):
            if reply.origin != origin:
                continue
            self.waiting.remove(reply)
            ticket = replace(reply.ticket, conversation=conversation)
            recording = origin.conversations.record_agent_reply(ticket, reply.replied, "")
            tasks.spawn_task(recording, name="record a side reply")


def origin_of_request(request: ParsedRequest, conversations: AgentConversations) -> RequestOrigin:
    return RequestOrigin(request.arrival.agent, request.arrival.session, conversations)


def text_of_last_message(request: ParsedRequest) -> str:
    """Return what the user, or the agent for the user, says at the end of a request."""
    return "\n".join(_user_texts(request.messages_after_instructions[-1:]))


def count_same_words(side: ParsedRequest, step: ParsedRequest) -> int:
    """Return how many characters of what the user said in a conversation's step a side request
    asks about.
    """
    side_text = text_of_last_message(side)
    characters = 0
    for user_text in _user_texts(step.messages_after_instructions):
        if user_text in side_text:
            characters += len(user_text)
        elif side_text and side_text in user_text:
            characters += len(side_text)
    return characters


def _user_texts(messages: Sequence[ProtocolMessage]) -> list[str]:
    """Return what the user said in these messages, without empty texts."""
    texts: list[str] = []
    for message in messages:
        if message.speaker is not Speaker.USER:
            continue
        for piece in message.pieces_of_kind(PieceKind.TEXT):
            text = piece.text.strip()
            if text:
                texts.append(text)
    return texts
