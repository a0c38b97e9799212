"""Plan mode: nothing changes until a plan is approved, which then holds word for word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from helix_desktop.engine.events import Asked, Event
from helix_desktop.engine.facts import ToolReturned
from helix_desktop.engine.ports import Answer
from helix_desktop.engine.session import Session
from tests.engine.agent import ScriptedModel, calls
from tests.faults.plan_mode import fuzz
from tests.workbench.conftest import Desks
from tests.workbench.test_bench import bench_on
from tests.workbench.test_project import model as model  # noqa: PLC0414
from tests.workbench.test_project import sent, told


def answering(session: Session, answer: Callable[[str], Answer]) -> list[str]:
    asked: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, Asked):
            asked.append(event.question.preview)
            session.answer(event.number, answer(event.question.preview))

    session.subscribe(hear)
    return asked


PLAN = calls("call_tool", name="present_plan", arguments={"plan": "1. Write a.txt"})


async def test_nothing_changes_before_the_plan_is_approved(desks: Desks, folder: Path, model: ScriptedModel) -> None:
    bench = await bench_on(desks, folder)
    await bench.choose_mode("plan")
    session = await bench.new_conversation()
    await told(bench, session, model, calls("write_file", path="a.txt", content="x"))
    assert not (folder / "a.txt").exists()
    assert "[Plan mode." in sent(model)
    (result,) = [r.fact for r in session.facts if isinstance(r.fact, ToolReturned)]
    assert "in plan mode nothing is changed" in result.head


@pytest.mark.parametrize(("scope", "mode"), [("ask", "ask"), ("edits", "allow edits")])
async def test_an_approved_plan_holds_word_for_word(
    desks: Desks, folder: Path, model: ScriptedModel, scope: str, mode: str
) -> None:
    bench = await bench_on(desks, folder)
    await bench.choose_mode("plan")
    session = await bench.new_conversation()
    answering(session, lambda plan: Answer(allowed=True, scope=scope, values=f"{plan}\n2. Check it"))
    await told(bench, session, model, PLAN)
    assert bench.mode == mode
    assert "1. Write a.txt\n2. Check it" in sent(model)
    assert "no longer holds" in sent(model)  # plan mode
    seq, _ = session.conversation.state.branch.notes["plan"]
    assert any(getattr(ref, "seq", 0) == seq for ref in session.conversation.state.branch.pins)


async def test_the_user_may_want_more_planning(desks: Desks, folder: Path, model: ScriptedModel) -> None:
    bench = await bench_on(desks, folder)
    await bench.choose_mode("plan")
    session = await bench.new_conversation()
    answering(session, lambda _: Answer(allowed=False, words="Mind the tests."))
    await told(bench, session, model, PLAN)
    assert bench.mode == "plan"
    (result,) = [r.fact for r in session.facts if isinstance(r.fact, ToolReturned)]
    assert "keep planning. They said: Mind the tests." in result.head


async def test_a_plan_outside_of_plan_mode_is_refused(desks: Desks, folder: Path, model: ScriptedModel) -> None:
    bench = await bench_on(desks, folder)
    session = await bench.new_conversation()
    await told(bench, session, model, PLAN)
    (result,) = [r.fact for r in session.facts if isinstance(r.fact, ToolReturned)]
    assert "not in plan mode" in result.head


async def test_fuzzed_calls_change_nothing(tmp_path: Path) -> None:
    async with asyncio.timeout(120):
        made, _, changed = await fuzz(150, 3, tmp_path)
    assert made >= 150
    assert changed == []
