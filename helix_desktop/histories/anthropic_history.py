"""Reads messages in the format of Anthropic's API: in their own files, and as Cline stores them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart
from helix_desktop.histories import claude_code_history, history_rows
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
    return any(block.get("type") in _BLOCKS for block in objects_at(value, "content"))


def read_anthropic_recordings(
    rows: Sequence[history_rows.HistoryRow], report: history_rows.ReadingReport, path: Path
) -> list[RecordedSession]:
    return [
        RecordedSession(
            str(path), tuple(AnthropicMessages(report).read_rows(rows).messages), KIND, path.stem
        )
    ]


class AnthropicMessages(history_rows.HistoryMessages):
    def read_row(self, value: Mapping[str, object]) -> None:
        role, content = value.get("role"), value.get("content")
        time = history_rows.parse_time(value.get("ts", value.get("timestamp")))
        if role == "assistant":
            model, usage = (
                text_at(value, "model"),
                anthropic_gateway.parse_usage(object_at(value, "usage")),
            )
            parts = _unsigned_reply_parts(content)
            self.messages.append(build_recorded_reply(parts, model=model, time=time, usage=usage))
        elif role == "system":
            self.messages.append(
                RecordedMessage("system", history_rows.text_of_message_content(content), time=time)
            )
        elif role == "user":
            results = [block for block in objects_at(content) if block.get("type") == "tool_result"]
            self.messages += [
                history_rows.read_tool_result(one, time, "tool_use_id", "is_error")
                for one in results
            ]
            words = [block for block in objects_at(content) if block.get("type") != "tool_result"]
            self.add_user_message(words if isinstance(content, list) else content, time)
        else:
            raise history_rows.UnknownRow(f"there is no role {role!r}")


def _unsigned_reply_parts(content: object) -> list[ReplyPart]:
    """Return a reply's parts without signatures, as nobody knows which provider could read them."""
    parts = claude_code_history.read_claude_reply_parts(content, "")
    return [Reasoning(part.text) if isinstance(part, Reasoning) else part for part in parts]
