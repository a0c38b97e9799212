"""Runs one claimed task as a turn of its conversation, and says what came of it.

A worker that claims a task which another one has begun fetches what that one sent,
takes over the conversation's lease, and resumes the turn from the journal. A task is
done when its conversation says so. Before each step, call and fact, the run makes sure
that its worker still holds the lease, and before each call that others know of it, so
no effect is repeated.

What may pass by itself is no failure of the task: a full disk, the network, a database,
a provider's limit. The task is then given back, and tried again later.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial

from helix_desktop import errors
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import Recorded, Text, TurnEnd, TurnEnded, UserSaid
from helix_desktop.engine.messages import RetryDelay
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, QuestionAsked, ReplyStreamed
from helix_desktop.engine.tool_call_execution import facts_that_take_back_unstarted_calls
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.fleet_notes import FleetNotes
from helix_desktop.store.fleet_tasks import FleetTask, FleetTaskResult, FleetTaskState
from helix_desktop.store.shared.known_leases import seconds_since_start_of_computer
from helix_desktop.workbench import claimed_fleet_task, unattended_permissions
from helix_desktop.workbench.claimed_fleet_task import ClaimedFleetTask, LostFleetTask
from helix_desktop.workbench.fleet_step_gate import BudgetSpent, FleetStepGate
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workbench.subagents import result_of_agent
from helix_desktop.workbench.worker_claims import WorkerClaim

log = logging.getLogger(__name__)
TURN_TRIES = 5
LONGEST_ANSWER = 20_000  # This many characters of a task's answer are kept in the list of tasks.
WEATHER_CAUSES = ("busy", "connection", "store")  # Causes of a failed turn that may pass.
PERMITTED = (
    "[Nobody could be asked when you wanted to use {asked}, so that call was stopped before it did anything."
    " The user has read this and lets you go on. Make the call again if you still need it.]"
)
DENIED = "[The user has read what you wanted to do with {asked}, and denied it. {words}]"
GIVEN_BACK = "The worker was stopped, and another worker will continue."
NEEDS_PERMISSION = (
    "The task needs your permission. To continue, give permission in the Fleet window."
)
STOPPED = "Someone stopped this turn in the task's conversation."
TOO_LATE = "The deadline passed while the task was running."


@dataclass(frozen=True, slots=True)
class FleetTaskOutcome:
    """What came of a run. `is_setback`: the task waits because of something that may pass."""

    state: FleetTaskState
    result: FleetTaskResult
    is_setback: bool = False


class WorkspaceIsClosing(errors.StoppedByUser):
    """The workspace closes, so its worker must end too."""


class FleetTaskRun:
    """One run of a task. `worker_permissions`: what needs no permission at this worker.
    `task_permissions`: what the task itself allows. They are empty if the worker ignores them.
    """

    def __init__(
        self,
        bench: Workbench,
        notes: FleetNotes,
        gate: FleetStepGate,
        claimed: ClaimedFleetTask,
        worker_permissions: Collection[str],
        task_permissions: Collection[str],
        owned: OwnedTasks,
    ) -> None:
        self._bench = bench
        self._notes = notes
        self._gate = gate
        self._claimed = claimed
        self._task = claimed.task
        self._task_permissions = task_permissions
        self._all_permissions = frozenset(worker_permissions) | frozenset(task_permissions)
        self._owned = owned
        self._is_budget_spent = False
        self._number_of_facts_before = 0
        # The user's answer to what an earlier run asked, until it has been used for one question.
        self._unused_answer: PermissionAnswer | None = None

    def build_claim(self) -> WorkerClaim:
        """Return what checks, before each step, call and fact, that this run may go on."""
        claimed = self._claimed
        return WorkerClaim(
            ensure_may_act=self._await_step_allowed,
            ensure_may_call=self._ensure_call_allowed,
            ensure_may_write=claimed.ensure_may_write,
            ensure_sent=self._ensure_conversation_is_sent,
            budget=self._task.order.budget,
            waiting=claimed.waiting,
            is_ending=lambda: claimed.is_ending,
        )

    def list_recorded_facts(self) -> Sequence[Recorded]:
        """Return what this run has recorded in the task's conversation."""
        session = self._claimed.session
        if session is None:
            return ()
        return session.all_facts[self._number_of_facts_before :]

    def end_last_request(self) -> None:
        self._gate.end_request(self._task, self._task_cost())

    async def run_task(self) -> FleetTaskOutcome:
        """Run the task. Raises LostFleetTask if another worker has it, and
        WorkspaceIsClosing if no task can run here any more.
        """
        try:
            session = await self._run_turn_until_it_begins()
            if session is None:
                return self._outcome_of_turn_that_did_not_begin()
            await self._ensure_conversation_is_sent(self._task.id)
        except LostFleetTask:
            raise
        except errors.StoppedByUser as error:
            raise WorkspaceIsClosing(error.what) from error
        except errors.HelixError as error:
            return outcome_of_error(error)
        return self._outcome_of_turn(session)

    # --- The turn

    async def _run_turn_until_it_begins(self) -> Session | None:
        """Run the task's turn, or return None if it did not begin.

        If the turn ended on another computer, or must not go on, its session is returned
        without running anything.
        """
        claimed = self._claimed
        for _ in range(TURN_TRIES):
            session = await claimed.retry_while_held(self._open_task_session)
            claimed.session = session
            self._number_of_facts_before = len(session.all_facts)
            if _was_stopped_by_user_before(self._task, session):
                claimed.was_stopped_by_user = True
            if claimed.was_stopped_by_user or claimed.must_be_given_back or _is_done(session):
                return session

            has_begun = await self._run_turn(session)
            if has_begun:
                return session

            log.info("the turn of task %s did not begin: %s", self._task.id, session.why)
            # Closing also discards the message that was not sent. It is sent again by the next try.
            await self._bench.sessions.close_sessions([session.id])
            await asyncio.sleep(claimed_fleet_task.AWAY_SECONDS)
        return None

    async def _open_task_session(self) -> Session:
        """Open a task's conversation as the machine that had it before left it."""
        bench = self._bench
        task = self._task
        # An earlier run on this machine may have ended with its facts in a branch. This
        # run's facts would then never count as sent (`ensure_sent`).
        bench.sharing.synced_sessions.branch_by_conversation.pop(task.id, None)
        if task.claims > 1:  # Another machine may have the conversations of its sub-agents.
            await bench.sharing.fetch_facts_of_others()
        # Even for a first claim: a standby that took over may have lost an earlier one.
        await bench.sharing.take_over_conversation(task.id)

        if bench.conversation_row(task.id) is None:
            session = await self._start_task_conversation()
        else:
            session = await bench.open_session(task.id)

        await self._choose_model(session)
        return session

    async def _choose_model(self, session: Session) -> None:
        """Give the task's conversation the model of its order, or else keep the workspace's of now
        for it: whoever goes on there later gets the model that has worked on it.
        """
        bench = self._bench
        task = self._task
        own_model = session.conversation.state.own_model
        wanted_model = task.order.model or own_model or bench.main_model_name
        if not wanted_model:
            raise errors.NotFound(
                f"No model has been chosen for {bench.name}.",
                remedy="Specify a model with --model.",
            )
        try:
            bench.models.model_by_name(wanted_model)
        except errors.HelixError:
            # The machine that had the task before has other providers than this one.
            if task.order.model or not bench.main_model_name:
                raise
            bench.set_model_until_closed(task.id, bench.main_model_name)
            return
        if wanted_model != own_model:
            await bench.append_conversation_model(session.conversation, wanted_model)

    async def _start_task_conversation(self) -> Session:
        bench = self._bench
        agent = self._task.order.agent
        if agent and bench.workforce.roles.find_role_file(agent) is None:
            raise errors.NotFound(f"There is no agent named {agent} in {bench.name}.")
        return await bench.start_conversation(role=agent, identity=self._task.id)

    async def _run_turn(self, session: Session) -> bool:
        """Run a turn. Returns False if it could not begin: a hook refused it, or
        another machine has the lease.
        """
        number_of_facts_before = session.conversation.state.seq
        answer = unattended_permissions.find_user_answer(
            self._task_permissions, self._task.result.why
        )
        self._unused_answer = answer
        unsubscribe = session.subscribe_to_events(partial(self._hear_event, session))
        try:
            await self._send_or_resume(session, answer)
            await session.wait_until_idle()
        finally:
            unsubscribe()

        last_end = session.turns.last_end
        self._claimed.was_stopped_by_user = _is_stop_of_user(last_end)
        if self._claimed.was_stopped_by_user:
            return True
        # The end may also be that of an earlier turn. Then this turn did not begin.
        facts_of_turn = session.all_facts[number_of_facts_before:]
        return any(recorded.fact == last_end for recorded in facts_of_turn)

    async def _send_or_resume(self, session: Session, answer: PermissionAnswer | None) -> None:
        """Send the task's words, or continue where an earlier run of the task ended.
        `answer`: the user's, if that run ended with a question.
        """
        if not _has_message_of_user(session):
            text = (Text(self._task.order.text),)
            commands = self._bench.slash_commands
            session.send_message(await commands.expand_command_message(session, text))
            return

        asked_for = self._task.result.asked
        if not asked_for:
            session.resume_turn(repeats_unstarted_calls=False)
            return
        # The call that needed permission has not begun, so it can be made as it was.
        if facts_that_take_back_unstarted_calls(session.conversation.state):
            session.resume_turn(repeats_unstarted_calls=True)
            return
        if answer is not None and not answer.allowed:
            denied = DENIED.format(asked=asked_for, words=answer.words)
            session.send_on_behalf("answer", denied)
            return
        session.send_on_behalf("task", PERMITTED.format(asked=asked_for))

    def _hear_event(self, session: Session, event: Event) -> None:
        if isinstance(event, QuestionAsked):
            self._answer_asked_question(session, event)
        elif isinstance(event, ReplyStreamed) and isinstance(event.delta, RetryDelay):
            self._note_retry_delay(event.delta)

    def _answer_asked_question(self, session: Session, asked: QuestionAsked) -> None:
        """Answer what the agent asks, by the user's answer or what is allowed, or stop the turn."""
        answer = self._unused_answer
        if answer is not None and self._is_answer_to(asked.question, answer):
            self._unused_answer = None
            session.answer_question(asked.number, answer)
            return
        rule = unattended_permissions.find_allowed_rule(asked.question, self._all_permissions)
        if rule is not None:
            # The rule then covers in this task what it would cover in a chat.
            by_rule = PermissionAnswer(allowed=True, scope="conversation", rule=rule)
            session.answer_question(asked.number, by_rule)
            return
        if unattended_permissions.is_allowed_unattended(asked.question, self._all_permissions):
            session.answer_question(asked.number, PermissionAnswer(allowed=True))
            return
        self._claimed.question = asked.question
        self._claimed.stop_turn(NEEDS_PERMISSION)

    def _note_retry_delay(self, delay: RetryDelay) -> None:
        """Let all workers pause if the provider is overloaded."""
        if delay.is_overload:
            pausing = self._pause_provider(delay.seconds)
            self._owned.spawn_task(pausing, name="pause a provider")

    def _is_answer_to(self, question: PermissionQuestion, answer: PermissionAnswer) -> bool:
        """Whether the user's answer, given to what an earlier run asked, is for this question."""
        earlier_result = self._task.result
        if unattended_permissions.describe_missing_permission(question) == earlier_result.why:
            return True
        # The same tool would do something else by now. Only a "no" holds for that too.
        if answer.allowed:
            return False
        return unattended_permissions.name_to_allow(question) == earlier_result.asked

    async def _pause_provider(self, seconds: float) -> None:
        """Let all workers pause if a provider asks one of them to wait."""
        with suppress(errors.HelixError):
            await self._notes.pause_provider(self._provider(), seconds)

    # --- What must hold before a step and a call

    def _provider(self) -> str:
        return self._bench.model_of_conversation(self._task.id).partition("/")[0]

    def _task_cost(self) -> float:
        """Return what the task has cost until now, with its sub-agents."""
        session = self._claimed.session
        cost = self._bench.workforce.cost_of_agents_below(self._task.id)
        if session is None:
            return cost
        for spent in session.conversation.state.spent:
            cost += spent.usage.cost
        return cost

    def _least_cost_of_next_request(self) -> float:
        """Return what the next request costs by our own count, or 0 if no price is known."""
        session = self._claimed.session
        if session is None:
            return 0.0
        next_cost = session.context.next_message_cost()
        if next_cost is None:
            return 0.0
        return next_cost.warm

    async def _await_step_allowed(self) -> None:
        """Wait while a provider must not be asked. Raises BudgetSpent if no money is left for it."""
        await self._ensure_conversation_is_sent(self._task.id)
        while True:
            await self._claimed.ensure_held()
            # The cost is read again each time, since sub-agents may go on meanwhile.
            try_to_begin = partial(
                self._gate.try_to_begin_step,
                self._task,
                self._task_cost(),
                self._provider(),
                self._least_cost_of_next_request(),
            )
            try:
                if await self._claimed.retry_while_held(try_to_begin):
                    return
            except BudgetSpent as spent:
                self._is_budget_spent = True
                if spent.for_all:
                    self._claimed.must_be_given_back = True
                raise
            await asyncio.sleep(claimed_fleet_task.AWAY_SECONDS)

    async def _ensure_call_allowed(self) -> None:
        """Send the call before it runs: after a crash, the next worker tells the model
        that it may have run.
        """
        self.end_last_request()
        await self._claimed.ensure_held()
        await self._ensure_conversation_is_sent(self._task.id)
        # Sending may have taken longer than the lease.
        await self._claimed.ensure_held()

    async def _ensure_conversation_is_sent(self, conversation: str) -> None:
        """Wait until others have what was written in the conversation, the task's or one
        of its sub-agents'.
        """
        sending = partial(self._bench.sharing.ensure_sent, conversation)
        if not await self._claimed.retry_while_held(sending):
            self._claimed.lose_lease(to_another=True)
            raise LostFleetTask("Another computer wrote to this task's conversation.")

    # --- What came of it

    def _outcome_of_turn(self, session: Session) -> FleetTaskOutcome:
        claimed = self._claimed
        cost = self._task_cost()
        if _is_done(session):
            answer = result_of_agent(session.conversation).answer[:LONGEST_ANSWER]
            return FleetTaskOutcome(FleetTaskState.DONE, FleetTaskResult("", answer, cost))
        if claimed.was_stopped_by_user:
            result = FleetTaskResult(STOPPED, cost=cost)
            return FleetTaskOutcome(FleetTaskState.CANCELLED, result)
        if claimed.question is not None:
            result = FleetTaskResult(
                unattended_permissions.describe_missing_permission(claimed.question),
                cost=cost,
                asked=unattended_permissions.name_to_allow(claimed.question),
                access=claimed.question.command_access,
                rules=unattended_permissions.rules_for_task(claimed.question),
                rule_folders=claimed.question.rule_folders,
            )
            return FleetTaskOutcome(FleetTaskState.NEEDS_YOU, result)
        if claimed.deadline and seconds_since_start_of_computer() >= claimed.deadline:
            return FleetTaskOutcome(FleetTaskState.FAILED, FleetTaskResult(TOO_LATE, cost=cost))
        return self._outcome_of_unfinished_turn(_last_turn_end(session), cost)

    def _outcome_of_unfinished_turn(self, end: TurnEnded | None, cost: float) -> FleetTaskOutcome:
        # The user did not stop it: that is another outcome.
        is_stopped_by_worker = end is None or end.reason is TurnEnd.STOPPED
        if is_stopped_by_worker or self._claimed.must_be_given_back:
            result = FleetTaskResult(GIVEN_BACK, cost=cost)
            if end is not None and end.reason is TurnEnd.FAILED:
                result = FleetTaskResult(end.why, cost=cost)
            return FleetTaskOutcome(FleetTaskState.WAITING, result)

        assert end is not None  # noqa: S101 - without an end, the worker stopped it
        if end.cause in WEATHER_CAUSES and not self._is_budget_spent:
            result = FleetTaskResult(end.why, cost=cost)
            return FleetTaskOutcome(FleetTaskState.WAITING, result, is_setback=True)

        why = f"The turn ended early: {end.why or end.reason.value}"
        return FleetTaskOutcome(FleetTaskState.FAILED, FleetTaskResult(why, cost=cost))

    def _outcome_of_turn_that_did_not_begin(self) -> FleetTaskOutcome:
        session = self._claimed.session
        assert session is not None  # noqa: S101 - each try opens one, or raises an error
        result = FleetTaskResult(session.why, cost=self._task_cost())
        end = session.turns.last_end
        may_pass = end is not None and end.cause in WEATHER_CAUSES
        if may_pass or self._bench.sharing.other_machine_writing(self._task.id):
            return FleetTaskOutcome(FleetTaskState.WAITING, result, is_setback=True)
        return FleetTaskOutcome(FleetTaskState.FAILED, result)


def outcome_of_error(error: errors.HelixError) -> FleetTaskOutcome:
    """Return what an error means for its task. Damaged content does not heal by waiting."""
    result = FleetTaskResult(str(error))
    # These are kinds of StoreFailed, but waiting does not help against them.
    lasting_errors = (
        errors.CacheCorrupt,
        errors.JournalCorrupt,
        errors.WrittenByNewerVersion,
        BudgetSpent,
    )
    if isinstance(error, lasting_errors):
        return FleetTaskOutcome(FleetTaskState.FAILED, result)
    passing_errors = (errors.StoreFailed, errors.ModelOverloaded, errors.ProviderUnreachable)
    if isinstance(error, passing_errors):
        return FleetTaskOutcome(FleetTaskState.WAITING, result, is_setback=True)
    return FleetTaskOutcome(FleetTaskState.FAILED, result)


def _has_message_of_user(session: Session) -> bool:
    """Whether the task's words were sent. What the program sends on behalf of others has `by`."""
    for recorded in session.all_facts:
        if isinstance(recorded.fact, UserSaid) and not recorded.fact.by:
            return True
    return False


def _last_turn_end(session: Session) -> TurnEnded | None:
    for recorded in reversed(session.all_facts):
        if isinstance(recorded.fact, TurnEnded):
            return recorded.fact
    return None


def _is_done(session: Session) -> bool:
    if session.conversation.state.branch.turn.running:
        return False  # The last end is that of an earlier turn.
    end = _last_turn_end(session)
    return end is not None and end.reason is TurnEnd.DONE


def _is_stop_of_user(end: TurnEnded | None) -> bool:
    """Whether the user stopped the turn: the program's own stops say why."""
    return end is not None and end.reason is TurnEnd.STOPPED and not end.why


def _was_stopped_by_user_before(task: FleetTask, session: Session) -> bool:
    """Whether the user stopped it at a worker that died before it reported that."""
    if task.result.why or session.conversation.state.branch.turn.running:
        return False
    return _is_stop_of_user(_last_turn_end(session))
