"""Follows every open workspace, for the rail's dots, the conversation list and notifications."""

from PySide6.QtCore import QObject, QTimer, Signal

from helix_desktop.engine import facts, session_events
from helix_desktop.engine.session_events import ActivityChanged, ConversationActivity, Event
from helix_desktop.gui.common.running_states import WORKING_STATES
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.session_signals import EventBridge
from helix_desktop.gui.shown_workspace import ShownSession, ShownWorkspace
from helix_desktop.gui.streamed_output import UnfinishedOutput

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


class WorkspaceActivity(QObject):
    """Follows an open workspace. `activity_ended`: a conversation has finished, waits
    for the user, or failed.
    """

    list_changed = Signal()
    settings_changed = Signal()
    state_changed = Signal(str, object)
    activity_ended = Signal(str, object, str)

    def __init__(self, bench: ShownWorkspace, state_file: WindowStateFile, parent: QObject) -> None:
        super().__init__(parent)
        self.bench = bench
        self._state_file = state_file
        self._unfinished = UnfinishedOutput()
        failed: list[str] = state_file.get_remembered("failed", bench.id, default=[])
        self._states: dict[str, ConversationActivity] = dict.fromkeys(
            failed, ConversationActivity.FAILED
        )
        # What runs already, as in a workspace that another process had open before.
        for row in bench.list_conversations():
            running = bench.running_state_of(row.id)
            if running is not ConversationActivity.IDLE:
                self._states[row.id] = running
        # The conversations that the user has stopped and whose turn is still ending.
        self._stopping: set[str] = set()
        # The conversations whose failures the user has already seen.
        self._seen_failures: set[str] = set()
        self._bridge = EventBridge(self)
        self._bridge.events_arrived.connect(self._update_states_and_schedule_list)
        self._list_timer = QTimer(self, interval=LIST_INTERVAL_MS, singleShot=True)
        self._list_timer.timeout.connect(self.list_changed)
        self._write_timer = QTimer(self, interval=0, singleShot=True)
        self._write_timer.timeout.connect(state_file.start_waiting_write)
        self._unsubscribe_all = (
            bench.subscribe_to_events(self._note_output_and_queue_event),
            bench.watch_settings(self.settings_changed.emit),
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

    def build_events_of_unfinished_work(self, session: ShownSession) -> tuple[Event, ...]:
        """Returns unrecorded progress of a conversation as events, for a view that just opened."""
        events: list[Event] = [ActivityChanged(session.id, session.running)]
        for number, question in session.questions.items():
            events.append(session_events.QuestionAsked(session.id, number, question))
        events.extend(self._unfinished.unfinished_events_of(session.id))
        return tuple(events)

    def note_stop(self, conversation: str) -> None:
        """Notes that the user has stopped a conversation, whose commands may take a while to end."""
        self._stopping.add(conversation)

    def mark_failure_seen(self, conversation: str) -> None:
        """Marks a failure as seen: the rail no longer shows it, but the list does until
        the conversation continues.
        """
        if self._states.get(conversation) is ConversationActivity.FAILED:
            self._seen_failures.add(conversation)
            self.state_changed.emit(conversation, ConversationActivity.FAILED)

    def _note_output_and_queue_event(self, event: Event) -> None:
        self._unfinished.update_unfinished_output(event)
        if _is_about_sent_message(event):
            # The draft that it was need not be in the file any more. But others who hear of the
            # event may yet put it there as a message that its host does not have, so the file is
            # written when all have heard.
            self._write_timer.start()
        # Pieces of streams are shown by the conversation itself.
        if not isinstance(event, session_events.ReplyStreamed | session_events.ToolPrinted):
            self._bridge.queue_event(event)

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
        if event.running not in WORKING_STATES:
            self._stopping.discard(event.conversation)
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
        does not count, nor one that the user has stopped, with its sub-agents.
        """
        working: list[str] = []
        for conversation in self.conversations_in(*WORKING_STATES):
            itself_and_above = {conversation, *self.bench.conversations_above(conversation)}
            if not itself_and_above & self._stopping:
                working.append(conversation)
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


def _is_about_sent_message(event: Event) -> bool:
    if isinstance(event, session_events.FactAppended):
        return isinstance(event.recorded.fact, facts.UserSaid)
    return isinstance(event, session_events.MessagesQueued)
