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
        body: Object = {
            "model": request.model,
            "messages": self._write_messages(request, abilities),
            "stream": True,
        }
        body["stream_options"] = {"include_usage": True}
        if request.tools and abilities.tools:
            body["tools"] = [*chat_gateway.tools_as_json(request.tools)]
        if request.max_output:
            is_openai = self.host.endswith(("api.openai.com", ".azure.com"))
            body["max_completion_tokens" if is_openai else "max_tokens"] = request.max_output
        if request.reasoning and abilities.reasoning:
            body.update(self._effort_option(request.reasoning))
        body.update(protocol_dialect.sampling_options(request, abilities))
        if self.host.endswith("openrouter.ai"):
            body["usage"] = {"include": True}
        return protocol_dialect.OutgoingRequest("/chat/completions", body)

    def build_reply_reader(self, request: Request) -> ChatReplyReader:
        return ChatReplyReader(self.reasoning_owner, self.where, request.model)

    def relax_request(self, body: Object, failure: ModelFailed) -> Object | None:
        if "reasoning_content" in failure.what or "reasoning_details" in failure.what:
            return _change_reasoning(body, needed="must be" in failure.what)
        return protocol_dialect.without_refused_option(body, failure, _OPTIONAL)

    def _effort_option(self, effort: str) -> Object:
        if self.host.endswith("openrouter.ai"):
            return {"reasoning": {"effort": effort}}
        return {"reasoning_effort": effort}

    # --- Writing a request's messages

    def _write_messages(
        self, request: Request, abilities: protocol_dialect.ModelAbilities
    ) -> list[Json]:
        strict = self.host.endswith("mistral.ai")
        ids = request_parts.legal_ids(
            request.messages, _MISTRAL_ID if strict else _ID, 9 if strict else 40
        )
        writer = _ChatMessageWriter(
            self.reasoning_owner,
            ids,
            abilities,
            reasoning_needed=self.host.endswith("deepseek.com"),
        )
        loop = request_parts.start_of_open_tool_loop(request.messages)
        written: list[Json] = (
            [{"role": "system", "content": request.system}] if request.system else []
        )
        for position, message in enumerate(request.messages):
            if message.role is Role.ASSISTANT:
                written += writer.write_assistant_message(message, in_loop=position >= loop)
            else:
                written += writer.write_user_message(message)
        if self.host.endswith("openrouter.ai") and request.model.startswith("anthropic/"):
            _mark_for_caching(written)
        return written


@dataclass(frozen=True, slots=True)
class _ChatMessageWriter:
    tag: str
    ids: Mapping[str, str]
    abilities: protocol_dialect.ModelAbilities
    reasoning_needed: bool

    def write_user_message(self, message: Message) -> list[Json]:
        """Write the results, each as a message, and then what the user says, with the
        results' images.
        """
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        rest: list[MessagePart] = [image for result in results for image in result.images]
        rest += [part for part in message.parts if not isinstance(part, ToolResult)]
        written: list[Json] = [
            {"role": "tool", "tool_call_id": self.ids[one.call], "content": one.text}
            for one in results
        ]
        content = self._chat_content(rest)
        if content or not results:
            written.append({"role": "user", "content": content or "(empty)"})
        return written

    def _chat_content(self, parts: list[MessagePart]) -> str | list[Json]:
        pieces = [piece for part in parts if (piece := self._chat_piece(part)) is not None]
        if all(isinstance(piece, str) for piece in pieces):
            return "\n\n".join(str(piece) for piece in pieces)
        return [
            {"type": "text", "text": piece} if isinstance(piece, str) else piece for piece in pieces
        ]

    def _chat_piece(self, part: MessagePart) -> str | Object | None:
        if isinstance(part, Text):
            return part.text or None
        if isinstance(part, Image):
            if not self.abilities.images:
                return request_parts.text_for_omitted_image(part)
            return {"type": "image_url", "image_url": {"url": request_parts.data_url(part)}}
        return None

    def write_assistant_message(self, message: Message, *, in_loop: bool) -> list[Json]:
        text = "".join(part.text for part in message.parts if isinstance(part, Text))
        calls: list[Json] = [
            {
                "id": self.ids[part.id],
                "type": "function",
                "function": {"name": part.name, "arguments": request_parts.arguments_as_json(part)},
            }
            for part in message.parts
            if isinstance(part, ToolCall)
        ]
        if not text and not calls:
            return []
        written: Object = {"role": "assistant", "content": text or None}
        if calls:
            written["tool_calls"] = calls
        if in_loop or self.reasoning_needed:
            written.update(self._reasoning_fields(message))
        return [written]

    def _reasoning_fields(self, message: Message) -> Object:
        """Return the server's own reasoning under the name that it used. Others' is left out."""
        own = [
            part
            for part in message.parts
            if isinstance(part, Reasoning) and part.provider == self.tag
        ]
        if not own:
            return (
                {"reasoning_content": " "}
                if self.reasoning_needed and self.abilities.reasoning
                else {}
            )
        kept = parse_object(own[-1].opaque) or {}
        if details := list_at(kept, "details"):
            return {"reasoning_details": details}
        return {text_at(kept, "field") or "reasoning_content": "".join(part.text for part in own)}


def _change_reasoning(body: Object, *, needed: bool) -> Object | None:
    """Remove reasoning from the messages, or add a blank one if required. Return None
    if nothing changes.
    """
    names = ("reasoning_content", "reasoning_details", "reasoning")
    changed: list[Json] = []
    for message in list_at(body, "messages"):
        if not isinstance(message, dict) or message.get("role") != "assistant":
            changed.append(message)
        elif needed:
            changed.append({"reasoning_content": " ", **message})
        else:
            changed.append(without_fields(message, *names))
    return None if changed == body.get("messages") else {**body, "messages": changed}


def _mark_for_caching(written: list[Json]) -> None:
    """Mark the first and last message for models behind OpenRouter that only cache on request."""
    for message in (written[0], written[-1]):
        content = value_at(message, "content")
        if isinstance(message, dict) and isinstance(content, str) and content:
            message["content"] = [
                {"type": "text", "text": content, "cache_control": {"type": "ephemeral"}}
            ]
