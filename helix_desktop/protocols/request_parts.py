"""Builds parts of requests for all protocols: arguments, ids, images, reasoning. Knows
no single protocol.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

from helix_desktop.engine.facts import Reasoning, ToolCall, ToolSpec
from helix_desktop.engine.messages import Image, Message, MessagePart, Request, Role, ToolResult
from helix_desktop.json_values import Object, dump_json, parse_object

EMPTY_SCHEMA: Object = {"type": "object", "properties": {}}


def arguments_as_object(call: ToolCall) -> Object:
    """Return a call's arguments as an object. Malformed ones become one string, to show
    the model its mistake.
    """
    if not call.arguments.strip():
        return {}
    arguments = parse_object(call.arguments)
    if arguments is None:
        return {"malformed_arguments": call.arguments}
    return arguments


def arguments_as_json(call: ToolCall) -> str:
    """Return a call's arguments as JSON, exactly as the model wrote them if they are an object."""
    if parse_object(call.arguments) is not None:
        return call.arguments
    return dump_json(arguments_as_object(call)).decode()


def schema_of_tool(tool: ToolSpec) -> Object:
    return parse_object(tool.schema) or dict(EMPTY_SCHEMA)


def function_of_tool(tool: ToolSpec) -> Object:
    """Describe a tool as OpenAI's protocols do."""
    return {"name": tool.name, "description": tool.description, "parameters": schema_of_tool(tool)}


def legal_ids(messages: Sequence[Message], pattern: re.Pattern[str], length: int) -> dict[str, str]:
    """Map each call id to one that this provider accepts: itself, or hexadecimal digits
    made from it.
    """
    accepted_ids: dict[str, str] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                accepted_ids[part.id] = _legal_id(part.id, pattern, length)
            elif isinstance(part, ToolResult):
                accepted_ids[part.call] = _legal_id(part.call, pattern, length)
    return accepted_ids


def _legal_id(call_id: str, pattern: re.Pattern[str], length: int) -> str:
    """Return an id that matches the pattern: the same one always becomes the same."""
    if pattern.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", errors="replace"))
    return digest.hexdigest()[:length]


def without_foreign_reasoning(request: Request) -> Request:
    """Return a request without the reasoning of other models, which this one cannot read.

    Only reasoning that another program recorded names its model.
    """
    messages: list[Message] = []
    has_foreign_reasoning = False
    for message in request.messages:
        own_parts: list[MessagePart] = []
        for part in message.parts:
            is_foreign = isinstance(part, Reasoning) and part.model not in ("", request.model)
            if not is_foreign:
                own_parts.append(part)
        if len(own_parts) == len(message.parts):
            messages.append(message)
        else:
            messages.append(replace(message, parts=tuple(own_parts)))
            has_foreign_reasoning = True
    if not has_foreign_reasoning:
        return request
    return replace(request, messages=tuple(messages))


def base64_text(image: Image) -> str:
    return base64.b64encode(image.data).decode("ascii")


def data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{base64_text(image)}"


def text_for_omitted_image(image: Image) -> str:
    """Return the text in place of an image that a model cannot take."""
    return f"[An image ({image.media_type}, {len(image.data):,} bytes) is not shown: this model cannot take it.]"


def start_of_open_tool_loop(messages: Sequence[Message]) -> int:
    """Return the position after the user's last words, since which the model only called tools.

    From there on, some providers want the model's reasoning back with its calls.
    """
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        has_result = any(isinstance(part, ToolResult) for part in message.parts)
        if message.role is Role.USER and not has_result:
            return position + 1
    return 0
