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
from helix_desktop.protocols.request_parts import function_of_tool

NAME = "openai-responses"
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
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
            "computer_call_output",
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
FOLDED_PARTS = frozenset(
    ["input_text", "output_text", "input_image", "input_file", "refusal", "text", "summary_text"]
)


def parse_head(body: Mapping[str, Json]) -> RequestHead:
    """Return what a request says besides its messages, and the instructions before these."""
    items = [object_at(item) for item in list_at(body, "input")]
    tool_values = list(list_at(body, "tools"))
    for item in items:  # Codex also sends tools in the input.
        tool_values.extend(list_at(item, "tools"))
    tools: list[ToolSpec] = []
    for tool in map(object_at, tool_values):
        schema = tool.get("parameters", {})
        # A tool of the provider's own has no name but its type.
        tool_type = text_at(tool, "type")
        tools.append(gateway_message.parse_tool(tool, schema, tool_type))

    instructions = [text_at(body, "instructions")]
    for item in items:
        if item.get("role") not in ("developer", "system"):
            break
        instructions.append(gateway_message.text_of_content(item.get("content")))
    system = "\n\n".join(text for text in instructions if text)
    named_effort = text_at(body, "reasoning", "effort")
    effort = gateway_message.format_effort_settings(named_effort)
    return RequestHead(
        model=text_at(body, "model"),
        system=system,
        tools=tuple(tools),
        effort=effort,
    )


def parse_messages(
    body: Mapping[str, Json], before: Sequence[ProtocolMessage] = ()
) -> list[ProtocolMessage]:
    """Return a request's messages. `before`: the first ones, if they are parsed already.

    A reply consists of several items in a row, such as reasoning, calls and a text. They
    become one message, and each other item a message of its own.
    """
    text_or_items = body.get("input")
    if isinstance(text_or_items, str):
        piece = Piece(PieceKind.TEXT, text_or_items, path=(0,))
        return [ProtocolMessage(Speaker.USER, (text_or_items,), (piece,))]
    messages = list(before)
    known_items = sum(len(message.units) for message in before)
    items_of_reply: list[Json] = []
    for item in list_at(text_or_items)[known_items:]:
        if _belongs_to_reply(object_at(item)):
            items_of_reply.append(item)
            continue
        if items_of_reply:  # The reply is complete.
            messages.append(parse_message(items_of_reply))
            items_of_reply = []
        messages.append(parse_message([item]))
    if items_of_reply:
        messages.append(parse_message(items_of_reply))
    return messages


def _belongs_to_reply(item: Mapping[str, Json]) -> bool:
    """Whether the model wrote an item, and not the user or the agent."""
    if text_at(item, "role") == "assistant":
        return True
    item_type = text_at(item, "type")
    return item_type in _CALLS or item_type in _SERVER or item_type == "reasoning"


def parse_message(items: Sequence[Json]) -> ProtocolMessage:
    """Return the message that these items are: all of a reply, or one of the user's."""
    if not items:  # A reply without any item.
        return ProtocolMessage(Speaker.ASSISTANT, (), loaded_state.mark_loaded_state([]))
    pieces: list[Piece] = []
    for position, item in enumerate(items):
        pieces.extend(_pieces_of_item(object_at(item), position))
    first_item = object_at(items[0])
    role = text_at(first_item, "role")
    if role in ("system", "developer"):
        speaker = Speaker.SYSTEM
        outlives_folds = True
    elif _belongs_to_reply(first_item):
        speaker = Speaker.ASSISTANT
        outlives_folds = False
    else:
        speaker = Speaker.USER
        # The results of calls are the user's, too, and have no role.
        outlives_folds = role not in ("", "user")
    if outlives_folds:
        marked_pieces = loaded_state.mark_all(pieces, first_item)
    else:
        marked_pieces = loaded_state.mark_loaded_state(pieces)
    return ProtocolMessage(speaker, tuple(items), marked_pieces)


def _pieces_of_item(item: Mapping[str, Json], item_position: int) -> list[Piece]:
    """Return the pieces of one of a message's items, which is at this position.

    An unknown item becomes a piece, too, which is sent on as it came.
    """
    item_type = text_at(item, "type")
    if item_type in ("", "message"):
        return _pieces_of_item_content(item.get("content"), item_position)
    if item_type in _CALLS:
        arguments_field = _CALLS[item_type]
        call = Piece(
            PieceKind.CALL,
            text=text_at(item, arguments_field),
            path=(item_position,),
            id=text_at(item, "call_id"),
            name=text_at(item, "name"),
            media_type=arguments_field,  # The text is put back into this field if it is changed.
        )
        return [call]
    if item_type in _RESULTS:  # The result of a call is a whole item in this protocol.
        output = item.get("output")
        result = Piece(
            PieceKind.RESULT,
            text=gateway_message.text_of_content(output),
            path=(item_position,),
            id=text_at(item, "call_id"),
            outlives_folds=loaded_state.has_other_parts(output, FOLDED_PARTS),
            images=gateway_message.images_of_content(output),
            documents=gateway_message.documents_of_content(output),
        )
        return [result]
    if item_type == "reasoning":
        # Open models think in the content, others give a summary of it.
        texts = [gateway_message.text_of_content(item.get(name)) for name in ("summary", "content")]
        thoughts = "\n".join(filter(None, texts))
        return [Piece(PieceKind.REASONING, thoughts, (item_position,))]
    if item_type == "computer_call_output":
        screenshot = gateway_message.read_data_address(text_at(item, "output", "image_url"))
        if screenshot is not None:
            media_type, data = screenshot
            return [Piece(PieceKind.IMAGE, data, (item_position,), media_type=media_type)]
    outlives_folds = item_type not in FOLDED_ITEMS
    whole_item = format_json_value(item)
    return [Piece(PieceKind.OTHER, whole_item, (item_position,), outlives_folds=outlives_folds)]


def _pieces_of_item_content(content: Json, item_position: int) -> list[Piece]:
    """Return the pieces of a content, which is a text or a list of parts."""
    if isinstance(content, str):
        return [Piece(PieceKind.TEXT, content, (item_position, "content"))]
    pieces: list[Piece] = []
    for part_position, part in enumerate(map(object_at, list_at(content))):
        image_url = text_at(part, "image_url")
        path = (item_position, "content", part_position)
        pieces.append(gateway_message.piece_of_part(part, image_url, path, FOLDED_PARTS))
    return pieces


def apply_edits(message: ProtocolMessage, edits: Sequence[gateway_message.PieceEdit]) -> list[Json]:
    """Return the items with some pieces changed. A message with nothing left is dropped."""
    units = gateway_message.edit_pieces(message, edits, _path_and_value_in_item)
    return [unit for unit in units if not _is_empty_message(unit)]


def _is_empty_message(unit: Json) -> bool:
    if isinstance(unit, str):
        return False
    return text_at(unit, "type") in ("", "message") and not unit.get("content")


def _path_and_value_in_item(
    units: Json, piece: Piece, text: str
) -> tuple[gateway_message.Path, Json]:
    """Return where within its piece a text stands, and the value that replaces it."""
    if piece.kind is PieceKind.CALL:
        return (piece.media_type,), text
    if piece.kind is PieceKind.RESULT:
        output = value_at(units, *piece.path, "output")
        return ("output",), gateway_message.replace_text_in_content(output, text, "input_text")
    if not piece.has_own_text:  # A text takes the place of the whole part, or of the item.
        is_item = len(piece.path) == 1
        return (), user_message(text) if is_item else {"type": "input_text", "text": text}
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
    """Return the tools as a request offers them."""
    values: list[dict[str, Json]] = []
    for tool in tools:
        value: dict[str, Json] = {"type": "function"}
        value.update(function_of_tool(tool))
        value["strict"] = False
        values.append(value)
    return values


# --- Reading replies, whole or from a stream


def parse_reply(value: Mapping[str, Json]) -> gateway_message.WireReply:
    """Return a whole reply. Its items get no `status`, because clients send them back
    without it.
    """
    items = [without_fields(object_at(item), "status") for item in list_at(value, "output")]
    message = parse_message(items)
    has_calls = bool(message.pieces_of_kind(PieceKind.CALL))
    stop = _stop_of_response(value, has_calls=has_calls)
    usage = parse_usage(object_at(value, "usage"))
    return gateway_message.WireReply(
        message=message,
        stop=stop,
        usage=usage,
        model=text_at(value, "model"),
    )


def _stop_of_response(value: Mapping[str, Json], *, has_calls: bool) -> Stop:
    """Return how a whole reply ended."""
    status = text_at(value, "status")
    if status == "completed":
        if has_calls:
            return Stop.CALLS
        return Stop.END
    if status == "incomplete":
        if text_at(value, "incomplete_details", "reason") == "content_filter":
            return Stop.FILTERED
        return Stop.LENGTH
    return Stop.CUT


def parse_usage(value: Mapping[str, Json]) -> Usage:
    return Usage(
        input=number_at(value, "input_tokens"),
        cache_read=number_at(value, "input_tokens_details", "cached_tokens"),
        cache_write=number_at(value, "input_tokens_details", "cache_write_tokens"),
        output=number_at(value, "output_tokens"),
        reasoning=number_at(value, "output_tokens_details", "reasoning_tokens"),
    )


class ReplyAssembler:
    """Puts a streamed reply together as it would be without a stream."""

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
    """Takes the calls that the agent must not see out of a streamed reply.

    They are calls of this program's own recall tools, which it answers itself. Items and
    events are numbered, and the agent's numbers have no gaps. The last event contains the
    whole reply again.
    """

    index_name = "output_index"

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._sent_events = 0
        self._visible_items: list[Json] = []
        self._first_response: Mapping[str, Json] = {}
        # True once an event was left out or changed, as all later ones have other numbers then.
        self._is_rewriting = False

    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        """Return the bytes that the agent gets for an event, which may be none.

        `raw` is the event as it came, `event` the same as JSON. `released` are events that
        were held back until it was clear whether the agent may see them.
        """
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
        self._first_response = self._first_response or object_at(event, "response")
        if self.replies_before:
            return b""  # The agent has seen the beginning of the first reply.
        return self._number_sent_event(raw, event)

    def _begin_item(self, index: int, item: Mapping[str, Json]) -> bytes:
        """Number an item, and return what was held back before it."""
        item_type = text_at(item, "type")
        called_tool: str | None = None
        if item_type == "function_call":
            called_tool = text_at(item, "name")
        elif item_type.endswith("_call"):  # A call of another kind, which is never hidden.
            self.visible_count += 1
        is_reasoning = item_type == "reasoning"
        return self.begin_reply_part(index, thinks=is_reasoning, called_tool=called_tool)

    def renumber_event(
        self, raw: bytes, event: Mapping[str, Json], index: int, shown_index: int
    ) -> bytes:
        """Return an event of a visible item with the number that the agent knows."""
        if event.get("type") == "response.output_item.done":
            self._visible_items.append(event.get("item"))
        if shown_index == index:
            return self._number_sent_event(raw, event)
        renumbered_event = {**event, "output_index": shown_index}
        return self._number_sent_event(raw, renumbered_event, changed=True)

    def _number_sent_event(
        self, raw: bytes, event: Mapping[str, Json], *, changed: bool = False
    ) -> bytes:
        """Return an event with its number as the agent counts, or as it came if nothing changes.

        `changed`: the event is another than `raw`. Once one was changed or left out, all later
        ones are written anew.
        """
        providers_number = event.get("sequence_number")
        clients_number = self._sent_events
        self._sent_events += 1
        if changed or providers_number not in (None, clients_number):
            self._is_rewriting = True
        if not self._is_rewriting:
            return raw
        event_for_client = dict(event)
        if providers_number is not None:
            event_for_client["sequence_number"] = clients_number
        return encode_event(event_for_client, text_at(event, "type"))

    def _finish_response(self, raw: bytes, event: Mapping[str, Json]) -> bytes:
        """Return the last event, with the items that the agent saw and the usage of all replies."""
        if not self.any_hidden:
            return self._number_sent_event(raw, event)
        response = object_at(event, "response")
        usage_of_all = add_earlier_output(
            object_at(response, "usage"),
            self.output_tokens_before,
            "output_tokens",
            input_field="input_tokens",
        )
        visible_response = dict(response)
        visible_response["id"] = self._first_response.get("id", response.get("id"))
        visible_response["output"] = self._visible_items
        visible_response["usage"] = usage_of_all
        changed_event = {**event, "response": visible_response}
        return self._number_sent_event(raw, changed_event, changed=True)

    def merge_whole_replies(self, values: Sequence[Mapping[str, Json]]) -> Json:
        """Return several whole replies as one, without the calls that the agent must not see."""
        visible_items: list[Json] = []
        last_reply = values[-1]
        for reply in values:
            for item in map(object_at, list_at(reply, "output")):
                item_type = item.get("type")
                is_hidden_call = item_type == "function_call" and item.get("name") in HIDDEN_TOOLS
                # Of the reasoning, only that of the last reply is shown.
                is_earlier_reasoning = item_type == "reasoning" and reply is not last_reply
                if not is_hidden_call and not is_earlier_reasoning:
                    visible_items.append(item)

        merged_reply = dict(last_reply)
        merged_reply["id"] = values[0].get("id")
        merged_reply["output"] = visible_items
        merged_reply["usage"] = sum_output(values, "output_tokens", "input_tokens")
        return merged_reply


def _input_of_units(units: Sequence[Json]) -> Json:
    """Return what a request has as its input: a text alone is one message, too."""
    if len(units) == 1 and isinstance(units[0], str):
        return units[0]
    items: list[Json] = []
    for unit in units:
        if isinstance(unit, str):
            items.append(user_message(unit))
        else:
            items.append(unit)
    return items


PROTOCOL = GatewayProtocol(
    NAME,
    messages_field="input",
    call_filter=ResponsesCallFilter,
    provider_address="https://api.openai.com/v1",
    address_variables=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    address_path="/v1",
    path_endings=("/responses",),
    value_of_messages=_input_of_units,
)
