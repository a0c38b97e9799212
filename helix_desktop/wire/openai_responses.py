"""OpenAI's Responses: a list of items; what stands between two items of the user's is one reply."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from helix_desktop.engine.facts import Stop, Usage
from helix_desktop.wire.message import (
    Answer,
    Edit,
    Head,
    Json,
    Kind,
    Piece,
    Speaker,
    Tool,
    Wired,
    changed,
    dumped,
    listed,
    mapping,
    number,
    string,
    text_of,
)

NAME = "openai-responses"
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = frozenset(
    {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "computer_call_output"}
)
_SERVER = frozenset(
    {"local_shell_call", "web_search_call", "file_search_call", "computer_call", "code_interpreter_call", "mcp_call"}
)


def head(body: Mapping[str, Json]) -> Head:
    """System text, tools and model of a request."""
    tools = [mapping(tool) for tool in (*listed(body.get("tools")), *_tools_in(body))]
    named = (
        Tool(string(t, "name") or string(t, "type"), string(t, "description"), dumped(t.get("parameters", {})))
        for t in tools
    )
    return Head(string(body, "model"), string(body, "instructions"), tuple(named))


def _tools_in(body: Mapping[str, Json]) -> list[Json]:
    """Tools that Codex gives as an item of the input."""
    return [tool for item in listed(body.get("input")) for tool in listed(mapping(item).get("tools"))]


def messages(body: Mapping[str, Json], before: Sequence[Wired] = ()) -> list[Wired]:
    """The messages of a request: items of one reply are one message. `before`: those at its beginning that were read already."""
    given = body.get("input")
    if isinstance(given, str):
        return [Wired(Speaker.USER, (given,), (Piece(Kind.TEXT, given, (0,)),))]
    out: list[Wired] = list(before)
    reply: list[Json] = []
    for item in listed(given)[sum(len(message.units) for message in before) :]:
        if _of_reply(mapping(item)):
            reply.append(item)
            continue
        if reply:
            out.append(message(reply))
            reply = []
        out.append(message([item]))
    return [*out, message(reply)] if reply else out


def _of_reply(item: Mapping[str, Json]) -> bool:
    kind = string(item, "type")
    return kind in _CALLS or kind in _SERVER or kind == "reasoning" or string(item, "role") == "assistant"


def message(items: Sequence[Json]) -> Wired:
    """One message of one or several items."""
    first = mapping(items[0]) if items else {}
    speaker = Speaker.ASSISTANT if not items or _of_reply(first) else Speaker.USER
    if string(first, "role") in ("system", "developer"):
        speaker = Speaker.SYSTEM
    pieces = tuple(piece for at, item in enumerate(items) for piece in _pieces(mapping(item), at))
    return Wired(speaker, tuple(items), pieces)


def _pieces(item: Mapping[str, Json], at: int) -> list[Piece]:
    kind = string(item, "type")
    if kind in _CALLS:
        field = _CALLS[kind]
        return [
            Piece(
                Kind.CALL, string(item, field), (at,), string(item, "call_id"), string(item, "name"), media_type=field
            )
        ]
    if kind in _RESULTS:
        output = item.get("output")
        text = output if isinstance(output, str) else text_of(output)
        return [Piece(Kind.RESULT, text, (at,), string(item, "call_id"))]
    if kind == "reasoning":
        return [Piece(Kind.REASONING, text_of(item.get("summary")), (at,))]
    if kind in ("", "message"):
        content = item.get("content")
        if isinstance(content, str):
            return [Piece(Kind.TEXT, content, (at, "content"))]
        return [_part(mapping(part), (at, "content", place)) for place, part in enumerate(listed(content))]
    return [Piece(Kind.OTHER, dumped(item), (at,))]


def _part(part: Mapping[str, Json], path: tuple[int | str, ...]) -> Piece:
    if isinstance(part.get("text"), str):
        return Piece(Kind.TEXT, string(part, "text"), path)
    url = string(part, "image_url")
    if url.startswith("data:") and ";base64," in url:
        media, _, data = url[5:].partition(";base64,")
        return Piece(Kind.IMAGE, data, path, media_type=media)
    return Piece(Kind.OTHER, dumped(part), path)


def edited(wired: Wired, edits: Sequence[Edit]) -> list[Json]:
    """The items with some pieces shown as something else."""
    units: Any = list(wired.units)
    for edit in sorted(edits, key=lambda edit: -edit.at):
        piece = wired.pieces[edit.at]
        if edit.text is None:
            units = changed(units, piece.path, None)
        elif piece.kind is Kind.CALL:
            units = changed(units, (*piece.path, piece.media_type), edit.text)
        elif piece.kind is Kind.RESULT:
            units = changed(units, (*piece.path, "output"), _output(units[piece.path[0]], edit.text))
        elif piece.path[-1] == "content" or len(piece.path) == 1:
            units = changed(units, piece.path, edit.text)
        else:
            units = changed(units, (*piece.path, "text"), edit.text)
    return list(units)


def _output(item: Mapping[str, Json], text: str) -> Json:
    """As it was: a string, or a list of parts; pictures stay."""
    before = item.get("output")
    if not isinstance(before, list):
        return text
    return [{"type": "input_text", "text": text}, *(part for part in before if "text" not in mapping(part))]


def said(text: str) -> Json:
    """A message of the user's."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def result(call: str, name: str, text: str, *, ok: bool = True) -> Json:
    """The result of one call, as an item."""
    del name, ok
    return {"type": "function_call_output", "call_id": call, "output": text}


def joined(units: Sequence[tuple[Json, bool]]) -> list[Json]:
    """Items as they stand."""
    return [unit for unit, _ in units]


def with_messages(body: Mapping[str, Json], units: Sequence[Json]) -> dict[str, Json]:
    """The request with other items."""
    if len(units) == 1 and isinstance(units[0], str):
        return {**body, "input": units[0]}
    return {**body, "input": [said(unit) if isinstance(unit, str) else unit for unit in units]}


def with_tools(body: Mapping[str, Json], tools: Sequence[Tool]) -> dict[str, Json]:
    """The request with tools of ours."""
    ours = [
        {
            "type": "function",
            "name": t.name,
            "description": t.description,
            "parameters": json.loads(t.schema),
            "strict": False,
        }
        for t in tools
    ]
    for at, item in enumerate(listed(body.get("input")) if "tools" not in body else ()):
        if isinstance(mapping(item).get("tools"), list):
            given = list(body["input"])
            given[at] = {**item, "tools": [*ours, *item["tools"]]}
            return {**body, "input": given}
    return {**body, "tools": [*ours, *listed(body.get("tools"))]}


# --- replies ---------------------------------------------------------------------------------------------------------


def answer(value: Mapping[str, Json]) -> Answer:
    """A whole reply. `status` stays off its items: a client sends them back without."""
    items = [dict(mapping(item)) for item in listed(value.get("output"))]
    for item in items:
        item.pop("status", None)
    wired = message(items)
    status = string(value, "status")
    why = string(mapping(value.get("incomplete_details")), "reason")
    stop = Stop.CUT
    if status == "completed":
        stop = Stop.CALLS if wired.of(Kind.CALL) else Stop.END
    elif status == "incomplete":
        stop = Stop.FILTERED if why == "content_filter" else Stop.LENGTH
    return Answer(wired, stop, usage(mapping(value.get("usage"))), string(value, "model"))


def usage(value: Mapping[str, Json]) -> Usage:
    """As the engine counts it."""
    cached = number(mapping(value.get("input_tokens_details")), "cached_tokens")
    thought = number(mapping(value.get("output_tokens_details")), "reasoning_tokens")
    return Usage(number(value, "input_tokens"), cached, 0, number(value, "output_tokens"), thought)


class Reading:
    """A reply put together from the events of its stream."""

    def __init__(self) -> None:
        self.whole: dict[str, Json] = {}
        self._items: dict[int, Json] = {}
        self.done = False

    def take(self, event: Mapping[str, Json]) -> None:
        """One more event. Items are whole when they are done; the last event holds them all, but for some servers."""
        kind = string(event, "type")
        if kind == "response.output_item.done":
            self._items[number(event, "output_index")] = event.get("item")
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self.whole = dict(mapping(event.get("response")))
            self.done = kind != "response.failed"
        elif kind == "response.created" and not self.whole:
            self.whole = dict(mapping(event.get("response")))

    def value(self) -> dict[str, Json]:
        """The reply as it would have come without a stream."""
        given = listed(self.whole.get("output"))
        return {**self.whole, "output": list(given) or [item for _, item in sorted(self._items.items())]}
