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
    objects_at,
    text_at,
    value_at,
    without_fields,
)
from helix_desktop.protocols import gateway_message, loaded_state
from helix_desktop.protocols.event_stream import encode_event
from helix_desktop.protocols.gateway_message import (
    CallNumbering,
    Json,
    Piece,
    PieceKind,
    ProtocolMessage,
)
from helix_desktop.protocols.gateway_protocol import GatewayProtocol
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
    definitions = object_at(schema, "$defs") | object_at(schema, "definitions")
    parameters = _convert_schema(schema, definitions, 0)
    if not parameters.get("properties"):
        return {}
    return {"parameters": parameters}


def _convert_schema(schema: Json, definitions: Object, depth: int) -> Object:
    """Return a tool's JSON schema, or a part of it, as Gemini accepts it.

    Gemini knows only a part of JSON schemas, and refuses a request with anything else in them.
    `definitions`: the schemas to which others refer by name. `depth`: how deep this part is.
    """
    # A schema can refer to itself, and would then have no end.
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return {"type": "string"}
    resolved_schema = _resolve_reference(schema, definitions)
    alternatives = list_at(resolved_schema, "anyOf") or list_at(resolved_schema, "oneOf")
    if alternatives:
        return _convert_alternatives(resolved_schema, alternatives, definitions, depth)

    whole_schema: Object = {}
    for part in list_at(resolved_schema, "allOf"):
        whole_schema.update(object_at(part))
    whole_schema.update(resolved_schema)
    kind = _first_type(whole_schema)
    written: Object = {"type": kind}
    for name, value in whole_schema.items():
        if name in _KEPT:
            written[name] = value
    if _may_be_null(whole_schema):
        written["nullable"] = True
    written.update(_schema_details(kind, whole_schema, definitions, depth))
    return written


def _resolve_reference(schema: Object, definitions: Object) -> Object:
    """Replace a reference by its target. The depth limit ends circular ones."""
    name = text_at(schema, "$ref").rpartition("/")[2]
    if not name:
        return schema
    resolved_schema = dict(object_at(definitions, name))
    resolved_schema.update(without_fields(schema, "$ref"))
    return resolved_schema


def _convert_alternatives(
    schema: Object, alternatives: list[Json], definitions: Object, depth: int
) -> Object:
    """Return a schema of several alternatives, or the only one if the others are null.

    Gemini has no type "null": what may be null says so beside its type.
    """
    options: list[Object] = []
    is_nullable = False
    for alternative in alternatives:
        if value_at(alternative, "type") == "null":
            is_nullable = True
        else:
            options.append(_convert_schema(alternative, definitions, depth + 1))
    written: Object = {}
    if len(options) == 1:
        written.update(options[0])
    if text_at(schema, "description"):
        written["description"] = schema["description"]
    if len(options) != 1:
        written["anyOf"] = list(options)
    if is_nullable:
        written["nullable"] = True
    return written


def _first_type(schema: Object) -> str:
    """Return the one type that Gemini is told, as it takes no list of types.

    That is the first one which is not null. Without any, the fields show what is meant.
    """
    stated_type = value_at(schema, "type")
    if isinstance(stated_type, list):
        for listed_type in stated_type:
            if isinstance(listed_type, str) and listed_type != "null":
                return listed_type
        return "string"
    if isinstance(stated_type, str) and stated_type != "null":
        return stated_type
    if object_at(schema, "properties"):
        return "object"
    if "items" in schema:
        return "array"
    return "string"


def _may_be_null(schema: Object) -> bool:
    stated_type = value_at(schema, "type")
    if isinstance(stated_type, list):
        return "null" in stated_type
    # What has properties is an object, whatever its type says.
    return stated_type == "null" and not object_at(schema, "properties")


def _schema_details(kind: str, schema: Object, definitions: Object, depth: int) -> Object:
    """Return what is said of values of this type: properties, items, choices or a format."""
    if kind == "object":
        return _object_schema(schema, definitions, depth)
    if kind == "array":
        item_schema = value_at(schema, "items") or {"type": "string"}
        return {"items": _convert_schema(item_schema, definitions, depth + 1)}
    details: Object = {}
    allowed_values = _allowed_values(schema)
    if kind == "string" and allowed_values:
        # Gemini refuses a choice that is empty or no text.
        choices: list[Json] = []
        for value in allowed_values:
            if isinstance(value, str) and value:
                choices.append(value)
        details["enum"] = choices
    if text_at(schema, "format") in _FORMATS.get(kind, set()):
        details["format"] = schema["format"]
    return details


def _allowed_values(schema: Object) -> list[Json]:
    choices = list_at(schema, "enum")
    if not choices and "const" in schema:
        return [schema["const"]]
    return choices


def _object_schema(schema: Object, definitions: Object, depth: int) -> Object:
    """Return what Gemini is told of an object's properties."""
    properties: Object = {}
    for name, property_schema in object_at(schema, "properties").items():
        properties[name] = _convert_schema(property_schema, definitions, depth + 1)
    if not properties:
        return {}
    written: Object = {"properties": properties}
    # Gemini refuses a required property that is not declared.
    required: list[Json] = []
    for name in list_at(schema, "required"):
        if isinstance(name, str) and name in properties:
            required.append(name)
    if required:
        written["required"] = required
    return written


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
    tools: list[ToolSpec] = []
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


def parse_messages(
    body: Mapping[str, Json], before: Sequence[ProtocolMessage] = ()
) -> list[ProtocolMessage]:
    """Return a request's messages. `before`: the first ones, if they are parsed already."""
    # Calls are numbered from the first message on, so those before count, too.
    numbering = CallNumbering()
    for message in before:
        for piece in message.pieces:
            if piece.kind is PieceKind.CALL:
                numbering.assign_call_number(piece.name)
            elif piece.kind is PieceKind.RESULT:
                numbering.pop_oldest_open_call(piece.name)
    messages = list(before)
    for unit in list_at(body, "contents")[len(before) :]:
        messages.append(parse_message(unit, numbering))
    return messages


def parse_message(unit: Json, numbering: CallNumbering | None = None) -> ProtocolMessage:
    """Return a message with its pieces: texts, calls, results and so on.

    Calls have no ids in this protocol, so `numbering` counts them, behind those of the
    messages before.
    """
    value = object_at(unit)
    if numbering is None:
        numbering = CallNumbering()
    role = text_at(value, "role")
    speaker = gateway_message.Speaker.USER
    if role == "model":
        speaker = gateway_message.Speaker.ASSISTANT
    pieces: list[Piece] = []
    for position, part in enumerate(list_at(value, "parts")):
        path = (0, "parts", position)
        pieces.append(_piece_of_gemini_part(object_at(part), path, numbering))
    has_known_role = role in ("", "user", "model", "function")
    has_unknown_fields = not value.keys() <= CONTENT_FIELDS
    if not has_known_role or has_unknown_fields:
        marked_pieces = loaded_state.mark_all(pieces, value)
    else:
        marked_pieces = loaded_state.mark_loaded_state(pieces)
    return ProtocolMessage(speaker, (unit,), marked_pieces)


def _piece_of_gemini_part(
    part: Mapping[str, Json], path: tuple[int | str, ...], numbering: CallNumbering
) -> Piece:
    """Return a part of a message as a piece. `path`: where the part stands.

    An unknown part becomes a piece, too, which is sent on as it came.
    """
    if isinstance(part.get("functionCall"), Mapping):
        return _piece_of_call(part["functionCall"], path, numbering)
    if isinstance(part.get("functionResponse"), Mapping):
        return _piece_of_response(part["functionResponse"], path, numbering)
    if isinstance(part.get("text"), str):
        kind = PieceKind.TEXT
        if part.get("thought"):
            kind = PieceKind.REASONING
        return Piece(kind, part["text"], path)
    data = object_at(part.get("inlineData") or part.get("inline_data"))
    media_type = text_at(data, "mimeType") or text_at(data, "mime_type")
    if media_type.startswith("image/"):
        return Piece(PieceKind.IMAGE, text_at(data, "data"), path, media_type=media_type)
    outlives_folds = part.keys().isdisjoint(FOLDED_PARTS)
    return Piece(PieceKind.OTHER, format_json_value(part), path, outlives_folds=outlives_folds)


def _piece_of_call(
    call: Mapping[str, Json], path: tuple[int | str, ...], numbering: CallNumbering
) -> Piece:
    """Return a call of a tool as a piece, with the next number as its id."""
    name = text_at(call, "name")
    arguments = call.get("args") or {}
    number = numbering.assign_call_number(name)
    return Piece(
        PieceKind.CALL,
        text=format_json_value(arguments),
        path=path,
        id=number,
        name=name,
    )


def _piece_of_response(
    response: Mapping[str, Json], path: tuple[int | str, ...], numbering: CallNumbering
) -> Piece:
    """Return a tool's result as a piece. It answers the oldest call of this tool without one."""
    name = text_at(response, "name")
    call_id = numbering.pop_oldest_open_call(name)
    field, text = _text_of_response(response)
    has_failed = field == "error"
    documents = gateway_message.documents_of_content(response.get("parts"))
    return Piece(
        PieceKind.RESULT,
        text=text,
        path=path,
        id=call_id,
        name=name,
        ok=not has_failed,
        media_type=field,  # The text is put back into this field if it is changed.
        images=_images_of_response(response),
        documents=documents,
    )


def _images_of_response(response: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the images beside a result's text, each as an address that has all of it."""
    if "parts" not in response:
        return ()
    addresses: list[str] = []
    for part in objects_at(response, "parts"):
        data = object_at(part.get("inlineData") or part.get("inline_data"))
        media_type = text_at(data, "mimeType") or text_at(data, "mime_type")
        if media_type.startswith("image/"):
            address = gateway_message.format_data_address(media_type, text_at(data, "data"))
            addresses.append(address)
    return tuple(addresses)


def _text_of_response(response: Mapping[str, Json]) -> tuple[str, str]:
    """Return the name of the field with a result's text, and that text.

    A result that is no text alone is taken as JSON, and has no such field.
    """
    value = object_at(response, "response")
    if len(value) != 1:
        return "", format_json_value(value)
    for field in _TEXT_FIELDS:
        if isinstance(value.get(field), str):
            return field, value[field]
    return "", format_json_value(value)


def apply_edits(message: ProtocolMessage, edits: Sequence[gateway_message.PieceEdit]) -> list[Json]:
    """Return the content with some parts changed. Signatures stay."""
    return gateway_message.edit_pieces(message, edits, _path_and_value_in_part)


def _path_and_value_in_part(
    _units: Json, piece: Piece, text: str
) -> tuple[gateway_message.Path, Json]:
    """Return where within its part a piece's text stands, and the value that replaces it."""
    if piece.kind is PieceKind.CALL:
        return ("functionCall", "args"), json.loads(text)
    if piece.kind is PieceKind.RESULT:
        return ("functionResponse", "response"), {piece.media_type or "output": text}
    if not piece.has_own_text:  # A text takes the place of the whole part.
        return (), {"text": text}
    return ("text",), text


def user_message(text: str) -> Json:
    return {"role": "user", "parts": [{"text": text}]}


def result_message(call: str, name: str, text: str, *, ok: bool = True) -> Json:
    """Return a message with a call's result."""
    del call
    response = {"output": text}
    if not ok:
        response = {"error": text}
    part = {"functionResponse": {"name": name, "response": response}}
    return {"role": "user", "parts": [part]}


def merge_added_messages(units: Sequence[tuple[Json, bool]]) -> list[Json]:
    """Join neighbours of one role if one of them was added here (`True`), as Gemini wants the
    results of all calls of a reply in one message. Results come first.
    """
    return gateway_message.join_added_messages(
        units, "parts", _parts_of_content, _is_function_response
    )


def _parts_of_content(unit: Json) -> list[Json]:
    return list_at(unit, "parts")


def _is_function_response(part: Json) -> bool:
    return "functionResponse" in object_at(part)


def with_added_tools(
    body: Mapping[str, Json], added_tools: list[dict[str, Json]]
) -> dict[str, Json]:
    """Return the body with these tools, which `tools_as_json` made, before its own.

    Gemini's tools come in groups, and these join the group that declares functions, if there
    is one. Clients write that field in either of two spellings.
    """
    groups = list(list_at(body, "tools"))
    for position, group in enumerate(groups):
        for field in ("functionDeclarations", "function_declarations"):
            if isinstance(object_at(group).get(field), list):
                groups[position] = {**group, field: added_tools + group[field]}
                return {**body, "tools": groups}
    groups.insert(0, {"functionDeclarations": added_tools})
    return {**body, "tools": groups}


def tools_as_json(tools: Sequence[ToolSpec]) -> list[dict[str, Json]]:
    """Return the tools as a request declares them."""
    declarations: list[dict[str, Json]] = []
    for tool in tools:
        declaration: dict[str, Json] = {"name": tool.name, "description": tool.description}
        declaration.update(gemini_parameters(schema_of_tool(tool)))
        declarations.append(declaration)
    return declarations


# --- Reading replies, whole or from a stream


def parse_reply(value: Mapping[str, Json]) -> gateway_message.WireReply:
    """Return a whole reply, the first candidate."""
    candidate = object_at(value, "candidates", 0)
    parts = list_at(candidate, "content", "parts")
    message = parse_message({"role": "model", "parts": list(parts)})
    stop = _stop_of_reason(text_at(candidate, "finishReason"))
    if stop is Stop.END and message.pieces_of_kind(PieceKind.CALL):
        stop = Stop.CALLS
    return gateway_message.WireReply(
        message=message,
        stop=stop,
        usage=parse_usage(object_at(value, "usageMetadata")),
        model=text_at(value, "modelVersion"),
    )


def _stop_of_reason(reason: str) -> Stop:
    if not reason:
        return Stop.CUT
    # Google adds reasons for withholding a reply, so one that is not known here is such a reason.
    return STOPS.get(reason, Stop.FILTERED)


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
    """Puts a streamed reply together as it would be without a stream."""

    def __init__(self) -> None:
        self.whole: dict[str, Json] = {}
        self._parts: list[dict[str, Json]] = []
        self._candidate: dict[str, Json] = {}

    @property
    def is_done(self) -> bool:
        return bool(text_at(self._candidate, "finishReason"))

    def add_reply_event(self, event: Mapping[str, Json]) -> None:
        self.whole.update(without_fields(event, "candidates"))
        candidate = object_at(event, "candidates", 0)
        self._candidate.update(without_fields(candidate, "content"))
        for part in list_at(candidate, "content", "parts"):
            self._add_gemini_part(dict(object_at(part)))

    def _add_gemini_part(self, part: dict[str, Json]) -> None:
        """Join pieces of one text into a part, unless a signature is between them."""
        if not self._parts or not _continues_text(self._parts[-1], part):
            self._parts.append(part)
            return
        last_part = self._parts[-1]
        joined_text = text_at(last_part, "text") + text_at(part, "text")
        last_part.update(part)
        last_part["text"] = joined_text

    def whole_reply(self) -> dict[str, Json]:
        candidate = dict(self._candidate)
        candidate["content"] = {"role": "model", "parts": self._parts}
        reply = dict(self.whole)
        reply["candidates"] = [candidate]
        return reply


def _continues_text(last: Mapping[str, Json], part: Mapping[str, Json]) -> bool:
    are_texts = "text" in last and "text" in part
    are_of_same_kind = last.get("thought") == part.get("thought")
    return are_texts and are_of_same_kind and "thoughtSignature" not in last


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
        """Return the bytes that the agent gets for an event, which may be none.

        `raw` is the event as it came, `event` the same as JSON. Left out are calls of this
        program's own recall tools and the thoughts before them. So thoughts are held back
        until it is known what follows them.
        """
        if event is None:
            return raw
        candidate = object_at(event, "candidates", 0)
        parts = list_at(candidate, "content", "parts")
        visible_parts = self._filter_parts(parts)
        is_last = bool(candidate.get("finishReason"))
        if self._holds_thoughts(parts, visible_parts) and not is_last:
            self._held_events.append((raw, event))
            return b""

        released = b""
        if is_last or visible_parts:
            released = self._release_thoughts()
        self.shown_count += len(visible_parts)
        if visible_parts == parts and not self.any_hidden:
            return released + raw
        # The end of a reply is shown even without parts, unless the next reply continues it.
        if not visible_parts and (self.has_only_hidden_calls or not is_last):
            return released
        return released + self._encode_with_parts(event, candidate, visible_parts)

    def _filter_parts(self, parts: Sequence[Json]) -> list[Json]:
        """Return the parts that the client sees. Some are changed."""
        visible_parts: list[Json] = []
        for part in parts:
            visible_part = self._filter_gemini_part(object_at(part))
            if visible_part is not None:
                visible_parts.append(visible_part)
        if not self.holds_reasoning or not self.has_only_hidden_calls:
            return visible_parts

        # The thoughts that led to a hidden call are hidden with it.
        parts_without_thoughts: list[Json] = []
        for visible_part in visible_parts:
            if not visible_part.get("thought"):
                parts_without_thoughts.append(visible_part)
        return parts_without_thoughts

    def _holds_thoughts(self, parts: Sequence[Json], visible_parts: Sequence[Json]) -> bool:
        """Whether a chunk is only thoughts, which may belong to a hidden call."""
        if not self.holds_reasoning or not parts or visible_parts != parts:
            return False
        return all(object_at(part).get("thought") for part in parts)

    def _release_thoughts(self) -> bytes:
        """Return the thoughts that were held back, or drop them with the hidden calls."""
        held_events = self._held_events
        self._held_events = []
        if self.has_only_hidden_calls:
            return b""
        return b"".join(raw for raw, _ in held_events)

    def _encode_with_parts(
        self, event: Mapping[str, Json], candidate: Mapping[str, Json], parts: Sequence[Json]
    ) -> bytes:
        """Return an event with these parts instead of its own."""
        changed_candidate = _candidate_with_parts(candidate, parts)
        if self.has_only_hidden_calls:
            changed_candidate.pop("finishReason", None)  # The next reply continues this one.
        candidates = list(list_at(event, "candidates"))
        candidates[:1] = [changed_candidate]
        changed_event = dict(event)
        changed_event["candidates"] = candidates
        return encode_event(self._with_earlier_output(changed_event, self.output_tokens_before))

    def _filter_gemini_part(self, part: Mapping[str, Json]) -> Json | None:
        """Return the part as the client sees it. None: it is hidden."""
        continues_shown_reply = bool(self.replies_before and self.shown_count)
        if part.get("thought") and continues_shown_reply:
            return None
        if not isinstance(part.get("functionCall"), Mapping):
            return part
        if self.count_and_check_hidden(text_at(part["functionCall"], "name")):
            return None
        # Of several calls, only the first has a signature, and Google wants one on the first
        # that comes back. If that first call was hidden, this one gets the placeholder.
        is_first_call = not self._signed
        self._signed = True
        if is_first_call and self.hidden_count and "thoughtSignature" not in part:
            return {**part, "thoughtSignature": PLACEHOLDER}
        return part

    @staticmethod
    def _with_earlier_output(value: dict[str, Json], earlier_tokens: int) -> dict[str, Json]:
        """Add the output of earlier replies to a reply's usage."""
        usage = value.get("usageMetadata")
        if not isinstance(usage, Mapping) or not earlier_tokens:
            return value
        usage_of_all = dict(usage)
        for name in ("candidatesTokenCount", "totalTokenCount"):
            usage_of_all[name] = number_at(usage, name) + earlier_tokens
        return {**value, "usageMetadata": usage_of_all}

    def merge_whole_replies(self, values: Sequence[Mapping[str, Json]]) -> Json:
        """Return several whole replies as one, without the calls that the agent must not see."""
        parts: list[Json] = []
        last_reply = values[-1]
        for reply in values:
            self._signed = False
            self.hidden_count = 0
            for part in map(object_at, list_at(reply, "candidates", 0, "content", "parts")):
                visible_part = self._filter_gemini_part(part)
                # Of the thoughts, only those of the last reply are shown.
                is_earlier_thought = part.get("thought") and reply is not last_reply
                if visible_part is not None and not is_earlier_thought:
                    parts.append(visible_part)

        earlier_tokens = 0
        for reply in values[:-1]:
            earlier_tokens += parse_usage(object_at(reply, "usageMetadata")).output
        candidate = _candidate_with_parts(object_at(last_reply, "candidates", 0), parts)
        merged_reply = dict(last_reply)
        merged_reply["candidates"] = [candidate]
        return self._with_earlier_output(merged_reply, earlier_tokens)


def _candidate_with_parts(candidate: Mapping[str, Json], parts: Sequence[Json]) -> dict[str, Json]:
    """Return a copy of a reply's candidate that has these parts."""
    content = dict(object_at(candidate, "content"))
    content["role"] = "model"
    content["parts"] = parts
    changed_candidate = dict(candidate)
    changed_candidate["content"] = content
    return changed_candidate


PROTOCOL = GatewayProtocol(
    NAME,
    messages_field="contents",
    call_filter=GeminiCallFilter,
    provider_address="https://generativelanguage.googleapis.com",
    address_variables=("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE"),
)
