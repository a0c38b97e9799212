"""Hides calls of the recall tools, and the reasoning that led to them, from the replies the client sees.

A veil is fed one event after the other of one or several replies that follow each other, and gives the bytes the client
gets: one uninterrupted message. Where nothing is hidden these are the bytes that came.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helix_desktop.gateway.raw_event_stream import encode_event
from helix_desktop.json_values import list_at, number_at, object_at, text_at
from helix_desktop.wire import anthropic_wire, chat_wire, gemini_wire, responses_wire
from helix_desktop.wire.wire_message import Json

HIDDEN_TOOLS = frozenset({"recall_cached_content", "search_cached_content", "recall_history"})


class HiddenCallFilter(ABC):
    """`holds_reasoning`: reasoning is held back until it is known whether a hidden call follows."""

    def __init__(self, *, hold: bool) -> None:
        self.holds_reasoning = hold
        self.is_last_reply = False  # True if no further request is made, whatever the model calls.
        self.replies_before = 0
        self.hidden_count = 0  # calls of this reply the client does not see
        self.visible_count = 0  # calls of this reply the client answers
        self.any_hidden = False
        self.shown_count = 0  # blocks or items the client has seen so far
        self.output_tokens_before = 0  # tokens of the replies before this one
        self._held_events: list[tuple[bytes, Json]] = []

    def begin_next_reply(self, output: int) -> None:
        """The reply so far came to nothing but hidden calls; the next one goes on in its place."""
        self.replies_before += 1
        self.output_tokens_before += output
        self.begin_reply_again()

    def begin_reply_again(self) -> None:
        """The reply broke off before the agent saw anything of it; it comes once more."""
        self.hidden_count = self.visible_count = 0
        self._held_events = []

    @property
    def has_only_hidden_calls(self) -> bool:
        """Whether the reply only has hidden calls, so that the gateway continues it."""
        return self.hidden_count > 0 and self.visible_count == 0

    def count_and_check_hidden(self, name: str) -> bool:
        """Whether the client does not see a call of this tool. To be asked once for every call of a reply."""
        ours = name in HIDDEN_TOOLS
        self.hidden_count += ours
        self.any_hidden |= ours
        self.visible_count += not ours
        return ours

    @abstractmethod
    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        """The bytes for the client."""

    @abstractmethod
    def merge_whole_replies(self, values: Sequence[Mapping[str, Json]]) -> Json:
        """Replies that came without a stream, as one."""


class AnthropicCallFilter(HiddenCallFilter):
    """Content blocks are numbered; the client's numbers leave out what is hidden."""

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._numbers: dict[int, int | None] = {}
        self._holding: int | None = None

    def begin_reply_again(self) -> None:
        super().begin_reply_again()
        self._numbers, self._holding = {}, None

    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        kind = text_at(event, "type")
        if event is None or kind in ("ping", "error", ""):
            return raw
        if kind == "message_start":
            return raw if self.replies_before == 0 else b""
        if kind == "message_delta":
            return self._finish_message(raw, event)
        if kind == "message_stop":
            return b"" if self.has_only_hidden_calls else raw
        out = b""
        index = number_at(event, "index")
        if kind == "content_block_start":
            out = self._begin_block(index, object_at(event, "content_block"))
        if self._holding == index:
            self._held_events.append((raw, event))
            return out
        return out + self._renumber_event(raw, event, index)

    def _begin_block(self, index: int, block: Mapping[str, Json]) -> bytes:
        """Give the block its number. What was held goes first, unless a hidden call follows it."""
        kind = text_at(block, "type")
        if kind in ("thinking", "redacted_thinking"):
            if self.replies_before and self.shown_count:
                self._numbers[index] = None
                return b""
            if self.holds_reasoning:
                out = self._release_held_events()
                self._holding = index
                return out
        ours = kind == "tool_use" and self.count_and_check_hidden(text_at(block, "name"))
        if ours and not self.visible_count:
            for _, event in self._held_events:
                self._numbers[number_at(event, "index")] = None
            self._held_events, self._holding = [], None
        out = self._release_held_events()
        self._assign_number(index, hidden=ours)
        return out

    def _assign_number(self, index: int, *, hidden: bool = False) -> None:
        self._numbers[index] = None if hidden else self.shown_count
        self.shown_count += not hidden

    def _release_held_events(self) -> bytes:
        held, self._held_events, self._holding = self._held_events, [], None
        if held and number_at(held[0][1], "index") not in self._numbers:
            self._assign_number(number_at(held[0][1], "index"))
        return b"".join(self._renumber_event(raw, event, number_at(event, "index")) for raw, event in held)

    def _renumber_event(self, raw: bytes, event: Mapping[str, Json], index: int) -> bytes:
        shown = self._numbers.get(index, index)
        if shown is None:
            return b""
        return raw if shown == index else encode_event({**event, "index": shown}, text_at(event, "type"))

    def _finish_message(self, raw: bytes, event: Mapping[str, Json]) -> bytes:
        if self.has_only_hidden_calls:
            return b""
        out = self._release_held_events()
        if not self.any_hidden:
            return out + raw
        usage = object_at(event, "usage")
        told = {**usage, "output_tokens": number_at(usage, "output_tokens") + self.output_tokens_before}
        return out + encode_event({**event, "usage": told}, "message_delta")

    def merge_whole_replies(self, values: Sequence[Mapping[str, Json]]) -> Json:
        content: list[Json] = []
        for at, value in enumerate(values):
            blocks = [object_at(block) for block in list_at(value, "content")]
            only_hidden = at < len(values) - 1
            for block in blocks:
                thinks = block.get("type") in ("thinking", "redacted_thinking")
                if (block.get("type") == "tool_use" and block.get("name") in HIDDEN_TOOLS) or (
                    thinks and ((content and at) or only_hidden)
                ):
                    continue
                content.append(block)
        last = values[-1]
        usage = dict(object_at(last, "usage"))
        usage["output_tokens"] = sum(number_at(value, "usage", "output_tokens") for value in values)
        return {**last, "id": values[0].get("id", last.get("id")), "content": content, "usage": usage}


class ChatCallFilter(HiddenCallFilter):
    """Calls are numbered in the pieces of the stream, and every chunk may hold several."""

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._numbers: dict[int, int | None] = {}
        self._calls = 0
        self._id: Json = None

    def begin_reply_again(self) -> None:
        super().begin_reply_again()
        self._numbers = {}

    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        if event is None:
            return b"" if self.has_only_hidden_calls and b"[DONE]" in raw else raw
        value = object_at(event)
        self._id = self._id or value.get("id")
        choices = list_at(value, "choices")
        if not choices:
            return self._add_earlier_usage(raw, value)
        choice = object_at(choices[0])
        delta = object_at(choice, "delta")
        if _is_only_reasoning(delta) and (self.holds_reasoning or (self.replies_before and self.shown_count)):
            self._held_events += [] if self.replies_before and self.shown_count else [(raw, event)]
            return b""
        return self._filter_chunk(raw, value, choice, delta)

    def _filter_chunk(
        self, raw: bytes, value: Mapping[str, Json], choice: Mapping[str, Json], delta: Mapping[str, Json]
    ) -> bytes:
        kept, changed = self._filter_delta(delta)
        finish = choice.get("finish_reason")
        ends = bool(finish) and not self.has_only_hidden_calls
        out = self._release_held_events() if delta.get("content") or self.visible_count or ends else b""
        self.shown_count += bool(delta.get("content") or kept.get("tool_calls"))
        if (finish and self.has_only_hidden_calls) or not (kept or finish):
            return out
        if not changed and not self.replies_before:
            return out + self._add_earlier_usage(raw, value)
        return out + self._add_earlier_usage(b"", {**value, "id": self._id, "choices": [{**choice, "delta": kept}]})

    def _release_held_events(self) -> bytes:
        held, self._held_events = self._held_events, []
        return b"".join(raw for raw, _ in held)

    def _filter_delta(self, delta: Mapping[str, Json]) -> tuple[dict[str, Json], bool]:
        """The delta without hidden pieces, and whether that changed it."""
        kept = dict(delta)
        if self.replies_before and "role" in kept:
            del kept["role"]
        calls = list_at(delta, "tool_calls")
        if not calls:
            return kept, False
        seen = [piece for call in calls if (piece := self._filter_call_piece(object_at(call))) is not None]
        kept["tool_calls"] = seen
        if not seen:
            del kept["tool_calls"]
            if kept.get("content", "") in (None, ""):
                kept.pop("content", None)
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
        """The usage told is that of all replies."""
        usage = value.get("usage")
        if not isinstance(usage, Mapping):
            return raw or encode_event(value)
        if self.has_only_hidden_calls:
            return b""
        if not self.any_hidden:
            return raw or encode_event(value)
        output = number_at(usage, "completion_tokens") + self.output_tokens_before
        told = {**usage, "completion_tokens": output, "total_tokens": number_at(usage, "prompt_tokens") + output}
        return encode_event({**value, "id": self._id, "usage": told})

    def merge_whole_replies(self, values: Sequence[Mapping[str, Json]]) -> Json:
        last = values[-1]
        messages = [object_at(value, "choices", 0, "message") for value in values]
        message: dict[str, Any] = dict(messages[-1])
        said = "".join(text_at(each, "content") for each in messages)
        message["content"] = said or message.get("content")
        calls = [
            call for call in list_at(message, "tool_calls") if text_at(call, "function", "name") not in HIDDEN_TOOLS
        ]
        if "tool_calls" in message:
            message["tool_calls"] = calls
            if not calls:
                del message["tool_calls"]
        usage = dict(object_at(last, "usage"))
        usage["completion_tokens"] = sum(number_at(value, "usage", "completion_tokens") for value in values)
        usage["total_tokens"] = number_at(usage, "prompt_tokens") + usage["completion_tokens"]
        choice = {**object_at(last, "choices", 0), "message": message}
        return {**last, "id": values[0].get("id"), "choices": [choice], "usage": usage}


def _is_only_reasoning(delta: Mapping[str, Json]) -> bool:
    thinks = any(text_at(delta, name) for name in chat_wire.REASONING)
    return thinks and not delta.get("content") and not delta.get("tool_calls")


class ResponsesCallFilter(HiddenCallFilter):
    """Items and events are numbered; the last event holds the whole reply once more."""

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._numbers: dict[int, int | None] = {}
        self._holding: int | None = None
        self._sent = 0
        self._items: list[Json] = []
        self._first: Mapping[str, Json] = {}
        self._rewriting = False

    def begin_reply_again(self) -> None:
        super().begin_reply_again()
        self._numbers, self._holding = {}, None

    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        if event is None:
            return b"" if self.has_only_hidden_calls and b"[DONE]" in raw else raw
        kind = text_at(event, "type")
        if kind in ("response.created", "response.in_progress", "response.queued"):
            self._first = self._first or object_at(event, "response")
            return self._number_sent_event(raw, event) if self.replies_before == 0 else b""
        if kind in ("response.completed", "response.incomplete"):
            return (
                b"" if self.has_only_hidden_calls else self._release_held_events() + self._finish_response(raw, event)
            )
        if "output_index" not in event:
            return self._number_sent_event(raw, event)
        index = number_at(event, "output_index")
        out = b""
        if kind == "response.output_item.added":
            out = self._begin_item(index, object_at(event, "item"))
        if self._holding == index:
            self._held_events.append((raw, event))
            return out
        return out + self._renumber_event(raw, event, index)

    def _begin_item(self, index: int, item: Mapping[str, Json]) -> bytes:
        kind = text_at(item, "type")
        if kind == "reasoning":
            if self.replies_before and self.shown_count:
                self._numbers[index] = None
                return b""
            if self.holds_reasoning:
                out = self._release_held_events()
                self._holding = index
                return out
        ours = kind == "function_call" and self.count_and_check_hidden(text_at(item, "name"))
        if kind != "function_call" and kind.endswith("_call"):
            self.visible_count += 1
        if ours and not self.visible_count:
            for _, event in self._held_events:
                self._numbers[number_at(event, "output_index")] = None
            self._held_events, self._holding = [], None
        out = self._release_held_events()
        self._numbers[index] = None if ours else self.shown_count
        self.shown_count += not ours
        return out

    def _release_held_events(self) -> bytes:
        held, self._held_events, self._holding = self._held_events, [], None
        if held and (index := number_at(held[0][1], "output_index")) not in self._numbers:
            self._numbers[index] = self.shown_count
            self.shown_count += 1
        return b"".join(self._renumber_event(raw, event, number_at(event, "output_index")) for raw, event in held)

    def _renumber_event(self, raw: bytes, event: Mapping[str, Json], index: int) -> bytes:
        shown = self._numbers.get(index, index)
        if shown is None:
            return b""
        if event.get("type") == "response.output_item.done":
            self._items.append(event.get("item"))
        return self._number_sent_event(
            raw, event if shown == index else {**event, "output_index": shown}, changed=shown != index
        )

    def _number_sent_event(self, raw: bytes, event: Mapping[str, Json], *, changed: bool = False) -> bytes:
        """Events are numbered as the client sees them."""
        given = event.get("sequence_number")
        self._rewriting |= changed or (given is not None and given != self._sent)
        if not self._rewriting:
            self._sent += 1
            return raw
        if given is not None:
            event = {**event, "sequence_number": self._sent}
        self._sent += 1
        return encode_event(event, text_at(event, "type"))

    def _finish_response(self, raw: bytes, event: Mapping[str, Json]) -> bytes:
        if not self.any_hidden:
            return self._number_sent_event(raw, event)
        response = object_at(event, "response")
        usage = dict(object_at(response, "usage"))
        usage["output_tokens"] = number_at(usage, "output_tokens") + self.output_tokens_before
        usage["total_tokens"] = number_at(usage, "input_tokens") + usage["output_tokens"]
        whole = {**response, "id": self._first.get("id", response.get("id")), "output": self._items, "usage": usage}
        return self._number_sent_event(raw, {**event, "response": whole}, changed=True)

    def merge_whole_replies(self, values: Sequence[Mapping[str, Json]]) -> Json:
        items: list[Json] = []
        for at, value in enumerate(values):
            for item in map(object_at, list_at(value, "output")):
                ours = item.get("type") == "function_call" and item.get("name") in HIDDEN_TOOLS
                if not ours and not (item.get("type") == "reasoning" and at < len(values) - 1):
                    items.append(item)
        last = values[-1]
        usage = dict(object_at(last, "usage"))
        usage["output_tokens"] = sum(number_at(value, "usage", "output_tokens") for value in values)
        usage["total_tokens"] = number_at(usage, "input_tokens") + usage["output_tokens"]
        return {**last, "id": values[0].get("id"), "output": items, "usage": usage}


class GeminiCallFilter(HiddenCallFilter):
    """Calls come whole, as parts of a chunk; of parallel ones only the first carries the signature."""

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._signed = False

    def begin_reply_again(self) -> None:
        super().begin_reply_again()
        self._signed = False

    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        if event is None:
            return raw
        candidate = object_at(event, "candidates", 0)
        parts = list(list_at(candidate, "content", "parts"))
        kept = [seen for part in parts if (seen := self._filter_gemini_part(object_at(part))) is not None]
        finish = candidate.get("finishReason")
        if self.holds_reasoning and parts and all(object_at(part).get("thought") for part in parts) and not finish:
            self._held_events.append((raw, event))
            return b""
        out = b""
        if self._held_events and (finish or kept) and not self.has_only_hidden_calls:
            out = b"".join(held for held, _ in self._held_events)
        if not self.has_only_hidden_calls or kept:
            self._held_events = []
        self.shown_count += len(kept)
        if self.has_only_hidden_calls and (finish or not kept):
            return out
        if kept == parts and not self.any_hidden:
            return out + raw
        if not kept and not finish:
            return out
        content = {**object_at(candidate, "content"), "role": "model", "parts": kept}
        fresh = {
            **event,
            "candidates": [{**candidate, "content": content}, *list_at(event, "candidates")[1:]],
        }
        return out + encode_event(self._with_earlier_output(fresh, self.output_tokens_before))

    def _filter_gemini_part(self, part: Mapping[str, Json]) -> Json | None:
        if part.get("thought") and self.replies_before and self.shown_count:
            return None
        if not isinstance(part.get("functionCall"), Mapping):
            return part
        if self.count_and_check_hidden(text_at(part["functionCall"], "name")):
            return None
        first, self._signed = not self._signed, True
        if first and self.hidden_count and "thoughtSignature" not in part:
            return {**part, "thoughtSignature": gemini_wire.PLACEHOLDER}
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
        for at, value in enumerate(values):
            self._signed, self.hidden_count = False, 0
            candidate = object_at(value, "candidates", 0)
            for part in map(object_at, list_at(candidate, "content", "parts")):
                seen = self._filter_gemini_part(part)
                if seen is not None and not (part.get("thought") and at < len(values) - 1):
                    parts.append(seen)
        last = values[-1]
        before = sum(gemini_wire.usage(object_at(value, "usageMetadata")).output for value in values[:-1])
        candidate = object_at(last, "candidates", 0)
        content = {**object_at(candidate, "content"), "role": "model", "parts": parts}
        return self._with_earlier_output({**last, "candidates": [{**candidate, "content": content}]}, before)


CALL_FILTERS: Mapping[str, Callable[..., HiddenCallFilter]] = {
    anthropic_wire.NAME: AnthropicCallFilter,
    chat_wire.NAME: ChatCallFilter,
    responses_wire.NAME: ResponsesCallFilter,
    gemini_wire.NAME: GeminiCallFilter,
}
