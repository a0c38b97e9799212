"""The engine works where the workspace is open: in the window's process, or in the gateway's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop import program_folders, running_instance
from helix_desktop.commands import workspace_access
from helix_desktop.console import Console
from helix_desktop.engine.facts import Stop, Usage
from helix_desktop.engine.token_budget import compute_savings
from helix_desktop.gateway import gateway_workspaces, remote_conversations
from helix_desktop.gateway.conversations_port import AskAgentModel, Replied
from helix_desktop.gateway.folded_body import are_all_unchanged
from helix_desktop.gateway.process_protocol import MOST_HELD_VALUES, LastSentValues, decode_line, encode_line
from helix_desktop.gateway.remote_conversations import RemoteAgentConversations
from helix_desktop.protocols.anthropic import anthropic_wire
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench.all_workbenches import Workbenches
from tests.faults.gateway_histories import _nobody, bench
from tests.gateway.running import TOOL, Agent, running
from tests.gateway.test_gateway import DIGEST, LARGE, scripted
from tests.gateway.test_local_conversations import USAGE, arrival, history
from tests.peers.agent_provider import WRITERS, Block, Calls, Provider, Says


async def test_a_window_that_opens_the_workspace_gets_it_and_sees_what_the_agent_does(tmp_path: Path) -> None:
    where = program_folders.find_program_folders(tmp_path)
    recall: list[Block] = [Calls("recall_cached_content", {"sha256": DIGEST, "lines": "5"})]
    heard, script = scripted(
        [Calls(TOOL, {"command": "big"})], recall, [Calls(TOOL, {"command": "b"})], [Says("done")], [Says("x")]
    )
    with Provider(script) as provider, running(tmp_path, provider.url, serves=True) as url:  # type: ignore[arg-type]
        agent = Agent("anthropic", url)
        agent.say("look around")
        calls = await asyncio.to_thread(agent.ask)
        agent.results([(call, name, LARGE) for call, name, _ in calls])
        desk = Workbenches(
            where,
            SecretStorage(where.key_file),
            serve=lambda workspace: workspace_access.serve_commands(workspace, where),
        )
        bench = await desk.open_workspace(gateway_workspaces.USUAL_WORKSPACE_NAME)
        try:
            (row,) = bench.list_conversations()
            assert row.title == "look around"
            calls = await asyncio.to_thread(agent.ask)
            assert [name for _, name, _ in calls] == [TOOL]
            session = await bench.open_session(row.id)
            assert "line 4: the quick" in heard[2].raw.decode()
            assert compute_savings(session.conversation.state).steps == 3
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
        self.print_line, self.print_error = console.print_line, console.print_error
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
    folder: Path, answer: running_instance.Answer, ask: AskAgentModel = _nobody
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
        await owner.aclose()


async def test_a_long_history_is_told_once(tmp_path: Path) -> None:
    consoles: list[Counted] = []
    async with bench(tmp_path) as made:

        async def answer(_: list[str], console: Console) -> int:
            consoles.append(Counted(console))
            return await remote_conversations.serve_gateway_process(made, consoles[0])

        async with apart(tmp_path / "run", answer) as room:
            units, sizes = history(1_000), list[int]()
            for number in range(3):
                sent = await room.receive_request(*arrival(units))
                assert are_all_unchanged(sent.entries, len(units))
                said = anthropic_wire.parse_reply(
                    WRITERS["anthropic"].whole([Calls("Bash", {}, f"d{number}")], USAGE, "d")
                )
                replied = Replied(said.message.pieces, "claude-opus-4-6", Stop.CALLS, Usage(10, 0, 0, 1))
                await room.record_agent_reply(sent.ticket, replied, said.message.identity_key)
                units += [*said.message.units, anthropic_wire.result_message(f"d{number}", "Bash", "fine")]
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


@given(
    st.lists(
        st.tuples(st.integers(0, MOST_HELD_VALUES + 1).map(str), st.lists(st.integers(0, 2)).map(tuple)), max_size=200
    )
)
def test_what_differs_is_enough(values: list[tuple[str, tuple[int, ...]]]) -> None:
    here, there = LastSentValues(), LastSentValues()
    for name, value in values:
        assert there.restore_whole(name, *here.split_off_known(name, value)) == value
