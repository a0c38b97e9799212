"""A long turn through the whole program, judged by the server's own view of the requests."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.workbench.recorded import Step, order_of, play

STEPS = 45


def session(seed: int) -> list[Step]:
    """Reads, writes and commands with outputs of all sizes, some of them side by side."""
    chance = random.Random(seed)
    words = [f"identifier_{n} in src/module_{n % 7}.py" for n in range(500)]
    steps = []
    for number in range(STEPS):
        calls = []
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            lines = "\n".join(chance.choices(words, k=chance.choice((2, 20, 80, 400))))
            name, argument = chance.choice(
                (("read", "path"), ("bash", "command"), ("write", "content"))
            )
            calls.append((name, {argument: f"{number}", "newText": lines}, f"{number}\n{lines}"))
        steps.append(Step(f"Step {number}.", tuple(calls)))
    return steps


@pytest.mark.parametrize("preset", ["layered", "helix", "observational"])
async def test_a_turn_many_times_the_window_ends_well(preset: str, tmp_path: Path) -> None:
    steps = session(7)
    figures = await play(
        "Never touch module_3. Fix the rest.", steps, tmp_path, window=16_000, preset=preset
    )
    assert figures["end"] == "done", figures["why"]
    assert figures["wrong"] == []
    assert figures["lost"] == []
    assert figures["calls"] == sum(len(step.calls) for step in steps)
    assert figures["failed_calls"] == 0
    assert figures["largest_request"] <= 16_000
    assert figures["folds"]


def test_the_judge_finds_what_is_wrong() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}, {"id": "b"}]}
    result = {"role": "tool", "tool_call_id": "a", "content": "x"}
    assert list(order_of([call, result])) == ["1 calls without a result at the end"]
    assert list(order_of([result])) == ["a result without a call (a)"]
    assert list(order_of([call, {"role": "user", "content": "x"}])) == [
        "2 calls without a result before a message of user"
    ]
    assert list(order_of([{"role": "user", "content": ""}])) == ["an empty message of user"]
