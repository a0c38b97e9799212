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
        """Write a request as Gemini's protocol has it. The model's name is in the address."""
        body: Object = {"contents": self._write_contents(request, abilities)}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools and abilities.tools:
            declarations: list[Json] = list(gemini_gateway.tools_as_json(request.tools))
            body["tools"] = [{"functionDeclarations": declarations}]
        settings = _generation_config(request, abilities)
        if settings:
            body["generationConfig"] = settings
        # Google lists its models as "models/…", which is the same model.
        model_name = request.model.removeprefix("models/")
        quoted_name = quote(model_name, safe="-._~")
        path = f"{self._version_path()}/models/{quoted_name}:streamGenerateContent?alt=sse"
        return protocol_dialect.OutgoingRequest(path, body)

    def _version_path(self) -> str:
        # People enter the address with or without its version, which may be v1 or v1beta.
        if "/v1" in urlsplit(self.base_url).path:
            return ""
        return "/v1beta"

    def _write_contents(
        self, request: Request, abilities: protocol_dialect.ModelAbilities
    ) -> list[Json]:
        """Write the messages. Those that say nothing are left out."""
        tool_names = _tool_names_by_call(request)
        writer = _GeminiContentWriter(self.reasoning_owner, tool_names, abilities)
        # Since the user last said something, the model has only called tools. For this stretch
        # of the conversation, Gemini wants its calls back with their signatures.
        loop_start = request_parts.start_of_open_tool_loop(request.messages)
        contents: list[Json] = []
        for position, message in enumerate(request.messages):
            content = writer.write_content(message, in_loop=position >= loop_start)
            if content is not None:
                contents.append(content)
        return contents

    def build_reply_reader(self, request: Request) -> "GeminiReplyReader":
        return GeminiReplyReader(self.reasoning_owner, self.where, request.model)

    def relax_request(self, body: Object, failure: ModelFailed) -> Object | None:
        """Return a refused request without what was refused, so that it can be sent again.

        That is a signature which this model cannot read, or thinking which it does not offer.
        None: the refusal is about something else.
        """
        refusal = failure.what.lower()
        if "signature" in refusal:
            return _with_foreign_signatures(body)
        settings = object_at(body, "generationConfig")
        if "thinking" in refusal and settings.get("thinkingConfig"):
            without_thinking = json_values.without_fields(settings, "thinkingConfig")
            return {**body, "generationConfig": without_thinking}
        return None


def _tool_names_by_call(request: Request) -> dict[str, str]:
    """Return the tool of each call, as results are sent with the tool's name."""
    tool_names: dict[str, str] = {}
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                tool_names[part.id] = part.name
    return tool_names


def _generation_config(request: Request, abilities: protocol_dialect.ModelAbilities) -> Object:
    """Return the settings of a request: the longest reply, temperature and thinking."""
    settings: Object = {}
    if request.max_output:
        settings["maxOutputTokens"] = request.max_output
    settings.update(protocol_dialect.sampling_options(request, abilities, top_p="topP"))
    if not abilities.reasoning:
        return settings

    thinking: Object = {"includeThoughts": True}
    if request.reasoning and abilities.reasoning == "level":
        thinking["thinkingLevel"] = request.reasoning
    elif request.reasoning and abilities.reasoning == "budget":
        thinking["thinkingBudget"] = BUDGETS.get(request.reasoning, -1)
    settings["thinkingConfig"] = thinking
    return settings


@dataclass(frozen=True, slots=True)
class _GeminiContentWriter:
    """Writes messages as this protocol has them."""

    tag: str  # The mark of this provider's own reasoning. That of others is not sent to it.
    tool_names: Mapping[str, str]  # By the call's id.
    abilities: protocol_dialect.ModelAbilities

    def write_content(self, message: Message, *, in_loop: bool) -> Object | None:
        """Return a message, or None for a reply that says nothing. `in_loop`: it belongs to the
        tool loop that is still open.
        """
        if message.role is not Role.ASSISTANT:
            return {"role": "user", "parts": self._user_parts(message) or [{"text": "(empty)"}]}
        reply_parts = self._reply_parts(message, in_loop=in_loop)
        if not reply_parts:
            return None
        return {"role": "model", "parts": list(reply_parts)}

    def _user_parts(self, message: Message) -> list[Json]:
        """Return all results, which must come first, then their images, then the user's parts."""
        responses: list[Json] = []
        result_images: list[Json] = []
        users_parts: list[Json] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                responses.append(self._function_response(part))
                for image in part.images:
                    result_images.append(self._inline_image(image))
            else:
                written_part = self._write_part(part)
                if written_part is not None:
                    users_parts.append(written_part)
        return responses + result_images + users_parts

    def _reply_parts(self, message: Message, *, in_loop: bool) -> list[Object]:
        """Return the parts of an earlier reply, each with its signature, by which Google knows
        its own work again. Here the signature is kept as reasoning before its part.
        """
        written: list[Object] = []
        signature = ""  # It goes on the next part.
        for part in message.parts:
            if isinstance(part, Reasoning):
                own_signature = self._own_signature(part)
                if own_signature and signature:  # The first one had no part of its own.
                    written.append(_signed_empty_text(signature))
                if own_signature:
                    signature = own_signature
                continue
            written_part = self._write_part(part)
            if written_part is None:
                continue
            if signature:
                written_part["thoughtSignature"] = signature
                signature = ""
            written.append(written_part)
        # A signature at a reply's end came on an empty text or a thought, and goes back on a text.
        if signature:
            written.append(_signed_empty_text(signature))
        if in_loop and self.abilities.reasoning == "level":
            return _sign_first_call(written)
        return written

    def _own_signature(self, part: Reasoning) -> str:
        """Return the signature that this provider gave with its reasoning, if it is its own."""
        if part.provider != self.tag or not part.opaque:
            return ""
        return text_at(json_values.parse_object(part.opaque), "signature")

    def _write_part(self, part: MessagePart) -> Object | None:
        """Return a part as this protocol has it, or None for what is not sent."""
        if isinstance(part, Text) and part.text:
            return {"text": part.text}
        if isinstance(part, ToolCall):
            arguments = request_parts.arguments_as_object(part)
            return {"functionCall": {"name": part.name, "args": arguments}}
        if isinstance(part, Image):
            return self._inline_image(part)
        return None

    def _function_response(self, result: ToolResult) -> Object:
        """Return a call's result, under the name of its tool."""
        response: Object = {}
        if result.ok:
            response["output"] = result.text
        else:
            response["error"] = result.text
        tool_name = self.tool_names.get(result.call, "unknown")
        return {"functionResponse": {"name": tool_name, "response": response}}

    def _inline_image(self, image: Image) -> Object:
        """Return an image, or a sentence in its place if this model cannot take it."""
        is_accepted = self.abilities.images and image.media_type in IMAGE_TYPES
        if not is_accepted:
            return {"text": request_parts.text_for_omitted_image(image)}
        return {
            "inlineData": {"mimeType": image.media_type, "data": request_parts.base64_text(image)}
        }


def _signed_empty_text(signature: str) -> Object:
    return {"text": "", "thoughtSignature": signature}


def _sign_first_call(parts: list[Object]) -> list[Object]:
    """Sign the first call of a reply in the open tool loop, as required even for
    another model's calls.
    """
    for part in parts:
        if "functionCall" in part:
            part.setdefault("thoughtSignature", FOREIGN)
            break
    return parts


def _with_foreign_signatures(body: Object) -> Object | None:
    """Return a request without the signatures that this model cannot read, or None if it has none.

    The first call of each message gets Google's placeholder, since the model wants some
    signature there.
    """
    contents: list[Json] = []
    for content in list_at(body, "contents"):
        unsigned_parts: list[Object] = []
        for part in list_at(content, "parts"):
            unsigned_part = json_values.without_fields(object_at(part), "thoughtSignature")
            # An empty text was there for its signature alone.
            if unsigned_part != {"text": ""}:
                unsigned_parts.append(unsigned_part)
        if not unsigned_parts:
            continue  # Google refuses a message without parts.
        changed_content = dict(object_at(content))
        changed_content["parts"] = list(_sign_first_call(unsigned_parts))
        contents.append(changed_content)
    if contents == body["contents"]:
        return None
    return {**body, "contents": contents}


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
        if self._blocked:
            return True
        return self._finish in gemini_gateway.STOPS or self._finish in gemini_gateway.FILTERS

    def feed_event(self, event: ServerSentEvent) -> list[Delta]:
        """Read one event of the stream and return what it adds to the reply."""
        value = json_values.parse_json(event.data)
        if not isinstance(value, list):
            return self._read_response(json_values.require_object(value))
        # A server that does not stream events sends all responses as one list.
        deltas: list[Delta] = []
        for response in value:
            deltas.extend(self._read_response(object_at(response)))
        return deltas

    def _read_response(self, value: Object) -> list[Delta]:
        """Read a response of the stream, and return what it adds to the reply.

        Each response may repeat the token counts and the reason for the end, of which the
        last ones hold.
        """
        if protocol_dialect.find_error_in(value):
            status = json_values.number_at(value, "error", "code") or 500
            raise self._failure_in_stream(status, value)
        self._model = text_at(value, "modelVersion") or self._model
        self._blocked = text_at(value, "promptFeedback", "blockReason") or self._blocked
        usage = object_at(value, "usageMetadata")
        if usage:
            self._usage = gemini_gateway.parse_usage(usage)

        candidate = object_at(value, "candidates", 0)
        self._finish = text_at(candidate, "finishReason") or self._finish
        deltas: list[Delta] = []
        for part in list_at(candidate, "content", "parts"):
            deltas_of_part = self._read_part(object_at(part))
            deltas.extend(deltas_of_part)
        return deltas

    def _read_part(self, part: Object) -> list[Delta]:
        """Read a part of the reply: thoughts, a call or a text, each perhaps with a signature."""
        signature = text_at(part, "thoughtSignature")
        if json_values.value_at(part, "thought") is True:
            return self._read_thought(text_at(part, "text"), signature)
        if signature:
            self._keep_signature(signature)
        call = object_at(part, "functionCall")
        if call:
            return self._read_gemini_call(call)
        text = checked_text_at(part, "text")
        if not text:
            return []
        return self._draft.add_text(self._key_for_part("text"), text)

    def _read_thought(self, text: str, signature: str) -> list[Delta]:
        """Read thoughts. With a signature they end: what follows are others."""
        last_is_sealed = self._sealed is not None and self._draft.last_key == self._sealed
        key = self._key_for_part("reasoning", fresh=last_is_sealed)
        deltas = self._draft.add_reasoning(key, text)
        if signature:
            self._draft.seal_reasoning(key, signature=signature)
            self._sealed = key
        return deltas

    def _keep_signature(self, signature: str) -> None:
        """Keep a part's signature as reasoning before that part."""
        # Each signature belongs to the part after it, so a second one needs its own reasoning.
        last_is_sealed = self._sealed is not None and self._draft.last_key == self._sealed
        key = self._key_for_part("reasoning", fresh=last_is_sealed)
        self._draft.seal_reasoning(key, signature=signature)
        self._sealed = self._draft.last_key

    def _read_gemini_call(self, call: Object) -> list[Delta]:
        """Read a call of a tool, which Gemini always sends whole."""
        arguments = json_values.dump_json(object_at(call, "args")).decode()
        return self._draft.add_call_piece(
            self._key_for_part("call", fresh=True),
            call_id=text_at(call, "id"),
            name=checked_text_at(call, "name"),
            arguments=arguments,
        )

    def _key_for_part(self, kind: str, *, fresh: bool = False) -> tuple[str, int]:
        """Return the key of the part to which a piece of this kind belongs.

        Gemini does not say which part a piece continues. It is the last one if that is of the
        same kind, and otherwise, or if a `fresh` one is asked for, a new part.
        """
        last_key = self._draft.last_key
        if not fresh and isinstance(last_key, tuple):
            last_kind, last_number = last_key
            if last_kind == kind:
                return (kind, last_number)
        self._parts += 1
        return (kind, self._parts)

    def _ending_so_far(self, cut: str) -> tuple[Stop, str]:
        """Return how the reply ended, and why if it is not complete."""
        if self._blocked or self._finish in gemini_gateway.FILTERS:
            reason = self._blocked or self._finish
            return Stop.FILTERED, f"{self._where} held the reply back ({reason})."
        if cut:
            return Stop.CUT, cut
        if self._finish not in gemini_gateway.STOPS:
            how_it_ended = ""
            if self._finish:
                how_it_ended = f"with {self._finish}"
            return Stop.CUT, self._describe_abrupt_end(how_it_ended)
        return gemini_gateway.STOPS[self._finish], ""
