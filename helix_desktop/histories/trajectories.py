"""Trajectories of harnesses: SWE-agent's `.traj`, Harbor's ATIF, and the event logs of
Anthropic's managed agents.

Tested with SWE-agent's demonstrations. ATIF and managed agents: written from
documentation, not tested with real files.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.histories.history_rows import (
    HistoryRow,
    ReadingReport,
    UnreadableRow,
    cost_or_zero,
    format_arguments,
    parse_time,
    pictures_in_content,
    text_of_message_content,
)
from helix_desktop.histories.openai_history import OpenaiMessages
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedSession,
    Speaker,
    build_recorded_reply,
)
from helix_desktop.json_values import first_text, number_at, object_at, objects_at, text_at
from helix_desktop.resources import read_table

KIND = "trajectory"
_AGENT = ("agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use")
_RESULTS = read_table("history_words")["managed_results"]


def is_swe_agent_trajectory(value: Mapping[str, object]) -> bool:
    return isinstance(value.get("trajectory"), list) and not value.keys().isdisjoint(
        ("history", "environment", "info")
    )


def is_atif_trajectory(value: Mapping[str, object]) -> bool:
    is_named = "schema_version" in value or "session_id" in value
    return isinstance(value.get("steps"), list) and is_named and "agent" in value


def is_whole_trajectory(value: Mapping[str, object]) -> bool:
    """Whether a row is a session of SWE-agent or in the ATIF format."""
    return is_swe_agent_trajectory(value) or is_atif_trajectory(value)


def is_managed_agent_log(value: Mapping[str, object]) -> bool:
    kind = value.get("type")
    return (
        isinstance(kind, str)
        and kind.partition(".")[0] in ("agent", "session", "span")
        and "." in kind
    )


def read_trajectory_recordings(
    rows: Sequence[HistoryRow], report: ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return the rows' sessions, in any of the three forms."""
    made: list[RecordedSession] = []
    for number_, row in enumerate(row for row in rows if is_whole_trajectory(row.value)):
        read = _read_swe_agent if is_swe_agent_trajectory(row.value) else _read_atif
        messages = tuple(_messages_until_unreadable(read(row.value), report, row))
        name = str(path) if not number_ else f"{path}#{number_ + 1}"
        made.append(
            RecordedSession(name, messages, KIND, text_at(row.value, "session_id") or path.stem)
        )
    events = [row for row in rows if not is_whole_trajectory(row.value)]
    if events and not made:
        made.append(
            RecordedSession(
                str(path), tuple(_read_managed_agent_events(events, report)), KIND, path.stem
            )
        )
    return made


def _messages_until_unreadable(
    found: Iterator[RecordedMessage], report: ReadingReport, row: HistoryRow
) -> Iterator[RecordedMessage]:
    try:
        yield from found
    except UnreadableRow as error:
        report.complaints.append(f"{row.place}: {error}; what stands behind it was left out.")


# --- Trajectories of SWE-agent


def _read_swe_agent(value: Mapping[str, object]) -> Iterator[RecordedMessage]:
    """Read the history with its calls, or else each step's thought, action and observation."""
    history = objects_at(value, "history")
    if any(one.get("tool_calls") for one in history):
        yield from (
            OpenaiMessages(ReadingReport())
            .read_rows(HistoryRow(one, "history") for one in history)
            .made
        )
        return
    for (
        one
    ) in history:  # The system prompt, demonstrations and task before the agent's first reply.
        if one.get("role") == "assistant" and not one.get("is_demo"):
            break
        speaker: Speaker = "system" if one.get("role") == "system" else "user"
        yield RecordedMessage(speaker, text_of_message_content(one.get("content")))
    for number_, step in enumerate(objects_at(value, "trajectory")):
        name = f"step-{number_}"
        action, thought = text_at(step, "action"), text_at(step, "thought")
        said = thought or text_at(step, "response").removesuffix(action).strip()
        calls = (
            [ToolCall(name, "bash", format_arguments({"command": action}))]
            if action.strip()
            else []
        )
        yield build_recorded_reply([Text(said), *calls])
        if calls:
            yield RecordedMessage(
                "tool", text_of_message_content(step.get("observation")), answers=name
            )


# --- Trajectories in the ATIF format


def _read_atif(value: Mapping[str, object]) -> Iterator[RecordedMessage]:
    model = text_at(value, "agent", "model_name")
    for step in objects_at(value, "steps"):
        time, source = parse_time(step.get("timestamp")), step.get("source")
        message = step.get("message")
        if source == "agent":
            yield from _read_atif_reply(step, model, time)
        elif source in ("user", "system"):
            yield RecordedMessage(
                "user" if source == "user" else "system",
                text_of_message_content(message),
                time=time,
            )
        else:
            raise UnreadableRow(f"there is no source {source!r}")


def _read_atif_reply(
    step: Mapping[str, object], model: str, time: float
) -> Iterator[RecordedMessage]:
    thought = text_at(step, "reasoning_content")
    parts: list[ReplyPart] = [Reasoning(thought)] if thought else []
    parts.append(Text(text_of_message_content(step.get("message"))))
    calls = objects_at(step, "tool_calls")
    for at, call in enumerate(calls):
        name = text_at(call, "tool_call_id") or f"step-{step.get('step_id')}-{at}"
        parts.append(
            ToolCall(
                name,
                text_at(call, "function_name") or "tool",
                format_arguments(call.get("arguments")),
            )
        )
    metrics = object_at(step, "metrics")
    sent, read, written = (
        number_at(metrics, name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")
    )
    usage = Usage(sent, read, 0, written, cost=cost_or_zero(metrics.get("cost_usd")))
    yield build_recorded_reply(
        parts, model=text_at(step, "model_name") or model, time=time, usage=usage
    )
    waiting = [part.id for part in parts if isinstance(part, ToolCall)]
    for result in objects_at(step, "observation", "results"):
        name = text_at(result, "source_call_id") or (waiting[0] if waiting else "")
        text, pictures = (
            text_of_message_content(result.get("content")),
            pictures_in_content(result.get("content")),
        )
        if name in waiting:
            waiting.remove(name)
            yield RecordedMessage("tool", text, answers=name, time=time, pictures=pictures)
        else:
            yield RecordedMessage("user", text, time=time, beside=True)


# --- Events of Anthropic's managed agents


def _read_managed_agent_events(
    rows: Sequence[HistoryRow], report: ReadingReport
) -> Iterator[RecordedMessage]:
    parts: list[ReplyPart] = []
    begun = 0.0
    for row in rows:
        value, kind = row.value, text_at(row.value, "type")
        time = parse_time(value.get("processed_at", value.get("created_at")))
        if (part := _managed_agent_part(value, kind)) is not None:
            begun = begun if parts else time
            parts.append(part)
            continue
        if parts and (kind in _RESULTS or kind == "user.message"):
            yield build_recorded_reply(parts, time=begun)
            parts = []
        if kind in _RESULTS:
            answers = first_text(value, _RESULTS[kind], "tool_use_id")
            text = text_of_message_content(value.get("content"))
            yield RecordedMessage(
                "tool", text, answers=answers, ok=not value.get("is_error"), time=time
            )
        elif kind == "user.message":
            content = value.get("content")
            yield RecordedMessage(
                "user",
                text_of_message_content(content),
                time=time,
                pictures=pictures_in_content(content),
            )
        else:
            report.add_left_out_row(kind or "no type")
    if parts:
        yield build_recorded_reply(parts, time=begun)


def _managed_agent_part(value: Mapping[str, object], kind: str) -> ReplyPart | None:
    if kind == "agent.message":
        return Text(text_of_message_content(value.get("content")))
    if kind == "agent.thinking":
        return Reasoning(text_of_message_content(value.get("content")))
    if kind in _AGENT:
        return ToolCall(
            text_at(value, "id") or "call",
            text_at(value, "name") or "tool",
            format_arguments(value.get("input")),
        )
    return None
