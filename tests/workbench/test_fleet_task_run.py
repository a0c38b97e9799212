"""One run of a task: what it may do without being asked, how it goes on, and what came of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop import errors
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import ConversationChanged, ToolCall, TurnEnd, TurnEnded, UserSaid
from helix_desktop.engine.messages import RetryDelay
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session import Session
from helix_desktop.engine.view import build_state
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import (
    FleetTask,
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
)
from helix_desktop.store.shared.known_leases import seconds_since_start_of_computer
from helix_desktop.workbench import Workbench, claimed_fleet_task, fleet_task_run
from helix_desktop.workbench.claimed_fleet_task import ClaimedFleetTask, LostFleetTask, TaskLease
from helix_desktop.workbench.fleet_step_gate import BudgetSpent, FleetStepGate
from helix_desktop.workbench.fleet_task_run import (
    GIVEN_BACK,
    LONGEST_ANSWER,
    STOPPED,
    TOO_LATE,
    TURN_TRIES,
    FleetTaskOutcome,
    FleetTaskRun,
    WorkspaceIsClosing,
    outcome_of_error,
)
from helix_desktop.workbench.unattended_permissions import (
    UserAnswer,
    describe_missing_permission,
    permission_by_rule,
)
from tests.peers.chat_server import ChatServer, reply
from tests.workbench.conftest import Desks
from tests.workbench.test_fleet_worker import CALL, place

DONE = reply("It is made.")
WAITING, FAILED = FleetTaskState.WAITING, FleetTaskState.FAILED


class Runs:
    """Runs of tasks in one workspace, each with a claim of its own."""

    def __init__(self, bench: Workbench, tasks: FleetTaskList, server: ChatServer) -> None:
        self.bench = bench
        self.tasks = tasks
        self.server = server
        self._owned = OwnedTasks("runs")

    async def new(
        self,
        order: FleetTaskOrder | None = None,
        *,
        worker: Collection[str] = (),
        task: Collection[str] = (),
    ) -> tuple[FleetTaskRun, ClaimedFleetTask]:
        await self.tasks.add_fleet_tasks([NewFleetTask(order or FleetTaskOrder("write"))])
        (claimed,) = await self.tasks.claim_fleet_tasks("me", 1, 30)
        return self.of(claimed, worker=worker, task=task)

    def of(
        self, task_of_list: FleetTask, *, worker: Collection[str] = (), task: Collection[str] = ()
    ) -> tuple[FleetTaskRun, ClaimedFleetTask]:
        far = seconds_since_start_of_computer() + 1_000
        claimed = ClaimedFleetTask(task_of_list, far, 0.0)
        gate = FleetStepGate(self.tasks.notes, "me")
        run = FleetTaskRun(
            self.bench, self.tasks.notes, gate, claimed, worker, task, owned=self._owned
        )
        return run, claimed

    async def aclose(self) -> None:
        await self._owned.aclose()


@asynccontextmanager
async def running(desks: Desks, folder: Path, *script: object) -> AsyncIterator[Runs]:
    async with place(desks, folder, *script) as (bench, tasks, server):  # type: ignore[arg-type]
        runs = Runs(bench, tasks, server)
        yield runs
        await runs.aclose()


# --- What an error means


@pytest.mark.parametrize(
    "kind",
    [
        errors.StoreFailed,
        errors.StoreFull,
        errors.SharedStoreUnreachable,
        errors.ModelOverloaded,
        errors.ProviderUnreachable,
    ],
)
def test_what_may_pass_lets_the_task_wait(kind: type[errors.HelixError]) -> None:
    assert outcome_of_error(kind("It is so.")) == FleetTaskOutcome(
        WAITING, FleetTaskResult(str(kind("It is so."))), is_setback=True
    )


@pytest.mark.parametrize(
    "error",
    [
        errors.CacheCorrupt("It is so."),
        errors.JournalCorrupt("It is so."),
        errors.WrittenByNewerVersion("It is so."),
        BudgetSpent("It is so.", for_all=True),
        errors.NotFound("It is so."),
    ],
)
def test_what_lasts_ends_the_task(error: errors.HelixError) -> None:
    outcome = outcome_of_error(error)
    assert outcome.state is FAILED
    assert outcome.result.why.startswith("It is so.")
    assert not outcome.is_setback


# --- A turn


async def test_a_run_answers_and_says_what_it_cost(desks: Desks, folder: Path) -> None:
    answer = " ".join(str(number) for number in range(LONGEST_ANSWER // 4))
    assert len(answer) > LONGEST_ANSWER
    async with running(desks, folder, reply(answer)) as runs:
        run, claimed = await runs.new(FleetTaskOrder("write", budget=2.5))
        assert run.list_recorded_facts() == ()
        assert run._task_cost() == 0.0
        assert run._least_cost_of_next_request() == 0.0
        outcome = await run.run_task()
        assert outcome.state is FleetTaskState.DONE
        assert outcome.result.answer == answer[:LONGEST_ANSWER]
        assert outcome.result.cost == run._task_cost() > 0
        assert run._least_cost_of_next_request() > 0
        recorded = [type(one.fact) for one in run.list_recorded_facts()]
        assert UserSaid in recorded
        assert recorded[-1] is TurnEnded
        assert claimed.session is not None
        assert len(claimed.session.all_facts) > len(recorded), (
            "not what the conversation began with"
        )


async def test_another_computer_finds_a_task_done_and_asks_for_nothing(
    desks: Desks, folder: Path
) -> None:
    async with running(desks, folder, reply("done")) as runs:
        run, claimed = await runs.new(FleetTaskOrder("write"))
        await run.run_task()
        again, _ = runs.of(claimed.task)
        assert (await again.run_task()).state is FleetTaskState.DONE
        assert len(runs.server.bodies) == 1
        assert again.list_recorded_facts() == []


async def test_what_a_run_claims_follows_whether_it_is_ending(desks: Desks, folder: Path) -> None:
    async with running(desks, folder, reply("done")) as runs:
        run, claimed = await runs.new(FleetTaskOrder("write", budget=2.5))
        await run.run_task()
        claim = run.build_claim()
        assert (claim.budget, claim.is_ending()) == (2.5, False)
        claimed.is_ending = True
        assert claim.is_ending()
        assert claim.waiting is claimed.waiting


@pytest.mark.parametrize("allowed_by", ["worker", "task"])
async def test_what_the_worker_or_the_task_allows_is_done_without_a_question(
    desks: Desks, folder: Path, allowed_by: str
) -> None:
    async with running(desks, folder, CALL, DONE) as runs:
        worker: tuple[str, ...] = ()
        task: tuple[str, ...] = ()
        if allowed_by == "worker":
            worker = ("edits",)
        else:
            task = ("edits",)
        run, claimed = await runs.new(worker=worker, task=task)
        assert (await run.run_task()).state is FleetTaskState.DONE
        assert (folder / "made.txt").read_text() == "made"
        assert claimed.question is None


async def asking(runs: Runs) -> tuple[FleetTask, PermissionQuestion]:
    """A task that has asked, as the list of tasks has it then."""
    run, claimed = await runs.new()
    outcome = await run.run_task()
    assert outcome.state is FleetTaskState.NEEDS_YOU
    question = claimed.question
    assert question is not None
    assert outcome.result.why == describe_missing_permission(question)
    assert outcome.result.asked == "write_file"
    assert outcome.result.rules == question.rules
    assert outcome.result.rule_folders == question.rule_folders
    assert outcome.result.rules
    assert outcome.result.cost > 0
    await runs.bench.sessions.close_sessions([claimed.task.id])
    return replace(claimed.task, result=outcome.result), question


async def test_a_call_that_nobody_allowed_waits_and_is_made_when_it_is_allowed_once(
    desks: Desks, folder: Path
) -> None:
    other_call = reply(calls=[("write_file", {"path": "other.txt", "content": "other"})])
    async with running(desks, folder, CALL, other_call, DONE) as runs:
        task, _ = await asking(runs)
        assert not (folder / "made.txt").exists()
        once = UserAnswer(allowed=True).as_permission(task.result.why)
        run, _ = runs.of(task, task=[once])
        outcome = await run.run_task()
        assert (folder / "made.txt").read_text() == "made"
        # The answer was for one call.
        assert outcome.state is FleetTaskState.NEEDS_YOU
        assert not (folder / "other.txt").exists()
        assert len(runs.server.bodies) == 2


async def test_by_a_rule_such_calls_are_allowed_for_the_whole_task(
    desks: Desks, folder: Path
) -> None:
    async with running(desks, folder, CALL, CALL, DONE) as runs:
        task, question = await asking(runs)
        run, _ = runs.of(task, task=[permission_by_rule("write_file", question.rules[0])])
        assert (await run.run_task()).state is FleetTaskState.DONE
        assert (folder / "made.txt").read_text() == "made"


async def test_a_denied_call_is_not_made_and_the_model_reads_why(
    desks: Desks, folder: Path
) -> None:
    async with running(desks, folder, CALL, reply("I leave it.")) as runs:
        task, _ = await asking(runs)
        denied = UserAnswer(allowed=False, words="Use another name.").as_permission(task.result.why)
        run, _ = runs.of(task, task=[denied])
        outcome = await run.run_task()
        assert (outcome.state, outcome.result.answer) == (FleetTaskState.DONE, "I leave it.")
        assert not (folder / "made.txt").exists()
        assert "Use another name." in str(runs.server.bodies[-1])


async def test_an_answer_is_for_what_the_user_has_read(desks: Desks, folder: Path) -> None:
    async with running(desks, folder, CALL) as runs:
        task, question = await asking(runs)
        run, _ = runs.of(task)
        other = replace(question, preview="another text")
        other_tool = replace(other, call=ToolCall("2", "run_command", "{}"))
        yes, no = PermissionAnswer(allowed=True), PermissionAnswer(allowed=False)
        assert run._is_answer_to(question, yes)
        assert run._is_answer_to(question, no)
        assert not run._is_answer_to(other, yes), "it would do something else"
        assert run._is_answer_to(other, no), "a no holds for that, too"
        assert not run._is_answer_to(other_tool, no)


async def test_the_words_after_a_question_say_what_the_user_has_decided(
    desks: Desks, folder: Path
) -> None:
    """Where the call that asked is no longer the newest, it cannot be repeated as it was."""
    async with running(desks, folder, DONE, DONE, DONE) as runs:
        run, claimed = await runs.new()
        await run.run_task()
        session = claimed.session
        assert session is not None
        asked = replace(claimed.task, result=FleetTaskResult("why", asked="write_file"))
        later, _ = runs.of(asked)
        for answer, words in (
            (PermissionAnswer(allowed=False, words="No!"), "with write_file, and denied it. No!]"),
            (PermissionAnswer(allowed=True), "wanted to use write_file, so that call was stopped"),
            (None, "The user has read this and lets you go on."),
        ):
            await later._send_or_resume(session, answer)
            await session.wait_until_idle()
            assert words in str(runs.server.bodies[-1]["messages"][-1])
        assert fleet_task_run._has_message_of_user(session)


async def test_a_task_without_a_model_or_with_an_unknown_agent_fails_with_the_reason(
    desks: Desks, folder: Path
) -> None:
    async with running(desks, folder, DONE) as runs:
        run, _ = await runs.new(FleetTaskOrder("write", agent="nobody"))
        outcome = await run.run_task()
        assert outcome.state is FAILED
        assert "There is no agent named nobody in Tasks." in outcome.result.why
        await runs.bench.choose_model_for_role("")
        run, claimed = await runs.new()
        outcome = await run.run_task()
        assert outcome.state is FAILED
        assert "No model has been chosen for Tasks." in outcome.result.why
        task = replace(claimed.task, order=FleetTaskOrder("write", model="peer/scripted"))
        named, _ = runs.of(task)
        assert (await named.run_task()).state is FleetTaskState.DONE
        assert named._provider() == "peer"


async def test_a_closing_workspace_ends_the_worker_and_a_lost_task_is_left_to_its_new_one(
    desks: Desks, folder: Path
) -> None:
    async with running(desks, folder, DONE) as runs:
        run, claimed = await runs.new()

        async def stop() -> Session | None:
            raise errors.StoppedByUser("The workspace closes.")

        run._run_turn_until_it_begins = stop  # type: ignore[method-assign]
        with pytest.raises(WorkspaceIsClosing, match="The workspace closes"):
            await run.run_task()
        lost, claimed = runs.of(claimed.task)
        claimed.lose_lease(to_another=True)
        with pytest.raises(LostFleetTask):
            await lost.run_task()
        assert runs.server.bodies == []


async def test_a_turn_that_cannot_begin_is_tried_some_times_and_then_waits_or_fails(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimed_fleet_task, "AWAY_SECONDS", 0.0)
    tries: list[str] = []

    @asynccontextmanager
    async def refuse(conversation: str) -> AsyncIterator[None]:
        tries.append(conversation)
        raise errors.ActionRefused("Another computer is working in this conversation.")
        yield

    async with running(desks, folder, DONE) as runs:
        monkeypatch.setattr(runs.bench.sharing, "hold_turn_lease", refuse)
        run, claimed = await runs.new()
        outcome = await run.run_task()
        assert tries == [claimed.task.id] * TURN_TRIES
        assert (outcome.state, outcome.is_setback) == (FAILED, False)
        assert "Another computer is working" in outcome.result.why
        monkeypatch.setattr(runs.bench.sharing, "other_machine_writing", lambda _: "laptop")
        waiting = run._outcome_of_turn_that_did_not_begin()
        assert (waiting.state, waiting.is_setback) == (WAITING, True)
        assert runs.server.bodies == []


async def test_what_another_computer_wrote_in_the_conversation_loses_the_task(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(desks, folder, DONE) as runs:

        async def is_sent(conversation: str) -> bool:
            return not conversation

        monkeypatch.setattr(runs.bench.sharing, "ensure_sent", is_sent)
        run, claimed = await runs.new()
        with pytest.raises(LostFleetTask, match="Another computer wrote to this task"):
            await run.run_task()
        assert claimed.lease is TaskLease.TAKEN


# --- The model


@pytest.mark.parametrize("ordered", ["", "peer/other"])
async def test_a_task_keeps_the_model_that_worked_on_it_when_another_is_chosen_later(
    desks: Desks, folder: Path, ordered: str
) -> None:
    async with running(desks, folder, DONE) as runs:
        run, claimed = await runs.new(FleetTaskOrder("write", model=ordered))
        await run.run_task()
        await runs.bench.choose_model_for_role("peer/third")
        used_model = ordered or "peer/scripted"
        assert runs.bench.model_of_conversation(claimed.task.id) == used_model
        facts = await runs.bench.read_conversation_facts(claimed.task.id)
        assert build_state(facts).own_model == used_model


async def test_a_task_from_a_machine_with_other_providers_goes_on_with_the_model_of_this_one(
    desks: Desks, folder: Path
) -> None:
    async with running(desks, folder, DONE) as runs:
        run, claimed = await runs.new()
        session = await runs.bench.start_conversation(identity=claimed.task.id)
        await session.conversation.append_facts(ConversationChanged(model="elsewhere/large"))
        await run.run_task()
        assert runs.bench.model_of_conversation(claimed.task.id) == "peer/scripted"
        assert len(runs.server.bodies) == 1


# --- Steps


async def test_an_overloaded_provider_is_left_alone_by_all_workers(
    desks: Desks, folder: Path
) -> None:
    async with running(desks, folder) as runs:
        await runs.bench.start_conversation(identity="c")
        run, _ = await runs.new()
        run._note_retry_delay(RetryDelay("busy", 60.0))
        await runs._owned.aclose()
        assert not (await runs.tasks.notes.read_state()).paused
        run._bench.set_model_until_closed(run._task.id, "peer/scripted")
        await run._pause_provider(60.0)
        assert set((await runs.tasks.notes.read_state()).paused) == {"peer"}


@pytest.mark.parametrize(("scope", "for_all"), [("workspace", True), ("agent reader", False)])
async def test_a_spent_budget_of_all_gives_the_task_back_but_that_of_an_agent_ends_it(
    desks: Desks, folder: Path, scope: str, *, for_all: bool
) -> None:
    async with running(desks, folder, DONE) as runs:
        run, claimed = await runs.new()
        await run.run_task()
        await runs.tasks.notes.set_limit(scope, 0.001)
        order = replace(claimed.task.order, agent="reader")
        again, claimed_again = runs.of(replace(claimed.task, order=order))
        claimed_again.session = claimed.session
        with pytest.raises(BudgetSpent):
            await again._await_step_allowed()
        assert again._is_budget_spent
        assert claimed_again.must_be_given_back is for_all


# --- What came of it


async def idle_run(runs: Runs) -> tuple[FleetTaskRun, ClaimedFleetTask, Session]:
    run, claimed = await runs.new()
    session = await run._open_task_session()
    claimed.session = session
    return run, claimed, session


async def test_a_turn_is_too_late_from_its_deadline_on(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(desks, folder) as runs:
        run, claimed, session = await idle_run(runs)
        for now, why in ((499.0, GIVEN_BACK), (500.0, TOO_LATE), (501.0, TOO_LATE)):
            monkeypatch.setattr(
                fleet_task_run, "seconds_since_start_of_computer", lambda now=now: now
            )
            claimed.deadline = 500.0
            assert run._outcome_of_turn(session).result.why == why
        assert run._outcome_of_turn(session).state is FAILED
        claimed.deadline = 0.0
        assert run._outcome_of_turn(session).result.why == GIVEN_BACK, "it has no deadline"
        claimed.was_stopped_by_user = True
        claimed.deadline = 500.0
        stopped = run._outcome_of_turn(session)
        assert (stopped.state, stopped.result.why) == (FleetTaskState.CANCELLED, STOPPED)


@pytest.mark.parametrize(
    ("end", "state", "why", "is_setback"),
    [
        (None, WAITING, GIVEN_BACK, False),
        (TurnEnded(TurnEnd.STOPPED, "let go"), WAITING, GIVEN_BACK, False),
        (TurnEnded(TurnEnd.FAILED, "Busy.", "busy"), WAITING, "Busy.", True),
        (TurnEnded(TurnEnd.FAILED, "Away.", "connection"), WAITING, "Away.", True),
        (TurnEnded(TurnEnd.FAILED, "Full.", "store"), WAITING, "Full.", True),
        (TurnEnded(TurnEnd.FAILED, "No.", "key"), FAILED, "The turn ended early: No.", False),
        (TurnEnded(TurnEnd.REPEATING), FAILED, "The turn ended early: repeating", False),
    ],
)
async def test_an_unfinished_turn_waits_if_the_reason_may_pass_and_fails_otherwise(
    desks: Desks,
    folder: Path,
    end: TurnEnded | None,
    state: FleetTaskState,
    why: str,
    *,
    is_setback: bool,
) -> None:
    async with running(desks, folder) as runs:
        run, claimed, _ = await idle_run(runs)
        assert run._outcome_of_unfinished_turn(end, 1.5) == FleetTaskOutcome(
            state, FleetTaskResult(why, cost=1.5), is_setback
        )
        run._is_budget_spent = True
        if is_setback:
            spent = run._outcome_of_unfinished_turn(end, 1.5)
            assert (spent.state, spent.is_setback) == (FAILED, False), "no weather"
        claimed.must_be_given_back = True
        given_back = run._outcome_of_unfinished_turn(end, 1.5)
        assert (given_back.state, given_back.is_setback) == (WAITING, False)
        if end is not None and end.reason is TurnEnd.FAILED:
            assert given_back.result.why == end.why
        else:
            assert given_back.result.why == GIVEN_BACK


@pytest.mark.parametrize(
    ("end", "is_stop"),
    [
        (None, False),
        (TurnEnded(TurnEnd.STOPPED), True),
        (TurnEnded(TurnEnd.STOPPED, "The worker stopped it."), False),
        (TurnEnded(TurnEnd.DONE), False),
    ],
)
def test_the_programs_own_stops_are_not_the_users(end: TurnEnded | None, *, is_stop: bool) -> None:
    assert fleet_task_run._is_stop_of_user(end) is is_stop


async def test_a_task_that_the_user_stopped_before_its_worker_died_does_not_go_on(
    desks: Desks, folder: Path
) -> None:
    async with running(desks, folder, DONE) as runs:
        run, claimed, session = await idle_run(runs)
        was_stopped = fleet_task_run._was_stopped_by_user_before
        assert not was_stopped(claimed.task, session)
        assert fleet_task_run._last_turn_end(session) is None
        assert not fleet_task_run._is_done(session)
        assert not fleet_task_run._has_message_of_user(session)
        ends = (TurnEnded(TurnEnd.DONE), TurnEnded(TurnEnd.STOPPED))
        await session.conversation.append_facts(*ends)
        assert fleet_task_run._last_turn_end(session) == ends[1]
        assert was_stopped(claimed.task, session)
        assert not was_stopped(replace(claimed.task, result=FleetTaskResult("It asks.")), session)
        outcome = await run.run_task()
        assert outcome.state is FleetTaskState.CANCELLED
        assert runs.server.bodies == []
