"""OpenAI's Chat Completions: calls beside the text of a message, a message of its own for each result."""

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

NAME = "openai-chat"
STOPS = {
    "stop": Stop.END,
    "tool_calls": Stop.CALLS,
    "function_call": Stop.CALLS,
    "length": Stop.LENGTH,
    "content_filter": Stop.FILTERED,
}
REASONING = ("reasoning_content", "reasoning")
_SPEAKERS = {"system": Speaker.SYSTEM, "developer": Speaker.SYSTEM, "assistant": Speaker.ASSISTANT}


def head(body: Mapping[str, Json]) -> Head:
    """System text, tools and model of a request."""
    said = [m for m in map(mapping, listed(body.get("messages"))) if string(m, "role") in ("system", "developer")]
    tools = [mapping(mapping(tool).get("function")) for tool in listed(body.get("tools"))]
    return Head(
        string(body, "model"),
        "\n\n".join(text_of(m.get("content")) for m in said),
        tuple(Tool(string(t, "name"), string(t, "description"), dumped(t.get("parameters", {}))) for t in tools),
    )


def messages(body: Mapping[str, Json], before: Sequence[Wired] = ()) -> list[Wired]:
    """The messages of a request. `before`: those at its beginning that were read already."""
    return [*before, *map(message, listed(body.get("messages"))[len(before) :])]


def message(unit: Json) -> Wired:
    """One message."""
    value = mapping(unit)
    role = string(value, "role")
    if role in ("tool", "function"):
        name = string(value, "tool_call_id") or string(value, "name")
        return Wired(Speaker.USER, (unit,), (Piece(Kind.RESULT, text_of(value.get("content")), (0,), name),))
    speaker = _SPEAKERS.get(role, Speaker.USER)
    pieces = [Piece(Kind.REASONING, string(value, name), (0, name)) for name in REASONING if string(value, name)]
    content = value.get("content")
    if isinstance(content, str):
        pieces.append(Piece(Kind.TEXT, content, (0, "content")))
    else:
        pieces.extend(_piece(mapping(part), (0, "content", at)) for at, part in enumerate(listed(content)))
    pieces.extend(
        _call(mapping(call), (0, "tool_calls", at)) for at, call in enumerate(listed(value.get("tool_calls")))
    )
    return Wired(speaker, (unit,), tuple(pieces))


def _piece(part: Mapping[str, Json], path: tuple[int | str, ...]) -> Piece:
    if isinstance(part.get("text"), str):
        return Piece(Kind.TEXT, string(part, "text"), path)
    url = string(mapping(part.get("image_url")), "url")
    if url.startswith("data:") and ";base64," in url:
        media, _, data = url[5:].partition(";base64,")
        return Piece(Kind.IMAGE, data, path, media_type=media)
    return Piece(Kind.OTHER, dumped({key: value for key, value in part.items() if key != "cache_control"}), path)


def _call(call: Mapping[str, Json], path: tuple[int | str, ...]) -> Piece:
    function = mapping(call.get("function"))
    return Piece(Kind.CALL, string(function, "arguments"), path, string(call, "id"), string(function, "name"))


def edited(wired: Wired, edits: Sequence[Edit]) -> list[Json]:
    """The message with some pieces shown as something else."""
    units: Any = list(wired.units)
    for edit in sorted(edits, key=lambda edit: -edit.at):
        piece = wired.pieces[edit.at]
        if edit.text is None:
            units = changed(units, piece.path, None)
        elif piece.kind is Kind.CALL:
            units = changed(units, (*piece.path, "function", "arguments"), edit.text)
        elif piece.kind is Kind.RESULT:
            units = changed(units, (0, "content"), edit.text)
        elif len(piece.path) == 2:
            units = changed(units, piece.path, edit.text)
        else:
            units = changed(units, (*piece.path, "text"), edit.text)
    return list(units)


def said(text: str) -> Json:
    """A message of the user's."""
    return {"role": "user", "content": text}


def result(call: str, name: str, text: str, *, ok: bool = True) -> Json:
    """The result of one call, as a message."""
    del name, ok
    return {"role": "tool", "tool_call_id": call, "content": text}


def joined(units: Sequence[tuple[Json, bool]]) -> list[Json]:
    """Messages as they stand: here several of one role may follow each other."""
    return [unit for unit, _ in units]


def with_messages(body: Mapping[str, Json], units: Sequence[Json]) -> dict[str, Json]:
    """The request with other messages."""
    return {**body, "messages": list(units)}


def with_tools(body: Mapping[str, Json], tools: Sequence[Tool]) -> dict[str, Json]:
    """The request with tools of ours."""
    ours = [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": json.loads(t.schema)},
        }
        for t in tools
    ]
    return {**body, "tools": [*ours, *listed(body.get("tools"))]}


# --- replies ---------------------------------------------------------------------------------------------------------


def answer(value: Mapping[str, Json]) -> Answer:
    """A whole reply: the first choice."""
    choice = mapping(next(iter(listed(value.get("choices"))), None))
    unit = {k: v for k, v in mapping(choice.get("message")).items() if v is not None or k == "content"}
    stop = STOPS.get(string(choice, "finish_reason"), Stop.CUT)
    return Answer(
        message({"role": "assistant", **unit}), stop, usage(mapping(value.get("usage"))), string(value, "model")
    )


def usage(value: Mapping[str, Json]) -> Usage:
    """As the engine counts it."""
    cached = number(mapping(value.get("prompt_tokens_details")), "cached_tokens") or number(
        value, "prompt_cache_hit_tokens"
    )
    thought = number(mapping(value.get("completion_tokens_details")), "reasoning_tokens")
    return Usage(number(value, "prompt_tokens"), cached, 0, number(value, "completion_tokens"), thought)


class Reading:
    """A reply put together from the chunks of its stream."""

    def __init__(self) -> None:
        self.whole: dict[str, Json] = {}
        self._message: dict[str, Json] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Json]] = {}
        self._finish: str | None = None

    @property
    def done(self) -> bool:
        """Whether the reply has ended."""
        return self._finish is not None

    def take(self, event: Mapping[str, Json]) -> None:
        """One more chunk."""
        self.whole.update({k: v for k, v in event.items() if k not in ("choices", "object") and v is not None})
        for choice in map(mapping, listed(event.get("choices"))):
            if number(choice, "index"):
                continue
            self._finish = string(choice, "finish_reason") or self._finish
            self._delta(mapping(choice.get("delta")))

    def _delta(self, delta: Mapping[str, Json]) -> None:
        for name, value in delta.items():
            if name == "tool_calls":
                for call in map(mapping, listed(value)):
                    self._call(call)
            elif isinstance(value, str) and name != "role":
                self._message[name] = (self._message.get(name) or "") + value
            elif isinstance(value, list) and isinstance(self._message.get(name), list):
                self._message[name] = [*self._message[name], *value]
            elif value is not None:
                self._message[name] = value

    def _call(self, piece: Mapping[str, Json]) -> None:
        call = self._calls.setdefault(
            number(piece, "index"), {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        for name, value in piece.items():
            if name == "function":
                for part, text in mapping(value).items():
                    call["function"][part] = str(call["function"].get(part) or "") + (text or "")
            elif name != "index" and value:
                call[name] = value

    def value(self) -> dict[str, Json]:
        """The reply as it would have come without a stream."""
        message = dict(self._message)
        if self._calls:
            message["tool_calls"] = [call for _, call in sorted(self._calls.items())]
        return {**self.whole, "choices": [{"index": 0, "message": message, "finish_reason": self._finish}]}
