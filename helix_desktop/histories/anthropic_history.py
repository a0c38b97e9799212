"""Reads messages in the format of Anthropic's API: in their own files, and as Cline stores them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart
from helix_desktop.histories import claude_code_history, history_rows
from helix_desktop.histories.history_format import HistoryFormat
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedSession,
    build_recorded_reply,
)
from helix_desktop.json_values import object_at, objects_at, text_at
from helix_desktop.protocols.anthropic import anthropic_gateway

KIND = "messages"
_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking")


def is_anthropic_message(value: Mapping[str, object]) -> bool:
    """Whether a message has blocks that occur only in this format."""
    if value.get("role") not in ("user", "assistant"):
        return False
    for block in objects_at(value, "content"):
        if block.get("type") in _BLOCKS:
            return True
    return False


def read_anthropic_recordings(
    rows: Sequence[history_rows.HistoryRow], report: history_rows.ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return the one session of a file. Each row is a message."""
    messages = AnthropicMessages(report).read_rows(rows).messages
    return [RecordedSession(str(path), tuple(messages), KIND, path.stem)]


class AnthropicMessages(history_rows.HistoryMessages):
    def read_row(self, value: Mapping[str, object]) -> None:
        """Add a message of the row's role."""
        role = value.get("role")
        content = value.get("content")
        time = history_rows.parse_time(value.get("ts", value.get("timestamp")))
        if role == "assistant":
            model = text_at(value, "model")
            usage = anthropic_gateway.parse_usage(object_at(value, "usage"))
            parts = _unsigned_reply_parts(content)
            reply = build_recorded_reply(parts, model=model, time=time, usage=usage)
            self.messages.append(reply)
        elif role == "system":
            text = history_rows.text_of_message_content(content)
            message = RecordedMessage("system", text, time=time)
            self.messages.append(message)
        elif role == "user":
            self._read_results_and_words(content, time)
        else:
            raise history_rows.UnknownRow(f"there is no role {role!r}")

    def _read_results_and_words(self, content: object, time: float) -> None:
        """Add the results in a message of the user, and then what the user says in it."""
        if not isinstance(content, list):
            self.add_user_message(content, time)
            return
        other_blocks: list[Mapping[str, object]] = []
        for block in objects_at(content):
            if block.get("type") == "tool_result":
                result = history_rows.read_tool_result(block, time, "tool_use_id", "is_error")
                self.messages.append(result)
            else:
                other_blocks.append(block)
        self.add_user_message(other_blocks, time)


def _unsigned_reply_parts(content: object) -> list[ReplyPart]:
    """Return a reply's parts without signatures, as nobody knows which provider could read them."""
    unsigned_parts: list[ReplyPart] = []
    for part in claude_code_history.read_claude_reply_parts(content, ""):
        if isinstance(part, Reasoning):
            unsigned_parts.append(Reasoning(part.text))
        else:
            unsigned_parts.append(part)
    return unsigned_parts


FORMAT = HistoryFormat("anthropic", recognizes=is_anthropic_message, read=read_anthropic_recordings)
