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
        self._finish = ""
        self._turn = 0  # Counts changes between text and reasoning: each run is a part.
        self._field = ""
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
        if event.data.strip() == "[DONE]":
            self.is_stream_over = True
            return []
        chunk = json_values.require_object(json_values.parse_json(event.data))
        error = find_error_in(chunk) or find_error_in(json_values.value_at(chunk, "choices", 0))
        if error or event.event == "error":
            body: json_values.Json = {"error": error} if error else chunk
            raise self._failure_in_stream(json_values.number_at(error, "code") or 500, body)
        self._model = json_values.text_at(chunk, "model") or self._model
        self._read_chunk_usage(chunk)
        choice = json_values.value_at(chunk, "choices", 0)
        return self._read_choice(choice) if isinstance(choice, dict) else []

    def _read_choice(self, choice: json_values.Object) -> list[Delta]:
        whole = self._fields_not_streamed(_object_or_empty(choice, "message"))
        delta = whole or _object_or_empty(choice, "delta")
        deltas = [
            *self._read_reasoning(delta),
            *self._read_content(json_values.value_at(delta, "content")),
        ]
        deltas += self._add_to_part("text", json_values.text_at(delta, "refusal"))
        calls = json_values.value_at(delta, "tool_calls")
        if calls is not None and not isinstance(calls, list):
            raise ValueError("tool_calls is no list")
        for position, call in enumerate(calls or []):
            deltas += self._read_call(
                json_values.require_object(call), position, is_only=bool(whole)
            )
        if legacy := json_values.object_at(delta, "function_call"):
            deltas += self._read_call({"index": 0, "function": legacy}, 0, is_only=bool(whole))
        self._finish = json_values.checked_text_at(choice, "finish_reason").lower() or self._finish
        return deltas

    def _fields_not_streamed(self, message: json_values.Object) -> json_values.Object:
        """Return what a final whole message adds to its pieces, since a call that came
        twice would run twice.
        """
        if not self._draft.has_begun:
            return message
        there = {"reasoning_content", "reasoning", "reasoning_details", "refusal"}
        there |= {"content"} if self._draft.first_key_of_kind("text") is not None else set()
        there |= {"tool_calls", "function_call"} if self._draft.call_count else set()
        return {name: value for name, value in message.items() if name not in there}

    def _read_content(self, content: json_values.Json) -> list[Delta]:
        """Read content, which is a string or, for some servers, a list of pieces,
        including thinking.
        """
        if not isinstance(content, list):
            return self._add_to_part(
                "text", json_values.checked_text_at({"content": content}, "content")
            )
        deltas: list[Delta] = []
        for piece in content:
            thinking = "".join(
                json_values.text_at(one, "text") for one in json_values.list_at(piece, "thinking")
            ) or json_values.text_at(piece, "thinking")
            deltas += (
                self._add_to_part("reasoning", thinking)
                if thinking
                else self._add_to_part("text", json_values.checked_text_at(piece, "text"))
            )
        return deltas

    def _read_reasoning(self, delta: json_values.Object) -> list[Delta]:
        field = next(
            (
                name
                for name in ("reasoning_content", "reasoning")
                if json_values.text_at(delta, name)
            ),
            "",
        )
        self._field = field or self._field
        self._details += json_values.list_at(delta, "reasoning_details")
        deltas = self._add_to_part("reasoning", json_values.text_at(delta, field)) if field else []
        if (
            json_values.list_at(delta, "reasoning_details")
            and not field
            and not self._current_key_of("reasoning")
        ):
            self._draft.add_reasoning(self._next_key("reasoning"), "")
        return deltas

    def _add_to_part(self, kind: str, piece: str) -> list[Delta]:
        if not piece:
            return []
        key = self._current_key_of(kind) or self._next_key(kind)
        return (
            self._draft.add_text(key, piece)
            if kind == "text"
            else self._draft.add_reasoning(key, piece)
        )

    def _current_key_of(self, kind: str) -> Hashable:
        """Return the key of the current part if it is of this kind."""
        last = self._draft.last_key
        return last if last is not None and self._draft.kind_of_part(last) == kind else None

    def _next_key(self, kind: str) -> Hashable:
        self._turn += 1
        return (kind, self._turn)

    def _read_call(self, call: json_values.Json, position: int, *, is_only: bool) -> list[Delta]:
        """Read a piece of a call. Without an index, a new id, or a name when the last
        call has one, begins a new call.
        """
        arguments = json_values.value_at(call, "function", "arguments")
        if isinstance(arguments, dict | list):
            arguments = json_values.dump_json(arguments).decode()
        piece = json_values.checked_text_at({"arguments": arguments}, "arguments")
        _object_or_empty(call, "function")
        call_id, name = (
            json_values.text_at(call, "id"),
            json_values.checked_text_at(call, "function", "name"),
        )
        key = self._call_key(call, position if is_only else None, call_id, name)
        return self._draft.add_call_piece(key, call_id=call_id, name=name, arguments=piece)

    def _call_key(
        self, call: json_values.Json, position: int | None, call_id: str, name: str
    ) -> Hashable:
        index = json_values.value_at(call, "index")
        if position is None and isinstance(index, int) and not isinstance(index, bool):
            return self._key_of_indexed_call(index, call_id, name)
        if position is not None:
            return ("call", "position", position)
        if call_id:
            return ("call", "id", call_id)
        last = self._draft.last_key
        if name or not isinstance(last, tuple) or last[0] != "call":
            return ("call", "unnamed", self._draft.call_count)
        return last

    def _key_of_indexed_call(self, index: int, call_id: str, name: str) -> Hashable:
        """Return a call's key. Some servers give all whole calls index 0, so another id
        and name mean another call.
        """
        known = self._ids.setdefault(index, call_id)
        if call_id and name and known != call_id:
            self._ids[index] = known = call_id
        return ("call", index, known)

    def _read_chunk_usage(self, chunk: json_values.Object) -> None:
        """Read the usage, which is in the last chunk, every chunk, or the choice."""
        found = (
            json_values.object_at(chunk, "usage"),
            json_values.object_at(chunk, "choices", 0, "usage"),
            json_values.object_at(chunk, "x_groq", "usage"),
        )
        if (usage := next((one for one in found if one), None)) is not None:
            self._usage = chat_gateway.parse_usage(usage)

    def reply_so_far(self, cut: str = "") -> Reply:
        self._seal_reasoning()
        return super().reply_so_far(cut)

    def _ending_so_far(self, cut: str) -> tuple[Stop, str]:
        if cut or not self.is_reply_complete:
            return Stop.CUT, cut or self._describe_abrupt_end(
                f"with {self._finish!r}" if self._finish else ""
            )
        stop = chat_gateway.STOPS.get(self._finish, Stop.END)
        if stop is Stop.FILTERED:
            return stop, f"{self._where} held back the rest of the reply (content filter)."
        return (
            Stop.END if stop is Stop.CALLS else stop
        ), ""  # The draft knows whether there are calls.

    def _seal_reasoning(self) -> None:
        """Set what to send back with the reasoning: its name here, or its details word for word."""
        if (key := self._draft.first_key_of_kind("reasoning")) is None:
            return
        if self._details:
            self._draft.seal_reasoning(key, details=merge_reasoning_details(self._details))
        elif self._field:
            self._draft.seal_reasoning(key, field=self._field)


def _object_or_empty(value: json_values.Json, name: str) -> json_values.Object:
    """Return an object, empty if missing. Raises ValueError for any other value."""
    found = json_values.value_at(value, name)
    return {} if found is None else json_values.require_object(found)


def merge_reasoning_details(details: list[json_values.Json]) -> list[json_values.Json]:
    """Join each piece of streamed reasoning details with the one that it continues."""
    whole: list[json_values.Json] = []
    for piece in details:
        last = whole[-1] if whole else None
        if isinstance(piece, dict) and isinstance(last, dict) and _continues_detail(last, piece):
            for name in ("text", "summary", "data"):
                if isinstance(piece.get(name), str):
                    last[name] = json_values.text_at(last, name) + json_values.text_at(piece, name)
            last.update(
                {
                    name: value
                    for name, value in piece.items()
                    if name in {"signature", "id"} and value
                }
            )
        else:
            whole.append(dict(piece) if isinstance(piece, dict) else piece)
    return whole


def _continues_detail(last: json_values.Object, piece: json_values.Object) -> bool:
    same_type, same_index = (
        last.get("type") == piece.get("type"),
        last.get("index") == piece.get("index"),
    )
    return same_type and same_index and piece.get("type") != "reasoning.encrypted"
