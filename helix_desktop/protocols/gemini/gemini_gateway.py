"""Reads and writes generateContent as the gateway's agents do. Calls have no ids, so
they are numbered.
"""

import json
from collections.abc import Mapping, Sequence

from helix_desktop.engine.facts import Stop, ToolSpec, Usage
from helix_desktop.json_values import (
    Object,
    format_json_value,
    list_at,
    number_at,
    object_at,
    text_at,
    value_at,
)
from helix_desktop.protocols import gateway_message, loaded_state
from helix_desktop.protocols.event_stream import encode_event
from helix_desktop.protocols.gateway_message import CallNumbering, Json, Piece, PieceKind, Wired
from helix_desktop.protocols.hidden_calls import HiddenCallFilter
from helix_desktop.protocols.request_parts import schema_of_tool

_KEPT = frozenset({
    "description", "title", "nullable", "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "pattern",
})  # fmt: skip
_FORMATS = {
    "string": {"enum", "date-time"},
    "number": {"float", "double"},
    "integer": {"int32", "int64"},
}
_DEEPEST = 24


def gemini_parameters(schema: Object) -> Object:
    """Return `{"parameters": …}` for a function's declaration, or nothing for one
    without arguments.
    """
    written = _convert_schema(
        schema, object_at(schema, "$defs") | object_at(schema, "definitions"), 0
    )
    return {"parameters": written} if written.get("properties") else {}


def _convert_schema(schema: Json, definitions: Object, depth: int) -> Object:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return {"type": "string"}
    schema = _resolve_reference(schema, definitions)
    alternatives = list_at(schema, "anyOf") or list_at(schema, "oneOf")
    if alternatives:
        return _convert_alternatives(schema, alternatives, definitions, depth)
    parts = map(object_at, list_at(schema, "allOf"))
    schema = {**{name: value for part in parts for name, value in part.items()}, **schema}
    kind, nullable = _single_type(schema)
    written: Object = {
        "type": kind,
        **{name: value for name, value in schema.items() if name in _KEPT},
    }
    if nullable:
        written["nullable"] = True
    written.update(_schema_details(kind, schema, definitions, depth))
    return written


def _resolve_reference(schema: Object, definitions: Object) -> Object:
    """Replace a reference by its target. The depth limit ends circular ones."""
    if not (name := text_at(schema, "$ref").rpartition("/")[2]):
        return schema
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**object_at(definitions, name), **beside}


def _convert_alternatives(
    schema: Object, alternatives: list[Json], definitions: Object, depth: int
) -> Object:
    real = [one for one in alternatives if value_at(one, "type") != "null"]
    nullable = len(real) < len(alternatives)
    options: list[Json] = [_convert_schema(one, definitions, depth + 1) for one in real]
    described: Object = (
        {"description": schema["description"]} if text_at(schema, "description") else {}
    )
    single = options[0] if len(options) == 1 else None
    written = (
        {**single, **described} if isinstance(single, dict) else {**described, "anyOf": options}
    )
    return {**written, "nullable": True} if nullable else written


def _single_type(schema: Object) -> tuple[str, bool]:
    """Return a schema's first type, or what its fields suggest, and whether it may be null."""
    kind = value_at(schema, "type")
    if isinstance(kind, list):
        real = [one for one in kind if isinstance(one, str) and one != "null"]
        return (real[0] if real else "string"), "null" in kind
    if isinstance(kind, str) and kind != "null":
        return kind, False
    if object_at(schema, "properties"):
        return "object", False
    return ("array" if "items" in schema else "string"), kind == "null"


def _schema_details(kind: str, schema: Object, definitions: Object, depth: int) -> Object:
    if kind == "object":
        return _object_schema(schema, definitions, depth)
    if kind == "array":
        return {
            "items": _convert_schema(
                value_at(schema, "items") or {"type": "string"}, definitions, depth + 1
            )
        }
    details: Object = {}
    allowed = list_at(schema, "enum") or ([schema["const"]] if "const" in schema else [])
    if kind == "string" and allowed:
        details["enum"] = [one for one in allowed if isinstance(one, str) and one]
    if text_at(schema, "format") in _FORMATS.get(kind, set()):
        details["format"] = schema["format"]
    return details


def _object_schema(schema: Object, definitions: Object, depth: int) -> Object:
    properties = {
        name: _convert_schema(one, definitions, depth + 1)
        for name, one in object_at(schema, "properties").items()
    }
    if not properties:
        return {}
    required: list[Json] = [
        name for name in list_at(schema, "required") if isinstance(name, str) and name in properties
    ]
    written: Object = {"properties": {**properties}}
    return {**written, "required": required} if required else written


NAME = "gemini"
STOPS = {
    "STOP": Stop.END,
    "MAX_TOKENS": Stop.LENGTH,
    "FUNCTION_CALL": Stop.CALLS,
    "TOOL_CALLS": Stop.CALLS,
}
FILTERS = frozenset({
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "MODEL_ARMOR",
})  # fmt: skip
PLACEHOLDER = "skip_thought_signature_validator"  # Google's value for calls without a signature.
# What a fold may stand for, by the field that a part has. Others are not known here and go on
# where they stood.
FOLDED_PARTS = frozenset(
    [
        "text",
        "thought",
        "functionCall",
        "functionResponse",
        "inlineData",
        "inline_data",
        "fileData",
        "file_data",
        "executableCode",
        "codeExecutionResult",
        "toolCall",
        "toolResponse",
    ]
)
CONTENT_FIELDS = frozenset({"role", "parts"})
_TEXT_FIELDS = ("output", "error", "content", "result")


def parse_head(body: Mapping[str, Json]) -> gateway_message.RequestHead:
    """Return a request's system text and tools. The model is in the address."""
    system = object_at(body.get("systemInstruction") or body.get("system_instruction"))
    tools = []
    for group in map(object_at, list_at(body, "tools")):
        declared = group.get("functionDeclarations") or group.get("function_declarations")
        for tool in map(object_at, list_at(declared)):
            schema = tool.get("parameters") or tool.get("parametersJsonSchema") or {}
            tools.append(gateway_message.parse_tool(tool, schema))
    effort = gateway_message.format_effort_settings(
        object_at(body, "generationConfig", "thinkingConfig")
    )
    instructions = gateway_message.text_of_content(system.get("parts"))
    return gateway_message.RequestHead("", instructions, tuple(tools), effort)


def parse_messages(body: Mapping[str, Json], before: Sequence[Wired] = ()) -> list[Wired]:
    numbering = CallNumbering()
    for message in before:
        for piece in message.pieces:
            if piece.kind is PieceKind.CALL:
                numbering.assign_call_number(piece.name)
            elif piece.kind is PieceKind.RESULT:
                numbering.pop_oldest_open_call(piece.name)
    new = list_at(body, "contents")[len(before) :]
    return [*before, *(parse_message(unit, numbering) for unit in new)]


def parse_message(unit: Json, numbering: CallNumbering | None = None) -> Wired:
    value = object_at(unit)
    numbering = numbering or CallNumbering()
    role = text_at(value, "role")
    speaker = gateway_message.Speaker.USER
    if role == "model":
        speaker = gateway_message.Speaker.ASSISTANT
    pieces = [
        _piece_of_gemini_part(object_at(part), (0, "parts", at), numbering)
        for at, part in enumerate(list_at(value, "parts"))
    ]
    has_known_role = role in ("", "user", "model", "function")
    if not has_known_role or loaded_state.has_unknown_fields(value, CONTENT_FIELDS):
        return Wired(speaker, (unit,), loaded_state.mark_all(pieces, value))
    return Wired(speaker, (unit,), loaded_state.mark_loaded_state(pieces))


def _piece_of_gemini_part(
    part: Mapping[str, Json], path: tuple[int | str, ...], numbering: CallNumbering
) -> Piece:
    if isinstance(part.get("functionCall"), Mapping):
        return _piece_of_call(part["functionCall"], path, numbering)
    if isinstance(part.get("functionResponse"), Mapping):
        return _piece_of_response(part["functionResponse"], path, numbering)
    if isinstance(part.get("text"), str):
        kind = PieceKind.REASONING if part.get("thought") else PieceKind.TEXT
        return Piece(kind, part["text"], path)
    data = object_at(part.get("inlineData") or part.get("inline_data"))
    media = text_at(data, "mimeType") or text_at(data, "mime_type")
    if media.startswith("image/"):
        return Piece(PieceKind.IMAGE, text_at(data, "data"), path, media_type=media)
    outlives_folds = part.keys().isdisjoint(FOLDED_PARTS)
    return Piece(PieceKind.OTHER, format_json_value(part), path, outlives_folds=outlives_folds)


def _piece_of_call(
    call: Mapping[str, Json], path: tuple[int | str, ...], numbering: CallNumbering
) -> Piece:
    name = text_at(call, "name")
    arguments = format_json_value(call.get("args") or {})
    return Piece(PieceKind.CALL, arguments, path, numbering.assign_call_number(name), name)


def _piece_of_response(
    response: Mapping[str, Json], path: tuple[int | str, ...], numbering: CallNumbering
) -> Piece:
    name = text_at(response, "name")
    field, text = _text_of_response(response)
    number = numbering.pop_oldest_open_call(name)
    is_ok = field != "error"
    return Piece(PieceKind.RESULT, text, path, number, name, ok=is_ok, media_type=field)


def _text_of_response(response: Mapping[str, Json]) -> tuple[str, str]:
    """Return the name of a result's text field, and the text, or "" and the whole
    result as JSON.
    """
    value = object_at(response, "response")
    for field in _TEXT_FIELDS:
        if isinstance(value.get(field), str) and len(value) == 1:
            return field, value[field]
    return "", format_json_value(value)


def apply_edits(wired: Wired, edits: Sequence[gateway_message.PieceEdit]) -> list[Json]:
    """Return the content with some parts changed. Signatures stay."""
    return gateway_message.edit_pieces(wired, edits, _path_and_value_of_edit)


def _path_and_value_of_edit(
    _units: Json, piece: Piece, text: str
) -> tuple[gateway_message.Path, Json]:
    if piece.kind is PieceKind.CALL:
        return ("functionCall", "args"), json.loads(text)
    if piece.kind is PieceKind.RESULT:
        return ("functionResponse", "response"), {piece.media_type or "output": text}
    return ("text",), text


def user_message(text: str) -> Json:
    return {"role": "user", "parts": [{"text": text}]}


def result_message(call: str, name: str, text: str, *, ok: bool = True) -> Json:
    del call
    return {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": name, "response": {"output" if ok else "error": text}}}
        ],
    }


def merge_added_messages(units: Sequence[tuple[Json, bool]]) -> list[Json]:
    """Merge contents of one role if one of them was added here. Results come first."""
    return gateway_message.join_added_messages(
        units,
        "parts",
        lambda unit: list_at(unit, "parts"),
        lambda part: "functionResponse" in object_at(part),
    )


def with_added_tools(body: Mapping[str, Json], tools: Sequence[ToolSpec]) -> dict[str, Json]:
    ours = tools_as_json(tools)
    given = list(list_at(body, "tools"))
    for at, tool in enumerate(given):
        for field in ("functionDeclarations", "function_declarations"):
            if isinstance(object_at(tool).get(field), list):
                given[at] = {**tool, field: [*ours, *tool[field]]}
                return {**body, "tools": given}
    return {**body, "tools": [{"functionDeclarations": ours}, *given]}


def tools_as_json(tools: Sequence[ToolSpec]) -> list[dict[str, Json]]:
    return [
        {"name": t.name, "description": t.description, **gemini_parameters(schema_of_tool(t))}
        for t in tools
    ]


# --- Reading replies, whole or from a stream


def parse_reply(value: Mapping[str, Json]) -> gateway_message.WireReply:
    """Return a whole reply, the first candidate."""
    candidate = object_at(value, "candidates", 0)
    content = object_at(candidate, "content")
    wired = parse_message({"role": "model", "parts": list(list_at(content, "parts"))})
    reason = text_at(candidate, "finishReason")
    stop = STOPS.get(reason, Stop.FILTERED if reason else Stop.CUT)
    if stop is Stop.END and wired.pieces_of_kind(PieceKind.CALL):
        stop = Stop.CALLS
    return gateway_message.WireReply(
        wired, stop, parse_usage(object_at(value, "usageMetadata")), text_at(value, "modelVersion")
    )


def parse_usage(value: Mapping[str, Json]) -> Usage:
    """Return the usage. Thinking is billed as output but reported separately."""
    thoughts = number_at(value, "thoughtsTokenCount")
    return Usage(
        input=number_at(value, "promptTokenCount") + number_at(value, "toolUsePromptTokenCount"),
        cache_read=number_at(value, "cachedContentTokenCount"),
        output=number_at(value, "candidatesTokenCount") + thoughts,
        reasoning=thoughts,
    )


class ReplyAssembler:
    def __init__(self) -> None:
        self.whole: dict[str, Json] = {}
        self._parts: list[dict[str, Json]] = []
        self._candidate: dict[str, Json] = {}

    @property
    def is_done(self) -> bool:
        return bool(text_at(self._candidate, "finishReason"))

    def add_reply_event(self, event: Mapping[str, Json]) -> None:
        self.whole.update({k: v for k, v in event.items() if k != "candidates"})
        candidate = object_at(event, "candidates", 0)
        self._candidate.update({k: v for k, v in candidate.items() if k != "content"})
        for part in map(object_at, list_at(candidate, "content", "parts")):
            self._add_gemini_part(dict(part))

    def _add_gemini_part(self, part: dict[str, Json]) -> None:
        """Join pieces of one text into a part, unless a signature is between them."""
        last = self._parts[-1] if self._parts else {}
        alike = "text" in part and "text" in last and part.get("thought") == last.get("thought")
        if alike and "thoughtSignature" not in last:
            last.update({**part, "text": text_at(last, "text") + text_at(part, "text")})
        else:
            self._parts.append(part)

    def whole_reply(self) -> dict[str, Json]:
        content = {"role": "model", "parts": self._parts}
        return {**self.whole, "candidates": [{**self._candidate, "content": content}]}


# --- Hiding calls to this program's own tools from the agent


class GeminiCallFilter(HiddenCallFilter):
    """Calls come whole, as parts of a chunk. Of parallel calls, only the first has a signature."""

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._signed = False

    def reset_for_retry(self) -> None:
        super().reset_for_retry()
        self._signed = False

    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        if event is None:
            return raw
        candidate = object_at(event, "candidates", 0)
        parts = list_at(candidate, "content", "parts")
        kept = self._filter_parts(parts)
        is_last = bool(candidate.get("finishReason"))
        if self._holds_thoughts(parts, kept) and not is_last:
            self._held_events.append((raw, event))
            return b""
        released = self._release_thoughts() if is_last or kept else b""
        self.shown_count += len(kept)
        if kept == parts and not self.any_hidden:
            return released + raw
        if not kept and (self.has_only_hidden_calls or not is_last):
            return released
        return released + self._encode_with_parts(event, candidate, kept)

    def _filter_parts(self, parts: Sequence[Json]) -> list[Json]:
        kept = []
        for part in parts:
            shown = self._filter_gemini_part(object_at(part))
            if shown is not None:
                kept.append(shown)
        if self.holds_reasoning and self.has_only_hidden_calls:
            return [part for part in kept if not part.get("thought")]
        return kept

    def _holds_thoughts(self, parts: Sequence[Json], kept: Sequence[Json]) -> bool:
        """Whether a chunk is only thoughts, which may belong to a hidden call."""
        if not self.holds_reasoning or not parts or kept != parts:
            return False
        return all(object_at(part).get("thought") for part in parts)

    def _release_thoughts(self) -> bytes:
        held = b"".join(raw for raw, _ in self._held_events)
        self._held_events = []
        return b"" if self.has_only_hidden_calls else held

    def _encode_with_parts(
        self, event: Mapping[str, Json], candidate: Mapping[str, Json], parts: Sequence[Json]
    ) -> bytes:
        content = {**object_at(candidate, "content"), "role": "model", "parts": parts}
        changed = {**candidate, "content": content}
        if self.has_only_hidden_calls:
            changed.pop("finishReason", None)  # The next reply continues this one.
        others = list_at(event, "candidates")[1:]
        whole = {**event, "candidates": [changed, *others]}
        return encode_event(self._with_earlier_output(whole, self.output_tokens_before))

    def _filter_gemini_part(self, part: Mapping[str, Json]) -> Json | None:
        if part.get("thought") and self.replies_before and self.shown_count:
            return None
        if not isinstance(part.get("functionCall"), Mapping):
            return part
        if self.count_and_check_hidden(text_at(part["functionCall"], "name")):
            return None
        is_first_call = not self._signed
        self._signed = True
        if is_first_call and self.hidden_count and "thoughtSignature" not in part:
            return {**part, "thoughtSignature": PLACEHOLDER}
        return part

    @staticmethod
    def _with_earlier_output(value: dict[str, Json], before: int) -> dict[str, Json]:
        usage = value.get("usageMetadata")
        if not isinstance(usage, Mapping) or not before:
            return value
        told = {**usage, "candidatesTokenCount": number_at(usage, "candidatesTokenCount") + before}
        told["totalTokenCount"] = number_at(usage, "totalTokenCount") + before
        return {**value, "usageMetadata": told}

    def merge_whole_replies(self, values: Sequence[Mapping[str, Json]]) -> Json:
        parts: list[Json] = []
        last = values[-1]
        for value in values:
            self._signed = False
            self.hidden_count = 0
            for part in map(object_at, list_at(value, "candidates", 0, "content", "parts")):
                shown = self._filter_gemini_part(part)
                is_stale = part.get("thought") and value is not last
                if shown is not None and not is_stale:
                    parts.append(shown)
        before = sum(parse_usage(object_at(value, "usageMetadata")).output for value in values[:-1])
        candidate = object_at(last, "candidates", 0)
        content = {**object_at(candidate, "content"), "role": "model", "parts": parts}
        whole = {**last, "candidates": [{**candidate, "content": content}]}
        return self._with_earlier_output(whole, before)
