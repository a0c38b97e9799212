"""Speaks Anthropic's Messages protocol.

Up to four marks ask for prompt caching: after tools and system prompt, where the last
request had one, after the last message that a fold changed, and after the last message,
since the cache looks back only 20 blocks from a mark. Thinking is sent back word for
word with its signature, and only to the provider that signed it.
"""

import re
from collections.abc import Mapping, Sequence

from helix_desktop import json_values
from helix_desktop.engine.facts import Reasoning, Stop, Text, ToolCall
from helix_desktop.engine.messages import (
    Delta,
    Image,
    Message,
    MessagePart,
    Reply,
    Request,
    Role,
    ToolResult,
)
from helix_desktop.errors import ModelFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Json, Object, checked_text_at, list_at, object_at, text_at
from helix_desktop.protocols import protocol_dialect
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.event_stream import ServerSentEvent
from helix_desktop.protocols.protocol_dialect import SAMPLING, ModelAbilities, OutgoingRequest
from helix_desktop.protocols.reply_reader import ReplyReaderBase
from helix_desktop.protocols.request_parts import (
    arguments_as_object,
    base64_text,
    legal_ids,
    text_for_omitted_image,
)

KIND = "anthropic"
VERSION = "2023-06-01"
DEFAULT_OUTPUT = 8192  # In tokens. Each request must state a limit, and all models accept this one.
MOST_ASKED = 32_000  # In tokens. A higher limit is sent only if the caller asks for it.
BUDGETS = {"low": 2048, "medium": 8192, "high": 24_576}
LEAST_BUDGET = 1024  # In tokens. The provider refuses a smaller one.
IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
MARK: Object = {"type": "ephemeral"}
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OPTIONAL = ("output_config", "thinking", *SAMPLING)
# One of these is in a refusal of thinking that this provider cannot read any more.
_REFUSES_THINKING = ("signature", "`thinking`", "redacted_thinking")
_PAUSED = "pause_turn"  # With this stop reason, the request is sent again to continue.
_STATUS_OF = {
    "invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
    "not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504,
    "overloaded_error": 529,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _SignedThinking:
    """The pieces of a block of thinking, and of its signature, as they arrived."""

    texts: list[str]
    signatures: list[str]


class AnthropicMessages(protocol_dialect.ProtocolDialect):
    kind = KIND

    def key_headers(self, key: str) -> Mapping[str, str]:
        if self.key_header.lower() == "authorization":
            return {"authorization": f"Bearer {key}"}
        return {self.key_header or "x-api-key": key}

    def compile_request(self, request: Request, abilities: ModelAbilities) -> OutgoingRequest:
        """Write a request as Anthropic's Messages have it."""
        # The provider refuses a request that does not say how long the reply may be.
        usual_limit = min(abilities.max_output or DEFAULT_OUTPUT, MOST_ASKED)
        limit = request.max_output or usual_limit
        body: Object = {"model": request.model, "max_tokens": limit, "stream": True}
        body.update(_tools_and_system(request, abilities))

        accepted_ids = legal_ids(request.messages, _ID, 40)
        writer = _AnthropicMessageWriter(self.reasoning_owner, accepted_ids, abilities)
        # A reply that says nothing is written as None: it keeps its place only for the count.
        written_messages = [writer.write_message(message) for message in request.messages]
        _mark_ends_of_cached_prefixes(written_messages, request)
        body["messages"] = [message for message in written_messages if message is not None]

        # A request that asks for thinking must not set a temperature, too.
        thinking = _thinking_options(request, abilities, limit, written_messages)
        if thinking:
            body.update(thinking)
        else:
            body.update(_anthropic_sampling(request, abilities))
        return OutgoingRequest(self._messages_path(), body, {"anthropic-version": VERSION})

    def _messages_path(self) -> str:
        # People enter the address of a compatible server with or without its version.
        if self.base_url.rstrip("/").endswith("/v1"):
            return "/messages"
        return "/v1/messages"

    def build_reply_reader(self, request: Request) -> "AnthropicReplyReader":
        return AnthropicReplyReader(self.reasoning_owner, self.where, request.model)

    def relax_request(self, body: Object, failure: ModelFailed) -> Object | None:
        """Return a refused request without what was refused, so that it can be sent again.

        That is thinking which this provider cannot read any more, or an option that it does
        not know. None: the refusal is about something else.
        """
        refuses_thinking = any(words in failure.what for words in _REFUSES_THINKING)
        if refuses_thinking:
            return _without_thinking(body)
        return protocol_dialect.without_refused_option(body, failure, _OPTIONAL)


def _without_thinking(body: Object) -> Object | None:
    """Return a request without any thinking, or None if there is none in it.

    A message of nothing but thinking is left out, as the provider refuses empty messages.
    """
    messages: list[Json] = []
    for message in list_at(body, "messages"):
        blocks = _blocks_without_thinking(message)
        if blocks:
            changed_message = dict(object_at(message))
            changed_message["content"] = blocks
            messages.append(changed_message)
    changed_body = json_values.without_fields(body, "thinking")
    changed_body["messages"] = messages
    if changed_body == body:
        return None
    return changed_body


def _tools_and_system(request: Request, abilities: ModelAbilities) -> Object:
    """Return a request's tools and system prompt, with a mark for the cache at their end.

    They are the same in each request of a conversation, so the provider can read them from
    its cache, which is cheaper.
    """
    fields: Object = {}
    has_system = bool(request.system.strip())
    if request.tools and abilities.tools:
        tools = anthropic_gateway.tools_as_json(request.tools)
        if not has_system:  # The mark of the system prompt covers the tools before it.
            tools[-1]["cache_control"] = MARK
        fields["tools"] = list(tools)
    if has_system:
        fields["system"] = [{"type": "text", "text": request.system, "cache_control": MARK}]
    return fields


def _blocks_without_thinking(message: Json) -> list[Json]:
    blocks: list[Json] = []
    for block in list_at(message, "content"):
        if json_values.value_at(block, "type") not in anthropic_gateway.THINKING:
            blocks.append(block)
    return blocks


def _mark_ends_of_cached_prefixes(
    written_messages: Sequence[Object | None], request: Request
) -> None:
    """Up to a mark, the provider reads a request from its cache, which is cheap. The marks stand
    where the last request ended, where a fold (a shorter text in place of messages) changed
    something last, and at the end of this request.
    """
    message_count = len(written_messages)
    for marked_count in {request.stable, request.settled, message_count}:
        if 0 < marked_count <= message_count:
            _mark_last_block(written_messages[marked_count - 1])


def _mark_last_block(message: Json) -> None:
    """Mark the end of a message for the provider's cache. Thinking cannot be marked."""
    for block in reversed(_blocks_without_thinking(message)):
        if isinstance(block, dict):
            block["cache_control"] = MARK
            return


@dataclass(frozen=True, slots=True)
class _AnthropicMessageWriter:
    """Writes messages as this protocol has them."""

    tag: str  # The mark of this provider's own reasoning. That of others is not sent to it.
    ids: Mapping[str, str]  # Call ids that this provider accepts, by those that the calls have.
    abilities: ModelAbilities

    def write_message(self, message: Message) -> Object | None:
        """Return the message, or None for an empty reply: this provider refuses empty messages.

        Results of tools come first, as Anthropic requires.
        """
        result_blocks: list[Json] = []
        other_blocks: list[Json] = []
        for part in message.parts:
            block = self.write_block(part)
            if block is None:
                continue
            if isinstance(part, ToolResult):
                result_blocks.append(block)
            else:
                other_blocks.append(block)

        blocks = result_blocks + other_blocks
        if message.role is not Role.ASSISTANT:
            return {"role": "user", "content": blocks or [{"type": "text", "text": "(empty)"}]}
        if not blocks:
            return None
        return {"role": "assistant", "content": blocks}

    def write_block(self, part: MessagePart) -> Object | None:
        """Return a part's block, or None for what this provider must not get."""
        if isinstance(part, Text):
            return _text_block(part.text)
        if isinstance(part, Reasoning):
            # Thinking is signed by its provider, and another one refuses it.
            is_own = part.provider == self.tag
            if not is_own or not part.opaque:
                return None
            return json_values.parse_object(part.opaque)
        if isinstance(part, ToolCall):
            return {
                "type": "tool_use",
                "id": self.ids[part.id],
                "name": part.name,
                "input": arguments_as_object(part),
            }
        if isinstance(part, ToolResult):
            return self._tool_result_block(part)
        return self._image_block(part)

    def _tool_result_block(self, result: ToolResult) -> Object:
        """Return a call's result, with its images."""
        content: list[Json] = []
        text_block = _text_block(result.text)
        if text_block is not None:
            content.append(text_block)
        for image in result.images:
            content.append(self._image_block(image))
        block: Object = {
            "type": "tool_result",
            "tool_use_id": self.ids[result.call],
            "content": content,
        }
        if not result.ok:
            block["is_error"] = True
        return block

    def _image_block(self, image: Image) -> Object:
        """Return an image, or a sentence in its place if this model cannot take it."""
        is_accepted = self.abilities.images and image.media_type in IMAGE_TYPES
        if not is_accepted:
            return {"type": "text", "text": text_for_omitted_image(image)}
        return {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": image.media_type,
                "data": base64_text(image),
            },
        }


def _text_block(text: str) -> Object | None:
    # Anthropic refuses a request with a blank text in it.
    if not text.strip():
        return None
    return {"type": "text", "text": text}


def _thinking_options(
    request: Request, abilities: ModelAbilities, limit: int, written: list[Object | None]
) -> Object:
    """Return the options that ask the model to think, or none if it shall or may not.

    Newer models are told how hard to think, older ones how many tokens they may spend on it.
    `limit`: the reply's longest length in tokens. `written`: the request's messages.
    """
    if not request.reasoning:
        return {}
    if abilities.reasoning == "adaptive":
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": request.reasoning},
        }
    if abilities.reasoning != "budget" or not _may_think(written):
        return {}
    # The budget is a part of the limit, of which some must be left for the answer.
    budget = min(BUDGETS.get(request.reasoning, 0), limit - LEAST_BUDGET)
    if budget < LEAST_BUDGET:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _anthropic_sampling(request: Request, abilities: ModelAbilities) -> Object:
    """Return the user's temperature and the like. Anthropic refuses a temperature above 1."""
    options = protocol_dialect.sampling_options(request, abilities)
    if request.temperature is not None and "temperature" in options:
        options["temperature"] = min(request.temperature, 1.0)
    return options


def _may_think(written: list[Object | None]) -> bool:
    """Whether a request may ask for thinking.

    When the model gets results of tools that it called, the reply with the calls must have
    begun with thinking. Otherwise the provider refuses the request.
    """
    brings_results = bool(written) and _has_tool_result(written[-1])
    if not brings_results:
        return True
    for message in reversed(written):
        if json_values.value_at(message, "role") == "assistant":
            first_type = json_values.value_at(message, "content", 0, "type")
            return first_type in anthropic_gateway.THINKING
    return False


def _has_tool_result(message: Object | None) -> bool:
    for block in list_at(message, "content"):
        if json_values.value_at(block, "type") == "tool_result":
            return True
    return False


class AnthropicReplyReader(ReplyReaderBase):
    """Reads a stream of message events, or a whole message."""

    def __init__(self, tag: str, where: str, model: str) -> None:
        super().__init__(tag, where, model)
        self._stop = ""
        self._figures: Object = {}
        self._thinking: dict[int, _SignedThinking] = {}  # By the block's index.

    @property
    def is_reply_complete(self) -> bool:
        return bool(self._stop) and self._stop != _PAUSED

    def feed_event(self, event: ServerSentEvent) -> list[Delta]:
        """Read one event of the stream and return what it adds to the reply."""
        value = json_values.require_object(json_values.parse_json(event.data))
        event_type = text_at(value, "type")
        index = json_values.number_at(value, "index")
        if event_type == "error":
            status = _STATUS_OF.get(text_at(value, "error", "type"), 500)
            raise self._failure_in_stream(status, value)
        if event_type == "content_block_start":
            return self._start_block(index, object_at(value, "content_block"))
        if event_type == "content_block_delta":
            return self._read_block_delta(index, object_at(value, "delta"))
        if event_type == "message":
            return self._read_whole_message(value)

        if event_type == "message_start":
            self._begin_message(object_at(value, "message"))
        elif event_type == "message_delta":
            self._stop = text_at(value, "delta", "stop_reason") or self._stop
            self._add_usage(object_at(value, "usage"))
        elif event_type == "message_stop":
            self.is_stream_over = True
        return []

    def _begin_message(self, message: Object) -> None:
        self._model = text_at(message, "model")
        self._add_usage(object_at(message, "usage"))

    def _add_usage(self, usage: Object) -> None:
        """Update the running totals. A missing figure, or null, keeps its value."""
        for name, value in usage.items():
            if isinstance(value, int):
                self._figures[name] = value
        self._usage = anthropic_gateway.parse_usage(self._figures)

    def _start_block(self, index: int, block: Object) -> list[Delta]:
        """Begin a part of the reply. In a whole message, the block has all of it."""
        match text_at(block, "type"):
            case "text":
                return self._draft.add_text(index, checked_text_at(block, "text"))
            case "thinking":
                thinking = text_at(block, "thinking")
                self._store_signed_thinking(index, thinking, text_at(block, "signature"))
                return self._draft.add_reasoning(index, thinking)
            case "redacted_thinking":
                encrypted = text_at(block, "data")
                self._draft.seal_reasoning(index, type="redacted_thinking", data=encrypted)
            case "tool_use":
                return self._start_call(index, block)
        return []

    def _start_call(self, index: int, block: Object) -> list[Delta]:
        """Begin a call of a tool, with its arguments if they are here already."""
        # In a stream the input is empty here and follows in pieces.
        whole_input = object_at(block, "input")
        arguments = ""
        if whole_input:
            arguments = json_values.dump_json(whole_input).decode()
        return self._draft.add_call_piece(
            index,
            call_id=text_at(block, "id"),
            name=checked_text_at(block, "name"),
            arguments=arguments,
        )

    def _read_block_delta(self, index: int, delta: Object) -> list[Delta]:
        """Read a piece of a block: of text, of a call's arguments, or of thinking."""
        match text_at(delta, "type"):
            case "text_delta":
                return self._draft.add_text(index, checked_text_at(delta, "text"))
            case "input_json_delta":
                arguments = checked_text_at(delta, "partial_json")
                return self._draft.add_call_piece(index, arguments=arguments)
            case "thinking_delta":
                self._store_signed_thinking(index, text_at(delta, "thinking"), "")
                return self._draft.add_reasoning(index, checked_text_at(delta, "thinking"))
            case "signature_delta":
                self._store_signed_thinking(
                    index, thinking="", signature=text_at(delta, "signature")
                )
        return []

    def _store_signed_thinking(self, index: int, thinking: str, signature: str) -> None:
        """Keep a piece of a block of thinking, to send it back with its signature."""
        block = self._thinking.setdefault(index, _SignedThinking([], []))
        block.texts.append(thinking)
        block.signatures.append(signature)

    def reply_so_far(self, cut: str = "") -> Reply:
        """Return the reply as far as it has come. `cut`: why it broke off, if it did.

        Each block of thinking is kept with its signature, since the provider wants it back
        exactly as it was. One whose signature has not come cannot be sent back.
        """
        for index, block in self._thinking.items():
            thinking = "".join(block.texts)
            signature = "".join(block.signatures)
            if signature:
                self._draft.seal_reasoning(
                    index, type="thinking", thinking=thinking, signature=signature
                )
        return super().reply_so_far(cut)

    def _read_whole_message(self, message: Object) -> list[Delta]:
        """Read the whole message of a server that does not stream."""
        self._begin_message(message)
        self._stop = text_at(message, "stop_reason")
        self.is_stream_over = True
        deltas: list[Delta] = []
        for index, block in enumerate(list_at(message, "content")):
            deltas += self._start_block(index, object_at(block))
        return deltas

    def _ending_so_far(self, cut: str) -> tuple[Stop, str]:
        """Return how the reply ended, and why if it is not complete."""
        if cut:
            return Stop.CUT, cut
        if not self.is_reply_complete:
            how_it_ended = ""
            if self._stop:
                how_it_ended = f"with {self._stop!r}"
            return Stop.CUT, self._describe_abrupt_end(how_it_ended)
        stop = anthropic_gateway.STOPS.get(self._stop, Stop.END)
        if stop is Stop.FILTERED:
            return stop, f"{self._where} declined to answer this."
        return stop, ""
