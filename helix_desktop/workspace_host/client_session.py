"""One conversation of a workspace that another process has open, as a window's pages use a session.

Its state is computed here, from the facts that the host tells. What the user does is a command to
the host. It has the parts of the engine's `Session` that the chat needs, under the same names, so that
the chat need not know which of the two it shows.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine import (
    context_usage,
    facts,
    rebuilt_request,
    request_costs,
    session_events,
)
from helix_desktop.engine.context_policy import Policy, policy_from_fact
from helix_desktop.engine.context_usage import (
    FoldForecast,
    NextMessageCost,
    PendingRewrite,
    WindowMeter,
)
from helix_desktop.engine.conversation_context import NeededSummary
from helix_desktop.engine.facts import Recorded, UserPart
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.message_cost_forecast import (
    MessageCostForecast,
    NextMessageEstimate,
    estimate_next_message,
    forecast_message_cost,
)
from helix_desktop.engine.message_queue import find_queued_message
from helix_desktop.engine.messages import Request, RetryDelay, TextDelta
from helix_desktop.engine.ports import ContentReader, PermissionAnswer, PermissionQuestion
from helix_desktop.engine.request_costs import RequestCost
from helix_desktop.engine.session_events import ConversationActivity, Event
from helix_desktop.engine.session_setup import QueuedMessage
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import ActionRefused, HelixError, OwnerEnded
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.token_counting import BYTES_PER_TOKEN
from helix_desktop.workspace_host import host_interface
from helix_desktop.workspace_host.host_interface import (
    ConversationEvent,
    FactsAdded,
    HistoryReplaced,
    HostCommand,
    LiveState,
    NewestFacts,
    PartChange,
    QueueChange,
    ReplyDelayed,
    message_fingerprint,
    new_command_id,
    question_fingerprint,
)
from helix_desktop.workspace_host.host_line import HostLine
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost

log = logging.getLogger(__name__)
FACTS_AT_ONCE = 50  # After so many, other work of the window gets its turn.
Listener = Callable[[Event], None]
AT_REST = (ConversationActivity.IDLE, ConversationActivity.FAILED)


class SessionWorkspace(Protocol):
    """What a session here needs of its workspace: see `ClientWorkspace`."""

    line: HostLine
    contents: ContentReader
    tasks: OwnedTasks

    def conversation_row(self, conversation: str) -> ConversationListRow | None: ...
    def start_command(self, conversation: str, command: HostCommand) -> None: ...
    def report_refused_message(
        self, conversation: str, parts: tuple[UserPart, ...], error: HelixError
    ) -> None: ...


class ClientConversation:
    """What is known of a conversation here, and who listens to its events."""

    def __init__(self, conversation: str) -> None:
        self.id = conversation
        self.state = ConversationState()
        self.listeners: list[Listener] = []

    @property
    def expected_state(self) -> ConversationState:
        """Only the host knows which settings the next request will have. Here, it is assumed that
        they are those of the last one.
        """
        return self.state

    @property
    def policy(self) -> Policy:
        return policy_from_fact(self.state.settings.policy)

    def current_meter(self) -> WindowMeter:
        return context_usage.measure_window(self.state, self.policy)

    async def moment_at(self, seq: int) -> Moment:
        """Computes, in a thread, the state when `seq` was the newest fact."""
        return await asyncio.to_thread(self.state.past_moment, seq)

    def notify_listeners(self, event: Event) -> None:
        for listener in tuple(self.listeners):
            listener(event)


@dataclass(frozen=True, eq=False)
class UnconfirmedMessage:
    """A message that the host has not confirmed yet. `known_seq`: the newest fact when the user
    sent it. A host of an earlier version does not say which command a message came from: then an
    equal older message is not taken for it.
    """

    message: QueuedMessage
    known_seq: int

    @property
    def command_id(self) -> str:
        return self.message.command_id


class ClientSession:
    """Create one with `ClientWorkspace.open_session`, which waits until its facts have come."""

    def __init__(self, workspace: SessionWorkspace, conversation: str) -> None:
        self.conversation = ClientConversation(conversation)
        self.running = ConversationActivity.IDLE
        self.why = ""
        self.questions: dict[int, PermissionQuestion] = {}
        self.queue = ClientQueue(self)
        self.context = ClientContext(self, workspace)
        self.folding = ClientFolding(self)
        self.turns = ClientTurns(self)
        self.workspace = workspace
        # Why the host does not tell this conversation any more.
        self.failure: HelixError | None = None
        # The host that has told all of the conversation's facts, and what is not stored.
        self._told_by: RemoteWorkspaceHost | None = None
        # Of a long history, what is shown until all of its facts have come.
        self.newest_facts: tuple[Recorded, ...] = ()
        self._has_begun = False  # Something has come from a host.
        self._has_news = asyncio.Event()
        self._streamed_reply = ""
        # While the host tells a changed history again: what is known of it so far.
        self._replacement: ConversationState | None = None

    @property
    def id(self) -> str:
        return self.conversation.id

    @property
    def is_in_use(self) -> bool:
        """Whether somebody shows it, or something of it is not settled."""
        # The workspace itself is the first listener.
        has_viewers = len(self.conversation.listeners) > 1
        return has_viewers or bool(self.queue) or self.running not in AT_REST

    def subscribe_to_events(self, listener: Listener) -> Callable[[], None]:
        self.conversation.listeners.append(listener)
        return lambda: self.conversation.listeners.remove(listener)

    # --- What the user does

    def send_message(
        self, parts: tuple[UserPart, ...], *, steer: bool = False, command_id: str = ""
    ) -> None:
        """Sends a message. It waits in the queue until the host has confirmed it, even if the line
        is broken.
        """
        if parts:
            self.queue.add_unsent(parts, steer=steer, command_id=command_id or new_command_id())

    def stop_turn(self) -> None:
        self.start_command(host_interface.StopTurn(self.id))

    def resume_turn(self) -> None:
        self.start_command(host_interface.ResumeTurn(self.id))

    def answer_question(self, number: int, answer: PermissionAnswer) -> None:
        """Answers the question that is shown here under this number. The host compares its words."""
        question = self.questions.get(number)
        if question is not None:
            fingerprint = question_fingerprint(question)
            self.start_command(host_interface.AnswerQuestion(self.id, number, fingerprint, answer))

    async def fold_on_request(self, kind: facts.FoldKind, *, wish: str = "") -> None:
        await self.run_for_conversation(host_interface.FoldConversation(self.id, kind, wish))

    async def rewind_to(self, seq: int) -> None:
        await self.run_for_conversation(host_interface.RewindConversation(self.id, seq))

    async def edit_and_resend(
        self, seq: int, parts: tuple[UserPart, ...], *, command_id: str = ""
    ) -> None:
        text, attachments = split_parts(parts)
        await self.run_for_conversation(
            host_interface.EditAndResend(self.id, seq, text, attachments, command_id)
        )

    async def ask_again(self, seq: int = 0) -> None:
        await self.run_for_conversation(host_interface.AnswerAgain(self.id, seq))

    async def switch_to_answer(self, end: int) -> None:
        await self.run_for_conversation(host_interface.SwitchToAnswer(self.id, end))

    async def set_title(self, title: str) -> None:
        await self.run_for_conversation(host_interface.ChangeConversation(self.id, title=title))

    async def set_archived(self, *, archived: bool = True) -> None:
        await self.run_for_conversation(
            host_interface.ChangeConversation(self.id, is_archived=archived)
        )

    async def set_trashed(self, *, trashed: bool = True) -> None:
        await self.run_for_conversation(
            host_interface.ChangeConversation(self.id, is_trashed=trashed)
        )

    async def set_pinned(self, *, pinned: bool = True) -> None:
        await self.run_for_conversation(
            host_interface.ChangeConversation(self.id, is_pinned=pinned)
        )

    def refuse_while_running(self, action: str) -> None:
        if self.running not in AT_REST:
            raise ActionRefused(
                f"Cannot {action} while the agent is working.", remedy="Stop the agent first (Esc)."
            )

    async def run_for_conversation(self, command: HostCommand) -> host_interface.CommandResult:
        return await self.workspace.line.run_at_host(command)

    def start_command(self, command: HostCommand) -> None:
        """Runs a command without waiting for it. If it fails, the workspace tells the user why."""
        self.workspace.start_command(self.id, command)

    # --- What the host tells

    async def follow_until_closed(self) -> None:
        """Follows the conversation at one host after the other, from the last fact known."""
        line = self.workspace.line
        while self.failure is None:
            host = await line.wait_for_host()
            try:
                await self._follow_at(host)
            except OwnerEnded:
                line.note_end_of_host(host)
            except HelixError as error:
                if host.has_ended.is_set():
                    line.note_end_of_host(host)
                else:  # There is no such conversation, or it cannot be read.
                    self.failure = error
            except Exception:  # A host that lies may send facts that no journal would have.
                log.exception("what a host told of a conversation could not be used")
                self.failure = HelixError(
                    "What the other side told of this conversation does not fit together.",
                    remedy="Open it where its workspace is open.",
                )
            self._has_news.set()
        # Whoever opens it is told why it fails. Who has it open already must be told, too.
        if self._told_by is not None:
            self.workspace.report_refused_message(self.id, (), self.failure)

    async def _follow_at(self, host: RemoteWorkspaceHost) -> None:
        known_count = self._count_known_facts()
        follower = await host.follow_conversation(
            self.id, known_count, newest_first=not self._has_begun
        )
        try:
            while True:
                events = await follower.next_events()
                await self._apply_events(events, host)
        finally:
            with contextlib.suppress(HelixError):
                await follower.close_follower()

    async def _apply_events(
        self, events: Sequence[ConversationEvent], host: RemoteWorkspaceHost
    ) -> None:
        for number, event in enumerate(events, 1):
            if not self._has_begun:
                self._begin_with_first_event(event)
            await self._apply_event(event)
            if isinstance(event, LiveState) and not event.is_early:
                self._told_by = host
                self._has_news.set()
            # Hundreds of words may have come at once, and the window must paint between.
            if number % FACTS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _begin_with_first_event(self, event: ConversationEvent) -> None:
        self._has_begun = True
        if isinstance(event, NewestFacts):
            self.newest_facts = event.facts
        self._has_news.set()

    async def wait_until_told_by(self, host: RemoteWorkspaceHost) -> bool:
        """Waits until this host has told all that it knows. Returns False if it ends before."""
        while self._told_by is not host and self.failure is None:
            if host.has_ended.is_set():
                return False
            self._has_news.clear()
            await self._has_news.wait()
        return True

    async def wait_for_newest_facts(self, host: RemoteWorkspaceHost) -> None:
        """Waits until the newest facts have come, or others without them."""
        while not self._has_begun and self.failure is None and not host.has_ended.is_set():
            self._has_news.clear()
            await self._has_news.wait()

    def newest_known_seq(self) -> int:
        """Returns the newest fact that the user may have seen."""
        if self.newest_facts:
            return self.newest_facts[-1].seq
        return self.conversation.state.seq

    def _count_known_facts(self) -> int:
        if self._replacement is not None:
            # It was cut off in the middle, so the changed history is told again from its first.
            self._replacement = ConversationState()
            return 0
        return self.conversation.state.seq

    async def _apply_event(self, event: ConversationEvent) -> None:
        match event:
            case FactsAdded():
                await self._take_over_facts(event)
            case NewestFacts():
                pass  # They follow in their order.
            case HistoryReplaced():
                self._replacement = ConversationState()
            case LiveState(is_early=True):
                self._apply_questions_and_activity(event)
            case LiveState():
                self.newest_facts = ()
                self._apply_live_state(event)
            case ReplyDelayed():
                self._apply_retry(event)
            case _:
                self._apply_session_event(event)

    async def _take_over_facts(self, added: FactsAdded) -> None:
        for index, recorded in enumerate(added.facts):
            await self._take_over_fact(recorded)
            # A long history must not keep the window from painting.
            if index % FACTS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _apply_session_event(self, event: Event) -> None:
        """Takes over what an event says, and passes it on as the session over there has told it."""
        match event:
            case session_events.MessagesQueued():
                # Listeners are told of the whole queue, with what the host does not know yet.
                self.queue.take_over_from_host(event)
                return
            case session_events.ActivityChanged():
                self.running = event.running
                self.why = event.why
                self.turns.note_retry(None)
            case session_events.QuestionAsked():
                self.questions[event.number] = event.question
            case session_events.QuestionAnswered():
                self.questions.pop(event.number, None)
            case session_events.FoldProgress():
                self.folding.note_progress(event)
            case session_events.ReplyStreamed(delta=delta):
                self.turns.note_retry(None)
                if isinstance(delta, TextDelta):
                    self._streamed_reply += delta.text
        self.conversation.notify_listeners(event)

    async def _take_over_fact(self, recorded: Recorded) -> None:
        if self._replacement is not None:
            await advance_without_freezing(self._replacement, recorded)
            return
        await advance_without_freezing(self.conversation.state, recorded)
        fact = recorded.fact
        if isinstance(fact, facts.ModelReplied | facts.TurnEnded):
            self._streamed_reply = ""
            self.turns.note_retry(None)
        if isinstance(fact, facts.UserSaid) and not fact.by:
            self.queue.note_recorded_message(recorded.seq, fact)
        # The history from before it was opened is news to nobody.
        if self._told_by is not None:
            self.conversation.notify_listeners(session_events.FactAppended(recorded))

    def _apply_live_state(self, live: LiveState) -> None:
        """All facts have come. Tells listeners what is not stored, as far as it is new to them."""
        notify = self.conversation.notify_listeners
        if self._replacement is not None:
            self.conversation.state = self._replacement
            self._replacement = None
            notify(session_events.ConversationReplaced(self.id))
        self._apply_reply_in_progress(live.reply_text)
        self.queue.take_over_from_host(live.queued)
        self._apply_questions_and_activity(live)
        self._apply_fold_in_work(live.fold)
        if live.retry is not None:
            self._apply_retry(live.retry)

    def _apply_retry(self, delayed: ReplyDelayed) -> None:
        delay = RetryDelay(delayed.why, delayed.seconds)
        self.turns.note_retry(delay)
        self.conversation.notify_listeners(session_events.ReplyStreamed(self.id, delay))

    def _apply_fold_in_work(self, fold: session_events.FoldProgress | None) -> None:
        """Tells of a fold that was begun, or has ended, while nobody listened here."""
        fold_before = self.folding.progress
        if fold == fold_before:
            return
        if fold is None and fold_before is not None:
            fold = session_events.FoldProgress(self.id, fold_before.kind, done=True)
        if fold is not None:
            self._apply_session_event(fold)

    def _apply_questions_and_activity(self, live: LiveState) -> None:
        questions_before = self.questions
        self.questions = {}
        for asked in live.questions:
            shown_question = questions_before.get(asked.number)
            # A card shows an equal question, and the user may have written in that very one.
            if shown_question is not None and shown_question == asked.question:
                self.questions[asked.number] = shown_question
            else:
                self.questions[asked.number] = asked.question
        self._notify_of_changed_questions(questions_before)
        activity = session_events.ActivityChanged(self.id, live.running, live.why)
        self._apply_session_event(activity)

    def _notify_of_changed_questions(
        self, questions_before: Mapping[int, PermissionQuestion]
    ) -> None:
        notify = self.conversation.notify_listeners
        for number, question_before in questions_before.items():
            if self.questions.get(number) != question_before:
                notify(session_events.QuestionAnswered(self.id, number))
        for number, question in self.questions.items():
            if questions_before.get(number) != question:
                notify(session_events.QuestionAsked(self.id, number, question))

    def _apply_reply_in_progress(self, reply_text: str) -> None:
        """Tells what was written of the reply while nothing was heard of it."""
        if not reply_text.startswith(self._streamed_reply):
            # It is another reply. What was shown of the first one is taken away.
            self._streamed_reply = ""
            notify = self.conversation.notify_listeners
            notify(session_events.ActivityChanged(self.id, ConversationActivity.IDLE))
            notify(session_events.ConversationReplaced(self.id))
        unheard_text = reply_text[len(self._streamed_reply) :]
        self._streamed_reply = reply_text
        if unheard_text:
            self.conversation.notify_listeners(
                session_events.ReplyStreamed(self.id, TextDelta(unheard_text))
            )


async def advance_without_freezing(state: ConversationState, recorded: Recorded) -> None:
    """Adds a fact. To rebuild the branch of a rewind takes a second if it is long."""
    branch = None
    if isinstance(recorded.fact, facts.Rewound):
        target_seq = max(0, min(recorded.fact.to, state.seq))
        branch = await asyncio.to_thread(state.branch_at_rewind, target_seq)
    state.advance_state(recorded, branch)


def split_parts(parts: Sequence[UserPart]) -> tuple[str, tuple[facts.Attachment, ...]]:
    """Returns the words of a message, and what is attached to it."""
    texts: list[str] = []
    attachments: list[facts.Attachment] = []
    for part in parts:
        if isinstance(part, facts.Text):
            texts.append(part.text)
        else:
            attachments.append(part)
    return "\n\n".join(texts), tuple(attachments)


class ClientQueue:
    """The messages that wait at the host, and behind them those that it has not confirmed yet."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._at_host: list[QueuedMessage] = []
        self._unsent: list[UnconfirmedMessage] = []
        self._sending: dict[str, asyncio.Task[None]] = {}
        # Of the unconfirmed messages that a host may have.
        self._offered_ids: set[str] = set()
        # Messages are sent one after the other, in the user's order.
        self._order = asyncio.Lock()

    def _list_all(self) -> list[QueuedMessage]:
        messages = list(self._at_host)
        for unsent in self._unsent:
            messages.append(unsent.message)
        return messages

    def __iter__(self) -> Iterator[QueuedMessage]:
        return iter(self._list_all())

    def __len__(self) -> int:
        return len(self._at_host) + len(self._unsent)

    def __getitem__(self, index: int) -> QueuedMessage:
        return self._list_all()[index]

    def list_unconfirmed(self) -> Sequence[UnconfirmedMessage]:
        return tuple(self._unsent)

    # --- What the user does

    def add_unsent(self, parts: tuple[UserPart, ...], *, steer: bool, command_id: str) -> None:
        session = self._session
        message = QueuedMessage(parts, steer, command_id=command_id)
        unsent = UnconfirmedMessage(message, session.newest_known_seq())
        self._unsent.append(unsent)
        self._notify()
        task = session.workspace.tasks.spawn_task(
            self._send_message_once(unsent), name="send a message"
        )
        self._sending[unsent.command_id] = task

    async def take_back_message(self, message: QueuedMessage) -> bool:
        """Takes a waiting message back once the host does not have it any more, as its words are
        kept elsewhere from then on. Returns False if it was sent meanwhile.
        """
        if message.command_id in self._offered_ids:
            # Only the host knows whether it has this message.
            await asyncio.wait([self._sending[message.command_id]])
        index = find_queued_message(self, message)
        if index is None:
            return False
        if index >= len(self._at_host):
            self._sending[message.command_id].cancel()
            self._remove_unsent(self._unsent[index - len(self._at_host)])
            return True
        return await self._take_back_at_host(index, message)

    async def _take_back_at_host(self, index: int, message: QueuedMessage) -> bool:
        line = self._session.workspace.line
        first_host = line.host
        command = self._change_of_message(index, QueueChange.TAKE_BACK)
        try:
            await self._session.run_for_conversation(command)
        except ActionRefused:
            if first_host is None or line.host is first_host:
                return False
            # The first host may have done it, and ended before it could say so.
            await self._session.wait_until_told_by(await line.wait_for_host())
            commands_of_messages = self._session.conversation.state.record.commands_of_messages
            is_recorded = message.command_id in commands_of_messages
            return not is_recorded and find_queued_message(self, message) is None
        if message in self._at_host:
            self._at_host.remove(message)
            self._notify(message)
        return True

    def move_message(self, index: int, new_index: int) -> None:
        self._start_change(index, QueueChange.MOVE, new_index)

    def set_steering(self, index: int, *, steer: bool) -> None:
        change = QueueChange.QUEUE
        if steer:
            change = QueueChange.STEER
        self._start_change(index, change)

    def _start_change(self, index: int, change: QueueChange, new_index: int = 0) -> None:
        if index >= len(self._at_host):
            return  # The host does not know it yet. It has its place when it is there.
        self._session.start_command(self._change_of_message(index, change, new_index))

    def _change_of_message(
        self, index: int, change: QueueChange, new_index: int = 0
    ) -> host_interface.ChangeWaitingMessage:
        fingerprint = message_fingerprint(self._at_host[index].parts)
        return host_interface.ChangeWaitingMessage(
            self._session.id, index, fingerprint, change, new_index
        )

    # --- Sending

    async def _send_message_once(self, unsent: UnconfirmedMessage) -> None:
        """Sends a message once, however often the line breaks or the host is started again."""
        session = self._session
        parts = unsent.message.parts
        try:
            async with self._order:
                await self._send_until_confirmed(unsent)
        except HelixError as error:
            self._remove_unsent(unsent)
            session.workspace.report_refused_message(session.id, parts, error)
        else:
            self._remove_unsent(unsent)
        finally:
            self._sending.pop(unsent.command_id, None)
            self._offered_ids.discard(unsent.command_id)

    async def _send_until_confirmed(self, unsent: UnconfirmedMessage) -> None:
        session = self._session
        line = session.workspace.line
        text, attachments = split_parts(unsent.message.parts)
        command = host_interface.SendMessage(session.id, text, attachments, unsent.message.steer)
        was_sent_before = False
        while unsent in self._unsent:
            host = await line.wait_for_host()
            # A host that was started again does not know the command's id. Whether it has the
            # message is seen in what it tells: then it is not among the unsent any more.
            if was_sent_before:
                has_told_all = await session.wait_until_told_by(host)
                if not has_told_all:
                    line.note_end_of_host(host)
                    continue
            if unsent not in self._unsent:
                return
            was_sent_before = True
            self._offered_ids.add(unsent.command_id)
            try:
                await host.run_host_command(command, unsent.command_id)
            except OwnerEnded:
                line.note_end_of_host(host)
            else:
                return

    def _remove_unsent(self, unsent: UnconfirmedMessage) -> None:
        if unsent in self._unsent:
            self._unsent.remove(unsent)
            self._notify(unsent.message)

    # --- What the host tells

    def take_over_from_host(self, event: session_events.MessagesQueued) -> None:
        at_host: list[QueuedMessage] = []
        taken_back: list[QueuedMessage] = []
        for parts, command_id in event.taken_back_with_ids():
            taken_back.append(QueuedMessage(parts, steer=False, command_id=command_id))
        for index, (parts, command_id) in enumerate(event.messages_with_ids()):
            is_steering = index < event.steering_count
            at_host.append(QueuedMessage(parts, steer=is_steering, command_id=command_id))
            unsent = self._find_unsent(command_id, parts)
            if unsent is not None:
                self._unsent.remove(unsent)
                taken_back.append(unsent.message)
        self._at_host = at_host
        self._notify(*taken_back, put_back=event.put_back)

    def note_recorded_message(self, seq: int, message: facts.UserSaid) -> None:
        """A message that is a fact is sent, even if the host's answer was lost with the line."""
        unsent = self._find_unsent(message.command, message.parts)
        if unsent is None:
            return
        # An equal message of long ago may come only now, while the conversation is being opened.
        if message.command or seq > unsent.known_seq:
            self._remove_unsent(unsent)

    def _find_unsent(
        self, command_id: str, parts: tuple[UserPart, ...]
    ) -> UnconfirmedMessage | None:
        """Returns the message of this command or, where an earlier version has not said which
        command it was, one with these parts.
        """
        fingerprint = message_fingerprint(parts)
        for unsent in self._unsent:
            if command_id and unsent.command_id == command_id:
                return unsent
            if not command_id and message_fingerprint(unsent.message.parts) == fingerprint:
                return unsent
        return None

    def _notify(
        self,
        *taken_back: QueuedMessage,
        put_back: tuple[tuple[UserPart, ...], ...] = (),
    ) -> None:
        messages = [message.parts for message in self._list_all()]
        steering_count = sum(message.steer for message in self._at_host)
        command_ids = [message.command_id for message in self._list_all()]
        queued = session_events.MessagesQueued(
            self._session.id,
            tuple(messages),
            tuple(message.parts for message in taken_back),
            steering_count,
            put_back,
            tuple(command_ids),
            tuple(message.command_id for message in taken_back),
        )
        self._session.conversation.notify_listeners(queued)


class ClientContext:
    """What the model will be sent, as far as it can be told from the facts."""

    def __init__(self, session: ClientSession, workspace: SessionWorkspace) -> None:
        self._session = session
        self._workspace = workspace

    @property
    def _state(self) -> ConversationState:
        return self._session.conversation.state

    def next_request_meter(self, instead_of: int = 0) -> WindowMeter:
        return context_usage.measure_window_without_end(
            self._state, self._session.conversation.policy, instead_of
        )

    def next_message_cost(self, instead_of: int = 0) -> NextMessageCost | None:
        return context_usage.estimate_next_message_cost(
            self._state, self._session.conversation.policy, before=instead_of
        )

    def message_cost_forecast(self) -> MessageCostForecast | None:
        return forecast_message_cost(self._state)

    def cost_of_agents(self) -> float:
        row = self._workspace.conversation_row(self._session.id)
        if row is None:
            return 0.0
        return row.agents_cost

    async def explain_costs_of_last_turn(self) -> Sequence[RequestCost]:
        return await asyncio.to_thread(request_costs.explain_costs_of_last_turn, self._state)

    async def rebuild_request(self, seq: int | None = None) -> Request:
        """Rebuilds it here, from the facts and the stored contents."""
        contents = self._workspace.contents
        return await rebuilt_request.rebuild_request(self._session.conversation, contents, seq)

    def matches_sent_request(self, seq: int, request: Request) -> bool | None:
        return rebuilt_request.matches_sent_request(self._state, seq, request)

    def estimate_next_message(
        self, parts: Sequence[UserPart], *, instead_of: int = 0
    ) -> NextMessageEstimate:
        """Only the host counts texts, so the tokens of this one follow from its length."""
        counted_tokens = 0
        for part in parts:
            counted_tokens += part.tokens
            if isinstance(part, facts.Text):
                counted_tokens += round(len(part.text.encode()) / BYTES_PER_TOKEN)
        policy = self._session.conversation.policy
        return estimate_next_message(
            self._state, policy, counted_tokens, time.time(), before=instead_of
        )

    # Only the host knows these. It asks, or does what is needed, by its own settings.

    def estimate_cost_of_sending(self, parts: Sequence[UserPart], *, instead_of: int = 0) -> float:
        return 0.0

    def estimate_needed_summary(self) -> NeededSummary | None:
        return None

    def estimate_saving_of_markers(self) -> float:
        return 0.0

    def pending_rewrite(self) -> PendingRewrite | None:
        return None

    def model_whose_cost_cannot_be_limited(self) -> str:
        return ""

    # --- Decisions of the user

    async def pin_part(self, ref: facts.Cover) -> None:
        await self._change_part(ref, PartChange.PIN)

    async def unpin_part(self, ref: facts.Cover) -> None:
        await self._change_part(ref, PartChange.UNPIN)

    async def exclude_part(self, ref: facts.Cover) -> None:
        await self._change_part(ref, PartChange.EXCLUDE)

    async def include_part(self, ref: facts.Cover) -> None:
        await self._change_part(ref, PartChange.INCLUDE)

    async def _change_part(self, ref: facts.Cover, change: PartChange) -> None:
        conversation = self._session.id
        if isinstance(ref, facts.Span):
            command = host_interface.ChangePart(conversation, change, ref.first, last_seq=ref.last)
        else:
            command = host_interface.ChangePart(conversation, change, ref.seq, ref.part)
        await self._session.run_for_conversation(command)

    async def edit_fold_text(self, fold: str, text: str) -> None:
        await self._session.run_for_conversation(
            host_interface.EditFold(self._session.id, fold, text)
        )

    async def recall_as_attachment(
        self, digest: Digest, *, lines: tuple[int, int] | None = None
    ) -> facts.Attachment:
        first_line = 0
        last_line = 0
        if lines is not None:
            first_line, last_line = lines
        command = host_interface.AttachEntry(self._session.id, digest.hex, first_line, last_line)
        result = await self._session.run_for_conversation(command)
        return result.attachments[0]


class ClientFolding:
    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self.progress: session_events.FoldProgress | None = None
        self.kind_in_progress: facts.FoldKind | None = None

    def note_progress(self, event: session_events.FoldProgress) -> None:
        if event.done:
            self.progress = None
            self.kind_in_progress = None
        else:
            self.progress = event
            self.kind_in_progress = event.kind

    def forecast_fold_on_demand(self, kind: facts.FoldKind) -> FoldForecast | None:
        """Only the host can tell."""
        return None

    def describe_next_fold(self) -> str:
        """Only the host can tell."""
        return ""

    def cancel_fold_in_work(self) -> None:
        self._session.start_command(host_interface.StopFold(self._session.id))

    async def unfold(self, fold: str) -> None:
        await self._session.run_for_conversation(host_interface.UndoFold(self._session.id, fold))

    async def refold(self, fold: str) -> None:
        await self._session.run_for_conversation(host_interface.RepeatFold(self._session.id, fold))


class ClientTurns:
    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._retry: RetryDelay | None = None
        self._retry_time = 0.0

    def note_retry(self, delay: RetryDelay | None) -> None:
        self._retry = delay
        if delay is not None:
            self._retry_time = time.monotonic() + delay.seconds

    @property
    def next_try(self) -> RetryDelay | None:
        if self._retry is None:
            return None
        seconds_left = self._retry_time - time.monotonic()
        return replace(self._retry, seconds=max(0.0, seconds_left))

    def retry_immediately(self) -> None:
        self._session.start_command(host_interface.RetryModelNow(self._session.id))
