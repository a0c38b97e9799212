"""OpenAI's Responses, used without the provider's memory: `store` is false and every item is sent again.

Reasoning comes as encrypted items. They go back word for word in front of what they led to, to the same provider only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from helix_desktop.engine.blocks import Delta, Image, Message, MessagePart, Reply, Request, Role, ToolResult
from helix_desktop.engine.facts import Reasoning, Stop, Text, ToolCall, Usage
from helix_desktop.errors import ModelFailed
from helix_desktop.providers.dialect import SAMPLING, Abilities, Endpoint, Post, error_in, relaxed, sampling
from helix_desktop.providers.draft import sealed
from helix_desktop.providers.reader import Reader
from helix_desktop.providers.sse import Event
from helix_desktop.providers.wire import (
    Json,
    Object,
    arguments_text,
    data_url,
    get,
    left_out,
    legal_ids,
    list_at,
    must_be_object,
    number_at,
    object_at,
    parse,
    parse_object,
    schema_of,
    text_at,
    words_at,
)
from helix_desktop.values import dataclass

KIND = "openai-responses"
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OPTIONAL = ("reasoning.summary", "reasoning", "include", "parallel_tool_calls", "max_output_tokens", *SAMPLING)
_STATUS_OF = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_api_key": 401,
    "model_not_found": 404,
}


class OpenAIResponses(Endpoint):
    kind = KIND

    def compile(self, request: Request, abilities: Abilities) -> Post:
        writer = _Writer(self.tag, legal_ids(request.messages, _ID, 40), abilities)
        items = [item for message in request.messages for item in writer.items(message)]
        body: Object = {"model": request.model, "input": [*items], "stream": True, "store": False}
        if request.system:
            body["instructions"] = request.system
        if request.tools and abilities.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": schema_of(tool),
                    "strict": False,
                }
                for tool in request.tools
            ]
        if request.max_output:
            body["max_output_tokens"] = request.max_output
        if abilities.reasoning:
            body["include"] = ["reasoning.encrypted_content"]
            effort: Object = {"effort": request.reasoning} if request.reasoning else {}
            body["reasoning"] = {"summary": "auto", **effort}
        body.update(sampling(request, abilities))
        return Post("/responses", body)

    def reading(self, request: Request) -> ResponsesReading:
        return ResponsesReading(self.tag, self.where, request.model)

    def relax(self, body: Object, failure: ModelFailed) -> Object | None:
        """Without reasoning this organisation cannot decrypt, without summaries it may not see, without options."""
        if "encrypted" in failure.what or "reasoning' was provided without" in failure.what:
            kept = [item for item in list_at(body, "input") if get(item, "type") != "reasoning"]
            return None if kept == body["input"] else {**body, "input": kept}
        if "reasoning.summary" in failure.what and get(body, "reasoning", "summary"):
            effort = {name: value for name, value in object_at(body, "reasoning").items() if name != "summary"}
            return {**body, "reasoning": effort}
        return relaxed(body, failure, _OPTIONAL)


@dataclass(frozen=True, slots=True)
class _Writer:
    tag: str
    ids: Mapping[str, str]
    abilities: Abilities

    def items(self, message: Message) -> list[Object]:
        if message.role is Role.ASSISTANT:
            return [item for part in message.parts if (item := self._said(part)) is not None]
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        rest = [piece for part in message.parts if (piece := self._piece(part)) is not None]
        outputs: list[Object] = [
            {"type": "function_call_output", "call_id": self.ids[one.call], "output": self._output(one)}
            for one in results
        ]
        if not rest and results:
            return outputs
        content: list[Json] = [*rest] or [{"type": "input_text", "text": "(empty)"}]
        return [*outputs, {"type": "message", "role": "user", "content": content}]

    def _said(self, part: MessagePart) -> Object | None:
        if isinstance(part, Reasoning):
            item = parse_object(part.opaque) if part.provider == self.tag else None
            return item if item is not None and item.get("type") == "reasoning" else None
        if isinstance(part, ToolCall):
            call: Object = {"type": "function_call", "call_id": self.ids[part.id], "name": part.name}
            return {**call, "arguments": arguments_text(part)}
        if isinstance(part, Text) and part.text:
            return {"type": "message", "role": "assistant", "content": part.text}
        return None

    def _output(self, result: ToolResult) -> str | list[Json]:
        if not result.images:
            return result.text
        return [{"type": "input_text", "text": result.text}, *(self._image(image) for image in result.images)]

    def _piece(self, part: MessagePart) -> Object | None:
        if isinstance(part, Text) and part.text:
            return {"type": "input_text", "text": part.text}
        return self._image(part) if isinstance(part, Image) else None

    def _image(self, image: Image) -> Object:
        if not self.abilities.images:
            return {"type": "input_text", "text": left_out(image)}
        return {"type": "input_image", "image_url": data_url(image), "detail": "auto"}


# --- reading ---------------------------------------------------------------------------------------------------------


class ResponsesReading(Reader):
    """A stream of response events, or one whole response, being read."""

    def __init__(self, tag: str, where: str, model: str) -> None:
        super().__init__(tag, where, model)
        self._response: Object = {}

    @property
    def complete(self) -> bool:
        return bool(self._response)

    @property
    def over(self) -> bool:
        return bool(self._response)

    def feed(self, event: Event) -> list[Delta]:
        if event.data.strip() == "[DONE]":
            return []
        value = must_be_object(parse(event.data))
        if text_at(value, "object") == "response":
            return self._whole(value)
        match text_at(value, "type"):
            case "error":
                raise self._failure(value if error_in(value) else {"error": value})
            case "response.failed":
                raise self._failure(object_at(value, "response"))
            case "response.completed" | "response.incomplete" as kind:
                return self._end(object_at(value, "response"), kind)
            case "response.output_item.added" | "response.output_item.done" as kind:
                return self._item(
                    number_at(value, "output_index"), object_at(value, "item"), done=kind.endswith("done")
                )
        if error_in(value):
            raise self._failure(value)
        return self._piece(value)

    def _failure(self, body: Object) -> ModelFailed:
        code = text_at(body, "error", "code") or text_at(body, "error", "type")
        return self._refusal(_STATUS_OF.get(code, 500), body)

    def _piece(self, value: Object) -> list[Delta]:
        index, delta = (
            number_at(value, "output_index"),
            words_at(value, "delta") if text_at(value, "type").endswith(".delta") else "",
        )
        match text_at(value, "type"):
            case "response.output_text.delta" | "response.refusal.delta":
                return self._draft.text(index, delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._draft.reasoning(index, delta)
            case "response.reasoning_summary_part.added" if number_at(value, "summary_index"):
                return self._draft.reasoning(index, "\n\n")
            case "response.function_call_arguments.delta":
                return self._draft.call(index, arguments=delta)
        return []

    def _item(self, index: int, item: Object, *, done: bool) -> list[Delta]:
        match text_at(item, "type"):
            case "function_call":
                return self._call(index, item, done=done)
            case "reasoning" if done:
                return self._reasoning(index, item)
            case "message" if done and not self._draft.sort_of(index):
                return self._draft.text(index, _text_of(item))
        return []

    def _call(self, index: int, item: Object, *, done: bool) -> list[Delta]:
        call_id = text_at(item, "call_id") or text_at(item, "id")
        deltas = self._draft.call(index, call_id=call_id, name=words_at(item, "name"))
        return [*deltas, *self._draft.whole_arguments(index, text_at(item, "arguments"))] if done else deltas

    def _reasoning(self, index: int, item: Object) -> list[Delta]:
        """The item goes back as it came, if it can be read again: without the provider's memory only encrypted content
        can.
        """
        shown = "" if self._draft.sort_of(index) else _summary_of(item)
        deltas = self._draft.reasoning(index, shown)
        if text_at(item, "encrypted_content"):
            kept = {
                name: value for name, value in item.items() if name not in {"status", "content"} and value is not None
            }
            self._draft.seal(index, sealed(**kept))
        return deltas

    def _end(self, response: Object, kind: str) -> list[Delta]:
        self._response = {"status": kind.rpartition(".")[2], **response}
        return []

    def _whole(self, response: Object) -> list[Delta]:
        """A server that does not stream sends the response at once."""
        if error_in(response):
            raise self._failure(response)
        deltas: list[Delta] = []
        for index, item in enumerate(list_at(response, "output")):
            deltas += self._item(index, object_at(item), done=True)
        self._response = response
        return deltas

    def reply(self, cut: str = "") -> Reply:
        stop, why = self._ending(cut)
        usage = object_at(self._response, "usage")
        figures = Usage(
            input=number_at(usage, "input_tokens"),
            cache_read=number_at(usage, "input_tokens_details", "cached_tokens"),
            cache_write=number_at(usage, "input_tokens_details", "cache_write_tokens"),
            output=number_at(usage, "output_tokens"),
            reasoning=number_at(usage, "output_tokens_details", "reasoning_tokens"),
        )
        return Reply(
            self._draft.parts(cut=stop in (Stop.CUT, Stop.LENGTH)), stop, figures, text_at(self._response, "model"), why
        )

    def _ending(self, cut: str) -> tuple[Stop, str]:
        if cut or not self._response:
            return Stop.CUT, cut or self._ended()
        reason = text_at(self._response, "incomplete_details", "reason")
        if reason == "content_filter":
            return Stop.FILTERED, f"{self._where} held back the rest of the reply (content filter)."
        status = text_at(self._response, "status")
        if reason == "max_output_tokens":
            return Stop.LENGTH, ""
        if status != "completed":
            return Stop.CUT, self._ended(f"as {status or 'unknown'}{f' ({reason})' if reason else ''}")
        return (Stop.CALLS if self._draft.calls else Stop.END), ""


def _text_of(item: Object) -> str:
    return "".join(text_at(piece, "text") or text_at(piece, "refusal") for piece in list_at(item, "content"))


def _summary_of(item: Object) -> str:
    return "\n\n".join(text_at(piece, "text") for piece in list_at(item, "summary"))
