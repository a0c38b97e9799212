"""Plan mode: nothing changes until a plan is approved, which then holds word for word."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import Decided, Text, ToolReturned
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, FactAppended, QuestionAnswered, QuestionAsked
from helix_desktop.engine.tool_call_parsing import USER_WORDS
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.engine.agent import ScriptedModel, calls
from tests.faults.plan_mode import fuzz
from tests.faults.store_load import in_child
from tests.faults.store_load import told as told_by
from tests.workbench.conftest import Desks
from tests.workbench.test_open_workbench import bench_on
from tests.workbench.test_rules_and_skills import model as model  # noqa: PLC0414
from tests.workbench.test_rules_and_skills import sent, told


def answering(session: Session, answer: Callable[[str], PermissionAnswer]) -> list[str]:
    asked: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            asked.append(event.question.preview)
            session.answer_question(event.number, answer(event.question.preview))

    session.subscribe_to_events(hear)
    return asked


PLAN = calls("call_tool", name="present_plan", arguments={"plan": "1. Write a.txt"})


async def test_nothing_changes_before_the_plan_is_approved(
    desks: Desks, folder: Path, model: ScriptedModel
) -> None:
    bench = await bench_on(desks, folder)
    await bench.choose_permission_mode("plan")
    session = await bench.start_conversation()
    await told(bench, session, model, calls("write_file", path="a.txt", content="x"))
    assert not (folder / "a.txt").exists()
    assert "[Plan mode." in sent(model)
    (result,) = [r.fact for r in session.all_facts if isinstance(r.fact, ToolReturned)]
    assert "in plan mode, nothing can be changed" in result.head


@pytest.mark.parametrize(("scope", "mode"), [("ask", "ask"), ("edits", "allow edits")])
async def test_an_approved_plan_holds_word_for_word(
    desks: Desks, folder: Path, model: ScriptedModel, scope: str, mode: str
) -> None:
    bench = await bench_on(desks, folder)
    await bench.choose_permission_mode("plan")
    session = await bench.start_conversation()
    answering(
        session,
        lambda plan: PermissionAnswer(allowed=True, scope=scope, values=f"{plan}\n2. Check it"),
    )
    await told(bench, session, model, PLAN)
    assert bench.permission_mode == mode
    assert "1. Write a.txt\n2. Check it" in sent(model)
    assert "no longer holds" in sent(model)  # plan mode
    seq, _ = session.conversation.state.branch.notes["plan"]
    assert any(getattr(ref, "seq", 0) == seq for ref in session.conversation.state.branch.pins)


async def test_the_user_may_want_more_planning(
    desks: Desks, folder: Path, model: ScriptedModel
) -> None:
    bench = await bench_on(desks, folder)
    await bench.choose_permission_mode("plan")
    session = await bench.start_conversation()
    answering(session, lambda _: PermissionAnswer(allowed=False, words="Mind the tests."))
    await told(bench, session, model, PLAN)
    assert bench.permission_mode == "plan"
    (result,) = [r.fact for r in session.all_facts if isinstance(r.fact, ToolReturned)]
    assert f"keep planning.{USER_WORDS}Mind the tests." in result.head
    (decided,) = [r.fact for r in session.all_facts if isinstance(r.fact, Decided)]
    assert (decided.allowed, decided.by) == (False, "user")  # The chat says "denied", not "failed".


async def test_a_plan_outside_of_plan_mode_is_refused(
    desks: Desks, folder: Path, model: ScriptedModel
) -> None:
    bench = await bench_on(desks, folder)
    session = await bench.start_conversation()
    await told(bench, session, model, PLAN)
    (result,) = [r.fact for r in session.all_facts if isinstance(r.fact, ToolReturned)]
    assert "not in plan mode" in result.head


def _killed_at(moment: str, home: Path, folder: Path, model: ScriptedModel) -> None:
    """In a process of its own: a plan is approved, and SIGKILL at that moment."""

    def is_it(event: Event) -> bool:
        if moment == "recorded":
            return isinstance(event, FactAppended) and isinstance(event.recorded.fact, ToolReturned)
        return isinstance(event, QuestionAnswered)

    async def work() -> None:
        bench = await bench_on(lambda: _desk(home), folder)
        await bench.choose_permission_mode("plan")
        session = await bench.start_conversation("Killed")
        answering(
            session,
            lambda plan: PermissionAnswer(
                allowed=True, scope="edits", values=f"{plan}\n2. Check it"
            ),
        )
        session.subscribe_to_events(
            lambda event: os.kill(os.getpid(), signal.SIGKILL) if is_it(event) else None
        )
        model.script[:] = [PLAN]
        session.send_message((Text("go"),))
        await session.wait_until_idle()

    child, reading = in_child(lambda _: asyncio.run(work()))
    assert told_by(reading) == []
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)


def _desk(home: Path) -> Workbenches:
    where = program_folders.find_program_folders(home)
    return Workbenches(where, SecretStorage(where.key_file, environ={}))


@pytest.mark.skipif(sys.platform == "win32", reason="it forks")
@pytest.mark.parametrize("moment", ["answered", "recorded"])
def test_a_plan_approved_just_before_a_kill_holds(
    moment: str, tmp_path: Path, folder: Path, model: ScriptedModel
) -> None:
    home = tmp_path / "home"
    _killed_at(moment, home, folder, model)

    async def after() -> None:
        desk = _desk(home)
        bench = await desk.open_workspace("Pairs")
        (row,) = bench.list_conversations()
        session = await bench.open_session(row.id)
        model.script[:] = []
        session.resume_turn()
        await asyncio.wait_for(session.wait_until_idle(), 60)
        assert sent(model).count("1. Write a.txt\n2. Check it") == 1
        seq, _ = session.conversation.state.branch.notes["plan"]
        assert any(getattr(ref, "seq", 0) == seq for ref in session.conversation.state.branch.pins)
        await desk.aclose()

    asyncio.run(after())


async def test_fuzzed_calls_change_nothing(tmp_path: Path) -> None:
    async with asyncio.timeout(120):
        made, _, changed = await fuzz(150, 3, tmp_path)
    assert made >= 150
    assert changed == []
