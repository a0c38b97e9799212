"""The model of the fleet's trials goes by the numbers in sight, so that a fold repeats nothing."""

from __future__ import annotations

import json
from typing import Any

from tests.faults.fleet_trial_model import FOLD, FleetTrialModel
from tests.peers.peer import Seen

TOOLS = [{"type": "function", "function": {"name": "run_command"}}]


def ask(model: FleetTrialModel, *messages: dict[str, Any], tools: object = TOOLS) -> str:
    """What it answers to a request, as one text."""
    body = {"messages": [{"role": "system", "content": ""}, *messages], "tools": tools}
    answer = model.answer(Seen("POST", "/v1/chat/completions", {}, json.dumps(body).encode()))
    events = [piece for piece in answer.pieces if isinstance(piece, bytes) and b"{" in piece]
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", ())]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    text = "".join(delta.get("content") or "" for delta in deltas)
    return text + "".join(call["function"]["arguments"] for call in calls)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(number: int, result: str = "some output") -> list[dict[str, Any]]:
    function = {"name": "run_command", "arguments": f'{{"command": "echo task-4:{number} >> l"}}'}
    return [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}]},
        {"role": "tool", "tool_call_id": "c", "content": result},
    ]


def test_calls_that_a_fold_took_away_are_not_made_again() -> None:
    model = FleetTrialModel([(0,) * 9])
    assert "task-4:1 " in ask(model, user("Do task-4"))
    assert "task-4:7 " in ask(model, user(f"{FOLD} Changed files: task-3.txt\nDo task-4"), *call(6))
    assert "task-4:6 " in ask(model, user(f"{FOLD} up to task-4:5 were made\nDo task-4"))
    assert ask(model, *[user("Do task-4"), *call(9)]) == "task-4 is done"
    assert model.failures == []
    assert model.requests_after_folds == 2


def test_it_says_which_call_was_cut_off() -> None:
    model = FleetTrialModel([(0,) * 9])
    ask(model, user(f"{FOLD}\nDo task-4"), *call(6, "It may have had effects"))
    assert model.uncertain == {"task-4:6"}


def test_a_request_that_says_nothing_of_what_was_done_is_a_failure_of_the_trial() -> None:
    model = FleetTrialModel([(0,) * 9])
    ask(model, user(f"{FOLD}\nDo task-4"))
    ask(model, user("Do something"))
    assert len(model.failures) == 2


def test_a_summary_names_the_last_call() -> None:
    material = user("<material>[3] user: Do task-4\n[8] call: task-4:8 </material> Write")
    assert "task-4:8 were made" in ask(FleetTrialModel(), material, tools=None)
