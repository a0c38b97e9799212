"""Remembers the last request of each conversation, in memory only, so that the agent's own
model can be asked to write a fold: with the agent's key, at its provider.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import httpx
import orjson

from helix_desktop.engine.facts import Usage
from helix_desktop.errors import ModelFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_upstreams import CODEX_SUBSCRIPTION_PATH
from helix_desktop.gateway.conversations_port import AgentConversations
from helix_desktop.gateway.incremental_parsing import BodyPieces
from helix_desktop.gateway.provider_reply_bodies import read_reply_to_own_question
from helix_desktop.gateway.request_forwarding import (
    build_provider_request,
    run_in_thread_if_large,
)
from helix_desktop.gateway.request_parsing import ParsedRequest
from helix_desktop.gateway.side_requests import (
    RequestOrigin,
    count_same_words,
    origin_of_request,
)
from helix_desktop.protocols.gateway_message import Json, PieceKind, WireReply
from helix_desktop.protocols.openai_responses import responses_gateway
from helix_desktop.protocols.protocol_table import MESSAGE_FIELDS, WIRE_MODULES, with_messages
from helix_desktop.providers.http_transport import send_for_stream
from helix_desktop.resources import read_word_lists

MOST_HELD_REQUESTS = 64
ASK_SECONDS = 180.0
MOST_TOKENS_OF_FOLD = 4_000
_HEAD_FIELDS = read_word_lists("known_agents")["request_head"]


@dataclass(slots=True)
class LastAgentRequest:
    """The last request of a conversation as it was sent, and how to send another like it."""

    request: ParsedRequest
    body: dict[str, Json]
    url: str
    headers: Sequence[tuple[bytes, bytes]]
    client: httpx.AsyncClient
    conversations: AgentConversations

    @property
    def origin(self) -> RequestOrigin:
        return origin_of_request(self.request, self.conversations)


class LastAgentRequests:
    """The last request of each conversation, of those that sent one lately."""

    def __init__(self) -> None:
        self.by_conversation: OrderedDict[str, LastAgentRequest] = OrderedDict()

    def remember_last_request(self, conversation: str, last_request: LastAgentRequest) -> None:
        """Remember what a conversation sent, and forget those that sent nothing for longest."""
        self.by_conversation[conversation] = last_request
        self.by_conversation.move_to_end(conversation)
        while len(self.by_conversation) > MOST_HELD_REQUESTS:
            self.by_conversation.popitem(last=False)

    def forget_requests_of_closed_workspaces(self, still_open: Collection[object]) -> None:
        """Forget requests whose conversations are in no open workspace any more."""
        closed_conversations: list[str] = []
        for conversation, last_request in self.by_conversation.items():
            if last_request.conversations not in still_open:
                closed_conversations.append(conversation)
        for conversation in closed_conversations:
            del self.by_conversation[conversation]

    def find_conversation_beside(
        self, request: ParsedRequest, conversations: AgentConversations
    ) -> str:
        """Return the conversation that last sent a request like this side request, or
        an empty string. Without a session's name, it is the one with most of the user's words.
        """
        origin = origin_of_request(request, conversations)
        most_similar = ""
        most_words = 0
        for conversation, last_request in reversed(self.by_conversation.items()):
            if last_request.origin != origin:
                continue
            if request.arrival.session:
                return conversation
            words = count_same_words(request, last_request.request)
            if words > most_words:
                most_similar = conversation
                most_words = words
        return most_similar

    async def ask_agent_model(
        self, conversation: str, question: str, system: str, limit: int
    ) -> tuple[str, Usage, str]:
        """Ask an agent's model a question for us, such as for a summary, with the agent's key at
        its provider. Return the text, what it cost and which model answered.

        The question comes behind what the agent sent last, or, with `system`, alone. `limit`: the
        most tokens of the answer, or 0.
        """
        last_request = self.by_conversation.get(conversation)
        if last_request is None:
            raise ModelFailed("The agent hasn't sent a request since the gateway started.")
        size = len(last_request.request.body.places.content)
        build = partial(_build_fold_question, last_request, question, system, limit)
        pieces = await run_in_thread_if_large(size, build)
        url = _url_for_whole_reply(last_request.url)
        headers = _headers_for_question(last_request.headers)
        request = build_provider_request("POST", url, headers, pieces)
        answer = await _fetch_answer(last_request, request)
        texts = [piece.text for piece in answer.message.pieces_of_kind(PieceKind.TEXT)]
        return "\n".join(texts), answer.usage, answer.model


async def _fetch_answer(last_request: LastAgentRequest, request: httpx.Request) -> WireReply:
    """Send the question and return the reply. Raises ModelFailed if there is none to read."""
    wire: Any = WIRE_MODULES[last_request.request.body.wire]
    try:
        async with asyncio.timeout(ASK_SECONDS):
            response = await send_for_stream(last_request.client, request)
            if response.status_code >= 400:
                await response.aclose()
                raise ModelFailed(
                    f"The agent's model refused the request (status {response.status_code})."
                )
            reply = await read_reply_to_own_question(wire, response)
        answer: WireReply = wire.parse_reply(reply)
    except (httpx.HTTPError, TimeoutError) as error:
        raise ModelFailed(f"The agent's model did not respond: {type(error).__name__}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFailed("The agent's model sent a reply that could not be read.") from error
    return answer


def _url_for_whole_reply(url: str) -> str:
    """Return the address at which Gemini answers whole and not in a stream. Others are the same."""
    return url.replace(":streamGenerateContent", ":generateContent").replace("alt=sse", "")


def _headers_for_question(
    headers: Sequence[tuple[bytes, bytes]],
) -> list[tuple[bytes, bytes]]:
    """Return the agent's headers for a request that is not compressed, nor its reply."""
    own_headers: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if name.lower() not in (b"accept-encoding", b"content-encoding"):
            own_headers.append((name, value))
    own_headers.append((b"accept-encoding", b"identity"))
    return own_headers


def _build_fold_question(
    last_request: LastAgentRequest, question: str, system: str, limit: int
) -> BodyPieces:
    """Build a request like the agent's last one, with the question as its last message.

    With `system`, nothing of the conversation is in it, and its fields that belong to the
    conversation, such as its tools, are left out.
    """
    wire: Any = WIRE_MODULES[last_request.request.body.wire]
    body = dict(last_request.body)
    body.pop("stream_options", None)
    # ChatGPT answers Codex only with a stream.
    must_stream = wire is responses_gateway and CODEX_SUBSCRIPTION_PATH in last_request.url
    if body.get("stream") and not must_stream:
        body["stream"] = False

    if system:
        for name in _HEAD_FIELDS:
            body.pop(name, None)
        if "max_tokens" in body:
            body["max_tokens"] = limit or MOST_TOKENS_OF_FOLD
        message = wire.user_message(f"{system}\n\n{question}")
        messages = wire.merge_added_messages([(message, True)])
        body_of_question = with_messages(wire.NAME, body, messages)
        return [orjson.dumps(body_of_question)]

    units = [(unit, False) for unit in _units_of_body(wire, body)]
    question_message = wire.user_message(question)
    units.append((question_message, True))
    messages_with_question = wire.merge_added_messages(units)
    body_with_question = with_messages(wire.NAME, body, messages_with_question)
    return last_request.request.body.encode_changed_body(body_with_question)


def _units_of_body(wire: Any, body: dict[str, Json]) -> Sequence[Json]:
    """Return the values of a body's messages, also where these are no list."""
    units = body.get(MESSAGE_FIELDS[wire.NAME])
    if isinstance(units, list):
        return units
    units_of_messages: list[Json] = []
    for message in wire.parse_messages(body):
        units_of_messages.extend(message.units)
    return units_of_messages
