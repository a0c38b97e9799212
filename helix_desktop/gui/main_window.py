"""The main window's content: which workspace and conversation it shows. What each action does is in `wiring.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QEvent, QTimer, Signal

from helix_desktop.engine import budget
from helix_desktop.engine.events import (
    Answered,
    Asked,
    Event,
    FactAppended,
    Folding,
    Measured,
    Queued,
    ReadAnew,
    Running,
    StateChanged,
)
from helix_desktop.engine.facts import Attachment, ModelReplied, Spent, UserSaid
from helix_desktop.engine.rows import ConversationRow
from helix_desktop.errors import HelixError, Refused
from helix_desktop.gui import finding
from helix_desktop.gui.actions import OF_A_CONVERSATION, OF_A_QUESTION, OF_A_WORKSPACE, Actions
from helix_desktop.gui.activity import WORKING, Watched
from helix_desktop.gui.background import Doing
from helix_desktop.gui.bridge import Bridge
from helix_desktop.gui.chat.approvals import question_words, uncovered
from helix_desktop.gui.chat.attaching import Attaching
from helix_desktop.gui.chat.drafts import DraftPlace, UnsentMessage, UnsentMessages
from helix_desktop.gui.chat.page import ChatPage
from helix_desktop.gui.conversation_acts import ConversationActs
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.frame.connect import DEMO
from helix_desktop.gui.frame.first_start import WelcomePage
from helix_desktop.gui.frame.frame import Frame
from helix_desktop.gui.frame.notices import Notices, announce
from helix_desktop.gui.frame.pages import Pages
from helix_desktop.gui.frame.palette import Find, Palette
from helix_desktop.gui.links import Place
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.ports import Desk, Session, Workbench, WorkspaceRow
from helix_desktop.gui.shared.folds import kind_words
from helix_desktop.gui.shared.policies import policy_choices
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.tokens import WORKSPACE_COLOURS
from helix_desktop.gui.words import tr
from helix_desktop.settings import Settings

TITLE = "Helix Desktop"
LONGEST_NAME = 80  # characters of a workspace's name
SHOWN_NAME = 40  # of which so many are shown in a heading
SETTLED = 100  # milliseconds without a conversation, before one that has not begun is measured


class MainWindow(Frame):
    """`settled`: see activity.py. `setup_wanted`: a model is needed. `settings_wanted` carries a page's name.
    `conversation_opened` carries its workspace, its session, and the messages that waited for it.
    """

    settled = Signal(str, str, object, str)
    setup_wanted = Signal()
    trying_again = Signal()
    settings_wanted = Signal(str)
    workbench_shown = Signal()
    conversation_opened = Signal(object, object, object)

    def __init__(self, theme: Theme, memory: Memory, settings: Settings, doing: Doing) -> None:
        super().__init__(theme, memory)
        self._desk: Desk | None = None
        self._waiting: list[Callable[[], object]] = []  # what was asked for before the stores could be opened
        self._blocked: HelixError | None = None  # why they never can be
        self._listed: Sequence[WorkspaceRow] = ()
        self.doing = doing
        self.settings = settings
        self._watched: dict[str, Watched] = {}
        self._wanted_workspace = ""  # the last one asked for: answers to earlier requests are ignored
        self._wanted_conversation = ""
        self.awaited = ""  # the conversation the message box stands in already while it is being opened or made
        self.unsent = UnsentMessages(memory)
        self._cost = 0.0
        self._measuring = QTimer(self, interval=SETTLED, singleShot=True)
        self._measuring.timeout.connect(self._measure_next)
        self.actions_ = Actions(self, settings)
        self.pages = Pages(theme, doing, self.showing, memory, self)
        self.chat = ChatPage(theme, memory, self.pages.transcript, self)
        self.add_page("chat", self.chat, self.pages.inspector)
        self.add_unmade("changes", lambda: (self.pages.changes,))
        self.add_unmade("cache", lambda: (self.pages.cache,))
        self.add_unmade("timeline", lambda: (self.pages.timeline, self.pages.timeline.panel))
        self.welcome = WelcomePage(theme, self)
        self.welcome.show_ready(ready=False)
        self.add_page("welcome", self.welcome)
        if not memory.get("workspace", default=""):
            self.show_page("welcome")
        self.notices = Notices(theme, self._middle, self._composer_height)
        for below in (self.chat.composer, self.chat.foreign, self.chat.approvals, self.chat.way_on):
            below.installEventFilter(self.notices)
        self.palette_ = Palette(theme, self._at_hand, self)
        self.bridge = Bridge(self)
        self.bridge.happened.connect(self._happened)
        self.acts = ConversationActs(
            self, doing, self.notices, changed=self.refresh_conversations, gone=memory.drop, opened=self.show_session_of
        )
        self.attaching = Attaching(doing, lambda: self.showing.bench, self.attacher)
        doing.failed.connect(self.notices.tell_error)

    @property
    def bench(self) -> Workbench | None:
        """The workspace in front."""
        return self.showing.bench

    @property
    def session(self) -> Session | None:
        """The conversation that is shown; None: one that has not begun."""
        return self.showing.session

    def _composer_height(self) -> int:
        """The height at the lower edge that must not be covered: the composer and the questions above it."""
        if self.page != "chat":
            return 0
        above = (self.chat.approvals, self.chat.way_on)
        writes = self.chat.composer if self.chat.foreign.isHidden() else self.chat.foreign
        return writes.height() + sum(each.height() for each in above if each.isVisible())

    # --- what is written before a conversation is open -----------------------------------------------------------

    def stand_in(self, place: DraftPlace, name: str, sent: Sequence[object] = ()) -> None:
        """Write in this conversation from now on, before anything can be opened. `sent`: messages that were sent there already."""
        self.awaited = place[1]
        self.unsent.hold_kept(place, sent)
        self.chat.show_begun(name, begun=place[1] != "new")
        if self.memory.get("layout", place[0], "page", default="chat") == "chat":
            self.restore_layout(place[0])
        self._show_in_composer(place, name)

    def hold_message(self, message: UnsentMessage) -> None:
        """Send it as soon as the conversation is open that the message box belongs to."""
        place = self.chat.composer.place
        self.unsent.hold(place, message)
        self.chat.composer.show_queue(self.unsent.at(place))

    def _show_in_composer(self, place: DraftPlace, name: str) -> None:
        self.chat.composer.show_conversation(*place, name)
        self.chat.composer.show_queue(self.unsent.at(place))

    # --- workspaces ----------------------------------------------------------------------------------------------

    @property
    def desk(self) -> Desk:
        """There from `begin` on; the window is painted before anything is opened."""
        if self._desk is None:
            raise Refused(tr("Helix Desktop is still starting. Try again in a moment."))
        return self._desk

    def begin(self, desk: Desk) -> None:
        """The stores can be opened now."""
        self._desk = desk
        self.welcome.show_ready(ready=True)
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            act()
        self.start()

    def show_blocked(self, error: HelixError) -> None:
        """Nothing can be opened: show why instead of the first steps."""
        self._blocked = error
        self.show_page("welcome")
        self.welcome.show_blocked(said(str(error)))

    def if_able(self, act: Callable[[], object]) -> None:
        """Do it, unless the stores never can be opened: then say so."""
        if self._blocked is not None:
            self.notices.tell_error(self._blocked)
        else:
            act()

    def _wait(self, act: Callable[[], object]) -> None:
        """Until the stores can be opened; where they never can be, say so."""
        self.if_able(lambda: self._waiting.append(act))

    def changeEvent(self, event: QEvent) -> None:
        """The command line may have created, renamed or trashed a workspace."""
        super().changeEvent(event)
        if event.type() is QEvent.Type.ActivationChange and self.isActiveWindow() and self._desk is not None:
            self.refresh_workspaces()

    def workspaces(self) -> Sequence[WorkspaceRow]:
        """As they were listed last: listing reads a file of each."""
        return self._listed

    def refresh_workspaces(self, then: Callable[[], object] | None = None) -> None:
        """List them again, in a thread, and show them in the rail."""

        def listed(rows: Sequence[WorkspaceRow]) -> None:
            rows = self._listed = self._in_order(rows)
            self.rail.show_workspaces(rows, self.bench.id if self.bench else "")
            for name, watched in self._watched.items():
                self.rail.show_running(name, watched.running)
            if then is not None:
                then()

        work = asyncio.to_thread(self.desk.workspaces)
        self.doing.do(work, name="list the workspaces", then=listed, owner=self)

    def _in_order(self, rows: Sequence[WorkspaceRow]) -> Sequence[WorkspaceRow]:
        """New workspaces come last, so that Ctrl+1 to Ctrl+9 keep their meaning."""
        known: list[str] = self.memory.get("rail", default=[])
        order = [*known, *(row.id for row in rows if row.id not in known)]
        there = {row.id for row in rows}
        self.memory.put("rail", value=[name for name in order if name in there])
        return sorted(rows, key=lambda row: order.index(row.id))

    def order_workspaces(self, order: Sequence[str]) -> None:
        """As the user has ordered them. Ctrl+1 to Ctrl+9 follow."""
        self.memory.put("rail", value=list(order))
        self._listed = self._in_order(self._listed)

    def find_workspace(self) -> None:
        """Ask for a workspace by its name; where there is none, for a folder."""
        others = [row for row in self.workspaces() if self.bench is None or row.id != self.bench.id]
        if others:
            self.palette_.open(known=finding.of_workspaces(others, self.go))
        else:
            self.actions_["open-folder"].trigger()

    def open_workspace(self, workspace: str, then: Callable[[], object] | None = None) -> None:
        """Bring a workspace to the front; the others keep running. The last one asked for is shown."""
        self._wanted_workspace = workspace
        if self.bench is not None and self.bench.id == workspace:
            if then is not None:
                then()
            return
        if self._desk is None:
            self._wait(partial(self.open_workspace, workspace, then))
            return

        def opened(bench: Workbench) -> None:
            if self._wanted_workspace == workspace:
                self.show_workbench(bench)
                if then is not None:
                    then()

        work = self.desk.open(workspace)
        self.doing.do(work, name=f"open workspace {workspace}", then=opened, owner=self, failed=self._not_opened)

    def create_workspace(self, folder: Path) -> None:
        wanted = self._wanted_workspace = str(folder)
        if self._desk is None:
            self._wait(partial(self.create_workspace, folder))
            return

        def created(bench: Workbench) -> None:
            if self._wanted_workspace == wanted:
                self.show_workbench(bench)
                self.chat.composer.text.setFocus()
            else:
                self.refresh_workspaces()

        work = self._create(folder)
        self.doing.do(work, name="create a workspace", then=created, owner=self, failed=self._not_opened)

    def _not_opened(self, error: HelixError) -> None:
        self._wanted_workspace = ""
        self.notices.tell_error(error)
        if self.bench is None:
            self.show_page("welcome")

    async def _create(self, folder: Path) -> Workbench:
        """A folder that has a workspace already is opened, not doubled."""
        known = next((row for row in self.workspaces() if row.folder == folder), None)
        if known is not None:
            return await self.desk.open(known.id)
        colour = WORKSPACE_COLOURS[len(self.workspaces()) % len(WORKSPACE_COLOURS)]
        bench = await self.desk.create(self.name_for(folder), folder)
        await self.desk.recolour(bench.id, colour)
        return bench

    def name_for(self, folder: Path) -> str:
        """The folder's name; with the folder it lies in where another workspace is called so."""
        taken = {row.name.casefold() for row in self.workspaces()}
        name = folder.name[:LONGEST_NAME] or str(folder)
        if name.casefold() not in taken:
            return name
        longer = f"{name} ({folder.parent.name})"[:LONGEST_NAME]
        return longer if longer.casefold() not in taken else f"{name[: LONGEST_NAME - 5]} ({len(taken) + 1})"

    def show_workbench(self, bench: Workbench) -> None:
        """Show an open workspace: its layout, its list, the conversation that was open last."""
        if self.bench is not None:
            self.keep_layout()
            self.bridge.leave()
        self.notices.drop_offers()
        self._wanted_workspace = bench.id
        self.showing.show_workspace(bench)
        last = self.memory.get("conversation", bench.id, default="")
        self.memory.put("workspace", value=bench.id)
        self._watch(bench)
        if any(row.id == bench.id for row in self._listed):
            self.rail.mark(bench.id)
        else:
            self.refresh_workspaces()
        self.sidebar.show_workspace(bench.name, next(iter(bench.folders), None))
        self.show_choices()
        self.restore_layout(bench.id)
        self.refresh_conversations()
        row = bench.row(last)
        awaited = last if row is not None and not row.trashed else ""
        self.show_session(None, awaited=awaited)  # nothing of the other workspace can be seen while one is opened
        self.workbench_shown.emit()
        if row is not None and awaited:
            self.chat.show_writer(row.agent)
            self.open_conversation(awaited)

    def leave_workspace(self, workspace: str) -> None:
        """It closes: stop listening to it."""
        watched = self._watched.pop(workspace, None)
        if watched is not None:
            watched.leave()
            watched.deleteLater()
        if self._wanted_workspace == workspace:
            self._wanted_workspace = ""
        if self.bench is not None and self.bench.id == workspace:
            self.bridge.leave()
            self.showing.show_workspace(None)
            self._enable()
            self._name_window()

    def open_anew(
        self,
        workspace: str,
        work: Coroutine[Any, Any, Workbench],
        then: Callable[[Workbench], object] = lambda _bench: None,
    ) -> None:
        """Reopen a workspace after `work` has changed it; if that fails, open it as it was."""
        self.leave_workspace(workspace)

        def changed(bench: Workbench) -> None:
            if self.bench is None:
                self.show_workbench(bench)
            then(bench)

        def not_changed(error: HelixError) -> None:
            if self.bench is None:
                self.open_workspace(workspace)
            self.notices.tell_error(error)

        self.doing.do(work, name="open a workspace anew", then=changed, owner=self, failed=not_changed)

    def workspace_gone(self, workspace: str) -> None:
        """It was moved to the trash: show another one, or the welcome page."""
        self.leave_workspace(workspace)
        if self.bench is None:
            self.start()
        else:
            self.refresh_workspaces()

    def start(self) -> None:
        """Open the workspace that was open last, or any; without one, welcome."""
        self.refresh_workspaces(self._open_any)

    def _open_any(self) -> None:
        """Unless one was asked for in the meantime, as by the link the program was started with."""
        if self._wanted_workspace:
            return
        rows = self._listed
        last = self.memory.get("workspace", default="")
        found = next((row.id for row in rows if row.id == last), rows[0].id if rows else "")
        if found:
            self.open_workspace(found)
        else:
            self.show_page("welcome")
            self._enable()

    def show_choices(self) -> None:
        """Policy, model and permission mode, as the workspace has them."""
        bench = self.bench
        if bench is None:
            return
        self._measuring.start()
        self.top.policy.show_choice(bench.policy, dict(policy_choices()).get(bench.policy, ""))
        self._show_model()
        self.chat.composer.show_modes([(name, tr(words)) for name, words in bench.modes().items()], bench.mode)

    @property
    def model(self) -> str:
        """The main model of what is shown: the conversation's own, or the workspace's."""
        bench = self.bench
        return "" if bench is None else bench.model_of(self.session.id if self.session is not None else "")

    def _show_model(self) -> None:
        self.top.model.show_choice(self.model)
        self.chat.empty.show_scripted(scripted=self.model == DEMO)
        self.top.fit()

    def _watch(self, bench: Workbench) -> None:
        if bench.id in self._watched:
            return
        watched = self._watched[bench.id] = Watched(bench, self.memory, self)
        watched.changed.connect(lambda: self.refresh_conversations() if self.bench is bench else None)
        watched.settings_changed.connect(lambda: self._settings_changed(bench))
        watched.state_changed.connect(lambda conversation, running: self._state_changed(watched, conversation, running))
        watched.settled.connect(partial(self.settled.emit, bench.id))
        for conversation in watched.failures():
            self._state_changed(watched, conversation, Running.FAILED)

    def _settings_changed(self, bench: Workbench) -> None:
        """The settings were changed, in the window or elsewhere."""
        if self.bench is bench:
            self.show_choices()
            self.sidebar.show_workspace(bench.name, next(iter(bench.folders), None))
        self.refresh_workspaces()

    def _state_changed(self, watched: Watched, conversation: str, running: Running) -> None:
        self.rail.show_running(watched.bench.id, watched.running)
        if watched.bench is self.bench:
            self.sidebar.show_running(conversation, running)

    # --- conversations -------------------------------------------------------------------------------------------

    def title_of(self, workspace: str, conversation: str) -> str:
        """What a conversation of any open workspace is called."""
        row = self._watched[workspace].bench.row(conversation) if workspace in self._watched else None
        return row.title if row else ""

    def open_workspaces(self) -> Sequence[Workbench]:
        """The one in front first."""
        benches = [watched.bench for watched in self._watched.values()]
        return sorted(benches, key=lambda bench: bench is not self.bench)

    @property
    def watched_in_front(self) -> Watched:
        """Of the workspace that is shown."""
        return self._watched[self.showing.bench.id if self.showing.bench else ""]

    def rows(self) -> Sequence[ConversationRow]:
        return self.bench.conversations() if self.bench else ()

    def row(self, conversation: str = "") -> ConversationRow | None:
        """A conversation of the list; without a name the open one."""
        name = conversation or (self.session.id if self.session else "")
        return self.bench.row(name) if self.bench else None

    def refresh_conversations(self) -> None:
        self.sidebar.show_conversations(self.rows())
        current = self.row()
        if self.session is not None and (current is None or current.trashed):
            self.show_session(None)
        self.sidebar.mark(self.session.id if self.session else "")
        self._name_window()

    def open_conversation(self, conversation: str, then: Callable[[], object] | None = None) -> None:
        bench, self._wanted_conversation = self.bench, conversation
        if bench is None:
            return

        def opened(session: Session) -> None:
            unsent = self.unsent.take((bench.id, conversation))
            if self._wanted_conversation == conversation and self.show_session_of(bench, session) and then is not None:
                then()
            self.conversation_opened.emit(bench, session, unsent)

        def not_opened(error: HelixError) -> None:
            self.unsent.leave((bench.id, conversation))
            if self.bench is bench and self.awaited == conversation:
                self.show_session(None)
            self.notices.tell_error(error)

        work = self._read(bench, conversation)
        self.doing.do(work, name="open a conversation", then=opened, owner=self, failed=not_opened)

    async def _read(self, bench: Workbench, conversation: str) -> Session:
        session = await bench.session(conversation)
        await self.pages.transcript.prepare(session.conversation.state)
        return session

    def show_session_of(self, bench: Workbench, session: Session) -> bool:
        """Show a conversation that has been opened or created, unless another workspace is in front now."""
        if self.bench is bench:
            self.show_session(session)
        return self.bench is bench

    def _has_begun(self, session: Session | None) -> bool:
        """Whether it has a message; one of the user's own without any counts as new."""
        row = self.row(session.id) if session is not None else None
        said = (
            (isinstance(each.fact, UserSaid | ModelReplied) for each in session.conversation.state.facts)
            if session
            else ()
        )
        return bool(row and row.agent) or any(said)

    def begin_anew(self) -> None:
        """A new conversation, and not one that is still being opened."""
        self._wanted_conversation = ""
        self.show_session(None)

    def show_session(self, session: Session | None, *, awaited: str = "") -> None:
        """A conversation, or a new one that begins with its first message. `awaited`: it is still being opened."""
        bench = self.bench
        if bench is None:
            return
        self.bridge.leave()
        self.awaited = awaited
        self.showing.show_conversation(session)
        name = session.id if session else awaited
        self.memory.put("conversation", bench.id, value=name)
        if session is not None:
            self.chat.transcript.hear(self._watched[bench.id].going_on(session))
        named = bench.name if len(bench.name) <= SHOWN_NAME else f"{bench.name[: SHOWN_NAME - 1]}…"
        self.memory.put("box", value={"name": named, "is_shown": not self.chat.composer.isHidden()})
        self.chat.show_begun(named, begun=bool(awaited) or self._has_begun(session), scripted=self.model == DEMO)
        composer = self.chat.composer
        self._show_in_composer((bench.id, name or "new"), named)
        composer.show_running(session.running if session else Running.IDLE)
        if session is not None:
            composer.show_queue([waiting.parts for waiting in session.queue])
        if session is not None and not session.queue:
            composer.bring_back()
        self.chat.approvals.show_questions(session.questions if session else {}, uncovered(self.bench))
        self.chat.way_on.show_end(session)
        self.top.tell("")
        self._cost = _cost(session)
        self._show_model()
        self._show_meter()
        self._measuring.start()
        if session is not None:
            self.bridge.listen(session.subscribe)
            self._watched[bench.id].seen(name)
        self.sidebar.mark(name)
        self._enable()
        self._name_window()
        if self.page == "chat" and not self.palette_.isVisible():
            composer.text.setFocus()

    def _name_window(self) -> None:
        row = self.row()
        parts = [row.title if row else "", self.bench.name if self.bench else "", TITLE]
        self.window().setWindowTitle(" — ".join(filter(None, parts)))

    # --- what happens --------------------------------------------------------------------------------------------

    def _happened(self, events: tuple[Event, ...]) -> None:
        session = self.session
        if session is None:
            return
        self.pages.take(events)
        for event in events:
            self._take(session, event)
        if any(isinstance(event, ReadAnew) for event in events):
            self.show_session(session)
        if any(isinstance(event, FactAppended) for event in events):
            self.chat.show_transcript()
        row = self.row()
        if any(isinstance(event, FactAppended | Measured) for event in events) and (row is None or not row.agent):
            self._show_meter()  # a connected agent's conversation has no composer to show it

    def _take(self, session: Session, event: Event) -> None:
        composer = self.chat.composer
        if isinstance(event, StateChanged):
            composer.show_running(event.running)
            self.chat.way_on.show_end(session)
            self._enable()
            if event.running not in WORKING:
                self._measuring.start()
        elif isinstance(event, Asked | Answered):
            self.chat.approvals.show_questions(session.questions, uncovered(self.bench))
            if isinstance(event, Asked):
                self._asked(event)
        elif isinstance(event, Queued):
            composer.show_queue(event.messages)
            self.chat.way_on.show_end(session)
        elif isinstance(event, Folding):
            self.top.tell("" if event.done else tr("Folding: {kind}…", kind=kind_words(event.kind)))
        elif isinstance(event, FactAppended) and isinstance(event.recorded.fact, ModelReplied | Spent):
            self._cost += event.recorded.fact.usage.cost

    def _asked(self, event: Asked) -> None:
        """Focus the question, unless the user is writing."""
        announce(self, question_words(event.question))
        card = self.chat.approvals.card
        if card is not None and not self.chat.composer.text.toPlainText().strip():
            card.focus()

    def _show_meter(self) -> None:
        if self.session is not None:
            self._measure(self.session)
        else:
            self.chat.composer.show_meter({}, 0)
            self.chat.composer.show_price(None)

    def _measure(self, session: Session) -> None:
        meter = session.meter()
        self.chat.composer.show_meter(meter.parts, meter.window, self._cost, meter.factor)
        self.chat.composer.show_price(session.next_message(), session.fold_first)

    def _measure_next(self) -> None:
        """What the next message would cost, and go with; of a conversation that has not begun, the first."""
        bench = self.bench

        def measured(session: Session) -> None:
            if self.session is None and not self.awaited and self.bench is bench:
                self._measure(session)

        if bench is None or not self.model or self.awaited:
            return
        if self.session is not None:
            self.doing.do(bench.look_ahead(self.session.id), name="price the next message", owner=self)
        else:
            self.doing.do(bench.unbegun(), name="price a first message", then=measured, owner=self)

    def _enable(self) -> None:
        """Enable the actions that are possible now."""
        running = self.session.running if self.session else Running.IDLE
        works, allow = running in WORKING, self.actions_.allow
        allow(OF_A_WORKSPACE, when=self.bench is not None)
        allow(OF_A_CONVERSATION, when=self.session is not None)
        allow(OF_A_QUESTION, when=running is Running.ASKING)
        allow(("regenerate", "resume"), when=self.session is not None and not works)
        allow(("stop",), when=works)

    def attacher(self) -> Callable[[Attachment], None]:
        """A function that adds an attachment to the message being written now, even if it arrives later."""
        return partial(self._attach, self.chat.composer.place)

    def _attach(self, place: DraftPlace, attachment: Attachment) -> None:
        if self.chat.composer.hold(place, (attachment,)):
            self.show_page("chat")
            self.chat.composer.text.setFocus()

    # --- finding -------------------------------------------------------------------------------------------------

    def _at_hand(self) -> Sequence[Find]:
        bench = self.bench
        talks = finding.of_conversations(self.rows(), bench.id, self.go) if bench else []
        others = [row for row in self.workspaces() if bench is None or row.id != bench.id]
        return [*talks[:5], *finding.of_workspaces(others, self.go), *finding.of_actions(self.actions_), *talks[5:]]

    def go(self, place: Place) -> None:
        """Go to a place in this or another workspace."""
        if place.kind == "settings":
            self.settings_wanted.emit("")
        else:
            self.open_workspace(place.workspace, lambda: self._go_inside(place))

    def _go_inside(self, place: Place) -> None:
        if place.kind == "entry" and place.digest is not None:
            self.show_page("cache")
            self.pages.show_entry(place.digest)
        elif place.kind in ("conversation", "fold"):
            self.show_page("timeline" if place.kind == "fold" else "chat")
            if self.session is not None and self.session.id == place.conversation:
                self.pages.show_place(place)
            else:
                self.open_conversation(place.conversation, lambda: self.pages.show_place(place))

    # --- the end -------------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """Write down what is remembered."""
        self.keep_layout()
        self.pages.keep()
        self.memory.write()


def _cost(session: Session | None) -> float:
    return budget.savings(session.conversation.state).paid if session else 0.0
