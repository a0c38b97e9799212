"""Reads and writes the items of Responses as agents do. Those between two of the user's
are one reply.
"""

from collections.abc import Mapping, Sequence

from helix_desktop.engine.facts import Stop, ToolSpec, Usage
from helix_desktop.json_values import (
    format_json_value,
    list_at,
    number_at,
    object_at,
    text_at,
    value_at,
)
from helix_desktop.protocols import gateway_message, loaded_state
from helix_desktop.protocols.event_stream import encode_event
from helix_desktop.protocols.gateway_message import (
    Json,
    Piece,
    PieceKind,
    RequestHead,
    Speaker,
    Wired,
)
from helix_desktop.protocols.hidden_calls import (
    HIDDEN_TOOLS,
    NumberedCallFilter,
    add_earlier_output,
    sum_output,
)
from helix_desktop.protocols.request_parts import function_of_tool

NAME = "openai-responses"
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
        "computer_call_output",
    }
)
_SERVER = frozenset(
    {
        "local_shell_call",
        "web_search_call",
        "file_search_call",
        "computer_call",
        "code_interpreter_call",
        "mcp_call",
    }
)
# What a fold may stand for. All other items go on where they stood: those that change the tools
# or the settings of what follows, and those that are not known here.
FOLDED_ITEMS = (
    _RESULTS
    | _SERVER
    | frozenset(
        [
            "message",
            "function_call",
            "custom_tool_call",
            "reasoning",
            "image_generation_call",
            "shell_call",
            "shell_call_output",
            "apply_patch_call",
            "apply_patch_call_output",
            "mcp_approval_request",
            "mcp_approval_response",
            "program",
            "program_output",
        ]
    )
)
FOLDED_OUTPUTS = frozenset({"computer_screenshot"})
FOLDED_PARTS = frozenset(
    ["input_text", "output_text", "input_image", "input_file", "refusal", "text", "summary_text"]
)


def parse_head(body: Mapping[str, Json]) -> RequestHead:
    items = [object_at(item) for item in list_at(body, "input")]
    tools = [object_at(tool) for tool in list_at(body, "tools")]
    for item in items:  # Codex also sends tools in the input.
        tools.extend(object_at(tool) for tool in list_at(item, "tools"))
    instructions = [text_at(body, "instructions")]
    for item in items:
        if item.get("role") not in ("developer", "system"):
            break
        instructions.append(gateway_message.text_of_content(item.get("content")))
    named = (
        gateway_message.parse_tool(tool, tool.get("parameters", {}), text_at(tool, "type"))
        for tool in tools
    )
    effort = gateway_message.format_effort_settings(text_at(body, "reasoning", "effort"))
    system = "\n\n".join(filter(None, instructions))
    return RequestHead(text_at(body, "model"), system, tuple(named), effort)


def parse_messages(body: Mapping[str, Json], before: Sequence[Wired] = ()) -> list[Wired]:
    """Return a request's messages, one for the items of each reply."""
    text_or_items = body.get("input")
    if isinstance(text_or_items, str):
        piece = Piece(PieceKind.TEXT, text_or_items, path=(0,))
        return [Wired(Speaker.USER, (text_or_items,), (piece,))]
    messages = list(before)
    known_items = sum(len(message.units) for message in before)
    reply: list[Json] = []
    for item in list_at(text_or_items)[known_items:]:
        if _belongs_to_reply(object_at(item)):
            reply.append(item)
            continue
        if reply:
            messages.append(parse_message(reply))
            reply = []
        messages.append(parse_message([item]))
    if reply:
        messages.append(parse_message(reply))
    return messages


def _belongs_to_reply(item: Mapping[str, Json]) -> bool:
    kind = text_at(item, "type")
    return (
        kind in _CALLS
        or kind in _SERVER
        or kind == "reasoning"
        or text_at(item, "role") == "assistant"
    )


def parse_message(items: Sequence[Json]) -> Wired:
    if not items:  # A reply without any item.
        return Wired(Speaker.ASSISTANT, (), loaded_state.mark_loaded_state([]))
    pieces: list[Piece] = []
    for position, item in enumerate(items):
        pieces += _pieces_of_item(object_at(item), position)
    first_item = object_at(items[0])
    speaker = _speaker_of_item(first_item)
    is_users = speaker is Speaker.USER and text_at(first_item, "role") in ("", "user")
    if speaker is Speaker.ASSISTANT or is_users:
        return Wired(speaker, tuple(items), loaded_state.mark_loaded_state(pieces))
    # Instructions, and messages of roles that are not known here, outlive folds as a whole.
    return Wired(speaker, tuple(items), loaded_state.mark_all(pieces, first_item))


def _speaker_of_item(item: Mapping[str, Json]) -> Speaker:
    if text_at(item, "role") in ("system", "developer"):
        return Speaker.SYSTEM
    if _belongs_to_reply(item):
        return Speaker.ASSISTANT
    return Speaker.USER


def _pieces_of_item(item: Mapping[str, Json], at: int) -> list[Piece]:
    kind = text_at(item, "type")
    if kind in ("", "message"):
        return _pieces_of_content(item.get("content"), at)
    if kind in _CALLS:
        field = _CALLS[kind]
        call = text_at(item, "call_id")
        name = text_at(item, "name")
        return [Piece(PieceKind.CALL, text_at(item, field), (at,), call, name, media_type=field)]
    if kind in _RESULTS:
        return [_piece_of_result(item, at)]
    if kind == "reasoning":
        text = gateway_message.text_of_content(item.get("summary"))
        return [Piece(PieceKind.REASONING, text, (at,))]
    outlives_folds = kind not in FOLDED_ITEMS
    text = format_json_value(item)
    return [Piece(PieceKind.OTHER, text, (at,), outlives_folds=outlives_folds)]


def _pieces_of_content(content: Json, at: int) -> list[Piece]:
    if isinstance(content, str):
        return [Piece(PieceKind.TEXT, content, (at, "content"))]
    pieces = []
    for place, part in enumerate(map(object_at, list_at(content))):
        url = text_at(part, "image_url")
        path = (at, "content", place)
        pieces.append(gateway_message.piece_of_part(part, url, path, FOLDED_PARTS))
    return pieces


def _piece_of_result(item: Mapping[str, Json], at: int) -> Piece:
    output = item.get("output")
    text = gateway_message.text_of_content(output)
    outlives_folds = loaded_state.has_other_parts(output, FOLDED_PARTS | FOLDED_OUTPUTS)
    call = text_at(item, "call_id")
    return Piece(PieceKind.RESULT, text, (at,), call, outlives_folds=outlives_folds)


def apply_edits(wired: Wired, edits: Sequence[gateway_message.PieceEdit]) -> list[Json]:
    """Return the items with some pieces changed. A message with nothing left is dropped."""
    units = gateway_message.edit_pieces(wired, edits, _path_and_value_of_edit)
    return [unit for unit in units if not _is_empty_message(unit)]


def _is_empty_message(unit: Json) -> bool:
    if isinstance(unit, str):
        return False
    return text_at(unit, "type") in ("", "message") and not unit.get("content")


def _path_and_value_of_edit(
    units: Json, piece: Piece, text: str
) -> tuple[gateway_message.Path, Json]:
    if piece.kind is PieceKind.CALL:
        return (piece.media_type,), text
    if piece.kind is PieceKind.RESULT:
        output = value_at(units, *piece.path, "output")
        return ("output",), gateway_message.replace_text_in_content(output, text, "input_text")
    is_plain_text = piece.path[-1] == "content" or len(piece.path) == 1
    if is_plain_text:
        return (), text
    return ("text",), text


def user_message(text: str) -> Json:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def result_message(call: str, name: str, text: str, *, ok: bool = True) -> Json:
    del name, ok
    return {"type": "function_call_output", "call_id": call, "output": text}


def merge_added_messages(units: Sequence[tuple[Json, bool]]) -> list[Json]:
    return [unit for unit, _ in units]


def with_added_tools(
    body: Mapping[str, Json], added_tools: list[dict[str, Json]]
) -> dict[str, Json]:
    """Return the body with these tools, which `tools_as_json` made, before its own."""
    if "tools" in body:
        return {**body, "tools": added_tools + list_at(body, "tools")}
    # Codex can offer its tools in an item of the input instead.
    items = list(list_at(body, "input"))
    for position, item in enumerate(items):
        if isinstance(object_at(item).get("tools"), list):
            items[position] = {**item, "tools": added_tools + item["tools"]}
            return {**body, "input": items}
    return {**body, "tools": added_tools}


def tools_as_json(tools: Sequence[ToolSpec]) -> list[dict[str, Json]]:
    return [{"type": "function", **function_of_tool(t), "strict": False} for t in tools]


# --- Reading replies, whole or from a stream


def parse_reply(value: Mapping[str, Json]) -> gateway_message.WireReply:
    """Return a whole reply. Its items get no `status`, because clients send them back
    without it.
    """
    items = [dict(object_at(item)) for item in list_at(value, "output")]
    for item in items:
        item.pop("status", None)
    wired = parse_message(items)
    status = text_at(value, "status")
    reason = text_at(value, "incomplete_details", "reason")
    stop = Stop.CUT
    if status == "completed" and wired.pieces_of_kind(PieceKind.CALL):
        stop = Stop.CALLS
    elif status == "completed":
        stop = Stop.END
    elif status == "incomplete" and reason == "content_filter":
        stop = Stop.FILTERED
    elif status == "incomplete":
        stop = Stop.LENGTH
    return gateway_message.WireReply(
        wired, stop, parse_usage(object_at(value, "usage")), text_at(value, "model")
    )


def parse_usage(value: Mapping[str, Json]) -> Usage:
    return Usage(
        input=number_at(value, "input_tokens"),
        cache_read=number_at(value, "input_tokens_details", "cached_tokens"),
        cache_write=number_at(value, "input_tokens_details", "cache_write_tokens"),
        output=number_at(value, "output_tokens"),
        reasoning=number_at(value, "output_tokens_details", "reasoning_tokens"),
    )


class ReplyAssembler:
    def __init__(self) -> None:
        self.whole: dict[str, Json] = {}
        self._items: dict[int, Json] = {}
        self.is_done = False

    def add_reply_event(self, event: Mapping[str, Json]) -> None:
        """Add an event. Items are complete once done. The last event has them all,
        except from some servers.
        """
        kind = text_at(event, "type")
        if kind == "response.output_item.done":
            self._items[number_at(event, "output_index")] = event.get("item")
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self.whole = dict(object_at(event, "response"))
            self.is_done = kind != "response.failed"
        elif kind == "response.created" and not self.whole:
            self.whole = dict(object_at(event, "response"))

    def whole_reply(self) -> dict[str, Json]:
        output = list(list_at(self.whole, "output"))
        if not output:  # From a server whose last event does not repeat the items.
            output = [self._items[index] for index in sorted(self._items)]
        return {**self.whole, "output": output}


# --- Hiding calls to this program's own tools from the agent


class ResponsesCallFilter(NumberedCallFilter):
    """Items and events are numbered. The last event contains the whole reply again."""

    index_name = "output_index"

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._sent = 0
        self._items: list[Json] = []
        self._first: Mapping[str, Json] = {}
        self._rewriting = False

    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        if event is None:
            return self._filter_mark_of_end(raw)
        kind = text_at(event, "type")
        if kind in ("response.created", "response.in_progress", "response.queued"):
            return self._begin_response(raw, event)
        if kind in ("response.completed", "response.incomplete"):
            if self.has_only_hidden_calls:
                return b""
            return self.release_held_events() + self._finish_response(raw, event)
        if "output_index" not in event:
            return self._number_sent_event(raw, event)
        index = number_at(event, "output_index")
        released = b""
        if kind == "response.output_item.added":
            released = self._begin_item(index, object_at(event, "item"))
        return released + self.hold_or_show_event(raw, event, index)

    def _filter_mark_of_end(self, raw: bytes) -> bytes:
        if self.has_only_hidden_calls and b"[DONE]" in raw:
            return b""  # The next reply continues this one.
        return raw

    def _begin_response(self, raw: bytes, event: Mapping[str, Json]) -> bytes:
        self._first = self._first or object_at(event, "response")
        if self.replies_before:
            return b""  # The agent has seen the beginning of the first reply.
        return self._number_sent_event(raw, event)

    def _begin_item(self, index: int, item: Mapping[str, Json]) -> bytes:
        kind = text_at(item, "type")
        if kind != "function_call" and kind.endswith("_call"):
            self.visible_count += 1
        called_tool = None
        if kind == "function_call":
            called_tool = text_at(item, "name")
        is_reasoning = kind == "reasoning"
        return self.begin_reply_part(index, thinks=is_reasoning, called_tool=called_tool)

    def renumber_event(
        self, raw: bytes, event: Mapping[str, Json], index: int, shown: int
    ) -> bytes:
        if event.get("type") == "response.output_item.done":
            self._items.append(event.get("item"))
        if shown == index:
            return self._number_sent_event(raw, event)
        return self._number_sent_event(raw, {**event, "output_index": shown}, changed=True)

    def _number_sent_event(
        self, raw: bytes, event: Mapping[str, Json], *, changed: bool = False
    ) -> bytes:
        """Number an event as the client sees it."""
        providers_number = event.get("sequence_number")
        clients_number = self._sent
        self._sent += 1
        if changed or providers_number not in (None, clients_number):
            self._rewriting = True
        if not self._rewriting:
            return raw
        if providers_number is not None:
            event = {**event, "sequence_number": clients_number}
        return encode_event(event, text_at(event, "type"))

    def _finish_response(self, raw: bytes, event: Mapping[str, Json]) -> bytes:
        if not self.any_hidden:
            return self._number_sent_event(raw, event)
        response = object_at(event, "response")
        usage_of_all = add_earlier_output(
            object_at(response, "usage"),
            self.output_tokens_before,
            "output_tokens",
            input_field="input_tokens",
        )
        visible_response = {
            **response,
            "id": self._first.get("id", response.get("id")),
            "output": self._items,
            "usage": usage_of_all,
        }
        return self._number_sent_event(raw, {**event, "response": visible_response}, changed=True)

    def merge_whole_replies(self, values: Sequence[Mapping[str, Json]]) -> Json:
        items: list[Json] = []
        last = values[-1]
        for value in values:
            for item in map(object_at, list_at(value, "output")):
                kind = item.get("type")
                is_ours = kind == "function_call" and item.get("name") in HIDDEN_TOOLS
                is_stale = kind == "reasoning" and value is not last
                if not is_ours and not is_stale:
                    items.append(item)
        usage = sum_output(values, "output_tokens", "input_tokens")
        return {**last, "id": values[0].get("id"), "output": items, "usage": usage}
