"""Reads and writes Chat Completions as the gateway's agents do: calls beside text, each
result a message.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from helix_desktop.engine.facts import Stop, ToolSpec, Usage
from helix_desktop.json_values import (
    amount_at,
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
    ProtocolMessage,
    RequestHead,
    Speaker,
)
from helix_desktop.protocols.gateway_protocol import GatewayProtocol
from helix_desktop.protocols.hidden_calls import (
    HIDDEN_TOOLS,
    HiddenCallFilter,
    add_earlier_output,
    sum_output,
)
from helix_desktop.protocols.request_parts import function_of_tool

NAME = "openai-chat"
STOPS = {
    "stop": Stop.END,
    "eos": Stop.END,
    "eos_token": Stop.END,
    "end_turn": Stop.END,
    "stop_sequence": Stop.END,
    "completed": Stop.END,
    "tool_calls": Stop.CALLS,
    "function_call": Stop.CALLS,
    "length": Stop.LENGTH,
    "max_tokens": Stop.LENGTH,
    "content_filter": Stop.FILTERED,
}
REASONING = ("reasoning_content", "reasoning")
# What a fold may stand for. Parts of other types, and messages of other roles or with other
# fields, are not known here and go on where they stood.
FOLDED_PARTS = frozenset({"text", "image_url", "input_audio", "file", "refusal", "thinking"})
# Fields in which a reply says something besides its content and its calls.
REPLY_FIELDS = ("refusal", "function_call", "audio")
USER_FIELDS = frozenset({"role", "content", "name"})
# What a call says to its tool, by the field that the call is. A custom tool is given any text.
_TEXT_OF_CALL = {"function": "arguments", "custom": "input"}
_SPEAKERS = {"system": Speaker.SYSTEM, "developer": Speaker.SYSTEM, "assistant": Speaker.ASSISTANT}


def parse_head(body: Mapping[str, Json]) -> RequestHead:
    """Return what a request says besides its messages, and its instructions among them."""
    instructions: list[str] = []
    for message in map(object_at, list_at(body, "messages")):
        if text_at(message, "role") in ("system", "developer"):
            instruction = gateway_message.text_of_content(message.get("content"))
            instructions.append(instruction)
    tools: list[ToolSpec] = []
    for tool in list_at(body, "tools"):
        described = object_at(tool, "function") or object_at(tool, "custom")
        schema = described.get("parameters", {})
        tools.append(gateway_message.parse_tool(described, schema))
    named_effort = body.get("reasoning_effort")
    effort_of_router = text_at(body, "reasoning", "effort")
    effort = gateway_message.format_effort_settings(named_effort, effort_of_router)
    return RequestHead(
        model=text_at(body, "model"),
        system="\n\n".join(instructions),
        tools=tuple(tools),
        effort=effort,
    )


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
    if role in ("tool", "function"):
        result = _piece_of_tool_message(value)
        return ProtocolMessage(Speaker.USER, (unit,), (result,))

    pieces: list[Piece] = []
    for name in REASONING:
        text = text_at(value, name)
        if text:
            pieces.append(Piece(PieceKind.REASONING, text, (0, name)))
    pieces.extend(_pieces_of_chat_content(value.get("content")))
    if role == "assistant":
        pieces.extend(_pieces_of_reply_fields(value))
    for position, call in enumerate(list_at(value, "tool_calls")):
        path = (0, "tool_calls", position)
        pieces.append(_piece_of_chat_call(object_at(call), path))

    speaker = _SPEAKERS.get(role, Speaker.USER)
    if _outlives_folds_as_a_whole(value, role):
        marked_pieces = loaded_state.mark_all(pieces, value)
    else:
        marked_pieces = loaded_state.mark_loaded_state(pieces)
    return ProtocolMessage(speaker, (unit,), marked_pieces)


def _piece_of_tool_message(message: Mapping[str, Json]) -> Piece:
    """Return the result of a call, which is a whole message in this protocol."""
    content = message.get("content")
    return Piece(
        PieceKind.RESULT,
        text=gateway_message.text_of_content(content),
        path=(0,),
        id=text_at(message, "tool_call_id") or text_at(message, "name"),
        outlives_folds=loaded_state.has_other_parts(content, FOLDED_PARTS),
        images=gateway_message.images_of_content(content),
        documents=gateway_message.documents_of_content(content),
    )


def _pieces_of_chat_content(content: Json) -> list[Piece]:
    """Return the pieces of a content, which is a text or a list of parts."""
    if isinstance(content, str):
        return [Piece(PieceKind.TEXT, content, (0, "content"))]
    pieces: list[Piece] = []
    for position, part in enumerate(map(object_at, list_at(content))):
        path = (0, "content", position)
        image_url = text_at(part, "image_url", "url")
        pieces.append(gateway_message.piece_of_part(part, image_url, path, FOLDED_PARTS))
    return pieces


def _pieces_of_reply_fields(reply: Mapping[str, Json]) -> list[Piece]:
    """Return what a reply says in fields of its own, so that it is recorded, too."""
    pieces: list[Piece] = []
    for name in REPLY_FIELDS:
        if reply.get(name):
            text = format_json_value({name: reply[name]})
            pieces.append(Piece(PieceKind.OTHER, text, (0, name)))
    return pieces


def _outlives_folds_as_a_whole(message: Mapping[str, Json], role: str) -> bool:
    """Whether a message must never be replaced by a fold, which is a shorter text.

    That holds for the system's messages, and for what this program does not understand: an
    unknown role, or a field that may set something for what follows.
    """
    if role == "assistant":
        return False  # Its fields are the provider's own, which belong to the reply.
    has_unknown_fields = not message.keys() <= USER_FIELDS
    return role != "user" or has_unknown_fields


def _piece_of_chat_call(call: Mapping[str, Json], path: tuple[int | str, ...]) -> Piece:
    """Return a call of a tool as a piece. `path`: where the call stands."""
    call_type = "function"
    if isinstance(call.get("custom"), Mapping):
        call_type = "custom"
    called = object_at(call, call_type)
    return Piece(
        PieceKind.CALL,
        text=text_at(called, _TEXT_OF_CALL[call_type]),
        path=path,
        id=text_at(call, "id"),
        name=text_at(called, "name"),
        media_type=call_type,  # The text is put back into this field if it is changed.
    )


def apply_edits(message: ProtocolMessage, edits: Sequence[gateway_message.PieceEdit]) -> list[Json]:
    """Return the message with some pieces changed."""
    return gateway_message.edit_pieces(message, edits, _path_and_value_in_chat_message)


def _path_and_value_in_chat_message(
    units: Json, piece: Piece, text: str
) -> tuple[gateway_message.Path, Json]:
    """Return where within its piece a text stands, and the value that replaces it."""
    if piece.kind is PieceKind.CALL:
        return (piece.media_type, _TEXT_OF_CALL[piece.media_type]), text
    if piece.kind is PieceKind.RESULT:
        content = value_at(units, *piece.path, "content")
        return ("content",), gateway_message.replace_text_in_content(content, text, "text")
    if piece.kind is PieceKind.OTHER and piece.path[-1] in REPLY_FIELDS:
        return (), None  # No text can stand in its place.
    if not piece.has_own_text:  # A text takes the place of the whole part.
        return (), {"type": "text", "text": text}
    # The path leads to the text itself, or to a part of a list that has it.
    is_text_itself = len(piece.path) == 2
    if is_text_itself:
        return (), text
    return ("text",), text


def user_message(text: str) -> Json:
    return {"role": "user", "content": text}


def result_message(call: str, name: str, text: str, *, ok: bool = True) -> Json:
    del name, ok
    return {"role": "tool", "tool_call_id": call, "content": text}


def merge_added_messages(units: Sequence[tuple[Json, bool]]) -> list[Json]:
    """Return the messages unchanged, because here several of one role may follow each other."""
    return [unit for unit, _ in units]


def with_added_tools(
    body: Mapping[str, Json], added_tools: list[dict[str, Json]]
) -> dict[str, Json]:
    """Return the body with these tools, which `tools_as_json` made, before its own."""
    return {**body, "tools": added_tools + list_at(body, "tools")}


def tools_as_json(tools: Sequence[ToolSpec]) -> list[dict[str, Json]]:
    return [{"type": "function", "function": function_of_tool(tool)} for tool in tools]


# --- Reading replies, whole or from a stream


def parse_reply(value: Mapping[str, Json]) -> gateway_message.WireReply:
    """Return a whole reply, the first choice."""
    choice = object_at(value, "choices", 0)
    # Clients send a message back without the fields that were null, except for the content.
    unit: dict[str, Json] = {"role": "assistant"}
    for name, field_value in object_at(choice, "message").items():
        if field_value is not None or name == "content":
            unit[name] = field_value
    finish_reason = text_at(choice, "finish_reason")
    usage = parse_usage(object_at(value, "usage"))
    return gateway_message.WireReply(
        message=parse_message(unit),
        stop=STOPS.get(finish_reason, Stop.CUT),
        usage=usage,
        model=text_at(value, "model"),
    )


def parse_usage(value: Mapping[str, Json]) -> Usage:
    """Return the tokens of a reply, and its cost where the server states one.

    OpenAI, DeepSeek and Moonshot each have a name of their own for what was read from the
    cache, and OpenRouter states the cost.
    """
    cache_read = max(
        number_at(value, "prompt_tokens_details", "cached_tokens"),
        number_at(value, "prompt_cache_hit_tokens"),
        number_at(value, "cached_tokens"),
    )
    return Usage(
        input=number_at(value, "prompt_tokens"),
        cache_read=cache_read,
        cache_write=number_at(value, "prompt_tokens_details", "cache_write_tokens"),
        output=number_at(value, "completion_tokens"),
        reasoning=number_at(value, "completion_tokens_details", "reasoning_tokens"),
        cost=amount_at(value, "cost"),
    )


class ReplyAssembler:
    """Puts a streamed reply together as it would be without a stream."""

    def __init__(self) -> None:
        self.whole: dict[str, Json] = {}
        self._message: dict[str, Json] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Json]] = {}
        self._finish: str | None = None

    @property
    def is_done(self) -> bool:
        return self._finish is not None

    def add_reply_event(self, event: Mapping[str, Json]) -> None:
        """Add what a chunk of the stream says. Later values replace earlier ones."""
        for name, value in event.items():
            if name not in ("choices", "object") and value is not None:
                self.whole[name] = value
        for choice in map(object_at, list_at(event, "choices")):
            if number_at(choice, "index") == 0:  # The other choices are for the agent alone.
                self._finish = text_at(choice, "finish_reason") or self._finish
                self._add_delta(object_at(choice, "delta"))

    def _add_delta(self, delta: Mapping[str, Json]) -> None:
        """Add what a chunk adds to the message."""
        for name, value in delta.items():
            if name == "tool_calls":
                for call in list_at(value):
                    self._add_call_piece_to_reply(object_at(call))
            elif value is not None:
                self._add_field(name, value)

    def _add_field(self, name: str, value: Json) -> None:
        """Add a value to a field: texts and lists are put behind what is there."""
        earlier_value = self._message.get(name)
        if isinstance(value, str) and name != "role":
            self._message[name] = (earlier_value or "") + value
        elif isinstance(value, list) and isinstance(earlier_value, list):
            self._message[name] = earlier_value + value
        else:
            self._message[name] = value

    def _add_call_piece_to_reply(self, piece: Mapping[str, Json]) -> None:
        """Add a piece of a call. The piece's index says which call of the reply it belongs to."""
        new_call = {"id": "", "type": "function"}
        call = self._calls.setdefault(number_at(piece, "index"), new_call)
        for name, value in piece.items():
            if name in _TEXT_OF_CALL:
                # Name and arguments come in pieces, which are put behind one another.
                called = call.setdefault(name, {})
                for field_name, text in object_at(value).items():
                    earlier_text = str(called.get(field_name) or "")
                    called[field_name] = earlier_text + (text or "")
            elif name != "index" and value:
                call[name] = value

    def whole_reply(self) -> dict[str, Json]:
        """Return the reply as it would be without a stream."""
        message = dict(self._message)
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        reply = dict(self.whole)
        reply["choices"] = [{"index": 0, "message": message, "finish_reason": self._finish}]
        return reply


# --- Hiding calls to this program's own tools from the agent


class ChatCallFilter(HiddenCallFilter):
    """Takes the calls that the agent must not see out of a streamed reply.

    They are calls of this program's own recall tools, which it answers itself. Calls are
    numbered in a stream's pieces, and each chunk may have several.
    """

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        # The index under which the agent sees a call, by the provider's. None: it is hidden.
        self._numbers: dict[int, int | None] = {}
        self._calls = 0  # How many calls the agent has seen.
        self._id: Json = None  # The first reply's, which the agent sees on all that continue it.

    def reset_for_retry(self) -> None:
        super().reset_for_retry()
        self._numbers = {}

    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        """Return the bytes that the agent gets for a chunk, which may be none.

        `raw` is the chunk as it came, `event` the same as JSON. Left out are hidden calls and
        the reasoning before them. So reasoning is held back until it is known what follows it.
        """
        if event is None:
            if self.has_only_hidden_calls and b"[DONE]" in raw:
                return b""  # The next reply continues this one.
            return raw
        self._id = self._id or event.get("id")
        choices = list_at(event, "choices")
        if not choices:
            return self._add_earlier_usage(raw, event)

        delta = object_at(choices[0], "delta")
        if _is_only_reasoning(delta) and self._hides_reasoning_now(raw, event):
            return b""

        visible_delta = self._filter_delta(delta)
        is_last = bool(text_at(choices[0], "finish_reason"))
        released = self._release_reasoning_before(delta, is_last=is_last)
        if delta.get("content") or visible_delta.get("tool_calls"):
            self.shown_count += 1
        if not self._has_something_to_show(visible_delta, is_last=is_last):
            return released
        return released + self._show_delta(raw, event, visible_delta, is_last=is_last)

    def _show_delta(
        self,
        raw: bytes,
        event: Mapping[str, Json],
        visible_delta: dict[str, Json],
        *,
        is_last: bool,
    ) -> bytes:
        """Return a chunk with what the agent may see of it, as it came where nothing changes.

        `visible_delta`: what is left of the piece of the reply in it. `is_last`: it says why
        the reply ended.
        """
        choice = object_at(event, "choices", 0)
        loses_end = self.has_only_hidden_calls and (is_last or "usage" in event)
        is_unchanged = visible_delta == object_at(choice, "delta")
        if is_unchanged and not loses_end and not self.replies_before:
            return self._add_earlier_usage(raw, event)
        changed_event = {**event, "id": self._id}
        changed_choice = {**choice, "delta": visible_delta}
        if loses_end:
            # The next reply continues this one, which thus has no end and no usage.
            changed_event["usage"] = None
            changed_choice["finish_reason"] = None
        changed_event["choices"] = [changed_choice]
        return self._add_earlier_usage(b"", changed_event)

    def _has_something_to_show(self, visible_delta: Mapping[str, Json], *, is_last: bool) -> bool:
        if not is_last:
            return bool(visible_delta)
        # The end itself is shown, unless the next reply continues this one.
        return not self.has_only_hidden_calls or bool(visible_delta.get("content"))

    def _hides_reasoning_now(self, raw: bytes, event: Json) -> bool:
        """Whether reasoning is kept back, or left out since the agent has seen an answer."""
        continues_shown_reply = bool(self.replies_before and self.shown_count)
        if self.holds_reasoning and not continues_shown_reply:
            self._held_events.append((raw, event))
        return self.holds_reasoning or continues_shown_reply

    def _release_reasoning_before(self, delta: Mapping[str, Json], *, is_last: bool) -> bytes:
        """Return the reasoning that was kept back, once it is known that the agent sees the reply."""
        ends_visibly = is_last and not self.has_only_hidden_calls
        is_reply_shown = delta.get("content") or self.visible_count or ends_visibly
        if not is_reply_shown:
            return b""
        released = b"".join(raw for raw, _ in self._held_events)
        self._held_events = []
        return released

    def _filter_delta(self, delta: Mapping[str, Json]) -> dict[str, Json]:
        """Return a chunk's piece of the reply without the pieces of hidden calls in it."""
        visible_delta = dict(delta)
        if self.replies_before:  # The client has the role from the first reply.
            visible_delta.pop("role", None)
        calls = list_at(delta, "tool_calls")
        if not calls:
            return visible_delta

        visible_pieces: list[Json] = []
        for call in calls:
            piece = self._filter_call_piece(object_at(call))
            if piece is not None:
                visible_pieces.append(piece)
        if visible_pieces:
            visible_delta["tool_calls"] = visible_pieces
            return visible_delta

        # All of its calls are hidden, and an empty content beside them says nothing.
        del visible_delta["tool_calls"]
        if not visible_delta.get("content"):
            visible_delta.pop("content", None)
        return visible_delta

    def _filter_call_piece(self, call: Mapping[str, Json]) -> Json | None:
        """Return a call's piece with the index that the agent sees. None: the call is hidden."""
        index = number_at(call, "index")
        if index not in self._numbers:
            self._number_call(index, text_at(call, "function", "name"))
        shown_index = self._numbers[index]
        if shown_index is None:
            return None
        if shown_index == index:
            return call
        return {**call, "index": shown_index}

    def _number_call(self, index: int, tool_name: str) -> None:
        if self.count_and_check_hidden(tool_name):
            self._numbers[index] = None
        else:
            self._numbers[index] = self._calls
            self._calls += 1

    def _add_earlier_usage(self, raw: bytes, value: Mapping[str, Json]) -> bytes:
        """Return a chunk whose token counts are those of all replies that the agent gets as one.

        `raw`: the chunk as it came, which goes on if nothing changes. Empty: `value` is a
        changed chunk. A reply of hidden calls alone is continued, so its counts come later.
        """
        usage = value.get("usage")
        if not isinstance(usage, Mapping):
            return raw or encode_event(value)
        if self.has_only_hidden_calls:
            return b""
        if not self.any_hidden:
            return raw or encode_event(value)
        usage_of_all = add_earlier_output(
            usage, self.output_tokens_before, "completion_tokens", "prompt_tokens"
        )
        return encode_event({**value, "id": self._id, "usage": usage_of_all})

    def merge_whole_replies(self, values: Sequence[Mapping[str, Json]]) -> Json:
        """Return several whole replies as one, without the calls that the agent must not see.

        It has the texts of all of them, and everything else of the last one.
        """
        text_of_all = ""
        for value in values:
            text_of_all += text_at(value, "choices", 0, "message", "content")

        last_reply = values[-1]
        last_message = object_at(last_reply, "choices", 0, "message")
        message: dict[str, Any] = dict(last_message)
        message["content"] = text_of_all or message.get("content")
        visible_calls: list[Json] = []
        for call in list_at(last_message, "tool_calls"):
            if text_at(call, "function", "name") not in HIDDEN_TOOLS:
                visible_calls.append(call)
        message.pop("tool_calls", None)
        if visible_calls:
            message["tool_calls"] = visible_calls

        choice = dict(object_at(last_reply, "choices", 0))
        choice["message"] = message
        merged_reply = dict(last_reply)
        merged_reply["id"] = values[0].get("id")
        merged_reply["choices"] = [choice]
        merged_reply["usage"] = sum_output(values, "completion_tokens", "prompt_tokens")
        return merged_reply


def _is_only_reasoning(delta: Mapping[str, Json]) -> bool:
    """Whether a piece of the reply has reasoning and nothing else."""
    if delta.get("content") or delta.get("tool_calls"):
        return False
    return any(text_at(delta, name) for name in REASONING)


PROTOCOL = GatewayProtocol(
    NAME,
    messages_field="messages",
    call_filter=ChatCallFilter,
    provider_address="https://api.openai.com/v1",
    address_variables=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    address_path="/v1",
    path_endings=("/chat/completions",),
)
