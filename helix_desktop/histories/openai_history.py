"""Reads OpenAI's chat completions, as in traces: `{"role", "content", "tool_calls"?,
"tool_call_id"?, "name"?}`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from helix_desktop.engine.facts import ToolCall
from helix_desktop.histories import history_rows
from helix_desktop.histories.history_format import HistoryFormat
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession, Speaker
from helix_desktop.json_values import first_text, object_at, text_at
from helix_desktop.protocols.openai_chat import chat_gateway
from helix_desktop.resources import read_table

KIND = "messages"
_ROLES: Mapping[str, Speaker] = read_table("history_words")["roles"]


def messages_in_object(value: Mapping[str, object]) -> Sequence[Mapping[str, object]] | None:
    """Return an object's list of messages (in a request or a fine-tuning example), or None."""
    if "role" in value:
        return None
    for name in ("messages", "input", "conversation", "history"):
        items = value.get(name)
        if not isinstance(items, list) or not items:
            continue
        messages: list[Mapping[str, object]] = []
        for item in items:
            if isinstance(item, Mapping):
                messages.append(item)
            else:  # It is reported as a message without a role.
                messages.append({"role": None})
        return messages
    return None


def read_openai_recordings(
    rows: Sequence[history_rows.HistoryRow], report: history_rows.ReadingReport, path: Path
) -> list[RecordedSession]:
    rows_with_role = [row for row in rows if "role" in row.value]
    if rows and not rows_with_role:
        report.complaints.append(f"{path}: no line of it is a message: none has a role.")
        return []
    messages = OpenaiMessages(report).read_rows(rows).messages
    return [RecordedSession(str(path), tuple(messages), KIND, path.stem)]


class OpenaiMessages(history_rows.HistoryMessages):
    def read_row(self, value: Mapping[str, object]) -> None:
        self.messages.append(_read_openai_message(value, self.messages))


def _read_openai_message(
    value: Mapping[str, object], earlier_messages: Sequence[RecordedMessage]
) -> RecordedMessage:
    """Return a message. `earlier_messages`: those before it, of which a result may
    answer a call.
    """
    named_role = value.get("role")
    role = _ROLES.get(str(named_role))
    if role is None:
        raise history_rows.UnknownRow(f"there is no role {named_role!r}")
    written_time = value.get("_ts", value.get("timestamp"))
    time = history_rows.parse_time(written_time)
    text, pictures = history_rows.text_and_pictures(value.get("content"))
    if role == "assistant":
        calls = _openai_calls(value, message_number=len(earlier_messages))
        reasoning = first_text(value, "reasoning_content", "reasoning")
        model = text_at(value, "model")
        usage = chat_gateway.parse_usage(object_at(value, "usage"))
        return RecordedMessage(
            role,
            text,
            calls,
            reasoning=reasoning,
            time=time,
            model=model,
            usage=usage,
        )
    if role == "tool":
        call_id = text_at(value, "tool_call_id")
        if not call_id:
            call_id = _find_answered_call(value, earlier_messages)
        return RecordedMessage(role, text, answers=call_id, time=time, pictures=pictures)
    return RecordedMessage(role, text, time=time, pictures=pictures)


def _openai_calls(message: Mapping[str, object], message_number: int) -> tuple[ToolCall, ...]:
    """Return the calls in a reply. Those without an id get one from their place."""
    entries = message.get("tool_calls") or []
    if not isinstance(entries, list):
        raise history_rows.UnreadableRow("its tool_calls are not a list")
    # Before there were several calls in a message, it had one in this field.
    function_call = message.get("function_call")
    if isinstance(function_call, Mapping):
        entries = entries + [{"function": function_call}]
    calls: list[ToolCall] = []
    for index, entry in enumerate(entries):
        call = object_at(entry)
        function = object_at(call, "function") or object_at(call, "custom")
        name = text_at(function, "name")
        if not name:
            raise history_rows.UnreadableRow(f"its call {index + 1} has no name")
        call_id = text_at(call, "id") or f"call-{message_number}-{index}"
        arguments = history_rows.format_arguments(function.get("arguments", function.get("input")))
        calls.append(ToolCall(call_id, name, arguments))
    return tuple(calls)


def _find_answered_call(
    result: Mapping[str, object], earlier_messages: Sequence[RecordedMessage]
) -> str:
    """Return the id of the last call of the named tool: old function results have only a name."""
    name = text_at(result, "name")
    for message in reversed(earlier_messages):
        for call in message.calls:
            if not name or call.name == name:
                return call.id
    raise history_rows.UnreadableRow("it answers no call: there is no tool_call_id")


def _is_any_row(_value: Mapping[str, object]) -> bool:
    """Messages in this form have no sign of their own: a row that no other format knows is one."""
    return True


FORMAT = HistoryFormat("openai", recognizes=_is_any_row, read=read_openai_recordings)
