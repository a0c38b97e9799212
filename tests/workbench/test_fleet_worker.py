"""A worker on an open workbench: what it may not do any more, what it may spend, and
what it leaves to others.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import (
    Fact,
    FilesChanged,
    ModelReplied,
    Recorded,
    Stored,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import (
    ActionRefused,
    HelixError,
    ModelOverloaded,
    ProviderUnreachable,
    SharedStoreUnreachable,
    StoreFailed,
    StoreFull,
)
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.store.fleet_task_files import open_fleet_task_list
from helix_desktop.store.fleet_task_list import FleetTaskList, pause_after_setbacks
from helix_desktop.store.fleet_tasks import (
    FleetTask,
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
)
from helix_desktop.store.shared.async_rows import AsyncRowStore
from helix_desktop.store.shared.known_leases import seconds_since_start_of_computer
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.shared_store_link import SharedStoreConnection
from helix_desktop.workbench import (
    Workbench,
    claimed_fleet_task,
    conversation_sharing,
    fleet_worker,
)
from helix_desktop.workbench.fleet_overview import collect_fleet_state
from helix_desktop.workbench.fleet_step_gate import FleetStepGate
from helix_desktop.workbench.fleet_task_run import FleetTaskOutcome
from helix_desktop.workbench.fleet_worker import FleetWorker
from tests.peers.chat_server import ChatServer, refused, reply
from tests.peers.peer import Answer, Scripted, Seen
from tests.store.shared.machines import KEY, Clock, Machine, Way
from tests.store.shared.memory_rows import MemoryHeads, MemoryRowStore, MemoryServer
from tests.workbench.conftest import Desks
from tests.workbench.test_limits import DEAR
from tests.workbench.test_rules_and_skills import trusting

LET_GO = "The task's worker stopped this turn."
CALL = reply(calls=[("write_file", {"path": "made.txt", "content": "made"})])


@asynccontextmanager
async def place(
    desks: Desks, folder: Path, *script: Scripted
) -> AsyncIterator[tuple[Workbench, FleetTaskList, ChatServer]]:
    with ChatServer(script) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
        desk.configured.correct_model("peer", "scripted", DEAR)
        bench = await desk.create_workspace("Tasks", folder)
        await bench.choose_model_for_role("peer/scripted")
        async with open_fleet_task_list(bench.workspace) as tasks:
            yield bench, tasks, server


class Hold:
    """Something that a thread of the server and the test wait for."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def let_go(self) -> None:
        self._event.set()

    def wait(self) -> None:
        assert self._event.wait(30)

    async def seen(self) -> None:
        assert await asyncio.to_thread(self._event.wait, 30)


def worker_of(bench: Workbench, tasks: FleetTaskList) -> FleetWorker:
    return FleetWorker(bench, tasks, at_once=2, allowed=["edits"])


def share(
    bench: Workbench, heads: MemoryHeads | None = None, shelf: MemoryServer | None = None
) -> MemoryRowStore:
    seal = RowCipher(KEY)
    engine = MemoryRowStore(shelf or MemoryServer(), seal.space)
    connected = SharedStoreConnection(AsyncRowStore(engine), seal)

    async def connect() -> SharedStoreConnection:
        return connected

    bench.workspace.share_content("memory://", connect)
    bench.sharing.start_conversation_sync(
        partial(
            bench.workspace.build_conversation_sync,
            connected,
            heads or MemoryHeads(time.monotonic),
            "here",
        ),
        address="postgresql://",
    )
    return engine


async def test_a_budget_lets_a_task_go_beyond_it_by_one_request_at_most(
    desks: Desks, folder: Path
) -> None:
    script = [reply(calls=[("read_file", {"path": "README.md"})]) for _ in range(9)]
    async with place(desks, folder, *script) as (bench, tasks, server):
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("spend", budget=0.7))])
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(until_empty=True), 60)
        ended = await tasks.find_fleet_task(task)
        requests = len(server.bodies)
        assert ended.state is FleetTaskState.FAILED
        assert "This conversation has cost" in ended.result.why
        assert requests == 2
        assert 0.7 <= ended.result.cost < 0.7 + ended.result.cost / requests
        await tasks.retry_fleet_task(ended)  # what was spent before counts as well
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(until_empty=True), 60)
        assert len(server.bodies) == requests


async def test_a_spent_budget_of_the_workspace_lets_its_tasks_wait(
    desks: Desks, folder: Path
) -> None:
    script = [reply(calls=[("read_file", {"path": "README.md"})]) for _ in range(9)]
    async with place(desks, folder, *script, reply("done"), reply("done")) as (
        bench,
        tasks,
        server,
    ):
        await tasks.add_fleet_tasks(
            [NewFleetTask(FleetTaskOrder("one")), NewFleetTask(FleetTaskOrder("two"))]
        )
        await tasks.notes.set_limit("workspace", 0.7)
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(until_empty=True), 60)
        requests = len(server.bodies)
        counts = await tasks.count_fleet_tasks()
        cost = counts.dollars
        dearest = cost / requests
        assert 0.7 <= cost < 0.7 + dearest
        assert counts.by_state["waiting"] == 2
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(until_empty=True), 60)
        assert len(server.bodies) == requests
        assert any("budget (workspace)" in one.result.why for one in await tasks.list_fleet_tasks())
        await tasks.notes.set_limit("workspace", 0.0)
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(until_empty=True), 60)
        assert (await tasks.count_fleet_tasks()).by_state["done"] == 2


async def test_a_provider_that_asked_one_worker_to_wait_is_left_alone_by_others(
    desks: Desks, folder: Path
) -> None:
    async with place(
        desks, folder, Answer(429, headers=(("retry-after", "3"),)), reply("done")
    ) as (bench, tasks, _):
        await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("one"))])
        working = asyncio.ensure_future(  # noqa: TID251
            worker_of(bench, tasks).work_until_drained(until_empty=True)
        )
        gate = FleetStepGate(tasks.notes, "desk 2.1")
        (task,) = await tasks.list_fleet_tasks()
        while not (await tasks.notes.read_state()).paused:
            await asyncio.sleep(0)
        assert not await gate.try_to_begin_step(task, 0.0, "peer")
        assert await gate.try_to_begin_step(task, 0.0, "other")
        await asyncio.wait_for(working, 60)
        assert (await tasks.count_fleet_tasks()).by_state["done"] == 1


async def test_workers_hear_that_they_are_to_end(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimed_fleet_task, "TASK_LEASE_SECONDS", 0.6)
    async with place(desks, folder) as (bench, tasks, _):
        working = asyncio.ensure_future(worker_of(bench, tasks).work_until_drained())  # noqa: TID251
        while not await tasks.notes.drain_workers():
            await asyncio.sleep(0)
        await asyncio.wait_for(working, 60)
        assert (await tasks.notes.read_state()).workers == {}


async def test_a_worker_with_a_long_task_is_not_without_anything_to_do(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may end once it was idle for a while, which begins when its last task has ended."""
    monkeypatch.setattr(fleet_worker, "POLL_SECONDS", 0.01)
    loop = asyncio.get_running_loop()
    looked_often = asyncio.Event()
    idle_since_claim: list[float] = []

    def answer(_seen: object) -> Answer:
        asyncio.run_coroutine_threadsafe(looked_often.wait(), loop).result(30)
        return reply("done")

    async with place(desks, folder, answer) as (bench, tasks, _):
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("look"))])
        worker = worker_of(bench, tasks)
        claim = worker._claim_and_start
        looks = 0

        async def claim_and_count() -> fleet_worker.ClaimAttempt:
            nonlocal looks
            looks += 1
            if looks == 10:
                looked_often.set()
            return await claim()

        def may_end(idle_seconds: float) -> bool:
            idle_since_claim.append(idle_seconds)
            return True

        monkeypatch.setattr(worker, "_claim_and_start", claim_and_count)
        await asyncio.wait_for(worker.work_until_drained(may_end=may_end), 60)
        assert looks >= 10
        assert len(idle_since_claim) == 1
        assert (await tasks.find_fleet_task(task)).state is FleetTaskState.DONE


async def test_a_task_that_was_cancelled_runs_no_tool_any_more(desks: Desks, folder: Path) -> None:
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    cancelled = asyncio.Event()

    def answer(_seen: object) -> Answer:
        loop.call_soon_threadsafe(asked.set)
        asyncio.run_coroutine_threadsafe(cancelled.wait(), loop).result(30)
        return CALL

    async with place(desks, folder, answer, reply("done")) as (bench, tasks, _):
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("write"))])
        worker = worker_of(bench, tasks)
        working = asyncio.ensure_future(worker.work_until_drained(until_empty=True))  # noqa: TID251
        await asyncio.wait_for(asked.wait(), 30)
        await tasks.cancel_fleet_task(task)
        await worker._renew_leases()
        cancelled.set()
        await asyncio.wait_for(working, 60)
        assert not (folder / "made.txt").exists()
        assert (await tasks.find_fleet_task(task)).state is FleetTaskState.CANCELLED


async def test_a_worker_that_hung_writes_nothing_beside_the_one_that_took_over(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease has expired, and another worker goes on in the conversation. What it
    was about to write would split it.
    """
    asked = Hold()
    answered = Hold()

    def answer(_seen: object) -> Answer:
        asked.let_go()
        answered.wait()
        return CALL

    async with place(desks, folder, answer) as (bench, tasks, _):
        share(bench)
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("write"))])
        worker = worker_of(bench, tasks)
        working = asyncio.ensure_future(worker.work_until_drained(until_empty=True))  # noqa: TID251
        await asked.seen()
        written = len((await bench.open_session(task)).all_facts)
        now = seconds_since_start_of_computer()
        monkeypatch.setattr(
            claimed_fleet_task, "seconds_since_start_of_computer", lambda: now + 1_000
        )
        other = "UPDATE tasks SET claims = claims + 1, worker = 'other 1.1', until = ?"
        await tasks._run_statements([(other, (time.time() + 1_000,))])
        answered.let_go()  # The reply arrives before the worker hears that its lease is lost.
        await until_an_append_waits(worker)
        await worker._renew_leases()
        while worker._claimed:
            await asyncio.sleep(0)
        assert len((await bench.open_session(task)).all_facts) == written
        assert not (folder / "made.txt").exists()
        assert (await tasks.find_fleet_task(task)).worker == "other 1.1"
        worker.drain(0.0)
        await asyncio.wait_for(working, 30)


async def test_what_a_dead_worker_left_behind_is_recorded_after_what_another_one_wrote(
    desks: Desks, folder: Path, tmp_path: Path
) -> None:
    """It is found when the workspace is opened the next time, without a task's claim."""
    shelf = MemoryServer()
    heads = MemoryHeads(time.monotonic)
    async with place(desks, folder, CALL, reply("done")) as (bench, tasks, _):
        share(bench, heads, shelf)
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("write"))])
        await worker_of(bench, tasks).work_until_drained(until_empty=True)
        way = Way(MemoryRowStore(shelf, RowCipher(KEY).space), heads)
        other = Machine.make("other", tmp_path, way, Clock())
        await other.shared.fetch_new_facts()
        await other.shared.take_over_lease(task)
        await other.write(task, "the other one goes on")
        await other.shared.send_new_facts()
        before = len(await bench.read_conversation_facts(task))
        known = bench.sharing._conversations
        assert known is not None
        known.leases.set_lease_end(task, 0.0)  # As in a process that has just started.
        left = FilesChanged(
            Stored(Digest.of_content(b"x"), 1), Digest.of_content(b"a"), Digest.of_content(b"b"), 1
        )
        record = bench.file_changes._current_checkpoints().record_changes
        assert record is not None
        with pytest.raises(ActionRefused):
            await record(task, left)
        await other.shared.send_and_release_leases()
        await record(task, left)
        added = [one.fact for one in (await bench.read_conversation_facts(task))[before:]]
        assert [type(fact).__name__ for fact in added] == ["UserSaid", "FilesChanged"]
        await bench.sharing.sync_conversations_now()
        await other.shared.fetch_new_facts()
        assert len(other.journal.read_stored_facts(task)) == before + 2
        assert [row.id for row in bench.list_conversations()] == [task]
        await other.aclose()


async def test_another_computer_may_try_first_what_one_gave_back(
    desks: Desks, folder: Path
) -> None:
    async with place(desks, folder, reply("done")) as (bench, tasks, _):
        setback = FleetTaskOutcome(FleetTaskState.WAITING, FleetTaskResult("full"), is_setback=True)
        rests = []
        for is_shared in (False, True):
            tasks.is_shared = is_shared
            worker = worker_of(bench, tasks)
            worker._rest_after_setback(setback)
            rests.append(worker._rests_until - time.monotonic())
        alone, beside_others = rests
        pause_of_task = pause_after_setbacks(1)
        assert alone <= pause_of_task < beside_others - 4


async def until_an_append_waits(worker: FleetWorker) -> None:
    (claimed,) = worker._claimed.values()
    while not claimed._changed._waiters:
        await asyncio.sleep(0)


async def test_a_drained_worker_gives_back_what_runs_and_the_next_one_goes_on(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_worker, "DRAIN_SECONDS", 5.0)
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def answer(_seen: object) -> Answer:
        loop.call_soon_threadsafe(asked.set)
        return CALL.silent_after(1, 20)

    async with place(desks, folder, answer, CALL, reply("It is made.")) as (bench, tasks, _):
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("write"))])
        first = worker_of(bench, tasks)
        working = asyncio.ensure_future(first.work_until_drained())  # noqa: TID251
        await asyncio.wait_for(asked.wait(), 30)
        first.drain(0.0)
        await asyncio.wait_for(working, 30)
        given_back = await tasks.find_fleet_task(task)
        assert (given_back.state, given_back.claims) == (FleetTaskState.WAITING, 1)
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(until_empty=True), 60)
        done = await tasks.find_fleet_task(task)
        assert (done.state, done.result.answer) == (FleetTaskState.DONE, "It is made.")
        assert (folder / "made.txt").read_text() == "made"
        assert [row.id for row in bench.list_conversations()] == [task]


async def test_a_task_claimed_again_by_its_own_process_goes_on_once(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease ran out while the store was away; when it came back, the claim was
    answered before a renewal that had begun earlier.
    """
    asked = Hold()
    answered = Hold()

    def answer(_seen: object) -> Answer:
        asked.let_go()
        answered.wait()
        return CALL

    async with place(desks, folder, answer, CALL, reply("It is made.")) as (bench, tasks, _):
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("write"))])
        worker = worker_of(bench, tasks)
        working = asyncio.ensure_future(worker.work_until_drained(until_empty=True))  # noqa: TID251
        await asked.seen()
        await tasks._run_statements([("UPDATE tasks SET until = 0", ())])
        renew = tasks.renew_leases_of_tasks
        opened = bench.sharing.fetch_facts_of_others
        second = asyncio.Event()

        async def renew_after_claim(held: Sequence[FleetTask], seconds: float) -> frozenset[str]:
            while (await tasks.find_fleet_task(task)).claims < 2:
                await worker._claim_and_start()
            with suppress(
                TimeoutError
            ):  # the second claim waits for the first, and opens nothing meanwhile
                await asyncio.wait_for(second.wait(), 0.3)
            return await renew(held, seconds)

        async def note_second() -> None:
            second.set()
            await opened()

        monkeypatch.setattr(tasks, "renew_leases_of_tasks", renew_after_claim)
        monkeypatch.setattr(bench.sharing, "fetch_facts_of_others", note_second)
        await worker._renew_leases()
        answered.let_go()
        await asyncio.wait_for(working, 60)
        done = await tasks.find_fleet_task(task)
        assert (done.state, done.result.answer, done.claims) == (
            FleetTaskState.DONE,
            "It is made.",
            2,
        )


@pytest.mark.parametrize("claims", [1, 2])
async def test_a_turn_that_the_user_stops_ends_its_task(
    desks: Desks, folder: Path, claims: int
) -> None:
    asked = Hold()

    def answer(_seen: object) -> Answer:
        asked.let_go()
        return CALL.silent_after(1, 20)

    async with place(desks, folder, answer, reply("It goes on.")) as (bench, tasks, server):
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("write"))])
        await tasks._run_statements([("UPDATE tasks SET claims = ?", (claims - 1,))])
        working = asyncio.ensure_future(  # noqa: TID251
            worker_of(bench, tasks).work_until_drained(until_empty=True)
        )
        await asked.seen()
        (before,) = (await tasks._run_statements([("SELECT result FROM tasks", ())]))[0]
        (await bench.open_session(task)).stop_turn()
        await asyncio.wait_for(working, 60)
        ended = await tasks.find_fleet_task(task)
        assert (ended.state, ended.result.why) == (
            FleetTaskState.CANCELLED,
            "Someone stopped this turn in the task's conversation.",
        )
        # The worker dies before the list knows: the next one does not go on either.
        await tasks.retry_fleet_task(ended)
        lost = ("UPDATE tasks SET state = 'running', until = 0, result = ? RETURNING id", before)
        assert await tasks._run_statements([lost]) == [[(task,)]]
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(until_empty=True), 60)
        assert (await tasks.find_fleet_task(task)).state is FleetTaskState.CANCELLED
        assert len(server.bodies) == 1
        await tasks.retry_fleet_task(ended)
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(until_empty=True), 60)
        assert (await tasks.find_fleet_task(task)).result.answer == "It goes on."


async def test_a_task_whose_conversation_is_closed_waits_for_the_next_worker(
    desks: Desks, folder: Path
) -> None:
    asked = Hold()

    def answer(_seen: object) -> Answer:
        asked.let_go()
        return CALL.silent_after(1, 20)

    async with place(desks, folder, answer, reply("It goes on.")) as (bench, tasks, _):
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("write"))])
        working = asyncio.ensure_future(  # noqa: TID251
            worker_of(bench, tasks).work_until_drained(until_empty=True)
        )
        await asked.seen()
        await (await bench.open_session(task)).aclose()
        await asyncio.wait_for(working, 60)
        done = await tasks.find_fleet_task(task)
        assert (done.state, done.result.answer, done.claims) == (
            FleetTaskState.DONE,
            "It goes on.",
            2,
        )


@pytest.mark.parametrize("trouble", [SharedStoreUnreachable, StoreFull])
async def test_a_task_waits_while_its_database_is_away_or_full(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch, trouble: type[StoreFailed]
) -> None:
    async with place(desks, folder, CALL, reply("It is made.")) as (bench, tasks, _):
        monkeypatch.setattr(claimed_fleet_task, "AWAY_SECONDS", 0.0)
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("write"))])
        confirm = bench.sharing.ensure_sent
        troubles = [trouble("no"), trouble("not yet")]

        async def confirm_later(conversation: str) -> bool:
            if troubles:
                raise troubles.pop()
            return await confirm(conversation)

        monkeypatch.setattr(bench.sharing, "ensure_sent", confirm_later)
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(until_empty=True), 60)
        assert (await tasks.find_fleet_task(task)).state is FleetTaskState.DONE
        assert (folder / "made.txt").read_text() == "made"


@pytest.mark.parametrize(
    "weather",
    [StoreFull, StoreFailed, SharedStoreUnreachable, ProviderUnreachable, ModelOverloaded],
)
async def test_weather_gives_a_task_back_and_it_is_done_later_with_what_waits_for_it(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch, weather: type[HelixError]
) -> None:
    """While a turn runs, its disk is full, or the network is gone."""
    monkeypatch.setattr(fleet_worker, "REST_SECONDS", 0.0)
    monkeypatch.setattr(fleet_worker, "COUNT_SECONDS", 0.01)
    async with place(desks, folder, CALL, CALL, reply("It is made."), reply("After.")) as (
        bench,
        tasks,
        _,
    ):
        task, after = await tasks.add_fleet_tasks(
            [
                NewFleetTask(FleetTaskOrder("write"), key="first"),
                NewFleetTask(FleetTaskOrder("after"), after=("first",)),
            ]
        )
        journal = bench.workspace.journal
        seen: list[FleetTask] = []
        append = journal.append_to_journal

        async def append_in_bad_weather(
            conversation: str, facts: Sequence[Fact]
        ) -> Sequence[Recorded]:
            if not seen and any(isinstance(fact, ModelReplied) for fact in facts):
                seen.append(await tasks.find_fleet_task(task))
                raise weather("No room is left.")
            return await append(conversation, facts)

        monkeypatch.setattr(journal, "append_to_journal", append_in_bad_weather)
        reported = list[tuple[str, FleetTaskState, str]]()

        async def report(ended: FleetTask, state: FleetTaskState, result: FleetTaskResult) -> None:
            reported.append((ended.id, state, result.why))

        worker = worker_of(bench, tasks)
        worker.report = report
        await asyncio.wait_for(worker.work_until_drained(until_empty=True), 60)
        assert seen
        assert reported == [
            (task, FleetTaskState.WAITING, "No room is left."),
            (task, FleetTaskState.DONE, ""),
            (after, FleetTaskState.DONE, ""),
        ]
        assert (folder / "made.txt").read_text() == "made"
        # `fleet status` says how often, on every computer.
        shown = await collect_fleet_state(tasks, ())
        assert list(shown["setbacks"].values()) == [1]
        assert shown["unsent_facts"] == {}


async def test_a_spent_budget_of_an_agent_is_no_weather(desks: Desks, folder: Path) -> None:
    agents = folder / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "reader.md").write_text("---\nname: reader\ndescription: reads\n---\nOnly read.\n")
    script = [reply(calls=[("read_file", {"path": "README.md"})]) for _ in range(9)]
    async with place(desks, folder, *script) as (bench, tasks, _):
        await trusting(bench)
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("x", agent="reader"))])
        await tasks.notes.set_limit("agent reader", 0.1)
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(until_empty=True), 60)
        ended = await tasks.find_fleet_task(task)
        assert ended.state is FleetTaskState.FAILED
        assert "budget (agent reader)" in ended.result.why


async def test_an_end_that_another_machine_wrote_is_not_the_end_of_a_turn_that_never_began(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker before sent that it had stopped its turn, and still had the
    conversation's lease.
    """
    async with place(desks, folder, reply("One."), reply("Two.")) as (bench, tasks, _):
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("write"))])
        turn_lease = bench.sharing.hold_turn_lease
        refused: list[str] = []

        @asynccontextmanager
        async def lease_after_another(conversation: str) -> AsyncIterator[None]:
            if not refused:
                refused.append(conversation)
                session = await bench.open_session(conversation)
                end = TurnEnded(TurnEnd.STOPPED, LET_GO)

                async def grow() -> None:
                    await session.conversation.journal.append_to_journal(conversation, (end,))

                await session.conversation.append_foreign_facts(grow)
                raise ActionRefused("Another computer is working in this conversation.")
            async with turn_lease(conversation):
                yield

        monkeypatch.setattr(bench.sharing, "hold_turn_lease", lease_after_another)
        monkeypatch.setattr(claimed_fleet_task, "AWAY_SECONDS", 0.0)
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(until_empty=True), 60)
        assert (await tasks.find_fleet_task(task)).state is FleetTaskState.DONE


async def test_an_agent_works_with_the_tools_its_file_names(desks: Desks, folder: Path) -> None:
    agents = folder / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "reader.md").write_text(
        "---\nname: reader\ndescription: reads\ntools: Read\n---\nOnly read.\n"
    )
    async with place(desks, folder, reply("read")) as (bench, tasks, server):
        await trusting(bench)
        known, unknown = await tasks.add_fleet_tasks(
            [
                NewFleetTask(FleetTaskOrder("look", agent="reader")),
                NewFleetTask(FleetTaskOrder("look", agent="nobody")),
            ]
        )
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(until_empty=True), 60)
        assert "There is no agent named nobody" in (await tasks.find_fleet_task(unknown)).result.why
        assert (await tasks.find_fleet_task(known)).state is FleetTaskState.DONE
        offered = {tool["function"]["name"] for tool in server.bodies[0]["tools"]}
        assert "read_file" in offered
        assert not offered & {"write_file", "edit_file", "run_command"}


async def test_conversations_of_ended_tasks_leave_this_disk_and_come_back_when_their_task_goes_on(
    desks: Desks, folder: Path
) -> None:
    answers = [refused(400)]
    answers += [reply(f"Answer {number}.") for number in range(4)]
    answers.append(reply("It goes on."))
    async with place(desks, folder, *answers) as (bench, tasks, _):
        share(bench)
        worker = worker_of(bench, tasks)
        worker._at_once = 1
        worker.most_kept = 2
        wanted = [NewFleetTask(FleetTaskOrder(f"task {number}")) for number in range(5)]
        first, *others = await tasks.add_fleet_tasks(wanted)
        await asyncio.wait_for(worker.work_until_drained(until_empty=True), 60)
        assert (await tasks.find_fleet_task(first)).state is FleetTaskState.FAILED
        await worker.release_old_conversations()
        assert [row.id for row in bench.list_conversations()] == [others[3], others[2]]
        assert await tasks.retry_fleet_task(await tasks.find_fleet_task(first))
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(until_empty=True), 60)
        ended = await tasks.find_fleet_task(first)
        assert (ended.state, ended.result.answer) == (FleetTaskState.DONE, "It goes on.")
        said = [
            one.fact
            for one in (await bench.open_session(first)).all_facts
            if isinstance(one.fact, UserSaid)
        ]
        assert len(said) == 1


async def test_a_worker_whose_workspace_closes_leaves_its_tasks_to_others(
    desks: Desks, folder: Path
) -> None:
    async with place(desks, folder) as (bench, tasks, _):
        await tasks.add_fleet_tasks(
            [NewFleetTask(FleetTaskOrder(f"task {number}")) for number in range(5)]
        )
        await bench.tasks.aclose()
        await asyncio.wait_for(worker_of(bench, tasks).work_until_drained(), 60)
        assert {task.state for task in await tasks.list_fleet_tasks()} == {FleetTaskState.WAITING}


@pytest.mark.parametrize(("bound", "number"), [(30, 6), (1, 2)])
async def test_what_is_not_in_the_store_never_exceeds_the_bound_while_all_tasks_write(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch, bound: int, number: int
) -> None:
    """The store takes nothing until a task waits for room: with 30, where 24 are left
    free for ends, before the first has begun. With a bound that is too small, each
    append goes alone.
    """
    monkeypatch.setattr(conversation_sharing, "MOST_UNSENT_FACTS", bound)
    monkeypatch.setattr(
        conversation_sharing, "TURN_PATIENCE", 0.1
    )  # A turn begins before the store answers.

    def answer(seen: Seen) -> Answer:
        return reply("Made.") if seen.body["messages"][-1]["role"] == "tool" else CALL

    async with place(desks, folder, *[answer] * 2 * number) as (bench, tasks, server):
        lock = share(bench)._lock_if_reachable()
        journal = bench.workspace.journal
        sizes = [0]
        unsent = [0]
        await bench.sharing.sync_conversations_now()
        append = journal.append_to_journal

        async def append_and_count(conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
            sizes.append(len(facts))
            recorded = await append(conversation, facts)
            unsent.append(await bench.sharing.count_facts_not_sent())
            return recorded

        monkeypatch.setattr(journal, "append_to_journal", append_and_count)
        await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("write")) for _ in range(number)])
        worker = worker_of(bench, tasks)
        worker._at_once = number
        with lock:
            working = asyncio.create_task(worker.work_until_drained(until_empty=True))  # noqa: TID251
            waiting = before = set[object]()
            # Until one waits for room, and does not just write.
            while len(server.bodies) < number and not waiting & before:
                await asyncio.sleep(0.3)
                before = waiting
                waiting = set(bench.sharing.unsent._line)
        await asyncio.wait_for(working, 120)
        assert {task.state for task in await tasks.list_fleet_tasks()} == {FleetTaskState.DONE}
        assert max(unsent) <= max(bound, *sizes)


# --- One decision at a time


async def add(tasks: FleetTaskList, *texts: str) -> list[str]:
    return await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder(text)) for text in texts])


async def test_who_wants_the_workspace_at_once_gets_it_and_who_drains_waits(
    desks: Desks, folder: Path
) -> None:
    async with place(desks, folder) as (bench, tasks, _):
        worker = worker_of(bench, tasks)
        assert not worker.must_release_workspace
        worker.drain()
        assert (worker._drain_seconds, worker.must_release_workspace) == (20.0, False)
        worker.drain(0.0)
        assert worker.must_release_workspace
        assert worker._is_draining.is_set()


async def test_each_worker_of_a_process_has_a_name_of_its_own(desks: Desks, folder: Path) -> None:
    async with place(desks, folder) as (bench, tasks, _):
        names = [worker_of(bench, tasks)._name for _ in range(2)]
        numbers = [int(name.rpartition(".")[2]) for name in names]
        assert numbers[1] == numbers[0] + 1
        assert names[0].rpartition(".")[0] == names[1].rpartition(".")[0]
        assert names[0].startswith(f"{bench.sharing.machine_name} ")


async def test_there_is_no_work_if_nothing_runs_and_nothing_will_by_itself(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place(desks, folder) as (bench, tasks, _):
        worker = worker_of(bench, tasks)
        attempt = fleet_worker.ClaimAttempt
        assert await worker._has_no_work(attempt.NONE_READY)
        assert await worker._has_no_work(attempt.NOT_ALLOWED)
        assert not await worker._has_no_work(attempt.STARTED)
        assert not await worker._has_no_work(attempt.UNKNOWN)
        await add(tasks, "later")
        (claimed,) = await tasks.claim_fleet_tasks("one", 1, 30)
        await tasks.give_back_after_setback(claimed, FleetTaskResult("full"))
        assert not await worker._has_no_work(attempt.NONE_READY), "one may run later"
        assert await worker._has_no_work(attempt.NOT_ALLOWED)

        async def fail() -> float | None:
            raise StoreFailed("away")

        monkeypatch.setattr(tasks, "seconds_until_next_try", fail)
        assert not await worker._has_no_work(attempt.NONE_READY), "nobody knows"


async def claimed_by(
    tasks: FleetTaskList, count: int = 1
) -> list[claimed_fleet_task.ClaimedFleetTask]:
    until = seconds_since_start_of_computer() + 100
    claimed = await tasks.claim_fleet_tasks("one", count, 30)
    return [claimed_fleet_task.ClaimedFleetTask(task, until, 0.0) for task in claimed]


async def idle() -> None:
    """A task of a worker that goes on until it is ended."""
    await asyncio.Event().wait()


async def test_a_worker_takes_only_what_it_has_room_for(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async with place(desks, folder) as (bench, tasks, _):
        await add(tasks, "a", "b")
        running = await claimed_by(tasks, 2)
        worker = worker_of(bench, tasks)

        async def claim(_worker: str, most: int, _seconds: float) -> list[FleetTask]:
            asked.append(most)
            return []

        monkeypatch.setattr(tasks, "claim_fleet_tasks", claim)
        attempt = fleet_worker.ClaimAttempt
        owned = OwnedTasks("room")
        assert await worker._claim_and_start() is attempt.NONE_READY
        for number, one in enumerate(running):
            worker._claimed[owned.spawn_task(idle(), name=str(number))] = one
            if number == 0:
                assert await worker._claim_and_start() is attempt.NONE_READY
        assert await worker._claim_and_start() is attempt.NOT_ALLOWED
        running[0].waiting.append("child")  # It waits for others, so another one may run.
        assert await worker._claim_and_start() is attempt.NONE_READY
        assert asked == [2, 1, 1]
        worker._claimed.clear()
        await owned.aclose()
        monkeypatch.setattr(bench.sharing.unsent, "may_write_more_facts", lambda: False)
        assert await worker._claim_and_start() is attempt.NOT_ALLOWED


async def test_a_worker_takes_nothing_while_all_is_stopped_spent_or_away(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = fleet_worker.ClaimAttempt
    async with place(desks, folder) as (bench, tasks, _):
        await add(tasks, "a")
        worker = worker_of(bench, tasks)
        stop = tasks.notes.build_stop_statement
        await tasks._run_statements([stop(is_stopped=True)])
        assert await worker._claim_and_start() is attempt.NOT_ALLOWED
        await tasks._run_statements([stop(is_stopped=False)])
        await tasks.notes.set_limit("workspace", -0.5)
        assert await worker._claim_and_start() is attempt.NOT_ALLOWED
        await tasks.notes.set_limit("workspace", 0.0)
        worker._rests_until = time.monotonic() + 60
        assert await worker._claim_and_start() is attempt.UNKNOWN
        worker._rests_until = 0.0
        monkeypatch.setattr(claimed_fleet_task, "AWAY_SECONDS", 0.0)

        async def fail(*_: object) -> list[FleetTask]:
            raise SharedStoreUnreachable("away")

        monkeypatch.setattr(tasks, "claim_fleet_tasks", fail)
        assert await worker._claim_and_start() is attempt.UNKNOWN
        assert (await tasks.count_fleet_tasks()).by_state["waiting"] == 1


async def test_a_task_is_taken_by_another_if_it_was_claimed_since(
    desks: Desks, folder: Path
) -> None:
    async with place(desks, folder) as (bench, tasks, _):
        worker = worker_of(bench, tasks)
        await add(tasks, "a")
        (claimed,) = await claimed_by(tasks)
        assert not await worker._is_taken_by_another(claimed.task)
        await tasks._run_statements([("UPDATE tasks SET claims = claims + 1", ())])
        assert await worker._is_taken_by_another(claimed.task)
        gone = replace(claimed.task, id="0" * 20)
        assert not await worker._is_taken_by_another(gone)


async def test_leases_are_renewed_and_what_is_too_late_is_stopped(
    desks: Desks, folder: Path
) -> None:
    async with place(desks, folder) as (bench, tasks, _):
        worker = worker_of(bench, tasks)
        await add(tasks, "held", "late", "lost")
        held, late, lost = await claimed_by(tasks, 3)
        for one in (held, late, lost):
            one.held_until = 0.0
        late.deadline = 1.0
        held.deadline = seconds_since_start_of_computer() + 1_000
        await tasks._run_statements(
            [("UPDATE tasks SET claims = claims + 1 WHERE id = ?", (lost.task.id,))]
        )
        owned = OwnedTasks("leases")
        for number, one in enumerate((held, late, lost)):
            worker._claimed[owned.spawn_task(idle(), name=str(number))] = one
        before = seconds_since_start_of_computer()
        await worker._renew_leases()
        assert held.held_until >= before + claimed_fleet_task.TASK_LEASE_SECONDS
        assert (held.is_ending, late.is_ending) == (False, True)
        assert late.lease is claimed_fleet_task.TaskLease.HELD
        assert lost.lease is claimed_fleet_task.TaskLease.TAKEN
        worker._claimed.clear()
        await owned.aclose()


async def test_a_setback_lets_the_worker_rest_longer_each_time_up_to_a_limit(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("helix_desktop.workbench.fleet_worker.time", clock)
    setback = FleetTaskOutcome(FleetTaskState.WAITING, FleetTaskResult(), is_setback=True)
    fine = FleetTaskOutcome(FleetTaskState.DONE, FleetTaskResult())
    async with place(desks, folder) as (bench, tasks, _):
        worker = worker_of(bench, tasks)
        rests = []
        for _ in range(14):
            worker._rest_after_setback(setback)
            rests.append(worker._rests_until - now)
        assert rests == [2, 4, 8, 16, 32, *[60] * 9]
        assert worker._setbacks == 14
        worker._rest_after_setback(fine)
        assert worker._rests_until - now == 60, "it rests on"
        worker._rest_after_setback(setback)
        assert worker._rests_until - now == 2
        assert worker._setbacks == 15
        monkeypatch.setattr(tasks, "is_shared", True)
        worker._rest_after_setback(setback)
        assert worker._rests_until - now == 4 + 5, "another computer may try first"


async def test_an_outcome_is_recorded_as_the_end_or_as_a_setback(
    desks: Desks, folder: Path
) -> None:
    setback = FleetTaskOutcome(FleetTaskState.WAITING, FleetTaskResult("full"), is_setback=True)
    async with place(desks, folder) as (bench, tasks, _):
        worker = worker_of(bench, tasks)
        await add(tasks, "a", "b")
        first, second = await claimed_by(tasks, 2)
        done = FleetTaskOutcome(FleetTaskState.DONE, FleetTaskResult(answer="yes"))
        assert await worker._record_outcome(first.task, done) is FleetTaskState.DONE
        assert (await tasks.find_fleet_task(first.task.id)).result.answer == "yes"
        assert await worker._record_outcome(second.task, setback) is FleetTaskState.WAITING
        given_back = await tasks.find_fleet_task(second.task.id)
        assert (given_back.state, given_back.setbacks) == (FleetTaskState.WAITING, 1)
        assert await worker._record_outcome(second.task, setback) is FleetTaskState.WAITING
        assert (await tasks.find_fleet_task(second.task.id)).setbacks == 1, "it has it no more"


async def test_trouble_is_noted_while_there_is_any_and_once_more(
    desks: Desks, folder: Path
) -> None:
    async with place(desks, folder) as (bench, tasks, _):
        worker = worker_of(bench, tasks)
        await worker._note_trouble(0)
        assert (await tasks.notes.read_state()).setbacks == {}
        worker._setbacks = 2
        await worker._note_trouble(3)
        state = await tasks.notes.read_state()
        assert (state.setbacks, state.unsent_facts) == ({worker._name: 2}, {worker._name: 3})
        worker._setbacks = 0
        await worker._note_trouble(0)
        state = await tasks.notes.read_state()
        assert (state.setbacks, state.unsent_facts) == ({}, {})
        assert not worker._has_noted_trouble


async def test_conversations_leave_the_disk_when_there_are_half_as_many_again(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[set[str]] = []

    async def release(conversations: set[str]) -> None:
        released.append(set(conversations))

    async with place(desks, folder) as (bench, tasks, _):
        worker = worker_of(bench, tasks)
        worker.most_kept = 2
        monkeypatch.setattr(bench, "release_unused_conversations", release)
        ids = await add(tasks, "a", "b", "c")
        for number, task in enumerate(ids):
            session = await bench.start_conversation(identity=task)
            await session.conversation.append_facts(UserSaid(()))
            if number < 2:
                for claimed in await claimed_by(tasks):
                    await tasks.end_fleet_task(claimed.task, FleetTaskState.DONE, FleetTaskResult())
                await worker.release_old_conversations()
        child = await bench.start_conversation(parent=ids[0])
        grandchild = await bench.start_conversation(parent=child.id)
        await worker.release_old_conversations()
        assert released == [], "the third has not ended"
        for claimed in await claimed_by(tasks):
            await tasks.end_fleet_task(claimed.task, FleetTaskState.DONE, FleetTaskResult())
        await worker.release_old_conversations()
        newest_first = [row.id for row in bench.list_conversations() if not row.parent]
        (gone,) = released
        assert newest_first[2] in gone
        assert not gone & set(newest_first[:2])
        if newest_first[2] == ids[0]:
            assert gone == {ids[0], child.id, grandchild.id}
