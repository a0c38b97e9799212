"""What is sent after the provider refused a request: a shorter one if it was too long, or
else the agent's own. A refusal that stays is the agent's.
"""

import logging
from functools import partial
from typing import Any

import httpx

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import folded_request
from helix_desktop.gateway.conversations_port import AgentConversations, Sent
from helix_desktop.gateway.gateway_memory import GatewayMemory
from helix_desktop.gateway.provider_reply_bodies import (
    ProviderRefusal,
    build_own_refusal,
    read_refusal,
)
from helix_desktop.gateway.request_forwarding import RequestForwarder, run_in_thread_if_large
from helix_desktop.gateway.request_parsing import ParsedRequest
from helix_desktop.gateway.sent_body import AnsweredBody, SentBody, build_sent_body
from helix_desktop.json_values import text_at
from helix_desktop.protocols.known_refusals import CONTEXT_TOO_LONG, TOO_LONG_FOR_GATEWAY
from helix_desktop.protocols.protocol_table import PROTOCOL_TITLES, WIRE_MODULES
from helix_desktop.protocols.provider_failures import window_in_refusal

log = logging.getLogger(__name__)

REFUSED_WITHOUT = (
    "(What you took out of the context was left out of this request. Nothing was lost. "
    "If that is why it was refused, bring it back in Helix Desktop and send the message again.)"
)
TOO_LONG_PHRASES = [phrase.encode() for phrase in TOO_LONG_FOR_GATEWAY]
LONGEST_REASON = 10_000  # Of a refusal's text, this many characters are looked at.
# The statuses of a server that does not have the path, and so not the protocol.
WITHOUT_PATH = (404, 405, 501)
ABOUT_THE_FORM = (400, 422)  # The statuses of a refusal because of what the request says.


@dataclass(slots=True)
class RefusedRequest:
    """A request that was sent as `body` and refused."""

    sending: RequestForwarder
    memory: GatewayMemory
    conversations: AgentConversations
    request: ParsedRequest
    sent: Sent
    body: SentBody

    async def send_again_or_refuse(self, response: httpx.Response) -> AnsweredBody | None:
        """Send a refused request again in another form. Return what the provider has answered, or
        None if it accepts none, and the agent got the refusal.

        A request that is too long is shortened, and one that we had changed is sent as it came. At
        last, calls without results are completed.
        """
        first_refusal = await read_refusal(response)
        is_too_long = _is_about_length(first_refusal)
        outcome = await self._send_shorter_or_as_it_came(first_refusal, is_too_long=is_too_long)
        if isinstance(outcome, AnsweredBody):
            return outcome

        refusal = outcome
        if refusal.response.status_code in ABOUT_THE_FORM:
            own_body = await self._build_own_body()
            answered = await self._send_with_paired_calls(own_body)
            if answered is not None:
                return answered
            was_something_taken_out = own_body.pieces is not None
            if was_something_taken_out and not is_too_long:
                refusal = _refusal_without_what_was_taken_out(refusal)
        if _is_about_protocol(refusal):
            status = refusal.response.status_code
            self.memory.unserved[self.sending.incoming.registration.token] = (
                describe_missing_protocol(self.sending.url, self.request.body.wire, status)
            )
        await self.sending.send_refusal(refusal)
        return None

    async def _send_shorter_or_as_it_came(
        self, refusal: ProviderRefusal, *, is_too_long: bool
    ) -> AnsweredBody | ProviderRefusal:
        """Send a request shorter if it is too long, or as it came if we had changed it. Else
        return the refusal.
        """
        if is_too_long and self.request.arrival.fold:
            return await self._send_shorter(refusal)
        status = refusal.response.status_code
        was_changed = self.body.pieces is not None
        if was_changed and status in ABOUT_THE_FORM:
            log.warning(
                "the provider refused a changed request with %d; it was sent as it came", status
            )
            return await self._send_as_it_came()
        return refusal

    async def _send_shorter(self, refusal: ProviderRefusal) -> AnsweredBody | ProviderRefusal:
        """Fold more of the conversation, and send what is left. If the refusal says how large the
        model's window is, the conversation is folded for that window from now on.
        """
        window = window_in_refusal(refusal.parse_refusal_json(), _text_of_refusal(refusal))
        shorter = await self.conversations.fold_after_overflow(self.sent.ticket, window)
        if shorter is None:
            return refusal
        size = len(self.sending.incoming.content)
        has_tools = self.body.has_tools
        build = partial(build_sent_body, self.request, shorter, has_tools=has_tools)
        shorter_body = await run_in_thread_if_large(size, build)
        return await self._send_changed_body(shorter_body)

    async def _send_as_it_came(self) -> AnsweredBody | ProviderRefusal:
        own_body = await self._build_own_body()
        outcome = await self._send_changed_body(own_body)
        if isinstance(outcome, AnsweredBody):
            # What was refused was ours, so this conversation gets it no more.
            self.memory.refused_conversations.add(self.sent.ticket.conversation)
        return outcome

    async def _send_with_paired_calls(self, own_body: SentBody) -> AnsweredBody | None:
        """Send the request with exactly one result for each call, if it is not so already."""
        parsed = self.request.body
        messages = parsed.messages
        if own_body.pieces is not None:
            wire: Any = WIRE_MODULES[parsed.wire]
            messages = wire.parse_messages(own_body.value)
        paired_value = folded_request.pair_calls_with_results(parsed.wire, own_body.value, messages)
        if paired_value is None:
            return None
        paired_body = SentBody(parsed.encode_changed_body(paired_value), paired_value)
        outcome = await self._send_changed_body(paired_body)
        if isinstance(outcome, ProviderRefusal):
            return None
        return outcome

    async def _build_own_body(self) -> SentBody:
        """Build the agent's own request, but without what the user took out."""
        size = len(self.sending.incoming.content)
        build = self.memory.taken_out.build_body_without_taken_out
        pieces, value = await run_in_thread_if_large(size, build, self.request)
        return SentBody(pieces, value)

    async def _send_changed_body(self, body: SentBody) -> AnsweredBody | ProviderRefusal:
        response = await self.sending.send_to_provider(body.pieces, reads_reply=body.has_tools)
        if response.status_code >= 400:
            return await read_refusal(response)
        return AnsweredBody(response, body.value, body.has_tools)


def _refusal_without_what_was_taken_out(refusal: ProviderRefusal) -> ProviderRefusal:
    """Return the refusal with the remark that something was taken out of the request."""
    message = text_at(refusal.parse_refusal_json(), "error", "message")
    sentence = f"{message} {REFUSED_WITHOUT}".strip()
    return build_own_refusal(400, "invalid_request_error", sentence)


def _is_about_length(refusal: ProviderRefusal) -> bool:
    """Whether the provider says that the request is too long for its model."""
    if refusal.response.status_code not in (400, 413):
        return False
    text = refusal.text.lower()
    for phrase in TOO_LONG_PHRASES:
        if phrase in text:
            return True
    return CONTEXT_TOO_LONG.search(_text_of_refusal(refusal)) is not None


def _is_about_protocol(refusal: ProviderRefusal) -> bool:
    """Whether the server seems to lack the protocol. It may also answer so about an unknown model,
    and then names the word.
    """
    if refusal.response.status_code not in WITHOUT_PATH:
        return False
    words = _text_of_refusal(refusal).lower()
    return "model" not in words and "deployment" not in words


def describe_missing_protocol(url: str, asked: str, status: int) -> str:
    """Describe that a server has no path for a protocol, and what to do."""
    host = httpx.URL(url).netloc.decode()
    title = PROTOCOL_TITLES[asked]
    return f"{host} answered requests in {title} with {status}, so it does not seem to have this protocol. Check the address, let the agent use another protocol, or name a server that has {title}."


def describe_other_protocol(url: str, asked: str, answered: str) -> str:
    """Describe that a server answers in another protocol than it was asked in, and what to do."""
    host = httpx.URL(url).netloc.decode()
    title = PROTOCOL_TITLES[asked]
    title_of_answer = PROTOCOL_TITLES[answered]
    return f"{host} answered a request in {title} with a reply in {title_of_answer}, which the agent cannot read. Let the agent use {title_of_answer}, or name a server that has {title}."


def _text_of_refusal(refusal: ProviderRefusal) -> str:
    return refusal.text[:LONGEST_REASON].decode("utf-8", "replace")
