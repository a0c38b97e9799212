"""Follows every open workspace, for the rail's dots, the conversation list and notifications."""

import time
from collections.abc import Iterable
from dataclasses import replace

from PySide6.QtCore import QObject, QTimer, Signal

from helix_desktop.engine import facts, session_events
from helix_desktop.engine.session_events import ActivityChanged, ConversationActivity, Event
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.chat.message_drafts import encode_queued_message
from helix_desktop.gui.common.running_states import WORKING_STATES
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.session_signals import EventBridge
from helix_desktop.gui.streamed_output import UnfinishedOutput
from helix_desktop.gui.workbench_types import Session, Workbench

_STATES_BY_URGENCY = (
    ConversationActivity.ASKING,
    ConversationActivity.FAILED,
    ConversationActivity.TOOLS,
    ConversationActivity.THINKING,
)
# Facts that can change a conversation's row in the list: its title, place or context bar.
_FACTS_THAT_CHANGE_ROWS = (
    facts.ConversationChanged, facts.ConversationStarted, facts.Folded, facts.ModelReplied,
    facts.Refolded, facts.TurnEnded, facts.Unfolded,
)  # fmt: skip

LIST_INTERVAL_MS = 300  # The minimum interval between two rebuilds of the list.
MessageQueue = tuple[tuple[facts.UserPart, ...], ...]


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that is not in the journal yet, and when it was queued, in seconds since 1970.
    `after_seq`: the newest fact that is an equal message, for which it must not be taken.
    """

    parts: tuple[facts.UserPart, ...]
    queued_at: float
    after_seq: int = 0


class WorkspaceActivity(QObject):
    """Follows an open workspace. `activity_ended`: a conversation has finished, waits
    for the user, or failed.
    """

    list_changed = Signal()
    settings_changed = Signal()
    state_changed = Signal(str, object)
    activity_ended = Signal(str, object, str)

    def __init__(self, bench: Workbench, state_file: WindowStateFile, parent: QObject) -> None:
        super().__init__(parent)
        self.bench = bench
        self._state_file = state_file
        self._unfinished = UnfinishedOutput()
        self._queued: dict[str, MessageQueue] = {}
        # When each was queued, so that after a crash it is known whether it was recorded since.
        self._waiting: dict[str, list[WaitingMessage]] = {}
        # Messages that have left the queue but are not in the journal yet.
        self._unrecorded: dict[str, MessageQueue] = {}
        failed: list[str] = state_file.get_remembered("failed", bench.id, default=[])
        self._states: dict[str, ConversationActivity] = dict.fromkeys(
            failed, ConversationActivity.FAILED
        )
        # The conversations whose failures the user has already seen.
        self._seen_failures: set[str] = set()
        self._bridge = EventBridge(self)
        self._bridge.events_arrived.connect(self._update_states_and_schedule_list)
        self._list_timer = QTimer(self, interval=LIST_INTERVAL_MS, singleShot=True)
        self._list_timer.timeout.connect(self.list_changed)
        self._unsubscribe_all = (
            bench.subscribe_to_events(self._update_queues_and_pass_event_on),
            bench.workspace.watch_settings(self.settings_changed.emit),
        )

    def stop_watching_workspace(self) -> None:
        for unsubscribe in self._unsubscribe_all:
            unsubscribe()

    @property
    def most_urgent_state(self) -> ConversationActivity:
        unseen_states: set[ConversationActivity] = set()
        for conversation, state in self._states.items():
            if conversation not in self._seen_failures:
                unseen_states.add(state)
        for state in _STATES_BY_URGENCY:
            if state in unseen_states:
                return state
        return ConversationActivity.IDLE

    def conversations_in(self, *states: ConversationActivity) -> tuple[str, ...]:
        """Returns the conversations in these states. One may have failed before the
        program was started.
        """
        return tuple(name for name, state in self._states.items() if state in states)

    def build_events_of_unfinished_work(self, session: Session) -> tuple[Event, ...]:
        """Returns unrecorded progress of a conversation as events, for a view that just opened."""
        events: list[Event] = [ActivityChanged(session.id, session.running)]
        for number, question in session.questions.items():
            events.append(session_events.QuestionAsked(session.id, number, question))
        events.extend(self._unfinished.unfinished_events_of(session.id))
        return tuple(events)

    def mark_failure_seen(self, conversation: str) -> None:
        """Marks a failure as seen: the rail no longer shows it, but the list does until
        the conversation continues.
        """
        if self._states.get(conversation) is ConversationActivity.FAILED:
            self._seen_failures.add(conversation)
            self.state_changed.emit(conversation, ConversationActivity.FAILED)

    def _update_queues_and_pass_event_on(self, event: Event) -> None:
        self._unfinished.update_unfinished_output(event)
        if isinstance(event, session_events.MessagesQueued):
            self._note_messages_that_left_queue(event)
            self._save_unrecorded_messages(event.conversation)
        elif isinstance(event, session_events.FactAppended):
            fact = event.recorded.fact
            if isinstance(fact, facts.UserSaid):
                self._remove_recorded_message(event.recorded, fact)
        # Pieces of streams are shown by the conversation itself.
        if not isinstance(event, session_events.ReplyStreamed | session_events.ToolPrinted):
            self._bridge.queue_event(event)

    def _note_messages_that_left_queue(self, event: session_events.MessagesQueued) -> None:
        """What left the queue and was not taken back is about to be recorded. Messages may be
        equal: one has left, others wait, and one more has just been added.
        """
        unrecorded = list(self._unrecorded.get(event.conversation, ()))
        _remove_each_once(unrecorded, event.put_back)
        left_queue = list(self._queued.get(event.conversation, ()))
        _remove_each_once(left_queue, event.messages + event.taken_back)
        self._unrecorded[event.conversation] = tuple(unrecorded + left_queue)
        self._queued[event.conversation] = event.messages

    def _remove_recorded_message(self, recorded: facts.Recorded, message: facts.UserSaid) -> None:
        """Forgets a queued message once it is recorded. Long texts are recorded in another form."""
        conversation = recorded.conversation
        unrecorded = list(self._unrecorded.get(conversation, ()))
        removed_parts = message.parts
        if message.parts in unrecorded:
            unrecorded.remove(message.parts)
        elif unrecorded and not message.by:  # It was recorded in another form.
            removed_parts = unrecorded.pop(0)
        self._unrecorded[conversation] = tuple(unrecorded)
        # Otherwise an equal message that still waits would be taken for this one after a crash.
        waiting: list[WaitingMessage] = []
        for waiting_message in self._waiting.get(conversation, ()):
            if waiting_message.parts == removed_parts:
                waiting.append(replace(waiting_message, after_seq=recorded.seq))
            else:
                waiting.append(waiting_message)
        self._waiting[conversation] = waiting
        self._save_unrecorded_messages(conversation)

    def _save_unrecorded_messages(self, conversation: str) -> None:
        saved_before = list(self._waiting.get(conversation, ()))
        waiting: list[WaitingMessage] = []
        unrecorded = self._unrecorded.get(conversation, ())
        for parts in unrecorded + self._queued.get(conversation, ()):
            message = _find_message_with_parts(saved_before, parts)
            if message is None:
                message = WaitingMessage(parts, time.time())
            else:
                saved_before.remove(message)  # Of equal messages, each is found once.
            waiting.append(message)
        self._waiting[conversation] = waiting
        encoded = [
            encode_queued_message(message.parts, message.queued_at, message.after_seq)
            for message in waiting
        ]
        self._state_file.remember_value("waiting", self.bench.id, conversation, value=encoded)
        # What left the message box is nowhere else until it is recorded.
        self._state_file.start_waiting_write()

    def _update_states_and_schedule_list(self, events: tuple[Event, ...]) -> None:
        for event in events:
            if isinstance(event, ActivityChanged):
                self._set_state_and_notify(event)
        changes_rows = any(_changes_row_of_list(event) for event in events)
        if changes_rows and not self._list_timer.isActive():
            self._list_timer.start()

    def _set_state_and_notify(self, event: ActivityChanged) -> None:
        parents = self.bench.conversations_above(event.conversation)
        state_before = self._states.get(event.conversation, ConversationActivity.IDLE)
        # The user need not know that a sub-agent ended whose parent is working.
        is_no_news = any(self._states.get(parent) in WORKING_STATES for parent in parents)
        if is_no_news and event.running not in WORKING_STATES:
            self._states[event.conversation] = ConversationActivity.IDLE
        else:
            self._states[event.conversation] = event.running
        self._seen_failures.discard(event.conversation)
        for parent in parents:
            self.state_changed.emit(parent, self._state_with_agents(parent))
        if is_no_news:
            return
        if ConversationActivity.FAILED in (state_before, event.running):
            failed = list(self.conversations_in(ConversationActivity.FAILED))
            self._state_file.remember_value("failed", self.bench.id, value=failed)
        if event.running is state_before:
            return
        self.state_changed.emit(event.conversation, self._state_with_agents(event.conversation))
        was_working = state_before in WORKING_STATES
        has_finished = was_working and event.running is ConversationActivity.IDLE
        needs_user = event.running in (ConversationActivity.ASKING, ConversationActivity.FAILED)
        if has_finished or needs_user:
            self.activity_ended.emit(event.conversation, event.running, event.why)

    def working_agents(self) -> list[str]:
        """Returns all conversations that work. One that only waits for its sub-agents
        does not count.
        """
        working = self.conversations_in(*WORKING_STATES)
        waiting = set[str]()
        for agent in working:
            for parent in self.bench.conversations_above(agent):
                if self._states.get(parent) is not ConversationActivity.THINKING:
                    waiting.add(parent)
        return [conversation for conversation in working if conversation not in waiting]

    def working_agents_below(self, conversation: str) -> list[str]:
        """Returns the sub-agents of a conversation, and theirs, that are working or ask
        the user.
        """
        agents: list[str] = []
        for agent in self.conversations_in(*WORKING_STATES):
            if conversation in self.bench.conversations_above(agent):
                agents.append(agent)
        return agents

    def _state_with_agents(self, conversation: str) -> ConversationActivity:
        """Returns a conversation's state, or, if it does not work, that of a sub-agent
        in the background.
        """
        own_state = self._states.get(conversation, ConversationActivity.IDLE)
        if own_state in WORKING_STATES:
            return own_state
        states_of_agents = {
            self._states[agent] for agent in self.working_agents_below(conversation)
        }
        for state in _STATES_BY_URGENCY:
            if state in states_of_agents:
                return state
        return own_state


def _changes_row_of_list(event: Event) -> bool:
    if isinstance(event, session_events.FactAppended):
        return isinstance(event.recorded.fact, _FACTS_THAT_CHANGE_ROWS)
    return isinstance(event, session_events.MeterChanged | session_events.ConversationReplaced)


def _find_message_with_parts(
    messages: Iterable[WaitingMessage], parts: tuple[facts.UserPart, ...]
) -> WaitingMessage | None:
    for message in messages:
        if message.parts == parts:
            return message
    return None


def _remove_each_once(
    messages: list[tuple[facts.UserPart, ...]], removed: Iterable[tuple[facts.UserPart, ...]]
) -> None:
    for parts in removed:
        if parts in messages:
            messages.remove(parts)
