"""An agent's request and its reply stay together when a window opens or closes between them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from helix_desktop import concurrency, program_folders
from helix_desktop.commands import workspace_access
from helix_desktop.console import Console
from helix_desktop.engine.facts import ModelReplied, Spent, Text
from helix_desktop.errors import ActionRefused, StoppedByUser
from helix_desktop.gateway import gateway_workspaces
from helix_desktop.gateway.conversations_port import AgentConversations
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.moving_conversations import MovingConversations
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.running_instance import connect_to_owner
from helix_desktop.secrets import SecretStorage
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.workbench.all_workbenches import Workbenches
from tests.faults.gateway_histories import _nobody, bench
from tests.gateway.running import TOOL, Agent, running
from tests.gateway.test_agent_conversation import Room
from tests.gateway.test_remote_conversations import apart
from tests.peers.agent_provider import Block, Calls, Provider, Says

WORKSPACE = gateway_workspaces.USUAL_WORKSPACE_NAME


class HeldReplies:
    """A provider's script that holds each answer back until it is released, so that something
    can happen between a request and its reply.
    """

    def __init__(self, *replies: list[Block]) -> None:
        self._replies = list(replies)
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()

    def answer(self, _: object) -> list[Block]:
        self.is_asked.set()
        self.may_answer.wait(30)
        return self._replies.pop(0)


def start_window(home: Path) -> Workbenches:
    where = program_folders.find_program_folders(home)
    return Workbenches(
        where,
        SecretStorage(where.key_file),
        serve=lambda workspace: workspace_access.listen_for_commands(workspace, where),
    )


async def recorded_costs(window: Workbenches) -> tuple[list[str], int]:
    """What the model said in the only conversation, and how often something was paid in it."""
    opened = await window.open_workspace(WORKSPACE)
    (row,) = opened.list_conversations()
    texts: list[str] = []
    paid_count = 0
    for entry in await opened.read_conversation_facts(row.id):
        fact = entry.fact
        if isinstance(fact, ModelReplied | Spent):
            assert fact.usage.output > 0
            paid_count += 1
        if isinstance(fact, ModelReplied):
            texts.extend(part.text for part in fact.parts if isinstance(part, Text))
    return texts, paid_count


@pytest.mark.parametrize(("window_change", "has_step_before"), [("closes", True), ("opens", False)])
async def test_a_reply_is_recorded_with_its_cost_although_a_window_closes_or_opens_before_it(
    tmp_path: Path, window_change: str, has_step_before: bool
) -> None:
    held = HeldReplies([Says("I look."), Calls(TOOL, {"command": "a"})], [Says("a wall")])
    async with AsyncExitStack() as closing:
        first_window = start_window(tmp_path)
        closing.push_async_callback(first_window.aclose)
        if window_change == "closes":
            where = program_folders.find_program_folders(tmp_path)
            AllWorkspaces(where.workspaces_folder).create_stored_workspace(WORKSPACE)
            await first_window.open_workspace(WORKSPACE)
        provider = closing.enter_context(Provider(held.answer))
        url = closing.enter_context(running(tmp_path, provider.url, serves=True))
        closing.callback(held.may_answer.set)
        agents = concurrency.OwnedTasks("agents")
        agent = Agent("anthropic", url)
        agent.say("look around")
        expected_texts = ["I look."]
        if has_step_before:
            held.may_answer.set()
            calls = await asyncio.to_thread(agent.ask)
            agent.results([(call, name, "nothing") for call, name, _ in calls])
            expected_texts.append("a wall")
            held.may_answer.clear()

        held.is_asked.clear()
        asking = agents.spawn_task(asyncio.to_thread(agent.ask), name="ask")
        await asyncio.to_thread(held.is_asked.wait, 30)
        if window_change == "closes":
            await first_window.aclose()
        else:
            await first_window.open_workspace(WORKSPACE)
        held.may_answer.set()
        await asking

        last_window = first_window
        if window_change == "closes":
            last_window = start_window(tmp_path)
            closing.push_async_callback(last_window.aclose)
        assert await recorded_costs(last_window) == (expected_texts, len(expected_texts))


# A host that has a forwarded request recorded only when somebody wants it, and not soon by itself.
SLOW_HOST = """
import sys
from helix_desktop import cli
from helix_desktop.gateway import local_conversations
local_conversations.AHEAD_SECONDS = 600.0
cli.main(sys.argv[1:])
"""


async def test_a_request_that_went_with_its_host_is_recorded_with_its_reply(tmp_path: Path) -> None:
    """The host is killed between a request that it had forwarded and the reply. Only the cost of the
    reply was recorded then, and the words of both with the next request, if one came.
    """
    where = program_folders.find_program_folders(tmp_path)
    known = AllWorkspaces(where.workspaces_folder).create_stored_workspace(WORKSPACE)
    held = HeldReplies([Says("I look."), Calls(TOOL, {"command": "a"})], [Says("a wall")])
    held.may_answer.set()
    words = ["--home", str(tmp_path), "host", "--keep", "--workspace", known.id]
    with (
        subprocess.Popen([sys.executable, "-c", SLOW_HOST, *words]) as host,
        Provider(held.answer) as provider,
    ):
        try:
            async with asyncio.timeout(60):
                while (wire := await connect_to_owner(where.run, known.id)) is None:
                    await asyncio.sleep(0.02)
            await wire.close()
            with running(tmp_path, provider.url, serves=True) as url:
                agent = Agent("anthropic", url, session="one")
                agent.say("look around")
                calls = await asyncio.to_thread(agent.ask)
                agent.results([(call, name, "nothing") for call, name, _ in calls])
                held.is_asked.clear()
                held.may_answer.clear()
                agents = concurrency.OwnedTasks("agents")
                asking = agents.spawn_task(asyncio.to_thread(agent.ask), name="ask")
                await asyncio.to_thread(held.is_asked.wait, 30)
                host.kill()
                host.wait()
                held.may_answer.set()
                await asking
        finally:
            held.may_answer.set()
            host.kill()
    window = start_window(tmp_path)
    assert await recorded_costs(window) == (["I look.", "a wall"], 2)
    await window.aclose()


async def test_a_step_that_comes_while_the_window_closes_is_recorded_where_the_workspace_is_then(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path / "here") as made:

        async def answer(_: list[str], console: Console) -> int:
            await console.read_input()  # A question that it has no time for.
            return 0

        here = LocalAgentConversations(made, _nobody)
        async with apart(tmp_path / "run", answer) as there:

            async def find_open_conversations() -> AgentConversations:
                if there.is_ended:
                    return here
                return there

            moving = MovingConversations(find_open_conversations)
            agent = Room(made, moving)
            agent.units = [anthropic_gateway.user_message("look")]
            assert await moving.count_known_messages(agent.arrival()[0]) == 0
            sent = await agent.send()
            await agent.answer(sent, Says("a wall"))
            assert there.is_ended
        await here.aclose()
        recorded = await made.read_conversation_facts(sent.ticket.conversation)
        replies = [entry.fact for entry in recorded if isinstance(entry.fact, ModelReplied)]
        (only_part,) = replies[0].parts
        assert isinstance(only_part, Text)
        assert only_part.text == "a wall"


async def test_a_step_that_comes_while_the_gateway_closes_opens_no_workspace(
    tmp_path: Path,
) -> None:
    where = program_folders.find_program_folders(tmp_path)
    is_asked = asyncio.Event()

    async def answer(_: list[str], console: Console) -> int:
        await console.read_input()
        is_asked.set()
        await asyncio.Event().wait()
        return 0

    async def serve_nobody(_: object) -> None:
        return None

    opened = gateway_workspaces.GatewayWorkspaces(where, WORKSPACE, serve_nobody, _nobody)
    async with (
        bench(tmp_path / "here") as made,
        apart(tmp_path / "run", answer) as there,
        opened.hold_workspace_open("") as moving,
    ):
        (identity,) = opened._conversations_by_id
        opened._conversations_by_id[identity] = there
        sending = concurrency.OwnedTasks("agents").spawn_task(
            Room(made, moving).send(anthropic_gateway.user_message("a")), name="send"
        )
        await is_asked.wait()
        await opened.aclose()
        with pytest.raises(StoppedByUser):
            await sending


async def test_a_call_that_fails_where_the_workspace_is_still_open_fails() -> None:
    class Refusing(LocalAgentConversations):
        def __init__(self) -> None:
            self.asked_count = 0

        async def fold_after_overflow(self, ticket: object, window: int = 0) -> None:
            self.asked_count += 1
            raise ActionRefused("No.")

    refusing = Refusing()

    async def find_open_conversations() -> AgentConversations:
        return refusing

    with pytest.raises(ActionRefused):
        await MovingConversations(find_open_conversations).fold_after_overflow(None)  # type: ignore[arg-type]
    assert refusing.asked_count == 1
