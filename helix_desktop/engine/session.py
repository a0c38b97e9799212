"""The commands of one conversation, for a window, a command line or a parent agent.

`send_message` returns at once: the turn runs in a task of its own and reports everything by events.
A command that changes the past is refused, with a sentence, while a turn runs.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from helix_desktop.engine import facts, session_events, session_setup, turn_loop
from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.conversation_context import ConversationContext
from helix_desktop.engine.message_queue import AskUser, MessageQueue, TurnRunner
from helix_desktop.engine.ports import (
    CallContext,
    CallOutcome,
    PermissionAnswer,
    PermissionQuestion,
)
from helix_desktop.engine.session_events import CLOSED, ConversationActivity, Event
from helix_desktop.errors import ActionRefused, NotFound

PLAN = "[The plan the user approved, word for word. Work on it now.]\n\n"


class Session:
    """One open conversation: its state, its turn, its queue and its open questions."""

    def __init__(
        self,
        conversation: Conversation,
        services: session_setup.SessionServices,
        folding: ConversationFolding,
    ) -> None:
        self.conversation = conversation
        self.running = ConversationActivity.IDLE
        # The reason for the current activity: what failed, or what the user is being asked.
        self.why = ""
        self._services = services
        self.folding = folding
        self.queue = MessageQueue(conversation, services.tokens)
        self.questions: dict[int, PermissionQuestion] = {}
        self._answers: dict[int, asyncio.Future[PermissionAnswer]] = {}
        self._question_numbers = itertools.count(1)
        # Whether a killed program waited for permission here. The next turn asks again.
        self.asks_again = False
        # If set, answers the questions. A sub-agent's questions go to the agent that
        # waits for its result.
        self.asked_elsewhere: AskUser | None = None
        self.context = ConversationContext(conversation, services, folding)
        self.turns = TurnRunner(conversation, services, folding, self.queue)

    @property
    def id(self) -> str:
        return self.conversation.id

    @property
    def agent(self) -> str:
        """Return the connected agent that writes here, or an empty string for this
        program's own.
        """
        return self.conversation.state.agent

    @property
    def all_facts(self) -> Sequence[facts.Recorded]:
        """Return everything that ever happened here, oldest first."""
        return self.conversation.state.facts

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits here."""
        return not self.is_working and not self.queue

    @property
    def is_working(self) -> bool:
        """Whether closing the session would break something off. Messages that wait are kept."""
        is_turn_running = self.turns.task is not None
        is_question_open = bool(self.questions)
        is_fold_in_work = not self.folding.has_no_fold_in_work
        return is_turn_running or is_question_open or is_fold_in_work

    def subscribe_to_events(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call the listener for all future events. Returns a function that stops this."""
        self.conversation.listeners.append(listener)
        return lambda: self.conversation.listeners.remove(listener)

    def send_message(
        self,
        parts: tuple[facts.UserPart, ...],
        *,
        steer: bool = False,
        rewinds_to: int | None = None,
        command_id: str = "",
    ) -> None:
        """Send a message now, or after the turn. `steer`: after the turn's current step.
        `command_id`: becomes `UserSaid.command`.
        """
        if self.agent:
            raise ActionRefused(
                f"This is a conversation of {self.agent}.",
                remedy="Choose “Continue here” to continue a copy of the conversation with Helix Desktop's own agent.",
            )
        if not parts:
            return
        self.queue.add_message(parts, steer=steer, rewinds_to=rewinds_to, command_id=command_id)
        self.turns.start_turn_if_due(self._ask_user, self._set_activity)

    def send_on_behalf(self, by: str, text: str) -> None:
        """Send a message on behalf of `by`: at the next step, or now if no turn runs."""
        self.queue.add_message([facts.Text(text)], steer=True, by=by)
        self.turns.start_turn_if_due(self._ask_user, self._set_activity)

    def send_waiting_messages(self) -> None:
        """Begin a turn with the messages that wait, such as those that a killed program left.
        Do nothing if a turn runs already, or if no message waits. What they waited for comes first.
        """
        self.turns.calls_to_repeat = self.asks_again
        self.asks_again = False
        self.turns.start_turn_if_due(self._ask_user, self._set_activity)

    def resume_turn(self, *, repeats_unstarted_calls: bool = False) -> None:
        """Continue a turn that was interrupted or reached a limit, if wanted with the
        calls that did not begin.
        """
        self._refuse_while_held("continue")
        self.turns.calls_to_repeat = repeats_unstarted_calls or self.asks_again
        self.asks_again = False
        self.turns.start_turn_if_due(self._ask_user, self._set_activity, even_without_words=True)

    def stop_turn(self, why: str = "") -> None:
        """Stop the turn with its tools and questions. Queued messages stay. `why` is
        empty if the user stops it.
        """
        for future in list(self._answers.values()):
            future.cancel()
        self.turns.cancel_turn(why)

    def answer_question(self, number: int, answer: PermissionAnswer) -> None:
        """Answer a permission question. Does nothing if it is no longer open."""
        future = self._answers.get(number)
        if future is None or future.done():
            return
        if not answer.allowed:
            # Before anything else: the words that the user typed are kept.
            words = answer.words.strip()
            denied = session_events.QuestionDenied(self.id, number, words, answer.device)
            self.conversation.notify_listeners(denied)
        future.set_result(answer)

    async def run_user_call(self, command: str, call: facts.ToolCall) -> CallOutcome:
        """Run a call of the user's slash command. It asks like an agent's, but is not recorded."""

        async def ask(question: PermissionQuestion) -> PermissionAnswer:
            return await self._ask_user(replace(question, command=command))

        return await self._services.tools.run_tool_call(
            call, CallContext(self.id, ask, lambda _: None)
        )

    async def wait_until_idle(self) -> None:
        while self.turns.task is not None:
            await asyncio.wait([self.turns.task])

    async def aclose(self) -> None:
        """Stop what runs and wait until it is recorded."""
        self.queue.clear()
        self.stop_turn(CLOSED)
        await self.wait_until_idle()
        self.queue.clear()  # Messages stopped before they were recorded are back in the queue.
        await self.folding.aclose()
        await self.conversation.wait_until_recorded()

    def preview_setup(self, setup: session_setup.ConversationSetup) -> None:
        """Measure the next request with this setup, and show it, without recording the
        setup yet.
        """
        if self.agent or self.conversation.state.acp_agent:
            return
        self.expect_setup(setup)
        self.conversation.notify_listeners(session_events.MeterChanged(self.id))

    def expect_setup(self, setup: session_setup.ConversationSetup) -> None:
        """Measure the next request with this setup, also while the agent works or a summary is
        written: the next request will be sent with it. Nothing is shown or recorded.
        """
        if not self.agent and not self.conversation.state.acp_agent:
            turn_loop.set_expected_request_settings(self._services, self.conversation, setup)

    async def fold_on_request(self, kind: facts.FoldKind, *, wish: str = "") -> None:
        self._refuse_while_held("fold")
        self.folding.spending.begin_turn()
        await self._services.run_hooks(
            "PreCompact", self.id, {"trigger": "manual", "custom_instructions": wish}
        )
        await self.folding.fold_on_demand(kind, wish)

    async def rewind_to(self, seq: int) -> None:
        """Continue from `seq`; later facts stay in the journal, and files as they are."""
        self.refuse_while_running("rewind")
        await self._append_rewind(seq)

    async def edit_and_resend(
        self, seq: int, parts: tuple[facts.UserPart, ...], *, command_id: str = ""
    ) -> None:
        """Send a message in place of an earlier one. What followed that one is left behind."""
        self.refuse_while_running("edit and resend")
        message = self.conversation.fact_at(seq)
        if not isinstance(message, facts.UserSaid) or message.by:
            raise NotFound(f"Record {seq} of this conversation is not one of your messages.")
        self.send_message(parts, rewinds_to=seq - 1, command_id=command_id)

    async def ask_again(self, seq: int = 0) -> None:
        """Go back to the user's message before the answer `seq`, or before the last one, and have
        the model answer it again. Earlier answers are kept.
        """
        self.refuse_while_running("ask again")
        seq_of_message = 0  # The last message of the user before that answer.
        for recorded in self.conversation.state.facts_on_path():
            if seq and recorded.seq >= seq:
                break
            if isinstance(recorded.fact, facts.UserSaid) and not recorded.fact.by:
                seq_of_message = recorded.seq
        if not seq_of_message:
            raise NotFound("No answer in this conversation can be regenerated.")
        await self._append_rewind(seq_of_message, again=True)
        self.resume_turn()

    async def switch_to_answer(self, end: int) -> None:
        """Continue with another answer to the same message, which ends with the fact `end`."""
        self.refuse_while_running("choose another answer")
        self.conversation.fact_at(end)
        await self._append_rewind(end, again=True)

    async def _append_rewind(self, to: int, *, again: bool = False) -> None:
        record = self.conversation.state.record
        await self.conversation.append_facts(*record.rewind_that_keeps_choices(to, again=again))

    @asynccontextmanager
    async def pause_session(self) -> AsyncIterator[None]:
        """Keep turns from running and facts from being added, so that recorded ones can change."""
        self.refuse_while_running("forget")
        self.turns.is_held = True
        self.turns.was_due_while_held = False
        try:
            await self.folding.aclose()
            async with self.conversation.block_appending():
                yield
        finally:
            self.turns.is_held = False
            self.turns.contents.clear_read_contents()
            # What waited before, such as what a killed program left, waits on for the user's press.
            if self.turns.was_due_while_held:
                self.turns.start_turn_if_due(self._ask_user, self._set_activity)

    async def finish_new_fork(self, title: str = "") -> None:
        """End the turn that a copy may end in, set the title, and measure the next request."""
        new_facts: list[facts.Fact] = []
        if self.conversation.state.branch.turn.running:
            new_facts.append(facts.TurnEnded(facts.TurnEnd.DONE))
        if title:
            new_facts.append(facts.ConversationChanged(title=title))
        await self.conversation.append_facts(*new_facts)
        await turn_loop.record_changed_settings(self._services, self.conversation)

    async def set_title(self, title: str) -> None:
        new_title = title.strip() or "Untitled"
        await self.conversation.append_facts(facts.ConversationChanged(title=new_title))

    async def set_archived(self, *, archived: bool = True) -> None:
        await self.conversation.append_facts(facts.ConversationChanged(archived=archived))

    async def set_trashed(self, *, trashed: bool = True) -> None:
        """Move the conversation to the trash or back. A running turn is stopped first."""
        if trashed:
            self.stop_turn()
            await self.wait_until_idle()
        await self.conversation.append_facts(facts.ConversationChanged(trashed=trashed))

    async def set_pinned(self, *, pinned: bool = True) -> None:
        await self.conversation.append_facts(facts.ConversationChanged(pinned=pinned))

    def refuse_while_running(self, action: str) -> None:
        self._refuse_while_held(action)
        if self.turns.task is not None:
            raise ActionRefused(
                f"Cannot {action} while the agent is working.", remedy="Stop the agent first (Esc)."
            )

    def _refuse_while_held(self, action: str) -> None:
        if self.turns.is_held:
            raise ActionRefused(
                f"Cannot {action} while content is being permanently removed.",
                remedy="Try again in a few minutes.",
            )

    def _set_activity(self, running: ConversationActivity, why: str = "") -> None:
        """Tell listeners what the session does now: while a question is open, it asks."""
        if self.questions:  # Also the question of an agent in the background waits for the user.
            oldest_question = next(iter(self.questions.values()))
            self.running = ConversationActivity.ASKING
            self.why = oldest_question.title
        else:
            self.running = running
            self.why = why
        changed = session_events.ActivityChanged(self.id, self.running, self.why)
        self.conversation.notify_listeners(changed)

    async def _ask_user(self, question: PermissionQuestion) -> PermissionAnswer:
        """Show a question to the user, and wait until it is answered or the turn is stopped.

        The questions of a sub-agent are shown where the agent works that waits for it.
        """
        if self.asked_elsewhere is not None:
            asker = question.by or self.conversation.state.title
            return await self.asked_elsewhere(replace(question, by=asker))

        number = next(self._question_numbers)
        future: asyncio.Future[PermissionAnswer] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        self.questions[number] = question
        self.conversation.notify_listeners(session_events.QuestionAsked(self.id, number, question))
        self._set_activity(ConversationActivity.ASKING, question.title)
        try:
            answer = await future
            if question.plan and answer.allowed:
                # Record the plan before anything reacts to the user's answer.
                plan_as_edited = answer.values.strip()
                await self._record_plan(plan_as_edited or question.preview)
            return answer
        finally:
            self._close_question(number)

    def _close_question(self, number: int) -> None:
        """Take a question away that was answered or is not asked any more."""
        del self._answers[number]
        del self.questions[number]
        self.conversation.notify_listeners(session_events.QuestionAnswered(self.id, number))
        if self.questions:
            return
        if self.turns.task is None:
            self._set_activity(ConversationActivity.IDLE)
        else:
            self._set_activity(ConversationActivity.TOOLS)

    async def _record_plan(self, text: str) -> None:
        plan = session_setup.StandingNote("plan", PLAN + text)
        note_facts = turn_loop.build_note_facts([plan], self._services, self.conversation)
        await self.conversation.append_facts(*note_facts)
