"""Trajectories of harnesses: SWE-agent's `.traj`, Harbor's ATIF, and the event logs of Anthropic's managed agents.

SWE-agent: tried with its demonstrations' shape. ATIF and managed agents: written after their documentation and untried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.histories import openai_style
from helix_desktop.histories.recording import RecordedMessage, Recording, Speaker, reply
from helix_desktop.histories.rows import (
    Row,
    Told,
    Unreadable,
    arguments_of,
    cost,
    mapping,
    number,
    objects,
    pictures_of,
    string,
    text_of,
    time_of,
)

KIND = "trajectory"
_AGENT = ("agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use")
_RESULTS = {
    "agent.tool_result": "tool_use_id",
    "agent.mcp_tool_result": "mcp_tool_use_id",
    "user.custom_tool_result": "custom_tool_use_id",
}


def is_swe_agent(value: Mapping[str, object]) -> bool:
    return isinstance(value.get("trajectory"), list) and (
        "history" in value or "environment" in value or "info" in value
    )


def is_atif(value: Mapping[str, object]) -> bool:
    return (
        isinstance(value.get("steps"), list)
        and ("schema_version" in value or "session_id" in value)
        and "agent" in value
    )


def is_managed(value: Mapping[str, object]) -> bool:
    kind = value.get("type")
    return isinstance(kind, str) and kind.partition(".")[0] in ("agent", "session", "span") and "." in kind


def recordings(rows: Sequence[Row], told: Told, path: Path) -> list[Recording]:
    """The sessions of the rows, whichever of the three they are."""
    made: list[Recording] = []
    for number_, row in enumerate(row for row in rows if is_swe_agent(row.value) or is_atif(row.value)):
        read = _swe_agent if is_swe_agent(row.value) else _atif
        messages = tuple(_careful(read(row.value), told, row))
        name = str(path) if not number_ else f"{path}#{number_ + 1}"
        made.append(Recording(name, messages, KIND, string(row.value, "session_id") or path.stem))
    events = [row for row in rows if not (is_swe_agent(row.value) or is_atif(row.value))]
    if events and not made:
        made.append(Recording(str(path), tuple(_managed(events, told)), KIND, path.stem))
    return made


def _careful(found: Iterator[RecordedMessage], told: Told, row: Row) -> Iterator[RecordedMessage]:
    try:
        yield from found
    except Unreadable as error:
        told.complaints.append(f"{row.place}: {error}; what stands behind it was left out.")


# --- SWE-agent -------------------------------------------------------------------------------------------------------


def _swe_agent(value: Mapping[str, object]) -> Iterator[RecordedMessage]:
    """The history where there is one, with calls; else thought, action and observation of each step."""
    history = objects(value.get("history"))
    if any(one.get("tool_calls") for one in history):
        yield from openai_style.messages([Row(one, "history") for one in history], [])
        return
    yield from _before(history)
    for number_, step in enumerate(objects(value.get("trajectory"))):
        name, time = f"step-{number_}", 0.0
        action, thought = string(step, "action"), string(step, "thought")
        said = thought or string(step, "response").removesuffix(action).strip()
        calls = [ToolCall(name, "bash", arguments_of({"command": action}))] if action.strip() else []
        yield reply([Text(said), *calls], time=time)
        if calls:
            yield RecordedMessage("tool", text_of(step.get("observation")), answers=name)


def _before(history: Sequence[Mapping[str, object]]) -> Iterator[RecordedMessage]:
    """The system prompt, demonstrations and the task, which stand before the agent's first reply."""
    for one in history:
        if one.get("role") == "assistant" and not one.get("is_demo"):
            return
        speaker: Speaker = "system" if one.get("role") == "system" else "user"
        yield RecordedMessage(speaker, text_of(one.get("content")))


# --- ATIF ------------------------------------------------------------------------------------------------------------


def _atif(value: Mapping[str, object]) -> Iterator[RecordedMessage]:
    model = string(mapping(value.get("agent")), "model_name")
    for step in objects(value.get("steps")):
        time, source = time_of(step.get("timestamp")), step.get("source")
        message = step.get("message")
        if source == "agent":
            yield from _atif_reply(step, model, time)
        elif source in ("user", "system"):
            yield RecordedMessage("user" if source == "user" else "system", text_of(message), time=time)
        else:
            raise Unreadable(f"there is no source {source!r}")


def _atif_reply(step: Mapping[str, object], model: str, time: float) -> Iterator[RecordedMessage]:
    thought = string(step, "reasoning_content")
    parts: list[ReplyPart] = [Reasoning(thought)] if thought else []
    parts.append(Text(text_of(step.get("message"))))
    calls = objects(step.get("tool_calls"))
    for at, call in enumerate(calls):
        name = string(call, "tool_call_id") or f"step-{step.get('step_id')}-{at}"
        parts.append(ToolCall(name, string(call, "function_name") or "tool", arguments_of(call.get("arguments"))))
    yield reply(
        parts, model=string(step, "model_name") or model, time=time, usage=_metrics(mapping(step.get("metrics")))
    )
    waiting = [part.id for part in parts if isinstance(part, ToolCall)]
    for result in objects(mapping(step.get("observation")).get("results")):
        name = string(result, "source_call_id") or (waiting[0] if waiting else "")
        text = text_of(result.get("content"))
        if name in waiting:
            waiting.remove(name)
            yield RecordedMessage("tool", text, answers=name, time=time, pictures=pictures_of(result.get("content")))
        else:
            yield RecordedMessage("user", text, time=time, beside=True)


def _metrics(found: Mapping[str, object]) -> Usage:
    return Usage(
        number(found.get("prompt_tokens")),
        number(found.get("cached_tokens")),
        0,
        number(found.get("completion_tokens")),
        cost=cost(found.get("cost_usd")),
    )


# --- managed agents ---------------------------------------------------------------------------------------------------


def _managed(rows: Sequence[Row], told: Told) -> Iterator[RecordedMessage]:
    parts: list[ReplyPart] = []
    begun = 0.0
    for row in rows:
        value, kind = row.value, string(row.value, "type")
        time = time_of(value.get("processed_at", value.get("created_at")))
        part = _agent_part(value, kind)
        if part is not None:
            begun = begun if parts else time
            parts.append(part)
            continue
        if parts and (kind in _RESULTS or kind == "user.message"):
            yield reply(parts, time=begun)
            parts = []
        if kind in _RESULTS:
            answers, text = string(value, _RESULTS[kind], "tool_use_id"), text_of(value.get("content"))
            yield RecordedMessage("tool", text, answers=answers, ok=not value.get("is_error"), time=time)
        elif kind == "user.message":
            content = value.get("content")
            yield RecordedMessage("user", text_of(content), time=time, pictures=pictures_of(content))
        else:
            told.left_out[kind or "no type"] += 1
    if parts:
        yield reply(parts, time=begun)


def _agent_part(value: Mapping[str, object], kind: str) -> ReplyPart | None:
    if kind == "agent.message":
        return Text(text_of(value.get("content")))
    if kind == "agent.thinking":
        return Reasoning(text_of(value.get("content")))
    if kind in _AGENT:
        return ToolCall(
            string(value, "id") or "call", string(value, "name") or "tool", arguments_of(value.get("input"))
        )
    return None
