"""Reads and writes Chat Completions as the gateway's agents do: calls beside text, each
result a message.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from helix_desktop.engine.facts import Stop, ToolSpec, Usage
from helix_desktop.json_values import list_at, number_at, object_at, text_at, value_at
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
    HiddenCallFilter,
    add_earlier_output,
    sum_output,
)
from helix_desktop.protocols.request_parts import function_of_tool

NAME = "openai-chat"
STOPS = {
    "stop": Stop.END, "eos": Stop.END, "eos_token": Stop.END, "end_turn": Stop.END, "stop_sequence": Stop.END,
    "completed": Stop.END, "tool_calls": Stop.CALLS, "function_call": Stop.CALLS, "length": Stop.LENGTH,
    "max_tokens": Stop.LENGTH, "content_filter": Stop.FILTERED,
}  # fmt: skip
REASONING = ("reasoning_content", "reasoning")
# What a fold may stand for. Parts of other types, and messages of other roles or with other
# fields, are not known here and go on where they stood.
FOLDED_PARTS = frozenset({"text", "image_url", "input_audio", "file", "refusal", "thinking"})
USER_FIELDS = frozenset({"role", "content", "name"})
_SPEAKERS = {"system": Speaker.SYSTEM, "developer": Speaker.SYSTEM, "assistant": Speaker.ASSISTANT}


def parse_head(body: Mapping[str, Json]) -> RequestHead:
    said = [
        m
        for m in map(object_at, list_at(body, "messages"))
        if text_at(m, "role") in ("system", "developer")
    ]
    tools = [object_at(tool, "function") for tool in list_at(body, "tools")]
    return RequestHead(
        text_at(body, "model"),
        "\n\n".join(gateway_message.text_of_content(m.get("content")) for m in said),
        tuple(gateway_message.parse_tool(tool, tool.get("parameters", {})) for tool in tools),
        gateway_message.format_effort_settings(
            body.get("reasoning_effort"), text_at(body, "reasoning", "effort")
        ),
    )


def parse_messages(body: Mapping[str, Json], before: Sequence[Wired] = ()) -> list[Wired]:
    return [*before, *map(parse_message, list_at(body, "messages")[len(before) :])]


def parse_message(unit: Json) -> Wired:
    value = object_at(unit)
    role = text_at(value, "role")
    if role in ("tool", "function"):
        name = text_at(value, "tool_call_id") or text_at(value, "name")
        content = value.get("content")
        text = gateway_message.text_of_content(content)
        outlives_folds = loaded_state.has_other_parts(content, FOLDED_PARTS)
        result = Piece(PieceKind.RESULT, text, (0,), name, outlives_folds=outlives_folds)
        return Wired(Speaker.USER, (unit,), (result,))
    speaker = _SPEAKERS.get(role, Speaker.USER)
    pieces = [
        Piece(PieceKind.REASONING, text_at(value, name), (0, name))
        for name in REASONING
        if text_at(value, name)
    ]
    content = value.get("content")
    if isinstance(content, str):
        pieces.append(Piece(PieceKind.TEXT, content, (0, "content")))
    else:
        for at, part in enumerate(map(object_at, list_at(content))):
            url = text_at(part, "image_url", "url")
            pieces.append(
                gateway_message.piece_of_part(part, url, (0, "content", at), FOLDED_PARTS)
            )
    pieces.extend(
        _piece_of_chat_call(object_at(call), (0, "tool_calls", at))
        for at, call in enumerate(list_at(value, "tool_calls"))
    )
    if _goes_on_as_a_whole(value, role):
        return Wired(speaker, (unit,), loaded_state.mark_all(pieces, value))
    return Wired(speaker, (unit,), loaded_state.mark_loaded_state(pieces))


def _goes_on_as_a_whole(message: Mapping[str, Json], role: str) -> bool:
    if role == "assistant":
        return False  # Its fields are the provider's own, which belong to the reply.
    return role != "user" or loaded_state.has_unknown_fields(message, USER_FIELDS)


def _piece_of_chat_call(call: Mapping[str, Json], path: tuple[int | str, ...]) -> Piece:
    function = object_at(call, "function")
    return Piece(
        PieceKind.CALL,
        text_at(function, "arguments"),
        path,
        text_at(call, "id"),
        text_at(function, "name"),
    )


def apply_edits(wired: Wired, edits: Sequence[gateway_message.PieceEdit]) -> list[Json]:
    return gateway_message.edit_pieces(wired, edits, _path_and_value_of_edit)


def _path_and_value_of_edit(
    _units: Json, piece: Piece, text: str
) -> tuple[gateway_message.Path, Json]:
    fields = {PieceKind.CALL: ("function", "arguments"), PieceKind.RESULT: ("content",)}
    return fields.get(piece.kind, () if len(piece.path) == 2 else ("text",)), text


def user_message(text: str) -> Json:
    return {"role": "user", "content": text}


def result_message(call: str, name: str, text: str, *, ok: bool = True) -> Json:
    del name, ok
    return {"role": "tool", "tool_call_id": call, "content": text}


def merge_added_messages(units: Sequence[tuple[Json, bool]]) -> list[Json]:
    """Return the messages unchanged, because here several of one role may follow each other."""
    return [unit for unit, _ in units]


def with_added_tools(body: Mapping[str, Json], tools: Sequence[ToolSpec]) -> dict[str, Json]:
    return {**body, "tools": [*tools_as_json(tools), *list_at(body, "tools")]}


def tools_as_json(tools: Sequence[ToolSpec]) -> list[dict[str, Json]]:
    return [{"type": "function", "function": function_of_tool(t)} for t in tools]


# --- Reading replies, whole or from a stream


def parse_reply(value: Mapping[str, Json]) -> gateway_message.WireReply:
    """Return a whole reply, the first choice."""
    choice = object_at(value, "choices", 0)
    unit = {
        k: v for k, v in object_at(choice, "message").items() if v is not None or k == "content"
    }
    stop = STOPS.get(text_at(choice, "finish_reason"), Stop.CUT)
    wired = parse_message({"role": "assistant", **unit})
    return gateway_message.WireReply(
        wired, stop, parse_usage(object_at(value, "usage")), text_at(value, "model")
    )


def parse_usage(value: Mapping[str, Json]) -> Usage:
    """Return the usage, under the names that OpenAI, DeepSeek, OpenRouter and Moonshot use."""
    reads = (
        number_at(value, "prompt_tokens_details", "cached_tokens"),
        number_at(value, "prompt_cache_hit_tokens"),
        number_at(value, "cached_tokens"),
    )
    cost = value_at(value, "cost")
    return Usage(
        input=number_at(value, "prompt_tokens"),
        cache_read=max(reads),
        cache_write=number_at(value, "prompt_tokens_details", "cache_write_tokens"),
        output=number_at(value, "completion_tokens"),
        reasoning=number_at(value, "completion_tokens_details", "reasoning_tokens"),
        cost=float(cost) if isinstance(cost, int | float) and cost > 0 else 0.0,
    )


class ReplyAssembler:
    def __init__(self) -> None:
        self.whole: dict[str, Json] = {}
        self._message: dict[str, Json] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Json]] = {}
        self._finish: str | None = None

    @property
    def is_done(self) -> bool:
        return self._finish is not None

    def add_reply_event(self, event: Mapping[str, Json]) -> None:
        self.whole.update(
            {k: v for k, v in event.items() if k not in ("choices", "object") and v is not None}
        )
        for choice in map(object_at, list_at(event, "choices")):
            if number_at(choice, "index"):
                continue
            self._finish = text_at(choice, "finish_reason") or self._finish
            for name, value in object_at(choice, "delta").items():
                if name == "tool_calls":
                    for call in map(object_at, list_at(value)):
                        self._add_call_piece_to_reply(call)
                elif isinstance(value, str) and name != "role":
                    self._message[name] = (self._message.get(name) or "") + value
                elif isinstance(value, list) and isinstance(self._message.get(name), list):
                    self._message[name] = [*self._message[name], *value]
                elif value is not None:
                    self._message[name] = value

    def _add_call_piece_to_reply(self, piece: Mapping[str, Json]) -> None:
        call = self._calls.setdefault(
            number_at(piece, "index"),
            {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
        )
        for name, value in piece.items():
            if name == "function":
                for part, text in object_at(value).items():
                    call["function"][part] = str(call["function"].get(part) or "") + (text or "")
            elif name != "index" and value:
                call[name] = value

    def whole_reply(self) -> dict[str, Json]:
        message = dict(self._message)
        if self._calls:
            message["tool_calls"] = [call for _, call in sorted(self._calls.items())]
        return {
            **self.whole,
            "choices": [{"index": 0, "message": message, "finish_reason": self._finish}],
        }


# --- Hiding calls to this program's own tools from the agent


class ChatCallFilter(HiddenCallFilter):
    """Calls are numbered in a stream's pieces, and each chunk may have several."""

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._numbers: dict[int, int | None] = {}
        self._calls = 0
        self._id: Json = None

    def reset_for_retry(self) -> None:
        super().reset_for_retry()
        self._numbers = {}

    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        if event is None:
            return b"" if self.has_only_hidden_calls and b"[DONE]" in raw else raw
        value = object_at(event)
        self._id = self._id or value.get("id")
        if not (choices := list_at(value, "choices")):
            return self._add_earlier_usage(raw, value)
        choice = object_at(choices[0])
        delta = object_at(choice, "delta")
        if _is_only_reasoning(delta) and (
            self.holds_reasoning or (self.replies_before and self.shown_count)
        ):
            self._held_events += [] if self.replies_before and self.shown_count else [(raw, event)]
            return b""
        kept, changed = self._filter_delta(delta)
        finish = choice.get("finish_reason")
        shows = (
            delta.get("content")
            or self.visible_count
            or (finish and not self.has_only_hidden_calls)
        )
        out = b""
        if shows:
            out, self._held_events = b"".join(raw for raw, _ in self._held_events), []
        self.shown_count += bool(delta.get("content") or kept.get("tool_calls"))
        goes_on = (
            self.has_only_hidden_calls
        )  # The next reply continues this one, which thus has no end and no usage.
        if not (kept if not finish else kept.get("content") or not goes_on):
            return out
        if goes_on and (finish or "usage" in value):
            value, choice, changed = (
                {**value, "usage": None},
                {**choice, "finish_reason": None},
                True,
            )
        if not changed and not self.replies_before:
            return out + self._add_earlier_usage(raw, value)
        return out + self._add_earlier_usage(
            b"", {**value, "id": self._id, "choices": [{**choice, "delta": kept}]}
        )

    def _filter_delta(self, delta: Mapping[str, Json]) -> tuple[dict[str, Json], bool]:
        """Return the delta without hidden pieces, and whether that changed it."""
        kept = dict(delta)
        if self.replies_before and "role" in kept:
            del kept["role"]
        if not (calls := list_at(delta, "tool_calls")):
            return kept, False
        seen = [
            piece
            for call in calls
            if (piece := self._filter_call_piece(object_at(call))) is not None
        ]
        kept["tool_calls"] = seen
        if not seen:
            kept = {k: v for k, v in kept.items() if v or k not in ("content", "tool_calls")}
        return kept, seen != list(calls)

    def _filter_call_piece(self, call: Mapping[str, Json]) -> Json | None:
        index = number_at(call, "index")
        if index not in self._numbers:
            ours = self.count_and_check_hidden(text_at(call, "function", "name"))
            self._numbers[index] = None if ours else self._calls
            self._calls += not ours
        shown = self._numbers[index]
        return None if shown is None else call if shown == index else {**call, "index": shown}

    def _add_earlier_usage(self, raw: bytes, value: Mapping[str, Json]) -> bytes:
        """Report the usage of all replies together."""
        usage = value.get("usage")
        if not isinstance(usage, Mapping):
            return raw or encode_event(value)
        if self.has_only_hidden_calls:
            return b""
        if not self.any_hidden:
            return raw or encode_event(value)
        told = add_earlier_output(
            usage, self.output_tokens_before, "completion_tokens", "prompt_tokens"
        )
        return encode_event({**value, "id": self._id, "usage": told})

    def merge_whole_replies(self, values: Sequence[Mapping[str, Json]]) -> Json:
        last = values[-1]
        messages = [object_at(value, "choices", 0, "message") for value in values]
        message: dict[str, Any] = dict(messages[-1])
        said = "".join(text_at(each, "content") for each in messages)
        message["content"] = said or message.get("content")
        calls = [
            call
            for call in list_at(message, "tool_calls")
            if text_at(call, "function", "name") not in HIDDEN_TOOLS
        ]
        message.pop("tool_calls", None)
        if calls:
            message["tool_calls"] = calls
        usage = sum_output(values, "completion_tokens", "prompt_tokens")
        choice = {**object_at(last, "choices", 0), "message": message}
        return {**last, "id": values[0].get("id"), "choices": [choice], "usage": usage}


def _is_only_reasoning(delta: Mapping[str, Json]) -> bool:
    thinks = any(text_at(delta, name) for name in REASONING)
    return thinks and not delta.get("content") and not delta.get("tool_calls")
