"""What a provider was asked by a gateway that was killed before the reply is paid, once."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import ModelReplied, Purpose, Spent
from helix_desktop.engine.request_changes import CauseKind
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.workbench.all_workbenches import Workbenches
from helix_desktop.workbench.open_questions import FOLDER, OpenQuestions
from tests.gateway.running import TOOL, Agent, running
from tests.gateway.test_moving_conversations import WORKSPACE, HeldReplies, start_window
from tests.peers.agent_provider import Block, Calls, Provider, Says

GATEWAY = """
import sys
from pathlib import Path
from tests.gateway.running import running
with running(Path(sys.argv[1]), sys.argv[2], serves=True) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


class TitleAgent(Agent):
    """Asks without tools, as agents do for a title."""

    def body(self) -> dict[str, Any]:
        return {name: value for name, value in super().body().items() if name != "tools"}


REPORTED_TOKENS = 4_321
LOOKS: list[Block] = [Says("I look."), Calls(TOOL, {"command": "a"})]


@contextmanager
def gateway_process(home: Path, provider: Provider) -> Iterator[tuple[subprocess.Popen[str], str]]:
    words = [sys.executable, "-c", GATEWAY, str(home), provider.url]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


async def take_steps(agent: Agent, count: int) -> None:
    agent.say("look around")
    for _ in range(count):
        calls = await asyncio.to_thread(agent.ask)
        agent.results([(call, name, "nothing") for call, name, _ in calls])


async def ask_until_killed(
    agent: Agent, process: subprocess.Popen[str], may_be_killed: Callable[[], Awaitable[object]]
) -> None:
    """Ask, and kill the gateway once this has returned."""
    asking = asyncio.gather(asyncio.to_thread(agent.ask), return_exceptions=True)
    await may_be_killed()
    process.kill()
    process.wait()
    (failure,) = await asking
    assert isinstance(failure, httpx.HTTPError)


async def wait_for_note(home: Path) -> None:
    async with asyncio.timeout(30):
        while not list(home.rglob(f"{FOLDER}/*.json")):
            await asyncio.sleep(0.01)


async def paid_facts(window: Workbenches) -> list[ModelReplied | Spent]:
    opened = await window.open_workspace(WORKSPACE)
    (row,) = opened.list_conversations()
    paid: list[ModelReplied | Spent] = []
    for entry in await opened.read_conversation_facts(row.id):
        if isinstance(entry.fact, ModelReplied | Spent):
            paid.append(entry.fact)
    return paid


def require_estimate_of_step(paid: ModelReplied | Spent) -> None:
    assert isinstance(paid, Spent)
    assert paid.is_estimate
    assert paid.purpose is Purpose.STEP
    assert paid.usage.input > 0
    assert paid.usage.cost > 0


@pytest.mark.parametrize(("session", "steps_before"), [("one", 1), ("", 1), ("one", 0)])
async def test_a_request_of_a_killed_gateway_is_paid_once_by_estimate(
    tmp_path: Path, session: str, steps_before: int
) -> None:
    held = HeldReplies(*[LOOKS] * steps_before, [Says("never read")], [Says("a wall")])
    held.may_answer.set()
    with Provider(held.answer) as provider:
        provider.usage = lambda _: {"input": REPORTED_TOKENS, "read": 0, "write": 0}
        with gateway_process(tmp_path, provider) as (process, url):
            agent = Agent("anthropic", url, session=session)
            await take_steps(agent, steps_before)
            held.is_asked.clear()
            held.may_answer.clear()
            may_be_killed: Callable[[], Awaitable[object]]
            may_be_killed = partial(asyncio.to_thread, held.is_asked.wait, 30)
            if not steps_before:  # It goes on before it is recorded.
                may_be_killed = partial(wait_for_note, tmp_path)
            await ask_until_killed(agent, process, may_be_killed)
        held.may_answer.set()
        with running(tmp_path, provider.url) as agent.url:
            await asyncio.to_thread(agent.ask)
    window = start_window(tmp_path)
    *before, spent, reply = await paid_facts(window)
    await window.aclose()
    assert [type(fact) for fact in before] == [ModelReplied] * steps_before
    require_estimate_of_step(spent)
    assert isinstance(reply, ModelReplied)
    # The provider has said what the same request takes when it was sent again.
    assert isinstance(spent, Spent)
    assert spent.usage.input == reply.usage.input == REPORTED_TOKENS
    assert not list(tmp_path.rglob(f"{FOLDER}/*.json"))


async def test_a_reply_that_a_killed_gateway_was_relaying_is_paid_although_nobody_asks_again(
    tmp_path: Path,
) -> None:
    held = HeldReplies(LOOKS, [Says("never read")])
    held.may_answer.set()
    has_begun = threading.Event()
    may_end = threading.Event()

    def hold_stream() -> None:
        has_begun.set()
        may_end.wait(30)

    with Provider(held.answer) as provider, gateway_process(tmp_path, provider) as (process, url):
        agent = Agent("anthropic", url)
        await take_steps(agent, 1)
        provider.in_stream = hold_stream
        await ask_until_killed(agent, process, partial(asyncio.to_thread, has_begun.wait, 30))
        may_end.set()
    words = [sys.executable, "-m", "helix_desktop", "--home", str(tmp_path), "cost", "--json"]
    for _ in range(2):  # It is paid once, however often somebody looks.
        printed = await asyncio.to_thread(subprocess.check_output, [*words, "-w", WORKSPACE])
        tokens = {row["cause"]: row["tokens"] for row in json.loads(printed)["causes"]}
        assert tokens[CauseKind.UNANSWERED.value] > 0
    window = start_window(tmp_path)
    step, spent = await paid_facts(window)
    await window.aclose()
    assert isinstance(step, ModelReplied)
    require_estimate_of_step(spent)


@pytest.mark.parametrize(
    ("session", "steps_before", "is_streaming"), [("", 1, False), ("one", 1, True), ("", 0, False)]
)
async def test_a_window_that_has_the_workspace_pays_for_a_gateway_that_was_killed(
    tmp_path: Path, session: str, steps_before: int, is_streaming: bool
) -> None:
    where = program_folders.find_program_folders(tmp_path)
    AllWorkspaces(where.workspaces_folder).create_stored_workspace(WORKSPACE)
    window = start_window(tmp_path)
    await window.open_workspace(WORKSPACE)
    held = HeldReplies(*[LOOKS] * steps_before, [Says("never read")])
    held.may_answer.set()
    has_begun = threading.Event()
    may_end = threading.Event()

    def hold_stream() -> None:
        has_begun.set()
        may_end.wait(30)

    with Provider(held.answer) as provider, gateway_process(tmp_path, provider) as (process, url):
        agent = Agent("anthropic", url, session=session)
        await take_steps(agent, steps_before)
        held.is_asked.clear()
        waited_for = held.is_asked
        if is_streaming:
            provider.in_stream = hold_stream
            waited_for = has_begun
        else:
            held.may_answer.clear()

        async def wait_until_asked() -> None:
            await asyncio.to_thread(waited_for.wait, 30)
            await wait_for_note(tmp_path)

        await ask_until_killed(agent, process, wait_until_asked)
        held.may_answer.set()
        may_end.set()
    try:
        opened = await window.open_workspace(WORKSPACE)
        async with asyncio.timeout(60):
            while not opened.list_conversations() or len(await paid_facts(window)) <= steps_before:
                await asyncio.sleep(0.02)
        *steps, spent = await paid_facts(window)
    finally:
        await window.aclose()
    assert [type(step) for step in steps] == [ModelReplied] * steps_before
    require_estimate_of_step(spent)


@pytest.mark.parametrize("is_cost_asked", [True, False])
async def test_a_window_that_opened_during_a_request_pays_for_a_gateway_that_was_killed(
    tmp_path: Path, *, is_cost_asked: bool
) -> None:
    held = HeldReplies(LOOKS, [Says("never read")])
    held.may_answer.set()
    window = start_window(tmp_path)
    with Provider(held.answer) as provider, gateway_process(tmp_path, provider) as (process, url):
        agent = Agent("anthropic", url)
        await take_steps(agent, 1)
        held.is_asked.clear()
        held.may_answer.clear()

        async def open_window_meanwhile() -> None:
            await asyncio.to_thread(held.is_asked.wait, 30)
            await wait_for_note(tmp_path)
            await window.open_workspace(WORKSPACE)

        await ask_until_killed(agent, process, open_window_meanwhile)
        held.may_answer.set()
    words = [sys.executable, "-m", "helix_desktop", "--home", str(tmp_path), "cost", "--json"]
    try:
        if is_cost_asked:
            printed = await asyncio.to_thread(subprocess.check_output, [*words, "-w", WORKSPACE])
            tokens = {row["cause"]: row["tokens"] for row in json.loads(printed)["causes"]}
            assert tokens[CauseKind.UNANSWERED.value] > 0
        async with asyncio.timeout(30):
            while len(await paid_facts(window)) < 2:
                await asyncio.sleep(0.02)
        step, spent = await paid_facts(window)
    finally:
        await window.aclose()
    assert isinstance(step, ModelReplied)
    require_estimate_of_step(spent)


async def test_a_request_beside_a_conversation_of_a_killed_gateway_is_paid(tmp_path: Path) -> None:
    held = HeldReplies(LOOKS, [Says("never read")])
    held.may_answer.set()
    with Provider(held.answer) as provider, gateway_process(tmp_path, provider) as (process, url):
        agent = Agent("anthropic", url, session="one")
        await take_steps(agent, 1)
        held.is_asked.clear()
        held.may_answer.clear()
        title = TitleAgent("anthropic", url, session="one")
        title.say("Write a title for this: look around")
        await ask_until_killed(title, process, partial(asyncio.to_thread, held.is_asked.wait, 30))
        held.may_answer.set()
    window = start_window(tmp_path)
    step, spent = await paid_facts(window)
    await window.aclose()
    assert isinstance(step, ModelReplied)
    assert isinstance(spent, Spent)
    assert (spent.purpose, spent.is_estimate) == (Purpose.OTHER, True)
    assert 0 < spent.usage.input < 200


@pytest.mark.parametrize(("is_asked_before", "paid_count"), [(True, 1), (False, 2)])
async def test_a_reply_that_was_recorded_before_its_note_was_deleted_is_not_paid_twice(
    tmp_path: Path, *, is_asked_before: bool, paid_count: int
) -> None:
    held = HeldReplies([Says("a wall")])
    held.may_answer.set()
    with Provider(held.answer) as provider, running(tmp_path, provider.url) as url:
        agent = Agent("anthropic", url)
        agent.say("look around")
        asked_at = time.time()
        await asyncio.to_thread(agent.ask)
    if not is_asked_before:
        asked_at = time.time()
    (workspace,) = (tmp_path / "workspaces").glob("*/")
    with closing(sqlite3.connect(workspace / "journal.sqlite3")) as journal:
        ((conversation,),) = journal.execute("SELECT DISTINCT conversation FROM facts")
    questions = OpenQuestions(workspace / FOLDER)
    note = questions.note_question(conversation, Purpose.STEP, "claude-sonnet-4-5")
    note.question = replace(note.question, asked=asked_at)
    note.write_question_note()
    note.leave_question_unanswered()
    window = start_window(tmp_path)
    try:
        assert len(await paid_facts(window)) == paid_count
    finally:
        await window.aclose()
