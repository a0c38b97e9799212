"""An agent gives tasks to workers, and goes on with their answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from helix_desktop.engine.facts import Text, ToolCall, ToolReturned
from helix_desktop.engine.ports import CallContext, PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session_events import Event, QuestionAsked
from helix_desktop.store.fleet_tasks import FleetTaskOrder, NewFleetTask
from helix_desktop.workbench.fleet_tools import build_fleet_tools
from helix_desktop.workbench.fleet_worker import FleetWorker
from tests.peers.chat_server import reply
from tests.peers.peer import Answer, Seen
from tests.workbench.conftest import Desks
from tests.workbench.test_fleet_worker import place, worker_of


def given(tool: str, **arguments: object) -> Answer:
    return reply(calls=[("call_tool", {"name": tool, "arguments": arguments})])


def answer(seen: Seen) -> Answer:
    """The one who gives: tasks, the same again, then their answers. A worker: one word."""
    messages = seen.body["messages"]
    results = [message["content"] for message in messages if message["role"] == "tool"]
    if not any("Give them" in str(message["content"]) for message in messages):
        return reply("It is read.")
    if len(results) < 2:
        return given("add_fleet_tasks", tasks=["read a", "read b"])
    return (
        given("read_fleet_tasks", tasks=results[0].split(), seconds=30)
        if len(results) < 3
        else reply("All is read.")
    )


async def test_what_is_given_twice_is_one_task_and_its_answer_an_entry(
    desks: Desks, folder: Path
) -> None:
    async with place(desks, folder, *[answer] * 9) as (bench, tasks, _):
        session = await bench.start_conversation()
        asked: list[str] = []

        def allow(event: Event) -> None:
            if isinstance(event, QuestionAsked):
                asked.append(event.question.preview)
                session.answer_question(event.number, PermissionAnswer(allowed=True))

        session.subscribe_to_events(allow)
        session.send_message((Text("Give them away."),))
        working = asyncio.ensure_future(worker_of(bench, tasks).work_until_drained())  # noqa: TID251
        await asyncio.wait_for(session.wait_until_idle(), 60)
        working.cancel()
        returned = [
            one.fact.output.digest
            for one in session.all_facts
            if isinstance(one.fact, ToolReturned)
        ]
        read_entry = bench.workspace.cache.read_content
        first, again, read = [(await read_entry(digest)).decode() for digest in returned]
        assert asked == ["read a\n\nread b"] * 2
        assert first.split() == [one.id for one in reversed(await tasks.list_fleet_tasks())]
        assert again == first
        lines = [line.split() for line in read.splitlines()]
        assert [line[1] for line in lines] == ["done", "done"]
        assert (
            await read_entry(await bench.workspace.cache.resolve_prefix(lines[0][2]))
            == b"It is read."
        )


async def test_a_task_that_waits_for_its_own_tasks_leaves_them_its_place(
    desks: Desks, folder: Path
) -> None:
    async with place(desks, folder, *[answer] * 9) as (bench, tasks, server):
        await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("Give them away."))])
        worker = FleetWorker(bench, tasks, at_once=1, allowed=["add_fleet_tasks"])
        await asyncio.wait_for(worker.work_until_drained(until_empty=True), 60)
        results = [one["content"] for one in server.bodies[-1]["messages"] if one["role"] == "tool"]
        assert [line.split()[1] for read in results[-1:] for line in read.splitlines()] == [
            "done",
            "done",
        ]
        assert (await tasks.count_fleet_tasks()).by_state["done"] == 3


async def test_the_card_names_the_agent_that_does_the_tasks(desks: Desks, folder: Path) -> None:
    """It may be allowed more than the one that asks."""
    bench = await desks().create_workspace("w", folder)
    asked: list[str] = []

    async def refuse(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question.preview)
        return PermissionAnswer(allowed=False)

    box = bench.kit.build_toolbox(others=build_fleet_tools(bench.workspace, bench.claims))
    given = json.dumps({"tasks": ["deploy"], "agent": "Deployer"})
    await box.run_tool_call(
        ToolCall("1", "add_fleet_tasks", given), CallContext("c", refuse, lambda _: None)
    )
    assert asked == ["Agent: Deployer\n\ndeploy"]
