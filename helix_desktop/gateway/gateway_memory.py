"""What the gateway remembers from one request to the next. All of it is lost when the
gateway ends, but for which conversations a registration has.
"""

import asyncio
import logging
import time
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from weakref import WeakValueDictionary

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.errors import HelixError, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import agent_identity, request_forwarding
from helix_desktop.gateway.conversations_port import AgentConversations
from helix_desktop.gateway.incremental_parsing import BodyParser
from helix_desktop.gateway.last_agent_requests import LastAgentRequest, LastAgentRequests
from helix_desktop.gateway.registration import RegisteredConversations
from helix_desktop.gateway.request_forwarding import RequestForwarder
from helix_desktop.gateway.request_parsing import IncomingRequest, ParsedRequest
from helix_desktop.gateway.side_requests import SideRequests, origin_of_request
from helix_desktop.gateway.taken_out_messages import TakenOutMessages
from helix_desktop.protocols.gateway_message import Json
from helix_desktop.workbench.unread_requests import UnreadRequest, UnreadSum

log = logging.getLogger(__name__)

OpenConversations = Callable[[str], AbstractAsyncContextManager[AgentConversations]]
NOT_FOLDED = "The agent is signed in with a subscription. With a subscription, shortening is off unless you turn it on."


@dataclass(slots=True)
class AgentActivity:
    """What the page of connected agents shows of one agent. Field names are keys of the status."""

    agent: str
    requests: int = 0
    last: float = 0.0
    conversation: str = ""
    unfolded: str = ""  # Why its requests are forwarded without folds; empty if they have folds.
    failure: str = ""  # Why its last request was not answered; empty if it was.
    unread: int = 0  # So many requests became no facts.


@dataclass(slots=True)
class LastArrival:
    """The last request of any kind, for the page of connected agents. Field names are keys of the
    status. It proves that a program reaches the gateway, also if it is no step of a conversation.
    """

    agent: str
    host: str = ""  # Where it was passed on to; empty if that could not be found out.
    time: float = 0.0
    status: int = 0  # Of the reply; 0 while there is none.
    failure: str = ""  # Why it was not answered; empty if it was.


def _open_no_conversations(_: str) -> AbstractAsyncContextManager[AgentConversations]:
    raise NotFound("There is no workspace.")


@dataclass(slots=True)
class GatewayMemory:
    """`use_conversations`: opens a workspace's conversations by its name (empty: the
    default one). `recording_behind`: by session, the tasks that record a request which
    was forwarded before. `unrecorded`: by token, why its requests were not recorded.
    `unfolded`: by token, why its requests were recorded and not folded. `unread`: by token, what
    is known of its requests that became no facts. `unserved`: by token, why its provider does not
    answer in the protocol that the agent uses.
    `refused_conversations`: whose provider refused the recall tools.
    """

    use_conversations: OpenConversations = _open_no_conversations
    list_open_conversations: Callable[[], Sequence[AgentConversations]] = tuple
    registered_conversations: RegisteredConversations = field(
        default_factory=RegisteredConversations
    )
    body_parser: BodyParser = field(default_factory=BodyParser)
    last_requests: LastAgentRequests = field(default_factory=LastAgentRequests)
    side_requests: SideRequests = field(default_factory=SideRequests)
    taken_out: TakenOutMessages = field(default_factory=TakenOutMessages)
    refused_conversations: set[str] = field(default_factory=set)
    recording_behind: MutableMapping[str, OwnedTasks] = field(default_factory=WeakValueDictionary)
    unrecorded: dict[str, str] = field(default_factory=dict)
    unfolded: dict[str, str] = field(default_factory=dict)
    unread: dict[str, UnreadSum] = field(default_factory=dict)
    unserved: dict[str, str] = field(default_factory=dict)
    agent_activity: dict[str, AgentActivity] = field(default_factory=dict)
    last_arrival: LastArrival | None = None
    tasks: OwnedTasks = field(default_factory=lambda: OwnedTasks("gateway"))

    def count_agent_request(
        self, request: ParsedRequest, incoming: IncomingRequest
    ) -> AgentActivity:
        """Count a request for the page of connected agents, and return what that shows."""
        agent = request.arrival.agent
        activity = self.agent_activity.setdefault(agent, AgentActivity(agent))
        activity.requests += 1
        activity.last = time.time()
        activity.unfolded = ""
        if agent_identity.uses_subscription(incoming.headers) and not request.arrival.fold:
            activity.unfolded = NOT_FOLDED
        return activity

    def remember_unrecorded(self, token: str, error: Exception) -> None:
        """Remember why requests of a registration are not recorded, for its status."""
        reason = "The reason is in the log."
        if isinstance(error, HelixError):
            reason = error.what
        self.unrecorded[token] = reason

    def count_unread_request(self, token: str, request: UnreadRequest) -> None:
        """Count a request that was answered and became no facts, for the status."""
        self.unread.setdefault(token, UnreadSum()).add_unread_request(request)
        activity = self.agent_activity.setdefault(request.agent, AgentActivity(request.agent))
        activity.unread += 1
        activity.last = request.time

    def remember_unfolded(self, token: str, agent: str, reason: str) -> None:
        """Remember why the last request of a registration was not folded. Empty: nothing is wrong."""
        if not reason:
            self.unfolded.pop(token, None)
            return
        if self.unfolded.get(token) != reason:
            log.warning("requests go on as they came, and are recorded: %s", reason)
        self.unfolded[token] = reason
        activity = self.agent_activity.get(agent)
        if activity is not None:
            activity.unfolded = reason

    def remember_sent_request(
        self,
        sending: RequestForwarder,
        conversations: AgentConversations,
        conversation: str,
        request: ParsedRequest,
        body: dict[str, Json],
    ) -> None:
        """Remember what was sent last in this conversation, and forget what was sent in
        workspaces that were closed.
        """
        incoming = sending.incoming
        self.registered_conversations.remember_conversation_of_token(
            incoming.registration.token, conversation, incoming.workspace
        )
        open_conversations = self.list_open_conversations()
        self.last_requests.forget_requests_of_closed_workspaces(open_conversations)
        last_request = LastAgentRequest(
            request=request,
            body=body,
            url=sending.url,
            headers=incoming.headers_for_provider(),
            client=sending.client,
            conversations=conversations,
        )
        self.last_requests.remember_last_request(conversation, last_request)

        places = request.body.places
        if len(places.content) > request_forwarding.LARGE_BODY_BYTES:
            packing = asyncio.to_thread(places.pack_content)
            self.tasks.spawn_task(packing, name="pack")
        activity = self.agent_activity.get(request.arrival.agent)
        if activity is not None:
            activity.conversation = conversation
        origin = origin_of_request(request, conversations)
        self.side_requests.record_waiting(origin, conversation, self.tasks)
