"""Does the tasks of a workspace: claims them, runs each as a turn of its conversation,
and notes the result.

A task's conversation has the task's id on every machine. A worker that claims a task
which another one has begun fetches what that one sent, takes over the conversation's
lease, and resumes the turn from the journal. A task is done when its conversation in
the shared store says so; the list of tasks follows. Before each step and call, a worker
makes sure that it holds the lease, and before each call that others know of it, so no
effect is repeated.
"""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import field
from functools import partial
from typing import TypeVar

from helix_desktop import concurrency, errors
from helix_desktop.engine.facts import Text, TurnEnd, TurnEnded, UserSaid
from helix_desktop.engine.message_queue import BUG
from helix_desktop.engine.messages import RetryDelay
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, QuestionAsked, ReplyStreamed
from helix_desktop.engine.tool_call_execution import facts_that_take_back_unstarted_calls
from helix_desktop.errors import StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.fleet_notes import FleetNotes
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import (
    FleetTask,
    FleetTaskResult,
    FleetTaskState,
)
from helix_desktop.store.shared.known_leases import seconds_since_start_of_computer
from helix_desktop.workbench import unattended_permissions
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workbench.subagents import result_of_agent
from helix_desktop.workbench.worker_claims import WorkerClaim

log = logging.getLogger(__name__)
T = TypeVar("T")
TASK_LEASE_SECONDS = 30.0
POLL_SECONDS = 0.7  # The worker looks for new tasks this often.
TURN_TRIES = 5
RELEASE_SECONDS = (
    20.0  # The worker looks this often for conversations that it can remove from this disk.
)
HISTORY_SECONDS = 3600.0  # The worker removes tasks that ended long ago this often.
AWAY_SECONDS = 1.0  # While the store is out of reach, the worker tries to reach it this often.
DRAIN_SECONDS = 20.0  # Running tasks have this long to end. After that, other workers resume them.
LONGEST_ANSWER = 20_000  # This many characters of a task's answer are kept in the list of tasks.
PERMITTED = (
    "[Nobody could be asked when you wanted to use {asked}, so that call was stopped before it did anything."
    " The user has read this and lets you go on. Make the call again if you still need it.]"
)
DENIED = "[The user has read what you wanted to do with {asked}, and denied it. {words}]"
GIVEN_BACK = "The worker was stopped, and another worker will continue."
# The reason recorded if a worker stops a turn. A turn stopped by the user has another one.
LET_GO = "The task's worker stopped this turn."
NEEDS_PERMISSION = (
    "The task needs your permission. To continue, give permission in the Fleet window."
)
STOPPED = "Someone stopped this turn in the task's conversation."
_PROCESS = secrets.token_hex(3)  # A random part of the names of this process's workers.
_numbers = itertools.count(1)
Report = Callable[[FleetTask, FleetTaskState, FleetTaskResult], Awaitable[None]]


class LostFleetTask(errors.StoreFailed):
    """Another worker has the task now, or it was cancelled."""


@dataclass(slots=True)
class ClaimedFleetTask:
    """A task that this worker has until `held_until` or `is_lost`. `question`: what
    nobody here could allow.
    """

    task: FleetTask
    held_until: float
    deadline: float
    question: PermissionQuestion | None = None
    session: Session | None = None
    is_lost: bool = False
    gives_back: bool = False
    is_ending: bool = False
    is_stopped: bool = False  # True if the user has stopped this task's turn.
    waiting: list[str] = field(
        default_factory=list
    )  # The task's conversations in which a call waits for other tasks.
    _held_again: asyncio.Event = field(default_factory=asyncio.Event)

    def extend_lease(self, until: float) -> None:
        self.held_until = until
        self._held_again.set()

    def stop_turn(self, why: str = LET_GO) -> None:
        self.is_ending = True
        if self.session is not None:
            self.session.stop_turn(why)

    async def ensure_held(self) -> None:
        """Wait while it is unknown whether the lease holds. Raises LostFleetTask if it does not."""
        while (
            seconds_since_start_of_computer() > self.held_until - TASK_LEASE_SECONDS / 6
            and not self.is_lost
        ):
            self._held_again.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(AWAY_SECONDS):
                    await self._held_again.wait()
        if self.is_lost:
            raise LostFleetTask("This task was cancelled, or another worker has taken it over.")


class FleetWorker:
    """Works on a workspace's tasks until drained. `allowed`: what needs no permission,
    as in `ask --allow`.
    """

    def __init__(
        self, bench: Workbench, task_list: FleetTaskList, *, at_once: int, allowed: Collection[str]
    ) -> None:
        self._bench = bench
        self._list = task_list
        self._at_once = at_once
        self._allowed = frozenset(allowed)
        # The maximum number of conversations of ended tasks that stay on this disk, or
        # 0 for all.
        self.most_kept = 0
        self.tasks_may_allow = True  # False to ignore the permissions that tasks bring with them.
        self.report: Report | None = None  # Called with every task that ends.
        self._name = f"{bench.sharing.machine_name} {_PROCESS}.{next(_numbers)}"
        self._claimed: dict[asyncio.Task[None], ClaimedFleetTask] = {}
        self._owned = concurrency.OwnedTasks("worker")
        self._is_draining = asyncio.Event()
        self._drain_seconds = DRAIN_SECONDS
        self._gate = FleetStepGate(task_list.notes)

    def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Claim no more tasks, and give the running ones this many seconds to end."""
        self._drain_seconds = seconds
        self._is_draining.set()

    @property
    def must_release_workspace(self) -> bool:
        """Whether somebody else wants the workspace at once."""
        return not self._drain_seconds

    async def work_until_drained(self, *, until_empty: bool = False) -> None:
        """Work until drained. `until_empty`: or until no task can be claimed and none runs."""
        if self._bench.workspace.link is None:  # No shared store, so no other process has workers.
            await self._list.release_orphaned_tasks(_PROCESS)
        await self._renew_worker_note()
        renewing = self._owned.spawn_task(
            self._renew_until_cancelled(), name="renew leases of tasks"
        )
        self._owned.spawn_task(self._release_conversations_until_cancelled(), name="make room")
        self._owned.spawn_task(self._remove_old_tasks_until_cancelled(), name="shorten history")
        draining = self._owned.spawn_task(self._is_draining.wait(), name="drain")
        try:
            while not self._is_draining.is_set():
                claimed = await self._claim_and_start()
                if until_empty and not claimed and not self._claimed:
                    return
                ends = {draining, *self._claimed}
                await asyncio.wait(ends, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if self._claimed:
                await asyncio.wait(set(self._claimed), timeout=self._drain_seconds)
        finally:
            await self._give_back_tasks()
            renewing.cancel()
            await self._owned.aclose()
            with suppress(errors.HelixError):
                await self._list.notes.remove_worker(self._name)

    async def _give_back_tasks(self) -> None:
        """Stop the tasks that still run and send them, so that other workers can resume them."""
        for claimed in self._claimed.values():
            claimed.gives_back = True
            claimed.stop_turn()
        if self._claimed:
            await asyncio.wait(set(self._claimed), timeout=DRAIN_SECONDS)

    async def _claim_and_start(self) -> int:
        room = self._at_once - sum(not one.waiting for one in self._claimed.values())
        notes, unsent = self._list.notes, self._bench.sharing.unsent
        try:
            if (
                room <= 0
                or not unsent.may_write_more_facts()
                or (await notes.read_state()).dollars_left("") <= 0
            ):
                return 0
            asked = seconds_since_start_of_computer()
            found = await self._list.claim_fleet_tasks(self._name, room, TASK_LEASE_SECONDS)
        except (errors.SharedStoreUnreachable, errors.StoreFull) as error:
            log.info("no tasks can be claimed: %s", error.what)
            await asyncio.sleep(AWAY_SECONDS)
            return 1  # Not 0, because the list could not be read and may contain tasks.
        for task in found:
            deadline = asked + task.deadline_seconds if task.deadline_seconds else 0.0
            claimed = ClaimedFleetTask(task, asked + TASK_LEASE_SECONDS, deadline)
            running = self._owned.spawn_task(
                self._run_claimed_task(claimed), name=f"task {task.id}"
            )
            self._claimed[running] = claimed
            running.add_done_callback(lambda ended: self._claimed.pop(ended, None))
        return len(found)

    async def _renew_until_cancelled(self) -> None:
        while True:
            await asyncio.sleep(TASK_LEASE_SECONDS / 6)
            with suppress(errors.HelixError):  # If this fails, tasks wait before their next step.
                await self._renew_leases()
                await self._renew_worker_note()

    async def _renew_worker_note(self) -> None:
        """Show others that this worker lives, and drain it if it has been told to stop."""
        if await self._list.notes.renew_worker_and_tell_if_draining(self._name, TASK_LEASE_SECONDS):
            self.drain()

    async def _remove_old_tasks_until_cancelled(self) -> None:
        while True:
            with suppress(errors.HelixError):
                await self._list.remove_old_tasks()
            await asyncio.sleep(HISTORY_SECONDS)

    async def _release_conversations_until_cancelled(self) -> None:
        while self.most_kept:
            await asyncio.sleep(RELEASE_SECONDS)
            with suppress(errors.HelixError):
                await self.release_old_conversations()

    async def release_old_conversations(self) -> None:
        """Remove the oldest ended tasks' conversations from this disk once there are
        1.5 times `most_kept`.
        """
        rows = self._bench.list_conversations()
        if len(rows) < self.most_kept * 3 // 2:
            return
        ended = await self._list.filter_ended_tasks([row.id for row in rows if not row.parent])
        if len(ended) >= self.most_kept * 3 // 2:
            old = set(ended[self.most_kept :])
            while more := {row.id for row in rows if row.parent in old} - old:
                old |= more
            await self._bench.release_unused_conversations(old)

    async def _renew_leases(self) -> None:
        claimed, asked = list(self._claimed.values()), seconds_since_start_of_computer()
        held = await self._list.renew_leases_of_tasks(
            [one.task for one in claimed], TASK_LEASE_SECONDS
        )
        for one in claimed:
            one.is_lost = one.is_lost or one.task.id not in held
            if not one.is_lost:
                one.extend_lease(asked + TASK_LEASE_SECONDS)
            if one.is_lost or (one.deadline and asked >= one.deadline):
                one.stop_turn()

    async def _run_claimed_task(self, claimed: ClaimedFleetTask) -> None:
        task = claimed.task
        may_step, may_call = (
            partial(self._await_step_allowed, claimed),
            partial(self._ensure_call_allowed, claimed),
        )
        claim = WorkerClaim(
            may_step, may_call, task.order.budget, claimed.waiting, lambda: claimed.is_ending
        )
        try:
            async with self._bench.claims.hold_claim(task.id, claim), AsyncExitStack() as last:
                last.push_async_callback(self._bench.sessions.close_sessions, [task.id])
                last.callback(lambda: self._gate.end_request(task.id, self._task_cost(claimed)))
                state, result = await self._work_on_task(claimed)
                await self._retry_on_store_error(
                    claimed, lambda: self._list.end_fleet_task(task, state, result)
                )
            log.info("task %s is %s", task.id, state.value)
            if self.report is not None:
                await self.report(task, state, result)
        except Exception as error:
            if not isinstance(error, LostFleetTask):  # A bug: never retry such a task.
                await self._list.end_fleet_task(task, FleetTaskState.FAILED, FleetTaskResult(BUG))
                raise
            log.info("task %s went to another worker, or was cancelled", task.id)

    async def _work_on_task(
        self, claimed: ClaimedFleetTask
    ) -> tuple[FleetTaskState, FleetTaskResult]:
        try:
            for _ in range(TURN_TRIES):
                session = await self._retry_on_store_error(
                    claimed, lambda: self._open_task_session(claimed.task)
                )
                claimed.session = session
                claimed.is_stopped = claimed.is_stopped or _was_stopped_by_user_before(
                    claimed.task, session
                )
                has_ended = claimed.is_stopped or claimed.gives_back or _is_done(session)
                if has_ended or await self._run_turn(claimed, session):
                    break
                log.info("the turn of task %s did not begin: %s", claimed.task.id, session.why)
                await self._bench.sessions.close_sessions(
                    [session.id]
                )  # Also discards the unsent message.
                await asyncio.sleep(AWAY_SECONDS)
            else:
                return FleetTaskState.FAILED, FleetTaskResult(session.why)
            await self._ensure_conversation_is_sent(claimed)
        except LostFleetTask:
            raise
        except errors.StoppedByUser:  # The workspace is closing, so further tasks would fail.
            self.drain(0.0)
            return FleetTaskState.WAITING, FleetTaskResult(GIVEN_BACK)
        except errors.HelixError as error:
            return FleetTaskState.FAILED, FleetTaskResult(str(error))
        return self._state_and_result(claimed, session)

    async def _open_task_session(self, task: FleetTask) -> Session:
        """Open a task's conversation as the machine that had it before left it."""
        bench, sharing, order = self._bench, self._bench.sharing, task.order
        sharing.synced_sessions.branch_by_conversation.pop(task.id, None)
        if task.claims > 1:  # Another machine may have the conversations of its sub-agents.
            await sharing.fetch_facts_of_others()
        await sharing.take_over_conversation(task.id)  # Always, since a failover can lose claims.
        if bench.conversation_row(task.id) is None:
            if order.agent and bench.workforce.roles.find_role_file(order.agent) is None:
                raise errors.NotFound(f"There is no agent named {order.agent} in {bench.name}.")
            session = await bench.start_conversation(role=order.agent, identity=task.id)
        else:
            session = await bench.open_session(task.id)
        if order.model:
            bench.set_model_until_closed(task.id, order.model)
        elif not bench.model_of_conversation(task.id):
            raise errors.NotFound(
                f"No model has been chosen for {bench.name}.",
                remedy="Specify a model with --model.",
            )
        return session

    async def _run_turn(self, claimed: ClaimedFleetTask, session: Session) -> bool:
        """Run a turn. Returns False if it could not begin: a hook refused it, or
        another machine has the lease.
        """
        before, shown = session.conversation.state.seq, claimed.task.result
        permissions = claimed.task.order.allowed if self.tasks_may_allow else ()
        allowed = self._allowed | {*permissions}
        answer = unattended_permissions.find_user_answer(permissions, shown.why)
        answers = [] if answer is None else [answer]  # It is for one question.

        def answer_or_note_overload(event: Event) -> None:
            if (
                isinstance(event, ReplyStreamed)
                and isinstance(event.delta, RetryDelay)
                and event.delta.is_overload
            ):
                self._owned.spawn_task(
                    self._pause_provider(claimed, event.delta.seconds), name="pause a provider"
                )
            if not isinstance(event, QuestionAsked):
                return
            why = unattended_permissions.describe_missing_permission(event.question)
            is_that_call = unattended_permissions.name_to_allow(event.question) == shown.asked
            # A "no" also holds if the call would do something else by now.
            if answers and (why == shown.why or (is_that_call and not answers[0].allowed)):
                session.answer_question(event.number, answers.pop())
            elif unattended_permissions.is_allowed_unattended(event.question, allowed):
                session.answer_question(event.number, PermissionAnswer(allowed=True))
            else:
                claimed.question = event.question
                claimed.stop_turn(NEEDS_PERMISSION)

        unsubscribe = session.subscribe_to_events(answer_or_note_overload)
        try:
            if any(isinstance(one.fact, UserSaid) and not one.fact.by for one in session.all_facts):
                if not shown.asked or facts_that_take_back_unstarted_calls(
                    session.conversation.state
                ):
                    session.resume_turn(repeats_unstarted_calls=bool(shown.asked))
                elif answer is not None and not answer.allowed:
                    session.send_on_behalf(
                        "answer", DENIED.format(asked=shown.asked, words=answer.words)
                    )
                else:
                    session.send_on_behalf("task", PERMITTED.format(asked=shown.asked))
            else:
                text = (Text(claimed.task.order.text),)
                session.send_message(
                    await self._bench.slash_commands.expand_command_message(session, text)
                )
            await session.wait_until_idle()
        finally:
            unsubscribe()
        claimed.is_stopped = _is_stop_of_user(session.turns.last_end)
        return claimed.is_stopped or any(
            one.fact == session.turns.last_end for one in session.all_facts[before:]
        )

    async def _pause_provider(self, claimed: ClaimedFleetTask, seconds: float) -> None:
        """Let all workers pause if a provider asks one of them to wait."""
        with suppress(errors.HelixError):
            await self._list.notes.pause_provider(self._provider_of(claimed), seconds)

    def _provider_of(self, claimed: ClaimedFleetTask) -> str:
        return self._bench.model_of_conversation(claimed.task.id).partition("/")[0]

    def _task_cost(self, claimed: ClaimedFleetTask) -> float:
        """Return what the task has cost until now, with its sub-agents."""
        own = claimed.session.conversation.state.spent if claimed.session else ()
        return sum(one.usage.cost for one in own) + self._bench.workforce.cost_of_agents_below(
            claimed.task.id
        )

    async def _await_step_allowed(self, claimed: ClaimedFleetTask) -> None:
        """Wait while a provider must not be asked. Raises BudgetSpent if that costs too much."""
        while True:
            await claimed.ensure_held()
            cost, provider = self._task_cost(claimed), self._provider_of(claimed)
            try:
                asking = partial(self._gate.try_to_begin_step, claimed.task, cost, provider)
                if await self._retry_on_store_error(claimed, asking):
                    return
            except BudgetSpent as spent:
                claimed.gives_back = claimed.gives_back or spent.for_all
                raise
            await asyncio.sleep(AWAY_SECONDS)

    async def _ensure_call_allowed(self, claimed: ClaimedFleetTask) -> None:
        """Send the call before it runs: after a crash, the next worker tells the model
        that it may have run.
        """
        self._gate.end_request(claimed.task.id, self._task_cost(claimed))
        await claimed.ensure_held()
        await self._ensure_conversation_is_sent(claimed)
        await claimed.ensure_held()

    async def _ensure_conversation_is_sent(self, claimed: ClaimedFleetTask) -> None:
        if not await self._retry_on_store_error(
            claimed, lambda: self._bench.sharing.ensure_sent(claimed.task.id)
        ):
            claimed.is_lost = True
            raise LostFleetTask("Another computer wrote to this task's conversation.")

    async def _retry_on_store_error(
        self, claimed: ClaimedFleetTask, work: Callable[[], Awaitable[T]]
    ) -> T:
        while True:
            if claimed.is_lost:
                raise LostFleetTask("This task was cancelled, or another worker has taken it over.")
            try:
                return await work()
            # ActionRefused may pass too: the other machine may just be releasing the conversation.
            except (errors.SharedStoreUnreachable, errors.StoreFull, errors.ActionRefused) as error:
                log.info("task %s waits for the shared store: %s", claimed.task.id, error.what)
                await asyncio.sleep(AWAY_SECONDS)

    def _state_and_result(
        self, claimed: ClaimedFleetTask, session: Session
    ) -> tuple[FleetTaskState, FleetTaskResult]:
        ends, cost = _list_turn_ends(session), self._task_cost(claimed)
        if _is_done(session):
            answer = result_of_agent(session.conversation).answer
            return FleetTaskState.DONE, FleetTaskResult("", answer[:LONGEST_ANSWER], cost)
        if claimed.is_stopped:
            return FleetTaskState.CANCELLED, FleetTaskResult(STOPPED, cost=cost)
        if claimed.question is not None:
            asked = unattended_permissions.name_to_allow(claimed.question)
            why = unattended_permissions.describe_missing_permission(claimed.question)
            return FleetTaskState.NEEDS_YOU, FleetTaskResult(why, cost=cost, asked=asked)
        if claimed.deadline and seconds_since_start_of_computer() >= claimed.deadline:
            return FleetTaskState.FAILED, FleetTaskResult(
                "The deadline passed while the task was running.", cost=cost
            )
        if (
            claimed.gives_back or ends[-1].reason is TurnEnd.STOPPED
        ):  # Stopped, but not by the user.
            why = ends[-1].why if ends and ends[-1].reason is TurnEnd.FAILED else GIVEN_BACK
            return FleetTaskState.WAITING, FleetTaskResult(why, cost=cost)
        ended = ends[-1].why or ends[-1].reason.value
        return FleetTaskState.FAILED, FleetTaskResult(f"The turn ended early: {ended}", cost=cost)


def _list_turn_ends(session: Session) -> Sequence[TurnEnded]:
    return [one.fact for one in session.all_facts if isinstance(one.fact, TurnEnded)]


def _is_done(session: Session) -> bool:
    ends = _list_turn_ends(session)
    return (
        bool(ends)
        and ends[-1].reason is TurnEnd.DONE
        and not session.conversation.state.branch.turn.running
    )


def _is_stop_of_user(end: TurnEnded | None) -> bool:
    return end is not None and end.reason is TurnEnd.STOPPED and not end.why


def _was_stopped_by_user_before(task: FleetTask, session: Session) -> bool:
    """Whether the user stopped it at a worker that died before it reported that."""
    is_open = session.conversation.state.branch.turn.running
    return (
        not task.result.why
        and not is_open
        and any(map(_is_stop_of_user, _list_turn_ends(session)[-1:]))
    )


class BudgetSpent(StoreFailed):
    """`for_all`: no task of the workspace may go on, whichever agent does it."""

    def __init__(self, what: str, *, for_all: bool) -> None:
        super().__init__(what, remedy="To raise the budget, run `fleet budget`.")
        self.for_all = for_all


class FleetStepGate:
    """Near a limit, a worker makes one request at a time, so it exceeds the limit by
    one at most.
    """

    def __init__(self, notes: FleetNotes) -> None:
        self._notes = notes
        self._under_way: dict[
            str, float
        ] = {}  # The cost of each task before its request that is now running.
        self._dearest: float | None = None  # The cost of this worker's most expensive request.
        self._asking = asyncio.Lock()

    def end_request(self, task: str, cost: float) -> None:
        """Note that the task's request has ended. `cost`: of the whole task until now."""
        if (before := self._under_way.pop(task, None)) is not None:
            self._dearest = max(self._dearest or 0.0, cost - before)

    async def try_to_begin_step(self, task: FleetTask, cost: float, provider: str) -> bool:
        """Begin a step if it may begin now, or return False. Raises BudgetSpent if a
        limit forbids it.
        """
        async with self._asking:
            self.end_request(task.id, cost)
            state = await self._notes.read_state()
            if state.limits:
                await self._notes.add_cost(task.id, task.claims, task.order.agent, cost)
                state = await self._notes.read_state()
            left, beside = state.dollars_left(task.order.agent), len(self._under_way)
            if left <= 0:
                scope = state.tightest_limit(task.order.agent)
                raise BudgetSpent(
                    f"The budget ({scope}) is used up.", for_all=not scope.startswith("agent")
                )
            is_near = bool(state.limits) and (
                self._dearest is None or left <= self._dearest * (beside + 1)
            )
            if provider in state.paused or (beside and is_near):
                return False
            self._under_way[task.id] = cost
            return True
