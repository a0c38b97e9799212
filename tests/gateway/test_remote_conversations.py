"""The engine works where the workspace is open: in the window's process, or in the
gateway's own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop import concurrency, program_folders, running_instance
from helix_desktop.commands import workspace_access
from helix_desktop.console import Console
from helix_desktop.engine.facts import (
    FoldKind,
    Spent,
    Stop,
    ToolReturned,
    Usage,
)
from helix_desktop.errors import HelixError, ModelFailed, StoppedByUser
from helix_desktop.gateway import gateway_workspaces, remote_conversations
from helix_desktop.gateway.conversations_port import AskAgentModel, Replied
from helix_desktop.gateway.folded_request import are_all_unchanged
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.process_messages import (
    MOST_HELD_VALUES,
    LastSentValues,
    decode_line,
    encode_line,
)
from helix_desktop.gateway.remote_conversations import RemoteAgentConversations
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench.all_workbenches import Workbenches
from tests.conftest import Expect
from tests.faults.gateway_histories import _nobody, bench
from tests.gateway.running import TOOL, Agent, running
from tests.gateway.test_agent_conversation import Room
from tests.gateway.test_gateway import DIGEST, LARGE, LARGE_IN_JSON, scripted
from tests.gateway.test_local_conversations import USAGE, arrival, history
from tests.peers.agent_provider import WRITERS, Block, Calls, Provider, Says


async def test_a_window_that_opens_the_workspace_gets_it_and_sees_what_the_agent_does(
    tmp_path: Path,
) -> None:
    where = program_folders.find_program_folders(tmp_path)
    recall: list[Block] = [Calls("recall_cached_content", {"sha256": DIGEST, "lines": "5"})]
    heard, script = scripted(
        [Calls(TOOL, {"command": "big"})],
        recall,
        [Calls(TOOL, {"command": "b"})],
        [Says("done")],
        [Says("x")],
    )
    with Provider(script) as provider, running(tmp_path, provider.url, serves=True) as url:  # type: ignore[arg-type]
        agent = Agent("anthropic", url)
        agent.say("look around")
        calls = await asyncio.to_thread(agent.ask)
        agent.results([(call, name, LARGE) for call, name, _ in calls])
        desk = Workbenches(
            where,
            SecretStorage(where.key_file),
            serve=lambda workspace: workspace_access.listen_for_commands(workspace, where),
        )
        bench = await desk.open_workspace(gateway_workspaces.USUAL_WORKSPACE_NAME)
        try:
            (row,) = bench.list_conversations()
            assert row.title == "look around"
            calls = await asyncio.to_thread(agent.ask)
            assert [name for _, name, _ in calls] == [TOOL]
            session = await bench.open_session(row.id)
            assert "line 4: the quick" in heard[2].raw.decode()
            assert session.conversation.state.savings_until_moment().steps == 3
        finally:
            await desk.aclose()
        agent.results([(call, name, "short") for call, name, _ in calls])
        await asyncio.to_thread(agent.ask)
        assert provider.refused == []
        assert LARGE_IN_JSON not in heard[3].raw


class Counted:
    """A console that counts the bytes that go over it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.print_line = console.print_line
        self.print_error = console.print_error
        self.size = 0

    async def read_input(self) -> bytes:
        content = await self._console.read_input()
        self.size += len(content)
        return content

    async def write_output(self, data: bytes) -> None:
        self.size += len(data)
        await self._console.write_output(data)


@asynccontextmanager
async def apart(
    folder: Path,
    answer: running_instance.Answer,
    ask: AskAgentModel = _nobody,
) -> AsyncIterator[RemoteAgentConversations]:
    """A room whose engine is at the other end of a socket."""
    owner = await running_instance.listen_for_requests(folder, "engine", answer)
    wire = await running_instance.connect_to_owner(folder, "engine")
    assert wire is not None
    room = RemoteAgentConversations(wire, ask)
    try:
        yield room
    finally:
        await room.aclose()
        await owner.finish_requests()


async def test_a_long_history_is_told_once(tmp_path: Path) -> None:
    consoles: list[Counted] = []
    async with bench(tmp_path) as made:

        async def answer(_: list[str], console: Console) -> int:
            consoles.append(Counted(console))
            return await remote_conversations.serve_gateway_process(made, consoles[0])

        async with apart(tmp_path / "run", answer) as room:
            units = history(1_000)
            sizes: list[int] = []
            for number in range(3):
                sent = await room.receive_request(*arrival(units))
                assert are_all_unchanged(sent.entries, len(units))
                said = anthropic_gateway.parse_reply(
                    WRITERS["anthropic"].whole([Calls("Bash", {}, f"d{number}")], USAGE, "d")
                )
                replied = Replied(
                    said.message.pieces, "claude-opus-4-6", Stop.CALLS, Usage(10, 0, 0, 1)
                )
                await room.record_agent_reply(sent.ticket, replied, said.message.identity_key)
                units += [
                    *said.message.units,
                    anthropic_gateway.result_message(f"d{number}", "Bash", "fine"),
                ]
                sizes.append(consoles[0].size)
    assert sizes[0] > 200_000
    assert sizes[2] - sizes[1] < 5_000


async def test_a_question_of_several_megabytes_comes_whole(tmp_path: Path) -> None:
    question = ("c", "a line of it\n" * 200_000, "", 0)
    heard_back: list[object] = []

    async def answer(_: list[str], console: Console) -> int:
        await console.write_output(encode_line(("ask", 1, question)))
        heard_back.append(decode_line(await console.read_input()))
        return 0

    async def ask(*asked: object) -> tuple[str, Usage, str]:
        assert asked == question
        return "fine", Usage(), "a-model"

    async with apart(tmp_path / "run", answer, ask) as room:
        while not room.is_ended:
            await asyncio.sleep(0)
    assert heard_back == [("answer", 1, ("fine", Usage(), "a-model"))]


async def _ask_everything(agent: Room) -> list[Any]:
    """What a room answers to an agent from its first request to its figures."""
    agent.units = [anthropic_gateway.user_message("The port is 4711. Look around.")]
    find_session = agent.room.find_conversation_asked_about
    heard: list[Any] = [await agent.room.count_known_messages(agent.arrival()[0])]
    assert await find_session("an agent", "s", "") == ""
    await agent.answer(sent := await agent.send(), Calls("Bash", {}, "c0"), stop=Stop.CALLS)
    long = await agent.send(
        anthropic_gateway.result_message("c0", "Bash", "a line of it\n" * 40_000)
    )
    heard += [sent, long, await agent.room.count_known_messages(agent.arrival()[0])]
    assert await find_session("an agent", "s", "") == sent.ticket.conversation
    both = [Calls("search_cached_content", {"query": "swordfish"}, "h1"), Calls("Bash", {}, "c1")]
    for number, refusal in enumerate(("", "[Enough.]")):
        whole = anthropic_gateway.parse_reply(
            WRITERS["anthropic"].whole(both, USAGE, str(number))
        ).message
        replied = Replied(
            whole.pieces, "claude-opus-4-6", Stop.CALLS, Usage(10, 0, 0, 1), '{"raw": 1}', 1.5
        )
        heard.append(
            await agent.room.answer_hidden_calls(long.ticket, replied, whole.pieces[:1], refusal)
        )
    shown = anthropic_gateway.parse_reply(WRITERS["anthropic"].whole(both[1:], USAGE, "2")).message
    await agent.room.record_agent_reply(long.ticket, None, shown.identity_key)
    agent.units += shown.units
    for number in range(1, 7):
        sent = await agent.send(
            anthropic_gateway.result_message(f"c{number}", "Bash", f"line of {number}\n" * 900)
        )
        await agent.answer(
            sent, Calls("Bash", {}, f"c{number + 1}"), stop=Stop.CALLS, usage=Usage(20, 0, 0, 1)
        )
    sent = await agent.send(anthropic_gateway.result_message("c7", "Bash", "fine"))
    heard += [sent, await agent.room.preview_request(*agent.arrival())]
    heard += [await agent.room.fold_after_overflow(sent.ticket) for _ in range(2)]
    return [*heard, *[tuple(await agent.room.figures_since(since)) for since in (0.0, 1.0)]]


async def test_another_process_answers_what_this_one_would_answer(tmp_path: Path) -> None:
    found = []
    async with bench(tmp_path / "here") as made:
        room = LocalAgentConversations(made, _nobody)
        agent = Room(made, room)
        heard = await _ask_everything(agent)
        await room.aclose()
        found.append((heard, await made.read_conversation_facts(heard[1].ticket.conversation)))
    async with bench(tmp_path / "there") as made:

        async def answer(_: list[str], console: Console) -> int:
            return await remote_conversations.serve_gateway_process(made, console)

        async with apart(tmp_path / "run", answer) as far:
            heard = await _ask_everything(Room(made, far))
        found.append((heard, await made.read_conversation_facts(heard[1].ticket.conversation)))
    names = [heard[1].ticket.conversation for heard, _ in found]
    here, there = (
        repr(heard).replace(name, "c") for (heard, _), name in zip(found, names, strict=True)
    )
    assert there == here
    assert [type(answered) for answered in found[1][0]] == [
        type(answered) for answered in found[0][0]
    ]
    facts = [[type(each.fact).__name__ for each in recorded] for _, recorded in found]
    assert facts[1] == facts[0]
    known, first, long, two, answered, refused, last, preview, shorter, *_ = found[1][0]
    assert (known, two, len(first.entries), len(long.entries)) == (0, 3, 1, 3)
    assert answered == [
        ("h1", "search_cached_content", "[nothing in the cache contains swordfish]", True)
    ]
    assert refused == [("h1", "search_cached_content", "[Enough.]", False)]
    assert preview.entries == last.entries
    assert shorter.recallable


async def test_a_fold_that_the_other_process_writes_asks_the_agents_model_here(
    tmp_path: Path,
) -> None:
    asked: list[tuple[object, ...]] = []
    works: list[bool] = []

    async def ask(*question: object) -> tuple[str, Usage, str]:
        asked.append(question)
        if not works:
            raise ModelFailed("The key was refused.")
        return "The port is 4711.", Usage(7, 0, 0, 1), "claude-opus-4-6"

    async with bench(tmp_path / "there") as made:

        async def answer(_: list[str], console: Console) -> int:
            return await remote_conversations.serve_gateway_process(made, console)

        async with apart(tmp_path / "run", answer, ask) as room:
            agent = Room(made, room)
            sent = await agent.send(
                anthropic_gateway.user_message("The port is 4711. Look around.")
            )
            for number in range(6):
                await agent.answer(sent, Calls("Bash", {}, f"c{number}"), stop=Stop.CALLS)
                sent = await agent.send(
                    anthropic_gateway.result_message(
                        f"c{number}", "Bash", f"line of {number}\n" * 900
                    )
                )
            session = await made.open_session(sent.ticket.conversation)
            with pytest.raises(HelixError, match="The key was refused"):
                await session.folding.fold_on_demand(FoldKind.HANDOVER)
            works.append(True)
            assert len(await session.folding.fold_on_demand(FoldKind.HANDOVER)) > 0
        spent = [
            each.fact for each in session.conversation.state.facts if isinstance(each.fact, Spent)
        ]
    assert spent[-1].usage.input == 7
    assert {question[0] for question in asked} == {sent.ticket.conversation}


async def test_whoever_waits_for_a_process_that_closes_hears_of_it_at_once(tmp_path: Path) -> None:
    async def answer(_: list[str], console: Console) -> int:
        await console.read_input()
        return 0

    async with apart(tmp_path / "run", answer) as room:
        assert not room.is_ended
        asking = concurrency.OwnedTasks("agents").spawn_task(room.figures_since(), name="figures")
        while not room.is_ended:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert asking.done()
        for question in (asking, room.figures_since()):
            with pytest.raises(
                StoppedByUser, match="The program that had the workspace open has closed"
            ):
                await question


async def test_when_the_gateway_has_gone_a_fold_that_asked_its_model_ends_and_the_room_too(
    tmp_path: Path,
) -> None:
    ended: list[int] = []
    never = asyncio.Event()

    async def ask(*_: object) -> tuple[str, Usage, str]:
        asking.set()
        await never.wait()
        raise AssertionError

    asking = asyncio.Event()
    async with bench(tmp_path / "there") as made:

        async def answer(_: list[str], console: Console) -> int:
            try:
                return await remote_conversations.serve_gateway_process(made, console)
            finally:
                ended.append(1)

        owner = await running_instance.listen_for_requests(tmp_path / "run", "engine", answer)
        wire = await running_instance.connect_to_owner(tmp_path / "run", "engine")
        assert wire is not None
        room = RemoteAgentConversations(wire, ask)
        agent = Room(made, room)
        sent = await agent.send(anthropic_gateway.user_message("The port is 4711. Look around."))
        for number in range(6):
            await agent.answer(sent, Calls("Bash", {}, f"c{number}"), stop=Stop.CALLS)
            sent = await agent.send(
                anthropic_gateway.result_message(f"c{number}", "Bash", f"line of {number}\n" * 900)
            )
        session = await made.open_session(sent.ticket.conversation)
        folding = concurrency.OwnedTasks("agents").spawn_task(
            session.folding.fold_on_demand(FoldKind.HANDOVER), name="fold"
        )
        await asking.wait()
        await room.aclose()
        assert room.is_ended
        with pytest.raises(HelixError, match="no longer running"):
            await folding
        await owner.finish_requests()
    assert ended == [1]


async def test_what_went_ahead_is_recorded_when_the_gateway_goes(tmp_path: Path) -> None:
    async with bench(tmp_path / "there") as made:

        async def answer(_: list[str], console: Console) -> int:
            return await remote_conversations.serve_gateway_process(made, console)

        owner = await running_instance.listen_for_requests(tmp_path / "run", "engine", answer)
        wire = await running_instance.connect_to_owner(tmp_path / "run", "engine")
        assert wire is not None
        agent = Room(made, room := RemoteAgentConversations(wire, _nobody))
        await agent.answer(
            await agent.send(anthropic_gateway.user_message("look")),
            Calls("Bash", {}, "c0"),
            stop=Stop.CALLS,
        )
        sent = await agent.send(anthropic_gateway.result_message("c0", "Bash", "fine"))
        assert sent.ticket.ahead
        await room.aclose()
        await owner.finish_requests()
        facts = [each.fact for each in await made.read_conversation_facts(sent.ticket.conversation)]
        assert [fact.head for fact in facts if isinstance(fact, ToolReturned)] == ["fine"]


async def test_the_room_of_a_gateway_that_has_nothing_more_to_say_ends_well(tmp_path: Path) -> None:
    left = [encode_line(("figures", 1, (0.0,))), b""]

    class Said(Console):
        async def read_input(self) -> bytes:
            return left.pop(0)

        async def write_output(self, data: bytes) -> None:
            """The gateway does not hear it any more."""

        print_line = print_error = write_output  # type: ignore[assignment]

    async with bench(tmp_path) as made:
        assert await remote_conversations.serve_gateway_process(made, Said()) == 0


async def test_what_the_other_process_complains_of_stands_in_the_log_and_what_it_says_does_not(
    tmp_path: Path, expect: Expect, caplog: pytest.LogCaptureFixture
) -> None:
    expect("the engine complains")

    async def answer(_: list[str], console: Console) -> int:
        await console.print_line("good morning")
        await console.print_error("the disk is full")
        return 0

    with caplog.at_level(logging.INFO):
        async with apart(tmp_path / "run", answer) as room:
            while not room.is_ended:
                await asyncio.sleep(0)
    assert "the engine complains: the disk is full" in caplog.messages
    assert "good morning" not in caplog.text


@given(
    st.lists(
        st.tuples(
            st.integers(0, MOST_HELD_VALUES + 1).map(str), st.lists(st.integers(0, 2)).map(tuple)
        ),
        max_size=200,
    )
)
def test_what_differs_is_enough(values: list[tuple[str, tuple[int, ...]]]) -> None:
    here = LastSentValues()
    there = LastSentValues()
    for name, value in values:
        assert there.restore_value(name, *here.split_known_start(name, value)) == value
