"""What a run of a task looks like to an operator, from the facts of its journal."""

from __future__ import annotations

from collections.abc import Sequence

from helix_desktop.engine.facts import (
    Fact,
    ModelReplied,
    Purpose,
    Recorded,
    Spent,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Usage,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store.fleet_tasks import FleetTask, FleetTaskOrder, FleetTaskState
from helix_desktop.workbench.fleet_traces import trace_run

ORDER = FleetTaskOrder("the words of the task", agent="reader")
TASK = FleetTask("0" * 20, FleetTaskState.RUNNING, 0, 0.0, "desk 1.1", 2, 0.0, ORDER)
OUTPUT = Stored(Digest.of_content(b"secret output"), 13)
CALL = ToolCall("call-1", "run_command", '{"command": "cat secret"}')
REPLY = ModelReplied((CALL,), "peer/scripted", Stop.CALLS, Usage(10, 4, 0, 5, 0, 0.25), seconds=2.0)
ANSWER = ModelReplied((Text("secret"),), "peer/scripted", Stop.END, Usage(20, 8, 0, 3, 0, 0.5))


def recorded(*facts: tuple[float, Fact]) -> Sequence[Recorded]:
    return [Recorded(TASK.id, number, time, fact) for number, (time, fact) in enumerate(facts, 1)]


def test_a_run_is_a_span_with_its_requests_and_calls() -> None:
    span = trace_run(
        TASK,
        recorded(
            (102.0, REPLY),
            (105.0, ToolReturned("call-1", OUTPUT, 3, ok=False, seconds=1.5)),
            (106.0, Spent(Purpose.HANDOVER, "peer/small", Usage(1, 0, 0, 1, 0, 0.125))),
            (107.0, ANSWER),
            (107.0, TurnEnded(TurnEnd.DONE)),
        ),
    )
    assert span is not None
    assert (span.name, span.begin, span.end, span.error) == ("invoke_agent", 100.0, 107.0, "")
    assert span.attributes["gen_ai.agent.name"] == "reader"
    assert span.attributes["gen_ai.conversation.id"] == TASK.id
    assert span.attributes["helix.usage.dollars"] == 0.875
    assert span.attributes["gen_ai.usage.input_tokens"] == 31
    children = [(child.name, child.begin, child.end, child.error) for child in span.children]
    assert children == [
        ("chat", 100.0, 102.0, ""),
        ("execute_tool", 103.5, 105.0, "The call failed."),
        ("chat", 107.0, 107.0, ""),
    ]
    chat, call, _ = span.children
    assert chat.attributes["gen_ai.provider.name"] == "peer"
    assert chat.attributes["gen_ai.request.model"] == "scripted"
    assert call.attributes["gen_ai.tool.name"] == "run_command"
    assert "secret" not in repr(span)
    assert ORDER.text not in repr(span)


def test_a_run_that_failed_or_was_cut_off_says_so() -> None:
    failed = trace_run(TASK, recorded((1.0, TurnEnded(TurnEnd.FAILED, "No room.", "store"))))
    assert failed is not None
    assert failed.error == "store"
    stopped = trace_run(TASK, recorded((1.0, TurnEnded(TurnEnd.STOPPED))))
    assert stopped is not None
    assert stopped.error == "stopped"
    cut_off = trace_run(TASK, recorded((1.0, REPLY)))
    assert cut_off is not None
    assert cut_off.error == "no end was recorded"
    assert trace_run(TASK, []) is None
