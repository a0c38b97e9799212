"""OpenAI's Responses protocol without the provider's memory: `store` is false, and
every item is sent again.

Reasoning comes as encrypted items, which are sent back word for
word, before what they led to, and only to the same provider.
"""

import re
from collections.abc import Mapping

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
from helix_desktop.json_values import Json, Object, list_at, object_at, text_at, value_at
from helix_desktop.protocols import protocol_dialect, request_parts
from helix_desktop.protocols.event_stream import ServerSentEvent
from helix_desktop.protocols.openai_responses import responses_gateway
from helix_desktop.protocols.protocol_dialect import SAMPLING, ModelAbilities, OutgoingRequest
from helix_desktop.protocols.reply_reader import ReplyReaderBase

KIND = "openai-responses"
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OPTIONAL = (
    "reasoning.summary",
    "reasoning",
    "include",
    "parallel_tool_calls",
    "max_output_tokens",
    *SAMPLING,
)
_STATUS_OF = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_api_key": 401,
    "model_not_found": 404,
}


class OpenAIResponses(protocol_dialect.ProtocolDialect):
    kind = KIND

    def compile_request(self, request: Request, abilities: ModelAbilities) -> OutgoingRequest:
        """Write a request as OpenAI's Responses have it: all items anew, as nothing is stored."""
        accepted_ids = request_parts.legal_ids(request.messages, _ID, 40)
        writer = _ResponsesItemWriter(self.reasoning_owner, accepted_ids, abilities)
        items: list[Json] = []
        for message in request.messages:
            items.extend(writer.write_items(message))
        body: Object = {"model": request.model, "input": items, "stream": True, "store": False}
        if request.system:
            body["instructions"] = request.system
        if request.tools and abilities.tools:
            body["tools"] = list(responses_gateway.tools_as_json(request.tools))
        if request.max_output:
            body["max_output_tokens"] = request.max_output
        if abilities.reasoning:
            # Reasoning comes encrypted, so that it can be sent back with the next request.
            body["include"] = ["reasoning.encrypted_content"]
            reasoning: Object = {"summary": "auto"}
            if request.reasoning:
                reasoning["effort"] = request.reasoning
            body["reasoning"] = reasoning
        body.update(protocol_dialect.sampling_options(request, abilities))
        return OutgoingRequest("/responses", body)

    def build_reply_reader(self, request: Request) -> "ResponsesReplyReader":
        return ResponsesReplyReader(self.reasoning_owner, self.where, request.model)

    def relax_request(self, body: Object, failure: ModelFailed) -> Object | None:
        """Return a refused request without what was refused, so that it can be sent again.

        That is reasoning which this organisation cannot decrypt, summaries which it may not
        see, or an option. None: the refusal is about something else.
        """
        if "encrypted" in failure.what or "reasoning' was provided without" in failure.what:
            return _without_reasoning_items(body)
        reasoning = object_at(body, "reasoning")
        if "reasoning.summary" in failure.what and reasoning.get("summary"):
            return {**body, "reasoning": json_values.without_fields(reasoning, "summary")}
        return protocol_dialect.without_refused_option(body, failure, _OPTIONAL)


def _without_reasoning_items(body: Object) -> Object | None:
    """Return a request without any reasoning, or None if there is none in it."""
    other_items: list[Json] = []
    for item in list_at(body, "input"):
        if value_at(item, "type") != "reasoning":
            other_items.append(item)
    if other_items == body["input"]:
        return None
    return {**body, "input": other_items}


@dataclass(frozen=True, slots=True)
class _ResponsesItemWriter:
    """Writes messages as the items of this protocol."""

    tag: str  # The mark of this provider's own reasoning. That of others is not sent to it.
    ids: Mapping[str, str]  # Call ids that this provider accepts, by those that the calls have.
    abilities: ModelAbilities

    def write_items(self, message: Message) -> list[Object]:
        """Return the items of a message: results first, and then what the user says."""
        if message.role is Role.ASSISTANT:
            return self._items_of_reply(message)
        items: list[Object] = []
        content: list[Json] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                items.append(self._result_item(part))
                continue
            input_piece = self._input_piece(part)
            if input_piece is not None:
                content.append(input_piece)
        # A message of results alone says nothing more, but no message may be missing altogether.
        if not content and not items:
            content.append({"type": "input_text", "text": "(empty)"})
        if content:
            items.append({"type": "message", "role": "user", "content": content})
        return items

    def _items_of_reply(self, message: Message) -> list[Object]:
        """Return the items of an earlier reply, in their order."""
        items: list[Object] = []
        for part in message.parts:
            item = self._reply_item(part)
            if item is not None:
                items.append(item)
        return items

    def _reply_item(self, part: MessagePart) -> Object | None:
        """Return a part of a reply as an item, or None for what is not sent."""
        if isinstance(part, Reasoning):
            return self._own_reasoning_item(part)
        if isinstance(part, ToolCall):
            return {
                "type": "function_call",
                "call_id": self.ids[part.id],
                "name": part.name,
                "arguments": request_parts.arguments_as_json(part),
            }
        if isinstance(part, Text) and part.text:
            return {"type": "message", "role": "assistant", "content": part.text}
        return None

    def _own_reasoning_item(self, part: Reasoning) -> Object | None:
        """Return the item of reasoning as this provider sent it. None: it is another's."""
        if part.provider != self.tag:
            return None
        item = json_values.parse_object(part.opaque)
        if item is None or item.get("type") != "reasoning":
            return None
        return item

    def _result_item(self, result: ToolResult) -> Object:
        return {
            "type": "function_call_output",
            "call_id": self.ids[result.call],
            "output": self._output_of_result(result),
        }

    def _output_of_result(self, result: ToolResult) -> str | list[Json]:
        """Return a result's text, or a list with its images."""
        if not result.images:
            return result.text
        output: list[Json] = [{"type": "input_text", "text": result.text}]
        for image in result.images:
            output.append(self._input_image(image))
        return output

    def _input_piece(self, part: MessagePart) -> Object | None:
        if isinstance(part, Text) and part.text:
            return {"type": "input_text", "text": part.text}
        if isinstance(part, Image):
            return self._input_image(part)
        return None

    def _input_image(self, image: Image) -> Object:
        if not self.abilities.images:
            return {"type": "input_text", "text": request_parts.text_for_omitted_image(image)}
        return {"type": "input_image", "image_url": request_parts.data_url(image), "detail": "auto"}


class ResponsesReplyReader(ReplyReaderBase):
    """Reads a stream of response events, or a whole response."""

    def __init__(self, tag: str, where: str, model: str) -> None:
        super().__init__(tag, where, model)
        self._response: Object = {}

    @property
    def is_reply_complete(self) -> bool:
        return bool(self._response)

    def feed_event(self, event: ServerSentEvent) -> list[Delta]:
        """Read one event of the stream and return what it adds to the reply."""
        if event.data.strip() == "[DONE]":
            return []
        value = json_values.require_object(json_values.parse_json(event.data))
        if text_at(value, "object") == "response":
            return self._read_whole_response(value)
        match text_at(value, "type"):
            case "error" if not protocol_dialect.find_error_in(value):
                # OpenAI's own event is itself the error; others put one inside.
                raise self._failure_of_body({"error": value})
            case "response.failed":
                raise self._failure_of_body(object_at(value, "response"))
            case "response.completed" | "response.incomplete" as kind:
                status = kind.removeprefix("response.")
                self._end_with_response({"status": status, **object_at(value, "response")})
                return []
            case "response.output_item.added" | "response.output_item.done" as kind:
                index = json_values.number_at(value, "output_index")
                is_done = kind == "response.output_item.done"
                return self._read_item(index, object_at(value, "item"), done=is_done)
        if protocol_dialect.find_error_in(value):
            raise self._failure_of_body(value)
        return self._read_event(value)

    def _failure_of_body(self, body: Object) -> ModelFailed:
        """Return the error in an event, with the status that a refusal of this kind has."""
        code = text_at(body, "error", "code") or text_at(body, "error", "type")
        return self._failure_in_stream(_STATUS_OF.get(code, 500), body)

    def _read_event(self, value: Object) -> list[Delta]:
        """Read a piece of a text, of reasoning, or of a call's arguments."""
        event_type = text_at(value, "type")
        index = json_values.number_at(value, "output_index")
        delta = ""
        if event_type.endswith(".delta"):
            delta = json_values.checked_text_at(value, "delta")
        # A summary of reasoning may have several parts, which are shown as paragraphs.
        is_later_summary = json_values.number_at(value, "summary_index") > 0
        match event_type:
            case "response.output_text.delta" | "response.refusal.delta":
                return self._draft.add_text(index, delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._draft.add_reasoning(index, delta)
            case "response.reasoning_summary_part.added" if is_later_summary:
                return self._draft.add_reasoning(index, "\n\n")
            case "response.function_call_arguments.delta":
                return self._draft.add_call_piece(index, arguments=delta)
        return []

    def _read_item(self, index: int, item: Object, *, done: bool) -> list[Delta]:
        """Read an item that begins or is done.

        A text whose pieces came before is complete without it.
        """
        match text_at(item, "type"):
            case "function_call":
                return self._read_call_item(index, item, done=done)
            case "reasoning" if done:
                return self._read_reasoning_item(index, item)
            case "message" if done and not self._draft.kind_of_part(index):
                text = ""
                for piece in list_at(item, "content"):
                    text += text_at(piece, "text") or text_at(piece, "refusal")
                return self._draft.add_text(index, text)
        return []

    def _read_call_item(self, index: int, item: Object, *, done: bool) -> list[Delta]:
        """Read a call that begins, or one that is done and has all of its arguments."""
        call_id = text_at(item, "call_id") or text_at(item, "id")
        deltas = self._draft.add_call_piece(
            index, call_id=call_id, name=json_values.checked_text_at(item, "name")
        )
        if done:
            deltas += self._draft.set_whole_arguments(index, text_at(item, "arguments"))
        return deltas

    def _read_reasoning_item(self, index: int, item: Object) -> list[Delta]:
        """Read an item of reasoning that is done, and keep it to send it back as it came.

        The provider stores nothing, so only an item with encrypted content is of use to it.
        """
        summary = ""
        # The summary's pieces came before, where the server streams them.
        if not self._draft.kind_of_part(index):
            summary = "\n\n".join(text_at(piece, "text") for piece in list_at(item, "summary"))
        deltas = self._draft.add_reasoning(index, summary)
        if not text_at(item, "encrypted_content"):
            return deltas

        fields_to_send_back: Object = {}
        for name, value in json_values.without_fields(item, "status", "content").items():
            if value is not None:
                fields_to_send_back[name] = value
        self._draft.seal_reasoning(index, **fields_to_send_back)
        return deltas

    def _read_whole_response(self, response: Object) -> list[Delta]:
        """Read the whole response of a server that does not stream."""
        if protocol_dialect.find_error_in(response):
            raise self._failure_of_body(response)
        deltas: list[Delta] = []
        for index, item in enumerate(list_at(response, "output")):
            deltas.extend(self._read_item(index, object_at(item), done=True))
        self._end_with_response(response)
        return deltas

    def _end_with_response(self, response: Object) -> None:
        """Take in the last event, which has the whole response with its usage."""
        self._response = response
        self._model = text_at(response, "model")
        self.is_stream_over = True
        self._usage = responses_gateway.parse_usage(object_at(response, "usage"))

    def _ending_so_far(self, cut: str) -> tuple[Stop, str]:
        """Return how the reply ended, and why if it is not complete."""
        if cut:
            return Stop.CUT, cut
        if not self._response:
            return Stop.CUT, self._describe_abrupt_end()
        reason = text_at(self._response, "incomplete_details", "reason")
        if reason == "content_filter":
            return Stop.FILTERED, f"{self._where} held back the rest of the reply (content filter)."
        if reason == "max_output_tokens":
            return Stop.LENGTH, ""
        status = text_at(self._response, "status")
        if status == "completed":
            return Stop.END, ""
        how_it_ended = f"as {status or 'unknown'}"
        if reason:
            how_it_ended += f" ({reason})"
        return Stop.CUT, self._describe_abrupt_end(how_it_ended)
