"""Rollouts of Codex: `~/.codex/sessions/…/rollout-*.jsonl`, one item of the Responses API per line.

Newer files wrap an item as `{"type": "response_item", "payload": item}` among other events; older ones have it bare.
What the model put out between two inputs (reasoning, a message, its calls) is one reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from helix_desktop.replay.recording import RecordedCall, RecordedMessage
from helix_desktop.replay.rows import Row, Unreadable, arguments_of, mapping, string, text_of

_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_ITEMS = (*_CALLS, *_OUTPUTS, "message", "reasoning")


def is_one(value: Mapping[str, object]) -> bool:
    """Whether a row is of a rollout: an event with a payload, or an item by itself."""
    wrapped = value.get("type") == "response_item" and isinstance(value.get("payload"), Mapping)
    bare = value.get("type") in _ITEMS and "message" not in value
    return wrapped or bare


def messages(rows: Sequence[Row], complaints: list[str]) -> list[RecordedMessage]:
    """The messages the items come to."""
    writing = _Writing()
    for row in rows:
        if not is_one(row.value):
            continue
        item = mapping(row.value["payload"]) if row.value.get("type") == "response_item" else row.value
        try:
            writing.take(item)
        except Unreadable as error:
            complaints.append(row.complaint(error))
    return writing.finished()


@dataclass(slots=True)
class _Writing:
    """The messages so far, and the reply that is being put together."""

    made: list[RecordedMessage] = field(default_factory=list)
    text: str = ""
    reasoning: str = ""
    calls: list[RecordedCall] = field(default_factory=list)
    open: bool = False

    def take(self, item: Mapping[str, object]) -> None:
        kind = item.get("type")
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind in _CALLS:
            self._call(item)
        elif kind in _OUTPUTS:
            self._output(item)

    def finished(self) -> list[RecordedMessage]:
        self._close()
        return self.made

    def _message(self, item: Mapping[str, object]) -> None:
        role, text = item.get("role"), text_of(item.get("content"))
        if role == "assistant":
            if self.text or self.calls:
                self._close()
            self.text, self.open = text, True
        elif role in ("user", "system", "developer"):
            self._close()
            self.made.append(RecordedMessage("user" if role == "user" else "system", text))
        else:
            raise Unreadable(f"there is no role {role!r}")

    def _reasoning(self, item: Mapping[str, object]) -> None:
        if self.text or self.calls:
            self._close()
        self.reasoning, self.open = text_of(item.get("summary")) or text_of(item.get("content")), True

    def _call(self, item: Mapping[str, object]) -> None:
        call, name = string(item, "call_id", "id"), string(item, "name")
        arguments = item.get("arguments", item.get("input"))
        if item.get("type") == "local_shell_call":
            name, arguments = "shell", mapping(item.get("action"))
        if not call or not name:
            raise Unreadable("a call has no id or no name")
        written = arguments if item.get("type") != "custom_tool_call" else {"input": arguments}
        self.calls.append(RecordedCall(call, name, arguments_of(written)))
        self.open = True

    def _output(self, item: Mapping[str, object]) -> None:
        answers, output = string(item, "call_id", "id"), item.get("output")
        if not answers:
            raise Unreadable("an output names no call")
        self._close()
        inner = mapping(output)
        text = text_of(inner.get("content") or inner.get("body")) if inner else text_of(output)
        self.made.append(RecordedMessage("tool", text, answers=answers, ok=inner.get("success") is not False))

    def _close(self) -> None:
        if self.open and (self.text or self.calls):
            self.made.append(RecordedMessage("assistant", self.text, tuple(self.calls), reasoning=self.reasoning))
        self.text, self.reasoning, self.calls, self.open = "", "", [], False
