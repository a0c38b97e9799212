"""Calls of one reply, run by the whole program: what changes files stands in order, and
what is stopped says so.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from helix_desktop.engine.facts import Text, ToolReturned
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import (
    CallStage,
    CallStageChanged,
    Event,
    QuestionAsked,
    ToolPrinted,
)
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.workbench import Workbench
from tests.peers.chat_server import Calls, ChatServer, reply
from tests.workbench.conftest import Desks


async def opened(desks: Desks, folder: Path, server: ChatServer) -> Session:
    return await (await on_a_bench(desks, folder, server)).start_conversation()


async def on_a_bench(desks: Desks, folder: Path, server: ChatServer) -> Workbench:
    desk = desks()
    desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
    bench = await desk.create_workspace("Order", folder)
    await bench.choose_model_for_role("peer/scripted")
    await bench.choose_permission_mode("allow all")
    return bench


async def test_all_of_an_answer_that_met_its_length_limit_comes_back_from_a_sub_agent(
    desks: Desks, folder: Path
) -> None:
    script = [
        reply(calls=[("delegate", {"task": "count"})]),
        reply("Looking. ", calls=[("read_file", {"path": "README.md"})]),
        reply("one, two, ", finish="length"),
        reply("three, ", finish="length"),
        reply("four"),
        reply("Done."),
    ]
    with ChatServer(script) as server:
        session = await opened(desks, folder, server)
        session.send_message((Text("count, please"),))
        await asyncio.wait_for(session.wait_until_idle(), 60)
    (result,) = [one.fact for one in session.all_facts if isinstance(one.fact, ToolReturned)]
    assert result.head == "one, two, three, four"


async def returned(desks: Desks, folder: Path, calls: Calls) -> list[ToolReturned]:
    """What the calls of one reply came to."""
    with ChatServer([reply(calls=calls), reply("Done.")]) as server:
        session = await opened(desks, folder, server)
        session.send_message((Text("more, please"),))
        await asyncio.wait_for(session.wait_until_idle(), 60)
    return [one.fact for one in session.all_facts if isinstance(one.fact, ToolReturned)]


async def test_edits_of_one_file_and_a_command_after_them_each_find_what_was_done_before(
    desks: Desks, folder: Path
) -> None:
    edits: Calls = [
        (
            "edit_file",
            {"path": "README.md", "old_text": f"# Pairs{done}", "new_text": f"# Pairs{done} more"},
        )
        for done in ("", " more", " more more")
    ]
    looks: Calls = [
        ("run_command", {"command": "head -1 README.md"}),
        ("read_file", {"path": "README.md"}),
    ]
    results = await returned(desks, folder, [*edits, *looks])
    assert [one.ok for one in results] == [True] * 5
    assert [one.head.split("\n")[0] for one in results[3:]] == ["# Pairs more more more"] * 2


async def test_a_command_finds_what_the_one_before_it_has_done(desks: Desks, folder: Path) -> None:
    lines = ("sleep 0.3; mkdir made", "echo one > made/a", "cat made/a")
    results = await returned(desks, folder, [("run_command", {"command": line}) for line in lines])
    assert [one.head for one in results] == ["[no output, exit code 0]\n"] * 2 + ["one\n"]


async def test_a_stop_keeps_what_a_command_printed_and_leaves_the_calls_behind_it(
    desks: Desks, folder: Path
) -> None:
    lines = ("echo building; sleep 60", "echo next")
    with ChatServer(
        [reply(calls=[("run_command", {"command": line}) for line in lines])]
    ) as server:
        session = await opened(desks, folder, server)

        def hear(event: Event) -> None:
            if isinstance(event, ToolPrinted):
                session.stop_turn()

        session.subscribe_to_events(hear)
        session.send_message((Text("build, please"),))
        await asyncio.wait_for(session.wait_until_idle(), 60)
    stopped, left = [one.fact for one in session.all_facts if isinstance(one.fact, ToolReturned)]
    assert (stopped.ok, stopped.stopped) == (False, True)
    assert re.fullmatch(r"building\n\n\[stopped after \d+ s, before it had ended\]\n", stopped.head)
    assert (left.ok, left.head) == (False, NOT_BEGUN)


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("run_command", {"command": "rm -rf build"}),
        ("write_file", {"path": "build/x", "content": "x"}),
    ],
)
async def test_a_call_that_is_stopped_at_its_question_did_not_begin(
    desks: Desks, folder: Path, tool: str, given: dict[str, object]
) -> None:
    with ChatServer([reply(calls=[(tool, given)])]) as server:
        bench = await on_a_bench(desks, folder, server)
        await bench.choose_permission_mode("ask")
        session = await bench.start_conversation()
        session.subscribe_to_events(
            lambda event: session.stop_turn() if isinstance(event, QuestionAsked) else None
        )
        session.send_message((Text("clean up"),))
        await asyncio.wait_for(session.wait_until_idle(), 60)
    (left,) = [one.fact for one in session.all_facts if isinstance(one.fact, ToolReturned)]
    assert (left.ok, left.head) == (False, NOT_BEGUN)


async def test_a_file_whose_content_was_forgotten_can_be_read_again(
    desks: Desks, folder: Path
) -> None:
    read = reply(calls=[("read_file", {"path": "README.md"})])
    with ChatServer([read, reply("Seen."), read, reply("Seen again.")]) as server:
        bench = await on_a_bench(desks, folder, server)
        session = await bench.start_conversation()
        session.send_message((Text("read"),))
        await asyncio.wait_for(session.wait_until_idle(), 60)
        (first,) = [one.fact for one in session.all_facts if isinstance(one.fact, ToolReturned)]
        await bench.forget_content(entries=[first.output.digest])
        session.send_message((Text("again"),))
        await asyncio.wait_for(session.wait_until_idle(), 60)
    again = [one.fact for one in session.all_facts if isinstance(one.fact, ToolReturned)][-1]
    assert (again.ok, again.head.split("\n")[0], again.repeat_of) == (True, "# Pairs", 0)


async def test_a_checkpoint_that_hangs_holds_no_request_and_no_word_of_the_model(
    desks: Desks, folder: Path
) -> None:
    """Nothing is added before the first token: it is the command that waits for the checkpoint."""
    make = reply("I will make it.", calls=[("run_command", {"command": "touch made"})])
    with ChatServer([reply("At once."), make, reply("Made.")]) as server:
        bench = await on_a_bench(desks, folder, server)
        session = await bench.start_conversation()
        await bench.file_changes.prepare_checkpoints()
        begun = asyncio.Event()
        session.subscribe_to_events(
            lambda e: (
                begun.set()
                if isinstance(e, CallStageChanged) and e.stage is CallStage.RUNNING
                else None
            )
        )
        async with bench.file_changes.workspace_checkpoints._lock:
            session.send_message((Text("Hello"),))
            await asyncio.wait_for(session.wait_until_idle(), 60)
            assert len(server.bodies) == 1
            session.send_message((Text("Make it"),))
            await asyncio.wait_for(begun.wait(), 60)
            assert len(server.bodies) == 2
            assert not (folder / "made").exists()
        await asyncio.wait_for(session.wait_until_idle(), 60)
    assert (folder / "made").exists()
    assert len(server.bodies) == 3
