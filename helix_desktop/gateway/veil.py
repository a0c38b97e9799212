"""What the client does not see of a reply: calls of the tools added here, and the reasoning of the steps that made them.

A veil is fed one event after the other of one or several replies that follow each other, and gives the bytes the client
gets: one uninterrupted message. Where nothing is hidden these are the bytes that came.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helix_desktop.gateway.events import written
from helix_desktop.wire import anthropic, gemini, openai_chat, openai_responses
from helix_desktop.wire.message import Json, listed, mapping, number, string

OURS = frozenset({"recall_cached_content", "search_cached_content", "recall_history"})


class Veil(ABC):
    """`hold`: reasoning waits until it is known what it led to. `again` begins the next reply of the same message."""

    def __init__(self, *, hold: bool) -> None:
        self.hold = hold
        self.last = False  # nothing more is asked, whatever the model calls
        self.round = 0
        self.hidden = 0  # calls of this reply the client does not see
        self.visible = 0  # calls of this reply the client answers
        self.any_hidden = False
        self.shown = 0  # blocks or items the client has seen so far
        self.output = 0  # tokens of the replies before this one
        self._held: list[tuple[bytes, Json]] = []

    def again(self, output: int) -> None:
        """The reply so far came to nothing but hidden calls; the next one goes on in its place."""
        self.round += 1
        self.output += output
        self.hidden = self.visible = 0
        self._held = []

    @property
    def goes_on(self) -> bool:
        """Whether the reply asks for nothing the client could answer."""
        return self.hidden > 0 and self.visible == 0 and not self.last

    def hides(self, name: str) -> bool:
        """Whether the client does not see a call of this tool. To be asked once for every call of a reply."""
        ours = name in OURS
        self.hidden += ours
        self.any_hidden |= ours
        self.visible += not ours
        return ours

    @abstractmethod
    def feed(self, raw: bytes, event: Json | None) -> bytes:
        """The bytes for the client."""

    @abstractmethod
    def whole(self, values: Sequence[Mapping[str, Json]]) -> Json:
        """Replies that came without a stream, as one."""


class AnthropicVeil(Veil):
    """Content blocks are numbered; the client's numbers leave out what is hidden."""

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._numbers: dict[int, int | None] = {}
        self._holding: int | None = None

    def again(self, output: int) -> None:
        super().again(output)
        self._numbers, self._holding = {}, None

    def feed(self, raw: bytes, event: Json | None) -> bytes:
        kind = string(mapping(event), "type")
        if event is None or kind in ("ping", "error", ""):
            return raw
        if kind == "message_start":
            return raw if self.round == 0 else b""
        if kind == "message_delta":
            return self._end(raw, event)
        if kind == "message_stop":
            return b"" if self.goes_on else raw
        out = b""
        index = number(event, "index")
        if kind == "content_block_start":
            out = self._start(index, mapping(event.get("content_block")))
        if self._holding == index:
            self._held.append((raw, event))
            return out
        return out + self._numbered(raw, event, index)

    def _start(self, index: int, block: Mapping[str, Json]) -> bytes:
        """Give the block its number. What was held goes first, unless a hidden call follows it."""
        kind = string(block, "type")
        if kind in ("thinking", "redacted_thinking"):
            if self.round and self.shown:
                self._numbers[index] = None
                return b""
            if self.hold:
                out = self._release()
                self._holding = index
                return out
        ours = kind == "tool_use" and self.hides(string(block, "name"))
        if ours and not self.visible:
            for _, event in self._held:
                self._numbers[number(event, "index")] = None
            self._held, self._holding = [], None
        out = self._release()
        self._number(index, hidden=ours)
        return out

    def _number(self, index: int, *, hidden: bool = False) -> None:
        self._numbers[index] = None if hidden else self.shown
        self.shown += not hidden

    def _release(self) -> bytes:
        held, self._held, self._holding = self._held, [], None
        if held and number(held[0][1], "index") not in self._numbers:
            self._number(number(held[0][1], "index"))
        return b"".join(self._numbered(raw, event, number(event, "index")) for raw, event in held)

    def _numbered(self, raw: bytes, event: Mapping[str, Json], index: int) -> bytes:
        shown = self._numbers.get(index, index)
        if shown is None:
            return b""
        return raw if shown == index else written({**event, "index": shown}, string(event, "type"))

    def _end(self, raw: bytes, event: Mapping[str, Json]) -> bytes:
        if self.goes_on:
            return b""
        out = self._release()
        if not self.any_hidden:
            return out + raw
        usage = mapping(event.get("usage"))
        told = {**usage, "output_tokens": number(usage, "output_tokens") + self.output}
        delta = dict(mapping(event.get("delta")))
        if self.hidden and not self.visible:
            delta["stop_reason"] = "end_turn"
        return out + written({**event, "delta": delta, "usage": told}, "message_delta")

    def whole(self, values: Sequence[Mapping[str, Json]]) -> Json:
        content: list[Json] = []
        for at, value in enumerate(values):
            blocks = [mapping(block) for block in listed(value.get("content"))]
            only_hidden = at < len(values) - 1
            for block in blocks:
                thinks = block.get("type") in ("thinking", "redacted_thinking")
                if (block.get("type") == "tool_use" and block.get("name") in OURS) or (
                    thinks and ((content and at) or only_hidden)
                ):
                    continue
                content.append(block)
        last = values[-1]
        usage = dict(mapping(last.get("usage")))
        usage["output_tokens"] = sum(number(mapping(value.get("usage")), "output_tokens") for value in values)
        if self.hidden and not self.visible:
            last = {**last, "stop_reason": "end_turn"}
        return {**last, "id": values[0].get("id", last.get("id")), "content": content, "usage": usage}


class ChatVeil(Veil):
    """Calls are numbered in the pieces of the stream, and every chunk may hold several."""

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._numbers: dict[int, int | None] = {}
        self._calls = 0
        self._id: Json = None

    def again(self, output: int) -> None:
        super().again(output)
        self._numbers = {}

    def feed(self, raw: bytes, event: Json | None) -> bytes:
        if event is None:
            return b"" if self.goes_on and b"[DONE]" in raw else raw
        value = mapping(event)
        self._id = self._id or value.get("id")
        choices = listed(value.get("choices"))
        if not choices:
            return self._figures(raw, value)
        choice = mapping(choices[0])
        delta = mapping(choice.get("delta"))
        if _only_thinks(delta) and (self.hold or (self.round and self.shown)):
            self._held += [] if self.round and self.shown else [(raw, event)]
            return b""
        return self._chunk(raw, value, choice, delta)

    def _chunk(
        self, raw: bytes, value: Mapping[str, Json], choice: Mapping[str, Json], delta: Mapping[str, Json]
    ) -> bytes:
        kept, changed = self._delta(delta)
        finish = choice.get("finish_reason")
        ends = bool(finish) and not self.goes_on
        out = self._release() if delta.get("content") or self.visible or ends else b""
        self.shown += bool(delta.get("content") or kept.get("tool_calls"))
        if (finish and self.goes_on) or not (kept or finish):
            return out
        if ends and self.hidden and not self.visible:
            choice, changed = {**choice, "finish_reason": "stop"}, True
        if not changed and not self.round:
            return out + self._figures(raw, value)
        return out + self._figures(b"", {**value, "id": self._id, "choices": [{**choice, "delta": kept}]})

    def _release(self) -> bytes:
        held, self._held = self._held, []
        return b"".join(raw for raw, _ in held)

    def _delta(self, delta: Mapping[str, Json]) -> tuple[dict[str, Json], bool]:
        """The delta without hidden pieces, and whether that changed it."""
        kept = dict(delta)
        if self.round and "role" in kept:
            del kept["role"]
        calls = listed(delta.get("tool_calls"))
        if not calls:
            return kept, False
        seen = [piece for call in calls if (piece := self._piece(mapping(call))) is not None]
        kept["tool_calls"] = seen
        if not seen:
            del kept["tool_calls"]
            if kept.get("content", "") in (None, ""):
                kept.pop("content", None)
        return kept, seen != list(calls)

    def _piece(self, call: Mapping[str, Json]) -> Json | None:
        index = number(call, "index")
        if index not in self._numbers:
            ours = self.hides(string(mapping(call.get("function")), "name"))
            self._numbers[index] = None if ours else self._calls
            self._calls += not ours
        shown = self._numbers[index]
        return None if shown is None else call if shown == index else {**call, "index": shown}

    def _figures(self, raw: bytes, value: Mapping[str, Json]) -> bytes:
        """The usage told is that of all replies."""
        usage = value.get("usage")
        if not isinstance(usage, Mapping):
            return raw or written(value)
        if self.goes_on:
            return b""
        if not self.any_hidden:
            return raw or written(value)
        output = number(usage, "completion_tokens") + self.output
        told = {**usage, "completion_tokens": output, "total_tokens": number(usage, "prompt_tokens") + output}
        return written({**value, "id": self._id, "usage": told})

    def whole(self, values: Sequence[Mapping[str, Json]]) -> Json:
        last = values[-1]
        messages = [mapping(mapping(listed(value.get("choices"))[0]).get("message")) for value in values]
        message: dict[str, Any] = dict(messages[-1])
        said = "".join(string(each, "content") for each in messages)
        message["content"] = said or message.get("content")
        calls = [
            call
            for call in listed(message.get("tool_calls"))
            if string(mapping(call.get("function")), "name") not in OURS
        ]
        if "tool_calls" in message:
            message["tool_calls"] = calls
            if not calls:
                del message["tool_calls"]
        usage = dict(mapping(last.get("usage")))
        usage["completion_tokens"] = sum(number(mapping(value.get("usage")), "completion_tokens") for value in values)
        usage["total_tokens"] = number(usage, "prompt_tokens") + usage["completion_tokens"]
        choice = {**mapping(listed(last.get("choices"))[0]), "message": message}
        return {**last, "id": values[0].get("id"), "choices": [choice], "usage": usage}


def _only_thinks(delta: Mapping[str, Json]) -> bool:
    thinks = any(string(delta, name) for name in openai_chat.REASONING)
    return thinks and not delta.get("content") and not delta.get("tool_calls")


class ResponsesVeil(Veil):
    """Items and events are numbered; the last event holds the whole reply once more."""

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._numbers: dict[int, int | None] = {}
        self._holding: int | None = None
        self._sent = 0
        self._items: list[Json] = []
        self._first: Mapping[str, Json] = {}
        self._rewriting = False

    def again(self, output: int) -> None:
        super().again(output)
        self._numbers, self._holding = {}, None

    def feed(self, raw: bytes, event: Json | None) -> bytes:
        if event is None:
            return b"" if self.goes_on and b"[DONE]" in raw else raw
        kind = string(event, "type")
        if kind in ("response.created", "response.in_progress", "response.queued"):
            self._first = self._first or mapping(event.get("response"))
            return self._told(raw, event) if self.round == 0 else b""
        if kind in ("response.completed", "response.incomplete"):
            return b"" if self.goes_on else self._release() + self._end(raw, event)
        if "output_index" not in event:
            return self._told(raw, event)
        index = number(event, "output_index")
        out = b""
        if kind == "response.output_item.added":
            out = self._start(index, mapping(event.get("item")))
        if self._holding == index:
            self._held.append((raw, event))
            return out
        return out + self._numbered(raw, event, index)

    def _start(self, index: int, item: Mapping[str, Json]) -> bytes:
        kind = string(item, "type")
        if kind == "reasoning":
            if self.round and self.shown:
                self._numbers[index] = None
                return b""
            if self.hold:
                out = self._release()
                self._holding = index
                return out
        ours = kind == "function_call" and self.hides(string(item, "name"))
        if kind != "function_call" and kind.endswith("_call"):
            self.visible += 1
        if ours and not self.visible:
            for _, event in self._held:
                self._numbers[number(event, "output_index")] = None
            self._held, self._holding = [], None
        out = self._release()
        self._numbers[index] = None if ours else self.shown
        self.shown += not ours
        return out

    def _release(self) -> bytes:
        held, self._held, self._holding = self._held, [], None
        if held and (index := number(held[0][1], "output_index")) not in self._numbers:
            self._numbers[index] = self.shown
            self.shown += 1
        return b"".join(self._numbered(raw, event, number(event, "output_index")) for raw, event in held)

    def _numbered(self, raw: bytes, event: Mapping[str, Json], index: int) -> bytes:
        shown = self._numbers.get(index, index)
        if shown is None:
            return b""
        if event.get("type") == "response.output_item.done":
            self._items.append(event.get("item"))
        return self._told(raw, event if shown == index else {**event, "output_index": shown}, changed=shown != index)

    def _told(self, raw: bytes, event: Mapping[str, Json], *, changed: bool = False) -> bytes:
        """Events are numbered as the client sees them."""
        given = event.get("sequence_number")
        self._rewriting |= changed or (given is not None and given != self._sent)
        if not self._rewriting:
            self._sent += 1
            return raw
        if given is not None:
            event = {**event, "sequence_number": self._sent}
        self._sent += 1
        return written(event, string(event, "type"))

    def _end(self, raw: bytes, event: Mapping[str, Json]) -> bytes:
        if not self.any_hidden:
            return self._told(raw, event)
        response = mapping(event.get("response"))
        usage = dict(mapping(response.get("usage")))
        usage["output_tokens"] = number(usage, "output_tokens") + self.output
        usage["total_tokens"] = number(usage, "input_tokens") + usage["output_tokens"]
        whole = {**response, "id": self._first.get("id", response.get("id")), "output": self._items, "usage": usage}
        return self._told(raw, {**event, "response": whole}, changed=True)

    def whole(self, values: Sequence[Mapping[str, Json]]) -> Json:
        items: list[Json] = []
        for at, value in enumerate(values):
            for item in map(mapping, listed(value.get("output"))):
                ours = item.get("type") == "function_call" and item.get("name") in OURS
                if not ours and not (item.get("type") == "reasoning" and at < len(values) - 1):
                    items.append(item)
        last = values[-1]
        usage = dict(mapping(last.get("usage")))
        usage["output_tokens"] = sum(number(mapping(value.get("usage")), "output_tokens") for value in values)
        usage["total_tokens"] = number(usage, "input_tokens") + usage["output_tokens"]
        return {**last, "id": values[0].get("id"), "output": items, "usage": usage}


class GeminiVeil(Veil):
    """Calls come whole, as parts of a chunk; of parallel ones only the first carries the signature."""

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._signed = False

    def again(self, output: int) -> None:
        super().again(output)
        self._signed = False

    def feed(self, raw: bytes, event: Json | None) -> bytes:
        if event is None:
            return raw
        candidate = mapping(next(iter(listed(mapping(event).get("candidates"))), None))
        parts = list(listed(mapping(candidate.get("content")).get("parts")))
        kept = [seen for part in parts if (seen := self._part(mapping(part))) is not None]
        finish = candidate.get("finishReason")
        if self.hold and parts and all(mapping(part).get("thought") for part in parts) and not finish:
            self._held.append((raw, event))
            return b""
        out = b""
        if self._held and (finish or kept) and not self.goes_on:
            out = b"".join(held for held, _ in self._held)
        if not self.goes_on or kept:
            self._held = []
        self.shown += len(kept)
        if self.goes_on and (finish or not kept):
            return out
        if kept == parts and not self.any_hidden:
            return out + raw
        if not kept and not finish:
            return out
        content = {**mapping(candidate.get("content")), "role": "model", "parts": kept}
        fresh = {**event, "candidates": [{**candidate, "content": content}, *listed(event.get("candidates"))[1:]]}
        return out + written(self._counted(fresh, self.output))

    def _part(self, part: Mapping[str, Json]) -> Json | None:
        if part.get("thought") and self.round and self.shown:
            return None
        if not isinstance(part.get("functionCall"), Mapping):
            return part
        if self.hides(string(part["functionCall"], "name")):
            return None
        first, self._signed = not self._signed, True
        if first and self.hidden and "thoughtSignature" not in part:
            return {**part, "thoughtSignature": gemini.PLACEHOLDER}
        return part

    @staticmethod
    def _counted(value: dict[str, Json], before: int) -> dict[str, Json]:
        usage = value.get("usageMetadata")
        if not isinstance(usage, Mapping) or not before:
            return value
        told = {**usage, "candidatesTokenCount": number(usage, "candidatesTokenCount") + before}
        told["totalTokenCount"] = number(usage, "totalTokenCount") + before
        return {**value, "usageMetadata": told}

    def whole(self, values: Sequence[Mapping[str, Json]]) -> Json:
        parts: list[Json] = []
        for at, value in enumerate(values):
            self._signed, self.hidden = False, 0
            candidate = mapping(listed(value.get("candidates"))[0])
            for part in map(mapping, listed(mapping(candidate.get("content")).get("parts"))):
                seen = self._part(part)
                if seen is not None and not (part.get("thought") and at < len(values) - 1):
                    parts.append(seen)
        last = values[-1]
        before = sum(gemini.usage(mapping(value.get("usageMetadata"))).output for value in values[:-1])
        candidate = mapping(listed(last.get("candidates"))[0])
        content = {**mapping(candidate.get("content")), "role": "model", "parts": parts}
        return self._counted({**last, "candidates": [{**candidate, "content": content}]}, before)


VEILS: Mapping[str, Callable[..., Veil]] = {
    anthropic.NAME: AnthropicVeil,
    openai_chat.NAME: ChatVeil,
    openai_responses.NAME: ResponsesVeil,
    gemini.NAME: GeminiVeil,
}
