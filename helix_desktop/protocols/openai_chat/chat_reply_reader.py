"""Reads a stream of chat completions, from any server."""

from collections.abc import Hashable

from helix_desktop import json_values
from helix_desktop.engine.facts import Stop
from helix_desktop.engine.messages import Delta, Reply
from helix_desktop.protocols.event_stream import ServerSentEvent
from helix_desktop.protocols.openai_chat import chat_gateway
from helix_desktop.protocols.protocol_dialect import find_error_in
from helix_desktop.protocols.reply_reader import ReplyReaderBase

_FAILED = frozenset(
    {
        "error",
        "abort",
        "aborted",
        "cancelled",
        "canceled",
        "timeout",
        "network_error",
        "insufficient_system_resource",
    }
)


class ChatReplyReader(ReplyReaderBase):
    """Reads a stream of chunks, or a whole completion."""

    def __init__(self, tag: str, where: str, model: str) -> None:
        super().__init__(tag, where, model)
        self._finish = ""  # The reason for the reply's end, as the server named it.
        self._turn = 0  # Counts changes between text and reasoning: each run is a part.
        self._field = ""  # The name under which the server sends its reasoning.
        self._details: list[json_values.Json] = []
        self._ids: dict[int, str] = {}  # Call ids by index in the stream.

    @property
    def is_reply_complete(self) -> bool:
        """Whether the reply ended. A properly ended stream suffices, unless the server
        reports a failure.
        """
        if self._finish:
            return self._finish not in _FAILED
        return self.is_stream_over and self._draft.has_begun

    def feed_event(self, event: ServerSentEvent) -> list[Delta]:
        """Read one chunk of the stream and return what it adds to the reply."""
        if event.data.strip() == "[DONE]":
            self.is_stream_over = True
            return []
        chunk = json_values.require_object(json_values.parse_json(event.data))
        choice = json_values.value_at(chunk, "choices", 0)
        # OpenRouter reports a provider's failure within the choice.
        error = find_error_in(chunk) or find_error_in(choice)
        status = json_values.number_at(error, "code") or 500
        if error:
            raise self._failure_in_stream(status, {"error": error})
        if event.event == "error":
            raise self._failure_in_stream(status, chunk)
        self._model = json_values.text_at(chunk, "model") or self._model
        self._read_chunk_usage(chunk)
        if not isinstance(choice, dict):
            return []
        return self._read_choice(choice)

    def _read_choice(self, choice: json_values.Object) -> list[Delta]:
        """Read a piece of the reply, or all of it from a server that does not stream."""
        deltas = self._read_fields(_object_or_empty(choice, "delta"), are_whole=False)
        # A server may send the whole message so far beside each piece.
        message = self._fields_not_streamed(_object_or_empty(choice, "message"))
        deltas += self._read_fields(message, are_whole=True)
        self._finish = json_values.checked_text_at(choice, "finish_reason").lower() or self._finish
        return deltas

    def _read_fields(self, fields: json_values.Object, *, are_whole: bool) -> list[Delta]:
        """Read what a piece of the reply, or a whole message, has: reasoning, text and calls."""
        deltas = self._read_reasoning(fields)
        deltas += self._read_content(json_values.value_at(fields, "content"))
        deltas += self._add_to_part("text", json_values.text_at(fields, "refusal"))
        deltas += self._read_calls(fields, are_whole=are_whole)
        return deltas

    def _read_calls(self, delta: json_values.Object, *, are_whole: bool) -> list[Delta]:
        """Read the calls in a piece of the reply, or in a whole message. Raises ValueError for
        anything but a list.
        """
        calls = json_values.value_at(delta, "tool_calls")
        if calls is not None and not isinstance(calls, list):
            raise ValueError("tool_calls is no list")
        deltas: list[Delta] = []
        for position, call in enumerate(calls or []):
            deltas += self._read_call(json_values.require_object(call), position, is_only=are_whole)
        # Old servers know one call per reply, under the name that came before "tool_calls".
        legacy_call = json_values.object_at(delta, "function_call")
        if legacy_call:
            indexed_call: json_values.Object = {"index": 0, "function": legacy_call}
            deltas += self._read_call(indexed_call, 0, is_only=are_whole)
        return deltas

    def _fields_not_streamed(self, message: json_values.Object) -> json_values.Object:
        """Return a whole message without the fields whose content has come in pieces before.

        Some servers repeat the whole reply at the end, and a call that came twice would run
        twice.
        """
        if not self._draft.has_begun:
            return message
        streamed_names = {"reasoning_content", "reasoning", "reasoning_details", "refusal"}
        if self._draft.first_key_of_kind("text") is not None:
            streamed_names.add("content")
        if self._draft.call_count:
            streamed_names |= {"tool_calls", "function_call"}
        return json_values.without_fields(message, *streamed_names)

    def _read_content(self, content: json_values.Json) -> list[Delta]:
        """Read content, which is a string or, for some servers, a list of pieces,
        including thinking.
        """
        if not isinstance(content, list):
            text = json_values.checked_text_at({"content": content}, "content")
            return self._add_to_part("text", text)
        deltas: list[Delta] = []
        for piece in content:
            thinking = _thinking_of_piece(piece)
            if thinking:
                deltas += self._add_to_part("reasoning", thinking)
            else:
                deltas += self._add_to_part("text", json_values.checked_text_at(piece, "text"))
        return deltas

    def _read_reasoning(self, delta: json_values.Object) -> list[Delta]:
        """Read reasoning, which servers send under one of several names.

        OpenRouter adds details, which may be encrypted. They are kept to be sent back as
        they came.
        """
        details = json_values.list_at(delta, "reasoning_details")
        self._details += details
        for field_name in chat_gateway.REASONING:
            text = json_values.text_at(delta, field_name)
            if text:
                self._field = field_name
                return self._add_to_part("reasoning", text)
        # Details without text, such as encrypted ones, need a part that carries them.
        if details and not self._current_key_of("reasoning"):
            self._draft.add_reasoning(self._next_key("reasoning"), "")
        return []

    def _add_to_part(self, kind: str, piece: str) -> list[Delta]:
        """Add text or reasoning to the current part, or to a new one if that is of another kind."""
        if not piece:
            return []
        key = self._current_key_of(kind) or self._next_key(kind)
        if kind == "text":
            return self._draft.add_text(key, piece)
        return self._draft.add_reasoning(key, piece)

    def _current_key_of(self, kind: str) -> Hashable:
        """Return the key of the current part if it is of this kind."""
        last_key = self._draft.last_key
        if last_key is None or self._draft.kind_of_part(last_key) != kind:
            return None
        return last_key

    def _next_key(self, kind: str) -> Hashable:
        self._turn += 1
        return (kind, self._turn)

    def _read_call(self, call: json_values.Json, position: int, *, is_only: bool) -> list[Delta]:
        """Read a call, or a piece of one, and return what is new to show.

        `is_only`: it is a whole call. Then `position` says which one of the reply it is.
        """
        _object_or_empty(call, "function")  # Refuses a function that is no object.
        arguments = _text_of_arguments(call)
        call_id = json_values.text_at(call, "id")
        name = json_values.checked_text_at(call, "function", "name")
        key: Hashable
        if is_only:
            key = ("call", "position", position)
        else:
            key = self._key_of_streamed_call(call, call_id, name)
        return self._draft.add_call_piece(key, call_id=call_id, name=name, arguments=arguments)

    def _key_of_streamed_call(self, call: json_values.Json, call_id: str, name: str) -> Hashable:
        """Return the key of the call that a piece belongs to: by its index, its id, or its order.

        Without index and id, a piece with a name begins a new call, and one without a name
        continues the last.
        """
        index = json_values.value_at(call, "index")
        if isinstance(index, int) and not isinstance(index, bool):
            return self._key_of_indexed_call(index, call_id, name)
        if call_id:
            return ("call", "id", call_id)
        last_key = self._draft.last_key
        if name or not isinstance(last_key, tuple) or last_key[0] != "call":
            return ("call", "unnamed", self._draft.call_count)
        return last_key

    def _key_of_indexed_call(self, index: int, call_id: str, name: str) -> Hashable:
        """Return a call's key. Some servers give all whole calls index 0, so another id
        and name mean another call.
        """
        if index not in self._ids or (call_id and name):
            self._ids[index] = call_id
        return ("call", index, self._ids[index])

    def _read_chunk_usage(self, chunk: json_values.Object) -> None:
        """Read the usage, which is in the last chunk, every chunk, or the choice."""
        usage = (
            json_values.object_at(chunk, "usage")
            or json_values.object_at(chunk, "choices", 0, "usage")
            or json_values.object_at(chunk, "x_groq", "usage")
        )
        if usage:
            self._usage = chat_gateway.parse_usage(usage)

    def reply_so_far(self, cut: str = "") -> Reply:
        self._seal_reasoning()
        return super().reply_so_far(cut)

    def _ending_so_far(self, cut: str) -> tuple[Stop, str]:
        """Return how the reply ended, and why if it is not complete."""
        if cut:
            return Stop.CUT, cut
        if not self.is_reply_complete:
            how_it_ended = ""
            if self._finish:
                how_it_ended = f"with {self._finish!r}"
            return Stop.CUT, self._describe_abrupt_end(how_it_ended)
        stop = chat_gateway.STOPS.get(self._finish, Stop.END)
        if stop is Stop.FILTERED:
            return stop, f"{self._where} held back the rest of the reply (content filter)."
        if stop is Stop.CALLS:
            return Stop.END, ""  # The draft knows whether there are calls.
        return stop, ""

    def _seal_reasoning(self) -> None:
        """Set what to send back with the reasoning: its name here, or its details word for word."""
        key = self._draft.first_key_of_kind("reasoning")
        if key is None:
            return
        if self._details:
            self._draft.seal_reasoning(key, details=merge_reasoning_details(self._details))
        elif self._field:
            self._draft.seal_reasoning(key, field=self._field)


def _object_or_empty(value: json_values.Json, name: str) -> json_values.Object:
    """Return an object, empty if missing. Raises ValueError for any other value."""
    field_value = json_values.value_at(value, name)
    if field_value is None:
        return {}
    return json_values.require_object(field_value)


def _text_of_arguments(call: json_values.Json) -> str:
    """Return a call's arguments as text, although some servers send them as JSON. Raises
    ValueError for any other value.
    """
    arguments = json_values.value_at(call, "function", "arguments")
    if isinstance(arguments, dict | list):
        return json_values.dump_json(arguments).decode()
    return json_values.checked_text_at({"arguments": arguments}, "arguments")


def _thinking_of_piece(piece: json_values.Json) -> str:
    # Mistral sends thinking as a list of texts, others as one text.
    text = ""
    for thought in json_values.list_at(piece, "thinking"):
        text += json_values.text_at(thought, "text")
    return text or json_values.text_at(piece, "thinking")


def merge_reasoning_details(details: list[json_values.Json]) -> list[json_values.Json]:
    """Join each piece of streamed reasoning details with the one that it continues."""
    merged: list[json_values.Json] = []
    for piece in details:
        if isinstance(piece, dict) and merged and _continues_detail(merged[-1], piece):
            last = json_values.require_object(merged[-1])
            merged[-1] = _joined_detail(last, piece)
        else:
            merged.append(piece)
    return merged


def _continues_detail(last: json_values.Json, piece: json_values.Object) -> bool:
    """Whether a piece of reasoning details goes on where the last one ended."""
    # Encrypted details are whole, and joined ones could not be decrypted.
    if not isinstance(last, dict) or piece.get("type") == "reasoning.encrypted":
        return False
    has_same_type = last.get("type") == piece.get("type")
    has_same_index = last.get("index") == piece.get("index")
    return has_same_type and has_same_index


def _joined_detail(last: json_values.Object, piece: json_values.Object) -> json_values.Object:
    """Return a detail of reasoning with the piece that continues it."""
    joined = dict(last)
    for name in ("text", "summary", "data"):
        if isinstance(piece.get(name), str):
            joined[name] = json_values.text_at(last, name) + json_values.text_at(piece, name)
    for name in ("signature", "id"):
        if piece.get(name):
            joined[name] = piece[name]
    return joined
