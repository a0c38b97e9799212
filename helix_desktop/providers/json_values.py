"""Reads and writes JSON values as the provider protocols need them. It must not know any single protocol."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace

from helix_desktop.engine.blocks import Image, Message, MessagePart, Request, Role, ToolResult
from helix_desktop.engine.facts import Reasoning, ToolCall, ToolSpec

Json = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
Object = dict[str, Json]

EMPTY_SCHEMA: Object = {"type": "object", "properties": {}}


def dump_json(value: Json) -> bytes:
    """Compact UTF-8. Halves of surrogate pairs, which no provider accepts, become question marks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", errors="replace")


def dump_json_body(body: Object) -> bytes:
    """The same bytes, made item by item: a long conversation in one call would hold the interpreter for a while."""
    return (
        b"{" + b",".join(b"%b:%b" % (dump_json(name), _dump_json_items(value)) for name, value in body.items()) + b"}"
    )


def _dump_json_items(value: Json) -> bytes:
    return b"[" + b",".join(map(dump_json, value)) + b"]" if isinstance(value, list) else dump_json(value)


def _refuse_json_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def parse_json(text: str | bytes) -> Json:
    """ValueError for what is not JSON, which includes NaN and nesting deeper than Python can follow."""
    try:
        value: Json = json.loads(text, parse_constant=_refuse_json_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def require_object(value: Json) -> Object:
    """The value, which is a ValueError where it is no object: the text is wrong, not the caller."""
    if not isinstance(value, dict):
        raise ValueError("an event is an object")  # noqa: TRY004
    return value


def parse_object(text: str | bytes) -> Object | None:
    """The object in this text, or None when it is not one."""
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def value_at(value: Json, *path: str | int) -> Json:
    """The value under a path of keys and positions, or None where any of it is missing or of another shape."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text_at(value: Json, *path: str | int) -> str:
    found = value_at(value, *path)
    return found if isinstance(found, str) else ""


def words_at(value: Json, *path: str | int) -> str:
    """What the model says, or nothing; a ValueError where something else stands in its place: it must not be lost in silence."""
    found = value_at(value, *path)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"{'.'.join(map(str, path))} is no text")
    return found or ""


def number_at(value: Json, *path: str | int) -> int:
    found = value_at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found or found < 0:  # noqa: PLR0124 (NaN)
        return 0
    return int(min(found, 10**15))


def list_at(value: Json, *path: str | int) -> list[Json]:
    found = value_at(value, *path)
    return found if isinstance(found, list) else []


def object_at(value: Json, *path: str | int) -> Object:
    found = value_at(value, *path)
    return found if isinstance(found, dict) else {}


def arguments_as_object(call: ToolCall) -> Object:
    """A call's arguments as an object. What the model wrote malformed is kept as one string, so it can see its mistake."""
    if not call.arguments.strip():
        return {}
    found = parse_object(call.arguments)
    return {"malformed_arguments": call.arguments} if found is None else found


def arguments_as_json(call: ToolCall) -> str:
    """A call's arguments as JSON text: exactly as the model wrote them where that is an object."""
    if parse_object(call.arguments) is not None:
        return call.arguments
    return dump_json(arguments_as_object(call)).decode()


def schema_of_tool(tool: ToolSpec) -> Object:
    return parse_object(tool.schema) or dict(EMPTY_SCHEMA)


def legal_ids(messages: Sequence[Message], legal: re.Pattern[str], length: int) -> dict[str, str]:
    """Every call id of these messages → an id this provider takes: itself, or letters and digits made from it."""
    ids = {
        part.id if isinstance(part, ToolCall) else part.call
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall | ToolResult)
    }
    return {one: one if legal.fullmatch(one) else _id_from_hash(one, length) for one in ids}


def _id_from_hash(call_id: str, length: int) -> str:
    return hashlib.sha256(call_id.encode("utf-8", errors="replace")).hexdigest()[:length]


def keep_own_reasoning(request: Request) -> Request:
    """Without the reasoning that another program recorded of another model: it can go back to its own alone."""

    def own(part: MessagePart) -> bool:
        return not isinstance(part, Reasoning) or part.model in ("", request.model)

    if all(own(part) for message in request.messages for part in message.parts):
        return request
    kept = (replace(message, parts=tuple(filter(own, message.parts))) for message in request.messages)
    return replace(request, messages=tuple(kept))


def base64_text(image: Image) -> str:
    return base64.b64encode(image.data).decode("ascii")


def data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{base64_text(image)}"


def text_for_omitted_image(image: Image) -> str:
    """What stands in the place of an image a model cannot take."""
    return f"[An image ({image.media_type}, {len(image.data):,} bytes) is not shown: this model cannot take it.]"


def start_of_open_tool_loop(messages: Sequence[Message]) -> int:
    """Where the open tool loop begins: the position behind the last message the user wrote with no results in it.

    Inside it some providers require the reasoning of their calls; before it they do not.
    """
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if message.role is Role.USER and not any(isinstance(part, ToolResult) for part in message.parts):
            return position + 1
    return 0
