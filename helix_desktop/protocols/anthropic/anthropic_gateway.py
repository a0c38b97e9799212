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
    ProtocolMessage,
    RequestHead,
    Speaker,
)
from helix_desktop.protocols.gateway_protocol import GatewayProtocol
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
    """Return what a request says besides its messages."""
    tools: list[ToolSpec] = []
    for tool in map(object_at, list_at(body, "tools")):
        schema = tool.get("input_schema", {})
        tools.append(gateway_message.parse_tool(tool, schema))
    thinking = body.get("thinking")
    named_effort = text_at(body, "output_config", "effort")
    effort = gateway_message.format_effort_settings(thinking, named_effort)
    system_texts = _texts_of_system(body.get("system", ""))
    return RequestHead(
        model=text_at(body, "model"),
        system="\n\n".join(system_texts),
        tools=tuple(tools),
        effort=effort,
    )


def _texts_of_system(system: Json) -> list[str]:
    """Return the texts of a system prompt, without those that change with each request."""
    if isinstance(system, str):
        all_texts = [system]
    else:
        all_texts = [text_at(part, "text") for part in list_at(system)]
    texts: list[str] = []
    for text in all_texts:
        if text and not text.startswith(_CHANGING):
            texts.append(text)
    return texts


def parse_messages(
    body: Mapping[str, Json], before: Sequence[ProtocolMessage] = ()
) -> list[ProtocolMessage]:
    """Return a request's messages. `before`: the first ones, if they are parsed already."""
    messages = list(before)
    for unit in list_at(body, "messages")[len(before) :]:
        messages.append(parse_message(unit))
    return messages


def parse_message(unit: Json) -> ProtocolMessage:
    """Return a message of a request, with its pieces: texts, calls, results and so on.

    Each piece knows its path in the JSON, so that a changed text can be put back there.
    """
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
        return ProtocolMessage(speaker, (unit,), loaded_state.mark_all(pieces, value))
    return ProtocolMessage(speaker, (unit,), loaded_state.mark_loaded_state(pieces))


def _goes_on_as_a_whole(message: Mapping[str, Json], role: str) -> bool:
    """Whether a message must never be replaced by a fold, which is a shorter text.

    That holds for the system's messages, and for what this program does not understand: an
    unknown role, or a field that may set something for what follows.
    """
    if role == "assistant":
        return False  # Its fields are the provider's own, which belong to the reply.
    if role == "system":
        # A notice for one turn only: after that turn, the provider hides it itself.
        is_for_one_turn = message.get("clear_at") == "next_user_message"
        return not is_for_one_turn or "output_config" in message
    has_unknown_fields = not message.keys() <= MESSAGE_FIELDS
    return role != "user" or has_unknown_fields


def _piece_of_block(block: Mapping[str, Json], path: tuple[int | str, ...]) -> Piece:
    """Return a block of a message's content as a piece. `path`: where the block stands.

    An unknown block becomes a piece, too, which is sent on as it came.
    """
    match block.get("type"):
        case "text":
            return Piece(PieceKind.TEXT, text_at(block, "text"), path)
        case "thinking" | "redacted_thinking":
            return Piece(PieceKind.REASONING, text_at(block, "thinking"), path)
        case "tool_use":
            return Piece(
                PieceKind.CALL,
                text=format_json_value(block.get("input", {})),
                path=path,
                id=text_at(block, "id"),
                name=text_at(block, "name"),
            )
        case "tool_result":
            content = block.get("content", "")
            return Piece(
                PieceKind.RESULT,
                text=gateway_message.text_of_content(content),
                path=path,
                id=text_at(block, "tool_use_id"),
                ok=not block.get("is_error"),
                outlives_folds=loaded_state.has_other_parts(content, FOLDED_RESULT_PARTS),
                images=gateway_message.images_of_content(content),
                documents=gateway_message.documents_of_content(content),
            )
        case "image" if text_at(block, "source", "type") == "base64":
            return Piece(
                PieceKind.IMAGE,
                text=text_at(block, "source", "data"),
                path=path,
                media_type=text_at(block, "source", "media_type"),
            )

    block_type = text_at(block, "type")
    call_id = ""
    if block_type in _CALL_OF_SERVER:
        # A search of tools by the provider itself is a call and a result in the same reply.
        call_id = text_at(block, _CALL_OF_SERVER[block_type])
    outlives_folds = block_type not in FOLDED_BLOCKS
    return gateway_message.unknown_piece(block, path, call_id, outlives_folds=outlives_folds)


def apply_edits(message: ProtocolMessage, edits: Sequence[gateway_message.PieceEdit]) -> list[Json]:
    """Return the message with some pieces changed. Cache marks stay in place."""
    return gateway_message.edit_pieces(message, edits, _path_and_value_in_block)


def _path_and_value_in_block(
    units: Json, piece: Piece, text: str
) -> tuple[gateway_message.Path, Json]:
    """Return where within its piece a text stands, and the value that replaces it."""
    if piece.kind is PieceKind.CALL:
        return ("input",), json.loads(text)
    if piece.kind is PieceKind.RESULT:
        content = value_at(units, *piece.path, "content")
        return ("content",), gateway_message.replace_text_in_content(content, text, "text")
    if not piece.has_own_text:  # A text takes the place of the whole block.
        mark = value_at(units, *piece.path, "cache_control")
        block: dict[str, Json] = {"type": "text", "text": text}
        if mark:
            block["cache_control"] = mark
        return (), block
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
    """Join neighbours of one role if one of them was added here (`True`), as Anthropic wants
    the results of all calls of a reply in one message. Results come first.
    """
    return gateway_message.join_added_messages(units, "content", _content_blocks, _is_result_block)


def _is_result_block(block: Json) -> bool:
    return text_at(block, "type") == "tool_result"


def _content_blocks(unit: Mapping[str, Json]) -> list[Json]:
    """Return a message's blocks. A text alone is one, too."""
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
    """Return the tools as a request offers them."""
    values: list[dict[str, Json]] = []
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
    count = sum(map(count_cache_marks, value.values()))
    if isinstance(value.get("cache_control"), Mapping):
        count += 1
    return count


def last_cache_mark(unit: Json) -> Json | None:
    """Return the last mark in a message's blocks, or None if there is none."""
    for block in reversed(list_at(unit, "content")):
        mark = object_at(block).get("cache_control")
        if mark:
            return mark
    return None


def count_content_blocks(unit: Json) -> int:
    """Return how many blocks a message has. A text alone is one."""
    content = object_at(unit).get("content")
    if isinstance(content, list):
        return len(content)
    return 1


def without_cache_marks(unit: Json) -> Json:
    """Return a message without its marks: the same value if it has none."""
    content = object_at(unit).get("content")
    if not isinstance(content, list):
        return unit
    has_mark = any("cache_control" in object_at(block) for block in content)
    if not has_mark:
        return unit
    unmarked_blocks = [without_fields(block, "cache_control") for block in content]
    return {**unit, "content": unmarked_blocks}


def without_all_cache_marks(unit: Json) -> Json:
    """Return a message without its marks, also without those of the parts of a result."""
    bare_unit = without_cache_marks(unit)
    if not count_cache_marks(bare_unit):
        return bare_unit
    bare_blocks: list[Json] = []
    for block in list_at(bare_unit, "content"):
        # The content of a result is a message's content, too.
        bare_blocks.append(without_cache_marks(block))
    return {**bare_unit, "content": bare_blocks}


def with_cache_mark(unit: Json, mark: Json) -> Json:
    """Return the message with a mark on its last block that can have one.

    The provider refuses a mark on thinking and on an empty text.
    """
    blocks = _content_blocks(unit)
    for position in reversed(range(len(blocks))):
        block = blocks[position]
        is_thinking = block.get("type") in THINKING
        is_empty_text = block.get("text") == ""
        if not is_thinking and not is_empty_text:
            blocks[position] = {**block, "cache_control": mark}
            return {**unit, "content": blocks}
    return unit


# --- Reading replies, whole or from a stream


def parse_reply(value: Mapping[str, Json]) -> gateway_message.WireReply:
    """Return what a whole reply says, how it ended, and what it used."""
    unit = {"role": "assistant", "content": list(list_at(value, "content"))}
    stop_reason = text_at(value, "stop_reason")
    usage = parse_usage(object_at(value, "usage"))
    return gateway_message.WireReply(
        message=parse_message(unit),
        stop=STOPS.get(stop_reason, Stop.CUT),
        usage=usage,
        model=text_at(value, "model"),
    )


def parse_usage(value: Mapping[str, Json]) -> Usage:
    """Return the tokens of a reply as the engine counts them: input includes its cached parts,
    which Anthropic states beside it.
    """
    uncached_input = number_at(value, "input_tokens")
    cache_read = number_at(value, "cache_read_input_tokens")
    cache_write = number_at(value, "cache_creation_input_tokens")
    written_for_an_hour = number_at(value, "cache_creation", "ephemeral_1h_input_tokens")
    return Usage(
        input=uncached_input + cache_read + cache_write,
        cache_read=cache_read,
        cache_write=cache_write,
        output=number_at(value, "output_tokens"),
        cache_write_hour=min(cache_write, written_for_an_hour),
    )


class ReplyAssembler:
    """Puts a streamed reply together as it would be without a stream."""

    def __init__(self) -> None:
        self.whole: dict[str, Json] = {}
        self._blocks: dict[int, dict[str, Json]] = {}
        self._json: dict[int, list[str]] = {}
        self.is_done = False

    def add_reply_event(self, event: Mapping[str, Json]) -> None:
        """Add what an event of the stream says."""
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
                self._add_reported_usage(object_at(event, "usage"))
            case "message_stop":
                self.is_done = True

    def _add_reported_usage(self, reported: Mapping[str, Json]) -> None:
        """Add figures of the end to those of the beginning. Null stands for an unknown one."""
        usage = dict(object_at(self.whole, "usage"))
        for name, value in reported.items():
            if value is not None:
                usage[name] = value
        self.whole["usage"] = usage

    def _add_block_delta(self, index: int, delta: Mapping[str, Json]) -> None:
        """Add a piece to its block: to a text, to thinking, or to a call's arguments."""
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
        blocks: list[Json] = []
        for index in sorted(self._blocks):
            blocks.append(self._finish_block(index, self._blocks[index]))
        return {**self.whole, "content": blocks}

    def _finish_block(self, index: int, block: dict[str, Json]) -> dict[str, Json]:
        """Return a block with the arguments of its call, which come as pieces of JSON."""
        arguments = "".join(self._json.get(index, ()))
        if not arguments:
            return block
        try:
            return {**block, "input": json.loads(arguments)}
        except (ValueError, RecursionError):  # The reply broke off within them.
            return {**block, "input": {}}


# --- Hiding calls to this program's own tools from the agent


def _list_shown_blocks(reply: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Return the blocks of a reply without the calls that the agent must not see."""
    shown_blocks: list[Mapping[str, Json]] = []
    for block in map(object_at, list_at(reply, "content")):
        is_hidden_call = block.get("type") == "tool_use" and block.get("name") in HIDDEN_TOOLS
        if not is_hidden_call:
            shown_blocks.append(block)
    return shown_blocks


class AnthropicCallFilter(NumberedCallFilter):
    """Takes the calls that the agent must not see out of a streamed reply.

    They are calls of this program's own recall tools, which it answers itself. Anthropic
    numbers a reply's blocks, and the agent's numbers skip the hidden ones.
    """

    index_name = "index"

    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        """Return the bytes that the agent gets for an event, which may be none.

        `raw` is the event as it came, `event` the same as JSON. `released` are events that
        were held back until it was clear whether the agent may see them.
        """
        event_type = text_at(event, "type")
        if event is None or event_type in ("ping", "error", ""):
            return raw
        if event_type in ("message_start", "message_stop"):
            return self._filter_begin_or_end(raw, event_type)
        if event_type == "message_delta":
            return self._finish_message(raw, event)

        index = number_at(event, "index")
        released = b""
        if event_type == "content_block_start":
            released = self._begin_block(index, object_at(event, "content_block"))
        return released + self.hold_or_show_event(raw, event, index)

    def _filter_begin_or_end(self, raw: bytes, event_type: str) -> bytes:
        """Return the first or the last event of a reply, or nothing if the agent must not get it.

        After a reply of hidden calls alone, the provider is asked again, and the agent gets
        both replies as one. So it sees neither the end of the first nor the beginning of
        the second.
        """
        if event_type == "message_start" and self.replies_before:
            return b""
        if event_type == "message_stop" and self.has_only_hidden_calls:
            return b""
        return raw

    def _begin_block(self, index: int, block: Mapping[str, Json]) -> bytes:
        """Number a block, and return what was held back before it."""
        called_tool: str | None = None
        if block.get("type") == "tool_use":
            called_tool = text_at(block, "name")
        thinks = block.get("type") in THINKING
        return self.begin_reply_part(index, thinks=thinks, called_tool=called_tool)

    def renumber_event(
        self, raw: bytes, event: Mapping[str, Json], index: int, shown_index: int
    ) -> bytes:
        if shown_index == index:
            return raw
        return encode_event({**event, "index": shown_index}, text_at(event, "type"))

    def _finish_message(self, raw: bytes, event: Mapping[str, Json]) -> bytes:
        """Return the event that says why the reply ended and how many tokens it took.

        If hidden calls were answered in between, the tokens are those of all replies that the
        agent gets as this one.
        """
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
        """Return several whole replies as one, without the calls that the agent must not see.

        Thinking is shown only at the beginning of what the agent gets, and only that of the
        last reply: the provider wants it back as it wrote it.
        """
        content: list[Json] = []
        last_reply = values[-1]
        for number, reply in enumerate(values):
            for block in _list_shown_blocks(reply):
                follows_other_reply = bool(content) and number > 0
                is_of_earlier_reply = reply is not last_reply
                is_thinking = block.get("type") in THINKING
                if is_thinking and (follows_other_reply or is_of_earlier_reply):
                    continue
                content.append(block)

        merged_reply = dict(last_reply)
        merged_reply["id"] = values[0].get("id", last_reply.get("id"))
        merged_reply["content"] = content
        merged_reply["usage"] = sum_output(values, "output_tokens")
        return merged_reply


PROTOCOL = GatewayProtocol(
    NAME,
    messages_field="messages",
    call_filter=AnthropicCallFilter,
    provider_address="https://api.anthropic.com",
    address_variables=("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
    path_endings=("/messages", "/messages/count_tokens"),
)
