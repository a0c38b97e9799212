"""Reads and writes Anthropic's Messages as the gateway's agents do: content blocks,
with results in user messages.
"""

import json
from collections.abc import Mapping, Sequence

from helix_desktop.engine.facts import Stop, ToolSpec, Usage
from helix_desktop.json_values import (
    format_json_value,
    list_at,
    number_at,
    object_at,
    text_at,
    value_at,
    without_fields,
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
from helix_desktop.protocols.request_parts import schema_of_tool

NAME = "anthropic"
STOPS = {
    "end_turn": Stop.END,
    "stop_sequence": Stop.END,
    "tool_use": Stop.CALLS,
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "refusal": Stop.FILTERED,
}
THINKING = ("thinking", "redacted_thinking")
# What a fold may stand for. All else goes on where it stood: what the model has loaded, such as
# the tools that a search found, and what is not known here.
FOLDED_BLOCKS = frozenset(
    [
        "text",
        "image",
        "document",
        "search_result",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "fallback",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "advisor_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
    ]
)
FOLDED_RESULT_PARTS = frozenset({"text", "image", "document", "search_result", "browser_state"})
MESSAGE_FIELDS = frozenset({"role", "content"})
# Some clients send a system block of this name that changes with each request.
_CHANGING = "x-anthropic-billing-header"
_SPEAKERS = {"assistant": Speaker.ASSISTANT, "system": Speaker.SYSTEM}
_CALL_OF_SERVER = {"server_tool_use": "id", "tool_search_tool_result": "tool_use_id"}


def parse_head(body: Mapping[str, Json]) -> RequestHead:
    tools = [object_at(tool) for tool in list_at(body, "tools")]
    effort = gateway_message.format_effort_settings(
        body.get("thinking"), text_at(body, "output_config", "effort")
    )
    return RequestHead(
        text_at(body, "model"),
        "\n\n".join(_texts_of_system(body.get("system", ""))),
        tuple(gateway_message.parse_tool(tool, tool.get("input_schema", {})) for tool in tools),
        effort,
    )


def _texts_of_system(system: Json) -> list[str]:
    texts: list[str] = []
    if isinstance(system, str):
        texts = [system]
    elif isinstance(system, list):
        texts = [text_at(part, "text") for part in system]
    return [text for text in texts if text and not text.startswith(_CHANGING)]


def parse_messages(body: Mapping[str, Json], before: Sequence[Wired] = ()) -> list[Wired]:
    messages = list(before)
    for unit in list_at(body, "messages")[len(before) :]:
        messages.append(parse_message(unit))
    return messages


def parse_message(unit: Json) -> Wired:
    value = object_at(unit)
    role = text_at(value, "role")
    speaker = _SPEAKERS.get(role, Speaker.USER)
    content = value.get("content")
    pieces: list[Piece] = []
    if isinstance(content, str):
        pieces.append(Piece(PieceKind.TEXT, content, (0, "content")))
    else:
        for position, block in enumerate(list_at(content)):
            pieces.append(_piece_of_block(object_at(block), (0, "content", position)))
    if _goes_on_as_a_whole(value, role):
        return Wired(speaker, (unit,), loaded_state.mark_all(pieces, value))
    return Wired(speaker, (unit,), loaded_state.mark_loaded_state(pieces))


def _goes_on_as_a_whole(message: Mapping[str, Json], role: str) -> bool:
    """Whether folds leave the message alone: the system's, one of an unknown role or setting."""
    if role == "assistant":
        return False  # Its fields are the provider's own, which belong to the reply.
    if role == "system":
        # A notice for one turn only: after that turn, the provider hides it itself.
        is_for_one_turn = message.get("clear_at") == "next_user_message"
        return not is_for_one_turn or "output_config" in message
    return role != "user" or loaded_state.has_unknown_fields(message, MESSAGE_FIELDS)


def _piece_of_block(block: Mapping[str, Json], path: tuple[int | str, ...]) -> Piece:
    match block.get("type"):
        case "text":
            return Piece(PieceKind.TEXT, text_at(block, "text"), path)
        case "thinking" | "redacted_thinking":
            return Piece(PieceKind.REASONING, text_at(block, "thinking"), path)
        case "tool_use":
            name = text_at(block, "name")
            arguments = format_json_value(block.get("input", {}))
            return Piece(PieceKind.CALL, arguments, path, text_at(block, "id"), name)
        case "tool_result":
            content = block.get("content", "")
            return Piece(
                PieceKind.RESULT,
                gateway_message.text_of_content(content),
                path,
                text_at(block, "tool_use_id"),
                ok=not block.get("is_error"),
                outlives_folds=loaded_state.has_other_parts(content, FOLDED_RESULT_PARTS),
            )
        case "image" if text_at(block, "source", "type") == "base64":
            data = text_at(block, "source", "data")
            media_type = text_at(block, "source", "media_type")
            return Piece(PieceKind.IMAGE, data, path, media_type=media_type)
    kind = text_at(block, "type")
    call = ""
    if kind in _CALL_OF_SERVER:
        # A search of tools by the provider itself is a call and a result in the same reply.
        call = text_at(block, _CALL_OF_SERVER[kind])
    outlives_folds = kind not in FOLDED_BLOCKS
    return gateway_message.unknown_piece(block, path, call, outlives_folds=outlives_folds)


def apply_edits(wired: Wired, edits: Sequence[gateway_message.PieceEdit]) -> list[Json]:
    """Return the message with some pieces changed. Cache marks stay in place."""
    return gateway_message.edit_pieces(wired, edits, _path_and_value_of_edit)


def _path_and_value_of_edit(
    units: Json, piece: Piece, text: str
) -> tuple[gateway_message.Path, Json]:
    if piece.kind is PieceKind.CALL:
        return ("input",), json.loads(text)
    if piece.kind is PieceKind.RESULT:
        content = value_at(units, *piece.path, "content")
        return ("content",), gateway_message.replace_text_in_content(content, text, "text")
    is_plain_text = len(piece.path) == 2  # The message's content is a text, and no list.
    if is_plain_text:
        return (), text
    return ("text",), text


def user_message(text: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def result_message(call: str, name: str, text: str, *, ok: bool = True) -> Json:
    del name
    block: dict[str, Json] = {"type": "tool_result", "tool_use_id": call, "content": text}
    if not ok:
        block["is_error"] = True
    return {"role": "user", "content": [block]}


def merge_added_messages(units: Sequence[tuple[Json, bool]]) -> list[Json]:
    """Merge messages of one role if one of them was added here (`True`). Results come first."""
    return gateway_message.join_added_messages(
        units, "content", _content_blocks, lambda block: text_at(block, "type") == "tool_result"
    )


def _content_blocks(unit: Mapping[str, Json]) -> list[Json]:
    content = unit.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(list_at(content))


def with_added_tools(
    body: Mapping[str, Json], added_tools: list[dict[str, Json]]
) -> dict[str, Json]:
    """Return the body with these tools, which `tools_as_json` made, before its own."""
    return {**body, "tools": added_tools + list_at(body, "tools")}


def tools_as_json(tools: Sequence[ToolSpec]) -> list[dict[str, Json]]:
    values = []
    for tool in tools:
        schema = schema_of_tool(tool)
        values.append({"name": tool.name, "description": tool.description, "input_schema": schema})
    return values


# --- Finding and removing marks for the provider's cache

MOST_MARKS = 4
LOOK_BACK = 20  # The number of blocks that the provider looks back from a mark.


def count_cache_marks(value: Json) -> int:
    """Return the number of `cache_control` marks in a request or a part of it."""
    if isinstance(value, list):
        return sum(map(count_cache_marks, value))
    if not isinstance(value, Mapping):
        return 0
    own = int(isinstance(value.get("cache_control"), Mapping))
    return own + sum(map(count_cache_marks, value.values()))


def last_cache_mark(unit: Json) -> Json | None:
    for block in reversed(list_at(unit, "content")):
        mark = object_at(block).get("cache_control")
        if mark:
            return mark
    return None


def count_content_blocks(unit: Json) -> int:
    content = object_at(unit).get("content")
    if isinstance(content, list):
        return len(content)
    return 1


def without_cache_marks(unit: Json) -> Json:
    content = object_at(unit).get("content")
    if not isinstance(content, list):
        return unit
    if not any("cache_control" in object_at(block) for block in content):
        return unit
    return {**unit, "content": [without_fields(block, "cache_control") for block in content]}


def with_cache_mark(unit: Json, mark: Json) -> Json:
    """Return the message with a mark on its last block that can have one."""
    blocks = _content_blocks(unit)
    for position in reversed(range(len(blocks))):
        block = blocks[position]
        if block.get("type") not in THINKING and block.get("text") != "":
            blocks[position] = {**block, "cache_control": mark}
            return {**unit, "content": blocks}
    return unit


# --- Reading replies, whole or from a stream


def parse_reply(value: Mapping[str, Json]) -> gateway_message.WireReply:
    unit = {"role": "assistant", "content": list(list_at(value, "content"))}
    stop = STOPS.get(text_at(value, "stop_reason"), Stop.CUT)
    return gateway_message.WireReply(
        parse_message(unit), stop, parse_usage(object_at(value, "usage")), text_at(value, "model")
    )


def parse_usage(value: Mapping[str, Json]) -> Usage:
    """Return the usage as the engine counts it: input includes its cached parts."""
    read = number_at(value, "cache_read_input_tokens")
    write = number_at(value, "cache_creation_input_tokens")
    sent = number_at(value, "input_tokens") + read + write
    hour = min(write, number_at(value, "cache_creation", "ephemeral_1h_input_tokens"))
    return Usage(sent, read, write, number_at(value, "output_tokens"), cache_write_hour=hour)


class ReplyAssembler:
    def __init__(self) -> None:
        self.whole: dict[str, Json] = {}
        self._blocks: dict[int, dict[str, Json]] = {}
        self._json: dict[int, list[str]] = {}
        self.is_done = False

    def add_reply_event(self, event: Mapping[str, Json]) -> None:
        index = number_at(event, "index")
        match event.get("type"):
            case "message_start":
                self.whole = dict(object_at(event, "message"))
                self.whole["usage"] = dict(object_at(self.whole, "usage"))
            case "content_block_start":
                self._blocks[index] = dict(object_at(event, "content_block"))
            case "content_block_delta":
                self._add_block_delta(index, object_at(event, "delta"))
            case "message_delta":
                self.whole.update(object_at(event, "delta"))
                reported = {
                    name: value
                    for name, value in object_at(event, "usage").items()
                    if value is not None
                }
                self.whole["usage"] = {**object_at(self.whole, "usage"), **reported}
            case "message_stop":
                self.is_done = True

    def _add_block_delta(self, index: int, delta: Mapping[str, Json]) -> None:
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        for name in ("text", "thinking", "signature"):
            if isinstance(delta.get(name), str):
                block[name] = text_at(block, name) + delta[name]
        if isinstance(delta.get("partial_json"), str):
            self._json.setdefault(index, []).append(delta["partial_json"])
        if delta.get("type") == "citations_delta":
            citations = list(list_at(block, "citations"))
            citations.append(delta.get("citation"))
            block["citations"] = citations

    def whole_reply(self) -> dict[str, Json]:
        blocks = [self._finish_block(index, block) for index, block in sorted(self._blocks.items())]
        return {**self.whole, "content": blocks}

    def _finish_block(self, index: int, block: dict[str, Json]) -> dict[str, Json]:
        written = "".join(self._json.get(index, ()))
        if not written:
            return block
        try:
            return {**block, "input": json.loads(written)}
        except ValueError:
            return {**block, "input": {}}


# --- Hiding calls to this program's own tools from the agent


class AnthropicCallFilter(NumberedCallFilter):
    """Content blocks are numbered. The client's numbers skip hidden ones."""

    index_name = "index"

    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        kind = text_at(event, "type")
        if event is None or kind in ("ping", "error", ""):
            return raw
        continues_shown_reply = kind == "message_start" and self.replies_before
        goes_on_in_next_reply = kind == "message_stop" and self.has_only_hidden_calls
        if continues_shown_reply or goes_on_in_next_reply:
            return b""
        if kind in ("message_start", "message_stop"):
            return raw
        if kind == "message_delta":
            return self._finish_message(raw, event)
        index = number_at(event, "index")
        released = b""
        if kind == "content_block_start":
            block = object_at(event, "content_block")
            called_tool: str | None = None
            if block.get("type") == "tool_use":
                called_tool = text_at(block, "name")
            thinks = block.get("type") in THINKING
            released = self.begin_reply_part(index, thinks=thinks, called_tool=called_tool)
        return released + self.hold_or_show_event(raw, event, index)

    def renumber_event(
        self, raw: bytes, event: Mapping[str, Json], index: int, shown: int
    ) -> bytes:
        if shown == index:
            return raw
        return encode_event({**event, "index": shown}, text_at(event, "type"))

    def _finish_message(self, raw: bytes, event: Mapping[str, Json]) -> bytes:
        """Return the event with the stop reason and the usage, which is that of all replies."""
        if self.has_only_hidden_calls:
            return b""  # The next reply continues this one.
        released = self.release_held_events()
        if not self.any_hidden:
            return released + raw
        usage_of_all = add_earlier_output(
            object_at(event, "usage"), self.output_tokens_before, "output_tokens"
        )
        return released + encode_event({**event, "usage": usage_of_all}, "message_delta")

    def merge_whole_replies(self, values: Sequence[Mapping[str, Json]]) -> Json:
        content: list[Json] = []
        last = values[-1]
        for number, value in enumerate(values):
            for block in map(object_at, list_at(value, "content")):
                kind = block.get("type")
                is_ours = kind == "tool_use" and block.get("name") in HIDDEN_TOOLS
                follows_others = bool(content) and number > 0
                is_stale = kind in THINKING and (follows_others or value is not last)
                if not is_ours and not is_stale:
                    content.append(block)
        return {
            **last,
            "id": values[0].get("id", last.get("id")),
            "content": content,
            "usage": sum_output(values, "output_tokens"),
        }
