"""Google's generateContent: contents with parts; calls have no ids there, so they are numbered in the order they come."""

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
    Tally,
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

NAME = "gemini"
STOPS = {"STOP": Stop.END, "MAX_TOKENS": Stop.LENGTH}
PLACEHOLDER = "skip_thought_signature_validator"  # Google documents it for calls whose signature is not there
_TEXT_FIELDS = ("output", "error", "content", "result")


def head(body: Mapping[str, Json]) -> Head:
    """System text and tools of a request; the model stands in its address."""
    system = mapping(body.get("systemInstruction") or body.get("system_instruction"))
    declared = [
        mapping(each)
        for tool in map(mapping, listed(body.get("tools")))
        for each in listed(tool.get("functionDeclarations") or tool.get("function_declarations"))
    ]
    tools = (
        Tool(
            string(t, "name"),
            string(t, "description"),
            dumped(t.get("parameters") or t.get("parametersJsonSchema") or {}),
        )
        for t in declared
    )
    return Head("", text_of(system.get("parts")), tuple(tools))


def messages(body: Mapping[str, Json], before: Sequence[Wired] = ()) -> list[Wired]:
    """The contents of a request. `before`: those at its beginning that were read already."""
    tally = Tally()
    for piece in (piece for message in before for piece in message.pieces):
        if piece.kind is Kind.CALL:
            tally.call(piece.name)
        elif piece.kind is Kind.RESULT:
            tally.result(piece.name)
    return [*before, *(message(unit, tally) for unit in listed(body.get("contents"))[len(before) :])]


def message(unit: Json, tally: Tally | None = None) -> Wired:
    """One content."""
    value, tally = mapping(unit), tally or Tally()
    speaker = Speaker.ASSISTANT if string(value, "role") == "model" else Speaker.USER
    parts = enumerate(listed(value.get("parts")))
    return Wired(speaker, (unit,), tuple(_piece(mapping(part), (0, "parts", at), tally) for at, part in parts))


def _piece(part: Mapping[str, Json], path: tuple[int | str, ...], tally: Tally) -> Piece:
    if isinstance(part.get("functionCall"), Mapping):
        call = part["functionCall"]
        name = string(call, "name")
        own = tally.call(name)
        return Piece(Kind.CALL, dumped(call.get("args") or {}), path, own, name)
    if isinstance(part.get("functionResponse"), Mapping):
        response = part["functionResponse"]
        name = string(response, "name")
        field, text = _response_text(response)
        failed = field == "error"
        return Piece(Kind.RESULT, text, path, tally.result(name), name, ok=not failed, media_type=field)
    if isinstance(part.get("text"), str):
        return Piece(Kind.REASONING if part.get("thought") else Kind.TEXT, string(part, "text"), path)
    data = mapping(part.get("inlineData") or part.get("inline_data"))
    media = string(data, "mimeType") or string(data, "mime_type")
    if media.startswith("image/"):
        return Piece(Kind.IMAGE, string(data, "data"), path, media_type=media)
    return Piece(Kind.OTHER, dumped(part), path)


def _response_text(response: Mapping[str, Json]) -> tuple[str, str]:
    """The field of a result that holds its text, and the text; the whole as JSON where no single one does."""
    value = mapping(response.get("response"))
    for field in _TEXT_FIELDS:
        if isinstance(value.get(field), str) and len(value) == 1:
            return field, value[field]
    return "", dumped(value)


def edited(wired: Wired, edits: Sequence[Edit]) -> list[Json]:
    """The content with some parts shown as something else. Signatures stay."""
    units: Any = list(wired.units)
    for edit in sorted(edits, key=lambda edit: -edit.at):
        piece = wired.pieces[edit.at]
        if edit.text is None:
            units = changed(units, piece.path, None)
        elif piece.kind is Kind.CALL:
            units = changed(units, (*piece.path, "functionCall", "args"), json.loads(edit.text))
        elif piece.kind is Kind.RESULT:
            fresh = {piece.media_type or "output": edit.text}
            units = changed(units, (*piece.path, "functionResponse", "response"), fresh)
        else:
            units = changed(units, (*piece.path, "text"), edit.text)
    return list(units)


def said(text: str) -> Json:
    """A content of the user's."""
    return {"role": "user", "parts": [{"text": text}]}


def result(call: str, name: str, text: str, *, ok: bool = True) -> Json:
    """The result of one call, as a content."""
    del call
    return {
        "role": "user",
        "parts": [{"functionResponse": {"name": name, "response": {"output" if ok else "error": text}}}],
    }


def joined(units: Sequence[tuple[Json, bool]]) -> list[Json]:
    """Contents of one role made one where one of them was added here; results come first in theirs."""
    out: list[tuple[Json, bool]] = []
    for unit, added in units:
        if out and (added or out[-1][1]) and string(out[-1][0], "role") == string(unit, "role"):
            parts = [*listed(out[-1][0].get("parts")), *listed(unit.get("parts"))]
            if string(unit, "role") != "model":
                parts.sort(key=lambda part: "functionResponse" not in mapping(part))
            out[-1] = ({**out[-1][0], "parts": parts}, True)
        else:
            out.append((unit, added))
    return [unit for unit, _ in out]


def with_messages(body: Mapping[str, Json], units: Sequence[Json]) -> dict[str, Json]:
    """The request with other contents."""
    return {**body, "contents": list(units)}


def with_tools(body: Mapping[str, Json], tools: Sequence[Tool]) -> dict[str, Json]:
    """The request with tools of ours, in the client's first list of functions: several lists are not taken everywhere."""
    ours = [{"name": t.name, "description": t.description, "parameters": _schema(json.loads(t.schema))} for t in tools]
    given = list(listed(body.get("tools")))
    for at, tool in enumerate(given):
        for field in ("functionDeclarations", "function_declarations"):
            if isinstance(mapping(tool).get(field), list):
                given[at] = {**tool, field: [*ours, *tool[field]]}
                return {**body, "tools": given}
    return {**body, "tools": [{"functionDeclarations": ours}, *given]}


def _schema(schema: Json) -> Json:
    """Without what Google's schemas do not know."""
    if isinstance(schema, Mapping):
        return {
            k: _schema(v)
            for k, v in schema.items()
            if k not in ("additionalProperties", "$schema", "minimum", "maximum", "default")
        }
    return [_schema(item) for item in schema] if isinstance(schema, list) else schema


# --- replies ---------------------------------------------------------------------------------------------------------


def answer(value: Mapping[str, Json]) -> Answer:
    """A whole reply: the first candidate."""
    candidate = mapping(next(iter(listed(value.get("candidates"))), None))
    content = mapping(candidate.get("content"))
    wired = message({"role": "model", "parts": list(listed(content.get("parts")))})
    reason = string(candidate, "finishReason")
    stop = STOPS.get(reason, Stop.FILTERED if reason else Stop.CUT)
    if stop is Stop.END and wired.of(Kind.CALL):
        stop = Stop.CALLS
    return Answer(wired, stop, usage(mapping(value.get("usageMetadata"))), string(value, "modelVersion"))


def usage(value: Mapping[str, Json]) -> Usage:
    """As the engine counts it."""
    thought = number(value, "thoughtsTokenCount")
    cached = number(value, "cachedContentTokenCount")
    return Usage(number(value, "promptTokenCount"), cached, 0, number(value, "candidatesTokenCount") + thought, thought)


class Reading:
    """A reply put together from the chunks of its stream."""

    def __init__(self) -> None:
        self.whole: dict[str, Json] = {}
        self._parts: list[dict[str, Json]] = []
        self._candidate: dict[str, Json] = {}

    @property
    def done(self) -> bool:
        """Whether the reply has ended."""
        return bool(string(self._candidate, "finishReason"))

    def take(self, event: Mapping[str, Json]) -> None:
        """One more chunk."""
        self.whole.update({k: v for k, v in event.items() if k != "candidates"})
        candidate = mapping(next(iter(listed(event.get("candidates"))), None))
        self._candidate.update({k: v for k, v in candidate.items() if k != "content"})
        for part in map(mapping, listed(mapping(candidate.get("content")).get("parts"))):
            self._part(dict(part))

    def _part(self, part: dict[str, Json]) -> None:
        """Pieces of one text become one part, unless a signature stands between them."""
        last = self._parts[-1] if self._parts else {}
        alike = "text" in part and "text" in last and part.get("thought") == last.get("thought")
        if alike and "thoughtSignature" not in last:
            last.update({**part, "text": string(last, "text") + string(part, "text")})
        else:
            self._parts.append(part)

    def value(self) -> dict[str, Json]:
        """The reply as it would have come without a stream."""
        content = {"role": "model", "parts": self._parts}
        return {**self.whole, "candidates": [{**self._candidate, "content": content}]}
