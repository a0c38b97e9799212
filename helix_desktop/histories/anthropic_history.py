"""Messages as Anthropic's API takes them: `{"role", "content": [blocks]}`, by themselves or as Cline keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall
from helix_desktop.histories import claude_code_history
from helix_desktop.histories.history_rows import (
    HistoryRow,
    ReadingComplaints,
    UnreadableRow,
    parse_time,
    pictures_in_content,
    text_of_message_content,
    usage_from_anthropic,
)
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession, build_recorded_reply
from helix_desktop.json_values import objects_at, text_at

KIND = "messages"
_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking")


def is_anthropic_message(value: Mapping[str, object]) -> bool:
    """Whether a message has blocks that only this form has."""
    if value.get("role") not in ("user", "assistant"):
        return False
    return any(block.get("type") in _BLOCKS for block in objects_at(value, "content"))


def read_anthropic_recordings(rows: Sequence[HistoryRow], told: ReadingComplaints, path: Path) -> list[RecordedSession]:
    return [RecordedSession(str(path), tuple(read_anthropic_messages(rows, told.complaints)), KIND, path.stem)]


def read_anthropic_messages(rows: Sequence[HistoryRow], complaints: list[str]) -> list[RecordedMessage]:
    """The messages of the rows."""
    made: list[RecordedMessage] = []
    for row in rows:
        try:
            made.extend(_read_anthropic_message(row.value))
        except UnreadableRow as error:
            complaints.append(row.complaint_about_row(error))
    return made


def _read_anthropic_message(value: Mapping[str, object]) -> list[RecordedMessage]:
    role, content = value.get("role"), value.get("content")
    time = parse_time(value.get("ts", value.get("timestamp")))
    if role == "assistant":
        model = text_at(value, "model")
        return [
            build_recorded_reply(
                _anthropic_reply_parts(content), model=model, time=time, usage=usage_from_anthropic(value.get("usage"))
            )
        ]
    if role == "system":
        return [RecordedMessage("system", text_of_message_content(content), time=time)]
    if role != "user":
        raise UnreadableRow(f"there is no role {role!r}")
    made = [_anthropic_result(block, time) for block in objects_at(content) if block.get("type") == "tool_result"]
    words = [block for block in objects_at(content) if block.get("type") != "tool_result"]
    pictures = pictures_in_content(words)
    texts = [block for block in words if block.get("type") not in ("image", "document")] if pictures else words
    text = text_of_message_content(texts) if isinstance(content, list) else text_of_message_content(content)
    if text.strip() or pictures:
        made.append(RecordedMessage("user", text, time=time, pictures=pictures))
    return made


def _anthropic_reply_parts(content: object) -> list[ReplyPart]:
    if not isinstance(content, list):
        return [Text(text_of_message_content(content))]
    return [_anthropic_reply_part(block) for block in objects_at(content)]


def _anthropic_reply_part(block: Mapping[str, object]) -> Text | Reasoning | ToolCall:
    kind = block.get("type")
    if kind in ("thinking", "redacted_thinking"):
        return Reasoning(claude_code_history.read_claude_thinking(block, "", "").text)
    if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        return claude_code_history.read_claude_call(block)
    return Text(text_of_message_content([block]))


def _anthropic_result(block: Mapping[str, object], time: float) -> RecordedMessage:
    answers, content = text_at(block, "tool_use_id"), block.get("content")
    if not answers:
        raise UnreadableRow("a tool result names no call")
    pictures = pictures_in_content(content)
    text = text_of_message_content(
        [part for part in objects_at(content) if part.get("type") != "image"] if pictures else content
    )
    return RecordedMessage("tool", text, answers=answers, ok=not block.get("is_error"), time=time, pictures=pictures)
