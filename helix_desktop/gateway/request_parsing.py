"""Parses an agent's request: its messages, who asks, and whether recall can be offered."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from helix_desktop.decompression import DecodedTooLarge, decompress_body
from helix_desktop.engine.facts import ToolSpec
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import agent_identity
from helix_desktop.gateway.conversations_port import Arrival
from helix_desktop.gateway.folded_request import count_leading_instructions
from helix_desktop.gateway.incremental_parsing import BodyBytes, BodyParser, ParsedBody
from helix_desktop.gateway.known_agents import title_of_known_agent
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.gateway.request_routes import (
    RequestRoute,
    guess_protocol,
    headers_to_forward,
)
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.asked_cache_lifetime import cache_seconds_asked_for
from helix_desktop.protocols.gateway_message import Json, ProtocolMessage, Speaker
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.hidden_calls import HIDDEN_TOOLS
from helix_desktop.protocols.openai_responses import responses_gateway

MOST_BODY_BYTES = 64 << 20
# In bytes. A smaller request without tools is a side request, such as one for a title.
SIDE_REQUEST_BYTES = 8_000

# Fields of requests whose history the provider has, or is to keep.
STORED_BY_PROVIDER: Mapping[str, Sequence[str]] = {
    anthropic_gateway.NAME: ("thread",),
    responses_gateway.NAME: ("previous_response_id", "conversation", "background"),
    gemini_gateway.NAME: ("cachedContent",),
}


@dataclass(frozen=True, slots=True)
class IncomingRequest:
    """An agent's request as it came in, before its body is parsed. The names in `headers` are in
    lower case; `raw_headers` has them as the agent wrote them, in their order.
    """

    method: str
    route: RequestRoute
    query: str
    raw_headers: tuple[tuple[bytes, bytes], ...]
    headers: Mapping[str, str]
    content: BodyBytes
    registration: GatewayRegistration

    @property
    def protocol(self) -> str:
        """Return the protocol of its provider, also of a request that is passed through."""
        return self.route.wire or guess_protocol(self.route.path, self.headers)

    @property
    def workspace(self) -> str:
        """Return the registration's workspace. The path counts only at an address whose
        registration says so: an agent must not reach another workspace through its own.
        """
        if self.registration.workspace or not self.registration.chooses_workspace:
            return self.registration.workspace
        return self.route.workspace

    @property
    def may_be_understood(self) -> bool:
        """Whether it is sent to where one of our protocols is spoken."""
        if not self.route.wire or self.method != "POST":
            return False
        # Gemini otherwise streams a JSON array, which is not read.
        return not self.route.streams or "alt=sse" in self.query

    @property
    def may_be_folded(self) -> bool:
        """Whether its registration wants folds, for a subscription too if that pays for it."""
        if agent_identity.uses_subscription(self.headers) and not self.registration.folds_plans:
            return False
        return self.registration.folds

    def headers_for_provider(self) -> list[tuple[bytes, bytes]]:
        """Return the headers to send on, without those that are meant for this program alone."""
        return headers_to_forward(
            self.raw_headers,
            self.protocol,
            self.registration.headers,
            self.registration.token,
        )


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request of an agent that was understood.

    `arrival`: what the engine is told of it besides its messages. `adds_tools`: the tools by
    which the model recalls are added to it. `is_side`: it is beside the conversation, such as
    a request for a title.
    """

    body: ParsedBody
    arrival: Arrival
    adds_tools: bool
    is_side: bool = False

    @property
    def messages_after_instructions(self) -> list[ProtocolMessage]:
        """Return the messages of the conversation. The instructions before them are the agent's."""
        instruction_count = count_leading_instructions(self.body.messages)
        return self.body.messages[instruction_count:]

    def with_all_messages(self) -> "ParsedRequest":
        """Return the request with all of its messages, if only the first ones were made."""
        body = self.body
        if body.read_rest is not None:
            body = body.read_rest() or body
        # Some protocols put instructions and tools between the messages.
        system = body.head.system
        tools = body.head.tools
        head = _hash_of_head(system, tools)
        arrival = replace(self.arrival, chain=body.chain, system=system, tools=tools, head=head)
        return replace(self, body=body, arrival=arrival)


def parse_incoming_request(
    incoming: IncomingRequest, parser: BodyParser, *, folds: bool, provider_address: str = ""
) -> ParsedRequest | None:
    """Parse a request: its messages, who asks, and whether recall tools are added to it.

    Return None if it is passed through as it came. Raises DecodedTooLarge if it decompresses to
    too much. `folds`: whether its conversation may be shortened.
    """
    body = _parse_body(incoming, parser)
    if body is None or not _has_whole_history(incoming.route, body.value):
        return None
    instruction_count = count_leading_instructions(body.messages)
    messages = body.messages[instruction_count:]
    if not messages:
        return None

    arrival = _build_arrival(incoming, body, folds=folds, provider_address=provider_address)
    tools = body.head.tools
    if tools:
        adds_tools = folds and not _offers_recall(tools)
        return ParsedRequest(body, arrival, adds_tools=adds_tools)
    is_small = len(incoming.content) < SIDE_REQUEST_BYTES
    begins_with_reply = messages[0].speaker is Speaker.ASSISTANT
    is_side = is_small or begins_with_reply
    return ParsedRequest(body, arrival, adds_tools=False, is_side=is_side)


def _build_arrival(
    incoming: IncomingRequest, body: ParsedBody, *, folds: bool, provider_address: str
) -> Arrival:
    """Return what the engine is told of a request besides its messages."""
    agent = agent_of_request(incoming)
    session = agent_identity.session_of_request(incoming.headers, body.value)
    parent_session = agent_identity.parent_session_of_request(incoming.headers)
    head = body.head
    hash_of_head = _hash_of_head(head.system, head.tools)
    model = head.model or incoming.route.model
    cache_seconds = cache_seconds_asked_for(body.value, body.units_that_may_be_marked)
    return Arrival(
        wire=incoming.route.wire,
        agent=agent,
        session=session,
        head=hash_of_head,
        model=model,
        system=head.system,
        tools=head.tools,
        chain=body.chain,
        fold=folds,
        parent=parent_session,
        effort=head.effort,
        below=incoming.registration.parent,
        cache_seconds=cache_seconds,
        address=provider_address,
    )


def _offers_recall(tools: Sequence[ToolSpec]) -> bool:
    """Whether the agent has our tools already, from our MCP server."""
    # Agents put the server's name before the names of its tools.
    name_endings = tuple(HIDDEN_TOOLS)
    for tool in tools:
        if tool.name.endswith(name_endings):
            return True
    return False


def _parse_body(incoming: IncomingRequest, parser: BodyParser) -> ParsedBody | None:
    """Decompress and parse the body. None: it is no JSON, or nothing that its protocol has."""
    coding = incoming.headers.get("content-encoding", "")
    session = agent_identity.session_of_request(incoming.headers, {})
    may_go_on_unread = not incoming.route.counts_tokens
    try:
        content = decompress_within_limit(incoming.content, coding)
        return parser.parse_body(
            incoming.route.wire, content, session, may_go_on_unread=may_go_on_unread
        )
    except DecodedTooLarge:
        raise
    except (ValueError, OSError):
        return None


def agent_of_request(incoming: IncomingRequest) -> str:
    """Return the agent of the registration. What the request says counts only if it names none."""
    agent_name = incoming.registration.agent or incoming.route.agent
    if agent_name:
        return title_of_known_agent(agent_name)
    return agent_identity.agent_from_headers(incoming.headers)


def _has_whole_history(route: RequestRoute, body: Mapping[str, Json]) -> bool:
    """Whether the request has the whole history. What the provider stores can't be folded."""
    for field_name in STORED_BY_PROVIDER.get(route.wire, ()):
        if body.get(field_name):
            return False
    return True


def _hash_of_head(system: str, tools: Sequence[ToolSpec]) -> str:
    """Return a hash by which requests of one kind are recognised: those with the same tools, and
    with instructions that begin alike.
    """
    tool_names = "\0".join(sorted(tool.name for tool in tools))
    text = f"{system[:120]}\0{tool_names}"
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8)
    return digest.hexdigest()


def decompress_within_limit(content: BodyBytes, encoding: str) -> BodyBytes:
    """Decompress a body. Raises ValueError for an unknown encoding and DecodedTooLarge
    above the limit.
    """
    if encoding.strip().lower() in ("", "identity"):
        return content
    return decompress_body(content, encoding, MOST_BODY_BYTES)
