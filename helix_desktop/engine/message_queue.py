"""Keeps a conversation's waiting messages, and runs turns that answer them, with hooks."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from helix_desktop.engine import facts, turn_loop
from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.engine.conversation import Conversation, resolve_relative_cover
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion, TokenCounter
from helix_desktop.engine.session_events import CLOSED, ConversationActivity, MessagesQueued
from helix_desktop.engine.session_setup import QueuedMessage, SessionServices, TurnCallbacks
from helix_desktop.engine.tool_call_execution import facts_that_take_back_unstarted_calls
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.errors import ActionRefused, HelixError

AskUser = Callable[[PermissionQuestion], Awaitable[PermissionAnswer]]
SetActivity = Callable[..., None]
TITLE = 60
MOST_SENT_ON = 3
BUG = "This is a bug in Helix Desktop. Details are in the log. Nothing you wrote is lost, and you can continue."


class MessageQueue(list[QueuedMessage]):
    """The waiting messages of a conversation, in the order in which they are sent: first those that
    steer, after the running step, then those that wait for the turn's end. Listeners are told of
    every change.
    """

    def __init__(self, conversation: Conversation, tokens: TokenCounter) -> None:
        super().__init__()
        self._conversation = conversation
        self._tokens = tokens

    def add_message(
        self,
        parts: Sequence[facts.UserPart],
        *,
        steer: bool,
        by: str = "",
        rewinds_to: int | None = None,
    ) -> None:
        if rewinds_to is not None:
            place = 0
        elif steer:
            place = self._count_steering()
        else:
            place = len(self)
        counted = tuple(with_text_tokens(part, self._tokens) for part in parts)
        self.insert(place, QueuedMessage(counted, steer, by, rewinds_to))
        self._notify_queue()

    def take_back_queued(self, index: int) -> tuple[facts.UserPart, ...]:
        """Take a waiting message back, to edit or drop it."""
        taken = self.pop(index)
        self._notify_queue(taken.parts)
        return taken.parts

    def set_steering(self, index: int, *, steer: bool) -> None:
        """Send a waiting message after the running step, or at the turn's end. Of those that go
        there, it becomes the last or the first, so that it passes no other one.
        """
        changed = replace(self.pop(index), steer=steer)
        self.insert(self._count_steering(), changed)
        self._notify_queue()

    def move_message(self, index: int, place: int) -> None:
        """Send a waiting message earlier or later, among those that go at the same time."""
        first = 0
        last = self._count_steering() - 1
        if not self[index].steer:
            first = last + 1
            last = len(self) - 1
        self.insert(min(max(place, first), last), self.pop(index))
        self._notify_queue()

    def _count_steering(self) -> int:
        return sum(waiting.steer for waiting in self)

    def pop_next_message(self) -> QueuedMessage:
        taken = self.pop(0)
        self._notify_queue()
        return taken

    def requeue_messages(self, waiting: Sequence[QueuedMessage]) -> None:
        self[:0] = waiting
        self._notify_queue(put_back=tuple(message.parts for message in waiting))

    def pop_steering_messages(self) -> Sequence[QueuedMessage]:
        steering = [waiting for waiting in self if waiting.steer]
        if steering:
            self[:] = [waiting for waiting in self if not waiting.steer]
            self._notify_queue()
        return steering

    def _notify_queue(
        self,
        *taken_back: tuple[facts.UserPart, ...],
        put_back: tuple[tuple[facts.UserPart, ...], ...] = (),
    ) -> None:
        messages = tuple(waiting.parts for waiting in self)
        steering = self._count_steering()
        self._conversation.notify_listeners(
            MessagesQueued(self._conversation.id, messages, taken_back, steering, put_back)
        )


class TurnRunner:
    """Runs turns. `last_end`: how the last one ended. While `is_held` is true, no turn begins."""

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
        self.contents = ViewContents(services.cache)
        self.last_end: facts.TurnEnded | None = None
        self.is_held = False
        # True if the next turn first runs the calls that a stop kept from beginning.
        self.calls_to_repeat = False
        self.task: asyncio.Task[None] | None = None
        self._why_stopped = CLOSED
        self._talking: turn_loop.TurnLoop | None = None
        self._begun = False  # Whether hooks have been told that the session is open.
        # How many times hooks have made the agent continue since the user's last message.
        self._sent_on = 0

    def cancel_turn(self, why: str) -> None:
        self._why_stopped = self._why_stopped and why  # The empty reason of a user's stop is kept.
        if self.task is not None:
            self.task.cancel()

    def cost_of_turn(self) -> float:
        """Return what the turn has cost until now, with sub-agents, or 0.0 if none runs."""
        if self._talking is None:
            return 0.0
        return self._folding.spending.cost_of_turn()

    def retry_immediately(self) -> None:
        if self._talking is not None and self._talking.wake is not None:
            self._talking.wake()

    def start_turn_if_due(
        self, ask: AskUser, set_activity: SetActivity, *, even_without_words: bool = False
    ) -> None:
        """Start a turn if none runs and a message waits, or `even_without_words`."""
        if self.task is not None or self.is_held:
            return
        if not self._queue and not even_without_words:
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
        """Run turns until the queue is empty or one is not done. A bug ends its turn
        with a sentence and is logged.
        """
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
        """Run the turn for the next message. Its end says why if an error could not be recorded."""
        try:
            async with self._services.turn_lease(self._conversation.id):
                await self._record_next_message()
                repeated: Sequence[facts.Fact] = ()
                if self.calls_to_repeat:
                    repeated = facts_that_take_back_unstarted_calls(self._conversation.state)
                self.calls_to_repeat = False
                await self._conversation.append_facts(*repeated)
                talk = TurnCallbacks(
                    ask,
                    self._queue.pop_steering_messages,
                    self._queue.requeue_messages,
                    set_activity,
                    self._build_stopped_end,
                )
                if self._services.run_foreign_turn is not None:
                    return await self._run_foreign_turn(self._services.run_foreign_turn, talk)
                self._talking = turn_loop.TurnLoop(
                    self._conversation, self._services, self._folding, self.contents, talk
                )
                return await self._talking.run_turn(runs_waiting_calls=bool(repeated))
        except HelixError as error:
            return turn_loop.turn_end_of_error(error)
        except Exception:
            with suppress(HelixError):
                await self._conversation.append_facts(facts.TurnEnded(facts.TurnEnd.FAILED, BUG))
            raise
        finally:
            self._talking = None

    async def _run_foreign_turn(
        self, run: Callable[[TurnCallbacks], Awaitable[facts.TurnEnded]], talk: TurnCallbacks
    ) -> facts.TurnEnded:
        """Run the turn of an agent of another program, unless a cost limit is reached."""
        self._folding.spending.begin_turn()
        end = self._folding.spending.find_turn_end_at_limit()
        if end is not None:
            await self._conversation.append_facts(end)
            return end
        await turn_loop.append_note_on_undone_files(self._services, self._conversation)
        return await run(talk)

    async def _record_next_message(self) -> None:
        """Record the next message. If that fails, the message goes back into the queue."""
        if not self._queue:
            return
        waiting = self._queue.pop_next_message()
        said = facts.UserSaid(waiting.parts, by=waiting.by)
        try:
            heard = await self._run_hooks_before_message(waiting)
            new_facts = list(await self._folding.excerpt_large_message(said))
            new_facts += heard
        except BaseException:
            self._queue.requeue_messages([waiting])
            raise
        try:
            await self._conversation.append_facts_from(
                partial(self._build_message_facts, waiting, new_facts)
            )
        except HelixError:  # A user's stop is not a HelixError, and the append is still completed.
            self._queue.requeue_messages([waiting])
            raise

    async def _run_hooks_before_message(self, waiting: QueuedMessage) -> list[facts.UserSaid]:
        """Return what hooks add to a message. Raises ActionRefused if a hook rejects it."""
        if waiting.by:
            return []
        said: list[facts.UserSaid] = []
        words = "\n".join(part.text for part in waiting.parts if isinstance(part, facts.Text))
        events = [("UserPromptSubmit", {"prompt": words})]
        if not self._begun:
            is_old = len(self._conversation.state.facts) > 1
            events.insert(0, ("SessionStart", {"source": "resume" if is_old else "startup"}))
        for event, values in events:
            heard = await self._services.run_hooks(event, self._conversation.id, values)
            if heard.blocks and event == "UserPromptSubmit":
                raise ActionRefused(
                    f"A hook blocked this message: {heard.blocks}",
                    remedy="Your message is still queued.",
                )
            if heard.says:
                text = facts.Text(f"[A hook for {event} says:]\n{heard.says}")
                counted = with_text_tokens(text, self._services.tokens)
                said.append(facts.UserSaid((counted,), steering=True, by=f"hook:{event}"))
        self._begun = True
        self._sent_on = 0
        return said

    async def _run_stop_hooks_and_queue_their_message(self) -> None:
        """Hooks may make the agent continue only a few times."""
        if self._queue or self._sent_on >= MOST_SENT_ON:
            return
        heard = await self._services.run_hooks(
            "Stop", self._conversation.id, {"stop_hook_active": self._sent_on > 0}
        )
        if heard.blocks:
            self._sent_on += 1
            text = facts.Text(f"[A hook sends you on: {heard.blocks}]")
            counted = with_text_tokens(text, self._services.tokens)
            self._queue.append(QueuedMessage((counted,), steer=False, by="hook:Stop"))

    def _build_message_facts(
        self, waiting: QueuedMessage, new_facts: Sequence[facts.Fact], number: int
    ) -> Sequence[facts.Fact]:
        """Return all facts of a message, to be appended together. The first one gives the title."""
        lead: list[facts.Fact] = []
        if waiting.rewinds_to is not None:
            lead.append(facts.Rewound(waiting.rewinds_to))
        if not self._conversation.state.title:
            lead.append(facts.ConversationChanged(title=_title_from_message(waiting.parts)))
        first = number + len(lead)
        return lead + [resolve_relative_cover(fact, first) for fact in new_facts]


def _title_from_message(parts: Sequence[facts.UserPart]) -> str:
    """Return the first line of a message, shortened."""
    text = " ".join(part.text for part in parts if isinstance(part, facts.Text)).strip()
    if not text:
        return "Untitled"
    first_line = text.splitlines()[0]
    if len(first_line) <= TITLE:
        return first_line
    return first_line[: TITLE - 1].rstrip() + "…"


def with_text_tokens(part: facts.UserPart, tokens: TokenCounter) -> facts.UserPart:
    if isinstance(part, facts.Text):
        return replace(part, tokens=tokens.count_tokens(part.text))
    return part
