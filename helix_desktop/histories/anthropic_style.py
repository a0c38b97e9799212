"""Messages as Anthropic's API takes them: `{"role", "content": [blocks]}`, by themselves or as Cline keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall
from helix_desktop.histories import claude_code
from helix_desktop.histories.recording import RecordedMessage, Recording, reply
from helix_desktop.histories.rows import (
    Row,
    Told,
    Unreadable,
    anthropic_usage,
    objects,
    pictures_of,
    string,
    text_of,
    time_of,
)

KIND = "messages"
_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking")


def is_one(value: Mapping[str, object]) -> bool:
    """Whether a message has blocks that only this form has."""
    if value.get("role") not in ("user", "assistant"):
        return False
    return any(block.get("type") in _BLOCKS for block in objects(value.get("content")))


def recordings(rows: Sequence[Row], told: Told, path: Path) -> list[Recording]:
    return [Recording(str(path), tuple(messages(rows, told.complaints)), KIND, path.stem)]


def messages(rows: Sequence[Row], complaints: list[str]) -> list[RecordedMessage]:
    """The messages of the rows."""
    made: list[RecordedMessage] = []
    for row in rows:
        try:
            made.extend(_read(row.value))
        except Unreadable as error:
            complaints.append(row.complaint(error))
    return made


def _read(value: Mapping[str, object]) -> list[RecordedMessage]:
    role, content = value.get("role"), value.get("content")
    time = time_of(value.get("ts", value.get("timestamp")))
    if role == "assistant":
        model = string(value, "model")
        return [reply(_parts(content), model=model, time=time, usage=anthropic_usage(value.get("usage")))]
    if role == "system":
        return [RecordedMessage("system", text_of(content), time=time)]
    if role != "user":
        raise Unreadable(f"there is no role {role!r}")
    made = [_result(block, time) for block in objects(content) if block.get("type") == "tool_result"]
    words = [block for block in objects(content) if block.get("type") != "tool_result"]
    pictures = pictures_of(words)
    texts = [block for block in words if block.get("type") not in ("image", "document")] if pictures else words
    text = text_of(texts) if isinstance(content, list) else text_of(content)
    if text.strip() or pictures:
        made.append(RecordedMessage("user", text, time=time, pictures=pictures))
    return made


def _parts(content: object) -> list[ReplyPart]:
    if not isinstance(content, list):
        return [Text(text_of(content))]
    return [_part(block) for block in objects(content)]


def _part(block: Mapping[str, object]) -> Text | Reasoning | ToolCall:
    kind = block.get("type")
    if kind in ("thinking", "redacted_thinking"):
        return Reasoning(claude_code.thought(block, "", "").text)
    if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        return claude_code.call(block)
    return Text(text_of([block]))


def _result(block: Mapping[str, object], time: float) -> RecordedMessage:
    answers, content = string(block, "tool_use_id"), block.get("content")
    if not answers:
        raise Unreadable("a tool result names no call")
    pictures = pictures_of(content)
    text = text_of([part for part in objects(content) if part.get("type") != "image"] if pictures else content)
    return RecordedMessage("tool", text, answers=answers, ok=not block.get("is_error"), time=time, pictures=pictures)
