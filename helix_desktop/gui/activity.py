"""What goes on in all open workspaces, also those that are not in front: the rail's dots, the list, notifications."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from helix_desktop.engine.events import (
    Asked,
    Event,
    FactAppended,
    Measured,
    Queued,
    Running,
    StateChanged,
    Streamed,
    ToolShowed,
)
from helix_desktop.engine.facts import (
    ConversationChanged,
    ConversationStarted,
    Folded,
    ModelReplied,
    Refolded,
    TurnEnded,
    Unfolded,
    UserPart,
    UserSaid,
)
from helix_desktop.gui.bridge import Bridge
from helix_desktop.gui.chat.attachments import written
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.ports import Session, Workbench
from helix_desktop.gui.streaming import Unfinished

_URGENT = (Running.ASKING, Running.FAILED, Running.TOOLS, Running.THINKING)
# What a line of the list shows: its title, its place, its bar.
_SHOWN = (ConversationChanged, ConversationStarted, Folded, ModelReplied, Refolded, TurnEnded, Unfolded)
LISTED = 300  # milliseconds; the list of a busy workspace is made anew no more often
Queue = tuple[tuple[UserPart, ...], ...]
WORKING = frozenset({Running.THINKING, Running.TOOLS, Running.ASKING})


class Watched(QObject):
    """One open workspace. `settings_changed`: also by the command line. `settled(conversation, running, why)`: it is done, waits for the user, or failed."""

    changed = Signal()
    settings_changed = Signal()
    state_changed = Signal(str, object)
    settled = Signal(str, object, str)

    def __init__(self, bench: Workbench, memory: Memory, parent: QObject) -> None:
        super().__init__(parent)
        self.bench = bench
        self._memory = memory
        self._unfinished = Unfinished()
        self._queued: dict[str, Queue] = {}
        self._unrecorded: dict[str, Queue] = {}  # left the queue; not in the journal yet
        failed: list[str] = memory.get("failed", bench.id, default=[])
        self._states: dict[str, Running] = dict.fromkeys(failed, Running.FAILED)
        self._looked_at: set[str] = set()  # failures that are no news
        self._bridge = Bridge(self)
        self._bridge.happened.connect(self._happened)
        self._soon = QTimer(self, interval=LISTED, singleShot=True)
        self._soon.timeout.connect(self.changed)
        self._leave = (bench.subscribe(self._heard), bench.workspace.watch(self.settings_changed.emit))

    def leave(self) -> None:
        for leave in self._leave:
            leave()

    @property
    def running(self) -> Running:
        """The most urgent of what its conversations do."""
        news = {state for name, state in self._states.items() if name not in self._looked_at}
        return next((state for state in _URGENT if state in news), Running.IDLE)

    def failures(self) -> tuple[str, ...]:
        """The conversations whose last turn failed, also before the program was started."""
        return tuple(name for name, state in self._states.items() if state is Running.FAILED)

    def going_on(self, session: Session) -> tuple[Event, ...]:
        """What goes on in a conversation just now and is no fact yet, for somebody who comes to see it."""
        asked = (Asked(session.id, number, question) for number, question in session.questions.items())
        return (StateChanged(session.id, session.running), *asked, *self._unfinished.of(session.id))

    def seen(self, conversation: str) -> None:
        """The user looks at it: a failure is no news any more. In the list it stands until the conversation goes on."""
        if self._states.get(conversation) is Running.FAILED:
            self._looked_at.add(conversation)
            self.state_changed.emit(conversation, Running.FAILED)

    def remove_waiting(self, conversation: str, message: tuple[UserPart, ...]) -> None:
        """The user took a message out of the queue."""
        left = self._unrecorded.get(conversation, ())
        self._unrecorded[conversation] = tuple(each for each in left if each != message)
        self._keep_waiting(conversation)

    def _heard(self, event: Event) -> None:
        self._unfinished.take(event)
        if isinstance(event, Queued):
            before = self._queued.get(event.conversation, ())
            left = tuple(each for each in before if each not in event.messages)
            again = self._unrecorded.get(event.conversation, ())
            self._unrecorded[event.conversation] = (*(each for each in again if each not in event.messages), *left)
            self._queued[event.conversation] = event.messages
            self._keep_waiting(event.conversation)
        elif isinstance(event, FactAppended) and isinstance(event.recorded.fact, UserSaid):
            self._show_recorded(event.recorded.conversation, event.recorded.fact)
        if not isinstance(event, Streamed | ToolShowed):
            self._bridge.take(event)

    def _show_recorded(self, conversation: str, said: UserSaid) -> None:
        """The journal has it; long texts are recorded in another shape than they were sent in."""
        left = list(self._unrecorded.get(conversation, ()))
        if said.parts in left:
            left.remove(said.parts)
        elif left and not said.by:
            del left[0]
        self._unrecorded[conversation] = tuple(left)
        self._keep_waiting(conversation)

    def _keep_waiting(self, conversation: str) -> None:
        """A message that is not recorded yet outlives the program, as a draft does."""
        messages = (*self._unrecorded.get(conversation, ()), *self._queued.get(conversation, ()))
        self._memory.put("waiting", self.bench.id, conversation, value=list(map(written, messages)))

    def _happened(self, events: tuple[Event, ...]) -> None:
        for event in events:
            if isinstance(event, StateChanged):
                self._state(event)
        facts = (event.recorded.fact for event in events if isinstance(event, FactAppended))
        listed = any(isinstance(fact, _SHOWN) for fact in facts) or any(isinstance(each, Measured) for each in events)
        if listed and not self._soon.isActive():
            self._soon.start()

    def _state(self, event: StateChanged) -> None:
        if self._is_sent(event.conversation):
            return
        before = self._states.get(event.conversation, Running.IDLE)
        self._states[event.conversation] = event.running
        self._looked_at.discard(event.conversation)
        if Running.FAILED in (before, event.running):
            self._memory.put("failed", self.bench.id, value=list(self.failures()))
        if event.running is before:
            return
        self.state_changed.emit(event.conversation, event.running)
        ended = before in WORKING and event.running is Running.IDLE
        if ended or event.running in (Running.ASKING, Running.FAILED):
            self.settled.emit(event.conversation, event.running, event.why)

    def _is_sent(self, conversation: str) -> bool:
        """A sub-agent at work: what becomes of it is told to the conversation that waits for it, and is no news by itself."""
        row = self.bench.row(conversation)
        while row is not None and row.parent:
            if self._states.get(row.parent) in WORKING:
                return True
            row = self.bench.row(row.parent)
        return False
