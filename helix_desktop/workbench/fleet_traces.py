"""What a run of a task looks like to an operator: spans for the run, its requests and
its tool calls, computed from the facts that its journal recorded.

The names and attributes are those of OpenTelemetry's conventions for generative AI. No
text of the conversation is among them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from helix_desktop.engine.facts import (
    Folded,
    ModelReplied,
    Recorded,
    Spent,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Usage,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.fleet_tasks import FleetTask

Attributes = Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class TraceEvent:
    name: str
    time: float
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """`begin` and `end`: seconds since 1970. `error`: what failed, or empty."""

    name: str
    begin: float
    end: float
    attributes: Attributes
    error: str = ""
    events: tuple[TraceEvent, ...] = ()
    children: tuple["TraceSpan", ...] = field(default=())


def trace_run(task: FleetTask, recorded: Sequence[Recorded]) -> TraceSpan | None:
    """Return the span of a run from the facts that it recorded, or None without any."""
    if not recorded:
        return None
    children = _trace_requests(recorded)
    children.extend(_trace_calls(recorded))
    children.sort(key=lambda span: span.begin)
    # The first fact is recorded when the first request has ended, so that may have begun before.
    begin = recorded[0].time
    if children:
        begin = min(begin, children[0].begin)
    agent_name = task.order.agent or "agent"
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent_name,
        "gen_ai.conversation.id": task.id,
        "helix.task.claims": task.claims,
        "helix.task.worker": task.worker,
    }
    attributes.update(_sum_usage(recorded))
    error = _describe_error_of_run(recorded)
    events = _list_fold_events(recorded)
    return TraceSpan(
        name="invoke_agent",
        begin=begin,
        end=recorded[-1].time,
        attributes=attributes,
        error=error,
        events=tuple(events),
        children=tuple(children),
    )


def _trace_requests(recorded: Sequence[Recorded]) -> list[TraceSpan]:
    spans: list[TraceSpan] = []
    for entry in recorded:
        if isinstance(entry.fact, ModelReplied):
            provider, _, model = entry.fact.model.partition("/")
            attributes = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": provider,
                "gen_ai.request.model": model or provider,
                **_usage_attributes(entry.fact.usage),
            }
            # A reply is recorded once it is complete.
            begin = entry.time - entry.fact.seconds
            spans.append(TraceSpan("chat", begin, entry.time, attributes))
    return spans


def _trace_calls(recorded: Sequence[Recorded]) -> list[TraceSpan]:
    spans: list[TraceSpan] = []
    tool_by_call: dict[str, str] = {}
    for entry in recorded:
        fact = entry.fact
        # What a tool returned names only its call, which a reply before it contains.
        if isinstance(fact, ModelReplied):
            for part in fact.parts:
                if isinstance(part, ToolCall):
                    tool_by_call[part.id] = part.name
        if not isinstance(fact, ToolReturned):
            continue
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool_by_call.get(fact.call, "unknown"),
            "gen_ai.tool.call.id": fact.call,
        }
        error = ""
        if not fact.ok:
            error = "The call failed."
        begin = entry.time - fact.seconds
        spans.append(TraceSpan("execute_tool", begin, entry.time, attributes, error))
    return spans


def _list_fold_events(recorded: Sequence[Recorded]) -> list[TraceEvent]:
    events: list[TraceEvent] = []
    for entry in recorded:
        if isinstance(entry.fact, Folded):
            attributes = {"helix.fold.kind": entry.fact.kind.value}
            events.append(TraceEvent("helix.fold", entry.time, attributes))
    return events


def _describe_error_of_run(recorded: Sequence[Recorded]) -> str:
    for entry in reversed(recorded):
        if isinstance(entry.fact, TurnEnded):
            if entry.fact.reason is TurnEnd.DONE:
                return ""
            # `cause` is one of a few words, such as "busy"; it holds no text of the conversation.
            return entry.fact.cause or entry.fact.reason.value
    return "no end was recorded"


def _sum_usage(recorded: Sequence[Recorded]) -> dict[str, int | float]:
    total_by_name: dict[str, int | float] = {}
    for entry in recorded:
        if isinstance(entry.fact, ModelReplied | Spent):
            for name, amount in _usage_attributes(entry.fact.usage).items():
                total_by_name[name] = total_by_name.get(name, 0) + amount
    return total_by_name


def _usage_attributes(usage: Usage) -> dict[str, int | float]:
    return {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "helix.usage.cached_input_tokens": usage.cache_read,
        "helix.usage.dollars": usage.cost,
    }
