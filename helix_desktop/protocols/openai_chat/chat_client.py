"""Speaks Chat Completions, as OpenAI and many others understand them.

Servers agree on the outline but differ in details: some omit a tool call's index, send a call
in one piece, its arguments as an object, the usage in a separate chunk or inside the choice,
or reasoning under one of three names. We write what every server accepts and read all
variants, with one exception: a stream without a reason for its end is not a complete answer.
"""

import re
from collections.abc import Mapping

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.engine.messages import Image, Message, MessagePart, Request, Role, ToolResult
from helix_desktop.errors import ModelFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import (
    Json,
    Object,
    list_at,
    parse_object,
    text_at,
    value_at,
    without_fields,
)
from helix_desktop.protocols import protocol_dialect, request_parts
from helix_desktop.protocols.openai_chat import chat_gateway
from helix_desktop.protocols.openai_chat.chat_reply_reader import ChatReplyReader

KIND = "openai-chat"
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")
_OPTIONAL = (
    "stream_options", "reasoning_effort", "reasoning", "parallel_tool_calls", "max_completion_tokens", "max_tokens", "usage",
    *protocol_dialect.SAMPLING,
)  # fmt: skip


class OpenAIChat(protocol_dialect.ProtocolDialect):
    kind = KIND

    def compile_request(
        self, request: Request, abilities: protocol_dialect.ModelAbilities
    ) -> protocol_dialect.OutgoingRequest:
        """Write a request as Chat Completions have it, with what this server wants in particular."""
        body: Object = {
            "model": request.model,
            "messages": self._write_messages(request, abilities),
            "stream": True,
        }
        body["stream_options"] = {"include_usage": True}
        if request.tools and abilities.tools:
            body["tools"] = list(chat_gateway.tools_as_json(request.tools))
        if request.max_output:
            body[self._name_of_output_limit()] = request.max_output
        if request.reasoning and abilities.reasoning:
            body.update(self._effort_option(request.reasoning))
        body.update(protocol_dialect.sampling_options(request, abilities))
        if self.host.endswith("openrouter.ai"):
            body["usage"] = {"include": True}
        return protocol_dialect.OutgoingRequest("/chat/completions", body)

    def build_reply_reader(self, request: Request) -> ChatReplyReader:
        return ChatReplyReader(self.reasoning_owner, self.where, request.model)

    def relax_request(self, body: Object, failure: ModelFailed) -> Object | None:
        """Return a refused request without what was refused, so that it can be sent again.

        That is an option, or the reasoning of earlier replies, which some servers refuse and
        others demand. None: the refusal is about something else.
        """
        if "reasoning_content" in failure.what or "reasoning_details" in failure.what:
            return _change_reasoning(body, needed="must be" in failure.what)
        return protocol_dialect.without_refused_option(body, failure, _OPTIONAL)

    def _name_of_output_limit(self) -> str:
        # OpenAI's reasoning models refuse the old name, which all other servers expect.
        if self.host.endswith(("api.openai.com", ".azure.com")):
            return "max_completion_tokens"
        return "max_tokens"

    def _effort_option(self, effort: str) -> Object:
        if self.host.endswith("openrouter.ai"):
            return {"reasoning": {"effort": effort}}
        return {"reasoning_effort": effort}

    # --- Writing a request's messages

    def _write_messages(
        self, request: Request, abilities: protocol_dialect.ModelAbilities
    ) -> list[Json]:
        """Write the system prompt and the messages."""
        writer = _ChatMessageWriter(
            self.reasoning_owner,
            self._legal_call_ids(request),
            abilities,
            reasoning_needed=self.host.endswith("deepseek.com"),
        )
        # Since the user last said something, the model has only called tools. For this stretch
        # of the conversation, servers want the model's reasoning back.
        loop_start = request_parts.start_of_open_tool_loop(request.messages)
        written: list[Json] = []
        if request.system:
            written.append({"role": "system", "content": request.system})
        for position, message in enumerate(request.messages):
            if message.role is Role.ASSISTANT:
                is_in_loop = position >= loop_start
                written.extend(writer.write_assistant_message(message, in_loop=is_in_loop))
            else:
                written.extend(writer.write_user_message(message))
        if self.host.endswith("openrouter.ai") and request.model.startswith("anthropic/"):
            _mark_for_caching(written)
        return written

    def _legal_call_ids(self, request: Request) -> Mapping[str, str]:
        # Mistral refuses a request whose ids are not exactly nine letters and digits.
        if self.host.endswith("mistral.ai"):
            return request_parts.legal_ids(request.messages, _MISTRAL_ID, 9)
        return request_parts.legal_ids(request.messages, _ID, 40)


@dataclass(frozen=True, slots=True)
class _ChatMessageWriter:
    """Writes messages as this protocol has them."""

    tag: str  # The mark of this server's own reasoning. That of others is not sent to it.
    ids: Mapping[str, str]  # Call ids that this server accepts, by those that the calls have.
    abilities: protocol_dialect.ModelAbilities
    reasoning_needed: bool  # Whether the server wants its reasoning back with every reply.

    def write_user_message(self, message: Message) -> list[Json]:
        """Write the results of tools, each as a message, and then what the user says.

        A message with the role "tool" can carry text alone, so a result's images follow in the
        user's message.
        """
        written: list[Json] = []
        result_images: list[MessagePart] = []
        users_parts: list[MessagePart] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                call_id = self.ids[part.call]
                written.append({"role": "tool", "tool_call_id": call_id, "content": part.text})
                result_images.extend(part.images)
            else:
                users_parts.append(part)

        content = self._chat_content(result_images + users_parts)
        if content:
            written.append({"role": "user", "content": content})
        elif not written:
            written.append({"role": "user", "content": "(empty)"})
        return written

    def _chat_content(self, parts: list[MessagePart]) -> str | list[Json]:
        """Return what a user's message says, as a text or as a list with images."""
        texts: list[str] = []
        pieces: list[Json] = []
        for part in parts:
            piece = self._chat_piece(part)
            if isinstance(piece, str):
                texts.append(piece)
                pieces.append({"type": "text", "text": piece})
            elif piece is not None:
                pieces.append(piece)
        # Not every server reads a list, so what is text alone is written as text.
        if len(texts) == len(pieces):
            return "\n\n".join(texts)
        return pieces

    def _chat_piece(self, part: MessagePart) -> str | Object | None:
        """Return a text or an image as this protocol has it, or None for what is not sent."""
        if isinstance(part, Text):
            return part.text or None
        if not isinstance(part, Image):
            return None
        if not self.abilities.images:
            return request_parts.text_for_omitted_image(part)
        return {"type": "image_url", "image_url": {"url": request_parts.data_url(part)}}

    def write_assistant_message(self, message: Message, *, in_loop: bool) -> list[Json]:
        """Write a reply. One that says nothing is left out. `in_loop`: it belongs to the tool
        loop that is still open.
        """
        text = ""
        calls: list[Json] = []
        for part in message.parts:
            if isinstance(part, Text):
                text += part.text
            elif isinstance(part, ToolCall):
                calls.append(self._chat_call(part))
        if not text and not calls:
            return []

        written: Object = {"role": "assistant", "content": text or None}
        if calls:
            written["tool_calls"] = calls
        if in_loop or self.reasoning_needed:
            written.update(self._reasoning_fields(message))
        return [written]

    def _chat_call(self, call: ToolCall) -> Json:
        return {
            "id": self.ids[call.id],
            "type": "function",
            "function": {"name": call.name, "arguments": request_parts.arguments_as_json(call)},
        }

    def _reasoning_fields(self, message: Message) -> Object:
        """Return the server's own reasoning under the name that it used. Others' is left out."""
        own_reasoning: list[Reasoning] = []
        for part in message.parts:
            if isinstance(part, Reasoning) and part.provider == self.tag:
                own_reasoning.append(part)
        if own_reasoning:
            return _fields_of_own_reasoning(own_reasoning)
        if self.reasoning_needed and self.abilities.reasoning:
            return {"reasoning_content": " "}
        return {}


def _fields_of_own_reasoning(own_reasoning: list[Reasoning]) -> Object:
    """Return a server's own reasoning as it wants it back: in the field in which it came.

    The reply's reader noted in the last part which field that was, or the details, which
    must go back word for word.
    """
    noted = parse_object(own_reasoning[-1].opaque) or {}
    details = list_at(noted, "details")
    if details:
        return {"reasoning_details": details}
    field_name = text_at(noted, "field") or "reasoning_content"
    whole_reasoning = "".join(part.text for part in own_reasoning)
    return {field_name: whole_reasoning}


def _change_reasoning(body: Object, *, needed: bool) -> Object | None:
    """Return a request without the reasoning of earlier replies, or None if it had none.

    `needed`: the server demands reasoning instead, so a reply without any gets a blank one.
    """
    messages: list[Json] = []
    for message in list_at(body, "messages"):
        is_reply = isinstance(message, dict) and message.get("role") == "assistant"
        if not is_reply:
            messages.append(message)
        elif needed:
            messages.append({"reasoning_content": " ", **message})
        else:
            messages.append(
                without_fields(message, "reasoning_content", "reasoning_details", "reasoning")
            )
    if messages == body.get("messages"):
        return None
    return {**body, "messages": messages}


def _mark_for_caching(written: list[Json]) -> None:
    """Mark the first and last message for models behind OpenRouter that only cache on request."""
    for message in (written[0], written[-1]):
        content = value_at(message, "content")
        if isinstance(message, dict) and isinstance(content, str) and content:
            message["content"] = [
                {"type": "text", "text": content, "cache_control": {"type": "ephemeral"}}
            ]
