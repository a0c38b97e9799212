"""Trajectories of harnesses: SWE-agent's `.traj`, Harbor's ATIF, and the event logs of
Anthropic's managed agents.

Tested with SWE-agent's demonstrations. ATIF and managed agents: written from
documentation, not tested with real files.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.histories.history_format import HistoryFormat
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
    build_recorded_reply,
)
from helix_desktop.json_values import first_text, number_at, object_at, objects_at, text_at
from helix_desktop.resources import read_table

KIND = "trajectory"
_AGENT = ("agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use")
_RESULTS = read_table("history_words")["managed_results"]


def is_swe_agent_trajectory(value: Mapping[str, object]) -> bool:
    if not isinstance(value.get("trajectory"), list):
        return False
    return not value.keys().isdisjoint(("history", "environment", "info"))


def is_atif_trajectory(value: Mapping[str, object]) -> bool:
    is_named = "schema_version" in value or "session_id" in value
    return isinstance(value.get("steps"), list) and is_named and "agent" in value


def is_whole_trajectory(value: Mapping[str, object]) -> bool:
    """Whether a row is a session of SWE-agent or in the ATIF format."""
    return is_swe_agent_trajectory(value) or is_atif_trajectory(value)


def is_managed_agent_log(value: Mapping[str, object]) -> bool:
    kind = value.get("type")
    return isinstance(kind, str) and kind.startswith(("agent.", "session.", "span."))


def read_trajectory_recordings(
    rows: Sequence[HistoryRow], report: ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return the rows' sessions, in any of the three forms."""
    sessions: list[RecordedSession] = []
    events: list[HistoryRow] = []
    for row in rows:
        if is_swe_agent_trajectory(row.value):
            messages = _read_swe_agent(row.value)
        elif is_atif_trajectory(row.value):
            messages = _read_atif(row.value)
        else:
            events.append(row)
            continue
        name = str(path)
        if sessions:
            name += f"#{len(sessions) + 1}"
        readable = tuple(_messages_until_unreadable(messages, report, row))
        session_id = text_at(row.value, "session_id") or path.stem
        sessions.append(RecordedSession(name, readable, KIND, session_id))
    if events and not sessions:
        read_events = tuple(_read_managed_agent_events(events, report))
        sessions.append(RecordedSession(str(path), read_events, KIND, path.stem))
    return sessions


def _messages_until_unreadable(
    messages: Iterator[RecordedMessage], report: ReadingReport, row: HistoryRow
) -> Iterator[RecordedMessage]:
    """Yield the messages before the first that cannot be read, which is reported."""
    try:
        yield from messages
    except UnreadableRow as error:
        report.complaints.append(f"{row.place}: {error}; what stands behind it was left out.")


# --- Trajectories of SWE-agent


def _read_swe_agent(value: Mapping[str, object]) -> Iterator[RecordedMessage]:
    """Read the history with its calls, or else each step's thought, action and observation."""
    history = objects_at(value, "history")
    messages_with_calls = [message for message in history if message.get("tool_calls")]
    if messages_with_calls:
        rows = [HistoryRow(message, "history") for message in history]
        yield from OpenaiMessages(ReadingReport()).read_rows(rows).messages
        return
    # The system prompt, demonstrations and task before the agent's first reply.
    for message in history:
        role = message.get("role")
        if role == "assistant" and not message.get("is_demo"):
            break
        text = text_of_message_content(message.get("content"))
        if role == "system":
            yield RecordedMessage("system", text)
        else:
            yield RecordedMessage("user", text)
    for number, step in enumerate(objects_at(value, "trajectory")):
        yield from _read_swe_agent_step(step, f"step-{number}")


def _read_swe_agent_step(step: Mapping[str, object], name: str) -> Iterator[RecordedMessage]:
    """Yield a step's reply and, if it acted, the result. Its action is a command line."""
    action = text_at(step, "action")
    spoken_text = text_at(step, "thought")
    if not spoken_text:
        spoken_text = text_at(step, "response").removesuffix(action).strip()
    if not action.strip():
        yield build_recorded_reply([Text(spoken_text)])
        return
    call = ToolCall(name, "bash", format_arguments({"command": action}))
    yield build_recorded_reply([Text(spoken_text), call])
    observation = text_of_message_content(step.get("observation"))
    yield RecordedMessage("tool", observation, answers=name)


# --- Trajectories in the ATIF format


def _read_atif(value: Mapping[str, object]) -> Iterator[RecordedMessage]:
    """Yield the messages of each step, and the results behind a step of the agent."""
    model = text_at(value, "agent", "model_name")
    for step in objects_at(value, "steps"):
        time = parse_time(step.get("timestamp"))
        source = step.get("source")
        if source == "agent":
            yield _read_atif_reply(step, model, time)
            yield from _read_atif_results(step, time)
        elif source in ("user", "system"):
            text = text_of_message_content(step.get("message"))
            yield RecordedMessage(source, text, time=time)
        else:
            raise UnreadableRow(f"there is no source {source!r}")


def _read_atif_reply(step: Mapping[str, object], model: str, time: float) -> RecordedMessage:
    """Return an agent's step as a reply: reasoning, text, calls and usage, in this order.

    `model` is named if the step names none itself.
    """
    parts: list[ReplyPart] = []
    thought = text_at(step, "reasoning_content")
    if thought:
        parts.append(Reasoning(thought))
    text = text_of_message_content(step.get("message"))
    parts.append(Text(text))
    calls = objects_at(step, "tool_calls")
    call_ids = _ids_of_atif_calls(step)
    for call, call_id in zip(calls, call_ids, strict=True):
        tool = text_at(call, "function_name") or "tool"
        arguments = format_arguments(call.get("arguments"))
        parts.append(ToolCall(call_id, tool, arguments))
    metrics = object_at(step, "metrics")
    input_tokens = number_at(metrics, "prompt_tokens")
    cached_tokens = number_at(metrics, "cached_tokens")
    output_tokens = number_at(metrics, "completion_tokens")
    cost = cost_or_zero(metrics.get("cost_usd"))
    usage = Usage(input_tokens, cache_read=cached_tokens, output=output_tokens, cost=cost)
    own_model = text_at(step, "model_name") or model
    return build_recorded_reply(parts, model=own_model, time=time, usage=usage)


def _ids_of_atif_calls(step: Mapping[str, object]) -> list[str]:
    call_ids: list[str] = []
    for number, call in enumerate(objects_at(step, "tool_calls")):
        call_id = text_at(call, "tool_call_id")
        if not call_id:
            call_id = f"step-{step.get('step_id')}-{number}"
        call_ids.append(call_id)
    return call_ids


def _read_atif_results(step: Mapping[str, object], time: float) -> Iterator[RecordedMessage]:
    """Yield the results of a step's calls. One that names no call is of the next one in order."""
    unanswered_ids = _ids_of_atif_calls(step)
    for result in objects_at(step, "observation", "results"):
        call_id = text_at(result, "source_call_id")
        if not call_id and unanswered_ids:
            call_id = unanswered_ids[0]
        text = text_of_message_content(result.get("content"))
        if call_id not in unanswered_ids:
            yield RecordedMessage("user", text, time=time, beside=True)
            continue
        unanswered_ids.remove(call_id)
        pictures = pictures_in_content(result.get("content"))
        yield RecordedMessage("tool", text, answers=call_id, time=time, pictures=pictures)


# --- Events of Anthropic's managed agents


def _read_managed_agent_events(
    rows: Sequence[HistoryRow], report: ReadingReport
) -> Iterator[RecordedMessage]:
    """Yield messages. What the agent does between two inputs is one reply."""
    parts: list[ReplyPart] = []
    start_time = 0.0
    for row in rows:
        value = row.value
        kind = text_at(value, "type")
        time = parse_time(value.get("processed_at", value.get("created_at")))
        part = _managed_agent_part(value, kind)
        if part is not None:
            if not parts:
                start_time = time
            parts.append(part)
            continue
        if parts and (kind in _RESULTS or kind == "user.message"):
            yield build_recorded_reply(parts, time=start_time)
            parts = []
        if kind in _RESULTS:
            call_id = first_text(value, _RESULTS[kind], "tool_use_id")
            text = text_of_message_content(value.get("content"))
            is_ok = not value.get("is_error")
            yield RecordedMessage("tool", text, answers=call_id, ok=is_ok, time=time)
        elif kind == "user.message":
            text = text_of_message_content(value.get("content"))
            pictures = pictures_in_content(value.get("content"))
            yield RecordedMessage("user", text, time=time, pictures=pictures)
        else:
            report.add_left_out_row(kind or "no type")
    if parts:
        yield build_recorded_reply(parts, time=start_time)


def _managed_agent_part(value: Mapping[str, object], kind: str) -> ReplyPart | None:
    """Return what an event adds to the agent's reply, or None for an event of another kind."""
    if kind == "agent.message":
        text = text_of_message_content(value.get("content"))
        return Text(text)
    if kind == "agent.thinking":
        thought = text_of_message_content(value.get("content"))
        return Reasoning(thought)
    if kind in _AGENT:
        call_id = text_at(value, "id") or "call"
        tool = text_at(value, "name") or "tool"
        arguments = format_arguments(value.get("input"))
        return ToolCall(call_id, tool, arguments)
    return None


def is_trajectory_row(value: Mapping[str, object]) -> bool:
    return is_whole_trajectory(value) or is_managed_agent_log(value)


FORMAT = HistoryFormat(KIND, recognizes=is_trajectory_row, read=read_trajectory_recordings)
