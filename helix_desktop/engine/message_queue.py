"""Keeps a conversation's waiting messages, and runs turns that answer them, with hooks."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from helix_desktop.engine import facts, turn_loop
from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.engine.conversation import Conversation, resolve_relative_cover
from helix_desktop.engine.messages import RetryDelay
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion, TokenCounter
from helix_desktop.engine.session_events import CLOSED, ConversationActivity, MessagesQueued
from helix_desktop.engine.session_setup import (
    HookOutcome,
    QueuedMessage,
    SessionServices,
    TurnCallbacks,
)
from helix_desktop.engine.tool_call_execution import facts_that_take_back_unstarted_calls
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.errors import ActionRefused, HelixError

AskUser = Callable[[PermissionQuestion], Awaitable[PermissionAnswer]]
SetActivity = Callable[..., None]
LONGEST_TITLE = 60  # In characters.
# So often may hooks make the agent continue after one message of the user.
MOST_CONTINUATIONS_BY_HOOKS = 3
BUG = "This is a bug in Helix Desktop. Details are in the log. Nothing you wrote is lost, and you can continue."


def find_queued_message(queue: Iterable[QueuedMessage], message: QueuedMessage) -> int | None:
    """Return where a message waits, even if it was moved or made to steer since."""
    for index, waiting in enumerate(queue):
        if waiting.command_id != message.command_id:
            continue
        # Of one command there is one message. Its parts have their tokens only once it is queued.
        if message.command_id or waiting.parts == message.parts:
            return index
    return None


class MessageQueue(list[QueuedMessage]):
    """The waiting messages of a conversation, in the order in which they are sent: first those that
    steer, after the running step, then those that wait for the turn's end. Listeners are told of
    every change.

    A message that steers is sent while the agent works, before its next step. One of the user
    interrupts a reply that is being written, for which `on_steering` is called; tools run to their
    end.
    """

    def __init__(self, conversation: Conversation, tokens: TokenCounter) -> None:
        super().__init__()
        self._conversation = conversation
        self._tokens = tokens
        self.on_steering: Callable[[], object] | None = None

    def add_message(
        self,
        parts: Sequence[facts.UserPart],
        *,
        steer: bool,
        by: str = "",
        rewinds_to: int | None = None,
        command_id: str = "",
    ) -> None:
        """Add a message at the end of those that are sent at the same time. One that
        rewinds the conversation comes first.
        """
        if rewinds_to is not None:
            index = 0
        elif steer:
            index = self._count_steering()
        else:
            index = len(self)
        counted_parts = tuple(with_text_tokens(part, self._tokens) for part in parts)
        self.insert(index, QueuedMessage(counted_parts, steer, by, rewinds_to, command_id))
        self._notify_queue()
        self._tell_of_steering()

    async def take_back_message(self, message: QueuedMessage) -> bool:
        """Take a message back if it still waits. It may have been moved or made to steer since."""
        index = find_queued_message(self, message)
        if index is None:
            return False
        self.take_back_queued(index)
        return True

    def take_back_queued(self, index: int) -> tuple[facts.UserPart, ...]:
        """Take a waiting message back, to edit or drop it."""
        message = self.pop(index)
        self._notify_queue(message)
        return message.parts

    def set_steering(self, index: int, *, steer: bool) -> None:
        """Send a waiting message after the running step, or at the turn's end. Of those that go
        there, it becomes the last or the first, so that it passes no other one.
        """
        message = replace(self.pop(index), steer=steer)
        self.insert(self._count_steering(), message)
        self._notify_queue()
        self._tell_of_steering()

    def move_message(self, index: int, new_index: int) -> None:
        """Send a waiting message earlier or later, among those that go at the same time."""
        steering_count = self._count_steering()
        if self[index].steer:
            first = 0
            last = steering_count - 1
        else:
            first = steering_count
            last = len(self) - 1
        allowed_index = min(max(new_index, first), last)
        message = self.pop(index)
        self.insert(allowed_index, message)
        self._notify_queue()

    def has_steering_of_user(self) -> bool:
        return any(message.steer and not message.by for message in self)

    def _tell_of_steering(self) -> None:
        if self.on_steering is not None and self.has_steering_of_user():
            self.on_steering()

    def _count_steering(self) -> int:
        return sum(message.steer for message in self)

    def pop_next_message(self) -> QueuedMessage:
        message = self.pop(0)
        self._notify_queue()
        return message

    def requeue_messages(self, messages: Sequence[QueuedMessage]) -> None:
        """Put messages that could not be sent back to the front.

        Where messages that steer wait, a message that is put before them steers too. It passes
        none of them, and a turn takes it first in any case.
        """
        if self._count_steering():
            self[:0] = [replace(message, steer=message.rewinds_to is None) for message in messages]
        else:
            self[:0] = messages
        self._notify_queue(put_back=tuple(message.parts for message in messages))

    def pop_steering_messages(self) -> Sequence[QueuedMessage]:
        steering_messages = [message for message in self if message.steer]
        if steering_messages:
            self[:] = [message for message in self if not message.steer]
            self._notify_queue()
        return steering_messages

    def _notify_queue(
        self,
        *taken_back: QueuedMessage,
        put_back: tuple[tuple[facts.UserPart, ...], ...] = (),
    ) -> None:
        """Tell listeners of a change. `taken_back`: messages that the user gets back to edit.
        `put_back`: messages that could not be sent and wait again.
        """
        messages = tuple(message.parts for message in self)
        steering_count = self._count_steering()
        command_ids = tuple(message.command_id for message in self)
        self._conversation.notify_listeners(
            MessagesQueued(
                self._conversation.id,
                messages,
                tuple(message.parts for message in taken_back),
                steering_count,
                put_back,
                command_ids,
                tuple(message.command_id for message in taken_back),
            )
        )


class TurnRunner:
    """Runs turns. `last_end`: how the last one ended. While `is_held` is true, no turn begins;
    `was_due_while_held` says whether one should have.
    """

    def __init__(
        self,
        conversation: Conversation,
        services: SessionServices,
        folding: ConversationFolding,
        queue: MessageQueue,
    ) -> None:
        self._conversation = conversation
        self._services = services
        self._folding = folding
        self._queue = queue
        queue.on_steering = self._interrupt_reply
        self.contents = ViewContents(services.cache)
        self.last_end: facts.TurnEnded | None = None
        self.is_held = False
        self.was_due_while_held = False
        # True if the next turn first runs the calls that a stop kept from beginning.
        self.calls_to_repeat = False
        self.task: asyncio.Task[None] | None = None
        self._why_stopped = CLOSED
        self._running_turn: turn_loop.TurnLoop | None = None
        self._told_hooks_of_session = False
        # How many times hooks have made the agent continue since the user's last message.
        self._continuations_by_hooks = 0

    def cancel_turn(self, why: str) -> None:
        self._why_stopped = self._why_stopped and why  # The empty reason of a user's stop is kept.
        if self.task is not None:
            self.task.cancel()

    def _interrupt_reply(self) -> None:
        if self._running_turn is not None:
            self._running_turn.interrupt_reply()

    def cost_of_turn(self) -> float:
        """Return what the turn has cost until now, with sub-agents, or 0.0 if none runs."""
        if self._running_turn is None:
            return 0.0
        return self._folding.spending.cost_of_turn()

    @property
    def next_try(self) -> RetryDelay | None:
        """Return why the turn's model is asked again, and in how many seconds, as of now."""
        if self._running_turn is None:
            return None
        return self._running_turn.next_try_after_pause

    def retry_immediately(self) -> None:
        """End the wait before a failed request is sent again: the turn's, or one for a summary."""
        self._folding.ask_writer_again_now()
        next_try = self.next_try
        if next_try is not None and next_try.wake is not None:
            next_try.wake()

    def start_turn_if_due(
        self, ask: AskUser, set_activity: SetActivity, *, even_without_words: bool = False
    ) -> None:
        """Start a turn if none runs and a message waits, or `even_without_words`."""
        if self.task is not None:
            return
        if not self._queue and not even_without_words:
            return
        if self.is_held:
            self.was_due_while_held = True
            return
        self._why_stopped = CLOSED  # The reason if the event loop ends and cancels the turn.
        turns = self._run_turns(ask, set_activity)
        self.task = self._services.spawn(turns, name=f"turn of {self._conversation.id}")
        self.task.add_done_callback(partial(self._reset_unstarted_turn, set_activity))

    def _reset_unstarted_turn(self, set_activity: SetActivity, turn: asyncio.Task[None]) -> None:
        """Reset a task that was cancelled before its first step, as its `finally` did not run."""
        if self.task is turn:
            self.task = None
            self.last_end = self._build_stopped_end()
            set_activity(ConversationActivity.IDLE)

    def _build_stopped_end(self) -> facts.TurnEnded:
        return facts.TurnEnded(facts.TurnEnd.STOPPED, self._why_stopped)

    async def _run_turns(self, ask: AskUser, set_activity: SetActivity) -> None:
        """Run turns until no message waits or a turn ends otherwise than with the work done.

        This is the task of `start_turn_if_due`. However it ends, the conversation is told how.
        """
        # This stays the end if a bug ends a turn. The bug itself is logged.
        ended = facts.TurnEnded(facts.TurnEnd.FAILED, BUG)
        try:
            while True:
                ended = await self._run_one_turn(ask, set_activity)
                self._folding.start_folds_after_turn()
                if ended.reason is facts.TurnEnd.DONE:
                    await self._run_stop_hooks_and_queue_their_message()
                if not self._queue or ended.reason is not facts.TurnEnd.DONE:
                    break
        except asyncio.CancelledError:
            ended = self._build_stopped_end()
            raise
        finally:
            self.task = None
            self.last_end = ended
            activity = ConversationActivity.FAILED
            if ended.reason in (facts.TurnEnd.DONE, facts.TurnEnd.STOPPED):
                activity = ConversationActivity.IDLE
            set_activity(activity, ended.why)

    async def _run_one_turn(self, ask: AskUser, set_activity: SetActivity) -> facts.TurnEnded:
        """Record the next message, and let the model answer it until its work is done.

        The lease keeps other processes from running a turn of the same conversation meanwhile.
        An error that could not be recorded is the reason of the turn's end.
        """
        callbacks = TurnCallbacks(
            ask,
            self._queue.pop_steering_messages,
            self._queue.requeue_messages,
            set_activity,
            self._build_stopped_end,
            self._queue.has_steering_of_user,
        )
        try:
            async with self._services.turn_lease(self._conversation.id):
                repeats_calls = await self._take_back_unstarted_calls()
                # Messages that waited for the end of these calls still do.
                if not repeats_calls:
                    await self._record_next_message()
                if self._services.run_foreign_turn is not None:
                    return await self._run_foreign_turn(self._services.run_foreign_turn, callbacks)
                self._running_turn = turn_loop.TurnLoop(
                    self._conversation, self._services, self._folding, self.contents, callbacks
                )
                return await self._running_turn.run_turn(runs_waiting_calls=repeats_calls)
        except HelixError as error:
            return turn_loop.turn_end_of_error(error)
        except Exception:
            with suppress(HelixError):
                await self._conversation.append_facts(facts.TurnEnded(facts.TurnEnd.FAILED, BUG))
            raise
        finally:
            self._running_turn = None

    async def _take_back_unstarted_calls(self) -> bool:
        """Let the calls that a stop kept from beginning wait again, if that was asked for.
        Return whether there are any.
        """
        repeats_calls = self.calls_to_repeat
        self.calls_to_repeat = False
        if not repeats_calls:
            return False
        new_facts = facts_that_take_back_unstarted_calls(self._conversation.state)
        await self._conversation.append_facts(*new_facts)
        return bool(new_facts)

    async def _run_foreign_turn(
        self, run: Callable[[TurnCallbacks], Awaitable[facts.TurnEnded]], callbacks: TurnCallbacks
    ) -> facts.TurnEnded:
        """Run the turn of an agent of another program, unless a cost limit is reached."""
        # Its program may take seconds to start, and can be stopped meanwhile.
        callbacks.running(ConversationActivity.THINKING)
        self._folding.spending.begin_turn()
        end = self._folding.spending.find_turn_end_at_limit()
        if end is not None:
            await self._conversation.append_facts(end)
            return end
        await turn_loop.append_note_on_undone_files(self._services, self._conversation)
        return await run(callbacks)

    async def _record_next_message(self) -> None:
        """Take the next message out of the queue and record it, with what hooks add to it.

        If a hook rejects it or it cannot be written, it goes back into the queue.
        """
        if not self._queue:
            return
        message = self._queue.pop_next_message()
        message_fact = facts.UserSaid(message.parts, by=message.by, command=message.command_id)
        replaced_message = 0
        if message.rewinds_to is not None:
            replaced_message = message.rewinds_to + 1
        try:
            notes_of_hooks = await self._run_hooks_before_message(message)
            await self._expect_chosen_settings()
            message_and_folds = await self._folding.excerpt_large_message(
                message_fact, replaced_message
            )
        except BaseException:
            self._queue.requeue_messages([message])
            raise
        new_facts = list(message_and_folds) + list(notes_of_hooks)
        try:
            await self._conversation.append_facts_from(
                partial(self._build_message_facts, message, new_facts)
            )
        except HelixError:  # A user's stop is not a HelixError, and the append is still completed.
            self._queue.requeue_messages([message])
            raise

    async def _expect_chosen_settings(self) -> None:
        """Find out which model gets the next message, so that its window decides what is shown.

        The first step records it, but only after the message.
        """
        if self._services.run_foreign_turn is not None:
            return  # A foreign agent has a model of its own.
        with suppress(HelixError):  # The step will meet this error again and show it.
            setup = await self._services.expected_setup()
            turn_loop.set_expected_request_settings(self._services, self._conversation, setup)

    async def _run_hooks_before_message(self, message: QueuedMessage) -> list[facts.UserSaid]:
        """Return what hooks, the user's own programs, add to a message before it is sent.
        Raises ActionRefused if a hook rejects it.
        """
        is_from_program = bool(message.by)
        if is_from_program:
            return []
        notes: list[facts.UserSaid] = []
        if not self._told_hooks_of_session:
            source = "startup"
            if len(self._conversation.state.facts) > 1:
                source = "resume"
            start_outcome = await self._run_hooks("SessionStart", {"source": source})
            notes += self._note_of_hook("SessionStart", start_outcome)

        texts = [part.text for part in message.parts if isinstance(part, facts.Text)]
        outcome = await self._run_hooks("UserPromptSubmit", {"prompt": "\n".join(texts)})
        if outcome.blocks:
            raise ActionRefused(
                f"A hook blocked this message: {outcome.blocks}",
                remedy="Change it or the hook, and send it again.",
            )
        notes += self._note_of_hook("UserPromptSubmit", outcome)
        self._told_hooks_of_session = True
        self._continuations_by_hooks = 0
        return notes

    async def _run_hooks(self, event: str, values: Mapping[str, Any]) -> HookOutcome:
        return await self._services.run_hooks(event, self._conversation.id, values)

    def _note_of_hook(self, event: str, outcome: HookOutcome) -> list[facts.UserSaid]:
        """Return what a hook says as a note for the model, or nothing."""
        if not outcome.says:
            return []
        text = facts.Text(f"[A hook for {event} says:]\n{outcome.says}")
        counted_text = with_text_tokens(text, self._services.tokens)
        return [facts.UserSaid((counted_text,), steering=True, by=f"hook:{event}")]

    async def _run_stop_hooks_and_queue_their_message(self) -> None:
        """Let hooks make the agent continue, but only a few times."""
        if self._queue or self._continuations_by_hooks >= MOST_CONTINUATIONS_BY_HOOKS:
            return
        has_continued = self._continuations_by_hooks > 0
        outcome = await self._run_hooks("Stop", {"stop_hook_active": has_continued})
        if outcome.blocks:
            self._continuations_by_hooks += 1
            text = facts.Text(f"[A hook sends you on: {outcome.blocks}]")
            counted_text = with_text_tokens(text, self._services.tokens)
            self._queue.append(QueuedMessage((counted_text,), steer=False, by="hook:Stop"))

    def _build_message_facts(
        self, message: QueuedMessage, new_facts: Sequence[facts.Fact], first_seq: int
    ) -> Sequence[facts.Fact]:
        """Return all facts of a message, to be appended together. The first one gives the title."""
        facts_before: list[facts.Fact] = []
        if message.rewinds_to is not None:
            record = self._conversation.state.record
            facts_before += record.rewind_that_keeps_choices(message.rewinds_to)
        if not self._conversation.state.title:
            title = _title_from_message(message.parts)
            facts_before.append(facts.ConversationChanged(title=title))
        # The numbers in the folds of the message do not count the facts before it.
        seq_of_message = first_seq + len(facts_before)
        facts_of_message = [resolve_relative_cover(fact, seq_of_message) for fact in new_facts]
        return facts_before + facts_of_message


def _title_from_message(parts: Sequence[facts.UserPart]) -> str:
    """Return the first line of a message, shortened."""
    texts = [part.text for part in parts if isinstance(part, facts.Text)]
    text = " ".join(texts).strip()
    if not text:
        return "Untitled"
    first_line = text.splitlines()[0]
    if len(first_line) <= LONGEST_TITLE:
        return first_line
    return first_line[: LONGEST_TITLE - 1].rstrip() + "…"


def with_text_tokens(part: facts.UserPart, tokens: TokenCounter) -> facts.UserPart:
    """Return a part of a message with its tokens counted, if it is a text."""
    if isinstance(part, facts.Text):
        return replace(part, tokens=tokens.count_tokens(part.text))
    return part
