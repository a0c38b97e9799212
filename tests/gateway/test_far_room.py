"""The engine works where the workspace is open: in the window's process, or in the gateway's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop import instance, places
from helix_desktop.commands import open_workspace
from helix_desktop.console import Console
from helix_desktop.engine.facts import Stop, Usage
from helix_desktop.gateway import far_room, opening
from helix_desktop.gateway.arrival import Ask, Replied
from helix_desktop.gateway.far_room import FarRoom
from helix_desktop.gateway.shown import As
from helix_desktop.gateway.telling import NAMES, Last, heard, told
from helix_desktop.secrets import Secrets
from helix_desktop.wire import anthropic
from helix_desktop.workbench.desk import Desk
from tests.faults.gateway_histories import _nobody, bench
from tests.gateway.running import TOOL, Agent, running
from tests.gateway.test_gateway import DIGEST, LARGE, scripted
from tests.gateway.test_room import USAGE, arrival, history
from tests.peers.agent_provider import WRITERS, Block, Calls, Provider, Says


async def test_a_window_that_opens_the_workspace_gets_it_and_sees_what_the_agent_does(tmp_path: Path) -> None:
    where = places.find(tmp_path)
    recall: list[Block] = [Calls("recall_cached_content", {"sha256": DIGEST, "lines": "5"})]
    heard, script = scripted(
        [Calls(TOOL, {"command": "big"})], recall, [Calls(TOOL, {"command": "b"})], [Says("done")], [Says("x")]
    )
    with Provider(script) as provider, running(tmp_path, provider.url, serves=True) as url:  # type: ignore[arg-type]
        agent = Agent("anthropic", url)
        agent.say("look around")
        calls = await asyncio.to_thread(agent.ask)
        agent.results([(call, name, LARGE) for call, name, _ in calls])
        desk = Desk(where, Secrets(where.key_file), serve=lambda workspace: open_workspace.serve(workspace, where))
        bench = await desk.open(opening.NAME)
        try:
            (row,) = bench.conversations()
            assert row.title == "look around"
            calls = await asyncio.to_thread(agent.ask)
            assert [name for _, name, _ in calls] == [TOOL]
            session = await bench.session(row.id)
            assert "line 4: the quick" in heard[2].raw.decode()
            assert session.savings().steps == 3
        finally:
            await desk.aclose()
        agent.results([(call, name, "short") for call, name, _ in calls])
        await asyncio.to_thread(agent.ask)
        assert provider.refused == []
        assert LARGE not in heard[3].raw.decode()


class Counted:
    """A console that counts the bytes that go over it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.say, self.complain = console.say, console.complain
        self.size = 0

    async def read(self) -> bytes:
        content = await self._console.read()
        self.size += len(content)
        return content

    async def write(self, data: bytes) -> None:
        self.size += len(data)
        await self._console.write(data)


@asynccontextmanager
async def apart(folder: Path, answer: instance.Answer, ask: Ask = _nobody) -> AsyncIterator[FarRoom]:
    """A room whose engine is at the other end of a socket."""
    owner = await instance.listen(folder, "engine", answer)
    wire = await instance.reach(folder, "engine")
    assert wire is not None
    room = FarRoom(wire, ask)
    try:
        yield room
    finally:
        await room.aclose()
        await owner.aclose()


async def test_a_long_history_is_told_once(tmp_path: Path) -> None:
    consoles: list[Counted] = []
    async with bench(tmp_path) as made:

        async def answer(_: list[str], console: Console) -> int:
            consoles.append(Counted(console))
            return await far_room.answer(made, consoles[0])

        async with apart(tmp_path / "run", answer) as room:
            units, sizes = history(1_000), list[int]()
            for number in range(3):
                sent = await room.arrive(*arrival(units))
                assert list(sent.entries) == [As(at) for at in range(len(units))]
                said = anthropic.answer(WRITERS["anthropic"].whole([Calls("Bash", {}, f"d{number}")], USAGE, "d"))
                replied = Replied(said.message.pieces, "claude-opus-4-6", Stop.CALLS, Usage(10, 0, 0, 1))
                await room.replied(sent.ticket, replied, said.message.key)
                units += [*said.message.units, anthropic.result(f"d{number}", "Bash", "fine")]
                sizes.append(consoles[0].size)
    assert sizes[0] > 200_000
    assert sizes[2] - sizes[1] < 5_000


async def test_a_question_of_several_megabytes_comes_whole(tmp_path: Path) -> None:
    question = ("c", "a line of it\n" * 200_000, "", 0)
    heard_back: list[object] = []

    async def answer(_: list[str], console: Console) -> int:
        await console.write(told(("ask", 1, question)))
        heard_back.append(heard(await console.read()))
        return 0

    async def ask(*asked: object) -> tuple[str, Usage, str]:
        assert asked == question
        return "fine", Usage(), "a-model"

    async with apart(tmp_path / "run", answer, ask) as room:
        while not room.ended:
            await asyncio.sleep(0)
    assert heard_back == [("answer", 1, ("fine", Usage(), "a-model"))]


@given(st.lists(st.tuples(st.integers(0, NAMES + 1).map(str), st.lists(st.integers(0, 2)).map(tuple)), max_size=200))
def test_what_differs_is_enough(values: list[tuple[str, tuple[int, ...]]]) -> None:
    here, there = Last(), Last()
    for name, value in values:
        assert there.heard(name, *here.told(name, value)) == value
