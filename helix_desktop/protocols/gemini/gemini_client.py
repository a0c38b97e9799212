"""Speaks Google's Gemini protocol, by `streamGenerateContent`.

Calls are paired with results by name and order, since the protocol has no call ids. A
part's signature is kept as reasoning without text before that part, and is sent back on it.
"""

import base64
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlsplit

from helix_desktop import json_values
from helix_desktop.engine.facts import Reasoning, Stop, Text, ToolCall
from helix_desktop.engine.messages import (
    Delta,
    Image,
    Message,
    MessagePart,
    Request,
    Role,
    ToolResult,
)
from helix_desktop.errors import ModelFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Json, Object, checked_text_at, list_at, object_at, text_at
from helix_desktop.protocols import protocol_dialect, request_parts
from helix_desktop.protocols.event_stream import ServerSentEvent
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.reply_reader import ReplyReaderBase

KIND = "gemini"
BUDGETS = {"low": 2048, "medium": 8192, "high": 24_576}
IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/webp", "image/heic", "image/heif"})
# Google's own placeholder for the signature of another model's call.
FOREIGN: Final = base64.b64encode(gemini_gateway.PLACEHOLDER.encode()).decode()


class GeminiProtocol(protocol_dialect.ProtocolDialect):
    kind = KIND

    def key_headers(self, key: str) -> Mapping[str, str]:
        return {self.key_header or "x-goog-api-key": key}

    def compile_request(
        self, request: Request, abilities: protocol_dialect.ModelAbilities
    ) -> protocol_dialect.OutgoingRequest:
        loop = request_parts.start_of_open_tool_loop(request.messages)
        parts = (part for message in request.messages for part in message.parts)
        names = {part.id: part.name for part in parts if isinstance(part, ToolCall)}
        writer = _GeminiContentWriter(self.reasoning_owner, names, abilities)
        contents = [
            writer.write_content(message, in_loop=at >= loop)
            for at, message in enumerate(request.messages)
        ]
        body: Object = {"contents": [content for content in contents if content is not None]}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools and abilities.tools:
            body["tools"] = [
                {"functionDeclarations": [*gemini_gateway.tools_as_json(request.tools)]}
            ]
        if settings := _generation_config(request, abilities):
            body["generationConfig"] = settings
        model = quote(request.model.removeprefix("models/"), safe="-._~")
        version = "" if "/v1" in urlsplit(self.base_url).path else "/v1beta"
        return protocol_dialect.OutgoingRequest(
            f"{version}/models/{model}:streamGenerateContent?alt=sse", body
        )

    def build_reply_reader(self, request: Request) -> "GeminiReplyReader":
        return GeminiReplyReader(self.reasoning_owner, self.where, request.model)

    def relax_request(self, body: Object, failure: ModelFailed) -> Object | None:
        said = failure.what.lower()
        if "signature" in said:
            return _with_foreign_signatures(body)
        if "thinking" in said and json_values.value_at(body, "generationConfig", "thinkingConfig"):
            return {
                **body,
                "generationConfig": json_values.without_fields(
                    object_at(body, "generationConfig"), "thinkingConfig"
                ),
            }
        return None


def _generation_config(request: Request, abilities: protocol_dialect.ModelAbilities) -> Object:
    settings: Object = {"maxOutputTokens": request.max_output} if request.max_output else {}
    settings.update(protocol_dialect.sampling_options(request, abilities, top_p="topP"))
    if not abilities.reasoning:
        return settings
    thinking: Object = {"includeThoughts": True}
    if request.reasoning and abilities.reasoning == "level":
        thinking["thinkingLevel"] = request.reasoning
    elif request.reasoning and abilities.reasoning == "budget":
        thinking["thinkingBudget"] = BUDGETS.get(request.reasoning, -1)
    return {**settings, "thinkingConfig": thinking}


@dataclass(frozen=True, slots=True)
class _GeminiContentWriter:
    tag: str
    names: Mapping[str, str]
    abilities: protocol_dialect.ModelAbilities

    def write_content(self, message: Message, *, in_loop: bool) -> Object | None:
        if message.role is Role.ASSISTANT:
            parts = self._reply_parts(message, in_loop=in_loop)
            return {"role": "model", "parts": [*parts]} if parts else None
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        answers: list[Object] = [self._function_response(result) for result in results]
        images = [self._inline_image(image) for result in results for image in result.images]
        rest = [piece for part in message.parts if (piece := self._write_part(part)) is not None]
        return {"role": "user", "parts": [*answers, *images, *rest] or [{"text": "(empty)"}]}

    def _reply_parts(self, message: Message, *, in_loop: bool) -> list[Object]:
        """Return a reply's parts, each with the signature that preceded it."""
        written: list[Object] = []
        signature = ""
        for part in message.parts:
            if isinstance(part, Reasoning):
                if part.provider == self.tag and part.opaque:
                    signature = (
                        text_at(json_values.parse_object(part.opaque), "signature") or signature
                    )
                continue
            if (piece := self._write_part(part)) is not None:
                written.append({**piece, "thoughtSignature": signature} if signature else piece)
                signature = ""
        if signature:
            written.append({"text": "", "thoughtSignature": signature})
        return (
            _sign_first_call(written)
            if in_loop and self.abilities.reasoning == "level"
            else written
        )

    def _write_part(self, part: MessagePart) -> Object | None:
        if isinstance(part, Text):
            return {"text": part.text} if part.text else None
        if isinstance(part, ToolCall):
            return {
                "functionCall": {"name": part.name, "args": request_parts.arguments_as_object(part)}
            }
        return self._inline_image(part) if isinstance(part, Image) else None

    def _function_response(self, result: ToolResult) -> Object:
        told: Object = {"output" if result.ok else "error": result.text}
        return {
            "functionResponse": {"name": self.names.get(result.call, "unknown"), "response": told}
        }

    def _inline_image(self, image: Image) -> Object:
        if not self.abilities.images or image.media_type not in IMAGE_TYPES:
            return {"text": request_parts.text_for_omitted_image(image)}
        return {
            "inlineData": {"mimeType": image.media_type, "data": request_parts.base64_text(image)}
        }


def _sign_first_call(parts: list[Object]) -> list[Object]:
    """Sign the first call of a reply in the open tool loop, as required even for
    another model's calls.
    """
    if (first := next((part for part in parts if "functionCall" in part), None)) is not None:
        first.setdefault("thoughtSignature", FOREIGN)
    return parts


def _with_foreign_signatures(body: Object) -> Object | None:
    """Replace signatures that this model can no longer read by the placeholder."""
    contents: list[Json] = []
    for content in list_at(body, "contents"):
        parts = [
            json_values.without_fields(object_at(part), "thoughtSignature")
            for part in list_at(content, "parts")
        ]
        kept = [part for part in parts if part != {"text": ""}]
        contents.append({**object_at(content), "parts": [*_sign_first_call(kept)]})
    return None if contents == body["contents"] else {**body, "contents": contents}


class GeminiReplyReader(ReplyReaderBase):
    """Reads a stream of responses, each a piece of the reply, to its end, as usage may
    come last.
    """

    def __init__(self, tag: str, where: str, model: str) -> None:
        super().__init__(tag, where, model)
        self._finish = ""
        self._blocked = ""
        self._parts = 0
        self._sealed: object = None  # The key of the reasoning that was signed last.

    @property
    def is_reply_complete(self) -> bool:
        return (
            bool(self._blocked)
            or self._finish in gemini_gateway.STOPS
            or self._finish in gemini_gateway.FILTERS
        )

    def feed_event(self, event: ServerSentEvent) -> list[Delta]:
        value = json_values.parse_json(event.data)
        if isinstance(value, list):
            return [delta for one in value for delta in self._read_response(object_at(one))]
        return self._read_response(json_values.require_object(value))

    def _read_response(self, value: Object) -> list[Delta]:
        if protocol_dialect.find_error_in(value):
            raise self._failure_in_stream(
                json_values.number_at(value, "error", "code") or 500, value
            )
        self._model = text_at(value, "modelVersion") or self._model
        self._blocked = text_at(value, "promptFeedback", "blockReason") or self._blocked
        if object_at(value, "usageMetadata"):
            self._usage = gemini_gateway.parse_usage(object_at(value, "usageMetadata"))
        candidate = object_at(value, "candidates", 0)
        self._finish = text_at(candidate, "finishReason") or self._finish
        parts = list_at(candidate, "content", "parts")
        return [delta for part in parts for delta in self._read_part(object_at(part))]

    def _read_part(self, part: Object) -> list[Delta]:
        signature = text_at(part, "thoughtSignature")
        call = object_at(part, "functionCall")
        if json_values.value_at(part, "thought") is True:
            return self._draft.add_reasoning(self._key_for_part("reasoning"), text_at(part, "text"))
        if signature:
            last_is_sealed = self._sealed is not None and self._draft.last_key == self._sealed
            key = self._key_for_part("reasoning", fresh=last_is_sealed)
            self._draft.seal_reasoning(key, signature=signature)
            self._sealed = self._draft.last_key
        if call:
            arguments = json_values.dump_json(object_at(call, "args")).decode()
            key = self._key_for_part("call", fresh=True)
            return self._draft.add_call_piece(
                key,
                call_id=text_at(call, "id"),
                name=checked_text_at(call, "name"),
                arguments=arguments,
            )
        words = checked_text_at(part, "text")
        return self._draft.add_text(self._key_for_part("text"), words) if words else []

    def _key_for_part(self, kind: str, *, fresh: bool = False) -> tuple[str, int]:
        """Return the key of the current part if it is of this kind, or else a new one."""
        last = self._draft.last_key
        if not fresh and isinstance(last, tuple) and last[0] == kind:
            return (kind, last[1])
        self._parts += 1
        return (kind, self._parts)

    def _ending_so_far(self, cut: str) -> tuple[Stop, str]:
        if self._blocked or self._finish in gemini_gateway.FILTERS:
            return (
                Stop.FILTERED,
                f"{self._where} held the reply back ({self._blocked or self._finish}).",
            )
        if cut or self._finish not in gemini_gateway.STOPS:
            return Stop.CUT, cut or self._describe_abrupt_end(
                f"with {self._finish}" if self._finish else ""
            )
        return gemini_gateway.STOPS[self._finish], ""
