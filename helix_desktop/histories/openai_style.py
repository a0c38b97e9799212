"""OpenAI's chat completions, the form of the traces: `{"role", "content", "tool_calls"?, "tool_call_id"?, "name"?}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from helix_desktop.engine.facts import Usage
from helix_desktop.histories.recording import RecordedCall, RecordedMessage, Recording, Speaker
from helix_desktop.histories.rows import (
    Row,
    Told,
    Unreadable,
    arguments_of,
    mapping,
    number,
    objects,
    pictures_of,
    string,
    text_of,
    time_of,
)

KIND = "messages"
_ROLES: Mapping[str, Speaker] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


def listed(value: Mapping[str, object]) -> Sequence[Mapping[str, object]] | None:
    """The messages of an object that holds a list of them (a request, a fine-tuning example); None for any other."""
    for name in ("messages", "input", "conversation", "history"):
        found = value.get(name)
        if isinstance(found, list) and found and "role" not in value:
            return [item if isinstance(item, Mapping) else {"role": None} for item in found]
    return None


def recordings(rows: Sequence[Row], told: Told, path: Path) -> list[Recording]:
    if rows and not any("role" in row.value for row in rows):
        told.complaints.append(f"{path}: no line of it is a message: none has a role.")
        return []
    return [Recording(str(path), tuple(messages(rows, told.complaints)), KIND, path.stem)]


def messages(rows: Sequence[Row], complaints: list[str]) -> list[RecordedMessage]:
    """The messages of the rows; a sentence for each that cannot be read."""
    made: list[RecordedMessage] = []
    for row in rows:
        try:
            made.append(_message(row.value, len(made), made))
        except Unreadable as error:
            complaints.append(row.complaint(error))
    return made


def _message(value: Mapping[str, object], place: int, before: Sequence[RecordedMessage]) -> RecordedMessage:
    role = _ROLES.get(str(value.get("role")))
    if role is None:
        raise Unreadable(f"there is no role {value.get('role')!r}")
    content, time = value.get("content"), time_of(value.get("_ts", value.get("timestamp")))
    pictures = pictures_of(content)
    text = text_of([part for part in objects(content) if part.get("type") != "image_url"] if pictures else content)
    if role == "assistant":
        reasoning, model = string(value, "reasoning_content", "reasoning"), string(value, "model")
        calls, usage = _calls(value, place), _usage(mapping(value.get("usage")))
        return RecordedMessage(role, text, calls, reasoning=reasoning, time=time, model=model, usage=usage)
    if role == "tool":
        answers = string(value, "tool_call_id") or _last_call(value, before)
        return RecordedMessage(role, text, answers=answers, time=time, pictures=pictures)
    return RecordedMessage(role, text, time=time, pictures=pictures)


def _usage(found: Mapping[str, object]) -> Usage:
    cached = number(mapping(found.get("prompt_tokens_details")).get("cached_tokens"))
    return Usage(number(found.get("prompt_tokens")), cached, 0, number(found.get("completion_tokens")))


def _calls(value: Mapping[str, object], number: int) -> tuple[RecordedCall, ...]:
    raw = value.get("tool_calls") or []
    if not isinstance(raw, list):
        raise Unreadable("its tool_calls are not a list")
    legacy = value.get("function_call")
    entries = [*raw, {"function": legacy}] if isinstance(legacy, Mapping) else raw
    made = []
    for index, entry in enumerate(entries):
        call = mapping(entry)
        function = mapping(call.get("function")) or mapping(call.get("custom"))
        name = string(function, "name")
        if not name:
            raise Unreadable(f"its call {index + 1} has no name")
        arguments = arguments_of(function.get("arguments", function.get("input")))
        made.append(RecordedCall(string(call, "id") or f"call-{number}-{index}", name, arguments))
    return tuple(made)


def _last_call(value: Mapping[str, object], before: Sequence[RecordedMessage]) -> str:
    """Old function results name the function alone: the last call of that name is meant."""
    name = string(value, "name")
    for message in reversed(before):
        for call in message.calls:
            if not name or call.name == name:
                return call.id
    raise Unreadable("it answers no call: there is no tool_call_id")
